"""A Resize that is written with channels last runs with channels in their place, however its extents are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from running import moved_bytes, run
from small import build, feed_of

SIZES = {"n": 1, "h": 5, "w": 6}
FULL = np.array([1, 2, 2, 1], np.float32)
TWO = FULL[1:3]
REGION = np.array([0, 0.1, 0.2, 0, 1, 0.9, 0.8, 1], np.float32)
CROPPED = 'b = Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">(a, r, c)'
HALVES = "sh = Shape<start=0, end=1>(a) ch = Shape<start=3, end=4>(a) all = Concat<axis=0>(sh, s, ch)"
UNKNOWN = "sizes that are fed, of stated extents"
RESIZES: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "an open batch": ("n,5,6,3", 'b = Resize<mode="linear">(a, , c)', 18, {"c": FULL}),
    "open extents to stated ones": ("n,h,w,3", 'b = Resize<mode="linear">(a, , , s)', 18, {"s": [1, 8, 9, 4]}),
    "open extents, by whole scales": ("n,h,w,3", 'b = Resize<mode="linear">(a, , c)', 18, {"c": FULL}),
    "open extents, by halves": ("n,h,w,3", 'b = Resize<mode="linear">(a, , c)', 18, {"c": FULL * 0.75 + 0.25}),
    "axes": ("1,5,6,3", 'b = Resize<mode="linear", axes=[1,2]>(a, , c)', 18, {"c": TWO}),
    "axes of open extents": ("n,h,w,3", 'b = Resize<mode="nearest", axes=[2,1]>(a, , , s)', 18, {"s": [8, 9]}),
    "a cubic one": ("1,5,6,3", 'b = Resize<mode="cubic">(a, , c)', 18, {"c": FULL}),
    "a region of an open batch": (
        "n,5,6,3",
        CROPPED,
        18,
        {"c": FULL, "r": REGION},
    ),
    "a region": ("1,5,6,3", CROPPED, 18, {"c": FULL, "r": REGION}),
    "a region that counts for nothing": ("n,5,6,3", 'b = Resize<mode="linear">(a, r, c)', 11, {"c": FULL, "r": REGION}),
    "before there were regions": ("n,h,w,3", 'b = Resize<mode="linear">(a, c)', 10, {"c": FULL}),
    "an Upsample": ("n,5,6,3", 'b = Upsample<mode="linear">(a, c)', 9, {"c": FULL}),
    "an Upsample by attribute": ("n,5,6,3", 'b = Upsample<mode="nearest", scales=[1.0,2.0,2.0,1.0]>(a)', 7, {}),
    "sizes that are fed": ("n,h,w,3", 'b = Resize<mode="linear">(a, , , s)', 18, {}),
    UNKNOWN: ("1,5,6,3", 'b = Resize<mode="linear">(a, , , s)', 18, {}),
    "sizes that are computed": ("n,h,w,3", f'{HALVES} b = Resize<mode="linear">(a, , , all)', 18, {}),
}
FED = {
    "sizes that are fed": ("int64[4] s", [1, 8, 9, 4]),
    UNKNOWN: ("int64[4] s", [1, 8, 9, 4]),
    "sizes that are computed": ("int64[2] s", [8, 9]),
}


def between_convolutions(name: str) -> tuple[onnx.ModelProto, dict[str, Any]]:
    shape, text, opset, constants = RESIZES[name]
    fed, values = FED.get(name, ("", None))
    inputs = f"float[{shape}] x" + f", {fed}" * bool(fed)
    nodes = f"i = T0312(x) p = Conv(i, v) a = T0231(p) {text} d = T0312(b) e = Conv(d, w) y = T0231(e)"
    source = build(inputs, nodes, {"v": (4, 3, 1, 1), "w": (5, 4, 1, 1), **constants}, opset=opset)
    return source, feed_of(source, SIZES, {} if values is None else {"s": values})


@pytest.mark.parametrize("name", RESIZES)
def test_no_transpose_stays_around_it(name: str) -> None:
    source, feed = between_convolutions(name)
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    stays = name == UNKNOWN  # sizes may resize any axes, and runtimes have not every order of them
    assert result.report.transposes == (4 if stays else 2)
    assert result.report.source_transposes == 4


@pytest.mark.parametrize("name", [name for name in RESIZES if name != UNKNOWN])
def test_in_nhwc_none_is_left(name: str) -> None:
    source, feed = between_convolutions(name)
    result = relayout.convert(source, to="NHWC")
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert [node.domain for node in result.proto.graph.node if node.op_type in ("Resize", "Upsample")] == [
        "relayout.nhwc"
    ]
    assert result.report.transposes == 0


def test_a_batch_that_is_not_scaled_keeps_its_name() -> None:
    source, _ = between_convolutions("open extents, by whole scales")
    del source.graph.value_info[:]
    source.graph.output[0].type.tensor_type.ClearField("shape")  # what ONNX infers: names that it makes up
    known = relayout.optimize(source).model.graph.outputs[0].shape
    assert known is not None
    assert [str(dim) for dim in known] == ["n", "2*h", "2*w", "5"]


@pytest.mark.parametrize("front", ["", "t = T0312(x)"])
def test_no_transpose_crosses_where_it_is_not_known_what_is_larger(front: str) -> None:
    nodes = {
        "": 'a = Resize<mode="linear">(x, , , s) t = T0312(a) y = Conv(t, w)',
        "t = T0312(x)": 't = T0312(x) y = Resize<mode="linear">(t, , , s)',
    }[front]
    sizes = [1, 2, 3, 3] if not front else [1, 3, 2, 3]
    source = build("float[n,h,w,3] x", nodes, {"s": sizes, "w": (4, 3, 1, 1)}, opset=18)
    feed = feed_of(source, {"n": 1, "h": 50, "w": 60})
    result = relayout.optimize(source)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert moved_bytes(result.proto, feed) <= moved_bytes(source, feed)
