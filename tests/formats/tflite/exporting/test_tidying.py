"""Operators that a draft does not need are not written, and the rest computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from relayout.formats.recognition import SOURCE_FORMAT
from relayout.formats.tflite.container.loading import load
from rules.law import Array
from small import build
from text_form import floats
from text_form import model as written

SCALE, OTHER = np.array(0.02, np.float32), np.array(0.031, np.float32)
CENTRE = np.array(3, np.int8)
UNIT = "f = DequantizeLinear(x, s, z)  {}  y = QuantizeLinear(m, s, z)"


def operators(model: Any) -> list[str]:
    content = relayout.convert(model, format="tflite").tflite
    return [operator.name for graph in load(content).subgraphs for operator in graph.operators]


def integers(*shape: int) -> Array:
    return np.random.default_rng(5).integers(-128, 128, shape).astype(np.int8)


MOVED = {
    "m = Reshape(f, shape)": ["RESHAPE"],
    "a = Slice(f, one, two, one)  m = Reshape(a, tail)": ["STRIDED_SLICE"],
    "m = Softplus(f)": ["DEQUANTIZE"],
}


@pytest.mark.parametrize("text", MOVED)
def test_what_only_moves_elements_moves_integers(text: str) -> None:
    constants = {
        "s": SCALE,
        "z": CENTRE,
        "shape": np.array([6, 4]),
        "tail": np.array([2, 4]),
        "one": np.array([1]),
        "two": np.array([2]),
    }
    model = build("int8[2,3,4] x", UNIT.format(text), constants)
    found = operators(model)
    assert found[: len(MOVED[text])] == MOVED[text]
    assert ("QUANTIZE" in found) == ("DEQUANTIZE" in found)
    agrees(model, {"x": integers(2, 3, 4)})


def test_integers_that_mean_something_else_behind_are_quantized_again() -> None:
    text = "f = DequantizeLinear(x, s, z)  m = Reshape(f, shape)  y = QuantizeLinear(m, t, z)"
    model = build("int8[2,3,4] x", text, {"s": SCALE, "t": OTHER, "z": CENTRE, "shape": np.array([6, 4])})
    assert operators(model) == ["RESHAPE", "QUANTIZE"]
    agrees(model, {"x": integers(2, 3, 4)}, kernels=("reference",))  # the default ones multiply by 8 bits


def test_integers_of_another_scale_are_quantized_at_once() -> None:
    text = "f = DequantizeLinear(x, s, z)  y = QuantizeLinear(f, t, z)"
    model = build("int8[2,3,4] x", text, {"s": SCALE, "t": OTHER, "z": CENTRE})
    assert operators(model) == ["QUANTIZE"]
    agrees(model, {"x": integers(2, 3, 4)}, kernels=("reference",))


def test_a_change_of_sign_is_one_quantize() -> None:
    text = "f = DequantizeLinear(x, s, z)  m = Reshape(f, shape)  y = QuantizeLinear(m, s, u)"
    constants = {"s": SCALE, "z": CENTRE, "u": np.array(131, np.uint8), "shape": np.array([6, 4])}
    model = build("int8[2,3,4] x", text, constants)
    assert "DEQUANTIZE" not in operators(model)
    agrees(model, {"x": integers(2, 3, 4)})


@pytest.mark.parametrize(
    ("first", "last"), [(np.uint8, np.int8), (np.int8, np.uint8), (np.uint8, np.int16), (np.int8, np.int16)]
)
def test_another_scale_and_another_sign_are_one_quantize(first: type, last: type) -> None:
    zeros = {np.uint8: 131, np.int8: 3, np.int16: 0}
    constants = {"s": SCALE, "t": OTHER, "z": np.array(zeros[first], first), "u": np.array(zeros[last], last)}
    kind = np.dtype(first).name
    model = build(f"{kind}[2,3,4] x", "f = DequantizeLinear(x, s, z)  y = QuantizeLinear(f, t, u)", constants)
    del model.graph.output[:-1]
    assert operators(model) == ["QUANTIZE"]
    info = np.iinfo(first)
    feed = np.random.default_rng(5).integers(info.min, info.max + 1, (2, 3, 4)).astype(first)
    agrees(model, {"x": feed}, kernels=("reference",))  # the default ones multiply by 8 bits


def test_reshapes_that_undo_each_other_are_gone() -> None:
    text = "a = Reshape(x, shape)  b = Reshape(a, tail)  c = Relu(b)  d = Reshape(c, shape)  y = Reshape(d, tail)"
    model = build("float[2,3,4] x", text, {"shape": np.array([6, 4]), "tail": np.array([2, 3, 4])})
    assert operators(model) == ["RELU"]
    agrees(model, {"x": floats(2, 3, 4)})


def test_a_whole_axis_backwards_is_reversed_alone() -> None:
    constants = {"last": np.array([-1]), "first": np.array([-(1 << 63)]), "axis": np.array([1]), "back": np.array([-1])}
    model = build("float[2,3,4] x", "y = Slice(x, last, first, axis, back)", constants)
    assert operators(model) == ["REVERSE_V2"]
    agrees(model, {"x": floats(2, 3, 4)})


def test_a_slice_of_a_tflite_file_drops_the_axis_of_which_it_takes_one_place() -> None:
    constants = {"begin": np.array([-1]), "end": np.array([9]), "axis": np.array([1]), "shape": np.array([2, 4])}
    model = build("float[2,3,4] x", "a = Slice(x, begin, end, axis)  y = Reshape(a, shape)", constants)
    assert operators(model) == ["STRIDED_SLICE", "RESHAPE"]
    agrees(model, {"x": floats(2, 3, 4)})
    onnx.helper.set_model_props(model, {SOURCE_FORMAT: "tflite"})
    assert operators(model) == ["STRIDED_SLICE"]
    agrees(model, {"x": floats(2, 3, 4)})
    wide = build(
        "float[2,3,1] x",
        "a = Slice(x, begin, end, axis)  y = Reshape(a, shape)",
        {**constants, "shape": np.array([2, 1])},
    )
    onnx.helper.set_model_props(wide, {SOURCE_FORMAT: "tflite"})
    assert operators(wide) == ["STRIDED_SLICE"]
    agrees(wide, {"x": floats(2, 3, 1)})


ROWS = {
    "r = Reshape(x, flat)  p = MatMul(r, w)  y = Reshape(p, back)": ["FULLY_CONNECTED"],
    "r = Reshape(x, flat)  p = MatMul(r, w)  y = Reshape(p, apart)": ["FULLY_CONNECTED", "RESHAPE"],
    "r = Reshape(x, flat)  p = MatMul(r, w)  y = Reshape(p, back)  z = Neg(r)": [
        "RESHAPE",
        "FULLY_CONNECTED",
        "RESHAPE",
        "MUL",
    ],
    "r = Reshape(x, flat)  p = MatMul(r, w)  y = Relu(p)": ["RESHAPE", "FULLY_CONNECTED"],
    "r = Reshape(x, flat)  p = MatMul(r, w)  t = Tanh(p)  q = MatMul(t, v)  y = Reshape(q, ends)": [
        "FULLY_CONNECTED",
        "TANH",
        "FULLY_CONNECTED",
    ],
    "r = Reshape(x, flat)  p = MatMul(r, w)  t = Tanh(p)  q = MatMul(t, v)  y = Reshape(q, ends)  z = Neg(t)": [
        "RESHAPE",
        "FULLY_CONNECTED",
        "TANH",
        "FULLY_CONNECTED",
        "RESHAPE",
        "MUL",
    ],
    "r = Reshape(x, flat)  p = MatMul(r, w)  t = Softmax<axis = 0>(p)  y = Reshape(t, back)": [
        "RESHAPE",
        "FULLY_CONNECTED",
        "TRANSPOSE",
        "SOFTMAX",
        "TRANSPOSE",
        "RESHAPE",
    ],
}


@pytest.mark.parametrize("text", ROWS)
def test_a_product_takes_rows_of_more_axes(text: str) -> None:
    shapes = {"flat": np.array([6, 4]), "back": np.array([2, 3, 8]), "apart": np.array([2, 3, 2, 4])}
    shapes["ends"] = np.array([2, 3, 4])
    constants = {
        "w": (4, 8),
        **({"v": (8, 4)} if "v)" in text else {}),
        **{name: array for name, array in shapes.items() if name in text},
    }
    model = build("float[2,3,4] x", text, constants)
    assert sorted(operators(model)) == sorted(ROWS[text])
    agrees(model, {"x": floats(2, 3, 4)})


@pytest.mark.parametrize("shape", [(4,), (1, 4)], ids=str)
def test_a_bias_that_two_products_share_is_one_tensor(shape: tuple[int, ...]) -> None:
    """One name for several tensors: ai-edge-quantizer refused the file."""
    constants = {"w": floats(3, 4), "u": floats(3, 4, seed=1), "b": floats(*shape, seed=2)}
    source = build("float[2,3] x", "p = MatMul(x, w) q = MatMul(x, u) y = Add(p, b) z = Add(q, b)", constants)
    (graph,) = load(relayout.convert(source, format="tflite").tflite).subgraphs
    assert [operator.name for operator in graph.operators] == ["FULLY_CONNECTED"] * 2
    assert len({operator.inputs[2] for operator in graph.operators}) == 1
    agrees(source, {"x": floats(2, 3, seed=3)})


JOINED = {
    "behind": ("[2,6,4] a, float[1,6,4] b", [2, 3, 2, 4], [1, 3, 2, 4], 0, [3, 3, 8], 4),
    "whole": ("[2,6,4] a, float[2,4,4] b", [2, 3, 2, 4], [2, 2, 2, 4], 1, [2, 10, 4], 1),
    "two": ("[2,6,4] a, float[2,4,4] b", [2, 3, 2, 4], [2, 2, 2, 4], 1, [2, 40], 3),
    "in front": ("[2,6,4] a, float[4,6,4] b", [1, 2, 24], [1, 4, 24], 1, [6, 24], 4),
}
"""Extents of two operands, what each is reshaped to, the joined axis, extents of the result, operators."""


@pytest.mark.parametrize("name", JOINED)
def test_a_part_of_an_axis_is_joined_as_the_whole(name: str) -> None:
    inputs, first, second, axis, after, count = JOINED[name]
    text = f"p = Reshape(a, f)  q = Reshape(b, g)  c = Concat<axis={axis}>(p, q)  y = Reshape(c, h)"
    constants = {name: np.array(extents) for name, extents in zip("fgh", (first, second, after), strict=True)}
    model = build(f"float{inputs}", text, constants)
    assert len(operators(model)) == count
    shapes = [
        [int(each) for each in part.split("]")[0].split(",")] for part in inputs.replace("float", "").split("[")[1:]
    ]
    agrees(model, {each: floats(*shape) for each, shape in zip("ab", shapes, strict=True)})


def test_a_slice_of_a_tflite_drops_one_of_its_axes_of_one_place() -> None:
    constants = {"b": [4], "e": [5], "axis": [1], "shape": [1, 3]}
    model = build("float[1,5,3] x", "s = Slice(x, b, e, axis)  y = Reshape(s, shape)", constants)
    assert operators(model) == ["STRIDED_SLICE", "RESHAPE"]
    model.metadata_props.add(key=SOURCE_FORMAT, value="tflite")
    assert operators(model) == ["STRIDED_SLICE"]
    agrees(model, {"x": floats(1, 5, 3)})


def test_casts_to_a_wider_type_and_back_go() -> None:
    model = build("int32[2,3] x", "a = Cast<to=7>(x) b = Cast<to=6>(a) y = Neg(b)", {})
    assert operators(model) == ["NEG"]
    agrees(model, {"x": np.array([[1, -2, 3], [4, 5, -6]], np.int32)})


@pytest.mark.parametrize(("last", "names"), [(1, ["RESHAPE", "CAST", "ABS"]), (6, ["RESHAPE", "NEG"])])
def test_views_between_casts_look_at_what_the_first_one_reads(last: int, names: list[str]) -> None:
    model = build(
        "int32[2,3] x",
        f"a = Cast<to=7>(x) b = Reshape(a, s) c = Cast<to={last}>(b) y = {names[-1].title()}(c)",
        {"s": [6]},
    )
    assert operators(model) == names
    agrees(model, {"x": np.array([[1, -2, 3], [2**31 - 1, 5, -6]], np.int32)})


@pytest.mark.parametrize("body", ["b = Reshape(a, s) z = Neg(b)", "z = Reshape(a, s) b = Identity(z)"])
def test_views_between_casts_that_others_read_stay(body: str) -> None:
    model = build("int32[2,3] x", f"a = Cast<to=7>(x) {body} y = Cast<to=1>(b)", {"s": [6]}, outputs=("y", "z"))
    assert operators(model)[:2] == ["CAST", "RESHAPE"]
    agrees(model, {"x": np.array([[1, -2, 3], [4, 5, -6]], np.int32)})


@pytest.mark.parametrize("body", ["v, i = TopK(x, k) y = Cast<to=6>(v)", "v, i = TopK(x, k) y = Cast<to=10>(v)"])
def test_the_type_of_another_result_before_a_cast_stays(body: str) -> None:
    model = build("float[2,4] x", body, {"k": [3]}, outputs=("y", "i"))
    agrees(model, {"x": 9 * floats(2, 4)})


@pytest.mark.parametrize(
    ("kind", "body", "names"),
    [
        ("int32", "a = Cast<to=7>(x) b = Reshape(a, s) c = Cast<to=6>(b) y = Cast<to=1>(c)", ["RESHAPE", "CAST"]),
        ("float16", "a = Cast<to=1>(x) b = Reshape(a, s) c = Cast<to=10>(b) y = Cast<to=1>(c)", None),
        ("float", "a = ArgMax<axis=1>(x) b = Cast<to=6>(a) y = Cast<to=1>(b)", ["ARG_MAX", "RESHAPE", "CAST"]),
    ],
)
def test_casts_behind_one_that_goes(kind: str, body: str, names: list[str] | None) -> None:
    model = build(f"{kind}[2,3] x", body, {"s": [6]})
    assert names in (None, operators(model))
    agrees(model, {"x": (9 * floats(2, 3)).astype({"int32": np.int32, "float16": np.float16}.get(kind, np.float32))})


def test_views_between_casts_to_a_narrower_type_stay() -> None:
    model = build("float[2,3] x", "a = Cast<to=6>(x) b = Reshape(a, s) y = Cast<to=1>(b)", {"s": [6]})
    assert operators(model) == ["CAST", "RESHAPE", "CAST"]
    agrees(model, {"x": 3 * floats(2, 3)})


def test_casts_to_a_narrower_type_and_back_stay() -> None:
    model = build("float[2,3] x", "a = Cast<to=6>(x) y = Cast<to=1>(a)", {})
    assert operators(model) == ["CAST", "CAST"]
    agrees(model, {"x": 3 * floats(2, 3)})


def test_extents_are_given_as_their_reader_wants_them() -> None:
    model = build("float[n,3] x", "a = Shape(x) b = Cast<to=6>(a) y = Neg(b)", {})
    assert operators(model) == ["SHAPE", "NEG"]
    agrees(model, {"x": floats(4, 3)})


def test_a_scalar_fills_extents_that_are_computed() -> None:
    model = build("float[n,3] x, float s", "a = Shape(x) b = Expand(s, a) y = Concat<axis=0>(b, x)", {})
    assert "FILL" in operators(model)
    assert "MUL" not in operators(model)
    agrees(model, {"x": floats(4, 3), "s": np.array(1.5, np.float32)})


def test_an_activation_behind_a_long_chain_of_moves() -> None:
    count = 1100
    steps = " ".join(f"v{n + 1} = Slice(v{n}, first, last, axis)" for n in range(count))
    source = written(
        f"g (float[1,{count + 5}] x) => (float[1,5] y) {{ v0 = Add(x, x) {steps} y = Relu(v{count}) }}",
        first=np.array([1]),
        last=np.array([1 << 40]),
        axis=np.array([1]),
    )
    counts = relayout.convert(source, format="tflite").report.operators
    assert "RELU" not in counts
