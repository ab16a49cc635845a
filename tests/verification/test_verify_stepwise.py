"""Operator by operator: what it forgives (roundings that add up), and what it does not (each planted fault)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser

import relayout
from formats.tflite.tflite_writing import Net, Scale, options
from relayout.errors import RelayoutError
from relayout.formats.tflite import read
from relayout.formats.tflite.importing.program import Choices
from relayout.layout.stored_as import Holds
from relayout.targets.onnxruntime.import_list import with_vnni
from relayout.verification import Verdict, verify
from relayout.verification.compare import Tolerance
from relayout.verification.feeds import random_feed
from relayout.verification.matching import match_interface, match_interiors
from relayout.verification.ort import OrtSide
from relayout.verification.side import open_side
from relayout.verification.stepwise import JudgedValue, Stepwise, has_direction
from small import build

MODELS = Path(__file__).parents[2] / "models"
TOLERANCE = Tolerance(1e-5, 1e-6)


def steps(source: Path | bytes | ir.Model, model: Path | ir.Model) -> tuple[dict[str, JudgedValue], dict[str, str]]:
    """What is found of each value, and the operator of the source that makes it."""
    with open_side(source) as left, open_side(model) as right:
        inputs, _, _ = match_interface(left.inputs, right.inputs)
        outputs, _, _ = match_interface(left.outputs, right.outputs)
        pairs = [*match_interiors(left.interiors, [*right.interiors, *right.outputs]), *outputs]
        rng = np.random.default_rng(4)
        shapes = [[2 if extent is None else extent for extent in value.shape] for value in left.inputs]
        feeds = {v.name: random_feed(v, tuple(s), rng, True) for v, s in zip(left.inputs, shapes, strict=True)}
        found = Stepwise(left, right, inputs, pairs, TOLERANCE).judge(feeds)
        return found, {value.name: value.operator for value in (*left.interiors, *left.outputs)}


def wrong(source: Path | bytes, model: Path | ir.Model) -> list[str]:
    """The operators whose own results are not the source's."""
    found, operators = steps(source, model)
    assert found
    return [operators[name] for name, step in found.items() if not step.verdict.passes]


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize("precision", ["float", "float16", "int8", "dynamic"])
def test_every_operator_agrees_by_itself(precision: str, io: str) -> None:
    path = MODELS / f"tinynet_{precision}.tflite"
    found, operators = steps(path, relayout.convert(path, io=io).model)
    assert all(step.verdict.passes for step in found.values())
    assert len(found) == len(operators)
    if precision != "int8":
        assert max(step.difference.max_rel for step in found.values()) < 1e-5


def test_a_step_before_a_softmax_is_no_fault() -> None:
    """Of one step in the logits a softmax makes several; how many depends on which halves the pool before rounds up."""
    path = MODELS / "tinynet_int8.tflite"
    report = verify(path, relayout.convert(path, io="convert").model, runs=3)
    (row,) = report.outputs
    assert report.ok
    assert row.verdict is Verdict.SPREAD
    assert row.lsb is not None
    assert row.lsb > 5
    assert row.alone is not None
    assert row.alone.max_abs <= 1
    assert report.to_dict()["rows"][-1]["alone"]["max_abs"] == row.alone.max_abs


# Planted faults.


def constant(value: ir.Value | None) -> ir.Value:
    """The initializer behind a value, through DequantizeLinear."""
    while value is not None and value.const_value is None:
        value = value.producer().inputs[0]
    assert value is not None
    return value


def change(model: ir.Model, node: ir.Node, place: int, by: Callable[[np.ndarray], np.ndarray]) -> None:
    """Another constant for one operand of one node."""
    old = node.inputs[place]
    array = np.ascontiguousarray(by(old.const_value.numpy()))
    new = ir.Value(name=f"{old.name}/other", type=old.type, shape=old.shape, const_value=ir.tensor(array))
    model.graph.register_initializer(new)
    node.replace_input_with(place, new)


def of_type(model: ir.Model, kind: str, place: int) -> ir.Node:
    return [node for node in model.graph if node.op_type == kind][place]


def swapped_channels(model: ir.Model) -> None:
    weights = constant(of_type(model, "Conv", 2).inputs[1])
    array = weights.const_value.numpy()
    order = [1, 0, *range(2, len(array))]
    weights.const_value = ir.tensor(np.ascontiguousarray(array[order]), name=weights.name)


def weights_off(model: ir.Model) -> None:
    """1 % too much, in one convolution."""
    node = of_type(model, "Conv", 2)
    made = node.inputs[1].producer()  # by DequantizeLinear or Mul, whose operand 1 is the scale
    change(model, made or node, 1, lambda numbers: numbers * np.float32(1.01))


def activations_off(model: ir.Model) -> None:
    """1 % too much, where one result is quantized."""
    node = of_type(model, "Conv", 1).outputs[0].consumers()[0]
    assert node.op_type == "QuantizeLinear"
    change(model, node, 1, lambda scale: scale * np.float32(1.01))


def zero_point_off(model: ir.Model) -> None:
    """By one, where one result is quantized."""
    node = of_type(model, "Conv", 1).outputs[0].consumers()[0]
    assert node.op_type == "QuantizeLinear"
    change(model, node, 2, lambda zero: zero + zero.dtype.type(1))


def bias_dropped(model: ir.Model) -> None:
    of_type(model, "Conv", 3).replace_input_with(2, None)


INT8 = (swapped_channels, weights_off, activations_off, zero_point_off, bias_dropped)
DYNAMIC = (swapped_channels, weights_off, bias_dropped)


def test_an_operator_is_cut_out_once_for_all_readings_of_its_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hybrid operator's operand is rounded in several ways; each was tried on a session that was made anew."""
    path, asked = MODELS / "tinynet_dynamic.tflite", []
    model = relayout.convert(path).model
    weights_off(model)
    cut = OrtSide.forced

    def forced(side: OrtSide, shown: list[str], *given: object, **how: object) -> object:
        asked.append((*shown, *given[1:], *how.items()))
        return cut(side, shown, *given, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(OrtSide, "forced", forced)
    assert wrong(path, model)
    assert len(asked) > 2
    assert len(asked) == len(set(asked))


@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize(
    ("precision", "fault"), [*(("int8", fault) for fault in INT8), *(("dynamic", fault) for fault in DYNAMIC)]
)
def test_a_fault_is_found_at_its_operator_and_nowhere_else(
    precision: str, fault: Callable[[ir.Model], None], io: str
) -> None:
    path = MODELS / f"tinynet_{precision}.tflite"
    model = relayout.convert(path, io=io).model
    fault(model)
    found = wrong(path, model)
    assert len(found) == 1
    assert found[0] in ("CONV_2D", "DEPTHWISE_CONV_2D")


@pytest.mark.parametrize("fault", [swapped_channels, weights_off, zero_point_off, bias_dropped])
def test_a_fault_is_found_by_verify(fault: Callable[[ir.Model], None]) -> None:
    path = MODELS / "tinynet_int8.tflite"
    model = relayout.convert(path, io="convert").model
    fault(model)
    report = verify(path, model, runs=3)
    assert not report.ok
    assert report.first is not None
    assert report.first.operator in ("CONV_2D", "DEPTHWISE_CONV_2D")


# Hybrid operators.


def hybrid(name: str, batch: int) -> Net:
    """One with real operands and weights of 8 bits; ends of the operand's range are no steps."""
    net, rng = Net(), np.random.default_rng(8)
    if name == "FULLY_CONNECTED":
        x, shape, axis, out = net.input((batch, 40)), (6, 40), 0, (batch, 6)
        table = options("FullyConnectedOptions")
    else:
        x, out = net.input((batch, 9, 11, 40)), (batch, 9, 11, 6)
        shape, axis = {"1 x 1": ((6, 1, 1, 40), 0), "3 x 2": ((6, 3, 2, 40), 0)}[name]
        table = options("Conv2DOptions", strideH=1, strideW=1, padding=0)
    scales = list(rng.uniform(0.002, 0.004, 6))
    kernel = net.const(rng.integers(-127, 128, shape), "int8", q=Scale(scales, 0, axis))
    bias = net.const(rng.normal(size=6))
    kind = "FULLY_CONNECTED" if name == "FULLY_CONNECTED" else "CONV_2D"
    return net.op(kind, [x, kernel, bias], [net.output(out)], table, version=9 if kind == "FULLY_CONNECTED" else 5)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", ["FULLY_CONNECTED", "1 x 1", "3 x 2"])
def test_a_hybrid_operator_is_exact_on_what_it_rounds_its_operand_to(name: str, batch: int, tmp_path: Path) -> None:
    content = hybrid(name, batch).bytes()
    (tmp_path / "model.tflite").write_bytes(content)
    model = relayout.convert(tmp_path / "model.tflite", quant="float").model
    (found,) = steps(content, model)[0].values()
    assert found.verdict is Verdict.CLOSE
    assert found.difference.max_rel < 2e-6
    plain = verify(content, model, rtol=1e-7, atol=0).outputs[0].difference
    assert plain is not None
    assert plain.max_rel > 1e-3  # without the rounding it is far
    node = next(n for n in model.graph if n.op_type in ("Gemm", "MatMul", "Conv"))
    weights = constant(node.inputs[1])
    weights.const_value = ir.tensor(weights.const_value.numpy() * np.float32(1.001), name=weights.name)
    (found,) = steps(content, model)[0].values()
    assert found.verdict is Verdict.DIFFERS


# Steps and their direction.


def test_steps_as_they_fall_have_no_direction() -> None:
    rng = np.random.default_rng(0)
    for shape in ((1, 7), (2, 5, 8, 3), (1, 6, 8, 200), (4000,)):
        for share in (0.01, 0.25):
            for _ in range(20):
                left = np.clip(rng.normal(0, 40, shape), -128, 126).astype(np.int8)
                up = left + (rng.random(shape) < share).astype(np.int8)
                assert not has_direction(left, up)


def test_a_scale_or_a_zero_point_has_a_direction() -> None:
    real = np.random.default_rng(1).normal(0, 35, (2, 9, 11, 6)).clip(-110, 110)
    left = np.rint(real).astype(np.int8)
    assert has_direction(left, left + np.int8(1))
    assert has_direction(left, np.rint(real * 1.01).astype(np.int8))
    assert not has_direction(left, np.rint(real * 1.001).astype(np.int8))
    one = left.copy()
    one[..., 2] += 1
    assert has_direction(left, one)  # a channel of its own
    flat = np.full((1, 30), 7, np.int8)
    assert has_direction(flat, flat + np.int8(1))


def averaged(zero: int) -> bytes:
    """An average of two int8 elements, and a convolution that makes four steps of one."""
    net, q = Net(), Scale(0.05, zero)
    x, pooled = net.input((1, 16, 16, 4), "int8", q=q, name="x"), net.tensor((1, 16, 8, 4), "int8", q=q, name="pooled")
    table = options("Pool2DOptions", padding=1, strideH=1, strideW=2, filterHeight=1, filterWidth=2)
    net.op("AVERAGE_POOL_2D", [x], [pooled], table, version=2)
    kernel = net.const(np.eye(4, dtype=np.int64).reshape(4, 1, 1, 4) * 127, "int8", q=Scale(1 / 127, 0))
    bias = net.const(np.full(4, -6 * 127), "int32", q=Scale(0.05 / 127, 0))
    y = net.output((1, 16, 8, 4), "int8", q=Scale(0.05 / 4, 0), name="y")
    net.op("CONV_2D", [pooled, kernel, bias], [y], options("Conv2DOptions", padding=1, strideH=1, strideW=1), version=3)
    return net.bytes()


def changed_average(model: ir.Model, scale: float, zero: int) -> ir.Model:
    """The model with another scale and zero point where the average is quantized."""
    quantizing = [n for n in model.graph if n.op_type == "QuantizeLinear" and "pooled" in (n.outputs[0].name or "")][-1]
    for place, change in ((1, lambda v: v * np.float32(scale)), (2, lambda v: (v.astype(int) + zero).astype(v.dtype))):
        value = quantizing.inputs[place]
        assert value is not None
        assert value.const_value is not None
        other = ir.Value(name=f"{value.name}/other", const_value=ir.tensor(change(value.const_value.numpy())))
        other.dtype, other.shape = value.dtype, value.shape
        model.graph.register_initializer(other)
        quantizing.replace_input_with(place, other)
    return model


@pytest.mark.parametrize("zero", [0, 5])
@pytest.mark.parametrize("least", [4, 5, -6])
@pytest.mark.sampled(every=3)
def test_numbers_midway_between_two_integers_may_lean_and_no_others(zero: int, least: int) -> None:
    """Of two adjacent integers half of the averages are midway: the kernel goes away from 0, ONNX to the even one."""
    content = averaged(zero)
    drawn = np.random.default_rng(0).integers(least, least + 2, (1, 16, 16, 4)).astype(np.int8)
    wide = np.random.default_rng(0).integers(-20, 31, (1, 16, 16, 4)).astype(np.int8)
    given = [{"x": drawn}, {"x": wide}]
    assert all(verify(content, read(content), inputs=fed).ok for fed in given)
    for step in (1, -1):
        assert not any(verify(content, changed_average(read(content), 1, step), inputs=fed).ok for fed in given)
    for scale in (0.95, 1.03):
        assert not verify(content, changed_average(read(content), scale, 0), inputs=given[1]).ok


def test_where_all_numbers_are_midway_a_lean_stays_one() -> None:
    content = averaged(0)
    fed = np.tile(np.int8([[4], [5]]), (1, 16, 8, 1, 4)).reshape(1, 16, 16, 4)
    report = verify(content, read(content), inputs={"x": fed})
    assert [row.verdict for row in report.interiors] == [Verdict.DIFFERS]


def requantized(name: str = "QUANTIZE") -> bytes:
    """Integers of one scale as those of another, 3.6 times as large; in one channel they are all -82, or 82 where the
    operator is none for negative numbers.
    """
    net, q = Net(), Scale(0.275)
    x, made = net.input((1, 8, 8, 4), "int8", q=q, name="x"), net.tensor((1, 8, 8, 4), "int8", q=q, name="made")
    kernel = net.const(np.diag([127, 0, 127, 127]).reshape(4, 1, 1, 4), "int8", q=Scale(1 / 127))
    all_one = -82 if name == "QUANTIZE" else 81
    bias = net.const(np.int64([0, all_one * 127, 0, 0]), "int32", q=Scale(0.275 / 127))
    net.op("CONV_2D", [x, kernel, bias], [made], options("Conv2DOptions", padding=1, strideH=1, strideW=1), version=3)
    pooled = net.output((1, 8, 8, 4), "int8", q=Scale(1.0), name="pooled")
    slopes = [net.const(np.full((1, 1, 4), 64), "int8", q=Scale(1 / 127))] if name == "PRELU" else []
    table = options("LeakyReluOptions", alpha=0.5) if name == "LEAKY_RELU" else None
    net.op(name, [made, *slopes], [pooled], table, version=1 if name == "PRELU" else 2)
    return net.bytes()


@pytest.mark.parametrize("name", ["QUANTIZE", "PRELU", "LEAKY_RELU"])
def test_numbers_that_the_source_rounds_twice_may_lean_and_no_others(name: str) -> None:
    """0.275 times -82 is -22.55: to halves it is -22.5, and then -22; times 81 it is 22.275, 22.5 and 23."""
    content = requantized(name)
    found, _ = steps(content, read(content))
    assert [found["pooled"].verdict, found["pooled"].difference.max_abs] == [Verdict.CLOSE, 1]
    for scale, zero in ((1, 1), (1, -1), (0.9, 0), (1.1, 0)):
        assert wrong(content, changed_average(read(content), scale, zero)) == [name]


def switched() -> bytes:
    """HARD_SWISH of integers, all of one channel the same; by its kernel's arithmetic it is off by 0.003 of a step."""
    net, q = Net(), Scale(0.06144580617547035, 29)
    x, y = net.input((1, 8, 8, 4), "int8", q=q, name="x"), net.output((1, 8, 8, 4), "int8", q=SWITCHED, name="pooled")
    return net.op("HARD_SWISH", [x], [y], options("HardSwishOptions")).bytes()


SWITCHED = Scale(0.025056440383195877, -113)


def test_what_several_multiplications_of_few_bits_round_may_lean_and_nothing_else() -> None:
    """Of 256 integers some fall to the other side; such a one alone in a channel leans there."""
    content = switched()
    every = np.arange(-128, 128, dtype=np.int8).reshape(1, 8, 8, 4)
    with open_side(content) as left, open_side(read(content)) as right:
        a, b = (side.runner([]).run({"x": every}, ["pooled"])["pooled"] for side in (left, right))
    (off, *_) = every[a != b]
    fed = every.copy()
    fed[..., 0] = off
    assert verify(content, read(content), inputs={"x": fed}).ok
    for scale, zero in ((1, 1), (1, -1), (0.98, 0)):
        assert not verify(content, changed_average(read(content), scale, zero), inputs={"x": fed}).ok


def averages(name: str, extent: int = 384, rows: int | None = None) -> bytes:
    """A mean or sum of images, or of their first rows."""
    net = Net()
    x, made = net.input((2, extent, extent, 8), name="x"), net.output((2, 1, 1, 8), name="made")
    axes = net.const([1, 2], "int32")
    if rows is not None:
        ends = (net.const(place, "int32") for place in ([0, 0, 0, 0], [-1, rows, -1, -1]))
        net.op("SLICE", [x, *ends], [x := net.tensor((2, rows, extent, 8))], options("SliceOptions"))
    return net.op(name, [x, axes], [made], options("ReducerOptions", keepDims=True)).bytes()


@pytest.mark.parametrize("name", ["MEAN", "SUM"])
def test_sums_of_one_element_after_another_are_rounded_as_often(name: str) -> None:
    """150,000 positive numbers: LiteRT's sum is off by some hundred of float32's steps."""
    content = averages(name)
    fed = np.square(np.random.default_rng(0).normal(size=(2, 384, 384, 8))).astype(np.float32)
    report = verify(content, relayout.convert(content).model, inputs={"x": fed})
    assert report.ok
    assert [row.verdict for row in report.rows] == [Verdict.STEPWISE], "it is close otherwise"
    model = relayout.convert(content).model
    (reduced,) = (node for node in model.graph if node.op_type in ("ReduceMean", "ReduceSum"))
    far = ir.Value(
        name="far", const_value=ir.tensor(np.float32(1.0005)), shape=ir.Shape(()), type=reduced.outputs[0].type
    )
    model.graph.register_initializer(far)
    x = reduced.inputs[0]
    scaled = ir.Node("", "Mul", [x, far], num_outputs=1)
    reduced.replace_input_with(0, scaled.outputs[0])
    model.graph.insert_before(reduced, scaled)
    assert not verify(content, model, inputs={"x": fed}).ok


def test_values_of_a_file_that_states_no_shapes_are_fed_with_all_of_their_axes(tmp_path: Path) -> None:
    """A kernel for images wants four axes, also where the first is one image."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[1,3,16,24] x, float[16,3,3,3] w, float[16,16,3,3] v) => (float[1,16,12,20] y)
    { a = Conv(x, w) b = Relu(a) y = Conv(b, v) }"""
    source = parser.parse_model(text)
    for name, shape in (("w", (16, 3, 3, 3)), ("v", (16, 16, 3, 3))):
        array = np.random.default_rng(3).normal(size=shape).astype(np.float32)
        source.graph.initializer.append(numpy_helper.from_array(array, name))
    del source.graph.input[1:]
    path = tmp_path / "o.onnx"
    relayout.convert(source, to="NHWC").save(path)
    assert not any(value.type.tensor_type.HasField("shape") for value in onnx.load(path).graph.value_info)
    found, _ = steps(ir.from_proto(source), path)
    assert sorted(found) == ["a", "b", "y"]
    assert all(step.verdict.passes for step in found.values())


def test_tokens_of_an_image_of_open_size_are_fed_as_the_image_lies() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18]>
    g (float[n,6,h,w] x) => (float[n,t,6] y) <int64[3] tokens = {0, -1, 6}> {
        r = Relu(x)
        c = Transpose<perm = [0, 2, 3, 1]>(r)
        k = Reshape(c, tokens)
        a = Sigmoid(k)
        b = Softmax<axis = 1>(a)
        d = Transpose<perm = [0, 2, 1]>(b)
        e = Tanh(d)
        f = Transpose<perm = [0, 2, 1]>(e)
        y = Add(f, k)
    }"""
    source = ir.from_proto(parser.parse_model(text))
    result = relayout.optimize(source)
    assert result.report.transposes < result.report.source_transposes
    found, _ = steps(source, result.model)
    assert sorted(found) == ["a", "b", "c", "d", "e", "f", "k", "r", "y"]
    assert all(step.verdict.passes for step in found.values())


# The second model, whose values are given.


def test_values_are_given_inside_of_bodies_too() -> None:
    def body(name: str, operator: str) -> ir.Graph:
        node = ir.node(operator, [a.outputs[0]], outputs=[value(name)])
        return ir.Graph([], node.outputs, nodes=[node], name=name)

    def value(name: str, dtype: ir.DataType = ir.DataType.FLOAT, shape: tuple[int, ...] = (3,)) -> ir.Value:
        return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))

    x, c = value("x"), value("c", ir.DataType.BOOL, ())
    a = ir.node("Neg", [x], outputs=[value("a")])
    bodies = {"then_branch": body("p", "Abs"), "else_branch": body("q", "Exp")}
    y = ir.node("If", [c], bodies, outputs=[value("y")])
    graph = ir.Graph([x, c], y.outputs, nodes=[a, y], opset_imports={"": 21}, name="g")
    with open_side(ir.Model(graph, ir_version=10)) as side:
        assert side.before("y") >= {"y", "c", "x", "a"}
        forced = side.forced(["y"], ["a"])
        assert forced is not None
        assert list(forced.entries) == ["a"]
        given = {"x": np.zeros(3, np.float32), "c": np.array(True), forced.entries["a"]: np.float32([-1, 2, -3])}
        np.testing.assert_array_equal(forced.run(given, ["y"])["y"], [1, 2, 3])


def test_what_nobody_needs_is_not_asked_for() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[3] x) => (float[3] y) <float[3] a, float[3] b> { a = Neg(x) b = Exp(a) y = Abs(b) }"""
    with open_side(parser.parse_model(text)) as side:
        forced = side.forced(["b", "y"], ["a", "b"])
        assert forced is not None
        assert sorted(forced.entries) == ["a", "b"]
        assert list(side.forced(["a"], ["a", "b"]).entries) == []  # type: ignore[union-attr]


def test_an_output_that_is_read_is_given_to_its_readers_and_shown_as_it_is() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[3] x) => (float[3] a, float[3] y) { a = Neg(x) y = Abs(a) }"""
    with open_side(parser.parse_model(text)) as side:
        forced = side.forced(["a", "y"], ["a"])
        assert forced is not None
        given = {"x": np.float32([1, 2, 3]), forced.entries["a"]: np.float32([-4, 5, -6])}
        found = forced.run(given, ["a", "y"])
        np.testing.assert_array_equal(found["a"], [-1, -2, -3])
        np.testing.assert_array_equal(found["y"], [4, 5, 6])


def test_an_output_of_bytes_is_given_to_those_that_read_its_twin(tmp_path: Path) -> None:
    """Of int8 outputs that operators read the result has a twin of uint8, on which these operators are."""
    net = Net()
    same = Scale(0.05, -3)
    pooled = net.output((1, 4, 5, 3), "int8", q=same)
    table = options("Pool2DOptions", padding=1, strideW=2, strideH=2, filterWidth=2, filterHeight=2)
    net.op("AVERAGE_POOL_2D", [net.input((1, 8, 10, 3), "int8", q=same)], [pooled], table, version=2)
    larger = net.const(np.array([[90, -80, 100], [-70, 99, 60]], np.int8), "int8", q=Scale(0.01))
    dense = options("FullyConnectedOptions", keepNumDims=True)
    net.op("FULLY_CONNECTED", [pooled, larger, -1], [net.output((1, 4, 5, 2), "int8", q=Scale(0.02))], dense, version=5)
    source = tmp_path / "read.tflite"
    source.write_bytes(net.bytes())
    report = verify(source, relayout.convert(source).model)
    assert [row.verdict for row in report.outputs] == [Verdict.CLOSE, Verdict.SPREAD]
    assert report.ok


def test_what_cannot_be_given_is_judged_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RelayoutError("no")

    monkeypatch.setattr(OrtSide, "forced", refuse)
    path = MODELS / "tinynet_int8.tflite"
    report = verify(path, relayout.convert(path, io="convert").model, runs=3)
    assert report.ok
    assert report.outputs[0].alone is None
    assert "not judged operator by operator: no" in report.notes


def test_what_integer_kernels_compute_with_cannot_be_moved() -> None:
    path = MODELS / "tinynet_float.tflite"
    with open_side(path) as side:
        (output,) = (value.name for value in side.outputs)
        assert side.forced([output], []) is not None
        assert side.forced([output], [], nudge=0.1) is None
        assert side.forced([output], [], terms=True) is None
        assert side.forced([output], [], own=True) is None
    assert verify(path, path).ok


def test_a_stored_shape_of_as_many_dimensions_as_factors() -> None:
    """Factors `h w c=2 g` stored as `1 (g c) h w`: four and four."""
    source = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,5,6] x) => (float[1,4,5,6] z)'
        "{ y = Relu(x)  z = Neg(y) }"
    )
    result = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,5,6] x) => (float[1,4,5,6] z)'
        "<float[1,4,5,6] t, float[1,6,4,5] s> { t = Relu(x)  s = Transpose<perm = [0, 3, 1, 2]>(t)  u = Neg(s)"
        "  z = Transpose<perm = [0, 2, 3, 1]>(u) }"
    )
    held = Holds("y", (4, 5, 2, 3), (2, 3, 0, 1), (1, 4, 5, 6))
    stored = next(node for node in result.graph if node.op_type == "Transpose").outputs[0]
    stored.metadata_props[Holds.KEY] = Holds.dump([held])
    with open_side(source) as left, open_side(result) as right:
        (pair,) = [p for p in match_interiors(left.interiors, right.interiors) if p.left.name == "y"]
        array = np.random.default_rng(0).normal(size=(1, 4, 5, 6)).astype(np.float32)
        np.testing.assert_array_equal(pair.carried(array), array.transpose(0, 3, 1, 2))


def clamped(rows: int, depth: int) -> bytes:
    """A product with sums of hundreds, of which a clamp leaves less than 6."""
    weights = np.random.default_rng(0).normal(size=(rows, depth)).astype(np.float32) * 60
    net = Net()
    x, y, z = net.input((5, depth), name="x"), net.tensor((5, rows), name="y"), net.output((5, rows), name="z")
    fused = options("FullyConnectedOptions", fusedActivationFunction=3)
    net.op("FULLY_CONNECTED", [x, net.tensor(weights.shape, data=weights), -1], [y], fused)
    net.op("EXP", [y], [z])
    return net.bytes()


def test_sums_are_rounded_relative_to_their_terms() -> None:
    source = clamped(2048, 300)
    model = relayout.convert(source).model
    with open_side(model) as right:
        assert right.sum_behind("y") not in (None, "y")
        assert right.sum_behind("z") is None
    report = verify(source, model)
    assert report.ok
    assert {row.verdict for row in report.rows} <= {Verdict.SPREAD, Verdict.STEPWISE}, "neither is close otherwise"
    change(model, of_type(model, "Gemm", 0), 1, lambda weights: weights * np.float32(1.02))
    assert not verify(source, model).ok


def test_terms_are_added_up_where_no_type_is_stated() -> None:
    """The kernel, whose type is known, and the operand, whose type is not, by their magnitudes."""
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["": 21]> g (float[1,2] x) => (float[1,1] y)'
        "<float[2,1] w = {-3, 4}> { n = Neg(x) p = MatMul(n, w) y = Exp(p) }"
    )
    with open_side(model) as right:
        forced = right.forced(["p"], [], terms=True)
        assert forced is not None
        fed = {"x": np.array([[1, -2]], np.float32)}
        assert forced.run(fed, ["p"])["p"].tolist() == [[11.0]]


def test_a_sum_in_16_bits_is_not_forgiven_what_its_terms_are_rounded_by() -> None:
    """The magnitudes of its terms are many times the largest sum: 0.4 % of this is within a rounding of those."""
    weights = np.random.default_rng(0).normal(size=(400, 8)) / 100

    def product(scale: float) -> onnx.ModelProto:
        model = parser.parse_model(
            '<ir_version: 10, opset_import: ["": 21]> g (float16[3,400] x) => (float16[3,8] y) '
            "{ n = Neg(x) p = MatMul(n, w) y = Abs(p) }"
        )
        model.graph.initializer.append(numpy_helper.from_array((weights * scale).astype(np.float16), "w"))
        return model

    assert verify(product(1), product(1)).ok
    row = next(row for row in verify(product(1), product(1.004)).rows if row.name == "p")
    assert row.verdict is Verdict.DIFFERS


def pixels(units: int = 64) -> bytes:
    """Two hybrid convolutions of one pixel, each of which LiteRT rounds by itself."""
    rng, net = np.random.default_rng(6), Net()
    x, scale = net.input((1, 11, 9, units), name="x"), Scale((0.002 + 0.0005 * (np.arange(units) % 7)).tolist(), 0)
    for make in (net.tensor, net.output):
        kernel = net.const(rng.integers(-127, 128, (units, 1, 1, units)), "int8", q=scale)
        y = make((1, 11, 9, units))
        table = options("Conv2DOptions", strideH=1, strideW=1, fusedActivationFunction=1)
        net.op("CONV_2D", [x, kernel, net.const(rng.normal(size=units))], [y], table, version=5)
        x = y
    return net.bytes()


def test_operands_that_both_round_may_fall_to_the_next_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """By whole images here, pixel by pixel there; of an operand moved by half a level that is the size."""
    content = pixels()
    assert wrong(content, read(content, Choices(passes=with_vnni()))) == []
    for number in range(2):
        model = read(content, Choices(passes=with_vnni()))
        values = [value for name, value in model.graph.initializers.items() if name.endswith("scale")]
        scale = values[number].const_value
        assert scale is not None
        one = scale.numpy().copy()
        one[5] *= 1.1
        values[number].const_value = ir.Tensor(one)
        assert wrong(content, model) == ["CONV_2D"]
    monkeypatch.setattr(Stepwise, "_beside_levels", lambda self, pair, step, given, fed: step)
    assert wrong(content, read(content, Choices(passes=with_vnni()))) == ["CONV_2D"] * 2


def test_a_source_that_rounds_nothing_is_not_held_against_levels(tmp_path: Path) -> None:
    source = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[6,8] x) => (float[6,4] y) { h = Relu(x) p = MatMul(h, w) y = Neg(p) }""")
    rounding = parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[6,8] x) => (float[6,4] y) {
            h = Relu(x)
            q, step, zero = DynamicQuantizeLinear(h)
            d = DequantizeLinear(q, step, zero)
            p = MatMul(d, w)
            y = Neg(p)
        }""")
    weights = numpy_helper.from_array(np.random.default_rng(5).normal(size=(8, 4)).astype(np.float32), "w")
    paths = [tmp_path / name for name in ("source.onnx", "rounding.onnx")]
    for graph, path in zip((source, rounding), paths, strict=True):
        graph.graph.initializer.append(weights)
        onnx.save(graph, path)
    assert wrong(*paths) == ["MatMul"]


@pytest.mark.parametrize(("scale", "passes"), [(2.0, True), (2.5, False)])
def test_what_is_drawn_at_random_is_no_fault_and_what_follows_is_judged(scale: float, passes: bool) -> None:
    """An autoencoder that draws in its middle: both models draw for themselves."""
    source = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = Transpose<perm=[0,2,3,1]>(x)
            noise = RandomNormalLike(a)
            by = Constant<value = float {2.0}>()
            scaled = Mul(noise, by)
            sum = Add(a, scaled)
            y = Transpose<perm=[0,3,1,2]>(sum)
        }""")
    result = relayout.optimize(source)
    assert result.report.transposes == 0
    model = result.proto
    (by,) = model.graph.initializer
    by.CopyFrom(numpy_helper.from_array(np.array(scale, np.float32), by.name))
    assert verify(source, model).ok == passes
    assert verify(source, source).ok


@pytest.mark.parametrize(("scale", "passes"), [(1, True), (1.05, False), (0.95, False)])
def test_a_kernel_that_rounds_down_leans_by_half_a_step(scale: float, passes: bool) -> None:
    """All numbers that are fed have a root in the upper half of a step."""
    net = Net()
    x = net.input((8, 60), "int8", name="x", q=Scale(0.0042, -128))
    y = net.output((8, 60), "int8", name="pooled", q=Scale(0.00405, -128))
    source = net.op("SQRT", [x], [y]).bytes()
    every = np.arange(-127, 128)
    part = np.sqrt((every + 128) * 0.0042) / 0.00405 % 1
    fed = {"x": np.resize(every[(part > 0.55) & (part < 0.95)], (8, 60)).astype(np.int8)}
    with open_side(source) as left, open_side(changed_average(read(source), scale, 0)) as right:
        inputs, _, _ = match_interface(left.inputs, right.inputs)
        outputs, _, _ = match_interface(left.outputs, right.outputs)
        found = Stepwise(left, right, inputs, outputs, TOLERANCE).judge(fed)
    assert found["pooled"].fails is not passes


def test_equal_terms_are_all_rounded_in_one_direction() -> None:
    """Images of one colour: LiteRT's mean of 6,400 equal numbers is off by 8e-5, and as much at any other scale."""
    content = averages("MEAN", 80)
    fed = np.tile(np.random.default_rng(0).uniform(0.5, 1, 8).astype(np.float32), (2, 80, 80, 1))
    model = relayout.convert(content).model
    for pair in ((content, model), (model, content)):
        report = verify(*pair, inputs={"x": fed})
        assert [row.verdict for row in report.rows] == [Verdict.STEPWISE], "it is close otherwise"
    fed[:, -1] *= np.float32(1.04)  # a row that the wrong model leaves out: 5e-4 of the mean
    assert verify(content, model, inputs={"x": fed}).ok
    wrong = relayout.convert(averages("MEAN", 80, rows=79), target="none").model
    assert not verify(content, wrong, inputs={"x": fed}).ok


@pytest.mark.parametrize(("before", "after"), [((320, 320), (300, 300)), ((300, 320), (320, 300))])
def test_places_in_an_image_are_off_by_a_rounding_of_its_extent(
    before: tuple[int, int], after: tuple[int, int]
) -> None:
    """At 300 / 320 places are no sums of powers of two; the runtimes are apart by 1e-4 where neighbours differ."""
    text = 'y = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(x, , , sizes)'
    model = build(f"float[1,3,{before[0]},{before[1]}] x", text, {"sizes": np.array([1, 3, *after])})
    fed = np.random.default_rng(0).uniform(-1, 1, (1, 3, *before)).astype(np.float32)
    report = verify(model, relayout.convert(model, format="tflite"), inputs={"x": fed})
    assert [row.verdict for row in report.rows if row.output] == [Verdict.STEPWISE], "it is close otherwise"
