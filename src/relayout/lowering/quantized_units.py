"""Quantized units -> the operators on integers that a target has, before any layout is chosen.

A unit is an operator with a DequantizeLinear before every operand and a QuantizeLinear after its result; of some rows
the latter alone, and what they read is quantized first. The QuantizeLinear becomes the operator on integers, in place:
the value that it gives, and its name, stay. A unit for which the target has no row stays as it is, and so does one that
is better on real numbers (`keep_float.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.graph.source_names import stands_for
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.constants import Constants
from relayout.lowering.unit_integers import BYTES, IntegerReader, byte_range
from relayout.lowering.unit_operands import DeclinedError, MatchedUnit, UnitOperands
from relayout.lowering.unit_rows import DEQUANTIZING, QUANTIZING, Unit, vanishes
from relayout.lowering.unsigned_units import make_unsigned
from relayout.rules.in_graph import operator_of

AXES_AS_INPUT = 13
"""Opset from which the axes of a Squeeze are an input."""


def fuse_units(model: ir.Model, units: Sequence[Unit], unsigned: bool = False) -> dict[str, int]:
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
        if node.op_type in QUANTIZING and not node.domain:
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
        self._operands = UnitOperands(self.reader, self.end)

    def end(self, node: ir.Node) -> None:
        """Write the unit that a QuantizeLinear ends, if there is one that some row fits."""
        found = self._found(node)
        if found is None:
            return
        dtype = found.result.values.dtype
        for unit in self.units:
            if dtype is None or unit.reals or not unit.takes(found.operator, dtype.name):
                continue
            try:
                inputs = self._operands.of(unit, found)
            except DeclinedError:
                continue
            self._write(unit, found, inputs)
            return

    def clear(self) -> None:
        """Remove the nodes that nothing reads any longer."""
        for node in reversed(list(all_nodes(self.model.graph))):
            if node in self.reader.left and node.graph is not None and not any(_read(value) for value in node.outputs):
                node.graph.remove(node, safe=True)

    # What a unit is

    def _found(self, end: ir.Node) -> MatchedUnit | None:
        result = self.reader.integers(end, end.outputs[0])
        value = end.inputs[0]
        if result is None or not result.is_plain or result.values.dtype not in BYTES:
            return None
        scale, zero = float(result.scales[0]), int(result.zeros[0])
        ends = byte_range(result.values)
        node = _before(value, end)
        between: list[ir.Node] = []
        while node is not None and vanishes(operator_of(self.model, node), scale, zero, ends):
            between.append(node)
            node = _before(node.inputs[0], node)
        if node is None or node.op_type in DEQUANTIZING:
            return None
        operands = [None if read is None else self.reader.dequantized(read) for read in node.inputs]
        operator, dtype = operator_of(self.model, node), result.values.dtype.name
        early = any(unit.early and unit.takes(operator, dtype) for unit in self.units)
        if all(operand is None for operand in operands) and not early:
            return None
        self.reader.left.update(dict.fromkeys((*between, node)))
        return MatchedUnit(node, operator, end, result, operands)

    def _write(self, unit: Unit, found: MatchedUnit, inputs: Sequence[ir.Value | None]) -> None:
        """The QuantizeLinear becomes the operator on integers, or the Squeeze after it."""
        node, end = found.node, found.end
        domain, _, op_type = (unit.written or node.op_type).rpartition(":")
        said = dict(unit.attributes(found.operator))
        kept = [attribute for attribute in node.attributes.values() if attribute.name not in said and not unit.affine]
        kept += [ir.convenience.convert_attribute(name, value) for name, value in said.items() if value is not None]
        squeezed = unit.squeezed(found.operator)
        if squeezed:
            before = ir.Node(domain, op_type, inputs, kept, outputs=[self._unsqueezed(end, squeezed)], name=node.name)
            assert end.graph is not None
            end.graph.insert_before(end, before)
            self._turn(end, "", "Squeeze", *self._axes(before.outputs[0], squeezed))
        else:
            self._turn(end, domain, op_type, inputs, kept)
            end.name = node.name or end.name
        if domain:
            self.model.opset_imports.setdefault(domain, 1)
        self.counts[f"{domain}:{op_type}" if domain else op_type] += 1

    def _turn(
        self, end: ir.Node, domain: str, op_type: str, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr]
    ) -> None:
        """Make another node of the end of a unit; what it gives stays."""
        end.domain, end.op_type = domain, op_type
        end.attributes.clear()
        for attribute in attributes:
            end.attributes.add(attribute)
        end.resize_inputs(len(inputs))
        for slot, read in enumerate(inputs):
            end.replace_input_with(slot, read)

    def _unsqueezed(self, end: ir.Node, axes: Sequence[int]) -> ir.Value:
        """What a unit gives, before a Squeeze takes axes from it."""
        given = end.outputs[0]
        dims: list[int | ir.SymbolicDim] = list(given.shape or ())
        for axis in axes:
            dims.insert(axis, 1)
        shape = None if given.shape is None else ir.Shape(dims)
        kept = ir.Value(name=self.names.unique(f"{given.name}/kept"), type=given.type, shape=shape)
        stands_for(kept, given)
        return kept

    def _axes(self, value: ir.Value, axes: Sequence[int]) -> tuple[list[ir.Value | None], list[ir.Attr]]:
        """Inputs and attributes of a Squeeze."""
        if self.model.opset_imports.get("", 1) < AXES_AS_INPUT:
            return [value], [ir.AttrInt64s("axes", list(axes))]
        return [value, self.constants.new(f"{value.name}/axes", np.array(axes, np.int64))], []


def _before(value: ir.Value | None, reader: ir.Node) -> ir.Node | None:
    """The node that gives a value to one reader alone, in the same graph, and gives nothing else."""
    node = None if value is None else value.producer()
    if value is None or node is None or node.graph is not reader.graph or len(value.uses()) != 1:
        return None
    others = [other for other in node.outputs if other is not value and _read(other)]
    return None if others or value.is_graph_output() else node


def _read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()
