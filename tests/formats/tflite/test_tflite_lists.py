"""Lists of tensors become tensors, and what rounds write into them the results of Scans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tflite_cases_lists import (
    LIST,
    ROW,
    TIME,
    at_counter,
    at_length,
    at_the_beginning,
    from_the_end,
    list_of,
    states,
    taken,
    writing,
)
from tflite_running import check_model, read, session
from tflite_writing import Net

from relayout.errors import UnsupportedError

KNOWN = [ROW, (-1, ROW[1]), (-1, -1)]


def kinds(net: Net) -> Counter[str]:
    return Counter(node.op_type for node in read(net.bytes()).graph)


@pytest.mark.parametrize(("known", "opened"), [*((known, False) for known in KNOWN), *((k, True) for k in KNOWN[1:])])
def test_a_list_that_a_counter_fills_is_a_result_of_a_scan(known: Any, opened: bool) -> None:
    """Nothing is left of the list itself; what begins with zeros is the state."""
    found = kinds(writing(known, at_counter, opened=opened))
    assert found["Scan"] == 1
    assert found["Expand"] == opened
    assert not {"Loop", "Pad", "ScatterND"} & set(found)


@pytest.mark.parametrize("known", KNOWN)
def test_a_list_of_one_row_is_a_state_of_its_extents(known: Any) -> None:
    assert "Scan" in kinds(writing(known, at_the_beginning, count=1))


@pytest.mark.parametrize("place", [from_the_end, at_length])
def test_any_other_list_is_a_state(place: Callable[[Net, int, int], int]) -> None:
    model = read(writing(ROW, place).bytes())
    (scan,) = [node for node in model.graph if node.op_type == "Scan"]
    inside = {node.op_type for node in scan.attributes["body"].as_graph()}
    assert "ScatterND" in inside
    assert "Pad" not in inside | {node.op_type for node in model.graph}  # a row's extents are known


@pytest.mark.parametrize("known", [(-1, ROW[1]), (-1, -1)])
@pytest.mark.parametrize(
    ("place", "time", "batch"),
    [(at_counter, 1, 2), (at_counter, 9, 3), (from_the_end, TIME, 2), (from_the_end, TIME, 1), (from_the_end, TIME, 4)],
)
def test_open_extents_of_rows(known: Any, place: Any, time: int, batch: int) -> None:
    made = session(check_model(read(writing(known, place, opened=True).bytes())))
    x = np.random.default_rng(time).normal(size=(time, batch, ROW[1])).astype(np.float32)
    last, rows, counter = made.run(None, {made.get_inputs()[0].name: x})
    found = states(x, np.zeros_like(x[0]))
    assert counter == time
    np.testing.assert_allclose(last, found[-1], atol=1e-6)
    np.testing.assert_allclose(rows, np.stack(found if place is at_counter else found[::-1]), atol=1e-6)


@pytest.mark.parametrize(("limited", "rounds"), [("beside", 3), ("less", 4)])
def test_rounds_that_another_limit_ends_are_a_loop(limited: str, rounds: int) -> None:
    """Of a list of 8 rows; what no round wrote is 0."""
    net = writing((-1, -1), at_counter, opened=True, limited=limited)
    assert kinds(net)["Loop"] == 1
    made = session(check_model(read(net.bytes())))
    x = np.random.default_rng(0).normal(size=(8, 2, ROW[1])).astype(np.float32)
    last, rows, counter = made.run(None, {made.get_inputs()[0].name: x})
    found = states(x[:rounds], np.zeros_like(x[0]))
    assert counter == rounds
    np.testing.assert_allclose(last, found[-1], atol=1e-6)
    np.testing.assert_allclose(rows, np.concatenate([found, 0 * x[rounds:]]), atol=1e-6)


def test_rows_that_grow_with_their_list_end() -> None:
    """Each would be longer than the list that it is written into, which no runtime takes."""
    assert kinds(writing(ROW, at_counter, read="joined"))["Loop"] == 1


def test_a_list_of_which_nothing_is_known_is_refused() -> None:
    net = Net()
    rows = list_of(net, "Reserve", [net.const(-1, "int32"), net.const(3, "int32")])
    taken(net, "Length", [rows], (), "int32")
    with pytest.raises(UnsupportedError, match=f"element type {LIST}"):
        read(net.bytes())


def test_rows_of_which_nothing_tells_the_rank_are_refused() -> None:
    net = Net()
    rows = list_of(net, "Empty", [net.const(-1, "int32"), net.const(-1, "int32")])
    taken(net, "Stack", [list_of(net, "PushBack", [rows, net.input(())]), net.const(-1, "int32")], ())
    with pytest.raises(UnsupportedError, match=f"element type {LIST}"):
        read(net.bytes())


def test_rows_that_are_said_to_have_two_ranks_are_refused() -> None:
    net = Net()
    rows = list_of(net, "FromTensor", [net.input((3, *ROW)), net.const(ROW, "int32")])
    rows = list_of(net, "PushBack", [rows, net.input((4,))])
    taken(net, "Stack", [rows, net.const(-1, "int32")], (4, *ROW))
    with pytest.raises(UnsupportedError, match=f"element type {LIST}"):
        read(net.bytes())


def test_no_axes_may_be_of_any_number() -> None:
    """So files write what nobody knows the rank of."""
    net = writing(-1, at_counter)
    net.graph.tensors[net.graph.outputs[1]].shape = []
    made = session(check_model(read(net.bytes())))
    rng = np.random.default_rng(0)
    x, h = (rng.normal(size=shape).astype(np.float32) for shape in ((TIME, *ROW), ROW))
    (rows,) = made.run(
        [made.get_outputs()[1].name], {i.name: v for i, v in zip(made.get_inputs(), (x, h), strict=True)}
    )
    np.testing.assert_allclose(rows, np.stack(states(x, h)), atol=1e-6)
