"""Conditions of a backend on quantized units: what their integers mean. Of other nodes they hold without a look."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from relayout.graph.quantized_unit import Quantization, QuantizedUnit, unit_of
from relayout.lowering.conditions import Condition
from relayout.rules import Operator


def of_units(line: str, holds: Callable[[QuantizedUnit], bool]) -> Condition:
    """Return a condition on the quantized unit of a node; it holds of a node that is in none."""

    def checked(operator: Operator) -> bool:
        unit = unit_of(operator.node)
        return unit is None or holds(unit)

    return Condition(line, checked)


def _scales(quantization: Quantization) -> NDArray[np.float64] | None:
    tensor = quantization.scale
    return None if tensor is None else np.asarray(tensor.numpy(), np.float64).reshape(-1)


def _is_symmetric(quantization: Quantization) -> bool:
    if not quantization.has_zero_point:
        return True
    tensor = quantization.zero_point
    return tensor is not None and not np.asarray(tensor.numpy()).astype(bool).any()


def _weights(unit: QuantizedUnit) -> Iterator[Quantization]:
    """The constant operands but for a bias, whose integers have 32 bits."""
    for operand in unit.operands:
        if operand is not None and operand.is_constant and (operand.dtype is None or operand.dtype.itemsize < 4):
            yield operand


def _has_power_of_two(quantization: Quantization) -> bool:
    scales = _scales(quantization)
    return scales is not None and bool((np.frexp(scales)[0] == 0.5).all())


def _has_one_scale(quantization: Quantization) -> bool:
    scales = _scales(quantization)
    return scales is not None and scales.size == 1


def _all_quantizations(unit: QuantizedUnit) -> Iterator[Quantization]:
    yield from (operand for operand in unit.operands if operand is not None)
    yield from unit.results


def _is_alike(one: Quantization, other: Quantization) -> bool:
    scales, others = _scales(one), _scales(other)
    if scales is None or others is None or one.dtype != other.dtype:
        return False
    zeros = [0 if each.zero_point is None else each.zero_point.numpy() for each in (one, other)]
    return np.array_equal(scales, others) and np.array_equal(np.ravel(zeros[0]), np.ravel(zeros[1]))


def _all_alike(unit: QuantizedUnit) -> bool:
    first, *others = unit.activations
    return all(_is_alike(first, other) for other in others)


SYMMETRIC_ACTIVATIONS = of_units(
    "activations with zero points of 0", lambda unit: all(map(_is_symmetric, unit.activations))
)
SYMMETRIC_WEIGHTS = of_units("weights with zero points of 0", lambda unit: all(map(_is_symmetric, _weights(unit))))
PER_TENSOR_WEIGHTS = of_units("weights with one scale", lambda unit: all(map(_has_one_scale, _weights(unit))))
POWER_OF_TWO_SCALES = of_units(
    "scales that are powers of two", lambda unit: all(map(_has_power_of_two, _all_quantizations(unit)))
)
SAME_SCALES = of_units("operands and results with one scale and zero point", _all_alike)


def _has_no_raw_integers(operator: Operator) -> bool:
    value = operator.node.inputs[0] if operator.node.inputs else None
    if value is None or value.dtype is None or value.dtype.name not in ("INT8", "UINT8"):
        return True
    return unit_of(operator.node) is not None


NO_RAW_INTEGERS = Condition("integers of 8 bits only in quantized units", _has_no_raw_integers)


def weights_of(*types: str) -> Condition:
    """Return the condition that constant operands have one of some element types (ONNX's names): `INT8`."""
    return of_units(
        f"weights of {' or '.join(types)}",
        lambda unit: all(each.dtype is not None and each.dtype.name in types for each in _weights(unit)),
    )


def bias_of(*types: str) -> Condition:
    """Return the condition that a quantized bias, operand 2, has one of some element types: `INT32`."""

    def holds(unit: QuantizedUnit) -> bool:
        bias = unit.operands[2] if len(unit.operands) > 2 else None
        return bias is None or (bias.dtype is not None and bias.dtype.name in types)

    return of_units(f"a bias of {' or '.join(types)}", holds)


def results_of(scale: float, zero_point: int) -> Condition:
    """Return the condition that results have a scale and a zero point that the kernel fixes: 1/256 and -128."""

    def is_so(quantization: Quantization) -> bool:
        scales = _scales(quantization)
        zero = 0 if quantization.zero_point is None else int(np.ravel(quantization.zero_point.numpy())[0])
        return scales is not None and scales.size == 1 and bool(np.isclose(scales[0], scale)) and zero == zero_point

    return of_units(
        f"results of scale {scale:g} and zero point {zero_point}", lambda unit: all(map(is_so, unit.results))
    )
