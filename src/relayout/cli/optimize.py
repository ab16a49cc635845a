"""`relayout optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relayout.cli import options
from relayout.cli.running import write


@click.command()
@click.argument("source", type=options.MODEL)
@click.argument("target", type=options.MODEL)
@options.dims
@options.inputs
@options.outputs
@options.rename
@options.time_limit
@options.what_if
@options.plan_file
@options.external_data
@click.option("--verify", is_flag=True, help="Run both in ONNX Runtime and compare value by value.")
@options.feeds
@options.seed
@options.as_json
@options.quiet
def optimize(source: Path, target: Path, verify: bool, as_json: bool, quiet: bool, **given: Any) -> None:
    """The fewest transposed bytes for the ONNX model SOURCE, interface and meaning kept."""
    from relayout import pipeline

    write("optimizing", pipeline.optimize, source, target, verify, as_json, quiet, given)
