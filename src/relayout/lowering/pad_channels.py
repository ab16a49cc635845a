"""Channels up to whole blocks, before any layout is chosen: zeros in the kernels around them.

`a[24] = Conv(x, u)  b[24] = Relu(a)  y = Conv(b, v)`: with eight rows of zeros more in `u`, and eight columns of zeros
more in `v`, `a` and `b` have 32 channels and `y` is what it was. What lies in the new channels does not matter, as long
as it is a number: zero times it is zero. So between two such kernels may stand what gives numbers for numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

import numpy as np
import onnx_ir as ir

from relayout.apply.blocks import BlockSizes
from relayout.graph.source_names import stands_for
from relayout.graph.subgraphs import captured
from relayout.light_dataclass import dataclass
from relayout.lowering.constants import Constants
from relayout.rules import Facts, Operator, Signature
from relayout.rules.facts import operator_of
from relayout.rules.signature import unchanged

CHANNELS, IMAGE = 1, 4
"""The axis of the channels, and the rank of an image."""


def pad_channels(model: ir.Model, blocks: BlockSizes) -> int:
    """Bring channels up to whole blocks where zeros in constant kernels do it, in place.

    Returns:
        How many values have more channels now.
    """
    padding = _Padding(model, blocks)
    padding.look()
    return padding.pad()


@dataclass
class _Node:
    """What more channels mean for a node.

    Args:
        node: the node.
        alike: the values that have as many channels as each other, and go on having as many.
        rows: constants that have an item for each channel that it gives, by slot, and the axis.
        columns: the same for each channel that it reads.
        groups: whether there is a group for each channel.
    """

    node: ir.Node
    alike: list[ir.Value]
    rows: dict[int, int] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)
    groups: bool = False


class _Padding:
    def __init__(self, model: ir.Model, blocks: BlockSizes) -> None:
        self.model, self.blocks, self.known = model, blocks, Facts()
        self.constants = Constants(model)
        self.parent: dict[ir.Value, ir.Value] = {}
        self.bad: set[ir.Value] = {*model.graph.inputs, *model.graph.outputs}
        self.nodes: list[_Node] = []
        self.wider: dict[tuple[ir.Value, int, int], ir.Value] = {}

    # Which values

    def look(self) -> None:
        """Find the values that may have more channels, and those that have as many as each other."""
        for node in self.model.graph:
            found = self._convolution(node) or self._between(node)
            self.bad.update(captured(node))
            if found is None:
                self.bad.update(value for value in (*node.inputs, *node.outputs) if value is not None)
                continue
            self.nodes.append(found)
            for value in found.alike[1:]:
                self.parent[self._of(value)] = self._of(found.alike[0])

    def _of(self, value: ir.Value) -> ir.Value:
        while (above := self.parent.get(value, value)) is not value:
            self.parent[value] = value = self.parent.get(above, above)
        return value

    def _convolution(self, node: ir.Node) -> _Node | None:
        operator = operator_of(self.model, node)
        kernel = operator.shape(1)
        if (
            node.op_type not in self.blocks.padded_kernels.split()
            or node.domain not in ("", "ai.onnx")
            or kernel is None
        ):
            return None
        constants = all(self.constants.of(value) for value in node.inputs[1:] if value is not None)
        if len(kernel) != IMAGE or not constants or node.inputs[0] is None:
            return None
        rows = {slot: 0 for slot in (1, 2) if operator.has(slot)}
        groups = operator.int("group", 1)
        if groups == 1:
            return _Node(node, [], rows, {1: 1})
        ends = [node.inputs[0], node.outputs[0]]
        return _Node(node, ends, rows, groups=True) if kernel[:2] == (groups, 1) else None

    def _between(self, node: ir.Node) -> _Node | None:
        """An operator on every element alone, or on windows of a channel, that gives numbers for numbers."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in self.blocks.padded.split():
            return None
        operator = operator_of(self.model, node)
        fact, shape = self.known.of(operator), operator.outputs[0]
        if not isinstance(fact, Signature) or shape is None or len(shape) != IMAGE or operator.gives(1):
            return None
        if fact.broadcast and fact.changes is not unchanged:
            return None
        found = _Node(node, [node.outputs[0]])
        for slot, letters in enumerate(fact.inputs):
            value = node.inputs[slot]
            if letters is None or value is None:
                continue
            held = _extent(operator, slot)
            if held == 1:
                continue
            if held is not None and self.constants.of(value):
                found.rows[slot] = len(letters) - IMAGE + CHANNELS
            elif held is not None and operator.rank(slot) == IMAGE:
                found.alike.append(value)
            else:
                return None
        return found

    def pad(self) -> int:
        """Give the values that may have them more channels."""
        bad = {self._of(value) for value in self.bad}
        more = dict(self._more(bad))
        for found in self.nodes:
            node = found.node
            given, read = more.get(node.outputs[0], 0), more.get(node.inputs[0], 0) if node.inputs[0] else 0
            for places, count in ((found.rows, given), (found.columns, read)):
                for slot, axis in places.items():
                    value = self.constants.of(node.inputs[slot])
                    if count and value is not None:
                        node.replace_input_with(slot, self._padded(value, axis, count))
            if found.groups and given:
                groups = node.attributes.get_int("group", 1)
                node.attributes.add(ir.AttrInt64("group", groups + given))
        for value, count in more.items():
            assert value.shape is not None
            dims = list(value.shape)
            held = dims[CHANNELS]
            assert isinstance(held, int)
            dims[CHANNELS] = held + count
            value.shape = ir.Shape(dims)
            stands_for(value, value)
            value.name = self.constants.names.unique(f"{value.name}/padded")
        return len(more)

    def _more(self, bad: set[ir.Value]) -> Iterator[tuple[ir.Value, int]]:
        """Values, and how many channels more they have."""
        for value in dict.fromkeys(node.node.outputs[0] for node in self.nodes):
            shape, tile = value.shape, self.blocks.tile
            if self._of(value) in bad or shape is None or len(shape) != IMAGE or value.dtype != ir.DataType.FLOAT:
                continue
            held = shape[CHANNELS]
            if isinstance(held, int) and held % tile and 2 * held >= tile:
                yield value, -held % tile

    def _padded(self, value: ir.Value, axis: int, count: int) -> ir.Value:
        key = value, axis, count
        if key not in self.wider:
            assert value.const_value is not None
            array = value.const_value.numpy()
            wide = np.pad(array, [(0, count if place == axis else 0) for place in range(array.ndim)])
            self.wider[key] = self.constants.new(f"{value.name}/padded", wide)
        return self.wider[key]


def _extent(operator: Operator, slot: int) -> int | None:
    """How many channels an operand has, counted from the last axis; 1 where it has none; None: not known."""
    shape = operator.shape(slot)
    if shape is None:
        return None
    place = len(shape) - IMAGE + CHANNELS
    held = shape[place] if place >= 0 else 1
    return held if isinstance(held, int) else None
