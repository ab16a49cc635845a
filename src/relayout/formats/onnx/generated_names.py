"""Constants with names that the optimizer of a runtime gave them: it gives these names again.

A model that an optimizer wrote holds constants such as `gemm_input_shape_token_18`. Whoever loads it optimizes it
again: where a constant of that name lost its readers, a new one gets the name, and takes the other's data or is
refused. Here each gets a name of its own, for good:

    gemm_input_shape_token_18  ->  gemm_input_shape_constant_18
"""

from __future__ import annotations

import re

import onnx_ir as ir

from relayout.formats.onnx.parts import ANNOTATION
from relayout.graph.subgraphs import all_graphs, all_nodes
from relayout.graph.value_names import Names

GENERATED = re.compile(r"_token_(?=\d)|_new_(?=shape$)")
"""What an optimizer puts between the name of a purpose and a number, or behind the name of a node."""


def rename_generated(model: ir.Model) -> int:
    """Give such constants other names, in place; inputs and outputs keep theirs.

    Returns:
        How many there were.
    """
    graphs = list(all_graphs(model.graph))
    constants = [
        value
        for graph in graphs
        for value in graph.initializers.values()
        if GENERATED.search(value.name or "") and not (value.is_graph_input() or value.is_graph_output())
    ]
    if not constants:
        return 0
    values = [value for graph in graphs for value in (*graph.inputs, *graph.initializers.values())]
    values += [value for node in all_nodes(model.graph) for value in node.outputs]
    names = Names({value.name for value in values if value.name})
    renamed: dict[str, str] = {}
    for value in constants:
        before = value.name or ""
        renamed[before] = value.name = names.unique(GENERATED.sub("_constant_", before))
        if value.const_value is not None:
            value.const_value.name = value.name
    for value in values:
        if annotation := value.meta.get(ANNOTATION):
            value.meta[ANNOTATION] = {key: renamed.get(name, name) for key, name in annotation.items()}
    return len(renamed)
