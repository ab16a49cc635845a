"""A large graph made smaller before it is a problem: what an operator of one operand only passes on.

Let an operator read one computed value, give another of as many bytes, and take any order. If nobody else reads what
it reads, nothing is lost if it runs in the order in which that is given: what would be transposed before it is
transposed behind it. If what it gives has one reader, nothing is lost if it runs in the order that this one wants. Such
a *follower* is no node of the problem: the two values are one there, which its producer gives and all their other
readers read. That it reads the value through a view changes nothing: both count their factors alike.

What followers prefer does not count when ties are broken, but for where among them a Transpose stands, so only large
graphs have some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from relayout.infer.sites import Port, Root, Site
from relayout.light_dataclass import dataclass

LARGE = 600
"""A graph of more sites has followers; of smaller ones the solver takes little time, and ties are broken best."""

End = tuple[int, int]  # a site's number, and the position of one of its ports


@dataclass
class Aggregation:
    """The sites that follow others, and the value that stands for each."""

    # a follower -> the end whose order it has: of what it reads, where it is given, or of what it gives, where it is
    # read. Followers come behind those that they follow.
    leads: dict[int, End] = field(default_factory=dict)
    # root -> the root that stands for it in the problem, the one at which Transposes are: an index
    stands: list[int] = field(default_factory=list)
    producers: list[End | None] = field(default_factory=list)  # root -> the site that gives it, in the graph
    readers: list[list[End]] = field(default_factory=list)  # root -> all that read it, in the graph

    @staticmethod
    def of_none(roots: Sequence[Root]) -> Aggregation:
        """Nothing follows: every value stands for itself."""
        return Aggregation(stands=list(range(len(roots))))

    def before(self, root: int) -> list[int]:
        """The followers, one behind another, by whom a value is given in the order in which the first is given its."""
        followers: list[int] = []
        end = self.producers[root]
        while end is not None and end[0] in self.leads:
            followers.append(end[0])
            end = self.leads[end[0]]
        return followers[::-1]

    def behind(self, reading: Sequence[int]) -> list[int]:
        """The followers, one behind another, through whom the only one that reads a value leads to another reader."""
        if len(reading) > 1 or reading[0] not in self.leads:
            return []
        followers = [reading[0]]
        while (after := self._after.get(followers[-1])) is not None:
            followers.append(after)
        return followers

    @cached_property
    def _after(self) -> dict[int, int]:
        """A site -> the follower that runs in the order of what it gives."""
        return {lead: number for number, (lead, _) in self.leads.items()}


def following(sites: Sequence[Site], roots: Sequence[Root]) -> Aggregation:
    """Return the followers of a graph; none where it is not large."""
    aggregation = Aggregation.of_none(roots)
    if len(sites) > LARGE:
        _look(aggregation, sites)
    return aggregation


def _look(aggregation: Aggregation, sites: Sequence[Site]) -> None:
    producers: list[End | None] = [None] * len(aggregation.stands)
    readers: list[list[End]] = [[] for _ in aggregation.stands]
    for number, site in enumerate(sites):
        for port in site.ports:
            if port.output:
                producers[port.view.root.index] = number, port.position
            else:
                readers[port.view.root.index].append((number, port.position))
    ahead: dict[int, End] = {}
    passing: list[tuple[int, int, int]] = []
    for number, site in enumerate(sites):
        operands = site.pattern.of(_alike, None, site)
        ends = _through(site, operands) if operands else None
        if ends is None or (producer := producers[ends[0]]) is None:
            continue
        read, written = ends
        if len(readers[read]) == 1:
            ahead[number] = producer
            aggregation.stands[read] = written
        else:
            passing.append((number, read, written))
    for root in range(len(aggregation.stands) - 1, -1, -1):  # what is read is made before what is given
        aggregation.stands[root] = aggregation.stands[aggregation.stands[root]]
    for number, read, written in passing:
        behind = aggregation.stands[written]
        if len(readers[behind]) == 1:
            aggregation.leads[number] = readers[behind][0]
            aggregation.stands[behind] = read
    aggregation.stands = [aggregation.stands[root] for root in aggregation.stands]
    aggregation.leads |= ahead  # a reader that is followed follows nobody
    aggregation.producers, aggregation.readers = producers, readers


def result(site: Site) -> Port:
    """Return the port of what a follower gives."""
    for port in site.ports:
        if port.output:
            return port
    raise ValueError(f"{site.name} gives nothing")


def _through(site: Site, operands: frozenset[int]) -> tuple[int, int] | None:
    """Return the value that a site reads and the one that it gives, if it may follow: alike, and all else is constant.

    The factors of `operands` are the result's.
    """
    read = [port for port in site.ports if not port.output and not port.view.root.constant]
    if len(read) != 1 or read[0].position not in operands or site.kind != "node" or site.signature.is_priced:
        return None
    before, after = read[0].view.root, result(site).view.root
    # What a body reads from outside may be made once, and the body run often.
    alike = before.graph is site.graph and before.value.dtype == after.value.dtype
    return (before.index, after.index) if alike else None


def _alike(site: Site) -> frozenset[int]:
    """The operands whose factors are all of a site's and those of its only result, where it takes them in any order."""
    signature, results = site.signature, [port for port in site.ports if port.output]
    if len(results) != 1 or signature.variants or signature.tail or signature.block or site.whole:
        return frozenset()
    output = results[0]
    if any(indices and factor not in output.factors for port in site.ports for factor, indices in port.factors.items()):
        return frozenset()
    alike = (port for port in site.ports if port.view.root.space.orders is output.view.root.space.orders)
    return frozenset(
        port.position for port in alike if not (port.pinned or port.output) and port.factors == output.factors
    )
