"""How verbs are found: by name, by the nearest name in a message, or by a file where the verb is left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from relayout.cli.option_texts import SECTION
from relayout.cli.repeated_options import refuse_repeated_options
from relayout.cli.running import REFUSED
from relayout.foreign_options import VERBS, answers

EXIT_CODES = (
    "Exit codes: 0 done, 1 verification or check failed or --max-bytes exceeded, 2 the input was refused, "
    "3 an internal error; of several models, the highest."
)

UNREAD = 141
"""Exit code where a reader of standard output has read enough, as of programs that end so by a signal."""

INFO = "info"
"""The verb that a file alone means."""
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
    """Whether a path leads to something, or into a file."""
    from relayout.formats.bundle import outermost

    return os.path.exists(outermost(Path(path)))
