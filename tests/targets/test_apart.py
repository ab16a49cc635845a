"""Prices of floats that lie apart: operands that are stretched in short runs, reductions of what is not innermost."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import numpy as np
import onnx
import pytest

import relayout
from relayout import pipeline
from relayout.layout import Extent
from relayout.rules import Placement, Signature, facts
from relayout.targets import targets
from relayout.targets.onnxruntime import cpu
from relayout.targets.onnxruntime.float_prices import REDUCED, STRETCHED
from rules.law import Array
from running import run
from targets.row_cases import operator
from text_form import floats, model

TARGET = "onnxruntime-cpu"


def dims(shape: tuple[int, ...], letters: str) -> tuple[tuple[str, Extent], ...]:
    return tuple((letter, Extent.of(number)) for letter, number in zip(letters, shape, strict=True))


def stretched(*shapes: tuple[int, ...]) -> Placement:
    out = np.broadcast_shapes(*shapes)
    letters = "abcdefgh"[: len(out)]
    return Placement(tuple(dims(shape, letters[len(out) - len(shape) :]) for shape in shapes), (dims(out, letters),))


def steps(*shapes: tuple[int, ...]) -> int:
    """Runs, counted element by element: each operand goes on by one throughout, or stays where it is."""
    out = np.broadcast_shapes(*shapes)
    places = [np.broadcast_to(np.arange(prod(shape)).reshape(shape), out).reshape(-1).tolist() for shape in shapes]
    moves = list(pairwise(zip(*places, strict=True)))
    count, kind = 1, None
    for before, after in moves:
        step = tuple(new - old for old, new in zip(before, after, strict=True))
        if set(step) <= {0, 1} and kind in (None, step):
            kind = step
        else:
            count, kind = count + 1, None
    return count if count > 1 else 0


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 3, 5, 2, 4), (1, 1, 1, 2, 1)),
        ((3, 5, 2, 4), (2, 1)),
        ((6, 3, 5), (6, 1, 1)),
        ((1, 3, 2, 6), (1, 3, 1, 1)),
        ((3, 1, 6), (1, 5, 1)),
        ((3, 5, 2, 4), (3, 5, 1, 1), (2, 1)),
        ((3, 5, 4), (1,)),
        ((3, 16), (3, 1)),
        ((3, 5, 4), ()),
        ((3, 5, 4), (3, 5, 4)),
        ((3, 5, 4), (3, 5, 4), ()),
        ((1,), (1,)),
        ((), ()),
    ],
)
def test_runs_are_those_that_elements_make(shapes: tuple[tuple[int, ...], ...]) -> None:
    assert cpu.short_runs(stretched(*shapes)) == steps(*shapes)


@pytest.mark.parametrize(
    "shapes", [((9, 17), (9, 1)), ((9, "k"), (9, 1)), ((9, 4), (4,)), ((9, 5, 4), (1, 5, 4)), ((9, 4), (9, 4))]
)
def test_rows_are_no_short_runs(shapes: tuple[tuple[int | str, ...], ...]) -> None:
    """Of rows ONNX Runtime makes one operator with what is before them; of what is not known nothing is said."""
    given, other = (
        tuple((t, Extent.of(dim)) for t, dim in zip("abc"[-len(shape) :], shape, strict=True)) for shape in shapes
    )
    assert cpu.short_runs(Placement((given, other), (given,))) == 0


@pytest.mark.parametrize(
    ("shape", "axes", "gathers"),
    [
        ((1, 6, 3, 5), "cd", False),
        ((1, 6, 3, 5, 2), "cd", True),
        ((3, 5, 2), "ab", True),
        ((40, 2), "b", True),
        ((2, 6, 3, 5), "cd", False),
        ((1, 3, 5, 9), "bc", True),
        ((2, 3, 5, 9), "bc", False),
        ((3, 5, 9), "ab", False),
        ((1, 3, 5, 2, 4), "bce", True),
        ((2, 3, 5, 2, 4), "bce", True),
        ((1, 3, 5, 9, 1), "bc", True),
        ((1, 6, 3, 9), "c", False),
        ((1, 2, 4, 3, 5), "cde", False),
        ((3, 5), "ab", False),
        ((1, 1), "b", False),
    ],
)
def test_a_reduction_gathers_what_lies_apart(shape: tuple[int, ...], axes: str, gathers: bool) -> None:
    letters = "abcdefgh"[: len(shape)]
    kept = tuple(1 if letter in axes else number for letter, number in zip(letters, shape, strict=True))
    dropped = tuple((letter, number) for letter, number in dims(shape, letters) if letter not in axes)
    for given in (dims(kept, letters), dropped):
        assert cpu.gathers(Placement((dims(shape, letters),), (given,))) is gathers


def price(proto: onnx.ModelProto) -> int:
    """What the target asks for the first node of a graph where it stands."""
    found = operator(pipeline.read(proto), 0)
    known = facts(found)
    asked = targets()[TARGET].price
    assert isinstance(known, Signature)
    assert asked is not None

    def placed(shapes: object, letters: object) -> tuple[tuple[tuple[str, Extent], ...] | None, ...]:
        assert isinstance(shapes, list | tuple)
        assert isinstance(letters, list | tuple)
        pairs = zip(letters, shapes, strict=False)
        return tuple(None if held is None else dims(tuple(shape), held) for held, shape in pairs)

    return asked(found, known, Placement(placed(found.inputs, known.inputs), placed(found.outputs, known.outputs)))


def test_prices_are_those_of_the_measured_table() -> None:
    """In bytes, of what takes longer by enough to matter."""
    last = "g (float[1,64,64,32] x) => (float[1,1,1,32] y) { y = ReduceMean(x, axes) }"
    first = "g (float[1,32,64,64] x) => (float[1,32,1,1] y) { y = ReduceMean(x, axes) }"
    assert price(model(last, axes=np.array([1, 2]))) == round(4 * REDUCED["ReduceMean"] * 64 * 64 * 32)
    assert price(model(first, axes=np.array([2, 3]))) == 0
    assert price(model(last.replace("64", "9"), axes=np.array([1, 2]))) == 0, "some microseconds"
    groups = "g (float[1,64,64,8,4] x, float[1,1,1,8,1] m) => (float[1,64,64,8,4] y) { y = Sub(x, m) }"
    assert price(model(groups)) == 4 * STRETCHED * 64 * 64 * 8
    assert price(model(groups.replace("float", "double"))) == 0, "measured on floats"
    assert price(model(groups.replace("64", "9"))) == 0, "some microseconds"
    norms = "g (float[1,64,64,32] x) => (float[1,1,1,32] y) { y = ReduceL2(x, axes) }"
    assert price(model(norms, axes=np.array([1, 2]))) == 0, "that gathers wherever its elements lie"


NORM = """
norm (uint8[1,{h},{w},8] x) => (uint8[1,{h},{w},32] y) {{
    t = Transpose<perm=[0,3,1,2]>(x)
    c = QLinearConv(t, s, z, k, s, zk, s, z)
    l = Transpose<perm=[0,2,3,1]>(c)
    f = DequantizeLinear(l, s, z)
    g = Reshape(f, split)
    m = ReduceMean(g, axes)
    d = Sub(g, m)
    e = Mul(d, d)
    v = ReduceMean(e, axes)
    r = Sqrt(v)
    n = Div(d, r)
    j = Reshape(n, joined)
    y = QuantizeLinear(j, s, z)
}}"""
"""A convolution on integers, and the difference from the mean of each group of four channels over its deviation."""


def norm(h: int, w: int) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    constants: dict[str, Array] = {
        "s": np.array(0.05, np.float32),
        "z": np.array(119, np.uint8),
        "k": rng.integers(-40, 40, (32, 8, 1, 1)).astype(np.int8),
        "zk": np.array(0, np.int8),
        "split": np.array([1, h, w, 8, 4]),
        "joined": np.array([1, h, w, 32]),
        "axes": np.array([1, 2, 4]),
    }
    return model(NORM.format(h=h, w=w), **constants)


def test_groups_are_normalized_with_rows_and_columns_innermost() -> None:
    """With channels last nothing would be moved, and ONNX Runtime would gather four elements at a time."""
    source = norm(40, 48)
    result = relayout.convert(source, target=TARGET)
    assert result.report.proved
    shapes = {value.name: value.type.tensor_type.shape for value in result.proto.graph.value_info}
    reduced = [node for node in result.proto.graph.node if node.op_type == "ReduceMean"]
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in result.proto.graph.initializer}
    for node in reduced:
        extents = [dim.dim_value for dim in shapes[node.input[0]].dim]
        axes = constants[node.input[1]].tolist()
        assert sorted(extents[axis] for axis in axes) == [4, 40, 48]
        assert axes == list(range(len(extents) - 3, len(extents)))
    assert len(reduced) == 2
    given = {"x": np.random.default_rng(0).integers(0, 256, (1, 40, 48, 8)).astype(np.uint8)}
    (want,), (got,) = run(source, given), run(result.proto, given)
    assert np.abs(want.astype(int) - got.astype(int)).max() <= 1


def test_small_groups_stay_with_channels_last() -> None:
    result = relayout.convert(norm(9, 11), target=TARGET)
    assert (result.report.bytes, result.report.transposes) == (0, 0)


def test_what_is_computed_once_has_no_price() -> None:
    """A kernel that is dequantized by a Mul: a runtime does that when it loads the model."""
    text = "g (float[1,32,9,7] x) => (float[1,128,7,5] y) { f = Cast<to=1>(k) w = Mul(f, scale) y = Conv(x, w) }"
    kernel = np.random.default_rng(0).integers(-99, 99, (128, 32, 3, 3)).astype(np.int8)
    result = relayout.convert(model(text, k=kernel, scale=np.abs(floats(128, 32, 1, 1))), target=TARGET)
    assert [node.op_type for node in result.proto.graph.node] == ["Cast", "Mul", "Conv"]


LOOP = """
loop (float[2,192] x) => (float[2,192] y) {
    y = Loop (trips, go, x) <body = step (int64 i, bool on, float[2,192] s) => (bool again, float[2,192] t) {
        again = Identity(on)
        r = Transpose<perm=[1,0]>(s)
        p = MatMul(w, r)
        q = Transpose<perm=[1,0]>(p)
        a = Add(q, k)
        t = Tanh(a)
    }>
}"""


@pytest.mark.parametrize(("trips", "moved"), [(3, 3072), (400, 400 * 3072)])
def test_what_a_loop_computes_costs_in_each_trip(trips: int, moved: int) -> None:
    """Without a Transpose the Add takes `k` in runs of two, which matters where it is done often enough."""
    constants = {"w": floats(192, 192), "k": floats(1, 192), "trips": np.array(trips), "go": np.array(True)}
    proto = model(LOOP, **constants)
    assert relayout.optimize(proto).report.bytes == 3072
    result = relayout.optimize(proto, target=TARGET)
    assert (result.report.bytes, result.report.proved) == (moved, True)
    assert relayout.verify(proto, result).ok
