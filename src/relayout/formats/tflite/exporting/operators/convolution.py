"""Convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport, known
from relayout.formats.tflite.exporting.operators.grouped_volume import write_grouped_volume
from relayout.formats.tflite.exporting.operators.window import Window
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.scales import dequantizer_of

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
    node = dequantizer_of(op.value(slot))
    reals = op.constant(slot)
    if reals is None and node is not None:
        integers, scale = node.inputs[0], node.inputs[1]
        if integers is not None and integers.const_value is not None and scale is not None and scale.const_value:
            reals = integers.const_value.numpy().astype(np.float64) * scale.const_value.numpy().astype(np.float64)
    if reals is None:
        raise Unwritable("the bias of a quantized operator is computed")
    return np.rint(reals.astype(np.float64).reshape(-1) / steps.astype(np.float64))


@exporter("Conv")
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
        image = op.reshaped(image, (image.dims[0], 1, *image.dims[1:]))
        kernel = with_row(op, kernel)
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


def require_kernel(op: NodeExport, *layouts: str) -> None:
    """Refuse a kernel in another layout than the builtin's.

    Raises:
        Unwritable: it is in one.
    """
    if op.layouts[1] not in layouts:
        raise Unwritable(f"its kernel is {op.layouts[1].upper() or 'in the order of ONNX'}, not {layouts[0].upper()}")


def with_row(op: NodeExport, kernel: DraftTensor) -> DraftTensor:
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
    require_kernel(op, "dhwio")
    if op.quantized:
        raise Unwritable("a quantized convolution over three axes")
    if op.integer("group", 1) != 1:
        write_grouped_volume(op, image, kernel, bias_of(op, 2, image, kernel, kernel.shape[4]))
        return
    window = Window.of(op, known(kernel.dims)[:3])
    bias = bias_of(op, 2, image, kernel, kernel.shape[4])
    keys = ("d", "h", "w")
    options: dict[str, Any] = {"padding": window.padding}
    options |= {f"stride_{key}": each for key, each in zip(keys, window.strides, strict=True)}
    options |= {f"dilation_{key}_factor": each for key, each in zip(keys, window.dilations, strict=True)}
    op.result("CONV_3D", [window.bordered(op, image), kernel, bias], **options)
