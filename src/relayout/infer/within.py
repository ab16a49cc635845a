"""A plan with no more Transposes than its source has, and no more bytes: fewer bytes at times take more Transposes.

One Transpose of queries, keys and values together, and one of the keys, may become three that move three quarters of
the bytes. Where the plan with the fewest bytes has more Transposes than the source, each costs something besides its
bytes, just enough to make that plan dearer than the source, and so on with the plan that is best then (Eisner and
Severance 1976). By weak duality what is found so moves the fewest bytes of all plans with as many Transposes: another
one's bytes and prices together are no less, and its prices no more.
"""

from __future__ import annotations

from dataclasses import replace

from relayout.infer.build import Sites
from relayout.infer.candidates import identity
from relayout.infer.planning import Plan, formulate, plan, planned, with_source
from relayout.solve import solve

ROUNDS = 12
"""Prices to try. Each comes from a better plan; networks take one to three."""


def within_source(sites: Sites, fewest: Plan, *, time_limit: float | None = None) -> Plan:
    """The plan with the fewest bytes that is in no way worse than the source.

    `sites.per_transpose` is what a Transpose costs in it. Where the source's own choice cannot be had, and nothing else
    is within it, this is `fewest`.

    Args:
        sites: the graph; a Transpose costs nothing besides its bytes.
        fewest: the plan with the fewest bytes.
        time_limit: seconds for the solver, each time.
    """
    if _is_within(fewest):
        return fewest
    over = fewest
    found, each = None, 0
    count, size = fewest.source_count, fewest.source_size  # of what is known to be within: at first the source
    for _ in range(ROUNDS):
        # Just enough for what is within to be cheaper than what is not.
        sites.per_transpose = max(0, size - over.size) // (len(over.crossings) - count) + 1
        tried = plan(sites, time_limit=time_limit)
        if _is_within(tried):
            found, each = tried, sites.per_transpose
            if (count, size) == (len(tried.crossings), tried.size):
                break
            count, size = len(tried.crossings), tried.size
        elif len(tried.crossings) <= fewest.source_count or len(tried.crossings) >= len(over.crossings):
            break
        else:
            over = tried
    if found is None:
        found, each = _source(sites, time_limit), sites.per_transpose
    if not _is_within(found):
        found, each = fewest, 0
    sites.per_transpose = each
    return found


def _is_within(found: Plan) -> bool:
    return found.size <= found.source_size and len(found.crossings) <= found.source_count


def _source(sites: Sites, time_limit: float | None) -> Plan:
    """The source's own choice, with what is known of the least cost."""
    formulation = formulate(sites, among=with_source(sites, formulate(sites)))
    pairs = zip(sites.sites, formulation.labels, strict=True)
    choice = tuple([labels.index(identity(site)) if labels else 0 for site, labels in pairs])
    solution = solve(formulation.problem, start=choice, time_limit=time_limit)
    cost = formulation.problem.evaluate(choice)
    return planned(formulation, replace(solution, choice=choice, cost=cost))
