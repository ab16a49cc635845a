"""What a target has for a quantized unit, `DequantizeLinear -> operator -> QuantizeLinear`: an operator on integers.

A row says which operator runs the unit and how its operands are named there. The numbers of a unit are judged here, in
real arithmetic: what a row gives differs from the unit by less than one step of the result.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout import arguments
from relayout.errors import LayoutError
from relayout.graph.quantized_unit import BYTES as BYTE_TYPES
from relayout.graph.quantized_unit import (
    DEQUANTIZE,
    Quantization,
    QuantizedUnit,
    Scale,
    dequantizer_of,
    scale_of,
    stored_reals,
)
from relayout.graph.walks import known_tensor
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import Condition
from relayout.lowering.constants import Constants, as_unsigned
from relayout.lowering.passes import check_operators, check_types
from relayout.rules import Attribute, Operator

# Conditions of a backend on quantized units: what their integers mean. Of other nodes they hold without a look.


def of_units(line: str, holds: Callable[[QuantizedUnit], bool]) -> Condition:
    """Return a condition on the quantized unit of a node; it holds of a node that is in none."""

    def checked(operator: Operator) -> bool:
        unit = operator.unit()
        return unit is None or holds(unit)

    return Condition(line, checked)


def _is_symmetric(quantization: Quantization) -> bool:
    if not quantization.has_zero_point:
        return True
    tensor = quantization.zero_point
    return tensor is not None and not np.asarray(tensor.numpy()).astype(bool).any()


def _weights(unit: QuantizedUnit) -> Iterator[Quantization]:
    """Yield the constant operands but for a bias, whose integers have 32 bits."""
    for operand in unit.operands:
        if operand is not None and operand.is_constant and (operand.dtype is None or operand.dtype.itemsize < 4):
            yield operand


def _are_powers_of_two(unit: QuantizedUnit) -> bool:
    scales = [each.meaning for each in (*unit.operands, *unit.results) if each is not None]
    return all(each is not None and (np.frexp(each.scale)[0] == 0.5).all() for each in scales)


def _have_one_scale(unit: QuantizedUnit) -> bool:
    first, *others = (each.meaning for each in unit.activations)
    return first is not None and all(map(first.is_same, others))


SYMMETRIC_ACTIVATIONS = of_units(
    "activations with zero points of 0", lambda unit: all(map(_is_symmetric, unit.activations))
)
SYMMETRIC_WEIGHTS = of_units("weights with zero points of 0", lambda unit: all(map(_is_symmetric, _weights(unit))))
PER_TENSOR_WEIGHTS = of_units(
    "weights with one scale",
    lambda unit: all(each.scale is not None and each.scale.size == 1 for each in _weights(unit)),
)
POWER_OF_TWO_SCALES = of_units("scales that are powers of two", _are_powers_of_two)
SAME_SCALES = of_units("operands and results with one scale and zero point", _have_one_scale)

NO_RAW_INTEGERS = Condition(
    "integers of 8 bits only in quantized units",
    lambda operator: (
        all(each is None or each.dtype not in BYTE_TYPES for each in operator.node.inputs[:1])
        or operator.unit() is not None
    ),
)


def weights_of(*types: str) -> Condition:
    """Return the condition that constant operands have one of some element types (ONNX's names): `INT8`.

    Raises:
        LayoutError: there is no such type.
    """
    check_types(types, "")
    return of_units(
        f"weights of {' or '.join(types)}",
        lambda unit: all(each.dtype is not None and each.dtype.name in types for each in _weights(unit)),
    )


def bias_of(*types: str) -> Condition:
    """Return the condition that a quantized bias, operand 2, has one of some element types: `INT32`.

    Raises:
        LayoutError: there is no such type.
    """
    check_types(types, "")

    def holds(unit: QuantizedUnit) -> bool:
        bias = unit.operands[2] if len(unit.operands) > 2 else None
        return bias is None or (bias.dtype is not None and bias.dtype.name in types)

    return of_units(f"a bias of {' or '.join(types)}", holds)


def results_of(scale: float, zero_point: int) -> Condition:
    """Return the condition that results have a scale and a zero point that the kernel fixes: 1/256 and -128."""

    def is_so(quantization: Quantization) -> bool:
        own = quantization.meaning
        is_one = own is not None and own.is_one
        return bool(own and is_one and np.isclose(own.step, scale) and own.stated_zero[0] == zero_point)

    return of_units(
        f"results of scale {scale:g} and zero point {zero_point}", lambda unit: all(map(is_so, unit.results))
    )


Reals = NDArray[np.float64]

BYTES = ("INT8", "UINT8")
STEP_SHARE = 0.25
"""Of a step of the result: what constants of a unit may be off by once they are integers; the rest is for rounding."""
LARGEST_WEIGHT, LARGEST_BIAS = 127, 2**30

_OPERAND = re.compile(r"y|\d+[=wbq.]?|\*[=.]?")

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

    Its inputs come in order, by the operand of the operator that each comes from:
        `0`: its integers, scale and zero point; `0=`: its integers, quantized as the result is; `1w`: a kernel, whose
        scales may lie per output channel; `2b`: a bias, in steps of the products of the scales of data and kernel;
        `2q`: a constant, in steps of the result (absent: 0); `0.`: as it is; `*`, `*=`, `*.`: the same of all operands
        that follow; `y`: the scale and the zero point of the result.
    """

    op_types: str  # names of operators; one string may hold several
    written: str = ""  # the operator that runs the unit: `com.microsoft:QLinearAdd`; empty: the operator itself
    operands: str = ""  # its inputs, as above
    channel: Callable[[Operator], int] = lambda _: 0  # the axis of a kernel along which its scales may lie
    limits: tuple[Condition, ...] = ()  # what must hold of the operator besides
    ranks: tuple[int, ...] = ()  # ranks of input 0; empty: any
    types: tuple[str, ...] = BYTES  # of the data's integers
    # what the operator on integers says otherwise; None removes an attribute
    attributes: Callable[[Operator], Mapping[str, Attribute | None]] = lambda _: {}
    # the axes, ascending, of extent 1 that the operator on integers gives and the unit does not
    squeezed: Callable[[Operator], tuple[int, ...]] = lambda _: ()
    # the operator, with constants in all other operands, is a scale and a shift per channel: a depthwise convolution of
    # one element, whose weights are made here. `operands` has no meaning then.
    affine: bool = False
    # its one operand (`0=`) may be real. It is quantized before the operator, as the result is: the operator picks the
    # largest elements, and rounding keeps their order.
    early: bool = False
    # the operator stays on real numbers where they were dequantized, as the node `written`: as it is, the runtime would
    # make an operator on integers of it that takes longer. `operands` has no meaning then.
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
        """Tell whether the row is about a node of a unit whose result has integers of a type (ONNX's name)."""
        named = not operator.node.domain and operator.name in self.op_types.split() and dtype in self.types
        ranked = not self.ranks or operator.rank() in self.ranks
        return named and ranked and all(limit.holds(operator) for limit in self.limits)

    def to_dict(self) -> dict[str, object]:
        """Return the row for machines, and for the tables that people read: JSON types only."""
        return {
            "operators": self.op_types.split(),
            "written": (self.written or "itself") + (", on real numbers" if self.reals else ""),
            "types": list(self.types),
            "ranks": list(self.ranks),
            "limits": [*(["constants per channel"] if self.affine else []), *map(str, self.limits)],
        }


# Scale and shift per channel


def _normalize(operator: Operator, operands: Sequence[Reals]) -> Reals:
    x, *parameters = operands
    scale, bias, mean, variance = (each.reshape(1, -1, *(1,) * (x.ndim - 2)) for each in parameters)
    epsilon = operator.node.attributes.get_float("epsilon", 1e-5)
    normal: Reals = (x - mean) / np.sqrt(variance + epsilon) * scale + bias
    return normal


ELEMENTWISE: Mapping[str, Callable[[Operator, Sequence[Reals]], Reals]] = {
    "Add": lambda _, operands: operands[0] + operands[1],
    "Sub": lambda _, operands: operands[0] - operands[1],
    "Mul": lambda _, operands: operands[0] * operands[1],
    "Div": lambda _, operands: operands[0] / operands[1],
    "BatchNormalization": _normalize,
}


def scale_and_shift(
    operator: Operator,  # the node
    constants: Sequence[Reals | None],  # its operands where they are constant, as real numbers
) -> tuple[int, Reals, Reals] | None:
    """Return the operand that is not constant, and `a` and `b` per channel with `f(x) = a x + b`; None: it is not so.

    One number for all channels does not say which axis they are.
    """
    slots = [slot for slot, known in enumerate(constants) if known is None]
    several = any(known is not None and known.size > 1 for known in constants)
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
        return ELEMENTWISE[operator.name](operator, [image if known is None else known for known in constants])

    with np.errstate(all="ignore"):
        shift, once, twice = at(0.0), at(1.0), at(2.0)
        scale = once - shift
        linear = np.isfinite(scale).all() and np.allclose(twice - once, scale, rtol=1e-6, atol=0)
    if not linear or shift.shape != per_channel:
        return None
    return slot, scale.reshape(-1), shift.reshape(-1)


def affine_weights(
    scale: Reals,  # `a`, per channel
    shift: Reals,  # `b`, per channel
    step: float,  # the scale of the integers that are read
    result: float,  # that of those that are given
) -> tuple[NDArray[np.int8], NDArray[np.float32], NDArray[np.int32]] | None:
    """Weights, their scales and the bias of the depthwise convolution for `y = a x + b`; None: they would be off."""
    steps = np.maximum(np.abs(scale) / LARGEST_WEIGHT, np.abs(shift) / LARGEST_BIAS / step)
    steps = np.where(steps > 0, steps, 1.0).astype(np.float32)
    weights, bias = np.rint(scale / steps), np.rint(shift / (steps.astype(np.float64) * step))
    reach = 255 * step
    off = np.abs(scale - weights * steps) * reach + np.abs(shift - bias * steps * step)
    if not (off <= STEP_SHARE * result).all():
        return None
    return weights.astype(np.int8), steps, bias.astype(np.int32)


def bias_in_steps(bias: Reals, steps: Reals, result: float) -> NDArray[np.int32] | None:
    """Return a bias in steps of its accumulators; None: it would be off, or does not fit."""
    integers = np.rint(bias / steps)
    off = np.abs(bias - integers * steps)
    fits = (np.abs(integers) <= np.iinfo(np.int32).max).all() and (off <= STEP_SHARE * result).all()
    return integers.astype(np.int32) if fits else None


# The integers of quantized units, and what QuantizeLinear and DequantizeLinear say that they mean.

Array = NDArray[np.generic]


class Integers(NamedTuple):
    """Integers, and the scale and the zero point that a node states."""

    values: ir.Value
    scale: ir.Value
    zero: ir.Value
    meaning: Scale  # what these say


class IntegerReader:
    """The types of integers by the nodes that quantize them, and the nodes that nothing may read any longer."""

    def __init__(self, constants: Constants) -> None:
        self.constants, self.names = constants, constants.names
        self.left: dict[ir.Node, None] = {}  # nodes that units stand for, and that go where nothing reads them
        self._zeros: dict[ir.DataType, ir.Value] = {}

    def dequantized(self, value: ir.Value) -> Integers | None:
        """Return the integers that a value was dequantized from."""
        node = dequantizer_of(value)
        integers = None if node is None else self.integers(node)
        if node is not None and integers is not None:
            self.left[node] = None
        return integers

    def integers(self, node: ir.Node) -> Integers | None:
        """Return the integers that a node quantizes or dequantizes, if their scales are constant floats."""
        values = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
        scale, zero, meaning = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None, scale_of(node)
        known = known_constant(scale)
        if values is None or scale is None or meaning is None or known is None or known.dtype != np.float32:
            return None
        if zero is None:
            zero = self.zero(meaning.dtype)
        return None if known_constant(zero) is None else Integers(values, scale, zero, meaning)

    def zero(self, dtype: ir.DataType) -> ir.Value:
        """Return the zero point of a node that names none."""
        if dtype not in self._zeros:
            self._zeros[dtype] = self.constants.new("zero_point", np.zeros((), dtype.numpy()))
        return self._zeros[dtype]

    def real(self, value: ir.Value | None) -> Reals | None:
        """Return a constant as real numbers, dequantized where it is stored as integers."""
        known = known_constant(value)
        if value is None or (known is None and self.dequantized(value) is None):
            return None
        return stored_reals(value) if known is None or known.dtype.kind == "f" else None

    def shifted(self, zero: ir.Value | None) -> ir.Value:
        """Return an int8 constant as uint8."""
        return self.constants.new(
            f"{zero.name if zero else 'zero'}/unsigned", as_unsigned(np.asarray(known_constant(zero)))
        )


def known_constant(value: ir.Value | None) -> Array | None:
    """Return a constant, an initializer that no input overrides; None for any other value."""
    tensor = known_tensor(value)
    return None if value is None or tensor is None or value.producer() is not None else tensor.numpy()
