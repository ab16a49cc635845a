"""Arrays brought into the layouts that models declare, and back."""

from __future__ import annotations

import math

import numpy as np

from relayout.errors import LayoutError
from relayout.layout import perm as perms
from relayout.layout.stored_as import Holds, fill_factors, relay, resolved, resolved_as_stored, restore
from relayout.verification.side import Array


def stored_extents(left: Array, held: Holds) -> tuple[int, ...] | None:
    """The extents of the factors of an array of the source, as they are stored; None where it does not tell."""
    held = resolved(held, left.shape)
    known = math.prod(factor for factor in held.factors if factor != -1)
    if held.factors.count(-1) > 1 or known < 1 or len(held.perm) != len(held.factors):
        return None
    return perms.permute(held.perm, [left.size // known if factor == -1 else factor for factor in held.factors])


def restore_array(array: Array, held: Holds) -> Array:
    """The source's array of a stored one.

    Raises:
        LayoutError: it cannot hold that.
    """
    try:
        return np.asarray(restore(array, resolved_as_stored(held, array.shape)))
    except ValueError:
        raise LayoutError(_misfit(array, held)) from None


def relaid_as(array: Array, held: Holds, stored: tuple[int | None, ...] | None) -> Array:
    """The array of the source as it is stored; `stored` is the stored shape, as far as it is known.

    Raises:
        LayoutError: it cannot be stored so.
    """
    extents = [extent for extent in stored or () if extent is not None]
    if stored is not None and len(extents) == len(stored):
        held = resolved_as_stored(held, extents)
    try:
        array = relay(array, resolved(held, array.shape))
        if not fits_shape(array.shape, stored):
            wanted = [-1 if extent is None else extent for extent in stored or ()]
            array = array.reshape(fill_factors(wanted, array.shape) or wanted)
        return np.asarray(array)
    except ValueError:
        raise LayoutError(_misfit(array, held)) from None


def _misfit(array: Array, held: Holds) -> str:
    return f"{list(array.shape)} is declared to hold '{held.name}' with factors {held.factors}, which it cannot"


def fits_shape(shape: tuple[int, ...], wanted: tuple[int | None, ...] | None) -> bool:
    """Tell whether an array of a shape is what is wanted, as far as that is known."""
    return wanted is None or (
        len(shape) == len(wanted) and all(w in (None, s) for s, w in zip(shape, wanted, strict=True))
    )


def shape_text(shape: tuple[int | None, ...] | None) -> str:
    """A shape in a message; `?` where it is not known."""
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape or ()) + "]"
