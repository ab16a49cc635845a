"""`relayout optimize`."""

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
@options.dims
@options.inputs
@options.outputs
@options.rename
@options.time_limit
@options.what_if
@options.html
@options.model_explorer
@options.annotate
@options.plan_file
@options.external_data
@options.overwrite
@click.option("--verify", is_flag=True, help="Run both in ONNX Runtime and compare value by value.")
@options.feeds
@options.seed
@options.as_json
@options.quiet
def optimize(
    paths: tuple[Path, ...],
    out_dir: Path | None,
    jobs: int,
    verify: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """The fewest transposed bytes for the ONNX model SOURCE, interface and meaning kept; many with --out-dir."""
    made = many.jobs_of("optimize", paths, out_dir, verify, given)
    if out_dir is None:
        run("optimizing", made[0], as_json, quiet)
    else:
        many.run_all(made, jobs, as_json, quiet)
