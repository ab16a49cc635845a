"""Short integer tensors that a file computes, each element as a sum: a number, and multiples of what is not known.

TensorFlow computes the margins of a dilated convolution from extents when a model runs. What they are it does not say,
but by how much two of them differ can be read off, if what is not known is the same in both:

    pads = (4 - (h + 8) % 4) % 4 + 4, crops = (4 - (h + 8) % 4) % 4: the difference is 4
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from relayout.formats.flatbuffer import Table
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Operator, Subgraph
from relayout.formats.tflite.importing.emission import options_of
from relayout.formats.tflite.importing.flow import Flow
from relayout.formats.tflite.importing.tensors import array

MAX_ELEMENTS = 64
"""Shapes and margins are short."""
MAX_DEPTH = 64
"""Operators behind one another to look at."""

INTEGERS = (TensorType.INT32, TensorType.INT64)
MAX_TERMS = 16
"""Unknowns in one sum."""
Elements = npt.NDArray[np.object_]
"""A tensor of sums."""


class Sum(NamedTuple):
    """A number and multiples of unknowns, which have numbers and come in their order."""

    number: int
    terms: tuple[tuple[int, int], ...] = ()

    def plus(self, other: "Sum", times: int = 1) -> "Sum":
        """Add another sum, so many times."""
        found = dict(self.terms)
        for unknown, factor in other.terms:
            found[unknown] = found.get(unknown, 0) + times * factor
        terms = sorted((unknown, factor) for unknown, factor in found.items() if factor)
        if len(terms) > MAX_TERMS:
            raise ValueError("too many unknowns")
        return Sum(self.number + times * other.number, tuple(terms))

    def minus(self, other: "Sum") -> "Sum":
        """Subtract another sum."""
        return self.plus(other, -1)


class Sums:
    """The integer tensors of a subgraph as sums."""

    def __init__(self, subgraph: Subgraph, flow: Flow) -> None:
        self.tensors, self.flow = subgraph.tensors, flow
        self._known: dict[int, Elements | None] = {}
        self._unknown: dict[tuple[object, ...], int] = {}
        self._depth = 0

    def of(self, index: int) -> Elements | None:
        """Return the elements of a short integer tensor; None where it is none."""
        if index not in self._known:
            self._known[index] = None  # what a damaged file computes from itself
            self._known[index] = self._found(index)
        return self._known[index]

    def _found(self, index: int) -> Elements | None:
        tensor = self.tensors[index] if 0 <= index < len(self.tensors) else None
        if tensor is None or tensor.type not in INTEGERS or prod(tensor.shape) > MAX_ELEMENTS:
            return None
        operator = self.flow.producer(index)
        if tensor.data is not None and operator is None:
            return _filled(array(tensor).shape, (Sum(int(item)) for item in array(tensor).reshape(-1)))
        rule = _RULES.get(operator.name) if operator is not None else None
        if operator is not None and rule is not None and self._depth < MAX_DEPTH:
            self._depth += 1
            try:
                return rule(self, operator, options_of(operator))
            except (IndexError, TypeError, ValueError, AttributeError):
                pass  # operands that do not fit each other: their translation says so
            finally:
                self._depth -= 1
        if -1 in tensor.signature:
            return None
        items = (self._named("element", index, position) for position in range(prod(tensor.shape)))
        return _filled(tensor.shape, items)

    def operand(self, operator: Operator, i: int) -> Elements:
        """Return the elements of an operand."""
        found = self.of(operator.inputs[i])
        if found is None:
            raise ValueError("not known")
        return found

    def numbers(self, operator: Operator, i: int) -> list[int]:
        """Return the elements of an operand that are all numbers."""
        items = self.operand(operator, i).reshape(-1).tolist()
        if any(item.terms for item in items):
            raise ValueError("not known")
        return [item.number for item in items]

    def shape(self, operator: Operator, _: Table) -> Elements:
        """Take every extent for unknown, also those that a file states: it may state too many."""
        index = operator.inputs[0]
        extents = range(len(self.tensors[index].shape))
        return _filled((len(extents),), (self._named("extent", index, axis) for axis in extents))

    def strided(self, operator: Operator, options: Table) -> Elements:
        """Take a part of a tensor."""
        x = self.operand(operator, 0)
        first, last, steps = (self.numbers(operator, i) for i in (1, 2, 3))
        if (
            options.ellipsis_mask
            or options.new_axis_mask
            or options.offset
            or not len(first) == len(last) == len(steps)
        ):
            raise ValueError("no plain part")
        index: list[int | slice] = []
        for axis, (start, end, step) in enumerate(zip(first, last, steps, strict=True)):
            bit = 1 << axis
            if options.shrink_axis_mask & bit:
                index.append(start)
            else:
                begin = None if options.begin_mask & bit else start
                index.append(slice(begin, None if options.end_mask & bit else end, step))
        found = x[tuple(index)]
        return found if isinstance(found, np.ndarray) else _filled((), [found])

    def packed(self, operator: Operator, options: Table) -> Elements:
        """Put tensors side by side, along an axis of their own."""
        return np.stack([self.operand(operator, i) for i in range(len(operator.inputs))], axis=options.axis)

    def joined(self, operator: Operator, options: Table) -> Elements:
        """Put tensors one behind another."""
        return np.concatenate([self.operand(operator, i) for i in range(len(operator.inputs))], axis=options.axis)

    def same(self, operator: Operator, _: Table) -> Elements:
        """Keep the elements, in the shape of the result."""
        tensor = self.tensors[operator.outputs[0]]
        return self.operand(operator, 0).reshape(tensor.shape)

    def pairwise(self, operator: Operator, options: Table) -> Elements:
        """Compute with two elements each."""
        if getattr(options, "fused_activation_function", 0):
            raise ValueError("an activation")
        first, second = np.broadcast_arrays(self.operand(operator, 0), self.operand(operator, 1))
        compute = _PAIRS[operator.name]
        pairs = zip(first.reshape(-1), second.reshape(-1), strict=True)
        return _filled(first.shape, (compute(self, one, other) for one, other in pairs))

    def sum(self, one: Sum, other: Sum) -> Sum:
        """Add two elements."""
        return one.plus(other)

    def difference(self, one: Sum, other: Sum) -> Sum:
        """Subtract two elements."""
        return one.minus(other)

    def product(self, one: Sum, other: Sum) -> Sum:
        """Multiply two elements: an unknown of its own where neither is a number."""
        first, second = (one, other) if not other.terms else (other, one)
        return self._named("product", first, second) if second.terms else Sum(0).plus(first, second.number)

    def remainder(self, one: Sum, other: Sum) -> Sum:
        """Return what is left of a division that rounds down."""
        if not one.terms and not other.terms and other.number:
            return Sum(one.number % other.number)
        return self._named("remainder", one, other)

    def _named(self, *what: object) -> Sum:
        """Make a sum of one unknown."""
        return Sum(0, ((self._unknown.setdefault(what, len(self._unknown)), 1),))


def _filled(shape: tuple[int, ...], items: Iterable[Sum]) -> Elements:
    """Fill an array with sums, which numpy takes apart if it is left to it."""
    found = np.empty(prod(shape), object)
    for position, item in enumerate(items):
        found[position] = item
    return found.reshape(shape)


_PAIRS: dict[str, Callable[[Sums, Sum, Sum], Sum]] = {
    "ADD": Sums.sum,
    "FLOOR_MOD": Sums.remainder,
    "MUL": Sums.product,
    "SUB": Sums.difference,
}

_RULES: dict[str, Callable[[Sums, Operator, Table], Elements]] = {
    **dict.fromkeys(_PAIRS, Sums.pairwise),
    **dict.fromkeys(("CAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"), Sums.same),
    "CONCATENATION": Sums.joined,
    "PACK": Sums.packed,
    "SHAPE": Sums.shape,
    "STRIDED_SLICE": Sums.strided,
}
