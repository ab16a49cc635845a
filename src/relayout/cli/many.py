"""Several models at once: each on its own, none in the way of another, and one table in the end."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from relayout.cli import options, running
from relayout.cli.bars import bar
from relayout.cli.options import MODEL, WholeNumber, option_group
from relayout.terminal import Line, count_of, line, show, tabled

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor


def _processes(count: int) -> "ProcessPoolExecutor":
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned, not forked: the runtimes that verification loads have threads.
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


FORMATS = ("onnx", "tflite")  # what can be written; also the suffixes
ORT_CONVERTER = "python -m onnxruntime.tools.convert_onnx_models_to_ort"
"""ONNX Runtime's program that makes ORT-format models of ONNX."""


class Row(NamedTuple):
    """The outcome for one model."""

    source: str  # its file
    target: str  # the result's
    code: int = 0  # the exit code that it alone would have had
    transposes: tuple[int, int] | None = None  # before and after; None where it was refused
    bytes: tuple[int, int] | None = None  # before and after, likewise
    verdict: str = ""  # of the proof
    verified: bool | None = None  # of the verification, if it was asked for
    exceeds: str = ""  # that more bytes stay transposed than may
    error: str = ""  # why it was refused
    notes: tuple[str, ...] = ()  # from the report
    hint: str = ""  # from the report, said once for all
    seconds: Mapping[str, float] | None = None  # stage -> wall time, from the report; None where it was refused


def run(
    verb: str,
    paths: Sequence[Path],
    out: Path | None,
    out_dir: Path | None,
    jobs: int,
    verify: bool,
    as_json: bool,
    quiet: bool,
    **option_values: Any,
) -> None:
    """Do what a verb does with `SOURCE TARGET`, or with a directory for each source, `jobs` of them at a time.

    Raises:
        click.UsageError: the paths do not fit, or two results would have one name.
    """
    if out_dir is not None:
        if out is not None:
            raise click.UsageError("-o names one result, --out-dir the directory of many: give one of them")
        targets = _in_directory(out_dir, paths, option_values)
        listed = [running.Job.of(verb, source, target, verify, option_values) for target, source in targets.items()]
        run_all(listed, jobs, as_json, quiet)
    source, target = _two(verb, paths, out, jobs, option_values)
    stated = _format(verb, target, option_values.get("format"))
    if target is not None and out is None and not option_values.get("overwrite"):
        running.refuse_original(target, source, "; for several sources give --out-dir DIR")
    running.run_job(running.Job.of(verb, source, target, verify, {**option_values, "format": stated}), as_json, quiet)


def _in_directory(out_dir: Path, paths: Sequence[Path], option_values: dict[str, Any]) -> dict[Path, Path]:
    """Return the place of each result in a directory, which is made, and its source, also where that is in a bundle.

    Raises:
        click.UsageError: two results would have one name, or an option is for one of them.
    """
    for option, name in options.FOR_ONE.items():
        if option_values.get(name):
            raise click.UsageError(f"{option} is for one model")
    from relayout.formats.bundle import models_of, name_of

    suffix = option_values.get("format") or "onnx"
    named: dict[str, Path] = {}
    paths = [model for path in paths for model in models_of(path)]
    for path in paths:
        name = f"{name_of(path)}.{suffix}"
        other = named.setdefault(name, path)
        if other is not path:
            twice = f"{path} is given twice" if other == path else f"{other} and {path} would both become {name}"
            raise click.UsageError(f"{twice}; give {'it once' if other == path else 'them one at a time'}")
    out_dir.mkdir(parents=True, exist_ok=True)
    for name, path in named.items():  # nor the source of another
        running.refuse_own_source([out_dir / name], [other for other in paths if other is not path], ever=False)
    return {out_dir / name: path for name, path in named.items()}


def _two(
    verb: str, paths: Sequence[Path], out: Path | None, jobs: int, option_values: dict[str, Any]
) -> tuple[Path, Path | None]:
    """Return the source and where its result goes; None where it is written in parts alone.

    Raises:
        click.UsageError: the paths do not fit.
    """
    ends = [*paths, *([] if out is None else [out])]
    if len(ends) == 1 and option_values.get("parts"):
        return ends[0], None
    if len(ends) == 1 and ends[0].is_file():
        from relayout.formats.recognition import refuse_foreign

        refuse_foreign(ends[0])
    if len(ends) != 2:
        if len(ends) > 2 and option_values.get("calibrate"):  # a shell's pattern
            raise click.UsageError("--calibrate takes one path each time: name a folder, or write it before each file")
        raise click.UsageError("give SOURCE and TARGET (or -o TARGET), or any number of sources with --out-dir DIR")
    if jobs != 1:
        raise click.UsageError("--jobs is for many models: give --out-dir DIR")
    source, target = ends
    if verb != "convert" and target.suffix.lower() == ".tflite":
        raise click.UsageError(f"{verb} writes ONNX: use `relayout convert {source} {target}`")
    return source, target


def _format(verb: str, target: Path | None, stated: str | None) -> str | None:
    """Return the format of a result: its suffix decides.

    Raises:
        click.UsageError: the suffix is that of no format and none is stated, or another one is stated.
    """
    suffix = "" if target is None else target.suffix.lower().removeprefix(".")
    if target is not None and suffix == "ort":
        onnx = target.with_suffix(".onnx")
        raise click.UsageError(f"relayout writes no .ort: write {onnx}, then `{ORT_CONVERTER} {onnx}`")
    if suffix not in FORMATS:
        # It would be a file there, and neither standard output nor refused for being no file.
        is_file = target is not None and target != running.STDOUT and (target.is_file() or not target.exists())
        if verb == "convert" and stated is None and is_file:
            ends = (
                f"ends in .{suffix}, which names no format" if suffix else "has no suffix, which would name its format"
            )
            raise click.UsageError(
                f"{target} {ends}: end it in .onnx or .tflite, or add --format onnx or --format tflite"
            )
        return stated
    if stated not in (None, suffix):
        raise click.UsageError(f"--format {stated}: {target} has the suffix of the other format")
    return None if verb != "convert" else suffix


def run_all(jobs: Sequence[running.Job], workers: int, as_json: bool, quiet: bool) -> NoReturn:
    """Perform all jobs, print one table, and exit with the highest of their codes."""
    rows = list(_performed(jobs, workers, silent=as_json or quiet))
    order = {str(job.source): place for place, job in enumerate(jobs)}
    rows.sort(key=lambda row: order[row.source])
    if as_json:
        running.print_json({"models": [row._asdict() for row in rows]})
    elif not quiet:
        _show(rows)
    if quiet:
        for row in rows:
            if row.error or row.exceeds:
                click.echo(f"relayout: {row.source}: {row.error or row.exceeds}", err=True)
    sys.exit(max((row.code for row in rows), default=0))


def one(job: running.Job) -> Row:
    """Perform a job; whatever goes wrong is said in its row."""
    try:
        report, verification = running.perform(job)
    except Exception as error:  # a defect of ours in one model must not cost the others
        said, code = running.said_of(error)
        return Row(str(job.source), str(job.target), code, error=said)
    over = running.exceeds(report, job.max_bytes)
    return Row(
        str(job.source),
        str(job.target),
        running.code_of(verification, over),
        (report.source_transposes, report.transposes),
        (report.source_bytes, report.bytes),
        report.verdict,
        None if verification is None or not verification.is_compared else verification.ok,
        over,
        notes=report.notes,
        hint=report.hint,
        seconds=report.seconds,
    )


def _performed(jobs: Sequence[running.Job], workers: int, silent: bool) -> Iterator[Row]:
    with bar(len(jobs), silent) as advance:
        if workers == 1 or len(jobs) == 1:
            for job in jobs:
                advance(job.source.name, False)
                yield one(job)
                advance(job.source.name, True)
            return
        # a process for each job: much to load for one model
        for row in _in_processes(jobs, workers):
            advance(Path(row.source).name, True)
            yield row


def _in_processes(jobs: Sequence[running.Job], workers: int) -> Iterator[Row]:
    """Yield the row of each job as it ends. A process of its own may die and cost nobody else anything."""
    from concurrent.futures import as_completed

    with _processes(min(workers, len(jobs))) as pool:
        waiting = {pool.submit(one, job): job for job in jobs}
        for future in as_completed(waiting):
            job, error = waiting[future], future.exception()
            if error is not None:
                # A process that died takes those with it that had not ended: each of them is tried alone.
                with _processes(1) as single:
                    future = single.submit(one, job)
                    error = future.exception()
            message = f"its process ended: {error}"
            refused = Row(str(job.source), str(job.target), running.REFUSED, error=message)
            yield future.result() if error is None else refused


def _show(rows: Sequence[Row]) -> None:
    from relayout.formats.bundle import outermost

    verify = any(row.verified is not None for row in rows)
    headings = ["model", "Transposes", "bytes per inference", "result", *(["verified"] if verify else [])]
    cells: list[list[str | Line]] = []
    for row in rows:
        moved = ["" if pair is None else f"{pair[0]:,} → {pair[1]:,}" for pair in (row.transposes, row.bytes)]
        remarks = [part for part in (row.exceeds, row.verdict, *row.notes) if part]
        said = line((row.error, "red")) if row.error else "; ".join(remarks)
        agreed = {None: line(), True: line("agrees"), False: line(("differs", "bold red"))}[row.verified]
        source = Path(row.source)
        cells.append([str(source.relative_to(outermost(source).parent)), *moved, said, *([agreed] if verify else [])])
    done, refused = sum(row.code == 0 for row in rows), sum(row.code >= running.REFUSED for row in rows)
    differ, over = sum(row.verified is False for row in rows), sum(bool(row.exceeds) for row in rows)
    beyond = f", {over} transpose more than allowed" if over else ""
    count = count_of(len(rows), "model")
    hints = [line((hint, "bold")) for hint in dict.fromkeys(row.hint for row in rows if row.hint)]
    counted = line(f"{count}: {done} done, {differ} differ, {refused} refused{beyond}")
    show(tabled(*headings, rows=cells), counted, *hints)


out_dir = click.option(
    "--out-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Any number of sources, each to DIR/NAME.onnx (convert --format tflite: .tflite).",
)
out = click.option("-o", "out", type=MODEL, metavar="TARGET", help="The same as TARGET behind SOURCE.")
jobs_option = click.option(
    "--jobs", type=WholeNumber(1), default=1, show_default=True, help="Models at a time, with --out-dir."
)
paths = click.argument("paths", nargs=-1, required=True, type=MODEL, metavar="SOURCE... [TARGET]")
models = option_group(paths, out, out_dir, jobs_option)  # one source and its target, or many sources
