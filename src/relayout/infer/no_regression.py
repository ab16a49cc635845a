"""A plan that is in no way worse than its source: fewer bytes at times take more Transposes, or single elements.

One Transpose of queries, keys and values together, and one of the keys, may become three that move three quarters of
the bytes; one Transpose into windows, and one of keys, may become one that moves half of the bytes, but each element by
itself. Where the plan with the fewest bytes has more of either than the source, each costs something besides its bytes,
just enough to make that plan dearer than the source, and so on with the plan that is best then (Eisner and Severance
1976). By weak duality what is found so moves the fewest bytes of all plans that have no more of what has a price:
another one's bytes and prices together are no less, and its prices no more.
"""

from collections.abc import Sequence
from typing import NamedTuple

from relayout.infer.allowed_orders import identity
from relayout.infer.candidates import Candidates
from relayout.infer.formulation import Formulation, formulate, hard_pairs, with_source
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Plan, plan, plan_of
from relayout.solve.certificate import Leaf
from relayout.solve.solver import Solution, solve

ROUNDS = 16  # prices to try. Each comes from a better plan; networks take one to four.

ALLOWED = 1 << 14  # bytes more than the source's that may be taken element by element: some ten microseconds


class _Has(NamedTuple):
    """The amounts that a plan takes, or may take."""

    size: int  # bytes that Transposes move
    uses: tuple[int, int]  # what else may have a price: bytes that are taken element by element, and Transposes

    @staticmethod
    def of(plan: Plan) -> "_Has":
        """Return what a plan takes."""
        return _Has(plan.size, (plan.scattered, len(plan.crossings)))

    def over(self, most: "_Has") -> int | None:
        """Return the first of its uses that is more than there may be; None where none is."""
        return next((each for each, limit in enumerate(most.uses) if self.uses[each] > limit), None)

    def is_within(self, most: "_Has") -> bool:
        """Tell whether it takes no more than `most` in any respect."""
        return self.size <= most.size and self.over(most) is None

    def costs(self, prices: Sequence[int]) -> int:
        """Its bytes and what it uses, at these prices."""
        return self.size + sum(price * use for price, use in zip(prices, self.uses, strict=True))


def no_worse_plan(sites: Sites, fewest: Plan, *, time_limit: float | None = None) -> Plan:
    """Return the plan with the fewest bytes that is in no way worse than the source.

    `sites.per_transpose` and `sites.per_scattered` are what its Transposes and single elements cost. Where the source's
    own choice cannot be had, and nothing else is within it, this is `fewest`.

    Args:
        sites: the graph; nothing costs anything besides its bytes.
        fewest: the plan with the fewest bytes.
        time_limit: seconds for the solver, each time.
    """
    most = _Has(fewest.source_size, (fewest.source_scattered + ALLOWED, fewest.source_count))
    if _Has.of(fewest).is_within(most):
        return fewest
    among = None
    if hard_pairs(fewest.formulation.parts) is None:  # too many to be priced: the plan's labels and the source's alone
        pairs = zip(sites.sites, fewest.labels, strict=True)
        among = Candidates([list(dict.fromkeys([label, identity(site)])) for site, label in pairs], capped=True)
    if regular := _searched(sites, fewest, most, among, time_limit):
        return regular
    own = with_choice(*own_choice(sites, fewest), Solution((), 0, 0, Leaf({})))
    if not _Has.of(own).is_within(most):
        # Two Transposes of the source in a row are one in a plan, which may take single elements where they do not.
        most = most._replace(uses=(own.scattered + ALLOWED, fewest.source_count))
        if _Has.of(fewest).is_within(most) or not _Has.of(own).is_within(most):
            sites.per_scattered, sites.per_transpose = 0, 0
            return fewest
        if regular := _searched(sites, fewest, most, among, time_limit):
            return regular
    formulation, choice = own_choice(sites, fewest)
    return with_choice(formulation, choice, solve(formulation.problem, start=choice, time_limit=time_limit))


def _searched(
    sites: Sites, fewest: Plan, most: _Has, among: Candidates | None, time_limit: float | None
) -> Plan | None:
    """The best plan within what there may be that some prices make the cheapest; the graph has these prices then.

    None where no prices are found that do; it has the last ones then.
    """
    prices, best = (0, 0), None
    known, over = most, _Has.of(fewest)  # what is within, at first the source, and what is not
    which = over.over(most)
    tries = iter(range(ROUNDS))
    while which is not None and next(tries, None) is not None:
        # Just enough for what is within to be cheaper than what is not.
        free = (0, prices[1]) if which == 0 else (prices[0], 0)
        each = max(0, known.costs(free) - over.costs(free)) // (over.uses[which] - known.uses[which]) + 1
        prices = (each, prices[1]) if which == 0 else (prices[0], each)
        sites.per_scattered, sites.per_transpose = prices
        tried = plan(sites, time_limit=time_limit, among=among)
        has = _Has.of(tried)
        if has.is_within(most):
            best, paid = tried, prices
            which = None if has == known else which
            known = has
        elif has.over(most) == which and has.uses[which] >= over.uses[which]:
            break
        else:
            over, which = has, has.over(most)
    if best is not None:
        sites.per_scattered, sites.per_transpose = paid
    return best


def own_choice(sites: Sites, plan: Plan) -> tuple[Formulation, tuple[int, ...]]:
    """Return a plan's problem with the source's own labels among the others, at the graph's prices, and these."""
    formulation = formulate(sites, among=with_source(sites, plan.formulation))
    pairs = zip(sites.sites, formulation.labels, strict=True)
    return formulation, tuple([labels.index(identity(site)) if labels else 0 for site, labels in pairs])


def with_choice(formulation: Formulation, choice: tuple[int, ...], solution: Solution) -> Plan:
    """Return a choice as a plan, with what is known of the least cost."""
    return plan_of(formulation, solution._replace(choice=choice, cost=formulation.problem.evaluate(choice)))
