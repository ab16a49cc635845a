"""Arithmetic on the tensors of one node: each step adds one operator, and finds the extents of its result by itself.

    steps = Steps(op)
    steps.give(steps.add(steps.mul(x, 2.0), y))

A number or an array among the operands is a constant of the type of the first tensor. What only depends on small
constants is computed here, and adds no operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import NUMPY_TYPES, Dims, DraftTensor
from relayout.formats.tflite.exporting.few_axes import batched_product
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable

MULTIPLIED = frozenset([TensorType.FLOAT32, TensorType.INT32])
"""Types of which MUL by 1 is the same number, in every runtime."""
MOST_MULTIPLIED = 6
"""Axes up to which MUL stretches its operands."""
MOST_STRETCHED = 1 << 20
"""Elements of a stretched constant up to which the file holds them."""
MOST_HELD = 1 << 24
"""Elements of a constant that an operator may need though its node has but a few bytes."""
MOST_ONES = 1 << 12
"""Ones up to which they lie in the file."""

ONE = Quantization(np.ones(1, np.float32), np.zeros(1, np.int64), 0)
"""The quantization of integers that are the numbers themselves."""

Operand = DraftTensor | NDArray[Any] | float
FOLDED: Mapping[str, Callable[..., Any]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "FLOOR_MOD": np.mod,
    "LESS": np.less,
    "SELECT_V2": np.where,
}
"""Operators that are computed here where their operands are constants."""


def _has_few(arrays: Sequence[NDArray[Any] | None]) -> bool:
    """Tell whether constants that stretch to each other give no more elements than the file may hold."""
    held = [array for array in arrays if array is not None]
    shape = np.broadcast_shapes(*(array.shape for array in held))
    return prod(shape) <= max(MOST_STRETCHED, *(array.size for array in held))


def require_few(count: int) -> None:
    """Refuse an operator that needs a constant of too many elements.

    Raises:
        Unwritable: there are more than `MOST_HELD`.
    """
    if count > MOST_HELD:
        raise Unwritable(f"it needs a constant of {count:,} elements")


class Steps:
    """The operators that one node becomes.

    Args:
        op: the node.
    """

    def __init__(self, op: NodeExport) -> None:
        self.op = op

    def give(self, tensor: DraftTensor, slot: int = 0) -> None:
        """Let a tensor be an output of the node."""
        self.op.give(tensor, slot)

    def tensor(self, operand: Operand, kind: TensorType) -> DraftTensor:
        """Return an operand as a tensor; a number or an array as a constant of a type."""
        if isinstance(operand, DraftTensor):
            return operand
        return self.op.const(np.asarray(operand).astype(NUMPY[kind]))

    def ints(self, items: Sequence[int] | NDArray[Any]) -> DraftTensor:
        """Return a constant of int32."""
        return self.op.const(np.asarray(items, np.int32))

    def each(self, name: str, *operands: Operand, kind: TensorType | None = None, **options: Any) -> DraftTensor:
        """Add an operator on each element by itself, of operands that stretch to each other.

        Args:
            name: the builtin.
            operands: its operands, at least one tensor among them.
            kind: the type of the result; None: that of the first tensor.
            options: of the builtin.
        """
        first = next((operand for operand in reversed(operands) if isinstance(operand, DraftTensor)), None)
        assert first is not None
        tensors = [self.tensor(operand, first.type) for operand in operands]
        arrays = [tensor.array for tensor in tensors]
        if name in FOLDED and all(array is not None for array in arrays) and _has_few(arrays):
            with np.errstate(all="ignore"):
                return self.op.const(np.asarray(FOLDED[name](*arrays)))
        return self.op.emit(
            name, tensors, stretched(*(tensor.dims for tensor in tensors)), kind or first.type, **options
        )

    def add(self, a: Operand, b: Operand) -> DraftTensor:
        """Add."""
        return self.each("ADD", a, b)

    def sub(self, a: Operand, b: Operand) -> DraftTensor:
        """Subtract."""
        return self.each("SUB", a, b)

    def mul(self, a: Operand, b: Operand) -> DraftTensor:
        """Multiply."""
        return self.each("MUL", a, b)

    def div(self, a: Operand, b: Operand) -> DraftTensor:
        """Divide; integers are cut off towards zero."""
        return self.each("DIV", a, b)

    def maximum(self, a: Operand, b: Operand) -> DraftTensor:
        """Return the larger one."""
        return self.each("MAXIMUM", a, b)

    def minimum(self, a: Operand, b: Operand) -> DraftTensor:
        """Return the smaller one."""
        return self.each("MINIMUM", a, b)

    def compare(self, name: str, a: Operand, b: Operand) -> DraftTensor:
        """Compare: `LESS`, `GREATER_EQUAL` and so on."""
        return self.each(name, a, b, kind=TensorType.BOOL)

    def both(self, a: DraftTensor, b: DraftTensor) -> DraftTensor:
        """Return where two conditions hold."""
        return self.each("LOGICAL_AND", a, b)

    def select(self, condition: DraftTensor, a: Operand, b: Operand) -> DraftTensor:
        """Choose `a` where a condition holds, else `b`."""
        like = a if isinstance(a, DraftTensor) else b
        assert isinstance(like, DraftTensor)
        return self.each("SELECT_V2", condition, self.tensor(a, like.type), self.tensor(b, like.type), kind=like.type)

    def cast(self, tensor: DraftTensor, kind: TensorType) -> DraftTensor:
        """Return a tensor with elements of another type."""
        return self.op.cast(tensor, kind)

    def reshape(self, tensor: DraftTensor, dims: Sequence[int | str]) -> DraftTensor:
        """Return a tensor with other extents and the same elements."""
        return self.op.reshaped(tensor, tuple(dims))

    def transpose(self, tensor: DraftTensor, perm: Sequence[int]) -> DraftTensor:
        """Return a tensor with its axes in another order."""
        if tensor.array is not None:
            return self.op.const(np.ascontiguousarray(tensor.array.transpose(perm)))
        return self.op.transposed(tensor, perm)

    def stretch(self, tensor: DraftTensor, dims: Sequence[int]) -> DraftTensor:
        """Return a tensor stretched to extents."""
        if tensor.dims == tuple(dims):
            return tensor
        if tensor.array is not None and prod(dims) <= max(MOST_STRETCHED, tensor.array.size):
            return self.op.const(np.ascontiguousarray(np.broadcast_to(tensor.array, dims)))
        if (ones := self.ones(tensor, dims)) is not None:
            return self.op.emit("MUL", [tensor, ones], tuple(dims))
        return self.op.emit("BROADCAST_TO", [tensor, self.ints(dims)], tuple(dims))

    def ones(self, tensor: DraftTensor, dims: Sequence[int]) -> DraftTensor | None:
        """Return ones by which a tensor is multiplied to stretch it, or None where MUL does not keep its numbers.

        MUL moves whole rows; BROADCAST_TO copies element by element.
        """
        if not len(tensor.dims) <= len(dims) <= MOST_MULTIPLIED:
            return None
        own = (1,) * (len(dims) - len(tensor.dims)) + tensor.dims
        extents = tuple(1 if mine == dim else dim for mine, dim in zip(own, dims, strict=True))
        if tensor.quantization is None and tensor.type in MULTIPLIED:
            if prod(extents) > MOST_ONES:
                return self.op.emit("FILL", [self.ints(extents), self.tensor(1, tensor.type)], extents, tensor.type)
            return self.op.const(np.ones(extents, NUMPY[tensor.type]))
        if (
            prod(extents) <= MOST_ONES
            and tensor.quantization is not None
            and tensor.type == TensorType.INT8
            and not tensor.quantization.per_channel
        ):
            return self.op.const(np.ones(extents, np.int8), ONE)
        return None

    def reduce(self, name: str, tensor: DraftTensor, axes: Sequence[int], *, keep: bool = False) -> DraftTensor:
        """Reduce axes: `SUM`, `MEAN`, `REDUCE_MAX` and so on."""
        axes = [axis % len(tensor.dims) for axis in axes]
        kept: Dims = tuple(1 if axis in axes else dim for axis, dim in enumerate(tensor.dims))
        dims = kept if keep else tuple(dim for axis, dim in enumerate(tensor.dims) if axis not in axes)
        return self.op.emit(name, [tensor, self.ints(axes)], dims, keep_dims=keep)

    def concat(self, tensors: Sequence[DraftTensor], axis: int) -> DraftTensor:
        """Join tensors along an axis."""
        if len(tensors) == 1:
            return tensors[0]
        arrays = [tensor.array for tensor in tensors]
        if all(array is not None for array in arrays):
            return self.op.const(np.concatenate([array for array in arrays if array is not None], axis))
        axis %= len(tensors[0].dims)
        total: int = sum(known(tuple(tensor.dims[axis] for tensor in tensors)))
        dims = (*tensors[0].dims[:axis], total, *tensors[0].dims[axis + 1 :])
        return self.op.emit("CONCATENATION", tensors, dims, axis=axis)

    def stack(self, tensors: Sequence[DraftTensor], axis: int) -> DraftTensor:
        """Join tensors along a new axis."""
        rank = len(tensors[0].dims) + 1
        axis %= rank
        dims = tensors[0].dims
        return self.concat([self.reshape(each, (*dims[:axis], 1, *dims[axis:])) for each in tensors], axis)

    def part(self, tensor: DraftTensor, axis: int, begin: int, size: int) -> DraftTensor:
        """Return a run of elements along an axis; of a small constant, as a constant."""
        axis %= len(tensor.dims)
        if begin == 0 and tensor.dims[axis] == size:
            return tensor
        if tensor.array is not None and tensor.quantization is None and 0 <= begin <= tensor.array.shape[axis] - size:
            return self.op.const(np.ascontiguousarray(tensor.array.take(range(begin, begin + size), axis)))
        begins = [begin if each == axis else 0 for each in range(len(tensor.dims))]
        sizes = [size if each == axis else -1 for each in range(len(tensor.dims))]
        dims = (*tensor.dims[:axis], size, *tensor.dims[axis + 1 :])
        return self.op.emit("SLICE", [tensor, self.ints(begins), self.ints(sizes)], dims)

    def extents(self, tensor: DraftTensor) -> DraftTensor:
        """Return a tensor's extents as int32: a constant where all are known."""
        if tensor.is_static:
            return self.ints(known(tensor.dims))
        rank = len(tensor.dims)
        return self.op.emit("SHAPE", [tensor], (rank,), TensorType.INT32, out_type=TensorType.INT32)

    def extent(self, tensor: DraftTensor, axis: int) -> Operand:
        """Return the extent of one axis: a number where it is known, else a scalar of int32."""
        axis %= len(tensor.dims)
        dim = tensor.dims[axis]
        return dim if isinstance(dim, int) else self.at(self.extents(tensor), 0, axis)

    def real_extent(self, tensor: DraftTensor, axis: int) -> Operand:
        """Return the extent of one axis as a real number."""
        extent = self.extent(tensor, axis)
        return self.cast(extent, TensorType.FLOAT32) if isinstance(extent, DraftTensor) else float(extent)

    def numbers(self, count: Operand, dim: int | str) -> DraftTensor:
        """Return the int32 from 0 on, as a constant where it is known how many they are.

        RANGE of constants alone is computed before the run, and what reads it in place then changes it.
        """
        counted = self.tensor(count, TensorType.INT32)
        if counted.array is not None:
            return self.ints(np.arange(int(counted.array), dtype=np.int32))
        ends = [self.ints(np.array(0)), counted, self.ints(np.array(1))]
        return self.op.emit("RANGE", ends, (dim,))

    def product(self, factors: Sequence[Operand]) -> Operand:
        """Return the product of numbers and scalars."""
        number, result = 1, None
        for factor in factors:
            if isinstance(factor, DraftTensor):
                result = factor if result is None else self.mul(result, factor)
            else:
                number *= int(factor)
        return number if result is None else result if number == 1 else self.mul(result, number)

    def at(self, tensor: DraftTensor, axis: int, place: int) -> DraftTensor:
        """Return what stands at one place of an axis, without the axis."""
        axis %= len(tensor.dims)
        return self.reshape(self.part(tensor, axis, place, 1), (*tensor.dims[:axis], *tensor.dims[axis + 1 :]))

    def gather(self, tensor: DraftTensor, places: DraftTensor, axis: int) -> DraftTensor:
        """Return elements along an axis by their places."""
        axis %= len(tensor.dims)
        dims = (*tensor.dims[:axis], *places.dims, *tensor.dims[axis + 1 :])
        return self.op.emit("GATHER", [tensor, places], dims, axis=axis)

    def gather_nd(self, tensor: DraftTensor, places: DraftTensor) -> DraftTensor:
        """Return elements by their coordinates, which are the last axis of `places`."""
        (count,) = known(places.dims[-1:])
        return self.op.emit("GATHER_ND", [tensor, places], (*places.dims[:-1], *tensor.dims[count:]))

    def scatter_nd(self, places: DraftTensor, updates: DraftTensor, dims: Sequence[int]) -> DraftTensor:
        """Return zeros with updates added at coordinates."""
        return self.op.emit("SCATTER_ND", [places, updates, self.ints(dims)], tuple(dims), updates.type)

    def matmul(self, a: DraftTensor, b: DraftTensor, *, adj_x: bool = False, adj_y: bool = False) -> DraftTensor:
        """Multiply matrices, which are the last two axes."""
        front = stretched(a.dims[:-2], b.dims[:-2])
        dims = (*front, a.dims[-1 if adj_x else -2], b.dims[-2 if adj_y else -1])
        return batched_product(self.op, (a, b), dims, adjoint=(adj_x, adj_y))

    def pad(self, tensor: DraftTensor, pads: Sequence[tuple[int, int]], value: float = 0.0) -> DraftTensor:
        """Return a tensor with a border of one number; of a small constant, a constant."""
        if not any(map(any, pads)):
            return tensor
        if tensor.array is not None and tensor.quantization is None:
            return self.op.const(np.pad(tensor.array, pads, constant_values=np.asarray(value, tensor.array.dtype)))
        dims = tuple(dim + before + after for dim, (before, after) in zip(known(tensor.dims), pads, strict=True))
        amounts = self.op.const(np.array(pads, np.int32))
        if not value:
            return self.op.emit("PAD", [tensor, amounts], dims)
        return self.op.emit("PADV2", [tensor, amounts, self.tensor(value, tensor.type)], dims)

    def outputs(
        self, name: str, inputs: Sequence[DraftTensor | None], kinds: Sequence[tuple[TensorType, Dims]], **options: Any
    ) -> list[DraftTensor]:
        """Add an operator with several results, of which types and extents are given."""
        draft = self.op.graph.draft
        made = [draft.tensor(f"{self.op.name}/{name.lower()}", kind, dims) for kind, dims in kinds]
        draft.add(name, inputs, made, **options)
        return made


def stretched(*dims: Dims) -> Dims:
    """Return the extents to which several tensors stretch."""
    rank = max(map(len, dims))
    columns = zip(*((1,) * (rank - len(each)) + each for each in dims), strict=True)
    return tuple(next((dim for dim in column if dim != 1), 1) for column in columns)


def kind_of(array: NDArray[Any]) -> TensorType:
    """Return the type of a file's tensor for an array."""
    return NUMPY_TYPES[array.dtype.name]
