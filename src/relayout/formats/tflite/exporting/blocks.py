"""Weights with a scale for each block of a row: they stay integers of few bits in the file.

DEQUANTIZE knows one scale for each place along one axis, so a block is a row of its own: `rows*blocks` rows of
`size` elements. LiteRT computes the real numbers once, when it loads a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.stored import Content
from relayout.formats.tflite.container.contents import TensorContent
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor

BITS = {TensorType.INT4: 4, TensorType.INT8: 8}
STORED = {ir.DataType.INT4: TensorType.INT4, ir.DataType.INT8: TensorType.INT8}
EXCHANGED = (1, 0)
SIGNED = {
    ir.DataType.INT2: (ir.DataType.INT4, 0),
    ir.DataType.UINT2: (ir.DataType.INT4, 0),
    ir.DataType.UINT4: (ir.DataType.INT4, 8),
    ir.DataType.UINT8: (ir.DataType.INT8, 128),
}
"""Types of constants -> the signed one that holds them, and how much lower they lie there."""
SCALE, REAL = 12, 4
"""Bytes of a scale with its zero point, and of a real number."""


class Blocks(NamedTuple):
    """Integers of which each block of a row has a scale.

    Args:
        content: the integers as raw data, row-major, two of 4 bits in a byte.
        kind: their type, INT4 or INT8.
        dims: their extents; a row is the last axis.
        size: elements of a block, of which a whole number makes up a row.
        scales: one for each block, in the order of the blocks.
        zeros: the zero points, alike.
    """

    content: Content
    kind: TensorType
    dims: tuple[int, ...]
    size: int
    scales: NDArray[np.float32]
    zeros: NDArray[np.int64]

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
            content, zeros = TurnedContent(content, masks), np.where(negative, ~zeros, zeros)
        meaning = Quantization(abs(self.scales), zeros, 0)
        stored = DraftTensor(draft.unique(f"{name}/integers"), self.kind, rows, content, None, meaning)
        real = draft.tensor(f"{name}/blocks", TensorType.FLOAT32, rows)
        draft.add("DEQUANTIZE", [stored], [real])
        made = draft.tensor(f"{name}/real", TensorType.FLOAT32, self.dims)
        draft.add("RESHAPE", [real, draft.constant("shape", np.array(self.dims, np.int32))], [made])
        return made


class TurnedContent:
    """Raw data with some bits turned.

    Args:
        content: the raw data.
        masks: the bits of each byte, for one part of it after the other; the parts are of one length.
    """

    def __init__(self, content: Content, masks: NDArray[np.uint8]) -> None:
        self.content, self.masks, self.nbytes = content, masks, content.nbytes

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes in order, anew at every call."""
        part, begin = self.nbytes // self.masks.size, 0
        for chunk in self.content.chunks():
            data = np.frombuffer(chunk, np.uint8)
            yield (data ^ self.masks[np.arange(begin, begin + data.size) // part]).tobytes()
            begin += data.size


def signed_content(content: Content, bits: int) -> TurnedContent:
    """Return unsigned integers of 4 or 8 bits as signed ones, half their range lower: the highest bit is turned."""
    return TurnedContent(content, np.array([0x88 if bits == BITS[TensorType.INT4] else 0x80], np.uint8))


def blocks_of(node: ir.Node, *, transposed: bool = False) -> Blocks | None:
    """Return the constant that a DequantizeLinear reads by blocks along its last axis; None where it is none such.

    Args:
        node: the node.
        transposed: whether a matrix is wanted with its rows and columns exchanged.
    """
    size = node.attributes.get_int("block_size", 0)
    constants = constants_of(node.inputs) if size else None
    if constants is None or constants[0].dtype not in STORED:
        return None
    rank = len(constants[0].shape)
    axis = node.attributes.get_int("axis", 1) % max(rank, 1)
    if transposed and rank == len(EXCHANGED):
        constants, axis = [_exchanged(each) for each in constants], EXCHANGED[axis]
    integers, scales, *zeros = constants
    dims = tuple(integers.shape.numpy())
    kind = STORED[integers.dtype]
    is_whole = axis == rank - 1 and dims[-1] % size == 0 and size * BITS[kind] % 8 == 0
    if not is_whole or integers.size != size * scales.size:
        return None
    centres = zeros[0].numpy().astype(np.int64).reshape(-1) if zeros else np.zeros(scales.size, np.int64)
    steps = scales.numpy().astype(np.float32).reshape(-1)
    return Blocks(TensorContent(integers), kind, dims, size, steps, centres)


def _exchanged(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a matrix with its rows and columns exchanged, evaluated when it is written."""
    rows, columns = tensor.shape.numpy()
    return ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(tensor.numpy().T), tensor.dtype, shape=ir.Shape((columns, rows))),
        tensor.dtype,
        ir.Shape((columns, rows)),
        name=tensor.name,
    )


def folded(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the real numbers of a constant in blocks, evaluated when they are written; None where it is none such."""
    size = node.attributes.get_int("block_size", 0)
    constants = constants_of(node.inputs) if size else None
    if constants is None:
        return None
    integers, scales, *zeros = constants
    shape = tuple(integers.shape.numpy())
    axis = node.attributes.get_int("axis", 1) % len(shape)

    def spread(tensor: ir.TensorProtocol) -> NDArray[np.float32]:
        found: NDArray[np.float32] = np.repeat(tensor.numpy().astype(np.float32), size, axis)
        return found.take(range(shape[axis]), axis)

    def evaluated() -> ir.TensorProtocol:
        numbers = integers.numpy().astype(np.float32)
        return ir.Tensor((numbers - spread(zeros[0]) if zeros else numbers) * spread(scales))

    return ir.LazyTensor(evaluated, ir.DataType.FLOAT, ir.Shape(shape), name=node.outputs[0].name)


def sign_few_bits(model: ir.Model) -> None:
    """Let constants that are dequantized be signed integers of 4 bits, or of 8 in blocks, in place.

    Args:
        model: the model; a constant in it may be of 2 or 4 bits, or unsigned.
    """
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in graph:
            if node.op_type == "DequantizeLinear" and not node.domain:
                _sign(node)


def _sign(node: ir.Node) -> None:
    source, scale, *zero = node.inputs
    constants = constants_of((source, scale, *zero))
    if source is None or scale is None or constants is None or source.dtype not in SIGNED:
        return
    in_blocks = node.attributes.get_int("block_size", 0) != 0
    if source.dtype == ir.DataType.UINT8 and not in_blocks:
        return
    kind, lower = SIGNED[source.dtype]
    integers, scales, *zeros = constants
    centres = zeros[0].numpy() if zeros else np.zeros(scales.shape.numpy(), np.int8)
    signed = (centres.astype(np.int16) - lower).astype(kind.numpy())
    node.replace_input_with(0, _lowered(source, integers, kind, lower))
    node.resize_inputs(3)
    made = ir.Value(name=f"{source.name}/zero_point/{kind.name.lower()}", shape=scale.shape, type=ir.TensorType(kind))
    made.const_value = ir.Tensor(signed, kind, shape=ir.Shape(signed.shape), name=made.name)
    node.replace_input_with(2, _registered(source, made))


def _lowered(source: ir.Value, integers: ir.TensorProtocol, kind: ir.DataType, lower: int) -> ir.Value:
    """Return integers that lie lower, evaluated when they are written."""

    def evaluated() -> ir.TensorProtocol:
        array = (integers.numpy().astype(np.int16) - lower).astype(kind.numpy())
        return ir.Tensor(array, kind, shape=ir.Shape(array.shape))

    name, shape = f"{source.name}/{kind.name.lower()}", ir.Shape(integers.shape.numpy())
    content = ir.LazyTensor(evaluated, kind, shape, name=name)
    return _registered(source, ir.Value(name=name, shape=shape, type=ir.TensorType(kind), const_value=content))


def _registered(beside: ir.Value, made: ir.Value) -> ir.Value:
    """Register a constant in the graph of another one; where it is there already, return that."""
    graph = beside.graph
    assert graph is not None
    known = graph.initializers.get(made.name or "")
    if known is not None:
        return known
    graph.register_initializer(made)
    return made


def constants_of(values: Sequence[ir.Value | None]) -> list[ir.TensorProtocol] | None:
    """Return the constants that operands are, those left out left out; None where one is computed."""
    given = [value for value in values if value is not None]
    found = [value.const_value for value in given if value.const_value is not None and not value.is_graph_input()]
    return found if len(found) == len(given) else None
