"""The page on ONNX -> .tflite, from what `bench/to_tflite.py` measured. Sums are computed, never picked."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from tables import median, merged, table

KEEP, CONVERT, PEER = "relayout --io keep", "relayout --io convert", "onnx2tf"
TOOLS = (KEEP, CONVERT, PEER)
VERDICTS = ("right", "close", "wrong", "does not run", "refused")
LARGER = 1.05
"""From here on a result is said to be slower, or a file larger, than the peer's."""

Row = dict[str, Any]
Rows = list[Row]


def verdict(row: Row, kernels: str = "default") -> str:
    """One of the verdicts; empty where the judge had no answer."""
    if "why" in row:
        return "refused"
    return str(row["kernels"][kernels]["verdict"]) if "kernels" in row else ""


def usable(row: Row) -> bool:
    return verdict(row) in ("right", "close") and "bytes" in row


def groups(found: Row) -> dict[str, Rows]:
    judged = [each for each in found["models"] if each["quantized"] is not None]
    parts = {"float": [m for m in judged if not m["quantized"]], "quantized": [m for m in judged if m["quantized"]]}
    return {name: rows for name, rows in parts.items() if rows}


def tools_of(found: Row) -> list[str]:
    return [tool for tool in TOOLS if any(tool in each["tools"] for each in found["models"])]


def compared(rows: Rows, tool: str = CONVERT) -> Rows:
    """The models that both relayout and the peer convert to results that are right or close."""
    return [m for m in rows if PEER in m["tools"] and usable(m["tools"][tool]) and usable(m["tools"][PEER])]


def numerics(found: Row) -> str:
    lines = []
    for group, rows in groups(found).items():
        for tool in tools_of(found):
            for kernels in ("default", "reference"):
                given = [verdict(m["tools"][tool], kernels) for m in rows if tool in m["tools"]]
                lines.append([group, tool, kernels, str(len(given)), *(str(given.count(each)) for each in VERDICTS)])
    return table(["models", "tool", "kernels", "number", *VERDICTS], lines, 3)


def milliseconds(row: Row) -> float:
    return float(statistics.median(row["ms"]))


MEASURES: dict[str, Callable[[Row], float]] = {
    "transposed MB": lambda row: row["bytes"] / 1e6,
    "operators": lambda row: row["operators"],
    "file MB": lambda row: row["megabytes"],
    "CPU seconds": lambda row: row["processor"],
    "peak MB": lambda row: row["peak"],
    "ms in LiteRT": milliseconds,
}


def sums(rows: Rows, tool: str) -> list[list[str]]:
    """Return a line for each measure: sums, their ratio, the median of the models' ratios, where the peer is better."""
    lines = []
    for name, of in MEASURES.items():
        timed = [
            m
            for m in compared(rows, tool)
            if name != "ms in LiteRT" or all("ms" in m["tools"][t] for t in (tool, PEER))
        ]
        pairs = [(of(m["tools"][tool]), of(m["tools"][PEER])) for m in timed]
        if not pairs:
            continue
        ours, theirs = (sum(column) for column in zip(*pairs, strict=True))
        ratio = f"{ours / theirs:.3f}" if theirs else "–"
        each = median((a / b for a, b in pairs if b), ".3f")
        worse = sum(a > b * (LARGER if name == "ms in LiteRT" else 1) for a, b in pairs)
        lines.append([name, str(len(pairs)), f"{ours:,.2f}", f"{theirs:,.2f}", ratio, each, str(worse)])
    return lines


def beside(found: Row) -> str:
    head = ["models", "relayout", "sum of", "number", "relayout", "onnx2tf", "ratio", "median ratio", "onnx2tf better"]
    lines = [
        [group, tool.partition(" ")[2], *line]
        for group, rows in groups(found).items()
        for tool in (CONVERT, KEEP)
        for line in sums(rows, tool)
    ]
    return table(head, lines, 3)


BEGIN, END = "<!-- made by bench/to_tflite.py -->", "<!-- end -->"


def in_a_sentence(found: Row) -> str:
    """Return what the README says of a run: parts of the peer's transposed bytes and of its time."""
    said = []
    for group, rows in groups(found).items():
        lines = {line[0]: line for line in sums(rows, CONVERT)}
        moved, timed = lines.get("transposed MB"), lines.get("ms in LiteRT")
        if moved and timed:
            bytes_, time, models = (
                f"{100 * float(moved[4]):.0f} %",
                f"{float(timed[5]):.2f}",
                f"{moved[1]} {group} models",
            )
            parts = ("and ", "in") if said else ("transpose ", "and run in")
            said.append(f"{parts[0]}{bytes_} of the bytes {parts[1]} {time} times the time ({models})")
    return f"Compared with onnx2tf, relayout's files {', '.join(said)}." if said else ""


def with_sentence(readme: str, found: Row) -> str:
    """Return a README with this run's sentence in the place of the last one's.

    Raises:
        ValueError: it has no place for one.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README has no line between {BEGIN} and {END}")
    measured = "[Measured](docs/onnx-to-tflite-benchmark.md) in LiteRT."
    return f"{before}{BEGIN} {in_a_sentence(found)} {measured} {END}{after}"


def latencies(found: Row) -> str:
    """Each tool's time in LiteRT as a part of the source's in ONNX Runtime."""
    lines = []
    for group, rows in groups(found).items():
        for tool in tools_of(found):
            ratios = [
                milliseconds(m["tools"][tool]) / statistics.median(m["source_ms"])
                for m in rows
                if "source_ms" in m and "ms" in m["tools"].get(tool, {})
            ]
            if ratios:
                lines.append([group, tool, str(len(ratios)), median(ratios, ".2f"), f"{max(ratios):.2f}"])
    return table(["models", "tool", "number", "median", "most"], lines, 2) if lines else ""


def listed(items: Iterable[str]) -> str:
    return "\n".join(f"* {item}" for item in items) or "* none"


def broken_promises(tool: str, row: Row, megabytes: float) -> list[str]:
    """Say where a result is not right, or more than relayout promises for a model of this size."""
    found = []
    both = dict.fromkeys((verdict(row), verdict(row, "reference")))
    if list(both) != ["right"]:
        why = row.get("why") or next((k["why"] for k in row.get("kernels", {}).values() if "why" in k), "")
        found.append(" and ".join(both) + (f": {why}" if why else ""))
    if "bytes" in row and row["bytes"] != row["reported"]:
        found.append(f"{row['bytes']:,} bytes counted, {row['reported']:,} reported")
    if not row.get("proved", True):
        found.append("not proved minimal")
    if row["peak"] > megabytes + 100:
        found.append(f"peak memory {row['peak']:.0f} MB, file {megabytes:.1f} MB")
    return [f"{tool}: {each}" for each in found]


def worse_than_peer(own: Row, peer: Row) -> list[str]:
    found = []
    if own["bytes"] > peer["bytes"]:
        found.append(f"{own['bytes']:,} bytes transposed, onnx2tf {peer['bytes']:,}")
    for name, of in MEASURES.items():
        if name != "transposed MB" and (name != "ms in LiteRT" or ("ms" in own and "ms" in peer)):
            ratio = of(own) / of(peer)
            if ratio > LARGER:
                found.append(f"{ratio:.2f} of onnx2tf's {name}")
    return found


def losses(found: Row) -> str:
    """Where relayout is worse than the peer, or misses its own promise."""
    said: list[list[str]] = []
    for m in (m for part in groups(found).values() for m in part):
        tools = m["tools"]
        parts = [each for tool in (KEEP, CONVERT) for each in broken_promises(tool, tools[tool], m["megabytes"])]
        if compared([m]):
            parts += worse_than_peer(tools[CONVERT], tools[PEER])
        if parts:
            said.append([f"`{m['model']}`", "; ".join(parts)])
    return listed(map(": ".join, merged(said)))


def refusals(found: Row) -> str:
    """List what the peer refuses, gets wrong, or writes so that it does not run."""
    said = []
    for m in (m for part in groups(found).values() for m in part):
        row = m["tools"].get(PEER)
        if row and verdict(row) not in ("right", "close"):
            why = row.get("why") or row.get("kernels", {}).get("default", {}).get("why", "")
            said.append([f"`{m['model']}`", f"{verdict(row)}{': ' + why[:160] if why else ''}"])
    return listed(map(": ".join, merged(said)))


def cell(row: Row | None) -> str:
    """Verdicts by default and reference kernels, operators, transposed MB."""
    if row is None or "why" in row:
        return "refused" if row else ""
    both = dict.fromkeys((verdict(row), verdict(row, "reference")))
    moved = f", {row['operators']}, {row['bytes'] / 1e6:.3f}" if "bytes" in row else ""
    return f"{' / '.join(both)}{moved}"


def each(found: Row) -> str:
    tools = tools_of(found)
    lines = []
    for m in (m for part in groups(found).values() for m in part):
        rows = [m["tools"].get(tool) for tool in tools]
        bound = m["tools"][CONVERT].get("lower_bound")
        spent = [f"{row['processor']:.1f} / {row['peak']:.0f}" if row else "" for row in rows]
        times = [f"{milliseconds(row):.2f}" if row and "ms" in row else "" for row in rows]
        lines.append([m["model"], *map(cell, rows), "" if bound is None else f"{bound / 1e6:.3f}", *spent, *times])
    head = ["model", *tools, "bound", *(f"{tool}: s / MB" for tool in tools), *(f"{tool}: ms" for tool in tools)]
    return table(head, lines)


def headlines(found: Row) -> str:
    return f"{numerics(found)}\n\n{beside(found)}\n\n{latencies(found)}"


def page(found: Row) -> str:
    """The whole page."""
    used = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    number = sum(len(rows) for rows in groups(found).values())
    sentence = in_a_sentence(found) if PEER in tools_of(found) else ""
    said = f"\n{sentence}" if sentence else ""
    unjudged = [m["model"] for m in found["models"] if m["quantized"] is None]
    parts = [
        "# ONNX to TensorFlow Lite, measured",
        f"""relayout and onnx2tf convert {number} ONNX models to `.tflite`, and one judge runs each source and
result.{said}

![Sums over the models, onnx2tf's = 1](plots/onnx-to-tflite-benchmark.svg)

`bench/to_tflite.py` made this page on {found["date"]}, on one {found["processor"] or "processor"}. Versions:
{used}.""",
        """<!-- not run: needs onnx2tf in an environment of its own -->
```sh
python3.12 -m venv onnx2tf && onnx2tf/bin/pip install onnx2tf==2.6.9
python bench/to_tflite.py --onnx2tf onnx2tf/bin/python --latency 9 --page docs/onnx-to-tflite-benchmark.md MODELS
```""",
        """`bench/make_onnx.py` makes the models from PyTorch. relayout runs with `--io keep` and `--io convert`.
onnx2tf runs with its defaults, which store images with channels last and also write a float16 file. CPU seconds
and peak memory are those of the whole process.""",
        """One judge runs the source in ONNX Runtime and each result in LiteRT, with its default and with its
reference kernels:

- **right**: within 1e-4 of the largest value, or within one step of a quantized output
- **close**: within 2 % of the largest value, three steps, or twice the sensitivity of a quantized source (the change of
  its outputs when inputs move by a millionth and ONNX Runtime does not optimize)
- **wrong**: anything else

Transposed bytes are those that these operators write in a run:

- a TRANSPOSE of a computed tensor that moves an axis longer than 1
- a GATHER with a constant permutation
- a CONCATENATION that copies runs shorter than 16 bytes""",
    ]
    if PEER not in tools_of(found):
        parts.append("onnx2tf was not installed: the page has relayout's figures only.")
    if found["left_out"]:
        parts.append(f"Models with open extents, left out: {found['left_out']}.")
    if unjudged:
        parts.append(f"Not judged, since ONNX Runtime does not run the source: {', '.join(unjudged)}.")
    parts += ["## Numerics", numerics(found)]
    if PEER in tools_of(found):
        parts += [
            "## Beside onnx2tf",
            """The models are those that both tools get right or close with the default kernels. *ratio* is
relayout's sum divided by onnx2tf's, *median ratio* the median over models. *onnx2tf better* counts the models
where onnx2tf is ahead (for times, by more than 5 %).""",
            beside(found),
        ]
    if latencies(found):
        parts += [
            "## Beside ONNX Runtime",
            """The ratio of two medians of CPU time, each on one thread and in turns: the result in LiteRT, and the
source in ONNX Runtime.""",
            latencies(found),
        ]
    parts += [
        "## Where relayout falls short",
        """The list has results that are not right or not proved, that need more memory than the file's size plus
100 MB, that move more bytes than the report says, or that are more than 5 % worse than onnx2tf's with `--io
convert`.""",
        losses(found),
    ]
    if PEER in tools_of(found):
        parts += ["## Where onnx2tf fails", refusals(found)]
    parts += [
        "## Each model",
        "Verdict (default / reference kernels where they differ), operators, transposed MB; *bound*: relayout's proved "
        "bound with `--io convert`, in MB.",
        each(found),
    ]
    return "\n\n".join(parts) + "\n"
