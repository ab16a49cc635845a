"""How an option is declared, and how the text that it is given becomes a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
SECTION = "section"
"""Attribute of an option: the heading in `--help` that it stands under."""

MOST_DIGITS = 18
"""Of an extent: what 64 bits hold."""


def option_group(*options: Callable[[F], F], section: str = "") -> Callable[[F], F]:
    """Several options as one decorator; `--help` lists them in this order, under the heading of their section."""

    def decorate(function: F) -> F:
        before = len(getattr(function, "__click_params__", ()))
        for option in reversed(options):
            function = option(function)
        for made in getattr(function, "__click_params__", ())[before:] if section else ():
            setattr(made, SECTION, section)
        return function

    return decorate


def pairs_by(separator: str, form: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], dict[str, str]]:
    """Return what reads texts of two parts with a separator between: `NAME=N`, as `form` says."""

    def parse(_: click.Context, __: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for item in items:
            name, mark, rest = item.rpartition(separator)
            if not mark or not name or not rest:
                raise click.BadParameter(f"{item!r} is not {form}")
            if found.setdefault(name, rest) != rest:
                raise click.BadParameter(f"{name!r} is given twice: {found[name]!r} and {rest!r}")
        return found

    return parse


def choice_option(name: str, values: Sequence[str], what: str) -> Callable[[F], F]:
    """An option that takes one of some words, in any case; the first where it is not given."""
    return click.option(
        name, type=click.Choice(values, case_sensitive=False), default=values[0], show_default=True, help=what
    )


def dimensions(context: click.Context, parameter: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
    """Read dimensions and what they become."""
    for item in items:
        if found := re.fullmatch(r"(.+):(-?\d+)", item):
            what = f"axis {found[2]} of input {found[1]!r}"
            raise click.BadParameter(f"{item!r} is not NAME=N: write {item}=N for {what}")
    return pairs_by("=", "NAME=N")(context, parameter, items)


def sizes_by_name(context: click.Context, parameter: click.Parameter, items: tuple[str, ...]) -> dict[str, int]:
    """Read dynamic dimensions and the extents that bytes are counted at."""
    form = "NAME=N, such as height=640,width=640"
    listed = tuple(each for item in items for each in item.split(","))
    sizes = {}
    for name, text in pairs_by("=", form)(context, parameter, listed).items():
        if not text.isdecimal() or len(text) > MOST_DIGITS or not int(text):
            raise click.BadParameter(f"{f'{name}={text}'!r} is not {form}: an extent is a whole number from 1 on")
        sizes[name] = int(text)
    return sizes


def normalizations(
    context: click.Context, parameter: click.Parameter, items: tuple[str, ...]
) -> dict[str, tuple[list[float], list[float]]]:
    """Read the means and standard deviations of inputs."""
    form = "INPUT=MEAN:STD, such as image=127.5:127.5 or image=124,116,104:58,57,57"
    by_input = {}
    for name, text in pairs_by("=", form)(context, parameter, items).items():
        try:
            mean, std = ([float(number) for number in side.split(",")] for side in text.split(":"))
        except ValueError:
            raise click.BadParameter(f"{f'{name}={text}'!r} is not {form}") from None
        by_input[name] = (mean, std)
    return by_input


def custom_domains(context: click.Context, parameter: click.Parameter, items: tuple[str, ...]) -> dict[str, str]:
    """Read custom operators and their domains; "" where a text names none."""
    bare = dict.fromkeys((item for item in items if "=" not in item), "")
    return bare | pairs_by("=", "NAME=DOMAIN")(context, parameter, tuple(item for item in items if "=" in item))


def comma_separated(_: click.Context, __: click.Parameter, items: tuple[str, ...]) -> list[str]:
    """Read lists of names with commas between."""
    return [name.strip() for item in items for name in item.split(",") if name.strip()]
