"""Operands and results without elements: kernels refuse most of them, and what comes of them is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.folding import run_node
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.value_types import kernel_type

COMBINING = ("Reduce", "Arg", "MatMul", "Gemm", "GlobalAveragePool", "GlobalMaxPool")
"""Beginnings of the names of operators that combine elements of their first operand."""


def write_empty(op: NodeExport) -> bool:
    """Write a node as constants if no element goes into its results; return whether it is so.

    Raises:
        Unwritable: it combines elements, and nothing tells what it gives of none; or it gives texts.
    """
    slots = [slot for slot, value in enumerate(op.node.outputs) if value.name]
    if not op.node.inputs or not slots:
        return False
    if all(_has_none(op.node.outputs[slot]) for slot in slots):
        if any(kernel_type(op.node.outputs[slot]) == TensorType.STRING for slot in slots):
            raise Unwritable("texts without elements")
        arrays = [np.zeros(known(op.out_dims(slot)), NUMPY[kernel_type(op.node.outputs[slot])]) for slot in slots]
    elif op.op_type.startswith(COMBINING) and _has_none(op.node.inputs[0]):
        arrays = _combined(op)
    else:
        return False
    for slot, array in zip(slots, arrays, strict=True):
        op.give(op.const(array), slot)
    return True


def _has_none(value: ir.Value | None) -> bool:
    """Return whether it is known that a value has no elements."""
    dims = [] if value is None or value.shape is None else list(value.shape)
    return 0 in dims and all(isinstance(dim, int) for dim in dims)


def _combined(op: NodeExport) -> list[NDArray[Any]]:
    """Return what a node gives by ONNX's reference: its first operand has no elements."""
    operands: dict[str, NDArray[Any]] = {}
    for slot, value in enumerate(op.node.inputs):
        if value is not None and value.dtype is not None:
            array = op.constant(slot)
            if array is None and not _has_none(value):
                raise Unwritable("an operand without elements")
            shape = () if value.shape is None else value.shape.numpy()
            operands[value.name or ""] = np.zeros(shape, value.dtype.numpy()) if array is None else array
    results = run_node(op.graph.model, op.node, operands)
    if results is None:
        raise Unwritable("an operand without elements")
    return [array for array, value in zip(results, op.node.outputs, strict=True) if value.name]
