"""Damaged models: whatever the bytes are, a model or one `RelayoutError`, in bounded time and memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import attempting
import mutating
import pytest
import written
from attempting import Attempts, FindingError, Seeds, damaged

from relayout.formats import tflite


@pytest.fixture(scope="module")
def seeds() -> Seeds:
    return Seeds.small()


@pytest.fixture
def attempts() -> Iterator[Attempts]:
    with attempting.folder() as folder:
        yield Attempts(folder)


def truncations(attempts: Attempts, seeds: Seeds, step: int) -> None:
    for name, data in seeds.smallest:
        for length in range(0, len(data), step):
            attempts.attempt(name, data[:length])
    assert attempts.answers["ReadError"] > 0.9 * attempts.inputs


def test_a_seeded_run(attempts: Attempts, seeds: Seeds) -> None:
    for name, data in itertools.islice(damaged(seeds, 1), 400):
        attempts.attempt(name, data)
    # Neither so much damage that nothing gets past the first check, nor so little that nothing is refused.
    assert attempts.answers["ReadError"] > 100
    assert attempts.answers["read"] > 100
    assert attempts.answers["converted: written"] > 20


def test_truncation_now_and_then(attempts: Attempts, seeds: Seeds) -> None:
    truncations(attempts, seeds, 31)


def test_some_fields_at_their_extremes(attempts: Attempts, seeds: Seeds) -> None:
    name, data = seeds.smallest[0]
    for changed in itertools.islice(mutating.every_field(data), 0, None, 29):
        attempts.attempt(name, changed, convert=False)
    assert attempts.answers["ReadError"] > 50


def test_some_axes_where_there_are_none(attempts: Attempts, seeds: Seeds) -> None:
    """Of one node of each operator with axes, and of the smallest `.tflite`; all of them are for `bench/fuzz.py`."""
    edits = itertools.chain.from_iterable(
        zip(itertools.repeat(name), mutating.axis_edits(data))
        for name, data in (*written.with_axes().items(), seeds.smallest[0])
    )
    for name, made in itertools.islice(edits, 0, None, 61):
        attempts.attempt(name, made(), convert=False)
    assert attempts.answers["ReadError"] > 50
    assert attempts.answers["read"] > 50


@pytest.mark.slow
def test_truncation_at_every_byte(attempts: Attempts, seeds: Seeds) -> None:
    truncations(attempts, seeds, 1)


@pytest.mark.slow
def test_every_field_at_its_extremes(attempts: Attempts, seeds: Seeds) -> None:
    name, data = seeds.smallest[0]
    for changed in mutating.every_field(data):
        attempts.attempt(name, changed, convert=False)


@pytest.mark.slow
def test_a_long_seeded_run(attempts: Attempts, seeds: Seeds) -> None:
    """The readers alone; `bench/fuzz.py` goes on to convert what can be read."""
    for name, data in itertools.islice(damaged(seeds, 2), 8000):
        attempts.attempt(name, data, convert=False)


@pytest.mark.parametrize("path", sorted(attempting.FINDINGS.glob("*.*")), ids=lambda path: path.name)
def test_what_was_found_once(attempts: Attempts, path: Path) -> None:
    for _ in range(2):  # as ONNX, and what is no .tflite as one
        attempts.attempt(path.name, path.read_bytes(), convert=True)


def test_inputs_follow_from_the_seed(seeds: Seeds) -> None:
    first, again, other = (list(itertools.islice(damaged(seeds, seed), 20)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_fields_are_found(seeds: Seeds) -> None:
    _, data = seeds.smallest[0]
    fields = mutating.fields_of(data)
    assert {field.width for field in fields} == {1, 2, 4, 8}
    assert mutating.Field(0, 4) in fields
    ends = [field.byte + field.width for field in fields]
    assert max(ends) <= len(data)
    assert all(stop <= after.byte for stop, after in zip(ends, fields[1:], strict=False))


def test_other_errors_slowness_and_memory_are_findings(
    attempts: Attempts, seeds: Seeds, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, data = seeds.smallest[0]
    attempts.attempt(name, data)
    monkeypatch.setattr(attempting, "SECONDS", 0.0)
    with pytest.raises(FindingError, match=r"took .* s"):
        attempts.attempt(name, data)
    monkeypatch.setattr(attempting, "SECONDS", 10.0)
    monkeypatch.setattr(attempting, "MEMORY", -1)
    with pytest.raises(FindingError, match=r"took .* MB"):
        attempts.attempt(name, data)

    def defect(_: bytes) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(tflite, "read", defect)
    with pytest.raises(FindingError, match="IndexError: out of range"):
        attempts.attempt(name, data)
