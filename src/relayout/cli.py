"""The command line. Heavy imports wait until a command needs them: `relayout --help` answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relayout import __version__
from relayout.errors import RelayoutError

if TYPE_CHECKING:
    from relayout.pipeline import Result
    from relayout.reports import Report
    from relayout.verification import VerifyReport

VERIFY_FAILED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes beside 0."""


class _Group(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does, with the nearest command's name for a typing error."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near or "Did you mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from error


EXAMPLES = """
\b
Examples:
  relayout convert model.tflite model.onnx --verify
  relayout convert model.tflite model.onnx --io convert --dim batch=1
  relayout convert model.tflite model.onnx --layout x=NHWC:NCHW
  relayout optimize in.onnx out.onnx
  relayout explain model.tflite --what-if

Exit codes: 0 done, 1 verification or check failed, 2 the input was refused.
"""


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.version_option(__version__, prog_name="relayout")
def cli() -> None:
    """The data-layout compiler for neural-network graphs."""


def _pairs(separator: str, form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    def parse(_: click.Context, __: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
        found = {}
        for item in items:
            name, mark, rest = item.rpartition(separator)
            if not mark or not name or not rest:
                raise click.BadParameter(f"{item!r} is not {form}")
            found[name] = rest
        return found

    return parse


_layouts = click.option(
    "--layout",
    "layouts",
    multiple=True,
    metavar="TENSOR=SRC:DST",
    callback=_pairs("=", "TENSOR=SRC:DST"),
    help="Store a tensor as asked, such as x=NHWC:NCHW.",
)
_dims = click.option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N",
    callback=_pairs("=", "NAME=N"),
    help="Fix a dynamic dimension.",
)
_io = click.option(
    "--io",
    type=click.Choice(["keep", "convert"]),
    default="keep",
    show_default=True,
    help="Inputs and outputs as in the source, or in the order that costs nothing.",
)
_opset = click.option("--opset", type=click.IntRange(18, 23), help="For a .tflite source: 20 or 21 unless given.")
_quant = click.option(
    "--quant",
    type=click.Choice(["qdq", "float"]),
    default="qdq",
    show_default=True,
    help="A quantized .tflite as integers in Quantize-Dequantize units, or as a float model.",
)
_signature = click.option("--signature", metavar="NAME", help="Which signature of a .tflite (default: the first).")
_state = click.option(
    "--state",
    type=click.Choice(["zero", "io"]),
    default="zero",
    show_default=True,
    help="Variables of a .tflite: their initial values in every run, or inputs and outputs.",
)
_custom_ops = click.option(
    "--custom-op",
    "custom_ops",
    multiple=True,
    metavar="NAME=DOMAIN",
    callback=_pairs("=", "NAME=DOMAIN"),
    help="Carry a custom operator over as a node of a domain.",
)
_time_limit = click.option("--time-limit", type=float, metavar="SECONDS", help="Stop the solver and report the gap.")
_what_if = click.option("--what-if", is_flag=True, help="Also list which single constraint costs how many bytes.")
_plan = click.option(
    "--plan", "plan_file", type=click.Path(dir_okay=False, path_type=Path), help="Write choice and certificate as JSON."
)
_json = click.option("--json", "as_json", is_flag=True, help="For machines.")
_quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
_external = click.option("--external-data", is_flag=True, default=None, help="Weights in OUT.data (above 2 GB always).")
_inputs = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE.npy",
    callback=_pairs("=", "NAME=FILE.npy"),
    help="What to feed (default: random, image-like for images).",
)
_seed = click.option("--seed", type=int, default=0, show_default=True, help="Of the random inputs.")
_model = click.Path(dir_okay=False, path_type=Path)


@cli.command()
@click.argument("source", type=_model)
@click.argument("target", type=_model)
@_io
@_layouts
@_dims
@_opset
@_quant
@_signature
@_state
@_custom_ops
@_time_limit
@_what_if
@_plan
@_external
@click.option("--verify", is_flag=True, help="Run both in their runtimes and compare value by value.")
@_inputs
@_seed
@_json
@_quiet
def convert(source: Path, target: Path, verify: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """Convert SOURCE (.tflite or .onnx) to the ONNX model TARGET."""
    from relayout import pipeline

    _write("converting", pipeline.convert, source, target, verify, as_json, quiet, options)


@cli.command()
@click.argument("source", type=_model)
@click.argument("target", type=_model)
@_dims
@_time_limit
@_what_if
@_plan
@_external
@click.option("--verify", is_flag=True, help="Run both in ONNX Runtime and compare value by value.")
@_inputs
@_seed
@_json
@_quiet
def optimize(source: Path, target: Path, verify: bool, as_json: bool, quiet: bool, **options: Any) -> None:
    """The fewest transposed bytes for the ONNX model SOURCE, interface and meaning kept."""
    from relayout import pipeline

    _write("optimizing", pipeline.optimize, source, target, verify, as_json, quiet, options)


@cli.command()
@click.argument("source", type=_model)
@_io
@_layouts
@_dims
@_opset
@_quant
@_signature
@_state
@_custom_ops
@_time_limit
@_what_if
@_json
def explain(source: Path, as_json: bool, **options: Any) -> None:
    """What a conversion of SOURCE would do: layouts, remaining Transposes, the reason for each, the proof."""
    from relayout import pipeline

    with _stage("planning", as_json):
        found = pipeline.explain(source, **_converted(options))
    _print_report(found, as_json)


@cli.command("verify")
@click.argument("first", type=_model)
@click.argument("second", type=_model)
@_inputs
@_seed
@click.option("--runs", type=click.IntRange(1), default=1, show_default=True, help="Inputs to try.")
@_json
@_quiet
def verify_command(
    first: Path, second: Path, inputs: dict[str, str], seed: int, runs: int, as_json: bool, quiet: bool
) -> None:
    """Run FIRST and SECOND on the same inputs and compare value by value, layouts undone."""
    found = _verify(first, second, inputs, seed, quiet or as_json, runs)
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2))
    elif not quiet:
        _print_verification(found)
    if not found.ok:
        sys.exit(VERIFY_FAILED)


@cli.command()
@click.argument("plan", type=_model)
@click.argument("source", type=_model)
@_json
def check(plan: Path, source: Path, as_json: bool) -> None:
    """Check the PLAN that `--plan` wrote against its SOURCE model: the proof, without the solver."""
    from relayout import pipeline

    found = pipeline.check_plan(plan, source)
    if as_json:
        click.echo(json.dumps({**vars(found), "proved": found.proved}))
    else:
        verdict = "proved minimal" if found.proved else "not proved"
        click.echo(f"{found.transposes} Transposes, {found.bytes:,} bytes; lower bound {found.bound:,}: {verdict}")
    if not found.proved:
        sys.exit(VERIFY_FAILED)


@cli.command()
@_json
def ops(as_json: bool) -> None:
    """What is covered: ONNX operators by class, and TensorFlow Lite operators."""
    from relayout.reports import coverage

    tables = coverage.tables()
    if as_json:
        click.echo(json.dumps(tables, indent=2))
    else:
        coverage.show(tables)


def _converted(options: dict[str, Any]) -> dict[str, Any]:
    """Options as the Python interface takes them."""
    layouts = options.pop("layouts", None)
    if layouts is not None:
        options["layouts"] = {}
        for name, pair in layouts.items():
            source, mark, target = pair.partition(":")
            if not mark:
                raise click.BadParameter(f"{name}={pair} is not TENSOR=SRC:DST", param_hint="--layout")
            options["layouts"][name] = (source, target)
    dims = options.pop("dims", {})
    for name, extent in dims.items():
        if not extent.isdigit():
            raise click.BadParameter(f"{name}={extent}: an extent is a number", param_hint="--dim")
    options["dims"] = {name: int(extent) for name, extent in dims.items()}
    return options


def _write(
    stage: str,
    verb: Callable[..., Result],
    source: Path,
    target: Path,
    verify: bool,
    as_json: bool,
    quiet: bool,
    options: dict[str, Any],
) -> None:
    """Run a verb that gives a model, write it, and say what was done."""
    external, plan_file = options.pop("external_data"), options.pop("plan_file")
    inputs, seed = options.pop("inputs"), options.pop("seed")
    with _stage(stage, quiet or as_json):
        result = verb(source, **_converted(options))
        # The plan first: where it cannot be written, no model is.
        if plan_file is not None:
            plan_file.write_text(json.dumps(result.plan, separators=(",", ":")), encoding="utf-8")
        result.save(target, external_data=external)
    _finish(result.report, source, target, verify, inputs, seed, as_json, quiet)


def _finish(
    report: Report,
    source: Path,
    target: Path,
    verify: bool,
    inputs: dict[str, str],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the report, verify if asked, and exit with 1 where that fails."""
    found = _verify(source, target, inputs, seed, quiet or as_json) if verify else None
    if as_json:
        whole = report.to_dict() | ({"verification": found.to_dict()} if found is not None else {})
        click.echo(json.dumps(whole, indent=2))
    elif not quiet:
        _print_report(report, False)
        if found is not None:
            _print_verification(found)
    if found is not None and not found.ok:
        sys.exit(VERIFY_FAILED)


def _verify(first: Path, second: Path, inputs: dict[str, str], seed: int, silent: bool, runs: int = 1) -> VerifyReport:
    from relayout.verification import verify

    with _stage("verifying", silent):
        return verify(first, second, inputs=inputs or None, seed=seed, runs=runs)


def _print_report(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    from relayout.reports.tables import show

    show(report)


def _print_verification(found: VerifyReport) -> None:
    from rich.console import Console

    from relayout.verification.table import render

    Console().print(render(found))


@contextmanager
def _stage(name: str, silent: bool) -> Iterator[None]:
    """A moving sign of work on a terminal; silent in a pipe."""
    if silent or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{name} …"):
        yield


def main() -> None:
    """The entry point: one clear line and exit code 2 for anything that a user can cause."""
    try:
        cli(standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(REFUSED)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except RelayoutError as error:
        click.echo(f"relayout: {error}", err=True)
        sys.exit(REFUSED)
    except OSError as error:
        click.echo(f"relayout: {error.strerror or error}: {error.filename or ''}".rstrip(": "), err=True)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
