"""`relayout bench`."""

from __future__ import annotations

from pathlib import Path

import click

from relayout.cli import options
from relayout.cli.bars import bars
from relayout.cli.entry import Command
from relayout.cli.options import MODEL, Number, WholeNumber
from relayout.cli.running import print_json


@click.command(cls=Command)
@click.argument("first", type=MODEL)
@click.argument("second", type=MODEL)
@click.option("--threads", type=WholeNumber(1, 1024), default=1, show_default=True, help="Of each runtime.")
@click.option(
    "--seconds",
    type=Number(0.01, 86400),
    default=3.0,
    show_default=True,
    metavar="NUMBER",
    help="How long to measure, in all.",
)
@options.feeds
@options.seed
@options.as_json
def bench(
    first: Path, second: Path, threads: int, seconds: float, feeds: dict[str, str], seed: int, as_json: bool
) -> None:
    """Time two models in turns, each in its own runtime.

    It says how long SECOND takes compared with FIRST.

    A .tflite runs in LiteRT, an .onnx in ONNX Runtime on the CPU.
    """
    from relayout.verification import benching

    with bars(("loading", "measuring"), as_json):
        measured = benching.bench(first, second, inputs=feeds or None, threads=threads, seconds=seconds, seed=seed)
    if as_json:
        print_json(measured.to_dict())
    else:
        click.echo(str(measured))
