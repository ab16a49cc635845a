"""Products of real rows and weights of 8 or 4 bits, computed with integers as LiteRT does.

Each row is quantized at run time: divided into 255 steps from its least to its greatest element, 0 among them. With q
the row's integers, z the one that means 0, s its step, w the weights' integers and t their steps, `y = (q w - z sum(w))
s t`.

That is LiteRT's result but for the order of float additions, as long as the operands are LiteRT's. Convolutions of real
numbers stay float (ONNX Runtime has no fast kernel that yields real numbers from integers), and rows behind one of
them are not LiteRT's: rounded as there, the results are no nearer, and many rows take time to round. Such models
multiply real numbers, but for a single row, such as a classifier has: one kernel, and more often than not the result
is nearer.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.formats.tflite.container.enums import Padding, TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.builder import Dim, Dims, dims
from relayout.formats.tflite.importing.operation import BYTES_ONLY, Operation
from relayout.formats.tflite.importing.operators.convolution import (
    fully_connected_rows,
    hand_over_rows,
    matrix_product,
    require_conv_2d,
    weights_in_blocks,
)
from relayout.formats.tflite.importing.operators.pooling import unbordered
from relayout.formats.tflite.importing.operators.slicing import cut
from relayout.formats.tflite.importing.program import Program
from relayout.formats.tflite.importing.tensors import FEW_BITS, array
from relayout.formats.tflite.importing.window import pads, slid
from relayout.targets.onnxruntime.operation_forms import has_centred_weights

# Weights of few bits as blocks that share a scale: ONNX Runtime makes one kernel of such a matrix and its MatMul.

LONG_BLOCKS = 256, 128  # columns that a kernel takes at once


def product_by_blocks(op: Operation) -> bool:
    """Hand over a FULLY_CONNECTED as a MatMul with weights by blocks, if these are of few bits, in long rows.

    The result is between Reshapes of as few dimensions as can be: of rank 2, ONNX Runtime makes a Gemm of a MatMul and
    the Add of a residual behind it, which takes no blocks.
    """
    matrix_rows, size = fully_connected_rows(op), block_size(op)
    if not size:
        return False
    if matrix_rows.keeps_rank(op):
        matrix_product(op, op.real(0), weights_in_blocks(op, op.input(1), size, (1, 0), zeros=False), matrix_rows.units)
        return True
    x, bias = matrix_rows.matrix(op), op.bias(2, 0, 1)
    kernel = weights_in_blocks(op, op.input(1), size, (1, 0), zeros=False)
    y = op.emit("MatMul", [op.dequantize(0, x), kernel], (matrix_rows.rows, matrix_rows.units))
    hand_over_rows(op, matrix_rows, y if bias is None else op.each("Add", y, bias))
    return True


def block_size(op: Operation) -> int:
    """Return how many columns of the weights share a scale; 0: all of a row.

    Rows with one scale have blocks whose scales are equal: with 2048 columns the kernel multiplies one row of data in a
    tenth of the time of real numbers, and 128 rows in a third. In short rows it takes longer.
    """
    tensor = op.input(1)
    if tensor.blocks is not None:
        return tensor.blocks.size
    meaning = op.tensors.quantization(tensor)
    if meaning is None or tensor.data is None or tensor.type not in FEW_BITS:
        return 0
    by_rows = not meaning.per_channel or meaning.axis == 0
    if op.input(0).type != TensorType.FLOAT32 or len(tensor.shape) != 2 or not by_rows or meaning.zero_point.any():
        return 0
    return next((size for size in LONG_BLOCKS if tensor.shape[1] % size == 0), 0)


LEVELS = 255
LEAST_STEP = 1e-30  # of a row of zeros


def integer_product(op: Operation) -> bool:
    """Hand over a FULLY_CONNECTED as a product of integers, if its weights are integers beside real rows."""
    matrix_rows = fully_connected_rows(op)
    if not is_hybrid(op, matrix_rows.rows) or (matrix_rows.keeps_rank(op) and matrix_rows.several_are_open(op)):
        return False
    x, bias = matrix_rows.matrix(op), op.bias(2, 0, 1)
    y = product(op, x)
    hand_over_rows(op, matrix_rows, y if bias is None else op.each("Add", y, bias))
    return True


def multiplies_alone(program: Program) -> bool:
    """Tell whether no operators but matrix products have real operands and weights of 8 or 4 bits."""
    for subgraph in program.model.subgraphs:
        for operator in subgraph.operators:
            operands = [subgraph.tensors[i] for i in operator.inputs if i >= 0]
            weights = any(t.type in (*BYTES_ONLY, TensorType.INT4) and t.data is not None for t in operands)
            real = any(t.type == TensorType.FLOAT32 and t.data is None for t in operands)
            if operator.name != "FULLY_CONNECTED" and weights and real:
                return False
    return True


def is_hybrid(op: Operation, rows: Dim) -> bool:
    """Tell whether a product is computed with integers.

    The model has no hybrid operators but products, or there is a single row, outside of loops; and what is written is
    not looked at for a cell of real numbers (see `lowering.recognise_recurrent`).
    """
    if op.program.multiplies_reals:
        return False
    alone = op.program.once(multiplies_alone)
    known = op.input(1).blocks is None and op.is_constant(1)
    fits = alone or (rows == 1 and not op.program.nested)
    return fits and known and weighs_reals(op, TensorType.INT8, TensorType.INT4)


def weighs_reals(op: Operation, *types: TensorType) -> bool:
    """Tell whether operand 0 and the result are real, and the weights constants of one of `types` around 0."""
    return op.input(0).type == op.output().type == TensorType.FLOAT32 and has_centred_weights(op, *types)


def product(op: Operation, x: ir.Value) -> ir.Value:
    """Rows `r k` times weights `n k`, without the bias: `r n`."""
    weights = op.input(1)
    quantization = weights.quantization
    if quantization is None:
        raise ValueError(f"{weights.name} is not quantized")
    op.tensors.need_opset(weights)
    kernel = op.transpose(op.cast(op.stored(1), ir.DataType.INT8), (1, 0))
    shape = (dims(x)[0], dims(kernel)[1])
    steps = op.builder.array(op.tensors.hint(weights, "scale"), quantization.scale)
    q, step, zero = quantized(op, x)
    if dims(x)[0] == 1:  # the form that ONNX Runtime makes one kernel of
        integers = multiplied(op, q, kernel, zero, shape)
        return op.each("Mul", op.cast(integers, ir.DataType.FLOAT), op.each("Mul", step, steps))
    step, zero = (op.reshape(value, (shape[0], 1)) for value in (step, op.cast(zero, ir.DataType.FLOAT)))
    integers = multiplied(op, q, kernel, None, shape)
    offset = op.each("Mul", zero, _sums(op, weights))
    centred = op.each("Sub", op.cast(integers, ir.DataType.FLOAT), offset)
    return op.each("Mul", op.each("Mul", centred, step), steps)


def multiplied(op: Operation, q: ir.Value, kernel: ir.Value, zero: ir.Value | None, shape: Dims) -> ir.Value:
    """Integers times a kernel of int8, whose zero point is named: ONNX Runtime reads that of every MatMulInteger, there
    or not, where it is told to multiply in full (`session.x64quantprecision`), and 1.23 ends the process over one that
    is not.
    """
    named = op.builder.array(op.hint("kernel_zero"), np.zeros((), np.int8))
    return op.emit("MatMulInteger", [q, kernel, zero, named], shape, ir.DataType.INT32)


def quantized(op: Operation, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Integers, step and zero point: scalars if the first axis is a single element, else one pair for each of it."""
    byte, real, count = ir.DataType.UINT8, ir.DataType.FLOAT, dims(x)[0]
    if count == 1:
        outputs = [(op.hint("quantized"), byte, dims(x)), (op.hint("step"), real, ()), (op.hint("zero"), byte, ())]
        q, step, zero = op.builder.emit("DynamicQuantizeLinear", [x], outputs, source=op.source)
        return q, step, zero
    nothing, ends = op.number(0, x, "nothing"), []
    for reduction, bound in (("ReduceMin", "Min"), ("ReduceMax", "Max")):
        end = op.emit(reduction, [x, op.ints(list(range(1, len(dims(x)))))], keepdims=0)
        ends.append(op.each(bound, end, nothing))
    step = op.each("Div", op.each("Sub", ends[1], ends[0]), op.number(LEVELS, x, "levels"))
    step = op.each("Max", step, op.number(LEAST_STEP, x, "least"))
    zero = op.cast(op.each("Round", op.each("Neg", op.each("Div", ends[0], step))), byte)
    return op.emit("QuantizeLinear", [x, step, zero], axis=0), step, zero


def _sums(op: Operation, weights: Tensor) -> ir.Value:
    """Return the sum of each unit's integers: `n`."""

    def added_up() -> ir.TensorProtocol:
        rows = array(weights).astype(np.int8).reshape(weights.shape[0], -1)
        return ir.Tensor(rows.sum(axis=1, dtype=np.int64).astype(np.float32))

    sums = ir.LazyTensor(added_up, ir.DataType.FLOAT, ir.Shape([weights.shape[0]]))
    return op.builder.initializer(op.tensors.hint(weights, "sums"), sums)


# A convolution of real numbers and int8 weights as a product of integers.
#
# An image is quantized at run time, to 255 steps; the elements of each window are put side by side, as a row; and rows
# are multiplied by the weights. ONNX Runtime has fast kernels for products of integers, and none for such convolutions:
# this takes a quarter to a half of a float Conv's time where there are channels enough. What it stands for is no longer
# seen in the graph, and all is channels last.
#
# That is how LiteRT computes it, but that its delegate rounds each pixel by itself where windows are of one pixel, of
# which nothing would be won. There an image is rounded at once, as LiteRT's other kernels do.


class Times(NamedTuple):
    """The time of ONNX Runtime, in ns, on one thread, as `bench/measure_py` measures it."""

    node: float  # a node, beside what it computes
    joined: float  # a run of bytes for Concat
    picked: float  # a run of bytes for Gather
    byte: float  # a byte of either
    convolution: float  # a convolution as a product, beside all else
    product: float  # a product of two integers
    read: float  # an element that is read, and quantized
    write: float  # an element that is written
    floats: float  # a float Conv, beside what follows
    float_product: float  # a product of two real numbers
    float_element: float  # an element that a Conv reads or gives: half, as between two Convs nothing is reordered


VNNI = Times(670, 3.3, 8.1, 0.036, 2150, 0.0047, 0.25, 0.44, 2230, 0.0195, 0.12)
"""On an x86 server with AVX-512 VNNI, kernels of int8."""
WITHOUT_VNNI = Times(920, 4.0, 9.7, 0.012, 3050, 0.0157, 0.37, 0.56, 3000, 0.0252, 0.114)
"""On an x86 server with AVX2 alone, kernels of uint8: those of int8 saturate there."""
CACHED = 4_000_000  # bytes of windows; where there are more, each takes twice as long
BLOCK = 16  # units that the kernels compute at once
MARGIN = 0.9
"""The part of a Conv's time that a product may take, and a node: neighbours that want channels first take longer."""
REORDERING = 0.4  # what an element costs, in ns, that is brought to channels first, or back
MOST_PICKED = 2**14  # pixels that one Gather may pick: their places are constants of the model, in four bytes each
SLICES, COLUMNS, PIXELS = "a Slice for each row and column", "a Slice for each row, and one Gather", "one Gather"
"""How the elements of windows are put side by side."""
FIRST = ("DEPTHWISE_CONV_2D",)  # operators that ONNX Runtime has no kernel for but with channels first


class _Windows(NamedTuple):
    """Along height and width: a window's elements, the number of windows, how far apart these are, and those.

    `image` is what they are taken from, with its border; `joined` columns of it are one, of so many times the channels.
    """

    image: tuple[int, ...]
    channels: int
    extents: tuple[int, ...]
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    joined: int = 1

    def ways(self) -> "list[_Windows]":
        """These, and those over as many columns as they are apart as one: longer runs, and some weights of 0."""
        stride = self.strides[1]
        if stride == 1 or self.dilations[1] > 1:
            return [self]
        width, extent = (-(-each // stride) for each in (self.image[1], self.extents[1]))
        one = self._replace(
            image=(self.image[0], width),
            channels=self.channels * stride,
            extents=(self.extents[0], extent),
            strides=(self.strides[0], 1),
            joined=stride,
        )
        return [self, one]

    def has_windows(self, axis: int) -> bool:
        """Tell whether windows along an axis differ from the single elements in their order."""
        return self.extents[axis] > 1 or self.strides[axis] > 1

    def places(self, axis: int) -> npt.NDArray[np.int32]:
        """Return the places of each window's elements along an axis."""
        first = np.arange(self.counts[axis], dtype=np.int32)[:, None] * self.strides[axis]
        return first + np.arange(self.extents[axis], dtype=np.int32) * self.dilations[axis]

    def costs(self, times: Times) -> dict[str, float]:
        """Return the time, in ns, of each form that puts windows side by side.

        Every other element of a row is no run of bytes, so that a Slice copies it by itself.
        """
        (height, width), tall = self.extents, self.channels * self.extents[0]
        rows, columns = self.counts[0] * self.image[1] * height, math.prod(self.counts) * width
        byte = times.byte * (2 if columns * tall > CACHED else 1)
        column_time = times.joined + (times.picked if self.strides[1] > 1 else 0)
        sliced = columns * (column_time + 2 * byte * tall) + times.node * (width + 1)
        gathered = columns * (times.picked + byte * tall) + times.node * 2
        upper = self.has_windows(0) * (rows * (times.joined + 2 * byte * self.channels) + times.node * (height + 1))
        costs = {SLICES: upper + self.has_windows(1) * sliced, COLUMNS: upper + self.has_windows(1) * gathered}
        if columns * height <= MOST_PICKED:
            costs[PIXELS] = columns * height * (times.picked + byte * self.channels) + times.node * 3
        return costs

    def products(self, units: int) -> int:
        """Products of two elements; kernels compute whole blocks of units."""
        return math.prod(self.counts) * math.prod(self.extents) * self.channels * -(-units // BLOCK) * BLOCK

    def time(self, times: Times, read: float, units: int) -> float:
        """Return the time of ONNX Runtime, in ns, for as many elements read."""
        border = times.node if math.prod(self.extents) > 1 else 0
        result_elements = math.prod(self.counts) * units
        copying = border + min(self.costs(times).values())
        computing = times.product * self.products(units) + times.read * read + times.write * result_elements
        return times.convolution + copying + computing


def unrolled(op: Operation) -> bool:
    """Hand over a CONV_2D as MatMulInteger, if ONNX Runtime is faster at it on x64 with VNNI."""
    return _unrolled(op, VNNI)


def unrolled_without_vnni(op: Operation) -> bool:
    """Hand over a CONV_2D as MatMulInteger, if ONNX Runtime is faster at it with kernels of uint8."""
    return _unrolled(op, WITHOUT_VNNI)


def _unrolled(op: Operation, times: Times) -> bool:
    require_conv_2d(op)
    weights, image = op.input(1), op.stored(0)
    n, *spatial, channels = dims(image)
    extents = [e for e in spatial if isinstance(e, int)]
    if n != 1 or len(extents) != 2 or weights.shape[3] != channels:
        return False
    if not weighs_reals(op, TensorType.INT8):
        return False
    o, *window, depth = weights.shape
    if min(weights.shape) < 1:
        return False
    options = op.options
    strides, dilations = [options.stride_h, options.stride_w], [options.dilation_h_factor, options.dilation_w_factor]
    same, border = options.padding == Padding.SAME, unbordered(op, window, dilations)
    inner = image if border is None else op.tensors.value(border.inner)
    around = pads(extents, window, strides, dilations, same) if border is None else list(border.pads)
    places = [slid(e, k, s, d, same) for e, k, s, d in zip(extents, window, strides, dilations, strict=True)]
    counts = [count for count in places if isinstance(count, int) and count > 0]
    if len(counts) != 2:
        return False
    sides = zip(extents, around[:2], around[2:], strict=True)
    bordered = [e + (a + b if border is None else 0) for e, a, b in sides]
    windows = _Windows(tuple(bordered), depth, tuple(window), tuple(counts), tuple(strides), tuple(dilations))
    read, result_elements = math.prod(extents) * depth, math.prod(counts) * o
    best = min(windows.ways(), key=lambda way: way.time(times, read, o))
    # ONNX Runtime quantizes an image once for all convolutions that read it.
    reader_count = sum(reader.name == op.operator.name for reader in op.tensors.flow.readers(op.operator.inputs[0]))
    integer_time = best.time(times, read / reader_count, o) + REORDERING * _reordered(op, read, result_elements)
    floats = times.floats + times.float_product * windows.products(o) + times.float_element * (read + result_elements)
    if integer_time + times.node >= MARGIN * floats:
        return False
    around[3] += best.joined * best.image[1] - windows.image[1]
    costs = best.costs(times)
    y = _window_product(op, inner, best, around, min(costs, key=costs.__getitem__))
    bias = op.bias(2, 0, 1)
    op.result(y if bias is None else op.each("Add", y, bias), fused=options.fused_activation_function)
    return True


def _reordered(op: Operation, read: int, result_elements: int) -> int:
    """Return how many elements of image and result have channels first because of a neighbouring operator."""
    producer = op.tensors.flow.producer(op.operator.inputs[0])
    readers = op.tensors.flow.readers(op.operator.outputs[0])
    before = read if producer is not None and producer.name in FIRST else 0
    return before + (result_elements if any(reader.name in FIRST for reader in readers) else 0)


def _rows(op: Operation, x: ir.Value, windows: _Windows, form: str) -> ir.Value:
    """Windows over `1 h w c` as rows, `1 y x (kw kh c)`."""
    if form == PIXELS:
        (height, width), depth = windows.image, dims(x)[3]
        places = windows.places(0)[:, None, None, :] * width + windows.places(1)[None, :, :, None]
        return _gathered(op, op.reshape(x, (height * width, depth)), places, 0, windows)
    x = _along(op, x, windows, 0)
    if form == SLICES:
        return _along(op, x, windows, 1)
    return _gathered(op, x, windows.places(1), 2, windows) if windows.has_windows(1) else x


def _along(op: Operation, x: ir.Value, windows: _Windows, axis: int) -> ir.Value:
    """Windows along one axis, a Slice for each of their elements; their channels are put side by side."""
    if not windows.has_windows(axis):
        return x
    stride, places = windows.strides[axis], windows.places(axis)
    parts = [cut(op, x, [start], [end + 1], [axis + 1], [stride]) for start, end in places[[0, -1]].T.tolist()]
    *shape, depth = dims(parts[0])
    width = depth * len(parts) if isinstance(depth, int) else None
    return op.emit("Concat", parts, (*shape, width), axis=3) if len(parts) > 1 else parts[0]


def _gathered(op: Operation, x: ir.Value, places: npt.NDArray[np.int32], axis: int, windows: _Windows) -> ir.Value:
    """Elements of an axis at these places, those of one window side by side."""
    *before, depth = dims(x)
    table = op.builder.shared(op.hint("places"), places)
    window_elements = op.emit("Gather", [x, table], (*before[:axis], *places.shape, depth), axis=axis)
    elements = math.prod(windows.extents) if axis == 0 else windows.extents[1]
    return op.reshape(window_elements, (1, *windows.counts, depth * elements if isinstance(depth, int) else None))


def _window_product(op: Operation, image: ir.Value, windows: _Windows, around: Sequence[int], form: str) -> ir.Value:
    """Windows over an image `1 h w c` times the weights, without the bias."""
    (o, *_, depth), scale = op.input(1).shape, op.input(1).quantization
    integers, step, zero = quantized(op, image)
    height, width = windows.image
    if any(around):
        amounts, grown = op.ints([0, *around[:2], 0, 0, *around[2:], 0], "pads"), width * windows.joined
        integers = op.emit("Pad", [integers, amounts, zero], (1, height, grown, depth), mode="constant")
    if windows.joined > 1:
        integers = op.reshape(integers, (1, height, width, windows.channels))
    rows = _rows(op, integers, windows, form)
    steps = op.builder.array(op.tensors.hint(op.input(1), "scale"), np.ones(1) if scale is None else scale.scale)
    sums = multiplied(op, rows, _columns(op, windows), zero, (1, *windows.counts, o))
    return op.each("Mul", op.cast(sums, ir.DataType.FLOAT), op.each("Mul", step, steps))


def _columns(op: Operation, windows: _Windows) -> ir.Value:
    """The weights `o h w i` as `(w h i) o`, or of joined columns as `(w h (dw i)) o`, with zeros behind the last."""
    weights = op.input(1)
    (o, h, w, i), width = weights.shape, windows.extents[1]

    def column_weights() -> ir.TensorProtocol:
        kernel = np.pad(array(weights), [(0, 0), (0, 0), (0, width * windows.joined - w), (0, 0)])
        parted = kernel.reshape(o, h, width, windows.joined * i)
        return ir.Tensor(np.ascontiguousarray(parted.transpose(2, 1, 3, 0).reshape(-1, o)))

    content = ir.LazyTensor(column_weights, ir.DataType.INT8, ir.Shape([width * h * windows.joined * i, o]))
    return op.builder.initializer(op.tensors.hint(weights, "columns"), content)
