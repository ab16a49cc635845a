"""`relayout convert`."""

from __future__ import annotations

from typing import Any

import click

from relayout.cli import many, options
from relayout.cli.entry import Command


@click.command(cls=Command)
@many.models
@options.output_format
@options.conversion
@options.quantizing
@options.splitting
@options.written
def convert(**option_values: Any) -> None:
    """Convert a model to ONNX, TensorFlow Lite, other layouts.

    SOURCE is a .tflite, an .onnx or an .ort file. TARGET is an .onnx or a .tflite file, as its suffix says, or `-` for
    standard output. With --out-dir, any number of sources.
    """
    many.run("convert", **option_values)
