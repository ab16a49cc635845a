"""Quantized units: an operator between DequantizeLinear and QuantizeLinear, which backends run on integers.

    DequantizeLinear ─┐
    DequantizeLinear ─┼─ operator ─ (Relu or Clip) ─ QuantizeLinear
    DequantizeLinear ─┘

A QuantizeLinear that reads a DequantizeLinear is a unit, too: it gives the same numbers with another scale. Transposes
and Reshapes may stand between the members: who chooses layouts moves them out. A unit is known by its nodes alone;
whether a kernel computes it with these scales is for conditions to say.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import onnx_ir as ir

from relayout.graph.domains import CONVOLUTION, RESIZE

DEQUANTIZE, QUANTIZE = "DequantizeLinear", "QuantizeLinear"
EPILOGUES = frozenset({"Relu", "Clip"})
"""Activations that a kernel applies to its accumulators, or that the range of the result's integers implies."""
RESHAPES = frozenset({"Flatten", "Reshape"})
VIEWS = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that only look at their operand otherwise."""
QUANTIZING_DOMAINS = ("", "ai.onnx", "com.microsoft")
FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)
FLOAT_PARAMETERS: Mapping[str, frozenset[int]] = {
    "BatchNormalization": frozenset({1, 2, 3, 4}),
    **dict.fromkeys(
        ["Clip", "GroupNormalization", "InstanceNormalization", "LayerNormalization", RESIZE], frozenset({1, 2})
    ),
    **dict.fromkeys([CONVOLUTION, "ConvTranspose", "Gemm", "Pad"], frozenset({2})),
    "Pow": frozenset({1}),
}
"""Operator -> the inputs that may be real constants in a unit: bounds, scales of an image, a bias, an exponent."""
MOST_STEPS = 16  # views in a row that are followed


class Quantization(NamedTuple):
    """The meaning of integers: `(integers - zero point) * scale`."""

    node: ir.Node  # the DequantizeLinear or QuantizeLinear
    dtype: ir.DataType | None  # the type of the integers; None if it is not known

    @property
    def scale(self) -> ir.TensorProtocol | None:
        """The constant scales; None if they are computed."""
        return _constant(self.node, 1)

    @property
    def zero_point(self) -> ir.TensorProtocol | None:
        """The constant zero points; None if they are computed or absent, which means 0."""
        return _constant(self.node, 2)

    @property
    def has_zero_point(self) -> bool:
        """True if a zero point is stated."""
        return len(self.node.inputs) > 2 and self.node.inputs[2] is not None

    @property
    def is_constant(self) -> bool:
        """True if constants are dequantized: weights, not an activation."""
        return _is_constant(self.node.inputs[0])


class QuantizedUnit(NamedTuple):
    """An operator that reads dequantized integers and whose results are quantized."""

    node: ir.Node  # the operator
    # the quantization of each input; None of an input that is absent, or no real number
    operands: tuple[Quantization | None, ...]
    results: tuple[Quantization, ...]  # the QuantizeLinears that read its outputs
    # all nodes of the unit in no order: the operator, both ends, the epilogue, views between them. Constant operands'
    # own nodes are members, too.
    members: frozenset[ir.Node]

    @property
    def activations(self) -> Iterator[Quantization]:
        """The operands that are no constants, and the results."""
        yield from (each for each in self.operands if each is not None and not each.is_constant)
        yield from self.results

    @property
    def dtype(self) -> ir.DataType | None:
        """The type of the first activation that it reads."""
        return next(self.activations).dtype


def unit_of(node: ir.Node) -> QuantizedUnit | None:
    """Return the quantized unit that a node belongs to; None if it belongs to none.

    A DequantizeLinear that several units read belongs to the first of them alone: duplicate it before.
    """
    if _is(node, DEQUANTIZE):
        candidates = _operators_behind(node.outputs[0])
    elif _is(node, QUANTIZE):
        candidates = iter([_operator_before(node.inputs[0]), node])
    else:
        candidates = iter([node, _operator_before(node.inputs[0]) if _is_view(node) or _is_epilogue(node) else None])
        candidates = chain(candidates, _operators_behind(node.outputs[0]) if is_dequantized_view(node) else ())
    for candidate in candidates:
        unit = None if candidate is None else _unit(candidate)
        if unit is not None and node in unit.members:
            return unit
    return None


def is_dequantized_view(node: ir.Node) -> bool:
    """Return whether a node is a view of what is dequantized: units that read it may each have their own."""
    return _is_view(node) and _dequantized(node.inputs[0], set()) is not None


def is_reshape(node: ir.Node) -> bool:
    """Return whether a node is a view by its shapes alone: where these have no factors in common, it is none."""
    return node.op_type in RESHAPES and node.domain in ("", "ai.onnx")


def _unit(node: ir.Node) -> QuantizedUnit | None:
    members = {node}
    if _is(node, QUANTIZE):
        read = _dequantized(node.inputs[0], members)
        if read is None or read.is_constant:
            return None
        return QuantizedUnit(node, (read,), (Quantization(node, node.outputs[0].dtype),), frozenset(members))
    if _is(node, DEQUANTIZE) or not node.outputs:
        return None
    operands = _operands(node, members)
    if operands is None or all(each is None or each.is_constant for each in operands):
        return None
    results = _results(node, members)
    if not results or (_is_view(node) and any(map(_is_epilogue, members))):
        return None  # a view before an activation: the activation is the operator
    return QuantizedUnit(node, tuple(operands), tuple(results), frozenset(members))


def _operands(node: ir.Node, members: set[ir.Node]) -> list[Quantization | None] | None:
    """Return the quantization of each input; None if a real number that must be quantized is not."""
    operands: list[Quantization | None] = []
    for slot, value in enumerate(node.inputs):
        is_real = value is not None and value.dtype in FLOATS
        quantization = _dequantized(value, members) if is_real else None
        operands.append(quantization)
        if is_real and quantization is None:
            parameter = slot in FLOAT_PARAMETERS.get(node.op_type, ())
            if not parameter or not _is_constant(value):
                return None
    return operands


def _results(node: ir.Node, members: set[ir.Node]) -> list[Quantization]:
    """Return the QuantizeLinears of all outputs that are read; none if an output is read otherwise."""
    results: list[Quantization] = []
    for value in node.outputs:
        if not value.uses() and not value.is_graph_output():
            continue
        quantizers = _quantized(value, members)
        if not quantizers:
            return []
        results += quantizers
    return results


def _dequantized(value: ir.Value | None, members: set[ir.Node]) -> Quantization | None:
    """Follow views back to a DequantizeLinear; add what was passed to the members."""
    passed: list[ir.Node] = []
    for _ in range(MOST_STEPS):
        node = None if value is None else value.producer()
        if node is None:
            return None
        passed.append(node)
        if _is(node, DEQUANTIZE):
            members.update(passed)
            integers = node.inputs[0]
            return Quantization(node, None if integers is None else integers.dtype)
        if not _is_view(node):
            return None
        value = node.inputs[0]
    return None


def _quantized(value: ir.Value, members: set[ir.Node]) -> list[Quantization] | None:
    """Follow an epilogue and views on to QuantizeLinears, which alone may read a value; None if something else does."""
    passed: list[ir.Node] = []
    epilogues = 0
    for _ in range(MOST_STEPS):
        if value.is_graph_output():
            return None
        readers = [use.node for use in value.uses()]
        if readers and all(_is(reader, QUANTIZE) and reader.inputs[0] is value for reader in readers):
            members.update(passed, readers)
            return [Quantization(reader, reader.outputs[0].dtype) for reader in readers]
        if len(readers) != 1:
            return None
        (reader,) = readers
        epilogues += _is_epilogue(reader)
        if not (_is_view(reader) or _is_epilogue(reader)) or epilogues > 1 or reader.inputs[0] is not value:
            return None
        passed.append(reader)
        value = reader.outputs[0]
    return None


def _operator_before(value: ir.Value | None) -> ir.Node | None:
    """Return the operator that gives a value, before an epilogue and views."""
    for _ in range(MOST_STEPS):
        node = None if value is None else value.producer()
        if node is None or not (_is_view(node) or _is_epilogue(node)):
            return node
        before = node.inputs[0]
        producer = None if before is None else before.producer()
        if producer is None or _is(producer, DEQUANTIZE):
            return node  # a view or an activation that is a unit of its own
        value = before
    return None


def _operators_behind(value: ir.Value) -> Iterator[ir.Node | None]:
    """The operators that read a value, behind views: a view that is quantized right away is a unit of its own."""
    for reader in dict.fromkeys(use.node for use in value.uses()):
        node = reader
        for _ in range(MOST_STEPS):
            yield node
            users = [use.node for use in node.outputs[0].uses()] if _is_view(node) else []
            if len(users) != 1:
                break
            (node,) = users


def _is(node: ir.Node, op_type: str) -> bool:
    return node.op_type == op_type and node.domain in QUANTIZING_DOMAINS


def _is_view(node: ir.Node) -> bool:
    return node.op_type in VIEWS and node.domain in ("", "ai.onnx") and bool(node.inputs)


def _is_epilogue(node: ir.Node) -> bool:
    return node.op_type in EPILOGUES and node.domain in ("", "ai.onnx")


def _is_constant(value: ir.Value | None) -> bool:
    for _ in range(MOST_STEPS):
        if value is None or value.is_graph_input():
            return False
        if value.const_value is not None:
            return True
        node = value.producer()
        if node is None or not node.inputs or not (_is_view(node) or _is(node, DEQUANTIZE) or _is(node, QUANTIZE)):
            return False
        value = node.inputs[0]
    return False


def _constant(node: ir.Node, slot: int) -> ir.TensorProtocol | None:
    value = node.inputs[slot] if slot < len(node.inputs) else None
    return None if value is None or value.is_graph_input() else value.const_value
