"""`relayout optimize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relayout.cli import many, options
from relayout.cli.entry import Command
from relayout.cli.running import run_job


@click.command(cls=Command)
@many.models
@options.part
@options.aiming
@options.solving
@options.views
@options.written
def optimize(
    paths: tuple[Path, ...],
    out: Path | None,
    out_dir: Path | None,
    jobs: int,
    verify: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Leave the fewest transposed bytes in an ONNX model.

    No more Transposes than before; interface and meaning are kept.

    SOURCE is an .onnx or an .ort file (a .tflite is converted, as by `convert`); TARGET an .onnx file, or `-` for
    standard output. With --out-dir, any number of sources.
    """
    made = many.jobs_of("optimize", paths, out, out_dir, jobs, verify, given)
    if out_dir is None:
        run_job(made[0], as_json, quiet)
    else:
        many.run_all(made, jobs, as_json, quiet)
