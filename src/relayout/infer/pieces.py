"""Factors of one tensor, and how a split is carried to every tensor that holds the same axis.

Each dimension of a tensor is a tree of pieces; its leaves are the factors. Pieces of different tensors that a
signature calls the same axis are linked: when a Reshape splits one, all linked pieces split alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relayout.layout import Extent


class Piece:
    """A factor, or an axis that was split into smaller ones (major to minor)."""

    __slots__ = ("children", "extent", "linked")

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.children: tuple[Piece, Piece] | None = None
        self.linked: list[Piece] = [self]

    def leaves(self) -> list[Piece]:
        """Return the factors of this piece, major to minor."""
        if self.children is None:
            return [self]
        return [leaf for child in self.children for leaf in child.leaves()]


def leaves(pieces: Iterable[Piece]) -> list[Piece]:
    """Return the factors of a sequence of pieces, size-1 factors left out."""
    factors: list[Piece] = []
    for piece in pieces:
        if piece.children is not None:
            factors += [leaf for leaf in piece.leaves() if not leaf.extent.is_one]
        elif not piece.extent.is_one:
            factors.append(piece)
    return factors


def link(first: Piece, second: Piece) -> None:
    """Say that two leaves of equal extent are the same factor of the same axis."""
    if first.linked is second.linked:
        return
    small, large = sorted((first.linked, second.linked), key=len)
    large.extend(small)
    for piece in small:
        piece.linked = large


def split(piece: Piece, major: Extent, minor: Extent) -> None:
    """Split a leaf and all leaves linked to it."""
    members = list(piece.linked)
    for member in members:
        member.children = (Piece(major), Piece(minor))
    first = members[0].children
    for member in members[1:]:
        if first is not None and member.children is not None:
            link(first[0], member.children[0])
            link(first[1], member.children[1])


def align(first: Sequence[Piece], second: Sequence[Piece]) -> bool:
    """Make two sequences of pieces, equal in product, hold the same factors, and link them.

    Returns:
        False where they have no common refinement; what was split by then stays split, which only adds freedom.
    """
    if len(first) == len(second) == 1:
        one, other = first[0], second[0]
        if one is other:
            return True
        if one.children is None and other.children is None and one.extent == other.extent:
            link(one, other)
            return True
    position = 0
    while True:
        left, right = leaves(first), leaves(second)
        if position == len(left) or position == len(right):
            return len(left) == len(right)
        a, b = left[position], right[position]
        if a.extent == b.extent:
            link(a, b)
            position += 1
        elif (rest := a.extent.divide(b.extent)) is not None:
            split(a, b.extent, rest)
            position = 0  # an earlier leaf may have been linked to this one
        elif (rest := b.extent.divide(a.extent)) is not None:
            split(b, a.extent, rest)
            position = 0
        else:
            return False


def regroup(pieces: Sequence[Piece], targets: Sequence[Extent]) -> list[list[Piece]] | None:
    """Deal the factors of `pieces` out to dimensions of the given extents, splitting where needed; None: a barrier."""
    dims: list[list[Piece]] = []
    dealt: list[Piece] = []
    for target in targets:
        dim: list[Piece] = []
        rest_of_dim = target
        while not rest_of_dim.is_one:
            factors, dealt_count = leaves(pieces), len(leaves(dealt))
            if dealt_count == len(factors):
                return None
            factor = factors[dealt_count]
            if (rest := rest_of_dim.divide(factor.extent)) is not None:
                dim.append(factor)
                dealt.append(factor)
                rest_of_dim = rest
            elif (rest := factor.extent.divide(rest_of_dim)) is not None:
                split(factor, rest_of_dim, rest)
            else:
                return None
        dims.append(dim)
    return dims if len(leaves(dealt)) == len(leaves(pieces)) else None
