"""Regions: connected operators whose values are stored in one order. Numbers in, numbers out."""

from collections.abc import Sequence
from typing import NamedTuple


class Link(NamedTuple):
    """A node reads another's value.

    Args:
        producer: the node that gives the value.
        reader: the node that reads it.
        factors: how many factors of the value are not of size 1: with fewer than two it has one order only.
        crosses: whether a Transpose lies in between.
    """

    producer: int
    reader: int
    factors: int
    crosses: bool


def regions(count: int, links: Sequence[Link]) -> list[tuple[int, ...]]:
    """The regions of nodes 0 … count-1, each in ascending order, by their first node.

    1. Two nodes with a Transpose between them are in different regions.
    2. Nodes that a link without one connects are in one region, as far as 1 allows; values of many axes come first.
    3. A value with one order only says nothing of its region's: it joins regions of which one has no other values.
    """
    parts = _Parts(count)
    for link in links:
        if link.crosses:
            parts.separate(link.producer, link.reader)
    connecting = sorted((link for link in links if not link.crosses), key=lambda link: -link.factors)
    for link in connecting:
        if link.factors > 1:
            parts.join(link.producer, link.reader)
            parts.ordered.add(parts.find(link.producer))
            parts.ordered.add(parts.find(link.reader))
    for link in connecting:
        if link.factors < 2 and not {parts.find(link.producer), parts.find(link.reader)} <= parts.ordered:
            parts.join(link.producer, link.reader)
    found: dict[int, list[int]] = {}
    for node in range(count):
        found.setdefault(parts.find(node), []).append(node)
    return [tuple(nodes) for nodes in found.values()]


class _Parts:
    """Disjoint sets that know which others they must not be joined with."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))
        self.apart: list[set[int]] = [set() for _ in range(count)]
        self.ordered: set[int] = set()

    def find(self, node: int) -> int:
        while self.parent[node] != node:
            self.parent[node] = self.parent[self.parent[node]]
            node = self.parent[node]
        return node

    def separate(self, a: int, b: int) -> None:
        if a != b:
            self.apart[a].add(b)
            self.apart[b].add(a)

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a == b or b in self.apart[a]:
            return
        if len(self.apart[a]) < len(self.apart[b]):
            a, b = b, a
        self.parent[b] = a
        for other in self.apart[b]:
            self.apart[other].discard(b)
            self.apart[other].add(a)
        self.apart[a] |= self.apart[b]
        if b in self.ordered:
            self.ordered.add(a)
