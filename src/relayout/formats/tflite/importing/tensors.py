"""The tensors of a subgraph as ONNX values: constants as views into the file, quantization parameters, names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.stored import tensor_of
from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS, TensorType
from relayout.formats.tflite.container.loading import dense
from relayout.formats.tflite.container.model import MAX_NAME, Model, Operator, Quantization, Subgraph, Tensor, texts
from relayout.formats.tflite.importing.builder import Builder, Dims, Handle, dims
from relayout.formats.tflite.importing.extents import constant_elements
from relayout.formats.tflite.importing.registry import Unsupported, entry_of
from relayout.formats.tflite.importing.window import Border
from relayout.graph.source_names import STANDS_FOR
from relayout.layout.stored_as import TENSOR, Holds

# Which extents a file states only because it has to: those that depend on data.
#
# Where an extent is computed from data, a converter writes what it saw last, often without a sign of it. Three facts
# are followed through a subgraph, operator by operator: which tensors' elements depend on data at all (those of a shape
# do not), which operands decide an extent, and whose extents are open for either reason.


_SIZED_BY_SECOND = """
    BROADCAST_TO MIRROR_PAD ONE_HOT PAD PADV2 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SPARSE_TO_DENSE SPLIT_V
    TILE TOPK_V2
"""
_SIZED_BY_THIRD = """
    EMBEDDING_LOOKUP_SPARSE NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND UNSORTED_SEGMENT_MAX
    UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM
"""
_SIZING: dict[str, tuple[int, ...]] = {  # operator -> the operands whose elements decide the extents of its results
    **dict.fromkeys(("CONV_3D_TRANSPOSE", "FILL", "TRANSPOSE_CONV"), (0,)),
    **dict.fromkeys(_SIZED_BY_SECOND.split(), (1,)),
    **dict.fromkeys(_SIZED_BY_THIRD.split(), (2,)),
    "RANGE": (0, 1, 2),
    "SLICE": (1, 2),
    "STRIDED_SLICE": (1, 2, 3),
}

_OF_SHAPES = ("RANK", "SHAPE")  # operators whose results depend on shapes alone


class Placeholders:
    """The tensors of a subgraph whose declared extents are no claim."""

    def __init__(
        self,
        subgraph: Subgraph,  # whose inputs are data
        is_open: Callable[[int], bool],  # whether a tensor has a dimension with a name
    ) -> None:
        self._is_open = is_open
        self._data = set(subgraph.inputs) | {t.index for t in subgraph.tensors if t.is_variable}
        self._open: set[int] = set()

    def __contains__(self, index: int) -> bool:
        return index in self._open

    def follow(self, operator: Operator) -> None:
        """Take an operator's results into account."""
        operands = [index for index in operator.inputs if index >= 0]
        sizing = [operator.inputs[p] for p in _SIZING.get(operator.name, ()) if p < len(operator.inputs)]
        if any(i in self._open or self._is_open(i) for i in operands) or any(i in self._data for i in sizing):
            self._open.update(operator.outputs)
        if operator.name not in _OF_SHAPES and any(i in self._data for i in operands):
            self._data.update(operator.outputs)


Quant = Literal["qdq", "float"]
"""What becomes of quantized tensors: integers in Quantize-Dequantize units, or real numbers."""

_ALIKE = "FLOAT16 BFLOAT16 INT64 UINT64 INT32 UINT32 INT16 UINT16 INT8 UINT8 INT4 UINT4 BOOL"
DTYPES = {  # the element types that ONNX Runtime can store, and what it stores them as: numbers of 2 bits as those of 4
    TensorType.FLOAT64: ir.DataType.DOUBLE,
    TensorType.FLOAT32: ir.DataType.FLOAT,
    TensorType.INT2: ir.DataType.INT4,
    **{TensorType[name]: ir.DataType[name] for name in _ALIKE.split()},
}

FEW_BITS = {TensorType.INT4: 4, TensorType.UINT4: 4, TensorType.INT2: 2}  # element types below a byte -> their bits
QUANTIZED_TYPES = (TensorType.INT8, TensorType.UINT8, TensorType.INT16, *FEW_BITS)
"""Element types whose scale, if there is one, is part of their meaning. Wider integers with a scale are biases."""

_AXES = {4: {1: "height", 2: "width", 3: "channels"}, 5: {1: "depth", 2: "height", 3: "width", 4: "channels"}}
"""Rank of an input -> what its axes are called where their extents are open."""

_FIRST_OPSET = dict.fromkeys((TensorType.INT16, *FEW_BITS), 21)
"""From which opset on QuantizeLinear and DequantizeLinear take a type."""

_BLOCKS_OPSET = 21  # from which opset on DequantizeLinear takes blocks

DEFAULT_OPSET = 18  # what is written unless the model needs more: the most runtimes read it


def sufficient_opset(model: Model, *, quant: Quant = "qdq") -> int:
    """Return the lowest opset, from 18 on, that can hold a model's tensors and has its operators."""
    tensors = [tensor for subgraph in model.subgraphs for tensor in subgraph.tensors]
    holds_texts = any(tensor.type == TensorType.STRING for tensor in tensors)
    operators = {
        (operator.name, holds_texts and has_type(operator, subgraph, TensorType.STRING))
        for subgraph in model.subgraphs
        for operator in subgraph.operators
    }
    known = ((entry, of_texts) for name, of_texts in operators if (entry := entry_of(name)))
    return max(
        DEFAULT_OPSET,
        *(max(entry.opset, entry.texts * of_texts) for entry, of_texts in known),
        *(
            _FIRST_OPSET.get(tensor.type, 0)
            for tensor in tensors
            if (quant == "qdq" if tensor.quantization is not None else tensor.type in FEW_BITS)
        ),
        *(_BLOCKS_OPSET for tensor in tensors if tensor.blocks is not None),
        0,
    )


def has_type(operator: Operator, subgraph: Subgraph, kind: TensorType) -> bool:
    """Tell whether an operand or a result of an operator is of a type."""
    return any(i >= 0 and subgraph.tensors[i].type == kind for i in (*operator.inputs, *operator.outputs))


def array(tensor: Tensor) -> npt.NDArray[Any]:
    """Return a constant's elements, a view into the file wherever they lie there one by one."""
    if tensor.data is None:
        if 0 not in tensor.shape:
            raise Unsupported("a constant that is handed into a subgraph")
        return np.empty(tensor.shape, DTYPES[tensor.type].numpy())
    if tensor.sparsity is not None:
        return dense(tensor)
    if tensor.type in FEW_BITS:
        bits, data = FEW_BITS[tensor.type], tensor.content
        parts = np.stack([data >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1).reshape(-1)
        numbers = parts[: math.prod(tensor.shape)].astype(np.int8).reshape(tensor.shape)
        sign = 0 if tensor.type == TensorType.UINT4 else 1 << bits - 1
        return ((numbers ^ sign) - sign).astype(DTYPES[tensor.type].numpy())
    return tensor.content.view(np.dtype(DTYPES[tensor.type].numpy()).newbyteorder("<")).reshape(tensor.shape)


def literal(tensor: Tensor, dtype: ir.DataType) -> ir.TensorProtocol:
    """A constant's elements as those of `dtype`, which have as many bits: where they lie in the file, if they do."""
    if tensor.data is None or tensor.sparsity is not None:
        return ir.Tensor(array(tensor).view(dtype.numpy()), dtype, shape=ir.Shape(tensor.shape))
    return tensor_of(tensor.raw, dtype, tensor.shape)


def dequantized(elements: npt.NDArray[Any], quantization: Quantization) -> npt.NDArray[np.float32]:
    """Return a quantized constant's real numbers, computed as DequantizeLinear does."""
    shape = [1] * elements.ndim
    if quantization.per_channel:
        shape[quantization.axis] = -1
    centred = elements.astype(np.int64) - quantization.zero_point.reshape(shape)
    return (centred.astype(np.float32) * quantization.scale.reshape(shape)).astype(np.float32)


def fixed_point(factor: float) -> tuple[int, int]:
    """A factor as the kernels of integers have it: `factor ≈ multiplier · 2**(exponent - 31)`, 31 bits and an exponent.

    Source: `QuantizeMultiplier` of TensorFlow Lite.
    """
    mantissa, exponent = math.frexp(factor)
    return math.floor(mantissa * (1 << 31) + 0.5), exponent


ADDED = re.compile(  # the ending that an export gives a tensor beside that of a value
    r"/(as_in_file_*|stored_*|integers|builtin|float32|between|(gemm/)?fused|\w+directional_sequence_(lstm/lstm|rnn/rnn)(_\d+)?)$"
)
REPEATED = re.compile(r"(?P<builtin>/[a-z][a-z0-9_]*)(?:(?:/[^/]+)?(?P=builtin))+$|(?P<order>__p\d+)(?:__p\d+)+$")
"""Endings that a second export adds to those of the first: the builtin that writes a value, an order of axes."""


NUMBERED = re.compile(r"(?P<kept>/(?:constant|gemm|lstm|rnn))_\d+$|(?P<stored>/stored)_+$")
"""The ending of a name that another tensor has already."""


def _shorter(name: str, used_names: Container[str]) -> str | None:
    """Return a name without the last thing that an export added; None if it added none, or another tensor has that."""
    repeated, numbered = REPEATED.search(name), NUMBERED.search(name)
    shorter_names = [ADDED.sub("", name)]
    if repeated is not None and (repeated["order"] or repeated["builtin"][1:].upper() in BUILTIN_OPERATORS):
        shorter_names.insert(0, name[: repeated.start()] + (repeated["order"] or repeated["builtin"]))
    if numbered is not None:
        shorter_names.append(name[: numbered.start()] + (numbered["kept"] or numbered["stored"]))
    return next((each for each in shorter_names if each not in ("", name) and each not in used_names), None)


class Tensors:
    """The ONNX value of each tensor, made when it is first asked for.

    A quantized tensor's value holds its integers; with `quant="float"` it holds real numbers instead. Names of a file
    that relayout wrote (`is_export`) may have endings that an export added.
    """

    def __init__(self, subgraph: Subgraph, builder: Builder, *, quant: Quant, is_export: bool) -> None:
        self.subgraph, self.builder, self.dequantize = subgraph, builder, quant == "float"
        self.is_export = is_export
        self.names: dict[int, str] = {}
        self.handles: dict[int, Handle] = {}
        self.tainted: set[int] = set()  # results of what could not be translated
        self.unsure: set[int] = set()  # what follows from them: their shapes are the file's, which may be none
        self.constants: dict[int, ir.Value] = {}
        self.borders: dict[int, Border | None] = {}
        self.halves: dict[int, tuple[ir.Value, ir.Value]] = {}  # of complex numbers: the real and the imaginary parts
        self._values: dict[int, ir.Value] = {}
        self._bound: set[int] = set()
        self._parameters: dict[int, tuple[ir.Value, ir.Value]] = {}
        self._symbols: dict[str, tuple[int, int]] = {}
        self.placeholders = Placeholders(subgraph, self._is_open)
        self.flow = Flow(subgraph)

    @cached_property
    def are_unsigned(self) -> bool:
        """True if all bytes with a scale are unsigned: a `.tflite` that is made of them keeps them so."""
        kinds = {tensor.type for tensor in self.subgraph.tensors if tensor.quantization is not None}
        return TensorType.UINT8 in kinds and TensorType.INT8 not in kinds

    def name_all(self) -> None:
        """Give every tensor a name: its own, made unique; an empty one becomes `tensor_<index>`.

        One that was added beside another is called as that one is, and something more. One that an earlier export
        added has the name of what it was added for: names would grow from file to file.
        """
        own = {tensor.name for tensor in self.subgraph.tensors}
        used_names = set(own)
        for tensor in self.subgraph.tensors:
            if tensor.index not in self.names:
                name = tensor.name or f"tensor_{tensor.index}"
                # Of several steps to the file's order of axes the last one is the value's.
                while self.is_export and f"{name}_" not in own and (shorter := _shorter(name, used_names)) is not None:
                    name = shorter
                if tensor.beside >= 0:
                    name = f"{self.names[tensor.beside]}/{name.rpartition('/')[2]}"
                used_names.add(name)
                self.names[tensor.index] = self.builder.names.unique(name)

    def _named(self, tensor: Tensor, value: ir.Value) -> str:
        """Return a tensor's name; the file's is in the metadata of its value, where that is another one.

        What stands between values has no counterpart in other models.
        """
        name = self.names[tensor.index]
        if tensor.name != name and not tensor.name.endswith("/between") and _shorter(tensor.name, ()) is not None:
            value.metadata_props[TENSOR] = tensor.name
        return name

    def hint(self, tensor: Tensor, suffix: str) -> str:
        """Return the name wanted for a value made from this tensor."""
        name = f"{self.names[tensor.index][:MAX_NAME]}/{suffix}"
        if tensor.beside >= 0:
            self.builder.stand_for[name] = self.names[tensor.beside]
        return name

    def dtype(self, tensor: Tensor) -> ir.DataType:
        """Return the element type of the tensor's value."""
        if self.dequantize and tensor.quantization and tensor.type in QUANTIZED_TYPES:
            return ir.DataType.FLOAT
        return self.plain_dtype(tensor)

    def plain_dtype(self, tensor: Tensor) -> ir.DataType:
        """Return the element type that the file states."""
        if tensor.type == TensorType.STRING:
            return ir.DataType.STRING
        if tensor.type not in DTYPES:
            raise Unsupported(f"element type {tensor.type.name}")
        return DTYPES[tensor.type]

    def quantization(self, tensor: Tensor) -> Quantization | None:
        """Return what the tensor's integers mean, None where its value holds plain numbers."""
        return tensor.quantization if tensor.type in QUANTIZED_TYPES and not self.dequantize else None

    def declared(self, tensor: Tensor) -> Dims:
        """Return the tensor's shape as the file states it."""
        return tuple(None if dim < 0 else dim for dim in tensor.signature)

    def _is_open(self, index: int) -> bool:
        value = self._values.get(index)
        shape = value.shape if value is not None else None
        return shape is not None and not all(isinstance(dim, int) for dim in shape)

    def claimed(self, tensor: Tensor) -> Dims:
        """Return the reliable part of the declared shape: a shape that names no open dimension may be a placeholder."""
        unsure = tensor.index in self.placeholders and -1 not in tensor.signature
        return tuple(None if unsure else dim for dim in self.declared(tensor))

    def is_constant(self, tensor: Tensor) -> bool:
        """Tell whether the file holds its elements (or it has none) and nothing computes it."""
        return tensor.index not in self._values and (tensor.data is not None or 0 in tensor.signature)

    def value(self, tensor: Tensor) -> ir.Value:
        """Return the tensor's value; a constant becomes an initializer."""
        if tensor.blocks is not None:
            raise Unsupported(tensor.blocks.unknown or "a scale for each block of elements, which only products take")
        if (value := self._values.get(tensor.index)) is None:
            value = self._values[tensor.index] = self._initial(tensor)
        return value

    def has_value(self, tensor: Tensor) -> bool:
        """Tell whether something has computed the tensor, or it was used before."""
        return tensor.index in self._values

    def is_bound(self, value: ir.Value) -> bool:
        """Tell whether a value is some tensor's own already."""
        return id(value) in self._bound

    def placeholder(self, tensor: Tensor) -> None:
        """Stand in for the result of an operator that could not be translated, so that the others can be looked at."""
        if tensor.index not in self._values:
            name, dtype = self.names[tensor.index], DTYPES.get(tensor.type, ir.DataType.FLOAT)
            self._values[tensor.index] = self.builder.value(name, dtype, self.declared(tensor))

    def lend(self, tensor: Tensor, value: ir.Value) -> None:
        """Let a value from outside the subgraph stand for one of its inputs, under the name that it has there."""
        if value.dtype != self.dtype(tensor) or len(self.declared(tensor)) not in (0, len(value.shape or ())):
            raise ReadError(f"a subgraph is given {value.dtype} of shape {value.shape}", where=tensor.place)
        self._values[tensor.index] = value
        self._bound.add(id(value))

    def bind(self, tensor: Tensor, value: ir.Value) -> None:
        """Make a value the tensor's own: from here on it carries its name."""
        if tensor.index in self._values:
            raise ReadError(f"tensor {tensor.index} is computed twice or also given", where=tensor.place)
        if (elements := constant_elements(value, self.is_bound)) is not None:
            value = self.builder.array(self.hint(tensor, "known"), elements)
        shape = value.shape
        declared = self.claimed(tensor)
        if shape is not None and any(not isinstance(d, int) and d.value is None for d in shape):
            known = declared if len(declared) == len(shape) else (None,) * len(shape)
            value.shape = ir.Shape(
                [
                    dim if isinstance(dim, int) or dim.value is not None else self.symbol(tensor, axis, known[axis])
                    for axis, dim in enumerate(shape)
                ]
            )
        value.name = self._named(tensor, value)
        if value.const_value is not None:
            value.const_value.name = value.name
        value.metadata_props.pop(STANDS_FOR, None)
        if tensor.beside >= 0:
            value.metadata_props[STANDS_FOR] = self.names[tensor.beside]
            if tensor.shifted:  # the same numbers: what verifies may look at either
                Holds.note(value.metadata_props, [Holds.as_is(self.names[tensor.beside], dims(value))])
        self._values[tensor.index] = value
        self._bound.add(id(value))

    def overwrite(self, tensor: Tensor, value: ir.Value) -> None:
        """Let whoever reads a tensor from here on read what an operator has written into it, its own operand."""
        self._values[tensor.index] = value

    def symbol(self, tensor: Tensor, axis: int, known: int | str | None = None) -> int | str:
        """Return a name for a dimension that is known only at run time; images have a height and a width."""
        if known is not None:
            return known
        if tensor.index in self.subgraph.inputs:
            axis_name = _AXES.get(len(tensor.shape), {}).get(axis)
            if axis_name and self._symbols.setdefault(axis_name, (tensor.index, axis)) == (tensor.index, axis):
                return axis_name
        return f"{self.names[tensor.index][:MAX_NAME]}_{axis}"

    def need_opset(self, tensor: Tensor) -> None:
        """Refuse integers that no DequantizeLinear takes in the model's opset."""
        least = max(_FIRST_OPSET.get(tensor.type, 0), _BLOCKS_OPSET if tensor.blocks is not None else 0)
        if self.builder.opset < least and not self.dequantize:
            raise Unsupported(f"quantized {tensor.type.name} needs opset {least}")

    def parameters(self, tensor: Tensor) -> tuple[ir.Value, ir.Value]:
        """Return the tensor's scale and zero point as initializers, shared by all of its Q and DQ nodes."""
        if (initializers := self._parameters.get(tensor.index)) is None:
            if (quantization := tensor.quantization) is None:
                raise Unsupported(f"{tensor.type.name} without quantization parameters")
            self.need_opset(tensor)
            shape = (-1,) if quantization.per_channel else ()
            scale = ir.Tensor(quantization.scale.reshape(shape))
            zero_point = ir.Tensor(
                quantization.zero_point.astype(DTYPES[tensor.type].numpy()).reshape(shape), dtype=DTYPES[tensor.type]
            )
            initializers = self._parameters[tensor.index] = (
                self.builder.initializer(self.hint(tensor, "scale"), scale),
                self.builder.initializer(self.hint(tensor, "zero_point"), zero_point),
            )
        return initializers

    def blockwise(self, tensor: Tensor, size: int) -> tuple[ir.TensorProtocol, npt.NDArray[np.float32]]:
        """The integers of a constant matrix, and a scale for each block of so many columns, `rows (columns / size)`."""
        blocks, meaning = tensor.blocks, tensor.quantization
        if tensor.data is None or len(tensor.shape) != 2:
            raise Unsupported("a scale for each block of elements that are no constant matrix")
        if blocks is not None and blocks.unknown:
            raise Unsupported(blocks.unknown)
        self.need_opset(tensor)
        shape = (tensor.shape[0], tensor.shape[1] // size)
        if blocks is not None:
            scales = array(self.subgraph.tensors[blocks.scales]).astype(np.float32)
        elif meaning is not None:
            scales = np.ascontiguousarray(np.broadcast_to(meaning.scale.reshape(-1, 1), shape))
        else:
            raise Unsupported(f"{tensor.type.name} without quantization parameters")
        if tensor.type == TensorType.INT2:
            integers: ir.TensorProtocol = ir.LazyTensor(
                lambda: ir.Tensor(array(tensor), dtype=ir.DataType.INT4), ir.DataType.INT4, ir.Shape(tensor.shape)
            )
        else:
            integers = literal(tensor, self.plain_dtype(tensor))
        return integers, scales

    def _initial(self, tensor: Tensor) -> ir.Value:
        if self.is_constant(tensor):
            # A subgraph that is written several times shares its constants.
            if tensor.index not in self.constants:
                self.constants[tensor.index] = self._constant(tensor)
            return self.constants[tensor.index]
        if tensor.is_variable:
            raise Unsupported("state that persists between runs")
        raise ReadError(f"tensor {tensor.index} is read before anything computes it", where=tensor.place)

    def _constant(self, tensor: Tensor) -> ir.Value:
        dtype, shape = self.dtype(tensor), ir.Shape(tensor.shape)
        content: ir.TensorProtocol
        quantization = tensor.quantization
        if tensor.type == TensorType.STRING:
            content = ir.StringTensor([text.encode() for text in texts(tensor)], shape=shape)
        elif dtype != DTYPES.get(tensor.type) and quantization is not None:
            content = ir.LazyTensor(lambda: ir.Tensor(dequantized(array(tensor), quantization)), dtype, shape)
        elif tensor.type == TensorType.INT2:
            content = ir.LazyTensor(lambda: ir.Tensor(array(tensor), dtype=dtype), dtype, shape)
        elif tensor.sparsity is not None:
            array(tensor)  # now, so that damage shows before anything is written
            content = ir.LazyTensor(lambda: ir.Tensor(array(tensor), dtype=dtype), dtype, shape)
        else:
            content = literal(tensor, dtype)
        value = self.builder.initializer(self.names[tensor.index], content)
        value.name = content.name = self._named(tensor, value)
        return value


# What computes a tensor, and what reads it: an operator may be written otherwise for the sake of its neighbours.

SPATIAL = frozenset(("AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "L2_POOL_2D", "MAX_POOL_2D"))
"""Operators that ONNX has for `n c h w` only; operand 0 is the data."""

ELEMENTWISE = frozenset(("ADD", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MUL", "RELU", "RELU6", "SUB", "TANH"))
"""Operators that take any order of axes, as far as `leads_to_spatial` looks through them."""

FAR = 4  # elementwise operators through which it looks


class Flow:
    """Producers and readers of a subgraph's tensors."""

    def __init__(self, subgraph: Subgraph) -> None:
        self._producers: dict[int, Operator] = {}
        self._readers: dict[int, list[Operator]] = {}
        self._leading: dict[tuple[int, int], bool] = {}
        self._outputs = frozenset(subgraph.outputs)
        for operator in subgraph.operators:
            for index in dict.fromkeys(operator.inputs):
                self._readers.setdefault(index, []).append(operator)
            for index in operator.outputs:
                self._producers[index] = operator

    def producer(self, index: int) -> Operator | None:
        """Return the operator that computes a tensor."""
        return self._producers.get(index)

    def readers(self, index: int) -> Sequence[Operator]:
        """Return the operators that read a tensor."""
        return self._readers.get(index, ())

    def sole_reader(self, index: int) -> Operator | None:
        """Return the only operator that reads a tensor, if there is no other and it is no output."""
        readers = self._readers.get(index, [])
        return readers[0] if len(readers) == 1 and index not in self._outputs else None

    def leads_to_spatial(self, index: int, far: int = FAR) -> bool:
        """Tell whether all that reads a tensor wants channels first, directly or behind elementwise operators.

        Then its axes will be transposed wherever it is computed, and computing it with channels first costs nothing.
        """
        key = index, far
        if key not in self._leading:
            readers = self._readers.get(index, []) if index not in self._outputs else []
            self._leading[key] = bool(readers) and all(self._is_spatial(r, index, far) for r in readers)
        return self._leading[key]

    def _is_spatial(self, reader: Operator, index: int, far: int) -> bool:
        if reader.name in SPATIAL:
            return reader.inputs[0] == index
        return (
            far > 0
            and reader.name in ELEMENTWISE
            and len(reader.outputs) == 1
            and self.leads_to_spatial(reader.outputs[0], far - 1)
        )
