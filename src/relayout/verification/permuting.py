"""Layouts of inputs and outputs that models do not declare: what a user says of them, and what their shapes propose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from string import ascii_uppercase
from typing import TYPE_CHECKING

from relayout.errors import LayoutError, RelayoutError, nearest
from relayout.layout import perm as perms
from relayout.layout import perm_of
from relayout.layout.stored_as import Holds

if TYPE_CHECKING:
    from relayout.verification.pairs import Pair

Shape = Sequence[int | None]

USUAL = {
    perm_of(*pair): ":".join(pair)
    for pair in (("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NDHWC", "NCDHW"), ("NCDHW", "NDHWC"), ("NCW", "NWC"))
}
"""The perms that are looked for first, and what people call them."""
MOST_AXES = 6
"""All perms of so many axes are tried."""


def with_layouts(pairs: Sequence[Pair], layouts: Mapping[str, tuple[str, str]]) -> list[Pair]:
    """Return the pairs, those that a user speaks of in the layouts that are given.

    Args:
        pairs: inputs and outputs.
        layouts: name -> its layout in the first model, and in the second.

    Raises:
        LayoutError: a layout is none, or not one of the tensor's rank.
    """
    return [
        next((_laid(pair, name, *layouts[name]) for name in _names(pair) if name in layouts), pair) for pair in pairs
    ]


def refuse_unknown(pairs: Iterable[Pair], layouts: Mapping[str, tuple[str, str]]) -> None:
    """Refuse layouts of tensors that are no inputs or outputs.

    Raises:
        RelayoutError: there is one.
    """
    known = [name for pair in pairs for name in _names(pair)]
    for name in layouts:
        if name not in known:
            raise RelayoutError(f"--layout {name}: no input or output is called so{nearest(name, known)}")


def permuted(pair: Pair, perm: Sequence[int]) -> Pair:
    """Return the pair where the second model has the first's axes in the order of a perm."""
    shape = pair.left.shape if pair.left.shape is not None else (None,) * len(perm)
    extents = tuple(-1 if extent is None else extent for extent in shape)
    return replace(pair, left_held=None, right_held=Holds(pair.left.name, extents, tuple(perm), extents))


def fitting_perm(shape: Sequence[int], wanted: Shape) -> tuple[int, ...] | None:
    """Return the only perm that takes a shape to another; among several a usual one, if only one is.

    >>> fitting_perm((1, 8, 9, 3), (1, 3, 8, 9))
    (0, 3, 1, 2)
    >>> fitting_perm((2, 64, 64, 3), (None, 3, None, None))
    (0, 3, 1, 2)
    >>> fitting_perm((1, 4, 5, 6), (1, 6, 6, 6)) is None
    True
    """
    rank = len(shape)
    if rank != len(wanted) or rank > MOST_AXES:
        return None
    fitting = [perm for perm in permutations(range(rank)) if _fits(perms.permute(perm, shape), wanted)]
    if len(fitting) > 1:
        fitting = [perm for perm in fitting if perm in USUAL]
    return fitting[0] if len(fitting) == 1 else None


def proposal(name: str, shape: Sequence[int], wanted: Shape) -> str:
    """Return the option with which two tensors would be compared; nothing where their shapes do not tell it."""
    perm = fitting_perm(shape, wanted)
    return "" if perm is None else f"--layout {name}={called(perm)}"


def advice(pairs: Iterable[Pair]) -> list[str]:
    """Return what to say of inputs whose open extents hide that a usual perm makes the two shapes one."""
    told = []
    for pair in pairs:
        left, right = pair.left.shape, pair.right.shape
        if pair.declared or left is None or right is None or None not in left or left == right:
            continue
        perm = next((perm for perm in USUAL if len(perm) == len(left) and perms.permute(perm, left) == right), None)
        if perm is not None:
            name, first, second = pair.left.title or pair.left.name, *map(_text, (left, right))
            told.append(
                f"input '{name}' is {first} in the first model and {second} in the second; if both mean the same, say"
                f" so: --layout {name}={called(perm)}"
            )
    return told


def called(perm: tuple[int, ...]) -> str:
    """Return how a user writes a perm: `NHWC:NCHW`."""
    letters = ascii_uppercase[: len(perm)]
    return USUAL.get(perm) or f"{letters}:{''.join(perms.permute(perm, letters))}"


def _laid(pair: Pair, name: str, source: str, target: str) -> Pair:
    try:
        perm = perm_of(source, target)
    except LayoutError as error:
        raise LayoutError(f"--layout {name}={source}:{target}: {error}") from None
    shapes = [value.shape for value in (pair.left, pair.right) if value.shape is not None]
    for shape in shapes:
        if len(shape) != len(perm):
            raise LayoutError(f"--layout {name}={source}:{target}: the tensor has rank {len(shape)}")
    if len(shapes) == 2 and not _may_be(perms.permute(perm, shapes[0]), shapes[1]):
        raise LayoutError(f"--layout {name}={source}:{target}: {_why_not(name, perm, *shapes)}")
    return permuted(pair, perm)


def _why_not(name: str, perm: tuple[int, ...], first: Shape, second: Shape) -> str:
    """Return why a perm does not take a shape to another, and what to ask for."""
    if _may_be(first, second):
        advice = "; both models have the same order: leave --layout out"
    else:
        fitting = "" if None in first else proposal(name, [extent or 0 for extent in first], second)
        advice = fitting and f"; {fitting} fits"
    return f"in the second model it would be {_text(perms.permute(perm, first))}, and is {_text(second)}{advice}"


def _names(pair: Pair) -> list[str]:
    return list(dict.fromkeys((*pair.left.all_names, *pair.right.all_names)))


def _text(shape: Shape) -> str:
    return f"[{', '.join('?' if extent is None else str(extent) for extent in shape)}]"


def _may_be(shape: Shape, wanted: Shape) -> bool:
    return all(None in pair or pair[0] == pair[1] for pair in zip(shape, wanted, strict=True))


def _fits(shape: Sequence[int], wanted: Shape) -> bool:
    return all(extent in (None, size) for size, extent in zip(shape, wanted, strict=True))
