"""Operands that lie in tiles, and whose node states their shapes with each tile joined to its axis.

A kernel for blocks of channels reads a buffer `n c/16 h w 16`, of rank 5, and wants it to be called `n c h w`, of rank
4. Between the two stands a Reshape, which moves no byte. An operator on every element alone does not care: it takes the
joined shape where that needs fewer Reshapes, so that between such kernels there are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from math import prod

import numpy as np
import onnx_ir as ir

from relayout.apply.blocks import JOINED, Groups
from relayout.graph.subgraphs import all_nodes, bodies
from relayout.light_dataclass import dataclass
from relayout.lowering.constants import Constants
from relayout.rules import Facts, Regrouped, Signature
from relayout.rules.facts import operator_of
from relayout.rules.signature import unchanged


def join_tiles(model: ir.Model, alike: str = "") -> int:
    """State the shapes of operands as their nodes want them, in place, with as few Reshapes as that takes.

    Args:
        model: the model.
        alike: operators, in one string, that do the same along the first axis in tiles under either shape.

    Returns:
        How many Reshapes there are now besides.
    """
    nodes = list(all_nodes(model.graph))
    if not any(JOINED in node.meta for node in nodes):
        return 0
    joining = _Joining(model, frozenset(alike.split()))
    for graph in _graphs(model.graph):
        joining.decide(graph)
    for graph in _graphs(model.graph):
        joining.write(graph)
    return joining.count


def _graphs(graph: ir.Graph) -> list[ir.Graph]:
    """A graph and the bodies of its nodes, outer ones first."""
    return [graph, *(inner for node in graph for body in bodies(node) for inner in _graphs(body))]


@dataclass
class _Joining:
    model: ir.Model
    alike: frozenset[str]
    known: Facts = field(default_factory=Facts)
    joined: dict[ir.Value, Groups] = field(default_factory=dict)
    wanted: dict[ir.Node, dict[tuple[bool, int], Groups]] = field(default_factory=dict)
    shapes: dict[ir.Value, tuple[int | str | None, ...]] = field(default_factory=dict)
    made: dict[tuple[ir.Value, ir.Graph | None, bool], ir.Value] = field(default_factory=dict)
    count: int = 0

    def __post_init__(self) -> None:
        self.constants = Constants(self.model)
        self.names = self.constants.names

    def decide(self, graph: ir.Graph) -> None:
        """Which values are given in joined shapes: what kernels give, and what operators on elements make of that."""
        for node in graph:
            wanted = node.meta.get(JOINED)
            self.wanted[node] = self._following(node) if wanted is None else wanted
            for (output, slot), groups in self.wanted[node].items():
                if output:
                    self.joined[node.outputs[slot]] = groups

    def _following(self, node: ir.Node) -> dict[tuple[bool, int], Groups]:
        """The same for an operator on every element alone, where most of what it reads is given in joined shapes."""
        given = [self.joined[value] for value in node.inputs if value in self.joined]
        if not given or len(set(given)) > 1 or not (like := self._elementwise(node) or self._laid(node, given[0])):
            return {}
        others = [slot for slot in like if (value := node.inputs[slot]) not in self.joined and not _is_constant(value)]
        if len(others) > len(given) or (len(others) == len(given) and not self._is_wanted(node)):
            return {}
        return {(False, slot): given[0] for slot in like} | {
            (True, slot): given[0] for slot, value in enumerate(node.outputs) if value.name
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
        same = all(given == shape for given in operator.outputs)
        rest = [operator.inputs[slot] for slot in read if slot not in full]
        numbers = all(given is not None and len(given) < _RANK and prod(map(_number, given)) == 1 for given in rest)
        return full if same and numbers else []

    def _laid(self, node: ir.Node, groups: Groups) -> list[int]:
        """The inputs of an operator that lays images one after another along the first axis in tiles."""
        if node.domain not in ("", "ai.onnx") or node.op_type not in self.alike:
            return []
        first = next(place for place, group in enumerate(groups) if len(group) > 1)
        return list(range(len(node.inputs))) if node.attributes.get_int("axis", -1) == first else []

    def _is_wanted(self, node: ir.Node) -> bool:
        """Whether a kernel reads what a node gives, in a joined shape."""
        uses = (use for value in node.outputs for use in value.uses())
        return any((False, use.idx) in use.node.meta.get(JOINED, {}) for use in uses)

    def write(self, graph: ir.Graph) -> None:
        """Give every value its shape, and Reshapes to the uses that want another."""
        for node in list(graph):
            wanted = self.wanted[node]
            for slot, value in enumerate(node.inputs):
                groups = wanted.get((False, slot))
                if slot == 0 and self._takes_any_shape(node):
                    continue
                if value is not None and (value in self.joined) != (groups is not None):
                    node.replace_input_with(slot, self._as(value, groups, node, graph))
            for (output, slot), groups in wanted.items():
                if output:
                    self._state(node.outputs[slot], groups)
        for slot, value in enumerate(graph.outputs):
            if value in self.joined:
                self._give(graph, slot, value)

    def _takes_any_shape(self, node: ir.Node) -> bool:
        """Whether a node is a Reshape, to a shape that copies no extent of what it reads."""
        if not node.inputs or node.inputs[0] not in self.joined:
            return False
        fact = self.known.of(operator_of(self.model, node))
        shape = node.inputs[1].const_value if len(node.inputs) > 1 and node.inputs[1] is not None else None
        return isinstance(fact, Regrouped) and shape is not None and bool(np.all(shape.numpy() != 0))

    def _state(self, value: ir.Value, groups: Groups) -> None:
        if value.shape is not None:
            self.shapes[value] = tuple(_dims(value.shape))
            value.shape = _joined(value.shape, groups)

    def _as(self, value: ir.Value, groups: Groups | None, node: ir.Node, graph: ir.Graph) -> ir.Value:
        """A value in its joined shape, or where `groups` is None in the one that it had."""
        constant = groups is not None and _is_constant(value)
        key = (value, None if constant else graph, groups is not None)
        if key not in self.made:
            if groups is not None and constant:
                self.made[key] = self._constant(value, groups)
            else:
                new = self._reshape(value, groups)
                graph.insert_before(node, new)
                self.made[key] = new.outputs[0]
        return self.made[key]

    def _constant(self, value: ir.Value, groups: Groups) -> ir.Value:
        tensor = value.const_value
        assert tensor is not None
        shape = _joined(tensor.shape.numpy(), groups)
        extents = shape.numpy()

        def stated() -> ir.TensorProtocol:
            return ir.Tensor(np.ascontiguousarray(tensor.numpy()).reshape(extents), dtype=tensor.dtype, shape=shape)

        lazy = ir.LazyTensor(stated, tensor.dtype, shape)
        if not value.is_graph_output() and all((False, use.idx) in self.wanted[use.node] for use in value.uses()):
            value.const_value, value.shape = lazy, shape
            return value
        new = ir.Value(
            name=self.names.unique(f"{value.name}/joined"),
            type=ir.TensorType(tensor.dtype),
            shape=shape,
            const_value=lazy,
        )
        graph = value.graph or self.model.graph
        graph.register_initializer(new)
        return new

    def _reshape(self, value: ir.Value, groups: Groups | None) -> ir.Node:
        shape = ir.Shape(self.shapes[value]) if groups is None else _joined(_shape(value), groups)
        name = self.names.unique(f"{value.name}/{'joined' if groups else 'tiles'}")
        output = ir.Value(name=name, type=value.type, shape=shape)
        output.metadata_props.update(value.metadata_props)
        stated = np.array([dim if isinstance(dim, int) else 0 for dim in shape], np.int64)
        constant = self.constants.new(f"{name}/shape", stated)
        self.count += 1
        return ir.Node("", "Reshape", [value, constant], outputs=[output], name=self.names.unique(f"{name}/Reshape"))

    def _give(self, graph: ir.Graph, slot: int, value: ir.Value) -> None:
        """An output of a graph keeps its shape and its name."""
        node = self._reshape(value, None)
        graph.append(node)
        output, name = node.outputs[0], value.name
        value.name = self.names.unique(f"{name}/joined")
        output.name = name
        graph.outputs[slot] = output


_RANK = 5
"""A number of this rank would give a joined operand, of rank 4, a dimension more."""


def _counts_no_axes(fact: Signature) -> bool:
    needs = fact.variants or fact.whole or fact.block or fact.tail or fact.head or fact.with_reader
    return not needs and fact.changes is unchanged and any(letters is not None for letters in fact.outputs)


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.is_initializer() and not value.is_graph_input()


def _number(dim: int | str) -> int:
    return dim if isinstance(dim, int) else 0


def _dims(shape: Iterable[int | ir.SymbolicDim]) -> list[int | str | None]:
    return [dim if isinstance(dim, int) else dim.value for dim in shape]


def _shape(value: ir.Value) -> ir.Shape:
    assert value.shape is not None
    return value.shape


def _joined(shape: ir.Shape | Sequence[int | ir.SymbolicDim], groups: Groups) -> ir.Shape:
    """A shape with its tiles joined: what is dynamic keeps its place."""
    dims = _dims(shape)
    stated: list[int | str | None] = []
    for group in groups:
        parts = [dims[place] for place in group]
        numbers = [dim for dim in parts if isinstance(dim, int)]
        stated.append(prod(numbers) if len(numbers) == len(parts) else parts[0] if len(parts) == 1 else None)
    return ir.Shape(stated)
