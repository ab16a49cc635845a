"""Reshape is regrouping: the common refinement of two shapes.

Walk both shapes from the major side. Where one extent divides the other, the larger is split; where neither
does, the dimensions up to the next common boundary are a barrier: their elements mix.

    (n=2 h=3 w=4 c=5) -> (2, 60):  segments [2]=[2], [3 4 5]=[60]   60 is split into 3·4·5
    (6, 4) -> (4, 6):              one barrier segment
"""

from collections.abc import Sequence
from typing import NamedTuple

from relayout.layout.extents import ONE, Dim, Extent


class Segment(NamedTuple):
    """Neighbouring dimensions of both sides that hold the same elements."""

    source: tuple[int, ...]  # indices of the source's dimensions, in order
    target: tuple[int, ...]  # indices of the target's dimensions, in order
    factors: tuple[Extent, ...] | None  # extents of the common refinement, major to minor; None for a barrier

    @property
    def is_barrier(self) -> bool:
        """True if the two sides have no common refinement."""
        return self.factors is None


def segments(source: Sequence[Dim | Extent], target: Sequence[Dim | Extent]) -> tuple[Segment, ...] | None:
    """The segments of a Reshape from `source` to `target`, or None where the products differ or a dimension is 0.

    Size-1 dimensions join the segment beside them; a shape that is all ones gives one segment without factors.
    """
    left = [Extent.of(dim) for dim in source]
    right = [Extent.of(dim) for dim in target]
    if any(extent.number == 0 for extent in left + right):
        return None
    walk = _Walk(left, right)
    while walk.i < len(left) or walk.j < len(right):
        if not walk.step():
            return None
    return tuple(walk.done)


class _Walk:
    def __init__(self, left: list[Extent], right: list[Extent]) -> None:
        self.left, self.right = left, right
        self.i = self.j = 0
        self.done: list[Segment] = []

    def step(self) -> bool:
        start_i, start_j = self.i, self.j
        factors: list[Extent] = []
        a, b, barrier = ONE, ONE, False
        while True:
            if a.is_one and b.is_one and (self.i, self.j) != (start_i, start_j):
                break
            if a.is_one and self.i < len(self.left):
                a, self.i = self.left[self.i], self.i + 1
            elif b.is_one and self.j < len(self.right):
                b, self.j = self.right[self.j], self.j + 1
            elif a.is_one or b.is_one:
                return False  # one side has elements left and the other has no dimension
            if a.is_one or b.is_one:
                continue
            if (rest := b.divide(a)) is not None:
                factors.append(a)
                a, b = ONE, rest
            elif (rest := a.divide(b)) is not None:
                factors.append(b)
                a, b = rest, ONE
            else:
                barrier = True
                if not self._meet(a, b):
                    return False
                a = b = ONE
        self.done.append(
            Segment(
                tuple(range(start_i, self.i)),
                tuple(range(start_j, self.j)),
                None if barrier else tuple(factors),
            )
        )
        return True

    def _meet(self, a: Extent, b: Extent) -> bool:
        """Take dimensions on both sides until the products meet."""
        while a != b:
            take_left = (a.number, len(a.symbols)) < (b.number, len(b.symbols))
            if (take_left and self.i < len(self.left)) or self.j == len(self.right):
                if self.i == len(self.left):
                    return False
                a, self.i = a * self.left[self.i], self.i + 1
            else:
                b, self.j = b * self.right[self.j], self.j + 1
        return True
