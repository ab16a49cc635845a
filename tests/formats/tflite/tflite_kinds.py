"""Every operator in every element type: small models by (operator, kind), whether or not a runtime takes them.

A kind is an element type, with or without quantization parameters: `int8` is a plain integer, `int8*` one with a scale,
`int8~` one whose result has parameters of its own. Where operands have types of their own, they are told apart by `>`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tflite_cases import rng
from tflite_writing import Net, Scale, options

PLAIN = ("float32", "float16", "float64", "bool",
         "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")  # fmt: skip
QUANTIZED = ("int8*", "uint8*", "int16*", "int8~", "uint8~", "int16~")
KINDS = PLAIN + QUANTIZED

OPERAND = {"int8": Scale(0.03, -5), "uint8": Scale(0.03, 120), "int16": Scale(2**-13), "int32": Scale(2**-20)}
SECOND = {"int8": Scale(0.02, 9), "uint8": Scale(0.025, 135), "int16": Scale(2**-12), "int32": Scale(2**-19)}
RESULT = {"int8": Scale(0.05, 3), "uint8": Scale(0.05, 131), "int16": Scale(2**-11), "int32": Scale(2**-18)}
ENDS = {"bool": (0, 1), "int16*": (-32768, 32767), "int32*": (-2_000_000, 2_000_000)}


@dataclass
class Typed:
    """A model under construction whose data are of one kind."""

    net: Net
    kind: str

    @property
    def dtype(self) -> str:
        return self.kind.rstrip("*~")

    @property
    def quantized(self) -> bool:
        return self.kind[-1] in "*~"

    def scale(self, which: dict[str, Scale]) -> Scale | None:
        return which[self.dtype] if self.quantized else None

    def x(self, *shape: int, low: float = -3, high: float = 3, second: bool = False) -> int:
        """An operand; plain integers are small, quantized ones take their whole range."""
        q = self.scale(SECOND if second and self.kind[-1] == "~" else OPERAND)
        if self.quantized:
            low, high = ENDS.get(f"{self.dtype}*", (-2, 2))
        elif self.dtype[0] == "u":
            low = max(low, 0)
        if self.dtype in ("int8", "uint8") and (low, high) == (-2, 2) and not self.quantized:
            high = 3
        return self.net.input(shape, self.dtype, low, high, q=q)

    def y(self, *shape: int, q: Scale | dict[str, Scale] | None = None) -> int:
        """A result of the same type. `q` is what its kernel demands of quantized ones."""
        wanted = q.get(self.dtype) if isinstance(q, dict) else q
        own = wanted or (RESULT if self.kind[-1] == "~" else OPERAND)[self.dtype] if self.quantized else None
        return self.net.output(shape, self.dtype, q=own)

    def const(self, values: Any) -> int:
        array = np.asarray(values)
        if self.quantized:
            q = OPERAND[self.dtype]
            info = np.iinfo(self.dtype)
            array = np.clip(np.round(array / q.scale) + q.zero, info.min, info.max)
        return self.net.const(array.astype(self.dtype), self.dtype, q=self.scale(OPERAND))

    def ints(self, values: Any, dtype: str = "int32") -> int:
        return self.net.const(values, dtype)


Build = Callable[[Typed], Net]
ROWS: dict[str, tuple[Build, tuple[str, ...]]] = {}
"""Operator -> how to build it of one kind, and the kinds to try."""

SHAPE = (2, 3, 4, 5)


def row(name: str, build: Build, kinds: Sequence[str] = KINDS) -> None:
    if name in ROWS:
        raise ValueError(name)
    ROWS[name] = (build, tuple(kinds))


def of(name: str, kinds: Sequence[str] = KINDS) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        row(name, build, kinds)
        return build

    return register


def _unary(name: str, table: str = "", low: float = -3, high: float = 3, q: Any = None, **fields: Any) -> None:
    def build(t: Typed) -> Net:
        made = options(table, **fields) if table else None
        return t.net.op(name, [t.x(*SHAPE, low=low, high=high)], [t.y(*SHAPE, q=q)], made)

    row(name, build)


TABLES = {
    "LOGISTIC": {"int8": Scale(1 / 256, -128), "uint8": Scale(1 / 256), "int16": Scale(1 / 32768)},
    "TANH": {"int8": Scale(1 / 128), "uint8": Scale(1 / 128, 128), "int16": Scale(1 / 32768)},
    "SOFTMAX": {"int8": Scale(1 / 256, -128), "uint8": Scale(1 / 256), "int16": Scale(1 / 32768)},
    "LOG_SOFTMAX": {"int8": Scale(16 / 256, 127), "uint8": Scale(16 / 256, 255)},
    "L2_NORMALIZATION": {"int8": Scale(1 / 128), "uint8": Scale(1 / 128, 128)},
}
"""Scales that the kernels demand of a result."""

for _name in ("ABS", "CEIL", "COS", "ELU", "EXP", "FLOOR", "HARD_SWISH", "LOGICAL_NOT", "LOGISTIC", "NEG", "RELU",
              "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ROUND", "SIGN", "SIN", "SQUARE", "TANH",
              "ZEROS_LIKE"):  # fmt: skip
    _unary(_name, q=TABLES.get(_name))
for _name in ("LOG", "SQRT", "RSQRT"):
    _unary(_name, low=1, high=9)
_unary("LEAKY_RELU", "LeakyReluOptions", alpha=0.3)
_unary("GELU", "GeluOptions", approximate=False)
_unary("SOFTMAX", "SoftmaxOptions", beta=0.7, q=TABLES["SOFTMAX"])
_unary("LOG_SOFTMAX", q=TABLES["LOG_SOFTMAX"])
_unary("L2_NORMALIZATION", "L2NormOptions", q=TABLES["L2_NORMALIZATION"])
_unary("LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalizationOptions", radius=2, bias=1.0, alpha=0.3, beta=0.5)
_unary("FAKE_QUANT", "FakeQuantOptions", min=-1.0, max=2.0, numBits=6)


def _binary(name: str, table: str = "", second: tuple[float, float] = (-3, 3), first: tuple[float, float] = (-3, 3),
            result: str | None = None, kinds: Sequence[str] = KINDS, **fields: Any) -> None:  # fmt: skip
    def build(t: Typed) -> Net:
        a = t.x(*SHAPE, low=first[0], high=first[1])
        b = t.x(3, 1, 5, low=second[0], high=second[1], second=True)
        y = t.y(*SHAPE) if result is None else t.net.output(SHAPE, result)
        return t.net.op(name, [a, b], [y], options(table, **fields) if table else None)

    row(name, build, kinds)


for _name in ("ADD", "SUB"):
    _binary(_name, f"{_name.capitalize()}Options", potScaleInt16=False)
_binary("MUL", "MulOptions")


@of("DIV")
def div(t: Typed) -> Net:
    divisor = t.const(rng().uniform(1, 2, (3, 1, 5))) if t.quantized else t.x(3, 1, 5, low=1, high=5)
    return t.net.op("DIV", [t.x(*SHAPE, low=-90, high=90), divisor], [t.y(*SHAPE)], options("DivOptions"))


for _name in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "LOGICAL_AND", "LOGICAL_OR", "BITWISE_XOR", "ATAN2"):
    _binary(_name)
for _name in ("FLOOR_DIV", "FLOOR_MOD"):
    _binary(_name, second=(1, 7), first=(-90, 90))
_binary("POW", second=(0, 3), first=(1, 3))
_binary("RIGHT_SHIFT", second=(0, 5), first=(-90, 90), kinds=PLAIN)
for _name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
    _binary(_name, result="bool")


def _moved(
    name: str,
    operands: Callable[[Typed], list[int]],
    shape: tuple[int, ...],
    table: Any = None,
    kinds: Sequence[str] = KINDS,
) -> None:
    """An operator of one result: its operands made by a function."""

    def build(t: Typed) -> Net:
        given = operands(t)
        return t.net.op(name, given, [t.y(*shape)], table() if table else None)

    row(name, build, kinds)


_moved("ADD_N", lambda t: [t.x(2, 3), t.x(2, 3), t.x(2, 3)], (2, 3))
_moved("PRELU", lambda t: [t.x(*SHAPE), t.const(rng().uniform(-1, 1, (1, 1, 5)))], SHAPE)
_moved("AVERAGE_POOL_2D", lambda t: [t.x(2, 7, 9, 4)], (2, 5, 8, 4),
       lambda: options("Pool2DOptions", padding=1, strideH=1, strideW=1, filterHeight=3, filterWidth=2))  # fmt: skip
_moved("MAX_POOL_2D", lambda t: [t.x(2, 7, 9, 4)], (2, 4, 5, 4),
       lambda: options("Pool2DOptions", padding=0, strideH=2, strideW=2, filterHeight=3, filterWidth=2,
                       fusedActivationFunction=1))  # fmt: skip
_moved("L2_POOL_2D", lambda t: [t.x(2, 7, 9, 4)], (2, 5, 8, 4),
       lambda: options("Pool2DOptions", padding=1, strideH=1, strideW=1, filterHeight=3, filterWidth=2))  # fmt: skip
for _name in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"):
    _low = 1 if _name == "REDUCE_PROD" else -3
    _moved(_name, lambda t, low=_low: [t.x(*SHAPE, low=low, high=2 if low == 1 else 3), t.ints([1, -1])], (2, 4),
           lambda: options("ReducerOptions"))  # fmt: skip
_moved("CUMSUM", lambda t: [t.x(2, 3, 4), t.ints([1])], (2, 3, 4), lambda: options("CumsumOptions", reverse=True))
_moved("RESIZE_NEAREST_NEIGHBOR", lambda t: [t.x(2, 5, 6, 3), t.ints([10, 7])], (2, 10, 7, 3),
       lambda: options("ResizeNearestNeighborOptions"))  # fmt: skip
_moved(
    "DEPTH_TO_SPACE", lambda t: [t.x(2, 3, 5, 12)], (2, 6, 10, 3), lambda: options("DepthToSpaceOptions", blockSize=2)
)
_moved(
    "SPACE_TO_DEPTH", lambda t: [t.x(2, 6, 9, 2)], (2, 2, 3, 18), lambda: options("SpaceToDepthOptions", blockSize=3)
)
_moved("SPACE_TO_BATCH_ND", lambda t: [t.x(2, 5, 8, 3), t.ints([2, 3]), t.ints([[1, 2], [0, 1]])], (12, 4, 3, 3))
_moved("BATCH_TO_SPACE_ND", lambda t: [t.x(12, 4, 3, 5), t.ints([2, 3]), t.ints([[1, 2], [0, 1]])], (2, 5, 8, 5))
_moved("RESHAPE", lambda t: [t.x(2, 3, 4), t.ints([4, 6])], (4, 6), lambda: options("ReshapeOptions"))
_moved("SQUEEZE", lambda t: [t.x(2, 1, 4)], (2, 4), lambda: options("SqueezeOptions", squeezeDims=[1]))
_moved("EXPAND_DIMS", lambda t: [t.x(2, 3), t.ints(1)], (2, 1, 3), lambda: options("ExpandDimsOptions"))
_moved("TRANSPOSE", lambda t: [t.x(2, 3, 4), t.ints([2, 0, 1])], (4, 2, 3))
_moved("BROADCAST_TO", lambda t: [t.x(3, 1), t.ints([2, 3, 4])], (2, 3, 4))
_moved("FILL", lambda t: [t.ints([2, 3]), t.x()], (2, 3), lambda: options("FillOptions"))
_moved("TILE", lambda t: [t.x(2, 3), t.ints([2, 3])], (4, 9))
_moved("RANGE", lambda t: [t.const(1), t.const(7), t.const(2)], (3,), lambda: options("RangeOptions"))
_moved("SLICE", lambda t: [t.x(3, 4, 5), t.ints([1, 0, 2]), t.ints([2, 3, -1])], (2, 3, 3))
_moved("STRIDED_SLICE", lambda t: [t.x(3, 4, 5), t.ints([1, 3, 0]), t.ints([3, 0, 5]), t.ints([1, -1, 2])], (2, 3, 3),
       lambda: options("StridedSliceOptions"))  # fmt: skip
_moved("PAD", lambda t: [t.x(2, 3, 4), t.ints([[1, 0], [0, 2], [1, 1]])], (3, 5, 6))
_moved("PADV2", lambda t: [t.x(2, 3, 4), t.ints([[1, 0], [0, 2], [1, 1]]), t.const(1)], (3, 5, 6))
_moved("MIRROR_PAD", lambda t: [t.x(2, 3, 4), t.ints([[1, 0], [0, 2], [1, 1]])], (3, 5, 6),
       lambda: options("MirrorPadOptions", mode=1))  # fmt: skip
_moved(
    "CONCATENATION",
    lambda t: [t.x(2, 3, 4), t.x(2, 1, 4, second=True)],
    (2, 4, 4),
    lambda: options("ConcatenationOptions", axis=1),
)
_moved("PACK", lambda t: [t.x(2, 3), t.x(2, 3)], (2, 2, 3), lambda: options("PackOptions", axis=1, valuesCount=2))
_moved("REVERSE_V2", lambda t: [t.x(2, 3, 4), t.ints([1])], (2, 3, 4))
_moved("REVERSE_SEQUENCE", lambda t: [t.x(4, 3, 5), t.ints([2, 1, 3])], (4, 3, 5),
       lambda: options("ReverseSequenceOptions", seqDim=0, batchDim=1))  # fmt: skip
_moved("GATHER", lambda t: [t.x(2, 3, 4), t.ints([2, 0, 1, 1])], (2, 4, 4), lambda: options("GatherOptions", axis=1))
_moved("GATHER_ND", lambda t: [t.x(2, 3, 4), t.ints([[1, 0], [0, 2], [1, 1]])], (3, 4))
_moved("SCATTER_ND", lambda t: [t.ints([[4], [0], [4]]), t.x(3, 2), t.ints([5, 2])], (5, 2))
_moved("SELECT", lambda t: [t.net.const([True, False], "bool"), t.x(2, 3), t.x(2, 3)], (2, 3))
_moved("SELECT_V2", lambda t: [t.net.const([True, False, True], "bool"), t.x(2, 3), t.x(1, 3)], (2, 3))
_moved(
    "ONE_HOT",
    lambda t: [t.ints([2, 0, 9]), t.ints(4), t.const(2), t.const(1)],
    (3, 4),
    lambda: options("OneHotOptions", axis=-1),
)
_moved("MATRIX_DIAG", lambda t: [t.x(2, 3)], (2, 3, 3))
_moved("MATRIX_SET_DIAG", lambda t: [t.x(2, 3, 4), t.x(2, 3)], (2, 3, 4))
_moved("DYNAMIC_UPDATE_SLICE", lambda t: [t.x(4, 5), t.x(2, 3), t.ints([1, 2])], (4, 5))
_moved("EMBEDDING_LOOKUP", lambda t: [t.ints([3, 0]), t.x(4, 5)], (2, 5))
_moved("SPARSE_TO_DENSE", lambda t: [t.ints([[0, 1], [2, 0]]), t.ints([3, 2]), t.x(2), t.const(1)], (3, 2),
       lambda: options("SparseToDenseOptions"))  # fmt: skip
_moved("SEGMENT_SUM", lambda t: [t.x(4, 3), t.ints([0, 0, 1, 2])], (3, 3))
for _name in ("MAX", "MIN", "PROD", "SUM"):
    _moved(f"UNSORTED_SEGMENT_{_name}", lambda t: [t.x(4, 3), t.ints([2, 0, 2, 0]), t.ints(3)], (3, 3))
_moved("DILATE", lambda t: [t.x(2, 3), t.ints([2, 3]), t.const(1)], (3, 7), lambda: options("DilateOptions"))
_moved("REDUCE_WINDOW", lambda t: [t.x(5, 6), t.const(1), t.ints([2, 3], "int64"), t.ints([1, 2], "int64"),
                                   t.ints([1, 1], "int64")], (4, 2),
       lambda: options("ReduceWindowOptions", reduceFunction=1))  # fmt: skip


@of("RESIZE_BILINEAR")
def resize_bilinear(t: Typed) -> Net:
    t.net.slack = float(t.kind == "uint8")  # the kernels themselves are one apart
    table = options("ResizeBilinearOptions", halfPixelCenters=True)
    return t.net.op("RESIZE_BILINEAR", [t.x(2, 5, 6, 3), t.ints([10, 7])], [t.y(2, 10, 7, 3)], table)


@of("UNPACK")
def unpack(t: Typed) -> Net:
    x = t.x(2, 3, 4)
    return t.net.op("UNPACK", [x], [t.y(2, 4) for _ in range(3)], options("UnpackOptions", num=3, axis=1))


@of("SPLIT")
def split(t: Typed) -> Net:
    operands = [t.ints(1), t.x(2, 6)]
    return t.net.op("SPLIT", operands, [t.y(2, 3) for _ in range(2)], options("SplitOptions", numSplits=2))


@of("SPLIT_V")
def split_v(t: Typed) -> Net:
    operands = [t.x(2, 6), t.ints([1, -1]), t.ints(1)]
    return t.net.op("SPLIT_V", operands, [t.y(2, 1), t.y(2, 5)], options("SplitVOptions", numSplits=2))


for _name, _table in (("ARG_MAX", "ArgMaxOptions"), ("ARG_MIN", "ArgMinOptions")):

    def _arg(t: Typed, name: str = _name, table: str = _table) -> Net:
        operands = [t.x(2, 3, 4, low=-90, high=90), t.ints(1)]
        return t.net.op(name, operands, [t.net.output((2, 4), "int64")], options(table, outputType=4))

    row(_name, _arg)


@of("TOPK_V2")
def topk(t: Typed) -> Net:
    operands = [t.x(2, 7, low=-90, high=90), t.ints(3)]
    return t.net.op("TOPK_V2", operands, [t.y(2, 3), t.net.output((2, 3), "int32")])


@of("WHERE")
def where(t: Typed) -> Net:
    return t.net.op("WHERE", [t.x(3, 4, low=0, high=1)], [t.net.output((12, 2), "int64", signature=(-1, 2))])


@of("RANK")
def rank(t: Typed) -> Net:
    return t.net.op("RANK", [t.x(3, 4)], [t.net.output((), "int32")])


@of("SHAPE")
def shape(t: Typed) -> Net:
    return t.net.op("SHAPE", [t.x(3, 4)], [t.net.output((2,), "int64")], options("ShapeOptions", outType=4))


@of("UNIQUE")
def unique(t: Typed) -> Net:
    y = t.net.output((9,), t.dtype, signature=(-1,), q=t.scale(OPERAND))
    return t.net.op("UNIQUE", [t.x(9)], [y, t.net.output((9,), "int32")], options("UniqueOptions", idxOutType=2))


@of("BUCKETIZE")
def bucketize(t: Typed) -> Net:
    table = options("BucketizeOptions", boundaries=[-1.0, 0.5, 2.0])
    return t.net.op("BUCKETIZE", [t.x(3, 4)], [t.net.output((3, 4), "int32")], table)


@of("HASHTABLE_LOOKUP")
def hashtable_lookup(t: Typed) -> Net:
    operands = [t.ints([3, 7, 1]), t.ints([1, 3, 5, 8]), t.x(4, 2)]
    return t.net.op("HASHTABLE_LOOKUP", operands, [t.y(3, 2), t.net.output((3,), "uint8")])


@of("BROADCAST_ARGS", ("int32", "int64"))
def broadcast_args(t: Typed) -> Net:
    operands = [t.net.const([3, 1], t.dtype), t.net.const([2, 1, 4], t.dtype)]
    return t.net.op("BROADCAST_ARGS", operands, [t.y(3)])


@of("READ_VARIABLE")
def variables(t: Typed) -> Net:
    net = t.net
    handle = net.tensor((), type_name="RESOURCE")
    net.op("VAR_HANDLE", [], [handle], options("VarHandleOptions", sharedName="v", container=""))
    net.op("ASSIGN_VARIABLE", [handle, t.x(2, 3)], [], options("AssignVariableOptions"))
    return net.op("READ_VARIABLE", [handle], [t.y(2, 3)], options("ReadVariableOptions"))


# Pairs of types.


def pairs(first: Sequence[str] = KINDS, second: Sequence[str] = KINDS) -> tuple[str, ...]:
    return tuple(f"{a}>{b}" for a in first for b in second)


def _two(t: Typed) -> tuple[Typed, Typed]:
    a, b = t.kind.split(">")
    return Typed(t.net, a), Typed(t.net, b)


@of("CAST", pairs(PLAIN, PLAIN))
def cast(t: Typed) -> Net:
    a, b = _two(t)
    low = 0 if b.dtype[0] == "u" else -90
    return t.net.op("CAST", [a.x(3, 20, low=low, high=90)], [b.y(3, 20)], options("CastOptions"))


STORED = ("int8*", "uint8*", "int16*", "int32*")


@of("QUANTIZE", pairs(("float32", "float16", "float64", *STORED), ("int8~", "uint8~", "int16~", "int32~")))
def quantize(t: Typed) -> Net:
    a, b = _two(t)
    return t.net.op("QUANTIZE", [a.x(3, 50)], [b.y(3, 50)])


@of("DEQUANTIZE", pairs((*STORED, "float16", "float64"), ("float32", "float16")))
def dequantize(t: Typed) -> Net:
    a, b = _two(t)
    return t.net.op("DEQUANTIZE", [a.x(3, 50)], [b.y(3, 50)], options("DequantizeOptions"))


@of("BITCAST", pairs(PLAIN, PLAIN))
def bitcast(t: Typed) -> Net:
    a, b = _two(t)
    wide, narrow = np.dtype(a.dtype).itemsize, np.dtype(b.dtype).itemsize
    first: tuple[int, ...] = (3, 2)
    last: tuple[int, ...] = (3, 2)
    if wide > narrow:
        last = (3, 2, wide // narrow)
    elif wide < narrow:
        first = (3, 2, narrow // wide)
    return t.net.op("BITCAST", [a.x(*first, low=-90, high=90)], [b.y(*last)], options("BitcastOptions"))


# Weights.

WEIGHTS = (
    "float32>float32>float32", "float16>float16>float16", "float32>float16>float32", "float32>int8>float32",
    "float32>uint8>float32",
    "float32>int4>float32", "int8>int8>int32", "int8>int4>int32", "uint8>uint8>int32", "int16>int8>int64",
    "int16>int8>int32", "int16>int4>int64", "int8>int8>none", "int16>int8>none", "float32>float32>none",
    "float32>int8>none", "float32>int4>none", "int16>int16>int32", "int8>int16>int32", "uint8>int8>int32",
)  # fmt: skip
"""Data > weights > bias; `/c` behind: a scale for each channel."""
SCALED = tuple(f"{w}/c" for w in WEIGHTS if not w.startswith("float32>float") and not w.startswith("float16"))


def weighted(
    t: Typed, data: tuple[int, ...], kernel: tuple[int, ...], axis: int, result: tuple[int, ...]
) -> tuple[int, int, int | None, int]:
    """Operands data, weights, bias, and the result."""
    triple, _, per_channel = t.kind.partition("/")
    a, w, b = triple.split(">")
    net, units = t.net, kernel[axis]
    scales = np.array([0.01]) if not per_channel else 0.006 + 0.002 * np.arange(units)
    q = {"int8": Scale(0.03, -5), "uint8": Scale(0.03, 120), "int16": Scale(2**-13)}.get(a)
    x = net.input(data, a, *((-32768, 32767) if a == "int16" else (-2, 2)), q=q)
    zero = 121 if w == "uint8" and a == "uint8" else 0
    if w[0] == "f":
        weights, step = net.const(rng().normal(size=kernel), w), 0.01
    else:
        top, step = (7, 16) if w == "int4" else (90, 1)
        values = rng().integers(-top, top + 1, kernel) + zero
        wq = Scale(list(scales * step), zero, axis)
        if w == "int4":
            flat = np.append(values.reshape(-1), 0) if values.size % 2 else values.reshape(-1)
            packed = ((flat[::2] & 15) | (flat[1::2] & 15) << 4).astype(np.uint8)
            weights = net.tensor(kernel, data=packed, type_name="INT4", q=wq)
        else:
            weights = net.const(values, w, q=wq)
        if a[0] == "f":
            sums = np.abs(values).sum(tuple(i for i in range(len(kernel)) if i != axis))
            net.slack = float(4 / 255 * sums.max() * scales.max() * step)
    if b == "none":
        bias = None
    elif b[0] == "f":
        bias = net.const(rng().normal(size=units), b)
    else:
        bias = net.const(rng().integers(-900, 900, units), b, q=Scale(list(q.scale * scales * step)) if q else None)
    out = {"int8": Scale(0.11, 3), "uint8": Scale(0.11, 100), "int16": Scale(2**-10)}.get(a)
    return x, weights, bias, net.output(result, a, q=out)


def _given(*operands: int | None) -> list[int]:
    return [i for i in operands if i is not None]


@of("CONV_2D", WEIGHTS + SCALED)
def conv_2d(t: Typed) -> Net:
    x, w, b, y = weighted(t, (2, 7, 9, 4), (6, 3, 2, 4), 0, (2, 5, 8, 6))
    table = options("Conv2DOptions", padding=1, strideH=1, strideW=1, fusedActivationFunction=1)
    return t.net.op("CONV_2D", _given(x, w, b), [y], table)


@of("DEPTHWISE_CONV_2D", WEIGHTS + SCALED)
def depthwise_conv_2d(t: Typed) -> Net:
    x, w, b, y = weighted(t, (2, 7, 9, 4), (1, 3, 2, 8), 3, (2, 5, 8, 8))
    table = options("DepthwiseConv2DOptions", padding=1, strideH=1, strideW=1, depthMultiplier=2)
    return t.net.op("DEPTHWISE_CONV_2D", _given(x, w, b), [y], table)


@of("FULLY_CONNECTED", WEIGHTS + SCALED)
def fully_connected(t: Typed) -> Net:
    x, w, b, y = weighted(t, (3, 6), (5, 6), 0, (3, 5))
    return t.net.op("FULLY_CONNECTED", _given(x, w, b), [y], options("FullyConnectedOptions"))


@of("TRANSPOSE_CONV", WEIGHTS + SCALED)
def transpose_conv(t: Typed) -> Net:
    shape = t.ints([2, 8, 10, 3])
    x, w, b, y = weighted(t, (2, 4, 5, 4), (3, 3, 3, 4), 0, (2, 8, 10, 3))
    table = options("TransposeConvOptions", padding=0, strideH=2, strideW=2)
    return t.net.op("TRANSPOSE_CONV", [shape, *_given(w, x, b)], [y], table)


@of("CONV_3D", WEIGHTS + SCALED)
def conv_3d(t: Typed) -> Net:
    x, w, b, y = weighted(t, (2, 4, 5, 6, 3), (2, 3, 2, 3, 4), 4, (2, 3, 3, 5, 4))
    table = options("Conv3DOptions", padding=1, strideD=1, strideH=1, strideW=1)
    return t.net.op("CONV_3D", _given(x, w, b), [y], table)


@of("CONV_3D_TRANSPOSE", WEIGHTS + SCALED)
def conv_3d_transpose(t: Typed) -> Net:
    shape = t.ints([2, 4, 6, 8, 3])
    x, w, b, y = weighted(t, (2, 2, 3, 4, 5), (2, 3, 2, 3, 5), 3, (2, 4, 6, 8, 3))
    table = options("Conv3DOptions", padding=0, strideD=2, strideH=2, strideW=2)
    return t.net.op("CONV_3D_TRANSPOSE", [shape, *_given(w, x, b)], [y], table)


@of("BATCH_MATMUL", ("float32>float32", "float16>float16", "int8*>int8*", "uint8*>uint8*", "int16*>int16*",
                     "int16*>int8*",
                     "float32>int8*", "float32>float16", "int32>int32", "int64>int64", "int8>int8"))  # fmt: skip
def batch_matmul(t: Typed) -> Net:
    a, b = _two(t)
    x = a.x(2, 3, 5)
    if t.kind == "float32>int8*":
        values = rng().integers(-90, 90, (2, 5, 4))
        w = t.net.const(values, "int8", q=Scale(0.02))
        t.net.slack = float(6 / 255 * np.abs(values).sum(1).max() * 0.02)
    else:
        w = b.x(2, 5, 4)
    y = {"int8": Scale(0.2, 3), "uint8": Scale(0.2, 120), "int16": Scale(2**-9)} if a.quantized else None
    plain = t.net.output((2, 3, 4), "int32") if t.kind == "int8>int8" else None
    return t.net.op(
        "BATCH_MATMUL", [x, w], [plain if plain is not None else a.y(2, 3, 4, q=y)], options("BatchMatMulOptions")
    )


# StableHLO.

_HLO_UNARY = {"ABS": (-3, 3), "COSINE": (-3, 3), "EXPONENTIAL": (-3, 3), "FLOOR": (-3, 3), "LOG": (1, 9),
              "NEGATE": (-3, 3),
              "RSQRT": (1, 9), "TANH": (-3, 3), "LOGISTIC": (-3, 3), "CBRT": (1, 9)}  # fmt: skip
for _name, (_low, _high) in _HLO_UNARY.items():
    _moved(f"STABLEHLO_{_name}", lambda t, low=_low, high=_high: [t.x(*SHAPE, low=low, high=high)], SHAPE)
for _name in ("ADD", "SUBTRACT", "MULTIPLY", "MAXIMUM", "MINIMUM", "AND", "OR", "POWER"):
    _moved(f"STABLEHLO_{_name}", lambda t: [t.x(*SHAPE, low=1), t.x(*SHAPE, low=1)], SHAPE)
for _name in ("DIVIDE", "REMAINDER"):
    _moved(f"STABLEHLO_{_name}", lambda t: [t.x(*SHAPE, low=-90, high=90), t.x(*SHAPE, low=1, high=7)], SHAPE)
_moved("STABLEHLO_SHIFT_LEFT", lambda t: [t.x(*SHAPE, low=-9, high=9), t.x(*SHAPE, low=0, high=4)], SHAPE,
       lambda: options("StablehloShiftLeftOptions"), PLAIN)  # fmt: skip
_moved("STABLEHLO_RESHAPE", lambda t: [t.x(2, 3, 4)], (4, 6))
_moved("STABLEHLO_PAD", lambda t: [t.x(2, 3), t.const(1)], (4, 6),
       lambda: options("StablehloPadOptions", edgePaddingLow=[1, 0], edgePaddingHigh=[0, 1],
                       interiorPadding=[1, 1]))  # fmt: skip
_moved("STABLEHLO_GATHER", lambda t: [t.x(4, 5), t.ints([[1], [3]], "int64")], (2, 5),
       lambda: options("StablehloGatherOptions", offsetDims=[1], collapsedSliceDims=[0],
                       startIndexMap=[0], indexVectorDim=1, sliceSizes=[1, 5]))  # fmt: skip


_NEWEST = """
2 COS EXP FAKE_QUANT LOG SIGN SIN SQRT DIV LEAKY_RELU LOG_SOFTMAX L2_NORMALIZATION SQUARED_DIFFERENCE FLOOR_MOD
2 GREATER LESS_EQUAL SUM REDUCE_PROD DEPTH_TO_SPACE SPACE_TO_DEPTH SQUEEZE RANGE SELECT_V2 WHERE
3 LOGISTIC RELU RELU6 TANH RSQRT GELU FLOOR_DIV GREATER_EQUAL LESS AVERAGE_POOL_2D MAX_POOL_2D MEAN REDUCE_MAX
3 REDUCE_MIN TILE MIRROR_PAD SPARSE_TO_DENSE SPLIT_V ARG_MAX ARG_MIN TOPK_V2
4 SOFTMAX MAXIMUM MINIMUM NOT_EQUAL RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND
4 BROADCAST_TO REVERSE_V2 SELECT BATCH_MATMUL
5 ABS SUB EQUAL FILL PACK EMBEDDING_LOOKUP SPLIT TRANSPOSE_CONV
6 ADD PAD PADV2 GATHER_ND DYNAMIC_UPDATE_SLICE UNPACK QUANTIZE
7 CONCATENATION DEPTHWISE_CONV_2D
8 MUL SLICE STRIDED_SLICE GATHER CONV_2D
9 TRANSPOSE CAST DEQUANTIZE
14 FULLY_CONNECTED
"""
NEWEST = {name: int(line.split()[0]) for line in _NEWEST.strip().splitlines() for name in line.split()[1:]}
"""Operator -> the newest version that LiteRT has a kernel for, where it is not 1."""


def model(name: str, kind: str) -> Net:
    """The model of one cell of the matrix."""
    net = ROWS[name][0](Typed(Net(), kind))
    for code in net.model.operatorCodes:
        code.version = NEWEST.get(name, 1)
    return net


def cells() -> Iterator[tuple[str, str]]:
    for name, (_, kinds) in ROWS.items():
        for kind in kinds:
            yield name, kind
