"""Operators that make tensors, and small ones of linear algebra."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps, stretched

LARGEST_MATRIX = 5
"""Rows of a matrix up to which its determinant is written out."""
EXACT = 256
"""Products of bytes whose sum single precision holds exactly."""


@exporter("EyeLike")
def eye_like(op: NodeExport) -> None:
    """A constant."""
    rows, columns = op.static()
    kind = NUMPY[op.output(0).type]
    op.give(op.const(np.eye(rows, columns, op.integer("k"), kind)))


@exporter("Det")
def determinant(op: NodeExport) -> None:
    """MUL and SUB of minors."""
    steps, dims = Steps(op), op.static()
    count = dims[-1]
    if not count:
        raise Unwritable("determinants of matrices without elements")
    if count > LARGEST_MATRIX:
        raise Unwritable(f"determinants of more than {LARGEST_MATRIX} rows")
    rows = [[steps.at(steps.at(op.input(0), -2, row), -1, column) for column in range(count)] for row in range(count)]
    steps.give(_minor(steps, rows, list(range(count))))


def _minor(steps: Steps, rows: list[list[DraftTensor]], columns: list[int]) -> DraftTensor:
    """Return the determinant of the last rows, as many as there are columns."""
    first = rows[len(rows) - len(columns)]
    if len(columns) == 1:
        return first[columns[0]]
    total: DraftTensor | None = None
    for place, column in enumerate(columns):
        rest = _minor(steps, rows, [each for each in columns if each != column])
        term = steps.mul(first[column], rest)
        total = term if total is None else steps.sub(total, term) if place % 2 else steps.add(total, term)
    assert total is not None
    return total


@exporter("MatMulInteger")
def matmul_integer(op: NodeExport) -> None:
    """BATCH_MATMUL in single precision, of so few products at a time that it is exact."""
    steps = Steps(op)
    left, right = (_centered(steps, slot) for slot in (0, 1))
    first, second = len(left.dims) == 1, len(right.dims) == 1
    left = steps.reshape(left, (1, *left.dims)) if first else left
    right = steps.reshape(right, (*right.dims, 1)) if second else right
    (count,) = known(left.dims[-1:])
    total: DraftTensor | None = None
    for begin in range(0, count, EXACT):
        size = min(EXACT, count - begin)
        product = steps.matmul(steps.part(left, -1, begin, size), steps.part(right, -2, begin, size))
        part = steps.cast(product, TensorType.INT32)
        total = part if total is None else steps.add(total, part)
    assert total is not None
    front = stretched(left.dims[:-2], right.dims[:-2])
    steps.give(steps.reshape(total, (*front, *left.dims[-2:-1][first:], *right.dims[-1:][second:])))


@exporter("ConvInteger")
def conv_integer(op: NodeExport) -> None:
    """CONV_2D in single precision, of so few products at a time that it is exact; written before layouts are chosen."""
    raise Unwritable("a kernel that is known only at run time, or has a zero point for each channel or too many places")


def _centered(steps: Steps, slot: int) -> DraftTensor:
    """Return bytes as real numbers, their zero point subtracted."""
    op = steps.op
    number = steps.cast(op.input(slot), TensorType.FLOAT32)
    if not op.has(slot + 2):
        return number
    zero = steps.cast(op.input(slot + 2), TensorType.FLOAT32)
    if slot == 0 and len(zero.dims) == 1 and zero.dims[0] != 1:  # one for each row
        zero = steps.reshape(zero, (*zero.dims, 1))
    return steps.sub(number, zero)
