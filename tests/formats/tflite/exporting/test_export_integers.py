"""Integers between operators: what they mean where they are moved, padded, joined, or read with two scales."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from export_running import KERNELS, agrees
from node_tests import run
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

import relayout
from rules.law import Array, with_runtime

NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
RNG = np.random.default_rng(0)
X: Array = RNG.standard_normal((1, 4, 4, 6)).astype(np.float32)


def model(nodes: list[onnx.NodeProto], outputs: dict[str, int], **constants: Array) -> onnx.ModelProto:
    """Return a model that reads X, of nodes and constants."""
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", 1, list(X.shape))],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def node(kind: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def scale(kind: type, size: float, zero: int) -> tuple[Array, Array]:
    return np.array(size, np.float32), np.array(zero, kind)


def agree(made: onnx.ModelProto, steps: float = 0.0, *, kernels: tuple[str, ...] = KERNELS) -> None:
    """Assert that the `.tflite` gives what ONNX Runtime gives, or integers and numbers some steps apart."""
    if not steps:
        agrees(made, {"x": X}, kernels=kernels)
        return
    content = converted(made)
    for kind in kernels:
        for got, wanted in zip(
            run(content, {"x": X}, reference=kind == "reference"), with_runtime(made, {"x": X}), strict=True
        ):
            assert np.abs(got.astype(np.float64) - wanted.astype(np.float64)).max() <= steps


def converted(made: onnx.ModelProto) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        relayout.convert(made, format="tflite").save(path)
        return path.read_bytes()


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_integers_that_are_read_with_another_scale_than_that_they_were_made_with(kind: type) -> None:
    (a, z), (b, y) = scale(kind, 0.05, 10), scale(kind, 0.02, 30)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("Reshape", "q shape", "r"),
        node("DequantizeLinear", "q a z", "same"),
        node("DequantizeLinear", "q b y", "other"),
        node("DequantizeLinear", "r b y", "moved"),
    ]
    outputs = dict.fromkeys(("same", "other", "moved"), 1)
    agree(model(nodes, outputs, a=a, z=z, b=b, y=y, shape=np.array([4, -1])))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_raw_integers_of_two_scales_are_joined(kind: type) -> None:
    (a, z), (b, y) = scale(kind, 0.05, 10), scale(kind, 0.02, 30)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("QuantizeLinear", "x b y", "p"),
        node("Concat", "q p", "joined", axis=1),
        node("DequantizeLinear", "joined b y", "real"),
    ]
    agree(model(nodes, {"joined": numpy_helper.from_array(z).data_type, "real": 1}, a=a, z=z, b=b, y=y))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_padded_integers_are_a_graph_output(kind: type) -> None:
    a, z = scale(kind, 0.05, 10)
    nodes = [node("QuantizeLinear", "x a z", "q"), node("Pad", "q pads z", "padded")]
    kinds = {"padded": numpy_helper.from_array(z).data_type}
    agree(model(nodes, kinds, a=a, z=z, pads=np.array([0, 0, 1, 1, 0, 0, 1, 0])))


@pytest.mark.parametrize("dilations", [[1, 1], [2, 2]])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_the_border_of_a_pool_of_raw_integers_is_the_lowest_of_them(kind: type, dilations: list[int]) -> None:
    a, z = scale(kind, 0.05, 100)
    pool = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "dilations": dilations}
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("MaxPool", "q", "m", **pool),
        node("DequantizeLinear", "m a z", "real"),
    ]
    agree(model(nodes, {"real": 1}, a=a, z=z))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_raw_integers_are_padded_with_the_integer_0(kind: type) -> None:
    a, z = scale(kind, 0.05, 100)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("Pad", "q pads", "p"),
        node("DequantizeLinear", "p a z", "real"),
    ]
    agree(model(nodes, {"real": 1}, a=a, z=z, pads=np.array([0, 0, 1, 1, 0, 0, 1, 0])))


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_a_quantized_border_means_the_number_that_is_stated(value: float) -> None:
    a, z = scale(np.int8, 0.05, 10)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node("Pad", "d pads value", "p"),
        node("QuantizeLinear", "p a z", "n"),
    ]
    constants = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 0]), "value": np.array(value, np.float32)}
    agree(model(nodes, {"n": onnx.TensorProto.INT8}, a=a, z=z, **constants))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_padded_integers_of_an_input_are_a_graph_output_of_another_scale(kind: type) -> None:
    (a, z), (b, y) = scale(kind, 0.05, 10), scale(kind, 0.02, 30)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("Identity", "q", "i"),
        node("Pad", "i pads z", "p"),
        node("DequantizeLinear", "p b y", "real"),
    ]
    outputs = {"p": numpy_helper.from_array(z).data_type, "real": 1}
    agree(model(nodes, outputs, a=a, z=z, b=b, y=y, pads=np.array([0, 0, 1, 1, 0, 0, 1, 0])))


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("resized", [False, True])
def test_an_input_of_integers_is_padded_before_it_is_read(kind: type, *, resized: bool) -> None:
    a, z = scale(kind, 0.05, 30)
    nodes = [
        node("Resize", "x none sizes", "larger", **NEAREST) if resized else node("Identity", "x", "larger"),
        node("Pad", "larger pads z", "p"),
        node("Identity", "p", "i"),
        node("DequantizeLinear", "i a z", "real"),
    ]
    constants = {"sizes": np.array([1, 1, 2, 2], np.float32), "none": np.zeros(0, np.float32)}
    made = model(nodes, {"real": 1}, a=a, z=z, pads=np.array([0, 0, 1, 1, 0, 0, 1, 0]), **constants)
    tensor = numpy_helper.from_array(z).data_type
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", tensor, list(X.shape)))
    agrees(made, {"x": RNG.integers(0, 120, X.shape).astype(kind)})


@pytest.mark.parametrize(
    ("kind", "more", "attributes"),
    [("Clip", " low high", {}), ("DepthToSpace", "", {"blocksize": 2}), ("SpaceToDepth", "", {"blocksize": 2})],
)
def test_integers_of_16_bits_that_the_kernel_does_not_take(kind: str, more: str, attributes: dict[str, int]) -> None:
    a, z = scale(np.int16, 0.0002, 0)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node(kind, f"d{more}", "s", **attributes),
        node("QuantizeLinear", "s a z", "t"),
    ]
    bounds = {"low": np.array(-1, np.float32), "high": np.array(1, np.float32)} if more else {}
    agree(model(nodes, {"t": onnx.TensorProto.INT16}, a=a, z=z, **bounds), 1)


def test_groups_of_a_transposed_convolution_with_a_scale_for_each_channel() -> None:
    (a, z), (_, y) = scale(np.int8, 0.05, 10), scale(np.int8, 0.04, 0)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node("DequantizeLinear", "w s", "weights", axis=1),
        node("ConvTranspose", "d weights bias", "c", group=2),
        node("QuantizeLinear", "c a y", "t"),
    ]
    constants = {
        "w": RNG.integers(-90, 90, (4, 3, 2, 2)).astype(np.int8),
        "s": np.array([0.01, 0.02, 0.03], np.float32),
        "bias": RNG.standard_normal(6).astype(np.float32),
    }
    agree(model(nodes, {"t": onnx.TensorProto.INT8}, a=a, z=z, y=y, **constants), 1)


def test_integers_of_16_bits_that_no_hard_swish_takes() -> None:
    a, z = scale(np.int16, 0.0002, 0)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node("HardSwish", "d", "s"),
        node("QuantizeLinear", "s a z", "t"),
    ]
    agree(model(nodes, {"t": onnx.TensorProto.INT16}, a=a, z=z), 1)


def test_signed_and_unsigned_integers_beside_weights_with_a_zero_point() -> None:
    (a, z), (b, y) = scale(np.int8, 0.05, 10), scale(np.uint8, 0.04, 100)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node("DequantizeLinear", "w b y", "weights"),
        node("MatMul", "d weights", "m"),
        node("QuantizeLinear", "m b y", "n"),
        node("DequantizeLinear", "q a z", "e"),
        node("ReduceMean", "e axes", "mean"),
        node("QuantizeLinear", "mean b y", "t"),
        node("DequantizeLinear", "q a z", "g"),
        node("LeakyRelu", "g", "leaky"),
        node("QuantizeLinear", "leaky b y", "u"),
    ]
    weights = RNG.integers(80, 120, (6, 3)).astype(np.uint8)
    outputs = dict.fromkeys(("n", "t", "u"), onnx.TensorProto.UINT8)
    agree(model(nodes, outputs, a=a, z=z, b=b, y=y, w=weights, axes=np.array([2])), 1)


def test_signed_integers_by_unsigned_weights_beside_others_with_a_zero_point() -> None:
    (a, z), (b, y) = scale(np.int8, 0.05, 10), scale(np.uint8, 0.04, 128)
    odd = np.array(100, np.uint8)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node("DequantizeLinear", "w b y", "weights"),
        node("ConvTranspose", "d weights", "m"),
        node("QuantizeLinear", "m a z", "n"),
        node("DequantizeLinear", "q a z", "e"),
        node("DequantizeLinear", "w b odd", "others"),
        node("ConvTranspose", "e others", "k"),
        node("QuantizeLinear", "k a z", "t"),
    ]
    weights = RNG.integers(118, 138, (4, 2, 2, 2)).astype(np.uint8)
    outputs = dict.fromkeys(("n", "t"), onnx.TensorProto.INT8)
    agree(model(nodes, outputs, a=a, z=z, b=b, y=y, odd=odd, w=weights), 1)


def test_an_average_that_stays_on_real_numbers_leaves_its_operand_readable() -> None:
    a, z = scale(np.uint8, 0.05, 128)
    pool = {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("Slice", "q begin end", "s"),
        node("DequantizeLinear", "s a z", "d"),
        node("AveragePool", "d", "m", **pool),
        node("QuantizeLinear", "m a z", "n"),
        node("DequantizeLinear", "n a z", "real"),
    ]
    outputs = {"real": 1, "s": onnx.TensorProto.UINT8}
    agree(model(nodes, outputs, a=a, z=z, begin=np.array([0]), end=np.array([1])), 0.051)


def test_unsigned_integers_that_a_unit_moves_are_a_graph_output() -> None:
    a, z = scale(np.uint8, 0.05, 128)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "d"),
        node("Relu", "d", "r"),
        node("QuantizeLinear", "r a z", "n"),
        node("Split", "n", "first second", axis=1, num_outputs=2),
    ]
    agree(model(nodes, dict.fromkeys(("first", "second"), onnx.TensorProto.UINT8), a=a, z=z))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("dilations", [[1, 1], [2, 1]])
def test_a_window_that_begins_behind_the_image_is_refused(kind: str, dilations: list[int]) -> None:
    pool = {"kernel_shape": [2, 1], "strides": [1, 4], "ceil_mode": 1, "dilations": dilations}
    with pytest.raises(relayout.UnsupportedError, match="begins behind the image"):
        converted(model([node(kind, "x", "y", **pool)], {"y": 1}))


@pytest.mark.parametrize("size", [0.05, 0.03])
@pytest.mark.parametrize("ends", [(np.int8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
def test_integers_that_only_change_their_meaning_are_one_quantize(ends: tuple[type, type], size: float) -> None:
    """An NPU runs a QUANTIZE of integers and no DEQUANTIZE. Equal scales are exact; others may round a tie apart."""
    (a, z), (b, y) = scale(ends[0], 0.05, 10), scale(ends[1], size, 30)
    nodes = [
        node("QuantizeLinear", "x a z", "q"),
        node("DequantizeLinear", "q a z", "real"),
        node("QuantizeLinear", "real b y", "p"),
        node("MaxPool", "p", "m", kernel_shape=[1, 1]),
        node("DequantizeLinear", "m b y", "end"),
    ]
    made = model(nodes, {"end": 1}, a=a, z=z, b=b, y=y)
    agree(made, 0.0 if size == 0.05 else size * 1.001)
    result = relayout.convert(made, format="tflite")
    assert result.report.operators.get("DEQUANTIZE") == 1, "the last one"


def test_an_interface_of_unsigned_integers_costs_one_quantize_an_end() -> None:
    (a, z), (b, y) = scale(np.uint8, 0.05, 128), scale(np.int8, 0.05, 0)
    nodes = [
        node("DequantizeLinear", "x a z", "real"),
        node("QuantizeLinear", "real b y", "p"),
        node("DequantizeLinear", "p b y", "r"),
        node("Relu", "r", "s"),
        node("QuantizeLinear", "s b y", "t"),
        node("DequantizeLinear", "t b y", "u"),
        node("QuantizeLinear", "u a z", "end"),
    ]
    made = model(nodes, {"end": 2}, a=a, z=z, b=b, y=y)
    made.graph.input[0].type.tensor_type.elem_type = 2
    agrees(made, {"x": RNG.integers(0, 256, X.shape).astype(np.uint8)})
    assert relayout.convert(made, format="tflite").report.operators == {"QUANTIZE": 2, "RELU": 1}


@pytest.mark.parametrize("zero", [32768, 0, 1234])
@pytest.mark.parametrize("where", ["between", "output", "moved", "unit", "joined"])
def test_unsigned_integers_of_16_bits(where: str, zero: int) -> None:
    """No QUANTIZE or DEQUANTIZE takes them."""
    s, z = scale(np.uint16, 0.001, zero)
    back = node("DequantizeLinear", "q s z", "d")
    nodes = {
        "between": [back, node("Neg", "d", "y")],
        "output": [back, node("Neg", "d", "y"), node("Identity", "q", "i")],
        "moved": [node("Transpose", "q", "t", perm=[0, 2, 3, 1]), node("DequantizeLinear", "t s z", "y")],
        "unit": [back, node("Relu", "d", "r"), node("QuantizeLinear", "r s z", "p"), node("Identity", "p", "y")],
        "joined": [node("Concat", "q q", "c", axis=1), node("DequantizeLinear", "c s z", "y")],
    }[where]
    kinds = {"output": {"y": 1, "i": 4}, "unit": {"y": 4}}.get(where, {"y": 1})
    made = model([node("QuantizeLinear", "x s z", "q"), *nodes], kinds, s=s, z=z)
    if where == "unit":
        agree(made, steps=1.0, kernels=KERNELS[:1])  # the reference kernels have no ROUND
    else:
        agree(made)


@pytest.mark.parametrize("zero", [0, 7, -300])
def test_signed_integers_of_16_bits_with_a_zero_point(zero: int) -> None:
    """DEQUANTIZE refuses a zero point of int16, and takes what has none."""
    s, z = scale(np.int16, 0.001, zero)
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d"), node("Neg", "d", "y")]
    made = model(nodes, {"y": 1}, s=s, z=z)
    agree(made)


@pytest.mark.parametrize("kind", [np.uint16, np.int16])
@pytest.mark.parametrize("zero", [0, 32768])
def test_integers_of_16_bits_that_are_fed(kind: type, zero: int) -> None:
    s, z = scale(kind, 0.001, zero if kind is np.uint16 else zero // 1000)
    nodes = [node("DequantizeLinear", "x s z", "d"), node("Relu", "d", "r"), node("QuantizeLinear", "r s z", "y")]
    made = model(nodes, {"y": helper.np_dtype_to_tensor_dtype(np.dtype(kind))}, s=s, z=z)
    made.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    limits = np.iinfo(kind)
    feed = RNG.integers(limits.min, limits.max, X.shape).astype(kind)
    agrees(made, {"x": feed})


@pytest.mark.parametrize(("kind", "zero"), [(np.uint16, 0), (np.uint16, 32768), (np.int16, 0), (np.int16, 699)])
@pytest.mark.parametrize("move", ["Gather", "Concat", "Slice", "Split"])
@pytest.mark.parametrize("is_output", [False, True])
def test_integers_of_16_bits_that_are_moved_as_they_are_fed(kind: type, zero: int, move: str, is_output: bool) -> None:
    """Neither GATHER nor CONCATENATION nor REVERSE takes uint16, and CONCATENATION no zero point of int16."""
    s, z = scale(kind, 0.001, zero)
    first, last = np.array([2, 0]), np.array([-1])
    moved = {
        "Gather": node("Gather", "x first", "m", axis=3),
        "Concat": node("Concat", "x x", "m", axis=1),
        "Slice": node("Slice", "x last end last last", "m"),
        "Split": node("Split", "x", "m other", axis=3, num_outputs=2),
    }[move]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    outputs = {"y": 1} | ({"m": element} if is_output else {})
    end = np.array([-99])
    made = model([moved, node("DequantizeLinear", "m s z", "y")], outputs, s=s, z=z, first=first, last=last, end=end)
    made.graph.input[0].type.tensor_type.elem_type = element
    limits = np.iinfo(kind)
    agrees(made, {"x": RNG.integers(limits.min, limits.max, X.shape).astype(kind)})


@pytest.mark.parametrize("op", ["Add", "Sub"])
@pytest.mark.parametrize("power", [12, 11])
def test_sums_of_16_bits_whose_scales_are_powers_of_two(op: str, power: int) -> None:
    """Where no operand has the result's scale, LiteRT's default kernels refuse to run."""
    (a, z), (b, y), (c, w) = (scale(np.int16, 2.0**-each, 0) for each in (power, 13, 11))
    nodes = [
        node("QuantizeLinear", "x a z", "p"),
        node("DequantizeLinear", "p a z", "d"),
        node("QuantizeLinear", "x b y", "q"),
        node("DequantizeLinear", "q b y", "e"),
        node(op, "d e", "s"),
        node("QuantizeLinear", "s c w", "t"),
    ]
    agree(model(nodes, {"t": onnx.TensorProto.INT16}, a=a, z=z, b=b, y=y, c=c, w=w), 1)


PLAIN = {
    "Relu": "Relu(x)",
    "Abs": "Abs(x)",
    "Clip": "Clip(x, z, u)",
    "Add": "Add(x, w)",
    "Sub": "Sub(x, w)",
    "Mul": "Mul(x, w)",
    "Div": "Div(x, w)",
    "Max": "Max(x, w)",
    "Mod": "Mod(x, w)",
    "Pad": "Pad(x, pads, u)",
    "Where": "Where(which, x, w)",
}


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("op", PLAIN)
def test_arithmetic_on_integers_that_are_also_read_as_real_numbers(op: str, kind: type) -> None:
    """Kernels of quantized integers would multiply them by their scales, or end the process where one has none."""
    if op == "Relu" and kind is np.uint8:
        return
    letter = np.dtype(kind).name
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g ({letter}[2,3] x, {letter}[2,3] w, bool[3] which) => ({letter}[a,b] r, float[2,3] y, float[a,b] v)
        <float s = {{0.1}}, float t = {{0.25}}, {letter} z = {{0}}, {letter} u = {{3}}, int64[4] pads = {{0,1,0,1}}> {{
            r = {PLAIN[op]}
            y = DequantizeLinear(x, s, z)
            v = DequantizeLinear(r, t, u) }}""")
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {
        "x": rng.integers(0 if kind is np.uint8 else -20, 40, (2, 3)).astype(kind),
        "w": rng.integers(1, 3, (2, 3)).astype(kind),
        "which": np.array([True, False, True]),
    }
    expected = [np.asarray(each) for each in ReferenceEvaluator(proto).run(None, feed)]
    agrees(proto, feed, expected=expected, kernels=KERNELS[:1] if op == "Abs" else KERNELS)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("read", ["a", "b"])
def test_parts_of_which_one_is_read_as_real_numbers_are_joined(read: str, kind: str) -> None:
    """CONCATENATION refuses parts of two scales, and of uint8 takes them for other numbers."""
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g ({kind}[2,6] x) => ({kind}[2,6] joined, float[2,3] y) <float s = {{0.1}}, {kind} z = {{0}}> {{
            a, b = Split<axis = 1, num_outputs = 2>(x)
            joined = Concat<axis = 1>(b, a)
            y = DequantizeLinear({read}, s, z) }}""")
    agrees(proto, {"x": np.arange(1, 13).reshape(2, 6).astype(kind)})
