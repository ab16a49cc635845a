"""`relayout targets`."""

from __future__ import annotations

import json

import click

from relayout.cli import options


@click.command("targets")
@click.argument("name", required=False)
@options.as_json
def targets_command(name: str | None, as_json: bool) -> None:
    """The backends that --target knows, or the table of one.

    With NAME: its operators, layouts, types and limits.
    """
    from relayout.reports import backends

    tables = backends.tables() if name is None else backends.table(name)
    if as_json:
        click.echo(json.dumps(tables, indent=2, ensure_ascii=False))
    else:
        backends.show(tables)
