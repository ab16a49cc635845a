"""A plan as JSON, and the check of one against its model: the proof that others can verify, without the solver."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import lcm
from typing import Any, NamedTuple

from relayout.errors import ReadError, nearest
from relayout.infer.formulation import Formulation, formulate, with_source
from relayout.infer.graph_sites import Sites
from relayout.infer.plans import Plan
from relayout.infer.sites import order_of
from relayout.layout.perm import between
from relayout.light_dataclass import plain
from relayout.solve.certificate import (
    MOST_DEPTH,
    Branch,
    Certificate,
    CertificateError,
    Elimination,
    JoinedProofs,
    Leaf,
    Part,
    Prices,
    bound,
)
from relayout.solve.problem import transposed_orders

FORMAT = "relayout-plan-1"
KEYS = (
    "format",
    "options",
    "sites",
    "choice",
    "certificate",
    "bytes",
    "transposes",
    "lower_bound",
    "terminals",
    "values",
)

SOURCE = "give the source that the plan was made for, not a result"  # the advice about a plan of another model

MOST_PARTS = 1 << 64
"""The most parts that a unit may be divided in by the prices of one leaf, so that sums of them stay small."""


class Misstated(NamedTuple):
    """A figure that a plan states, and what is counted from its choice, its certificate and the model."""

    figure: str  # which: `bytes`, `transposes`, `lower_bound`, `terminals`, or one of a value
    stated: Any  # in the plan; None where it states none
    counted: Any  # by the checker

    def __str__(self) -> str:
        return f"{self.figure}: the plan states {_figure(self.stated)}, counted are {_figure(self.counted)}"


class Checked(NamedTuple):
    """The findings of the checker of a plan."""

    transposes: int  # Transposes of the plan's choice
    bytes: int  # bytes that they move
    bound: int  # bytes below which the certificate proves that no choice can go
    capped: bool  # candidate orders were dropped: the bound holds for those that were considered
    misstated: tuple[Misstated, ...] = ()  # figures of the plan that are not those which were counted
    per_transpose: int = 0  # bytes that each Transpose counts as besides those that it moves
    per_scattered: int = 0  # bytes that each byte counts as besides that is taken element by element

    @property
    def proved(self) -> bool:
        """True if the choice is proved minimal."""
        return self.bytes == self.bound and not self.capped

    @property
    def ok(self) -> bool:
        """True if the choice is proved minimal and the plan states what it is."""
        return self.proved and not self.misstated

    def to_dict(self) -> dict[str, Any]:
        """For machines: JSON types only."""
        return {**plain(self), "proved": self.proved, "ok": self.ok}


def later(
    plan: Plan,
    # what the problem was built with (`io`, `layouts`, `dims`, prices): the check builds it with them again
    options: Mapping[str, Any],
) -> Callable[[], dict[str, Any]]:
    """Return what gives a plan for `relayout check` when it is wanted, also after the plan renamed values.

    It has the choice, bytes, terminals and prices (flow or dual).
    """
    return partial(_written, plan, dict(options), _names(plan.formulation))


def _written(plan: Plan, options: Mapping[str, Any], names: Sequence[str | None]) -> dict[str, Any]:
    formulation = plan.formulation
    return {
        "format": FORMAT,
        "options": options,
        "bytes": plan.size,
        "transposes": len(plan.crossings),
        "lower_bound": plan.bound,
        "sites": [site.name for site in formulation.sites.sites],
        "terminals": _terminals(formulation),
        "choice": list(plan.solution.choice),
        "values": _values(formulation, names),
        "certificate": _write(plan.solution.certificate),
    }


def options_of(data: Any) -> dict[str, Any]:
    """Return the options in a plan file.

    Raises:
        ReadError: it is not a plan file, or has a key that none has.
    """
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("options"), dict):
        raise ReadError("this is not a plan file", hint="`relayout convert … --plan FILE` writes one")
    if unknown := [name for name in data if name not in KEYS]:
        raise ReadError(f"there is no key {unknown[0]!r} in a plan{nearest(unknown[0], KEYS)}")
    return dict(data["options"])


def check(data: Any, sites: Sites) -> Checked:
    """Rebuild the problem from the model, evaluate the plan's choice, check its certificate, and compare its figures.

    Raises:
        ReadError: the file is no plan, is of another model, or its certificate proves nothing.
    """
    options_of(data)

    def has(formulation: Formulation) -> bool:
        return all(0 <= label < len(costs) for label, costs in zip(choice, formulation.problem.costs, strict=True))

    names = [site.name for site in sites.sites]
    try:
        choice = [_whole(label) for label in data["choice"]]
        certificate = _read(data["certificate"])
        if names != data["sites"] or len(choice) != len(names):
            raise ReadError("this plan is of another model: its operators differ", hint=SOURCE)
        formulations = [formulate(sites)]
        if not has(formulations[0]):
            formulations.append(formulate(sites, among=with_source(sites, formulations[0])))
        formulation = formulations[-1]
        if not has(formulation):
            known = [_values(each, _names(each)) for each in formulations]
            if "values" in data and data["values"] not in known:
                raise ReadError("this plan is of another model: its values differ", hint=SOURCE)
            raise ReadError("this plan chooses an order that its operator does not have")
        count = sum(len(transposed_orders(value, choice)) for value in formulation.values)
        problem, size = formulation.problem, formulation.moved_bytes(choice)
        lower = formulation.least_bytes(bound(problem, certificate), problem.evaluate(choice), size)
        prices = sites.per_transpose, sites.per_scattered
        checked = Checked(count, size, lower, formulation.capped, (), *prices)
        return checked._replace(misstated=tuple(_misstated(data, checked, formulation)))
    except (KeyError, TypeError, ValueError, IndexError, CertificateError) as error:
        raise ReadError(f"this plan's certificate is not valid ({error})") from error


def _terminals(formulation: Formulation) -> list[str]:
    sites = zip(formulation.sites.sites, formulation.labels, strict=True)
    return [site.name for site, labels in sites if len(labels) == 1]


def _names(formulation: Formulation) -> list[str | None]:
    return [root.value.name for root in formulation.roots]


def _values(formulation: Formulation, names: Sequence[str | None]) -> list[dict[str, Any]]:
    """Values with the orders that they may have: places of factors in the source's order."""
    return [
        {"tensor": name, "bytes": size, "orders": [list(between(order_of(root.logical), order)) for order in orders]}
        for name, size, root, orders in zip(
            names, formulation.sizes, formulation.roots, formulation.orders, strict=True
        )
    ]


def _misstated(data: Mapping[str, Any], checked: Checked, formulation: Formulation) -> Iterator[Misstated]:
    """Yield the wrong statements of a plan: its figures, then its terminals, then those of single values."""
    counted: dict[str, Any] = {"transposes": checked.transposes, "bytes": checked.bytes, "lower_bound": checked.bound}
    counted["terminals"] = _terminals(formulation)
    for figure, number in counted.items():
        if data.get(figure) != number:
            yield Misstated(figure, data.get(figure), number)
    stated, values = data.get("values"), _values(formulation, _names(formulation))
    if not isinstance(stated, list) or len(stated) != len(values):
        yield Misstated("values", stated, values)
        return
    for mine, value in zip(stated, values, strict=True):
        own = mine if isinstance(mine, dict) else {}
        for key in {**value, **own}:
            if own.get(key) != value.get(key):
                yield Misstated(f"{key} of value '{value['tensor']}'", own.get(key), value.get(key))


def _figure(stated: Any) -> str:
    """Return a figure for people; of a list, how long it is."""
    if stated is None:
        return "nothing"
    if isinstance(stated, list) and not (stated and all(isinstance(item, list) for item in stated)):
        return f"{len(stated)} of them"
    return f"{stated:,}" if isinstance(stated, int) else str(stated)


def _write(certificate: Certificate) -> Any:
    if isinstance(certificate, JoinedProofs):
        return {"together": [_write(part) for part in certificate.parts]}
    if isinstance(certificate, Leaf):
        return [[*price, *paid.as_integer_ratio()] for price, paid in sorted(certificate.prices.items())]
    if isinstance(certificate, Elimination):
        return {"eliminated": list(certificate.order), "prices": _write(Leaf(certificate.prices))}
    parts = [sorted(part) for part in certificate.parts]
    return {"node": certificate.node, "parts": parts, "children": [_write(child) for child in certificate.children]}


def _read(data: Any) -> Certificate:
    if isinstance(data, dict) and "together" in data:
        return JoinedProofs(tuple(map(_read_part, data["together"])))
    return _read_part(data)


def _read_part(data: Any) -> Part:
    if isinstance(data, dict) and "eliminated" in data:
        return Elimination(tuple(map(_whole, data["eliminated"])), _read_leaf(data["prices"]).prices)
    return _read_tree(data)


def _read_tree(data: Any, depth: int = 0) -> Branch | Leaf:
    if depth > MOST_DEPTH:
        raise ValueError(f"its branches are more than {MOST_DEPTH} deep")
    if isinstance(data, list):
        return _read_leaf(data)
    parts = tuple(frozenset(map(_whole, part)) for part in data["parts"])
    return Branch(_whole(data["node"]), parts, tuple(_read_tree(child, depth + 1) for child in data["children"]))


def _read_leaf(data: list[Any]) -> Leaf:
    from fractions import Fraction

    prices: Prices = {}
    common = 1
    for value, order, reader, over, under in data:
        common = lcm(common, _whole(under))
        if not 0 < common <= MOST_PARTS:
            raise ValueError(f"its prices have no common denominator up to {MOST_PARTS}")
        prices[_whole(value), _whole(order), _whole(reader)] = Fraction(_whole(over), _whole(under))
    return Leaf(prices)


def _whole(data: Any) -> int:
    """Return an integer of a plan; TypeError if it is none, as numbers with a point and texts are."""
    if type(data) is not int:
        raise TypeError(f"{str(data)[:80]!r} is not an integer")
    return data
