"""What the verbs do alike: read, write, verify, print, and say so."""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from relayout import __version__
from relayout.cli.bars import bars, stages_of
from relayout.cli.options import python_options
from relayout.cli.starting import one_job
from relayout.errors import RelayoutError, WriteError, printable, shortened
from relayout.internal_errors import InternalError, internal_error
from relayout.progress import say
from relayout.terminal import show

if TYPE_CHECKING:
    from relayout.pipeline.result import Result
    from relayout.reports.report import Report
    from relayout.verification import VerifyReport


# The output of `--json`: an object with the version of its form, also where the command fails.

SCHEMA = 1  # the version of what `--json` prints (docs/json.md). It grows when a key goes or means something else.
OPTION = "--json"


def print_json(data: Mapping[str, Any], *, err: bool = False) -> None:
    """Print an object with the version of its form: a line for each key, and for each row of a list of objects."""
    lines = []
    for key, value in {"schema": SCHEMA, **data}.items():
        text = _dumped(value)
        if isinstance(value, list | tuple) and value and all(isinstance(row, dict) for row in value):
            text = "[\n" + ",\n".join(f"    {_dumped(row)}" for row in value) + "\n  ]"
        lines.append(f"  {_dumped(key)}: {text}")
    click.echo("{\n" + ",\n".join(lines) + "\n}", err=err)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # without an indent it is written in C


def error_object(error: Exception, message: str) -> dict[str, Any]:
    """Return what is printed of an error."""
    kind = type(error).__name__ if isinstance(error, RelayoutError) else "UsageError"
    fields: dict[str, Any] = {"kind": kind, "message": printable(message)}
    for key in ("what", "where", "hint"):
        if value := getattr(error, key, None):
            fields[key] = printable(str(value))
    return {"error": fields}


FAILED, REFUSED, INTERNAL = 1, 2, 3  # exit codes beside 0

STDOUT = Path("-")  # what stands for standard output where a file could be named


class Job(NamedTuple):
    """One model to write."""

    verb: str  # the function of `pipeline` that makes it
    source: Path  # a model's file
    target: Path | None  # where the result goes; `-` is standard output; None where it is written in parts alone
    options: Mapping[str, Any] = {}  # options as the command line has them
    verify: bool = False  # whether to run both afterwards
    feeds: Mapping[str, str] = {}  # input name -> `.npy` to feed
    seed: int = 0  # of random inputs
    rtol: float = 1e-5  # the relative tolerance of the verification
    atol: float = 1e-6  # the absolute one
    external_data: bool | None = None  # weights in a file of their own; None where their size decides
    plan_file: Path | None = None  # where the plan goes, if anywhere
    html: Path | None = None  # where the page goes, if anywhere
    model_explorer: Path | None = None  # where the node data goes, if anywhere
    parts: Path | None = None  # the directory of the parts' models, if they are asked for
    overwrite: bool = False  # whether the result may replace the source, and new parts earlier ones
    max_bytes: int | None = None  # how many bytes may stay transposed; None for any number

    @staticmethod
    def of(verb: str, source: Path, target: Path | None, verify: bool, option_values: dict[str, Any]) -> "Job":
        """Return a job from the options of its verb.

        Raises:
            click.UsageError: options that exclude each other.
        """
        from relayout.formats.bundle import outermost

        rest = dict(option_values)
        names = Job._fields[Job._fields.index("feeds") :]
        own = {name: rest.pop(name, None) if name == "parts" else rest.pop(name) for name in names}
        if rest.get("format") == "tflite":
            _refuse_onnx_options({**rest, **own})
        if target is None:
            if verify:
                raise click.UsageError("--verify compares the whole model: give TARGET, too")
            rest["parts"] = rest.get("format") == "tflite"
        refuse_console(target, beside=verify or own["external_data"])
        are_changed = (own[name] != Job._field_defaults[name] for name in ("feeds", "seed", "rtol", "atol"))
        if not verify and any(are_changed):
            raise click.UsageError("--input, --seed, --rtol and --atol are for --verify: give that, too")
        converted = python_options(rest)
        if own["parts"] is not None and "target" not in converted and converted.get("format") != "tflite":
            raise click.UsageError("--partition-dir: parts are what a target runs, and the rest: give --target, too")
        job = Job(verb, source, target, converted, verify, **own)
        refuse_one_place(job.places)
        refuse_own_source([own["plan_file"], own["html"], own["model_explorer"]], [source], ever=False)
        refuse_own_source([target], [source], own["overwrite"])
        if verify and target is not None and target.exists() and target.samefile(outermost(source)):
            raise click.UsageError("--verify needs the source: it cannot be replaced by the result")
        return job

    @property
    def places(self) -> dict[str, Path | None]:
        """The place of each file that is written, by what it is."""
        return {
            "the model": self.target,
            "--plan": self.plan_file,
            "--html": self.html,
            "--model-explorer": self.model_explorer,
        }

    @property
    def console_is_taken(self) -> bool:
        """True if something other than the report goes to standard output."""
        return STDOUT in self.places.values()


def _refuse_onnx_options(option_values: Mapping[str, Any]) -> None:
    """Refuse options of ONNX results for a `.tflite`, all of them in one error."""
    from relayout.pipeline.tflite_result import refuse_onnx_options

    named = {
        f"--{name.replace('_', '-')}": option_values.get(name)
        for name in ("opset", "external_data", "inline", "annotate")
    }
    refuse_onnx_options({**named, "--regions": option_values.get("regions") == "functions"})


def refuse_console(target: Path | None, *, beside: bool | None) -> None:
    """Refuse standard output for a model, where it is a terminal, or something must lie beside the model.

    Raises:
        click.UsageError: it is one, or something must.
    """
    if target == STDOUT and beside:
        raise click.UsageError("a model on standard output has no file to verify or to keep weights beside")
    if target == STDOUT and sys.stdout.isatty():
        raise click.UsageError("a model is not text: send standard output to a file or a program")


def refuse_one_place(places: Mapping[str, Path | None]) -> None:
    """Refuse one place for two results.

    Raises:
        click.UsageError: two of them, by what is written there, are the same.
    """
    result_by_place: dict[Path, str] = {}
    for what, place in places.items():
        if place is not None and result_by_place.setdefault(place.absolute(), what) != what:
            where = "to standard output" if place == STDOUT else f"into {place}"
            raise click.UsageError(f"{result_by_place[place.absolute()]} and {what} cannot both go {where}")


def refuse_own_source(
    places: Sequence[Path | None], sources: Sequence[Path], overwrite: bool = False, *, ever: bool = True
) -> None:
    """Refuse at once what writing would refuse in the end: a result in the place of what it is made from.

    Raises:
        WriteError: a place is one of the sources, under whatever name, and `overwrite` is not given.
    """
    from relayout.formats.bundle import outermost
    from relayout.formats.onnx.atomic import known_files, refuse_sources

    if not overwrite:
        source_files = known_files(*map(outermost, sources))
        for place in places:
            if place is not None:
                refuse_sources(place, source_files, ever=ever)


def refuse_original(place: Path, source: Path, advice: str = "") -> None:
    """Refuse a result that is named without `-o` and would replace what may be an original.

    That is a file that relayout did not write: where both are `.tflite`, which are rather two sources of a pattern, and
    where relayout wrote the source, so that the two may be in the wrong order.

    Raises:
        WriteError: the place is the source itself.
        click.UsageError: there is a file that relayout did not write, and that is no copy of the source.
    """
    from filecmp import cmp

    from relayout.formats.recognition import is_own_result

    refuse_own_source([place], [source])
    if not place.is_file() or not place.stat().st_size or is_own_result(place):
        return
    are_sources = {place.suffix.lower(), source.suffix.lower()} == {".tflite"}
    if not are_sources and not (source.is_file() and is_own_result(source)):
        return
    if not (source.is_file() and cmp(source, place, shallow=False)):  # of one size alone are bytes compared
        raise click.UsageError(
            f"{place} is there already, and relayout did not write it: -o {place} replaces it{advice}"
        )


def perform(job: Job) -> "tuple[Report, VerifyReport | None]":
    """Make the model, verify it if that is asked for, and write it, whether it agrees or not.

    Raises:
        RelayoutError: it is refused, cannot be verified, or cannot be written: then nothing was.
    """
    from relayout import pipeline

    if job.parts is not None:
        from relayout.pipeline.result import replaceable_files

        replaceable_files(job.parts, job.overwrite)
    result = getattr(pipeline, job.verb)(job.source, **job.options)
    verification = _verified_first(result, job) if job.verify else None
    say("writing")
    # Parts and plan first: where they cannot be written, no model is.
    if job.parts is not None:
        parts = result.save_parts(job.parts, overwrite=job.overwrite)
        note = f"parts in {job.parts}: {len(parts)}, of which {result.target_name} runs {sum(p.claimed for p in parts)}"
        result = replace(result, report=replace(result.report, notes=(*result.report.notes, note)))
    if job.plan_file is not None:
        put_text(job.plan_file, json.dumps(result.plan, separators=(",", ":")))
    write_views(result, job.source.name, job.html, job.model_explorer)
    if job.target is not None:
        put_model(job.target, result.write, external_data=job.external_data, overwrite=job.overwrite)
    return result.report, verification


def _verified_first(result: "Result", job: Job) -> "VerifyReport":
    """Verify what will be written before it stands in its place: in a directory beside it, of which nothing stays.

    Raises:
        RelayoutError: one of the two cannot be run.
        WriteError: the directory of the target is not there.
    """
    from relayout.pipeline.names import SourceNames

    assert job.target is not None
    if not job.target.parent.is_dir():
        raise WriteError(f"cannot write '{job.target}': there is no directory '{job.target.parent}'")
    try:
        beside = tempfile.TemporaryDirectory(prefix=".relayout-", dir=job.target.parent)
    except OSError as error:
        raise WriteError(f"cannot write '{job.target}': {error.strerror or error}") from error
    with beside as directory:
        path = Path(directory) / job.target.name
        result.write(path, external_data=job.external_data)
        try:
            feeds: Mapping[str, Any] = SourceNames(job.options.get("rename")).keys(job.feeds)
            if not feeds and job.options.get("calibrate"):  # random numbers have other ranges than the calibration's
                from relayout.pipeline.quantized_result import first_sample

                feeds = first_sample(result, job.options["calibrate"])
            verification = verified(job.source, path, feeds, job.seed, rtol=job.rtol, atol=job.atol)
        except RelayoutError as error:
            said = str(error).replace(str(path), str(job.target))
            error.args = (f"{said} (nothing was written; without --verify it is)",)
            raise
    return replace(verification, b=str(job.target))


def write_views(result: "Result", title: str, html: Path | None, model_explorer: Path | None) -> None:
    """Write what was asked for to look at: the page, the node data."""
    if html is not None:
        put_text(html, result.html(title))
    if model_explorer is not None:
        put_text(model_explorer, json.dumps(result.node_data(), indent=1))


def put_model(
    place: Path,  # where it goes
    save: Callable[..., None],  # writes it into a file: `save(path, external_data=…, overwrite=…)`
    *,
    external_data: bool | None,  # weights in a file of their own; None where their size decides
    overwrite: bool,  # whether it may replace its source
) -> None:
    """Write a model, or send it to standard output."""
    if place != STDOUT:
        save(place, external_data=external_data, overwrite=overwrite)
        return
    with tempfile.TemporaryDirectory(prefix="relayout-") as directory:
        path = Path(directory) / "model"
        save(path, external_data=False)
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def put_text(place: Path, text: str) -> None:
    """Write a text file, or print it where the place is standard output.

    Raises:
        WriteError: the place cannot be written.
    """
    from relayout.formats.onnx.atomic import write_text

    if place == STDOUT:
        click.echo(text.encode())  # UTF-8, as a file is, whatever the encoding of standard output
    else:
        write_text(place, text)


def verified(first: Path, second: Path, feeds: Mapping[str, Any], seed: int, **options: Any) -> "VerifyReport":
    """Both models run on the same inputs and compared; `options` are those of `verify`."""
    from relayout.verification import verify

    return verify(first, second, inputs=feeds or None, seed=seed, **options)


def code_of(verification: "VerifyReport | None", over: str = "") -> int:
    """Return the exit code of a verification, if there was one, and of more transposed bytes than allowed."""
    code = 0 if verification is None or verification.ok else FAILED if verification.is_compared else REFUSED
    return max(code, FAILED if over else 0)


def exceeds(report: "Report", max_bytes: int | None) -> str:
    """Return a message if more bytes stay transposed than allowed; empty if not."""
    if max_bytes is None or report.bytes <= max_bytes:
        return ""
    return f"{report.bytes:,} bytes stay transposed, --max-bytes allows {max_bytes:,}"


def in_one_line(error: Exception | str) -> str:
    """Return the command line's message of an error, as one line."""
    return f"relayout: {printable(' '.join(str(error).splitlines()))}"


def said_of(error: Exception) -> tuple[str, int]:
    """Return what the command line says of an error, and its exit code. Of an internal one the traceback is saved."""
    if isinstance(error, OSError):
        return shortened(f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")), REFUSED
    error = internal_error(error)
    return (f"{error}{_saved(error)}", INTERNAL) if isinstance(error, InternalError) else (str(error), REFUSED)


def _saved(error: InternalError) -> str:
    """Write the traceback of an internal error into a file, and return the end of the message, which names it."""
    from traceback import format_exception

    about = f"relayout {__version__}, Python {sys.version.split()[0]}: {' '.join(sys.argv[1:])}\n{error}\n\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="relayout-error-", suffix=".txt", delete=False, encoding="utf-8", errors="replace"
        ) as file:
            file.write(about + "".join(format_exception(error.cause)))
    except OSError:  # there is no place for it: the message says enough to begin with
        return ""
    return f"; the traceback is in {file.name}: please report it"


def print_report(report: "Report", as_json: bool, *, err: bool = False, hint: bool = True) -> None:
    """The report of a conversion, for people or for machines; `hint` says whether it ends with its hint."""
    if as_json:
        print_json(report.to_dict(), err=err)
        return
    from relayout.reports.tables import paragraphs

    show(*paragraphs(report, hint=hint), err=err)


def print_verification(verification: "VerifyReport", *, err: bool = False) -> None:
    """Print a verification's findings for people."""
    from relayout.verification.report import render

    show(*render(verification), err=err)


# One model: perform its job, print what was done.


def run_job(job: Job, as_json: bool, quiet: bool) -> None:
    """Perform one job, print what was done, and exit with 1 where verification fails or too much stays transposed."""
    one_job()
    tflite = job.options.get("format") == "tflite"
    with bars(stages_of(job.verify, tflite=tflite, quantized=bool(job.options.get("quantize"))), quiet or as_json):
        report, verification = perform(job)
    if as_json:
        whole = report.to_dict() | ({"verification": verification.to_dict()} if verification is not None else {})
        print_json(whole, err=job.console_is_taken)
    elif not quiet:
        from relayout.reports.layouts import size_name
        from relayout.reports.tables import summary

        if job.target is not None and job.target != STDOUT:
            size = size_name(job.target.stat().st_size)
            line = f"wrote {printable(str(job.target))} ({size}): {summary(report)}"
            click.echo(line, err=job.console_is_taken)
        print_report(report, False, err=job.console_is_taken, hint=False)
        if verification is not None:
            print_verification(verification, err=job.console_is_taken)
        if report.hint:
            from relayout.reports.tables import hinted

            show(hinted(report), err=job.console_is_taken)
    over = exceeds(report, job.max_bytes)
    if over:
        click.echo(f"relayout: {over} (written nevertheless)", err=True)
    differs = verification is not None and not verification.ok
    if differs and verification is not None and verification.first is not None and not (quiet or as_json):
        again = f"relayout verify {quote(str(job.source))} {quote(str(job.target))} --repro DIR"
        click.echo(f"written nevertheless; where they part, as something to run: {again}", err=job.console_is_taken)
    if code := code_of(verification, over):
        sys.exit(code)
