"""What form quantized and hybrid models take in ONNX, and that ONNX Runtime has integer kernels for it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from tflite_cases_spatial import conv
from tflite_running import FAST, agree, check_model, interpreter, read, run_interpreter, session
from tflite_writing import Net, Scale, options

import relayout
from relayout.errors import RelayoutError, UnsupportedError
from relayout.formats.tflite.container.enums import ActivationFunctionType, TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model
from relayout.targets.onnxruntime.uint8_activations import unsigned
from relayout.verification import verify

MODELS = Path(__file__).parents[3] / "models"
IN, MIDDLE, OUT = Scale(0.04, 3), Scale(0.05, -11), Scale(0.1, 7)


def count(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def residual(axis: int = 0) -> Net:
    """conv - (conv, add): a value that two operators read, and an addition, both without a kernel for int8.

    Args:
        axis: along which the biases have their scales, by the file.
    """
    rng, net = np.random.default_rng(5), Net()
    x = net.input((1, 8, 9, 4), "int8", q=IN, name="x")

    def convolved(source: int, step: float, name: str) -> int:
        scales = [0.01, 0.02, 0.01, 0.03]
        kernel = net.const(rng.integers(-127, 128, (4, 3, 3, 4)), "int8", q=Scale(scales))
        bias = net.const(rng.integers(-99, 99, 4), "int32", q=Scale([step * scale for scale in scales], 0, axis))
        y = net.tensor((1, 8, 9, 4), "int8", q=MIDDLE, name=name)
        net.op("CONV_2D", [source, kernel, bias], [y], options("Conv2DOptions", strideH=1, strideW=1), version=3)
        return y

    first = convolved(x, 0.04, "first")
    second = convolved(first, 0.05, "second")
    y = net.output((1, 8, 9, 4), "int8", q=OUT, name="y")
    return net.op("ADD", [first, second], [y], options("AddOptions"), version=2)


def optimized(model: ir.Model, path: Path) -> Counter[str]:
    """What ONNX Runtime makes of a model."""
    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(path)
    settings.log_severity_level = 3
    onnxruntime.InferenceSession(check_model(model), settings, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def test_every_unit_becomes_an_integer_kernel(tmp_path: Path) -> None:
    found = optimized(relayout.convert(read(residual().bytes(), target=FAST)).model, tmp_path / "optimized.onnx")
    assert (found["QLinearConv"], found["QLinearAdd"]) == (2, 1)
    assert not {"Conv", "Add"} & set(found)
    agree(residual().bytes(), target=FAST)
    agree(residual().bytes())


def test_scales_of_a_bias_are_along_its_only_axis() -> None:
    """Early converters say the kernel's axis, which LiteRT 2.3 refuses."""
    contents = [residual(axis).bytes() for axis in (0, 3)]
    assert contents[0] != contents[1]
    made = [relayout.convert(content).proto.SerializeToString() for content in contents]
    assert made[0] == made[1]


def test_integers_within_are_128_higher() -> None:
    content = residual().bytes()
    model = read(content, target=FAST)
    values = {value.name: value for node in model.graph for value in node.outputs}
    assert [values[name].dtype for name in ("first", "second", "y")] == [*[ir.DataType.UINT8] * 2, ir.DataType.INT8]
    report = verify(content, model)
    assert report.ok
    assert {row.name for row in report.interiors} == {"first", "second"}
    assert all(row.lsb is not None and row.lsb <= 1 for row in report.rows)


def test_verification_sees_integers_that_are_not_128_higher() -> None:
    model = read(residual().bytes(), target=FAST)
    for node in model.graph:
        zero = node.inputs[2] if node.op_type == "QuantizeLinear" else None
        if zero is not None and (node.outputs[0].name or "").startswith("first/"):
            zero.const_value = ir.tensor(np.array(MIDDLE.zero + 128 + 5, np.uint8), name=zero.name)
    row = next(row for row in verify(residual().bytes(), model).interiors if row.name == "first")
    assert row.difference is not None
    assert row.difference.max_abs >= 4


def changed(net: Net) -> Model:
    return unsigned(load(net.bytes()))


def test_operators_that_are_not_known_read_int8() -> None:
    net = Net()
    x, y = net.input((2, 3), "int8", q=IN, name="x"), net.tensor((2, 3), "int8", q=MIDDLE, name="y")
    net.op("LOGISTIC", [x], [y]).op("CAST", [y], [net.output((2, 3), "int32")], options("CastOptions"))
    net.op("TANH", [y], [net.output((2, 3), "int8", q=OUT)])
    (graph,) = changed(net).subgraphs
    assert [o.name for o in graph.operators] == ["QUANTIZE", "LOGISTIC", "QUANTIZE", "CAST", "TANH", "QUANTIZE"]
    logistic, back, cast, tanh = graph.operators[1:5]
    assert logistic.outputs == back.inputs == tanh.inputs
    assert cast.inputs == back.outputs == (y,)
    assert [graph.tensors[i].type.name for i in (*back.inputs, *back.outputs)] == ["UINT8", "INT8"]
    agree(net.bytes())


def test_kernels_that_take_no_notice_of_scales_read_int8() -> None:
    net = Net()
    x, y = net.input((2, 3), "int8", q=IN, name="x"), net.tensor((2, 3), "int8", q=MIDDLE, name="y")
    net.op("TANH", [x], [y]).op("NEG", [y], [net.output((2, 3), "int8", q=OUT)], options("NegOptions"))
    sums = options("BatchMatMulOptions", adjY=True)
    net.op("BATCH_MATMUL", [y, y], [net.output((2, 2), "int32")], sums, version=3)
    (graph,) = changed(net).subgraphs
    neg, product = (o for o in graph.operators if o.name in ("NEG", "BATCH_MATMUL"))
    assert {graph.tensors[i].type.name for i in (*neg.inputs, *neg.outputs, *product.inputs)} == {"INT8"}
    agree(net.bytes())


def test_a_shape_is_asked_of_either_type() -> None:
    net = Net()
    x, y = net.input((2, 3), "int8", q=IN), net.tensor((2, 3), "int8", q=MIDDLE)
    net.op("TANH", [x], [y]).op(
        "SHAPE", [y], [net.output((2,), "int32")], options("ShapeOptions", outType=TensorType.INT32)
    )
    net.op("ABS", [y], [net.output((2, 3), "int8", q=OUT)], options("AbsOptions"))
    (graph,) = changed(net).subgraphs
    assert [o.name for o in graph.operators] == ["QUANTIZE", "TANH", "SHAPE", "ABS", "QUANTIZE"]
    assert graph.tensors[y].type.name == "UINT8"
    agree(net.bytes())


def test_where_some_bytes_are_no_quantized_int8_none_is_changed() -> None:
    for other in ({"dtype": "uint8", "q": OUT}, {"dtype": "int8"}):
        net = Net()
        a, b = net.input((2, 3), "int8", q=IN), net.input((2, 3), **other)  # type: ignore[arg-type]
        c = net.tensor((2, 3), "int8", q=IN)
        net.op("TANH", [a], [c]).op("MAXIMUM", [c, b], [net.output((2, 3), "int8", q=IN)])
        (graph,) = changed(net).subgraphs
        maximum = next(o for o in graph.operators if o.name == "MAXIMUM")
        assert maximum.inputs == (c, b)
        assert graph.tensors[c].type.name == "INT8"


@pytest.mark.parametrize("name", ["NEG", "SELECT_V2"])
def test_units_behind_integers_that_are_moved_or_made_otherwise_stay_on_integers(name: str) -> None:
    """ONNX Runtime has no Where of int8, and NEG has no unit."""
    net, shape, q = Net(), (2, 3), Scale(1 / 256, -128)
    x, before, y = net.input(shape, "int8", q=q), net.tensor(shape, "int8", q=q), net.tensor(shape, "int8", q=q)
    net.op("LOGISTIC", [x], [before])
    if name == "NEG":
        net.op(name, [before], [y], options("NegOptions"))
    else:
        net.op(name, [net.input(shape, "bool"), before, before], [y])
    net.op("LOGISTIC", [y], [net.output(shape, "int8", q=q)])
    counts = count(relayout.convert(net.bytes(), target=FAST).model)
    assert (counts["QLinearSigmoid"], counts["Sigmoid"]) == (2, 0)


@pytest.mark.parametrize(("data", "weights"), [("int8", "uint8"), ("uint8", "int8")])
def test_what_is_refused_is_judged_by_the_types_in_the_file(data: str, weights: str) -> None:
    net = Net()
    x, y = net.input((2, 3), data, q=Scale(0.04, 3)), net.output((2, 2), data, q=Scale(0.1, 7))
    kernel = net.const(np.arange(6).reshape(2, 3), weights, q=Scale(0.02, 0))
    net.op("FULLY_CONNECTED", [x, kernel, -1], [y], options("FullyConnectedOptions"), version=4)
    with pytest.raises(UnsupportedError, match=f"{data.upper()} data beside {weights.upper()} weights"):
        read(net.bytes())


def test_a_part_has_the_types_of_the_file() -> None:
    content = residual().bytes()
    part = read(content, inputs=["first"], outputs=["second"])
    assert [v.dtype for v in (*part.graph.inputs, *part.graph.outputs)] == [ir.DataType.INT8] * 2
    with_part = relayout.convert(part).model
    x = np.random.default_rng(2).integers(-128, 128, (1, 8, 9, 4)).astype(np.int8)
    whole = session(check_model(read(content, outputs=["first", "second"])))
    first, second = whole.run(None, {"x": x})
    np.testing.assert_array_equal(session(check_model(with_part)).run(None, {"first": first})[0], second)


def test_constants_are_changed_where_they_are_data() -> None:
    net = Net()
    x, y = net.input((2, 3), "int8", q=IN), net.output((2, 3), "int8", q=OUT)
    shared = net.const(np.arange(-4, 5).reshape(3, 3), "int8", q=Scale(0.02, 0), name="shared")
    z = net.tensor((2, 3), "int8", q=MIDDLE)
    net.op("FULLY_CONNECTED", [x, shared, -1], [z], options("FullyConnectedOptions"), version=4)
    row = net.const(np.array([[-128, 0, 127]]), "int8", q=Scale(0.03, 5), name="row")
    net.op("ADD", [z, row], [y], options("AddOptions"), version=2)
    (graph,) = changed(net).subgraphs
    weights, data = graph.tensors[shared], graph.tensors[row]
    assert (weights.type.name, data.type.name) == ("INT8", "UINT8")
    assert data.data is not None
    assert data.quantization is not None
    assert (data.data.tolist(), data.quantization.zero_point.tolist()) == ([0, 128, 255], [133])
    agree(net.bytes())


def test_what_does_not_compute_is_left_alone() -> None:
    net = Net()
    x = net.input((2, 3), "int8", q=IN)
    net.op(
        "TRANSPOSE", [x, net.const([1, 0], "int32")], [net.output((3, 2), "int8", q=IN)], options("TransposeOptions")
    )
    assert count(read(net.bytes(), target=FAST)) == {"Transpose": 1}
    for kind in ("float32", "uint8", "int16"):
        model = load(conv(kind).bytes())
        assert all(a is b for a, b in zip(model.subgraphs, unsigned(model).subgraphs, strict=True))


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize("activation", ["RELU", "RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("name", ["ADD", "MAX_POOL_2D", "CONV_2D"])
def test_a_clamp_ends_at_the_same_integer_as_the_kernels(name: str, activation: str, kind: str) -> None:
    """Far beyond the ends nothing is rounded: there the results are equal, not only close."""
    net, base = Net(), 128 if kind == "uint8" else 0
    far = Scale(0.11, base + 3)
    x, number = net.input((1, 4, 4, 2), kind, q=far, name="x"), getattr(ActivationFunctionType, activation)
    y = net.output((1, 4, 4, 2), kind, q=far, name="y")
    fused = {"fusedActivationFunction": number}
    if name == "ADD":
        net.op("ADD", [x, x], [y], options("AddOptions", **fused), version=2)
    elif name == "MAX_POOL_2D":
        table = options("Pool2DOptions", filterHeight=1, filterWidth=1, strideH=1, strideW=1, **fused)
        net.op("MAX_POOL_2D", [x], [y], table, version=2)
    else:
        zero, steps = (0, 2) if kind == "int8" else (128, 130)
        kernel = net.const(np.full((2, 1, 1, 2), steps), kind, q=Scale(0.5, zero))
        bias = net.const(np.zeros(2), "int32", q=Scale(0.055, 0))
        net.op("CONV_2D", [x, kernel, bias], [y], options("Conv2DOptions", strideH=1, strideW=1, **fused), version=3)
    low, high = (0, 255) if kind == "uint8" else (-128, 127)
    fed = np.where(np.arange(32).reshape(1, 4, 4, 2) // 2 % 2, low, high).astype(kind)
    (wanted,) = run_interpreter(interpreter(net.bytes()), [fed])
    assert wanted.min() > low
    np.testing.assert_array_equal(session(check_model(read(net.bytes()))).run(None, {"x": fed})[0], wanted)


# Real operands, integer weights.


def hybrid(rows: int, *, per_channel: bool = False, first: str = "") -> Net:
    """A matrix product of real rows of 32 and int8 weights; before it, if wanted, a convolution with int8 weights."""
    rng, net = np.random.default_rng(3), Net()
    x = net.input((1, 1, rows, 32) if first else (rows, 32), name="x")
    if first:
        kernel = net.const(rng.integers(-127, 128, (32, 1, 1, 32)), "int8", q=Scale(0.01, 0))
        middle = net.tensor((1, 1, rows, 32))
        net.op(first, [x, kernel, -1], [middle], options("Conv2DOptions", strideH=1, strideW=1), version=2)
        x = middle
    scale = Scale(rng.uniform(0.005, 0.02, 7).tolist() if per_channel else 0.01, 0)
    weights = net.const(rng.integers(-127, 128, (7, 32)), "int8", q=scale, name="weights")
    bias, y = net.const(rng.normal(size=7), name="bias"), net.output((rows, 7), name="y")
    table = options("FullyConnectedOptions", asymmetricQuantizeInputs=True)
    return net.op("FULLY_CONNECTED", [x, weights, bias], [y], table, version=9)


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("per_channel", [False, True])
def test_products_of_real_rows_round_as_the_interpreter_does(rows: int, per_channel: bool) -> None:
    content = hybrid(rows, per_channel=per_channel).bytes()
    model, plain = check_model(read(content, target=FAST)), check_model(read(content))
    x = np.random.default_rng(1).normal(size=(rows, 32)).astype(np.float32) * np.arange(1, rows + 1)[:, None]
    x = x.astype(np.float32)
    x[-1] = np.abs(x[-1])
    (wanted,) = run_interpreter(interpreter(content), [x])
    error, float_error = (
        np.abs(session(each).run(None, {"x": x})[0] - wanted).max() / np.abs(wanted).max() for each in (model, plain)
    )
    assert error < 1e-6
    assert float_error > 1e-3


def test_rows_of_zeros_stay_zeros() -> None:
    for rows in (1, 3):
        content = hybrid(rows).bytes()
        x = np.zeros((rows, 32), np.float32)
        (wanted,) = run_interpreter(interpreter(content), [x])
        for target in (None, FAST):
            made = session(check_model(read(content, target=target)))
            np.testing.assert_array_equal(made.run(None, {"x": x})[0], wanted)


@pytest.mark.parametrize("rows", [1, 3])
def test_products_name_the_zero_point_of_their_kernel(rows: int) -> None:
    """ONNX Runtime 1.23, told to multiply in full, ends the process where it is left out."""
    (product,) = (node for node in read(hybrid(rows).bytes(), target=FAST).graph if node.op_type == "MatMulInteger")
    assert len(product.inputs) == 4
    assert product.inputs[3] is not None


def test_products_of_several_rows_behind_real_convolutions_are_float() -> None:
    def products(rows: int, **more: Any) -> int:
        return count(read(hybrid(rows, **more).bytes(), target=FAST))["MatMulInteger"]

    assert products(3) == products(1, first="CONV_2D") == 1
    assert products(3, first="CONV_2D") == 0


def test_weights_beside_real_numbers_are_folded_by_the_runtime(tmp_path: Path) -> None:
    assert {"DequantizeLinear"} <= set(count(relayout.convert(MODELS / "tinynet_dynamic.tflite").model))
    model = read(MODELS / "tinynet_dynamic.tflite", target=FAST)
    assert "DequantizeLinear" not in count(model)
    weights = [v for v in model.graph.initializers.values() if v.dtype == ir.DataType.INT8]
    assert weights
    assert not {"DequantizeLinear", "Cast", "Mul"} & set(optimized(model, tmp_path / "optimized.onnx"))


def test_there_are_two_forms() -> None:
    path = MODELS / "tinynet_int8.tflite"
    assert "QuantizeLinear" in count(relayout.convert(path, quant="qdq").model)
    assert not {"QuantizeLinear", "DequantizeLinear"} & set(count(relayout.convert(path, quant="float").model))
    with pytest.raises(RelayoutError, match="it takes 'qdq' or 'float'"):
        relayout.convert(path, quant="int8")  # type: ignore[arg-type]
