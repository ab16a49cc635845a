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
from tables import table

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
    return table(["model", *(name for claim in CLAIMS for name in (claim, "ONNX Runtime"))], lines)


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
    parts = [
        "# What a target's claims leave",
        f"""Made by `bench/claiming.py --emulated --tvm PYTHON` and `bench/claiming_page.py` on {graphs} graphs of
`bench/make_onnx.py` and `bench/make_jax.py`. A target that wants NHWC claims (a) the convolutions, (b) all
layout-sensitive operators, (c) a random half of the convolutions. Counted are the Transposes of a run that move data,
and the megabytes that they give; open extents count as 1. All sides get the same graph: what level 1 of ONNX Runtime
makes of the file.""",
        f"""**ONNX Runtime** is its own layout transformer: a session with an execution provider of
`bench/claiming_provider.c`, which claims those nodes and wants them in NHWC, saves what the transformer made. In that
file the claimed nodes become calls of model-local functions, so that it runs: the {len(compared)} results are apart
from their sources' outputs by {apart["onnxruntime"]:.0e} of the largest at most, relayout's by {apart["relayout"]:.0e}.
**TVM** is ConvertLayout of Relax, which can only be asked for convolutions; pools follow, so it stands beside relayout
for a target whose pools may follow, too. *Emulated* repeats the transformer's way without it, for machines
without a C compiler: a Transpose before and after every claimed node, then the optimizer of level 1. It lacks the
transformer's own cost function.""",
        sums(rows),
        f"""Of {len(taken(rows, "relayout"))} results of relayout {proved} are proved minimal. Graphs and claims that a
side did not take: {refused(rows)}. Open extents count as 1 here, while relayout weighs them as is likely (an image is
no single pixel), so that it may leave more of what is counted so. More bytes than a peer's are transposed in:""",
        losses(rows),
        """TVM's bytes are those of its types. Where neither is less, both leave the same: plain CNNs, fully claimed,
leave nothing to be beaten in. The difference is made where values are reshaped. Fully claimed, in MB an inference, the
networks with the largest differences:""",
        gaps(rows),
    ]
    if extended:
        parts += [
            """At level 2 (`--extended`), where ONNX Runtime's own kernels run a Resize that nobody claims in either
order, and relayout's target says the same of the host. Quantized graphs are rounded otherwise there, so that outputs
are not compared:""",
            sums(extended),
            "More bytes are transposed there in:",
            losses(extended),
        ]
    parts += [
        "## Each graph",
        """Transposes and MB: relayout, ONNX Runtime at level 1. Empty: there is no convolution, or only one, to take
half of, or the graph was not taken.""",
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
    given.page.write_text(page(read(given.found), read(given.extended)), encoding="utf-8")


if __name__ == "__main__":
    main()
