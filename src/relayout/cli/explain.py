"""`relayout explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relayout.cli import options
from relayout.cli.group import Command
from relayout.cli.running import print_report, stage, write_views


@click.command(cls=Command)
@click.argument("source", type=options.MODEL)
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
@options.inline
@options.time_limit
@options.what_if
@options.html
@options.model_explorer
@options.as_json
def explain(source: Path, as_json: bool, html: Path | None, model_explorer: Path | None, **given: Any) -> None:
    """What a conversion of SOURCE would do: layouts, remaining Transposes, the reason for each, the proof."""
    from relayout import pipeline

    with stage("planning", as_json):
        result = pipeline.convert(source, **options.converted(given))
        write_views(result, source.name, html, model_explorer)
    print_report(result.report, as_json)
