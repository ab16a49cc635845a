"""Compare `relayout optimize` with its peers on ONNX models: validity, numerics, Transposes, time, memory, latency.

    python bench/optimizing.py --peers PYTHON [--out DIRECTORY] [--page PAGE.md] DIRECTORY_OR_MODEL ...

`bench/make_onnx.py` makes the models. `--peers` (or PEERS_PYTHON) is a Python that has onnxslim, onnxsim and
onnxscript; `--python` one that has relayout and ONNX Runtime, by default this one. Each optimizer runs in a process of
its own. All results are judged by one counter (`bench/counting.py`): the bytes of the Transposes that move data, as the
model runs. `--keep` leaves out what DIRECTORY has of an earlier run for the same files; `--again OPTIMIZING.json`
writes the page of one. `--openvino` is a Python that has openvino, onnx and onnxruntime (`bench/by_openvino.py`).

This file imports nothing heavy: a child's peak memory counts from what its parent held.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from processes import HERE, answer, digest, last_line, measure, models, processor, record, versions
from tables import merged, table, write_page

LIMIT_SECONDS = 300
OURS, TARGETED, BASE = "relayout", "relayout_target", "onnx_ir"
PEERS = ("onnxruntime", "onnxruntime_full", "onnxslim", "onnxsim", "onnxscript")
NAMES = {
    TARGETED: "relayout with target",
    "onnxruntime": "ONNX Runtime 1",
    "onnxruntime_full": "ONNX Runtime full",
    "onnx_ir": "read + write",
}
OF_ONE_RUNTIME = (TARGETED, "onnxruntime_full")
"""Whose results run in ONNX Runtime alone: integer kernels in NHWC, blocks for this processor. Shown, not raced."""
PACKAGES = {OURS: "onnx-relayout", "onnx_ir": "onnx-ir", "onnxruntime_full": "onnxruntime"}
NOISE = 0.03
"""What a median may differ by beyond its own interval: sessions of one file differ by as much."""

BY_HAND = "<!-- what follows is not made by bench/optimizing.py -->\n"
"""Behind it stands in a page what this file does not write: it stays."""

Row = dict[str, Any]


def pythons(python: str, peers: str | None) -> dict[str, str]:
    """Tool -> the Python that runs it."""
    known = {BASE: python, OURS: python, TARGETED: python, "onnxruntime": python, "onnxruntime_full": python}
    return known | dict.fromkeys(PEERS[2:], peers) if peers else known


def optimized(tool: str, python: str, source: Path, result: Path, log: Path, repeats: int) -> Row:
    """One tool on one model. The time is the least of the repeats: what is above it is others' work."""
    row: Row = {"tool": tool}
    for _ in range(repeats):
        result.unlink(missing_ok=True)
        done = measure([python, str(HERE / "optimizers.py"), tool, str(source), str(result)], log, LIMIT_SECONDS)
        if done.code or not result.exists():
            return row | {"why": last_line(log) or f"exit {done.code}", "wall": done.wall, "peak": done.peak_mb}
        said = json.loads(log.read_text().strip().splitlines()[-1])
        row["wall"] = min(row.get("wall", done.wall), done.wall)
        row["processor"] = min(row.get("processor", done.processor), done.processor)
        row["peak"] = max(row.get("peak", 0), done.peak_mb)
        row["megabytes"] = result.stat().st_size / 1e6
        row["untouched"] = digest(result) == digest(source)
        row["seconds"] = min(row.get("seconds", said["seconds"]), said["seconds"])
        row["report"] = said["report"]
    return row


def run(file: Path, known: dict[str, str], options: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    rows, python, seconds = {}, options.python, str(options.seconds)
    results = {tool: scratch / f"{tool}.onnx" for tool in known}
    for tool, its in known.items():
        rows[tool] = optimized(tool, its, file, results[tool], scratch / "log", options.repeats)
    made = [tool for tool, row in rows.items() if "why" not in row and tool != BASE]
    source, verdicts = judged(python, file, {tool: str(results[tool]) for tool in made})
    for tool, verdict in verdicts.items():
        rows[tool] |= verdict
    timed = [str(results[tool]) for tool, row in rows.items() if row.get("runs")]
    latency = answer(python, "judge_optimized.py", "time", seconds, str(file), *timed)
    other = answer(options.openvino, "by_openvino.py", seconds, str(file)) if options.openvino else None
    return {
        "model": file.stem,
        "megabytes": file.stat().st_size / 1e6,
        "source": source,
        "tools": rows,
        "latency": latency,
        "openvino": other,
        "faults": faults(source, rows, latency),
    }


def judged(python: str, file: Path, results: dict[str, str]) -> tuple[Row, dict[str, Row]]:
    """The source's own verdict and each tool's. A result that brings the judge down is judged by itself."""

    def asked(*paths: str) -> dict[str, Any]:
        return answer(python, "judge_optimized.py", "judge", str(file), *paths, limit=LIMIT_SECONDS)

    paths = [str(file), *results.values()]
    found = asked(*paths)
    if "why" in found:
        found = {path: verdict.get(path, verdict) for path in paths for verdict in [asked(path)]}
    return found[str(file)], {tool: found[path] for tool, path in results.items()}


def best_peer(rows: dict[str, Row], source: Row) -> tuple[int, str] | None:
    """The fewest bytes of a peer's equal result, and whose; not of one that moved Transposes into a fused operator."""
    fair = {
        tool: row for tool, row in rows.items() if tool in PEERS and tool not in OF_ONE_RUNTIME and row.get("equal")
    }
    found = [(row["bytes"], tool) for tool, row in fair.items() if row["hidden"] == source["hidden"]]
    return min(found, default=None)


def faults(source: Row, rows: dict[str, Row], latency: dict[str, Any]) -> list[str]:
    """Where relayout's result falls short; empty where it does not."""
    ours = rows[OURS]
    if "bytes" not in ours:
        return [f"no result: {ours.get('why')}"]
    found = [word for word, fine in (("not valid", ours["valid"]), ("values differ", ours["equal"])) if not fine]
    if not ours["interface"]:
        found.append("another interface")
    if not ours["report"]["proved"]:
        found.append("not proved")
    best = best_peer(rows, source)
    if best and ours["bytes"] > best[0]:
        found.append(f"{ours['bytes'] - best[0]:,} bytes more than {best[1]}")
    if not ours.get("untouched") and slower(latency, OURS):
        found.append(f"slower: {latency[OURS]['ratio']:.3f}")
    return found


def slower(latency: dict[str, Any], tool: str) -> bool:
    """Whether a tool's result takes longer than its source beyond noise."""
    noise = max(NOISE, latency["self"]["high"] - 1, 1 - latency["self"]["low"]) if "self" in latency else NOISE
    return tool in latency and latency[tool]["low"] > 1 + noise


def targeted(found: list[dict[str, Any]]) -> str:
    """What became of speed with the target, in a sentence; "" where it was not run."""
    timed = [item for item in found if TARGETED in item["latency"]]
    if not timed:
        return ""
    late = [
        f"{item['model']} {item['latency'][TARGETED]['ratio']:.3f}"
        for item in timed
        if slower(item["latency"], TARGETED)
    ]
    said = f"slower beyond noise are {', '.join(late)}" if late else "none is slower than its source beyond noise"
    return f"\n\nWith `--target onnxruntime-cpu`, of {len(timed)} results {said}."


def moved(row: Row) -> str:
    if not row:
        return "–"
    if "bytes" not in row:
        return "fails" if "runs" not in row else "does not run"
    marks = "" if row["equal"] else " ≠"
    marks += "" if row["valid"] else " !"
    marks += "".join(f" +{count} {name}" for name, count in row["hidden"].items())
    return f"{row['transposes']} / {row['bytes'] / 1e3:,.1f}{marks}"


def by_openvino(found: dict[str, Any] | None) -> str:
    if not found:
        return ""
    if "why" in found:
        return "fails"
    marks = ("" if found["equal"] else " ≠") + f" +{found['reorders']} Reorder"
    return f"{found['transposes']} / {found['bytes'] / 1e3:,.1f}{marks}"


SLOWEST = 15
"""Models whose cost a table gives."""


def bytes_table(found: list[dict[str, Any]], tools: list[str]) -> str:
    """Transposes and kilobytes of each result, `=` where they are the source's; then what is not proved."""
    head = ["model", "source", *(NAMES.get(tool, tool) for tool in tools), "OpenVINO"]
    lines = []
    for item in found:
        source = moved(item["source"])
        results = (moved(item["tools"].get(tool, {})) for tool in tools)
        cells = [*results, by_openvino(item.get("openvino"))]
        lines.append([item["model"], source, *("=" if cell == source else cell for cell in cells)])
    reports = {item["model"]: item["tools"][OURS].get("report") or {} for item in found}
    open_ones = [name for name, report in reports.items() if not report.get("proved")]
    said = f"Not proved minimal: {', '.join(open_ones)}." if open_ones else "relayout's results are proved minimal."
    return f"{table(head, merged(lines))}\n\n{said}"


def cost_table(found: list[dict[str, Any]], tools: list[str]) -> str:
    """In-process seconds with reading and writing, and the process's peak memory, of the models that take longest."""
    head = ["model", "MB", *(f"{NAMES.get(tool, tool)} s / MB" for tool in [BASE, *tools])]
    lines = []
    for item in sorted(found, key=lambda item: -item["tools"][OURS].get("seconds", 0))[:SLOWEST]:
        rows = item["tools"]
        cells = [
            f"{rows[tool]['seconds']:.2f} / {rows[tool]['peak']:.0f}" if "seconds" in rows.get(tool, {}) else "–"
            for tool in [BASE, *tools]
        ]
        lines.append([item["model"], f"{item['megabytes']:.1f}", *cells])
    return table(head, lines)


def latency_table(found: list[dict[str, Any]], tools: list[str]) -> str:
    head = ["model", "source ms", "source again", *(NAMES.get(tool, tool) for tool in tools), "OpenVINO"]
    lines = []
    for item in found:
        known = item["latency"]
        if "source" not in known:
            continue
        cells = [f"{known[name]['ratio']:.3f}" if name in known else "" for name in ("self", *tools)]
        if OURS in known:
            mine = known[OURS]
            cells[1 + tools.index(OURS)] = f"{mine['ratio']:.3f} ({mine['low']:.3f}–{mine['high']:.3f})"
        other = item.get("openvino") or {}
        cells.append(f"{other['ratio']:.3f}" if "ratio" in other else "")
        lines.append([item["model"], f"{known['source']['ms']:.2f}", *cells])
    return table(head, lines)


def summary(found: list[dict[str, Any]], tools: list[str]) -> str:
    """One line a tool: what became of all models, and the sums over those that every tool gets right that is raced."""
    raced = [tool for tool in tools if tool not in OF_ONE_RUNTIME]
    right = [item for item in found if all(item["tools"].get(tool, {}).get("equal") for tool in raced)]
    base = sum(item["source"]["bytes"] for item in right)
    lines = []
    for tool in tools:
        rows = [item["tools"][tool] for item in found if tool in item["tools"]]
        took = [row for row in rows if "seconds" in row]
        ratios = [item["latency"][tool]["ratio"] for item in found if tool in item["latency"]]
        counted = [row["bytes"] for item in right if "bytes" in (row := item["tools"].get(tool, {}))]
        total = f"{sum(counted) / 1e6:.2f} ({100 * sum(counted) / max(1, base):.0f} %)"
        lines.append(
            [
                NAMES.get(tool, tool),
                str(len(rows)),
                str(sum(bool(row.get("valid")) for row in rows)),
                str(sum(bool(row.get("equal")) for row in rows)),
                total if len(counted) == len(right) else "",
                f"{statistics.median(row['seconds'] for row in took):.2f}",
                f"{statistics.median(row['peak'] for row in took):.0f}",
                f"{statistics.geometric_mean(ratios):.3f}",
            ]
        )
    head = ["tool", "models", "valid", "equal", f"MB transposed on the {len(right)} that all get right"]
    return table([*head, "median s", "median peak MB", "mean latency, source = 1"], lines)


PAGE = """# Optimizing ONNX models

`relayout optimize` and its peers optimize {number} ONNX models, and each result runs beside its source. {verdict}

![MB that the results transpose, and the part of the sources'](plots/optimize-benchmark.svg)

{summary}

{others}`bench/optimizing.py` made this page of the models of `bench/make_onnx.py`: real architectures with random
weights, as PyTorch's two exporters (`dynamo`, `script`) and tf2onnx write them, some with dynamic dimensions, some in
int8 (`qdq`), and the onnx package's `light` models. Weights are scaled where a network would ignore its input
(`bench/lively.py`).
Processor: {processor}.
{versions}

## Transposes left

Each cell has the Transposes of one inference / the kilobytes that they move. DepthToSpace and SpaceToDepth count, too.
`=`: as the source. `≠`: other values than the source's. `!`: the checker refuses the file. `+`: operators that
transpose inside and are not counted.

Three columns are shown but not compared, since no other runtime can use their results: relayout's target
`onnxruntime-cpu`, ONNX Runtime's full optimization, and OpenVINO. On x64 without VNNI int8 kernels run as uint8 in all
results.

{bytes}

## Latency

ONNX Runtime's processor time as a multiple of the source's: medians, one thread, in turns, at full optimization. In
brackets: the middle 95 % of resampled rounds. "source again" is a second session of the source: noise. OpenVINO
runs the source itself.

{latency}

## Cost of optimizing

Processor seconds with reading and writing, without imports / peak memory of the process. "read + write" is onnx-ir
reading and writing the model. The {slowest} models that relayout takes longest for; the first table has the medians.

{cost}
"""


def page(found: list[dict[str, Any]], tools: list[str], versions: str) -> str:
    short = [f"- {item['model']}: {'; '.join(item['faults'])}" for item in found if item["faults"]]
    verdict = (
        f"On {len(found) - len(short)} of {len(found)} models relayout's result is valid, equal in values and proved "
        "minimal. It has at most the bytes of the best peer, and is not slower than its source beyond noise."
    )
    verdict += targeted(found)
    others = "The other models:\n\n" + "\n".join(short) + "\n\n" if short else ""
    return PAGE.format(
        processor=processor(),
        number=len(found),
        versions=versions,
        summary=summary(found, tools),
        verdict=verdict,
        others=others,
        bytes=bytes_table(found, tools),
        latency=latency_table(found, tools),
        cost=cost_table(found, tools),
        slowest=SLOWEST,
    )


def kept(page: Path) -> str:
    """What a page has behind the part that this file writes, such as rows of models that another file makes."""
    _, mark, rest = (page.read_text(encoding="utf-8") if page.exists() else "").partition(BY_HAND)
    return f"\n{mark}{rest}" if mark else ""


def versions_of(known: dict[str, str]) -> str:
    """What ran, by its own word."""
    said: dict[str, str] = {}
    for tool, python in known.items():
        said |= versions(python, PACKAGES.get(tool, tool))
    return f"Versions: {', '.join(f'{name} {number}' for name, number in said.items())}." if said else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--python", default=os.environ.get("RELAYOUT_PYTHON", sys.executable))
    parser.add_argument("--peers", default=os.environ.get("PEERS_PYTHON"))
    parser.add_argument("--openvino", default=os.environ.get("OPENVINO_PYTHON"))
    parser.add_argument("--keep", action="store_true", help="what an earlier run left in the directory")
    parser.add_argument("--seconds", type=float, default=3.0, help="to time each model's results for")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--repeats", type=int, default=2, help="of each optimization; the least time counts")
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--note", default="", help="what the page says of its rows")
    options = parser.parse_args()
    files = models(options.files, ".onnx")
    known, left = pythons(options.python, options.peers), options.out / "optimizing.json"
    before = options.again or (left if options.keep and left.exists() else None)
    found: list[dict[str, Any]] = json.loads(before.read_text(encoding="utf-8")) if before else []
    options.out.mkdir(parents=True, exist_ok=True)
    done = {(item["model"], item.get("sha256")) for item in found}
    digests = {file: digest(file) for file in files}
    files = [file for file in files if (file.stem, digests[file]) not in done]
    names = {file.stem for file in files}
    found = [item for item in found if item["model"] not in names]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.jobs) as pool:

        def one(file: Path) -> dict[str, Any]:
            own = Path(scratch, file.stem)
            own.mkdir()
            item = run(file, known, options, own)
            shutil.rmtree(own)
            return item | {"sha256": digests[file]}

        for item in pool.map(one, files):
            found.append(item)
            print(f"{item['model']}: {'; '.join(item['faults']) or 'fine'}", file=sys.stderr, flush=True)
            left.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    found.sort(key=lambda item: item["model"])
    tools = [tool for tool in known if tool != BASE]
    text = page(found, tools, " ".join(filter(None, (versions_of(known), options.note))))
    record(options.out, "optimizing", found, text, summary(found, tools))
    if options.page:
        write_page(options.page, text + kept(options.page))
    print(summary(found, tools))


if __name__ == "__main__":
    main()
