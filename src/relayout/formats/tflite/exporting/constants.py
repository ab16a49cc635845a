"""The tensors that the constants of a graph become."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.folding import SMALL
from relayout.formats.stored import nbytes
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization, TensorContent
from relayout.formats.tflite.exporting.draft import NUMPY, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.kernel_types import TENSOR_TYPES, tensor_dims
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.spelled_out import DOMAIN

# Tensors of texts: their constants, and the operators that LiteRT's kernels compute of them.

_OPERATORS = """
    ArrayFeatureExtractor Equal Flatten Gather GatherND Identity LabelEncoder Reshape Shape Size Slice Squeeze Tile
    Unsqueeze
"""
OPERATORS = frozenset(_OPERATORS.split())  # ONNX operators whose exports write operators on texts that LiteRT runs
_KERNELS = "EQUAL GATHER GATHER_ND HASHTABLE_FIND NOT_EQUAL RESHAPE SHAPE SLICE STRIDED_SLICE TILE"
KERNELS = frozenset(_KERNELS.split())
"""Builtins with kernels for texts in LiteRT. That of GATHER takes data of one axis alone."""


def text_constant(
    draft: Draft,  # the graph under construction
    name: str,  # what to call it
    texts: NDArray[Any],  # an array of `bytes` or `str`
) -> DraftTensor:
    """Add a constant of texts; equal ones are different tensors."""
    from relayout.formats.tflite.container.model import packed_texts  # few models have any

    encoded = [each if isinstance(each, bytes) else str(each).encode() for each in texts.reshape(-1).tolist()]
    return DraftTensor(draft.unique(name), TensorType.STRING, texts.shape, packed_texts(encoded))


def refused_texts(node: ir.Node) -> str:
    """Return the reason why a node of texts cannot be run; empty if it can, or reads and gives none."""
    kinds = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
    is_refused = ir.DataType.STRING in kinds and node.op_type not in OPERATORS and node.domain != DOMAIN
    return "elements of STRING" if is_refused else ""


def require_text_kernel(operator: DraftOperator) -> None:
    """Refuse an operator on texts that LiteRT has no kernel for."""
    tensors = [each for each in (*operator.inputs, *operator.outputs) if each is not None]
    has_kernel = operator.name in KERNELS and (operator.name != "GATHER" or len(tensors[0].dims) == 1)
    if not has_kernel and any(each.type == TensorType.STRING for each in tensors):
        raise Unwritable(f"{operator.name} of texts")


READ = 1 << 16  # elements of constants that are looked at as arrays


def constant_tensor(draft: Draft, value: ir.Value) -> DraftTensor:
    """Return the tensor of a constant as kernels read it."""
    tensor = value.const_value
    assert tensor is not None
    if tensor.dtype not in TENSOR_TYPES:
        raise Unwritable(f"constants of {tensor.dtype.name}")
    kind = TENSOR_TYPES[tensor.dtype]
    if kind == TensorType.STRING:
        return text_constant(draft, value.name or "constant", tensor.numpy())
    array = tensor.numpy() if tensor.size <= READ and kind != TensorType.INT4 else None
    size = nbytes(tensor.dtype, tuple(tensor.shape.numpy()))
    data: Any = TensorContent(tensor) if size else np.zeros(0, np.uint8)
    name = draft.unique(value.name or "constant")
    draft_tensor = DraftTensor(name, kind, tuple(tensor.shape.numpy()), data, array)
    return in_single(draft, draft_tensor) if kind == TensorType.FLOAT16 else draft_tensor


def in_single(draft: Draft, half: DraftTensor) -> DraftTensor:
    """Return a constant in half precision as kernels read it: small ones in single, others behind a DEQUANTIZE."""
    if half.array is not None and half.array.size <= SMALL:  # as a Cast of so many is computed where a file is read
        return draft.constant(half.name, half.array.astype(np.float32))
    single = draft.tensor(f"{half.name}/float32", TensorType.FLOAT32, half.dims)
    draft.add("DEQUANTIZE", [half], [single])
    return single


def integer_constant(
    draft: Draft,  # the subgraph under construction
    value: ir.Value,  # the constant
    kind: TensorType,  # the element type that kernels take
    shift: int,  # how much lower the integers lie in that type
    quantization: Quantization,  # what they mean there
) -> DraftTensor:
    """Return the tensor of constant integers."""
    tensor = value.const_value
    assert tensor is not None
    name = draft.unique(value.name or "constant")
    if shift:
        lowered: NDArray[Any] = (tensor.numpy().astype(np.int32) - shift).astype(NUMPY[kind])
        data = np.frombuffer(lowered.tobytes(), np.uint8)
        return DraftTensor(name, kind, lowered.shape, data, lowered, quantization)
    array = tensor.numpy() if tensor.size <= READ and kind != TensorType.INT4 else None
    return DraftTensor(name, kind, tensor_dims(value), TensorContent(tensor), array, quantization)
