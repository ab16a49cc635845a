"""`relayout diff`."""

from __future__ import annotations

from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.bars import bars
from relayout.cli.entry import Command
from relayout.cli.options import MODEL, PAGE
from relayout.cli.running import STDOUT, print_json, put_text, refuse_own_source


@click.command(cls=Command)
@click.argument("first", type=MODEL)
@click.argument("second", type=MODEL)
@click.option("--html", type=PAGE, help="Write both, side by side, as one page.")
@options.as_json
@options.quiet
def diff(first: Path, second: Path, html: Path | None, as_json: bool, quiet: bool) -> None:
    """Two models side by side: operators, attributes, layouts.

    What FIRST and SECOND, each a .tflite, an .onnx or an .ort file, have in common, and in what they differ. Weights
    are not compared; whether both compute the same is what `verify` says.
    """
    from relayout import pipeline

    refuse_own_source([html], [first, second], ever=False)
    with bars(("reading", "planning"), quiet or as_json):
        comparison = pipeline.diff(first, second)
        if html is not None:
            put_text(html, comparison.html())
    if as_json or not quiet:
        if as_json:
            print_json(comparison.to_dict(), err=html == STDOUT)
        else:
            click.echo(str(comparison), err=html == STDOUT)
