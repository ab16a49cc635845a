"""The report as one page of HTML: the graph before and after, drawn in the page, with all that it needs inside.

Everything that a model says is data: JSON in a script element that is not run, with every `<` escaped, shown as text.
The page's policy allows the two scripts that it holds, by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import onnx_ir as ir

from relayout.errors import printable
from relayout.graph.subgraphs import all_nodes
from relayout.reports.chart import Chart, Side
from relayout.reports.differing import Diff
from relayout.reports.drawing import colour_numbers
from relayout.reports.layouts import layout_name, layout_names
from relayout.reports.report import Report
from relayout.reports.tables import short_names
from relayout.terminal import ShortNames

# Node data for Model Explorer: the layout of every node's value, as a colour and a text, over its own graph.

PALETTE = ("#cfe3ff", "#ffe2bd", "#cdeed3", "#ecd7fb", "#c9eff2", "#fbd5e3", "#eceac0", "#e0e3e8")
"""Backgrounds by the number of a layout's colour, under dark text; the page's own."""
MARK = "#a3180f"


def node_data(
    report: Report,
    layouts: Mapping[str, str],  # name of a value in the graph that is looked at -> its layout there
    # what readers of models call a node or a value otherwise -> name of the value, or of the node's first
    keys: Mapping[str, str],
) -> dict[str, Any]:
    """Model Explorer's node data of one graph: keys are names of output tensors, in the source or in the result."""
    colours = colour_numbers(map(layout_names, layouts.values()))
    results: dict[str, dict[str, str]] = {
        name: {"value": layout, "bgColor": PALETTE[colours[layout_names(layout)]], "textColor": "#1b1f24"}
        for name, layout in layouts.items()
    }
    for row in report.remaining:
        for name in {row.tensor, keys.get(row.tensor, "")} & results.keys():  # in the source, and in the result
            said = f"{results[name]['value']}; transposed {row.layout}, {row.bytes:,} bytes"
            results[name] = {"value": said, "bgColor": MARK, "textColor": "#ffffff"}
    results |= {key: results[name] for key, name in keys.items() if name in results and key not in results}
    hidden = dict.fromkeys(("hideInAggregatedStatsTable", "hideInChildrenStatsTable"), True)  # sums of texts
    return {"results": results, "showExpandedSummaryOnGroupNode": True, **hidden}


def keys_of(model: ir.Model) -> dict[str, str]:
    """Return names of nodes, inputs and outputs as Model Explorer's ONNX reader has them -> name of a value."""
    ends = [value.name for value in (*model.graph.inputs, *model.graph.outputs)]
    nodes = [(node.name, node.outputs[0].name) for node in all_nodes(model.graph) if node.outputs]
    named = [*nodes, *((f"[value] {name}", name) for name in ends)]
    return {key: name for key, name in named if key and name}


LIBRARY = "3.34.4"
"""The version of Cytoscape.js in `assets/`: its own minified file, 436 kB, with its licence beside it."""

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SUMMARY = ("source_transposes", "source_bytes", "transposes", "bytes", "lower_bound", "proved")


def page(
    report: Report,  # the report of a conversion, or of what one would do
    title: str,  # the model's name
) -> str:
    """Return the page of a report, equal for equal reports."""
    claims = [] if report.claims is None else list(report.claims.lines(report.transposes - report.source_transposes))
    summary = {name: getattr(report, name) for name in _SUMMARY} | {"verdict": report.verdict, "claims": claims}
    return _page(title, {"summary": summary, **_drawn(report.chart, short_names(report, whole=False))})


def diff_page(diff: Diff) -> str:
    """Return the page of two models side by side: operators that only one has, and those that differ, are marked."""
    chart = diff.chart
    names = distinct(diff.first, diff.second)
    data = {
        "diff": {
            "names": names,
            "only": [diff.only_first, diff.only_second],
            "changed": [[item.spot, item.what] for item in diff.changed],
        },
        **_drawn(chart, ShortNames(())),
    }
    return _page(" | ".join(names), data)


def distinct(a: str, b: str) -> tuple[str, str]:
    """Two paths without the directories that tell nothing: file names, or as much more as makes them differ."""
    parts = [re.split(r"[/\\]", path) for path in (a, b)]
    most = max(map(len, parts))
    pairs = (tuple("/".join(each[-count:]) for each in parts) for count in range(1, most + 1))
    return next(((one, other) for one, other in pairs if one != other), (a, b))


def _page(title: str, data: dict[str, Any]) -> str:
    drawing = _asset("cytoscape.min.js")
    script = f"{_asset('layered.js')}\n{_asset('page.js')}"
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (drawing, script))
    parts = {
        "title": html.escape(printable(title)),
        "library": LIBRARY,
        "css": _asset("page.css"),
        "hashes": " ".join(f"'sha256-{digest}'" for digest in digests),
        "cytoscape": drawing,
        "script": script,
        "data": embedded(data),
    }
    return re.sub(r"\{(\w+)\}", lambda match: parts[match[1]], _asset("page.html"))


def embedded(data: object) -> str:
    """JSON that may stand in a script element, whatever its texts are."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return re.sub("[<>&\u2028\u2029]", lambda match: _UNSAFE[match[0]], text).encode("utf-8", "replace").decode()


def _drawn(chart: Chart, short: ShortNames) -> dict[str, Any]:
    weights = Counter[str]()  # of regions: the layouts of most operators get their colours first
    for region in (*chart.after.regions, *chart.before.regions):
        weights[layout_name(region.layout)] += len(region.spots)
    colours = colour_numbers(sorted(weights, key=lambda layout: (-weights[layout], layout)))
    layouts = [(layout_name(v.layout), layout_name(v.stored), list(map(layout_name, v.others))) for v in chart.values]
    values = zip(chart.values, layouts, strict=True)
    return {
        "spots": [[s.name, s.operator, s.fixed, s.source, s.outputs] for s in chart.spots],
        "values": [[v.tensor, v.dtype, v.shape, *names, v.bytes] for v, names in values],
        "colours": list(colours.items()),
        "before": _side(chart.before, short),
        "after": _side(chart.after, short),
    }


def _side(side: Side, short: ShortNames) -> dict[str, Any]:
    return {
        "edges": [[e.value, e.producer, e.reader, e.through] for e in side.edges],
        "marks": [[m.value, layout_names(m.layout), m.bytes, m.reason, short(m.reason)] for m in side.transposes],
        "regions": [[layout_name(r.layout), r.spots, r.bytes] for r in side.regions],
    }


def _asset(name: str) -> str:
    return files("relayout.reports").joinpath("assets", name).read_text(encoding="utf-8")
