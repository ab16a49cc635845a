"""Results run where an open extent is 0, as their sources do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import relayout
from running import run
from small import build
from text_form import floats

CASES = {
    "a size-1 axis moves": ("float[N,1,K,4] x", "y = T0312(x)"),
    "size-1 axes move apart": ("float[N,1,K,1] x", "a = T0312(x) y = Relu(a)"),
    "one channel comes of DepthToSpace": ("float[N,4,H,W] x", "a = DepthToSpace<blocksize=2>(x) y = T0231(a)"),
    "an axis is split": ("float[N,6,H,W] x", "a = Reshape(x, s) b = T02134(a) c = Relu(b) y = T01324(c)"),
}
SPLIT = [0, 2, 3, 0, -1]


@pytest.mark.parametrize("options", [{"io": "convert"}, {"io": "keep"}, {"to": "NHWC"}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_results_run_on_nothing(case: str, options: dict[str, str]) -> None:
    """A 0 and a -1 in one shape are refused where the extent that the 0 copies is 0."""
    inputs, text = CASES[case]
    source = build(inputs, text, {"s": SPLIT} if "s)" in text else {})
    result = relayout.convert(source, **options)
    assert not any({0, -1} <= set(shape) for shape in shapes(result.proto) if shape != SPLIT)
    for open_extent in ("N", "K", "H"):
        sizes = [(dim.dim_param, dim.dim_value) for dim in source.graph.input[0].type.tensor_type.shape.dim]
        extents = [0 if name == open_extent else 3 if name else number for name, number in sizes]
        feed = {"x": floats(*extents)}
        try:
            wanted = run(source, feed)
        except Exception:  # a shape of the source's own that says -1
            continue
        for want, got in zip(wanted, run(result.proto, feed), strict=True):
            assert got.size == want.size
            assert options.get("io") == "convert" or got.shape == want.shape
            np.testing.assert_array_equal(np.sort(got.ravel()), np.sort(want.ravel()))


def shapes(model: onnx.ModelProto) -> list[list[int]]:
    given = {tensor.name: onnx.numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer}
    return [given[node.input[1]] for node in model.graph.node if node.op_type == "Reshape" and node.input[1] in given]
