"""Arguments of the Python interface are checked when it is called: what fits none of a row's values is refused.

Without this a misspelt word would be taken for the default, and a name for a list of letters.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from relayout.errors import RelayoutError, shortened

P = ParamSpec("P")
R = TypeVar("R")

MOST_SHOWN = 200
"""Characters of a value in a message."""


@dataclass(frozen=True)
class Kind:
    """What an argument takes, in words for a message, and the test of it. None fits too, if it is the default."""

    wanted: str
    fits: Callable[[Any], bool]


def one_of(*words: str) -> Kind:
    """One of some words."""
    return Kind(" or ".join(map(repr, words)), lambda value: value in words)


def mapping(wanted: str, fits: Callable[[Any], bool]) -> Kind:
    """A dictionary from names to what fits."""
    return Kind(
        f"a dictionary such as {wanted}",
        lambda value: (
            isinstance(value, Mapping) and all(isinstance(name, str) and fits(each) for name, each in value.items())
        ),
    )


def _shown(value: Any) -> str:
    return shortened(" ".join(repr(value).split()), MOST_SHOWN)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_text, value)) and not _is_text(value)


def whole(least: int, most: int | None = None) -> Kind:
    """A whole number from `least` on, or to `most`."""
    return Kind(
        f"a whole number from {least} {'on' if most is None else f'to {most}'}",
        lambda value: _is_whole(value) and value >= least and (most is None or value <= most),
    )


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0


TEXT = Kind("a name", _is_text)
NAMES = Kind(
    "a list of names, such as ['x']",
    lambda value: isinstance(value, Sequence) and not _is_text(value) and all(map(_is_text, value)),
)
NAMED = mapping("{'old': 'new'}", _is_text)
LAYOUTS = mapping("{'x': ('NHWC', 'NCHW')}", _is_pair)
EXTENTS = mapping("{'batch': 1}, of whole numbers of 64 bits", lambda value: _is_whole(value) and abs(value) < 2**63)
FLAG = Kind("True or False", lambda value: isinstance(value, Hashable) and value in (True, False))
TOLERANCE = Kind("a number from 0 on", _is_size)
MOST_BYTES = 10**9
"""Of what a Transpose costs: solvers count in floats, and more would leave them too few digits for bytes."""
BYTES = whole(0, MOST_BYTES)
SECONDS = Kind("seconds, a number from 0 on", _is_size)
OPSETS = 18, 23
"""The least and the greatest opset of a converted `.tflite`."""
FUNCTION = Kind("a function", callable)


def check(
    given: Mapping[str, Any], kinds: Mapping[str, Kind], defaults: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Check what is given under the names that have a row; a default of None fits, where there is no other.

    Raises:
        RelayoutError: a value does not fit.
    """
    for name, kind in kinds.items():
        default = defaults.get(name)
        value = given.get(name, default)
        if (value is not None or default is not None) and not kind.fits(value):
            raise RelayoutError(f"{name}={_shown(value)}: it takes {kind.wanted}")


def checked(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the keyword arguments of a function that have a row.

    Raises:
        RelayoutError: when the function is called with a value that does not fit.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        defaults = getattr(inspect.unwrap(function), "__kwdefaults__", None) or {}

        @functools.wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> R:
            check(given, kinds, defaults)
            return function(*args, **given)

        return call

    return decorate
