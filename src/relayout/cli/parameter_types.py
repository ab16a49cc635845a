"""Types of what is given on the command line: a target, a layout, a model's path."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from relayout.arguments import whole

PAGE = click.Path(dir_okay=False, path_type=Path)


class TargetName(click.ParamType[str]):
    """A target's name, or a file with one; completion offers both."""

    name = "target"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the targets whose names begin so, or files."""
        from relayout.targets import targets

        known = [
            CompletionItem(name, help=each.line) for name, each in targets().items() if name.startswith(incomplete)
        ]
        return known or [CompletionItem(incomplete, type="file")]


class WholeNumber(click.IntRange):
    """A whole number between bounds; what is none is answered with the bounds, in words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            wanted = whole(int(self.min or 0), None if self.max is None else int(self.max)).wanted
            self.fail(f"{value!r} is not {wanted}", param, ctx)


class Number(click.FloatRange):
    """A number from a least one on; what is none is answered with that, in words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number from {self.min or 0:g} on", param, ctx)
        return number


class LayoutName(click.ParamType[str]):
    """A layout; completion offers the usual ones."""

    name = "layout"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the usual layouts that begin so."""
        return [CompletionItem(name) for name in ("NHWC", "NCHW", "NCHW16c", "NCHW8c") if name.startswith(incomplete)]


class _Model(click.Path):
    """A path. Whether it is a file is said by who reads or writes it, but of a `/` in the end, which a `Path` loses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).endswith(("/", os.sep)) and not os.path.isdir(value):
            self.fail(f"{value} is the name of a directory, and there is none; give the name of a file", param, ctx)
        return super().convert(value, param, ctx)


MODEL = _Model(path_type=Path)
