"""`relayout explain`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from relayout.cli import options, running
from relayout.cli.bars import MADE, bars
from relayout.cli.entry import Command
from relayout.cli.options import MODEL, python_options

AS_ONNX = "This is what a conversion to ONNX leaves; for a .tflite result add --format tflite."
"""What is said of a `.tflite` source where no format is stated."""


@click.command(cls=Command)
@click.argument("source", type=MODEL)
@options.explained_format
@options.conversion
@options.plan_file
@options.max_bytes
@options.as_json
@options.quiet
@options.verbose
def explain(
    source: Path,
    plan_file: Path | None,
    max_bytes: int | None,
    as_json: bool,
    quiet: bool,
    html: Path | None,
    model_explorer: Path | None,
    **option_values: Any,
) -> None:
    """Explain what is transposed and why: layouts, reasons, the proof.

    Nothing is written: this is what `convert` would do with SOURCE, a .tflite, an .onnx or an .ort file, by the same
    options.
    """
    from relayout import pipeline
    from relayout.formats.recognition import is_tflite

    running.refuse_one_place({"--plan": plan_file, "--html": html, "--model-explorer": model_explorer})
    running.refuse_own_source([plan_file, html, model_explorer], [source], ever=False)
    converted = python_options(option_values)
    with bars(MADE, quiet or as_json):
        result = pipeline.convert(source, **converted)
        if plan_file is not None:
            running.put_text(plan_file, json.dumps(result.plan, separators=(",", ":")))
        running.write_views(result, source.name, html, model_explorer)
    if as_json or not quiet:
        running.print_report(result.report, as_json, err=running.STDOUT in (plan_file, html, model_explorer))
        if not as_json and "format" not in converted and is_tflite(source):
            click.echo(AS_ONNX, err=running.STDOUT in (plan_file, html, model_explorer))
    if over := running.exceeds(result.report, max_bytes):
        click.echo(f"relayout: {over}", err=True)
        sys.exit(running.FAILED)
