"""Channels in blocks: padded to whole blocks before layouts are chosen, and stated as kernels want them after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from math import prod

import numpy as np
import onnx_ir as ir

from relayout.apply.blocks import JOINED, BlockSizes, Groups
from relayout.graph.source_names import stands_for
from relayout.graph.subgraphs import all_graphs, all_nodes, captured
from relayout.light_dataclass import dataclass
from relayout.lowering.constants import Constants
from relayout.rules import Facts, Operator, Regrouped, Signature
from relayout.rules.facts import operator_of
from relayout.rules.signature import unchanged

# Operands that lie in tiles, and whose node states their shapes with each tile joined to its axis.
#
# A kernel for blocks of channels reads a buffer `n c/16 h w 16`, of rank 5, and wants it to be called `n c h w`, of
# rank 4. Between the two stands a Reshape, which moves no byte. An operator on every element alone does not care: it
# takes the joined shape where that needs fewer Reshapes, so that between such kernels there are none.


def join_tiles(
    model: ir.Model,
    alike: str = "",  # operators, in one string, that do the same along the first axis in tiles under either shape
) -> int:
    """State the shapes of operands as their nodes want them, in place, with as few Reshapes as that takes.

    Returns:
        How many Reshapes there are now besides.
    """
    nodes = list(all_nodes(model.graph))
    if not any(JOINED in node.meta for node in nodes):
        return 0
    joining = _Joining(model, frozenset(alike.split()))
    graphs = list(all_graphs(model.graph))
    for graph in graphs:
        joining.decide(graph)
    for graph in graphs:
        joining.write(graph)
    return joining.count


@dataclass
class _Joining:
    model: ir.Model
    alike: frozenset[str]
    known: Facts = field(default_factory=Facts)
    joined: dict[ir.Value, Groups] = field(default_factory=dict)
    groups_of_operand: dict[ir.Node, dict[tuple[bool, int], Groups]] = field(default_factory=dict)
    shapes: dict[ir.Value, tuple[int | str | None, ...]] = field(default_factory=dict)
    value_of: dict[tuple[ir.Value, ir.Graph | None, bool], ir.Value] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.constants = Constants(self.model)
        self.names = self.constants.names

    def decide(self, graph: ir.Graph) -> None:
        """Decide which values have joined shapes: results of kernels, and of operators on elements behind them."""
        for node in graph:
            groups_by_slot = node.meta.get(JOINED)
            self.groups_of_operand[node] = self._following(node) if groups_by_slot is None else groups_by_slot
            for (output, slot), groups in self.groups_of_operand[node].items():
                if output:
                    self.joined[node.outputs[slot]] = groups

    def _following(self, node: ir.Node) -> dict[tuple[bool, int], Groups]:
        """Do the same for an operator on every element alone, where most of what it reads is given in joined shapes."""
        operand_groups = [self.joined[value] for value in node.inputs if value in self.joined]
        if (
            not operand_groups
            or len(set(operand_groups)) > 1
            or not (like := self._elementwise(node) or self._concatenated(node, operand_groups[0]))
        ):
            return {}
        others = [slot for slot in like if (value := node.inputs[slot]) not in self.joined and not _is_constant(value)]
        uses = (use for value in node.outputs for use in value.uses())
        is_wanted = any((False, use.idx) in use.node.meta.get(JOINED, {}) for use in uses)  # joined, by a kernel
        if len(others) >= len(operand_groups) + is_wanted:
            return {}
        return {(False, slot): operand_groups[0] for slot in like} | {
            (True, slot): operand_groups[0] for slot, value in enumerate(node.outputs) if value.name
        }

    def _elementwise(self, node: ir.Node) -> list[int]:
        """The inputs of an operator on every element alone, if all but single numbers have the output's shape."""
        operator = operator_of(self.model, node)
        fact = self.known.of(operator)
        if not isinstance(fact, Signature) or not _counts_no_axes(fact):
            return []
        shape = operator.outputs[0]
        read = [slot for slot, letters in enumerate(fact.inputs) if letters is not None]
        full = [slot for slot in read if operator.inputs[slot] == shape and shape is not None]
        same = all(dims == shape for dims in operator.outputs)
        rest = [operator.inputs[slot] for slot in read if slot not in full]
        numbers = all(dims is not None and len(dims) < _RANK and {*dims} <= {1} for dims in rest)
        return full if same and numbers else []

    def _concatenated(self, node: ir.Node, groups: Groups) -> list[int]:
        """Return the inputs of an operator that lays images one after another along the first axis in tiles."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in self.alike:
            return []
        first = next(place for place, group in enumerate(groups) if len(group) > 1)
        return list(range(len(node.inputs))) if node.attributes.get_int("axis", -1) == first else []

    def write(self, graph: ir.Graph) -> None:
        """Give every value its shape, and Reshapes to the uses that want another."""
        for node in list(graph):
            groups_by_slot = self.groups_of_operand[node]
            for slot, value in enumerate(node.inputs):
                groups = groups_by_slot.get((False, slot))
                if slot == 0 and self._takes_any_shape(node):
                    continue
                if value is not None and (value in self.joined) != (groups is not None):
                    node.replace_input_with(slot, self._as(value, groups, node, graph))
            for (output, slot), groups in groups_by_slot.items():
                if output and (shape := node.outputs[slot].shape) is not None:
                    self.shapes[node.outputs[slot]] = tuple(_dims(shape))
                    node.outputs[slot].shape = _joined(shape, groups)
        for slot, value in enumerate(graph.outputs):
            if value in self.joined:  # it keeps its shape and its name
                node = self._reshape(value, None)
                graph.append(node)
                graph.outputs[slot], name = node.outputs[0], value.name
                value.name = self.names.unique(f"{name}/joined")
                node.outputs[0].name = name

    def _takes_any_shape(self, node: ir.Node) -> bool:
        """Return whether a node is a Reshape, to a shape that copies no extent of what it reads."""
        if not node.inputs or node.inputs[0] not in self.joined:
            return False
        fact = self.known.of(operator_of(self.model, node))
        shape = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
        return isinstance(fact, Regrouped) and shape is not None and bool(np.all(shape.numpy() != 0))

    def _as(self, value: ir.Value, groups: Groups | None, node: ir.Node, graph: ir.Graph) -> ir.Value:
        """Return a value in its joined shape, or where `groups` is None in the one that it had."""
        constant = groups is not None and _is_constant(value)
        key = (value, None if constant else graph, groups is not None)
        if key not in self.value_of:
            if groups is not None and constant:
                self.value_of[key] = self._constant(value, groups)
            else:
                new = self._reshape(value, groups)
                graph.insert_before(node, new)
                self.value_of[key] = new.outputs[0]
        return self.value_of[key]

    def _constant(self, value: ir.Value, groups: Groups) -> ir.Value:
        tensor = value.const_value
        assert tensor is not None
        shape = _joined(tensor.shape.numpy(), groups)
        extents = shape.numpy()

        def stated() -> ir.TensorProtocol:
            return ir.Tensor(np.ascontiguousarray(tensor.numpy()).reshape(extents), dtype=tensor.dtype, shape=shape)

        lazy = ir.LazyTensor(stated, tensor.dtype, shape)
        if not value.is_graph_output() and all(
            (False, use.idx) in self.groups_of_operand[use.node] for use in value.uses()
        ):
            value.const_value, value.shape = lazy, shape
            return value
        new = ir.val(self.names.unique(f"{value.name}/joined"), const_value=lazy)
        graph = value.graph or self.model.graph
        graph.register_initializer(new)
        return new

    def _reshape(self, value: ir.Value, groups: Groups | None) -> ir.Node:
        assert value.shape is not None
        shape = ir.Shape(self.shapes[value]) if groups is None else _joined(value.shape, groups)
        name = self.names.unique(f"{value.name}/{'joined' if groups else 'tiles'}")
        output = ir.Value(name=name, type=value.type, shape=shape)
        output.metadata_props.update(value.metadata_props)
        stated = np.array([dim if isinstance(dim, int) else 0 for dim in shape], np.int64)
        constant = self.constants.new(f"{name}/shape", stated)
        self.count += 1
        return ir.Node("", "Reshape", [value, constant], outputs=[output], name=self.names.unique(f"{name}/Reshape"))


_RANK = 5  # a number of this rank would give a joined operand, of rank 4, a dimension more


def _counts_no_axes(fact: Signature) -> bool:
    needs = fact.variants or fact.whole or fact.block or fact.tail or fact.head or fact.with_reader
    return not needs and fact.changes is unchanged and any(letters is not None for letters in fact.outputs)


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.is_initializer() and not value.is_graph_input()


def _dims(shape: Iterable[int | ir.SymbolicDim]) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in shape]


def _joined(shape: ir.Shape | Sequence[int | ir.SymbolicDim], groups: Groups) -> ir.Shape:
    """Return a shape with its tiles joined: what is dynamic keeps its place."""
    dims = _dims(shape)
    stated: list[int | str | None] = []
    for group in groups:
        parts = [dims[place] for place in group]
        numbers = [dim for dim in parts if isinstance(dim, int)]
        stated.append(prod(numbers) if len(numbers) == len(parts) else parts[0] if len(parts) == 1 else None)
    return ir.Shape(stated)


CHANNELS, IMAGE = 1, 4  # the axis of the channels, and the rank of an image


def pad_channels(model: ir.Model, blocks: BlockSizes) -> dict[str, int]:
    """Bring channels up to whole blocks where zeros in constant kernels do it, in place.

    Returns:
        How many values have more channels now.
    """
    padding = _Padding(model, blocks)
    padding.look()
    return {f"to whole blocks of {blocks.tile}": padding.pad()}


@dataclass
class _Node:
    """The changes that more channels mean for a node."""

    node: ir.Node
    alike: list[ir.Value]  # the values that have as many channels as each other, and go on having as many
    # constants that have an item for each channel that it gives, by slot, and the axis
    rows: dict[int, int] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)  # the same for each channel that it reads
    groups: bool = False  # whether there is a group for each channel


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
            entry = self._convolution(node) or self._between(node)
            self.bad.update(captured(node))
            if entry is None:
                self.bad.update(value for value in (*node.inputs, *node.outputs) if value is not None)
                continue
            self.nodes.append(entry)
            for value in entry.alike[1:]:
                self.parent[self._of(value)] = self._of(entry.alike[0])

    def _of(self, value: ir.Value) -> ir.Value:
        while (above := self.parent.get(value, value)) is not value:
            self.parent[value] = value = self.parent.get(above, above)
        return value

    def _convolution(self, node: ir.Node) -> _Node | None:
        if node.op_type not in self.blocks.padded_kernels.split() or node.domain not in ("", "ai.onnx"):
            return None
        operator = operator_of(self.model, node)
        kernel, constants = operator.shape(1), all(self.constants.of(value) for value in node.inputs[1:] if value)
        if kernel is None or len(kernel) != IMAGE or not constants or node.inputs[0] is None:
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
        entry = _Node(node, [node.outputs[0]])
        for slot, letters in enumerate(fact.inputs):
            value = node.inputs[slot]
            if letters is None or value is None:
                continue
            channels = _extent(operator, slot)
            if channels == 1:
                continue
            if channels is not None and self.constants.of(value):
                entry.rows[slot] = len(letters) - IMAGE + CHANNELS
            elif channels is not None and operator.rank(slot) == IMAGE:
                entry.alike.append(value)
            else:
                return None
        return entry

    def pad(self) -> int:
        """Give the values that may have them more channels."""
        bad = {self._of(value) for value in self.bad}
        more = dict(self._more(bad))
        for entry in self.nodes:
            node = entry.node
            added_outputs, added_inputs = (
                more.get(node.outputs[0], 0),
                more.get(node.inputs[0], 0) if node.inputs[0] else 0,
            )
            for places, count in ((entry.rows, added_outputs), (entry.columns, added_inputs)):
                for slot, axis in places.items():
                    value = self.constants.of(node.inputs[slot])
                    if count and value is not None:
                        node.replace_input_with(slot, self._padded(value, axis, count))
            if entry.groups and added_outputs:
                groups = node.attributes.get_int("group", 1)
                node.attributes.add(ir.AttrInt64("group", groups + added_outputs))
        for value, count in more.items():
            dims = list(value.shape or ())
            dims[CHANNELS] = count + dims[CHANNELS]
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
            channels = shape[CHANNELS]
            if isinstance(channels, int) and channels % tile and 2 * channels >= tile:
                yield value, -channels % tile

    def _padded(self, value: ir.Value, axis: int, count: int) -> ir.Value:
        key = value, axis, count
        if key not in self.wider:
            assert value.const_value is not None
            array = value.const_value.numpy()
            wide = np.pad(array, [(0, count if place == axis else 0) for place in range(array.ndim)])
            self.wider[key] = self.constants.new(f"{value.name}/padded", wide)
        return self.wider[key]


def _extent(operator: Operator, slot: int) -> int | None:
    """Return how many channels an operand has, its axis counted from the last; 1 without it; None: not known."""
    shape = operator.shape(slot)
    if shape is None:
        return None
    place = len(shape) - IMAGE + CHANNELS
    extent = shape[place] if place >= 0 else 1
    return extent if isinstance(extent, int) else None
