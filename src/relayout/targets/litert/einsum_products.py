"""Einsum as sums and products of matrices, between Transposes and Reshapes that layouts pass through.

bihd, bjhd -> bhij    =    Transpose(x: b h i d) · Transpose(y: b h d j)

What stays an Einsum: diagonals, axes of one element that are stretched, integers, and several open extents in one axis
of a matrix.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.layout import Dim
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.products import terms_of
from relayout.rules.reductions import AXES_AS_INPUT
from relayout.rules.signature import Attribute, Constants, Letters

REAL = Condition(
    "real numbers", lambda operator: operator.node.outputs[0].dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
)


class _Operand(NamedTuple):
    """A tensor on the way: the step or the operand that it is, and the letters of its axes."""

    source: int | str
    letters: Letters


class _Unfit(Exception):  # noqa: N818 - not an error: the node stays
    """Raised where an extent cannot be stated."""


def _einsum(operator: Operator, _: Constants) -> Sequence[Step]:
    terms = terms_of(operator)
    extents = None if terms is None else _extents(operator, terms[:-1])
    if terms is None or extents is None:
        return ()
    try:
        return tuple(_Product(operator.version, extents).steps(terms))
    except _Unfit:
        return ()


def _extents(operator: Operator, terms: Sequence[Letters]) -> dict[str, Dim] | None:
    """Return letter -> extent; None where one is not known, or is stretched."""
    extents: dict[str, Dim] = {}
    for slot, letters in enumerate(terms):
        for letter, dim in zip(letters, operator.shape(slot) or (), strict=True):
            if dim is None or extents.setdefault(letter, dim) != dim:
                return None
    return extents


class _Product:
    """The steps of one equation.

    Args:
        version: the opset.
        extents: letter -> extent.
    """

    def __init__(self, version: int, extents: Mapping[str, Dim]) -> None:
        self.version, self.extents, self.count = version, extents, 0

    def steps(self, terms: Sequence[Letters]) -> Iterator[Step]:
        """Yield the steps, of the operands' letters and the result's."""
        *operands, result = terms
        left = _Operand(0, operands[0])
        for slot, letters in enumerate(operands[1:], 1):
            later = {letter for term in (*operands[slot + 1 :], result) for letter in term}
            left = yield from self._summed(left, later | set(letters))
            right = yield from self._summed(_Operand(slot, letters), later | set(left.letters))
            left = yield from self._product(left, right, later)
        left = yield from self._summed(left, set(result))
        yield from self._ordered(left, result)

    def _step(self, op_type: str, *inputs: int | str | NDArray[np.int64], **attributes: Attribute) -> Step:
        self.count += 1
        return Step(op_type, inputs, f"{op_type.lower()}{self.count}", attributes)

    def _ordered(self, operand: _Operand, letters: Letters) -> Iterator[Step]:
        if operand.letters != letters:
            perm = tuple(operand.letters.index(letter) for letter in letters)
            yield self._step("Transpose", operand.source, perm=perm)

    def _summed(self, operand: _Operand, wanted: set[str]) -> Generator[Step, None, _Operand]:
        axes = tuple(axis for axis, letter in enumerate(operand.letters) if letter not in wanted)
        if not axes:
            return operand
        if self.version < AXES_AS_INPUT:
            step = self._step("ReduceSum", operand.source, axes=axes, keepdims=0)
        else:
            step = self._step("ReduceSum", operand.source, np.array(axes, np.int64), keepdims=0)
        yield step
        return _Operand(step.name, tuple(letter for letter in operand.letters if letter in wanted))

    def _matrix(self, operand: _Operand, groups: Sequence[Letters]) -> Generator[Step, None, int | str]:
        """Bring an operand into groups of letters: those of the batch one by one, the last two as an axis each."""
        source, letters = operand.source, tuple(letter for group in groups for letter in group)
        for step in self._ordered(operand, letters):
            yield step
            source = step.name
        if all(len(group) == 1 for group in groups[1:]):
            return source
        step = self._reshape(source, [*((letter,) for letter in groups[0]), *groups[1:]])
        yield step
        return step.name

    def _reshape(self, source: int | str, groups: Sequence[Letters]) -> Step:
        shape: list[int] = []
        for group in groups:
            dims = [self.extents[letter] for letter in group]
            shape.append(prod(dim for dim in dims if isinstance(dim, int)) if _is_static(dims) else -1)
        if shape.count(-1) > 1:
            raise _Unfit
        return self._step("Reshape", source, np.array(shape, np.int64))

    def _product(self, left: _Operand, right: _Operand, later: set[str]) -> Generator[Step, None, _Operand]:
        shared = [letter for letter in left.letters if letter in right.letters]
        batch = tuple(letter for letter in shared if letter in later)
        summed = tuple(letter for letter in shared if letter not in later)
        rows, columns = (
            tuple(letter for letter in operand.letters if letter not in shared) for operand in (left, right)
        )
        # Without a batch, the left operand's further axes of its own are one.
        front = batch if batch else rows[:-1]
        inner = rows if batch else rows[-1:]
        first = yield from self._matrix(left, (front, inner, summed))
        second = yield from self._matrix(right, (batch, summed, columns))
        step = self._step("MatMul", first, second)
        yield step
        result = (*batch, *rows, *columns)
        if len(inner) == 1 and len(columns) == 1:
            return _Operand(step.name, result)
        split = self._reshape(step.name, [(letter,) for letter in result])
        yield split
        return _Operand(split.name, result)


def _is_static(dims: Sequence[Dim]) -> bool:
    return all(isinstance(dim, int) for dim in dims)


EINSUM = Expansion("Einsum", (REAL,), _einsum)
