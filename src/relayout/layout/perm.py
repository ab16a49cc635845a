"""Permutations in ONNX's convention: `out[i] = in[perm[i]]`. Renumbering of axes lives here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from relayout.errors import LayoutError
from relayout.layout.extents import Dim, Extent, product

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
    """Return the perm that undoes one: `apply(inverse(perm), apply(perm, items)) == items`."""
    result = [0] * len(perm)
    for position, axis in enumerate(perm):
        result[axis] = position
    return tuple(result)


def permute(perm: Sequence[int], items: Sequence[T]) -> tuple[T, ...]:
    """`items` in the order of `perm`: what a Transpose does to a shape, and to the perm of a Transpose before it."""
    return tuple(items[axis] for axis in perm)


def is_identity(perm: Sequence[int]) -> bool:
    """Tell whether nothing moves."""
    return all(position == axis for position, axis in enumerate(perm))


def between(source: Sequence[T], target: Sequence[T]) -> Perm:
    """Return the perm with `apply(perm, source) == target`.

    Raises:
        LayoutError: the two do not hold the same, distinct items.
    """
    where = {item: position for position, item in enumerate(source)}
    if len(where) != len(source) or len(source) != len(target) or any(item not in where for item in target):
        raise LayoutError(f"{list(target)} is not a reordering of {list(source)}")
    return tuple(where[item] for item in target)


def innermost(perm: Sequence[int]) -> tuple[int, ...]:
    """Return the innermost axes that a Transpose moves as one, where others change places, too; else none.

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
    """Tell whether axes that lie together change places with all those behind them: `a b c d -> a c d b`."""
    outer = 0
    while outer < len(perm) and perm[outer] == outer:
        outer += 1
    if outer == len(perm):
        return False
    return list(perm[outer:]) == [*range(perm[outer], len(perm)), *range(outer, perm[outer])]


# Transposes of more axes than a kernel takes, as Transposes of fewer: axes that stay neighbours are one.
#
# Where that is not enough, a step brings as many of the first, or of the last, axes to their place as so many runs
# allow. These are one axis then, and so on.

Step = tuple[tuple[Dim, ...], tuple[int, ...]]  # the extents of the axes as they lie, and the order that they get


def transposes_of_few_axes(dims: Sequence[Dim | Extent], perm: Sequence[int], most: int) -> Iterator[Step]:
    """Yield Transposes of `most` axes at most, with a Reshape before each, that do what one of any number does.

    >>> list(transposes_of_few_axes(("batch", 3, 4, 5), (0, 2, 3, 1), 6))
    [(('batch', 3, 20), (0, 2, 1))]
    """
    moved = [axis for axis in perm if not Extent.of(dims[axis]).is_one]
    place_of_axis = {axis: place for place, axis in enumerate(moved)}
    lying = [(place_of_axis[axis], place_of_axis[axis] + 1, Extent.of(dims[axis])) for axis in sorted(moved)]
    while True:
        lying = _joined(lying)
        if len(lying) < 2:
            return
        places = [first for first, _, _ in lying]
        order = sorted(places) if len(places) <= most else _farthest(places, most)
        rank = {place: position for position, place in enumerate(order)}
        runs = _runs(places, rank)
        extents = tuple(_dim(product(lying[position][2] for position in run)) for run in runs)
        yield extents, tuple(sorted(range(len(runs)), key=lambda run: rank[places[runs[run][0]]]))
        lying = sorted(lying, key=lambda axis: rank[axis[0]])


def _dim(extent: Extent) -> Dim:
    return extent.number if extent.is_static else str(extent)


def _joined(axes: Sequence[tuple[int, int, Extent]]) -> list[tuple[int, int, Extent]]:
    """Return axes with those as one that lie side by side as they are wanted: (first place, place behind, extent)."""
    joined: list[tuple[int, int, Extent]] = []
    for first, behind, extent in axes:
        if joined and joined[-1][1] == first:
            before = joined.pop()
            joined.append((before[0], behind, before[2] * extent))
        else:
            joined.append((first, behind, extent))
    return joined


def _farthest(places: Sequence[int], most: int) -> list[int]:
    """Return the places in the order in which most of the first or of the last are where they belong, in few runs."""
    ordered = sorted(places)
    for count in range(len(places) - 1, 0, -1):
        first, last = set(ordered[:count]), set(ordered[-count:])
        for order in (
            [*ordered[:count], *(place for place in places if place not in first)],
            [*(place for place in places if place not in last), *ordered[-count:]],
        ):
            if len(_runs(places, {place: position for position, place in enumerate(order)})) <= most:
                return order
    raise AssertionError("one axis alone moves among three runs")


def _runs(
    places: Sequence[int],  # the places as they lie
    rank: Mapping[int, int],  # place -> its position in the order that is wanted
) -> list[list[int]]:
    """Return the positions of places, as those that stay side by side."""
    runs: list[list[int]] = []
    for position, place in enumerate(places):
        if runs and rank[place] == rank[places[runs[-1][-1]]] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return runs
