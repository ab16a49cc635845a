"""What a terminal shows, as a picture: `python docs/draw_terminal.py` writes docs/terminal.svg.

The tables and colours are those of the command line, written by the same functions; times are left out.
"""

from __future__ import annotations

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI

import relayout
from relayout.reports import tables
from relayout.reports.layouts import size_name
from relayout.verification.report import render

ROOT = Path(__file__).parents[1]
SOURCE = "models/tinynet_float.tflite"
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that would be fetched from elsewhere."""


def terminal() -> str:
    """`relayout convert … --verify` as SVG that asks nobody for anything."""
    console = Console(record=True, width=94, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(f"[bold]$[/] relayout convert {SOURCE} tinynet.onnx --verify")
    result = relayout.convert(ROOT / SOURCE)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tinynet.onnx"
        result.save(path)
        size = size_name(path.stat().st_size)
        console.print(f"wrote tinynet.onnx ({size}): {tables.summary(result.report)}", highlight=False)
        console.print(*tables.paragraphs(replace(result.report, seconds={})), sep="\n")
        found = relayout.verify(ROOT / SOURCE, Path(folder) / "tinynet.onnx")
    console.print(*render(replace(found, a=SOURCE, b="tinynet.onnx")), sep="\n")
    svg = console.export_svg(title="relayout", theme=MONOKAI, unique_id="relayout")
    return FONT_FACE.sub("", svg)


if __name__ == "__main__":
    (ROOT / "docs" / "terminal.svg").write_text(terminal(), encoding="utf-8")
