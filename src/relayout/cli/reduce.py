"""`relayout reduce`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.bars import bars
from relayout.cli.entry import Command
from relayout.cli.options import MODEL, Number, choice_option
from relayout.cli.running import STDOUT, print_json, put_model, refuse_console, refuse_original, refuse_own_source


@click.command(cls=Command)
@click.argument("source", type=MODEL)
@click.argument("target", type=MODEL, required=False)
@click.option("-o", "--output", type=MODEL, metavar="TARGET", help="TARGET, given as an option.")
@choice_option(
    "--still",
    ["verify", "transpose"],
    "What the part must still show: that verification fails after optimize, or that a Transpose remains.",
)
@click.option(
    "--time-limit", type=Number(0), metavar="SECONDS", help="Stop after so long, and write the smallest part so far."
)
@options.external_data
@options.overwrite
@options.seed
@options.as_json
@options.quiet
def reduce(
    source: Path,
    target: Path | None,
    output: Path | None,
    still: str,
    time_limit: float | None,
    external_data: bool | None,
    overwrite: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """The smallest part of a model that still shows a fault.

    SOURCE is an .onnx or an .ort file; TARGET, where the part for a bug report goes, too, or `-` for standard output.
    """
    from relayout.formats.onnx.checking import check
    from relayout.formats.onnx.writing import write
    from relayout.formats.recognition import SOURCE_FORMAT
    from relayout.pipeline import reduction

    place = target or output
    if place is None or (target and output):
        raise click.UsageError("give SOURCE and one TARGET")
    if place.suffix.lower() in (".tflite", ".ort"):
        raise click.UsageError(f"reduce writes ONNX: end {place} in .onnx")
    refuse_console(place, beside=external_data)
    refuse_own_source([place], [source], overwrite)
    if output is None and not overwrite:
        refuse_original(place, source)
    with bars(("reducing",), quiet or as_json):
        part = reduction.reduce(source, still=still, time_limit=time_limit, seed=seed)  # type: ignore[arg-type]
        part.model.metadata_props.setdefault(SOURCE_FORMAT, "onnx")
        check(part.model)
        put_model(place, partial(write, part.model), external_data=external_data, overwrite=overwrite)
    aside = place == STDOUT
    if as_json:
        said = {"before": part.before, "after": part.after, "tries": part.tries, "smallest": part.smallest}
        print_json(said, err=aside)
    elif not quiet:
        ended = "none can be left out" if part.smallest else "the time limit stopped the search"
        whither = "" if aside else f": {place}"
        click.echo(f"{part.before} nodes reduced to {part.after} in {part.tries} tries; {ended}{whither}", err=aside)
