"""Nodes say of which builtin they were made, where they alone would not be that builtin again.

An operator that several ONNX nodes compute may become other builtins on the way back, and so may weights of few bits
between real numbers, which LiteRT multiplies with rounded data. One of the nodes then has the builtin's description.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.container.schema import SCHEMA
from relayout.formats.tflite.importing.registry import Unsupported
from relayout.formats.tflite.importing.tensors import FEW_BITS, QUANTIZED_TYPES, array
from relayout.formats.tflite.spelled_out import BUILTIN, SMALL, VIEWS, Builtin, Operand, is_restorable
from relayout.graph.source_names import SOURCE

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.operation import Operation

MOVING = frozenset({"DequantizeLinear", "Identity", "QuantizeLinear", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that compute nothing of a builtin: they bring its operands and results into the form that ONNX has."""
ACTIVATIONS = frozenset({"Clip", "Relu", "Tanh"})
"""Operators that an activation is, which comes back as a part of the builtin before it."""
ANOTHER = frozenset(["BATCH_TO_SPACE_ND", "EMBEDDING_LOOKUP", "PACK", "SPACE_TO_BATCH_ND", "UNPACK", "WHERE"])
"""Builtins of which one ONNX operator, or views alone, become others."""

WRAPPING = frozenset(["SUM"])
"""Builtins whose results wrap around where integers cannot hold them; those of QuantizeLinear stay at the bound."""

COMPLEX = (TensorType.COMPLEX64, TensorType.COMPLEX128)


def mark_spelled(
    op: Operation,  # the operator
    nodes: Sequence[ir.Node],  # the nodes that were written for it
) -> None:
    """Write the description of an operator into one of its nodes, where they alone would not be that operator again."""
    if not is_restorable(op.operator.name) or op.tensors.dequantize:
        return
    own = [node for node in nodes if node.metadata_props.get(SOURCE) == op.source]
    computing = [node for node in own if node.op_type not in MOVING]
    is_other = op.operator.name in ANOTHER or _wraps(op) or is_mixed(op)
    if len(own) != len(nodes) or not (is_other or _is_spelled_out(op, computing)):
        return
    if not own or any(BUILTIN in node.metadata_props for node in own):
        return
    description = _description(op, own)
    if description is not None and description.is_sound:
        (computing or own)[-1].metadata_props[BUILTIN] = description.dump()


def _is_spelled_out(op: Operation, computing: Sequence[ir.Node]) -> bool:
    if op.operator.name == "QUANTIZE":
        return bool(computing)  # of integers that QuantizeLinear or DequantizeLinear do not have
    activated = bool(op.options.fields.get("fused_activation_function")) and computing[-1:]
    last = activated and computing[-1].op_type in ACTIVATIONS
    return len(computing) - bool(last) != 1


def is_mixed(op: Operation) -> bool:
    """Return whether it computes with integers and with other numbers: no quantized unit says that.

    1. It reads integers with a scale and gives other numbers: LiteRT rounds data beside such weights, or compares.
    2. It reads integers of 4 bits, and gives wider ones.
    """
    operands = [op.input(i) for i in range(len(op.operator.inputs)) if op.has(i)]
    kinds = [t.type for t in operands if t.quantization is not None]
    results = [op.output(i) for i in range(len(op.operator.outputs))]
    wide = all(t.type not in FEW_BITS for t in results)
    return any(kind in FEW_BITS and wide for kind in kinds) or gives_others_for_integers(operands, results)


def _wraps(op: Operation) -> bool:
    """Return whether results that integers cannot hold wrap around."""
    return op.operator.name in WRAPPING and op.output(0).type in QUANTIZED_TYPES


def gives_others_for_integers(operands: Iterable[Tensor], results: Iterable[Tensor]) -> bool:
    """Return whether some operand holds integers with a scale, and no result is of such a type."""
    reads = any(each.quantization is not None and each.type in QUANTIZED_TYPES for each in operands)
    return reads and all(each.type not in QUANTIZED_TYPES for each in results)


def _is_constant(op: Operation, tensor: Tensor) -> bool:
    """Return whether a tensor lies in the file."""
    is_computed = op.tensors.flow.producer(tensor.index) is not None or tensor.index in op.tensors.subgraph.inputs
    return tensor.data is not None and not is_computed


def _description(op: Operation, nodes: Sequence[ir.Node]) -> Builtin | None:
    """Describe an operator; None where a description would not tell all of it."""
    outputs = [op.output(i) for i in range(len(op.operator.outputs))]
    known = [op.input(i) for i in range(len(op.operator.inputs)) if op.has(i)]
    if op.operator.intermediates or not all(map(_is_plain, (*known, *outputs))):
        return None
    # Unsigned integers a result may store as signed ones.
    is_unsigned = any(each.type == TensorType.UINT8 and each.quantization is not None for each in outputs)
    if is_unsigned and not op.tensors.are_unsigned and not _wraps(op):
        return None
    read = {value for node in nodes for value in node.inputs if value is not None}
    inputs = [_operand(op, i, read, nodes) if op.has(i) else None for i in range(len(op.operator.inputs))]
    if any(op.has(i) and each is None for i, each in enumerate(inputs)):
        return None
    results = [Operand.of(tensor, op.tensors.names[tensor.index]) for tensor in outputs]
    more = np.asarray(op.operator.custom_options).tobytes()
    return Builtin(op.operator.name, options_to_say(op), tuple(inputs), tuple(results), custom_options=more)


def options_to_say(op: Operation) -> dict[str, Any]:
    """Return the options of an operator that are not the schema's defaults."""
    found: dict[str, Any] = {}
    for row in SCHEMA.tables.get(op.options.kind, ()):
        option = op.options.fields.get(row.name)
        if isinstance(option, np.ndarray) and option.size:
            found[row.name] = option.tolist()
        elif isinstance(option, int | float) and option != row.default:
            found[row.name] = option
    return found


def _is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor comes back as it is: others are stored otherwise, or keep what they hold."""
    is_other = tensor.shifted or tensor.is_variable or tensor.listed or tensor.blocks is not None
    return not (is_other or tensor.sparsity is not None or tensor.type in COMPLEX)


def _operand(op: Operation, i: int, read: Iterable[ir.Value], nodes: Sequence[ir.Node]) -> Operand | None:
    """Describe an operand; None where neither a value nor the description can hold it."""
    tensor = op.input(i)
    try:
        if not _is_constant(op, tensor):
            return Operand.of(tensor, op.stored(i).name or "")
        value = op.stored(i) if op.tensors.has_value(tensor) else None
        if value is not None and value in read:
            return _weights(tensor, value, nodes)
        if int(np.prod(tensor.shape)) > SMALL:
            return None
        elements = array(tensor)
    except Unsupported:
        return None
    if tensor.quantization is not None and tensor.quantization.per_channel:
        return None
    return Operand.of(tensor)._replace(numbers=tuple(elements.reshape(-1).tolist()))


def _weights(tensor: Tensor, value: ir.Value, nodes: Sequence[ir.Node]) -> Operand | None:
    """Describe a constant: several scales lie in the value with which the nodes dequantize it."""
    operand, meaning = Operand.of(tensor, value.name or ""), tensor.quantization
    if meaning is None or not meaning.per_channel:
        return operand
    for node in nodes:
        if node.op_type == "DequantizeLinear" and _root(node.inputs[0]) is value and not meaning.zero_point.any():
            scale = node.inputs[1]
            assert scale is not None
            return operand._replace(scales=scale.name or "")
    return None


def _root(value: ir.Value | None) -> ir.Value | None:
    """Return the value of which a value is a view."""
    while value is not None and (node := value.producer()) is not None and node.op_type in VIEWS:
        value = node.inputs[0]
    return value
