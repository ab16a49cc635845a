"""The figures of a whole run of `run.py` as the table in docs/measured.md.

    python bench/figures.py FOLDER ...            # print the table
    python bench/figures.py FOLDER ... --write    # keep them in bench/figures.json, put the table into docs/measured.md

FOLDER is what `run.py` was given with `--out`; a part that was run in several has the lines of all. A part that is in
none has no lines, or with `--keep` its last.
Losses have lines of their own: models that are wrong, that keep more bytes than a peer's, or that run slower than
before.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import benchmark_page
import optimizing as optimized
import scale as growth
from benchmark_page import TARGETED
from processes import HERE
from tables import table, write_page

PAGE, KEPT = HERE.parent / "docs" / "measured.md", HERE / "figures.json"
BEGIN, END = "<!-- made by bench/figures.py -->", "<!-- end -->"
OURS = "relayout"
OPTIMIZERS = {"onnxruntime": "ONNX Runtime 1", "onnxslim": "onnxslim", "onnxsim": "onnxsim", "onnxscript": "onnxscript"}
CONVERTERS = ("tf2onnx", "tflite2onnx")
FORMATS = ("int8", "dynamic", "float32", "float16")
FLAG = "--target onnxruntime-cpu"
NODES = 10_000, 1_000_000
"""The sizes of graphs whose time is told."""


@dataclass(frozen=True)
class Figure:
    """A line of the table.

    Args:
        what: what was measured, of how many.
        ours: relayout's figure.
        peers: name -> its figure.
    """

    what: str
    ours: str
    peers: dict[str, str]


def conversion(found: Any) -> Iterator[Figure]:
    records = found["models"]
    counts = {}
    for name in (OURS, *CONVERTERS):
        results = [benchmark_page.result(row) for row in benchmark_page.rows_of(records, name)]
        if results:
            counts[name] = f"{sum(map(results.count, benchmark_page.RESULTS[:2]))}, {results.count('wrong')} wrong"
    yield figure(f"TensorFlow Lite models converted and right or nearly, of {len(records)}", counts)
    for peer, ours in benchmark_page.ALIKE.items():
        both = benchmark_page.pairs(records, peer)
        if not both or peer not in CONVERTERS:
            continue
        theirs = sum(row["verdict"]["bytes"] for _, row, _ in both)
        mine = sum(row["verdict"]["bytes"] for _, _, row in both)
        of = f"the {len(both)} models that {peer} gets right, too"
        moved = {OURS: f"{mine / 1e6:.2f}", peer: f"{theirs / 1e6:.2f}"}
        yield figure(f"MB transposed by the results of {of}{', with `--io convert`' if ours != OURS else ''}", moved)
        less = sum(row["verdict"]["bytes"] < mine["verdict"]["bytes"] for _, row, mine in both)
        more = sum(row["verdict"]["bytes"] > mine["verdict"]["bytes"] for _, row, mine in both)
        yield figure("of these, models on which it leaves more", {OURS: str(less), peer: str(more)})
        timed = [(row, mine) for _, row, mine in both if row["processor"] and mine["processor"]]
        if timed:
            took = {OURS: spent([mine for _, mine in timed]), peer: spent([row for row, _ in timed])}
            yield figure(f"of these, a conversion, imports included, medians over {len(timed)}", took)
    yield from latencies(records)


def latencies(records: list[dict[str, Any]]) -> Iterator[Figure]:
    for form in FORMATS:
        own = [record for record in records if benchmark_page.kind(record) == form]
        ratios, peer = {}, CONVERTERS[0]
        for name in (OURS, TARGETED, peer):
            known = [ratio for record in own if (ratio := benchmark_page.timed(record, name)) is not None]
            if known:
                ratios[name] = f"{statistics.median(known):.2f} ({len(known)})"
        if TARGETED in ratios:
            ratios[OURS] += f", with `{TARGETED.removeprefix(OURS).strip()}` {ratios.pop(TARGETED)}"
        shared = [record for record in own if benchmark_page.timed(record, peer)]
        mine = [ratio for record in shared if (ratio := benchmark_page.timed(record, OURS))]
        if mine:
            ratios[peer] += f", where relayout has {statistics.median(mine):.2f}"
        if ratios:
            what = f"latency of {form} results in ONNX Runtime, of the source in LiteRT = 1: median (models)"
            yield figure(what, ratios)


def optimizing(found: Any) -> Iterator[Figure]:
    tools = [name for name in (OURS, *OPTIMIZERS) if all(name in item["tools"] for item in found)]
    right = [item for item in found if all(item["tools"][tool].get("equal") for tool in tools)]
    base = max(1, sum(item["source"]["bytes"] for item in right))
    left = {tool: sum(item["tools"][tool]["bytes"] for item in right) for tool in tools}
    yield figure(
        f"transposed bytes that are left of {len(right)} ONNX models, of {len(found)}, that all get right",
        {OPTIMIZERS.get(tool, tool): f"{100 * size / base:.0f} %" for tool, size in left.items()},
    )
    fewer = {}
    for tool in tools[1:]:
        alike = [item["tools"] for item in right if item["tools"][tool]["hidden"] == item["source"]["hidden"]]
        pairs = [(rows[tool]["bytes"], rows[OURS]["bytes"]) for rows in alike]
        fewer[OPTIMIZERS[tool]] = str(sum(theirs > mine for theirs, mine in pairs))
        fewer[OURS] = str(int(fewer.get(OURS, "0")) + sum(theirs < mine for theirs, mine in pairs))
    # An operator that a peer fused may transpose inside, where nobody counts.
    yield figure("of these, models on which it leaves more: relayout than any, each peer than relayout", fewer)
    late = {OURS: sum(any(fault.startswith("slower") for fault in item["faults"]) for item in found)}
    late[optimized.TARGETED] = sum(optimized.slower(item["latency"], optimized.TARGETED) for item in found)
    mean = {}
    for tool in (*late, *OPTIMIZERS):
        if ratios := [item["latency"][tool]["ratio"] for item in found if tool in item["latency"]]:
            mean[tool] = f"{statistics.geometric_mean(ratios):.3f}"
    ours = f", with `{FLAG}` ".join(f"{mean[tool]}, {count} slower" for tool, count in late.items() if tool in mean)
    means = {name: mean[tool] for tool, name in OPTIMIZERS.items() if tool in mean}
    yield figure(
        "latency of all of them, the source's = 1: mean, and how many are slower beyond noise", {OURS: ours, **means}
    )


CLAIMED = (("relayout", "onnxruntime", "ONNX Runtime", ""), ("following", "tvm", "TVM", " (pools follow)"))
"""Ours, its peer, the peer's name, and what ours may do there that it may not beside the other."""


def claiming(found: Any) -> Iterator[Figure]:
    for own, peer, name, more in CLAIMED:
        for claim in dict.fromkeys(row["claim"] for row in found):
            asked = (row for row in found if row["claim"] == claim)
            rows = [row for row in asked if all("bytes" in (row.get(side) or {}) for side in (own, peer))]
            if not rows:
                continue
            moved = {OURS: own, name: peer}
            what = f"MB transposed in {len(rows)} networks where a backend for NHWC claims{more}: {claim}"
            yield figure(what, {who: f"{sum(row[k]['bytes'] for row in rows) / 1e6:.0f}" for who, k in moved.items()})


def scale(found: Any) -> Iterator[Figure]:
    for row in found["nodes"]:
        if row["nodes"] in NODES and not any("why" in row[kind] for kind in growth.COMPARED):
            seconds = row[OURS]["seconds"]
            own = sum(seconds.get(stage, 0) for column in growth.OWN for stage in growth.COLUMNS[column])
            took = {OURS: f"{seconds['total']:.1f} s, of it choice and rewriting {own:.1f} s"}
            alone, started = (row[kind]["seconds"]["total"] for kind in growth.COMPARED[1:])
            took["onnx-ir, reading and writing alone"] = f"{alone:.1f} s, as Python starts it {started:.1f} s"
            yield figure(f"`optimize` of {row['nodes']:,} nodes", took)


PARTS: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "conversion": conversion,
    "optimizing": optimizing,
    "claiming": claiming,
    "scale": scale,
}


def figure(what: str, of: dict[str, str]) -> Figure:
    return Figure(what, of.get(OURS, ""), {name: value for name, value in of.items() if name != OURS})


def spent(rows: list[dict[str, Any]]) -> str:
    """Processor seconds and peak memory, medians over models."""
    seconds, peak = (
        statistics.median(statistics.median(row[name]) for row in rows) for name in ("processor", "peak_mb")
    )
    return f"{seconds:.2f} s, {peak:.0f} MB"


Found = dict[str, list[Figure]]
"""Part -> its lines."""


def figures(*folders: Path) -> Found:
    """What the parts in folders found."""
    made: Found = {}
    for name, lines in PARTS.items():
        for path in (folder / name / f"{name}.json" for folder in folders):
            if path.exists():
                made.setdefault(name, []).extend(lines(json.loads(path.read_text(encoding="utf-8"))))
    return made


def shown(found: Found) -> str:
    """The table."""
    rows = []
    for each in (line for name in PARTS for line in found.get(name, [])):
        peers = ", ".join(f"{name} {value}" for name, value in each.peers.items())
        rows.append([each.what, each.ours, peers])
    return table(["", OURS, "peers"], rows)


def kept() -> Found:
    """The figures of the last run of each part that was kept."""
    told = json.loads(KEPT.read_text(encoding="utf-8"))
    return {name: [Figure(**each) for each in lines] for name, lines in told.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", action="store_true", help="the kept figures of parts that no FOLDER has")
    given = parser.parse_args()
    found = figures(*given.folders)
    if given.keep:
        found = kept() | found  # whole parts: a line may have another text in the next run, and several have the same
    print(shown(found))
    if given.write:
        told = {name: [asdict(each) for each in found[name]] for name in PARTS if name in found}
        KEPT.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        write_page(PAGE, f"{before}{BEGIN}\n\n{shown(found)}\n\n{END}{after}")


if __name__ == "__main__":
    main()
