"""Operators that move elements: forms and types that the rules' cases lack."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import X, b, f, i, ints, n
from rules.law import Case


def cases() -> Iterator[Case]:
    yield from shapes()
    yield from elements()
    yield from searches()
    yield from computed()
    yield from small_integers()


def shapes() -> Iterator[Case]:
    yield Case("Reshape", {"x": f(*X), "s": i(6, -1)}, ("s",))
    yield Case("Reshape", {"x": f(*X), "s": i(0, -1, 0)}, ("s",), {"allowzero": 0})
    yield Case("Flatten", {"x": f(*X)}, attributes={"axis": 2})
    yield Case("Squeeze", {"x": f(2, 1, 3, 1), "a": i(1, -1)}, ("a",))
    yield Case("Squeeze", {"x": f(2, 1, 3, 1)})
    yield Case("Unsqueeze", {"x": f(2, 3), "a": i(0, -1)}, ("a",))
    yield Case("Transpose", {"x": f(*X)}, attributes={"perm": [2, 0, 3, 1]})
    yield Case("Transpose", {"x": f(2, 3, 1, 4, 5, 2, 1, 3)}, attributes={"perm": [7, 0, 1, 2, 5, 6, 3, 4]})
    yield Case("Transpose", {"x": f(2, 3, 2, 4, 2, 3, 2)}, attributes={"perm": [6, 4, 2, 0, 5, 3, 1]})
    yield Case("Transpose", {"x": ints(*[2] * 9, dtype=np.int8)}, attributes={"perm": [3, 7, 0, 5, 2, 8, 4, 1, 6]})
    yield Case("Range", {"a": n(2), "b": n(11), "c": n(3)})
    yield Case("Constant", {}, attributes={"value_floats": [1.0, 2.0]})


def elements() -> Iterator[Case]:
    for reduction in ("none", "add", "mul", "max", "min"):
        for indices in (np.array([[1, 0, -1], [0, 2, 0]]), np.array([[0, 0, 0], [2, 2, 2]])):
            if reduction == "none" and indices[0, 0] == 0:
                continue  # which of several updates counts is not defined
            given = {"x": f(3, 4), "n": indices, "u": f(2, 3)}
            yield Case("ScatterElements", given, attributes={"axis": 0, "reduction": reduction})
        given = {"x": f(3, 4), "n": np.array([[1], [0]]), "u": f(2, 4)}
        yield Case("ScatterND", given, attributes={"reduction": reduction})
    for kind in (np.int8, np.uint16, np.int64, np.bool_):
        x, u = ints(3, 4, high=2, dtype=kind), ints(1, 4, high=2, dtype=kind)
        yield Case("ScatterND", {"x": x, "n": np.array([[1]]), "u": u}, opset=18)
        yield Case("GatherND", {"x": x, "n": np.array([[1, -1], [-3, 0]])})
        one = {"x": x, "n": (np.arange(2 * len(x)) % 3 - 1).reshape(len(x), 2, 1)}
        yield Case("GatherND", one, attributes={"batch_dims": 1})
        yield Case("GatherElements", {"x": x, "n": np.array([[1, -1, 0, 2]])})
        yield Case("Concat", {"x": x, "y": x}, attributes={"axis": 1})
    yield Case("GatherElements", {"x": f(5), "n": i(-1, 4, 0)})


def searches() -> Iterator[Case]:
    for kind in (np.float32, np.int64, np.int32, np.uint8):
        x = ints(3, 5, high=200, dtype=kind)
        for largest in (0, 1):
            k = {"x": x, "k": i(2)}
            yield Case("TopK", k, ("k",), {"axis": 0, "largest": largest}, outputs=2)
            yield Case("TopK", k, attributes={"largest": largest}, outputs=2)
    for name in ("ArgMax", "ArgMin"):
        for kind in (np.float32, np.int32, np.int64):
            x = ints(3, 5, high=3, dtype=kind)
            for last in (0, 1):
                yield Case(name, {"x": x}, attributes={"axis": 1, "select_last_index": last, "keepdims": last})
    yield Case("NonZero", {"x": ints(3, 4, high=2)})
    yield Case("NonZero", {"x": f(5)})
    yield Case("Compress", {"x": f(3, 4), "q": b(6)})
    yield Case("Unique", {"x": ints(9, high=4).astype(np.float32)}, outputs=4)
    yield Case("Unique", {"x": ints(9, high=4, dtype=np.int64)}, attributes={"sorted": 0}, outputs=4)
    lengths = {"x": f(4, 3, 2), "n": i(4, 1, 2)}
    yield Case("ReverseSequence", lengths, attributes={"batch_axis": 1, "time_axis": 0})


def computed() -> Iterator[Case]:
    """Amounts that the graph computes."""
    far = np.iinfo(np.int64).max
    yield Case("Slice", {"x": f(4, 6), "a": i(1, -3), "b": i(far, far)})
    yield Case("Slice", {"x": f(4, 6), "a": i(-1), "b": i(-far), "c": i(1), "d": i(-2)})
    yield Case("Slice", {"x": f(4, 6), "a": i(1), "b": i(5), "c": i(-1)}, ("c",))
    slices = ("a", "b", "c", "d")
    yield Case("Slice", {"x": f(4, 3, 6), "a": i(-1, -1), "b": i(-far, -far), "c": i(0, 2), "d": i(-1, -1)}, slices)
    yield Case("Slice", {"x": f(4, 3, 6), "a": i(-1, -1), "b": i(-far, -far), "c": i(1, 2), "d": i(-1, -1)}, slices)
    yield Case("Slice", {"x": f(4, 6), "a": i(4, 2), "b": i(0, -far), "c": i(1, 0), "d": i(-3, -1)}, slices)
    yield Case("Slice", {"x": f(4, 6), "a": i(1), "b": i(4), "c": i(1), "d": i(-1)}, slices)
    yield Case("Slice", {"x": f(4, 6), "a": i(-9), "b": i(-far), "c": i(1), "d": i(-2)}, slices)
    yield Case("Slice", {"x": f(4, 6), "a": i(0), "b": i(0), "c": i(1), "d": i(1)}, slices)
    yield Case("Split", {"x": f(4, 6), "s": i(1, 3)}, outputs=2)
    yield Case("Pad", {"x": f(4, 6), "p": i(1, 0, 2, 1)})
    yield Case("Pad", {"x": f(4, 6), "p": i(1, -2, 0, 1)})
    yield Case("Pad", {"x": f(4, 6), "p": i(1, 0), "v": np.float32(3), "a": i(-1)})
    yield Case("Pad", {"x": f(4, 6), "p": i(1, 0, 2, 1)}, attributes={"mode": "reflect"})
    for mode in ("edge", "reflect", "wrap"):
        yield Case("Pad", {"x": f(4, 6), "p": i(-1, 3, 2, -2)}, ("p",), {"mode": mode})
    yield Case("ReduceSum", {"x": f(4, 6), "a": i(-1)})
    yield Case("ReduceMax", {"x": f(4, 6), "a": i(0)}, attributes={"keepdims": 0})
    yield Case("CumSum", {"x": f(4, 6), "a": n(-1)}, attributes={"reverse": 1})
    yield Case("Trilu", {"x": f(4, 6), "k": n(1)})
    yield Case("Tile", {"x": f(4, 6), "r": i(2, 1)})
    yield Case("Expand", {"x": f(4, 1), "s": i(2, 4, 3)})


def small_integers() -> Iterator[Case]:
    """Bytes and words that mean nothing but themselves: no scale is beside them."""
    for kind in (np.int8, np.uint8, np.int16, np.bool_):
        x = ints(2, 4, 6, 3, high=100, dtype=kind)
        yield Case("Transpose", {"x": x}, attributes={"perm": [0, 2, 3, 1]})
        yield Case("Reshape", {"x": x, "s": i(8, -1)}, ("s",))
        yield Case("Slice", {"x": x, "a": i(1), "b": i(3), "c": i(2)}, ("a", "b", "c"))
        yield Case("Split", {"x": x}, attributes={"axis": 1, "num_outputs": 2}, outputs=2)
        yield Case("Gather", {"x": x, "n": i(1, 0, -1)}, ("n",), {"axis": 1})
        yield Case("Tile", {"x": x, "r": i(1, 2, 1, 1)}, ("r",))
        yield Case("Expand", {"x": x[:1], "s": i(3, 4, 6, 3)}, ("s",))
        yield Case("Identity", {"x": x})
    for kind in (np.int8, np.uint8):
        x = ints(2, 4, 6, 3, high=100, dtype=kind)
        yield Case("Pad", {"x": x, "p": i(0, 0, 1, 1, 0, 0, 0, 2)}, ("p",))
        yield Case("MaxPool", {"x": x}, attributes={"kernel_shape": [2, 2]})
        yield Case("DepthToSpace", {"x": x}, attributes={"blocksize": 2})
        yield Case("Where", {"q": b(3), "x": x, "y": x[:1]})
