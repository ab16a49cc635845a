"""Random numbers. A runtime of `.tflite` draws another stream than one of ONNX, from the same distribution."""

from __future__ import annotations

from functools import reduce
from math import isfinite, nan

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import require_few
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

# Operators that make tensors, and small ones of linear algebra.

LARGEST_MATRIX = 5  # rows of a matrix up to which its determinant is written out
EXACT = 256  # products of bytes whose sum single precision holds exactly


@exporter("EyeLike")
def eye_like(op: NodeExport) -> None:
    """A constant."""
    rows, columns = op.static()
    require_few(rows * columns)
    kind = NUMPY[op.output(0).type]
    op.give(op.const(np.eye(rows, columns, op.integer("k"), kind)))


@exporter("Det")
def determinant(op: NodeExport) -> None:
    """MUL and SUB of minors."""
    dims = op.static()
    count = dims[-1]
    if not count:
        raise Unwritable("determinants of matrices without elements")
    if count > LARGEST_MATRIX:
        raise Unwritable(f"determinants of more than {LARGEST_MATRIX} rows")
    rows = [[op.at(op.at(op.input(0), -2, row), -1, column) for column in range(count)] for row in range(count)]

    def minor(columns: list[int]) -> DraftTensor:
        """Return the determinant of the last rows, as many as there are columns."""
        first = rows[count - len(columns)]
        if len(columns) == 1:
            return first[columns[0]]
        terms = (op.mul(first[column], minor([each for each in columns if each != column])) for column in columns)
        total = next(terms)
        for place, term in enumerate(terms):
            total = op.add(total, term) if place % 2 else op.sub(total, term)
        return total

    op.give(minor(list(range(count))))


@exporter("MatMulInteger")
def matmul_integer(op: NodeExport) -> None:
    """BATCH_MATMUL in single precision, of so few products at a time that it is exact."""
    left, right = (_centered(op, slot) for slot in (0, 1))
    (count,), along = known(left.dims[-1:]), max(len(right.dims) - 2, 0)

    def product(begin: int) -> DraftTensor:
        size = min(EXACT, count - begin)
        return op.cast(op.matmul(op.part(left, -1, begin, size), op.part(right, along, begin, size)), TensorType.INT32)

    op.give(reduce(op.add, map(product, range(0, count, EXACT))))


@exporter("ConvInteger")
def conv_integer(op: NodeExport) -> None:
    """CONV_2D in single precision, of so few products at a time that it is exact; written before layouts are chosen."""
    raise Unwritable("a kernel whose extents are known only at run time, or of too many places")


def _centered(op: NodeExport, slot: int) -> DraftTensor:
    """Return bytes as real numbers, their zero point subtracted."""
    number = op.cast(op.input(slot), TensorType.FLOAT32)
    if not op.has(slot + 2):
        return number
    zero = op.cast(op.input(slot + 2), TensorType.FLOAT32)
    if slot == 0 and len(zero.dims) == 1 and zero.dims[0] != 1:  # one for each row
        zero = op.reshape(zero, (*zero.dims, 1))
    return op.sub(number, zero)


UNIFORM, NORMAL = "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"
LIMIT = 1 << 31  # seeds and extents are below it
RATIO, TRAINING = 1, 2  # operands of Dropout


@exporter("RandomUniform", "RandomUniformLike")
def random_uniform(op: NodeExport) -> None:
    """RANDOM_UNIFORM, MUL and ADD; another stream of numbers than ONNX's."""
    low, high = op.number("low", 0.0), op.number("high", 1.0)
    _give(op, _random_numbers(op, UNIFORM), high - low, low)


@exporter("RandomNormal", "RandomNormalLike")
def random_normal(op: NodeExport) -> None:
    """RANDOM_STANDARD_NORMAL, MUL and ADD; another stream of numbers than ONNX's."""
    _give(op, _random_numbers(op, NORMAL), op.number("scale", 1.0), op.number("mean", 0.0))


@exporter("Bernoulli")
def bernoulli(op: NodeExport) -> None:
    """RANDOM_UNIFORM, GREATER and CAST, as the standard defines it; another stream of numbers than ONNX's."""
    # The definition gives 1 where the number is above the operand, with the probability 1 - p.
    ones = op.compare("GREATER", _random_numbers(op, UNIFORM), op.input(0))
    op.give(op.cast(ones, op.output(0).type))


@exporter("Dropout")
def dropout(op: NodeExport) -> None:
    """Nothing: its operand, and a mask of ones; in training RANDOM_UNIFORM, LESS, MUL and SELECT_V2."""
    operand = op.input(0)
    training = op.constant(TRAINING) if op.has(TRAINING) else np.array(False)
    if training is None or training.size != 1:
        raise Unwritable("a Dropout that a switch puts into training")
    if training.item():
        ratio = op.required_constant(RATIO, "the ratio of a Dropout") if op.has(RATIO) else np.array(0.5)
        if ratio.size != 1 or not 0 <= ratio.item() < 1:
            raise Unwritable("a ratio that is not from 0 to below 1")
        share = 1.0 - float(ratio.item())
        mask = op.compare("LESS", _random_numbers(op, UNIFORM), share)
        op.give(op.select(mask, op.mul(operand, 1.0 / share), 0.0))
        if op.gives(1):
            op.give(mask, 1)
        return
    if op.gives(1):
        ones = op.const(np.full((), op.version >= 12, NUMPY[op.output(1).type]))  # before version 12 zeros
        op.result("FILL", [op.extents(operand), ones], 1)
    op.give(operand)


def _random_numbers(op: NodeExport, name: str) -> DraftTensor:
    """Return random numbers of the extents that the node's first output has."""
    if op.op_type in ("RandomNormal", "RandomUniform"):
        dims: Dims = tuple(op.integers("shape"))
        if any(dim < 0 or dim >= LIMIT for dim in op.integers("shape")):
            raise Unwritable(f"a shape of {op.integers('shape')}")
        shape = op.ints(op.integers("shape"), "shape")
    else:
        dims, shape = op.input(0).dims, op.extents(op.input(0))
    number = op.number("seed", nan)
    seed, second = (int(number) % LIMIT, 1) if isfinite(number) else (0, 0)  # two zeros fix no stream
    return op.emit(name, [shape], dims, TensorType.FLOAT32, seed=seed, seed2=second)


def _give(op: NodeExport, numbers: DraftTensor, scale: float, shift: float) -> None:
    if op.output(0).type != TensorType.FLOAT32:
        raise Unwritable(f"random numbers of {op.output(0).type.name}")
    scaled = numbers if scale == 1.0 else op.mul(numbers, scale)
    op.give(op.add(scaled, shift) if shift else scaled)
