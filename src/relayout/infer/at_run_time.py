"""A plan that moves no more than its source in any run, whatever open extents are then.

A price takes 1 for what is open. So the plan with the fewest bytes may transpose `b * 200` where the source transposes
`a * 300`, and what a Tile gives whose repeats are computed where the source transposes two values before it: in some
runs that is more. A plan moves a sum of products of extents; it is compared with the source's in several runs, with
each extent small and large. Where it is beaten, what is best in that run is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relayout.infer.candidates import Candidates
from relayout.infer.formulation import Formulation, formulate, size_of, with_source
from relayout.infer.graph_sites import Sites
from relayout.infer.no_regression import ALLOWED, own_choice, with_choice
from relayout.infer.open_extents import made_in_turn, moving_factors, runs
from relayout.infer.plans import Plan
from relayout.infer.sites import Order, Root
from relayout.solve.problem import Problem
from relayout.solve.solver import Solution, solve

FEW_PRICES = 20_000
"""Prices of relaxations in branches while such a plan is looked for, a fifth of a second: it needs no proof."""
EXACT = 1 << 52  # costs up to which a solver of real numbers is exact
TRIED = 32  # plans that are looked for, each the best in a run in which another one moves more than the source


def no_more_at_run_time(sites: Sites, fewest: Plan, *, time_limit: float | None = None) -> Plan:
    """Return a plan that moves no more bytes than the source in any of several runs: `fewest`, if it does not.

    Where no other plan is found, the source's own choice is taken, if it can be had. Else one is taken that may move
    more where an extent is exactly 1; else `fewest` stays.

    Args:
        sites: the graph, at the prices that `fewest` was made for.
        fewest: the best plan where what is open counts as 1.
        time_limit: seconds for the solver, each time.
    """
    if not sites.is_open or not fewest.crossings:
        return fewest
    waiting = _beaten(sites, fewest)[::-1]
    if not waiting:
        return fewest
    known, among = list(waiting), with_source(sites, fewest.formulation)
    small = formulate(sites, among=among)
    best = None if _is_sure(waiting) else fewest
    for _ in range(TRIED):
        if not waiting:
            break
        priced = formulate(sites, dims=waiting.pop(), among=among)
        best_there = solve(lexicographic(priced, small.problem), time_limit=time_limit, prices=FEW_PRICES)
        other = _repriced(fewest, priced, best_there, time_limit)
        if not _is_no_worse(other):
            continue
        beaten = _beaten(sites, other)
        if not beaten:
            return other
        best = best if best is not None or _is_sure(beaten) else other
        new = [extents for extents in beaten if extents not in known]
        known += new
        waiting += sorted(new, key=lambda extents: sum(extents.values()))  # the largest is the next
    formulation, choice = own_choice(sites, fewest)
    solution = solve(formulation.problem, start=choice, time_limit=time_limit)
    own = with_choice(formulation, choice, solution)
    beaten = _beaten(sites, own)
    if _is_no_worse(own) and (not beaten or (best is None and not _is_sure(beaten))):
        return own
    return fewest if best is None else best


def lexicographic(first: Formulation, second: Problem) -> Problem:
    """Return a problem whose best choice moves the fewest bytes in one run, and of several is the best one of another.

    Args:
        first: what counts. It stays alone where numbers become too large for a solver.
        second: of the same labels.
    """
    in_bytes, more = first.weights.bytes_in, 1 + second.most()
    costs = tuple(tuple(map(in_bytes, each)) for each in first.problem.costs)
    moved = [value._replace(weight=in_bytes(value.weight), more=in_bytes(value.more)) for value in first.problem.values]
    if Problem(costs, tuple(moved)).most() * more > EXACT:
        return first.problem
    both = zip(costs, second.costs, strict=True)
    costs = tuple(tuple(a * more + b for a, b in zip(*each, strict=True)) for each in both)
    scaled = (value._replace(weight=value.weight * more, more=value.more * more) for value in moved if value.weight)
    return Problem(costs, (*scaled, *second.values))


def _is_sure(beaten: Sequence[Mapping[str, int]]) -> bool:
    """Tell whether a plan moves more than the source in some run whose extents may have many sizes, not exactly 1."""
    return any(1 not in extents.values() for extents in beaten)


def _beaten(sites: Sites, plan: Plan) -> list[Mapping[str, int]]:
    """Return the runs in which a plan moves more bytes than the source. What either moves is large in some run."""
    roots = [*(crossing.root for crossing in plan.crossings), *(move.root for move in sites.moves)]
    every = runs(sites.relations, roots, sites.declared)
    beaten: list[Mapping[str, int]] = []
    for extents in every:
        source = sum(
            size_of(move.root, extents, sites.likely) * move.times
            for move in sites.moves
            if moving_factors(move.of, move.before, extents) != moving_factors(move.of, move.order, extents)
        )
        if _moved(plan, extents) > source:
            beaten.append(extents)
    return beaten


def _moved(plan: Plan, extents: Mapping[str, int]) -> int:
    """Return the bytes that a plan moves in a run: each value is brought into another order from the nearest one."""
    sites, own, total = plan.sites, dict[Root, list[tuple[Order, Order]]](), 0
    for move in sites.moves:
        own.setdefault(move.of, []).append((move.before, move.order))
    place = {id(site): number for number, site in enumerate(sites.sites)}
    orders_of: dict[Root, list[Order]] = {}
    for crossing in sorted(plan.crossings, key=lambda each: min(place[id(site)] for site in each.readers)):
        orders_of.setdefault(crossing.root, [crossing.producer_order]).append(crossing.order)
    for root, (first, *orders) in orders_of.items():
        size = size_of(root, extents, sites.likely) * sites.repeats.get(root, 1)
        for source, order in made_in_turn(first, orders, root.extents, own.get(root, ())):
            if moving_factors(root, source, extents) != moving_factors(root, order, extents):
                total += size
    return total


def _repriced(plan: Plan, best: Formulation, solution: Solution, time_limit: float | None) -> Plan:
    """Return the choice that is best in a run as a plan at the prices of `plan`.

    `best` is the problem with the extents of the run; its labels are those of `plan` and the source's.
    """
    chosen = zip(plan.formulation.labels, best.labels, solution.choice, strict=True)
    try:
        choice = tuple([labels.index(theirs[label]) if labels else 0 for labels, theirs, label in chosen])
    except ValueError:  # the plan lacks one of the labels
        formulation, choice = formulate(plan.sites, among=Candidates(best.labels, best.capped)), solution.choice
        return with_choice(formulation, choice, solve(formulation.problem, start=choice, time_limit=time_limit))
    return with_choice(plan.formulation, choice, plan.solution)


def _is_no_worse(plan: Plan) -> bool:
    """Tell whether a plan is in no way worse than the source where what is open counts as 1."""
    fewer = len(plan.crossings) <= plan.source_count and plan.scattered <= plan.source_scattered + ALLOWED
    return fewer and plan.size <= plan.source_size
