"""Plots of what `run.py` left in a folder: time and memory of a conversion, bytes left, latency, growth.

    python bench/plots.py FOLDER

Wants matplotlib. Each plot is an SVG file and a PNG file of the same name in FOLDER; one whose figures are not there is
left out.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

COLOURS = {
    "relayout": "#0b6e4f",
    "tf2onnx": "#d1495b",
    "tflite2onnx": "#edae49",
    "onnx-ir": "#8d99ae",
    "ONNX Runtime 1": "#30638e",
    "onnxslim": "#8d99ae",
    "onnxsim": "#b8b8d1",
    "onnxscript": "#5b5f97",
}
SHOWN = {"onnxruntime": "ONNX Runtime 1"}
MANY = 1e4
"""From an end of an axis to the other: more and its numbers would overlap."""
FORMATS = ("float32", "float16", "dynamic", "int8", "int16x8")


def load(folder: Path, part: str) -> Any:
    path = folder / part / f"{part}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def logarithmic(axes: Any, *which: Any) -> None:
    """Powers of ten, with 2 and 5 between them where these are few, as plain numbers."""
    for axis in which or (axes.xaxis, axes.yaxis):
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < MANY * low else (1,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e4 else f"{value:,.0f}"))
        axis.set_minor_locator(NullLocator())


def bare(*axes: Any) -> None:
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(True, which="major", alpha=0.25)
        one.set_axisbelow(True)


def conversion(folder: Path) -> Any:
    """Processor seconds and peak memory of a whole conversion, by the size of the source."""
    found = load(folder, "conversion")
    rows = [
        (name, record["megabytes"], statistics.median(row["processor"]), max(row["peak_mb"]))
        for record in (found or {"models": []})["models"]
        for name, row in record["rows"].items()
        if name in COLOURS and row["converted"] and row.get("processor")
    ]
    if not rows:
        return None
    figure, both = plt.subplots(1, 2, figsize=(10, 4))
    for axes, place, label in zip(both, (2, 3), ("processor seconds", "peak MB"), strict=True):
        for name in dict.fromkeys(row[0] for row in rows):
            own = [row for row in rows if row[0] == name]
            sizes, values = [row[1] for row in own], [row[place] for row in own]
            axes.scatter(sizes, values, s=18, alpha=0.75, color=COLOURS[name], label=name, linewidths=0)
        axes.set(xlabel="MB of the .tflite file", ylabel=label)
        logarithmic(axes)
    both[0].legend(frameon=False)
    figure.suptitle("A whole conversion, its process and imports included")
    bare(*both)
    return figure


def left(folder: Path) -> Any:
    """Bytes that optimizers leave, in percent of the source's, over the models that all of them get right."""
    found = load(folder, "optimizing") or []
    tools = [tool for tool in (found[0]["tools"] if found else {}) if SHOWN.get(tool, tool) in COLOURS]
    right = [item for item in found if all(item["tools"].get(tool, {}).get("equal") for tool in tools)]
    base = sum(item["source"]["bytes"] for item in right)
    if not base:
        return None
    shares = {tool: 100 * sum(item["tools"][tool]["bytes"] for item in right) / base for tool in tools}
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(tools) + 1.2))
    names = [SHOWN.get(tool, tool) for tool in shares]
    bars = axes.barh(names, list(shares.values()), color=[COLOURS[name] for name in names], height=0.65)
    axes.bar_label(bars, fmt="%.0f %%", padding=3)
    axes.invert_yaxis()
    axes.set(xlim=(0, 112), xlabel=f"transposed bytes left, % of the source's, {len(right)} models")
    bare(axes)
    axes.grid(False, axis="y")
    return figure


def latency(folder: Path) -> Any:
    """Each model's latency in ONNX Runtime as a multiple of LiteRT's on the source, one thread."""
    rows = [row for row in load(folder, "latency") or [] if row["threads"] == 1]
    formats = [form for form in FORMATS if any(row["format"] == form for row in rows)]
    if not formats:
        return None
    figure, axes = plt.subplots(figsize=(7.5, 4))
    for shift, name in ((-0.12, "relayout"), (0.12, "tf2onnx")):
        points = [
            (formats.index(row["format"]) + shift, row[f"{name}/LiteRT"][1])
            for row in rows
            if row["format"] in formats and row.get(f"{name}/LiteRT")
        ]
        axes.scatter(*zip(*points, strict=True), s=26, alpha=0.8, color=COLOURS[name], label=name) if points else None
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set(ylabel="ONNX Runtime's time / LiteRT's, one thread", xlim=(-0.5, len(formats) - 0.5))
    logarithmic(axes, axes.yaxis)
    axes.set_xticks(range(len(formats)), formats)
    axes.legend(frameon=False)
    bare(axes)
    return figure


def growth(folder: Path) -> Any:
    """Processor seconds and memory of `optimize` as the graph grows, beside reading and writing it."""
    rows = [row for row in (load(folder, "scale") or {"nodes": []})["nodes"] if "why" not in row["relayout"]]
    if len(rows) < 2:
        return None
    figure, both = plt.subplots(1, 2, figsize=(10, 4))
    for name, label in (("relayout", "relayout optimize"), ("onnx-ir", "onnx-ir reads and writes")):
        done = [row for row in rows if "why" not in row[name]]
        nodes = [row["nodes"] for row in done]
        style = {"color": COLOURS[name], "label": label, "marker": "o", "markersize": 4}
        both[0].plot(nodes, [row[name]["seconds"]["total"] for row in done], **style)
        both[1].plot(nodes, [row[name]["peak_mb"] for row in done], **style)
    for axes, label in zip(both, ("processor seconds", "peak MB"), strict=True):
        axes.set(xlabel="nodes", ylabel=label)
        logarithmic(axes)
        axes.xaxis.set_major_locator(LogLocator(subs=(1,)))
    both[0].legend(frameon=False)
    bare(*both)
    return figure


PLOTS: tuple[Callable[[Path], Any], ...] = (conversion, left, latency, growth)


def main() -> None:
    folder = Path(sys.argv[1])
    mpl.rcParams.update({"svg.hashsalt": "relayout", "font.size": 10})
    for plot in PLOTS:
        figure = plot(folder)
        if figure is not None:
            figure.tight_layout()
            figure.savefig(folder / f"{plot.__name__}.svg", metadata={"Date": None})
            figure.savefig(folder / f"{plot.__name__}.png", dpi=110)
            print(plot.__name__)


if __name__ == "__main__":
    main()
