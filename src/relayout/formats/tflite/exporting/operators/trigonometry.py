"""Trigonometric and hyperbolic functions: those that have no builtin, from SIN, COS, ATAN2, EXP and LOG."""

from __future__ import annotations

from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import exporter
from relayout.formats.tflite.exporting.steps import Steps


def _one(steps: Steps, like: DraftTensor) -> DraftTensor:
    """Return ones of a tensor's extents: ATAN2 stretches nothing."""
    return steps.minimum(steps.maximum(like, 1.0), 1.0)


@exporter("Tan")
def tan(op: NodeExport) -> None:
    """SIN divided by COS."""
    steps, x = Steps(op), op.input(0)
    steps.give(steps.div(steps.each("SIN", x), steps.each("COS", x)))


@exporter("Atan")
def atan(op: NodeExport) -> None:
    """ATAN2 with 1."""
    steps, x = Steps(op), op.input(0)
    steps.give(steps.each("ATAN2", x, _one(steps, x)))


@exporter("Asin")
def asin(op: NodeExport) -> None:
    """ATAN2 with the cosine, `sqrt((1 - x) (1 + x))`."""
    steps, x = Steps(op), op.input(0)
    steps.give(steps.each("ATAN2", x, _cosine(steps, x)))


@exporter("Acos")
def acos(op: NodeExport) -> None:
    """ATAN2 of the sine, `sqrt((1 - x) (1 + x))`."""
    steps, x = Steps(op), op.input(0)
    steps.give(steps.each("ATAN2", _cosine(steps, x), x))


def _cosine(steps: Steps, x: DraftTensor) -> DraftTensor:
    return steps.each("SQRT", steps.mul(steps.sub(1.0, x), steps.add(x, 1.0)))


@exporter("Sinh")
def sinh(op: NodeExport) -> None:
    """Half the difference of EXP of the operand and of its negation."""
    steps, x = Steps(op), op.input(0)
    half = steps.mul(x, 0.5)
    # exp(x) may overflow where sinh(x) does not: (exp(x/2) / 2) exp(x/2).
    up, down = steps.each("EXP", half), steps.each("EXP", steps.each("NEG", half))
    steps.give(steps.sub(steps.mul(steps.mul(up, 0.5), up), steps.mul(steps.mul(down, 0.5), down)))


@exporter("Cosh")
def cosh(op: NodeExport) -> None:
    """Half the sum of EXP of the operand and of its negation."""
    steps, x = Steps(op), op.input(0)
    half = steps.mul(x, 0.5)
    up, down = steps.each("EXP", half), steps.each("EXP", steps.each("NEG", half))
    steps.give(steps.add(steps.mul(steps.mul(up, 0.5), up), steps.mul(steps.mul(down, 0.5), down)))


@exporter("Asinh")
def asinh(op: NodeExport) -> None:
    """LOG of the size and the root of its square and 1, with the operand's sign."""
    steps, x = Steps(op), op.input(0)
    size = steps.each("ABS", x)
    root = steps.each("SQRT", steps.add(steps.mul(size, size), 1.0))
    steps.give(steps.mul(steps.each("SIGN", x), steps.each("LOG", steps.add(size, root))))


@exporter("Acosh")
def acosh(op: NodeExport) -> None:
    """LOG of the operand and the root of its square less 1."""
    steps, x = Steps(op), op.input(0)
    root = steps.mul(steps.each("SQRT", steps.sub(x, 1.0)), steps.each("SQRT", steps.add(x, 1.0)))
    steps.give(steps.each("LOG", steps.add(x, root)))


@exporter("Atanh")
def atanh(op: NodeExport) -> None:
    """Half the LOG of `(1 + x) / (1 - x)`."""
    steps, x = Steps(op), op.input(0)
    steps.give(steps.mul(steps.each("LOG", steps.div(steps.add(x, 1.0), steps.sub(1.0, x))), 0.5))
