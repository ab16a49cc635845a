"""Values of options as the Python interface takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from relayout.arguments import is_symbol
from relayout.cli.option_texts import MOST_DIGITS


def layout_pairs(layouts: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Tensor and its two layouts, of `SRC:DST`.

    Raises:
        click.BadParameter: it is not that.
    """
    for name, pair in layouts.items():
        source, mark, target = pair.partition(":")
        if not mark:
            raise click.BadParameter(f"{name}={pair} is not TENSOR=SRC:DST", param_hint="--layout")
        yield name, (source, target)


def python_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options as the Python interface takes them."""
    if options.get("format") is None:
        options.pop("format", None)
    if not options.get("calibrate", True):
        del options["calibrate"]
    layouts = options.pop("layouts", None)
    if layouts is not None:
        options["layouts"] = dict(layout_pairs(layouts))
    dims = options.pop("dims", {})
    options["dims"] = {name: _extent(extent, name, "--dim") for name, extent in dims.items()}
    batch = options.pop("batch", None)
    if batch is not None:
        options["batch"] = _extent(batch, None, "--batch")
    return options | _wishes(options)


def _extent(text: str, dimension: str | None, option: str) -> int | str:
    """Return the number or name that a dimension, or the batch, gets.

    Raises:
        click.BadParameter: it is neither.
    """
    if is_symbol(text):
        return text
    if not text.isdecimal() or len(text) > MOST_DIGITS or not int(text):
        before = "" if dimension is None else f"{dimension}="
        raise click.BadParameter(
            f"{before}{text}: an extent is a whole number from 1 on, of at most {MOST_DIGITS} digits; to leave it open"
            f" give a name: {option} {before}N",
            param_hint=option,
        )
    return int(text)


def _wishes(options: dict[str, Any]) -> dict[str, Any]:
    """The layout requests of a file; an option beside it has precedence."""
    path, target, operators = (options.pop(name, None) for name in ("desired", "backend", "claimed_operators"))
    if operators is not None:
        if target is not None:
            raise click.BadParameter("--target says what is run, too: give one of the two", param_hint="--ops")
        target = f"ops:{operators}"
    wishes: dict[str, Any] = {} if target is None else {"target": target}
    if path is not None:
        from relayout.targets import read_wishes

        wishes = read_wishes(path) | wishes
    return wishes if options.get("to") is None else wishes | {"to": options["to"]}
