"""The dimensions in which each operand is stored once its order is chosen: those that need no Reshape on the way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
    chosen = {
        port: placed(site, label, port).form
        for site, label in zip(plan.sites.sites, plan.labels, strict=True)
        for port in site.ports
    }
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


def _take(site: Site, given: dict[Root, Form], fixed: Forms, chosen: Forms, readers: dict[Root, list[Port]]) -> None:
    """Store every operand of a site in the dimensions that need the fewest Reshapes around it."""
    free = site.free_ports()
    tokens = {port: _tokens(port) for port in free}
    full = max((len(held) for held in tokens.values()), default=0)
    best, least = None, _reshapes({port: chosen[port] for port in free}, given, fixed, readers)
    for port in free:
        form = given.get(port.view.root)
        if port.output or form is None or len(tokens[port]) < full or order_of(form) != order_of(chosen[port]):
            continue
        dims = [tuple(tokens[port][leaf] for leaf in dim) for dim in form]
        taken = {other: _dealt(tokens[other], dims, full) for other in free}
        found = {other: dealt for other, dealt in taken.items() if dealt is not None}
        if len(found) < len(free) or any(order_of(found[other]) != order_of(chosen[other]) for other in free):
            continue
        count = _reshapes(found, given, fixed, readers)
        if count < least or (count == least and best is None):  # what follows may follow, too
            best, least = found, count
    if best is not None:
        chosen.update(best)


def _reshapes(forms: Forms, given: dict[Root, Form], fixed: Forms, readers: dict[Root, list[Port]]) -> int:
    """How many Reshapes stand around a site that stores its operands so."""
    count = 0
    for port, form in forms.items():
        root = port.view.root
        if not port.output:
            before = form if root.constant else given.get(root, form)
            count += before != form and order_of(before) == order_of(form)
            continue
        wanted = {fixed[reader] for reader in readers.get(root, []) if reader in fixed}
        count += sum(1 for other in wanted if other != form and order_of(other) == order_of(form))
    return count


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
