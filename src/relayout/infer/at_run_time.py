"""A plan that moves no more than its source in any run, whatever open extents are then.

A price takes 1 for what is open. So the plan with the fewest bytes may transpose `b * 200` where the source transposes
`a * 300`, and what a Tile gives whose repeats are computed where the source transposes two values before it: in some
runs that is more. A plan moves a sum of products of extents; it is compared with the source's in several runs, with
each extent small and large. Where it is beaten, what is best in that run is tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relayout.infer.formulation import Formulation, formulate, size_of, with_source
from relayout.infer.graph_sites import Sites
from relayout.infer.no_regression import own_choice, with_choice
from relayout.infer.open_extents import runs
from relayout.infer.plans import Plan, plan
from relayout.solve import solve


def no_more_at_run_time(sites: Sites, found: Plan, *, time_limit: float | None = None) -> Plan:
    """Return a plan that moves no more bytes than the source in any of several runs: `found`, if it does not.

    Where no other plan is found, the source's own choice is taken, if it can be had; else `found` stays.

    Args:
        sites: the graph, at the prices that `found` was made for.
        found: the best plan where what is open counts as 1.
        time_limit: seconds for the solver, each time.
    """
    if not sites.is_open or not found.crossings:
        return found
    roots = [*(crossing.root for crossing in found.crossings), *(root for _, root, _ in sites.moves)]
    every = runs(sites.relations, roots, sites.declared)
    beaten = _beaten(sites, found, every)
    if not beaten:
        return found
    for extents in beaten:
        other = _repriced(found, plan(sites, dims=extents, time_limit=time_limit), time_limit)
        if other is not None and _is_no_worse(other) and not _beaten(sites, other, every):
            return other
    formulation, choice = own_choice(sites, found)
    solution = solve(formulation.problem, start=choice, time_limit=time_limit)
    own = with_choice(formulation, choice, solution)
    return own if _is_no_worse(own) and not _beaten(sites, own, every) else found


def _beaten(sites: Sites, found: Plan, every: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    """Return the runs in which a plan moves more bytes than the source."""
    return [
        extents
        for extents in every
        if sum(
            size_of(crossing.root, extents, sites.likely) * sites.repeats.get(crossing.root, 1)
            for crossing in found.crossings
        )
        > sum(size_of(root, extents, sites.likely) * times for _, root, times in sites.moves)
    ]


def _repriced(found: Plan, other: Plan, time_limit: float | None) -> Plan | None:
    """Return another plan's choice at the prices of `found`; None where that problem lacks a label of it."""
    choice = _choice(found.formulation, other)
    if choice is not None:
        return with_choice(found.formulation, choice, found.solution)
    formulation = formulate(found.sites, among=with_source(found.sites, found.formulation))
    choice = _choice(formulation, other)
    if choice is None:
        return None
    return with_choice(formulation, choice, solve(formulation.problem, start=choice, time_limit=time_limit))


def _choice(formulation: Formulation, other: Plan) -> tuple[int, ...] | None:
    """Return the labels of another plan as a choice of this problem; None where it lacks one."""
    chosen = zip(formulation.labels, other.formulation.labels, other.solution.choice, strict=True)
    try:
        return tuple([labels.index(theirs[label]) if labels else 0 for labels, theirs, label in chosen])
    except (ValueError, IndexError):
        return None


def _is_no_worse(found: Plan) -> bool:
    """Tell whether a plan is in no way worse than the source where what is open counts as 1."""
    fewer = len(found.crossings) <= found.source_count and found.scattered <= found.source_scattered
    return fewer and found.size <= found.source_size
