"""Node data for Model Explorer: the layout of every node's value, as a colour and a text, over its own graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.reports.colours import colour_numbers
from relayout.reports.layout_names import layout_names
from relayout.reports.report import Report

PALETTE = ("#cfe3ff", "#ffe2bd", "#cdeed3", "#ecd7fb", "#c9eff2", "#fbd5e3", "#eceac0", "#e0e3e8")
"""Backgrounds by the number of a layout's colour, under dark text; the page's own."""
MARK = "#a3180f"


def node_data(report: Report, layouts: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, Any]:
    """Model Explorer's node data of one graph: keys are names of output tensors, in the source or in the result.

    Args:
        report: the report.
        layouts: name of a value in the graph that is looked at -> its layout there.
        keys: what readers of models call a node or a value otherwise -> name of the value, or of the node's first.
    """
    colours = colour_numbers(map(layout_names, layouts.values()))
    results: dict[str, dict[str, str]] = {
        name: {"value": layout, "bgColor": PALETTE[colours[layout_names(layout)]], "textColor": "#1b1f24"}
        for name, layout in layouts.items()
    }
    for left in report.remaining:
        for name in {left.tensor, keys.get(left.tensor, "")} & results.keys():  # in the source, and in the result
            said = f"{results[name]['value']}; transposed {left.layout}, {left.bytes:,} bytes"
            results[name] = {"value": said, "bgColor": MARK, "textColor": "#ffffff"}
    results |= {key: results[name] for key, name in keys.items() if name in results and key not in results}
    hidden = dict.fromkeys(("hideInAggregatedStatsTable", "hideInChildrenStatsTable"), True)  # sums of texts
    return {"results": results, "showExpandedSummaryOnGroupNode": True, **hidden}


def keys_of(model: ir.Model) -> dict[str, str]:
    """What the ONNX reader of Model Explorer calls nodes (by their names) and inputs and outputs -> name of a value."""
    ends = [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    nodes = [(node.name, node.outputs[0].name) for node in all_nodes(model.graph) if node.outputs]
    named = [*nodes, *((f"[value] {name}", name) for name in ends)]
    return {key: name for key, name in named if key and name}
