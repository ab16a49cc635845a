"""Splits along a site's axes: what a Reshape, a tile or a run of elements splits on one operand is split on all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from relayout.infer.pieces import Piece, align, leaves
from relayout.infer.sites import Port, Site, axes_of
from relayout.layout import Extent, product
from relayout.rules import Letters


def carry(site: Site) -> None:
    """Carry splits along the site's axes; an axis whose splits do not agree is held together."""
    site.whole = site.signature.whole
    if _is_same(site.ports):
        return
    for letter, holders in _holding(tuple([None if port.pinned else port.letters for port in site.ports])):
        if letter not in site.whole and not _linked(site.ports, holders):
            site.whole |= {letter}


def _is_same(ports: Sequence[Port]) -> bool:
    """Tell whether all operands have the very same pieces for the same letters."""
    if not ports:
        return True
    letters, dims = ports[0].letters, ports[0].view.dims
    for port in ports:
        if port.view.dims is not dims or port.letters != letters:
            return False
    return len(axes_of(letters)) == len(letters)


def tile(site: Site) -> None:
    """Split the axes that a variant holds in tiles; a variant whose tiles do not fit is none."""
    variants = site.signature.variants
    fitting = tuple(variant for variant in variants if all(_in_tiles(site, *each) for each in variant.tiles))
    if fitting != variants:
        signature = site.signature
        site.signature = replace(signature, variants=fitting) if fitting else signature.positional()


def _in_tiles(site: Site, letter: str, size: int) -> bool:
    if letter in site.whole:
        return _in_runs(site, letter, size)
    operand_pieces = (port.pieces(letter) for port in site.ports if not port.pinned and letter in port.axes)
    for pieces in operand_pieces:
        extent = product(leaf.extent for leaf in leaves(pieces))
        if extent.is_one:
            continue
        outer = extent.divide(Extent(size))
        if outer is None or not align(pieces, [Piece(outer), Piece(Extent(size))]):
            return False
    return True


def refine(
    site: Site,
    letter: str,  # the axis
    most: int,  # elements in the longest run that no cut divides: a run's length divides it
) -> bool:
    """Let the runs of a whole axis lie apart where some operand's factors are such runs; whether any came to it."""
    operand_pieces = (port.pieces(letter) for port in site.ports if not port.pinned and letter in port.axes)
    sizes = [size for pieces in operand_pieces for size in _suffixes(pieces) if most % size == 0]
    size, known = max(sizes, default=1), site.grain.pop(letter, 1)
    if size > known and _in_runs(site, letter, size):
        return True
    _in_runs(site, letter, known)
    return False


def _in_runs(site: Site, letter: str, size: int) -> bool:
    """Split a whole axis into runs of `size` elements, and carry what splits a run."""
    if size == 1 or site.grain.setdefault(letter, size) != size:
        return False
    inner: list[Piece] = []
    for port in site.ports:
        if port.pinned or letter not in port.axes:
            continue
        pieces = port.pieces(letter)
        outer = product(leaf.extent for leaf in leaves(pieces)).divide(Extent(size))
        grain = Piece(Extent(size))
        several = len(port.dims(letter)) > 1 and not site.signature.variants
        if several or outer is None or not align(pieces, [Piece(outer), grain]):
            del site.grain[letter]
            return False
        inner.append(grain)
    if not all(align([inner[0]], [other]) for other in inner[1:]):
        del site.grain[letter]
    return letter in site.grain


Held = tuple[tuple[int, tuple[int, ...]], ...]  # the operands that hold an axis, each with the dimensions that do


@lru_cache(4096)
def _holding(operands: tuple[Letters | None, ...]) -> tuple[tuple[str, Held], ...]:
    """Letter -> the operands and dimensions that hold it."""
    holders_by_letter: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    for position, letters in enumerate(operands):
        for letter, axes in axes_of(letters or ()).items():
            holders_by_letter.setdefault(letter, []).append((position, axes))
    return tuple((letter, tuple(holders)) for letter, holders in holders_by_letter.items())


def _linked(ports: Sequence[Port], holders: Held) -> bool:
    """Link an axis's factors on all operands that hold more than one element of it."""
    first: tuple[Piece, ...] = ()
    for position, axes in holders:
        dims = ports[position].view.dims
        pieces = dims[axes[0]] if len(axes) == 1 else tuple([piece for axis in axes for piece in dims[axis]])
        if _is_one(pieces):
            continue
        if not first:
            first = pieces
        elif len(first) == len(pieces) == 1 and first[0].linked is pieces[0].linked:
            continue  # one factor each, known to be the same
        elif not align(first, pieces):
            return False
    return True


def _is_one(pieces: tuple[Piece, ...]) -> bool:
    return pieces[0].extent.is_one if len(pieces) == 1 else all(piece.extent.is_one for piece in pieces)


def _suffixes(pieces: Sequence[Piece]) -> Iterator[int]:
    """Yield the elements of the last factor of an axis, of the last two, and so on, but for the axis as a whole."""
    size = 1
    for leaf in reversed(leaves(pieces)[1:]):
        if not leaf.extent.is_static:
            return
        size *= leaf.extent.number
        yield size
