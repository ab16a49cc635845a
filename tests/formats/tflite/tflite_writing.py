"""Write small TFLite models for tests, with the schema's own object API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

TYPES = {
    np.dtype("float64"): "FLOAT64",
    np.dtype("float32"): "FLOAT32",
    np.dtype("float16"): "FLOAT16",
    np.dtype("int64"): "INT64",
    np.dtype("uint64"): "UINT64",
    np.dtype("int32"): "INT32",
    np.dtype("uint32"): "UINT32",
    np.dtype("int16"): "INT16",
    np.dtype("uint16"): "UINT16",
    np.dtype("int8"): "INT8",
    np.dtype("uint8"): "UINT8",
    np.dtype("bool"): "BOOL",
}


@dataclass(frozen=True)
class Scale:
    """Quantization parameters for `Net.tensor`."""

    scale: float | Sequence[float]
    zero: int = 0
    axis: int = 0


def options(kind: str, **fields: Any) -> Any:
    """An options table of the schema, its fields in the schema's own spelling."""
    table = getattr(schema, f"{kind}T")()
    for name, value in fields.items():
        assert hasattr(table, name), f"{kind} has no {name}"
        setattr(table, name, value)
    return table


def packed(integers: Any, bits: int) -> Any:
    """Integers of few bits, the first in a byte's lowest; the last byte is filled up with zeros."""
    each = 8 // bits
    flat = np.asarray(integers, np.int64).reshape(-1) & (1 << bits) - 1
    flat = np.append(flat, np.zeros(-flat.size % each, np.int64))
    return sum(flat[i::each] << bits * i for i in range(each)).astype(np.uint8)


class Net:
    """A model of one subgraph."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model.subgraphs = [self.graph]
        self.ranges: list[tuple[float, float]] = []
        self.slack = 0.0  # what the runtime's own rounding may add to a difference
        self.meant = True  # whether the runtime computes with what quantized integers mean
        self.expected: Callable[..., Any] | None = None  # what is meant, where the interpreter has no kernel to ask

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        *,
        data: Any = None,
        q: Scale | None = None,
        name: str | None = None,
        signature: Sequence[int] | None = None,
        type_name: str = "",
        variable: bool = False,
        blocks: tuple[int, int] | None = None,
    ) -> int:
        """A tensor; `blocks` are the index of the tensor of their scales, and how many elements share one."""
        tensor = schema.TensorT()
        tensor.shape, tensor.name = list(shape), f"t{len(self.graph.tensors)}" if name is None else name
        tensor.type = getattr(schema.TensorType, type_name or TYPES[np.dtype(dtype)])
        tensor.isVariable, tensor.buffer = variable, 0
        if signature is not None:
            tensor.shapeSignature = list(signature)
        if q is not None:
            quantization = schema.QuantizationParametersT()
            scales = np.atleast_1d(np.asarray(q.scale, np.float32))
            quantization.scale = scales
            quantization.zeroPoint = np.full(scales.shape, q.zero, np.int64)
            quantization.quantizedDimension = q.axis
            tensor.quantization = quantization
        if blocks is not None:
            quantization = tensor.quantization = schema.QuantizationParametersT()
            quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
            quantization.details = schema.BlockwiseQuantizationT()
            quantization.details.scales, quantization.details.blockSize = blocks
            quantization.details.zeroPoints = -1
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            tensor.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def const(self, array: Any, dtype: str = "float32", *, q: Scale | None = None, **more: Any) -> int:
        array = np.asarray(array, dtype)
        return self.tensor(array.shape, dtype, data=array, q=q, **more)

    def input(self, shape: Sequence[int], dtype: str = "float32", low: float = -2, high: float = 2, **more: Any) -> int:
        """An input and the range of the numbers that the test feeds it (quantized ones take their whole range)."""
        self.graph.inputs.append(self.tensor(shape, dtype, **more))
        if self.graph is self.model.subgraphs[0]:
            self.ranges.append((low, high))
        return self.graph.inputs[-1]

    def output(self, shape: Sequence[int], dtype: str = "float32", **more: Any) -> int:
        self.graph.outputs.append(self.tensor(shape, dtype, **more))
        return self.graph.outputs[-1]

    def op(
        self, name: str, inputs: Sequence[int], outputs: Sequence[int], table: Any = None, *, version: int = 1
    ) -> Net:
        code = schema.OperatorCodeT()
        custom = name.startswith("CUSTOM ")
        code.builtinCode = schema.BuiltinOperator.CUSTOM if custom else getattr(schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), version
        if custom:
            code.customCode = name.removeprefix("CUSTOM ")
        self.model.operatorCodes.append(code)
        operator = schema.OperatorT()
        operator.opcodeIndex = len(self.model.operatorCodes) - 1
        operator.inputs, operator.outputs = list(inputs), list(outputs)
        if table is not None:
            kind = type(table).__name__.removesuffix("T")
            if hasattr(schema.BuiltinOptions, kind):
                operator.builtinOptionsType, operator.builtinOptions = getattr(schema.BuiltinOptions, kind), table
            else:
                operator.builtinOptions2Type, operator.builtinOptions2 = getattr(schema.BuiltinOptions2, kind), table
        self.graph.operators.append(operator)
        return self

    @contextmanager
    def subgraph(self) -> Iterator[int]:
        """Write into another subgraph within; yields its index."""
        outer, self.graph = self.graph, schema.SubGraphT()
        self.graph.tensors, self.graph.operators, self.graph.inputs, self.graph.outputs = [], [], [], []
        self.model.subgraphs.append(self.graph)
        try:
            yield len(self.model.subgraphs) - 1
        finally:
            self.graph = outer

    def sign(
        self, inputs: dict[str, int], outputs: dict[str, int], key: str = "serving_default", subgraph: int = 0
    ) -> Net:
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key, subgraph
        signature.inputs = [_named(name, index) for name, index in inputs.items()]
        signature.outputs = [_named(name, index) for name, index in outputs.items()]
        self.model.signatureDefs = [*(self.model.signatureDefs or []), signature]
        return self

    def bytes(self) -> bytes:
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


def _named(name: str, index: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, index
    return entry


LIMIT = 1 << 31
"""A flatbuffer's own offsets end here, and so does one protobuf."""


def chain(layers: int, width: int) -> tuple[Net, list[schema.BufferT]]:
    """Fully connected layers whose weights are to be found outside; the buffers say where."""
    net = Net()
    x, outside = net.input((1, width), name="x"), []
    for layer in range(layers):
        weights = net.tensor((width, width), name=f"weights{layer}")
        outside.append(schema.BufferT())
        net.graph.tensors[weights].buffer = len(net.model.buffers)
        net.model.buffers.append(outside[-1])
        last = layer == layers - 1
        y = net.output((1, width), name="y") if last else net.tensor((1, width), name=f"h{layer}")
        net.op("FULLY_CONNECTED", [x, weights, -1], [y], options("FullyConnectedOptions"))
        x = y
    return net, outside


def laid_out(net: Net, outside: list[schema.BufferT], size: int) -> tuple[bytes, list[int]]:
    """The flatbuffer, and where each of the buffers begins behind it."""
    for buffer in outside:
        buffer.offset, buffer.size = LIMIT, size
    length = len(net.bytes())
    offsets = [-(-length // 4096) * 4096 + k * size for k in range(len(outside))]
    for buffer, offset in zip(outside, offsets, strict=True):
        buffer.offset = offset
    data = net.bytes()
    assert len(data) == length
    return data, offsets


def standing(net: Net) -> Net:
    """A bias of three axes: the kernels count its elements."""
    operator = net.graph.operators[-1]
    tensor = net.graph.tensors[operator.inputs[2]]
    tensor.shape = [1, 1, *tensor.shape]
    if tensor.quantization is not None:
        tensor.quantization.quantizedDimension = 2
    return net
