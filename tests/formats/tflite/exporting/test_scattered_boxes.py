"""A ScatterND that writes a box of a tensor is Slices and Concats, through which layouts pass."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees
from numpy.typing import NDArray

import relayout
from litert_runs import operators
from small import build
from text_form import floats


def places(*ranges: range) -> NDArray[np.int64]:
    """Return the coordinates of a box, element by element."""
    return np.stack(np.meshgrid(*map(np.array, ranges), indexing="ij"), -1).astype(np.int64)


ALL = (range(2), range(4), range(6), range(3))
BOXES = {
    "inside": ((*ALL[:2], range(2, 5), ALL[3]), ["SLICE", "SLICE", "CONCATENATION"]),
    "first": ((*ALL[:2], range(2), ALL[3]), ["SLICE", "CONCATENATION"]),
    "last": ((ALL[0], range(1, 4), *ALL[2:]), ["SLICE", "CONCATENATION"]),
    "whole": (ALL, []),
    "rows of two axes": ((range(1, 2), range(1, 3)), ["SLICE"] * 4 + ["CONCATENATION"] * 2),
    "from behind": ((range(-1, 0), range(-4, 0), range(-2, 0)), ["SLICE"] * 3 + ["CONCATENATION"] * 2),
}


@pytest.mark.parametrize("kind", BOXES)
def test_a_box_is_slices_and_concats(kind: str) -> None:
    box, expected = BOXES[kind]
    at = places(*box)
    shape = (*at.shape[:-1], *(2, 4, 6, 3)[at.shape[-1] :])
    inputs = f"float[2,4,6,3] x, float[{','.join(map(str, shape))}] u"
    model = build(inputs, "y = ScatterND(x, at, u)", {"at": at}, outputs=("y",))
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert not {"SCATTER_ND", "TRANSPOSE"} & set(names)
    assert sorted(each.replace("STRIDED_", "") for each in names if each != "RESHAPE") == sorted(expected)
    agrees(model, {"x": floats(2, 4, 6, 3), "u": floats(*shape, seed=1)})


@pytest.mark.parametrize("data", ["float[6]", "float[6,4]", "float[6,n]"])
def test_rows_that_follow_each_other_are_a_box(data: str) -> None:
    """They are rows at any places, too, of which those of one axis, or of open extents, are not written as such."""
    source = build(f"{data} x, {data.replace('6', '3')} u", "y = ScatterND(x, at, u)", {"at": places(range(2, 5))})
    names = operators(relayout.convert(source, format="tflite").tflite)
    assert "CONCATENATION" in names
    assert "SCATTER_ND" not in names
    rest = (4,) * (data != "float[6]")
    agrees(source, {"x": floats(6, *rest), "u": floats(3, *rest, seed=1)})


OTHERS = {
    "turned round": (places(*ALL[:3])[:, ::-1], ""),
    "with a gap": (places(ALL[0], range(0, 4, 2), ALL[2]), ""),
    "of other axes": (places(range(2), range(4), range(6)).swapaxes(0, 1), ""),
    "a list": (places(*ALL[:2]).reshape(8, 2), ""),
    "added": (places(*ALL[:2], range(2)), '<reduction="add">'),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_places_are_scattered(kind: str) -> None:
    at, attributes = OTHERS[kind]
    shape = (*at.shape[:-1], *(2, 4, 6, 3)[at.shape[-1] :])
    inputs = f"float[2,4,6,3] x, float[{','.join(map(str, shape))}] u"
    model = build(inputs, f"y = ScatterND{attributes}(x, at, u)", {"at": at}, outputs=("y",))
    assert "SCATTER_ND" in operators(relayout.convert(model, format="tflite").tflite)
    agrees(model, {"x": floats(2, 4, 6, 3), "u": floats(*shape, seed=1)})


def test_a_box_between_convolutions_is_not_transposed() -> None:
    text = """a = Conv(x, w)  b = Conv(z, w)  c = ScatterND(a, at, b)  y = Conv(c, w)"""
    at = places(range(1), range(4), range(1, 3), range(5))
    model = build("float[1,4,6,5] x, float[1,4,2,5] z", text, {"w": (4, 4, 1, 1), "at": at}, outputs=("y",))
    result = relayout.convert(model, format="tflite", io="NHWC")
    assert "TRANSPOSE" not in operators(result.tflite)
    agrees(model, {"x": floats(1, 4, 6, 5), "z": floats(1, 4, 2, 5)})
