"""The group of verbs, and the entry point."""

from __future__ import annotations

import sys
from typing import Any

import click

from relayout import __version__
from relayout.cli.check import check
from relayout.cli.convert import convert
from relayout.cli.explain import explain
from relayout.cli.ops import ops
from relayout.cli.optimize import optimize
from relayout.cli.running import INTERRUPTED, REFUSED
from relayout.cli.targets import targets_command
from relayout.cli.verify import verify_command
from relayout.errors import RelayoutError


class Group(click.Group):
    """A group that suggests the nearest verb for a typing error."""

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


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]}, epilog=EXAMPLES)
@click.version_option(__version__, prog_name="relayout")
def cli() -> None:
    """The data-layout compiler for neural-network graphs."""


for verb in (convert, optimize, explain, verify_command, check, ops, targets_command):
    cli.add_command(verb)


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
