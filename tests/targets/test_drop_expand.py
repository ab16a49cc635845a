"""For LiteRT an operator that broadcasts reads what an Expand reads, and an Expand that stays is a MUL by ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

import relayout
from relayout.rules.elementwise import broadcasting, prelu
from relayout.rules.registry import registry
from running import run
from small import build

DROPPED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "the divisor": ("float[2,3,4] x, float[2,3,1] m", "e = Expand(m, s) y = Div(x, e)", {"s": [2, 3, 4]}),
    "of a lower rank": ("float[2,3,4] x, float[4] m", "e = Expand(m, s) y = Sub(e, x)", {"s": [2, 3, 4]}),
    "of open extents": ("float[n,3] x, float[1,3] m", "s = Shape(x) e = Expand(m, s) y = Mul(x, e)", {}),
    "one of several": ("float[2,3] x, float[3] m, float[2,1] k", "e = Expand(m, s) y = Max(x, e, k)", {"s": [2, 3]}),
    "of a bound": ("float[2,3] x, float[3] m", "e = Expand(m, s) y = Min(x, e)", {"s": [2, 3]}),
}
KEPT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "nothing else is as large": ("float[2,1] x, float[2,1] m", "e = Expand(m, s) y = Add(x, e)", {"s": [2, 3]}),
    "an output": ("float[2,1] x", "y = Expand(x, s)", {"s": [2, 3]}),
    "read by what does not broadcast": ("float[2,1] x", "e = Expand(x, s) y = Softmax(e)", {"s": [2, 3]}),
    "of extents that may differ": (
        "float[n,3] x, float[1,3] m, int64[2] s",
        "e = Expand(m, s) y = Mul(x, e)",
        {},
    ),
}


def operators(result: relayout.Result) -> list[str]:
    assert result.file is not None
    return [operator.name for operator in result.file.subgraphs[0].operators]


def same(model: onnx.ModelProto, result: relayout.Result, n: int = 2) -> None:
    rng = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.input:
        dims = [dim.dim_value or n for dim in value.type.tensor_type.shape.dim]
        of = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        feeds[value.name] = np.array([n, 3], of) if value.name == "s" else rng.normal(size=dims).astype(of)
    want = run(model, feeds)[0]
    interpreter = Interpreter(model_content=result.tflite)
    for detail in interpreter.get_input_details():
        interpreter.resize_tensor_input(detail["index"], feeds[detail["name"]].shape)
    interpreter.allocate_tensors()
    given = interpreter.get_signature_runner()(**feeds)["y"]
    np.testing.assert_allclose(given, want, rtol=1e-6)


@pytest.mark.parametrize("name", [*DROPPED, *KEPT])
def test_what_broadcasts_reads_what_was_expanded(name: str) -> None:
    model = build(*(DROPPED | KEPT)[name])
    result = relayout.convert(model, format="tflite")
    note = "note: Expands that their readers do themselves: 1 Expand"
    assert (note in str(result.report)) == (name in DROPPED)
    if name in DROPPED:
        assert len(operators(result)) <= (2 if name == "one of several" else 1)
    same(model, result)


def test_two_expands_of_one_sum_leave_one() -> None:
    model = build("float[2,1] x, float[1,3] m", "e = Expand(x, s) f = Expand(m, s) y = Add(e, f)", {"s": [2, 3]})
    result = relayout.convert(model, format="tflite")
    assert operators(result) == ["ADD"]  # each stretches the other
    same(model, result)


def test_other_readers_keep_the_expand() -> None:
    model = build("float[2,3] x, float[3] m", "e = Expand(m, s) a = Add(x, e) z = Softmax(e)", {"s": [2, 3]})
    assert "MUL" in operators(relayout.convert(model, format="tflite"))


SPECIAL = [0.0, -0.0, 1e-37, -1.5, np.inf, -np.inf, np.nan, 3.4e38]


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.int64, np.int8, np.uint8, np.bool_])
@pytest.mark.parametrize("dims", [(4, 8, 5), (4, 8, 1, 5, 1, 2)])
def test_an_expand_gives_the_same_bits(kind: type[np.generic], dims: tuple[int, ...]) -> None:
    """MUL by ones keeps every float, signs of zeros among them; of subnormal ones LiteRT's arithmetic makes 0."""
    before = (8, *[1] * (len(dims) - 2))
    info = None if kind in (np.float32, np.bool_) else np.iinfo(kind)
    x = np.array(SPECIAL if info is None else [info.min, info.max, 0, 1, 2, 3, 4, 5]).astype(kind).reshape(before)
    tensor = onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))).lower()
    model = build(f"{tensor}[{','.join(map(str, before))}] x", "y = Expand(x, s)", {"s": list(dims)})
    result = relayout.convert(model, format="tflite")
    assert operators(result) == (["MUL"] if kind in (np.float32, np.int32) else ["BROADCAST_TO"])
    given = Interpreter(model_content=result.tflite).get_signature_runner()(x=x)["y"]
    assert given.tobytes() == np.ascontiguousarray(np.broadcast_to(x, dims)).tobytes()


def test_many_ones_are_no_part_of_the_file() -> None:
    model = build("float[1,3] x", "y = Expand(x, s)", {"s": [64, 300, 3]})
    result = relayout.convert(model, format="tflite")
    assert operators(result) == ["FILL", "MUL"]
    assert len(result.tflite) < 4096
    same(model, result)


KINDS = {
    "float": "Add Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mul PRelu Pow Sub Sum Where",
    "int32": "BitwiseAnd BitwiseOr BitwiseXor Mod",
    "uint8": "BitShift",
    "bool": "And Or Xor",
}
ATTRIBUTES = {"BitShift": '<direction="LEFT">'}


@pytest.mark.parametrize(("kind", "op_type"), [(kind, name) for kind, names in KINDS.items() for name in names.split()])
def test_all_that_broadcasts(kind: str, op_type: str) -> None:
    """Each operator whose rule says that it broadcasts, but for one on strings and one that is written as others."""
    given = "bool" if op_type == "Where" else kind
    operands = "(e, x, x)" if op_type == "Where" else "(x, e)"
    text = f"e = Expand(m, s) y = {op_type}{ATTRIBUTES.get(op_type, '')}{operands}"
    model = build(f"{kind}[2,3] x, {given}[2,1] m", text, {"s": [2, 3]})
    result = relayout.convert(model, format="tflite")
    assert "Expands that their readers do themselves: 1 Expand" in str(result.report)
    rng = np.random.default_rng(0)
    types = {"float": np.float32, "bool": np.bool_}
    x, m = ((rng.random(dims) * 3).astype(types.get(each, each)) for dims, each in (((2, 3), kind), ((2, 1), given)))
    m = m if given == "bool" else m + np.ones((), m.dtype)  # no division by 0
    given_back = Interpreter(model_content=result.tflite).get_signature_runner()(x=x, m=m)["y"]
    np.testing.assert_allclose(given_back, run(model, {"x": x, "m": m})[0], rtol=1e-6)


def test_every_operator_that_broadcasts_is_tried() -> None:
    tried = {name for names in KINDS.values() for name in names.split()}
    known = {name for (_, name), rule in registry().items() if rule.facts in (broadcasting, prelu)}
    assert known - {"StringConcat", "SwiGLU"} == tried


@pytest.mark.parametrize("text", ["y = MatMul(x, e)", "y = PRelu(e, x)"])
def test_operands_that_do_not_stretch_stay(text: str) -> None:
    """Along the axes of a product nothing is stretched, nor is the first operand of a PRelu."""
    model = build("float[2,3,3] x, float[2,3,1] m", f"e = Expand(m, s) {text}", {"s": [2, 3, 3]})
    result = relayout.convert(model, format="tflite")
    assert "Expands that their readers" not in str(result.report)
    same(model, result)


@pytest.mark.parametrize(("text", "name"), [("Expand(x, s)", "MUL"), ("Tile(x, n)", "TILE")])
@pytest.mark.parametrize("zero_point", [-128, 0, 5])
def test_a_quantized_copy_gives_the_same_integers(zero_point: int, text: str, name: str) -> None:
    text = f"x = DequantizeLinear(q, scale, zero) e = {text} y = QuantizeLinear(e, scale, zero)"
    constants = {"scale": np.float32(0.037), "zero": np.int8(zero_point), "s": [256, 6], "n": [1, 6]}
    model = build("int8[256,1] q", text, constants)
    result = relayout.convert(model, format="tflite")
    assert operators(result) == [name]
    q = np.arange(-128, 128).astype(np.int8).reshape(256, 1)
    given = Interpreter(model_content=result.tflite).get_signature_runner()(q=q)["y"]
    np.testing.assert_array_equal(given, np.broadcast_to(q, (256, 6)))
