"""One list of cases per operator: small, with a different extent in every dimension."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rules.law import Case

rng = np.random.default_rng(0)


def f(*shape: int) -> NDArray[np.float32]:
    return rng.normal(size=shape).astype(np.float32)


def positive(*shape: int) -> NDArray[np.float32]:
    return (rng.random(shape) + 0.5).astype(np.float32)


def b(*shape: int) -> NDArray[np.bool_]:
    return rng.random(shape) > 0.5


def i(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def ints(*shape: int, low: int = 0, high: int = 100, dtype: type = np.int32) -> NDArray[np.generic]:
    return rng.integers(low, high, shape).astype(dtype)


X = (2, 3, 4, 5)
"""The usual input: all extents differ."""


def cases() -> list[Case]:
    found: list[Case] = []
    for op in "Abs Asinh Atan Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish".split():
        found.append(Case(op, {"x": f(*X)}))
    for op in "LeakyRelu Mish Neg Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu".split():
        found.append(Case(op, {"x": f(*X)}))
    for op in "Log Sqrt Reciprocal Acosh".split():
        found.append(Case(op, {"x": positive(*X) + np.float32(1)}))
    for op in "Acos Asin Atanh".split():
        found.append(Case(op, {"x": f(*X).clip(-0.9, 0.9) * np.float32(0.9)}))
    found += [
        Case("Gelu", {"x": f(*X)}),
        Case("Swish", {"x": f(*X)}, opset=24),
        Case("BitwiseNot", {"x": ints(*X)}),
        Case("Not", {"x": b(*X)}),
        Case("IsInf", {"x": f(*X)}),
        Case("IsNaN", {"x": f(*X)}),
        Case("Cast", {"x": f(*X) * 9}, attributes={"to": 6}),
        Case("CastLike", {"x": f(*X) * 9, "t": i(1)}),
        Case("Clip", {"x": f(*X), "lo": np.float32(-0.5), "hi": np.float32(0.5)}, ("lo", "hi")),
    ]
    low = {"full": X, "c": (5,), "hc": (4, 5), "one": (2, 1, 4, 1), "scalar": ()}
    for op in "Add Sub Mul Div Max Mean Min Sum".split():
        found += [Case(op, {"x": f(*X), "y": positive(*shape)}) for shape in low.values()]
        found += [Case(op, {"x": f(*X), "y": positive(*shape)}, ("y",)) for shape in low.values()]
    found.append(Case("Add", {"y": f(4, 5), "x": f(*X)}))
    found += [Case("Pow", {"x": positive(*X), "y": positive(*shape)}, ("y",)) for shape in low.values()]
    found += [Case("Mod", {"x": ints(*X), "y": ints(*shape, low=1)}, ("y",)) for shape in low.values()]
    for op in "Equal Greater GreaterOrEqual Less LessOrEqual".split():
        found.append(Case(op, {"x": ints(*X, high=3), "y": ints(4, 5, high=3)}, ("y",)))
    for op in "And Or Xor".split():
        found.append(Case(op, {"x": b(*X), "y": b(4, 5)}, ("y",)))
    for op in "BitwiseAnd BitwiseOr BitwiseXor".split():
        found.append(Case(op, {"x": ints(*X), "y": ints(4, 5)}, ("y",)))
    found.append(Case("BitShift", {"x": ints(*X, dtype=np.uint32), "y": ints(4, 5, high=7, dtype=np.uint32)}, ("y",), {"direction": "LEFT"}))
    found.append(Case("Where", {"q": b(4, 1), "x": f(*X), "y": f(5)}, ("y",)))
    found += [Case("PRelu", {"x": f(*X), "slope": f(*shape)}, ("slope",)) for shape in ((5,), (4, 5), (3, 1, 1), (1,))]

    scale, zero = positive(3), ints(3, dtype=np.int8)
    found += [
        Case("QuantizeLinear", {"x": f(*X) * 5, "s": np.float32(0.1), "z": np.int8(3)}, ("s", "z")),
        Case("QuantizeLinear", {"x": f(*X) * 5, "s": scale, "z": zero}, ("s", "z"), {"axis": 1}),
        Case("QuantizeLinear", {"x": f(*X) * 5, "s": scale, "z": zero}, ("s", "z"), {"axis": -3}),
        Case("DequantizeLinear", {"x": ints(*X, dtype=np.int8), "s": np.float32(0.1), "z": np.int8(3)}, ("s", "z")),
        Case("DequantizeLinear", {"x": ints(*X, dtype=np.int8), "s": scale, "z": zero}, ("s", "z"), {"axis": 1}),
        Case("DequantizeLinear", {"x": ints(3, dtype=np.int32), "s": scale}, ("s",), {"axis": 0}),
    ]

    image, kernel = f(2, 3, 9, 7), f(5, 3, 3, 2)
    found += [
        Case("Conv", {"x": image, "w": kernel}, ("w",)),
        Case("Conv", {"x": image, "w": kernel, "b": f(5)}, ("w", "b"), {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
        Case("Conv", {"x": image, "w": f(3, 1, 3, 2)}, ("w",), {"group": 3}),
        Case("Conv", {"x": f(2, 6, 9, 7), "w": f(4, 3, 3, 2)}, ("w",), {"group": 2}),
        Case("ConvTranspose", {"x": image, "w": f(3, 5, 3, 2), "b": f(5)}, ("w", "b"), {"strides": [2, 1]}),
        Case("ConvTranspose", {"x": f(2, 6, 9, 7), "w": f(6, 2, 3, 2)}, ("w",), {"group": 3}),
        Case("MaxPool", {"x": image}, attributes={"kernel_shape": [3, 2], "strides": [2, 1]}),
        Case("MaxPool", {"x": image}, attributes={"kernel_shape": [3, 2]}, outputs=2),
        Case("AveragePool", {"x": image}, attributes={"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
        Case("LpPool", {"x": image}, attributes={"kernel_shape": [3, 2]}),
        Case("GlobalAveragePool", {"x": image}),
        Case("GlobalMaxPool", {"x": image}),
        Case("GlobalLpPool", {"x": image}),
        Case("LRN", {"x": image}, attributes={"size": 3}),
        Case("DepthToSpace", {"x": f(2, 12, 3, 5)}, attributes={"blocksize": 2}),
        Case("DepthToSpace", {"x": f(2, 12, 3, 5)}, attributes={"blocksize": 2, "mode": "CRD"}),
        Case("SpaceToDepth", {"x": f(2, 3, 4, 6)}, attributes={"blocksize": 2}),
        Case("Resize", {"x": image, "roi": None, "scales": None, "sizes": i(2, 3, 13, 5)}, ("sizes",), {"mode": "linear"}),
        Case("Resize", {"x": image, "roi": None, "scales": np.array([2, 3], np.float32)}, ("scales",), {"mode": "nearest", "axes": [2, 3]}),
        Case("Gemm", {"a": f(3, 4), "b": f(4, 5), "c": f(5)}, ("b", "c")),
        Case("Gemm", {"a": f(4, 3), "b": f(5, 4), "c": f(3, 1)}, attributes={"transA": 1, "transB": 1}),
        Case("Gemm", {"a": f(3, 4), "b": f(4, 5)}),
        Case("MatMul", {"a": f(2, 3, 4, 5), "b": f(5, 6)}, ("b",)),
        Case("MatMul", {"a": f(2, 3, 4, 5), "b": f(2, 3, 5, 6)}),
        Case("MatMul", {"a": f(4, 5), "b": f(2, 3, 5, 6)}),
        Case("MatMul", {"a": f(7, 1, 4, 5), "b": f(3, 5, 6)}),
        Case("MatMul", {"a": f(4, 5), "b": f(5, 6)}),
        Case("MatMul", {"a": f(5), "b": f(2, 5, 6)}),
        Case("MatMul", {"a": f(2, 4, 5), "b": f(5)}),
    ]
    for op in "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare ReduceLogSumExp ReduceLogSum".split():
        x = positive(*X)
        found += [
            Case(op, {"x": x, "axes": i(1, -1)}, ("axes",), {"keepdims": 0}),
            Case(op, {"x": x, "axes": i(2)}, ("axes",), {"keepdims": 1}),
            Case(op, {"x": x}, attributes={"keepdims": 0}),
            Case(op, {"x": x}, attributes={"noop_with_empty_axes": 1}),
        ]
    found += [
        Case("ReduceMean", {"x": f(*X)}, attributes={"axes": [1, 2], "keepdims": 0}, opset=13),
        Case("ArgMax", {"x": f(*X)}, attributes={"axis": 2, "keepdims": 0}),
        Case("ArgMin", {"x": f(*X)}, attributes={"axis": -1}),
        Case("Softmax", {"x": f(*X)}),
        Case("Softmax", {"x": f(*X)}, attributes={"axis": 1}),
        Case("LogSoftmax", {"x": f(*X)}, attributes={"axis": -3}),
        Case("Hardmax", {"x": ints(*X, high=3).astype(np.float32)}, attributes={"axis": 1}),
        Case("Concat", {"x": f(*X), "y": f(2, 3, 6, 5), "z": f(2, 3, 1, 5)}, ("y",), {"axis": 2}),
        Case("Concat", {"x": f(*X), "y": f(2, 3, 4, 1)}, attributes={"axis": -1}),
        Case("Split", {"x": f(2, 3, 7, 5), "split": i(2, 1, 4)}, ("split",), {"axis": 2}, outputs=3),
        Case("Split", {"x": f(2, 3, 4, 6)}, attributes={"axis": -1, "num_outputs": 2}, outputs=2),
        Case("Slice", {"x": f(2, 9, 8, 7), "s": i(1, 6), "e": i(8, 0), "a": i(1, -1), "t": i(2, -2)}, ("s", "e", "a", "t")),
        Case("Slice", {"x": f(2, 9, 8, 7), "s": i(0, 1), "e": i(2, 5)}, ("s", "e")),
        Case("Pad", {"x": f(*X), "p": i(0, 1, 2, 0, 0, 0, 1, 3)}, ("p",)),
        Case("Pad", {"x": f(*X), "p": i(1, 2, 0, 1), "v": np.float32(7), "a": i(-1, 1)}, ("p", "v", "a"), {"mode": "constant"}),
        Case("Pad", {"x": f(*X), "p": i(0, 1, 2, 0, 0, 0, 1, 3)}, ("p",), {"mode": "reflect"}),
        Case("Tile", {"x": f(*X), "r": i(1, 2, 1, 3)}, ("r",)),
        Case("Expand", {"x": f(3, 1, 5), "s": i(2, 1, 4, 1)}, ("s",)),
        Case("Gather", {"x": f(*X), "n": i(2, 0, 0, 1)}, ("n",), {"axis": 2}),
        Case("Gather", {"x": f(*X), "n": np.array(1, np.int64)}, ("n",), {"axis": -2}),
        Case("Gather", {"x": f(*X), "n": i(1)}, attributes={"axis": 1}),
        Case("CumSum", {"x": f(*X), "a": np.array(2, np.int64)}, ("a",)),
        Case("CumSum", {"x": f(*X), "a": i(-1)}, ("a",), {"reverse": 1, "exclusive": 1}),
        Case("Shape", {"x": f(*X)}),
        Case("Shape", {"x": f(*X)}, attributes={"start": 1, "end": -1}),
        Case("TopK", {"x": f(*X), "k": i(2)}, ("k",), {"axis": 1}, outputs=2),
    ]
    return found
