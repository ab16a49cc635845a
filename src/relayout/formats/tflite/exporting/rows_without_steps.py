"""Recurrent operators whose rows have lengths: a row without steps has zeros as its last states.

    LSTM(x, w, r, b, lengths, h, c)  ->  LSTM(x, w, r, b, lengths, h * m, c * m),  m = 1 where a length is above 0

A row that is over keeps its states, so such a row would end with those that it begins with. The standard says nothing
of it; runtimes of ONNX give zeros.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.exporting.loops import Writing
from relayout.formats.tflite.exporting.recurrent_operands import HIDDEN, LENGTHS, STATES, is_recurrent
from relayout.graph.subgraphs import all_graphs
from relayout.graph.value_names import Names

DONE = "relayout.states_of_steps"
"""The key of a node's meta: it has been looked at."""


def clear_states_without_steps(model: ir.Model, names: Names) -> bool:
    """Let rows without steps begin with zeros, in place; return whether there may be such rows.

    Args:
        model: the model.
        names: of all its values; it grows.
    """
    changes = [
        _Clearing(graph, node, names, model.opset_imports.get("", 1)).run()
        for graph in all_graphs(model.graph)
        for node in list(graph)
        if is_recurrent(node) and not node.meta.get(DONE)
    ]
    return any(changes)


class _Clearing(Writing):
    """One operator."""

    def run(self) -> bool:
        node = self.node
        node.meta[DONE] = True
        lengths = node.inputs[LENGTHS] if len(node.inputs) > LENGTHS else None
        states = [
            (slot, value)
            for slot, value in enumerate(node.inputs[HIDDEN : HIDDEN + STATES[node.op_type]], HIDDEN)
            if value is not None
        ]
        if lengths is None or not states or _are_positive(lengths):
            return False
        is_batch_first = bool(node.attributes.get_int("layout", 0))
        has_steps = self.add("Cast", [lengths], to=int(ir.DataType.BOOL))
        shape = self.constant(np.array([-1, 1, 1] if is_batch_first else [1, -1, 1], np.int64))
        for slot, value in states:
            ones = self.add("Cast", [has_steps], to=int(value.dtype or ir.DataType.FLOAT))
            node.replace_input_with(slot, self.add("Mul", [value, self.add("Reshape", [ones, shape])]))
        return True


def _are_positive(lengths: ir.Value) -> bool:
    if lengths.const_value is None or lengths.is_graph_input():
        return False
    return bool(np.all(lengths.const_value.numpy() > 0))
