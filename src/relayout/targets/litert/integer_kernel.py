"""The condition that LiteRT has an integer kernel for a quantized unit: other units stay on real numbers."""

from __future__ import annotations

from relayout.graph.quantized_unit import EPILOGUES, QUANTIZE, QuantizedUnit
from relayout.lowering.unit_rows import of_units
from relayout.targets.litert.integer_scales import Scale, scale_of
from relayout.targets.litert.quantized_units import ROWS, Candidate, applies
from relayout.targets.litert.unit_activations import BOUNDS, fused_activation


def _has_kernel(unit: QuantizedUnit) -> bool:
    if unit.node.op_type == QUANTIZE:
        return True
    return _applies_activation(unit) and _computes(unit)


def _applies_activation(unit: QuantizedUnit) -> bool:
    """Tell whether the kernel applies the unit's activation, or the range of the result's integers implies it."""
    activations = [each for each in unit.members if each.op_type in EPILOGUES and each is not unit.node]
    if not activations:
        return True
    bounds = BOUNDS[activations[0].op_type](activations[0])
    return bounds is not None and applies(unit.node, fused_activation(bounds, unit.results[0].node))


def _computes(unit: QuantizedUnit) -> bool:
    row = ROWS.get(unit.node.op_type)
    operands = tuple(None if each is None else scale_of(each.node) for each in unit.operands)
    results = tuple(each for each in (scale_of(result.node) for result in unit.results) if each is not None)
    if row is None or len(results) < len(unit.results) or not all(result.is_one for result in results):
        return False
    constants = tuple(
        value is not None and (value.const_value is not None or (operand is not None and operand.is_constant))
        for value, operand in zip(unit.node.inputs, unit.operands, strict=True)
    )
    unsigned = (False, True) if any(map(_is_unsigned_weight, operands, constants)) else (False,)
    return any(row(Candidate(unit.node, operands, constants, results, each)) is not None for each in unsigned)


def _is_unsigned_weight(scale: Scale | None, is_constant: bool) -> bool:
    return is_constant and scale is not None and scale.dtype.name == "UINT8"


INTEGER_KERNEL = of_units("scales, types and constants that LiteRT's integer kernel takes", _has_kernel)
