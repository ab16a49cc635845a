"""`relayout convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relayout.cli import many, options
from relayout.cli.group import Command
from relayout.cli.running import run


@click.command(cls=Command)
@many.paths
@many.out_dir
@many.jobs_option
@options.io
@options.layouts
@options.dims
@options.inputs
@options.outputs
@options.rename
@options.opset
@options.quant
@options.signature
@options.state
@options.custom_ops
@options.to
@options.backend
@options.desired
@options.regions
@options.parts
@options.inline
@options.time_limit
@options.what_if
@options.html
@options.model_explorer
@options.annotate
@options.plan_file
@options.external_data
@click.option("--verify", is_flag=True, help="Run both in their runtimes and compare value by value.")
@options.feeds
@options.seed
@options.as_json
@options.quiet
def convert(
    paths: tuple[Path, ...],
    out_dir: Path | None,
    jobs: int,
    verify: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Convert SOURCE (.tflite or .onnx) to the ONNX model TARGET, `-` for standard output; or many, with --out-dir."""
    made = many.jobs_of("convert", paths, out_dir, verify, given)
    if out_dir is None:
        run("converting", made[0], as_json, quiet)
    else:
        many.run_all(made, jobs, as_json, quiet)
