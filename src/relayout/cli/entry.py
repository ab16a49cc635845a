"""The group of verbs, and the entry point."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import Any, NoReturn
from weakref import finalize

import click
from click.shell_completion import CompletionItem

from relayout import __version__
from relayout.cli.options import SECTION
from relayout.cli.running import OPTION, REFUSED, STDOUT, error_object, in_one_line, print_json, said_of
from relayout.cli.starting import short_process
from relayout.errors import nearest, nearest_name, printable, shortened
from relayout.foreign_options import VERBS, answers

# Options that take one value and were given several: click would use the last without a word.


def refuse_repeated_options(command: click.Command, context: click.Context, words: Sequence[str]) -> None:
    """Refuse an option that takes one value and is given different ones.

    Raises:
        click.UsageError: there is one, or the words are none that the verb understands.
    """
    _, _, order = command.make_parser(context).parse_args(list(words))
    counts = Counter(each for each in order if isinstance(each, click.Option) and not (each.multiple or each.is_flag))
    for option, count in counts.items():
        values = list(_values(option.opts, words))
        if count > 1 and (len(values) < count or len(set(values)) > 1):
            times = "twice" if count == 2 else f"{count} times"
            raise click.UsageError(f"{option.opts[0]} was given {times}: {', '.join(values)}; give it once", context)


def _values(names: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    """Yield the values of an option as they were typed: `--io NHWC`, `--io=NHWC`, `-o FILE`, `-oFILE`."""
    rest = iter(list(takewhile("--".__ne__, words)))
    for word in rest:
        long, mark, value = word.partition("=")
        if word in names:
            yield next(rest, "")
        elif mark and long in names:
            yield value
        elif word[:2] in names:
            yield word[2:]


# How verbs are found: by name, by the nearest name in a message, or by a file where the verb is left out.

EXIT_CODES = (
    "Exit codes: 0 done, 1 verification or check failed or --max-bytes exceeded, 2 the input was refused, "
    "3 an internal error; of several models, the highest."
)

UNREAD = 141  # exit code where a reader of standard output has read enough, as of programs that end so by a signal

INFO = "info"  # the verb that a file alone means
OF_INFO = {"--json", "-h", "--help"}


class Command(click.Command):
    """A verb whose help lists its options by section and ends with the exit codes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; options of other tools are answered first, since `-oiqt` would be `-o` with a file `iqt`."""
        _answer_foreign_options(self, ctx, args)
        if not ctx.resilient_parsing:
            refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options without a section first."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for each in self.get_params(ctx):
            if isinstance(each, click.Option) and (record := each.get_help_record(ctx)) is not None:
                sections.setdefault(getattr(each, SECTION, "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verb's own epilog, then the exit codes."""
        super().format_epilog(ctx, formatter)
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(EXIT_CODES)


def drop_standard_output() -> None:
    """Let standard output go nowhere, with what it still holds: that is flushed in the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Group(click.Group):
    """Verbs, and a file alone.

    Args:
        verbs: names of verbs, each the name of a module beside this one, which is loaded when it is asked for.
    """

    def __init__(self, *, verbs: Sequence[str] = (), **attributes: Any) -> None:
        super().__init__(**attributes)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all verbs, in order."""
        return sorted({*self._verbs, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb; None where there is none of that name."""
        if cmd_name in self._verbs:
            return self._loaded(cmd_name)
        return super().get_command(ctx, cmd_name)

    def every_command(self) -> dict[str, click.Command]:
        """Return each verb by its name."""
        return {**{verb: self._loaded(verb) for verb in self._verbs}, **self.commands}

    def _loaded(self, verb: str) -> click.Command:
        """Return the one command of a verb's module."""
        module = import_module(f"{__package__}.{verb}")
        return next(each for each in vars(module).values() if isinstance(each, click.Command))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; nothing at all is answered with the help, as it stands."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            sys.exit(REFUSED)
        if args and args[0].startswith("-"):
            _answer_foreign_options(self, ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does, but that a pipe whose reader is gone is no failed verification."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            drop_standard_output()
            sys.exit(UNREAD)
        except KeyboardInterrupt:
            raise click.exceptions.Abort from None  # of the other click says an empty line

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As click does; a file alone is shown, and a typing error is answered with the nearest verb's name."""
        first = args[0]
        named_like_a_model = first.endswith((".tflite", ".onnx", ".ort"))
        if first not in self.list_commands(ctx) and (named_like_a_model or _is_there(first)):
            if set(args[1:]) - OF_INFO:
                advice = self._with_a_verb(ctx, first, args[1:])
                raise click.UsageError(f"a file alone is shown, with --json at most; {advice}", ctx)
            return INFO, self.get_command(ctx, INFO), args
        if first in VERBS:
            raise click.UsageError(VERBS[first], ctx)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if first == "-":
                raise click.UsageError("standard input is not read: give a file", ctx) from error
            from difflib import get_close_matches

            near = get_close_matches(first, self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"There is no command, and no file, {first!r}.{hint}", ctx) from error

    def _with_a_verb(self, ctx: click.Context, file: str, words: list[str]) -> str:
        """Return the commands that somebody may mean who writes a file and other words, without a verb."""
        import shlex

        typed, named = shlex.join([file, *words]), self._named(ctx, "convert", words)
        if named is None:  # an option that it does not have
            return f"`relayout convert {shlex.quote(file)} OUT.onnx` converts it"
        if not named.isdisjoint(("paths", "out", "out_dir")):
            return f"`relayout convert {typed}` converts it"
        written = shlex.join([file, "OUT.onnx", *words])
        explained = self._named(ctx, "explain", words) is not None
        shown = f"`relayout explain {typed}` shows what these options do, " if explained else ""
        return f"{shown}`relayout convert {written}` converts it"

    def _named(self, ctx: click.Context, verb: str, words: list[str]) -> set[str] | None:
        """Return the options and arguments of a verb that get a text from the words; None where the verb refuses them.

        The value of an option is not taken for an argument, as it would be without the verb's parser.
        """
        command = self.get_command(ctx, verb)
        assert command is not None
        try:
            values = command.make_parser(click.Context(command, ctx)).parse_args(list(words))[0]
        except click.UsageError:
            return None
        return {name for name, value in values.items() if isinstance(value, str | tuple | list) and value}

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs, and files, since one of them alone is shown."""
        return [*super().shell_complete(ctx, incomplete), CompletionItem(incomplete, type="file")]


def _answer_foreign_options(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    """Refuse options of other tools, each with what to write in its place.

    Raises:
        click.UsageError: there is one.
    """
    own = {name for each in command.get_params(ctx) for name in (*each.opts, *each.secondary_opts)}
    answered = {} if ctx.resilient_parsing else answers(args, own)
    if not answered:
        return
    be = "are options of another tool" if len(answered) > 1 else "is another tool's option"
    by_answer: dict[str, list[str]] = {}
    for option, answer in answered.items():
        by_answer.setdefault(answer, []).append(option)
    here = "; ".join(
        f"{', '.join(several)}: {answer}" if len(answered) > 1 else answer for answer, several in by_answer.items()
    )
    raise click.UsageError(f"{', '.join(answered)} {be}. Here: {here}", ctx)


def _is_there(path: str) -> bool:
    """Return whether a path leads to something, or into a file."""
    from relayout.formats.bundle import outermost

    return os.path.exists(outermost(Path(path)))


SOON = 0.01  # seconds until a signal that came at a bad moment comes again

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
        if answer := _of_others(error):
            return f"relayout: {answer}"
        params = error.ctx.command.get_params(error.ctx) if error.ctx is not None else []
        own = [name for each in params for name in (*each.opts, *each.secondary_opts) if name.startswith("--")]
        near = nearest_name(error.option_name, own)
        said = printable(f"there is no option {error.option_name!r}{f'; did you mean {near!r}?' if near else ''}")
    else:
        said = printable(shortened(" ".join(error.format_message().split())))
    context = getattr(error, "ctx", None)
    return f"relayout: {said} (see {context.command_path} --help)" if context else f"relayout: {said}"


def _of_others(error: click.NoSuchOption) -> str:
    """Return which verbs have an option that this one does not have; empty where none has it."""
    verbs = [
        name
        for name, command in cli.every_command().items()
        if any(error.option_name in (*each.opts, *each.secondary_opts) for each in command.params)
    ]
    own = error.ctx.info_name if error.ctx is not None else ""
    if "info" in verbs and error.ctx is not None and error.ctx.parent is None:
        return f"{error.option_name} stands behind the file, or behind the verb"
    listed = ", ".join(f"relayout {name}" for name in verbs)
    return f"{error.option_name} is no option of {own}, but of {listed}" if verbs and own else ""


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
