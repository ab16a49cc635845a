"""`relayout ops`."""

from __future__ import annotations

import click

from relayout.cli import options
from relayout.cli.running import print_json


@click.command()
@click.option(
    "--tflite", "part", flag_value="tflite", help="Only TensorFlow Lite operators: numbers, ONNX, what is refused."
)
@click.option("--onnx", "part", flag_value="onnx", help="Only ONNX operators: classes and signatures.")
@click.option(
    "--to-tflite", "part", flag_value="to_tflite", help="Only ONNX operators, and what they become in a .tflite."
)
@options.as_json
def ops(part: str | None, as_json: bool) -> None:
    """List the operators of ONNX and TensorFlow Lite that are covered."""
    from relayout.reports import coverage

    if as_json:
        print_json(coverage.tables(part))
    else:
        coverage.show(part)
