"""Einsum as sums and products of matrices, between Transposes and Reshapes that layouts pass through.

bihd, bjhd -> bhij    =    Transpose(x: b h i d) · Transpose(y: b h d j)

What stays an Einsum: several open extents in one axis of a matrix, and extents of which one may be stretched.
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
from relayout.rules.products import subscripts_of
from relayout.rules.reductions import AXES_AS_INPUT
from relayout.rules.signature import Attribute, Constants, Letters

REALS, INTEGERS = (ir.DataType.FLOAT, ir.DataType.FLOAT16), (ir.DataType.INT32, ir.DataType.INT64)
WIDER = {
    **dict.fromkeys((ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16, ir.DataType.UINT16), ir.DataType.INT32),
    ir.DataType.UINT32: ir.DataType.INT64,
}
"""Integers that no kernel adds up -> those that hold all of them, in whose products the lowest bits are the same."""
MULTIPLIED = Condition(
    "real numbers, or integers up to int64",
    lambda operator: operator.node.outputs[0].dtype in (*REALS, *INTEGERS, *WIDER),
)


class _Operand(NamedTuple):
    """A tensor on the way: the step or the operand that it is, and the letters of its axes."""

    source: int | str
    letters: Letters


class _Unfit(Exception):  # noqa: N818 - not an error: the node stays
    """Raised where an extent cannot be stated."""


def _einsum(operator: Operator, _: Constants) -> Sequence[Step]:
    terms = subscripts_of(operator)
    extents = None if terms is None else _extents(operator, terms[:-1])
    if terms is None or extents is None or len({*terms[-1]}) < len(terms[-1]) or not {*terms[-1]} <= extents.keys():
        return ()
    try:
        return tuple(_Product(operator, extents).steps(terms))
    except _Unfit:
        return ()


def _extents(operator: Operator, terms: Sequence[Letters]) -> dict[str, Dim] | None:
    """Return letter -> extent; None where one is not known, or it is not known whether one is stretched."""
    extents: dict[str, Dim] = {}
    for slot, letters in enumerate(terms):
        for letter, dim in zip(letters, operator.shape(slot) or (), strict=True):
            known = extents.setdefault(letter, dim)
            if dim is None or (known != dim and 1 not in (known, dim)):
                return None
            if known == 1:
                extents[letter] = dim
    return extents


class _Product:
    """The steps of one equation."""

    def __init__(
        self,
        operator: Operator,  # the node
        extents: Mapping[str, Dim],  # letter -> extent
    ) -> None:
        self.operator, self.version, self.extents, self.count = operator, operator.version, extents, 0
        dtype = operator.node.outputs[0].dtype
        self.dtype = ir.DataType.FLOAT if dtype is None else dtype
        self.wide = WIDER.get(self.dtype, self.dtype)
        self.is_real, self.kind = self.dtype in REALS, self.wide.numpy()

    def steps(self, terms: Sequence[Letters]) -> Iterator[Step]:
        """Yield the steps, of the operands' letters and the result's."""
        *operands, result = terms
        left = yield from self._operand(0, operands[0])
        for slot, letters in enumerate(operands[1:], 1):
            later = {letter for term in (*operands[slot + 1 :], result) for letter in term}
            right = yield from self._operand(slot, letters)
            left = yield from self._summed(left, later | set(right.letters))
            right = yield from self._summed(right, later | set(left.letters))
            left = yield from self._product(left, right, later)
        left = yield from self._summed(left, set(result))
        if self.wide != self.dtype:
            left = yield from self._cast(left, self.dtype)
        yield from self._ordered(left, result)

    def _cast(self, operand: _Operand, dtype: ir.DataType) -> Generator[Step, None, _Operand]:
        step = self._step("Cast", operand.source, to=int(dtype))
        yield step
        return operand._replace(source=step.name)

    def _step(self, op_type: str, *inputs: int | str | NDArray[np.generic], **attributes: Attribute) -> Step:
        self.count += 1
        return Step(op_type, inputs, f"{op_type.lower()}{self.count}", attributes)

    def _operand(self, slot: int, letters: Letters) -> Generator[Step, None, _Operand]:
        """Bring an operand to its diagonal over letters that it has twice, without axes that are stretched."""
        source: int | str = slot
        if self.wide != self.dtype:
            source = (yield from self._cast(_Operand(slot, letters), self.wide)).source
        shape = dict(enumerate(self.operator.shape(slot) or ()))
        while (second := next((axis for axis, each in enumerate(letters) if each in letters[:axis]), None)) is not None:
            first, extent = letters.index(letters[second]), self.extents[letters[second]]
            if not isinstance(extent, int) or shape[first] != shape[second]:
                raise _Unfit
            step = yield from self._diagonal(source, [*shape.values()], (first, second), extent)
            source, letters = step.name, letters[:second] + letters[second + 1 :]
            shape = dict(enumerate(dim for axis, dim in shape.items() if axis != second))
        ones = tuple(axis for axis, letter in enumerate(letters) if shape[axis] == 1 != self.extents[letter])
        if not ones:
            return _Operand(source, letters)
        step = self._on_axes("Squeeze", source, ones)
        yield step
        return _Operand(step.name, tuple(letter for axis, letter in enumerate(letters) if axis not in ones))

    def _diagonal(
        self, source: int | str, shape: Sequence[Dim], pair: tuple[int, int], extent: int
    ) -> Generator[Step, None, Step]:
        """Take the diagonal over two axes: neighbours are one axis, of others all else is 0 and summed."""
        first, second = pair
        behind = [dim if isinstance(dim, int) else -1 for dim in shape[second + 1 :]]
        if second == first + 1 and behind.count(-1) <= 1:
            joined = self._step("Reshape", source, np.array([0] * first + [extent**2, *behind], np.int64))
            yield joined
            step = self._step("Gather", joined.name, np.arange(extent) * (extent + 1), axis=first)
        else:
            sides = [extent if axis in pair else 1 for axis in range(len(shape))]
            apart = self._step("Where", np.eye(extent, dtype=bool).reshape(sides), source, np.zeros((), self.kind))
            yield apart
            step = self._reduced(apart.name, (second,))
        yield step
        return step

    def _on_axes(self, op_type: str, source: int | str, axes: Sequence[int], **attributes: Attribute) -> Step:
        if self.version < AXES_AS_INPUT:
            return self._step(op_type, source, axes=tuple(axes), **attributes)
        return self._step(op_type, source, np.array(axes, np.int64), **attributes)

    def _reduced(self, source: int | str, axes: Sequence[int]) -> Step:
        return self._on_axes("ReduceSum", source, axes, keepdims=0)

    def _ordered(self, operand: _Operand, letters: Letters) -> Iterator[Step]:
        if operand.letters != letters:
            perm = tuple(operand.letters.index(letter) for letter in letters)
            yield self._step("Transpose", operand.source, perm=perm)

    def _summed(self, operand: _Operand, wanted: set[str]) -> Generator[Step, None, _Operand]:
        axes = tuple(axis for axis, letter in enumerate(operand.letters) if letter not in wanted)
        if not axes:
            return operand
        step = self._reduced(operand.source, axes)
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
        before = [(letter,) for letter in letters]
        step = self._reshape(source, before, [*((letter,) for letter in groups[0]), *groups[1:]])
        yield step
        return step.name

    def _reshape(self, source: int | str, before: Sequence[Letters], groups: Sequence[Letters]) -> Step:
        shape: list[int] = []
        for place, group in enumerate(groups):
            dims = [self.extents[letter] for letter in group]
            if all(isinstance(dim, int) for dim in dims):
                shape.append(prod(dim for dim in dims if isinstance(dim, int)))
            else:
                shape.append(0 if [*before[place : place + 1]] == [group] else -1)
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
        if not self.is_real:
            return (yield from self._product_of_integers(left, right, (*batch, *rows, *columns, *summed)))
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
        joined = [*((letter,) for letter in front), inner, columns]
        split = self._reshape(step.name, joined, [(letter,) for letter in result])
        yield split
        return _Operand(split.name, result)

    def _product_of_integers(
        self, left: _Operand, right: _Operand, letters: Letters
    ) -> Generator[Step, None, _Operand]:
        """Multiply element by element, each operand stretched along letters of the other alone."""
        sources = []
        for operand in (left, right):
            source, own = operand.source, tuple(letter for letter in letters if letter in operand.letters)
            for step in self._ordered(operand, own):
                yield step
                source = step.name
            if ones := tuple(axis for axis, letter in enumerate(letters) if letter not in own):
                step = self._on_axes("Unsqueeze", source, ones)
                yield step
                source = step.name
            sources.append(source)
        step = self._step("Mul", *sources)
        yield step
        return _Operand(step.name, letters)


EINSUM = Expansion("Einsum", (MULTIPLIED,), _einsum)
