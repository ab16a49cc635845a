"""`relayout verify`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.group import Command
from relayout.cli.running import FAILED, print_verification, stage, verified


@click.command("verify", cls=Command)
@click.argument("first", type=options.MODEL)
@click.argument("second", type=options.MODEL)
@options.feeds
@options.seed
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Inputs to try.")
@options.as_json
@options.quiet
def verify_command(
    first: Path, second: Path, feeds: dict[str, str], seed: int, runs: int, as_json: bool, quiet: bool
) -> None:
    """Run FIRST and SECOND on the same inputs and compare value by value, layouts undone."""
    with stage("verifying", quiet or as_json):
        found = verified(first, second, feeds, seed, runs)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    elif not quiet:
        print_verification(found)
    if not found.ok:
        sys.exit(FAILED)
