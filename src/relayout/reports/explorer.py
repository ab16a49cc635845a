"""Node data for Model Explorer: the layout of every node's value, as a colour and a text, over its own graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relayout.reports.report import Report

PALETTE = ("#cfe3ff", "#ffe2bd", "#cdeed3", "#ecd7fb", "#c9eff2", "#fbd5e3", "#eceac0")
"""Backgrounds by layout, under dark text; the page's own."""
OTHER, MARK = "#e0e3e8", "#a3180f"


def node_data(report: Report, layouts: Mapping[str, str]) -> dict[str, Any]:
    """Model Explorer's node data of one graph: keys are names of output tensors, in the source or in the result.

    Args:
        report: the report.
        layouts: name of a value in the graph that is looked at -> its layout there.
    """
    kinds = list(dict.fromkeys(layouts.values()))
    colours = {layout: PALETTE[i] if i < len(PALETTE) else OTHER for i, layout in enumerate(kinds)}
    results: dict[str, dict[str, str]] = {
        name: {"value": layout, "bgColor": colours[layout], "textColor": "#1b1f24"} for name, layout in layouts.items()
    }
    for left in report.remaining:
        if left.tensor in results:
            said = f"{results[left.tensor]['value']}; transposed {left.layout}, {left.bytes:,} bytes"
            results[left.tensor] = {"value": said, "bgColor": MARK, "textColor": "#ffffff"}
    return {"results": results, "showExpandedSummaryOnGroupNode": True}
