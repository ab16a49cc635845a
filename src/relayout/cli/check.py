"""`relayout check`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.entry import Command
from relayout.cli.options import MODEL
from relayout.cli.running import FAILED, print_json
from relayout.errors import printable
from relayout.terminal import count_of

MOST = 20  # Misstated figures listed on a terminal; `--json` lists all


@click.command(cls=Command)
@click.argument("plan", type=MODEL)
@click.argument("source", type=MODEL)
@options.as_json
@options.quiet
def check(plan: Path, source: Path, as_json: bool, quiet: bool) -> None:
    """Check the proof of a plan against its model, without the solver.

    PLAN is what `convert --plan` or `optimize --plan` wrote, SOURCE the model that it was made for.
    """
    from relayout import pipeline
    from relayout.reports.report import priced

    checked = pipeline.check_plan(plan, source)
    if as_json:
        print_json(checked.to_dict())
    elif not quiet:
        verdict = ("proved minimal" if checked.proved else "not proved") + priced(
            checked.per_transpose, checked.per_scattered
        )
        count = count_of(checked.transposes, "Transpose")
        click.echo(f"{count}, {checked.bytes:,} bytes; lower bound {checked.bound:,}: {verdict}")
        for wrong in checked.misstated[:MOST]:
            click.echo(printable(f"misstated: {wrong}"))
        if len(checked.misstated) > MOST:
            click.echo(f"… {len(checked.misstated) - MOST} more (--json lists all)")
    if not checked.ok:
        sys.exit(FAILED)
