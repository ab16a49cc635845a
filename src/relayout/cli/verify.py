"""`relayout verify`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relayout.cli import options
from relayout.cli.bars import COMPARED, bars
from relayout.cli.entry import Command
from relayout.cli.options import MODEL, WholeNumber, layout_pairs
from relayout.cli.running import FAILED, code_of, in_one_line, print_json, print_verification, verified
from relayout.errors import RelayoutError
from relayout.terminal import count_of

if TYPE_CHECKING:
    from relayout.verification import VerifyReport
    from relayout.verification.litert_gpu import GpuVerdict


@click.command("verify", cls=Command)
@click.argument("first", type=MODEL)
@click.argument("second", type=MODEL)
@options.feeds
@options.counterparts
@options.seed
@click.option(
    "--runs", type=WholeNumber(1), help="Inputs to try. [default: 2 where a run takes under a second, else 1]"
)
@options.rtol
@options.atol
@click.option(
    "--repro",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where they differ: write the part around the first divergence, with a script that fails by itself.",
)
@click.option(
    "--gpu",
    is_flag=True,
    help="SECOND, a .tflite, also runs on LiteRT's GPU accelerator, or on SwiftShader in its place: does it take the"
    " whole file, and are its numbers those of the CPU?",
)
@options.as_json
@options.quiet
@options.verbose
def verify_command(
    first: Path,
    second: Path,
    feeds: dict[str, str],
    layouts: dict[str, str],
    seed: int,
    runs: int | None,
    rtol: float,
    atol: float,
    repro: Path | None,
    gpu: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run two models on the same inputs and compare every value.

    FIRST is the source, SECOND is held against it; each a .tflite, an .onnx or an .ort file. Layouts are
    undone. Of a float FIRST and a quantized SECOND the signal to noise is measured.
    """
    layouts_by_name = dict(layout_pairs(layouts))
    if repro is not None:
        from relayout.verification import refuse_reproduction

        refuse_reproduction(repro)
    if gpu:
        from relayout.verification.litert_gpu import require_accelerator

        require_accelerator(second)
    with bars(COMPARED, quiet or as_json):
        verification = verified(first, second, feeds, seed, runs=runs, rtol=rtol, atol=atol, layouts=layouts_by_name)
    verdict = _on_gpu(second, quiet or as_json) if gpu else None
    if as_json:
        print_json(verification.to_dict() | ({} if verdict is None else {"gpu": verdict.to_dict()}))
    elif not quiet:
        print_verification(verification)
        if verdict is not None:
            click.echo("\n".join(verdict.lines()))
    if verdict is not None and not verdict.is_right and verification.ok:
        sys.exit(FAILED)
    if not verification.ok:
        if repro is not None and verification.is_compared:
            try:
                reproduced(first, second, verification, repro, feeds, layouts_by_name, quiet or as_json)
            except RelayoutError as error:  # what failed is the verification
                click.echo(in_one_line(error), err=True)
        sys.exit(code_of(verification))


def _on_gpu(file: Path, silent: bool) -> GpuVerdict:
    """Return what LiteRT's GPU accelerator says of a file, with progress on a terminal."""
    from relayout.progress import say
    from relayout.verification.litert_gpu import judged

    with bars(("running on the GPU",), silent):
        say("running on the GPU")
        return judged(file)


def reproduced(
    first: Path,
    second: Path,
    verification: VerifyReport,
    folder: Path,
    feeds: dict[str, str],
    layouts: dict[str, tuple[str, str]],
    silent: bool,
) -> None:
    """Write the reproduction, and say where."""
    from relayout.verification import reproduce

    with bars(("cutting",), silent):
        written = reproduce(first, second, verification, folder, inputs=feeds or None, layouts=layouts)
    if not silent:
        count = count_of(written.nodes, "node")
        click.echo(f"reproduction: {count} around {written.made_by}; python {folder / 'run.py'}")
