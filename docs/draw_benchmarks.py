"""Draw the plots of the benchmark pages into `docs/plots/`: each shows a table of its page.

    python docs/draw_benchmarks.py

They follow the system's light or dark mode, and need no package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from math import ceil
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "bench"))

import tables  # noqa: E402

FOLDER = DOCS / "plots"
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #1f2328 } .end { text-anchor: end } .middle { text-anchor: middle }
.note { fill: #59636e; font-size: 12px } .title { font-weight: 600 } .line { stroke: #59636e } .rule { stroke: #d1d9e0 }
.own { fill: #1a7f5a } .peer { fill: #9aa6b2 } .good { fill: #1a7f5a } .fair { fill: #8fcfb2 } .bad { fill: #d1495b }
.none { fill: #d1d9e0 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .note { fill: #9198a1 } .line { stroke: #9198a1 } .rule { stroke: #3d444d }
.own { fill: #3fb27f } .peer { fill: #6e7681 } .good { fill: #3fb27f } .fair { fill: #1f5f45 } .bad { fill: #f0707f }
.none { fill: #3d444d } }
"""
WIDTH, LEFT, RIGHT, ROW, TOP = 720, 270, 130, 26, 34
"""Pixels: of a plot, of its names, behind its bars, of a bar with its distance, of its title."""
OURS = re.compile(r"relayout|litert-gpu|--quantize")
"""The name of relayout's rows."""

Row = dict[str, str]


def table(page: str, *columns: str) -> list[Row]:
    """Return the first table of a page that has these columns: column -> cell.

    Raises:
        LookupError: the page has none.
    """
    for found in _tables(page, *columns):
        return found
    raise LookupError(f"{page} has no table with {', '.join(columns)}")


def _tables(page: str, *columns: str) -> Iterator[list[Row]]:
    """Yield every table of a page that has these columns; of two columns of a name the first has it."""
    text = tables.with_tables((DOCS / page).read_text(encoding="utf-8"), DOCS)
    for block in tables.TABLE.findall(text.replace("`", "")):
        names, _, *rows = map(tables.cells, block.splitlines())
        if set(columns) <= set(names):
            yield [dict(reversed(list(zip(names, row, strict=True)))) for row in rows]


def number(text: str) -> float | None:
    """Return the first number of a cell, such as 0.53 of `0.53 / 0.38`; None where the cell begins with none."""
    found = re.match(r"\d[\d,]*\.?\d*", text)
    return None if found is None else float(found[0].replace(",", ""))


def drawing(height: int, title: str, body: Iterable[str]) -> str:
    """Return a plot of that height."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    heading = f'<text class="title" x="8" y="20">{escape(title)}</text>'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", heading, *body, "</svg>", ""])


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> str:
    """Return a bar for each row: its name, its value, and what stands behind it."""
    most = max(value for _, value, _ in rows)
    body = []
    for place, (name, value, said) in enumerate(rows):
        y, length = TOP + place * ROW, (WIDTH - LEFT - RIGHT) * value / most
        kind = "own" if OURS.search(name) else "peer"
        body += [
            f'<text class="end" x="{LEFT - 8}" y="{y + 15}">{escape(name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(length, 1):.0f}" height="20" rx="2"/>',
            f'<text x="{LEFT + length + 6:.0f}" y="{y + 15}">{escape(said)}</text>',
        ]
    return drawing(TOP + len(rows) * ROW + 6, title, body)


def shares(title: str, kinds: Sequence[tuple[str, str]], rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return a bar for each row, parted into kinds: their names and classes."""
    body, x = [], 8.0
    for name, kind in kinds:
        body.append(f'<rect class="{kind}" x="{x:.0f}" y="{TOP}" width="12" height="12" rx="2"/>')
        body.append(f'<text class="note" x="{x + 17:.0f}" y="{TOP + 11}">{escape(name)}</text>')
        x += 34 + 6.6 * len(name)
    for place, (name, values) in enumerate(rows):
        y, begin, scale = TOP + 24 + place * ROW, float(LEFT), (WIDTH - LEFT - 10) / sum(values)
        body.append(f'<text class="end" x="{LEFT - 8}" y="{y + 15}">{escape(name)}</text>')
        for value, (_, kind) in zip(values, kinds, strict=True):
            if value:
                length = value * scale
                body.append(f'<rect class="{kind}" x="{begin:.1f}" y="{y}" width="{length:.1f}" height="20"/>')
                begin += length
    return drawing(TOP + 24 + len(rows) * ROW + 6, title, body)


def ratios(title: str, cells: Iterable[str], above: str = "below 1: relayout's is faster") -> str:
    """Return a bar for the ratio in each cell that has one, least first, from 1 down or up.

    Args:
        title: the title.
        cells: a cell for each network.
        above: the note on what a ratio below 1 means.
    """
    ordered, height, left = sorted(value for cell in cells if (value := number(cell)) is not None), 150, 44
    low, high = min(*ordered, 0.9), max(*ordered, 1.1)
    step = (WIDTH - left - 10) / len(ordered)

    def y(value: float) -> float:
        return TOP + 6 + height * (high - value) / (high - low)

    body = []
    ticks = 4 if high - low > 0.5 else 10
    for mark in [tick / ticks for tick in range(ceil(ticks * low), int(ticks * high) + 1)]:
        kind = "line" if mark == 1 else "rule"
        body.append(f'<line class="{kind}" x1="{left}" x2="{WIDTH - 10}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        body.append(f'<text class="note end" x="{left - 6}" y="{y(mark) + 4:.1f}">{mark:g}</text>')
    for place, value in enumerate(ordered):
        top, length = min(y(value), y(1)), abs(y(value) - y(1))
        body.append(
            f'<rect class="{"own" if value <= 1 else "bad"}" x="{left + place * step:.1f}" y="{top:.1f}"'
            f' width="{step * 0.8:.1f}" height="{max(length, 1):.1f}"/>'
        )
    bottom = TOP + height + 26
    body.append(f'<text class="note" x="{left}" y="{bottom}">each bar is a network</text>')
    body.append(f'<text class="note end" x="{WIDTH - 10}" y="{bottom}">{escape(above)}</text>')
    return drawing(bottom + 8, title, body)


# The plots.

OUTCOMES = (
    ("right", "good"),
    ("nearly right", "fair"),
    ("wrong", "bad"),
    ("does not run", "peer"),
    ("not converted", "none"),
)


def counts(row: Row, columns: Sequence[str]) -> list[float]:
    """Return the numbers of some columns; what is no number counts as none."""
    return [number(row[column]) or 0.0 for column in columns]


def gpu() -> str:
    """Draw the number of files that the GPU takes as a whole and computes right."""
    rows = []
    for row in table("gpu-benchmark.md", "files", "right", "not whole"):
        total = sum(number(cell) or 0 for name, cell in row.items() if name != "files")
        right = number(row["right"]) or 0
        rows.append((row["files"], right / total, f"{right:.0f} of {total:.0f}"))
    return bars("Networks that the GPU takes as a whole, and right", rows)


def int8() -> str:
    """The time of each network in LiteRT."""
    cells = [row["time"] for row in table("int8-benchmark.md", "network", "time")]
    return ratios("Time of int8 files in LiteRT, litert-torch's = 1", cells)


def recurrent() -> str:
    """The time of each recurrent layer beside ONNX Runtime's."""
    cells = [row["ratio"] for row in table("recurrent-benchmark.md", "layer", "ratio")]
    return ratios("Time of recurrent layers in LiteRT, ONNX Runtime's = 1", cells)


def onnx_to_tflite() -> str:
    """Sums beside onnx2tf's."""
    found = table("onnx-to-tflite-benchmark.md", "models", "sum of", "ratio")
    rows = []
    for kind in ("float", "quantized"):
        for row in found:
            if row["models"] == kind and row["relayout"] == "--io convert":
                ratio = float(row["ratio"])
                rows.append((f"{kind}: {row['sum of']}, relayout", ratio, f"{ratio:.2f}"))
    return bars("Sums over the models, onnx2tf's = 1", [*rows, ("onnx2tf", 1.0, "1")])


def tflite_to_onnx() -> str:
    """Draw the results of each converter."""
    columns = ("right", "nearly", "wrong", "does not run", "not converted")
    rows = [
        (row["converter"], counts(row, columns))
        for row in table("benchmark.md", "converter", *columns)
        if row["converter"] != "relayout --io convert"
    ]
    return shares("What becomes of 331 TensorFlow Lite files", OUTCOMES, rows)


def optimizing() -> str:
    """Transposed bytes that each tool leaves."""
    rows = []
    for row in table("optimize-benchmark.md", "tool", "models", "valid"):
        (cell,) = (cell for name, cell in row.items() if name.startswith("MB transposed"))
        rows.append((row["tool"], number(cell) or 0.0, cell))
    return bars("MB that the results transpose, and the part of the sources'", rows)


def there_and_back() -> str:
    """Files that go to ONNX and come back."""
    columns = ("exact", "right", "close", "wrong", "does not run", "refused")
    sums: dict[str, list[float]] = {}
    for row in table("there-and-back.md", "models", "way", *columns):
        if row["models"] == "all":
            continue
        own = sums.setdefault(row["way"], [0.0] * len(columns))
        sums[row["way"]] = [a + b for a, b in zip(own, counts(row, columns), strict=True)]
    names = {"through ONNX": "relayout, through ONNX", "at once": "relayout, at once"}
    kinds = (("equal bit for bit", "good"), ("right or close", "fair"), *OUTCOMES[2:])
    rows = [
        (f"{names.get(way, way)} ({sum(each):.0f})", [each[0], each[1] + each[2], *each[3:]])
        for way, each in sums.items()
    ]
    return shares("TensorFlow Lite files that go to ONNX and come back", kinds, rows)


def node_tests() -> str:
    """Draw the results of the tests that both tools took."""
    columns = (("right",), ("as ONNX Runtime",), ("wrong",), ("does not run", "died"), ("refused",))
    kinds = (("right", "good"), ("as ONNX Runtime", "fair"), *OUTCOMES[2:4], ("refused", "none"))
    rows = [
        (f"{row['tool']} ({row['tests']})", [sum(counts(row, names)) for names in columns])
        for row in table("node-tests.md", "tool", "as ONNX Runtime")
    ]
    return shares("What becomes of the standard's node tests", kinds, rows)


def npu() -> str:
    """Cycles beside those of a peer."""
    cells = [row["ratio"] for page in _tables("npu-benchmark.md", "network", "by", "ratio") for row in page]
    return ratios("Vela's cycles of relayout's files, the peer's = 1", cells)


def opening() -> str:
    """Networks whose batch opens."""
    rows = [(row[""], number(row["to .tflite"]) or 0.0) for row in table("opening.md", "to ONNX", "to .tflite")]
    colours = ("good", "fair", "peer", "none", "bad")
    kinds = [(name.split(",")[0], kind) for (name, _), kind in zip(rows, colours, strict=False)]
    return shares("Networks whose batch relayout opens", kinds, [("to .tflite", [value for _, value in rows])])


def claims() -> str:
    """Megabytes at the borders of a target."""
    rows = []
    for row in table("claims.md", "claim", "beside", "relayout, T / MB"):
        if "emulated" in row["beside"]:
            continue
        own, other = (float(row[name].rpartition("/")[2]) for name in ("relayout, T / MB", "the other, T / MB"))
        rows += [(f"{row['claim']}: relayout", own, f"{own:.0f}"), (row["beside"], other, f"{other:.0f}")]
    return bars("MB transposed around what a target claims, in the graphs that both take", rows)


def onnxruntime_cpu() -> str:
    """The time of each network beside its source's."""
    cells = [row["ratio"] for page in _tables("target-cpu.md", "model", "Transposes", "ratio") for row in page]
    title = "Time in ONNX Runtime with --target onnxruntime-cpu, the source's = 1"
    return ratios(title, cells, "below 1: faster")


def cost() -> str:
    """Processor seconds of a conversion, with all imports."""
    shown = ("relayout convert to ONNX", "tflite2onnx", "tf2onnx")
    rows = [row for row in table("cost.md", "process", "processor s") if row["process"] in shown]
    return bars(
        "Processor seconds of a small conversion, imports included",
        [(row["process"], float(row["processor s"]), f"{row['processor s']} s") for row in rows],
    )


PLOTS: dict[str, Callable[[], str]] = {
    "benchmark": tflite_to_onnx,
    "claims": claims,
    "cost": cost,
    "gpu-benchmark": gpu,
    "int8-benchmark": int8,
    "node-tests": node_tests,
    "npu-benchmark": npu,
    "onnx-to-tflite-benchmark": onnx_to_tflite,
    "opening": opening,
    "optimize-benchmark": optimizing,
    "recurrent-benchmark": recurrent,
    "target-cpu": onnxruntime_cpu,
    "there-and-back": there_and_back,
}
"""The page that shows a plot, which has its name -> what draws it."""


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PLOTS.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
