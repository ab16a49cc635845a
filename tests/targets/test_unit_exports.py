"""Quantized units as `.tflite`: on integers where an NPU claims them, and the same numbers in LiteRT."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import relayout
from relayout.errors import UnsupportedError
from relayout.targets.litert import quantized_units
from relayout.targets.litert.integer_forms import FORMS
from relayout.targets.litert.quantized_units import INTEGER_KERNEL
from rules.cases.making import f
from rules.law import Case
from running import run
from targets.row_cases import cases, prepared
from targets.unit_cases import UnitCase, unit_cases
from targets.vela import judge, needs_vela

MOST_ELEMENTS = 1 << 16
MOST_STEPS = 2
"""A kernel rounds to its own scale, and a QUANTIZE behind it to another."""


DECOMPOSED = frozenset({"HardSigmoid", *(form.expansion.op_type for form in FORMS)})
"""Operators that are others before a target is asked."""


def small_cases() -> list[UnitCase]:
    return [case for case in unit_cases() if all(a.size <= MOST_ELEMENTS for a in case.case.arrays.values())]


def litert(result: relayout.Result, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    runner = Interpreter(model_content=result.tflite, num_threads=1).get_signature_runner()
    return dict(runner(**feed))


def assert_near(found: np.ndarray, expected: np.ndarray) -> None:  # type: ignore[type-arg]
    assert found.dtype == expected.dtype
    assert np.abs(found.astype(np.int64) - expected.astype(np.int64)).max() <= MOST_STEPS


@pytest.mark.parametrize("case", small_cases(), ids=str)
def test_litert_computes_a_unit_within_steps_and_on_integers_where_claimed(case: UnitCase) -> None:
    model, feed = case.prepared()
    result = relayout.convert(model, format="tflite", target="ethos-u")
    claims = result.report.claims
    assert claims is not None
    is_on_reals = not {"DEQUANTIZE", "GATHER"}.isdisjoint(result.report.operators)  # or in a table of the CPU
    assert not (is_on_reals and claims.claimed == claims.total)
    index = next(index for index, each in enumerate(cases()) if each is case)
    assert is_on_reals or case.op_type in DECOMPOSED or INTEGER_KERNEL.holds(prepared(index)[2]), (
        "it runs on integers, and is not claimed"
    )
    found = litert(result, feed)
    for output, expected in zip(model.graph.output, run(model, feed), strict=True):
        assert_near(found[output.name], expected)


def division(
    divisors: str, shape: str = "", dtype: str = "int8", divisor: str = ""
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:  # type: ignore[type-arg]
    """A quantized division by constants, of which a step is 1/8."""
    text = f"""<ir_version: 8, opset_import: ["" : 17]> divided ({dtype}[1, 6, 9, 8] x) => ({dtype}[1, 6, 9, 8] y)
        <float s = {{0.03}}, {dtype} z = {{7}}, float t = {{0.02}}, {dtype} u = {{9}}, float r = {{0.125}},
        int8{shape} c = {{{divisors}}}, int8 n = {{1}}> {{
        a = DequantizeLinear(x, s, z)
        b = DequantizeLinear(c, r, n)
        d = Div(a, b)
        y = QuantizeLinear(d, t, u)
    }}"""
    if divisor:  # as quantizers leave it
        text = text.replace("b = DequantizeLinear(c, r, n)", f"b = Constant<value = float {{{divisor}}}>()")
    x = np.random.default_rng(4).integers(*((-128, 128) if dtype == "int8" else (0, 256)), (1, 6, 9, 8))
    return onnx.parser.parse_model(text), {"x": x.astype(dtype)}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("divisor", ["17", "-23", "3"])
@pytest.mark.parametrize("shape", ["", "[1, 1, 1, 1]"])
def test_a_division_by_one_number_runs_on_integers(dtype: str, divisor: str, shape: str) -> None:
    assert_product(*division(divisor, shape, dtype))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("divisor", ["2.0", "-3.0"])
def test_a_division_by_a_real_number_between_integers_does_so_too(dtype: str, divisor: str) -> None:
    assert_product(*division("1", "", dtype, divisor))


def assert_product(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> None:  # type: ignore[type-arg]
    result = relayout.convert(model, format="tflite", target="ethos-u")
    claims = result.report.claims
    assert claims is not None
    assert claims.claimed == claims.total
    assert "MUL" in result.report.operators
    assert not {"DIV", "DEQUANTIZE"} & set(result.report.operators)
    found, (expected,) = litert(result, feed)["y"], run(model, feed)
    assert np.abs(found.astype(np.int64) - expected.astype(np.int64)).max() <= 1


@pytest.mark.parametrize(("divisors", "shape"), [("17, 9", "[2, 1, 1]"), ("1", "")])
def test_a_division_by_several_numbers_or_by_0_stays_one(divisors: str, shape: str) -> None:
    model, _ = division(divisors, shape)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 2
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 2
    assert "DIV" in relayout.convert(model, format="tflite").report.operators


@pytest.mark.parametrize("body", ["y = Div(x, c)", "a = Exp(x)  b = Div(a, c)  y = Exp(b)"])
def test_a_division_of_real_numbers_stays_one(body: str) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]> real (float[2, 3] x) => (float[2, 3] y) <float c = {3}>'
    made = relayout.convert(onnx.parser.parse_model(f"{head} {{ {body} }}"), format="tflite").report.operators
    assert "DIV" in made
    assert "DEQUANTIZE" not in made


@needs_vela
def test_vela_takes_a_division_by_one_number(tmp_path: Path) -> None:
    relayout.convert(division("17")[0], format="tflite", target="ethos-u").save(tmp_path / "unit.tflite")
    judgement = judge(tmp_path / "unit.tflite", tmp_path)
    assert judgement.on_npu
    assert not judgement.on_cpu


def with_views(case: UnitCase) -> onnx.ModelProto:
    """A unit with a Reshape to more dimensions and back, inside of it: before and behind its operator."""
    model, _ = case.prepared()
    graph = model.graph
    at = next(index for index, node in enumerate(graph.node) if node.name == "node")
    shape = [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim]
    for name, extents in (("flat", [-1]), ("whole", shape)):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(extents, np.int64), name))
    read, given = graph.node[at].input[0], graph.node[at].output[0]
    before = [
        onnx.helper.make_node("Reshape", [read, "flat"], ["line"]),
        onnx.helper.make_node("Reshape", ["line", "whole"], ["again"]),
    ]
    behind = onnx.helper.make_node("Reshape", [given, "flat"], ["given"])
    for node in graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] == given:
            node.input[0] = "given"
    graph.node[at].input[0] = "again"
    nodes = list(graph.node)
    del graph.node[:], graph.value_info[:]
    graph.node.extend([*nodes[:at], *before, nodes[at], behind, *nodes[at + 1 :]])
    graph.output[0].type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto())
    graph.output[0].type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("op_type", ["Sigmoid", "LeakyRelu", "HardSwish"])
def test_views_are_moved_out_of_a_unit(op_type: str) -> None:
    case = UnitCase(Case(op_type, {"x": f(2, 3, 4)}), alike=False)
    model = with_views(replace(case))
    result = relayout.convert(model, format="tflite")
    assert not {"DEQUANTIZE"} & set(result.report.operators)
    feed = case.prepared()[1]
    assert_near(litert(result, feed)["result"], run(model, feed)[0])


def test_dynamic_operands_of_uint8_are_no_weights() -> None:
    """A product of two activations took the zero point of one for that of weights, and ran on real numbers."""
    case = UnitCase(Case("MatMul", {"x": f(2, 3, 4), "w": f(2, 4, 5)}), np.uint8)
    result = relayout.convert(case.prepared()[0], format="tflite")
    assert "DEQUANTIZE" not in result.report.operators


def scaled(op: str, dtype: str, scale: float) -> onnx.ModelProto:
    """An operator on two operands between DequantizeLinear and QuantizeLinear, all of one scale."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    unit ({dtype}[2, 8] x, {dtype}[2, 8] y) => ({dtype}[2, 8] z) <float s = {{1}}, {dtype} n = {{0}}> {{
        a = DequantizeLinear(x, s, n)
        b = DequantizeLinear(y, s, n)
        c = {op}(a, b)
        z = QuantizeLinear(c, s, n)
    }}""")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(scale, np.float32), "s"))
    return model


@pytest.mark.parametrize("op", ["Add", "Sub", "Max"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("power", [-126, -100, 100, 107, 108, 113, 118])
def test_scales_of_every_size_run(op: str, dtype: str, power: int) -> None:
    """Of a mask of the least float the step is 1.3e36, with which ADD would end the process."""
    model = scaled(op, dtype, 2.0**power)
    result = relayout.convert(model, format="tflite")
    overflows = op != "Max" and power >= (108 if dtype == "int8" else 113)
    assert ("DEQUANTIZE" in result.report.operators) == overflows
    feed = {
        name: np.random.default_rng(place).integers(-64, 64, (2, 8)).astype(dtype) for place, name in enumerate("xy")
    }
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    assert_near(litert(result, feed)["z"], expected)


@pytest.mark.parametrize("scale", [0.0, 2.0**-130, float("inf")])
def test_a_scale_that_is_no_normal_number_is_arithmetic(scale: float) -> None:
    """XNNPACK refuses such scales, or ends the process; ONNX Runtime's quantizer writes them for masks."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    unit (int8[2, 8] x) => (float[2, 8] z) <float s = {1}, int8 n = {0}>
    { a = DequantizeLinear(x, s, n)  z = Relu(a) }""")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(scale, np.float32), "s"))
    result = relayout.convert(model, format="tflite")
    assert "DEQUANTIZE" not in result.report.operators
    feed = {"x": np.array([*range(-7, 0), *range(1, 10)], np.int8).reshape(2, 8)}
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(litert(result, feed)["z"], expected, atol=1e-37)  # subnormal numbers may be 0


SHUFFLED = """
    left, right = Split<axis = 1, num_outputs = 2>(x~)
    bent = Conv(right~, half~)
    both = Concat<axis = 1>(left~, bent~)
    apart = Reshape(both~, by_two)
    shuffled = Transpose<perm = [0, 2, 1, 3, 4]>(apart~)
    joined = Reshape(shuffled~, whole)
    first, second = Split<axis = 1, num_outputs = 2>(joined~)
    again = Conv(second~, half~)
    all = Concat<axis = 1>(first~, again~)
    y = Conv(all~, full~)"""
"""A block of ShuffleNet v2: its second Split is of another axis once nothing is transposed."""
READ_TWICE = """
    a = Conv(x~, full~)
    b = Conv(a~, full~)
    ~rows = Reshape(a~, by_two)
    ~others = Reshape(b~, by_two)
    ~both = Concat<axis = 2>(rows~, others~)
    joined = Reshape(both~, double)
    y = Conv(joined~, wide~)"""
"""A convolution and a unit with a Reshape inside read one DequantizeLinear."""


def in_qdq(body: str) -> onnx.ModelProto:
    """`x -> body -> y` in int8, all of one scale. `NAME~` reads the real numbers of NAME; `~NAME` is no integers."""
    lines = []
    for line in filter(None, map(str.strip, body.splitlines())):
        given, _, node = line.replace("~", "_real").partition(" = ")
        if given.startswith("_real"):
            lines.append(f"{given.removeprefix('_real')}_real = {node}")
            continue
        lines.append(f"{given} = {node}")
        lines += [f"{name}_int8 = QuantizeLinear({name}, s, z)" for name in given.split(", ")]
        lines += [f"{name}_real = DequantizeLinear({name}_int8, s, z)" for name in given.split(", ")]
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int8[1, 32, 6, 4] x) => (int8[1, 32, 6, 4] y_int8)
        <float s = {{0.02}}, int8 z = {{0}}, int64[5] by_two = {{1, 2, 16, 6, 4}}, int64[4] whole = {{1, 32, 6, 4}},
         int64[4] double = {{1, 64, 6, 4}}> {{
            x_real = DequantizeLinear(x, s, z)
            half_real = DequantizeLinear(half, s, z)
            full_real = DequantizeLinear(full, s, z)
            wide_real = DequantizeLinear(wide, s, z)
            {" ".join(lines)} }}""")
    rng = np.random.default_rng(0)
    for name, shape in {"half": (16, 16, 1, 1), "full": (32, 32, 1, 1), "wide": (32, 64, 1, 1)}.items():
        kernel = rng.integers(-20, 20, shape).astype(np.int8)
        model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, name))
    return model


@pytest.mark.parametrize("body", [SHUFFLED, READ_TWICE], ids=["shuffled", "read twice"])
@pytest.mark.parametrize("io", ["keep", "convert"])
def test_no_reshape_takes_a_unit_from_the_integers(body: str, io: relayout.Io) -> None:
    model = in_qdq(body)
    result = relayout.convert(model, format="tflite", io=io)
    assert not {"DEQUANTIZE", "QUANTIZE"} & set(result.report.operators)
    x = np.random.default_rng(1).integers(-128, 128, (1, 32, 6, 4)).astype(np.int8)
    (expected,) = run(model, {"x": x})
    is_nhwc = io == "convert"
    found = litert(result, {"x": x.transpose(0, 2, 3, 1) if is_nhwc else x})["y_int8"]
    assert_near(found.transpose(0, 3, 1, 2) if is_nhwc else found, expected)


@pytest.mark.parametrize("activation", ["Relu(summed)", "Clip(summed, low, high)"])
def test_an_activation_stays_with_its_convolution_where_a_result_of_one_pixel_is_given(activation: str) -> None:
    """Both orders of axes are one there, so that a view may stand before the activation."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (int8[1, 4, 1, 1] x) => (int8[1, 3, 1, 1] y)
        <float s = {{0.05}}, int8 z = {{-3}}, float t = {{0.02}}, int8 o = {{0}}, float low = {{0}}, float high = {{6}},
         int8[3, 4, 1, 1] kernel = {{9, -7, 40, 3, 8, 21, -5, 6, 30, 11, -2, 17}}> {{
            image = DequantizeLinear(x, s, z)
            weights = DequantizeLinear(kernel, t, o)
            summed = Conv(image, weights)
            active = {activation}
            y = QuantizeLinear(active, s, z) }}""")
    result = relayout.convert(model, format="tflite", target="ethos-u")
    assert dict(result.report.operators) == {"CONV_2D": 1, "RESHAPE": 2}
    feed = {"x": np.array([100, -128, 50, 7], np.int8).reshape(1, 4, 1, 1)}
    (expected,) = run(model, feed)
    assert_near(litert(result, feed)["y"], expected)


@pytest.mark.parametrize(("step", "is_on_integers"), [(1e-5, True), (1e-4, True), (1e-3, True), (2.0**-12, False)])
@pytest.mark.parametrize("result", [1 / 32768, 1 / 20000])
def test_a_sigmoid_of_16_bits_is_a_step_off_at_most(step: float, is_on_integers: bool, result: float) -> None:
    """LiteRT's kernel for a step of 2^-12 is six off."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (int16[65536] x) => (int16[65536] y) <float sx = {{{step}}}, float sy = {{{result}}}, int16 z = {{0}}> {{
            a = DequantizeLinear(x, sx, z)
            b = Sigmoid(a)
            y = QuantizeLinear(b, sy, z) }}""")
    converted = relayout.convert(model, format="tflite")
    assert ("DEQUANTIZE" not in converted.report.operators) == is_on_integers
    x = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    (expected,) = run(model, {"x": x})
    for kernels in (OpResolverType.AUTO, OpResolverType.BUILTIN_REF):
        interpreter = Interpreter(model_content=converted.tflite, experimental_op_resolver_type=kernels)
        found = interpreter.get_signature_runner()(x=x)["y"]
        assert np.abs(found.astype(np.int64) - expected.astype(np.int64)).max() <= 1


SCALES = [
    (0.03, 3, 0.02, -100),
    (0.1, -10, 0.05, -120),
    (0.05, -128, 0.06, -128),
    (0.01, 0, 1 / 16, 127),
    (0.09, 0, 0.18, 0),
]
"""Scale and zero point of the operand and of the result; the last but one are those of LOG_SOFTMAX, which ends at -16,
and the last go on to -23."""


def unit_of_bytes(node: str, dtype: str, shape: str, scales: tuple[float, int, float, int]) -> onnx.ModelProto:
    step, zero, result, least = scales
    shift = 128 if dtype == "uint8" else 0
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[16, 16] x) => ({dtype}[{shape}] y)
        <float sx = {{{step}}}, {dtype} zx = {{{zero + shift}}}, float sy = {{{result}}},
         {dtype} zy = {{{least + shift}}}, int64[1] last = {{1}}>
        {{
            a = DequantizeLinear(x, sx, zx)
            b = {node}
            y = QuantizeLinear(b, sy, zy)
        }}""")


def every_byte(dtype: str) -> np.ndarray:  # type: ignore[type-arg]
    return np.random.default_rng(0).permutation(np.arange(256).astype(np.uint8)).view(dtype).reshape(16, 16)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("scales", SCALES, ids=str)
@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("Gelu(a)", "16, 16"),
        ('Gelu<approximate = "tanh">(a)', "16, 16"),
        ("Elu(a)", "16, 16"),
        ("LogSoftmax(a)", "16, 16"),
        ("ReduceMin(a, last)", "16, 1"),
    ],
)
def test_bytes_of_every_value_are_a_step_off_at_most(
    node: str, shape: str, scales: tuple[float, int, float, int], dtype: str
) -> None:
    model = unit_of_bytes(node, dtype, shape, scales)
    result = relayout.convert(model, format="tflite")
    is_fine = scales[2] < 0.6 / 16  # LOG_SOFTMAX gives 1/16: a result in finer steps would show them
    is_far = scales == SCALES[-1]
    assert ("DEQUANTIZE" in result.report.operators) == (node.startswith("LogSoftmax") and (is_fine or is_far))
    x = every_byte(dtype)
    found, (expected,) = litert(result, {"x": x})["y"], run(model, {"x": x})
    assert np.abs(found.astype(np.int64) - expected.astype(np.int64)).max() <= 1


def test_an_older_runtime_computes_a_unit_on_reals() -> None:
    """ABS of bytes came with 2.4."""
    model = unit_of_bytes("Abs(a)", "int8", "16, 16", SCALES[0])
    newer, older = (relayout.convert(model, format="tflite", runtime=runtime) for runtime in ("2.4", "2.3"))
    assert "DEQUANTIZE" not in newer.report.operators
    assert "DEQUANTIZE" in older.report.operators
    x = every_byte("int8")
    assert_near(litert(older, {"x": x})["y"], run(model, {"x": x})[0])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("options", ["axis = 1", "axis = 0, keepdims = 0", "axis = 1, select_last_index = 1"])
@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
def test_what_looks_at_the_order_of_numbers_reads_integers(operator: str, options: str, dtype: str) -> None:
    shape = {"axis = 0, keepdims = 0": "5, 6"}.get(options, "4, 1, 6")
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[4, 5, 6] x) => (int64[{shape}] y) <float s = {{0.1}}, {dtype} z = {{3}}>
        {{ a = DequantizeLinear(x, s, z) y = {operator}<{options}>(a) }}""")
    result = relayout.convert(model, format="tflite")
    assert "DEQUANTIZE" not in result.report.operators
    x = np.random.default_rng(0).integers(0, 4, (4, 5, 6)).astype(dtype) * 60  # many are equal
    np.testing.assert_array_equal(litert(result, {"x": x})["y"], run(model, {"x": x})[0])


@pytest.mark.parametrize("pads", ["1, 1, 1, 1", "1, 0, 2, 1"])
def test_a_border_that_counts_in_an_average_is_one_of_integers(pads: str) -> None:
    body = f"""
        a = AveragePool<kernel_shape = [3, 3], pads = [{pads}], count_include_pad = 1>(x~)
        y = Conv(a~, full~)"""
    model = in_qdq(body)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    result = relayout.convert(model, format="tflite")
    assert {"PAD", "AVERAGE_POOL_2D"} <= set(result.report.operators)
    assert not {"DEQUANTIZE", "QUANTIZE"} & set(result.report.operators)
    x = np.random.default_rng(1).integers(-128, 128, (1, 32, 6, 4)).astype(np.int8)
    assert_near(litert(result, {"x": x})["y_int8"], run(model, {"x": x})[0])


def test_a_convolution_of_16_bits_over_one_axis_applies_its_activation() -> None:
    """The kernel is one over two axes, with a RESHAPE behind it."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (int16[1, 4, 9] x) => (int16[1, 5, 7] y) <float s = {0.001}, float sk = {0.01}, float sy = {0.002},
            int16 z = {0}, int8 zk = {0}> {
            a = DequantizeLinear(x, s, z)
            b = DequantizeLinear(k, sk, zk)
            c = Conv(a, b)
            d = Relu(c)
            y = QuantizeLinear(d, sy, z) }""")
    kernel = np.random.default_rng(0).integers(-100, 100, (5, 4, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "k"))
    result = relayout.convert(model, format="tflite")
    assert not {"DEQUANTIZE", "RELU"} & set(result.report.operators)
    x = np.random.default_rng(1).integers(-30000, 30000, (1, 4, 9)).astype(np.int16)
    (expected,) = run(model, {"x": x})
    assert (expected == 0).any()
    assert_near(litert(result, {"x": x})["y"], expected)


def test_unsigned_integers_of_one_scale_are_joined_as_they_are() -> None:
    """The kernel of uint8 divides by the scale of its result, which a result that nobody dequantizes has not."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[2, 3, 4] x, float[2, 3, 4] r) => (uint8[2, 6, 4] y, uint8[2, 3, 4] q, float[2, 3, 4] f)
        <float s = {0.02}, uint8 z = {7}> {
            a = QuantizeLinear(x, s, z)
            b = DequantizeLinear(a, s, z)
            c = LeakyRelu(b)
            q = QuantizeLinear(c, s, z)
            d = QuantizeLinear(r, s, z)
            e = Gather(d, i)
            f = DequantizeLinear(e, s, z)
            y = Concat<axis = 1>(q, d) }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 0]), "i"))
    result = relayout.convert(model, format="tflite")
    rng = np.random.default_rng(0)
    feed = {name: rng.normal(size=(2, 3, 4)).astype(np.float32) for name in "xr"}
    np.testing.assert_array_equal(litert(result, feed)["y"], run(model, feed)[0])


@pytest.mark.parametrize(
    ("dtype", "zero", "activation", "written"),
    [
        ("int8", -128, "Relu(b)", []),
        ("int8", 3, "Relu(b)", ["RELU"]),
        ("int8", 3, "Clip(b, least, six)", ["RELU6"]),
        ("int16", 0, "Relu(b)", ["RELU"]),
    ],
)
def test_an_activation_that_a_kernel_does_not_apply_is_an_operator_unless_implied(
    dtype: str, zero: int, activation: str, written: list[str]
) -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[4, 50] x) => ({dtype}[4, 50] y)
        <float s = {{0.1}}, float t = {{0.06}}, {dtype} z = {{{zero}}}, float least = {{0}}, float six = {{6}}> {{
            a = DequantizeLinear(x, s, z)
            b = LeakyRelu(a)
            c = {activation}
            y = QuantizeLinear(c, t, z) }}""")
    result = relayout.convert(model, format="tflite")
    assert result.report.operators == dict.fromkeys(["LEAKY_RELU", *written], 1)
    x = np.random.default_rng(0).integers(-128, 127, (4, 50)).astype(dtype)
    assert_near(litert(result, {"x": x})["y"], run(model, {"x": x})[0])


def test_a_kernel_of_integers_reads_no_number_without_a_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT ends the process there, if a row takes too much."""
    monkeypatch.setattr(quantized_units, "ROWS", {"Elu": lambda _: quantized_units.AS_ASKED})
    model = unit_of_bytes("Elu<alpha = 0.5>(a)", "int8", "16, 16", SCALES[0])
    result = relayout.convert(model, format="tflite")
    assert "DEQUANTIZE" in result.report.operators


@pytest.mark.parametrize(("zero", "activation"), [(-128, "Clip(c, least, six)"), (3, "Relu(c)")])
def test_a_product_of_two_activations_applies_no_activation(zero: int, activation: str) -> None:
    """FULLY_CONNECTED does, BATCH_MATMUL has no such option."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (int8[20, 8] x, int8[8, 24] k) => (int8[20, 24] y)
        <float s = {{0.02}}, float t = {{0.1}}, int8 z = {{0}}, int8 o = {{{zero}}},
         float least = {{0}}, float six = {{6}}> {{
            a = DequantizeLinear(x, s, z)
            b = DequantizeLinear(k, s, z)
            c = MatMul(a, b)
            d = {activation}
            y = QuantizeLinear(d, t, o) }}""")
    result = relayout.convert(model, format="tflite")
    assert result.report.operators["BATCH_MATMUL"] == 1
    assert "DEQUANTIZE" not in result.report.operators
    rng = np.random.default_rng(0)
    feed = {name: rng.integers(-128, 128, dims).astype(np.int8) for name, dims in (("x", (20, 8)), ("k", (8, 24)))}
    assert_near(litert(result, feed)["y"], run(model, feed)[0])


def test_what_is_behind_a_refused_operator_is_no_fault_of_its_own() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 6] x, int64[n] shape) => (float[] y) <float s = {0.1}, int8 z = {0}> {
            v = Reshape(x, shape)
            q = QuantizeLinear(v, s, z)
            d = DequantizeLinear(q, s, z)
            y = Neg(d) }""")
    with pytest.raises(UnsupportedError, match="Reshape") as caught:
        relayout.convert(model, format="tflite")
    assert "Neg" not in str(caught.value)


@pytest.mark.parametrize(("scale", "is_on_integers"), [(0.1, True), (12.7, True), (12.9, False)])
def test_a_hard_swish_of_coarse_integers_is_computed_on_real_numbers(scale: float, *, is_on_integers: bool) -> None:
    """LiteRT does not prepare a HARD_SWISH whose operand has 128 times the step of its result."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (int8[256] x) => (int8[256] y) <float s = {{{scale}}}, float t = {{0.1}}, int8 z = {{0}}> {{
            a = DequantizeLinear(x, s, z)
            b = HardSwish(a)
            y = QuantizeLinear(b, t, z) }}""")
    result = relayout.convert(model, format="tflite")
    assert ("DEQUANTIZE" not in result.report.operators) == is_on_integers
    feed = {"x": np.arange(-128, 128).astype(np.int8)}
    assert_near(litert(result, feed)["y"], run(model, feed)[0])
