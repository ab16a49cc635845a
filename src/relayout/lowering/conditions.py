"""Conditions of a backend on a node beside operator, element type and rank, with the words for them.

A condition sees the node in the standard's order of axes: of a function's call the node in its body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout import arguments
from relayout.errors import LayoutError
from relayout.graph.quantized_unit import bounds_of
from relayout.light_dataclass import dataclass
from relayout.rules import Operator, draws, rule_of


@dataclass(frozen=True)
class Condition:
    """A condition on a node.

    Args:
        line: what must hold, in words: `a constant kernel`.
        holds: whether it does, for a node in the standard's order.
    """

    line: str
    holds: Callable[[Operator], bool]

    def __post_init__(self) -> None:
        """See that it can be asked.

        Raises:
            LayoutError: `line` is no text, or `holds` no function.
        """
        arguments.check_fields(self, "a condition: ", LayoutError, line=arguments.WORDS, holds=arguments.FUNCTION)

    def __str__(self) -> str:
        return self.line


def is_about(operator: Operator, op_type: str, limits: Sequence[Condition]) -> bool:
    """Tell whether a node is of that operator, of ONNX's own domain, and within limits."""
    named = operator.domain in ("", "ai.onnx") and operator.name == op_type
    return named and all(limit.holds(operator) for limit in limits)


def kernel_slot(operator: Operator) -> int | None:
    """Return the input that holds the kernel, where layouts name one."""
    rule = rule_of(operator)
    named = {} if rule is None else rule.layouts
    return next((slot for slot, axes in sorted(named.items()) if axes != "NC"), None)


NEAR = 8  # how many operators between constants and an input are followed: a kernel may be dequantized and transposed


def is_constant(operator: Operator, slot: int) -> bool:
    """Tell whether an input is absent, an initializer, or follows from initializers alone."""
    return not operator.has(slot) or operator.is_initializer(slot) or _follows(operator.node.inputs[slot], NEAR)


def _follows(value: ir.Value | None, remaining_steps: int) -> bool:
    if value is None:
        return True
    if value.is_graph_input():
        return False
    if value.const_value is not None:
        return True
    node = value.producer()
    if node is None or not remaining_steps or not node.inputs or draws(node):
        return False
    return all(_follows(read, remaining_steps - 1) for read in node.inputs)


def constant(slot: int, name: str) -> Condition:
    """An input is constant, or absent."""
    return Condition(f"a constant {name}", lambda operator: is_constant(operator, slot))


def _constant_kernel(operator: Operator) -> bool:
    slot = kernel_slot(operator)
    return slot is not None and all(is_constant(operator, index) for index in range(slot, len(operator.inputs)))


CONSTANT_KERNEL = Condition("constant kernel and bias", _constant_kernel)


def _groups(operator: Operator) -> str:
    """`none`, `depthwise` (every input channel is a group) or `some`."""
    slot, groups = kernel_slot(operator), operator.int("group", 1)
    kernel = None if slot is None else operator.shape(slot)
    if groups == 1:
        return "none"
    x = operator.shape()
    return "depthwise" if kernel is not None and x is not None and x[1] == groups and kernel[1] == 1 else "some"


DEPTHWISE = Condition("depthwise", lambda operator: _groups(operator) == "depthwise")
NOT_DEPTHWISE = Condition("not depthwise", lambda operator: _groups(operator) != "depthwise")
GROUPED = Condition("in groups, not depthwise", lambda operator: _groups(operator) == "some")
NO_GROUPS = Condition("no groups", lambda operator: _groups(operator) == "none")


def attribute(name: str, allowed: Sequence[str], default: str) -> Condition:
    """A string attribute has one of some values."""
    return Condition(f"{name} {' or '.join(allowed)}", lambda operator: operator.string(name, default) in allowed)


FLOOR = Condition("ceil_mode 0", lambda operator: operator.int("ceil_mode", 0) == 0)
NO_DILATIONS = Condition("no dilations", lambda operator: all(step == 1 for step in operator.ints("dilations") or ()))
NO_INDICES = Condition("no indices given", lambda operator: not operator.gives(1))
WIDE = Condition("a window above 1 × 1", lambda operator: any(side > 1 for side in operator.ints("kernel_shape") or ()))
NO_PADDED_MEAN = Condition("count_include_pad 0", lambda operator: operator.int("count_include_pad", 0) == 0)


def _same_or_valid(operator: Operator) -> bool:
    """No pads, or those that give an output of a stride-th of the input's size: half, the odd one at the end."""
    mode = operator.string("auto_pad", "NOTSET")
    if mode != "NOTSET":
        return mode in ("SAME_UPPER", "VALID")
    pads, window = operator.ints("pads") or (), operator.ints("kernel_shape") or ()
    if not any(pads):
        return True
    x, y = operator.shape() or (), operator.outputs[0] or ()
    strides = operator.ints("strides") or (1,) * len(window)
    pad_totals = []
    for extent, output_extent, side, step in zip(x[2:], y[2:], window, strides, strict=True):
        if not isinstance(extent, int) or output_extent != -(-extent // step):
            return False
        pad_totals.append(max((output_extent - 1) * step + side - extent, 0))
    return pads == (*(total // 2 for total in pad_totals), *(total - total // 2 for total in pad_totals))


SAME_OR_VALID = Condition("pads SAME_UPPER or VALID", _same_or_valid)


def _counts_elements(operator: Operator) -> bool:
    pads = operator.string("auto_pad", "NOTSET").startswith("SAME") or any(operator.ints("pads") or ())
    return not pads or (SAME_OR_VALID.holds(operator) and NO_PADDED_MEAN.holds(operator))


COUNTED_ELEMENTS = Condition("no pads, or SAME_UPPER and count_include_pad 0", _counts_elements)
COUNTED_BORDER = Condition(
    "count_include_pad 1 and ceil_mode 0",
    lambda operator: operator.int("count_include_pad", 0) == 1 and FLOOR.holds(operator),
)
DEPTH_FIRST = attribute("mode", ("DCR",), "DCR")


def _last_axis(operator: Operator) -> bool:
    rank, default = operator.rank() or 0, -1 if operator.version >= 13 else 1
    return rank > 0 and operator.int("axis", default) % rank == rank - 1


LAST_AXIS = Condition("the last axis", _last_axis)


def inputs(count: int) -> Condition:
    """A variadic operator with a number of inputs."""
    return Condition(f"{count} inputs", lambda operator: len(operator.inputs) == count)


def window_sides(operator: Operator) -> Sequence[int | str]:
    """Return the sides of the window of a pool or a convolution."""
    slot = kernel_slot(operator)
    kernel = None if slot is None else operator.shape(slot)
    return operator.ints("kernel_shape") or (kernel or ())[2:]


def window(most: int) -> Condition:
    """A window, with its dilations, of at most so many elements on each side."""

    def holds(operator: Operator) -> bool:
        sides = window_sides(operator)
        steps = operator.ints("dilations") or (1,) * len(sides)
        return all(isinstance(e, int) and (e - 1) * step < most for e, step in zip(sides, steps, strict=True))

    return Condition(f"a window of at most {most}", holds)


def strides(most: int) -> Condition:
    """Strides of at most so many elements."""
    return Condition(
        f"strides of at most {most}", lambda operator: all(step <= most for step in operator.ints("strides") or ())
    )


def batch(count: int) -> Condition:
    """The first axis of input 0 has an extent."""
    return Condition(f"a batch of {count}", lambda operator: (operator.shape() or (None,))[:1] == (count,))


def _spatial(operator: Operator) -> bool:
    """A Resize with constant sizes or scales that leaves N and C as they are."""
    x, y = operator.shape(), operator.outputs[0]
    slots = [slot for slot in (2, 3) if operator.has(slot)]
    constants = all(operator.constant(slot) is not None for slot in slots)
    return bool(slots) and constants and x is not None and y is not None and x[:2] == y[:2]


SPATIAL_ONLY = Condition("constant scales or sizes, N and C kept", _spatial)


def _pads(operator: Operator) -> bool:
    pads = operator.integers(1) if operator.version >= 11 else operator.ints("pads")
    return pads is not None and all(pad >= 0 for pad in pads)


PADS = Condition("constant pads of at least 0", _pads)


def constant_slice(line: str, takes: Callable[[int], bool]) -> Condition:
    """A Slice has constant bounds, and steps that are taken."""

    def holds(operator: Operator) -> bool:
        slots = [slot for slot in range(1, len(operator.inputs)) if operator.has(slot)]
        return all(operator.constant(slot) is not None for slot in slots) and all(
            map(takes, operator.integers(4) or ())
        )

    return Condition(f"constant bounds, {line}", holds)


def is_unpadded(operator: Operator) -> bool:
    """Tell whether a window has no border."""
    mode = operator.string("auto_pad", "NOTSET")
    return mode == "VALID" or (mode == "NOTSET" and not any(operator.ints("pads") or ()))


CONSTANT_MODE = attribute("mode", ("constant",), "constant")
RESIZE_PLAIN = Condition(
    "no antialias, no exclude_outside, keep_aspect_ratio_policy stretch",
    lambda operator: (
        not operator.int("antialias", 0)
        and not operator.int("exclude_outside", 0)
        and operator.string("keep_aspect_ratio_policy", "stretch") == "stretch"
    ),
)
NO_AXES = Condition("no axes attribute", lambda operator: not operator.ints("axes"))
SYMMETRIC = Condition(
    "zero points of 0",
    lambda operator: (
        not operator.has(2)
        or ((zero := operator.constant(2)) is not None and not bool(np.asarray(zero).astype(bool).any()))
    ),
)
INFERENCE = Condition("training_mode 0", lambda operator: not operator.int("training_mode", 0))


def _are_static(operator: Operator, first: int = 0) -> bool:
    """Tell whether all extents from an axis on are known."""
    shapes = (*operator.inputs, *operator.outputs)
    return all(isinstance(dim, int) for shape in shapes for dim in (shape or ())[first:])


STATIC = Condition("static shapes", _are_static)
STATIC_BUT_N = Condition("static extents but for N", partial(_are_static, first=1))


def clip_bounds(
    operator: Operator, constant: Callable[[Operator, int], NDArray[Any] | None] = Operator.constant
) -> tuple[float, float] | None:
    """Return the constant bounds of a Clip or Relu; infinite where there is none. `constant` reads operands."""
    return bounds_of(operator.bare, partial(constant, operator))


CONSTANT_BOUNDS = Condition("constant bounds", lambda operator: clip_bounds(operator) is not None)
RELU_6 = Condition("bounds of 0 and 6, or of -1 and 1", lambda operator: clip_bounds(operator) in ((0, 6), (-1, 1)))
PLAIN_PRODUCT = Condition(
    "alpha 1, beta 1, transA 0",
    lambda operator: (
        all(operator.float(name, 1.0) == 1.0 for name in ("alpha", "beta")) and not operator.int("transA", 0)
    ),
)
