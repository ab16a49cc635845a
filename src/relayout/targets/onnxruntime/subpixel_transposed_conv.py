"""A transposed convolution of bytes as a convolution that yields blocks of pixels, and DepthToSpace.

ONNX Runtime has no integer kernel for transposed convolutions. The pixels of a result at the same place in their blocks
of `stride` by `stride` follow from the same taps of the kernel, so each place is a convolution of its own, in steps of
one; all of them are one convolution with as many times the channels. The sums of products are the same integers.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.importing.builder import Dim, dims
from relayout.formats.tflite.importing.extents import contents
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.convolution import border, require_transpose_conv
from relayout.formats.tflite.importing.tensors import array
from relayout.formats.tflite.importing.window import TO_FIRST, TO_LAST
from relayout.graph.domains import CONVOLUTION
from relayout.lowering.transposed_axes import Axis, Place, kernel_at, places_of
from relayout.targets.onnxruntime.operation_forms import convolves_bytes

LEAST = 16  # channels of a result for which it pays: what the convolution saves is more than what DepthToSpace takes


def transposed_conv_in_blocks(op: Operation) -> bool:
    """Hand over a TRANSPOSE_CONV as Conv and DepthToSpace, if it is of bytes, in whole blocks, and its windows overlap.

    Where none do, ConvTranspose is a product of matrices and takes as long.
    """
    require_transpose_conv(op)
    strides = [op.options.stride_h, op.options.stride_w]
    whole: Sequence[Dim] = op.integers(0, 4) if op.is_constant(0) else contents(op.stored(0)) or ()
    result_extents = [extent for extent in whole[1:3] if isinstance(extent, int)]
    extents, same = dims(op.stored(2))[1:3], op.options.padding == Padding.SAME
    if (
        len(result_extents) != 2
        or strides[0] != strides[1]
        or strides[0] < 2
        or not all(isinstance(e, int) for e in extents)
    ):
        return False
    axes = zip(extents, op.input(1).shape[1:3], strides, (1, 1), result_extents, strict=True)
    cuts = [each.begin for each in (border(*axis, same) for axis in axes) if each is not None]
    return len(cuts) == 2 and subpixel(op, strides[0], cuts, result_extents)


def subpixel(
    op: Operation,  # data is operand 2, the kernel `o h w i` operand 1, a bias operand 3
    stride: int,  # the same along both axes
    cuts: Sequence[int],  # what is cut off before the first row and column
    result_extents: Sequence[int],  # height and width of the result
) -> bool:
    """Hand over a TRANSPOSE_CONV as Conv and DepthToSpace, if its windows overlap."""
    kernel, (n, *spatial, _) = op.input(1), dims(op.stored(2))
    extents = [e for e in spatial if isinstance(e, int)]
    targets = [e for e in result_extents if e % stride == 0 and e > 0]
    pays = kernel.shape[0] >= LEAST and max(kernel.shape[1:3]) > stride
    bias = op.input(3) if op.has(3) else None
    has_bias = bias is None or (bias.type == TensorType.INT32 and bias.data is not None)
    if len(extents) < 2 or len(targets) < 2 or not pays or not has_bias or not convolves_bytes(op, data=2):
        return False
    sizes = zip(extents, kernel.shape[1:3], cuts, targets, strict=True)
    axes = [Axis(size, stride, 1, cut, target - extent * stride) for extent, size, cut, target in sizes]
    places = list(places_of(axes, united=True).values())
    o, count = kernel.shape[0], len(places)
    y = op.emit(
        CONVOLUTION,
        [op.real(2, TO_FIRST), _kernel(op, places), _bias(op, count)],
        (n, o * count, *(target // stride for target in targets)),
        pads=[place.pads[side] for side in (0, 1) for place in places[0]],
        kernel_shape=[place.window for place in places[0]],
    )
    y = op.quantize(y, fused=op.options.fused_activation_function)
    y = op.emit("DepthToSpace", [y], (n, o, *targets), blocksize=stride, mode="DCR")
    op.result_stored(op.transpose(y, TO_LAST))
    return True


def _kernel(op: Operation, places: Sequence[Sequence[Place]]) -> ir.Value:
    """Return the real numbers of the kernel of all places, `(y x o) i h w`."""
    kernel, count = op.input(1), len(places)
    shape = ir.Shape((kernel.shape[0] * count, kernel.shape[3], *(place.window for place in places[0])))

    def one_by_one() -> ir.TensorProtocol:
        by_output = np.moveaxis(array(kernel), -1, 1)
        return ir.Tensor(np.concatenate([kernel_at(by_output, each) for each in places]))

    content = ir.LazyTensor(one_by_one, ir.DataType.INT8, shape)
    value = op.builder.initializer(op.tensors.hint(kernel, "places"), content)
    steps = op.tensors.parameters(kernel)[0].const_value
    scale = np.zeros((), np.float32) if steps is None else np.asarray(steps, np.float32)
    scale = np.tile(scale, count) if scale.ndim else scale
    operands = [value, *(op.builder.shared(op.hint("parameter"), v) for v in (scale, np.zeros(scale.shape, np.int8)))]
    axis = 0 if scale.ndim else None
    return op.emit("DequantizeLinear", operands, dims(value), ir.DataType.FLOAT, axis=axis)


def _bias(op: Operation, count: int) -> ir.Value | None:
    """Return the real numbers of the bias of all places."""
    if not op.has(3):
        return None
    quantization = op.steps_of(op.input(3), (2, 1))
    value = op.builder.array(op.hint("bias"), np.tile(array(op.input(3)).reshape(-1), count))
    scale = np.zeros(0, np.float32) if quantization is None else quantization.scale
    steps = op.builder.shared(op.hint("steps"), np.tile(scale, count) if scale.size > 1 else scale.reshape(()))
    axis = 0 if scale.size > 1 else None
    return op.emit("DequantizeLinear", [value, steps], dims(value), ir.DataType.FLOAT, axis=axis)
