"""Progress on a terminal: a bar over the stages of a verb, one over what a stage counts. Silent in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from relayout import progress
from relayout.terminal import console

if TYPE_CHECKING:
    from rich.progress import Progress

MADE = ("reading", "planning", "rewriting")  # stages of a conversion
EXPORTED = ("exporting",)  # the stage after them where the result is a `.tflite`
QUANTIZED = ("quantizing", "calibrating")  # the stages after that where it is quantized
WRITTEN = ("writing",)
COMPARED = ("loading", "comparing")  # stages of a verification

COUNTED = {"calibrating": "samples"}  # Stage -> what its inner bar counts; values in all others


def stages_of(verify: bool, *, tflite: bool = False, quantized: bool = False) -> tuple[str, ...]:
    """Return the stages of a model that is written."""
    after = (*(EXPORTED if tflite else ()), *(QUANTIZED if quantized else ()), *(COMPARED if verify else ()))
    return (*MADE, *after, *WRITTEN)


@contextmanager
def bars(stages: Sequence[str], silent: bool) -> Iterator[None]:
    """Show the stages of what is done inside; of work with one stage, whose length is not known, that it goes on."""
    if silent or not sys.stderr.isatty():
        yield
        return
    with _progress() as shown:
        task = shown.add_task(f"{stages[0]} …", total=len(stages) if len(stages) > 1 else None)
        inner = shown.add_task("", visible=False)
        at = 0

        def listen(stage: str, done: int, total: int) -> None:
            nonlocal at
            if stage not in stages[at:]:
                return  # work inside work, such as the conversions that a reduction tries
            at = stages.index(stage, at)
            shown.update(task, completed=at if len(stages) > 1 else None, description=f"{stage} …")
            shown.update(
                inner, completed=done, total=total or None, visible=total > 0, description=COUNTED.get(stage, "values")
            )
            if done == total:  # else as often as a terminal is drawn
                shown.refresh()

        with progress.heard(listen):
            yield


@contextmanager
def bar(total: int, silent: bool) -> Iterator[Callable[[str, bool], None]]:
    """A bar over models: call it with a model's name when that is begun, and with True when it is done."""
    if silent or not sys.stderr.isatty():
        yield lambda name, done: None
        return
    with _progress() as shown:
        task, begun = shown.add_task("", total=total), ""

        def advance(name: str, done: bool) -> None:
            nonlocal begun
            begun = name
            shown.update(task, advance=int(done), description=name)

        def listen(stage: str, done: int, total: int) -> None:
            counted = f" {done}/{total}" if total else ""
            shown.update(task, description=f"{begun}: {stage}{counted} …")
            if done == total:
                shown.refresh()

        with progress.heard(listen):
            yield advance


def _progress() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    return Progress(*columns, console=console(err=True), transient=True)
