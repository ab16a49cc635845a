"""Tensors of texts: their constants, and the operators that LiteRT's kernels compute of them."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.spelled_out import DOMAIN

_OPERATORS = """
    ArrayFeatureExtractor Equal Flatten Gather GatherND Identity LabelEncoder Reshape Shape Size Slice Squeeze Tile
    Unsqueeze
"""
OPERATORS = frozenset(_OPERATORS.split())
"""ONNX operators whose exports write operators on texts that LiteRT runs."""
_KERNELS = "EQUAL GATHER GATHER_ND HASHTABLE_FIND NOT_EQUAL RESHAPE SHAPE SLICE STRIDED_SLICE TILE"
KERNELS = frozenset(_KERNELS.split())
"""Builtins with kernels for texts in LiteRT. That of GATHER takes data of one axis alone."""


def text_constant(draft: Draft, name: str, texts: NDArray[Any]) -> DraftTensor:
    """Add a constant of texts; equal ones are different tensors.

    Args:
        draft: the graph under construction.
        name: what to call it.
        texts: an array of `bytes` or `str`.
    """
    from relayout.formats.tflite.container.texts import packed_texts  # few models have any

    encoded = [each if isinstance(each, bytes) else str(each).encode() for each in texts.reshape(-1).tolist()]
    return DraftTensor(draft.unique(name), TensorType.STRING, texts.shape, packed_texts(encoded))


def refused_texts(node: ir.Node) -> str:
    """Return the reason why a node of texts cannot be run; empty if it can, or reads and gives none."""
    kinds = {value.dtype for value in (*node.inputs, *node.outputs) if value is not None}
    is_refused = ir.DataType.STRING in kinds and node.op_type not in OPERATORS and node.domain != DOMAIN
    return "elements of STRING" if is_refused else ""


def require_text_kernels(draft: Draft, begin: int) -> None:
    """Refuse operators on texts that LiteRT has no kernel for.

    Args:
        draft: the graph.
        begin: the first operator to look at.

    Raises:
        Unwritable: there is one.
    """
    for operator in draft.operators[begin:]:
        tensors = [each for each in (*operator.inputs, *operator.outputs) if each is not None]
        if any(each.type == TensorType.STRING for each in tensors) and not _has_kernel(operator):
            raise Unwritable(f"{operator.name} of texts")


def _has_kernel(operator: DraftOperator) -> bool:
    data = operator.inputs[0]
    return operator.name in KERNELS and (operator.name != "GATHER" or (data is not None and len(data.dims) == 1))
