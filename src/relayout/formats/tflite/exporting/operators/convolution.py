"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport, known
from relayout.formats.tflite.exporting.operators.window import Window
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

ACCUMULATORS = {TensorType.INT8: np.int32, TensorType.UINT8: np.int32, TensorType.INT16: np.int64}
"""Type of an operand -> type of the bias beside it, where the kernel runs on integers."""


def bias_of(op: NodeExport, slot: int, image: DraftTensor, kernel: DraftTensor, count: int) -> DraftTensor:
    """Return a bias as the kernels take it: zeros where there is none, integers where they run on integers.

    Args:
        op: the node.
        slot: where its bias is.
        image: the other operand.
        kernel: the kernel.
        count: how many results there are for each place.
    """
    if not op.quantized:
        if op.has(slot):
            return op.reshaped(op.input(slot), (count,))
        return op.const(np.zeros(count, NUMPY[image.type]), what="bias")
    assert image.quantization is not None
    assert kernel.quantization is not None
    kind = ACCUMULATORS[image.type]
    steps = (image.quantization.scale.astype(np.float64) * kernel.quantization.scale).astype(np.float32)
    meaning = Quantization(steps, np.zeros(steps.shape, np.int64), 0)
    return op.const(_bias_integers(op, slot, count, steps).astype(kind), meaning, "bias")


def _bias_integers(op: NodeExport, slot: int, count: int, steps: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return a bias in steps of the accumulators."""
    if not op.has(slot):
        return np.zeros(count)
    value = op.value(slot)
    node = value.producer()
    reals = op.constant(slot)
    if reals is None and node is not None and node.op_type == "DequantizeLinear":
        integers, scale = node.inputs[0], node.inputs[1]
        if integers is not None and integers.const_value is not None and scale is not None and scale.const_value:
            reals = integers.const_value.numpy().astype(np.float64) * scale.const_value.numpy().astype(np.float64)
    if reals is None:
        raise Unwritable("the bias of a quantized operator is computed")
    return np.rint(reals.astype(np.float64).reshape(-1) / steps.astype(np.float64))


@exporter("Conv")
def conv(op: NodeExport) -> None:
    """CONV_2D, DEPTHWISE_CONV_2D or CONV_3D; one axis of space as two, of which the first has one element."""
    op.require_channels_last()
    rank = op.rank(0)
    kernel_layout = op.layouts[1]
    image, kernel = op.input(0), op.input(1)
    if rank not in (3, 4, 5):
        raise Unwritable(f"a convolution over {rank - 2} axes")
    if rank == 5:
        _conv_3d(op, image, kernel)
        return
    _require_kernel(op, "ohwi", "owi", "ihwo", "iwo")
    depthwise = kernel_layout.startswith("i")
    sizes = known(kernel.dims)[1:-1]
    if op.integer("group", 1) != 1:
        known(image.dims[-1:])
    window = Window.of(op, sizes)
    (count,) = known(op.out_dims(0)[-1:])
    bias = bias_of(op, 2, image, kernel, count)
    image = window.bordered(op, image)
    if rank == 3:
        image = op.reshaped(image, (image.dims[0], 1, *image.dims[1:]))
        kernel = _with_row(op, kernel)
    strides, dilations = ((1, *each) if rank == 3 else each for each in (window.strides, window.dilations))
    options: dict[str, Any] = {
        "padding": window.padding,
        "stride_h": strides[0],
        "stride_w": strides[1],
        "dilation_h_factor": dilations[0],
        "dilation_w_factor": dilations[1],
    }
    if depthwise:
        options["depth_multiplier"] = count // int(image.dims[-1])
    name = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    if rank == 4:
        op.result(name, [image, kernel, bias], **options)
        return
    result = op.output(0)
    inner = op.emit(
        name,
        [image, kernel, bias],
        (result.dims[0], 1, *result.dims[1:]),
        result.type,
        result.quantization,
        **options,
    )
    op.result("RESHAPE", [inner, op.shape_tensor(result.dims, inner)])


def _require_kernel(op: NodeExport, *layouts: str) -> None:
    """Refuse a kernel in another layout than the builtin's.

    Raises:
        Unwritable: it is in one.
    """
    if op.layouts[1] not in layouts:
        raise Unwritable(f"its kernel is {op.layouts[1].upper() or 'in the order of ONNX'}, not {layouts[0].upper()}")


def _with_row(op: NodeExport, kernel: DraftTensor) -> DraftTensor:
    """Return the kernel of one axis of space as one of two."""
    dims: Dims = (kernel.dims[0], 1, *kernel.dims[1:])
    if kernel.data is None:
        return op.reshaped(kernel, dims)
    return DraftTensor(
        op.graph.draft.unique(f"{kernel.name}/2d"),
        kernel.type,
        dims,
        kernel.data,
        None if kernel.array is None else kernel.array.reshape([int(dim) for dim in dims]),
        kernel.quantization
        and kernel.quantization._replace(axis=kernel.quantization.axis + (kernel.quantization.axis > 0)),
    )


def _conv_3d(op: NodeExport, image: DraftTensor, kernel: DraftTensor) -> None:
    if op.integer("group", 1) != 1:
        raise Unwritable("groups of a convolution over three axes")
    _require_kernel(op, "dhwio")
    window = Window.of(op, known(kernel.dims)[:3])
    bias = bias_of(op, 2, image, kernel, kernel.shape[4])
    keys = ("d", "h", "w")
    options: dict[str, Any] = {"padding": window.padding}
    options |= {f"stride_{key}": each for key, each in zip(keys, window.strides, strict=True)}
    options |= {f"dilation_{key}_factor": each for key, each in zip(keys, window.dilations, strict=True)}
    op.result("CONV_3D", [window.bordered(op, image), kernel, bias], **options)


@exporter("ConvTranspose")
def conv_transpose(op: NodeExport) -> None:
    """TRANSPOSE_CONV; a SLICE cuts what pads take away, groups are convolutions of their own."""
    op.require_channels_last()
    rank = op.rank(0)
    if rank not in (3, 4):
        raise Unwritable(f"a transposed convolution over {rank - 2} axes")
    group = op.integer("group", 1)
    if op.quantized and group != 1:
        raise Unwritable("groups of a quantized transposed convolution")
    _require_kernel(op, "ohwi", "owi")
    image, kernel = op.input(0), op.input(1)
    known(kernel.dims)
    if rank == 3:
        image = op.reshaped(image, (image.dims[0], 1, *image.dims[1:]))
        kernel = _with_row(op, kernel)
    result = op.output(0)
    wanted: Dims = (result.dims[0], 1, *result.dims[1:]) if rank == 3 else result.dims
    full = _Transposed.of(op, kernel, image.dims, wanted)
    count = int(wanted[-1])
    bias = bias_of(op, 2, image, kernel, count)
    if group == 1:
        full.write(op, image, kernel, bias, wanted, result, rank)
        return
    reads = int(image.dims[-1]) // group
    pieces = _split(op, image, [reads] * group)
    # The kernel is `o h w i` with the outputs of one group in `o` and the inputs of all in `i`.
    kernels = _split(op, kernel, [reads] * group)
    gives = count // group
    made = [full.apply(op, piece, part, None, gives) for piece, part in zip(pieces, kernels, strict=True)]
    joined = op.emit("CONCATENATION", made, (*made[0].dims[:-1], count), axis=3)
    joined = op.emit("ADD", [joined, bias], joined.dims) if op.has(2) else joined
    full.cut(op, joined, wanted, result)


def _split(op: NodeExport, tensor: DraftTensor, sizes: Sequence[int]) -> list[DraftTensor]:
    """Return pieces of a tensor along its last axis."""
    if tensor.array is not None:
        places = np.cumsum(sizes)[:-1]
        return [op.const(np.ascontiguousarray(part)) for part in np.split(tensor.array, places, axis=-1)]
    begins = np.cumsum([0, *sizes[:-1]])
    front = len(tensor.dims) - 1
    return [
        op.emit(
            "SLICE",
            [tensor, op.ints32([*[0] * front, int(begin)]), op.ints32([*[-1] * front, size])],
            (*tensor.dims[:-1], size),
        )
        for begin, size in zip(begins, sizes, strict=True)
    ]


class _Transposed:
    """A transposed convolution: what the builtin computes, and what is cut off."""

    def __init__(
        self, padding: Padding, strides: Sequence[int], dims: Dims, begins: Sequence[int], dilations: Sequence[int]
    ) -> None:
        self.padding, self.strides, self.dims, self.begins = padding, strides, dims, begins
        self.dilations = dilations

    @staticmethod
    def of(op: NodeExport, kernel: DraftTensor, image: Dims, wanted: Dims) -> _Transposed:
        """Read a node: SAME where its pads are TensorFlow's, else VALID over all, of which a part is cut out."""
        count = op.rank(0) - 2
        strides, dilations = op.integers("strides", [1] * count), op.integers("dilations", [1] * count)
        given = op.integers("pads", [0] * (2 * count))
        extra = op.integers("output_padding", [0] * count)
        begins = given[:count]
        if count == 1:
            strides, dilations, begins, extra = [1, *strides], [1, *dilations], [0, *begins], [0, *extra]
        extents = image[1:-1]
        sizes = [(size - 1) * dilation + 1 for size, dilation in zip(kernel.shape[1:-1], dilations, strict=True)]
        if any(not isinstance(dim, int) for dim in (*extents, *wanted[1:-1])):
            raise Unwritable("a transposed convolution of an image whose extents are known only at run time")
        full = [(int(e) - 1) * s + k for e, s, k in zip(extents, strides, sizes, strict=True)]
        auto = op.text("auto_pad", "NOTSET")
        goals = [int(dim) for dim in wanted[1:-1]]
        if auto.startswith("SAME") or op.integers("output_shape"):
            totals = [f - g + x for f, g, x in zip(full, goals, extra, strict=True)]
            begins = [max(t - t // 2 if auto == "SAME_LOWER" else t // 2, 0) for t in totals]
        same = all(
            goal == int(extent) * stride and begin == max(size - stride, 0) // 2 and size >= stride
            for goal, extent, stride, begin, size in zip(goals, extents, strides, begins, sizes, strict=True)
        )
        if same:
            return _Transposed(Padding.SAME, strides, tuple(goals), [0] * len(goals), dilations)
        grown = [max(f, g + b) for f, g, b in zip(full, goals, begins, strict=True)]
        return _Transposed(Padding.VALID, strides, tuple(grown), begins, dilations)

    def apply(
        self, op: NodeExport, image: DraftTensor, kernel: DraftTensor, bias: DraftTensor | None, count: int
    ) -> DraftTensor:
        """Return the builtin's result."""
        dims: Dims = (image.dims[0], *self.dims, count)
        kernel = self._dilated(op, kernel)
        shape = self._shape(op, image, dims)
        inputs = [shape, kernel, image, *([] if bias is None else [bias])]
        options = {"padding": self.padding, "stride_h": self.strides[0], "stride_w": self.strides[1]}
        result = op.output(0)
        return op.emit("TRANSPOSE_CONV", inputs, dims, result.type, result.quantization, **options)

    def _shape(self, op: NodeExport, image: DraftTensor, dims: Dims) -> DraftTensor:
        if isinstance(dims[0], int):
            return op.ints32([int(dim) for dim in dims], "output_shape")
        listed = op.emit("SHAPE", [image], (len(image.dims),), TensorType.INT32, out_type=TensorType.INT32)
        batch = op.emit("SLICE", [listed, op.ints32([0]), op.ints32([1])], (1,))
        return op.emit("CONCATENATION", [batch, op.ints32([int(dim) for dim in dims[1:]])], (4,), axis=0)

    def _dilated(self, op: NodeExport, kernel: DraftTensor) -> DraftTensor:
        """Return the kernel with zeros between its elements."""
        if all(each == 1 for each in self.dilations):
            return kernel
        if kernel.array is None:
            raise Unwritable("dilations of a transposed convolution whose kernel is computed or large")
        height, width = ((size - 1) * d + 1 for size, d in zip(kernel.shape[1:3], self.dilations, strict=True))
        grown = np.zeros((kernel.shape[0], height, width, kernel.shape[3]), kernel.array.dtype)
        grown[:, :: self.dilations[0], :: self.dilations[1]] = kernel.array
        return op.const(grown, kernel.quantization, "dilated")

    def write(
        self,
        op: NodeExport,
        image: DraftTensor,
        kernel: DraftTensor,
        bias: DraftTensor,
        wanted: Dims,
        result: DraftTensor,
        rank: int,
    ) -> None:
        """Write the node."""
        made = self.apply(op, image, kernel, bias, int(wanted[-1]))
        if made.dims == wanted == result.dims:
            op.graph.draft.operators[-1].outputs[0] = result
            return
        self.cut(op, made, wanted, result)

    def cut(self, op: NodeExport, made: DraftTensor, wanted: Dims, result: DraftTensor) -> None:
        """Write the part that the node gives."""
        if made.dims != wanted:
            begin = op.ints32([0, *self.begins, 0])
            size = op.ints32([dim if isinstance(dim, int) else -1 for dim in wanted])
            if wanted == result.dims:
                op.result("SLICE", [made, begin, size])
                return
            made = op.emit("SLICE", [made, begin, size], wanted)
        op.result("RESHAPE", [made, op.shape_tensor(result.dims, made)])
