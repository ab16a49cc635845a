"""Pools."""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.exporting.builder import require_few
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.convolution import (
    BORDER,
    Window,
    space_axes,
    steps,
)
from relayout.formats.tflite.exporting.operators.indexing import limits_of
from relayout.formats.tflite.exporting.registry import (
    Formula,
    OpenExtentError,
    Unwritable,
    each_exporter,
    exporter,
    formulas,
)

# Pools that no builtin has, as one STRIDED_SLICE for each element of the window: dilations, places of maxima.

MOST = 128  # elements of a window up to which it is written so


BYTES = (TensorType.INT8, TensorType.UINT8)
POOLED = (*BYTES, TensorType.INT16, TensorType.FLOAT32)  # types that MAX_POOL_2D takes


class Sliding(NamedTuple):
    """A window over the axes of space of an image of known extents."""

    axes: range  # the axes of space
    window: Window

    @staticmethod
    def of(op: NodeExport) -> "Sliding":
        """Read a node."""
        sizes = op.integers("kernel_shape")
        if prod(sizes) > MOST:
            raise Unwritable("a large window with dilations, or whose places are read")
        axes = space_axes(op, len(sizes))
        known(tuple(dims[axis] for axis in axes for dims in (op.dims(), op.out_dims())))
        return Sliding(axes, Window.of(op, sizes))

    def along(self) -> Iterator[tuple[int, ...]]:
        """Yield for each axis: its place, extent, number of windows, size, stride, dilation and border before."""
        extents, sizes, strides, dilations, _, _, results = self.window
        begins = [before for before, _ in self.window.border]
        yield from zip(self.axes, known(extents), known(results), sizes, strides, dilations, begins, strict=True)

    def bordered(self, op: NodeExport, image: DraftTensor, border: float) -> DraftTensor:
        """Return the image with a border that all windows fit into."""
        pads = [(0, 0)] * len(image.dims)
        for axis, extent, count, size, stride, dilation, begin in self.along():
            reach = (count - 1) * stride + (size - 1) * dilation
            pads[axis] = (begin, max(reach + 1 - begin - extent, 0))
        return op.pad(image, pads, border)

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yield the elements of a window."""
        yield from product(*map(range, self.window.sizes))

    def slice(self, op: NodeExport, image: DraftTensor, place: Sequence[int]) -> DraftTensor:
        """Return one element of all windows."""
        rank, dims = len(image.dims), list(image.dims)
        begins, ends, steps = [0] * rank, [*known(image.dims)], [1] * rank
        for step, (axis, _, count, _, stride, dilation, _) in zip(place, self.along(), strict=True):
            begins[axis], steps[axis], dims[axis] = step * dilation, stride, count
            ends[axis] = begins[axis] + (count - 1) * stride + 1
        return op.emit("STRIDED_SLICE", [image, op.ints(begins), op.ints(ends), op.ints(steps)], tuple(dims))

    def source(self, place: Sequence[int], *, column_major: bool) -> NDArray[np.int64]:
        """Return where in a plane of the image one element of all windows lies: of extents of the axes of space."""
        rows = zip(place, self.along(), strict=True)
        along = [
            np.arange(n) * stride + step * dilation - begin for step, (_, _, n, _, stride, dilation, begin) in rows
        ]
        extents, axes = known(self.window.extents), range(len(self.axes))
        factors = [prod(extents[:axis]) if column_major else prod(extents[axis + 1 :]) for axis in axes]
        return reduce(np.add, (each * factor for each, factor in zip(np.ix_(*along), factors, strict=True)))


def sliding_max(op: NodeExport) -> None:
    """Write a MaxPool: a pool along each axis, or MAXIMUM of slices; places of maxima by GREATER and SELECT_V2."""
    sliding = Sliding.of(op)
    image = op.input(0)
    if not op.gives(1) and op.layouts[0] and set(sliding.window.strides) == {1} and image.type in POOLED:
        op.give(_max_along_axes(op, sliding, image))
        return
    # A border of the lowest byte would be as large as an element of that value, and lie before it.
    wide = op.cast(image, TensorType.INT32) if op.gives(1) and image.type in BYTES else image
    padded = sliding.bordered(op, wide, limits_of(wide.type)[0])
    slices = [sliding.slice(op, padded, place) for place in sliding.places()]
    if not op.gives(1):
        op.give(reduce(op.maximum, slices))
        return
    best = slices[0]
    maps = [sliding.source(place, column_major=bool(op.integer("storage_order"))) for place in sliding.places()]
    maps = [each[..., None] if op.layouts[0] else each for each in maps]
    best_places = op.const(maps[0].astype(np.int32))
    for each, source in zip(slices[1:], maps[1:], strict=True):
        larger = op.compare("GREATER", each, best)
        best_places = op.select(larger, op.const(source.astype(np.int32)), best_places)
        best = op.maximum(best, each)
    if op.gives(0):
        op.give(op.cast(best, image.type), 0)
    op.give(_with_planes(op, op.stretch(best_places, known(best.dims)), sliding, image), 1)


# A dilation takes every d-th row, and these are neighbours once the axis is split. The extent becomes a multiple of d.
#
#     n h w c  ─ RESHAPE ─  n 1 h/d (d·w·c)  ─ MAX_POOL_2D 1 × k, RESHAPE ─  n h w/d (d·c)  ─ MAX_POOL_2D 1 × k, RESHAPE
#
# It takes a third of the time of slices, or less.


def _max_along_axes(op: NodeExport, sliding: Sliding, image: DraftTensor) -> DraftTensor:
    """Return the greatest elements of windows of an image `n *s c` in steps of one."""
    pads, same = [(0, 0)] * len(image.dims), list[bool]()
    for axis, extent, count, size, _, dilation, begin in sliding.along():
        same.append(begin == (size - 1) // 2 * dilation and count == extent)
        before, end = (0, extent) if same[-1] else (begin, count + (size - 1) * dilation)
        pads[axis] = (before, end + -end % dilation - before - extent)
    image = op.pad(image, pads, limits_of(image.type)[0])
    for is_same, (axis, _, count, size, _, dilation, _) in zip(same, sliding.along(), strict=True):
        batch, *space = image.dims
        rows, extent, back = known((*space[: axis - 1],)), known((image.dims[axis],))[0], known((*space[axis:],))
        split = (batch, prod(rows), extent // dilation, dilation * prod(back))
        after = split[2] if is_same else split[2] - size + 1
        pooled = op.emit(
            "MAX_POOL_2D",
            [op.reshape(image, split)],
            (*split[:2], after, split[3]),
            padding=Padding.SAME if is_same else Padding.VALID,
            stride_h=1,
            stride_w=1,
            filter_height=1,
            filter_width=size,
        )
        image = op.part(op.reshape(pooled, (batch, *rows, after * dilation, *back)), axis, 0, count)
    return image


def _with_planes(op: NodeExport, places: DraftTensor, sliding: Sliding, image: DraftTensor) -> DraftTensor:
    """Return places in planes as places in the image as the source stores it, planes of channels one by one."""
    dims = known(image.dims)
    last = bool(op.layouts[0])
    n, c = dims[0], dims[-1] if last else dims[1]
    planes = np.arange(n * c).reshape(n, c) * prod(known(sliding.window.extents))
    ones = [1] * len(sliding.axes)
    planes = planes.reshape(n, *ones, c) if last else planes.reshape(n, c, *ones)
    return op.cast(op.add(places, op.ints(planes)), TensorType.INT64)


def sliding_sum(op: NodeExport, image: DraftTensor) -> DraftTensor:
    """Return the sum of each window."""
    sliding = Sliding.of(op)
    padded = sliding.bordered(op, image, 0.0)
    return reduce(op.add, [sliding.slice(op, padded, place) for place in sliding.places()])


@exporter("MaxPool")
def max_pool(op: NodeExport) -> None:
    """MAX_POOL_2D; a border that SAME does not say is the lowest number, three axes of space are two pools."""
    if op.gives(1) or _is_dilated(op):
        sliding_max(op)
        return
    op.require_channels_last()
    window = Window.of(op, op.integers("kernel_shape"))
    image = op.input(0)
    kind = NUMPY[image.type]
    lowest = float(np.finfo(kind).min) if np.issubdtype(kind, np.floating) else float(np.iinfo(kind).min)
    op.give(_pooled(op, "MAX_POOL_2D", window.bordered(op, image, lowest), window, op.out_dims()))


def _pooled(op: NodeExport, name: str, image: DraftTensor, window: Window, dims: Dims) -> DraftTensor:
    """Return the pool over two axes of space, or over one or three as pools over two."""
    if len(window.sizes) == 2:
        return op.emit(name, [image], dims, **_options(window))
    if len(window.sizes) == 1:
        tall = op.reshape(image, (image.dims[0], 1, *image.dims[1:]))
        inner: Dims = (dims[0], 1, *dims[1:])
        return op.reshape(op.emit(name, [tall], inner, **_options(window)), dims)
    if len(window.sizes) != 3:
        raise Unwritable(f"a pool over {len(window.sizes)} axes")
    n, d, h, w, c = known(image.dims, BORDER)
    _, out_d, out_h, out_w, _ = known(dims, BORDER)
    flat = op.reshape(image, (n * d, h, w, c))
    over_space = op.emit(name, [flat], (n * d, out_h, out_w, c), **_options(window, slice(1, 3)))
    rows = op.reshape(over_space, (n, d, out_h * out_w, c))
    depth = _options(window._replace(sizes=(window.sizes[0], 1), strides=(window.strides[0], 1)))
    return op.reshape(op.emit(name, [rows], (n, out_d, out_h * out_w, c), **depth), dims)


def _options(window: Window, part: slice = slice(None)) -> dict[str, Any]:
    sizes, strides = window.sizes[part], window.strides[part]
    if len(sizes) == 1:
        sizes, strides = (1, *sizes), (1, *strides)
    return {"padding": window.padding, **steps(strides), "filter_height": sizes[0], "filter_width": sizes[1]}


def _average(op: NodeExport, image: DraftTensor) -> DraftTensor:
    counted = bool(op.integer("count_include_pad"))
    if _is_dilated(op):
        if op.quantized:
            raise Unwritable("a quantized average with dilations")
        counts = reduce(np.multiply.outer, _counts(op, Sliding.of(op).window, counted))
        return op.div(sliding_sum(op, image), (counts[..., None] if op.layouts[0] else counts).astype(np.float32))
    op.require_channels_last()
    window = Window.of(op, op.integers("kernel_shape"))
    if window.is_valid or (window.same and not counted):
        return _pooled(op, "AVERAGE_POOL_2D", window.bordered(op, image, 0.0), window, op.out_dims())
    if _covers_all(op, window) and not op.quantized:
        # The mean of what the one window holds: a border of thousands of zeros is not written.
        coverage = float(np.prod(known(window.extents, BORDER))) / float(np.prod(window.sizes))
        share = float(_factors(op, window, counted).reshape(-1)[0]) * coverage
        mean = op.reduce("MEAN", image, range(1, op.rank() - 1), keep=True)
        return mean if abs(share - 1.0) < 1e-9 else op.mul(mean, share)
    is_plain = counted and not op.integer("ceil_mode")
    if not is_plain and not all_known((*window.extents, *window.results)):
        return _divided(op, image, window, counted=counted)
    factors = _factors(op, window, counted)
    counts_all = bool((factors == 1).all())
    if op.quantized and not (counts_all and len(window.sizes) == 2):
        raise Unwritable("a quantized average whose border does not count as in SAME")
    pooled = _pooled(op, "AVERAGE_POOL_2D", window.written(op, image), window.without_border, op.out_dims())
    return pooled if counts_all else op.mul(pooled, factors.reshape(1, *factors.shape, 1))


def _divided(op: NodeExport, image: DraftTensor, window: Window, *, counted: bool) -> DraftTensor:
    """Return an average by the same average of ones, of an image whose extents are known only at run time."""
    if op.quantized:
        raise OpenExtentError("a quantized average whose border depends on an extent that is known only at run time")
    count = len(window.sizes)
    is_halved = window.same and op.text("auto_pad", "NOTSET") == "NOTSET" and window.strides == (2,) * count
    pads = ((0, 1),) * count if is_halved else window.border
    ones = op.emit("ZEROS_LIKE", [column := op.part(image, -1, 0, 1)], column.dims)
    ones, rest = op.add(ones, 1.0), pads
    if counted:  # what the node states counts, and what `ceil_mode` adds does not
        stated = (
            list(zip(flat_pads[:count], flat_pads[count:], strict=True)) if (flat_pads := op.integers("pads")) else []
        )
        stated = stated or [(0, 0)] * count
        ones = op.pad(ones, [(0, 0), *stated, (0, 0)], 1.0)
        rest = tuple((a - c, b - d) for (a, b), (c, d) in zip(pads, stated, strict=True))
    dims = op.out_dims(0)
    sums, parts = (
        _pooled(op, "AVERAGE_POOL_2D", each, window.without_border, (*dims[:-1], each.dims[-1]))
        for each in (op.pad(image, [(0, 0), *pads, (0, 0)]), op.pad(ones, [(0, 0), *rest, (0, 0)]))
    )
    return op.div(sums, parts)


def _covers_all(op: NodeExport, window: Window) -> bool:
    """Return whether the one window of every axis holds the whole axis, as that of a pool that is meant as a mean."""
    if window.results != (1,) * len(window.sizes) or not all_known(window.extents):
        return False
    rows = zip(window.sizes, window.border, known(window.extents), strict=True)
    return all(size - before >= extent for size, (before, _), extent in rows)


def _factors(op: NodeExport, window: Window, counted: bool) -> NDArray[np.float64]:
    """Return, for each window, its size by the number of elements that ONNX divides its sum by."""
    if counted and not op.integer("ceil_mode"):
        return np.ones((1,) * len(window.sizes))  # no window reaches behind a border, however large the image is
    require_few(prod(known(window.results, BORDER)))
    rows = zip(window.sizes, _counts(op, window, counted), strict=True)
    return reduce(np.multiply.outer, (size / np.maximum(counts, 1) for size, counts in rows))


def _counts(op: NodeExport, window: Window, counted: bool) -> Iterator[NDArray[np.int64]]:
    """Yield for each axis how many elements of each window count, with those of the border or not."""
    ends, same = op.integers("pads", [0] * (2 * len(window.sizes))), op.text("auto_pad", "NOTSET").startswith("SAME")
    rows = zip(known(window.extents, BORDER), known(window.results, BORDER), *window[1:4], window.border, strict=True)
    for axis, (extent, result, size, stride, dilation, (before, after)) in enumerate(rows):
        # What `ceil_mode` adds behind the border that the node states never counts.
        end = after if same else ends[len(window.sizes) + axis]
        low, high = (-before, extent + end) if counted else (0, extent)
        starts = np.arange(result) * stride - before
        first, last = (np.clip(-((starts - place) // dilation), 0, size) for place in (low, high))
        yield last - first


@each_exporter({"GlobalAveragePool": "MEAN", "GlobalMaxPool": "REDUCE_MAX"}, "{} over the axes of space.")
def _over_space(op: NodeExport, builtin: str) -> None:
    op.require_channels_last()
    op.give_new(op.reduce(builtin, op.input(0), range(1, op.rank() - 1), keep=True))


def _norm(op: NodeExport, image: DraftTensor) -> DraftTensor:
    p = op.integer("p", 2)
    if _is_dilated(op):
        return _root(op, sliding_sum(op, _powers(op, image, p)), p)
    op.require_channels_last()
    window = Window.of(op, op.integers("kernel_shape"))
    powers = _powers(op, window.written(op, image), p)
    means = _pooled(op, "AVERAGE_POOL_2D", powers, window.without_border, op.out_dims())
    return _root(op, op.mul(means, float(np.prod(window.sizes))), p)


def _norm_over_space(op: NodeExport, image: DraftTensor) -> DraftTensor:
    p, rank = op.integer("p", 2), op.rank()
    axes = space_axes(op, rank - 2)
    return _root(op, op.reduce("SUM", _powers(op, image, p), axes, keep=True), p)


def _powers(op: NodeExport, tensor: DraftTensor, p: int) -> DraftTensor:
    if p < 1:
        raise Unwritable(f"a norm of order {p}")
    if p == 1:
        return op.each("ABS", tensor)
    return op.each("SQUARE", tensor) if p == 2 else op.each("POW", op.each("ABS", tensor), float(p))


def _root(op: NodeExport, tensor: DraftTensor, p: int) -> DraftTensor:
    if p == 1:
        return tensor
    return op.each("SQRT", tensor) if p == 2 else op.each("POW", tensor, 1.0 / p)


def _is_dilated(op: NodeExport) -> bool:
    return any(each != 1 for each in op.integers("dilations"))


POOLS = {
    "AveragePool": Formula(
        "AVERAGE_POOL_2D; where its border counts otherwise than in SAME, PAD before it and MUL by what is off.",
        _average,
    ),
    "GlobalLpPool": Formula("SUM of powers over the axes of space, under a root.", _norm_over_space),
    "LpPool": Formula("AVERAGE_POOL_2D of powers, times the window's size, under a root.", _norm),
}
formulas(POOLS)


@exporter("MaxUnpool")
def max_unpool(op: NodeExport) -> None:
    """SCATTER_ND of the flat elements; where windows overlap divided by how many elements have one place."""
    dims = op.static()
    output_dims = known(op.out_dims())
    count = int(np.prod(dims))
    axes = range(len(dims) - 2)
    strides, pads = op.integers("strides", [1] * len(axes)), op.integers("pads", [0] * 2 * len(axes))
    sizes = op.integers("kernel_shape")
    spatial = [(dims[2 + k] - 1) * strides[k] + sizes[k] - pads[k] - pads[len(axes) + k] for k in axes]
    places = op.input(1)
    if list(output_dims[2:]) != spatial:
        places = _moved_places(op, places, (*dims[:2], *spatial), output_dims)
    flat = op.reshape(op.cast(places, TensorType.INT32), (count, 1))
    total = [int(np.prod(output_dims))]
    elements = op.scatter_nd(flat, op.reshape(op.input(0), (count,)), total)
    if any(size > stride for size, stride in zip(sizes, strides, strict=True)):
        # Windows that share their greatest element have it once each, and SCATTER_ND adds them up.
        copies = op.scatter_nd(flat, op.const(np.ones(count, np.float32)), total)
        elements = op.div(elements, op.maximum(copies, 1.0))
    op.give(op.reshape(elements, output_dims))


def _moved_places(
    op: NodeExport, places: DraftTensor, source: tuple[int, ...], output_dims: tuple[int, ...]
) -> DraftTensor:
    """Return places in a tensor of some extents as places in one of others."""
    coordinates, rest = [], op.cast(places, TensorType.INT32)
    for extent in reversed(source):
        coordinates.append(op.each("FLOOR_MOD", rest, extent))
        rest = op.div(rest, extent)
    flat_places, factor = coordinates[0], 1
    for coordinate, extent in zip(coordinates[1:], reversed(output_dims[1:]), strict=True):
        factor *= extent
        flat_places = op.add(flat_places, op.mul(coordinate, factor))
    return flat_places
