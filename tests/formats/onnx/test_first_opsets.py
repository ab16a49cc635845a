"""Operators of opset 1 to 6 are read by their own definitions, which are written here in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray
from onnx import numpy_helper, parser

import relayout
from relayout.errors import UnsupportedError
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.reading import read
from running import run
from text_form import floats

Array = NDArray[Any]
X, B, ROW = floats(2, 3, 4, 5), floats(3, seed=1), floats(5, seed=2)
BOOLS = floats(2, 3, 4, 5, seed=4) > 0
CHANNELS = B[:, None, None]


def source(opset: int, inputs: str, body: str, *, rank: int = 4, **constants: Array) -> onnx.ModelProto:
    """A model of an old opset, which ONNX's checker holds to that opset's schemas; the extents of `y` are open."""
    listed = "".join(f", {_kind(array)} {name}" for name, array in constants.items())
    extents = ",".join(f"y{axis}" for axis in range(rank))
    model = parser.parse_model(
        f'<ir_version: 3, opset_import: ["": {opset}]> g ({inputs}{listed}) => (float[{extents}] y) {{ {body} }}'
    )
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    onnx.checker.check_model(model)
    return model


def _kind(array: Array) -> str:
    name = {"float32": "float", "bool": "bool", "int64": "int64"}[array.dtype.name]
    return f"{name}[{','.join(map(str, array.shape))}]" if array.shape else name


def of_axis(function: Callable[[Array, Array], Array]) -> Array:
    return function(X, CHANNELS)


WITH_AXIS = "y = {}<broadcast=1, axis=1>(x, b)"
CASES: dict[str, tuple[int, str, dict[str, Array], Array]] = {
    **{
        f"{name}, opset {opset}": (opset, WITH_AXIS.format(name), {"b": B}, of_axis(function))
        for opset in (1, 6)
        for name, function in {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}.items()
    },
    "Add, opset 4": (4, "y = Add<broadcast=1, axis=1, consumed_inputs=[0, 0]>(x, b)", {"b": B}, X + CHANNELS),
    "Add, negative axis": (6, "y = Add<broadcast=1, axis=-3>(x, b)", {"b": B}, X + CHANNELS),
    "Add of two axes": (
        6,
        "y = Add<broadcast=1, axis=1>(x, b)",
        {"b": floats(3, 4, seed=7)},
        X + floats(3, 4, seed=7)[:, :, None],
    ),
    "Add of the last axis": (6, "y = Add<broadcast=1>(x, b)", {"b": ROW}, X + ROW),
    "Add of one number": (6, "y = Add<broadcast=1>(x, b)", {"b": np.array([2], np.float32)}, X + 2),
    "Add of equal shapes": (6, "y = Add(x, b)", {"b": X}, X + X),
    "Add of an axis that is not broadcast": (6, "y = Add<axis=1>(x, b)", {"b": X}, X + X),
    "Add behind others": (
        6,
        "a = Relu(x)  c = Mul<broadcast=1, axis=1>(a, b)  d = Sub<broadcast=1, axis=0>(c, e)  y = Abs(d)",
        {"b": B, "e": np.array([1, 2], np.float32)},
        np.abs(np.maximum(X, 0) * CHANNELS - np.array([1, 2], np.float32)[:, None, None, None]),
    ),
    "Add of a computed row": (
        6,
        "a = Exp(b)  y = Add<broadcast=1, axis=1>(x, a)",
        {"b": B},
        X + np.exp(CHANNELS),
    ),
    "Pow, opset 1": (
        1,
        "a = Abs<consumed_inputs=[0]>(x)  y = Pow<broadcast=1, axis=1>(a, b)",
        {"b": B},
        np.abs(X) ** CHANNELS,
    ),
    **{
        f"{name}, opset 6": (
            6,
            f"a = {name}<broadcast=1, axis=1>(x, b)  y = Cast<to=1>(a)",
            {"b": B},
            function(X, CHANNELS).astype(np.float32),
        )
        for name, function in {"Greater": np.greater, "Less": np.less}.items()
    },
    "Equal": (
        6,
        "i = Cast<to=7>(x)  a = Equal<broadcast=1, axis=1>(i, b)  n = Not(a)  y = Cast<to=1>(n)",
        {"b": np.array([0, 1, -1])},
        (X.astype(np.int64) != np.array([0, 1, -1])[:, None, None]).astype(np.float32),
    ),
    **{
        f"{name}, opset 6": (
            6,
            f"i = Cast<to=9>(r)  r2 = Not(i)  a = {name}<broadcast=1, axis=1>(r2, b)  y = Cast<to=1>(a)".replace(
                "(r)", "(t)"
            ).replace("i =", "t = Floor(x)  i ="),
            {"b": np.array([True, False, True])},
            function(np.floor(X) == 0, np.array([True, False, True])[:, None, None]).astype(np.float32),
        )
        for name, function in {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}.items()
    },
    "Cast of a word": (1, 'i = Cast<to="INT32">(x)  y = Cast<to="FLOAT">(i)', {}, np.trunc(X)),
    "Clip without a bound": (1, "y = Clip<min=0.5, consumed_inputs=[0]>(x)", {}, np.maximum(X, np.float32(0.5))),
    "Concat without an axis": (1, "y = Concat(x, x)", {}, np.concatenate([X, X], 1)),
    "Concat of an axis": (4, "y = Concat<axis=2>(x, x)", {}, np.concatenate([X, X], 2)),
    "Dropout": (6, "y = Dropout<is_test=1>(x)", {}, X),
    "BatchNormalization": (
        1,
        "y = BatchNormalization<is_test=1, consumed_inputs=[0, 0, 0, 1, 1], epsilon=0.0>(x, b, c, m, v)",
        {"b": B, "c": B, "m": B, "v": np.array([1, 4, 9], np.float32)},
        (X - CHANNELS) / np.array([1, 2, 3], np.float32)[:, None, None] * CHANNELS + CHANNELS,
    ),
    "BatchNormalization of each element": (
        6,
        "y = BatchNormalization<is_test=1, spatial=0, epsilon=0.0>(x, b, b, b, v)",
        {"b": X[0], "v": np.full(X[0].shape, 4, np.float32)},
        (X - X[0]) / 2 * X[0] + X[0],
    ),
    "Gemm": (
        6,
        "f = Flatten(x)  y = Gemm<broadcast=1, transB=1>(f, w, c)",
        {"w": floats(4, 60), "c": floats(4)},
        X.reshape(2, 60) @ floats(4, 60).T + floats(4),
    ),
    "Pad": (1, "y = Pad<paddings=[0, 0, 1, 0, 0, 0, 0, 2]>(x)", {}, np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)])),
    "PRelu of channels": (6, "y = PRelu(x, b)", {"b": B}, np.where(X < 0, X * CHANNELS, X)),
    "PRelu of as many channels as columns": (
        6,
        "t = Transpose<perm=[0,3,2,1]>(x)  s = Slice<axes=[1], starts=[0], ends=[3]>(t)  y = PRelu(s, b)",
        {"b": B},
        np.where(
            X.transpose(0, 3, 2, 1)[:, :3] < 0,
            X.transpose(0, 3, 2, 1)[:, :3] * CHANNELS,
            X.transpose(0, 3, 2, 1)[:, :3],
        ),
    ),
    "PRelu of one number": (1, "y = PRelu<consumed_inputs=[0]>(x, b)", {"b": B[:1]}, np.where(X < 0, X * B[0], X)),
    "PRelu of rows": (
        6,
        "f = Reshape(x, s)  y = PRelu(f, b)",
        {"s": np.array([8, 15]), "b": floats(15)},
        np.where(X.reshape(8, 15) < 0, X.reshape(8, 15) * floats(15), X.reshape(8, 15)),
    ),
    "Reshape": (1, "y = Reshape<shape=[0, -1, 5]>(x)", {}, X.reshape(2, 12, 5)),
    "Selu": (
        1,
        "y = Selu(x)",
        {},
        np.float32(1.0507) * np.where(X > 0, X, np.float32(1.6732) * (np.exp(np.minimum(X, 0)) - 1)),
    ),
    "Split": (1, "y, z = Split<axis=3, split=[2, 3]>(x)", {}, X[..., :2]),
    "Split by an operand": (1, "y, z = Split<axis=3>(x, s)", {"s": np.array([2, 3], np.float32)}, X[..., :2]),
    "Split without an axis": (2, "y, z = Split(x)", {}, X[:1]),
    "Sum, Max and Mean": (
        1,
        "a = Sum<consumed_inputs=[0, 0]>(x, x)  b = Max(a, x)  y = Mean(b, x)",
        {},
        (np.maximum(2 * X, X) + X) / 2,
    ),
    "Tile": (
        1,
        "y = Tile(x, n, a)",
        {"n": np.array(3, np.float32), "a": np.array(2, np.float32)},
        np.tile(X, (1, 1, 3, 1)),
    ),
    "Upsample": (1, "y = Upsample<height_scale=2.0, width_scale=3.0>(x)", {}, X.repeat(2, 2).repeat(3, 3)),
    "LpPool": (
        1,
        "y = LpPool<p=1.0, kernel_shape=[4, 5]>(x)",
        {},
        np.abs(X).sum((2, 3), keepdims=True),
    ),
    "GlobalLpPool": (1, "y = GlobalLpPool<p=1.0>(x)", {}, np.abs(X).sum((2, 3), keepdims=True)),
    "TopK": (1, "y, i = TopK<k=2, axis=3>(x)", {}, -np.sort(-X, 3)[..., :2]),
    "Softmax": (
        1,
        "y = Softmax(x)",
        {},
        np.exp(X) / np.exp(X).reshape(2, -1).sum(1)[:, None, None, None],
    ),
    "Squeeze and Unsqueeze": (1, "a = Unsqueeze<axes=[1]>(x)  b = Squeeze<axes=[1]>(a)  y = Neg(b)", {}, -X),
}


@pytest.mark.parametrize("case", CASES)
def test_an_operator_is_read_by_the_definition_of_its_opset(case: str) -> None:
    opset, body, constants, expected = CASES[case]
    model = source(opset, "float[2,3,4,5] x", body, rank=expected.ndim, **constants)
    before = model.SerializeToString(deterministic=True)
    proto = to_proto(read(model))
    assert model.SerializeToString(deterministic=True) == before, "the caller's model was changed"
    onnx.checker.check_model(proto)
    np.testing.assert_allclose(run(proto, {"x": X})[0], expected, rtol=1e-4, atol=1e-5)
    for options in ({"to": "NHWC"}, {"io": "NHWC"}):
        result = relayout.convert(model, **options)  # type: ignore[arg-type]
        (value,) = (each for each in result.report.interface if each.name == "x")
        feed = X.transpose(0, 2, 3, 1) if "->" in value.layout else X
        (output,) = (each for each in result.report.interface if each.name == "y")
        wanted = expected.transpose(0, 2, 3, 1) if "->" in output.layout else expected
        np.testing.assert_allclose(run(result.proto, {"x": feed})[0], wanted, rtol=1e-4, atol=1e-5)
    content = relayout.convert(model, format="tflite").tflite
    found = Interpreter(model_content=content).get_signature_runner()(x=X)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_recurrent_operators_give_their_sequence_as_it_is_listed() -> None:
    weights = {"W": floats(1, 6, 3), "R": floats(1, 6, 2)}
    body = "y = GRU<hidden_size=2, output_sequence=1>(x, W, R)"
    old, new = (
        source(3, "float[4,1,3] x", body, **weights),
        source(7, "float[4,1,3] x", body.replace(", output_sequence=1", ""), **weights),
    )
    proto = to_proto(read(old))
    feed = {"x": floats(4, 1, 3)}
    np.testing.assert_array_equal(run(proto, feed)[0], run(new, feed)[0])


REFUSED = {
    "Dropout": (6, "y = Dropout(x)"),
    "BatchNormalization": (6, "y = BatchNormalization(x, b, b, b, b)"),
    "Split": (1, "y, z = Split(x)"),
    "Add": (6, "a = Unknown.Who(x)  y = Add<broadcast=1, axis=1>(a, b)"),
    "LpPool": (1, "y = LpPool<p=1.5, kernel_shape=[2, 2]>(x)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_opset_7_cannot_state_is_refused_by_name(name: str) -> None:
    opset, body = REFUSED[name]
    model = source(opset, "float[2,3,4,5] x", body.replace("Unknown.Who", "Identity"), b=B)
    if name == "Add":
        model.graph.node[0].op_type = "Who"
        model.graph.node[0].domain = "some.where"
        model.opset_import.add(domain="some.where", version=1)
    with pytest.raises(UnsupportedError, match=f"{name} of opset {opset}"):
        read(model)


def test_a_model_that_means_the_same_keeps_its_opset() -> None:
    model = source(6, "float[2,3,4,5] x", "y = Relu(x)")
    assert read(model).opset_imports[""] == 6


def test_a_model_in_memory_is_read_alike() -> None:
    model = ir.from_proto(source(6, "float[2,3,4,5] x", "y = PRelu(x, b)", b=B))
    proto = relayout.convert(model).proto
    np.testing.assert_allclose(run(proto, {"x": X})[0], np.where(X < 0, X * CHANNELS, X), rtol=1e-5)
    assert model.opset_imports[""] == 6


def test_a_note_names_what_is_written_otherwise() -> None:
    notes = relayout.convert(source(6, "float[2,3,4,5] x", "y = PRelu(x, b)", b=B)).report.notes
    assert any("opset 6 is written as opset 7" in note and "1 PRelu" in note for note in notes)
