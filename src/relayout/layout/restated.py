"""Declarations of values after some of their dimensions were opened, fixed or given another extent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from relayout.layout import perm as perms
from relayout.layout.stored_as import Holds, fill_factors, resolved_as_stored

Stored = Sequence[int]  # the extents of a stored value; -1 for an open one
Dealt = Sequence[Sequence[int]]  # the factors of each dimension, as indices


def with_extents(holds: Holds, stored: Stored) -> Holds | None:
    """Restate a value whose dimensions are numbers now; None where they do not give its open factors.

    >>> with_extents(Holds("x", (-1, 4, 6), (0, 2, 1), (-1, 4, 6)), (2, 6, 4)).factors
    (2, 4, 6)
    """
    if -1 not in (*holds.factors, *holds.shape) or -1 in stored:
        return holds
    known = resolved_as_stored(holds, stored)
    stored_factors = fill_factors(perms.permute(known.perm, known.factors), stored)
    if stored_factors is None:
        return None
    factors = perms.permute(perms.inverse(known.perm), stored_factors)
    shape = list(known.shape)
    if shape.count(-1) == 1:
        shape[shape.index(-1)] = prod(factors) // max(1, prod(extent for extent in shape if extent != -1))
    elif -1 in shape:
        if len(factors) != len(shape):
            return None
        shape = list(factors)
    return replace(known, factors=factors, shape=tuple(shape), axes=(), stored_axes=())


def restated(
    holds: Holds,  # what the value held
    before: Stored,  # its stored shape then
    after: Stored,  # its stored shape now
) -> Holds | None:
    """Restate a value some of whose extents changed; None where a changed one is no single factor.

    >>> restated(Holds("x", (4, 6, 3), (2, 0, 1), (1, 4, 6, 3)), (1, 3, 4, 6), (-1, 3, 4, 6))
    Holds(name='x', factors=(-1, 4, 6, 3), perm=(0, 3, 1, 2), shape=(-1, 4, 6, 3), axes=(), stored_axes=())
    """
    stored = _dealt([holds.factors[place] for place in holds.perm], before)
    source = _dealt(holds.factors, holds.shape)
    if stored is None or source is None or len(before) != len(after):
        return None
    factors, shape = list(holds.factors), list(holds.shape)
    added: list[int] = []
    for axis in (axis for axis in range(len(before)) if before[axis] != after[axis]):
        if not stored[axis]:
            added.append(axis)
            continue
        place = next(
            (
                place
                for place, factors_of_dim in enumerate(source)
                if factors_of_dim == [holds.perm[each] for each in stored[axis]]
            ),
            -1,
        )
        if len(stored[axis]) != 1 or place == -1:
            return None
        factors[source[place][0]] = shape[place] = after[axis]
    changed = replace(holds, factors=tuple(factors), shape=tuple(shape), axes=(), stored_axes=())
    if not added:
        return changed
    return _with_factor(changed, stored, source, added[0], after[added[0]]) if len(added) == 1 else None


def _with_factor(holds: Holds, stored: Dealt, source: Dealt, axis: int, extent: int) -> Holds | None:
    """With a factor for a stored axis that had one element, which the source has where it has as many others before."""
    ones = [place for place, factors_of_dim in enumerate(source) if not factors_of_dim]
    if len(ones) != sum(not dim for dim in stored):
        return None
    place = ones[sum(not dim for dim in stored[:axis])]
    new = sum(map(len, source[:place]))
    perm = [factor + (factor >= new) for factor in holds.perm]
    perm.insert(sum(map(len, stored[:axis])), new)
    shape = (*holds.shape[:place], extent, *holds.shape[place + 1 :])
    return replace(holds, factors=(*holds.factors[:new], extent, *holds.factors[new:]), perm=tuple(perm), shape=shape)


def _dealt(factors: Sequence[int], shape: Sequence[int]) -> list[list[int]] | None:
    """Return the factors of each dimension, as indices, in order; None where they do not make these extents."""
    dims: list[list[int]] = []
    place = 0
    for extent in shape:
        dim: list[int] = []
        size = 1
        while place < len(factors) and size != extent and (extent == -1 or 0 < size < extent):
            dim.append(place)
            if factors[place] == -1:
                size = extent if len(dim) == 1 and extent == -1 else 0
            else:
                size *= factors[place]
            place += 1
            if extent == -1:
                break
        if size != extent:
            return None
        dims.append(dim)
    return dims if place == len(factors) else None
