"""`relayout ops`."""

from __future__ import annotations

import json

import click

from relayout.cli import options


@click.command()
@options.as_json
def ops(as_json: bool) -> None:
    """What is covered: ONNX operators by class, and TensorFlow Lite operators."""
    from relayout.reports import coverage

    tables = coverage.tables()
    if as_json:
        click.echo(json.dumps(tables, indent=2))
    else:
        coverage.show(tables)
