"""`--at`: the bytes of a report, and its plan, at extents that are told, of a result that stays open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import relayout as api
from relayout.errors import LayoutError, RelayoutError
from small import build

STRIDED = """
t = Transpose<perm=[0,3,1,2]>(x)
c = Conv<strides=[2,2], pads=[1,1,1,1]>(t, w)
r = Relu(c)
y = Transpose<perm=[0,2,3,1]>(r)
"""


def image_model() -> onnx.ModelProto:
    return build("float[n,height,width,3] x", STRIDED, {"w": (4, 3, 3, 3)}, outputs=("y",))


@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_bytes_are_those_of_a_model_with_these_extents(kind: str) -> None:
    at = {"height": 64, "width": 48}
    opened = api.convert(image_model(), format=kind, at=at).report  # type: ignore[arg-type]
    fixed = api.convert(image_model(), format=kind, dims=at).report  # type: ignore[arg-type]
    assert (opened.transposes, opened.bytes, opened.source_bytes) == (fixed.transposes, fixed.bytes, fixed.source_bytes)
    assert opened.lower_bound == fixed.lower_bound
    assert opened.interface[0].shape == ("n", "height", "width", 3)
    assert "(at height=64, width=48)" in str(opened)


def test_a_report_without_them_says_by_what_bytes_grow() -> None:
    report = api.convert(image_model()).report
    text = str(report)
    assert "NHWC -> NCHW, 12 bytes × n × height × width" in text
    assert len(report.remaining) == 2
    (total,) = (line for line in text.splitlines() if line.startswith("bytes of the result: "))
    terms = total.removeprefix("bytes of the result: ").removesuffix(" bytes").split(" + ")
    at = {extent: 1 for item in report.remaining for extent in map(str, item.shape) if not extent.isdigit()}
    assert len(terms) == 2
    assert sum(int(term.split(" × ")[0]) for term in terms) == report.bytes
    assert {name for term in terms for name in term.split(" × ")[1:]} == set(at)
    assert "(open extents as 1)" in text


@pytest.mark.parametrize(
    ("larger", "size"),
    [
        ("Resize<mode='nearest'>(x, , scales)", "48 × b × h × w"),
        ("Pad(x, pads)", "12 × b × (h + 2) × (w + 2)"),
        ("Concat<axis=2>(x, x)", "12 × b × {h} × w"),  # shape inference makes up a name for 2 * h
    ],
)
def test_what_grows_is_not_counted_twice(larger: str, size: str) -> None:
    text = f"c = {larger}  a = Conv<pads=[1,1,1,1]>(c, w)  y = Flatten(a)".replace("'", '"')
    constants = {"scales": np.array([1, 1, 2, 2], np.float32), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    model = build("float[b,3,h,w] x", text, {"w": (3, 3, 3, 3), **constants}, outputs=("y",))
    report = api.convert(model, to="NHWC").report
    (left,) = (item for item in report.remaining if item.tensor == "a")
    assert " × ".join(map(str, left.factors)) == size.format(h=left.shape[2])
    assert size.format(h=left.shape[2]).replace(" ×", " bytes ×", 1) in str(report)


def test_the_plan_is_the_best_at_these_extents() -> None:
    """Of two axes to transpose for, the one is longer at some extents, and the other at others."""
    text = "c = Conv(x, w)  p = Transpose<perm=[0,2,3,1]>(c)  y = Softmax<axis=-1>(p)"
    model = build("float[1,3,h,v] x", text, {"w": (64, 3, 1, 1)}, outputs=("y",))
    report = api.explain(model, at={"h": 10, "v": 10}, target="none")
    fixed = api.explain(model, dims={"h": 10, "v": 10}, target="none")
    assert (report.bytes, report.lower_bound) == (fixed.bytes, fixed.lower_bound)


def test_a_name_that_no_input_has_is_one_error() -> None:
    with pytest.raises(LayoutError, match=r"heigth=64.*did you mean 'height'.*: n, height, width\)"):
        api.explain(image_model(), at={"heigth": 64})
    with pytest.raises(LayoutError, match="no input has a dynamic dimension"):
        api.explain(image_model(), dims={"n": 1, "height": 6, "width": 6}, at={"height": 64})
    with pytest.raises(RelayoutError, match=r"at=\{'height': 0\}"):
        api.explain(image_model(), at={"height": 0})


def test_a_plan_holds_them(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, plan = tmp_path / "m.onnx", tmp_path / "plan.json"
    onnx.save(image_model(), source)
    assert relayout("convert", source, tmp_path / "o.onnx", "--at", "height=64,width=48", "--plan", plan).code == 0
    assert "49,152 bytes" in relayout("check", plan, source).out
    wrong = relayout("explain", source, "--at", "height=0")
    assert wrong.code
    assert "'height=0' is not NAME=N" in wrong.err
