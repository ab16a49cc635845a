"""Atan, Asin and Acos by a polynomial: LiteRT has ATAN2 alone for them, whose kernel takes an element at a time.

    Atan    t = x / (1 + sqrt(1 + x²))                    the tangent of half the angle
    Asin    t = x / (1 + sqrt((1 - x) (1 + x)))           the same
    Acos    t = sqrt(1 - x) / (sqrt(2) + sqrt(1 + x))     the tangent of a quarter of the angle

`t` is between -1 and 1. `t / (1 + sqrt(1 + t²))` is the tangent of half of that angle, at most that of pi / 8, where a
short polynomial gives the angle. On x64 XNNPACK takes a fifth of the time (200,704 elements). Results are at most 5
units in the last place off, ONNX Runtime's own 3.3 to 4.5; numbers below 5e-38 are 0.
"""

from collections.abc import Callable, Mapping
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.graph.quantized_unit import unit_of
from relayout.targets.litert.insertion import Insertion

FEWEST = 1 << 8
"""Elements from which on the polynomial takes less time."""
COEFFICIENTS = (0.080537118850475, -0.138776750433951, 0.199777096382368, -0.333329491266362, 1.0)
"""Of `atan(t) / t` in t², the highest power first: 2e-8 off, relatively, up to the tangent of pi / 8."""
LARGEST = 1e18
"""A number whose arctangent is pi / 2, and whose square is finite."""


class _Formula(NamedTuple):
    """Operators on elements before a node."""

    before: Insertion

    def __call__(self, op_type: str, *operands: ir.Value | float) -> ir.Value:
        """Add an operator."""
        (result,) = self.before.node.outputs
        values = [each if isinstance(each, ir.Value) else self._number(each) for each in operands]
        return self.before.add(op_type, values, result.shape, result.type, name=f"{result.name}/{op_type.lower()}")

    def _number(self, number: float) -> ir.Value:
        name = f"{self.before.node.outputs[0].name}/{number}"
        return self.before.graph.initializers.get(name) or self.before.constant(np.array(number, np.float32), name)

    def halved(self, tangent: ir.Value) -> ir.Value:
        """Return the tangent of half the angle."""
        root = self("Sqrt", self("Add", self("Mul", tangent, tangent), 1.0))
        return self("Div", tangent, self("Add", root, 1.0))

    def angle(self, tangent: ir.Value, times: float) -> ir.Value:
        """Return a multiple of the angle of a tangent between -1 and 1."""
        small = self.halved(tangent)
        square = self("Mul", small, small)
        highest, *others = COEFFICIENTS
        series = self("Mul", square, highest)
        for place, coefficient in enumerate(others):
            series = self("Add", self("Mul", series, square) if place else series, coefficient)
        return self("Mul", self("Mul", small, 2 * times), series)


def _atan(formula: _Formula, x: ir.Value) -> ir.Value:
    # The bound stands first: kernels then give NaN for NaN.
    bounded = formula("Max", -LARGEST, formula("Min", LARGEST, x))
    return formula.angle(formula.halved(bounded), 2)


def _asin(formula: _Formula, x: ir.Value) -> ir.Value:
    cosine = formula("Sqrt", formula("Mul", formula("Sub", 1.0, x), formula("Add", x, 1.0)))
    return formula.angle(formula("Div", x, formula("Add", cosine, 1.0)), 2)


def _acos(formula: _Formula, x: ir.Value) -> ir.Value:
    sine, cosine = formula("Sqrt", formula("Sub", 1.0, x)), formula("Sqrt", formula("Add", x, 1.0))
    return formula.angle(formula("Div", sine, formula("Add", cosine, sqrt(2))), 4)


FORMULAS: Mapping[str, Callable[[_Formula, ir.Value], ir.Value]] = {"Acos": _acos, "Asin": _asin, "Atan": _atan}


def write_angle(before: Insertion) -> bool:
    """Rewrite an Atan, Asin or Acos of many real numbers, and return whether it is one."""
    node, (value,) = before.node, before.node.inputs
    if node.domain or value is None or value.dtype != ir.DataType.FLOAT or value.shape is None or unit_of(node):
        return False
    if value.shape.is_static() and prod(value.shape.numpy()) < FEWEST:
        return False
    before.replace(FORMULAS[node.op_type](_Formula(before), value))
    return True
