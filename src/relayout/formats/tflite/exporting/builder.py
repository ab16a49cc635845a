"""Builtins under construction: each method adds one operator, and finds the extents of its result by itself.

    op.give(op.add(op.mul(x, 2.0), y))

A number or an array among the operands is a constant of the type of the first tensor. What only depends on small
constants is computed here, and adds no operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.elementwise import FUNCTIONS
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, Draft, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable

MULTIPLIED = frozenset([TensorType.FLOAT32, TensorType.INT32])
"""Types of which MUL by 1 is the same number, in every runtime."""
MOST_MULTIPLIED = 6  # axes up to which MUL stretches its operands
MOST_STRETCHED = 1 << 20  # elements of a stretched constant up to which the file holds them
MOST_HELD = 1 << 24  # elements of a constant that an operator may need though its node has but a few bytes
MOST_ONES = 1 << 12  # ones up to which they lie in the file

ONE = Quantization(np.ones(1, np.float32), np.zeros(1, np.int64), 0)
"""The quantization of integers that are the numbers themselves."""

Operand = DraftTensor | NDArray[Any] | float


def _has_few(arrays: Sequence[NDArray[Any] | None]) -> bool:
    """Tell whether constants that stretch to each other give no more elements than the file may hold."""
    known_arrays = [array for array in arrays if array is not None]
    shape = np.broadcast_shapes(*(array.shape for array in known_arrays))
    return prod(shape) <= max(MOST_STRETCHED, *(array.size for array in known_arrays))


def require_few(count: int) -> None:
    """Refuse an operator that needs a constant of too many elements."""
    if count > MOST_HELD:
        raise Unwritable(f"it needs a constant of {count:,} elements")


def _of_pairs(name: str) -> Callable[[BuiltinBuilder, Operand, Operand], DraftTensor]:
    """Return a method that adds a builtin of two operands, element by element."""
    return lambda builder, a, b: builder.each(name, a, b)


class BuiltinBuilder:
    """The operators that one node becomes."""

    def __init__(
        self,
        draft: Draft,  # the graph that they are added to
        name: str,  # the node's, with which the names of tensors begin
    ) -> None:
        self.draft, self.name = draft, name

    def const(self, array: NDArray[Any], quantization: Quantization | None = None, what: str = "") -> DraftTensor:
        """Add a constant; kernels read half precision in single."""
        array = array.astype(np.float32) if array.dtype == np.float16 else array
        return self.draft.constant(f"{self.name}/{what or 'constant'}", array, quantization)

    def constant_array(self, tensor: DraftTensor) -> NDArray[Any] | None:
        """Return the numbers of a constant that is computed with here; None of a large one, and of what is computed."""
        return tensor.array

    def ints(self, items: Sequence[int] | NDArray[Any], what: str = "") -> DraftTensor:
        """Add a constant of int32."""
        return self.const(np.asarray(items, np.int32), what=what)

    def tensor(self, operand: Operand, kind: TensorType) -> DraftTensor:
        """Return an operand as a tensor; a number or an array as a constant of a type."""
        return operand if isinstance(operand, DraftTensor) else self.const(np.asarray(operand).astype(NUMPY[kind]))

    def emit(
        self,
        name: str,  # the builtin operator
        inputs: Sequence[DraftTensor | None],  # its operands
        dims: Dims,  # the extents of the result
        kind: TensorType | None = None,  # its element type; None: that of the first operand
        # what its integers mean; None: as the first operand's, where it has the same type
        quantization: Quantization | None = None,
        **options: Any,  # of the schema
    ) -> DraftTensor:
        """Add an operator with one result, which is not the node's."""
        first = next(tensor for tensor in inputs if tensor is not None)
        kind = first.type if kind is None else kind
        if quantization is None and kind == first.type:
            quantization = first.quantization
        result = self.draft.tensor(f"{self.name}/{name.lower()}", kind, dims, quantization)
        self.draft.add(name, inputs, [result], **options)
        return result

    def each(
        self,
        name: str,  # the builtin
        *operands: Operand,  # its operands, at least one tensor among them
        kind: TensorType | None = None,  # the type of the result; None: that of the first tensor
        **options: Any,  # of the builtin
    ) -> DraftTensor:
        """Add an operator on each element by itself, of operands that stretch to each other."""
        first = next((operand for operand in reversed(operands) if isinstance(operand, DraftTensor)), None)
        assert first is not None
        tensors = [self.tensor(operand, first.type) for operand in operands]
        arrays = list(map(self.constant_array, tensors))
        if name in FUNCTIONS and all(array is not None for array in arrays) and _has_few(arrays):
            with np.errstate(all="ignore"):
                return self.const(np.asarray(FUNCTIONS[name](options, *arrays), NUMPY[kind or first.type]))
        return self.emit(name, tensors, stretched(*(tensor.dims for tensor in tensors)), kind or first.type, **options)

    add, sub, mul = _of_pairs("ADD"), _of_pairs("SUB"), _of_pairs("MUL")
    div = _of_pairs("DIV")  # integers are cut off towards zero
    maximum, minimum = _of_pairs("MAXIMUM"), _of_pairs("MINIMUM")
    both = _of_pairs("LOGICAL_AND")  # where two conditions hold

    def clamp(self, x: Operand, low: Operand, high: Operand) -> DraftTensor:
        """Return numbers, those beyond two ends as the ends."""
        return self.maximum(self.minimum(x, high), low)

    def is_between(self, x: Operand, low: Operand, high: Operand) -> DraftTensor:
        """Return which numbers are not beyond two ends."""
        return self.both(self.compare("GREATER_EQUAL", x, low), self.compare("LESS_EQUAL", x, high))

    def compare(self, name: str, a: Operand, b: Operand) -> DraftTensor:
        """Compare: `LESS`, `GREATER_EQUAL` and so on."""
        return self.each(name, a, b, kind=TensorType.BOOL)

    def select(self, condition: DraftTensor, a: Operand, b: Operand) -> DraftTensor:
        """Choose `a` where a condition holds, else `b`."""
        like = a if isinstance(a, DraftTensor) else b
        assert isinstance(like, DraftTensor)
        return self.each("SELECT_V2", condition, self.tensor(a, like.type), self.tensor(b, like.type), kind=like.type)

    def stretch(self, tensor: DraftTensor, dims: Sequence[int]) -> DraftTensor:
        """Return a tensor stretched to extents."""
        if tensor.dims == tuple(dims):
            return tensor
        array = self.constant_array(tensor)
        if array is not None and prod(dims) <= max(MOST_STRETCHED, array.size):
            return self.const(np.ascontiguousarray(np.broadcast_to(array, dims)))
        if (ones := self.ones(tensor, dims)) is not None:
            return self.emit("MUL", [tensor, ones], tuple(dims))
        return self.emit("BROADCAST_TO", [tensor, self.ints(dims)], tuple(dims))

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
                return self.emit("FILL", [self.ints(extents), self.tensor(1, tensor.type)], extents, tensor.type)
            return self.const(np.ones(extents, NUMPY[tensor.type]))
        if (
            prod(extents) <= MOST_ONES
            and tensor.quantization is not None
            and tensor.type == TensorType.INT8
            and not tensor.quantization.per_channel
        ):
            return self.const(np.ones(extents, np.int8), ONE)
        return None

    def reduce(self, name: str, tensor: DraftTensor, axes: Sequence[int], *, keep: bool = False) -> DraftTensor:
        """Reduce axes: `SUM`, `MEAN`, `REDUCE_MAX` and so on."""
        axes = [axis % len(tensor.dims) for axis in axes]
        kept_dims: Dims = tuple(1 if axis in axes else dim for axis, dim in enumerate(tensor.dims))
        dims = kept_dims if keep else tuple(dim for axis, dim in enumerate(tensor.dims) if axis not in axes)
        return self.emit(name, [tensor, self.ints(axes, "axes")], dims, keep_dims=keep)

    def concat(self, tensors: Sequence[DraftTensor], axis: int) -> DraftTensor:
        """Join tensors along an axis."""
        if len(tensors) == 1:
            return tensors[0]
        arrays = list(map(self.constant_array, tensors))
        if all(array is not None for array in arrays):
            return self.const(np.concatenate([array for array in arrays if array is not None], axis))
        axis %= len(tensors[0].dims)
        total: int = sum(known(tuple(tensor.dims[axis] for tensor in tensors)))
        dims = (*tensors[0].dims[:axis], total, *tensors[0].dims[axis + 1 :])
        return self.emit("CONCATENATION", tensors, dims, axis=axis)

    def stack(self, tensors: Sequence[DraftTensor], axis: int) -> DraftTensor:
        """Join tensors along a new axis."""
        dims = tensors[0].dims
        axis %= len(dims) + 1
        if axis == len(dims) or not isinstance(dims[axis], int):
            return self.concat([self.reshape(each, (*dims[:axis], 1, *dims[axis:])) for each in tensors], axis)
        return self.reshape(self.concat(tensors, axis), (*dims[:axis], len(tensors), *dims[axis:]))

    def unpacked(self, tensor: DraftTensor, axis: int) -> list[DraftTensor]:
        """Return the parts of one element of an axis, without it; its extent is known."""
        (count,) = known(tensor.dims[axis : axis + 1])
        kinds = [(tensor.type, (*tensor.dims[:axis], *tensor.dims[axis + 1 :]))] * count
        return self.outputs("UNPACK", [tensor], kinds, num=count, axis=axis)

    def part(self, tensor: DraftTensor, axis: int, begin: int, size: int) -> DraftTensor:
        """Return a run of elements along an axis; of a small constant, as a constant."""
        axis %= len(tensor.dims)
        if begin == 0 and tensor.dims[axis] == size:
            return tensor
        array = self.constant_array(tensor)
        if array is not None and tensor.quantization is None and 0 <= begin <= array.shape[axis] - size:
            return self.const(np.ascontiguousarray(array.take(range(begin, begin + size), axis)))
        begins = [begin if each == axis else 0 for each in range(len(tensor.dims))]
        dims = (*tensor.dims[:axis], size, *tensor.dims[axis + 1 :])
        if tensor.is_static:  # sizes of -1 are right, too, but delegates leave such a SLICE to slower kernels
            return self.emit("SLICE", [tensor, self.ints(begins), self.ints(known(dims))], dims)
        # LiteRT 2.3 plans no memory ahead for what a SLICE takes of open extents, nor for all that comes behind. In the
        # first run graph inputs move then, and a delegate reads them where they were: through a RESHAPE, for one.
        ends = [begin + size if each == axis else 0 for each in range(len(tensor.dims))]
        inputs = [tensor, self.ints(begins), self.ints(ends), self.ints(np.ones(len(ends)))]
        return self.emit("STRIDED_SLICE", inputs, dims, end_mask=~(1 << axis) & ((1 << len(ends)) - 1))

    def extents(self, tensor: DraftTensor) -> DraftTensor:
        """Return a tensor's extents as int32: a constant where all are known."""
        if tensor.is_static:
            return self.ints(known(tensor.dims))
        rank = len(tensor.dims)
        return self.emit("SHAPE", [tensor], (rank,), TensorType.INT32, out_type=TensorType.INT32)

    def extent(self, tensor: DraftTensor, axis: int) -> Operand:
        """Return the extent of one axis: a number where it is known, else a scalar of int32."""
        axis %= len(tensor.dims)
        dim = tensor.dims[axis]
        return dim if isinstance(dim, int) else self.at(self.extents(tensor), 0, axis)

    def real_extent(self, tensor: DraftTensor, axis: int) -> Operand:
        """Return the extent of one axis as a real number."""
        extent = self.extent(tensor, axis)
        return self.cast(extent, TensorType.FLOAT32) if isinstance(extent, DraftTensor) else float(extent)

    def arange(self, count: Operand, dim: int | str) -> DraftTensor:
        """Return the int32 from 0 on, as a constant where it is known how many they are.

        RANGE of constants alone is computed before the run, and what reads it in place then changes it.
        """
        counted = self.tensor(count, TensorType.INT32)
        if counted.array is not None:
            return self.ints(np.arange(int(counted.array), dtype=np.int32))
        ends = [self.ints(np.array(0)), counted, self.ints(np.array(1))]
        return self.emit("RANGE", ends, (dim,))

    def elements(self, dims: Dims, what: str) -> int | str:
        """Return how many elements there are of some extents; a name of its own where one is open."""
        return prod(known(dims)) if all_known(dims) else f"?{self.name}.{what}"

    def product(self, factors: Sequence[Operand]) -> Operand:
        """Return the product of numbers and scalars."""
        number = prod(int(factor) for factor in factors if not isinstance(factor, DraftTensor))
        scalars = [factor for factor in factors if isinstance(factor, DraftTensor)]
        if not scalars:
            return number
        result = reduce(self.mul, scalars)
        return result if number == 1 else self.mul(result, number)

    def at(self, tensor: DraftTensor, axis: int, place: int) -> DraftTensor:
        """Return what stands at one place of an axis, without the axis."""
        axis %= len(tensor.dims)
        return self.reshape(self.part(tensor, axis, place, 1), (*tensor.dims[:axis], *tensor.dims[axis + 1 :]))

    def gather(self, tensor: DraftTensor, places: DraftTensor, axis: int) -> DraftTensor:
        """Return elements along an axis by their places."""
        axis %= len(tensor.dims)
        dims = (*tensor.dims[:axis], *places.dims, *tensor.dims[axis + 1 :])
        return self.emit("GATHER", [tensor, places], dims, axis=axis)

    def gather_nd(self, tensor: DraftTensor, places: DraftTensor) -> DraftTensor:
        """Return elements by their coordinates, which are the last axis of `places`."""
        (count,) = known(places.dims[-1:])
        return self.emit("GATHER_ND", [tensor, places], (*places.dims[:-1], *tensor.dims[count:]))

    def scatter_nd(self, places: DraftTensor, updates: DraftTensor, dims: Sequence[int]) -> DraftTensor:
        """Return zeros with updates added at coordinates."""
        return self.emit("SCATTER_ND", [places, updates, self.ints(dims)], tuple(dims), updates.type)

    def matmul(
        self,
        a: DraftTensor,
        b: DraftTensor,
        *,
        adj_x: bool = False,  # whether the matrices of the first operand are transposed
        adj_y: bool = False,  # and of the second
        meaning: Quantization | None = None,  # what integers of the result mean
    ) -> DraftTensor:
        """Multiply matrices, which are the last two axes; a vector is a row or a column."""
        is_row, is_column = len(a.dims) == 1, len(b.dims) == 1
        a = self.reshape(a, (1, *a.dims)) if is_row else a
        b = self.reshape(b, (*b.dims, 1)) if is_column else b
        front, row, column = (
            stretched(a.dims[:-2], b.dims[:-2]),
            a.dims[-1 if adj_x else -2],
            b.dims[-2 if adj_y else -1],
        )
        product = batched_product(self, (a, b), (*front, row, column), meaning, adjoint=(adj_x, adj_y))
        return self.reshape(product, (*front, *[row][is_row:], *[column][is_column:]))

    def fully_connected(
        self,
        rows: DraftTensor,  # the last axis is multiplied
        weights: DraftTensor,  # `n k`
        bias: DraftTensor | None = None,  # `n`
    ) -> DraftTensor:
        """Multiply rows by weights."""
        inputs, dims = [rows, weights, *([] if bias is None else [bias])], (*rows.dims[:-1], weights.dims[0])
        return self.emit("FULLY_CONNECTED", inputs, dims, keep_num_dims=len(rows.dims) > MATRIX)

    def pad(
        self,
        tensor: DraftTensor,
        pads: Sequence[tuple[int, int]],  # of the border, (before, after) of each axis; negative ones cut
        # what the border holds, an integer where the tensor holds integers; None: what means zero
        border: float | None = None,
    ) -> DraftTensor:
        """Return a tensor with a border of one number; of a small constant, a constant."""
        tensor = self.cut(tensor, [(max(-before, 0), max(-after, 0)) for before, after in pads])
        pads = [(max(before, 0), max(after, 0)) for before, after in pads]
        if not any(map(any, pads)):
            return tensor
        dims = tuple(_grown(dim, sum(pair)) for dim, pair in zip(tensor.dims, pads, strict=True))
        array = self.constant_array(tensor)
        if array is not None and tensor.quantization is None and prod(known(dims)) <= max(MOST_STRETCHED, array.size):
            return self.const(np.pad(array, pads, constant_values=np.asarray(border or 0, array.dtype)))
        amounts = self.const(np.array(pads, np.int32), what="pads")
        if border is None or (not border and tensor.quantization is None):
            return self.emit("PAD", [tensor, amounts], dims)  # of integers with a scale it gives their zero point
        value = self.const(np.asarray(border, NUMPY[tensor.type]), tensor.quantization, "border")
        return self.emit("PADV2", [tensor, amounts, value], dims)

    def cut(
        self,
        tensor: DraftTensor,
        sides: Sequence[tuple[int, int]],  # (before, after) of each axis
        dims: Dims | None = None,  # the extents of what is left; None: by the tensor's
    ) -> DraftTensor:
        """Return a tensor without so many elements at both ends of each axis."""
        if not any(map(any, sides)):
            return tensor
        begins, ends = [before for before, _ in sides], [-after for _, after in sides]
        left = tuple(_grown(dim, -sum(pair)) for dim, pair in zip(tensor.dims, sides, strict=True))
        dims = dims or left
        if tensor.is_static:
            return self.emit("SLICE", [tensor, self.ints(begins), self.ints(known(left))], dims)
        mask = sum(1 << axis for axis, end in enumerate(ends) if not end)
        inputs = [tensor, self.ints(begins), self.ints(ends), self.ints([1] * len(ends))]
        return self.emit("STRIDED_SLICE", inputs, dims, end_mask=mask)

    def outputs(
        self, name: str, inputs: Sequence[DraftTensor | None], kinds: Sequence[tuple[TensorType, Dims]], **options: Any
    ) -> list[DraftTensor]:
        """Add an operator with several results, of which types and extents are given."""
        draft = self.draft
        results = [draft.tensor(f"{self.name}/{name.lower()}", kind, dims) for kind, dims in kinds]
        draft.add(name, inputs, results, **options)
        return results

    def become(self, tensor: DraftTensor, result: DraftTensor) -> None:
        """Let a tensor be one that is there: what computes it writes that, or a RESHAPE where it has other extents.

        Open extents have other names there where both were made up.
        """
        is_same = len(tensor.dims) == len(result.dims) and all(
            dim == other or (isinstance(dim, str) and isinstance(other, str))
            for dim, other in zip(tensor.dims, result.dims, strict=True)
        )
        operators = self.draft.operators if is_same else []
        places = (place for place in reversed(range(len(operators))) if tensor in operators[place].outputs)
        if (place := next(places, None)) is None:
            self.draft.add("RESHAPE", [tensor, self.shape_tensor(result.dims, tensor)], [result])
            return
        for operator in operators[place:]:
            operator.inputs = [result if each is tensor else each for each in operator.inputs]
            operator.outputs = [result if each is tensor else each for each in operator.outputs]

    def reshape(self, tensor: DraftTensor, dims: Sequence[int | str], like: DraftTensor | None = None) -> DraftTensor:
        """Return a tensor with other extents and the same elements.

        Args:
            tensor: the tensor.
            dims: its new extents.
            like: a tensor that has those of them that are open, where several are; None: the tensor itself.
        """
        dims = tuple(dims)
        if tensor.dims == dims:
            return tensor
        array = None if tensor.data is None else self.constant_array(tensor)
        if array is not None:
            if array.size != prod(known(dims)):
                raise Unwritable(f"a constant of {array.size} elements where it reads {prod(known(dims))}")
            return self.const(array.reshape(known(dims)), tensor.quantization)
        return self.emit("RESHAPE", [tensor, self.shape_tensor(dims, like or tensor)], dims)

    def shape_tensor(
        self,
        dims: Dims,  # the extents; of one that is known only at run time RESHAPE finds out by itself
        source: DraftTensor,  # what is reshaped: its extents are read where several are not known
    ) -> DraftTensor:
        """Return extents as a tensor of int32, for operators that take a shape."""
        numbers = [dim if isinstance(dim, int) else -1 for dim in dims]
        unknown = [dim for dim in dims if not isinstance(dim, int)]
        if len(unknown) <= 1:
            return self.ints(numbers, "shape")
        if len([dim for dim in unknown if dim not in source.dims]) > 1:
            raise OpenExtentError("several extents of a shape are known only at run time")
        if dims == source.dims:
            return self.extents(source)
        listed, pieces = self.extents(source), []
        for dim, number in zip(dims, numbers, strict=True):
            is_read = dim in unknown and dim in source.dims
            pieces.append(self.part(listed, 0, source.dims.index(dim), 1) if is_read else self.ints([number]))
        return self.concat(pieces, 0)

    def transpose(self, tensor: DraftTensor, perm: Sequence[int]) -> DraftTensor:
        """Return a tensor with its axes in another order."""
        if list(perm) == list(range(len(perm))):
            return tensor
        array = self.constant_array(tensor)
        if array is not None and tensor.quantization is None:
            return self.const(np.ascontiguousarray(array.transpose(perm)))
        dims = tuple(tensor.dims[axis] for axis in perm)
        return self.emit("TRANSPOSE", [tensor, self.ints(perm)], dims)

    def cast(self, tensor: DraftTensor, kind: TensorType) -> DraftTensor:
        """Return a tensor with elements of another type."""
        if tensor.type == kind:
            return tensor
        if (array := self.constant_array(tensor)) is not None:
            return self.const(array.astype(NUMPY[kind]))
        if TensorType.UINT64 in (tensor.type, kind):
            raise Unwritable("elements of UINT64")
        return self.emit("CAST", [tensor], tensor.dims, kind, in_data_type=tensor.type, out_data_type=kind)


def _grown(dim: int | str, count: int) -> int | str:
    """Return an extent with so many elements more."""
    if isinstance(dim, int):
        return dim + count
    return f"{dim} {'+' if count > 0 else '-'} {abs(count)}" if count else dim


def stretched(*dims: Dims) -> Dims:
    """Return the extents to which several tensors stretch."""
    rank = max(map(len, dims))
    columns = zip(*((1,) * (rank - len(each)) + each for each in dims), strict=True)
    return tuple(next((dim for dim in column if dim != 1), 1) for column in columns)


# BATCH_MATMUL of many axes: its kernels take three axes in front of matrices, so neighbours become one axis.

MOST_BATCHED = 3  # axes in front of the last two that the kernels take
MATRIX = 2  # axes of a matrix
Extent = int | str
Axes = tuple[tuple[Extent, ...], tuple[Extent, ...]]  # one axis of both operands: for each the extents that are one


def batched_product(
    op: BuiltinBuilder,  # the node
    operands: tuple[DraftTensor, DraftTensor],  # the two operands, each of at least two axes
    dims: Dims,  # the extents of the result
    meaning: Quantization | None,  # its quantization
    *,
    adjoint: tuple[bool, bool],  # which of the operands' matrices are transposed
) -> DraftTensor:
    """Return a product of matrices."""
    adj_x, adj_y = adjoint
    if len(dims) <= MOST_BATCHED + MATRIX:
        return op.emit("BATCH_MATMUL", operands, dims, None, meaning, adj_x=adj_x, adj_y=adj_y)
    axes = _few([operand.dims[:-MATRIX] for operand in operands], len(dims) - MATRIX)
    joined_operands = [
        op.reshape(operand, (*(_joined(op, axis[side]) for axis in axes), *operand.dims[-MATRIX:]))
        for side, operand in enumerate(operands)
    ]
    fronts = (operand.dims[:MOST_BATCHED] for operand in joined_operands)
    front = [first if first != 1 else second for first, second in zip(*fronts, strict=True)]
    product_dims = (*front, *dims[-MATRIX:])
    product = op.emit("BATCH_MATMUL", joined_operands, product_dims, None, meaning, adj_x=adj_x, adj_y=adj_y)
    return op.reshape(product, dims, max(operands, key=lambda operand: len({*dims} & {*operand.dims})))


def _few(fronts: Sequence[Dims], count: int) -> list[Axes]:
    """Return the axes in front of matrices, neighbours joined until there are few.

    Both operands have two neighbours, or one of them has neither: then they may be one axis. Extents that are known
    are joined first.
    """
    filled = [(1,) * (count - len(front)) + front for front in fronts]
    axes: list[Axes] = [((first,), (second,)) for first, second in zip(*filled, strict=True)]
    for allowed in (0, 1, count):
        place = 0
        while len(axes) > MOST_BATCHED and place + 1 < len(axes):
            joined = (axes[place][0] + axes[place + 1][0], axes[place][1] + axes[place + 1][1])
            fits = joined[0] == joined[1] or any(all(dim == 1 for dim in extents) for extents in joined)
            if fits and max(map(_open_products, joined)) <= allowed:
                axes[place : place + 2] = [joined]
            else:
                place += 1
    if len(axes) > MOST_BATCHED:
        raise Unwritable(
            f"a product of matrices in a batch of more than {MOST_BATCHED} axes, along which operands are stretched"
        )
    return axes


def _open_products(extents: Sequence[Extent]) -> int:
    """Return how many extents are known only at run time; none if there are only ones beside a single such."""
    unknown = sum(not isinstance(dim, int) for dim in extents)
    return 0 if unknown == 1 and len([dim for dim in extents if dim != 1]) == 1 else unknown


def _joined(op: BuiltinBuilder, extents: Sequence[Extent]) -> Extent:
    """Return the extent of several axes as one."""
    larger = [dim for dim in extents if dim != 1]
    if len(larger) == 1:
        return larger[0]
    return op.elements(tuple(larger), f"{larger}")
