"""Nodes that a builtin was spelled out in become one node again, which is that builtin.

DequantizeLinear, Scan, QuantizeLinear  ->  tflite:UNIDIRECTIONAL_SEQUENCE_LSTM
Transpose, LSTM, LSTM, Squeeze, Concat  ->  tflite:BIDIRECTIONAL_SEQUENCE_LSTM, Transpose

Nothing of the nodes counts but the values at their ends. A value tells by its name, or in its metadata, which tensor of
the file it holds and in which order of axes, so the builtin reads and gives its tensors in the file's own order. The
Transposes between both are views, as all Transposes are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.formats.tflite.exporting.draft import NUMPY_TYPES
from relayout.formats.tflite.exporting.registry import entries
from relayout.formats.tflite.spelled_out import BUILTIN, DIGEST, DOMAIN, Builtin, Operand, digest, nodes_of
from relayout.graph.source_names import SOURCE
from relayout.graph.subgraphs import captured, nested
from relayout.layout import perm as perms
from relayout.layout.stored_as import BATCH_FIRST, Holds, restore

SWITCHES = ("time_major", "merge_outputs")
"""Options that say how the axes of operands and results lie: attributes of the node, so that layouts can know them."""

TIME_FIRST = frozenset({"BIDIRECTIONAL_SEQUENCE_LSTM"})
"""Builtins of which LiteRT spoils a result of both halves where the batch comes first and has several sequences."""


def restore_builtins(model: ir.Model, *, trusted: bool) -> bool:
    """Restore builtins in place; return whether there were any.

    Args:
        model: the model.
        trusted: whether the descriptions are true as they are, since the model was just read from a `.tflite`.
    """
    found = False
    for node in list(model.graph):
        text, source = node.metadata_props.get(BUILTIN), node.metadata_props.get(SOURCE, "")
        builtin = None if text is None or node.graph is None else Builtin.parse(text)
        if builtin is None or (DOMAIN, builtin.name) not in entries():
            continue
        nodes = nodes_of(model.graph, source)
        if trusted or node.metadata_props.get(DIGEST) == digest(nodes, builtin.names):
            found |= _Restoring(model.graph, node, nodes, builtin).run()
    return found


class _Restoring:
    """A builtin and the nodes that it is spelled out in."""

    def __init__(self, graph: ir.Graph, middle: ir.Node, nodes: Sequence[ir.Node], builtin: Builtin) -> None:
        self.graph, self.middle, self.nodes, self.builtin = graph, middle, nodes, builtin
        self.inside = set(nodes)
        self.bodies = {inner for node in nodes for inner in nested(node)}
        self.made: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self.taken = {value.name for node in graph for value in node.outputs} | set(graph.initializers)

    def run(self) -> bool:
        """Restore it; return False where a value at the ends is no tensor of the file, or has other extents."""
        read = list(dict.fromkeys(self._read()))
        given = [value for node in self.nodes for value in node.outputs if self._is_read_outside(value)]
        names, operands = [each.name for each in self.builtin.outputs], self.builtin.names
        places = {held.name: value for value in given if (held := tensor_in(value, names)) is not None}
        if not given or len(places) != len(given):
            return False
        if not all(tensor_in(value, operands) is not None or _follows_from_constants(value) for value in read):
            return False
        inputs = self._operands(read)
        builtin = None if inputs is None else self._at_batch(inputs)
        if inputs is None or builtin is None:
            return False
        node, results = self._node(builtin, inputs), {}
        for operand, output in zip(builtin.outputs, node.outputs, strict=True):
            value = places.get(operand.name)
            made = self._given(output, operand, value)
            if made is None:
                return False
            if value is not None:
                results[value] = made
        self._replace(results)
        return True

    # What the nodes read and give.

    def _read(self) -> Iterator[ir.Value]:
        for node in self.nodes:
            for value in (*node.inputs, *captured(node)):
                if value is not None and value.producer() not in self.inside:
                    yield value

    def _is_read_outside(self, value: ir.Value) -> bool:
        users = (use.node for use in value.uses())
        return value.is_graph_output() or any(not self._is_user(user) for user in users)

    def _is_user(self, node: ir.Node) -> bool:
        """Return whether a node is one of these, or in the body of one."""
        return node in self.inside or (node.graph is not self.graph and node in self.bodies)

    # Operands.

    def _operands(self, read: Sequence[ir.Value]) -> list[ir.Value | None] | None:
        """Return the operands as the file has them; None where one is not there."""
        values = [*read, *(value for value in self._others() if _follows_from_constants(value))]
        found: list[ir.Value | None] = []
        for operand in self.builtin.inputs:
            value = None
            if operand is not None and operand.name:
                value = self._operand(operand.name, values)
                if value is None:
                    return None
            found.append(value)
        return found

    def _others(self) -> Iterator[ir.Value]:
        """Yield the values of the graph that hold an operand."""
        values = (value for node in self.graph for value in node.outputs)
        for value in (*self.graph.initializers.values(), *values):
            if tensor_in(value, self.builtin.names) is not None:
                yield value

    def _operand(self, name: str, values: Sequence[ir.Value]) -> ir.Value | None:
        """Return a tensor of the file, which one of the values holds; None where none does."""
        for value in values:
            held = tensor_in(value, {name})
            if held is not None and (found := self._unlaid(value, held)) is not None:
                return found
        return None

    def _unlaid(self, value: ir.Value, held: Holds) -> ir.Value | None:
        """Return what a value holds in the order of the source; None where several of its extents are not known."""
        constant, name = value.const_value, f"{held.name}/as_in_file"
        if constant is None or value.is_graph_input():
            way = (perms.permute(held.perm, held.factors), perms.inverse(held.perm), held.shape)
            return self._moved(value, *way, name)
        if _is_as_is(held, value):
            return value
        tensor = ir.LazyTensor(
            lambda: ir.Tensor(np.ascontiguousarray(restore(constant.numpy(), held))),
            dtype=constant.dtype,
            shape=ir.Shape(held.shape),
            name=self._unique(name),
        )
        made = ir.Value(name=tensor.name, shape=tensor.shape, type=value.type, const_value=tensor)
        self.constants.append(made)
        return made

    def _at_batch(self, inputs: Sequence[ir.Value | None]) -> Builtin | None:
        """Return the builtin with variables for the sequences that the graph has now; None where it cannot have them.

        A variable has a row for each sequence, and no runtime gives it other rows. So the batch must be a number.
        """
        first, operands, options = inputs[0], list(self.builtin.inputs), self.builtin.options
        axis = 1 if options.get("time_major") else 0
        shape = None if first is None else first.shape
        batch = None if shape is None or len(shape) <= axis else shape[axis]
        if self.builtin.name in TIME_FIRST and options.get("merge_outputs") and not axis and batch != 1:
            return None
        for place, (operand, value) in enumerate(zip(self.builtin.inputs, inputs, strict=True)):
            if operand is not None and operand.variable:
                if not isinstance(batch, int):
                    return None
                operands[place] = operand = operand._replace(shape=(batch, *operand.shape[1:]))
            if operand is not None and value is not None and not _fits(value, operand):
                return None
        return self.builtin._replace(inputs=tuple(operands))

    # The builtin.

    def _node(self, builtin: Builtin, inputs: Sequence[ir.Value | None]) -> ir.Node:
        switches = [ir.AttrInt64(name, int(builtin.options.get(name, 0))) for name in SWITCHES]
        node = ir.Node(
            DOMAIN,
            builtin.name,
            inputs,
            [ir.AttrString("description", builtin.dump()), *switches],
            num_outputs=len(builtin.outputs),
            name=self.middle.name,
        )
        node.metadata_props[SOURCE] = self.middle.metadata_props.get(SOURCE, "")
        node.meta[BATCH_FIRST] = True
        self.made.append(node)
        return node

    def _given(self, output: ir.Value, operand: Operand, value: ir.Value | None) -> ir.Value | None:
        """Return what a value of the graph holds of a result, which is in the file's order; None where it cannot be."""
        output.name = self._unique(f"{operand.name}/builtin")
        held = None if value is None else tensor_in(value, {operand.name})
        if value is None or held is None:
            kind = next(name for name, each in NUMPY_TYPES.items() if each == operand.type)
            output.shape, output.type = ir.Shape(operand.shape), ir.TensorType(ir.DataType.from_numpy(np.dtype(kind)))
            return output
        dims = _dims_of_source(value, held)
        if dims is None or value.shape is None:
            return None
        output.shape, output.type = ir.Shape(dims), value.type
        stored = [dim if isinstance(dim, int) else -1 for dim in value.shape]
        return self._moved(output, held.factors, held.perm, stored, f"{operand.name}/stored")

    def _moved(
        self, value: ir.Value, before: Sequence[int], perm: Sequence[int], after: Sequence[int], name: str
    ) -> ir.Value | None:
        """Return a value that is reshaped, transposed and reshaped; None where a shape has several unknown extents."""
        first = self._reshaped(value, before, name)
        if first is None or first.shape is None:
            return None
        if not perms.is_identity(perm):
            node = ir.Node("", "Transpose", [first], [ir.AttrInt64s("perm", list(perm))])
            first = self._add(node, perms.permute(perm, list(first.shape)), value, name)
        return self._reshaped(first, after, name)

    def _reshaped(self, value: ir.Value, shape: Sequence[int], name: str) -> ir.Value | None:
        assert value.shape is not None
        unknown = [dim for dim in value.shape if not isinstance(dim, int)]
        if [dim if isinstance(dim, int) else -1 for dim in value.shape] == list(shape):
            return value
        if len(unknown) > 1 or list(shape).count(-1) > 1:
            return None
        target = ir.Value(name=self._unique(f"{name}/shape"), const_value=ir.tensor(list(shape), ir.DataType.INT64))
        target.shape, target.type = ir.Shape([len(shape)]), ir.TensorType(ir.DataType.INT64)
        self.constants.append(target)
        return self._add(ir.Node("", "Reshape", [value, target]), _filled(shape, unknown), value, name)

    def _add(self, node: ir.Node, dims: Sequence[int | ir.SymbolicDim], like: ir.Value, name: str) -> ir.Value:
        made = node.outputs[0]
        made.name, made.shape, made.type = self._unique(name), ir.Shape(dims), like.type
        self.made.append(node)
        return made

    def _unique(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _replace(self, results: Mapping[ir.Value, ir.Value]) -> None:
        """Put what was made in the place of the nodes: what a value of the graph was is computed anew."""
        self.graph.opset_imports.setdefault(DOMAIN, 1)
        for constant in self.constants:
            self.graph.register_initializer(constant)
        self.graph.insert_before(self.nodes[-1], self.made)
        for value, made in results.items():
            name, value.name = value.name, None
            made.name = name
            made.metadata_props.update(value.metadata_props)
            value.replace_all_uses_with(made, replace_graph_outputs=True)
        for inner in self.bodies:
            inner.resize_inputs(0)
        self.graph.remove(self.nodes[::-1], safe=True)
        if len(results) > 1:
            self.graph.sort()  # who reads the first result may stand before the builtin


def tensor_in(value: ir.Value, names: Collection[str]) -> Holds | None:
    """Return which tensor of a file a value holds, of some, and how; None where it holds none of them."""
    if value.name in names and value.shape is not None:
        return Holds.as_is(value.name or "", value.shape)
    try:
        held = Holds.load(value.metadata_props.get(Holds.KEY, "[]"))
    except LayoutError:
        return None
    return next((each for each in held if each.name in names), None)


def _is_as_is(held: Holds, value: ir.Value) -> bool:
    return value.shape is not None and held == Holds.as_is(held.name, value.shape)


def _filled(shape: Sequence[int], unknown: Sequence[int | ir.SymbolicDim]) -> list[int | ir.SymbolicDim]:
    return [unknown[0] if dim == -1 and unknown else dim for dim in shape]


def _dims_of_source(value: ir.Value, held: Holds) -> list[int | ir.SymbolicDim] | None:
    """Return the extents of what a value holds, in the source's order; None where they are not known by name."""
    if value.shape is None:
        return None
    unknown = [dim for dim in value.shape if not isinstance(dim, int)]
    if len(unknown) < 2:
        return _filled(held.shape, unknown)
    plain = len(held.shape) == len(held.factors) == len(value.shape)
    return list(perms.permute(perms.inverse(held.perm), list(value.shape))) if plain else None


def _fits(value: ir.Value, operand: Operand) -> bool:
    """Return whether a value has the extents of an operand: a constant all of them, another one their number."""
    if value.shape is None or len(value.shape) != len(operand.shape):
        return False
    constant = value.const_value is not None and not value.is_graph_input()
    return not (constant or operand.variable) or list(value.shape) == list(operand.shape)


def _is_static(value: ir.Value) -> bool:
    return value.shape is not None and value.shape.is_static()


def _follows_from_constants(value: ir.Value) -> bool:
    """Return whether a value is a constant, or computed from constants and from extents that are numbers alone."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        node = each.producer()
        if node is not None and node.op_type == "Shape" and node.inputs[0] is not None and _is_static(node.inputs[0]):
            continue
        if each.is_graph_input() or (node is None and each.const_value is None):
            return False
        if node is not None:
            waiting += [operand for operand in node.inputs if operand is not None]
    return True
