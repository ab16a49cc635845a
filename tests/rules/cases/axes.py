from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import X, f, i, ints, n, positive
from rules.law import Case

REDUCTIONS = ["L1", "L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare", "LogSumExp", "LogSum"]


def cases() -> Iterator[Case]:
    yield from reductions()
    yield from along()
    yield from cutting()
    yield from stretching()
    yield from ordered()


def reductions() -> Iterator[Case]:
    for name in REDUCTIONS:
        op, x = f"Reduce{name}", positive(*X)
        yield Case(op, {"x": x, "axes": i(1, -1)}, ("axes",), {"keepdims": 0})
        yield Case(op, {"x": x, "axes": i(2)}, ("axes",), {"keepdims": 1})
        yield Case(op, {"x": x}, attributes={"keepdims": 0})
        yield Case(op, {"x": x}, attributes={"noop_with_empty_axes": 1})
        yield Case(op, {"x": x}, attributes={"axes": [3, 1], "keepdims": 0}, opset=11)
        yield Case(op, {"x": x}, attributes={"axes": [2]}, opset=7)
        yield Case(op, {"x": x}, opset=12)
    yield Case("ReduceSum", {"x": f(*X), "axes": i(-3)}, ("axes",), opset=13)
    yield Case("ReduceMean", {"x": f(*X)}, attributes={"axes": [-3, 2]}, opset=17)
    yield Case("ReduceMean", {"x": f(2, 1, 4, 6), "axes": i(1, 2)}, ("axes",), {"keepdims": 0})
    yield Case("ReduceMean", {"x": f(*X), "axes": i(1, 2)}, ("axes",), {"keepdims": 0}, dynamic=True)
    yield Case("ReduceSum", {"x": f()})
    for keep in (0, 1):
        yield Case("ArgMax", {"x": f(*X)}, attributes={"axis": 2, "keepdims": keep})
        yield Case("ArgMin", {"x": f(*X)}, attributes={"axis": -1, "keepdims": keep})
        last = {"axis": 3, "keepdims": keep, "select_last_index": 1}
        yield Case("ArgMax", {"x": ints(*X, high=3).astype(np.float32)}, attributes=last, opset=13)
    yield Case("ArgMax", {"x": f(*X)}, opset=8)


def along() -> Iterator[Case]:
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        x = ints(*X, high=3).astype(np.float32)
        for axis in (0, 1, -1, 2):
            yield Case(op, {"x": x}, attributes={"axis": axis})
            yield Case(op, {"x": x}, attributes={"axis": axis}, opset=11)
        yield Case(op, {"x": x})
        yield Case(op, {"x": x}, opset=8)
        yield Case(op, {"x": x[:, :, :1, :1]}, opset=8)
    yield Case("Softmax", {"x": f(*X)}, attributes={"axis": 1}, dynamic=True)
    for axis in (1, -1):
        yield Case("LpNormalization", {"x": f(*X)}, attributes={"axis": axis, "p": 1})
    yield Case("LpNormalization", {"x": f(*X)}, opset=1)
    yield Case("CumSum", {"x": f(*X), "a": n(2)}, ("a",))
    yield Case("CumSum", {"x": f(*X), "a": i(-1)}, ("a",), {"reverse": 1, "exclusive": 1})
    yield Case("CumSum", {"x": f(*X), "a": np.array(3, np.int32)}, ("a",), opset=11)
    yield Case("CumSum", {"x": f(*X), "a": i(-3)}, attributes={"exclusive": 1})
    for axes in (i(1), i(-1, 0), i(3, 1, 2)):
        yield Case("ReduceMean", {"x": f(*X), "a": axes})
        yield Case("ReduceSum", {"x": f(*X), "a": axes}, opset=13)
    yield Case("Pad", {"x": f(*X), "p": i(1, 2, 0, 3), "v": None, "a": i(-1, 1)})
    yield Case("CumProd", {"x": f(*X), "a": n(-2)}, ("a",), opset=26)
    for largest in (0, 1):
        yield Case("TopK", {"x": f(*X), "k": i(2)}, ("k",), {"axis": 1, "largest": largest}, outputs=2)
    yield Case("TopK", {"x": f(*X), "k": i(3)}, outputs=2)
    yield Case("TopK", {"x": f(*X), "k": i(4)}, ("k",), {"axis": -2}, outputs=2)
    yield Case("TopK", {"x": f(*X)}, attributes={"axis": 2, "k": 3}, outputs=2, opset=9)
    yield Case("TopK", {"x": f(*X), "k": i(3)}, attributes={"axis": 2}, outputs=2, opset=10)


def cutting() -> Iterator[Case]:
    yield Case("Concat", {"x": f(*X), "y": f(2, 3, 5, 6), "z": f(2, 3, 1, 6)}, ("y",), {"axis": 2})
    yield Case("Concat", {"x": f(*X), "y": f(2, 3, 4, 1)}, attributes={"axis": -1})
    yield Case("Concat", {"x": f(*X)}, attributes={"axis": 0}, opset=4)
    yield Case("Split", {"x": f(2, 3, 7, 6), "split": i(2, 1, 4)}, ("split",), {"axis": 2}, outputs=3)
    yield Case("Split", {"x": f(*X)}, attributes={"axis": -1, "num_outputs": 2}, outputs=2)
    yield Case("Split", {"x": f(*X)}, attributes={"axis": -1}, outputs=3, opset=13)
    yield Case("Split", {"x": f(*X)}, attributes={"axis": 2, "split": [1, 3]}, outputs=2, opset=11)
    yield Case("Split", {"x": f(*X)}, attributes={"axis": 3}, outputs=2, opset=2)
    big = f(2, 9, 8, 6)
    every = {"x": big, "s": i(1, 6), "e": i(8, 0), "a": i(1, -1), "t": i(2, -2)}
    yield Case("Slice", every, ("s", "e", "a", "t"))
    yield Case("Slice", every, ("a",))
    yield Case("Slice", every)
    yield Case("Slice", {"x": big, "s": i(0, 1), "e": i(2, 5)}, ("s", "e"))
    yield Case("Slice", {"x": big, "s": i(0, 1), "e": i(2, 5)})
    half = {"x": big, "s": i(1).astype(np.int32), "e": i(5).astype(np.int32)}
    yield Case("Slice", half | {"a": i(2).astype(np.int32)}, ("s", "e", "a"), opset=10)
    yield Case("Slice", {"x": big}, attributes={"starts": [1, -4], "ends": [5, -1], "axes": [2, 1]}, opset=9)
    yield Case("Slice", {"x": big}, attributes={"starts": [0, 1, 2], "ends": [2, 5, 9]}, opset=1)
    backwards = {"s": i(-1), "e": i(-99), "a": i(3), "t": i(-1)}
    yield Case("Slice", {"x": big, **backwards}, tuple(backwards))
    yield Case("CenterCropPad", {"x": f(*X), "s": i(7, 2)}, ("s",), {"axes": [-3, 3]})
    yield Case("CenterCropPad", {"x": f(*X), "s": i(2, 5, 1, 7)}, ("s",))


def stretching() -> Iterator[Case]:
    full = i(0, 1, 2, 0, 0, 0, 1, 3)
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield Case("Pad", {"x": f(*X), "p": full}, ("p",), {"mode": mode})
        yield Case("Pad", {"x": f(*X), "p": full}, (), {"mode": mode})
    moved = i(0, 0, 1, -1, 0, 0, -1, 1)
    yield Case("Pad", {"x": f(*X), "p": moved}, ("p",))
    yield Case("Pad", {"x": f(*X), "p": moved}, domain="com.microsoft")
    some = {"x": f(*X), "p": i(1, 2, 0, 1), "v": np.float32(7), "a": i(-1, 1)}
    yield Case("Pad", some, ("p", "v", "a"), {"mode": "constant"})
    yield Case("Pad", some, ("v", "a"))
    yield Case("Pad", some | {"v": None, "a": i(3, 1)}, ("p", "a"))
    yield Case("Pad", {"x": f(*X), "p": -full + i(1, 0, 0, 0, 0, 0, 0, 1)}, ("p",), opset=13)
    yield Case("Pad", {"x": f(*X)}, attributes={"pads": [0, 1, 2, 0, 0, 0, 1, 3], "value": 2.0}, opset=10)
    yield Case("Pad", {"x": f(*X), "p": full}, ("p",), domain="com.microsoft")
    yield Case("Pad", {"x": f(*X), "p": full}, domain="com.microsoft")
    yield Case("Tile", {"x": f(*X), "r": i(1, 2, 1, 3)}, ("r",))
    yield Case("Tile", {"x": f(*X), "r": i(1, 2, 1, 3)}, opset=6)
    yield Case("Expand", {"x": f(3, 1, 6), "s": i(2, 1, 4, 1)}, ("s",))
    yield Case("Expand", {"x": f(3, 1, 6), "s": i(2, 3, 4, 6)})
    yield Case("Expand", {"x": f(2, 1, 4, 1), "s": i(3, 1, 6)}, ("s",), opset=8)
    yield Case("Expand", {"x": f(), "s": i(4, 6)}, ("s",))
    yield Case("Shape", {"x": f(*X)})
    yield Case("Shape", {"x": f(*X)}, attributes={"start": 1, "end": -1})
    yield Case("Shape", {"x": f(*X)}, opset=13)
    yield Case("Size", {"x": f(*X)})


def ordered() -> Iterator[Case]:
    lengths = i(3, 1)
    yield Case("ReverseSequence", {"x": f(4, 2, 3, 6), "n": lengths}, ("n",), opset=10)
    yield Case("ReverseSequence", {"x": f(4, 2, 3, 6), "n": lengths})
    yield Case("ReverseSequence", {"x": f(2, 4, 3, 6), "n": lengths}, attributes={"batch_axis": 0, "time_axis": 1})
    yield Case("ReverseSequence", {"x": f(2, 4), "n": lengths}, attributes={"batch_axis": 0, "time_axis": 1})
    for domain in ("", "com.microsoft"):
        yield Case("Trilu", {"x": f(*X)}, domain=domain)
        yield Case("Trilu", {"x": f(*X), "k": n(1)}, attributes={"upper": 0}, domain=domain)
    yield Case("Det", {"x": f(2, 3, 6, 4, 4)})
    yield Case("Inverse", {"x": f(2, 3, 6, 4, 4) + np.eye(4, dtype=np.float32) * 9}, domain="com.microsoft")
    yield Case("DFT", {"x": f(2, 3, 6, 1)}, attributes={"axis": 2}, opset=17)
    yield Case("DFT", {"x": f(4, 6, 3, 2)}, attributes={"inverse": 1}, opset=17)
    yield Case("DFT", {"x": f(2, 4, 6, 1), "n": None, "a": n(1)}, ("a",), {"onesided": 1}, opset=20)
    yield Case("DFT", {"x": f(2, 4, 6, 2), "n": n(5)}, ("n",), opset=20)
    yield Case("DFT", {"x": f(2, 4, 6, 2), "n": n(5), "a": n(-3)}, ("n",), opset=20)
    yield Case("Unique", {"x": ints(4, 6, high=9).astype(np.float32)})
    yield Case("Unique", {"x": ints(4, 6, high=9).astype(np.float32)}, outputs=("y", "", "", "counts"))
    repeated = f(2, 3, 4)[:, [0, 2, 0, 1, 2, 1], :]
    yield Case("Unique", {"x": repeated}, attributes={"axis": -2, "sorted": 0}, outputs=4)
    yield Case("Unique", {"x": ints(12, high=9).astype(np.float32)}, attributes={"axis": 0}, outputs=4)
    yield Case("Unique", {"x": f(12)}, attributes={"axis": 0})
