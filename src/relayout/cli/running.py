"""What the verbs do alike: read, write, verify, print, and say so."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relayout.cli import options

if TYPE_CHECKING:
    from relayout.pipeline import Result
    from relayout.reports import Report
    from relayout.verification import VerifyReport

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
"""Exit codes beside 0."""


def write(
    doing: str,
    verb: Callable[..., Result],
    source: Path,
    target: Path,
    verify: bool,
    as_json: bool,
    quiet: bool,
    given: dict[str, Any],
) -> None:
    """Run a verb that gives a model, write it, and say what was done."""
    external, plan_file = given.pop("external_data"), given.pop("plan_file")
    feeds, seed = given.pop("feeds"), given.pop("seed")
    with stage(doing, quiet or as_json):
        result = verb(source, **options.converted(given))
        # The plan first: where it cannot be written, no model is.
        if plan_file is not None:
            plan_file.write_text(json.dumps(result.plan, separators=(",", ":")), encoding="utf-8")
        result.save(target, external_data=external)
    finish(result.report, source, target, verify, feeds, seed, as_json, quiet)


def finish(
    report: Report,
    source: Path,
    target: Path,
    verify: bool,
    feeds: dict[str, str],
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print the report, verify if asked, and exit with 1 where that fails."""
    found = verified(source, target, feeds, seed, quiet or as_json) if verify else None
    if as_json:
        whole = report.to_dict() | ({"verification": found.to_dict()} if found is not None else {})
        click.echo(json.dumps(whole, indent=2))
    elif not quiet:
        print_report(report, False)
        if found is not None:
            print_verification(found)
    if found is not None and not found.ok:
        sys.exit(FAILED)


def verified(first: Path, second: Path, feeds: dict[str, str], seed: int, silent: bool, runs: int = 1) -> VerifyReport:
    """Both models run on the same inputs and compared."""
    from relayout.verification import verify

    with stage("verifying", silent):
        return verify(first, second, inputs=feeds or None, seed=seed, runs=runs)


def print_report(report: Report, as_json: bool) -> None:
    """The report of a conversion, for people or for machines."""
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    from relayout.reports.tables import show

    show(report)


def print_verification(found: VerifyReport) -> None:
    """What a verification found, for people."""
    from rich.console import Console

    from relayout.verification.table import render

    Console().print(render(found))


@contextmanager
def stage(name: str, silent: bool) -> Iterator[None]:
    """A moving sign of work on a terminal; silent in a pipe."""
    if silent or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{name} …"):
        yield
