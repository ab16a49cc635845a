"""Quantized units -> the operators on integers that a target has, before any layout is chosen.

A unit is an operator with a DequantizeLinear before every operand and a QuantizeLinear after its result; of some rows
the latter alone, and what they read is quantized first. The QuantizeLinear becomes the operator on integers, in place:
the value that it gives, and its name, stay. A unit for which the target has no row stays as it is, and so does one that
is better on real numbers (`keep_reals`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from relayout.apply.provenance import holds_itself
from relayout.formats.onnx.parts import ANNOTATION
from relayout.graph.quantized_unit import BYTES as BYTE_TYPES
from relayout.graph.quantized_unit import DEQUANTIZE, QUANTIZE, SHIFTS, dequantizer_of, is_view_node
from relayout.graph.source_names import stands_for
from relayout.graph.subgraphs import all_nodes, become
from relayout.graph.walks import behind, readers_behind
from relayout.light_dataclass import dataclass
from relayout.lowering.conditions import clip_bounds
from relayout.lowering.constants import Constants
from relayout.lowering.unit_rows import (
    IntegerReader,
    Integers,
    Unit,
    affine_weights,
    bias_in_steps,
    known_constant,
    scale_and_shift,
)
from relayout.rules import Operator
from relayout.rules.facts import operator_of

# What stays on real numbers between integers, written so that the runtime's optimizer leaves it there.
#
# A row says so where a runtime makes an operator on integers of a unit that takes longer than the unit does. The node
# becomes one that its optimizer does not look for, and computes the same.


def keep_reals(model: ir.Model, units: Sequence[Unit]) -> dict[str, int]:
    """Write what a target runs best on real numbers, in place, before its units become operators on integers.

    Returns:
        Operator -> how many nodes it runs now.
    """
    rows = [unit for unit in units if unit.reals]
    named = {name for row in rows for name in row.op_types.split()}
    counts: Counter[str] = Counter()
    for node in [node for node in all_nodes(model.graph) if node.op_type in named]:
        dequantize = dequantizer_of(behind(node.inputs[0], is_view_node))
        integers = None if dequantize is None else dequantize.inputs[0]
        if integers is None or integers.dtype is None:
            continue
        operator, dtype = operator_of(model, node), integers.dtype.name
        row = next((row for row in rows if row.takes(operator, dtype)), None)
        if row is not None:
            domain, _, op_type = row.written.rpartition(":")
            node.domain, node.op_type = domain, op_type
            model.opset_imports.setdefault(domain, 1)
            counts[row.written] += 1
    return dict(sorted(counts.items()))


def read_as_reals(value: ir.Value, units: Sequence[Unit]) -> bool:
    """Return whether nothing but what stays on real numbers reads a value, over views."""
    written = {unit.written for unit in units if unit.reals}
    readers = readers_behind(value, is_view_node) if written else []
    return bool(readers) and all(node is not None and f"{node.domain}:{node.op_type}" in written for node in readers)


# Data between quantized units as uint8, for targets whose kernels take no int8.


def make_unsigned(model: ir.Model, units: Sequence[Unit], reader: IntegerReader) -> None:
    """Store the data between units as uint8: an integer and its zero point move by 128, and mean the same."""
    for node in list(all_nodes(model.graph)):
        if node.domain or node.op_type not in (QUANTIZE, DEQUANTIZE) or not _is_signed(reader, node):
            continue
        value = node.outputs[0]
        if node.op_type == QUANTIZE and _ends_in_signed(reader, value):
            _shift(reader, node)
            stands_for(value, value)
            holds_itself(value)
            value.meta.pop(ANNOTATION, None)  # its zero point is that of the other type
            value.dtype, value.name = ir.DataType.UINT8, reader.names.unique(f"{value.name}/unsigned")
            for use in value.uses():
                _shift(reader, use.node)
        elif node.op_type == QUANTIZE and value.is_graph_output():
            _pair(reader, node, node.inputs[0], after=False)
        elif node.op_type == DEQUANTIZE and node.inputs[0] in model.graph.inputs and value.uses():
            if read_as_reals(value, units):
                continue  # nothing is gained by another type
            _pair(reader, node, value, after=True)


def _ends_in_signed(reader: IntegerReader, value: ir.Value) -> bool:
    """Tell whether nodes that dequantize int8 alone read a value, as their first operand."""
    uses = value.uses()
    alone = all(use.idx == 0 and use.node.op_type == DEQUANTIZE and not use.node.domain for use in uses)
    return bool(uses) and alone and not value.is_graph_output() and all(_is_signed(reader, use.node) for use in uses)


def _is_signed(reader: IntegerReader, node: ir.Node) -> bool:
    """Tell whether a node quantizes or dequantizes int8, as a whole."""
    integers = reader.integers(node)
    named = len(node.inputs) > 2 and node.inputs[2] is not None
    return integers is not None and named and integers.meaning.is_one and integers.meaning.dtype == ir.DataType.INT8


def _shift(reader: IntegerReader, node: ir.Node) -> None:
    node.attributes.pop("output_dtype", None)
    node.replace_input_with(2, reader.shifted(node.inputs[2]))


def _pair(reader: IntegerReader, node: ir.Node, value: ir.Value | None, *, after: bool) -> None:
    """A QuantizeLinear to uint8 and back at an end of the model, which keeps its int8."""
    assert value is not None
    parameters, uses = [node.inputs[1], reader.shifted(node.inputs[2])], list(value.uses())
    integers = ir.TensorType(ir.DataType.UINT8)
    quantize = _end(reader, QUANTIZE, [value, *parameters], f"{value.name}/unsigned", integers, value)
    stored = quantize.outputs[0]
    dequantize = _end(reader, DEQUANTIZE, [stored, *parameters], f"{value.name}/real", value.type, value)
    assert node.graph is not None
    if after:
        node.graph.insert_after(node, [quantize, dequantize])
        for use in uses:
            use.node.replace_input_with(use.idx, dequantize.outputs[0])
    else:
        node.graph.insert_before(node, [quantize, dequantize])
        node.replace_input_with(0, dequantize.outputs[0])


def _end(
    reader: IntegerReader,
    op_type: str,
    inputs: Sequence[ir.Value | None],
    name: str,  # of what it gives
    kind: ir.TypeProtocol | None,  # the type of that
    value: ir.Value,  # what the node and its result stand for
) -> ir.Node:
    """Return a QuantizeLinear or a DequantizeLinear."""
    result = ir.Value(name=reader.names.unique(name), type=kind, shape=value.shape)
    node = ir.Node("", op_type, inputs, outputs=[result], name=reader.names.unique(f"{result.name}/{op_type}"))
    stands_for(result, value)
    stands_for(node, value)
    return node


class DeclinedError(Exception):
    """A row does not fit a unit."""


@dataclass
class MatchedUnit:
    """A unit: its operator, between what it reads and the QuantizeLinear that it ends in."""

    node: ir.Node
    operator: Operator
    end: ir.Node
    result: Integers
    operands: list[Integers | None]


FORMS = {"": "data", "=": "alike", "w": "kernel", "b": "bias", "q": "quantized", ".": "raw", "y": "result"}
"""Letter of `Unit.operands` -> what it is."""


def _slots(operands: str, count: int) -> Iterator[tuple[int, str]]:
    """(operand, form) of each word of `Unit.operands`."""
    following = 0
    for word in operands.split():
        if word == "y":
            yield -1, word
        elif word[0] == "*":
            yield from ((slot, word[1:]) for slot in range(following, count))
        else:
            slot = int(word[0])
            following = slot + 1
            yield slot, word[1:]


def _at(match: MatchedUnit, slot: int) -> Integers:
    operand = match.operands[slot] if slot < len(match.operands) else None
    if operand is None:
        raise DeclinedError
    return operand


AXES_AS_INPUT = 13  # opset from which the axes of a Squeeze are an input


def fuse_units(model: ir.Model, units: Sequence[Unit], unsigned: bool) -> dict[str, int]:
    """Write quantized units as the operators on integers that a target has, in place.

    Returns:
        Operator on integers -> how many units it runs now.
    """
    if not units:
        return {}
    fusing = _Fusing(model, units)
    if unsigned:
        make_unsigned(model, units, fusing.reader)
    for node in list(all_nodes(model.graph)):
        if node.op_type == QUANTIZE and not node.domain:
            fusing.end(node)
    fusing.clear()
    return dict(sorted(fusing.counts.items()))


class _Fusing:
    def __init__(self, model: ir.Model, units: Sequence[Unit]) -> None:
        self.model, self.units = model, units
        self.counts: Counter[str] = Counter()
        self.constants = Constants(model)
        self.names = self.constants.names
        self.reader = IntegerReader(self.constants)

    def end(self, node: ir.Node) -> None:
        """Write the unit that a QuantizeLinear ends, if there is one that some row fits."""
        match = self._matched_unit(node)
        if match is None:
            return
        dtype = match.result.meaning.dtype
        for unit in self.units:
            if unit.reals or not unit.takes(match.operator, dtype.name):
                continue
            try:
                inputs = self._operands(unit, match)
            except DeclinedError:
                continue
            self._write(unit, match, inputs)
            return

    def clear(self) -> None:
        """Remove the nodes that nothing reads any longer."""
        for node in reversed(list(all_nodes(self.model.graph))):
            if node in self.reader.left and node.graph is not None and not any(_read(value) for value in node.outputs):
                node.graph.remove(node, safe=True)

    # What a unit is

    def _matched_unit(self, end: ir.Node) -> MatchedUnit | None:
        result = self.reader.integers(end)
        if result is None or not result.meaning.is_one or result.meaning.dtype not in BYTE_TYPES:
            return None
        node = _before(end.inputs[0], end)
        between: list[ir.Node] = []
        # An activation vanishes of which the integers' range cuts as much.
        while node is not None and (bounds := clip_bounds(operator_of(self.model, node))) is not None:
            if not all(result.meaning.implies(bounds)):
                break
            between.append(node)
            node = _before(node.inputs[0], node)
        if node is None or node.op_type == DEQUANTIZE:
            return None
        operands = [None if read is None else self.reader.dequantized(read) for read in node.inputs]
        operator, dtype = operator_of(self.model, node), result.meaning.dtype.name
        early = any(unit.early and unit.takes(operator, dtype) for unit in self.units)
        if all(operand is None for operand in operands) and not early:
            return None
        self.reader.left.update(dict.fromkeys((*between, node)))
        return MatchedUnit(node, operator, end, result, operands)

    def _write(self, unit: Unit, match: MatchedUnit, inputs: Sequence[ir.Value | None]) -> None:
        """The QuantizeLinear becomes the operator on integers, or the Squeeze after it."""
        node, end = match.node, match.end
        domain, _, op_type = (unit.written or node.op_type).rpartition(":")
        said = dict(unit.attributes(match.operator))
        attributes = [
            attribute for attribute in node.attributes.values() if attribute.name not in said and not unit.affine
        ]
        attributes += [
            ir.convenience.convert_attribute(name, value) for name, value in said.items() if value is not None
        ]
        squeezed = unit.squeezed(match.operator)
        if squeezed:
            output = end.outputs[0]
            dims: list[int | ir.SymbolicDim] = list(output.shape or ())
            for axis in squeezed:
                dims.insert(axis, 1)
            shape = None if output.shape is None else ir.Shape(dims)
            whole = ir.Value(name=self.names.unique(f"{output.name}/kept"), type=output.type, shape=shape)
            stands_for(whole, output)
            assert end.graph is not None
            end.graph.insert_before(end, ir.Node(domain, op_type, inputs, attributes, outputs=[whole], name=node.name))
            if self.model.opset_imports.get("", 1) < AXES_AS_INPUT:
                become(end, "", "Squeeze", [whole], [ir.AttrInt64s("axes", list(squeezed))])
            else:
                axes = self.constants.new(f"{whole.name}/axes", np.array(squeezed, np.int64))
                become(end, "", "Squeeze", [whole, axes], [])
        else:
            become(end, domain, op_type, inputs, attributes)
            end.name = node.name or end.name
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        self.counts[f"{domain}:{op_type}" if domain else op_type] += 1

    # The operands of an operator on integers, as a row of the target asks for them

    def _operands(self, unit: Unit, match: MatchedUnit) -> list[ir.Value | None]:
        """Return the operands of the operator on integers.

        Raises:
            DeclinedError: the row does not fit the unit.
        """
        if unit.affine:
            return self._affine(match)
        inputs: list[ir.Value | None] = []
        for slot, form in _slots(unit.operands, len(match.operands)):
            inputs += getattr(self, f"_{FORMS[form]}")(unit, match, slot)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs

    def _result(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        return [match.result.scale, match.result.zero]

    def _data(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        operand = _at(match, slot)
        kinds = operand.values.dtype, match.result.values.dtype
        if operand.meaning.is_one and kinds == BYTE_TYPES and known_constant(operand.values) is not None:
            return [self.reader.shifted(operand.values), operand.scale, self.reader.shifted(operand.zero)]
        if not operand.meaning.is_one or kinds[0] != kinds[1]:
            raise DeclinedError
        return [operand.values, operand.scale, operand.zero]

    def _alike(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        if unit.early and match.operands[slot] is None:
            return [self._earlier(match, slot)]
        operand = _at(match, slot)
        if not operand.meaning.is_same(match.result.meaning):
            raise DeclinedError
        return [operand.values]

    def _earlier(self, match: MatchedUnit, slot: int) -> ir.Value:
        """Return an operand, quantized as the result is; what gives it may be a unit now."""
        real, node = match.node.inputs[slot], match.node
        if real is None or real.dtype != ir.DataType.FLOAT or node.graph is None:
            raise DeclinedError
        read, kind = [real, match.result.scale, match.result.zero], ir.TensorType(match.result.meaning.dtype)
        end = _end(self.reader, QUANTIZE, read, f"{real.name}/quantized", kind, real)
        stands_for(end, match.end)
        node.graph.insert_before(node, end)
        node.replace_input_with(slot, None)
        self.end(end)
        return end.outputs[0]

    def _kernel(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        operand = _at(match, slot)
        own, data = operand.values.dtype, match.result.values.dtype
        rank = None if operand.values.shape is None else len(operand.values.shape)
        # One column has no scales of its own: those of a vector lie along what is summed over.
        meaning = operand.meaning
        along = meaning.is_one or (
            rank is not None and rank > 1 and meaning.axis == unit.channel(match.operator) % rank
        )
        if (own != data and (own, data) != BYTE_TYPES) or not along or len(set(meaning.zero.tolist())) > 1:
            raise DeclinedError
        return [operand.values, operand.scale, operand.zero]

    def _bias(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        if slot >= len(match.operands) or match.node.inputs[slot] is None:
            return [None]
        bias, own = self.reader.real(match.node.inputs[slot]), match.operands[slot]
        data, kernel = _at(match, 0), _at(match, 1)
        if bias is None or bias.ndim != 1:
            raise DeclinedError
        steps = data.meaning.scale.astype(np.float64) * kernel.meaning.scale
        stored = None if own is None else known_constant(own.values)
        integers = bias_in_steps(bias, steps, match.result.meaning.step)
        if integers is None:
            raise DeclinedError
        if own is not None and stored is not None and np.array_equal(stored, integers):
            return [own.values]
        return [self.constants.new(f"{match.node.name or match.end.outputs[0].name}/bias", integers)]

    def _quantized(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        has_operand = slot < len(match.operands) and match.node.inputs[slot] is not None
        real = self.reader.real(match.node.inputs[slot]) if has_operand else np.zeros(())
        if real is None:
            raise DeclinedError
        meaning = match.result.meaning
        array = (meaning.integers(real) + SHIFTS.get(meaning.dtype, 0)).astype(meaning.dtype.numpy())
        return [self.constants.new(f"{match.node.name or match.end.outputs[0].name}/{slot}", array)]

    def _raw(self, unit: Unit, match: MatchedUnit, slot: int) -> list[ir.Value | None]:
        return [match.node.inputs[slot] if slot < len(match.operands) else None]

    def _affine(self, match: MatchedUnit) -> list[ir.Value | None]:
        known = scale_and_shift(match.operator, [self.reader.real(read) for read in match.node.inputs])
        if known is None:
            raise DeclinedError
        slot, scale, shift = known
        data = _at(match, slot)
        if not data.meaning.is_one or data.values.dtype != match.result.values.dtype:
            raise DeclinedError
        parameters = affine_weights(scale, shift, data.meaning.step, match.result.meaning.step)
        if parameters is None:
            raise DeclinedError
        weights, steps, bias = parameters
        rank = match.operator.rank(slot) or 0
        stem = match.node.name or match.end.outputs[0].name or match.node.op_type
        kernel = self.constants.new(f"{stem}/kernel", weights.reshape(-1, *(1,) * (rank - 1)))
        return [
            *(data.values, data.scale, data.zero, kernel),
            *(self.constants.new(f"{stem}/kernel_scale", steps), self.reader.zero(ir.DataType.INT8)),
            *(match.result.scale, match.result.zero, self.constants.new(f"{stem}/bias", bias)),
        ]


def _before(value: ir.Value | None, reader: ir.Node) -> ir.Node | None:
    """Return the node that gives a value to one reader alone, in the same graph, and gives nothing else."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.graph is not reader.graph or len(value.uses()) != 1:
        return None
    others = [other for other in node.outputs if other is not value and _read(other)]
    return None if others or value.is_graph_output() else node


def _read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
