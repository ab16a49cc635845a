"""Einsum as sums and products of matrices, between Transposes and Reshapes that layouts pass through.

bihd, bjhd -> bhij    =    Transpose(x: b h i d) · Transpose(y: b h d j)

What stays an Einsum: several open extents in one axis of a matrix, and extents of which one may be stretched.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.layout import Dim
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.normalization import AXES_AS_INPUT
from relayout.rules.products import subscripts_of
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
        return _Product(operator, extents).write(terms)
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
        self.operator, self.version, self.extents = operator, operator.version, extents
        self.steps: list[Step] = []
        dtype = operator.node.outputs[0].dtype
        self.dtype = ir.DataType.FLOAT if dtype is None else dtype
        self.wide = WIDER.get(self.dtype, self.dtype)
        self.is_real, self.kind = self.dtype in REALS, self.wide.numpy()

    def write(self, terms: Sequence[Letters]) -> list[Step]:
        """Return the steps, of the operands' letters and the result's."""
        *operands, result = terms
        left = self._operand(0, operands[0])
        for slot, letters in enumerate(operands[1:], 1):
            later = {letter for term in (*operands[slot + 1 :], result) for letter in term}
            right = self._operand(slot, letters)
            left = self._summed(left, later | set(right.letters))
            right = self._summed(right, later | set(left.letters))
            left = self._product(left, right, later)
        left = self._summed(left, set(result))
        self._ordered(self._cast(left, self.dtype), result)
        return self.steps

    def _add(self, op_type: str, *inputs: int | str | NDArray[np.generic], **attributes: Attribute) -> str:
        """Add a step, and return its name."""
        self.steps.append(Step(op_type, inputs, f"{op_type.lower()}{len(self.steps) + 1}", attributes))
        return self.steps[-1].name

    def _cast(self, operand: _Operand, dtype: ir.DataType) -> _Operand:
        if self.wide == self.dtype:
            return operand
        return operand._replace(source=self._add("Cast", operand.source, to=int(dtype)))

    def _operand(self, slot: int, letters: Letters) -> _Operand:
        """Bring an operand to its diagonal over letters that it has twice, without axes that are stretched."""
        source = self._cast(_Operand(slot, letters), self.wide).source
        shape = dict(enumerate(self.operator.shape(slot) or ()))
        while (second := next((axis for axis, each in enumerate(letters) if each in letters[:axis]), None)) is not None:
            first, extent = letters.index(letters[second]), self.extents[letters[second]]
            if not isinstance(extent, int) or shape[first] != shape[second]:
                raise _Unfit
            source = self._diagonal(source, [*shape.values()], (first, second), extent)
            letters = letters[:second] + letters[second + 1 :]
            shape = dict(enumerate(dim for axis, dim in shape.items() if axis != second))
        ones = tuple(axis for axis, letter in enumerate(letters) if shape[axis] == 1 != self.extents[letter])
        if not ones:
            return _Operand(source, letters)
        remaining_letters = tuple(letter for axis, letter in enumerate(letters) if axis not in ones)
        return _Operand(self._on_axes("Squeeze", source, ones), remaining_letters)

    def _diagonal(self, source: int | str, shape: Sequence[Dim], pair: tuple[int, int], extent: int) -> str:
        """Take the diagonal over two axes: neighbours are one axis, of others all else is 0 and summed."""
        first, second = pair
        behind = [dim if isinstance(dim, int) else -1 for dim in shape[second + 1 :]]
        if second == first + 1 and behind.count(-1) <= 1:
            joined = self._add("Reshape", source, np.array([0] * first + [extent**2, *behind], np.int64))
            return self._add("Gather", joined, np.arange(extent) * (extent + 1), axis=first)
        sides = [extent if axis in pair else 1 for axis in range(len(shape))]
        masked_source = self._add("Where", np.eye(extent, dtype=bool).reshape(sides), source, np.zeros((), self.kind))
        return self._reduced(masked_source, (second,))

    def _on_axes(self, op_type: str, source: int | str, axes: Sequence[int], **attributes: Attribute) -> str:
        if self.version < AXES_AS_INPUT:
            return self._add(op_type, source, axes=tuple(axes), **attributes)
        return self._add(op_type, source, np.array(axes, np.int64), **attributes)

    def _reduced(self, source: int | str, axes: Sequence[int]) -> str:
        return self._on_axes("ReduceSum", source, axes, keepdims=0)

    def _ordered(self, operand: _Operand, letters: Letters) -> int | str:
        if operand.letters == letters:
            return operand.source
        return self._add("Transpose", operand.source, perm=tuple(map(operand.letters.index, letters)))

    def _summed(self, operand: _Operand, needed_letters: set[str]) -> _Operand:
        axes = tuple(axis for axis, letter in enumerate(operand.letters) if letter not in needed_letters)
        if not axes:
            return operand
        remaining_letters = tuple(letter for letter in operand.letters if letter in needed_letters)
        return _Operand(self._reduced(operand.source, axes), remaining_letters)

    def _matrix(self, operand: _Operand, groups: Sequence[Letters]) -> int | str:
        """Bring an operand into groups of letters: those of the batch one by one, the last two as an axis each."""
        letters = tuple(letter for group in groups for letter in group)
        source = self._ordered(operand, letters)
        if all(len(group) == 1 for group in groups[1:]):
            return source
        before = [(letter,) for letter in letters]
        return self._reshape(source, before, [*((letter,) for letter in groups[0]), *groups[1:]])

    def _reshape(self, source: int | str, before: Sequence[Letters], groups: Sequence[Letters]) -> str:
        shape: list[int] = []
        for place, group in enumerate(groups):
            dims = [self.extents[letter] for letter in group]
            known = [dim for dim in dims if isinstance(dim, int)]
            same = [*before[place : place + 1]] == [group]
            shape.append(prod(known) if len(known) == len(dims) else 0 if same else -1)
        if shape.count(-1) > 1:
            raise _Unfit
        return self._add("Reshape", source, np.array(shape, np.int64))

    def _product(self, left: _Operand, right: _Operand, later: set[str]) -> _Operand:
        shared = [letter for letter in left.letters if letter in right.letters]
        batch = tuple(letter for letter in shared if letter in later)
        summed = tuple(letter for letter in shared if letter not in later)
        rows, columns = (
            tuple(letter for letter in operand.letters if letter not in shared) for operand in (left, right)
        )
        if not self.is_real:
            return self._product_of_integers(left, right, (*batch, *rows, *columns, *summed))
        # Without a batch, the left operand's further axes of its own are one.
        front = batch if batch else rows[:-1]
        inner = rows if batch else rows[-1:]
        first = self._matrix(left, (front, inner, summed))
        name = self._add("MatMul", first, self._matrix(right, (batch, summed, columns)))
        result = (*batch, *rows, *columns)
        if len(inner) != 1 or len(columns) != 1:
            joined = [*((letter,) for letter in front), inner, columns]
            name = self._reshape(name, joined, [(letter,) for letter in result])
        return _Operand(name, result)

    def _product_of_integers(self, left: _Operand, right: _Operand, letters: Letters) -> _Operand:
        """Multiply element by element, each operand stretched along letters of the other alone."""
        sources = []
        for operand in (left, right):
            source = self._ordered(operand, tuple(letter for letter in letters if letter in operand.letters))
            ones = tuple(axis for axis, letter in enumerate(letters) if letter not in operand.letters)
            sources.append(self._on_axes("Unsqueeze", source, ones) if ones else source)
        return _Operand(self._add("Mul", *sources), letters)


EINSUM = Expansion("Einsum", (MULTIPLIED,), _einsum)


def write_einsums(model: ir.Model) -> None:
    """Write Einsums that a target without this decomposition left as products of matrices, in place."""
    from relayout.lowering.decompose import expand

    expand(model, (EINSUM,))
