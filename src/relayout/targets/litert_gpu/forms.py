"""Builtins that LiteRT's GPU accelerator does not take, as others that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.few_axes import (
    AXIS_OPERAND,
    LAST,
    MASKS,
    OTHER_MASKS,
    PADS,
    REDUCTIONS,
    ROWS,
    data_of,
    groups_of,
    merged,
    one_by_one,
    own_axes,
    regroup_axes,
    transpose_few,
)
from relayout.formats.tflite.exporting.older import REWRITES
from relayout.formats.tflite.exporting.rewriting import Form
from relayout.targets.litert_gpu.operator_form import EACH, MOST_AXES, STRETCHED
from relayout.targets.litert_gpu.product_forms import PRODUCTS, bias_as_addition, weights_first
from relayout.targets.litert_gpu.rewriting import GpuRewriting, sizes_of

# Forms of at most four axes: neighbouring axes that an operator treats alike are one.

SEPARABLE = {*REDUCTIONS - {"MEAN"}, *ROWS, "REVERSE_V2"} - {"MIRROR_PAD"}
"""Builtins that can be written along one axis after the other."""


def _rank(writing: GpuRewriting) -> int:
    tensors = (*writing.operator.inputs, *writing.operator.outputs)
    return max((len(each.dims) for each in tensors if each is not None), default=0)


def elements_of_few_axes(writing: GpuRewriting) -> DraftTensor | None:
    """Write an operator on each element with neighbours joined that all operands have, or stretch, together."""
    name, operands, dims = writing.operator.name, writing.operands, writing.result.dims
    if (name not in STRETCHED and name not in EACH) or _rank(writing) <= MOST_AXES:
        return None
    padded = {each: (1,) * (len(dims) - len(each.dims)) + each.dims for each in operands}
    axes = [axis for axis in range(len(dims)) if dims[axis] != 1]
    groups = [list(run) for _, run in groupby(axes, lambda axis: [padded[each][axis] == 1 for each in operands])]
    if len(groups) > MOST_AXES:
        read = [writing.stretch(each, dims) if {*padded[each]} - {1} else each for each in operands]
        return writing.same(*read) if read != operands else None
    read = [writing.reshape(each, merged(padded[each], groups)) if each.dims else each for each in operands]
    return writing.same(*read, dims=merged(dims, groups))


def along_axes_of_few(writing: GpuRewriting) -> DraftTensor | list[DraftTensor] | None:
    """Write an operator along some axes on groups of axes: those before, each of its own, those behind."""
    operator, data = writing.operator, data_of(writing.operator)
    axes = [] if data is None or _rank(writing) <= MOST_AXES else own_axes(operator, data)
    if data is None or not axes:
        return None
    groups = groups_of(operator, len(data.dims), axes)
    if len(groups) > MOST_AXES:
        return _one_by_one(writing, axes)
    return regroup_axes(writing, operator, axes, groups)


def _one_by_one(writing: GpuRewriting, axes: Sequence[int]) -> DraftTensor | None:
    is_separable = len(axes) > 1 and writing.operator.name in SEPARABLE
    return one_by_one(writing, writing.operator, axes) if is_separable else None


def as_images(writing: GpuRewriting) -> list[DraftTensor] | None:
    """Write an operator along one axis on four, so that neither the first nor the last axis is its own.

    SOFTMAX and what else works along the last axis stay there.
    """
    operator, data = writing.operator, data_of(writing.operator)
    axes = [] if data is None or _rank(writing) > MOST_AXES else own_axes(operator, data)
    if data is None or len(axes) != 1:
        return None
    (axis,) = axes
    groups = [[], list(range(axis)), [axis]]
    groups += [] if operator.name in LAST else [list(range(axis + 1, len(data.dims)))]
    return regroup_axes(writing, operator, axes, groups) if merged(data.dims, groups) != data.dims else None


def borders_as_images(writing: GpuRewriting) -> DraftTensor | list[DraftTensor] | None:
    """Write a PAD on four axes, the first of which has no border; where there are too many, in steps."""
    operator, data = writing.operator, data_of(writing.operator)
    axes = [] if data is None or operator.name not in PADS else own_axes(operator, data)
    if data is None or not axes or len(data.dims) > MOST_AXES:
        return None
    groups = groups_of(operator, len(data.dims), axes)
    if groups[0][0] in axes:
        groups = [[], *groups]
    if len(groups) > MOST_AXES:
        return _one_by_one(writing, axes)
    groups = [*([[]] * (MOST_AXES - len(groups))), *groups]
    return regroup_axes(writing, operator, axes, groups) if merged(data.dims, groups) != data.dims else None


FLOAT, INT, BOOL = TensorType.FLOAT32, TensorType.INT32, TensorType.BOOL
MOST_PLACES = 1 << 20  # elements of the matrix of zeros and ones by which a scatter multiplies


# Operators on each element.


def constants_in_full(writing: GpuRewriting) -> DraftTensor | None:
    """Stretch constants to the result's extents."""
    operands, dims = writing.operands, writing.result.dims
    read = [writing.stretch(each, dims) if writing.constant_array(each) is not None else each for each in operands]
    return writing.same(*read) if read != operands and all(each.dims for each in read) else None


def four_axes(writing: GpuRewriting) -> DraftTensor | None:
    """Give operands and result the same number of axes, and constants with a batch of their own four."""
    operands, dims = writing.operands, writing.result.dims
    has_batch = any(each.data is not None and len(each.dims) == len(dims) for each in operands)
    rank = 4 if len(dims) < 4 and has_batch else len(dims)
    read = [writing.reshape(e, (*[1] * (rank - len(e.dims)), *e.dims)) if e.dims else e for e in operands]
    if rank == len(dims) and read == operands:
        return None
    return writing.same(*read, dims=(*[1] * (rank - len(dims)), *dims))


def operands_in_full(writing: GpuRewriting) -> DraftTensor | None:
    """Stretch all operands to the result's extents."""
    operands, dims = writing.operands, writing.result.dims
    if any(each.type == BOOL and each.data is None and each.dims != dims for each in operands):
        return None
    read = [writing.stretch(each, dims) for each in operands]
    return writing.same(*read) if read != operands else None


def condition_in_full(writing: GpuRewriting) -> DraftTensor | None:
    """Stretch a computed condition, as numbers: 1 where it holds."""
    condition, *rest = writing.operands
    if condition.data is not None or condition.dims == writing.result.dims:
        return None
    number = writing.stretch(writing.cast(condition, FLOAT), writing.result.dims)
    return writing.same(writing.compare("GREATER", number, 0.0), *rest)


def another_operand(writing: GpuRewriting) -> DraftTensor | None:
    """Let an operator that reads one tensor twice read a product of it with 1."""
    first, *rest = writing.operands
    if first.type not in (FLOAT, INT) or first not in rest:
        return None
    return writing.same(first, *(writing.mul(each, 1) if each is first else each for each in rest))


def log_softmax(writing: GpuRewriting) -> DraftTensor | None:
    """`d - log(sum(exp(d)))`, where `d` is `x - max(x)`."""
    (x,) = writing.operands
    distance = writing.sub(x, writing.reduce("REDUCE_MAX", x, [-1], keep=True))
    total = writing.reduce("SUM", writing.each("EXP", distance), [-1], keep=True)
    return writing.sub(distance, writing.each("LOG", total))


def l2_normalization(writing: GpuRewriting) -> DraftTensor | None:
    """`x * rsqrt(max(sum(x²), 1e-12))`."""
    (x,) = writing.operands
    total = writing.reduce("SUM", writing.each("SQUARE", x), [-1], keep=True)
    return writing.same(x, writing.each("RSQRT", writing.maximum(total, 1e-12)), name="MUL")


def slopes(writing: GpuRewriting) -> DraftTensor | None:
    """Stretch the slopes of a PRELU to the channels; slopes by element: `relu(x) + slope * min(x, 0)`."""
    x, slope = writing.operands
    array = writing.constant_array(slope)
    if array is not None and all(dim == 1 for dim in slope.dims) and len(x.dims):
        return writing.same(x, writing.stretch(writing.reshape(slope, (1,)), x.dims[-1:]))
    below = writing.mul(writing.minimum(x, 0.0), slope)
    return writing.add(writing.each("RELU", x), below)


def sum_of_two(writing: GpuRewriting) -> DraftTensor | None:
    """Add one operand after the other."""
    total, *rest = writing.operands
    for each in rest:
        total = writing.add(total, each)
    return total if rest else None


def whole_power(writing: GpuRewriting) -> DraftTensor | None:
    """Multiply, for a constant exponent of 2, 3 or 4; take a root for one of 0.5."""
    x, exponent = writing.operands
    number = writing.constant_array(exponent)
    power = None if number is None or number.size != 1 or x.dims != writing.result.dims else float(number.reshape(()))
    if power == 0.5:
        return writing.each("SQRT", x)
    if power not in (2, 3, 4):
        return None
    square = writing.each("SQUARE", x)
    return square if power == 2 else writing.mul(square, x if power == 3 else writing.each("SQUARE", x))


def as_reals(writing: GpuRewriting) -> DraftTensor | None:
    """Compute with integers as real numbers: places and lengths, which are exact up to 16,777,216."""
    read, name = writing.operands, writing.operator.name
    if read[0].type != INT or writing.result.type != INT:
        return None
    count = 1 if name == "CUMSUM" else len(read)
    operands = [*(writing.cast(each, FLOAT) for each in read[:count]), *read[count:]]
    return writing.cast(writing.emit(name, operands, writing.result.dims, FLOAT, **writing.operator.options), INT)


def arg_min(writing: GpuRewriting) -> DraftTensor | None:
    """The place of the largest of the negative numbers."""
    x, axis = writing.operands
    return writing.same(writing.each("NEG", x), axis, name="ARG_MAX")


# Operators that move elements.


def pieces(writing: GpuRewriting) -> list[DraftTensor] | None:
    """Cut each piece of a SPLIT by itself."""
    operator = writing.operator
    x, stated = data_of(operator), operator.inputs[AXIS_OPERAND[operator.name]]
    if x is None or stated is None or stated.array is None:
        return None
    axis, begin, parts = int(stated.array) % len(x.dims), 0, []
    for result in operator.outputs:
        size = int(result.dims[axis])
        parts.append(writing.part(x, axis, begin, size))
        begin += size
    return parts


def forward_slice(writing: GpuRewriting) -> DraftTensor | None:
    """Take what a STRIDED_SLICE takes forwards and with all axes; then reverse elements, and drop axes."""
    x, *bounds = writing.operands
    places = _places_of_slice(writing, sizes_of(x), [each.array for each in bounds])
    axes = [axis for axis, each in enumerate(places) if each.step < 0]
    if not places or not all(places) or not (axes or writing.operator.options.get("shrink_axis_mask")):
        return None
    begins = writing.ints([min(each[0], each[-1]) for each in places])
    ends = writing.ints([max(each[0], each[-1]) + 1 for each in places])
    strides, dims = writing.ints([abs(each.step) for each in places]), tuple(map(len, places))
    part = writing.emit("STRIDED_SLICE", [x, begins, ends, strides], dims)
    return writing.emit("REVERSE_V2", [part, writing.ints(axes)], dims) if axes else part


def _places_of_slice(
    writing: GpuRewriting, extents: Sequence[int], bounds: Sequence[NDArray[Any] | None]
) -> list[range]:
    """Return the places that a STRIDED_SLICE takes along each axis; none where these are computed, or axes come in."""
    options = writing.operator.options
    shrunk, *others = (int(options.get(mask) or 0) for mask in OTHER_MASKS)
    begin, end, strides = bounds
    if any(others) or begin is None or end is None or strides is None:
        return []
    begins, ends = (int(options.get(mask) or 0) for mask in MASKS)
    places = []
    for axis, extent in enumerate(extents):
        first = None if begins >> axis & 1 else int(begin[axis])
        last = None if ends >> axis & 1 else int(end[axis])
        if shrunk >> axis & 1:
            place = int(begin[axis]) % extent
            places.append(range(place, place + 1))
        else:
            places.append(range(*slice(first, last, int(strides[axis])).indices(extent)))
    return places


def as_reshape(writing: GpuRewriting) -> DraftTensor | None:
    """The elements stay in their order."""
    return writing.operator.inputs[0]


def as_product(writing: GpuRewriting) -> DraftTensor | None:
    """Stretch by a product with ones."""
    x = writing.operands[0]
    return writing.stretch(x, writing.result.dims) if x.type in (FLOAT, INT) else None


def pack(writing: GpuRewriting) -> DraftTensor | None:
    """Join along an axis of one element."""
    return writing.stack(writing.operands, int(writing.operator.options.get("axis", 0)))


def unpack(writing: GpuRewriting) -> list[DraftTensor] | None:
    """Split along the axis, and drop it."""
    (x,) = writing.operands
    axis = int(writing.operator.options.get("axis", 0))
    return [writing.at(x, axis, place) for place in range(len(writing.operator.outputs))]


def computed_begin(writing: GpuRewriting) -> DraftTensor | None:
    """Look up the places from a computed begin on, along the one axis that is cut."""
    x, begin, size = writing.operands
    axes = [axis for axis in range(len(x.dims)) if x.dims[axis] != writing.result.dims[axis]]
    if begin.data is not None or size.data is None or len(axes) > 1:
        return None
    if not axes:
        return x
    (axis,) = axes
    count = np.arange(int(writing.result.dims[axis]))
    return writing.gather(x, writing.add(count, writing.part(begin, 0, axis, 1)), axis)


def constant_places(writing: GpuRewriting) -> DraftTensor | None:
    """Look up neighbours as a SLICE."""
    x, places = writing.operands
    array, options = writing.constant_array(places), writing.operator.options
    if array is None or not array.size or int(options.get("batch_dims", 0) or 0):
        return None
    axis = int(options.get("axis", 0)) % len(x.dims)
    flat = array.reshape(-1) % int(x.dims[axis])
    if not np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        return None
    return writing.part(x, axis, int(flat[0]), flat.size)


def rows_of_table(writing: GpuRewriting) -> DraftTensor | None:
    """Look rows up by a GATHER."""
    places, rows = writing.operands
    return writing.gather(rows, places, 0)


def places_in_a_row(writing: GpuRewriting) -> DraftTensor | None:
    """Look elements up by places of one axis."""
    x, places = writing.operands
    options = writing.operator.options
    if len(places.dims) == 1 or int(options.get("batch_dims", 0) or 0):
        return None
    return writing.gather(x, writing.reshape(places, [prod(sizes_of(places))]), int(options.get("axis", 0)))


def coordinates_as_places(writing: GpuRewriting) -> DraftTensor | None:
    """Look elements up by coordinates: by their places in row-major order."""
    x, coordinates = writing.operands
    depth = int(coordinates.dims[-1])
    own, rest = sizes_of(x)[:depth], sizes_of(x)[depth:]
    flat = writing.reshape(x, [prod(own), prod(rest)] if rest else [prod(own)])
    return writing.gather(flat, _places(writing, coordinates, own), 0)


def _places(writing: GpuRewriting, coordinates: DraftTensor, extents: Sequence[int]) -> DraftTensor:
    """Return the places in row-major order that coordinates stand for, as one axis."""
    count, depth = prod(sizes_of(coordinates)[:-1]), len(extents)
    strides = np.array([prod(extents[axis + 1 :]) for axis in range(depth)], np.int32)
    array = writing.constant_array(coordinates)
    if array is not None:
        return writing.ints((array.reshape(count, depth) % np.array(extents) * strides).sum(1))
    rows = writing.reshape(coordinates, [count, depth])
    if depth > 1:
        rows = writing.reduce("SUM", writing.mul(rows, strides), [1], keep=True)
    return writing.reshape(rows, [count])


def scatter(writing: GpuRewriting) -> DraftTensor | None:
    """Write to constant places by looking up, with a row of zeros behind; to others by a product with ones and zeros.

    Of a place that is written twice the product has the sum, as SCATTER_ND does.
    """
    coordinates, updates = writing.operands[:2]
    dims, depth = sizes_of(writing.result), int(coordinates.dims[-1])
    own, rest = prod(dims[:depth]), prod(dims[depth:])
    count = prod(sizes_of(coordinates)[:-1])
    rows = writing.reshape(updates, [count, rest])
    places = _places(writing, coordinates, dims[:depth])
    if (known := writing.constant_array(places)) is not None:
        if np.array_equal(known, np.arange(own)):
            return updates
        if len(set(known.tolist())) == count:
            table = np.full(own, count, np.int32)
            table[known] = np.arange(count)
            zeros = writing.tensor(np.zeros((1, rest)), updates.type)
            return writing.gather(writing.concat([rows, zeros], 0), writing.const(table), 0)
    if updates.type != FLOAT or own * count > MOST_PLACES:
        return None
    numbers = [writing.tensor(each, FLOAT) for each in (1, 0)]
    ones = writing.emit("ONE_HOT", [places, writing.ints(np.array(own)), *numbers], (count, own), FLOAT, axis=-1)
    return writing.matmul(writing.transpose(ones, (1, 0)), rows)


def one_hot(writing: GpuRewriting) -> DraftTensor | None:
    """Compare the places of one axis."""
    places, *rest = writing.operands
    axis = int(writing.operator.options.get("axis", -1))
    if len(places.dims) == 1 or axis not in (-1, len(places.dims)):
        return None
    count, depth = prod(sizes_of(places)), int(writing.result.dims[-1])
    row = writing.reshape(places, [count])
    return writing.emit("ONE_HOT", [row, *rest], (count, depth), writing.result.type, axis=-1)


def update_slice(writing: GpuRewriting) -> DraftTensor | None:
    """Join what stands before, the update, and what stands behind, where they differ along one axis."""
    x, update, begin = writing.operands
    axes = [axis for axis in range(len(x.dims)) if x.dims[axis] != update.dims[axis]]
    if begin.array is None or len(axes) > 1:
        return None
    if not axes:
        return update
    (axis,) = axes
    size, extent = int(update.dims[axis]), int(x.dims[axis])
    first = min(max(int(begin.array.reshape(-1)[axis]), 0), extent - size)
    before = [writing.part(x, axis, 0, first)] if first else []
    behind = [writing.part(x, axis, first + size, extent - first - size)] if first + size < extent else []
    return writing.concat([*before, update, *behind], axis)


def one_image(writing: GpuRewriting) -> DraftTensor | None:
    """Put a batch of images into one, row below row: DEPTH_TO_SPACE and SPACE_TO_DEPTH work within rows."""
    (x,) = writing.operands
    batch, height, width, channels = sizes_of(x)
    if batch == 1:
        return None
    count, rows, *rest = sizes_of(writing.result)
    return writing.same(writing.reshape(x, [1, batch * height, width, channels]), dims=(1, count * rows, *rest))


GENERAL: Sequence[Form] = (elements_of_few_axes, partial(transpose_few, most=MOST_AXES), along_axes_of_few)
"""Forms of any builtin: at most four axes."""
_IN_FULL: Sequence[Form] = (another_operand, four_axes, constants_in_full, operands_in_full)
FORMS: Mapping[str, Sequence[Form]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM"), _IN_FULL),
    **dict.fromkeys(("FLOOR_DIV", "FLOOR_MOD", "EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL"), _IN_FULL),
    **dict.fromkeys(("GREATER", "GREATER_EQUAL", "LOGICAL_AND", "LOGICAL_OR"), _IN_FULL),
    **dict.fromkeys(("SELECT", "SELECT_V2"), (four_axes, constants_in_full, condition_in_full, operands_in_full)),
    "POW": (whole_power, *_IN_FULL),
    **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD"), (borders_as_images,)),
    **dict.fromkeys(("REVERSE_V2", "SOFTMAX", "CONCATENATION"), (as_images,)),
    "CUMSUM": (as_images, as_reals),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), (as_images, pieces)),
    "SLICE": (computed_begin, as_images),
    **dict.fromkeys(("EXPAND_DIMS", "SQUEEZE"), (as_reshape,)),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), (one_image,)),
    "SQUARED_DIFFERENCE": (*_IN_FULL, as_reals),
    "RELU_0_TO_1": (REWRITES["RELU_0_TO_1"],),
    "LOG_SOFTMAX": (log_softmax,),
    "L2_NORMALIZATION": (l2_normalization,),
    "PRELU": (slopes,),
    "ADD_N": (sum_of_two,),
    "ARG_MIN": (arg_min,),
    "BROADCAST_TO": (as_product,),
    "PACK": (pack,),
    "UNPACK": (unpack,),
    "STRIDED_SLICE": (forward_slice, as_images),
    "GATHER": (constant_places, places_in_a_row, as_images),
    "EMBEDDING_LOOKUP": (rows_of_table,),
    "GATHER_ND": (coordinates_as_places,),
    "SCATTER_ND": (scatter,),
    "ONE_HOT": (one_hot,),
    "TOPK_V2": (as_images,),
    "DYNAMIC_UPDATE_SLICE": (update_slice,),
    **PRODUCTS,
    "FULLY_CONNECTED": (weights_first, bias_as_addition, as_images),
}
"""Builtin -> forms in which it is written where the accelerator does not take it, the best first."""
