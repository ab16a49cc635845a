"""One model: perform its job, print what was done."""

from __future__ import annotations

import sys
from shlex import quote

import click

from relayout.cli.bars import bars, stages_of
from relayout.cli.json_output import print_json
from relayout.cli.running import (
    FAILED,
    STDOUT,
    Job,
    code_of,
    exceeds,
    perform,
    print_hint,
    print_report,
    print_verification,
)
from relayout.cli.starting import one_job
from relayout.errors import printable


def run_job(job: Job, as_json: bool, quiet: bool) -> None:
    """Perform one job, print what was done, and exit with 1 where verification fails or too much stays transposed."""
    one_job()
    tflite = job.given.get("format") == "tflite"
    with bars(stages_of(job.verify, tflite=tflite, quantized=bool(job.given.get("quantize"))), quiet or as_json):
        report, found = perform(job)
    if as_json:
        whole = report.to_dict() | ({"verification": found.to_dict()} if found is not None else {})
        print_json(whole, err=job.console_is_taken)
    elif not quiet:
        from relayout.reports.layout_names import size_name
        from relayout.reports.tables import summary

        if job.target is not None and job.target != STDOUT:
            size = size_name(job.target.stat().st_size)
            line = f"wrote {printable(str(job.target))} ({size}): {summary(report)}"
            click.echo(line, err=job.console_is_taken)
        print_report(report, False, err=job.console_is_taken, hint=False)
        if found is not None:
            print_verification(found, err=job.console_is_taken)
        print_hint(report, err=job.console_is_taken)
    over = exceeds(report, job.max_bytes)
    if over:
        click.echo(f"relayout: {over} (written nevertheless)", err=True)
    differs = found is not None and not found.ok
    if differs and found is not None and found.is_compared and not (quiet or as_json):
        again = f"relayout verify {quote(str(job.source))} {quote(str(job.target))} --repro DIR"
        click.echo(f"written nevertheless; where they part, as something to run: {again}", err=job.console_is_taken)
    if differs or over:
        sys.exit(max(FAILED if over else 0, code_of(found) if found is not None else 0))
