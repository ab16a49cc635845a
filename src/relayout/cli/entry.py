"""The group of verbs, and the entry point."""

from __future__ import annotations

import os
import signal
import sys
from io import TextIOWrapper
from threading import Timer
from types import FrameType
from typing import NoReturn
from weakref import finalize

import click

from relayout import __version__
from relayout.cli.group import EXIT_CODES, Group, drop_standard_output
from relayout.cli.json_output import OPTION, error_object, print_json
from relayout.cli.running import REFUSED, STDOUT, in_one_line, said_of
from relayout.cli.starting import short_process
from relayout.errors import nearest, printable, shortened

SOON = 0.01
"""Seconds until a signal that came at a bad moment comes again."""

EXAMPLES = f"""
\b
Examples:
  relayout model.tflite
  relayout convert model.tflite model.onnx --verify
  relayout convert *.tflite --out-dir onnx --jobs 4
  relayout convert model.tflite model.onnx --io convert --dim batch=1
  relayout convert model.tflite model.onnx --layout x=NHWC:NCHW
  relayout optimize in.onnx out.onnx
  relayout explain model.tflite --what-if
  relayout diff before.onnx after.onnx --html diff.html

\b
Completion: eval "$(_RELAYOUT_COMPLETE=bash_source relayout)", or zsh_source, or fish_source.

{EXIT_CODES}
"""

MODULES = ("bench", "check", "convert", "diff", "explain", "info", "ops", "optimize", "reduce", "targets", "verify")
"""Verbs that have a module of their own name."""


@click.group(cls=Group, verbs=MODULES, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.version_option(__version__, prog_name="relayout")
def cli() -> None:
    """Convert models between ONNX and TensorFlow Lite with the fewest transposed bytes, proved.

    A FILE alone is shown: what it is, what could be saved.
    """


@cli.command("help")
@click.argument("verb", required=False)
@click.pass_context
def help_command(context: click.Context, verb: str | None) -> None:
    """Show the help of a verb."""
    assert context.parent is not None
    if verb is None:
        click.echo(context.parent.get_help())
        return
    name, command, _ = cli.resolve_command(context.parent, [verb])
    if name != verb or command is None:
        raise click.UsageError(f"There is no command {verb!r}{nearest(verb, cli.list_commands(context))}", context)
    click.echo(command.get_help(click.Context(command, info_name=name, parent=context.parent)))


def main() -> None:
    """The entry point: one clear line and exit code 2 for anything that a user can cause."""
    # To be told to end is answered as Ctrl-C is, where that is not ignored: what was begun is cleaned up.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    numbers = (signal.SIGTERM, signal.SIGINT) if interruptible else (signal.SIGTERM,)
    before = {number: signal.signal(number, _told_to_end) for number in numbers}
    try:
        _settle_streams()
        with short_process():
            _run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _settle_streams() -> None:
    """Something to write to where a stream is closed, and a sign for characters that its encoding has not."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _of_usage(error: click.ClickException) -> str:
    if isinstance(error, click.NoSuchOption):
        answer = _of_others(error)
        if answer:
            return f"relayout: {answer}"
    said = printable(shortened(" ".join(error.format_message().split())))
    context = getattr(error, "ctx", None)
    return f"relayout: {said} (see {context.command_path} --help)" if context else f"relayout: {said}"


def _of_others(error: click.NoSuchOption) -> str:
    """Return which verbs have an option that this one does not have; empty where none has it."""
    verbs = [name for name, command in cli.every_command().items() if _has(command, error.option_name)]
    own = error.ctx.info_name if error.ctx is not None else ""
    if "info" in verbs and error.ctx is not None and error.ctx.parent is None:
        return f"{error.option_name} stands behind the file, or behind the verb"
    listed = ", ".join(f"relayout {name}" for name in verbs)
    return f"{error.option_name} is no option of {own}, but of {listed}" if verbs and own else ""


def _has(command: click.Command, option: str) -> bool:
    return any(option in (*each.opts, *each.secondary_opts) for each in command.params)


def _told_to_end(number: int, frame: FrameType | None) -> None:
    """End; where a file is being closed as nobody holds it any longer, soon, as what is raised there is lost."""
    while frame is not None:
        if frame.f_code is finalize.__call__.__code__:
            Timer(SOON, signal.raise_signal, [number]).start()
            return
        frame = frame.f_back
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _run() -> None:
    try:
        cli(prog_name="relayout", standalone_mode=False)
    except click.exceptions.Abort:  # click's own word for Ctrl-C
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        _refuse(error, _of_usage(error))
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except Exception as error:
        said, code = said_of(error)
        _refuse(error, in_one_line(said), code)


def _refuse(error: Exception, line: str, code: int = REFUSED) -> NoReturn:
    """Say what is wrong, with `--json` as an object, too, and exit."""
    click.echo(line, err=True)
    if OPTION in sys.argv[1:]:
        try:
            print_json(error_object(error, line.removeprefix("relayout: ")), err=str(STDOUT) in sys.argv[1:])
        except OSError:  # it may be what is wrong
            drop_standard_output()
    sys.exit(code)
