"""Weights with a scale for each block of a row: they stay integers of few bits in the file.

DEQUANTIZE knows one scale for each place along one axis, so a block is a row of its own: `rows*blocks` rows of
`size` elements. LiteRT computes the real numbers once, when it loads a model.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.stored import Content
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, TensorContent
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.graph.quantized_unit import DEQUANTIZE
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs

BITS = {TensorType.INT4: 4, TensorType.INT8: 8}
STORED = {ir.DataType.INT4: TensorType.INT4, ir.DataType.INT8: TensorType.INT8}
MATRIX = 2
PIECE = 1 << 20  # bytes that are flipped at once
SIGNED = {  # type of a constant -> the signed type that holds it, and the number that is subtracted
    ir.DataType.INT2: (ir.DataType.INT4, 0),
    ir.DataType.UINT2: (ir.DataType.INT4, 0),
    ir.DataType.UINT4: (ir.DataType.INT4, 8),
    ir.DataType.UINT8: (ir.DataType.INT8, 128),
}
SCALE, REAL = 12, 4  # bytes of a scale with its zero point, and of a real number


class Blocks(NamedTuple):
    """Integers in rows; each block of a row has a scale."""

    content: Content  # the integers as raw data, row-major, two of 4 bits in a byte
    kind: TensorType  # their type, INT4 or INT8
    dims: tuple[int, ...]  # their extents; a row is the last axis
    size: int  # elements of a block, of which a whole number makes up a row
    scales: NDArray[np.float32]  # one for each block, in the order of the blocks
    zeros: NDArray[np.int64]  # the zero points, alike

    @property
    def is_small(self) -> bool:
        """True if the integers and their scales take less room than the real numbers."""
        return self.content.nbytes + SCALE * self.scales.size < REAL * math.prod(self.dims)

    def real_numbers(self, draft: Draft, name: str) -> DraftTensor:
        """Add the operators that give the real numbers: DEQUANTIZE and RESHAPE."""
        rows = (self.scales.size, self.size)
        content, zeros, negative = self.content, self.zeros, self.scales < 0
        if negative.any():  # q * -s = (~q - ~0) * s
            masks = np.where(negative, 0xFF, 0).astype(np.uint8)
            content, zeros = FlippedContent(content, masks), np.where(negative, ~zeros, zeros)
        meaning = Quantization(abs(self.scales), zeros, 0)
        stored = DraftTensor(draft.unique(f"{name}/integers"), self.kind, rows, content, None, meaning)
        real = draft.tensor(f"{name}/blocks", TensorType.FLOAT32, rows)
        draft.add("DEQUANTIZE", [stored], [real])
        reshaped = draft.tensor(f"{name}/real", TensorType.FLOAT32, self.dims)
        draft.add("RESHAPE", [real, draft.constant("shape", np.array(self.dims, np.int32))], [reshaped])
        return reshaped


class FlippedContent:
    """Raw data with some bits flipped.

    Args:
        content: the raw data.
        masks: the bits to flip in each byte, one mask for each part of the data; the parts are of one length.
    """

    def __init__(self, content: Content, masks: NDArray[np.uint8]) -> None:
        self.content, self.masks, self.nbytes = content, masks, content.nbytes

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, anew at every call."""
        part, begin = self.nbytes // self.masks.size, 0
        for chunk in self.content.chunks():
            for piece in np.array_split(np.frombuffer(chunk, np.uint8), -(-len(chunk) // PIECE)):
                yield (piece ^ self.masks[np.arange(begin, begin + piece.size) // part]).tobytes()
                begin += piece.size


def signed_content(content: Content, bits: int) -> FlippedContent:
    """Return unsigned integers of 4 or 8 bits as signed ones, lower by half their range: flip the highest bit."""
    return FlippedContent(content, np.array([0x88 if bits == BITS[TensorType.INT4] else 0x80], np.uint8))


class _Constants(NamedTuple):
    """The constants of a DequantizeLinear, which fit each other."""

    integers: ir.TensorProtocol  # the weights
    scales: ir.TensorProtocol  # one for all, one for each place along `axis`, or one for each block along it
    zero_points: ir.TensorProtocol | None  # of the shape of `scales`; None for zeros
    axis: int  # the axis that is cut into blocks
    size: int  # elements of a block; the last one of a row may be shorter; 0: there are none

    @staticmethod
    def of(node: ir.Node) -> "_Constants | None":
        """Return the constants that a node reads; None where one is computed."""
        size, tensors = node.attributes.get_int("block_size", 0), _tensors(node)
        if tensors is None or size < 0:
            return None
        shape, others = list(tensors[0].shape.numpy()), [each for each in tensors[1:] if each is not None]
        axis = node.attributes.get_int("axis", 1) % max(len(shape), 1)
        if size and shape:
            shape[axis] = -(-shape[axis] // size)
            fits = all(list(each.shape.numpy()) == shape for each in others)
        else:
            fits = {each.size for each in others} in ({1}, {*shape[axis : axis + 1]})
        if not fits:
            return None
        return _Constants(*tensors, axis, size)

    def spread(self, tensor: ir.TensorProtocol) -> NDArray[np.floating]:
        """Return scales or zero points as real numbers that stretch to the integers."""
        shape, array = tuple(self.integers.shape.numpy()), tensor.numpy().astype(self.precision)
        if self.size and shape:
            repeated: NDArray[np.floating] = np.repeat(array, self.size, self.axis)
            return repeated.take(range(shape[self.axis]), self.axis)
        return array.reshape([-1] + [1] * (len(shape) - self.axis - 1) if array.size > 1 else [])

    @property
    def precision(self) -> type[np.floating]:
        """The type in which no integer is rounded."""
        return np.float64 if self.integers.dtype.bitwidth > 16 else np.float32


def _tensors(node: ir.Node) -> tuple[ir.TensorProtocol, ir.TensorProtocol, ir.TensorProtocol | None] | None:
    """Return the integers, scales and zero points of a DequantizeLinear; None where one is computed."""
    operands = [value for value in node.inputs if value is not None]
    tensors = [value.const_value for value in operands if value.const_value is not None and not value.is_graph_input()]
    if len(tensors) < len(operands) or len(tensors) < 2:
        return None
    return tensors[0], tensors[1], tensors[2] if len(tensors) > 2 else None


def _transposed(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a transposed matrix, evaluated when it is written."""
    shape = ir.Shape(tuple(tensor.shape.numpy())[::-1])
    return ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(tensor.numpy().T), tensor.dtype, shape=shape), tensor.dtype, shape
    )


def blocks_of(
    node: ir.Node,
    *,
    transposed: bool = False,  # whether to transpose the constant, a matrix
) -> Blocks | None:
    """Return the blocks that a DequantizeLinear reads along the last axis of a constant; None where there are none."""
    constants = _Constants.of(node)
    if constants is None or not constants.size or constants.integers.dtype not in STORED:
        return None
    integers, scales, zero_points, axis, size = constants
    if transposed and len(integers.shape) != MATRIX:
        return None
    if transposed:
        integers, scales, axis = _transposed(integers), _transposed(scales), 1 - axis
        zero_points = None if zero_points is None else _transposed(zero_points)
    dims, kind = tuple(integers.shape.numpy()), STORED[integers.dtype]
    if not dims or axis != len(dims) - 1 or dims[-1] % size or size * BITS[kind] % 8:
        return None
    steps = scales.numpy().astype(np.float32).reshape(-1)
    zeros = np.zeros(steps.size, np.int64) if zero_points is None else zero_points.numpy().astype(np.int64).reshape(-1)
    return Blocks(TensorContent(integers), kind, dims, size, steps, zeros)


def folded(node: ir.Node, kind: ir.DataType = ir.DataType.FLOAT) -> ir.LazyTensor | None:
    """Return the real numbers of constants that a DequantizeLinear reads, evaluated when they are used."""
    constants = _Constants.of(node)
    if constants is None:
        return None
    integers, scales, zero_points, _, _ = constants

    def evaluated() -> ir.TensorProtocol:
        numbers = integers.numpy().astype(constants.precision)
        numbers = numbers if zero_points is None else numbers - constants.spread(zero_points)
        return ir.Tensor((numbers * constants.spread(scales)).astype(np.float32).astype(kind.numpy()))

    return ir.LazyTensor(evaluated, kind, ir.Shape(integers.shape.numpy()), name=node.outputs[0].name)


def sign_few_bits(
    model: ir.Model,  # the model; a constant in it may be of 2 or 4 bits, or unsigned
    names: Names,  # the names of its values
) -> None:
    """Store dequantized constants as signed integers of 4 bits, or of 8 in blocks, in place."""
    signed: dict[tuple[ir.Value | int | None, ...], ir.Value] = {}
    for graph in list(all_graphs(model.graph)):
        for node in graph:
            if node.op_type == DEQUANTIZE and not node.domain:
                _sign(node, names, signed)


def _sign(node: ir.Node, names: Names, signed: dict[tuple[ir.Value | int | None, ...], ir.Value]) -> None:
    """Let a node read signed integers and a signed zero point; nodes that read alike share them."""
    source, scale, zero_point = [*node.inputs, None][:3]
    tensors = _tensors(node)
    if source is None or scale is None or tensors is None or source.dtype not in SIGNED:
        return
    if source.dtype == ir.DataType.UINT8 and node.attributes.get_int("block_size", 0) == 0:
        return
    kind, lower = SIGNED[source.dtype]
    integers, scales, zeros = tensors
    zeros = zeros or ir.Tensor(np.zeros(scales.shape.numpy(), np.int8))
    for slot, tensor in ((0, integers), (2, zeros)):
        key = source, scale, zero_point, slot  # integers of two meanings are two constants
        if key not in signed:
            signed[key] = _lowered(source, names.unique(f"{source.name}/{kind.name.lower()}"), tensor, kind, lower)
        node.resize_inputs(max(len(node.inputs), slot + 1))
        node.replace_input_with(slot, signed[key])


def _lowered(beside: ir.Value, name: str, tensor: ir.TensorProtocol, kind: ir.DataType, lower: int) -> ir.Value:
    """Register a constant, beside another one, whose integers are lower; it is evaluated when it is written."""

    def evaluated() -> ir.TensorProtocol:
        array = np.atleast_1d(tensor.numpy()).astype(np.int8) - np.uint8(lower).astype(np.int8)  # it wraps around
        return ir.Tensor(array.astype(kind.numpy()).reshape(shape.numpy()), kind, shape=shape)

    shape = ir.Shape(tensor.shape.numpy())
    content = ir.LazyTensor(evaluated, kind, shape, name=name)
    constant = ir.val(name, const_value=content)
    assert beside.graph is not None
    beside.graph.register_initializer(constant)
    return constant
