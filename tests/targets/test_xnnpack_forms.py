"""Operators that LiteRT runs slowly are others in the file: the same numbers, mostly by XNNPACK."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray
from onnx import helper

import relayout
from litert_runs import KERNELS, operators, results_of_runs
from relayout.errors import UnsupportedError
from running import run

Array = NDArray[np.generic]


def product(
    dtype: str = "int8",
    zeros: tuple[int, int, int] = (3, -7, 5),
    a: str = "2, 3, 20, 16",
    b: str = "2, 3, 16, 24",
    y: str = "2, 3, 20, 24",
) -> onnx.ModelProto:
    """A product of two activations: `zeros` are those of the operands and of the result, as signed integers."""
    za, zb, zy = (zero + (128 if dtype == "uint8" else 0) for zero in zeros)
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[{a}] a, {dtype}[{b}] b) => ({dtype}[{y}] y)
        <float sa = {{0.02}}, float sb = {{0.03}}, float sy = {{0.9}},
         {dtype} za = {{{za}}}, {dtype} zb = {{{zb}}}, {dtype} zy = {{{zy}}}> {{
            ar = DequantizeLinear(a, sa, za)
            br = DequantizeLinear(b, sb, zb)
            yr = MatMul(ar, br)
            y = QuantizeLinear(yr, sy, zy) }}""")


def feed_of(model: onnx.ModelProto, open_extent: int = 2) -> dict[str, Array]:
    """Random numbers for each input: bytes of the whole range, or real ones."""
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {}
    for each in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
        dims = [dim.dim_value or open_extent for dim in each.type.tensor_type.shape.dim]
        low = 0 if kind == np.uint8 else -128
        real = kind == np.float32
        feed[each.name] = (
            rng.normal(size=dims).astype(kind) if real else rng.integers(low, low + 256, dims).astype(kind)
        )
    return feed


def litert(content: bytes, feed: dict[str, Array]) -> tuple[Array, bool]:
    """The first output, and whether XNNPACK runs the whole graph."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    (found,) = interpreter.get_signature_runner()(**feed).values()
    delegates = [node for node in interpreter._get_ops_details() if node["op_name"] == "DELEGATE"]
    outputs = {each["index"] for each in interpreter.get_output_details()}
    return found, [set(node["outputs"]) for node in delegates] == [outputs]


def steps_off(found: Array, expected: Array) -> int:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    return int(np.abs(found.astype(int) - expected.astype(int)).max())


@pytest.mark.parametrize("zero", [-127, -100, -7, 1, 60, 127])
def test_xnnpack_multiplies_by_an_operand_that_has_a_zero_point(zero: int) -> None:
    model = product(zeros=(zero, zero, 5))
    result = relayout.convert(model, format="tflite")
    feed = feed_of(model)
    found, is_whole = litert(result.tflite, feed)
    assert is_whole
    assert result.report.operators == {"QUANTIZE": 1, "SUB": 1, "CONCATENATION": 2, "BATCH_MATMUL": 1}
    assert steps_off(found, run(model, feed)[0]) <= 1
    other, _ = litert(relayout.convert(model, format="tflite", target="tflite-micro").tflite, feed)
    assert steps_off(found, other) <= 1, "LiteRT's own kernel gives other numbers"


@pytest.mark.parametrize("zero", [-128, -127, -7, 1, 127])
def test_the_halves_of_an_operand_lack_nothing(zero: int) -> None:
    """Rows that cancel each other out but for one step of the operand."""
    model = product(zeros=(0, zero, 0))
    a = np.where(np.arange(16) % 2, -127, 127)
    for end, next_to_it in ((127, 126), (-128, -127)):
        b = np.where(np.arange(16) % 2, next_to_it, end)
        feed: dict[str, Array] = {
            "a": np.broadcast_to(a, (2, 3, 20, 16)).astype(np.int8),
            "b": np.broadcast_to(b[:, None], (2, 3, 16, 24)).astype(np.int8),
        }
        expected = run(model, feed)[0]
        assert expected.any()
        np.testing.assert_array_equal(litert(relayout.convert(model, format="tflite").tflite, feed)[0], expected)


@pytest.mark.parametrize(
    ("dtype", "shapes"),
    [
        ("uint8", {}),
        ("int8", {"a": "20, 16", "b": "16, 24", "y": "20, 24"}),
        ("int8", {"b": "3, 16, 24"}),
        ("int8", {"a": "N, 3, 20, 16", "b": "N, 3, 16, 24", "y": "N, 3, 20, 24"}),
        ("int8", {"a": "2, 3, N, 16", "b": "2, 3, 16, N", "y": "2, 3, N, N"}),
    ],
)
def test_a_product_by_an_operand_that_has_a_zero_point_is_right(dtype: str, shapes: dict[str, str]) -> None:
    model = product(dtype, **shapes)
    result = relayout.convert(model, format="tflite")
    assert result.report.operators["CONCATENATION"] == 2
    feed = feed_of(model)
    assert steps_off(litert(result.tflite, feed)[0], run(model, feed)[0]) <= 1


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        ("int8", {"zeros": (3, 0, 5)}),
        ("int8", {"zeros": (3, -128, 5)}),
        ("int8", {"a": "2, 3, 15, 16", "y": "2, 3, 15, 24"}),
        ("int8", {"a": "2, 3, 20, 15", "b": "2, 3, 15, 24"}),
        ("int8", {"a": "16", "b": "16, 24", "y": "24"}),
        ("int16", {"zeros": (0, 0, 0)}),
    ],
)
def test_a_product_that_gains_nothing_stays(dtype: str, changes: dict[str, object]) -> None:
    model = product(dtype, **changes)  # type: ignore[arg-type]
    result = relayout.convert(model, format="tflite")
    assert "CONCATENATION" not in result.report.operators


@pytest.mark.parametrize("target", ["ethos-u", "tflite-micro", "tosa"])
def test_a_product_for_an_npu_stays(target: str) -> None:
    result = relayout.convert(product(), format="tflite", target=target)
    assert result.report.operators == {"BATCH_MATMUL": 1}


def test_a_tflite_file_comes_back_with_the_operators_that_it_had() -> None:
    source = relayout.convert(product(), format="tflite", target="tflite-micro").tflite
    model = relayout.convert(source).proto
    for result in (relayout.convert(source, format="tflite"), relayout.convert(model, format="tflite")):
        assert result.report.operators == {"BATCH_MATMUL": 1}


def test_operands_of_several_products_are_prepared_once() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (int8[20, 20] a, int8[20, 20] b) => (int8[20, 20] y, int8[20, 20] z, int8[20, 20] w)
        <float s = {0.02}, float t = {0.9}, int8 o = {3}> {
            ar = DequantizeLinear(a, s, o)
            br = DequantizeLinear(b, s, o)
            yr = MatMul(ar, br)
            y = QuantizeLinear(yr, t, o)
            zr = MatMul(ar, br)
            z = QuantizeLinear(zr, s, o)
            wr = MatMul(br, ar)
            w = QuantizeLinear(wr, t, o) }""")
    result = relayout.convert(model, format="tflite")
    assert result.report.operators == {"QUANTIZE": 2, "SUB": 2, "CONCATENATION": 4, "BATCH_MATMUL": 3}
    feed = feed_of(model)
    found = Interpreter(model_content=result.tflite, num_threads=1).get_signature_runner()(**feed)
    for each, expected in zip("yzw", run(model, feed), strict=True):
        assert steps_off(found[each], expected) <= 1


def strided(
    x: str, y: str, starts: list[int], ends: list[int], axes: list[int], steps: list[int], dtype: str = "float"
) -> onnx.ModelProto:
    """A Slice; of integers between their ends."""
    given = "".join(
        f", int64[{len(each)}] {name} = {{{', '.join(map(str, each))}}}"
        for name, each in {"b": starts, "e": ends, "i": axes, "k": steps}.items()
    )
    before, behind = (
        ("r = Relu(x)", "y = Neg(q)")
        if dtype == "float"
        else ("r = DequantizeLinear(x, s, z)", "y = QuantizeLinear(q, s, z)")
    )
    kind = "int8" if dtype == "float" else dtype
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[{x}] x) => ({dtype}[{y}] y) <float s = {{0.02}}, {kind} z = {{3}}{given}> {{
            {before}
            q = Slice(r, b, e, i, k)
            {behind} }}""")


LONG = 1 << 40
SLICES = [
    strided("1, 8, 6, 5", "1, 4, 6, 5", [0], [LONG], [1], [2]),
    strided("1, 8, 6, 5", "1, 4, 3, 5", [1, 0], [LONG, LONG], [1, 2], [2, 2]),
    strided("2, 9, 6, 5", "2, 3, 3, 5", [2, -5], [9, 6], [-3, 2], [3, 2]),
    strided("4, 6", "2, 6", [1], [4], [0], [2]),
    strided("1, 8, 6", "1, 2, 6", [3], [8], [1], [4]),
    strided("8, 6, 5", "1, 6, 5", [7], [8], [0], [8]),
    strided("N, 8, 6, 5", "N, 8, 3, 5", [1], [LONG], [2], [2]),
    strided("1, 8, N, 5", "1, 4, N, 5", [1], [LONG], [1], [2]),
    strided("1, 8, 6, 5", "1, 4, 3, 5", [1, 0], [LONG, LONG], [1, 2], [2, 2], "int8"),
    strided("1, 8, 6, 5", "1, 4, 3, 5", [1, 0], [LONG, LONG], [1, 2], [2, 2], "uint8"),
]


@pytest.mark.parametrize("model", SLICES)
def test_each_k_th_row_is_one_of_k_of_an_axis_that_is_split(model: onnx.ModelProto) -> None:
    result = relayout.convert(model, format="tflite")
    feed = feed_of(model)
    found, is_whole = litert(result.tflite, feed)
    np.testing.assert_array_equal(found, run(model, feed)[0])
    assert is_whole or feed["x"].dtype == np.uint8, "LiteRT's own kernel runs something"
    assert result.report.operators["RESHAPE"] >= 2


@pytest.mark.parametrize(
    "model",
    [
        strided("1, 8, 6, 5", "1, 8, 6, 3", [0], [LONG], [3], [2]),
        strided("1, 9, 6, 5", "1, 5, 6, 5", [0], [LONG], [1], [2]),
        strided("1, 8, 6, 5", "1, 3, 6, 5", [2], [LONG], [1], [2]),
        strided("1, 8, 6, 5", "1, 3, 6, 5", [0], [6], [1], [2]),
        strided("1, 8, 6, 5", "1, 4, 6, 5", [-1], [-LONG], [1], [-2]),
        strided("N, 8, M, 5", "N, 4, M, 5", [0], [LONG], [1], [2]),
    ],
)
def test_other_slices_stay(model: onnx.ModelProto) -> None:
    result = relayout.convert(model, format="tflite")
    assert "RESHAPE" not in result.report.operators
    feed = feed_of(model)
    np.testing.assert_array_equal(litert(result.tflite, feed)[0], run(model, feed)[0])


def test_unsigned_integers_that_are_only_moved_change_their_sign_once() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 8, 8, 4] x) => (float[1, 4, 8, 4] y, float[1, 4, 8, 4] z)
        <float s = {0.02}, uint8 o = {131}, int64[1] b = {0}, int64[1] c = {1}, int64[1] e = {9}, int64[1] i = {1},
         int64[1] k = {2}> {
            integers = QuantizeLinear(x, s, o)
            reals = DequantizeLinear(integers, s, o)
            active = Relu(reals)
            active_q = QuantizeLinear(active, s, o)
            read = DequantizeLinear(active_q, s, o)
            first = Slice(read, b, e, i, k)
            first_q = QuantizeLinear(first, s, o)
            y = DequantizeLinear(first_q, s, o)
            second = Slice(read, c, e, i, k)
            second_q = QuantizeLinear(second, s, o)
            z = DequantizeLinear(second_q, s, o) }""")
    assert relayout.convert(model, format="tflite").report.operators["QUANTIZE"] == 1


def test_a_slice_of_no_rows_has_none() -> None:
    model = strided("1, 0, 8, 5", "1, 0, 4, 5", [0], [LONG], [2], [2])
    result = relayout.convert(model, format="tflite")
    assert litert(result.tflite, {"x": np.zeros((1, 0, 8, 5), np.float32)})[0].shape == (1, 0, 4, 5)


def test_a_slice_of_a_tflite_file_or_for_an_npu_stays() -> None:
    model = strided("1, 8, 6, 5", "1, 4, 6, 5", [0], [LONG], [1], [2])
    source = relayout.convert(model, format="tflite", target="tflite-micro").tflite
    for result in (relayout.convert(source, format="tflite"), relayout.convert(model, format="tflite", target="tosa")):
        assert result.report.operators == {"RELU": 1, "STRIDED_SLICE": 1, "MUL": 1}


def depthwise(image: tuple[int | str, ...], window: tuple[int, ...], **changes: object) -> onnx.ModelProto:
    """A depthwise convolution of `n c *s` with `multiplier` results for each channel, and a Relu behind it."""
    rng = np.random.default_rng(0)
    channels, multiplier = int(image[1]), int(changes.pop("multiplier", 1))  # type: ignore[call-overload]
    attributes = {"pads": [size // 2 for size in window] * 2, **changes}
    attributes = {name: value for name, value in attributes.items() if value is not None}
    arrays = {
        "w": rng.normal(size=(channels * multiplier, 1, *window)).astype(np.float32),
        "b": rng.normal(size=channels * multiplier).astype(np.float32),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w", "b"], ["q"], group=channels, **attributes),
        onnx.helper.make_node("Relu", ["q"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", image), ("y", None))]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def volume(image: tuple[int | str, ...], window: tuple[int, ...], **attributes: object) -> onnx.ModelProto:
    """A convolution of `n 4 d h w`, and a Relu behind it."""
    rng, groups = np.random.default_rng(0), int(attributes.get("group", 1))  # type: ignore[call-overload]
    arrays = {"w": rng.normal(size=(6, 4 // groups, *window)), "b": rng.normal(size=6)}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w", "b"], ["q"], **attributes),
        onnx.helper.make_node("Relu", ["q"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", image), ("y", None))]
    initializers = [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (depthwise((2, 6, 9, 10), (7, 7)), 4),
        (depthwise((1, 6, 9, 10), (9, 9)), 4),
        (depthwise((1, 6, 9, 10), (5, 7)), 2),
        (depthwise((1, 6, 9, 10), (7, 5)), 2),
        (depthwise((1, 6, 1, 40), (1, 31)), 2),
        (depthwise((1, 6, 20, 21), (7, 7), dilations=[2, 1], pads=[6, 3, 6, 3]), 4),
        (depthwise((1, 3, 9, 10), (7, 7), multiplier=2), 4),
        (depthwise((1, 6, 40), (31,)), 2),
        (depthwise((1, 6, 9, 10), (7, 7), auto_pad="SAME_LOWER", pads=None), 4),
    ],
)
def test_a_large_window_is_several_by_every_second_row(model: onnx.ModelProto, parts: int) -> None:
    result = relayout.convert(model, format="tflite", io="convert")
    operators = result.report.operators
    assert (operators["DEPTHWISE_CONV_2D"], operators["ADD"], operators.get("PAD", 0)) == (parts, parts - 1, 0)
    assert "RELU" not in operators
    kept = relayout.convert(model, format="tflite")
    feed = feed_of(model)
    (expected,) = run(model, feed)
    np.testing.assert_allclose(litert(kept.tflite, feed)[0], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("model", "parts", "is_padded"),
    [
        (depthwise((1, 6, 9, 10), (11, 11)), 6, True),
        (depthwise((1, 6, 9, 10), (7, 7), strides=[2, 2]), 3, True),
        (depthwise((1, 6, 10, 12), (7, 7), strides=[2, 2], auto_pad="SAME_LOWER", pads=None), 3, True),
        (depthwise((1, 6, 10, 12), (7, 7), strides=[2, 2], auto_pad="SAME_UPPER", pads=None), 3, True),
        (depthwise((1, 6, 9, 10), (7, 7), pads=[0, 0, 0, 0]), 3, False),
        (depthwise((1, 6, 9, 10), (9, 10), auto_pad="VALID", pads=None), 4, False),
        (depthwise((2, 6, 9, 10), (7, 7), pads=[6, 3, 0, 3]), 3, True),
        (depthwise((1, 6, 9, 10), (6, 6), pads=[3, 3, 2, 2]), 2, True),
        (depthwise((1, 6, 20, 23), (6, 7), dilations=[3, 2], strides=[1, 2], pads=[3, 3, 2, 2]), 2, True),
        (depthwise((1, 3, 9, 10), (8, 8), multiplier=2), 3, True),
        (depthwise((1, 6, 90), (60,), strides=[3], pads=[30, 29]), 3, True),
    ],
)
def test_a_large_window_is_several_of_neighbouring_rows(model: onnx.ModelProto, parts: int, is_padded: bool) -> None:
    result = relayout.convert(model, format="tflite", io="convert")
    operators = result.report.operators
    counts = operators["DEPTHWISE_CONV_2D"], operators["ADD"], operators.get("PAD", 0)
    assert counts == (parts, parts - 1, int(is_padded))
    feed = feed_of(model)
    (expected,) = run(model, feed)
    kept = relayout.convert(model, format="tflite")
    np.testing.assert_allclose(litert(kept.tflite, feed)[0], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "model",
    [
        depthwise((1, 6, 9, 10), (7, 7), strides=[2, 2]),
        volume((1, 4, 9, 6, 7), (3, 3, 3), pads=[1] * 6, strides=[2, 2, 2]),
    ],
    ids=["a large window", "a volume"],
)
def test_a_sum_of_convolutions_in_an_old_opset(model: onnx.ModelProto) -> None:
    model.opset_import[0].version = 7
    result = relayout.convert(model, format="tflite")
    assert result.report.operators["ADD"] == 2
    feed = feed_of(model)
    (expected,) = run(model, feed)
    np.testing.assert_allclose(litert(result.tflite, feed)[0], expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "model",
    [
        depthwise((1, 6, 9, 10), (5, 5)),
        depthwise((1, 6, "h", 10), (7, 7), pads=[0, 0, 0, 0]),
        depthwise((1, 2, 80, 80), (51, 51), pads=[0, 0, 0, 0]),
    ],
    ids=["few elements", "an open extent", "more parts than pay"],
)
def test_other_windows_stay_whole(model: onnx.ModelProto) -> None:
    result = relayout.convert(model, format="tflite")
    assert result.report.operators["DEPTHWISE_CONV_2D"] == 1
    feed = feed_of(model, open_extent=9)
    (expected,) = run(model, feed)
    np.testing.assert_allclose(litert(result.tflite, feed)[0], expected, atol=1e-5 * np.abs(expected).max())


def test_a_large_window_of_a_tflite_file_or_for_an_npu_stays_whole() -> None:
    model = depthwise((1, 6, 9, 10), (7, 7))
    source = relayout.convert(model, format="tflite", target="tflite-micro").tflite
    for result in (relayout.convert(source, format="tflite"), relayout.convert(model, format="tflite", target="tosa")):
        assert result.report.operators["DEPTHWISE_CONV_2D"] == 1


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (volume((1, 4, 5, 6, 7), (3, 3, 3), pads=[1] * 6), 3),
        (volume((2, 4, 5, 6, 7), (3, 2, 3), pads=[0, 1, 2, 2, 0, 1], dilations=[2, 1, 2]), 3),
        (volume((1, 4, 9, 6, 7), (3, 3, 3), pads=[1] * 6, strides=[2, 2, 2]), 3),
        (volume((1, 4, 12, 6, 7), (4, 1, 2), pads=[3, 0, 0, 1, 0, 0], strides=[3, 1, 2], dilations=[2, 1, 1]), 4),
        (volume((1, 4, 5, 6, 7), (1, 3, 3), strides=[2, 1, 1]), 1),
        (volume(("n", 4, 5, 6, 7), (3, 3, 3), pads=[1] * 6), 3),
        (volume((1, 4, 9, 6, 7), (3, 3, 3), pads=[1] * 6, strides=[2, 2, 2], group=2), 3),
        (volume((1, 4, 9, "h", 7), (3, 3, 3), pads=[1] * 6, strides=[2, 2, 2], group=2), 3),
    ],
    ids=[
        "plain",
        "border and dilations",
        "steps of two",
        "steps of three",
        "one image",
        "an open batch",
        "in groups",
        "in groups, of an open height",
    ],
)
def test_a_convolution_of_volumes_is_a_sum_of_those_of_images(model: onnx.ModelProto, parts: int) -> None:
    result = relayout.convert(model, format="tflite", io="convert")
    operators = result.report.operators
    assert (operators["CONV_2D"], operators.get("ADD", 0), operators.get("CONV_3D", 0)) == (parts, parts - 1, 0)
    feed = feed_of(model, open_extent=6)
    (expected,) = run(model, feed)
    kept = relayout.convert(model, format="tflite")
    np.testing.assert_allclose(litert(kept.tflite, feed)[0], expected, atol=1e-5 * np.abs(expected).max())


def test_a_volume_of_open_extents_a_tflite_file_or_another_runtime_stays_one_convolution() -> None:
    model = volume((1, 4, 5, 6, 7), (3, 3, 3), pads=[1] * 6)
    computed = onnx.ModelProto.FromString(model.SerializeToString())
    computed.graph.node[0].input[2] = "sum"
    axes = onnx.helper.make_node("ReduceMean", ["x", "axes"], ["mean"], keepdims=0)
    computed.graph.node.insert(0, axes)
    computed.graph.node.insert(1, onnx.helper.make_node("Add", ["mean", "b"], ["sum"]))
    computed.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, 1, 2, 3, 4]), "axes"))
    source = relayout.convert(model, format="tflite", target="tosa").tflite
    open_depth = volume((1, 4, "d", 6, 7), (3, 3, 3), pads=[1] * 6)
    for given, target in ((source, None), (model, "tosa"), (open_depth, None), (computed, None)):
        assert relayout.convert(given, format="tflite", target=target).report.operators["CONV_3D"] == 1


def response(channels: int = 7, **attributes: float) -> onnx.ModelProto:
    """An LRN."""
    text = ", ".join(f"{name} = {value}" for name, value in {"size": 5, **attributes}.items())
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, {channels}, 3, 4] x) => (float[1, {channels}, 3, 4] y) {{ y = LRN<{text}>(x) }}""")


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"alpha": 0.5, "beta": 0.75, "bias": 2.0},
        {"alpha": 0.5, "beta": 0.5},
        {"alpha": 0.5, "beta": 0.25, "size": 3},
        {"alpha": 0.5, "beta": 1.0},
        {"alpha": 0.5, "size": 1},
        {"alpha": 0.5, "size": 21},
    ],
)
def test_a_local_response_is_a_convolution_and_roots(attributes: dict[str, float]) -> None:
    model = response(**attributes)
    result = relayout.convert(model, format="tflite", io="convert")
    assert "LOCAL_RESPONSE_NORMALIZATION" not in result.report.operators
    feed = {"x": 3 * feed_of(model)["x"]}
    found, is_whole = litert(result.tflite, {"x": np.moveaxis(feed["x"], 1, 3)})
    assert is_whole, "LiteRT's own kernel runs something"
    np.testing.assert_allclose(np.moveaxis(found, 3, 1), run(model, feed)[0], rtol=1e-5)


def local_response(x: Array, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Array:
    """An LRN by the standard's words; ONNX Runtime takes windows of odd size alone."""
    result, count = np.empty_like(x), x.shape[1]
    for channel in range(count):
        window = x[:, max(channel - (size - 1) // 2, 0) : min(channel + size // 2, count - 1) + 1]
        result[:, channel] = x[:, channel] / (bias + alpha / size * np.square(window).sum(axis=1)) ** beta
    return result


@pytest.mark.parametrize(
    "model", [response(beta=0.6), response(513), response(alpha=-1e-3), response(bias=0.0), response(size=4)]
)
def test_other_local_responses_are_means_and_powers(model: onnx.ModelProto) -> None:
    """The builtin has two kernels, and its reference kernel leaves the last channel of each window out."""
    content = relayout.convert(model, format="tflite").tflite
    names = operators(content)
    assert "AVERAGE_POOL_2D" in names
    assert "LOCAL_RESPONSE_NORMALIZATION" not in names
    feed = feed_of(model)["x"]
    expected = local_response(
        feed, **{each.name: helper.get_attribute_value(each) for each in model.graph.node[0].attribute}
    )
    for kernels in KERNELS:
        (result,) = results_of_runs(content, [feed], kernels)
        np.testing.assert_allclose(result, expected, rtol=2e-5)


def mirrored(
    x: str, y: str, pads: list[int], axes: list[int] | None = None, dtype: str = "float", mode: str = "reflect"
) -> onnx.ModelProto:
    """A Pad that repeats rows; of integers between their ends."""
    given = f", int64[{len(pads)}] p = {{{', '.join(map(str, pads))}}}"
    given += "" if axes is None else f", int64[{len(axes)}] a = {{{', '.join(map(str, axes))}}}"
    before, behind = ("r = Relu(x)", "y = Neg(q)")
    if dtype != "float":
        before, behind = ("r = DequantizeLinear(x, s, z)", "y = QuantizeLinear(q, s, z)")
    kind = "int8" if dtype == "float" else dtype
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g ({dtype}[{x}] x) => ({dtype}[{y}] y) <float s = {{0.02}}, {kind} z = {{3}}{given}> {{
            {before}
            q = Pad<mode = "{mode}">(r, p{"" if axes is None else ", , a"})
            {behind} }}""")


@pytest.mark.parametrize(
    ("model", "gathers"),
    [
        (mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 1, 0, 0, 1, 0, 0]), 3),
        (mirrored("1, 5, 6, 3", "1, 9, 6, 3", [4, 0], [1]), 1),
        (mirrored("2, 3, 5, 6", "2, 3, 7, 8", [1, 1, 1, 1], [-2, -1]), 4),
        (mirrored("N, 3, 5", "N, 3, 8", [0, 0, 3, 0, 0, 0]), 1),
        (mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 1, 0, 0, 1, 0, 0], None, "int8"), 3),
        (mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 1, 0, 0, 1, 0, 0], None, "uint8"), 3),
        (mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 1, 0, 0, 1, 0, 0], mode="edge"), 3),
        (mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 0, 0, 0, 1, 1, 0], mode="wrap"), 3),
        (mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 0, 0, 0, 1, 1, 0], None, "int8", "edge"), 3),
    ],
)
def test_a_border_of_rows_is_gathered(model: onnx.ModelProto, gathers: int) -> None:
    result = relayout.convert(model, format="tflite")
    assert result.report.operators["GATHER"] == gathers
    assert {"MIRROR_PAD", "DEQUANTIZE"}.isdisjoint(result.report.operators)
    feed = feed_of(model)
    np.testing.assert_array_equal(litert(result.tflite, feed)[0], run(model, feed)[0])


def test_an_old_border_that_mirrors_is_gathered() -> None:
    model = onnx.parser.parse_model("""<ir_version: 7, opset_import: ["" : 9]>
        g (float[1, 5, 6] x) => (float[1, 8, 6] y) { y = Pad<mode = "reflect", pads = [0, 2, 0, 0, 1, 0]>(x) }""")
    result = relayout.convert(model, format="tflite")
    assert result.report.operators == {"GATHER": 2, "CONCATENATION": 1}
    feed = feed_of(model)
    np.testing.assert_array_equal(litert(result.tflite, feed)[0], run(model, feed)[0])


def test_other_borders_that_mirror_are_the_builtin() -> None:
    open_axis = mirrored("1, N, 6, 3", "1, M, 6, 3", [0, 2, 0, 0, 0, 1, 0, 0])
    known = mirrored("1, 5, 6, 3", "1, 8, 7, 3", [0, 2, 1, 0, 0, 1, 0, 0])
    for_npu = relayout.convert(known, format="tflite", target="tflite-micro")
    for result in (
        relayout.convert(open_axis, format="tflite"),
        for_npu,
        relayout.convert(for_npu.tflite, format="tflite"),
    ):
        assert result.report.operators["MIRROR_PAD"] == 1


def test_the_report_says_what_is_written_as_other_operators() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 4, 8, 8] x) => (float[1, 4, 5, 4] y)
        <int64[1] b = {0}, int64[1] e = {8}, int64[1] i = {2}, int64[1] j = {3}, int64[1] k = {2}, int64[1] l = {1},
         int64[2] p = {1, 0}> {
            q = Slice(x, b, e, i, k)
            r = Pad<mode = "reflect">(q, p, , i)
            s = Slice(r, b, e, j, k)
            t = Slice(s, b, e, j, l)
            y = Relu(t) }""")
    told = "written as operators that take less time in LiteRT: 1 Pad, 1 Slice"
    assert told in relayout.convert(model, format="tflite").report.notes
    assert told not in relayout.convert(model, format="tflite", target="tflite-micro").report.notes


def test_a_constant_of_the_source_may_have_the_name_of_one_that_is_added() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1, 8, 6, 5] x) => (float[1, 4, 6, 5] y)
        <int64[1] "y/split_0/start" = {0}, int64[1] e = {8}, int64[1] i = {1}, int64[1] k = {2}> {
            y = Slice(x, "y/split_0/start", e, i, k) }""")
    feed = feed_of(model)
    result = relayout.convert(model, format="tflite")
    assert result.report.operators == {"RESHAPE": 2, "STRIDED_SLICE": 1}
    np.testing.assert_array_equal(litert(result.tflite, feed)[0], run(model, feed)[0])


def test_a_slice_of_what_has_no_known_rank_is_refused() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4, 6] x, int64[n] s) => (float[] y)
        <int64[1] b = {0}, int64[1] e = {9}, int64[1] i = {0}, int64[1] k = {2}> {
            v = Reshape(x, s)
            y = Slice(v, b, e, i, k) }""")
    with pytest.raises(UnsupportedError, match="Reshape"):
        relayout.convert(model, format="tflite")


def test_a_border_behind_a_scale_for_each_channel_mirrors_real_numbers() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (int8[1, 3, 5, 4] x) => (int8[1, 3, 7, 6] y)
        <float[4] s = {0.01, 0.02, 0.03, 0.04}, int8[4] z = {3, 3, 3, 3}, float t = {0.05}, int8 o = {0},
         int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> {
            r = DequantizeLinear<axis = 3>(x, s, z)
            q = Pad<mode = "reflect">(r, p)
            y = QuantizeLinear(q, t, o) }""")
    feed = feed_of(model)
    result = relayout.convert(model, format="tflite")
    assert result.report.operators["GATHER"] == 4
    assert steps_off(litert(result.tflite, feed)[0], run(model, feed)[0]) <= 1
