"""Arguments of the Python interface are checked when it is called: what fits none of a row's values is refused.

Without this a misspelt word would be taken for the default, and a name for a list of letters.
"""

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from math import isfinite
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from relayout.errors import RelayoutError, nearest, shortened
from relayout.foreign_options import PYTHON
from relayout.internal_errors import one_error

P = ParamSpec("P")
R = TypeVar("R")

MOST_SHOWN = 200  # characters of a value in a message


class ArgumentKind(NamedTuple):
    """The values that an argument takes, in words for a message, and a test. None fits too, if it is the default."""

    expected: str
    fits: Callable[[Any], bool]


def one_of(*words: str) -> ArgumentKind:
    """One of some words."""
    return ArgumentKind(" or ".join(map(repr, words)), lambda value: _is_text(value) and value in words)


def mapping(example: str, fits: Callable[[Any], bool]) -> ArgumentKind:
    """A dictionary from names to what fits."""
    return ArgumentKind(
        f"a dictionary such as {example}",
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


def _is_number(value: Any) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return isfinite(float(value))
    except OverflowError:
        return False


def _are_numbers(value: Any) -> bool:
    several = isinstance(value, Sequence) and not _is_text(value)
    return _is_number(value) or (several and len(value) > 0 and all(map(_is_number, value)))


def whole(least: int, most: int | None = None) -> ArgumentKind:
    """A whole number from `least` on, or to `most`."""
    return ArgumentKind(
        f"a whole number from {least} {'on' if most is None else f'to {most}'}",
        lambda value: _is_whole(value) and value >= least and (most is None or value <= most),
    )


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool) and _is_single(value)


def _is_single(value: Any) -> bool:
    """Tell whether a value is no array of several axes or elements, which is neither true nor false."""
    return not getattr(value, "ndim", 0)


def _is_size(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= 0


def _is_name(value: Any) -> bool:
    return _is_text(value) and bool(value.strip())


def is_symbol(value: Any) -> bool:
    """Tell whether this is a name that a dynamic dimension can be given: no number, no arithmetic, and not `None`."""
    return _is_text(value) and value.isidentifier() and value != "None"


def instance(kind: type, description: str) -> ArgumentKind:
    """An object of a class."""
    return ArgumentKind(description, lambda value: isinstance(value, kind))


def several(description: str, fits: Callable[[Any], bool]) -> ArgumentKind:
    """A tuple or list of what fits."""
    return ArgumentKind(description, lambda value: isinstance(value, tuple | list) and all(map(fits, value)))


def several_of(kind: type) -> ArgumentKind:
    """A tuple or list of objects of a class."""
    return several(f"a tuple of {kind.__name__}", lambda value: isinstance(value, kind))


TEXT = ArgumentKind("a name", _is_text)
WORDS = ArgumentKind("a text that is not empty", _is_name)
NAMES = ArgumentKind(
    "a list of names, such as ['x']",
    lambda value: isinstance(value, Sequence) and not _is_text(value) and all(map(_is_text, value)),
)
NAMED = mapping("{'old': 'new'}", _is_text)
LAYOUTS = mapping("{'x': ('NHWC', 'NCHW')}", _is_pair)
NUMBERS = mapping(
    "{'image': (127.5, 127.5)}, of mean and standard deviation, each a number or a list of one for each channel",
    lambda value: isinstance(value, tuple | list) and len(value) == 2 and all(map(_are_numbers, value)),
)
EXTENT = ArgumentKind(
    "a whole number of 64 bits from 1 on, or a name, which leaves it open: 'N'",
    lambda value: (_is_whole(value) and 0 < value < 2**63) or is_symbol(value),
)
EXTENTS = mapping(
    "{'batch': 1, 'unk__7': 'length'}, of whole numbers of 64 bits and names",
    lambda value: (_is_whole(value) and abs(value) < 2**63) or is_symbol(value),  # a reader names one below 1
)
SIZES = mapping(
    "{'height': 640}, of whole numbers of 64 bits from 1 on", lambda value: _is_whole(value) and 0 < value < 2**63
)
FLAG = ArgumentKind(
    "True or False", lambda value: isinstance(value, Hashable) and _is_single(value) and value in (True, False)
)
TOLERANCE = ArgumentKind("a number from 0 on", _is_size)
MOST_BYTES = 10**9
"""Of what a Transpose costs: solvers count in floats, and more would leave them too few digits for bytes."""
BYTES = whole(0, MOST_BYTES)
SECONDS = ArgumentKind("seconds, a number from 0 on", _is_size)
OPSETS = 13, 23  # the least and the greatest opset of an ONNX result
FUNCTION = ArgumentKind("a function", callable)


def check(
    values: Mapping[str, Any],
    kinds: Mapping[str, ArgumentKind],
    defaults: Mapping[str, Any] = MappingProxyType({}),
    *,
    where: str = "",
    error: type[RelayoutError] = RelayoutError,
) -> None:
    """Check what is given under the names that have a row; a default of None fits, where there is no other.

    Args:
        values: name -> value.
        kinds: name -> what it takes.
        defaults: name -> its default.
        where: what a message begins with, such as `a row for Conv: `.
        error: what is raised.

    Raises:
        RelayoutError: a value does not fit.
    """
    for name, kind in kinds.items():
        default = defaults.get(name)
        value = values.get(name, default)
        if (value is not None or default is not None) and not kind.fits(value):
            raise error(f"{where}{name}={_shown(value)}: it takes {kind.expected}")


def check_fields(record: Any, where: str, error: type[RelayoutError] = RelayoutError, **kinds: ArgumentKind) -> None:
    """Check the fields of a dataclass that have a row; one whose default is None may be None.

    Raises:
        RelayoutError: a value does not fit.
    """
    defaults = {each.name: None if each.default is None else MISSING for each in fields(record)}
    check({name: getattr(record, name) for name in kinds}, kinds, defaults, where=where, error=error)


def _remedy(name: str, known: Iterable[str]) -> str:
    """Return the advice for an option that does not exist."""
    return f": {PYTHON[name]}" if name in PYTHON else nearest(name, known)


def _positions(name: str, count: int) -> str:
    what = "one argument without a name" if count == 1 else f"{count} arguments without names"
    saved = ", source and args; save the result: .save('model.onnx')" if name in ("convert", "optimize") else ""
    return f"{what}{saved}"


def checked(**kinds: ArgumentKind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Check the keyword arguments of a function that have a row, and let one kind of error out of it.

    Raises:
        RelayoutError: when the function is called with a value that does not fit, or anything else goes wrong.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        plain = inspect.unwrap(function)
        defaults = getattr(plain, "__kwdefaults__", None) or {}
        parameters = inspect.signature(plain).parameters
        positions = sum(each.kind is not each.KEYWORD_ONLY for each in parameters.values())

        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> R:
            for name in options:
                if name not in parameters:
                    raise TypeError(f"{plain.__name__}() has no option {name!r}{_remedy(name, parameters)}")
            if len(args) > positions:
                raise TypeError(f"{plain.__name__}() takes {_positions(plain.__name__, positions)}")
            check(options, kinds, defaults)
            with one_error():
                return function(*args, **options)

        return call

    return decorate
