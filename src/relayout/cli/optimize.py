"""`relayout optimize`."""

from __future__ import annotations

from typing import Any

import click

from relayout.cli import many, options
from relayout.cli.entry import Command


@click.command(cls=Command)
@many.models
@options.part
@options.aiming
@options.solving
@options.views
@options.written
def optimize(**option_values: Any) -> None:
    """Leave the fewest transposed bytes in an ONNX model.

    No more Transposes than before; interface and meaning are kept.

    SOURCE is an .onnx or an .ort file (a .tflite is converted, as by `convert`); TARGET an .onnx file, or `-` for
    standard output. With --out-dir, any number of sources.
    """
    many.run("optimize", **option_values)
