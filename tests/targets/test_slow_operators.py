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
