"""Builtins that LiteRT's GPU accelerator does not take, as others that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftOperator, DraftTensor
from relayout.targets.litert_gpu.few_axes_forms import (
    along_axes_of_few,
    as_images,
    borders_as_images,
    elements_of_few_axes,
    transpose_of_few_axes,
)
from relayout.targets.litert_gpu.product_forms import (
    adjoint_first,
    as_convolutions,
    as_dense,
    bias_as_addition,
    exchanged,
    product_of_few_axes,
    product_of_three_axes,
    response,
    root_of_mean,
    same_batches,
    volume,
    weights_first,
)
from relayout.targets.litert_gpu.rewriting import Form, Rewriting, array_of, operands_of, sizes_of

FLOAT, INT, BOOL = TensorType.FLOAT32, TensorType.INT32, TensorType.BOOL
MOST_PLACES = 1 << 20
"""Elements of the matrix of zeros and ones by which a scatter multiplies."""


# Operators on each element.


def constants_in_full(writing: Rewriting) -> bool:
    """Stretch constants to the result's extents."""
    dims = sizes_of(writing.result)
    read = [writing.stretch(each, dims) if array_of(each) is not None else each for each in operands_of(writing)]
    if read == operands_of(writing) or not all(each.dims for each in read):
        return False
    writing.same(*read)
    return True


def four_axes(writing: Rewriting) -> bool:
    """Give operands and result the same number of axes, and constants with a batch of their own four."""
    dims, read = sizes_of(writing.result), operands_of(writing)
    rank = (
        4
        if len(dims) < 4 and any(each.data is not None and len(each.dims) == len(dims) for each in read)
        else len(dims)
    )
    front = [1] * (rank - len(dims))
    same = [writing.reshape(e, [*[1] * (rank - len(e.dims)), *sizes_of(e)]) if e.dims else e for e in read]
    if rank == len(dims):
        if same == read:
            return False
        writing.same(*same)
        return True
    inner = writing.draft.tensor(f"{writing.result.name}/four", writing.result.type, (*front, *dims))
    writing.same(*same, result=inner)
    writing.reshape(inner, dims, writing.result)
    return True


def operands_in_full(writing: Rewriting) -> bool:
    """Stretch all operands to the result's extents."""
    dims = sizes_of(writing.result)
    if any(
        each.type == BOOL and each.data is None and each.dims != writing.result.dims for each in operands_of(writing)
    ):
        return False
    read = [writing.stretch(each, dims) for each in operands_of(writing)]
    if read == operands_of(writing):
        return False
    writing.same(*read)
    return True


def condition_in_full(writing: Rewriting) -> bool:
    """Stretch a computed condition, as numbers: 1 where it holds."""
    condition, *rest = operands_of(writing)
    dims = sizes_of(writing.result)
    if condition.data is not None or condition.dims == writing.result.dims:
        return False
    number = writing.add("CAST", [condition], sizes_of(condition), kind=FLOAT, in_data_type=BOOL, out_data_type=FLOAT)
    zero = writing.constant(np.zeros((), np.float32))
    whole = writing.add("GREATER", [writing.stretch(number, dims), zero], dims, kind=BOOL)
    writing.same(whole, *rest)
    return True


def another_operand(writing: Rewriting) -> bool:
    """Let an operator that reads one tensor twice read a product of it with 1."""
    first, *rest = operands_of(writing)
    if first.type not in (FLOAT, INT) or first not in rest:
        return False
    one = writing.constant(np.ones((), np.float32 if first.type == FLOAT else np.int32))
    writing.same(first, *(writing.add("MUL", [each, one], sizes_of(each)) if each is first else each for each in rest))
    return True


def bounded(writing: Rewriting) -> bool:
    """`min(relu(x), 1)`: the RELU goes into the operator before it."""
    (x,) = operands_of(writing)
    relu = writing.add("RELU", [x], sizes_of(x))
    writing.add("MINIMUM", [relu, writing.constant(np.ones((), np.float32))], sizes_of(x), writing.result)
    return True


def log_softmax(writing: Rewriting) -> bool:
    """`d - log(sum(exp(d)))`, where `d` is `x - max(x)`."""
    (x,) = operands_of(writing)
    dims, last = sizes_of(x), writing.ints([len(x.dims) - 1])
    row = [*dims[:-1], 1]
    distance = writing.add("SUB", [x, writing.add("REDUCE_MAX", [x, last], row, keep_dims=True)], dims)
    total = writing.add("SUM", [writing.add("EXP", [distance], dims), last], row, keep_dims=True)
    writing.add("SUB", [distance, writing.add("LOG", [total], row)], dims, writing.result)
    return True


def l2_normalization(writing: Rewriting) -> bool:
    """`x * rsqrt(max(sum(x²), 1e-12))`."""
    (x,) = operands_of(writing)
    dims, row = sizes_of(x), [*sizes_of(x)[:-1], 1]
    total = writing.add("SUM", [writing.add("SQUARE", [x], dims), writing.ints([len(dims) - 1])], row, keep_dims=True)
    least = writing.add("MAXIMUM", [total, writing.constant(np.array(1e-12, np.float32))], row)
    writing.same(x, writing.add("RSQRT", [least], row), name="MUL")
    return True


def slopes(writing: Rewriting) -> bool:
    """Stretch the slopes of a PRELU to the channels; slopes by element: `relu(x) + slope * min(x, 0)`."""
    x, slope = operands_of(writing)
    array = array_of(slope)
    if array is not None and all(dim == 1 for dim in slope.dims) and len(x.dims):
        writing.same(x, writing.constant(np.broadcast_to(array.reshape(-1), sizes_of(x)[-1:]), slope))
        return True
    dims = sizes_of(x)
    below = writing.add("MINIMUM", [x, writing.constant(np.zeros((), np.float32))], dims)
    writing.add("ADD", [writing.add("RELU", [x], dims), writing.add("MUL", [below, slope], dims)], dims, writing.result)
    return True


def sum_of_two(writing: Rewriting) -> bool:
    """Add one operand after the other."""
    total, *rest = operands_of(writing)
    for each in rest:
        total = writing.add("ADD", [total, each], sizes_of(each), writing.result if each is rest[-1] else None)
    return bool(rest)


def whole_power(writing: Rewriting) -> bool:
    """Multiply, for a constant exponent of 2, 3 or 4; take a root for one of 0.5."""
    x, exponent = operands_of(writing)
    number = array_of(exponent)
    if number is None or number.size != 1 or x.dims != writing.result.dims:
        return False
    power, dims = float(number.reshape(())), sizes_of(x)
    if power == 0.5:
        writing.add("SQRT", [x], dims, writing.result)
    elif power == 2:
        writing.add("SQUARE", [x], dims, writing.result)
    elif power in (3, 4):
        square = writing.add("SQUARE", [x], dims)
        writing.add(
            "MUL", [square, x] if power == 3 else [square, writing.add("SQUARE", [x], dims)], dims, writing.result
        )
    else:
        return False
    return True


def as_reals(writing: Rewriting) -> bool:
    """Compute with integers as real numbers: places and lengths, which are exact up to 16,777,216."""
    read = operands_of(writing)
    if read[0].type != INT or writing.result.type != INT:
        return False
    options: dict[str, Any] = {"in_data_type": INT, "out_data_type": FLOAT}
    count = 1 if writing.operator.name == "CUMSUM" else len(read)
    reals = [writing.add("CAST", [each], sizes_of(each), kind=FLOAT, **options) for each in read[:count]]
    inner = writing.draft.tensor(f"{writing.result.name}/real", FLOAT, writing.result.dims)
    writing.same(*reals, *read[count:], result=inner)
    back = {"in_data_type": FLOAT, "out_data_type": INT}
    writing.operators.append(DraftOperator("CAST", [inner], [writing.result], back))
    return True


def arg_min(writing: Rewriting) -> bool:
    """The place of the largest of the negative numbers."""
    x, axis = operands_of(writing)
    writing.same(writing.add("NEG", [x], sizes_of(x)), axis, name="ARG_MAX")
    return True


# Operators that move elements.


def pieces(writing: Rewriting) -> bool:
    """Cut each piece of a SPLIT by itself."""
    operator = writing.operator
    is_even = operator.name == "SPLIT"
    x, stated = operator.inputs[1 if is_even else 0], operator.inputs[0 if is_even else 2]
    if x is None or stated is None or stated.array is None:
        return False
    axis, begin = int(stated.array) % len(x.dims), 0
    for result in operator.outputs:
        size = sizes_of(result)
        begins = [begin if each == axis else 0 for each in range(len(size))]
        writing.add("SLICE", [x, writing.ints(begins), writing.ints(size)], size, result)
        begin += size[axis]
    return True


def reversed_slice(writing: Rewriting) -> bool:
    """Reverse the elements that a STRIDED_SLICE takes backwards."""
    operator = writing.operator
    x, *bounds = operands_of(writing)
    arrays = [each.array for each in bounds]
    masks = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    if any(operator.options.get(mask) for mask in masks) or any(array is None for array in arrays):
        return False
    begin, end, strides = (np.array(array) for array in arrays if array is not None)
    begins, ends = (int(operator.options.get(mask) or 0) for mask in ("begin_mask", "end_mask"))
    axes = [axis for axis in range(len(strides)) if strides[axis] < 0]
    for axis, extent in enumerate(sizes_of(x)):
        bounds_of = (None if begins >> axis & 1 else int(begin[axis]), None if ends >> axis & 1 else int(end[axis]))
        places = range(*slice(*bounds_of, int(strides[axis])).indices(extent))
        if not len(places):
            return False
        first, last = min(places[0], places[-1]), max(places[0], places[-1])
        begin[axis], end[axis], strides[axis] = first, last + 1, abs(strides[axis])
    dims = sizes_of(writing.result)
    part = writing.add("STRIDED_SLICE", [x, *map(writing.ints, (begin, end, strides))], dims)
    writing.add("REVERSE_V2", [part, writing.ints(axes)], dims, writing.result)
    return bool(axes)


def as_reshape(writing: Rewriting) -> bool:
    """The elements stay in their order."""
    x = writing.operator.inputs[0]
    assert x is not None
    writing.reshape(x, sizes_of(writing.result), writing.result)
    return True


def as_product(writing: Rewriting) -> bool:
    """Stretch by a product with ones."""
    x, dims = operands_of(writing)[0], sizes_of(writing.result)
    if x.type not in (FLOAT, INT):
        return False
    own = (1,) * (len(dims) - len(x.dims)) + tuple(map(int, x.dims))
    ones = tuple(1 if mine == dim else dim for mine, dim in zip(own, dims, strict=True))
    factor = writing.constant(np.ones(ones, np.float32 if x.type == FLOAT else np.int32))
    writing.add("MUL", [writing.reshape(x, own), factor], dims, writing.result)
    return True


def pack(writing: Rewriting) -> bool:
    """Join along an axis of one element."""
    axis, dims = (
        int(writing.operator.options.get("axis", 0)) % len(writing.result.dims),
        sizes_of(writing.result),
    )
    row = [*dims[:axis], 1, *dims[axis + 1 :]]
    parts = [writing.reshape(each, row) for each in operands_of(writing)]
    writing.add("CONCATENATION", parts, dims, writing.result, axis=axis)
    return True


def unpack(writing: Rewriting) -> bool:
    """Split along the axis, and drop it."""
    (x,) = operands_of(writing)
    axis, dims = int(writing.operator.options.get("axis", 0)) % len(x.dims), sizes_of(x)
    for place, result in enumerate(writing.operator.outputs):
        begin = [place if each == axis else 0 for each in range(len(dims))]
        size = [*dims[:axis], 1, *dims[axis + 1 :]]
        writing.reshape(
            writing.add("SLICE", [x, writing.ints(begin), writing.ints(size)], size),
            sizes_of(result),
            result,
        )
    return True


def kept_axes(writing: Rewriting) -> bool:
    """Keep the axes that a STRIDED_SLICE drops or adds, and reshape."""
    operator = writing.operator
    x, *bounds = operands_of(writing)
    masks = ("shrink_axis_mask", "new_axis_mask", "ellipsis_mask")
    shrunk, added, rest = (int(operator.options.get(mask) or 0) for mask in masks)
    arrays = [each.array for each in bounds]
    if added or rest or not shrunk or any(array is None for array in arrays):
        return False
    begin, end, strides = (np.array(array) for array in arrays if array is not None)
    begins, ends = (int(operator.options.get(mask) or 0) for mask in ("begin_mask", "end_mask"))
    dims = []
    for axis, extent in enumerate(sizes_of(x)):
        if shrunk >> axis & 1:
            begin[axis] %= extent
            end[axis], strides[axis] = begin[axis] + 1, 1
        whole = slice(
            None if begins >> axis & 1 else int(begin[axis]),
            None if ends >> axis & 1 else int(end[axis]),
            int(strides[axis]),
        )
        dims.append(1 if shrunk >> axis & 1 else len(range(*whole.indices(extent))))
    options: dict[str, Any] = {"begin_mask": begins & ~shrunk, "end_mask": ends & ~shrunk}
    part = writing.add("STRIDED_SLICE", [x, *map(writing.ints, (begin, end, strides))], dims, **options)
    writing.reshape(part, sizes_of(writing.result), writing.result)
    return True


def computed_begin(writing: Rewriting) -> bool:
    """Look up the places from a computed begin on, along the one axis that is cut."""
    x, begin, size = operands_of(writing)
    dims, cut = sizes_of(x), [axis for axis in range(len(x.dims)) if x.dims[axis] != writing.result.dims[axis]]
    if begin.data is not None or size.data is None or len(cut) > 1:
        return False
    if not cut:
        return as_reshape(writing)
    (axis,) = cut
    first = writing.add("SLICE", [begin, writing.ints([axis]), writing.ints([1])], [1])
    count = int(writing.result.dims[axis])
    places = writing.add("ADD", [writing.constant(np.arange(count, dtype=np.int32)), first], [count])
    writing.add("GATHER", [x, places], [*dims[:axis], count, *dims[axis + 1 :]], writing.result, axis=axis)
    return True


def constant_places(writing: Rewriting) -> bool:
    """Look up neighbours as a SLICE."""
    operator = writing.operator
    x, places = operands_of(writing)
    array = array_of(places)
    if array is None or not array.size or int(operator.options.get("batch_dims", 0) or 0):
        return False
    axis, dims = int(operator.options.get("axis", 0)) % len(x.dims), sizes_of(x)
    flat = array.reshape(-1) % dims[axis]
    if not np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        return False
    size = [*dims[:axis], flat.size, *dims[axis + 1 :]]
    begin = [int(flat[0]) if each == axis else 0 for each in range(len(dims))]
    part = x
    if size != dims:
        part = writing.add("SLICE", [x, writing.ints(begin), writing.ints(size)], size)
    writing.reshape(part, sizes_of(writing.result), writing.result)
    return True


def rows_of_table(writing: Rewriting) -> bool:
    """Look rows up by a GATHER."""
    places, rows = operands_of(writing)
    writing.add("GATHER", [rows, places], sizes_of(writing.result), writing.result, axis=0)
    return True


def places_in_a_row(writing: Rewriting) -> bool:
    """Look elements up by places of one axis."""
    operator = writing.operator
    x, places = operands_of(writing)
    if len(places.dims) == 1 or int(operator.options.get("batch_dims", 0) or 0):
        return False
    axis, dims = int(operator.options.get("axis", 0)) % len(x.dims), sizes_of(x)
    count = prod(sizes_of(places))
    row = writing.reshape(places, [count])
    inner = writing.add("GATHER", [x, row], [*dims[:axis], count, *dims[axis + 1 :]], axis=axis)
    writing.reshape(inner, sizes_of(writing.result), writing.result)
    return True


def coordinates_as_places(writing: Rewriting) -> bool:
    """Look elements up by coordinates: by their places in row-major order."""
    x, coordinates = operands_of(writing)
    depth = int(coordinates.dims[-1])
    own, rest = sizes_of(x)[:depth], sizes_of(x)[depth:]
    row = _places(writing, coordinates, own)
    count = prod(sizes_of(coordinates)[:-1])
    flat = writing.reshape(x, [prod(own), prod(rest)] if rest else [prod(own)])
    inner = writing.add("GATHER", [flat, row], [count, prod(rest)] if rest else [count], axis=0)
    writing.reshape(inner, sizes_of(writing.result), writing.result)
    return True


def _places(writing: Rewriting, coordinates: DraftTensor, extents: Sequence[int]) -> DraftTensor:
    """Return the places in row-major order that coordinates stand for, as one axis."""
    count, depth = prod(sizes_of(coordinates)[:-1]), len(extents)
    strides = np.array([prod(extents[axis + 1 :]) for axis in range(depth)], np.int32)
    array = array_of(coordinates)
    if array is not None:
        return writing.ints((array.reshape(count, depth) % np.array(extents) * strides).sum(1))
    rows = writing.reshape(coordinates, [count, depth])
    if depth > 1:
        weighted = writing.add("MUL", [rows, writing.constant(strides)], [count, depth])
        rows = writing.add("SUM", [weighted, writing.ints([1])], [count, 1], keep_dims=True)
    return writing.reshape(rows, [count])


def scatter(writing: Rewriting) -> bool:
    """Write to constant places by looking up, with a row of zeros behind; to others by a product with ones and zeros.

    Of a place that is written twice the product has the sum, as SCATTER_ND does.
    """
    coordinates, updates = operands_of(writing)[:2]
    dims, depth = sizes_of(writing.result), int(coordinates.dims[-1])
    own, rest = prod(dims[:depth]), prod(dims[depth:])
    count, array = prod(sizes_of(coordinates)[:-1]), array_of(coordinates)
    rows = writing.reshape(updates, [count, rest])
    places = _places(writing, coordinates, dims[:depth])
    if array is not None:
        known = array_of(places)
        assert known is not None
        if np.array_equal(known, np.arange(own)):
            writing.reshape(updates, dims, writing.result)
            return True
        if len(set(known.tolist())) == count:
            table = np.full(own, count, np.int32)
            table[known] = np.arange(count)
            zeros = writing.constant(np.zeros((1, rest), np.float32 if updates.type == FLOAT else np.int32))
            source = writing.add("CONCATENATION", [rows, zeros], [count + 1, rest], axis=0)
            inner = writing.add("GATHER", [source, writing.constant(table)], [own, rest], axis=0)
            writing.reshape(inner, dims, writing.result)
            return True
    if updates.type != FLOAT or own * count > MOST_PLACES:
        return False
    numbers = [writing.constant(np.array(each, np.float32)) for each in (1, 0)]
    ones = writing.add("ONE_HOT", [places, writing.ints(own), *numbers], [count, own], kind=FLOAT, axis=-1)
    turned = writing.transpose(ones, (1, 0))
    inner = writing.add("BATCH_MATMUL", [turned, rows], [own, rest], adj_x=False, adj_y=False)
    writing.reshape(inner, dims, writing.result)
    return True


def one_hot(writing: Rewriting) -> bool:
    """Compare the places of one axis."""
    places, *rest = operands_of(writing)
    axis = int(writing.operator.options.get("axis", -1))
    if len(places.dims) == 1 or axis not in (-1, len(places.dims)):
        return False
    count, depth = prod(sizes_of(places)), int(writing.result.dims[-1])
    inner = writing.draft.tensor(f"{writing.result.name}/few", writing.result.type, (count, depth))
    writing.operators.append(DraftOperator("ONE_HOT", [writing.reshape(places, [count]), *rest], [inner], {"axis": -1}))
    writing.reshape(inner, sizes_of(writing.result), writing.result)
    return True


def update_slice(writing: Rewriting) -> bool:
    """Join what stands before, the update, and what stands behind, where they differ along one axis."""
    x, update, begin = operands_of(writing)
    dims, own = sizes_of(x), [axis for axis in range(len(x.dims)) if x.dims[axis] != update.dims[axis]]
    if begin.array is None or len(own) > 1:
        return False
    if not own:
        writing.reshape(update, dims, writing.result)
        return True
    (axis,) = own
    size = int(update.dims[axis])
    first = min(max(int(begin.array.reshape(-1)[axis]), 0), dims[axis] - size)
    parts = []
    for start, end in ((0, first), (first + size, dims[axis])):
        if end > start:
            extents = [*dims[:axis], end - start, *dims[axis + 1 :]]
            begins = [start if each == axis else 0 for each in range(len(dims))]
            parts.append(writing.add("SLICE", [x, writing.ints(begins), writing.ints(extents)], extents))
    parts.insert(1 if first else 0, update)
    writing.add("CONCATENATION", parts, dims, writing.result, axis=axis)
    return True


def one_image(writing: Rewriting) -> bool:
    """Put a batch of images into one, row below row: DEPTH_TO_SPACE and SPACE_TO_DEPTH work within rows."""
    (x,) = operands_of(writing)
    batch, height, width, channels = sizes_of(x)
    out = sizes_of(writing.result)
    if batch == 1:
        return False
    tall = writing.reshape(x, [1, batch * height, width, channels])
    inner = writing.draft.tensor(f"{writing.result.name}/few", x.type, (1, out[0] * out[1], *out[2:]), x.quantization)
    writing.same(tall, result=inner)
    writing.reshape(inner, out, writing.result)
    return True


GENERAL: Sequence[Form] = (elements_of_few_axes, transpose_of_few_axes, along_axes_of_few)
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
    "RELU_0_TO_1": (bounded,),
    "LOG_SOFTMAX": (log_softmax,),
    "L2_NORMALIZATION": (l2_normalization,),
    "PRELU": (slopes,),
    "ADD_N": (sum_of_two,),
    "ARG_MIN": (arg_min,),
    "BROADCAST_TO": (as_product,),
    "PACK": (pack,),
    "UNPACK": (unpack,),
    "STRIDED_SLICE": (kept_axes, reversed_slice, as_images),
    "GATHER": (constant_places, places_in_a_row, as_images),
    "EMBEDDING_LOOKUP": (rows_of_table,),
    "GATHER_ND": (coordinates_as_places,),
    "SCATTER_ND": (scatter,),
    "ONE_HOT": (one_hot,),
    "TOPK_V2": (as_images,),
    "DYNAMIC_UPDATE_SLICE": (update_slice,),
    "BATCH_MATMUL": (product_of_few_axes, same_batches, exchanged, product_of_three_axes, adjoint_first),
    "FULLY_CONNECTED": (weights_first, bias_as_addition, as_images),
    "CONV_2D": (as_convolutions,),
    "DEPTHWISE_CONV_2D": (as_dense,),
    "CONV_3D": (volume,),
    "L2_POOL_2D": (root_of_mean,),
    "LOCAL_RESPONSE_NORMALIZATION": (response,),
}
"""Builtin -> forms in which it is written where the accelerator does not take it, the best first."""
