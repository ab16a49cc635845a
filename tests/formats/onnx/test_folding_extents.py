"""An ONNX result computes nothing that follows from given extents, as a `.tflite` does not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import relayout
from text_form import floats, model

HEAD = """g (float[n,3,h,w] x) => (float[n,k,5] y)
<int64 two = {2}, int64 three = {3}, int64 four = {4}, int64 zero = {0}, int64 one = {1},
 int64[1] first = {0}, int64[1] second = {2}, int64[1] rest = {-1}, int64[1] five = {5}> {
    a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, k1)
    b = Relu(a)
    extents = Shape(x)
    height = Gather(extents, two)
    width = Gather(extents, three)
    h4 = Div(height, four)
    w4 = Div(width, four)
    h4u = Unsqueeze(h4, first)
    w4u = Unsqueeze(w4, first)
    of_b = Shape(b)
    rows = Slice(of_b, first, second, first)
    size = Concat<axis=0>(rows, h4u, w4u)
    r = Resize<mode="nearest">(b, , , size)
    d = Conv<pads=[1,1,1,1]>(r, k2)
    of_d = Shape(d)
    count = Gather(of_d, zero)
    count1 = Unsqueeze(count, first)
    boxes = Concat<axis=0>(count1, rest, five)
    t = Transpose<perm=[0,2,3,1]>(d)
    e = Reshape(t, boxes)
    places = Range(zero, w4, one)
    numbers = Cast<to=1>(places)
    greatest = ReduceMax<keepdims=0>(numbers)
    y = Add(e, greatest)
}"""
"""A head of a detector, as exporters write it: 17 of 24 operators compute with extents alone."""
KERNELS = {"k1": floats(8, 3, 3, 3), "k2": floats(5, 8, 3, 3, seed=1)}
CHOICE = """g (float[n,6] x) => (float[n,6] y) <int64 axis = {0}, int64 few = {4}> {
    extents = Shape(x)
    n = Gather(extents, axis)
    are_few = Less(n, few)
    y = If(are_few) <
        then_branch = g1 () => (float[n,6] p) { p = Relu(x) },
        else_branch = g2 () => (float[n,6] q) { q = Neg(x) }
    >
}"""


def operators(file: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(file).graph.node)


def equal(source: onnx.ModelProto, file: Path, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    """Check that ONNX Runtime gives the same numbers for both."""
    runs = [onnxruntime.InferenceSession(each).run(None, {"x": x})[0] for each in (source.SerializeToString(), file)]
    return np.array_equal(*runs)


@pytest.mark.parametrize("target", [None, "qnn"])
@pytest.mark.parametrize(("n", "h", "w"), [(1, 16, 24), (3, 12, 20), (2, 9, 15)])
def test_extents_that_are_given_leave_no_computed_shapes(
    n: int, h: int, w: int, target: str | None, tmp_path: Path
) -> None:
    source = model(HEAD, **KERNELS)
    result = relayout.convert(source, dims={"n": n, "h": h, "w": w}, target=target)
    result.save(tmp_path / "m.onnx")
    assert operators(tmp_path / "m.onnx") == {"Conv": 2, "Relu": 1, "Resize": 1, "Transpose": 1, "Reshape": 1, "Add": 1}
    assert "operators computed beforehand, since extents are known: 17" in result.report.notes
    if target is None:  # a target's functions sum up in another order
        assert equal(source, tmp_path / "m.onnx", floats(n, 3, h, w))
    assert relayout.verify(source, tmp_path / "m.onnx").ok
    if target is not None:
        assert result.report.claims is not None
        assert result.report.claims.parts == 1


def test_what_follows_from_an_open_extent_stays(tmp_path: Path) -> None:
    source = model(HEAD, **KERNELS)
    relayout.convert(source, dims={"n": 2, "h": 16}).save(tmp_path / "m.onnx")
    count = operators(tmp_path / "m.onnx")
    assert (count["Shape"], count["Range"], count["Gather"], count["Div"]) == (1, 1, 1, 1)
    for w in (8, 20):
        assert equal(source, tmp_path / "m.onnx", floats(2, 3, 16, w))


def test_names_that_replace_names_compute_nothing(tmp_path: Path) -> None:
    relayout.convert(model(HEAD, **KERNELS), dims={"n": "batch"}).save(tmp_path / "m.onnx")
    assert operators(tmp_path / "m.onnx") == operators_of(model(HEAD, **KERNELS))


def operators_of(source: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in source.graph.node)


@pytest.mark.parametrize(("n", "chosen"), [(3, "Relu"), (5, "Neg")])
def test_a_branch_that_extents_choose_stands_alone(n: int, chosen: str, tmp_path: Path) -> None:
    source = model(CHOICE)
    relayout.convert(source, dims={"n": n}).save(tmp_path / "m.onnx")
    assert operators(tmp_path / "m.onnx") - Counter(["Identity"]) == {chosen: 1}
    assert equal(source, tmp_path / "m.onnx", floats(n, 6))


def test_a_target_needs_no_dim_where_no_extent_is_open() -> None:
    source = model(HEAD.replace("[n,3,h,w]", "[2,3,16,24]").replace("[n,k,5]", "[2,24,5]"), **KERNELS)
    report = relayout.convert(source, target="qnn").report
    assert report.claims is not None
    assert report.claims.parts == 1
    assert "operators computed beforehand, since extents are known: 17" in report.notes
    assert not any("computed beforehand" in note for note in relayout.convert(source).report.notes)
