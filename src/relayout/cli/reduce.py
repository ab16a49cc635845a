"""`relayout reduce`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.bars import bars
from relayout.cli.group import Command
from relayout.cli.running import refuse_own_source


@click.command(cls=Command)
@click.argument("source", type=options.MODEL)
@click.option("-o", "--output", "target", type=options.MODEL, required=True, help="Where to write the part.")
@options.one_of(
    "--still",
    ["verify", "transpose"],
    "What the part must still show: that verification fails after optimize, or that a Transpose remains.",
)
@click.option(
    "--time-limit", type=float, metavar="SECONDS", help="Stop after so long, and write the smallest part so far."
)
@options.overwrite
@options.seed
@options.as_json
@options.quiet
def reduce(
    source: Path,
    target: Path,
    still: str,
    time_limit: float | None,
    overwrite: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """The smallest part of a model that still shows a fault.

    SOURCE is an .onnx file; the part is for a bug report.
    """
    from relayout import reduction
    from relayout.formats.onnx import check, write

    refuse_own_source([target], [source], overwrite)
    with bars(("reducing",), quiet or as_json):
        found = reduction.reduce(source, still=still, time_limit=time_limit, seed=seed)  # type: ignore[arg-type]
        check(found.model)
        write(found.model, target, overwrite=overwrite)
    if as_json:
        said = {"before": found.before, "after": found.after, "tries": found.tries, "smallest": found.smallest}
        click.echo(json.dumps(said))
    elif not quiet:
        ended = "none can be left out" if found.smallest else "the time limit stopped the search"
        click.echo(f"{found.before} nodes reduced to {found.after} in {found.tries} tries; {ended}: {target}")
