"""Problem -> plan: what is chosen for every site, the Transposes that remain, and the proof."""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from relayout.graph.source_names import is_copied
from relayout.infer.allowed_orders import identity
from relayout.infer.candidates import Candidates, passing_on
from relayout.infer.formulation import Formulation, far, formulate, scattered_by, size_of, with_source
from relayout.infer.graph_sites import Sites
from relayout.infer.presolve import result
from relayout.infer.sites import Label, Order, Root, Site, order_of
from relayout.infer.stored_orders import stored_order_numbers
from relayout.infer.strided_copies import is_scattered
from relayout.light_dataclass import dataclass
from relayout.solve.problem import Problem, Value, ValueEnd, transposed_orders
from relayout.solve.solver import Solution, solve


class Crossing(NamedTuple):
    """A value that has to exist in one more order."""

    root: Root  # the value
    producer_order: Order  # the order that its producer gives
    order: Order  # the order that readers want
    size: int  # bytes that are moved: those of the value, twice where it takes two Transposes
    producer: Site  # the site that gives it otherwise
    readers: tuple[Site, ...]  # the sites that want `order`


@dataclass(frozen=True)
class Plan:
    """A choice for a graph, and its proof."""

    formulation: Formulation  # the graph as a problem
    solution: Solution  # the choice in numbers, with its certificate
    labels: tuple[Label, ...]  # site -> the label chosen
    crossings: tuple[Crossing, ...]  # the Transposes that remain
    size: int  # bytes they move in one inference
    bound: int  # bytes below which no choice can go, as the checker proved
    source_count: int  # Transposes of the source graph that move data
    source_size: int  # bytes they move

    @property
    def sites(self) -> Sites:
        """The graph."""
        return self.formulation.sites

    @cached_property
    def scattered(self) -> int:
        """The bytes that are taken element by element: by Transposes, and where operators stretch an operand."""
        moved = [each.size for each in self.crossings if is_scattered(each.root, each.producer_order, each.order)]
        pairs = zip(self.sites.sites, self.labels, strict=True)
        stretched = [scattered_by(self.sites, site, label) for site, label in pairs if site.signature.broadcast]
        return sum(moved) + sum(stretched)

    @cached_property
    def source_scattered(self) -> int:
        """The bytes that the source takes element by element."""
        sites = self.sites
        moving = [
            (read, order_of(view.form))
            for node, read, view in sites.viewing
            if not (read.root.constant or is_copied(node))
        ]
        moved = [read.root for read, order in moving if is_scattered(read.root, order_of(read.form), order)]
        stretching = (site for site in sites.sites if site.signature.broadcast)
        stretched = [scattered_by(sites, site, identity(site)) for site in stretching]
        return sum([size_of(root, sites.at, sites.likely) for root in moved]) + sum(stretched)

    @property
    def proved(self) -> bool:
        """Tell whether no choice among all orders that a pin demands moves fewer bytes."""
        return self.bound == self.size and not self.formulation.capped


def plan(sites: Sites, *, time_limit: float | None = None, among: Candidates | None = None) -> Plan:
    """Return the plan with the fewest transposed bytes, then the fewest Transposes, then the closest to the source that
    moves few innermost axes. Where Transposes cost something by themselves, bytes and that cost count together.

    Args:
        sites: the graph.
        time_limit: seconds for the solver.
        among: the labels to choose from (default: all that some pin demands).
    """
    formulation = formulate(sites, among=among)
    best = plan_of(formulation, solve(formulation.problem, time_limit=time_limit))
    more = best.size - best.source_size + sites.per_transpose * (len(best.crossings) - best.source_count)
    if sites.per_scattered:
        more += sites.per_scattered * (best.scattered - best.source_scattered)
    if among is None and not sites.chosen and more > 0:
        wider = with_source(sites, formulation)
        return plan(sites, time_limit=time_limit, among=wider)
    return best


def plan_of(formulation: Formulation, solution: Solution) -> Plan:
    """Return a choice as a plan."""
    sites = formulation.sites
    labels = _labels(formulation, solution.choice)
    crossings = tuple(_crossings(formulation, solution.choice, labels))
    size = sum(crossing.size for crossing in crossings)
    return Plan(
        formulation,
        solution,
        tuple(labels),
        crossings,
        size,
        formulation.least_bytes(solution.bound, solution.cost, size),
        len(sites.moves),
        sum(size_of(move.root, sites.at, sites.likely) * move.times for move in sites.moves),
    )


def _labels(formulation: Formulation, choice: Sequence[int]) -> list[Label]:
    """Return the label of every site, also of those that follow others."""
    sites, leads = formulation.sites.sites, formulation.follow.leads
    label_by_site = [
        labels[choice_of_site] if labels else None
        for labels, choice_of_site in zip(formulation.labels, choice, strict=True)
    ]
    for number, (lead, position) in leads.items():
        label = label_by_site[lead]
        assert label is not None
        order = stored_order_numbers(sites[lead], label)[position]
        label_by_site[number] = passing_on(sites[number], order)
    return [label for label in label_by_site if label is not None]


def _crossings(formulation: Formulation, choice: Sequence[int], labels: list[Label]) -> list[Crossing]:
    """The Transposes that remain; followers on the way get other labels where a Transpose stands better before them."""
    sites = formulation.sites.sites
    crossings = []
    for index, value in enumerate(formulation.values):
        if not transposed_orders(value, choice):
            continue
        producer_order = value.producer.orders[choice[value.producer.node]]
        wanting: dict[int, dict[int, None]] = {}
        for reader in value.readers:
            wanting.setdefault(reader.orders[choice[reader.node]], {})[reader.node] = None
        for order in sorted(wanting.keys() - {producer_order}):
            root, orders = formulation.roots[index], formulation.orders[index]
            producer, readers = value.producer.node, tuple(wanting[order])
            if formulation.follow.leads:
                between = orders[producer_order], orders[order]
                root, producer, readers = _slid(formulation, labels, root, between, alone=len(wanting) == 1)
            ends = sites[producer], tuple(sites[node] for node in readers)
            moved = formulation.moved_by(index, producer_order, order)
            crossings.append(Crossing(root, orders[producer_order], orders[order], moved, *ends))
    return crossings


def _slid(
    formulation: Formulation,  # the graph
    labels: list[Label],  # of all sites; followers that come to be on its other side get others
    root: Root,  # the value that stands for those between them: there it stands at first
    orders: tuple[Order, Order],  # the one that is given, and the one that is wanted
    *,
    alone: bool,  # everybody wants that one
) -> tuple[Root, int, tuple[int, ...]]:
    """Return the best place among followers for a Transpose: value, producer, readers.

    Each runs in the one order or in the other, nearer to the source or farther from it (`far`).
    """
    sites, follow = formulation.sites.sites, formulation.follow
    first_order, second_order = map(root.space.orders.number, orders)
    reading = [
        n for n, end in follow.readers[root.index] if stored_order_numbers(sites[n], labels[n])[end] == second_order
    ]
    before, behind = follow.before(root.index) if alone else [], follow.behind(reading)
    producer_end = follow.producers[root.index]
    assert producer_end is not None
    # Each place: the value there, who gives it, and who reads it.
    places: list[tuple[Root, int, tuple[int, ...]]] = []
    for number in before:
        lead, position = follow.leads[number]
        places.append((sites[lead].ports[position].view.root, lead, (number,)))
    places.append((root, producer_end[0], tuple(dict.fromkeys(reading))))
    for number, reader in zip(behind, (*behind[1:], *(follow.leads[first][0] for first in behind[:1])), strict=True):
        places.append((result(sites[number]).view.root, number, (reader,)))
    passing = [*before, *behind]
    farther = [far(sites[number], first_order) - far(sites[number], second_order) for number in passing]
    first, costs = len(before), list(accumulate(farther, initial=0))
    best = min(range(len(places)), key=lambda place: (costs[place], abs(place - first)))
    for number in passing[best:first]:
        labels[number] = passing_on(sites[number], second_order)
    for number in passing[first:best]:
        labels[number] = passing_on(sites[number], first_order)
    return places[best]


# What a single constraint costs: drop it, solve again.


class Relaxed(NamedTuple):
    """A constraint and what the graph would save without it."""

    site: str  # the operator or end of the interface that is fixed
    bytes: int  # bytes an inference that would no longer be transposed, with all prices


def what_if(
    plan: Plan,
    *,
    most: int = 200,  # the most sites to try, those beside remaining Transposes first
) -> list[Relaxed]:
    """For each fixed site: the bytes saved if it took every operand in whatever order it comes; dearest first."""
    formulation = plan.formulation
    problem = formulation.problem
    before = formulation.weights.bytes_in(problem.evaluate(plan.solution.choice))
    savings = []
    touched = {port.node: None for v in problem.values for port in (v.producer, *v.readers)}
    # Sites with one label; while nothing is transposed, none costs anything.
    fixed = [node for node in touched if plan.size and len(problem.costs[node]) == 1]
    for node in fixed[:most]:
        relaxed = _without(formulation, node)
        cost = solve(relaxed).cost
        saved = before - formulation.weights.bytes_in(cost)
        if saved > 0:
            savings.append(Relaxed(formulation.sites.sites[node].name, saved))
    return sorted(savings, key=lambda item: (-item.bytes, item.site))


def _without(formulation: Formulation, node: int) -> Problem:
    """Return the problem in which a site reads anything and gives any order, each of its outputs by itself."""
    costs = list(formulation.problem.costs)
    values = []
    for value, orders in zip(formulation.values, formulation.orders, strict=True):
        readers = tuple(port for port in value.readers if port.node != node)
        producer = value.producer
        if producer.node == node:
            producer = ValueEnd(len(costs), tuple(range(len(orders))))
            costs.append((0,) * len(orders))
        if readers:
            values.append(Value(value.weight, producer, readers))
    return formulation.problem._replace(costs=tuple(costs), values=tuple(values))
