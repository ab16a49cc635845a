"""Convolutions, and windows that slide over images: which border they have, and how it is written."""

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable, exporter
from relayout.formats.tflite.importing import window as imported
from relayout.graph.domains import CONVOLUTION
from relayout.graph.quantized_unit import dequantizer_of

BORDER = "its border depends on an extent that is known only at run time"


def space_axes(op: NodeExport, count: int) -> range:
    """Return the axes of space of an image: behind those of the batch and, in ONNX's own order, of the channels."""
    begin = 1 if op.layouts[0] else 2
    return range(begin, begin + count)


class Window(NamedTuple):
    """A window over the axes `*s` of an image `n *s c`, or `n c *s`."""

    extents: Dims  # of the image
    sizes: tuple[int, ...]  # of the window
    strides: tuple[int, ...]  # between windows
    dilations: tuple[int, ...]  # between elements of a window
    pads: tuple[tuple[int, int], ...]  # of the border, (before, after) of each axis
    same: bool  # whether the border is what TensorFlow Lite calls SAME
    results: Dims  # how many windows there are

    @staticmethod
    def of(op: NodeExport, sizes: Sequence[int]) -> "Window":
        """Read a node's window."""
        count = op.rank(0) - 2
        axes = space_axes(op, count)
        extents, results = (dims[axes.start : axes.stop] for dims in (op.dims(0), op.out_dims(0)))
        require_whole(op, extents, results)
        strides = tuple(op.integers("strides", [1] * count))
        dilations = tuple(op.integers("dilations", [1] * count))
        same_upper = Window(extents, tuple(sizes), strides, dilations, ((0, 0),) * count, True, results)
        auto = op.text("auto_pad", "NOTSET")
        if auto == "SAME_UPPER":
            return same_upper
        flat_pads = [0] * (2 * count) if auto == "VALID" else op.integers("pads", [0] * (2 * count))
        pads = list(zip(flat_pads[:count], flat_pads[count:], strict=True))
        if auto.startswith("SAME"):
            pads = list(same_border(extents, sizes, strides, dilations, is_lower=True))
        if op.integer("ceil_mode"):
            # Windows of two side by side: the last may hold one element. SAME is that for any extents.
            is_halved = set(zip(sizes, strides, dilations, strict=True)) == {(2, 2, 1)} and not any(map(any, pads))
            if is_halved and not all_known(extents):
                return same_upper
            pads = [
                (before, _after_ceil(extent, result, size, stride, dilation, (before, after)))
                for (before, after), extent, result, size, stride, dilation in zip(
                    pads, extents, results, sizes, strides, dilations, strict=True
                )
            ]
        for extent, pair, size, dilation in zip(extents, pads, sizes, dilations, strict=True):
            if isinstance(extent, int) and extent + sum(pair) < (size - 1) * dilation + 1:
                raise Unwritable("a window that is larger than its image")
        same = all(_is_same(*each) for each in zip(extents, results, sizes, strides, dilations, pads, strict=True))
        return same_upper._replace(pads=tuple(pads), same=same)

    @property
    def border(self) -> tuple[tuple[int, int], ...]:
        """The border of each axis as numbers, also where SAME says it."""
        return same_border(self.extents, self.sizes, self.strides, self.dilations) if self.same else self.pads

    @property
    def is_valid(self) -> bool:
        """True if there is no border."""
        return not self.same and not any(map(any, self.pads))

    @property
    def without_border(self) -> "Window":
        """The window over an image that has its border already."""
        return self._replace(same=False, pads=((0, 0),) * len(self.sizes))

    @property
    def padding(self) -> Padding:
        """The padding of the operator, once the border is written."""
        return Padding.SAME if self.same else Padding.VALID

    def bordered(
        self,
        op: NodeExport,  # the node
        image: DraftTensor,  # `n *s c`
        border: float | None = None,  # what the border holds; None: what means zero
    ) -> DraftTensor:
        """Return the image with its border written by an operator of its own, where SAME does not say it."""
        if self.same or self.is_valid:
            return image
        return op.pad(image, [(0, 0), *self.pads, (0, 0)], border)

    def written(self, op: NodeExport, image: DraftTensor) -> DraftTensor:
        """Return the image with its border of zeros written by an operator of its own, also where SAME says it."""
        return op.pad(image, [(0, 0), *self.border, (0, 0)])


def steps(strides: Sequence[int], dilations: Sequence[int] = ()) -> dict[str, Any]:
    """Return strides and dilations of two or three axes as options."""
    axes = "dhw"[-len(strides) :]
    options = {f"stride_{axis}": stride for axis, stride in zip(axes, strides, strict=True)}
    return options | {f"dilation_{axis}_factor": each for axis, each in zip(axes, dilations, strict=False)}


def require_whole(op: NodeExport, extents: Dims, results: Dims) -> None:
    """Refuse windows that `ceil_mode` counts, though they begin behind the image and its border: few runtimes give any.

    Args:
        op: the node.
        extents: of the image's axes of space.
        results: how many windows the graph says there are.
    """
    count = len(extents)
    if not op.integer("ceil_mode"):
        return
    strides, pads = op.integers("strides", [1] * count), op.integers("pads", [0] * (2 * count))
    auto = op.text("auto_pad", "NOTSET")
    for extent, result, stride, begin in zip(extents, results, strides, pads, strict=False):
        if not isinstance(extent, int) or not isinstance(result, int):
            continue
        last = (result - 1) * stride - (begin if auto == "NOTSET" else 0)
        if last >= extent or (auto.startswith("SAME") and result != -(-extent // stride)):
            raise Unwritable("ceil_mode, with a window that begins behind the image")


def same_border(
    extents: Dims, sizes: Sequence[int], strides: Sequence[int], dilations: Sequence[int], *, is_lower: bool = False
) -> tuple[tuple[int, int], ...]:
    """Return the border that SAME means, (before, after) of each axis; the larger half is behind, or before."""
    known(tuple(extent for extent, stride in zip(extents, strides, strict=True) if stride > 1), BORDER)
    pads = imported.pads(extents, sizes, strides, dilations, same=True)
    halves = zip(pads[: len(sizes)], pads[len(sizes) :], strict=True)
    return tuple((larger, smaller) if is_lower else (smaller, larger) for smaller, larger in halves)


def _after_ceil(
    extent: int | str, result: int | str, size: int, stride: int, dilation: int, pads: tuple[int, int]
) -> int:
    """Return the border behind an image that all windows of `ceil_mode` need.

    Of an open extent it is the largest that any extent needs: windows that end behind what is needed are left out,
    since ceil(x / stride) = floor((x + stride - 1) / stride).
    """
    (before, after), reach = pads, (size - 1) * dilation + 1
    if isinstance(extent, int) and isinstance(result, int):
        return max(after, (result - 1) * stride + reach - extent - before)
    if reach < after + stride:  # of some extents a last window begins behind the image, and is left out
        raise OpenExtentError(BORDER)
    return after + stride - 1


def _is_same(
    extent: int | str, result: int | str, size: int, stride: int, dilation: int, pads: tuple[int, int]
) -> bool:
    """Return whether TensorFlow Lite's SAME gives the same border to one axis."""
    total = sum(pads)
    if pads[0] != total // 2:
        return False
    if stride == 1:
        return total == (size - 1) * dilation
    if not isinstance(extent, int) or not isinstance(result, int) or result != -(-extent // stride):
        return False
    needed = max((result - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
    # A border that no window reaches does not count.
    return pads[0] == needed // 2 and total >= needed


# Convolutions.


# Convolutions over three axes as a sum of convolutions over two: CONV_3D takes no groups.
#
# y[n d h w o]  =  sum over t of  Conv2D(x[n (stride · d + dilation · t) h w c], kernel[t])

BY_IMAGES = "relayout.by_images"  # the key of a node's meta: it is written as such a sum


def _write_by_images(
    op: NodeExport,  # the node
    image: DraftTensor,  # `n d h w c`
    kernel: DraftTensor,  # `d h w i o`, the inputs of one group
    bias: DraftTensor,  # `o`
) -> None:
    """Write a convolution over three axes: the images of a volume are a batch."""
    if image.type != TensorType.FLOAT32:
        raise Unwritable("groups of a quantized convolution over three axes")
    (depth, *sizes, reads, count) = known(kernel.dims)
    window, (channels,) = Window.of(op, (depth, *sizes)), known(image.dims[-1:])
    batch, *results = op.output(0).dims[:-1]
    (slices,) = known((results[0],))
    every = op.elements((batch, slices), "slices")
    phases = _phases(op, image, window)
    flat: Dims = (every, *phases[0].dims[2:])
    is_depthwise = reads == 1 and channels > 1
    options = steps(window.strides[1:], window.dilations[1:])
    if is_depthwise:
        options["depth_multiplier"] = count // channels
    name, order = ("DEPTHWISE_CONV_2D", (2, 0, 1, 3)) if is_depthwise else ("CONV_2D", (3, 0, 1, 2))
    none, array = op.const(np.zeros(count, np.float32)), op.constant(1)
    dims: Dims = (every, *results[1:], count)

    def of_tap(tap: int) -> DraftTensor:
        first, phase = divmod(tap * window.dilations[0], window.strides[0])
        part = op.reshape(op.part(phases[phase], 1, first, slices), flat)
        own = op.at(kernel, 0, tap) if array is None else op.const(np.ascontiguousarray(array[tap]))
        inputs = [part, op.transpose(own, order), none if tap else bias]
        return op.emit(name, inputs, dims, padding=Padding.VALID, **options)

    op.give(op.reshape(reduce(op.add, map(of_tap, range(depth))), op.output(0).dims, image))


def _phases(op: NodeExport, image: DraftTensor, window: Window) -> list[DraftTensor]:
    """Return every image of the padded depth that is so many behind the first of each step.

    Where heights are known, the depth is split by a reshape, and each part is a slice without strides.
    """
    stride, (depth, *rest) = window.strides[0], window.border
    (extent,) = known(image.dims[1:2])
    over = -(sum(depth) + extent) % stride
    whole = op.pad(image, [(0, 0), (depth[0], depth[1] + over), *rest, (0, 0)])
    if stride == 1:
        return [whole]
    (batch, _, rows, *behind), count = whole.dims, (sum(depth) + extent + over) // stride
    if isinstance(rows, int):
        blocks = op.reshape(whole, (batch, count, stride * rows, *behind))
        return [op.part(blocks, 2, phase * rows, rows) for phase in range(stride)]
    ends, steps = op.ints([0] * 5), op.ints([1, stride, 1, 1, 1])
    masks: dict[str, Any] = {"begin_mask": 0b11101, "end_mask": 0b11111}
    return [
        op.emit(
            "STRIDED_SLICE", [whole, op.ints([0, phase, 0, 0, 0]), ends, steps], (batch, count, rows, *behind), **masks
        )
        for phase in range(stride)
    ]


ACCUMULATORS = {TensorType.INT8: np.int32, TensorType.UINT8: np.int32, TensorType.INT16: np.int64}
"""Type of an operand -> type of the bias beside it, where the kernel runs on integers."""


def bias_of(
    op: NodeExport,  # the node
    slot: int,  # where its bias is
    image: DraftTensor,  # the other operand
    kernel: DraftTensor,
    count: int,  # how many results there are for each place
) -> DraftTensor:
    """Return a bias as the kernels take it: zeros where there is none, integers where they run on integers."""
    if not op.quantized:
        if op.has(slot):
            return op.reshape(op.input(slot), (count,))
        return op.const(np.zeros(count, NUMPY[image.type]), what="bias")
    assert image.quantization is not None
    assert kernel.quantization is not None
    kind = ACCUMULATORS[image.type]
    scale = (image.quantization.scale.astype(np.float64) * kernel.quantization.scale).astype(np.float32)
    meaning = Quantization(scale, np.zeros(scale.shape, np.int64), 0)
    return op.const(_bias_integers(op, slot, count, scale).astype(kind), meaning, "bias")


def _bias_integers(op: NodeExport, slot: int, count: int, step: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a bias in steps of the accumulators."""
    if not op.has(slot):
        return np.zeros(count)
    node = dequantizer_of(op.value(slot))
    reals = op.constant(slot)
    if reals is None and node is not None:
        integers, scale = node.inputs[0], node.inputs[1]
        if integers is not None and integers.const_value is not None and scale is not None and scale.const_value:
            reals = integers.const_value.numpy().astype(np.float64) * scale.const_value.numpy().astype(np.float64)
    if reals is None:
        raise Unwritable("the bias of a quantized operator is computed")
    return np.rint(reals.astype(np.float64).reshape(-1) / step.astype(np.float64))


@exporter(CONVOLUTION)
def conv(op: NodeExport) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D or CONV_3D; one axis of space as two, groups over three as a sum over two."""
    op.require_channels_last()
    rank = op.rank(0)
    kernel_layout = op.layouts[1]
    image, kernel = op.input(0), op.input(1)
    if rank not in (3, 4, 5):
        raise Unwritable(f"a convolution over {rank - 2} axes")
    if 0 in kernel.dims:
        raise Unwritable("a convolution with no channels")
    if rank == 5:
        _conv_3d(op, image, kernel)
        return
    require_kernel(op, "ohwi", "owi", "ihwo", "iwo")
    depthwise = kernel_layout.startswith("i")
    sizes = known(kernel.dims)[1:-1]
    if op.integer("group", 1) != 1:
        known(image.dims[-1:])
    window = Window.of(op, sizes)
    (count,) = known(op.out_dims(0)[-1:])
    bias = bias_of(op, 2, image, kernel, count)
    image = window.bordered(op, image)
    if rank == 3:
        image, kernel = _with_rows(op, image, kernel)
    strides, dilations = ((1, *each) if rank == 3 else each for each in (window.strides, window.dilations))
    options = {"padding": window.padding, **steps(strides, dilations)}
    if depthwise:
        options["depth_multiplier"] = count // int(image.dims[-1])
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    if rank == 4:
        op.result(name, [image, kernel, bias], **options)
        return
    result = op.output(0)
    dims: Dims = (result.dims[0], 1, *result.dims[1:])
    inner = op.emit(name, [image, kernel, bias], dims, result.type, result.quantization, **options)
    op.result("RESHAPE", [inner, op.shape_tensor(result.dims, inner)])


def require_kernel(op: NodeExport, *layouts: str) -> None:
    """Refuse a kernel in another layout than the builtin's."""
    if op.layouts[1] not in layouts:
        raise Unwritable(f"its kernel is {op.layouts[1].upper() or 'in the order of ONNX'}, not {layouts[0].upper()}")


def _with_rows(op: NodeExport, image: DraftTensor, kernel: DraftTensor) -> tuple[DraftTensor, DraftTensor]:
    """Return an image and a kernel of one axis of space as those of two."""
    image = op.reshape(image, (image.dims[0], 1, *image.dims[1:]))
    dims: Dims = (kernel.dims[0], 1, *kernel.dims[1:])
    if kernel.data is None:
        return image, op.reshape(kernel, dims)
    name, meaning = op.draft.unique(f"{kernel.name}/2d"), kernel.quantization
    array = None if kernel.array is None else kernel.array.reshape(known(dims))
    meaning = meaning and meaning._replace(axis=meaning.axis + (meaning.axis > 0))
    return image, DraftTensor(name, kernel.type, dims, kernel.data, array, meaning)


def _conv_3d(op: NodeExport, image: DraftTensor, kernel: DraftTensor) -> None:
    require_kernel(op, "dhwio")
    if op.quantized:
        raise Unwritable("a quantized convolution over three axes")
    if op.integer("group", 1) != 1 or op.node.meta.get(BY_IMAGES):
        _write_by_images(op, image, kernel, bias_of(op, 2, image, kernel, kernel.shape[4]))
        return
    window = Window.of(op, known(kernel.dims)[:3])
    bias = bias_of(op, 2, image, kernel, kernel.shape[4])
    options = steps(window.strides, window.dilations)
    op.result("CONV_3D", [window.bordered(op, image), kernel, bias], padding=window.padding, **options)


# Transposed convolutions, also of images whose extents are known only at run time.
#
# Along each axis the builtin gives `extent · stride + more` elements. VALID gives all that the kernel reaches, and a
# slice takes the result out of it. SAME gives the result itself, if this has `extent · stride` elements or up to
# `stride - 1` less, with half of what the kernel reaches beyond it in front.


@exporter("ConvTranspose")
def conv_transpose(op: NodeExport) -> None:
    """TRANSPOSE_CONV or CONV_3D_TRANSPOSE; a slice cuts what pads take away, groups are convolutions of their own."""
    op.require_channels_last()
    rank = op.rank(0)
    if rank not in (3, 4, 5):
        raise Unwritable(f"a transposed convolution over {rank - 2} axes")
    group = op.integer("group", 1)
    if op.quantized and (group != 1 or rank == 5):
        raise Unwritable("a quantized transposed convolution in groups or over three axes")
    require_kernel(op, *(("dhwoi",) if rank == 5 else ("ohwi", "owi")))
    image, kernel = op.input(0), op.input(1)
    known(kernel.dims)
    if 0 in image.dims:
        raise Unwritable("a transposed convolution of no elements")
    if rank == 3:
        image, kernel = _with_rows(op, image, kernel)
    result = op.output(0)
    output_dims: Dims = (result.dims[0], 1, *result.dims[1:]) if rank == 3 else result.dims
    full = _Transposed.of(op, kernel, image.dims, output_dims)
    (count,) = known(output_dims[-1:])
    if group == 1:
        whole_tensor = full.apply(op, image, kernel, bias_of(op, 2, image, kernel, count), count)
        full.give(op, whole_tensor, output_dims, result)
        return
    # The kernel has the outputs of one group in `o` and the inputs of all in `i`, which comes last.
    reads, gives = known(image.dims[-1:])[0] // group, count // group
    begins = range(0, reads * group, reads)
    pieces, kernels = ([op.part(each, -1, begin, reads) for begin in begins] for each in (image, kernel))
    parts = [full.apply(op, piece, part, None, gives) for piece, part in zip(pieces, kernels, strict=True)]
    joined = op.emit("CONCATENATION", parts, (*parts[0].dims[:-1], count), axis=len(output_dims) - 1)
    joined = op.add(joined, bias_of(op, 2, image, kernel, count)) if op.has(2) else joined
    full.give(op, joined, output_dims, result)


class _Side(NamedTuple):
    """One axis of space."""

    extent: int | str  # of the image
    goal: int | str  # of the result
    stride: int
    dilation: int  # the dilation of the kernel
    more: int  # what the builtin gives is this much more than `extent · stride`
    before: int  # elements that are cut off in front
    after: int  # elements that are cut off behind
    short: int  # what the node gives is this much more than `extent · stride`; less, where it is below 0
    is_same: bool  # whether these are TensorFlow's pads: then nothing is cut off

    def grown(self, op: NodeExport, place: int) -> int | str:
        """Return how much the builtin gives."""
        if isinstance(self.extent, int):
            return self.extent * self.stride + self.more
        return f"?{op.name}.{place}" if self.before or self.after else self.goal


class _Transposed(NamedTuple):
    """A transposed convolution: what the builtin computes, and what is cut off."""

    padding: Padding
    sides: list[_Side]  # the axes of space

    @staticmethod
    def of(op: NodeExport, kernel: DraftTensor, image: Dims, output_dims: Dims) -> "_Transposed":
        """Read a node: SAME where its pads are TensorFlow's, else VALID over all, of which a part is cut out."""
        count = op.rank(0) - 2
        front = [] if count > 1 else [1]
        strides, dilations = (front + op.integers(name, [1] * count) for name in ("strides", "dilations"))
        pads, none = op.integers("pads", [0] * (2 * count)), [0] * len(front)
        extra = none + op.integers("output_padding", [0] * count)
        begins, ends = none + pads[:count], none + pads[count:]
        spatial = kernel.shape[:3] if count == 3 else kernel.shape[1:-1]
        sizes = [(size - 1) * dilation + 1 for size, dilation in zip(spatial, dilations, strict=True)]
        auto, by_shape = op.text("auto_pad", "NOTSET"), bool(op.integers("output_shape"))
        if auto.startswith("SAME") and not by_shape and any(extra):
            raise Unwritable("output_padding beside SAME, of which shape inference and runtimes make different extents")
        sides = []
        rows = zip(image[1:-1], output_dims[1:-1], strides, dilations, sizes, begins, ends, extra, strict=True)
        for extent, goal, stride, dilation, size, begin, end, more in rows:
            least = size - stride  # of all that the kernel reaches, beyond `extent · stride`
            if auto.startswith("SAME") or by_shape:  # the node says how many elements are left
                over = max(least + more, 0)
                if isinstance(extent, int) and isinstance(goal, int):
                    over = extent * stride + least + more - goal
                elif by_shape:
                    raise Unwritable("a transposed convolution to a stated shape, of an image whose extents are open")
                begin = max(over // 2 if auto == "SAME_UPPER" else over - over // 2, 0)
                end = over - begin
            wide = max(least, least + more - end)
            short = least + more - begin - end
            is_same = -stride < short <= min(least, 0) and begin == (least - short) // 2
            after = wide - (least + more - end)
            sides.append(_Side(extent, goal, stride, dilation, wide, begin, after, short, is_same))
        if not all(side.is_same for side in sides):
            return _Transposed(Padding.VALID, sides)
        return _Transposed(Padding.SAME, [side._replace(more=side.short, before=0, after=0) for side in sides])

    def apply(
        self, op: NodeExport, image: DraftTensor, kernel: DraftTensor, bias: DraftTensor | None, count: int
    ) -> DraftTensor:
        """Return the builtin's result."""
        grown = [side.grown(op, place) for place, side in enumerate(self.sides)]
        dims: Dims = (image.dims[0], *grown, count)
        if all_known(dims):
            shape = op.ints(known(dims), "output_shape")
        else:
            scale = np.array([1, *(side.stride for side in self.sides), 0])
            shape = op.add(op.mul(op.extents(image), scale), np.array([0, *(side.more for side in self.sides), count]))
        inputs = [shape, self._dilated(op, kernel), image, *([] if bias is None else [bias])]
        options = steps([side.stride for side in self.sides])
        name, result = "TRANSPOSE_CONV" if len(self.sides) == 2 else "CONV_3D_TRANSPOSE", op.output(0)
        return op.emit(name, inputs, dims, result.type, result.quantization, padding=self.padding, **options)

    def _dilated(self, op: NodeExport, kernel: DraftTensor) -> DraftTensor:
        """Return the kernel with zeros between its elements."""
        dilations, first = [side.dilation for side in self.sides], 0 if len(self.sides) == 3 else 1
        if all(each == 1 for each in dilations):
            return kernel
        if kernel.array is None:
            return self._spread(op, kernel, dilations, first)
        shape, every = list(kernel.shape), [slice(None)] * kernel.array.ndim
        for axis, dilation in enumerate(dilations, first):
            shape[axis], every[axis] = (shape[axis] - 1) * dilation + 1, slice(None, None, dilation)
        grown = np.zeros(shape, kernel.array.dtype)
        grown[tuple(every)] = kernel.array
        return op.const(grown, kernel.quantization, "dilated")

    def _spread(self, op: NodeExport, kernel: DraftTensor, dilations: Sequence[int], first: int) -> DraftTensor:
        """Return the kernel with zeros between its elements, at run time."""
        if kernel.quantization is not None:
            raise Unwritable("dilations of a quantized transposed convolution whose kernel is computed or large")
        for axis, dilation in enumerate(dilations, first):
            shape = known(kernel.dims)
            front, size, back = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
            padded_kernel = op.pad(
                op.reshape(kernel, (front, size, 1, back)), [(0, 0), (0, 0), (0, dilation - 1), (0, 0)]
            )
            whole = op.reshape(padded_kernel, (*shape[:axis], size * dilation, *shape[axis + 1 :]))
            kernel = op.part(whole, axis, 0, (size - 1) * dilation + 1)
        return kernel

    def give(self, op: NodeExport, whole_tensor: DraftTensor, output_dims: Dims, result: DraftTensor) -> None:
        """Write the part that the node gives."""
        whole_tensor = op.cut(
            whole_tensor, [(0, 0), *((side.before, side.after) for side in self.sides), (0, 0)], output_dims
        )
        if output_dims == result.dims:
            op.draft.operators[-1].outputs[0] = result
        else:
            op.result("RESHAPE", [whole_tensor, op.shape_tensor(result.dims, whole_tensor)])
