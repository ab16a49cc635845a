"""`relayout targets`."""

from __future__ import annotations

import click

from relayout.cli import options
from relayout.cli.options import TargetName
from relayout.cli.running import print_json


@click.command("targets")
@click.argument("name", required=False, type=TargetName())
@click.option("--new", "new", metavar="NAME", help="Print a commented table for a target of your own, in TOML.")
@options.as_json
def targets_command(name: str | None, new: str | None, as_json: bool) -> None:
    """List the backends that --target knows, or the table of one.

    With NAME, which may be a file (npu.toml, file.py:NAME): its operators, layouts, types and limits.
    """
    from relayout.reports import backends

    if new is not None:
        from relayout.targets.table_file import example

        if name is not None or as_json:
            raise click.UsageError("--new prints an example; leave NAME and --json out")
        click.echo(example(new), nl=False)
        return

    tables = backends.tables() if name is None else backends.table(name)
    if as_json:
        print_json(tables)
    else:
        backends.show(tables)
