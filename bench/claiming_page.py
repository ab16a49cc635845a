"""The page of the documentation on what claims leave, from what `bench/claiming.py` found.

    python bench/claiming_page.py CLAIMING.json ... [--extended CLAIMING.json ...] [--page docs/claims.md]

The files are those of runs at level 1 of ONNX Runtime (`--emulated --tvm PYTHON`), and after `--extended` those of runs
with that option; each may hold other models. Sums and losses are computed, never picked.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from claiming import sums
from tables import merged, table, write_page

Rows = list[dict[str, Any]]
CLAIMS = ("convolutions", "all layout-sensitive", "half of the convolutions")
MOST = 8
"""Networks of which the table of the largest differences tells."""


def taken(rows: Rows, *sides: str) -> Rows:
    """The rows that all of these sides have bytes for."""
    return [row for row in rows if all("bytes" in row.get(side, {}) for side in sides)]


def counted(told: dict[str, Any] | None) -> str:
    return f"{told['transposes']} / {told['bytes'] / 1e6:.3f}" if told and "bytes" in told else ""


def gaps(rows: Rows) -> str:
    """The networks, one form of each, of which most is transposed by ONNX Runtime and not by relayout."""
    found: dict[str, tuple[int, int, str]] = {}
    for row in taken(rows, "relayout", "onnxruntime"):
        if row["claim"] == "all layout-sensitive":
            ours, other = row["relayout"]["bytes"], row["onnxruntime"]["bytes"]
            name = row["model"].partition(".")[0]
            found[name] = max(found.get(name, (0, 0, "")), (other - ours, ours, row["model"]))
    largest = sorted(found.values(), reverse=True)[:MOST]
    lines = [[f"`{model}`", f"{ours / 1e6:.2f}", f"{(ours + more) / 1e6:.2f}"] for more, ours, model in largest if more]
    return table(["network", "relayout", "ONNX Runtime"], lines)


def each(rows: Rows) -> str:
    """Transposes and MB of every graph: relayout and ONNX Runtime by claim."""
    by_model: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["claim"]] = row
    lines = [
        [model, *(counted(held.get(claim, {}).get(side)) for claim in CLAIMS for side in ("relayout", "onnxruntime"))]
        for model, held in sorted(by_model.items())
    ]
    return table(["model", *(name for claim in CLAIMS for name in (claim, "ONNX Runtime"))], merged(lines))


def losses(rows: Rows) -> str:
    """Where more bytes are transposed than by a peer."""
    pairs = {"onnxruntime": ("relayout", "ONNX Runtime"), "tvm": ("following", "TVM")}
    found = [
        f"* `{row['model']}`, {row['claim']}: {counted(row[own])}, {name} {counted(row[peer])}"
        for peer, (own, name) in pairs.items()
        for row in taken(rows, own, peer)
        if row[own]["bytes"] > row[peer]["bytes"]
    ]
    return "\n".join(found) or "None."


def refused(rows: Rows) -> str:
    """How often a side did not take a graph."""
    names = {"relayout": "relayout", "onnxruntime": "ONNX Runtime", "tvm": "TVM"}
    counts = {name: sum("refused" in row.get(side, {}) for row in rows) for side, name in names.items()}
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def page(rows: Rows, extended: Rows) -> str:
    """The whole page."""
    compared = taken(rows, "relayout", "onnxruntime")
    apart = {side: max(row[side].get("difference", 0) for row in compared) for side in ("relayout", "onnxruntime")}
    proved, graphs = sum(row["relayout"]["proved"] for row in taken(rows, "relayout")), len({r["model"] for r in rows})
    ours, theirs = (sum(row[side]["bytes"] for row in compared) / 1e6 for side in ("relayout", "onnxruntime"))
    parts = [
        "# What a target's claims leave",
        f"""A backend that wants NHWC and claims some operators has Transposes at its borders. This page counts
them in {graphs} graphs, after relayout, ONNX Runtime's layout transformer and TVM's ConvertLayout. relayout
transposes {ours:.1f} MB in all, where ONNX Runtime transposes {theirs:.1f} MB.""",
        "![MB transposed around what a target claims, in the graphs that both take](plots/claims.svg)",
        """The target claims (a) the convolutions, (b) all layout-sensitive operators, (c) a random half of the
convolutions. All sides get the graph that level 1 of ONNX Runtime makes of the file. The tables have the
Transposes of a run that move data, and their megabytes; open extents count as 1. `bench/claiming.py --emulated
--tvm PYTHON` and `bench/claiming_page.py` made the page of the graphs of `bench/make_onnx.py` and
`bench/make_jax.py`.""",
        f"""- **ONNX Runtime**: an execution provider (`bench/claiming_provider.c`) claims the nodes in NHWC, and
  the session saves the transformer's graph. The claimed nodes become calls of model-local functions, so that it
  runs: the {len(compared)} results differ from their sources' by {apart["onnxruntime"]:.0e} of the largest value
  at most, relayout's by {apart["relayout"]:.0e}.
- **TVM**: ConvertLayout of Relax takes convolutions only, and pools follow. relayout is compared for a
  target whose pools may follow, too.
- *Emulated*: a Transpose before and after every claimed node, then the optimizer of level 1, for machines without a C
  compiler. It lacks the transformer's cost function.""",
        sums(rows),
        f"""Of {len(taken(rows, "relayout"))} results of relayout {proved} are proved minimal. Each side refused
some graphs and claims: {refused(rows)}. Open extents count as 1 here, while relayout weighs them by likely sizes.
So it may transpose more bytes than a peer, as in:""",
        losses(rows),
        """Plain CNNs, fully claimed, leave no Transposes with either tool. The tools differ where values are
reshaped. The networks with the largest differences, fully claimed, in MB an inference:""",
        gaps(rows),
    ]
    if extended:
        parts += [
            """At level 2 (`--extended`) ONNX Runtime's own kernels run an unclaimed Resize in either order, and
relayout's target says the same of the host. Outputs are not compared there, since quantized graphs are rounded
otherwise:""",
            sums(extended),
            "relayout transposes more bytes there in:",
            losses(extended),
        ]
    parts += [
        "## Each graph",
        """Transposes and MB: relayout, ONNX Runtime at level 1. Empty: the graph has fewer than two convolutions,
or was refused.""",
        each(rows),
    ]
    return "\n\n".join(parts) + "\n"


def read(paths: Iterable[Path]) -> Rows:
    return [row for path in paths for row in json.loads(path.read_text())]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("found", type=Path, nargs="+")
    parser.add_argument("--extended", type=Path, nargs="*", default=[])
    parser.add_argument("--page", type=Path, default=Path("docs/claims.md"))
    given = parser.parse_args()
    write_page(given.page, page(read(given.found), read(given.extended)))


if __name__ == "__main__":
    main()
