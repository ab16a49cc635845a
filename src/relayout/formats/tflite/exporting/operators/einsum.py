"""Einsum: sums, transposes and one product of matrices for each further operand."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

LARGEST_BATCH = 2
"""Axes before those of matrices that BATCH_MATMUL is given as they are."""


@exporter("Einsum")
def einsum(op: NodeExport) -> None:
    """BATCH_MATMUL of each two operands, with TRANSPOSE, RESHAPE and SUM; MUL and SUM of integers."""
    tensors = op.inputs()
    terms, result = equation(op.text("equation"), [len(tensor.dims) for tensor in tensors])
    left, letters = _without_repeats(op, tensors[0], terms[0])
    for place, (tensor, term) in enumerate(zip(tensors[1:], terms[1:], strict=True)):
        right, others = _without_repeats(op, tensor, term)
        wanted = {*result, *(letter for later in terms[place + 2 :] for letter in later)}
        left, letters = _product(op, (left, letters), (right, others), wanted)
    left, letters = _summed(op, left, letters, set(result))
    op.give(op.transpose(left, [letters.index(letter) for letter in result]))


def equation(text: str, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
    """Return the letters of each operand's axes and of the result's; axes that `...` stands for are numbers.

    Args:
        text: `bij, bjk -> bik`.
        ranks: of the operands.

    Raises:
        Unwritable: it is no such text.
    """
    left, arrow, right = text.replace(" ", "").partition("->")
    pieces = left.split(",")
    if len(pieces) != len(ranks):
        raise Unwritable("an equation of another number of operands")
    many = max(
        (rank - len(piece.replace("...", "")) for piece, rank in zip(pieces, ranks, strict=True) if "..." in piece),
        default=0,
    )

    def letters(piece: str, hidden: int) -> list[str]:
        before, dots, after = piece.partition("...")
        return [*before, *(str(many - hidden + axis) for axis in range(hidden) if dots), *after]

    terms = []
    for piece, rank in zip(pieces, ranks, strict=True):
        terms.append(letters(piece, rank - len(piece.replace("...", ""))))
        if len(terms[-1]) != rank:
            raise Unwritable("an equation of another number of axes")
    if arrow:
        return terms, letters(right, many)
    counts = [letter for term in terms for letter in term]
    once = sorted(letter for letter in set(counts) if letter.isalpha() and counts.count(letter) == 1)
    return terms, [*map(str, range(many)), *once]


def _without_repeats(op: NodeExport, tensor: DraftTensor, letters: Sequence[str]) -> tuple[DraftTensor, list[str]]:
    """Return a tensor's diagonal over each letter that it has more than once."""
    found = list(letters)
    while (twice := next((letter for letter in found if found.count(letter) > 1), None)) is not None:
        first, second = [axis for axis, letter in enumerate(found) if letter == twice][:2]
        rank = len(found)
        others = [axis for axis in range(rank) if axis not in (first, second)]
        moved = op.transpose(tensor, [first, second, *others])
        dims = known(moved.dims)
        flat = op.reshape(moved, (dims[0] * dims[1], *dims[2:]))
        tensor = op.gather(flat, op.ints(np.arange(dims[0]) * (dims[1] + 1)), 0)
        found = [twice, *(found[axis] for axis in others)]
    return tensor, found


def _summed(op: NodeExport, tensor: DraftTensor, letters: list[str], kept: set[str]) -> tuple[DraftTensor, list[str]]:
    """Return a tensor summed over the letters that nobody wants any more."""
    axes = [axis for axis, letter in enumerate(letters) if letter not in kept]
    if not axes:
        return tensor, letters
    return op.reduce("SUM", tensor, axes), [letter for letter in letters if letter in kept]


def _product(
    op: NodeExport, first: tuple[DraftTensor, list[str]], second: tuple[DraftTensor, list[str]], wanted: set[str]
) -> tuple[DraftTensor, list[str]]:
    """Return the product of two tensors, summed over the letters that both have and nobody wants any more."""
    first, second = _without_ones(op, first, second), _without_ones(op, second, first)
    left, right = (
        _summed(op, tensor, letters, wanted | set(others))
        for (tensor, letters), others in ((first, second[1]), (second, first[1]))
    )
    shared = [letter for letter in left[1] if letter in right[1]]
    batch = [letter for letter in shared if letter in wanted]
    summed = [letter for letter in shared if letter not in wanted]
    rows = [letter for letter in left[1] if letter not in shared]
    columns = [letter for letter in right[1] if letter not in shared]
    if left[0].type != TensorType.FLOAT32:
        return _product_of_integers(op, left, right, batch + rows + columns, summed)
    # Axes of the left operand alone stretch the right one, as those before a matrix do.
    alone = rows[:-1] if not batch and len(rows) - 1 <= LARGEST_BATCH else []
    turned = right[1] == [*batch, *columns, *summed]  # BATCH_MATMUL reads it as it lies
    matrices = [
        _matrix(op, left, [batch or alone, rows[len(alone) :], summed]),
        _matrix(op, right, [batch, columns, summed] if turned else [batch, summed, columns]),
    ]
    made = op.matmul(*matrices, adj_y=turned)
    extents = _extents(left, right)
    result = batch + rows + columns
    return op.reshape(made, [extents[letter] for letter in result]), result


def _without_ones(
    op: NodeExport, operand: tuple[DraftTensor, list[str]], other: tuple[DraftTensor, list[str]]
) -> tuple[DraftTensor, list[str]]:
    """Return a tensor without axes of one element that stretch to those of another tensor."""
    tensor, letters = operand
    extents = dict(zip(other[1], other[0].dims, strict=True))
    for letter, dim in zip(letters, tensor.dims, strict=True):
        if extents.get(letter, dim) != dim:  # one of them may be 1
            known((dim, extents[letter]))
    kept = [axis for axis, letter in enumerate(letters) if tensor.dims[axis] != 1 or extents.get(letter, 1) == 1]
    return op.reshape(tensor, [tensor.dims[axis] for axis in kept]), [letters[axis] for axis in kept]


def _extents(*operands: tuple[DraftTensor, list[str]]) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for tensor, letters in operands:
        for letter, dim in zip(letters, tensor.dims, strict=True):
            found[letter] = dim if found.get(letter, 1) == 1 else found[letter]
    return found


def _matrix(op: NodeExport, operand: tuple[DraftTensor, list[str]], groups: list[list[str]]) -> DraftTensor:
    """Return a tensor with its letters in groups: those of the batch, and two that are one axis each."""
    tensor, letters = operand
    order = [letters.index(letter) for group in groups for letter in group]
    moved = op.transpose(tensor, order)
    sizes = [[tensor.dims[letters.index(letter)] for letter in group] for group in groups]
    front = (
        sizes[0]
        if len(sizes[0]) <= LARGEST_BATCH or not all(isinstance(dim, int) for dim in sizes[0])
        else [_joined(sizes[0])]
    )
    return op.reshape(moved, (*front, _joined(sizes[1]), _joined(sizes[2])))


def _joined(dims: Sequence[int | str]) -> int | str:
    """Return the extent of axes that become one; a name where one of them has one."""
    size, names = prod(dim for dim in dims if isinstance(dim, int)), [dim for dim in dims if isinstance(dim, str)]
    return "*".join([*names, *([str(size)] if size != 1 else [])]) if names else size


def _product_of_integers(
    op: NodeExport,
    left: tuple[DraftTensor, list[str]],
    right: tuple[DraftTensor, list[str]],
    result: list[str],
    summed: list[str],
) -> tuple[DraftTensor, list[str]]:
    letters = result + summed
    spread = []
    for tensor, own in (left, right):
        moved = op.transpose(tensor, [own.index(letter) for letter in letters if letter in own])
        dims: Dims = tuple(tensor.dims[own.index(letter)] if letter in own else 1 for letter in letters)
        spread.append(op.reshape(moved, dims))
    product = op.mul(*spread)
    return _summed(op, product, letters, set(result))
