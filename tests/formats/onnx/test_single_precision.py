"""`--float32`: float64 and bfloat16 of an ONNX source are computed in float32, in results of both formats."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import relayout
from relayout.errors import RelayoutError, UnsupportedError
from text_form import model

RNG = np.random.default_rng(0)
ATTENTION = """g (double[n,t,4] x, bool[t,t] seen) => (double[n,t,4] y) <int64[1] last = {-1}, float k = {0.5}> {
    s = MatMul(x, w)
    st = Transpose<perm=[0,2,1]>(x)
    p = MatMul(s, st)
    masked = Where(seen, p, least)
    a = Softmax<axis=-1>(masked)
    v = MatMul(a, x)
    half = Cast<to=11>(k)
    scaled = Mul(v, half)
    m = ReduceMean<keepdims=1>(scaled, last)
    narrow = Cast<to=1>(m)
    few = Cast<to=11>(narrow)
    are_large = Greater(total, zero)
    y = If(are_large) <
        then_branch = g1 () => (double[n,t,4] r) { r = Sub(scaled, few) },
        else_branch = g2 () => (double[n,t,4] q) { q = Neg(scaled) }
    >
}"""
CONSTANTS = {
    "w": RNG.normal(size=(4, 4)),
    "least": np.array(np.finfo(np.float64).min),
    "total": np.array(1.5),
    "zero": np.array(0.0),
}
CONV = """g ({kind}[n,3,h,8] x) => ({kind}[n,4,h,8] y) {{
    c = Conv<pads=[1,1,1,1]>(x, w)
    r = Relu(c)
    y = Mul(r, k)
}}"""


def types(proto: onnx.ModelProto) -> set[int]:
    """The element types of inputs, outputs, constants and Casts of a model."""
    ends = [*proto.graph.input, *proto.graph.output]
    casts = {a.i for node in proto.graph.node for a in node.attribute if a.name == "to"}
    return {
        *(end.type.tensor_type.elem_type for end in ends),
        *(each.data_type for each in proto.graph.initializer),
    } | casts


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_a_float64_network_is_computed_in_float32(suffix: str, tmp_path: Path) -> None:
    source, file = model(ATTENTION, **CONSTANTS), tmp_path / f"m.{suffix}"
    result = relayout.convert(source, format="tflite" if suffix == "tflite" else "onnx", float32=True)
    result.save(file)
    assert "computed in float32, inputs and outputs included: float64" in result.report.notes
    for n, t in ((1, 5), (3, 2)):
        feeds = {"x": RNG.normal(size=(n, t, 4)), "seen": np.tril(np.ones((t, t), bool))}
        feeds["seen"][0] = False  # the mask of a row that sees nothing is finite in float32, too
        assert relayout.verify(source, file, inputs=feeds).ok
    if suffix == "onnx":
        assert TensorProto.DOUBLE not in types(onnx.load(file))


def test_numbers_beyond_float32_stay_finite(tmp_path: Path) -> None:
    source = model("g (double[n] x) => (double[n] y) { y = Mul(x, k) }", k=np.array(-1e300))
    relayout.convert(source, float32=True).save(tmp_path / "m.onnx")
    (constant,) = onnx.load(tmp_path / "m.onnx").graph.initializer
    assert onnx.numpy_helper.to_array(constant) == np.finfo(np.float32).min


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_what_keeps_a_divisor_from_being_0_still_does(suffix: str, tmp_path: Path) -> None:
    text = "g (double[n] x) => (double[n] y) { d = Add(x, k) y = Div(x, d) }"
    source, file = model(text, k=np.array(1e-300)), tmp_path / f"m.{suffix}"
    relayout.convert(source, format="tflite" if suffix == "tflite" else "onnx", float32=True).save(file)
    assert relayout.verify(source, file, inputs={"x": np.array([0.0, 1.0, -2.0])}).ok


@pytest.mark.parametrize(("kind", "name"), [("bfloat16", "bfloat16"), ("double", "float64")])
def test_an_image_network_without_kernels_runs(kind: str, name: str, tmp_path: Path) -> None:
    dtype = np.dtype(ml_dtypes.bfloat16 if kind == "bfloat16" else np.float64)
    constants = {"w": RNG.normal(size=(4, 3, 3, 3)).astype(dtype), "k": np.array(1.5).astype(dtype)}
    source = model(CONV.format(kind=kind), **constants)
    twin = model(CONV.format(kind="float"), **{key: each.astype(np.float32) for key, each in constants.items()})
    with pytest.raises(UnsupportedError, match="--float32 computes float64 and bfloat16 in float32"):
        relayout.convert(source, format="tflite")
    for suffix in ("onnx", "tflite"):
        result = relayout.convert(source, format="tflite" if suffix == "tflite" else "onnx", float32=True)
        assert f"computed in float32, inputs and outputs included: {name}" in result.report.notes
        result.save(tmp_path / f"m.{suffix}")
        for n, h in ((1, 6), (2, 9)):
            feeds = {"x": RNG.normal(size=(n, 3, h, 8)).astype(np.float32)}
            assert relayout.verify(twin, tmp_path / f"m.{suffix}", inputs=feeds).ok


def test_weights_in_the_file_stay_there_until_they_are_written(tmp_path: Path) -> None:
    source = model("g (double[n,300] x) => (double[n,300] y) { y = MatMul(x, w) }", w=RNG.normal(size=(300, 300)))
    onnx.save(source, tmp_path / "wide.onnx")
    result = relayout.convert(tmp_path / "wide.onnx", float32=True)
    result.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size < 0.51 * (tmp_path / "wide.onnx").stat().st_size
    x = RNG.normal(size=(2, 300))
    (y,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x.astype(np.float32)})
    np.testing.assert_allclose(y, x @ onnx.numpy_helper.to_array(source.graph.initializer[0]), rtol=0, atol=1e-4)


def test_without_such_numbers_a_note_says_so() -> None:
    source = model("g (float[n] x) => (float[n] y) { y = Neg(x) }")
    assert "--float32: the model has no float64 and no bfloat16" in relayout.convert(source, float32=True).report.notes
    with pytest.raises(RelayoutError, match="--float32 is for an ONNX source"):
        relayout.convert(relayout.convert(source, format="tflite"), float32=True)
