"""What a target has for a quantized unit, `DequantizeLinear -> operator -> QuantizeLinear`: an operator on integers.

A row says which operator runs the unit and how its operands are named there. The numbers of a unit are judged here, in
real arithmetic: what a row gives differs from the unit by less than one step of the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from relayout import arguments
from relayout.errors import LayoutError
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import Condition, clip_bounds
from relayout.lowering.table_checks import check_operators, check_types
from relayout.rules import Attribute, Operator

Reals = NDArray[np.float64]

QUANTIZING, DEQUANTIZING = frozenset({"QuantizeLinear"}), frozenset({"DequantizeLinear"})
"""The ends of a unit."""
BYTES = ("INT8", "UINT8")
STEP_SHARE = 0.25
"""Of a step of the result: what constants of a unit may be off by once they are integers; the rest is for rounding."""
LARGEST_WEIGHT, LARGEST_BIAS = 127, 2**30


_OPERAND = re.compile(r"y|\d+[=wbq.]?|\*[=.]?")


def _same(_: Operator) -> Mapping[str, Attribute | None]:
    return {}


def _none(_: Operator) -> tuple[int, ...]:
    return ()


_UNIT = {
    "op_types": arguments.WORDS,
    "written": arguments.TEXT,
    "operands": arguments.TEXT,
    "limits": arguments.several_of(Condition),
    "ranks": arguments.several("a tuple of ranks, such as (4,)", arguments.whole(0).fits),
    "types": arguments.several("a tuple of element types, such as ('INT8',)", arguments.TEXT.fits),
    **dict.fromkeys(("affine", "early", "reals"), arguments.FLAG),
    **dict.fromkeys(("channel", "attributes", "squeezed"), arguments.FUNCTION),
}


@dataclass(frozen=True)
class Unit:
    """A row: an operator between DequantizeLinear and QuantizeLinear, and the operator on integers that runs all three.

    Args:
        op_types: names of operators; one string may hold several.
        written: the operator that runs the unit: `com.microsoft:QLinearAdd`; empty: the operator itself.
        operands: its inputs in order, by the operand of the operator that each comes from:
            `0`: its integers, scale and zero point; `0=`: its integers, quantized as the result is; `1w`: a kernel,
            whose scales may lie per output channel; `2b`: a bias, in steps of the products of the scales of data and
            kernel; `2q`: a constant, in steps of the result (absent: 0); `0.`: as it is; `*`, `*=`, `*.`: the same of
            all operands that follow; `y`: the scale and the zero point of the result.
        channel: the axis of a kernel along which its scales may lie.
        limits: what must hold of the operator besides.
        ranks: ranks of input 0; empty: any.
        types: of the data's integers.
        attributes: what the operator on integers says otherwise; None removes an attribute.
        squeezed: the axes, ascending, of extent 1 that the operator on integers gives and the unit does not.
        affine: the operator, with constants in all other operands, is a scale and a shift per channel: a depthwise
            convolution of one element, whose weights are made here. `operands` has no meaning then.
        early: its one operand (`0=`) may be real. It is quantized before the operator, as the result is: the operator
            picks the largest elements, and rounding keeps their order.
        reals: the operator stays on real numbers where they were dequantized, as the node `written`: as it is, the
            runtime would make an operator on integers of it that takes longer. `operands` has no meaning then.
    """

    op_types: str
    written: str = ""
    operands: str = ""
    channel: Callable[[Operator], int] = lambda _: 0
    limits: tuple[Condition, ...] = ()
    ranks: tuple[int, ...] = ()
    types: tuple[str, ...] = BYTES
    attributes: Callable[[Operator], Mapping[str, Attribute | None]] = _same
    squeezed: Callable[[Operator], tuple[int, ...]] = _none
    affine: bool = False
    early: bool = False
    reals: bool = False

    def __post_init__(self) -> None:
        """See that the row can be meant.

        Raises:
            LayoutError: a column holds something else, or there is no such element type or operand.
        """
        where = f"a unit of {self.op_types}: "
        arguments.check_fields(self, where, LayoutError, **_UNIT)
        check_types(self.types, where)
        check_operators(self.op_types.split())
        if self.reals and ":" not in self.written:
            raise LayoutError(f"{where}reals wants a node of another domain; it has written={self.written!r}")
        if self.early and self.operands != "0=":
            raise LayoutError(f"{where}early is said of one operand, '0='; it has {self.operands!r}")
        for token in self.operands.split():
            if not _OPERAND.fullmatch(token):
                raise LayoutError(f"{where}{token!r} names no operand: write '0', '0=', '1w', '2b', '*', 'y' …")

    def takes(self, operator: Operator, dtype: str) -> bool:
        """Whether the row is about a node of a unit that gives integers of a type (ONNX's name)."""
        named = not operator.node.domain and operator.name in self.op_types.split() and dtype in self.types
        ranked = not self.ranks or operator.rank() in self.ranks
        return named and ranked and all(limit.holds(operator) for limit in self.limits)

    def to_dict(self) -> dict[str, object]:
        """The row for machines, and for the tables that people read: JSON types only."""
        return {
            "operators": self.op_types.split(),
            "written": (self.written or "itself") + (", on real numbers" if self.reals else ""),
            "types": list(self.types),
            "ranks": list(self.ranks),
            "limits": [*(["constants per channel"] if self.affine else []), *map(str, self.limits)],
        }


# Activations that the range of the result's integers implies

SATURATING: Mapping[str, Callable[[Operator], tuple[float, float] | None]] = {
    "Relu": lambda _: (0.0, np.inf),
    "Clip": clip_bounds,
}
"""Operator -> the bounds that it keeps its operand in, where they are constant."""


def vanishes(operator: Operator, scale: float, zero: int, ends: tuple[int, int]) -> bool:
    """Whether an activation before a QuantizeLinear changes nothing: the integers' own range cuts as much, or more.

    Rounding is monotone: q(clip(x, low, high)) is q(x) cut at q(low) and q(high).
    """
    bounds_of = None if operator.node.domain else SATURATING.get(operator.name)
    bounds = None if bounds_of is None else bounds_of(operator)
    if bounds is None:
        return False
    low, high = (float(np.rint(bound / scale)) + zero if np.isfinite(bound) else bound for bound in bounds)
    return low <= ends[0] and high >= ends[1]


# Scale and shift per channel


def _normalize(operator: Operator, given: Sequence[Reals]) -> Reals:
    x, scale, bias, mean, variance = given
    shape = (1, -1, *(1,) * (x.ndim - 2))
    scale, bias, mean, variance = (each.reshape(shape) for each in (scale, bias, mean, variance))
    epsilon = operator.node.attributes.get_float("epsilon", 1e-5)
    normal: Reals = (x - mean) / np.sqrt(variance + epsilon) * scale + bias
    return normal


ELEMENTWISE: Mapping[str, Callable[[Operator, Sequence[Reals]], Reals]] = {
    "Add": lambda _, given: given[0] + given[1],
    "Sub": lambda _, given: given[0] - given[1],
    "Mul": lambda _, given: given[0] * given[1],
    "Div": lambda _, given: given[0] / given[1],
    "BatchNormalization": _normalize,
}


def scale_and_shift(operator: Operator, given: Sequence[Reals | None]) -> tuple[int, Reals, Reals] | None:
    """The operand that is not constant, and `a` and `b` per channel with `f(x) = a x + b`; None: it is not so.

    One number for all channels does not say which axis they are.

    Args:
        operator: the node.
        given: its operands where they are constant, as real numbers.
    """
    slots = [slot for slot, known in enumerate(given) if known is None]
    several = any(known is not None and known.size > 1 for known in given)
    if len(slots) != 1 or not several or operator.name not in ELEMENTWISE:
        return None
    (slot,) = slots
    shape = operator.shape(slot)
    channels = shape[1] if shape is not None and len(shape) > 2 else None
    if shape is None or not isinstance(channels, int):
        return None
    per_channel = (1, channels, *(1,) * (len(shape) - 2))

    def at(x: float) -> Reals:
        image = np.full(per_channel, x)
        return ELEMENTWISE[operator.name](operator, [image if known is None else known for known in given])

    with np.errstate(all="ignore"):
        shift, once, twice = at(0.0), at(1.0), at(2.0)
        scale = once - shift
        linear = np.isfinite(scale).all() and np.allclose(twice - once, scale, rtol=1e-6, atol=0)
    if not linear or shift.shape != per_channel:
        return None
    return slot, scale.reshape(-1), shift.reshape(-1)


def affine_weights(
    scale: Reals, shift: Reals, step: float, result: float
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int32]] | None:
    """Weights, their scales and the bias of the depthwise convolution for `y = a x + b`; None: they would be off.

    Args:
        scale: `a`, per channel.
        shift: `b`, per channel.
        step: the scale of the integers that are read.
        result: that of those that are given.
    """
    steps = np.maximum(np.abs(scale) / LARGEST_WEIGHT, np.abs(shift) / LARGEST_BIAS / step)
    steps = np.where(steps > 0, steps, 1.0).astype(np.float32)
    weights, bias = np.rint(scale / steps), np.rint(shift / (steps.astype(np.float64) * step))
    reach = 255 * step
    off = np.abs(scale - weights * steps) * reach + np.abs(shift - bias * steps * step)
    if not (off <= STEP_SHARE * result).all():
        return None
    return weights.astype(np.int8), steps, bias.astype(np.int32)


def bias_in_steps(bias: Reals, steps: Reals, result: float) -> NDArray[np.int32] | None:
    """A bias in steps of its accumulators; None: it would be off, or does not fit."""
    integers = np.rint(bias / steps)
    off = np.abs(bias - integers * steps)
    fits = (np.abs(integers) <= np.iinfo(np.int32).max).all() and (off <= STEP_SHARE * result).all()
    return integers.astype(np.int32) if fits else None
