from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rules.cases.making import X, b, f, i, ints, n, positive, s
from rules.law import Case

LOWER = {"full": X, "c": (6,), "hc": (4, 6), "one": (2, 1, 4, 1), "ones": (1, 1), "scalar": (), "item": (1,)}
ANY = (
    "Abs Asinh Atan Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish LeakyRelu Mish Neg Relu Round Selu "
    "Shrink Sigmoid Sign Sin Sinh Softplus Softsign Tan Tanh ThresholdedRelu"
)


def cases() -> Iterator[Case]:
    yield from unary()
    yield from binary()
    yield from old()


def unary() -> Iterator[Case]:
    for op in ANY.split():
        yield Case(op, {"x": f(*X)})
    for op in ("Log", "Sqrt", "Reciprocal", "Acosh"):
        yield Case(op, {"x": positive(*X) + np.float32(1)})
    for op in ("Acos", "Asin", "Atanh"):
        yield Case(op, {"x": f(*X).clip(-0.9, 0.9) * np.float32(0.9)})
    for shape in ((), (6,), (1, 4, 1), (0, 4)):
        yield Case("Relu", {"x": f(*shape)})
    yield Case("Relu", {"x": f(*X)}, dynamic=True)
    yield Case("Gelu", {"x": f(*X)})
    yield Case("Swish", {"x": f(*X)}, opset=24)
    for op in ("Affine", "ParametricSoftplus", "ScaledTanh"):
        yield Case(op, {"x": f(*X)}, attributes={"alpha": 0.7, "beta": 1.3}, opset=7)
    yield Case("Scale", {"x": f(*X)}, attributes={"scale": 0.7}, opset=7)
    yield Case("BitwiseNot", {"x": ints(*X)})
    yield Case("Not", {"x": b(*X)})
    yield Case("IsInf", {"x": f(*X)})
    yield Case("IsNaN", {"x": f(*X)})
    yield Case("Cast", {"x": f(*X) * 9}, attributes={"to": 6})
    yield Case("BitCast", {"x": f(*X)}, attributes={"to": 6}, opset=26)
    yield Case("CastLike", {"x": f(*X) * 9, "t": i(1)})
    yield Case("CastLike", {"x": f(*X) * 9, "t": ints(4, 6)})
    yield Case("Clip", {"x": f(*X), "lo": s(-0.5), "hi": s(0.5)}, ("lo", "hi"))
    yield Case("Clip", {"x": f(*X), "lo": None, "hi": s(0.5)})
    yield Case("Dropout", {"x": f(*X)}, outputs=2)
    yield Case("Dropout", {"x": f(*X), "ratio": s(0.3)}, ("ratio",))
    yield Case("Dropout", {"x": f(*X), "ratio": s(0.3), "train": np.array(False)}, ("ratio", "train"), outputs=2)
    yield Case("Dropout", {"x": f(*X)}, attributes={"ratio": 0.3}, opset=10)


def binary() -> Iterator[Case]:
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Mean", "Min", "Sum", "Pow"):
        for shape in LOWER.values():
            yield Case(op, {"x": positive(*X), "y": positive(*shape)})
            yield Case(op, {"x": positive(*X), "y": positive(*shape)}, ("y",))
    yield Case("Add", {"y": f(4, 6), "x": f(*X)})
    yield Case("Add", {"x": f(*X), "y": f(4, 6)}, dynamic=True)
    yield Case("Add", {"y": f(3, 1, 6), "x": f(2, 1, 4, 1)})
    yield Case("Add", {"y": f(1), "x": f()})
    yield Case("Sum", {"x": f(3, 1, 1), "y": f(4, 6), "z": f(2, 1, 1, 1)}, ("z",))
    for shape in LOWER.values():
        yield Case("Mod", {"x": ints(*X), "y": ints(*shape, low=1)}, ("y",))
    for op in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"):
        yield Case(op, {"x": ints(*X, high=3), "y": ints(4, 6, high=3)}, ("y",))
    for op in ("And", "Or", "Xor"):
        yield Case(op, {"x": b(*X), "y": b(4, 6)}, ("y",))
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(op, {"x": ints(*X), "y": ints(4, 6)}, ("y",))
    words = ints(*X, dtype=np.uint32)
    yield Case("BitShift", {"x": words, "y": ints(4, 6, high=7, dtype=np.uint32)}, ("y",), {"direction": "LEFT"})
    yield Case("Where", {"q": b(4, 1), "x": f(*X), "y": f(6)}, ("y",))
    yield Case("Where", {"q": b(*X), "x": f(), "y": f(3, 1, 1)})
    for slope in ((6,), (4, 6), (3, 1, 1), (1,), ()):
        yield Case("PRelu", {"x": f(*X), "slope": f(*slope)}, ("slope",))
    yield Case("SwiGLU", {"x": f(*X), "y": f(*X)}, opset=28)
    text = ints(4, 6).astype(str).astype(object)
    yield Case("StringConcat", {"x": text, "y": ints(6).astype(str).astype(object)})


def old() -> Iterator[Case]:
    """Before numpy's rules of broadcasting, and parameters as attributes."""
    for op in ("Add", "Mul"):
        yield Case(op, {"x": f(*X), "y": f(4, 6)}, opset=7)
    yield Case("Max", {"x": f(*X), "y": f(*X), "z": f(*X)}, opset=7)
    yield Case("Clip", {"x": f(*X)}, attributes={"min": -0.5, "max": 0.5}, opset=6)
    yield Case("PRelu", {"x": f(*X), "slope": f(3, 1, 1)}, ("slope",), opset=7)
    yield Case("Where", {"q": b(*X), "x": f(*X), "y": f(6)}, opset=9)
    yield Case("Gelu", {"x": f(*X)}, domain="com.microsoft")
    yield Case("QuickGelu", {"x": f(*X)}, domain="com.microsoft")
    yield Case("FastGelu", {"x": f(*X)}, domain="com.microsoft")
    yield Case("FastGelu", {"x": f(*X), "b": f(6)}, ("b",), domain="com.microsoft")
    yield Case("BiasGelu", {"x": f(*X), "b": f(6)}, ("b",), domain="com.microsoft")
    yield Case("BiasGelu", {"x": f(*X), "b": f(6)}, domain="com.microsoft")
    yield Case("CumProd", {"x": f(*X), "a": n(1)}, ("a",), opset=26)
    table = {"keys_int64s": [5, 1, 9], "values_floats": [0.5, -1.0, 2.0]}
    elements = np.arange(np.prod(X)).reshape(X) % 11
    yield Case("LabelEncoder", {"x": elements}, attributes=table, domain="ai.onnx.ml", domain_version=2)
    yield Case("Binarizer", {"x": elements.astype(np.float32)}, attributes={"threshold": 4.0}, domain="ai.onnx.ml")
