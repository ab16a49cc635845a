"""Why a Transpose remains: the demands that its bytes separate, read off the certificate."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from relayout.infer import Crossing, Order, Plan, Root
from relayout.reports.axes import Axes
from relayout.solve import End, Path, paths

MOST = 3
"""Pairs of demands that a sentence names."""


@dataclass(frozen=True)
class Cause:
    """Two demands that cannot both be met without moving bytes.

    Args:
        above: which operator, on the producer's side, must be in which order.
        below: which operator, on the readers' side, must be in which other.
        bytes: what therefore crosses between the two.
    """

    above: str
    below: str
    bytes: int


def causes(plan: Plan, axes: Axes) -> list[tuple[Cause, ...]]:
    """For each crossing of a plan its causes, heaviest first; their bytes sum to the crossing's."""
    return _Causes(plan, axes).run()


def sentence(found: Sequence[Cause]) -> str:
    """Causes for people."""
    if len(found) == 1:
        return f"{found[0].above}; {found[0].below}: {found[0].bytes:,} bytes must cross between them"
    parts = [f"{cause.above}; {cause.below}: {cause.bytes:,} bytes" for cause in found[:MOST]]
    more = len(found) - MOST
    return "; and ".join(parts) + (f"; and {more} more" if more > 0 else "") + " must cross"


class _Causes:
    def __init__(self, plan: Plan, axes: Axes) -> None:
        self.plan, self.axes = plan, axes
        self.sites = plan.sites.sites
        self.costs = plan.formulation.problem.costs
        self.neighbours: dict[int, list[int]] = {}

    def run(self) -> list[tuple[Cause, ...]]:
        formulation, solution = self.plan.formulation, self.plan.solution
        grouped: dict[tuple[Root, Order], list[Path]] = {}
        for path in paths(formulation.problem, solution.choice, solution.certificate):
            order = formulation.orders[path.value][path.order]
            grouped.setdefault((formulation.roots[path.value], order), []).append(path)
        return [
            self._of(crossing, grouped.get((crossing.root, crossing.order), [])) for crossing in self.plan.crossings
        ]

    def _of(self, crossing: Crossing, found: Sequence[Path]) -> tuple[Cause, ...]:
        amounts: dict[tuple[str, str], Fraction] = {}
        for path in found:
            pair = self._demand(path.first, path, crossing), self._demand(path.last, path, crossing)
            amounts[pair] = amounts.get(pair, Fraction(0)) + path.amount
        total = sum(amounts.values(), Fraction(0))
        shares = {pair: int(crossing.size * amount / total) for pair, amount in amounts.items()}
        heaviest = max(shares, key=lambda pair: shares[pair])
        shares[heaviest] += crossing.size - sum(shares.values())
        # A path may end where a label's own price holds it: closeness to the source, which weighs less than a byte.
        kept = [Cause(*pair, share) for pair, share in shares.items() if share or pair == heaviest]
        return tuple(sorted(kept, key=lambda cause: -cause.bytes))

    def _demand(self, end: End, path: Path, crossing: Crossing) -> str:
        if path.first.node == path.last.node and end is path.last:
            # Back where it began: whatever the reader takes instead, it does not take what is given.
            reader = self.plan.formulation.problem.values[path.value].readers[path.reader].node
            return self._said(reader, self.axes.order(crossing.root, crossing.order))
        if end.fixed:
            root = self.plan.formulation.roots[end.value]
            return self._said(end.node, self.axes.order(root, self.plan.formulation.orders[end.value][end.order]))
        above = end == path.first
        own = self.plan.formulation.problem.values[path.value]
        readers = {port.node for port in own.readers if self.sites[port.node] in crossing.readers}
        node = self._nearest(end.node, readers if above else {own.producer.node})
        return self._said(node, "")

    def _said(self, node: int, order: str) -> str:
        """What a site demands."""
        site = self.sites[node]
        words = f" ({order})" if order else ""
        if site.kind == "pin" or (site.kind != "node" and not site.signature.variants):
            return f"{site.name} is stored as asked{words}"
        if site.kind != "node":
            return f"{site.name} keeps its order{words}"
        if site.reason:
            return f"{site.name} keeps the source's order{words}: {site.reason}"
        if site.signature.variants:
            return f"{site.name} runs in one order only{words}"
        return f"{site.name} {'needs axes last' if site.signature.tail else 'takes no other order'}{words}"

    def _nearest(self, start: int, avoid: set[int]) -> int:
        """The nearest site with one label, where the certificate does not lead to one: no proof, but where to look."""
        if not self.neighbours:
            for value in self.plan.formulation.problem.values:
                for reader in value.readers:
                    self.neighbours.setdefault(value.producer.node, []).append(reader.node)
                    self.neighbours.setdefault(reader.node, []).append(value.producer.node)
        seen, queue = {start} | avoid, deque([start])
        while queue:
            site = queue.popleft()
            if len(self.costs[site]) == 1:
                return site
            for other in self.neighbours.get(site, []):
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
        return start
