"""Sequences of known length, as the tensors that they hold; and optional values, where it is known if they are there.

SequenceAt(SequenceConstruct(a, b), 1)  ->  b
OptionalGetElement(Optional(a))         ->  a
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.exporting.loops import Writing
from relayout.graph.subgraphs import all_graphs
from relayout.graph.value_names import Names

MOST = 1024
"""Tensors of a sequence up to which it is written so."""


def inline_sequences(model: ir.Model, names: Names) -> bool:
    """Replace what reads a sequence of known length, in place; return whether there was any.

    Args:
        model: the model.
        names: of all its values; it grows.
    """
    found, version = False, model.opset_imports.get("", 1)
    for graph in list(all_graphs(model.graph)):
        for node in list(graph):
            if not node.domain and node.op_type in OPTIONALS:
                found |= _inline_optional(graph, node, names, version)
            if node.domain or node.op_type not in READERS or node.graph is None:
                continue
            items = _items(graph, node.inputs[0], names, version)
            if items is not None:
                found |= _replace(graph, node, items, names, version)
    return found


READERS = ("SequenceAt", "SequenceLength", "ConcatFromSequence")
"""Operators that read a sequence and give a tensor."""
OPTIONALS = ("OptionalGetElement", "OptionalHasElement")
"""Operators that read an optional value."""


def _inline_optional(graph: ir.Graph, node: ir.Node, names: Names, version: int) -> bool:
    """Replace what reads an optional value; return False where it is known only at run time if there is one."""
    value = node.inputs[0] if node.inputs else None
    source = None if value is None else value.producer()
    if source is not None and source.op_type == "Optional" and not source.domain:
        value = source.inputs[0] if source.inputs else None
    elif value is not None and (value.type is None or isinstance(value.type, ir.OptionalType)):
        return False
    writing = Writing(graph, node, names, version)
    if node.op_type == "OptionalHasElement":
        writing.finish([writing.constant(np.array(value is not None))])
        return True
    if value is not None:
        writing.finish([value])
    return value is not None


def _items(graph: ir.Graph, value: ir.Value | None, names: Names, version: int) -> list[ir.Value] | None:
    """Return the tensors of a sequence; None where its length is not known."""
    node = _producer(value)
    if node is None or node.domain or node.graph is not graph:
        return None
    inputs = list(node.inputs)
    if node.op_type == "SequenceConstruct":
        return [each for each in inputs if each is not None]
    if node.op_type == "SequenceEmpty":
        return []
    if node.op_type in ("SequenceInsert", "SequenceErase"):
        items = _items(graph, inputs[0], names, version)
        slot = 2 if node.op_type == "SequenceInsert" else 1
        place = len(items or ()) if slot >= len(inputs) or inputs[slot] is None else _number(inputs[slot])
        if items is None or place is None:
            return None
        if node.op_type == "SequenceErase":
            place = len(items) - 1 if slot >= len(inputs) else place % len(items)
            return [*items[:place], *items[place + 1 :]]
        item = inputs[1]
        return None if item is None else [*items[:place], item, *items[place:]]
    if node.op_type == "SplitToSequence":
        return _split(graph, node, names, version)
    return None


def _producer(value: ir.Value | None) -> ir.Node | None:
    """Return the node that makes a value, which Identities may have passed on."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type == "Identity" and not node.domain and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def _number(value: ir.Value | None) -> int | None:
    constant = None if value is None else value.const_value
    return None if constant is None else int(constant.numpy().reshape(-1)[0])


def _split(graph: ir.Graph, node: ir.Node, names: Names, version: int) -> list[ir.Value] | None:
    """Return the parts of a tensor, which a Split before the node gives from now on."""
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    axis = node.attributes.get_int("axis", 0) % len(source.shape)
    extent = source.shape[axis]
    if not isinstance(extent, int):
        return None
    sizes = [1] * extent
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None:
        if given.const_value is None:
            return None
        array = given.const_value.numpy()
        step = int(array.reshape(-1)[0])
        sizes = array.tolist() if array.ndim else [min(step, extent - begin) for begin in range(0, extent, step)]
    if len(sizes) > MOST or version < SPLITS_BY_OPERAND:
        return None
    writing = Writing(graph, node, names, version)
    parts = writing.add_many("Split", [source, writing.constant(np.array(sizes, np.int64))], len(sizes), axis=axis)
    if given is None and not node.attributes.get_int("keepdims", 1):
        axes = writing.constant(np.array([axis], np.int64))
        parts = [writing.add("Squeeze", [part, axes]) for part in parts]
    return parts


SPLITS_BY_OPERAND = 13
"""The version of ONNX from which on the sizes of a Split are an operand."""


def _replace(graph: ir.Graph, node: ir.Node, items: Sequence[ir.Value], names: Names, version: int) -> bool:
    writing = Writing(graph, node, names, version)
    if node.op_type == "SequenceLength":
        writing.finish([writing.constant(np.array(len(items), np.int64))])
        return True
    if node.op_type == "SequenceAt":
        place = _number(node.inputs[1])
        if place is None or not -len(items) <= place < len(items):
            return False
        writing.finish([items[place]])
        return True
    if not items:
        return False
    axis = node.attributes.get_int("axis", 0)
    rows = list(items)
    if node.attributes.get_int("new_axis", 0):
        axes = writing.constant(np.array([axis], np.int64))
        rows = [writing.add("Unsqueeze", [each, axes]) for each in rows]
    writing.finish([writing.add("Concat", rows, axis=axis)])
    return True
