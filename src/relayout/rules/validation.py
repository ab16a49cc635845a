"""Checks of the results of a user's rule, before anything is built on them; the project's own are tested."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout import arguments
from relayout.errors import ExtensionError
from relayout.layout import Dim, Extent
from relayout.rules.operator import Letters, Operator, Shape, Shapes
from relayout.rules.signature import (
    Changes,
    Fact,
    Nested,
    Permuted,
    Placement,
    Regrouped,
    Signature,
    Variant,
    Written,
    parts_of,
    unchanged,
)
from relayout.rules.users_functions import UsersFunction, asked_of, is_vague, place_of


def _is_axis(value: Any) -> bool:
    return isinstance(value, str) and bool(value) and set(value).isdisjoint("/%*")


_TOKEN = re.compile(r"[^/%*]+([/%][1-9]\d*)?(\*[^/%*]+)*")  # `c/16` and `c%16` are parts of an axis, `h*d` is two


def _are_tokens(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str) and _TOKEN.fullmatch(each) for each in value)


def _is_letters(value: Any) -> bool:
    return isinstance(value, tuple) and all(map(_is_axis, value)) and len(set(value)) == len(value)


_AXES = arguments.ArgumentKind(
    "a frozenset of names of axes", lambda value: isinstance(value, frozenset) and all(map(_is_axis, value))
)
_STORED = arguments.ArgumentKind(
    "a tuple with the dimensions of each operand, or None: (('n', 'c/16', 'h', 'c%16'), None)",
    lambda value: isinstance(value, tuple) and all(each is None or _are_tokens(each) for each in value),
)
_LETTERS = arguments.ArgumentKind("a tuple of names of axes, none twice, such as ('m', 'n')", _is_letters)
_EXCHANGED = arguments.ArgumentKind(
    "a tuple of names of axes, such as ('n', 'm')",
    lambda value: isinstance(value, tuple) and all(each == "*" or _is_axis(each) for each in value),
)
_OPERANDS = arguments.ArgumentKind(
    "a tuple with the names of the axes of each operand, none twice, or None: (('n', 'c'), None)",
    lambda value: isinstance(value, tuple) and all(each is None or _is_letters(each) for each in value),
)
_GRAIN = arguments.ArgumentKind(
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
    **dict.fromkeys(("across", "grows"), _AXES),
    **dict.fromkeys(("exchanged", "transposed"), _EXCHANGED),
    **dict.fromkeys(("broadcast", "with_reader", "with_producer", "freely", "unidirectional"), arguments.FLAG),
}
WRITTEN = arguments.instance(Written, "a Written, such as Written('vendor', 'Conv')")
_VARIANT = {
    "inputs": _STORED,
    "outputs": _STORED,
    "name": arguments.TEXT,
    "written": WRITTEN,
    **dict.fromkeys(("free", "follows", "exchanged", "costly"), arguments.FLAG),
}
_PERM = arguments.ArgumentKind(
    "a tuple of whole numbers", lambda value: isinstance(value, tuple) and all(map(arguments.whole(0).fits, value))
)


def _by_slot(example: str, fits: Callable[[Any], bool]) -> arguments.ArgumentKind:
    """A dictionary from numbers of inputs to what fits."""
    return arguments.ArgumentKind(
        f"a dictionary from numbers of inputs, such as {example}",
        lambda value: (
            isinstance(value, Mapping) and all(map(arguments.whole(0).fits, value)) and all(map(fits, value.values()))
        ),
    )


def _is_attribute(value: Any) -> bool:
    """Numbers, texts, and tuples of numbers; None removes an attribute."""
    numbers = value if isinstance(value, tuple | list) else (value,)
    return value is None or isinstance(value, str) or all(type(number) in (int, float, bool) for number in numbers)


_CHANGES = {
    "attributes": arguments.mapping("{'axis': 1}, of Python's numbers and texts, or tuples of numbers", _is_attribute),
    "inputs": _by_slot("{1: numpy.array([0, 2])}", lambda value: isinstance(value, np.ndarray | None)),
    "gathered": _by_slot(
        "{1: (0, (0, 2, 1))}: an axis and places on it",
        lambda value: (
            isinstance(value, tuple) and len(value) == 2 and arguments.whole(0).fits(value[0]) and _PERM.fits(value[1])
        ),
    ),
    "looked_up": _by_slot("{1: (0, 2, 1)}: a table of axes", _PERM.fits),
    "op_type": arguments.WORDS,
    "domain": arguments.TEXT,
    "exchanged": arguments.FLAG,
}
_SHAPE = arguments.ArgumentKind(
    "a tuple of extents: whole numbers, or names of dynamic ones",
    lambda value: isinstance(value, tuple) and all(isinstance(dim, Dim) and not isinstance(dim, bool) for dim in value),
)


def promised(name: str, rule: Callable[[Operator], Fact]) -> Callable[[Operator], Fact]:
    """Return the rule of a user: what it gives is what a rule gives, and what it raises says whose it is.

    Raises:
        ExtensionError: when it is asked, and one of both is not so. Of a node of which a rank is not known it may raise
            a `TypeError`, `ValueError` or `IndexError`: nothing is known then.
    """
    what = f"the rule of {name}"
    where = f"{place_of(what, rule)}: "
    users_rule = UsersFunction(what, rule, otherwise=None)

    @functools.wraps(rule)
    def facts(operator: Operator) -> Fact:
        fact: Fact = users_rule(operator)
        if isinstance(fact, Signature):
            return _signature(name, where, fact)
        if isinstance(fact, Permuted):
            arguments.check_fields(fact, where, perm=_PERM)
        elif isinstance(fact, Regrouped):
            arguments.check_fields(fact, where, shape=_SHAPE)
        elif fact is not None and not isinstance(fact, Nested):
            raise ExtensionError(
                f"{where}it gives {type(fact).__name__}; a rule gives a Signature, Permuted, Regrouped, Nested or None"
            )
        return fact

    return facts


def promised_shapes(name: str, shapes: Shapes) -> Shapes:
    """Return a user's function of types and shapes: what it gives are such, and what it raises says whose it is."""

    def problem(_: Sequence[Any], outputs: Any) -> str:
        fits = isinstance(outputs, Sequence) and all(isinstance(each, tuple) and len(each) == 2 for each in outputs)
        if fits and all(isinstance(kind, ir.DataType | None) and _is_shape(shape) for kind, shape in outputs):
            return ""
        return (
            f"it gives {outputs!r}; it gives a list of (ir.DataType or None, tuple of extents or None), an output each"
        )

    return UsersFunction(f"the shapes of {name}", shapes, otherwise=(), check=problem)


def _is_shape(shape: Any) -> bool:
    return shape is None or (isinstance(shape, tuple) and all(isinstance(extent, int | str) for extent in shape))


def refuse_unfit(place: str, fact: Fact, operator: Operator) -> None:
    """Hold what a rule of a user says to the node that it is said of.

    Raises:
        ExtensionError: it speaks of other operands or axes than the node has, or not of an attribute that counts axes.
    """
    where = f"{place}, {asked_of(operator.bare)}: "
    rank = operator.rank()
    if isinstance(fact, Permuted) and rank is not None and sorted(fact.perm) != list(range(rank)):
        raise ExtensionError(f"{where}{fact.perm} is no perm of the {rank} axes of its input")
    if isinstance(fact, Permuted | Regrouped) and (wrong := _other_shape(fact, operator)):
        raise ExtensionError(f"{where}{wrong}")
    if not isinstance(fact, Signature):
        return
    for what, operands, shapes in (("input", fact.inputs, operator.inputs), ("output", fact.outputs, operator.outputs)):
        if len(operands) != len(shapes):
            raise ExtensionError(f"{where}its signature has {len(operands)} {what}s, and the node {len(shapes)}")
        for slot, (letters, shape) in enumerate(zip(operands, shapes, strict=True)):
            if letters is not None and shape is not None and len(letters) != len(shape):
                named = f"{len(letters)} axes ({' '.join(letters)})"
                raise ExtensionError(f"{where}it names {named} of {what} {slot}, which has {len(shape)}")
    _refuse_extents(where, fact, operator)
    if not is_vague(operator):
        _refuse_silence(where, fact, operator)


def _other_shape(fact: Permuted | Regrouped, operator: Operator) -> str:
    """Say that a view has other extents than the node's output; empty where both are not known to differ."""
    output, own = operator.outputs[0] if operator.outputs else None, operator.shape()
    if isinstance(fact, Permuted):
        extents = None if own is None else tuple(own[axis] for axis in fact.perm)
    else:
        extents = fact.shape
    if output is None or extents is None:
        return ""
    differ = len(extents) != len(output) or any(
        isinstance(one, int) and isinstance(other, int) and one != other
        for one, other in zip(extents, output, strict=True)
    )
    shown = " x ".join(map(str, extents)), " x ".join(map(str, output))
    return f"it says that the result has extents {shown[0]}, and the node gives {shown[1]}" if differ else ""


def _refuse_extents(where: str, fact: Signature, operator: Operator) -> None:
    """Refuse one name for axes of two extents, unless the axis is in order, is stretched, or grows.

    Raises:
        ExtensionError: two axes of one name have two extents.
    """
    extents: dict[str, int] = {}
    loose = fact.whole | fact.grows
    shapes = zip((*fact.inputs, *fact.outputs), (*operator.inputs, *operator.outputs), strict=True)
    for letters, shape in shapes if not (fact.broadcast or fact.variants) else ():
        for letter, extent in zip(letters or (), shape or (), strict=False):
            if letter in loose or not isinstance(extent, int):
                continue
            if extents.setdefault(letter, extent) != extent:
                raise ExtensionError(f"{where}its axis {letter!r} has {extents[letter]} elements, and {extent}")


def _refuse_silence(where: str, fact: Signature, operator: Operator) -> None:
    """Refuse a rule that lets axes move that an attribute counts, and says nothing of the attribute.

    Raises:
        ExtensionError: it does.
    """
    own = next((letters for letters in (*fact.inputs, *fact.outputs) if letters), ())
    counted = {name: axes for name in operator.attributes if (axes := _axes_in(operator, name, len(own)))}
    for placement in _turned(fact, operator) if counted else ():
        dims = next(dims for dims in (*placement.inputs, *placement.outputs) if dims)
        moved = [letter for letter, _ in dims]
        for name, axes in counted.items():
            if any(moved[axis : axis + 1] != [own[axis]] for axis in axes) and not _speaks(fact, placement, name):
                value = getattr(operator.attributes[name], "value", None)
                raise ExtensionError(
                    f"{where}the node has {name}={value}, and its axes may move, of which the rule says nothing: give "
                    f"`changes=lambda p: Changes({{'{name}': p.axis('{own[axes[0]]}')}})`, or the axes fixed positions "
                    "(`.positional()`); where it counts no axes, give it back as it is"
                )


def _axes_in(operator: Operator, name: str, rank: int) -> tuple[int, ...]:
    """List the axes that an attribute counts, if its name says so and they are there."""
    attribute = operator.attributes[name]
    is_listed = attribute.type in (ir.AttributeType.INT, ir.AttributeType.INTS) and not attribute.is_ref()
    if not is_listed or not re.fullmatch(r"(\w+_)?ax[ei]s", name):
        return ()
    axes = (operator.int(name, 0),) if attribute.type == ir.AttributeType.INT else operator.ints(name) or ()
    return tuple(axis % rank for axis in axes if -rank <= axis < rank)


def _turned(fact: Signature, operator: Operator) -> Iterator[Placement]:
    """Yield orders that a signature allows: its variants, or all axes the other way round."""
    if fact.variants:
        ways = [(each.inputs, each.outputs) for each in fact.variants if not each.tiles and each.written is None]
    else:
        ways = [(tuple(_reversed(fact, each) for each in fact.inputs), tuple(_reversed(fact, o) for o in fact.outputs))]
    for inputs, outputs in ways:
        yield Placement(
            tuple(map(_dims, inputs, fact.inputs, operator.inputs)),
            tuple(map(_dims, outputs, fact.outputs, operator.outputs)),
        )


def _reversed(fact: Signature, letters: Letters | None) -> Letters | None:
    """Reverse an operand's axes, but for those that come first or last."""
    if letters is None:
        return None
    inner = [letter for letter in reversed(letters) if letter not in (*fact.head, *fact.tail)]
    first, last = ([letter for letter in end if letter in letters] for end in (fact.head, fact.tail))
    return (*first, *inner, *last)


def _dims(stored: Letters | None, own: Letters | None, shape: Shape | None) -> tuple[tuple[str, Extent], ...] | None:
    """Return the dimensions of an operand in another order."""
    if stored is None or own is None or shape is None or sorted(stored) != sorted(own):
        return None
    return tuple((letter, Extent.of(shape[own.index(letter)])) for letter in stored)


def _speaks(fact: Signature, placement: Placement, name: str) -> bool:
    """Tell whether a signature says what becomes of an attribute; an error in it is raised when it is needed."""
    try:
        return name in fact.changes(placement).attributes
    except (ExtensionError, KeyError):
        return True


def _signature(name: str, where: str, fact: Signature) -> Signature:
    arguments.check_fields(fact, where, ExtensionError, **_SIGNATURE)
    letters = {"*", *(letter for axes in (*fact.inputs, *fact.outputs) for letter in axes or ())}
    for field in ("whole", "block", "tail", "head", "exchanged", "transposed", "grows", "across"):
        if unknown := set(getattr(fact, field)) - letters:
            raise ExtensionError(f"{where}{field} names an axis {min(unknown)!r}, which no operand has")
    for letter, _ in fact.grain:
        if letter not in fact.whole:
            raise ExtensionError(f"{where}grain names an axis {letter!r}, which is not in `whole`")
    if both := set(fact.head) & set(fact.tail):
        raise ExtensionError(f"{where}the axis {min(both)!r} comes first (head) and last (tail)")
    for variant in fact.variants:
        arguments.check_fields(variant, f"{where}a variant: ", ExtensionError, **_VARIANT)
        for axes, own in ((variant.inputs, fact.inputs), (variant.outputs, fact.outputs)):
            if list(map(_axes, axes)) != list(map(_axes, own)):
                raise ExtensionError(f"{where}a variant of {_shown(axes)}, where the signature has {_shown(own)}")
            if not all(map(_is_whole, axes)):
                raise ExtensionError(
                    f"{where}a variant of {_shown(axes)}: an axis is there once, or as `c/16` and `c%16`"
                )
    if any(variant.steps is not None for variant in fact.variants):
        raise ExtensionError(f"{where}a variant with steps: those are this package's own; a target has expansions")
    changes, price = fact.changes, fact.price
    if price is not None:
        priced = UsersFunction(f"the rule of {name}", price)
        fact = replace(fact, price=lambda placement: in_bytes(f"{where}price ", priced(placement)))
    if changes is unchanged:
        return fact

    users_changes = UsersFunction(f"the rule of {name}", changes)

    def checked(placement: Placement) -> Changes:
        node_changes = users_changes(placement)
        if not isinstance(node_changes, Changes):
            raise ExtensionError(f"{where}changes gives {type(node_changes).__name__}; it gives Changes")
        said = f"{where}in Changes, "
        arguments.check(node_changes._asdict(), _CHANGES, Changes()._asdict(), where=said, error=ExtensionError)
        slots = {*node_changes.inputs, *node_changes.gathered, *node_changes.looked_up}
        if slots and max(slots) >= len(placement.inputs):
            raise ExtensionError(f"{said}input {max(slots)}, where the node has {len(placement.inputs)}")
        return node_changes

    return replace(fact, changes=checked)


def in_bytes(where: str, price: Any) -> int:
    """Return what a price function gives, checked.

    Raises:
        ExtensionError: it is no whole number from 0 on.
    """
    if not arguments.whole(0).fits(price):
        raise ExtensionError(f"{where}gives {price!r}; it gives bytes, a whole number from 0 on")
    return int(price)


def _axes(letters: Letters | None) -> list[str] | None:
    """Return the axes of one operand, in no order: a variant may turn them, and no more."""
    return None if letters is None else sorted({part.letter for token in letters for part in parts_of(token)})


def _is_whole(letters: Letters | None) -> bool:
    """Tell whether each axis of an operand is one dimension, or an outer part and a tile of one size."""
    parts: dict[str, list[tuple[int, bool]]] = {}
    for part in (part for token in letters or () for part in parts_of(token)):
        parts.setdefault(part.letter, []).append((part.tile, part.inner))
    return all(
        (len(factors) == 1 and not factors[0][0])
        or (len(factors) == 2 and sorted(factors) == [(factors[0][0], False), (factors[0][0], True)])
        for factors in parts.values()
    )


def _shown(operands: tuple[Letters | None, ...]) -> str:
    return ", ".join("nothing" if letters is None else " ".join(letters) or "no axes" for letters in operands)
