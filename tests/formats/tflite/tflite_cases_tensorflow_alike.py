"""Small models of TensorFlow's forms of TFLite's operators, of 64 bits for the most part, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_tensorflow import Attribute, left
from tflite_writing import Net

D, I32, I64 = "float64", "int32", "int64"


@dataclass(frozen=True)
class Random:
    """An operand that the test feeds."""

    shape: tuple[int, ...]
    kind: str = D
    low: float = -3
    high: float = 3


@dataclass(frozen=True)
class Form:
    """An operator, its operands (an array is a constant), what it computes of those that are fed, its attributes."""

    name: str
    operands: tuple[Any, ...]
    function: Callable[..., Any]
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def net(self) -> Net:
        net, zeros = Net(), []
        inputs = []
        for operand in self.operands:
            if isinstance(operand, Random):
                inputs.append(net.input(operand.shape, operand.kind, operand.low, operand.high))
                zeros.append(np.ones(operand.shape, operand.kind))
            else:
                inputs.append(net.const(operand, np.asarray(operand).dtype))
        with np.errstate(all="ignore"):
            found = self.function(*zeros)
        results = [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]
        left(net, self.name, inputs, [net.output(a.shape, a.dtype) for a in results], **self.attributes)
        net.expected = self.function
        return net


def i32(*numbers: Any) -> Any:
    return np.array(numbers if len(numbers) != 1 else numbers[0], np.int32)


A, B, ROW = Random((2, 3, 5)), Random((2, 3, 5)), Random((3, 5), D)
POSITIVE, WHOLE, BY = Random((2, 3, 5), D, 0.1, 3), Random((2, 3, 5), I64, -9, 9), Random((3, 5), I64, 1, 5)
BYTES, BITS = Random((2, 3, 5), "uint8", 0, 200), Random((2, 3, 5), I32, -999, 999)
MASKED = Random((2, 3, 5), "bool")


def select(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


def shifted(x: Any, by: Any, function: Any) -> Any:
    """By no less than nothing and no more than all bits but one."""
    return function(x, np.clip(by, 0, 8 * x.dtype.itemsize - 1).astype(x.dtype))


def unlike_zero(function: Any) -> Callable[..., Any]:
    return lambda a, b: np.where(b == 0, np.zeros((), a.dtype), function(a, np.where(b == 0, 1, b)).astype(a.dtype))


def turned(x: Any) -> Any:
    y = x.copy()
    for row, many in zip(y, (1, 3), strict=True):
        row[:many] = row[:many][::-1]
    return y


def summed(indices: Any, rows: Any) -> Any:
    y = np.zeros((4, rows.shape[1]))
    np.add.at(y, indices[:, 0], rows)
    return y


TURNED: dict[str, Attribute] = {"transpose_a": True, "transpose_b": True}

FORMS = [
    Form("AddN", (A, B, A), lambda a, b, c: a + b + c, {"N": 3}),
    Form("ArgMax", (WHOLE, i32([1])[0]), lambda x: x.argmax(1)),
    Form("ArgMin", (A, i32([-1])[0]), lambda x: x.argmin(-1).astype(I32)),
    Form("BatchMatMulV2", (A, Random((2, 4, 5))), lambda a, b: a @ b.swapaxes(1, 2), {"adj_y": True}),
    Form("BatchMatMulV2", (WHOLE, Random((2, 3, 4), I64)), lambda a, b: a.swapaxes(1, 2) @ b, {"adj_x": True}),
    Form("BiasAdd", (A, Random((5,))), np.add, {"data_format": "NHWC"}),
    Form("BiasAdd", (A, Random((3,))), lambda x, b: x + b[:, None], {"data_format": "NCHW"}),
    Form("BitwiseAnd", (BITS, Random((5,), I32, -999, 999)), np.bitwise_and),
    Form("BitwiseOr", (BYTES, BYTES), np.bitwise_or),
    Form("BitwiseXor", (WHOLE, WHOLE), np.bitwise_xor),
    Form("BroadcastTo", (ROW, i32(2, 3, 5)), lambda x: np.broadcast_to(x, (2, 3, 5))),
    Form("ConcatV2", (A, Random((2, 4, 5)), i32([1])[0]), lambda a, b: np.concatenate([a, b], 1), {"N": 2}),
    Form("Cos", (A,), np.cos),
    Form("DivNoNan", (A, Random((3, 5), D, 0.2, 1)), unlike_zero(np.divide)),
    Form("DivNoNan", (Random((9,), "float32"), np.array([0, 1, -2, 0, 3, 1, 2, 0, 4], "f")),
         lambda a: unlike_zero(np.divide)(a, np.array([0, 1, -2, 0, 3, 1, 2, 0, 4], "f"))),
    Form("DivNoNan", (Random((9,), I32, -9, 9), i32(0, 1, -2, 0, 3, 1, 2, 0, 4)),
         lambda a: np.trunc(unlike_zero(np.divide)(a.astype(D), i32(0, 1, -2, 0, 3, 1, 2, 0, 4))).astype(I32)),
    Form("MulNoNan", (A, ROW), unlike_zero(np.multiply)),
    Form("MulNoNan", (np.array([np.inf, np.nan, 1, 2]), np.array([0.0, 0, 0, 3])), lambda: np.array([0.0, 0, 0, 6])),
    Form("Elu", (A,), lambda x: np.where(x > 0, x, np.expm1(x))),
    Form("Equal", (WHOLE, BY), np.equal),
    Form("Fill", (i32(2, 3), Random(())), lambda x: np.full((2, 3), x)),
    Form("FloorDiv", (WHOLE, BY), np.floor_divide),
    Form("FloorMod", (A, Random((3, 5), D, 0.3, 2)), np.mod),
    Form("GatherNd", (A, i32([[1, 2], [0, 1]])), lambda x: x[[1, 0], [2, 1]]),
    Form("GatherV2", (A, i32(2, 0), i32([1])[0]), lambda x: x[:, [2, 0]]),
    Form("GatherV2", (A, i32([[2, 0], [1, 4]]), i32([-1])[0]),
         lambda x: np.stack([x[0][:, [2, 0]], x[1][:, [1, 4]]]), {"batch_dims": 1}),
    Form("Greater", (A, ROW), np.greater),
    Form("GreaterEqual", (A, ROW), np.greater_equal),
    Form("Invert", (BITS,), np.invert),
    Form("Invert", (BYTES,), np.invert),
    Form("IsFinite", (np.array([np.inf, -np.inf, np.nan, 1]),), lambda: np.array([False, False, False, True])),
    Form("IsNan", (np.array([np.inf, np.nan, 1]),), lambda: np.array([False, True, False])),
    Form("LeftShift", (BITS, Random((3, 5), I32, -3, 40)), lambda x, b: shifted(x, b, np.left_shift)),
    Form("LeftShift", (BYTES, Random((3, 5), "uint8", 0, 9)), lambda x, b: shifted(x, b, np.left_shift)),
    Form("LeftShift", (WHOLE, Random((3, 5), I64, -3, 80)), lambda x, b: shifted(x, b, np.left_shift)),
    Form("RightShift", (WHOLE, Random((3, 5), I64, -3, 80)), lambda x, b: shifted(x, b, np.right_shift)),
    Form("Less", (A, ROW), np.less),
    Form("LessEqual", (A, ROW), np.less_equal),
    Form("MatMul", (Random((4, 3), I32), Random((3, 5), I32)), np.matmul),
    Form("MatMul", (Random((3, 4)), Random((5, 3))), lambda a, b: a.T @ b.T, TURNED),
    Form("Max", (A, i32(0, 2)), lambda x: x.max((0, 2))),
    Form("Mean", (A, i32(1, -1)), lambda x: x.mean((1, 2), keepdims=True), {"keep_dims": True}),
    Form("Min", (A, i32([1])), lambda x: x.min(1, keepdims=True), {"keep_dims": True}),
    Form("Prod", (A, i32([1])), lambda x: x.prod(1)),
    Form("Sum", (A, i32([1])), lambda x: x.sum(1)),
    Form("NotEqual", (WHOLE, BY), np.not_equal),
    Form("Pack", (A, B), lambda a, b: np.stack([a, b], 1), {"axis": 1, "N": 2}),
    Form("Pack", (A, B), lambda a, b: np.stack([a, b], -1), {"axis": -1, "N": 2}),
    Form("Pad", (A, i32([[0, 0], [1, 2], [0, 1]])), lambda x: np.pad(x, [(0, 0), (1, 2), (0, 1)])),
    Form("Range", (np.float64(0.5), np.float64(3), np.float64(0.5)), lambda: np.arange(0.5, 3, 0.5)),
    Form("Relu", (A,), lambda x: np.maximum(x, 0)),
    Form("Relu6", (Random((2, 3, 5), D, -9, 9),), lambda x: np.clip(x, 0, 6)),
    Form("ReverseSequence", (Random((2, 5)), np.array([1, 3])), turned, {"seq_dim": 1, "batch_dim": 0}),
    Form("ReverseV2", (A, i32([1])), lambda x: x[:, ::-1]),
    Form("Round", (Random((9,), D, -9, 9),), np.round),
    Form("Rsqrt", (POSITIVE,), lambda x: 1 / np.sqrt(x)),
    Form("ScatterNd", (i32([[1], [3], [1]]), Random((3, 2)), i32(4, 2)), lambda x: summed(i32([[1], [3], [1]]), x)),
    Form("SelectV2", (MASKED, A, ROW), select),
    Form("Sigmoid", (A,), lambda x: 1 / (1 + np.exp(-x))),
    Form("Sin", (A,), np.sin),
    Form("Slice", (A, i32(0, 1, 2), i32(2, 1, -1)), lambda x: x[:, 1:2, 2:]),
    Form("Split", (i32([1])[0], Random((2, 4))), lambda x: (x[:, :2], x[:, 2:]), {"num_split": 2}),
    Form("Square", (A,), np.square),
    Form("SquaredDifference", (A, ROW), lambda a, b: (a - b) ** 2),
    Form("Tanh", (A,), np.tanh),
    Form("Tile", (A, i32(1, 2, 3)), lambda x: np.tile(x, (1, 2, 3))),
    Form("TopKV2", (A, i32([2])[0]),
         lambda x: (np.sort(x)[..., :-3:-1], np.argsort(-x, kind="stable")[..., :2].astype(I32))),
    Form("Transpose", (A, i32(2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    Form("TruncateDiv", (WHOLE, BY), lambda a, b: np.trunc(a / b).astype(I64)),
    Form("TruncateDiv", (A, Random((3, 5), D, 0.3, 1)), lambda a, b: np.trunc(a / b)),
    Form("Unpack", (Random((2, 3)),), lambda x: (x[:, 0], x[:, 1], x[:, 2]), {"axis": 1, "num": 3}),
]  # fmt: skip


@cases(*sorted({f"CUSTOM Flex{form.name}" for form in FORMS}))
def flex_forms() -> Iterator[Net]:
    for form in FORMS:
        yield form.net()


@cases("CUSTOM FlexUnique", "CUSTOM FlexUniqueWithCounts")
def flex_unique() -> Iterator[Net]:
    def found(x: Any, many: bool) -> Any:
        values, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(first)
        where = np.argsort(order)[inverse.reshape(-1)]
        return (values[order], where, counts[order]) if many else (values[order], where)

    for name, kind, whole in (("Unique", D, I32), ("UniqueWithCounts", "float32", I64), ("UniqueWithCounts", I32, I32)):
        net, many = Net(), name != "Unique"
        count = {"signature": (-1,)}
        results = [net.output((9,), kind, **count), net.output((9,), whole)]
        results += [net.output((9,), whole, **count)] if many else []
        given = net.tensor((9,), kind)
        net.op("CAST", [net.input((9,), I64, -2, 2)], [given])
        left(net, name, [given], results)
        net.expected = lambda x, many=many: found(x, many)
        yield net


@cases("CUSTOM FlexFakeQuantWithMinMaxVarsPerChannel")
def flex_fake_quant() -> Iterator[Net]:
    low, high = np.array([-1, -2, 0.3, 0], "f"), np.array([1.03, -0.1, 1.7, 0], "f")
    for narrow, bits in ((False, 8), (True, 8), (False, 4)):
        net = Net()
        operands = [net.input((6, 7, 4)), net.const(low), net.const(high)]
        attributes: dict[str, Attribute] = {"num_bits": bits, "narrow_range": narrow}
        left(net, "FakeQuantWithMinMaxVarsPerChannel", operands, net.output((6, 7, 4)), **attributes)
        net.expected = lambda x, first=int(narrow), last=2**bits - 1: steps(x, low, high, first, last)
        yield net


def steps(x: Any, low: Any, high: Any, first: int, last: int) -> Any:
    """The ends are moved so that 0 is a step; between ends that are 0 there is 0."""
    y = np.zeros(x.shape)
    for c in np.flatnonzero(high > low):
        scale = (high[c] - low[c]) / np.float32(last - first)
        zero = np.clip(np.floor(first - low[c] / scale + np.float32(0.5)), first, last)
        start = (first - zero) * scale
        at = np.clip(x[..., c], start, (last - zero) * scale) - start
        y[..., c] = np.floor(at * (1 / scale) + np.float32(0.5)) * scale + start
    return y
