"""`relayout convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relayout.cli import many, options
from relayout.cli.entry import Command
from relayout.cli.running import run_job


@click.command(cls=Command)
@many.models
@options.output_format
@options.conversion
@options.quantizing
@options.splitting
@options.written
def convert(
    paths: tuple[Path, ...],
    out: Path | None,
    out_dir: Path | None,
    jobs: int,
    verify: bool,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Convert a model to ONNX, TensorFlow Lite, other layouts.

    SOURCE is a .tflite, an .onnx or an .ort file. TARGET is an .onnx or a .tflite file, as its suffix says, or `-` for
    standard output. With --out-dir, any number of sources.
    """
    made = many.jobs_of("convert", paths, out, out_dir, jobs, verify, given)
    if out_dir is None:
        run_job(made[0], as_json, quiet)
    else:
        many.run_all(made, jobs, as_json, quiet)
