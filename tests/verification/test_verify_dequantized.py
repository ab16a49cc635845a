"""A float model of a quantized source, operator by operator: what by its nature differs passes, and no fault does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import relayout
from conftest import KERAS
from formats.tflite.tflite_writing import Net, Scale, options
from relayout.verification import verify
from relayout.verification.side import open_side

TINYNET = Path(__file__).parents[2] / "models" / "tinynet_int8.tflite"
QUICK = ("bidirectional_lstm_fused.int8", "group_norm.int8", "simplernn_unrolled.int16x8")
NETWORKS = [
    pytest.param(path, marks=() if path.stem in QUICK else pytest.mark.slow, id=path.stem)
    for path in sorted(KERAS.glob("*.int*.tflite"))
]


@pytest.mark.parametrize("path", NETWORKS)
def test_a_float_model_agrees_operator_by_operator(path: Path) -> None:
    for seed in (0, 1):
        report = verify(path, relayout.convert(path, quant="float").model, seed=seed)
        assert report.ok, report.verdict
        assert all(row.ok for row in report.rows)
        assert not any(row.alone is None for row in report.rows)


# Faults.


def changed(model: ir.Model, node: ir.Node, by: Callable[[np.ndarray], np.ndarray]) -> None:
    """Another kernel for one node."""
    old = node.inputs[1]
    assert old is not None
    assert old.const_value is not None
    array = np.ascontiguousarray(by(old.const_value.numpy()))
    new = ir.Value(name=f"{old.name}/other", type=old.type, shape=old.shape, const_value=ir.tensor(array))
    model.graph.register_initializer(new)
    node.replace_input_with(1, new)


def scaled(model: ir.Model, node: ir.Node) -> None:
    changed(model, node, lambda kernel: kernel * np.float32(1.05))


def zero_point_forgotten(model: ir.Model, node: ir.Node) -> None:
    changed(model, node, lambda kernel: kernel + np.float32(3 * np.abs(kernel).max() / 127))


def bias_left_out(model: ir.Model, node: ir.Node) -> None:
    assert node.inputs[2] is not None
    node.replace_input_with(2, None)


def pads_on_the_other_side(model: ir.Model, node: ir.Node) -> None:
    pads = list(node.attributes["pads"].as_ints())
    assert pads[:2] != pads[2:]
    node.attributes["pads"] = ir.AttrInt64s("pads", pads[2:] + pads[:2])


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize(
    ("fault", "place"),
    [
        *((fault, place) for fault in (scaled, zero_point_forgotten, bias_left_out) for place in (0, 1, 4)),
        (pads_on_the_other_side, 0),
    ],
)
@pytest.mark.sampled(every=3)
def test_a_fault_is_found_at_its_operator(fault: Callable[[ir.Model, ir.Node], None], place: int, io: str) -> None:
    model = relayout.convert(TINYNET, quant="float", io=io).model
    assert verify(TINYNET, model).ok
    fault(model, [node for node in model.graph if node.op_type == "Conv"][place])
    report = verify(TINYNET, model)
    assert not report.ok
    (wrong,) = [row for row in report.interiors if not row.ok]
    kinds = ("CONV_2D", "DEPTHWISE_CONV_2D")
    assert wrong.node == [row.node for row in report.rows if row.operator in kinds][place]


# One value that stands for several, and several that hold one.


def chain() -> bytes:
    """Integers, the same with less room and with more, their floats, which are negated, and integers again."""
    net, kinds = Net(), options("Conv2DOptions", padding=1, strideH=1, strideW=1)
    wide, narrow, last = Scale(0.05, -3), Scale(0.02, 5), Scale(0.09, 11)

    def conv(x: int, before: Scale, after: Scale, name: str, kernel: float) -> int:
        made = net.tensor((1, 6, 8, 4), "int8", q=after, name=name)
        weights = net.const(np.eye(4, dtype=np.int64).reshape(4, 1, 1, 4) * 127, "int8", q=Scale(kernel / 127, 0))
        bias = net.const(np.zeros(4, np.int64), "int32", q=Scale(before.scale * kernel / 127, 0))
        net.op("CONV_2D", [x, weights, bias], [made], kinds, version=3)
        return made

    x = net.input((1, 6, 8, 4), name="x")
    entered = net.tensor((1, 6, 8, 4), "int8", q=wide, name="entered")
    net.op("QUANTIZE", [x], [entered], version=1)
    first = conv(entered, wide, wide, "first", 2)
    again = net.tensor((1, 6, 8, 4), "int8", q=narrow, name="again")
    net.op("QUANTIZE", [first], [again], version=2)
    room = net.output((1, 6, 8, 4), "int8", q=Scale(0.12, 0), name="room")
    net.op("QUANTIZE", [first], [room], version=2)
    second = conv(again, narrow, last, "second", 1)
    both = net.tensor((1, 6, 8, 4), "int8", q=last, name="both")
    net.op("ADD", [first, second], [both], options("AddOptions"), version=2)
    floats, negative = (net.tensor((1, 6, 8, 4), name=name) for name in ("floats", "negative"))
    net.op("DEQUANTIZE", [both], [floats], version=2)
    net.op("NEG", [floats], [negative])
    net.op("QUANTIZE", [negative], [net.output((1, 6, 8, 4), "int8", q=narrow, name="y")], version=1)
    return net.bytes()


FED = np.random.default_rng(3).normal(0, 5, (1, 6, 8, 4)).astype(np.float32)
"""Beyond what the integers stand for, and more so beyond the narrower ones."""


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_an_operator_is_given_what_its_own_operand_stands_for(io: str) -> None:
    """`first` and `again` are one value in the float model, read as both; so are `x` and `entered`."""
    source = chain()
    model = relayout.convert(source, quant="float", io=io).model
    report = verify(source, model, inputs={"x": FED})
    assert report.ok, report
    assert {row.name for row in report.rows} >= {"first", "again", "second", "both", "floats", "negative", "room", "y"}
    assert all(row.ok and row.alone is not None for row in report.rows)
    values = {row.name: row.other for row in report.rows}
    assert values["first"] == values["again"] or io == "keep"
    for place in (0, 1):
        wrong = relayout.convert(source, quant="float", io=io).model
        scaled(wrong, [node for node in wrong.graph if node.op_type == "Conv"][place])
        found = verify(source, wrong, inputs={"x": FED})
        assert not found.ok
        assert found.first is not None
        assert found.first.name == ("first", "second")[place]


def test_a_copy_that_is_wrong_is_found() -> None:
    """A value in another order of axes is given, too: what makes it of the first one would not be seen otherwise."""
    source = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,5,6] x) => (float[1,4,5,6] z)'
        "{ y = Relu(x)  z = Neg(y) }"
    )

    def result(perm: str) -> ir.Model:
        model = ir.from_onnx_text(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,5,6] x) => (float[1,4,5,6] z)'
            f"<float[1,4,5,6] y, float[1,6,4,5] s> {{ y = Relu(x)  t = Transpose<perm = [{perm}]>(y)"
            "  s = Reshape<allowzero = 1>(t, h)  u = Neg(s)  z = Transpose<perm = [0, 2, 3, 1]>(u) }"
        )
        model.graph.register_initializer(
            ir.Value(name="h", const_value=ir.tensor(np.array([1, 6, 4, 5])), shape=ir.Shape([4]))
        )
        for node in model.graph:
            for slot, value in enumerate(node.inputs):
                if value is not None and value.name == "h":
                    node.replace_input_with(slot, model.graph.initializers["h"])
        copy = next(node for node in model.graph if node.op_type == "Reshape").outputs[0]
        copy.metadata_props["relayout.holds"] = '[{"name":"y","factors":[1,4,5,6],"perm":[0,3,1,2],"shape":[1,4,5,6]}]'
        return model

    assert verify(source, result("0, 3, 1, 2")).ok
    report = verify(source, result("0, 3, 2, 1"))
    assert not report.ok
    assert report.first is not None
    assert report.first.name == "y"


# What the source rounds.


def test_what_the_source_rounds_twice_has_no_direction() -> None:
    """122 becomes 51.59, and the kernel yields 51 of it everywhere; a zero point that is one off is not the same."""
    net = Net()
    x = net.input((1, 1, 1, 3), "uint8", q=Scale(0.0122984, 0), name="x")
    wide = net.tensor((1, 7, 9, 3), "uint8", q=Scale(0.0122984, 0), name="wide")
    size = net.const([7, 9], "int32")
    net.op("RESIZE_BILINEAR", [x, size], [wide], options("ResizeBilinearOptions"), version=3)
    net.op("QUANTIZE", [wide], [net.output((1, 7, 9, 3), "uint8", q=Scale(0.029083, 0), name="y")], version=2)
    source, fed = net.bytes(), {"x": np.uint8([[[[122, 10, 201]]]])}
    assert _ran(source, fed)[0, 0, 0, 0] == 51
    model = relayout.convert(source, quant="float").model
    assert verify(source, model, inputs=fed).ok
    behind(model, "Add", 0.029083)
    assert not verify(source, model, inputs=fed).ok


def behind(model: ir.Model, operator: str, number: float) -> None:
    """Another operator behind the model's output, with a constant."""
    (end,) = model.graph.outputs
    made, name = end.producer(), end.name
    assert made is not None
    constant = ir.node("Constant", [], {"value": ir.tensor(np.float32(number))})
    result = ir.Value(name=name, type=end.type, shape=end.shape)
    end.name = f"{name}/before"
    node = ir.node(operator, [end, *constant.outputs], outputs=[result])
    model.graph.extend([constant, node])
    model.graph.outputs[0] = result


def _ran(source: bytes, fed: dict[str, np.ndarray]) -> np.ndarray:
    with open_side(source) as side:
        name = side.outputs[0].name
        return side.runner().run(fed, [name])[name]


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_scales_along_an_axis(axis: int) -> None:
    q, shape = Scale(list(0.02 + 0.01 * np.arange((2, 3, 4, 5)[axis])), 0, axis), (2, 3, 4, 5)
    net = Net()
    net.op("QUANTIZE", [net.input(shape)], [net.output(shape, "int8", q=q)], version=2)
    source = net.bytes()
    for io in ("keep", "convert"):
        assert verify(source, relayout.convert(source, quant="float", io=io).model).ok
    model = relayout.convert(source, quant="float").model
    behind(model, "Mul", 1.05)
    assert not verify(source, model).ok


def tanh() -> bytes:
    """TANH of 16 bits, which the kernel looks up."""
    net = Net()
    x = net.input((40, 50), "int16", q=Scale(2.0**-13, 0), name="x")
    y = net.tensor((40, 50), "int16", q=Scale(2.0**-15, 0), name="y")
    net.op("TANH", [x], [y])
    net.op("RESHAPE", [y, net.const([2000], "int32")], [net.output((2000,), "int16", q=Scale(2.0**-15, 0))])
    return net.bytes()


def test_what_a_kernel_looks_up_is_some_steps_of_16_bits_off() -> None:
    source = tanh()
    report = verify(source, relayout.convert(source, quant="float").model)
    assert report.ok
    row = report.rows[0]
    assert row.alone is not None
    assert 1 < row.alone.max_abs <= 4
    model = relayout.convert(source, quant="float").model
    node = next(node for node in model.graph if node.op_type == "Tanh")
    operand = node.inputs[0]
    assert operand is not None
    factor = ir.node("Constant", [], {"value": ir.tensor(np.float32(1.001))})
    scaled_up = ir.node("Mul", [operand, *factor.outputs])
    model.graph.insert_before(node, [factor, scaled_up])
    node.replace_input_with(0, scaled_up.outputs[0])
    assert not verify(source, model).ok
