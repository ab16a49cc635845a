"""Permutations in ONNX's convention: `out[i] = in[perm[i]]`. Renumbering of axes lives here and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from relayout.errors import LayoutError

T = TypeVar("T")
Perm = tuple[int, ...]


def validated(perm: Sequence[int]) -> Perm:
    """Check a sequence of axes, and give it as a tuple.

    Raises:
        LayoutError: it is not a permutation of 0 … rank-1.
    """
    if sorted(perm) != list(range(len(perm))):
        raise LayoutError(f"{list(perm)} is not a permutation of 0 … {len(perm) - 1}")
    return tuple(perm)


def inverse(perm: Sequence[int]) -> Perm:
    """The perm that undoes one: `apply(inverse(perm), apply(perm, items)) == items`."""
    result = [0] * len(perm)
    for position, axis in enumerate(perm):
        result[axis] = position
    return tuple(result)


def permute(perm: Sequence[int], items: Sequence[T]) -> tuple[T, ...]:
    """`items` in the order of `perm`: what a Transpose does to a shape, and to the perm of a Transpose before it."""
    return tuple(items[axis] for axis in perm)


def is_identity(perm: Sequence[int]) -> bool:
    """Whether nothing moves."""
    return all(position == axis for position, axis in enumerate(perm))


def between(source: Sequence[T], target: Sequence[T]) -> Perm:
    """The perm with `apply(perm, source) == target`.

    Raises:
        LayoutError: the two do not hold the same, distinct items.
    """
    where = {item: position for position, item in enumerate(source)}
    if len(where) != len(source) or len(source) != len(target) or any(item not in where for item in target):
        raise LayoutError(f"{list(target)} is not a reordering of {list(source)}")
    return tuple(where[item] for item in target)


def innermost(perm: Sequence[int]) -> tuple[int, ...]:
    """The innermost axes that a Transpose moves as one, where others change places, too; else none.

    There is no whole run to copy then, nor one axis alone to move: a kernel may take single elements.
    """
    if not perm or perm[-1] == len(perm) - 1:
        return ()
    first = last = perm.index(len(perm) - 1)
    while first and perm[first - 1] == perm[first] - 1:
        first -= 1
    rest = [*perm[:first], *perm[last + 1 :]]
    return tuple(perm[first : last + 1]) if rest != sorted(rest) else ()


def is_rotation(perm: Sequence[int]) -> bool:
    """Whether axes that lie together change places with all those behind them: `a b c d -> a c d b`."""
    outer = 0
    while outer < len(perm) and perm[outer] == outer:
        outer += 1
    if outer == len(perm):
        return False
    return list(perm[outer:]) == [*range(perm[outer], len(perm)), *range(outer, perm[outer])]
