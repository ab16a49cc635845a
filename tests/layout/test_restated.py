"""What values are declared to hold, once their dimensions were opened, fixed or given other extents."""

from __future__ import annotations

import numpy as np
import pytest

from relayout.layout.restated import restated, with_extents
from relayout.layout.stored_as import Holds, relay, restore

IMAGE = Holds("x", (4, 6, 3), (2, 0, 1), (1, 4, 6, 3))
"""An image of batch 1 with channels first: its batch is none of the factors."""


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("now", [-1, 5])
def test_an_opened_batch_becomes_a_factor(batch: int, now: int) -> None:
    held = restated(IMAGE, (1, 3, 4, 6), (now, 3, 4, 6))
    assert held is not None
    rows = batch if now == -1 else now
    array = np.arange(rows * 72).reshape(rows, 4, 6, 3)
    stored = relay(array, held, (rows, 3, 4, 6))
    assert np.array_equal(stored, array.transpose(0, 3, 1, 2))
    assert np.array_equal(restore(stored, held), array)


def test_another_extent_of_a_factor() -> None:
    held = Holds("x", (2, 4, 6, 3), (0, 3, 1, 2), (2, 4, 6, 3))
    assert restated(held, (2, 3, 4, 6), (7, 3, -1, 6)) == Holds("x", (7, -1, 6, 3), (0, 3, 1, 2), (7, -1, 6, 3))
    assert restated(held, (2, 3, 4, 6), (2, 3, 4, 6)) == held


def test_what_is_no_factor_of_its_own_is_taken_back() -> None:
    joined = Holds("x", (2, 12, 6), (0, 2, 1), (24, 6))  # the source has two factors in one dimension
    assert restated(joined, (2, 6, 12), (-1, 6, 12)) is None
    assert restated(IMAGE, (1, 3, 24), (1, 3, -1)) is None
    assert restated(IMAGE, (3, 4, 6), (3, 4, 6, 1)) is None
    two = Holds("x", (4, 3), (1, 0), (1, 4, 1, 3))
    assert restated(two, (3, 1, 4), (3, -1, 4)) is None  # one of two axes, and nothing says which
    assert restated(two, (1, 3, 1, 4), (-1, 3, -1, 4)) is None


def test_numbers_for_open_factors() -> None:
    held = Holds("x", (-1, 4, -1, 3), (0, 3, 1, 2), (-1, 4, -1, 3))
    assert with_extents(held, (2, 3, 4, 7)) == Holds("x", (2, 4, 7, 3), (0, 3, 1, 2), (2, 4, 7, 3))
    assert with_extents(held, (2, 3, 4, -1)) == held
    assert with_extents(held, (2, 3, 5, 7)) is None
    assert with_extents(IMAGE, (1, 3, 4, 6)) == IMAGE
