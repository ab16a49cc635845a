"""`relayout FILE`, or `relayout info FILE`."""

from __future__ import annotations

from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.bars import MADE, bars
from relayout.cli.entry import Command
from relayout.cli.options import MODEL
from relayout.cli.running import print_json
from relayout.terminal import show


@click.command(cls=Command)
@click.argument("file", type=MODEL)
@options.as_json
def info(file: Path, as_json: bool) -> None:
    """Show what a file is, and what a conversion would save.

    Operators, inputs and outputs, number formats, layouts, Transposes of FILE, a .tflite, an .onnx or an .ort file.
    """
    from relayout import pipeline
    from relayout.reports import inspection

    with bars(2 * MADE, as_json):
        file_facts = pipeline.inspect(file)
    if as_json:
        print_json(file_facts.to_dict())
    else:
        show(*inspection.inspection_lines(file_facts))
