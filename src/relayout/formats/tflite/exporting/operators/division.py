"""Quotients, remainders and powers: integers as exactly as runtimes of ONNX."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter


@exporter("Div")
def div(op: NodeExport) -> None:
    """DIV, which cuts integers off towards zero as ONNX does."""
    first, second = op.input(0), op.input(1)
    if first.type == TensorType.UINT32:
        wide = [op.cast(each, TensorType.INT64) for each in (first, second)]
        op.give(op.cast(_quotient(op, *wide), first.type))
    elif first.type == TensorType.INT64:
        _div_64(op, first, second)
    else:
        op.result("DIV", [first, second])


def _div_64(op: NodeExport, first: DraftTensor, second: DraftTensor) -> None:
    """Divide: extents in 32 bits; other numbers by ever better quotients in single precision, which ends exactly."""
    if is_extent(op.value(0)) and is_extent(op.value(1)):
        inner = op.div(op.cast(first, TensorType.INT32), op.cast(second, TensorType.INT32))
        op.result("CAST", [inner], in_data_type=TensorType.INT32, out_data_type=TensorType.INT64)
        return
    op.give(_quotient(op, first, second))


def _quotient(op: NodeExport, first: DraftTensor, second: DraftTensor) -> DraftTensor:
    """Return a quotient of 64 bits, cut off towards zero."""
    size, divisor = (op.maximum(each, op.each("NEG", each)) for each in (first, second))
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


EXTENTS = frozenset(  # operators that make extents of extents
    [
        "Shape",
        "Size",
        "Gather",
        "Slice",
        "Squeeze",
        "Unsqueeze",
        "Reshape",
        "Cast",
        "Concat",
        "Add",
        "Sub",
        "Mul",
        "Div",
    ]
)


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


@exporter("Pow")
def power(op: NodeExport) -> None:
    """SQUARE, SQRT, RSQRT, products and quotients where the exponent is a constant that allows it; else POW.

    Integers of 64 bits, and exponents that POW of integers lacks: products of squares.
    """
    base, exponent = op.input(0), op.constant(1)
    known = None if exponent is None or exponent.size != 1 else float(exponent.reshape(-1)[0])
    if base.type == TensorType.FLOAT32 and known is not None and 1 <= abs(2 * known) <= 8 and (2 * known).is_integer():
        op.give(_power_of_halves(op, base, int(2 * known)))
        return
    if base.quantization is not None and known == -0.5:
        op.result("RSQRT", [base])
        return
    if known is not None and base.type != TensorType.FLOAT32 and known in range(9):
        op.give(_whole_power(op, base, int(known)))
        return
    if base.type not in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64):
        raise Unwritable(f"powers of {base.type.name}")
    is_real = op.input(1).type == TensorType.FLOAT32
    if base.type == TensorType.INT64 or (
        base.type == TensorType.INT32 and (is_real or (exponent is not None and (exponent < 0).any()))
    ):
        op.give(_integer_power(op, base, op.input(1)))
        return
    times = op.cast(op.input(1), base.type)
    if base.type == TensorType.INT32 and exponent is None:  # the kernel refuses numbers below 0
        power = op.each("POW", base, op.maximum(times, op.each("NEG", times)))
        is_large = op.compare("GREATER", op.maximum(base, op.each("NEG", base)), 1)
        op.give(op.select(op.both(op.compare("LESS", times, 0), is_large), 0, power))
        return
    op.result("POW", [base, times])


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
    size, most = op.maximum(whole, op.each("NEG", whole)), (1 << POWER_BITS) - 1
    is_odd = op.each("FLOOR_MOD", size, 2)
    bits = op.cast(op.select(op.compare("GREATER", size, most), op.add(is_odd, most - 1), size), TensorType.INT32)
    square, power = wide, op.select(op.compare("EQUAL", is_odd, 0), op.add(op.mul(wide, 0), 1), wide)
    for place in range(1, POWER_BITS):
        square = op.mul(square, square)
        bit = op.each("FLOOR_MOD", op.each("RIGHT_SHIFT", bits, place), 2)
        power = op.mul(power, op.select(op.compare("EQUAL", bit, 0), op.const(np.array(1)), square))
    is_large = op.compare("GREATER", op.maximum(wide, op.each("NEG", wide)), 1)
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
    result = wide
    for _ in range(exponent - 1):
        result = op.mul(result, wide)
    return op.cast(result, base.type)


@exporter("Mod")
def mod(op: NodeExport) -> None:
    """FLOOR_MOD; with `fmod` that of the sizes, with the sign of the first operand."""
    first, second = op.input(0), op.input(1)
    if not op.integer("fmod"):
        op.result("FLOOR_MOD", [first, second])
        return
    kind = first.type
    if kind not in (TensorType.FLOAT32, TensorType.INT32, TensorType.INT64):
        wide = TensorType.INT64 if kind == TensorType.UINT32 else TensorType.INT32
        first, second = op.cast(first, wide), op.cast(second, wide)
    sizes = [op.maximum(each, op.each("NEG", each)) for each in (first, second)]
    rest = op.each("FLOOR_MOD", *sizes)
    signed = op.select(op.compare("LESS", first, 0), op.each("NEG", rest), rest)
    op.give(op.cast(signed, kind))
