"""The law of rows: along an axis that opens, every operator computes row by row, on the cases of all rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from relayout.errors import RelayoutError
from relayout.layout import Extent
from relayout.pipeline import read
from relayout.shapes import OpeningError, open_axes
from relayout.shapes.opening import Opened
from relayout.shapes.parts import whole_dimension
from rules.cases import cases
from rules.law import Array, Case, with_runtime

NAME = "opened"
TELLING = ("Shape", "Size")
"""Operators that tell an extent: what they give of more rows is another number."""
LEAST_OPENED = 900
"""Axes of all cases that open: the rest are bound."""
_counts: dict[str, int] = {}
_ran: set[str] = set()


def ways_to_open(model: onnx.ModelProto, case: Case) -> Iterator[tuple[onnx.ModelProto, Opened]]:
    """The model opened along each axis of each input, where nothing binds it."""
    for index, value in enumerate(model.graph.input):
        for axis in range(len(value.type.tensor_type.shape.dim)):
            graph = read(model)
            end = graph.graph.inputs[index]
            assert end.shape is not None
            extent = end.shape[axis]
            if not isinstance(extent, int) or extent < 2:
                continue
            try:
                found = open_axes(graph, {end: {axis: whole_dimension(Extent.of(NAME), Extent(extent))}}, "the axis")
            except OpeningError:
                continue
            _counts[str(case)] = _counts.get(str(case), 0) + 1
            yield ir.to_proto(graph), found


def part(feed: Mapping[str, Array], places: Mapping[str, int], rows: list[int]) -> dict[str, Array]:
    return {name: array.take(rows, places[name]) if name in places else array for name, array in feed.items()}


def tried() -> list[Case]:
    found = [case for case in cases() if not case.dynamic and case.opset <= 24 and case.op_type not in TELLING]
    return [case for case in found if all(array.size for array in case.arrays.values())]


@pytest.mark.slow
@pytest.mark.parametrize("case", tried(), ids=str)
def test_rows_are_computed_by_themselves(case: Case) -> None:
    _ran.add(str(case))
    model, feed = case.prepared()
    whole = with_runtime(model, feed)
    for changed, found in ways_to_open(model, case):
        before = found.before
        assert isinstance(before, int)
        for rows in ([0], [before - 1, 0, 0], [*range(before), 1]):
            results = with_runtime(changed, part(feed, found.inputs, rows))
            for value, array, result in zip(changed.graph.output, whole, results, strict=True):
                axis, outer = found.outputs.get(value.name, (None, 1))
                if axis is None:
                    wanted = array
                else:
                    split = array.reshape(*array.shape[:axis], outer, before, -1, *array.shape[axis + 1 :])
                    wanted = split.take(rows, axis + 1).reshape(*array.shape[:axis], -1, *array.shape[axis + 1 :])
                label = f"{found.inputs} rows {rows}"
                assert result.shape == wanted.shape, label
                if wanted.dtype.kind == "f":
                    np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-5, err_msg=label)
                else:
                    np.testing.assert_array_equal(result, wanted, err_msg=label)


@pytest.mark.slow
def test_many_axes_open() -> None:
    if _ran < {str(case) for case in tried()}:
        pytest.skip("counts what the tests above have opened, all of them")
    assert sum(_counts.values()) >= LEAST_OPENED, sum(_counts.values())


def test_errors_are_one_kind() -> None:
    assert issubclass(OpeningError, RelayoutError)
