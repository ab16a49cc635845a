"""Operators on each element by itself, activations included."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial, reduce

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import BITS
from relayout.formats.tflite.exporting.builder import stretched
from relayout.formats.tflite.exporting.draft import NUMPY, DraftTensor, known
from relayout.formats.tflite.exporting.kernel_types import stored_type
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Formula, Unwritable, each_exporter, exporter, formulas
from relayout.formats.tflite.same_operators import ARITHMETIC, COMPARISONS, LOGICAL, UNARY


def _cosine(op: NodeExport, x: DraftTensor) -> DraftTensor:
    """Return the cosine of an angle by its sine, or the other way round."""
    return op.each("SQRT", op.mul(op.sub(1.0, x), op.add(x, 1.0)))


def _above_and_below(op: NodeExport, x: DraftTensor, alpha: float, gamma: float = 1.0) -> DraftTensor:
    """Return `gamma x` above 0, and `gamma alpha (exp(x) - 1)` below."""
    below = op.mul(op.sub(op.each("EXP", op.minimum(x, 0.0)), 1.0), alpha * gamma)
    above = op.each("RELU", x)
    return op.add(above if gamma == 1.0 else op.mul(above, gamma), below)


def _elu(op: NodeExport, x: DraftTensor) -> DraftTensor:
    alpha = op.number("alpha", 1.0)
    return op.each("ELU", x) if alpha == 1.0 else _above_and_below(op, x, alpha)


def _celu(op: NodeExport, x: DraftTensor) -> DraftTensor:
    alpha = op.number("alpha", 1.0)
    if alpha <= 0:
        raise Unwritable("an alpha that is not above 0")
    below = op.mul(op.minimum(op.each("ELU", op.mul(x, 1.0 / alpha)), 0.0), alpha)
    return op.add(op.each("RELU", x), below)


def _gated(op: NodeExport, x: DraftTensor, alpha: float) -> DraftTensor:
    return op.mul(x, op.each("LOGISTIC", x if alpha == 1.0 else op.mul(x, alpha)))


def _hard_sigmoid(op: NodeExport, x: DraftTensor) -> DraftTensor:
    factor = 6 * op.number("alpha", 0.2)
    scaled = x if abs(factor - 1) < 1e-6 else op.mul(x, factor)
    return op.mul(op.each("RELU6", op.add(scaled, 6 * op.number("beta", 0.5))), 1 / 6)


def _softplus(op: NodeExport, x: DraftTensor) -> DraftTensor:
    log = op.each("LOG", op.add(op.each("EXP", op.each("NEG", op.each("ABS", x))), 1.0))
    return op.add(op.each("RELU", x), log)


def _absolute(op: NodeExport, x: DraftTensor) -> DraftTensor:
    if x.type.name.startswith("UINT"):
        return x
    return _size(op, x) if x.type == TensorType.INT64 else op.each("ABS", x)


def _sign(op: NodeExport, x: DraftTensor) -> DraftTensor:
    if x.type in (TensorType.FLOAT32, TensorType.INT32):
        return op.each("SIGN", x)
    low = op.minimum(x, 1)
    return op.maximum(low, -1) if np.issubdtype(NUMPY[x.type], np.signedinteger) else low


def _is_infinite(op: NodeExport, x: DraftTensor) -> DraftTensor:
    positive, negative = op.integer("detect_positive", 1), op.integer("detect_negative", 1)
    if not positive and not negative:
        return op.both(op.compare("NOT_EQUAL", x, x), op.const(np.array(False)))
    return op.compare("EQUAL", op.each("ABS", x) if positive and negative else x, np.inf if positive else -np.inf)


def _asinh(op: NodeExport, x: DraftTensor) -> DraftTensor:
    size = op.each("ABS", x)
    root = op.each("SQRT", op.add(op.mul(size, size), 1.0))
    return op.mul(op.each("SIGN", x), op.each("LOG", op.add(size, root)))


def _erf(op: NodeExport, x: DraftTensor) -> DraftTensor:
    # gelu(z) = z/2 (1 + erf(z / sqrt 2)). With z = sqrt(2) x, away from 0: erf(x) = 2 gelu(z) / z - 1.
    wide = op.mul(x, math.sqrt(2))
    small = op.compare("LESS", op.each("ABS", x), 1e-3)
    safe = op.select(small, 1.0, wide)
    far = op.sub(op.div(op.mul(op.each("GELU", safe), 2.0), safe), 1.0)
    return op.select(small, op.mul(x, 2 / math.sqrt(math.pi)), far)


def _shrink(op: NodeExport, x: DraftTensor) -> DraftTensor:
    limit, bias = op.number("lambd", 0.5), op.number("bias", 0.0)
    number = op.cast(x, TensorType.FLOAT32)  # of integers, too: bounds need not be whole
    inner = op.select(op.compare("GREATER", number, limit), op.sub(number, bias), 0.0)
    return op.cast(op.select(op.compare("LESS", number, -limit), op.add(number, bias), inner), x.type)


FORMULAS = {
    "Abs": Formula(
        "ABS; of 64 bits MAXIMUM of the operand and its negation, unsigned integers as they are.", _absolute
    ),
    "Acos": Formula("ATAN2 of the sine, `sqrt((1 - x) (1 + x))`.", lambda op, x: op.each("ATAN2", _cosine(op, x), x)),
    "Acosh": Formula(
        "LOG of the operand and the root of its square less 1.",
        lambda op, x: op.each(
            "LOG", op.add(x, op.mul(op.each("SQRT", op.sub(x, 1.0)), op.each("SQRT", op.add(x, 1.0))))
        ),
    ),
    "Asin": Formula(
        "ATAN2 with the cosine, `sqrt((1 - x) (1 + x))`.", lambda op, x: op.each("ATAN2", x, _cosine(op, x))
    ),
    "Asinh": Formula("LOG of the size and the root of its square and 1, with the operand's sign.", _asinh),
    # ATAN2 stretches nothing, so its second operand is ones of the operand's extents.
    "Atan": Formula("ATAN2 with 1.", lambda op, x: op.each("ATAN2", x, op.minimum(op.maximum(x, 1.0), 1.0))),
    "Atanh": Formula(
        "Half the LOG of `(1 + x) / (1 - x)`.",
        lambda op, x: op.mul(op.each("LOG", op.div(op.add(x, 1.0), op.sub(1.0, x))), 0.5),
    ),
    "Celu": Formula("ELU between a division and a product.", _celu),
    "Elu": Formula("ELU; with another alpha MAXIMUM, MINIMUM, EXP, SUB, MUL and ADD.", _elu),
    "Erf": Formula("GELU divided by its operand; a product near 0.", _erf),
    "HardSigmoid": Formula(
        "`RELU6(6 alpha x + 6 beta) / 6`: MUL where alpha is not 1/6, ADD and MUL, in 0.8 of the time of RELU_0_TO_1.",
        _hard_sigmoid,
    ),
    "Identity": Formula("Nothing: its operand.", lambda op, x: x),
    "IsInf": Formula("EQUAL with an infinity; with both, of the operand's size.", _is_infinite),
    "IsNaN": Formula("NOT_EQUAL with itself.", lambda op, x: op.compare("NOT_EQUAL", x, x)),
    "LeakyRelu": Formula("LEAKY_RELU.", lambda op, x: op.each("LEAKY_RELU", x, alpha=op.number("alpha", 0.01))),
    "Mish": Formula("A product with TANH of Softplus.", lambda op, x: op.mul(x, op.each("TANH", _softplus(op, x)))),
    "Reciprocal": Formula("DIV.", lambda op, x: op.div(1.0, x)),
    "Relu": Formula(
        "RELU; MAXIMUM with 0 of integers that stand for themselves.",
        lambda op, x: op.each("RELU", x) if x.type == TensorType.FLOAT32 or op.quantized else op.maximum(x, 0),
    ),
    "Selu": Formula(
        "RELU, EXP and sums.",
        lambda op, x: _above_and_below(op, x, op.number("alpha", 1.6732632), op.number("gamma", 1.0507010)),
    ),
    "Shrink": Formula("LESS, GREATER and SELECT_V2, on real numbers.", _shrink),
    "Sign": Formula("SIGN.", _sign),
    "Softplus": Formula("`max(x, 0) + log(1 + exp(-|x|))`.", _softplus),
    "Softsign": Formula("ABS, ADD and DIV.", lambda op, x: op.div(x, op.add(op.each("ABS", x), 1.0))),
    "Swish": Formula("MUL with LOGISTIC.", lambda op, x: _gated(op, x, op.number("alpha", 1.0))),
    "Tan": Formula("SIN divided by COS.", lambda op, x: op.div(op.each("SIN", x), op.each("COS", x))),
    "ThresholdedRelu": Formula(
        "GREATER and SELECT_V2.",
        lambda op, x: op.select(op.compare("GREATER", x, op.number("alpha", 1.0)), x, 0.0),
    ),
}


formulas(FORMULAS)


@each_exporter({"Sinh": "SUB"}, "Half the difference of EXP of the operand and of its negation.")
@each_exporter({"Cosh": "ADD"}, "Half the sum of EXP of the operand and of its negation.")
def _half_exponentials(op: NodeExport, builtin: str) -> None:
    """Combine exp(x) / 2 and exp(-x) / 2, each as a product of roots: exp(x) alone overflows earlier."""
    half = op.mul(op.input(0), 0.5)
    up, down = op.each("EXP", half), op.each("EXP", op.each("NEG", half))
    op.give(op.each(builtin, op.mul(op.mul(up, 0.5), up), op.mul(op.mul(down, 0.5), down)))


_ALSO = {"EXP": "Exp", "LOG": "Log", "NEG": "Neg", "NOT_EQUAL": "Xor", "SELECT_V2": "Where", "TANH": "Tanh"}
"""Builtins that the importer reads otherwise."""


@each_exporter({v: k for k, v in {**UNARY, **ARITHMETIC, **LOGICAL, **COMPARISONS, **_ALSO}.items()}, "{}.")
def _literal(op: NodeExport, builtin: str) -> None:
    op.result(builtin, op.inputs())


@each_exporter({"Max": "MAXIMUM", "Min": "MINIMUM", "Sum": "ADD"}, "{}, pair by pair.")
def _variadic(op: NodeExport, builtin: str) -> None:
    *before, last = op.inputs()
    if before:
        op.result(builtin, [reduce(partial(op.each, builtin), before), last])
    else:
        op.give(last)


@exporter("Mean")
def mean(op: NodeExport) -> None:
    """ADD, pair by pair, and MUL."""
    tensors = op.inputs()
    op.result("MUL", [reduce(op.add, tensors), op.tensor(1.0 / len(tensors), tensors[0].type)])


CASTS = {
    "Cast": "CAST; of numbers above 8 bits to truth values NOT_EQUAL with 0; of 64 bits to a sign or from one BITCAST.",
    "CastLike": "CAST, as Cast is written.",
}


@each_exporter(CASTS, "{}")
def _cast(op: NodeExport, _: str) -> None:
    operand, kind, stored = op.input(0), op.output(0).type, op.stored_type()
    if stored == TensorType.FLOAT16 and op.value(0).dtype not in (ir.DataType.FLOAT16, ir.DataType.BOOL):
        op.draft.add_cast(op.cast(operand, stored), op.output(0))
    elif operand.type == kind:
        op.give(operand)
    elif kind == TensorType.BOOL and BITS[operand.type] > 8:  # bytes have a meaning there, which CAST does not want
        op.result("NOT_EQUAL", [operand, op.tensor(0, operand.type)])
    elif {operand.type, kind} == {TensorType.INT64, TensorType.UINT64}:
        op.result("BITCAST", [operand])
    else:
        op.draft.add_cast(operand, op.output(0))


# Activations.


def _prelu(op: NodeExport, x: DraftTensor) -> DraftTensor:
    slope, dims = op.input(1), x.dims
    ones = (1,) * (len(dims) - 1 - len(slope.dims))
    tail = slope.dims[len(slope.dims) - len(dims) + 1 :] if len(slope.dims) >= len(dims) else ones + slope.dims
    fits = len(dims) > 1 and len(tail) == len(dims) - 1 and all(dim in (1, dims[i + 1]) for i, dim in enumerate(tail))
    if fits and slope.data is not None and (len(slope.dims) < len(dims) or slope.dims[0] == 1):
        return op.each("PRELU", x, op.reshape(slope, tail))
    if op.quantized:
        raise Unwritable("slopes of other axes than the last ones")
    below = op.mul(op.minimum(x, 0.0), slope)
    return op.add(op.each("RELU", x), below)


def _gelu(op: NodeExport, x: DraftTensor) -> DraftTensor:
    if op.op_type == "QuickGelu":
        return _gated(op, x, op.number("alpha", 1.702))
    x = op.add(x, op.input(1)) if op.op_type == "FastGelu" and op.has(1) else x
    approximate = op.op_type == "FastGelu" or op.text("approximate", "none") == "tanh"
    return op.each("GELU", x, approximate=approximate)


CLIPS: Mapping[tuple[float | None, float | None], str] = {
    (0.0, math.inf): "RELU",
    (0.0, 6.0): "RELU6",
    (-1.0, 1.0): "RELU_N1_TO_1",
    (0.0, 1.0): "RELU_0_TO_1",
}
"""Bounds of a Clip -> the activation that it is."""


def _clip(op: NodeExport, x: DraftTensor) -> DraftTensor:
    low, high = _bound(op, 1, "min", -math.inf), _bound(op, 2, "max", math.inf)
    name = CLIPS.get((low, high)) if x.type == TensorType.FLOAT32 or op.quantized else None
    if name is not None:
        return op.each(name, x)
    if op.quantized:
        raise Unwritable("bounds of a quantized Clip that no activation has")
    result = x
    for slot, builtin, bound, none in ((1, "MAXIMUM", low, -math.inf), (2, "MINIMUM", high, math.inf)):
        if bound != none:
            limit = op.input(slot) if bound is None else np.asarray(bound, NUMPY[x.type])
            result = op.each(builtin, result, limit)
    return result


def _bound(op: NodeExport, slot: int, name: str, default: float) -> float | None:
    """Return a bound of a Clip; None where it is computed."""
    if op.node.attributes.get(name) is not None:
        value = op.number(name)
        return math.copysign(math.inf, value) if abs(value) >= float(np.finfo(np.float32).max) else value
    if not op.has(slot):
        return default
    array = op.constant(slot)
    if array is None:
        return None
    value = float(array.reshape(-1)[0])
    kind = array.dtype
    limit = float(np.finfo(kind).max) if np.issubdtype(kind, np.floating) else math.inf
    return math.copysign(math.inf, value) if abs(value) >= limit else value


# Quotients, remainders and powers: integers as exactly as runtimes of ONNX.


def _div(op: NodeExport, x: DraftTensor) -> DraftTensor:
    y = op.input(1)
    if x.type == TensorType.UINT32:
        return op.cast(_quotient(op, op.cast(x, TensorType.INT64), op.cast(y, TensorType.INT64)), x.type)
    if x.type != TensorType.INT64:
        return op.div(x, y)
    if not is_extent(op.value(0)) or not is_extent(op.value(1)):
        return _quotient(op, x, y)
    return op.cast(op.div(op.cast(x, TensorType.INT32), op.cast(y, TensorType.INT32)), TensorType.INT64)


def _size(op: NodeExport, x: DraftTensor) -> DraftTensor:
    """Return integers without their sign."""
    return op.maximum(x, op.each("NEG", x))


def _quotient(op: NodeExport, first: DraftTensor, second: DraftTensor) -> DraftTensor:
    """Return a quotient of 64 bits, cut off towards zero: by ever better ones in single precision, exact in the end."""
    size, divisor = _size(op, first), _size(op, second)
    real = op.cast(divisor, TensorType.FLOAT32)
    quotient, rest = op.mul(size, 0), size
    for _ in range(3):  # each round leaves 2^-22 of the rest
        part = op.each("FLOOR", op.div(op.cast(rest, TensorType.FLOAT32), real))
        whole = op.cast(op.minimum(part, 9.2e18), TensorType.INT64)
        quotient, rest = op.add(quotient, whole), op.sub(rest, op.mul(whole, divisor))
    for _ in range(2):
        below = op.cast(op.compare("LESS", rest, 0), TensorType.INT64)
        above = op.cast(op.compare("GREATER_EQUAL", rest, divisor), TensorType.INT64)
        change = op.sub(above, below)
        quotient, rest = op.add(quotient, change), op.sub(rest, op.mul(change, divisor))
    signs = op.each("NOT_EQUAL", op.compare("LESS", first, 0), op.compare("LESS", second, 0))
    return op.select(signs, op.each("NEG", quotient), quotient)


_EXTENTS = "Shape Size Gather Slice Squeeze Unsqueeze Reshape Cast Concat Add Sub Mul Div"
EXTENTS = frozenset(_EXTENTS.split())  # operators that make extents of extents


def is_extent(value: ir.Value | None, depth: int = 12) -> bool:
    """Return whether integers are extents, or computed of such: they fit into 32 bits."""
    if value is None or depth == 0:
        return False
    if value.const_value is not None:
        constant = value.const_value
        return constant.size <= 16 and bool((np.abs(constant.numpy().astype(np.float64)) < 1 << 24).all())
    node = value.producer()
    if node is None or node.domain or node.op_type not in EXTENTS:
        return False
    return node.op_type in ("Shape", "Size") or all(is_extent(each, depth - 1) for each in node.inputs if each)


def _power(op: NodeExport, base: DraftTensor) -> DraftTensor:
    """Integers of 64 bits, and exponents that POW of integers lacks, are products of squares."""
    exponent = op.constant(1)
    known = None if exponent is None or exponent.size != 1 else float(exponent.reshape(-1)[0])
    if base.type == TensorType.FLOAT32 and known is not None and 1 <= abs(2 * known) <= 8 and (2 * known).is_integer():
        return _power_of_halves(op, base, int(2 * known))
    if base.quantization is not None and known == -0.5:
        return op.each("RSQRT", base)
    if known is not None and base.type != TensorType.FLOAT32 and known in range(9):
        return _whole_power(op, base, int(known))
    if base.type not in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64):
        raise Unwritable(f"powers of {base.type.name}")
    is_real = op.input(1).type == TensorType.FLOAT32
    if base.type == TensorType.INT64 or (
        base.type == TensorType.INT32 and (is_real or (exponent is not None and (exponent < 0).any()))
    ):
        return _integer_power(op, base, op.input(1))
    times = op.cast(op.input(1), base.type)
    if base.type == TensorType.INT32 and exponent is None:  # the kernel refuses numbers below 0
        power = op.each("POW", base, _size(op, times))
        is_large = op.compare("GREATER", _size(op, base), 1)
        return op.select(op.both(op.compare("LESS", times, 0), is_large), 0, power)
    return op.each("POW", base, times)


def _power_of_halves(op: NodeExport, base: DraftTensor, halves: int) -> DraftTensor:
    """Return a tensor to the power of some halves: a POW takes a hundred times as long as a product."""
    if halves == -1:
        return op.each("RSQRT", base)
    whole, half = divmod(abs(halves), 2)
    factors = [op.each("SQRT", base)] if half else []
    power = base
    while whole:
        if whole % 2:
            factors.append(power)
        whole //= 2
        power = op.each("SQUARE", power) if whole else power
    result, *others = factors[::-1]
    for factor in others:
        result = op.mul(result, factor)
    return op.div(1.0, result) if halves < 0 else result


POWER_BITS = 6  # bits of the exponents up to which a power other than of 0, 1 and -1 fits into 64 bits


def _integer_power(op: NodeExport, base: DraftTensor, exponent: DraftTensor) -> DraftTensor:
    """Return integers to powers: the product of the squares of squares that the bits of an exponent ask for.

    A power by a number below 0 is 1 divided by a product, cut off. One that is no whole number is a POW.
    """
    wide, whole = op.cast(base, TensorType.INT64), op.cast(exponent, TensorType.INT64)
    size, most = _size(op, whole), (1 << POWER_BITS) - 1
    is_odd = op.each("FLOOR_MOD", size, 2)
    bits = op.cast(op.select(op.compare("GREATER", size, most), op.add(is_odd, most - 1), size), TensorType.INT32)
    square, power = wide, op.select(op.compare("EQUAL", is_odd, 0), op.add(op.mul(wide, 0), 1), wide)
    for place in range(1, POWER_BITS):
        square = op.mul(square, square)
        bit = op.each("FLOOR_MOD", op.each("RIGHT_SHIFT", bits, place), 2)
        power = op.mul(power, op.select(op.compare("EQUAL", bit, 0), op.const(np.array(1)), square))
    is_large = op.compare("GREATER", _size(op, wide), 1)
    power = op.select(op.both(op.compare("LESS", whole, 0), is_large), 0, power)
    if exponent.type == TensorType.FLOAT32:
        real = op.each("POW", op.cast(base, TensorType.FLOAT32), exponent)
        power = op.select(op.compare("EQUAL", op.each("FLOOR", exponent), exponent), power, op.cast(real, power.type))
    return op.cast(power, base.type)


def _whole_power(op: NodeExport, base: DraftTensor, exponent: int) -> DraftTensor:
    """Return a tensor times itself, as often as an exponent says."""
    wide = base if base.type in (TensorType.INT32, TensorType.INT64) else op.cast(base, TensorType.INT32)
    if not exponent:
        return op.cast(op.add(op.mul(wide, 0), 1), base.type)
    return op.cast(reduce(op.mul, [wide] * exponent), base.type)


def _mod(op: NodeExport, x: DraftTensor) -> DraftTensor:
    y, kind = op.input(1), x.type
    if not op.integer("fmod"):
        return op.each("FLOOR_MOD", x, y)
    if kind not in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64):
        wide = TensorType.INT64 if kind == TensorType.UINT32 else TensorType.INT32
        x, y = op.cast(x, wide), op.cast(y, wide)
    rest = op.each("FLOOR_MOD", _size(op, x), _size(op, y))
    return op.cast(op.select(op.compare("LESS", x, 0), op.each("NEG", rest), rest), kind)


GELU = Formula("GELU; QuickGelu as a product with LOGISTIC.", _gelu)
formulas(dict.fromkeys(("Gelu", "FastGelu", "QuickGelu"), GELU), "com.microsoft")
formulas(
    {
        "Clip": Formula(
            "RELU, RELU6, RELU_N1_TO_1 or RELU_0_TO_1 where its bounds are these; else MAXIMUM and MINIMUM.", _clip
        ),
        "Div": Formula("DIV, which cuts integers off towards zero as ONNX does.", _div),
        "Gelu": GELU,
        "Mod": Formula("FLOOR_MOD; with `fmod` of the absolute values, with the sign of the first operand.", _mod),
        "Pow": Formula(
            "SQUARE, SQRT, RSQRT, products and quotients where the exponent is a constant that allows it; else POW.",
            _power,
        ),
        "PRelu": Formula("PRELU with a slope for each channel; with others a sum of RELU and a product.", _prelu),
    }
)


# Operators on bits.


WIDE = (TensorType.INT64, TensorType.UINT64)  # LiteRT has no BITWISE_XOR and no shifts of them, only of their halves


def _alike(op: NodeExport, *tensors: DraftTensor) -> list[DraftTensor]:
    """Return tensors stretched to each other, which STABLEHLO_AND does not do by itself."""
    dims = stretched(*(tensor.dims for tensor in tensors))
    return [tensor if tensor.dims == dims else op.stretch(tensor, known(dims)) for tensor in tensors]


def bitcast(op: NodeExport, tensor: DraftTensor, kind: TensorType) -> DraftTensor:
    """Return the same bits as elements of another type of the same width."""
    if tensor.type == kind:
        return tensor
    return op.emit("BITCAST", [tensor], tensor.dims, kind)


def _halves(op: NodeExport, tensor: DraftTensor) -> DraftTensor:
    """Return integers of 64 bits as two of 32 each, along a new last axis."""
    return op.emit("BITCAST", [tensor], (*tensor.dims, 2), TensorType.INT32)


def _whole(op: NodeExport, halves: DraftTensor, kind: TensorType) -> DraftTensor:
    return op.emit("BITCAST", [halves], halves.dims[:-1], kind)


def _xor(op: NodeExport, first: DraftTensor, second: DraftTensor) -> DraftTensor:
    if first.type not in WIDE:
        return op.each("BITWISE_XOR", first, second)
    first, second = _alike(op, first, second)
    return _whole(op, op.each("BITWISE_XOR", _halves(op, first), _halves(op, second)), first.type)


def _or(op: NodeExport, x: DraftTensor) -> DraftTensor:
    first, second = _alike(op, x, op.input(1))
    return _xor(op, _xor(op, first, second), op.each("STABLEHLO_AND", first, second))


def _not(op: NodeExport, x: DraftTensor) -> DraftTensor:
    if x.type in WIDE:
        return _whole(op, op.each("BITWISE_XOR", _halves(op, x), -1), x.type)
    kind = np.dtype(x.type.name.lower())
    return op.each("BITWISE_XOR", x, op.const(np.array(-1 if kind.kind == "i" else np.iinfo(kind).max, kind)))


BITWISE = {
    "BitwiseAnd": Formula("STABLEHLO_AND.", lambda op, x: op.each("STABLEHLO_AND", *_alike(op, x, op.input(1)))),
    "BitwiseNot": Formula("BITWISE_XOR with all bits.", _not),
    "BitwiseOr": Formula("BITWISE_XOR of both and of what they have in common.", _or),
    "BitwiseXor": Formula("BITWISE_XOR; of 64 bits by halves.", lambda op, x: _xor(op, x, op.input(1))),
}
formulas(BITWISE)


@exporter("BitShift")
def bit_shift(op: NodeExport) -> None:
    """RIGHT_SHIFT, of 64 bits by halves, or STABLEHLO_SHIFT_LEFT, of 64 bits MUL with a power of 2.

    No bit is left of many.
    """
    operand, amount = op.input(0), op.input(1)
    kind, is_left = operand.type, op.text("direction") == "LEFT"
    fits = None
    if amount.array is None or (amount.array < 0).any() or (amount.array >= BITS[kind]).any():
        alike = bitcast(op, amount, TensorType.INT64) if kind == TensorType.UINT64 else amount
        fits = op.both(op.compare("GREATER_EQUAL", alike, 0), op.compare("LESS", alike, BITS[kind]))
        signed = not is_left and kind.name.startswith("INT")
        amount = op.select(fits, amount, BITS[kind] - 1 if signed else 0)
        fits = None if signed else fits
    shifted_tensor = _shifted_left(op, operand, amount) if is_left else _shifted_right(op, operand, amount)
    op.give(shifted_tensor if fits is None else op.select(fits, shifted_tensor, 0))


def _shifted_left(op: NodeExport, operand: DraftTensor, amount: DraftTensor) -> DraftTensor:
    kind = operand.type
    if kind in WIDE:
        powers = op.const(np.int64(1) << np.arange(64, dtype=np.int64))
        factor = op.gather(powers, op.cast(bitcast(op, amount, TensorType.INT64), TensorType.INT32), 0)
        return bitcast(op, op.mul(bitcast(op, operand, TensorType.INT64), factor), kind)
    if BITS[kind] == 32:
        words = [bitcast(op, tensor, TensorType.INT32) for tensor in (operand, amount)]
        return bitcast(op, op.each("STABLEHLO_SHIFT_LEFT", *_alike(op, *words)), kind)
    words = [op.cast(tensor, TensorType.INT32) for tensor in (operand, amount)]
    return op.cast(op.each("STABLEHLO_SHIFT_LEFT", *_alike(op, *words)), kind)


def _shifted_right(op: NodeExport, operand: DraftTensor, amount: DraftTensor) -> DraftTensor:
    """Return integers shifted by fewer bits than they have.

    Of 64 bits, `high low`: by n < 32 they are `high >> n` and `low >> n | high << 32 - n`; by more, `high >> 31` or 0,
    and `high >> n - 32`.
    """
    kind = operand.type
    if kind not in WIDE:
        return op.each("RIGHT_SHIFT", operand, amount)
    operand, amount = _alike(op, operand, amount)
    halves, half = _halves(op, operand), TensorType.INT32 if kind == TensorType.INT64 else TensorType.UINT32
    low, high = (op.at(halves, -1, place) for place in (0, 1))
    count = op.cast(bitcast(op, amount, TensorType.INT64), TensorType.INT32)
    is_near, few, more = op.compare("LESS", count, 32), op.minimum(count, 31), op.maximum(op.sub(count, 32), 0)

    def shifted(tensor: DraftTensor, bits: DraftTensor, kind: TensorType) -> DraftTensor:
        shifted_half = op.each("RIGHT_SHIFT", bitcast(op, tensor, kind), bitcast(op, bits, kind))
        return bitcast(op, shifted_half, TensorType.INT32)

    carried = op.each("STABLEHLO_SHIFT_LEFT", op.add(high, high), op.sub(31, few))
    below = op.select(is_near, op.add(shifted(low, few, TensorType.UINT32), carried), shifted(high, more, half))
    signs = shifted(high, op.ints([31]), half) if half == TensorType.INT32 else 0
    above = op.select(is_near, shifted(high, few, half), signs)
    return _whole(op, op.stack([below, above], -1), kind)


@exporter("BitCast")
def bit_cast(op: NodeExport) -> None:
    """BITCAST."""
    operand, kind = op.input(0), op.stored_type()
    if TensorType.FLOAT16 in (kind, stored_type(op.value(0))):
        raise Unwritable("bits of half precision")
    op.result("BITCAST", [operand])
