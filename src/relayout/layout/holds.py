"""What a stored value holds: which value of the source, and how to get it back. Written into the model's metadata.

stored = source.reshape(factors).transpose(perm).reshape(stored's shape)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from relayout.errors import LayoutError
from relayout.layout import perm as perms

TENSOR = "relayout.tensor"
"""Metadata of a value whose name is not that of its counterpart in the source: that name."""
SIGNATURE = "relayout.signature"
"""Metadata of a model that was made of a subgraph of a `.tflite` that is not the first: the signature's key."""
STATED = "relayout.stated"
"""In the `meta` of an output, in memory only: the shape that its file states."""


@dataclass(frozen=True)
class Holds:
    """One value of the source that a stored value holds.

    Args:
        name: the source's name.
        factors: extents of the source's factors, major to minor; -1 for one dynamic factor.
        perm: the stored order: `stored[i] = source[perm[i]]`, over factors.
        shape: the source's shape; -1 for a dynamic dimension.
    """

    name: str
    factors: tuple[int, ...]
    perm: tuple[int, ...]
    shape: tuple[int, ...]

    KEY: ClassVar[str] = "relayout.holds"

    @staticmethod
    def dump(held: Iterable[Holds]) -> str:
        """The metadata's text: a JSON list."""
        items = (f'"name":{json.dumps(item.name)},{_text(item.factors, item.perm, item.shape)}' for item in held)
        return f"[{','.join(f'{{{item}}}' for item in items)}]"

    @staticmethod
    def load(text: str) -> list[Holds]:
        """Read the metadata's text.

        Raises:
            LayoutError: it is not such a list.
        """
        try:
            items = json.loads(text)
            if not isinstance(items, list):
                raise TypeError("not a list")
            return [
                Holds(
                    str(i["name"]),
                    tuple(map(int, i["factors"])),
                    perms.validated(i["perm"]),
                    tuple(map(int, i["shape"])),
                )
                for i in items
            ]
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise LayoutError(f"metadata {Holds.KEY!r} is not readable: {text[:80]!r}") from error


@lru_cache(4096)
def _text(factors: tuple[int, ...], perm: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """The text of all but the name: thousands of values of a model lie alike."""
    return json.dumps({"factors": factors, "perm": perm, "shape": shape}, separators=(",", ":"))[1:-1]


def relay(array: NDArray[np.generic], holds: Holds, stored: Sequence[int] | None = None) -> NDArray[np.generic]:
    """Store the source's array as `holds` says; `stored` is the stored shape (default: one dimension a factor)."""
    result = array.reshape(_filled(holds.factors, array.size)).transpose(holds.perm)
    return result if stored is None else result.reshape(_filled(tuple(stored), array.size))


def restore(array: NDArray[np.generic], holds: Holds) -> NDArray[np.generic]:
    """The source's array from the stored one: the inverse of `relay`."""
    factors = _filled(holds.factors, array.size)
    laid = array.reshape(perms.apply(holds.perm, factors))
    return laid.transpose(perms.inverse(holds.perm)).reshape(_filled(holds.shape, array.size))


def _filled(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """A shape with its one -1 replaced, also for arrays without elements."""
    known = int(np.prod([extent for extent in shape if extent != -1], dtype=np.int64))
    return tuple(size // max(known, 1) if extent == -1 else extent for extent in shape)


def fitted(extents: Sequence[int], shape: Sequence[int]) -> tuple[int, ...] | None:
    """The open extents (-1) filled in, such that all of them are a shape, but for ones; None where they cannot.

    `(-1, 1024, -1)` of an array of 2 × 1024 × 6 × 1 is `(2, 1024, 6)`.
    """
    if not extents:
        return () if all(extent == 1 for extent in shape) else None
    first, *rest = extents
    if shape and first in (-1, shape[0]):
        found = fitted(rest, shape[1:])
        if found is not None:
            return (shape[0], *found)
    if first == 1:
        found = fitted(rest, shape)
        if found is not None:
            return (1, *found)
    return fitted(extents, shape[1:]) if shape and shape[0] == 1 else None
