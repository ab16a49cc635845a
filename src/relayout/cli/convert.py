"""`relayout convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relayout.cli import options
from relayout.cli.running import write


@click.command()
@click.argument("source", type=options.MODEL)
@click.argument("target", type=options.MODEL)
@options.io
@options.layouts
@options.dims
@options.inputs
@options.outputs
@options.rename
@options.opset
@options.dequantize
@options.signature
@options.state
@options.custom_ops
@options.to
@options.backend
@options.desired
@options.inline
@options.time_limit
@options.what_if
@options.plan_file
@options.external_data
@click.option("--verify", is_flag=True, help="Run both in their runtimes and compare value by value.")
@options.feeds
@options.seed
@options.as_json
@options.quiet
def convert(source: Path, target: Path, verify: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """Convert SOURCE (.tflite or .onnx) to the ONNX model TARGET."""
    from relayout import pipeline

    write("converting", pipeline.convert, source, target, verify, as_json, quiet, given)
