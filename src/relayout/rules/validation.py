"""What a rule of a user's gives is looked at before anything is built on it; those of the project are tested."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relayout import arguments
from relayout.errors import RelayoutError
from relayout.layout import Dim
from relayout.rules.operator import Letters, Operator
from relayout.rules.signature import (
    Changes,
    Fact,
    Nested,
    Permuted,
    Placement,
    Regrouped,
    Signature,
    Variant,
    parts_of,
    unchanged,
)


def _is_axis(value: Any) -> bool:
    """`c/16` and `c%16` are parts of an axis, `h*d` is two axes."""
    return isinstance(value, str) and bool(value) and set(value).isdisjoint("/%*")


def _is_token(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[^/%*]+([/%][1-9]\d*)?(\*[^/%*]+)*", value) is not None


def _is_letters(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_axis, value))


_AXES = arguments.Kind(
    "a frozenset of names of axes", lambda value: isinstance(value, frozenset) and all(map(_is_axis, value))
)
_STORED = arguments.Kind(
    "a tuple with the dimensions of each operand, or None: (('n', 'c/16', 'h', 'c%16'), None)",
    lambda value: (
        isinstance(value, tuple)
        and all(each is None or (isinstance(each, tuple) and all(map(_is_token, each))) for each in value)
    ),
)
_LETTERS = arguments.Kind("a tuple of names of axes, such as ('m', 'n')", _is_letters)
_OPERANDS = arguments.Kind(
    "a tuple with the names of the axes of each operand, or None: (('n', 'c'), None)",
    lambda value: isinstance(value, tuple) and all(each is None or _is_letters(each) for each in value),
)
_GRAIN = arguments.Kind(
    "a tuple of axes with whole numbers from 1 on, such as (('c', 16),)",
    lambda value: (
        isinstance(value, tuple)
        and all(isinstance(each, tuple) and len(each) == 2 for each in value)
        and all(_is_axis(axis) and arguments.whole(1).fits(count) for axis, count in value)
    ),
)
_SIGNATURE = {
    "inputs": _OPERANDS,
    "outputs": _OPERANDS,
    "whole": _AXES,
    "block": _AXES,
    "tail": _LETTERS,
    "head": _LETTERS,
    "variants": arguments.several_of(Variant),
    "grain": _GRAIN,
    "changes": arguments.FUNCTION,
    "price": arguments.FUNCTION,
}
_PERM = arguments.Kind(
    "a tuple of whole numbers",
    lambda value: isinstance(value, tuple) and all(map(arguments.whole(0).fits, value)),
)
_SHAPE = arguments.Kind(
    "a tuple of extents: whole numbers, or names of dynamic ones",
    lambda value: isinstance(value, tuple) and all(isinstance(dim, Dim) and not isinstance(dim, bool) for dim in value),
)


def promised(name: str, rule: Callable[[Operator], Fact]) -> Callable[[Operator], Fact]:
    """The rule of a user: what it gives is what a rule gives, and what it raises says whose it is.

    Raises:
        RelayoutError: when it is asked, and one of both is not so. A `TypeError`, `ValueError` or `IndexError` says, as
            in every rule, that the node lacks what its operator must have: nothing is known of it.
    """

    @functools.wraps(rule)
    def facts(operator: Operator) -> Fact:
        where = f"the rule of {name}: "
        fact: Fact = _said(where, rule, operator, IndexError, TypeError, ValueError)
        if isinstance(fact, Signature):
            return _signature(where, fact)
        if isinstance(fact, Permuted):
            arguments.check_fields(fact, where, perm=_PERM)
        elif isinstance(fact, Regrouped):
            arguments.check_fields(fact, where, shape=_SHAPE)
        elif fact is not None and not isinstance(fact, Nested):
            raise RelayoutError(
                f"{where}it gives {type(fact).__name__}; a rule gives a Signature, Permuted, Regrouped, Nested or None"
            )
        return fact

    return facts


def _signature(where: str, fact: Signature) -> Signature:
    arguments.check_fields(fact, where, RelayoutError, **_SIGNATURE)
    for variant in fact.variants:
        arguments.check_fields(variant, f"{where}a variant: ", inputs=_STORED, outputs=_STORED)
        for held, own in ((variant.inputs, fact.inputs), (variant.outputs, fact.outputs)):
            if list(map(_axes, held)) != list(map(_axes, own)):
                raise RelayoutError(f"{where}a variant of {_shown(held)}, where the signature has {_shown(own)}")
    changes, price = fact.changes, fact.price
    if price is not None:
        asked = price
        fact = replace(fact, price=lambda placement: in_bytes(f"{where}price ", _said(where, asked, placement)))
    if changes is unchanged:
        return fact

    def checked(placement: Placement) -> Changes:
        found = _said(where, changes, placement)
        if not isinstance(found, Changes):
            raise RelayoutError(f"{where}changes gives {type(found).__name__}; it gives Changes")
        return found

    return replace(fact, changes=checked)


def in_bytes(where: str, found: Any) -> int:
    """What a price gives.

    Raises:
        RelayoutError: it is no whole number from 0 on.
    """
    if not arguments.whole(0).fits(found):
        raise RelayoutError(f"{where}gives {found!r}; it gives bytes, a whole number from 0 on")
    return int(found)


def _axes(letters: Letters | None) -> list[str] | None:
    """The axes of one operand, in no order: a variant may turn them, and no more."""
    return None if letters is None else sorted({part.letter for token in letters for part in parts_of(token)})


def _shown(operands: tuple[Letters | None, ...]) -> str:
    return ", ".join("nothing" if letters is None else " ".join(letters) or "no axes" for letters in operands)


def _said(where: str, function: Callable[[Any], Any], given: Operator | Placement, *passed: type[Exception]) -> Any:
    own: tuple[type[Exception], ...] = (RelayoutError, *passed)
    try:
        return function(given)
    except own:
        raise
    except Exception as error:  # whatever a user's function raises
        raise RelayoutError(f"{where}{type(error).__name__}: {error}") from error
