"""Quantizers of QONNX, Brevitas and FINN, written by operators of the standard, equal QONNX's own definition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from node_tests import run
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout.errors import UnsupportedError
from relayout.formats.tflite.container.loading import load

Array = NDArray[np.float32]
GENERAL = "qonnx.custom_op.general"
ROUND = {
    "ROUND": np.round,
    "HALF_EVEN": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda x: np.sign(x) * np.ceil(np.abs(x)),
    "DOWN": np.trunc,
    "HALF_UP": lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
    "HALF_DOWN": lambda x: np.sign(x) * np.ceil(np.abs(x) - 0.5),
}
"""Rounding mode -> what QONNX's page says of it."""


def ends(bits: int, *, signed: int, narrow: int) -> tuple[int, int]:
    """The least and the greatest integer."""
    return (narrow - 2 ** (bits - 1), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1 - narrow)


def quantized(x: Array, scale: Array, zero: Array, bits: int, signed: int, narrow: int, mode: str = "ROUND") -> Array:
    """Quant, by its definition: scale, clip, round, and back."""
    integers = x / scale + zero
    if bits == 1 and signed:
        integers = np.where(integers >= 0, np.float32(1), np.float32(-1))
    else:
        integers = ROUND[mode](np.clip(integers, *ends(bits, signed=signed, narrow=narrow)))
    return ((integers - zero) * scale).astype(np.float32)


def truncated(x: Array, scale: Array, zero: Array, before: int, after: int, mode: str) -> Array:
    """Trunc of version 1."""
    integers = ROUND[mode](np.round(x / scale + zero) / 2.0 ** (before - after))
    return ((integers - zero) * scale).astype(np.float32)


def rescaled(x: Array, scale: float, zero: float, result_scale: float, bits: int, signed: int, mode: str) -> Array:
    """Trunc of version 2: integers of the result's scale, clipped to its bits."""
    ratio = 2.0 ** np.round(np.log2(result_scale / scale))
    integers = np.clip(np.round(x / scale + zero) / ratio, *ends(bits, signed=signed, narrow=0))
    return ((ROUND[mode](integers) - zero / ratio) * result_scale).astype(np.float32)


def floats(number: Any) -> Array:
    return np.asarray(number, np.float32)


def network(
    nodes: list[onnx.NodeProto], x: list[int | str], y: list[int | str], opset: int = 13, **constants: Any
) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)]
    initializers = [numpy_helper.from_array(floats(array), name) for name, array in constants.items()]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(GENERAL, 1)]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, initializers), opset_imports=imports, ir_version=8
    )


def quant(x: str, y: str, scale: str, bits: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node("Quant", [x, scale, "zero", bits], [y], domain=GENERAL, **attributes)


def results(source: onnx.ModelProto, x: Array, tmp_path: Path) -> list[Array]:
    """Run the `.tflite` in LiteRT, or the ONNX result in ONNX Runtime, and return what it gives."""
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    relayout.convert(source, target="onnxruntime-cpu").save(tmp_path / "m.onnx")
    (by_litert,) = run((tmp_path / "m.tflite").read_bytes(), {"x": x})
    (by_onnx,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    return [by_litert, by_onnx]


def halves(*shape: int) -> Array:
    """Numbers of which many lie between two integers of a scale that is a power of two, and some beyond them."""
    return (np.random.default_rng(0).integers(-90, 91, shape) / 8).astype(np.float32)


@pytest.mark.parametrize("mode", ROUND)
@pytest.mark.parametrize(
    ("bits", "signed", "narrow"),
    [(8, 1, 0), (8, 1, 1), (8, 0, 0), (4, 1, 0), (3, 0, 1), (4, 0, 0), (1, 1, 0), (1, 0, 0), (12, 1, 1)],
)
def test_each_mode_and_range(mode: str, bits: int, signed: int, narrow: int, tmp_path: Path) -> None:
    attributes = {"signed": signed, "narrow": narrow, "rounding_mode": mode}
    for zero in (0.0, 2.0, 3.0):
        source = network([quant("x", "y", "s", "b", **attributes)], ["n", 6, 5], ["n", 6, 5], s=0.25, zero=zero, b=bits)
        for n in (1, 4):
            x = halves(n, 6, 5)
            wanted = quantized(x, floats(0.25), floats(zero), bits, signed, narrow, mode)
            for given in results(source, x, tmp_path):
                np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("opset", [9, 11, 13, 21])
@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (3, 1, 1), (1, 1, 1, 1), (1,)])
def test_scales_of_channels_in_any_opset(shape: tuple[int, ...], opset: int, tmp_path: Path) -> None:
    scale = np.resize(floats([0.25, 0.5, 1.0]), shape)
    nodes = [quant("x", "y", "s", "b", signed=1, narrow=1, rounding_mode="ROUND")]
    source = network(nodes, ["n", 3, 4, 5], ["n", 3, 4, 5], opset, s=scale, zero=0, b=4)
    x = halves(2, 3, 4, 5)
    for given in results(source, x, tmp_path):
        np.testing.assert_array_equal(given, quantized(x, scale, floats(0), 4, 1, 1))


@pytest.mark.parametrize("shape", [(1, 3, 1, 1), (3, 1, 1), (1, 1, 1, 5)])
@pytest.mark.parametrize("zeros", [[2, -2, 4, 0, 6], [1, 0, 2, 3, -1]], ids=["even", "odd"])
def test_zero_points_of_channels(shape: tuple[int, ...], zeros: list[int], tmp_path: Path) -> None:
    scale = np.resize(floats([0.25, 0.5, 1.0]), (1, 3, 1, 1))
    zero = np.resize(floats(zeros), shape)
    nodes = [quant("x", "y", "s", "b", signed=1, narrow=0, rounding_mode="ROUND")]
    source = network(nodes, ["n", 3, 4, 5], ["n", 3, 4, 5], s=scale, zero=zero, b=4)
    x = halves(2, 3, 4, 5)
    for given in results(source, x, tmp_path):
        np.testing.assert_array_equal(given, quantized(x, scale, zero, 4, 1, 0))


@pytest.mark.parametrize(("shape", "scales"), [((2, 1, 4), (1, 3, 1)), ((4,), (1, 1, 1))], ids=str)
def test_scales_that_stretch_the_data(shape: tuple[int, ...], scales: tuple[int, ...], tmp_path: Path) -> None:
    scale = np.resize(floats([0.25, 0.5, 1.0]), scales)
    x = halves(*shape)
    wanted = quantized(x, scale, floats(0), 4, 1, 0)
    nodes = [quant("x", "y", "s", "b", signed=1, narrow=0, rounding_mode="ROUND")]
    source = network(nodes, [*shape], [*wanted.shape], s=scale, zero=0, b=4)
    for given in results(source, x, tmp_path):
        np.testing.assert_array_equal(given, wanted)


def test_a_computed_scale(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["s"], axes=[1], keepdims=1),
        quant("x", "y", "s", "b", signed=1, narrow=1, rounding_mode="ROUND"),
    ]
    x = abs(halves(2, 6)) + 1
    for given in results(network(nodes, ["n", 6], ["n", 6], zero=0, b=4), x, tmp_path):
        np.testing.assert_allclose(given, quantized(x, x.max(1, keepdims=True), floats(0), 4, 1, 1), rtol=1e-6)


@pytest.mark.parametrize("mode", ["FLOOR", "ROUND", "CEIL"])
@pytest.mark.parametrize(("signed", "zero"), [(1, 0.0), (1, 8.0), (0, 4.0)])
def test_numbers_truncated_to_another_scale(signed: int, zero: float, mode: str, tmp_path: Path) -> None:
    operands = ["x", "s", "zero", "before", "result_scale", "after"]
    nodes = [helper.make_node("Trunc", operands, ["y"], domain=GENERAL, rounding_mode=mode, signed=signed)]
    constants = {"s": 0.25, "zero": zero, "before": 8, "result_scale": 1.0, "after": 4}
    source = network(nodes, ["n", 6], ["n", 6], **constants)
    x = halves(3, 6)
    for given in results(source, x, tmp_path):
        np.testing.assert_array_equal(given, rescaled(x, 0.25, zero, 1.0, 4, signed, mode))


def test_another_name_and_small_letters(tmp_path: Path) -> None:
    attributes = {"signed": 1, "narrow": 0, "rounding_mode": "floor"}
    nodes = [helper.make_node("IntQuant", ["x", "s", "zero", "b"], ["y"], domain=GENERAL, **attributes)]
    x = halves(3, 6)
    for given in results(network(nodes, ["n", 6], ["n", 6], s=0.25, zero=0, b=4), x, tmp_path):
        np.testing.assert_array_equal(given, quantized(x, floats(0.25), floats(0), 4, 1, 0, "FLOOR"))


@pytest.mark.parametrize("domain", [GENERAL, "onnx.brevitas", "finn.custom_op.general", "finn"])
def test_bipolar_numbers(domain: str, tmp_path: Path) -> None:
    nodes = [helper.make_node("BipolarQuant", ["x", "s"], ["y"], domain=domain)]
    x = halves(3, 6)
    for given in results(network(nodes, ["n", 6], ["n", 6], s=0.5), x, tmp_path):
        np.testing.assert_array_equal(given, np.where(x >= 0, floats(0.5), floats(-0.5)))


@pytest.mark.parametrize("mode", ["FLOOR", "ROUND", "CEIL"])
def test_truncated_numbers(mode: str, tmp_path: Path) -> None:
    operands = ["x", "s", "zero", "before", "after"]
    nodes = [helper.make_node("Trunc", operands, ["y"], domain=GENERAL, rounding_mode=mode)]
    source = network(nodes, ["n", 6], ["n", 6], s=0.25, zero=0, before=8, after=4)
    x = halves(3, 6)
    for given in results(source, x, tmp_path):
        np.testing.assert_array_equal(given, truncated(x, floats(0.25), floats(0), 8, 4, mode))


@pytest.mark.parametrize(("bits", "of_values"), [(8, 8), (4, 4), (3, 8)])
def test_a_network_runs_on_integers(bits: int, of_values: int, tmp_path: Path) -> None:
    """All of it, but for the ends; each output is within a step of the definition's."""
    rng = np.random.default_rng(1)
    w1, w2 = floats(rng.normal(size=(6, 3, 3, 3))), floats(rng.normal(size=(6, 4)))
    greatest = 2 ** (bits - 1) - 1
    s1, s2 = floats(abs(w1).max((1, 2, 3), keepdims=True) / greatest), floats(abs(w2).max() / greatest)
    steps = {"sx": 4 / 2 ** (of_values - 1), "sr": 16 / 2**of_values, "sy": 24 / 2 ** (of_values - 1)}
    of_weights = {"signed": 1, "narrow": 1, "rounding_mode": "ROUND"}
    nodes = [
        quant("x", "xq", "sx", "b", signed=1, narrow=0, rounding_mode="ROUND"),
        quant("w1", "w1q", "s1", "bw", **of_weights),
        helper.make_node("Conv", ["xq", "w1q"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        quant("r", "rq", "sr", "b", signed=0, narrow=0, rounding_mode="ROUND"),
        helper.make_node("MaxPool", ["rq"], ["p"], kernel_shape=[10, 8]),
        helper.make_node("Flatten", ["p"], ["f"]),
        quant("w2", "w2q", "s2", "bw", **of_weights),
        helper.make_node("MatMul", ["f", "w2q"], ["m"]),
        quant("m", "y", "sy", "b", signed=1, narrow=0, rounding_mode="ROUND"),
    ]
    constants = {"w1": w1, "w2": w2, "s1": s1, "s2": s2, "zero": 0, "b": of_values, "bw": bits, **steps}
    source = network(nodes, ["n", 3, 10, 8], ["n", 4], **constants)
    x = floats(rng.normal(size=(2, 3, 10, 8)))
    xq = quantized(x, floats(steps["sx"]), floats(0), of_values, 1, 0)
    conv = network(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        ["n", 3, 10, 8],
        ["n", 6, 10, 8],
        w=quantized(w1, s1, floats(0), bits, 1, 1),
    )
    (c,) = onnxruntime.InferenceSession(conv.SerializeToString()).run(None, {"x": xq})
    r = quantized(np.maximum(c, 0), floats(steps["sr"]), floats(0), of_values, 0, 0).max((2, 3))
    wanted = quantized(r @ quantized(w2, s2, floats(0), bits, 1, 1), floats(steps["sy"]), floats(0), of_values, 1, 0)
    for given in results(source, x, tmp_path):
        assert float(abs(given - wanted).max()) <= 1.01 * steps["sy"]
    names = Counter(operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators)
    assert names["QUANTIZE"] == names["DEQUANTIZE"] == names["CONV_2D"] == names["FULLY_CONNECTED"] == 1
    assert (tmp_path / "m.tflite").stat().st_size < 6000


def test_without_a_target_an_onnx_result_keeps_its_quantizers(tmp_path: Path) -> None:
    source = network([quant("x", "y", "s", "b", signed=1, narrow=0)], ["n", 6], ["n", 6], s=1, zero=0, b=4)
    relayout.convert(source).save(tmp_path / "m.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node] == ["Quant"]


def test_a_mode_that_nobody_knows_is_refused() -> None:
    source = network(
        [quant("x", "y", "s", "b", signed=1, narrow=0, rounding_mode="ODD")], ["n"], ["n"], s=1, zero=0, b=4
    )
    with pytest.raises(UnsupportedError, match="Quant"):
        relayout.convert(source, format="tflite")


def test_a_source_is_verified_by_the_definition_of_its_quantizers(tmp_path: Path) -> None:
    """ONNX Runtime loads no operators of QONNX; another scale in the result is seen."""

    def source(scale: float) -> onnx.ModelProto:
        nodes = [
            quant("x", "q", "s", "b", signed=1, narrow=0, rounding_mode="ROUND"),
            helper.make_node("BipolarQuant", ["q", "s"], ["p"], domain=GENERAL),
            helper.make_node("Add", ["q", "p"], ["a"]),
            helper.make_node("Trunc", ["a", "s", "zero", "b", "few"], ["y"], domain=GENERAL),
        ]
        return network(nodes, ["n", 6], ["n", 6], s=scale, zero=0, b=4, few=3)

    relayout.convert(source(0.25), format="tflite").save(tmp_path / "m.tflite")
    relayout.convert(source(0.25), target="litert").save(tmp_path / "m.onnx")
    onnx.save(source(0.25), tmp_path / "kept.onnx")
    for name in ("m.tflite", "m.onnx", "kept.onnx"):
        verification = relayout.verify(source(0.25), tmp_path / name)
        assert verification.ok
        assert not relayout.verify(source(0.75), tmp_path / name).ok
    assert any("by their definition" in note for note in verification.notes)
