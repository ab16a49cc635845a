"""Single operators that LiteRT's own kernels run an element at a time are others in the file: the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from numpy.typing import NDArray

import relayout
from litert_runs import KERNELS, operators
from running import run

Array = NDArray[np.generic]
HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


def results(content: bytes, feed: dict[str, Array], kernels: OpResolverType) -> list[Array]:
    """Return the outputs in the order of their names."""
    interpreter = Interpreter(model_content=content, num_threads=1, experimental_op_resolver_type=kernels)
    found = interpreter.get_signature_runner()(**feed)
    return [found[name] for name in sorted(found)]


def booleans(*dims: int) -> Array:
    return np.random.default_rng(sum(dims)).integers(0, 2, dims).astype(bool)


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("version", [7, 21])
@pytest.mark.parametrize(
    ("x", "y", "first", "second"),
    [
        ("3, 16, 20", "3, 16, 20", (3, 16, 20), (3, 16, 20)),
        ("3, 16, 20", "16, 1", (3, 16, 20), (16, 1)),
        ("3, 1, 20", "16, 1", (3, 1, 20), (16, 1)),
        ("N, 16", "16", (40, 16), (16,)),
    ],
)
def test_booleans_are_compared_or_integers_meanwhile(
    x: str, y: str, first: tuple[int, ...], second: tuple[int, ...], version: int, kernels: OpResolverType
) -> None:
    model = onnx.parser.parse_model(f"""{HEAD} (bool[{x}] x, bool[{y}] y) => (a, b, c, d) {{
        a = And(x, y) b = Or(x, y) n = Not(x) c = Xor(n, y) o = Or(b, n) d = Not(o) }}""")
    model.opset_import[0].version = version
    content = relayout.convert(model, format="tflite").tflite
    assert not {name for name in operators(content) if name.startswith("LOGICAL")}
    feed = {"x": booleans(*first), "y": booleans(*second)}
    for found, expected in zip(results(content, feed, kernels), run(model, feed), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_few_booleans_and_those_for_other_targets_stay() -> None:
    few, many = (
        onnx.parser.parse_model(f"{HEAD} (bool[{n}] x, bool[{n}] y) => (z) {{ a = And(x, y) b = Or(a, y) z = Not(b) }}")
        for n in (8, 512)
    )
    plain = {"LOGICAL_AND": 1, "LOGICAL_OR": 1}
    assert relayout.convert(few, format="tflite").report.operators == {**plain, "EQUAL": 1}
    source = relayout.convert(many, format="tflite", target="tflite-micro").tflite
    for result in (relayout.convert(source, format="tflite"), relayout.convert(many, format="tflite", target="tosa")):
        assert result.report.operators == {**plain, "LOGICAL_NOT": 1}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(
    ("x", "attributes", "transposes"),
    [
        ((2, 5, 6, 7), "axis = 1", 1),
        ((2, 5, 6, 7), "axis = -3, keepdims = 0, select_last_index = 1", 1),
        ((5, 7), "axis = 0, keepdims = 0", 1),
        ((2, 5, 6, 7), "axis = 3", 0),
        ((2, 5, 1, 1), "axis = 1", 0),
    ],
)
@pytest.mark.parametrize("dtype", ["float", "int8"])
def test_the_axis_of_an_arg_max_comes_last(
    x: tuple[int, ...], attributes: str, transposes: int, dtype: str, op_type: str, kernels: OpResolverType
) -> None:
    """Many elements are equal: the first, or the last, of them counts."""
    model = onnx.parser.parse_model(f"""{HEAD} ({dtype}[{", ".join(map(str, x))}] x) => (y) {{
        y = {op_type}<{attributes}>(x) }}""")
    result = relayout.convert(model, format="tflite")
    assert result.report.operators.get("TRANSPOSE", 0) == result.report.transposes == transposes
    kind = np.float32 if dtype == "float" else np.int8
    feed: dict[str, Array] = {"x": np.random.default_rng(0).integers(-2, 3, x).astype(kind)}
    (found,) = results(result.tflite, feed, kernels)
    np.testing.assert_array_equal(found, run(model, feed)[0])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", ["float", "int8", "uint8"])
@pytest.mark.parametrize(
    ("x", "attributes", "borders"),
    [
        ((2, 3, 8, 12), "kernel_shape = [3, 3], dilations = [2, 2], pads = [2, 2, 2, 2]", 0),
        ((2, 3, 8, 12), "kernel_shape = [3, 2], dilations = [2, 4]", 0),
        ((2, 3, 9, 11), "kernel_shape = [3, 5], dilations = [2, 1], pads = [2, 2, 2, 2]", 1),
        ((2, 3, 9, 11), "kernel_shape = [3, 2], dilations = [3, 2], pads = [1, 0, 2, 1]", 1),
        ((2, 3, 10, 11), "kernel_shape = [2, 1], dilations = [3, 5]", 1),
        ((2, 3, 13), "kernel_shape = [3], dilations = [3], pads = [2, 1]", 1),
        ((2, 3, 4, 6, 8), "kernel_shape = [2, 3, 3], dilations = [2, 3, 1], pads = [1, 0, 1, 0, 2, 1]", 1),
    ],
)
def test_a_pool_with_dilations_is_one_along_each_axis(
    x: tuple[int, ...], attributes: str, borders: int, dtype: str, kernels: OpResolverType
) -> None:
    model = onnx.parser.parse_model(f"""{HEAD} ({dtype}[{", ".join(map(str, x))}] x) => (y) {{
        y = MaxPool<{attributes}>(x) }}""")
    kind = np.dtype("float32" if dtype == "float" else dtype)
    feed: dict[str, Array] = {"x": np.random.default_rng(0).integers(-99, 100, x).astype(kind)}
    for interface in ("keep", "convert"):
        result = relayout.convert(model, format="tflite", io=interface)
        assert result.report.operators["MAX_POOL_2D"] == len(x) - 2
        assert sum(result.report.operators.get(name, 0) for name in ("PAD", "PADV2")) == borders
        assert "MAXIMUM" not in result.report.operators
    (found,) = results(relayout.convert(model, format="tflite").tflite, feed, kernels)
    np.testing.assert_array_equal(found, run(model, feed)[0])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(
    ("batch", "attributes", "pools", "slices"),
    [
        ("N", "dilations = [2, 4], pads = [2, 0, 2, 0]", 2, 0),
        ("5", "dilations = [2, 4], strides = [3, 1]", 0, 6),
    ],
    ids=["an open batch", "steps"],
)
def test_a_pool_with_dilations_between_integers(
    batch: str, attributes: str, pools: int, slices: int, kernels: OpResolverType
) -> None:
    model = onnx.parser.parse_model(f"""{HEAD}
        (float[{batch}, 3, 8, 12] x) => (y) <float s = {{0.1}}, int8 o = {{3}}> {{
        a = QuantizeLinear(x, s, o) b = DequantizeLinear(a, s, o) c = MaxPool<kernel_shape = [3, 2], {attributes}>(b)
        d = QuantizeLinear(c, s, o) y = DequantizeLinear(d, s, o) }}""")
    result = relayout.convert(model, format="tflite")
    assert (result.report.operators["QUANTIZE"], result.report.operators["DEQUANTIZE"]) == (1, 1)
    assert result.report.operators.get("MAX_POOL_2D", 0) == pools
    assert result.report.operators.get("STRIDED_SLICE", 0) == slices
    feed: dict[str, Array] = {"x": np.random.default_rng(0).normal(size=(5, 3, 8, 12)).astype(np.float32)}
    (found,) = results(result.tflite, feed, kernels)
    np.testing.assert_allclose(found, run(model, feed)[0], atol=1e-6)


def angles(op_type: str, dims: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} (float[{dims}] x) => (y) {{ y = {op_type}(x) }}")


RNG = np.random.default_rng(0)
NEAR_ONE = 1 - np.exp(-RNG.uniform(0, 16, 5000))
WITHIN_ONE = np.concatenate([RNG.uniform(-1, 1, 5000), NEAR_ONE, -NEAR_ONE, np.exp(-RNG.uniform(0, 80, 5000))])
ANY = np.concatenate([RNG.normal(size=5000), np.exp(RNG.uniform(-80, 80, 10000)) * RNG.choice([-1, 1], 10000)])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dims", ["N", "known"])
@pytest.mark.parametrize(
    ("op_type", "function", "numbers"),
    [("Acos", np.arccos, WITHIN_ONE), ("Asin", np.arcsin, WITHIN_ONE), ("Atan", np.arctan, ANY)],
)
def test_angles_of_many_numbers_are_a_polynomial(
    op_type: str, function: np.ufunc, numbers: Array, dims: str, kernels: OpResolverType
) -> None:
    special = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-30, -3e38, 1.5])
    feed: dict[str, Array] = {"x": np.concatenate([special, numbers]).astype(np.float32)}
    model = angles(op_type, dims if dims == "N" else str(feed["x"].size))
    result = relayout.convert(model, format="tflite")
    assert "ATAN2" not in result.report.operators
    (found,), (other,) = results(result.tflite, feed, kernels), run(model, feed)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(other))
    if op_type != "Acos":  # -0.0 gives -0.0
        has_sign = ~np.isnan(found)
        np.testing.assert_array_equal(np.signbit(found)[has_sign], np.signbit(feed["x"])[has_sign])
    with np.errstate(invalid="ignore"):
        exact = function(feed["x"].astype(np.float64))
    places = np.abs(found - exact) / np.spacing(np.maximum(np.abs(exact), 1e-37).astype(np.float32))
    assert np.nanmax(places) < 6


@pytest.mark.parametrize("op_type", ["Acos", "Asin", "Atan"])
def test_angles_of_few_numbers_and_those_for_other_targets_stay(op_type: str) -> None:
    assert relayout.convert(angles(op_type, "16"), format="tflite").report.operators["ATAN2"] == 1
    other = relayout.convert(angles(op_type, "512"), format="tflite", target="tosa")
    for result in (other, relayout.convert(other.tflite, format="tflite")):
        assert result.report.operators["ATAN2"] == 1
