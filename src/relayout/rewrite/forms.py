"""The dimensions in which each operand is stored once its order is chosen: those that need no Reshape on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from relayout.infer import Form, Plan, Port, Root, Site, order_of, placed
from relayout.rules.signature import unchanged

Forms = dict[Port, Form]
Token = tuple[int, int]
"""One factor of a site as its operands hold it: (factor of the site, which of the leaves that it has there)."""


def forms(plan: Plan) -> Forms:
    """The form of every operand of a plan.

    An operator that counts no axes takes the dimensions in which its operands come, and one that belongs to its reader
    those that the reader wants.
    """
    chosen: Forms = {}
    for site, label in zip(plan.sites.sites, plan.labels, strict=True):
        for port in site.ports:
            chosen[port] = placed(site, label, port).form
    _follow_producers(plan.sites.sites, chosen)
    _follow_readers(plan.sites.sites, chosen)
    return chosen


def _follow_producers(sites: Sequence[Site], chosen: Forms) -> None:
    given: dict[Root, Form] = {}
    free = {site for site in sites if _counts_no_axes(site)}
    fixed = {port: chosen[port] for site in sites if site not in free for port in site.ports if not port.output}
    readers = _readers(fixed)
    for site in sites:
        if site in free:
            _take(site, given, fixed, chosen, readers)
        for port in site.ports:
            if port.output:
                given[port.view.root] = chosen[port]


def _counts_no_axes(site: Site) -> bool:
    signature = site.signature
    fixed = signature.variants or signature.tail or signature.with_reader or site.whole or signature.block
    free = site.free_ports()
    return site.kind == "node" and not fixed and signature.changes is unchanged and any(port.output for port in free)


class Beside(NamedTuple):
    """What stands beside an operand: the form in which an input is given, or the forms that readers of an output want.

    A constant is given in none: it is re-laid for nothing.
    """

    given: Form | None = None
    wanted: frozenset[Form] = frozenset()

    def reshapes(self, form: Form) -> int:
        """How many Reshapes stand beside an operand in `form`."""
        others = self.wanted if self.given is None else (self.given,)
        return sum(1 for other in others if other != form and order_of(other) == order_of(form))


def _take(site: Site, given: dict[Root, Form], fixed: Forms, chosen: Forms, readers: dict[Root, list[Port]]) -> None:
    """Store every operand of a site in the dimensions that need the fewest Reshapes around it."""
    free = site.free_ports()
    now = tuple([chosen[port] for port in free])
    beside: list[Beside] = []
    for port in free:
        root = port.view.root
        if port.output:
            beside.append(Beside(wanted=frozenset([fixed[reader] for reader in readers.get(root, ())])))
        else:
            beside.append(Beside(None if root.constant else given.get(root)))
    found = site.pattern.of(_fewest, (now, *beside), lambda: _fewest(free, now, beside))
    chosen.update(zip(free, found, strict=True))


def _fewest(free: Sequence[Port], now: Sequence[Form], beside: Sequence[Beside]) -> Sequence[Form]:
    """The forms of a site's operands with the fewest Reshapes around it: those of one of its inputs, or `now`."""
    tokens = [_tokens(port) for port in free]
    full = max((len(held) for held in tokens), default=0)

    def count(forms: Sequence[Form]) -> int:
        return sum(each.reshapes(form) for each, form in zip(beside, forms, strict=True))

    best, least = None, count(now)
    for (form, _), held, order in zip(beside, tokens, map(order_of, now), strict=True):
        if form is None or len(held) < full or order_of(form) != order:
            continue
        dims = [tuple(held[leaf] for leaf in dim) for dim in form]
        dealt = [_dealt(other, dims, full) for other in tokens]
        found = [taken for taken in dealt if taken is not None]
        if len(found) < len(free) or any(order_of(a) != order_of(b) for a, b in zip(found, now, strict=True)):
            continue
        if (needed := count(found)) < least or (needed == least and best is None):  # what follows may follow, too
            best, least = found, needed
    return now if best is None else best


def _tokens(port: Port) -> dict[int, Token]:
    """Leaf of the port's root -> the site's token."""
    return {leaf: (factor, k) for factor, held in port.factors.items() for k, leaf in enumerate(held)}


def _dealt(tokens: dict[int, Token], dims: Sequence[tuple[Token, ...]], full: int) -> Form | None:
    """An operand's form under the dimensions `dims`; None where it holds a part of one of them only."""
    leaves = {token: leaf for leaf, token in tokens.items()}
    form = []
    for dim in dims:
        held = tuple(leaves[token] for token in dim if token in leaves)
        if held and len(held) != len(dim):
            return None
        form.append(held)
    if len(tokens) < full:  # stretched: dimensions that it lacks may be missing in front
        while form and not form[0]:
            del form[0]
    return tuple(form)


def _follow_readers(sites: Sequence[Site], chosen: Forms) -> None:
    readers = _readers(port for site in sites for port in site.ports if not port.output)
    for site in reversed(sites):
        if not site.signature.with_reader:
            continue
        source, result = site.free_ports()
        wanted = {chosen[reader] for reader in readers.get(result.view.root, [])}
        if len(wanted) == 1 and order_of(form := wanted.pop()) == order_of(chosen[result]):
            mirrored = _mirrored(form, result, source)
            if mirrored is not None:
                chosen[result], chosen[source] = form, mirrored


def _mirrored(form: Form, port: Port, other: Port) -> Form | None:
    """The same dimensions of another operand, whose factors of an axis may be others; None where one would be cut."""
    owner = {leaf: factor for factor, held in port.factors.items() for leaf in held}
    dims = []
    for dim in form:
        factors = list(dict.fromkeys(owner[leaf] for leaf in dim))
        if tuple(leaf for factor in factors for leaf in port.factors[factor]) != dim:
            return None
        if any(factor not in other.factors for factor in factors):
            return None  # a file that states another shape than its operator gives
        dims.append(tuple(leaf for factor in factors for leaf in other.factors[factor]))
    return tuple(dims)


def _readers(ports: Iterable[Port]) -> dict[Root, list[Port]]:
    """Root -> the operands that read it."""
    readers: dict[Root, list[Port]] = {}
    for port in ports:
        readers.setdefault(port.view.root, []).append(port)
    return readers
