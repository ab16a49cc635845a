"""Loops as graphs without them: a Scan becomes a Loop, and a Loop that runs a few times is written out.

Scan(states, sequence)  ->  Loop whose body takes an element by Gather
Loop(3, …)              ->  its body, three times
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.onnx.replacing import Writing
from relayout.graph.source_names import Names, stands_for
from relayout.graph.subgraphs import all_graphs, all_nodes, bodies, inline_body

MOST_NODES = 4096  # nodes that the bodies of a Loop that is written out may have together
MOST_NODES_OF_ALL = 16384
"""Nodes that a model may have for a Loop to be written out, the nodes of that Loop and of those inside it included."""
SLICES_BACKWARDS = 10  # the version of ONNX from which on Slice has steps
SCAN_WITHOUT_BATCHES = 9  # the version of ONNX from which on a Scan has no batches of its own


def write_out(model: ir.Model, names: Names) -> bool:
    """Write out Scans and short Loops, in place; return whether there were any."""
    is_changed, version = False, model.opset_imports.get("", 1)
    total = sum(1 for _ in all_nodes(model.graph))
    gone: set[ir.Graph] = set()  # bodies of Loops that are written out: copies of them are the model's
    for graph in list(all_graphs(model.graph)):
        for node in list(graph) if graph not in gone else ():
            if node.domain or node.graph is None:
                continue
            if node.op_type == "Scan" and version >= SCAN_WITHOUT_BATCHES:
                if version < SLICES_BACKWARDS and any(node.attributes.get_ints("scan_output_directions") or ()):
                    continue
                _ScanAsLoop(graph, node, names, version).run()
                is_changed = True
            elif node.op_type == "Loop" and (count := _trips(node)) is not None:
                body = node.attributes["body"].as_graph()
                if total + count * _size_written_out(body) > MOST_NODES_OF_ALL:
                    continue
                total += count * sum(1 for _ in all_nodes(body))
                gone.update(all_graphs(body))
                _Unrolling(graph, node, names, version).run(count)
                is_changed = True
    return is_changed


def _size_written_out(body: ir.Graph) -> int:
    """Return how many nodes a body has after the Loops in it are written out."""
    size = 0
    for node in body:
        count = _trips(node) if node.op_type == "Loop" and not node.domain else None
        size += sum(map(_size_written_out, bodies(node))) * (1 if count is None else count) + 1
    return size


def _trips(node: ir.Node) -> int | None:
    """Return how often a Loop runs, if that is known and little enough to write it out."""
    most, begins = node.inputs[0] if node.inputs else None, _begins(node)
    count = None if most is None or most.is_graph_input() else _integer(most)
    if count is None or not begins:
        return None if count is None or begins is None else 0
    size = sum(1 for _ in all_nodes(node.attributes["body"].as_graph()))
    return count if _keeps_condition(node) and count * size <= MOST_NODES else None


def is_unconditional(node: ir.Node) -> bool:
    """Return whether a Loop ends by the number of its rounds alone."""
    return bool(_begins(node)) and _keeps_condition(node)


def _begins(node: ir.Node) -> bool | None:
    """Return whether the condition of a Loop lets a first round run; None where it is computed."""
    condition = node.inputs[1] if len(node.inputs) > 1 else None
    if condition is None:
        return True
    constant = None if condition.is_graph_input() else condition.const_value
    return None if constant is None else bool(constant.numpy().all())


def _integer(value: ir.Value | None) -> int | None:
    """Return an integer that is a constant; None of any other value."""
    constant = None if value is None else value.const_value
    return None if constant is None else int(constant.numpy().reshape(-1)[0])


def _keeps_condition(node: ir.Node) -> bool:
    """Return whether the rounds of a Loop leave its condition as it is, or give True."""
    body = node.attributes["body"].as_graph()
    again = _before_identities(body.outputs[0])
    return again is body.inputs[1] or (again.const_value is not None and bool(again.const_value.numpy().all()))


def _before_identities(value: ir.Value) -> ir.Value:
    """Return the value that Identities pass on."""
    while (node := value.producer()) is not None and (node.domain, node.op_type) == ("", "Identity"):
        (before,) = node.inputs
        if before is None:
            break
        value = before
    return value


class _Unrolling(Writing):
    """A Loop, as its body again and again."""

    def run(self, count: int) -> None:
        states = list(self.node.inputs[2:])
        collected: list[list[ir.Value]] = [[] for _ in range(len(self.node.outputs) - len(states))]
        for step in range(count):
            outputs = self._body(step, states)
            states = list(outputs[1 : 1 + len(states)])
            for pieces, value in zip(collected, outputs[1 + len(states) :], strict=True):
                pieces.append(value)
        scanned = [self._stacked(pieces, place) for place, pieces in enumerate(collected)]
        self.finish([*states, *scanned])

    def _body(self, step: int, states: Sequence[ir.Value | None]) -> list[ir.Value]:
        body = self.node.attributes["body"].as_graph().clone(allow_outer_scope_values=True)
        operands = [self.constant(np.array(step, np.int64)), self.constant(np.array(True)), *states]
        outputs = list(body.outputs)
        inline_body(
            self.graph, self.node, body, lambda name: self.names.unique(f"{self.stem}/{step}/{name}"), deep=True
        )
        for formal, actual in zip(body.inputs, operands, strict=True):
            for use in list(formal.uses()):
                use.node.replace_input_with(use.idx, actual)
        actuals = dict(zip(body.inputs, operands, strict=True))
        return [actuals.get(value) or value for value in outputs]

    def _stacked(self, pieces: list[ir.Value], place: int) -> ir.Value | None:
        output = self.node.outputs[len(self.node.inputs) - 2 + place]
        if not pieces:
            if output.shape is None or output.dtype is None:
                return None
            shape = [dim if isinstance(dim, int) else 0 for dim in output.shape]
            return self.constant(np.zeros([0, *shape[1:]], output.dtype.numpy()))
        return self.add("Concat", [self.unsqueeze(piece, 0) for piece in pieces], axis=0)


class _ScanAsLoop(Writing):
    """A Scan, as a Loop that takes the elements itself."""

    def run(self) -> None:
        node = self.node
        count = node.attributes.get_int("num_scan_inputs", 1)
        states, sequences = node.inputs[: len(node.inputs) - count], node.inputs[len(node.inputs) - count :]
        axes = list(node.attributes.get_ints("scan_input_axes", [0] * count))
        first = sequences[0].shape if sequences[0] is not None else None
        extent = None if first is None else first[axes[0]]
        if isinstance(extent, int):
            length = self.constant(np.array(extent, np.int64))
        else:
            shape = self.add("Shape", [sequences[0]])
            length = self.add("Gather", [shape, self.constant(np.array(axes[0], np.int64))], axis=0)
        body = node.attributes["body"].as_graph()
        self._take(body, sequences, axes, length)
        loop = ir.node(
            "Loop",
            [length, self.constant(np.array(True)), *states],
            {"body": body},
            num_outputs=len(node.outputs),
            name=self.names.unique(f"{self.stem}/Loop"),
        )
        stands_for(loop, node)
        for value, output in zip(loop.outputs, node.outputs, strict=True):
            value.name = self.names.unique(f"{output.name or self.stem}/loop")
        node.attributes.pop("body")
        self.graph.insert_before(node, loop)
        scanned = [self._placed(value, place) for place, value in enumerate(loop.outputs[len(states) :])]
        self.finish([*loop.outputs[: len(states)], *scanned])

    def _take(
        self, body: ir.Graph, sequences: Sequence[ir.Value | None], axes: Sequence[int], length: ir.Value
    ) -> None:
        """Let a body take its elements by Gather, with the inputs and outputs that a Loop's body has."""
        backwards = self.node.attributes.get_ints("scan_input_directions", [0] * len(sequences))
        number = ir.val(self.names.unique(f"{self.stem}/number"), ir.DataType.INT64, [])
        again = ir.val(self.names.unique(f"{self.stem}/again"), ir.DataType.BOOL, [])
        formals = list(body.inputs)[len(body.inputs) - len(sequences) :]
        del body.inputs[len(body.inputs) - len(sequences) :]
        body.inputs.insert(0, number)
        body.inputs.insert(1, again)
        added = []
        for formal, sequence, axis, backward in zip(formals, sequences, axes, backwards, strict=True):
            place = number
            if backward:
                last = ir.node("Sub", [length, self.constant(np.array(1, np.int64))])
                turned = ir.node("Sub", [last.outputs[0], number])
                added += [last, turned]
                place = turned.outputs[0]
            gather = ir.node("Gather", [sequence, place], {"axis": axis})
            gather.outputs[0].shape, gather.outputs[0].type = formal.shape, formal.type
            added.append(gather)
            formal.replace_all_uses_with(gather.outputs[0], replace_graph_outputs=True)
        condition_node = ir.node("Identity", [again])
        condition_node.outputs[0].shape, condition_node.outputs[0].type = again.shape, again.type
        added.append(condition_node)
        for each in added:
            each.name = self.names.unique(f"{self.stem}/{each.op_type}")
            stands_for(each, self.node)
            each.outputs[0].name = self.names.unique(f"{self.stem}/{each.op_type.lower()}")
        body.outputs.insert(0, condition_node.outputs[0])
        if len(body):
            body.insert_before(body[0], added)
        else:
            body.extend(added)

    def _placed(self, value: ir.Value, place: int) -> ir.Value:
        """Return what a Scan collected, along its axis and in its direction."""
        node = self.node
        axes, backwards = (
            node.attributes.get_ints(name) or () for name in ("scan_output_axes", "scan_output_directions")
        )
        output = node.outputs[len(node.inputs) - node.attributes.get_int("num_scan_inputs", 1) + place]
        axis = axes[place] if place < len(axes) else 0
        if place < len(backwards) and backwards[place]:
            ends = [self.constant(np.array([each], np.int64)) for each in (-1, -(1 << 62), 0, -1)]
            value = self.add("Slice", [value, *ends])
        if axis and output.shape is not None:
            rank = len(output.shape)
            axis %= rank
            value = self.add("Transpose", [value], perm=[*range(1, axis + 1), 0, *range(axis + 1, rank)])
        return value


# Sequences of known length, as the tensors that they hold; and optional values, where it is known if they are there.
#
# SequenceAt(SequenceConstruct(a, b), 1)  ->  b
# OptionalGetElement(Optional(a))         ->  a

MOST = 1024  # tensors of a sequence up to which it is written so


def inline_sequences(model: ir.Model, names: Names) -> bool:
    """Replace what reads a sequence of known length, in place; return whether there was any."""
    is_changed, version = False, model.opset_imports.get("", 1)
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            if node.domain or node.op_type not in READERS or node.graph is None:
                continue
            writing = Writing(graph, node, names, version)
            result = READERS[node.op_type](writing)
            if result is not None:
                writing.finish([result])
                is_changed = True
    return is_changed


def _optional(writing: Writing) -> ir.Value | None:
    """Return what reads an optional value; None where it is known only at run time if there is one."""
    node = writing.node
    value = node.inputs[0] if node.inputs else None
    source = None if value is None else value.producer()
    if source is not None and source.op_type == "Optional" and not source.domain:
        value = source.inputs[0] if source.inputs else None
    elif value is not None and (value.type is None or isinstance(value.type, ir.OptionalType)):
        return None
    return writing.constant(np.array(value is not None)) if node.op_type == "OptionalHasElement" else value


def _of_sequence(writing: Writing) -> ir.Value | None:
    """Return what reads a sequence and gives a tensor; None where its length is not known."""
    node, items = writing.node, _items(writing, writing.node.inputs[0])
    if items is None:
        return None
    if node.op_type == "SequenceLength":
        return writing.constant(np.array(len(items), np.int64))
    if node.op_type == "SequenceAt":
        place = _integer(node.inputs[1])
        return None if place is None or not -len(items) <= place < len(items) else items[place]
    axis = node.attributes.get_int("axis", 0)
    if node.attributes.get_int("new_axis", 0) and items:
        axes = writing.constant(np.array([axis], np.int64))
        items = [writing.add("Unsqueeze", [each, axes]) for each in items]
    return writing.add("Concat", items, axis=axis) if items else None


READERS: Mapping[str, Callable[[Writing], ir.Value | None]] = {
    **dict.fromkeys(("OptionalGetElement", "OptionalHasElement"), _optional),
    **dict.fromkeys(("SequenceAt", "SequenceLength", "ConcatFromSequence"), _of_sequence),
}
"""Operators that read an optional value or a sequence -> what gives the value that they stand for."""


def _items(writing: Writing, value: ir.Value | None) -> list[ir.Value] | None:
    """Return the tensors of a sequence; None where its length is not known."""
    node = None if value is None else _before_identities(value).producer()
    if node is None or node.domain or node.graph is not writing.graph:
        return None
    inputs = list(node.inputs)
    if node.op_type == "SequenceConstruct":
        return [each for each in inputs if each is not None]
    if node.op_type == "SequenceEmpty":
        return []
    if node.op_type in ("SequenceInsert", "SequenceErase"):
        items = _items(writing, inputs[0])
        slot = 2 if node.op_type == "SequenceInsert" else 1
        place = len(items or ()) if slot >= len(inputs) or inputs[slot] is None else _integer(inputs[slot])
        if items is None or place is None:
            return None
        if node.op_type == "SequenceErase":
            place = len(items) - 1 if slot >= len(inputs) else place % len(items)
            return [*items[:place], *items[place + 1 :]]
        item = inputs[1]
        return None if item is None else [*items[:place], item, *items[place:]]
    if node.op_type == "SplitToSequence":
        return _split(Writing(writing.graph, node, writing.names, writing.version))
    return None


def _split(writing: Writing) -> list[ir.Value] | None:
    """Return the parts of a tensor, which a Split before the node gives from now on."""
    node, source = writing.node, writing.node.inputs[0]
    if source is None or source.shape is None:
        return None
    axis = node.attributes.get_int("axis", 0) % len(source.shape)
    extent = source.shape[axis]
    if not isinstance(extent, int):
        return None
    sizes = [1] * extent
    sizes_operand = node.inputs[1] if len(node.inputs) > 1 else None
    if sizes_operand is not None:
        if sizes_operand.const_value is None:
            return None
        array = sizes_operand.const_value.numpy()
        step = int(array.reshape(-1)[0])
        sizes = array.tolist() if array.ndim else [min(step, extent - begin) for begin in range(0, extent, step)]
    if len(sizes) > MOST or writing.version < SPLITS_BY_OPERAND:
        return None
    parts = writing.add_many("Split", [source, writing.constant(np.array(sizes, np.int64))], len(sizes), axis=axis)
    if sizes_operand is None and not node.attributes.get_int("keepdims", 1):
        axes = writing.constant(np.array([axis], np.int64))
        parts = [writing.add("Squeeze", [part, axes]) for part in parts]
    return parts


SPLITS_BY_OPERAND = 13  # the version of ONNX from which on the sizes of a Split are an operand
