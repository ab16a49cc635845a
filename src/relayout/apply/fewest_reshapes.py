"""The fewest Reshapes around one site: what stands beside its operands, and forms of equal orders."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relayout.apply.transposing import transposed
from relayout.infer import Form, Port, Site, order_of

Token = tuple[int, int]
"""One factor of a site as its operands hold it: (factor of the site, which of the leaves that it has there)."""


class Beside(NamedTuple):
    """The neighbours of an operand: the form in which an input is given, or the forms that readers of an output want.

    A constant is given in none: it is re-laid for nothing.
    """

    given: Form | None = None
    wanted: frozenset[Form] = frozenset()

    def reshapes(self, form: Form) -> int:
        """How many Reshapes stand beside an operand in `form`."""
        if self.given is not None:
            return reshapes_between(self.given, form)
        return sum([reshapes_between(form, other) for other in self.wanted])


def reshapes_between(form: Form, other: Form) -> int:
    """How many Reshapes bring a value from one form into another, beside a Transpose where the orders differ.

    An estimate where extents are dynamic: then dimensions that a Transpose would join stay apart.
    """
    if form == other:
        return 0
    if order_of(form) == order_of(other):
        return 1
    before, after = transposed(form, other)
    return (before != form) + (after != other)


def reshapes_beside(beside: Sequence[Beside], forms: Sequence[Form]) -> int:
    """How many Reshapes stand beside all operands of a site."""
    return sum(each.reshapes(form) for each, form in zip(beside, forms, strict=True))


def fewest_of(site: Site, free: Sequence[Port], now: Sequence[Form], beside: Sequence[Beside]) -> Sequence[Form]:
    """The forms of a site's operands with the fewest Reshapes around it; `now` where none has fewer."""
    return site.pattern.of(_fewest, (now, beside), free, now, beside, site.signature.unidirectional)


def _fewest(
    free: Sequence[Port], now: Sequence[Form], beside: Sequence[Beside], unidirectional: bool
) -> Sequence[Form]:
    """The forms of a site's operands with the fewest Reshapes around it: those of an operand as it is given, or as its
    readers want it, or `now`.
    """
    tokens = [_tokens(port) for port in free]
    full = max(map(len, tokens), default=0)
    read = [place for place, port in enumerate(free) if not port.output]
    best, least = None, reshapes_beside(beside, now)
    for dims in _offered(tokens, now, beside):
        dealt = [_dealt(other, dims) for other in tokens]
        whole = [taken for taken in dealt if taken is not None]
        if len(whole) < len(free) or [*map(order_of, whole)] != [*map(order_of, now)]:
            continue
        # Of one that is stretched dimensions may be missing in front; the result has as many as the longest operand.
        found = [form[ones_in_front(form) * (len(held) < full) :] for form, held in zip(whole, tokens, strict=True)]
        if read and all(len(found[place]) < len(dims) for place in read):
            longest = read[0] if unidirectional else min(read, key=lambda at: beside[at].reshapes(whole[at]))
            found[longest] = whole[longest]
        needed = reshapes_beside(beside, found)
        if needed < least or (needed == least and best is None):  # what follows may follow, too
            best, least = found, needed
    return now if best is None else tuple(best)


def _offered(
    tokens: Sequence[Mapping[int, Token]], now: Sequence[Form], beside: Sequence[Beside]
) -> dict[tuple[tuple[Token, ...], ...], None]:
    """The dimensions in which operands are given or wanted, each once: of a thousand operands nearly all are alike.

    Args:
        tokens: of each operand; those count that have the most.
        now: the forms of the operands, whose orders stay.
        beside: what stands beside each.
    """
    full = max(map(len, tokens), default=0)
    found: dict[tuple[tuple[Token, ...], ...], None] = {}
    for each, held, order in zip(beside, tokens, map(order_of, now), strict=True):
        for form in (*sorted(each.wanted), *(() if each.given is None else (each.given,))):
            if len(held) == full and order_of(form) == order:
                found[tuple(tuple(held[leaf] for leaf in dim) for dim in form)] = None
    return found


def _tokens(port: Port) -> dict[int, Token]:
    """Leaf of the port's root -> the site's token."""
    return {leaf: (factor, k) for factor, held in port.factors.items() for k, leaf in enumerate(held)}


def _dealt(tokens: Mapping[int, Token], dims: Sequence[Sequence[Token]]) -> Form | None:
    """An operand's form under the dimensions `dims`; None where it holds a part of one of them only."""
    leaves = {token: leaf for leaf, token in tokens.items()}
    form = []
    for dim in dims:
        held = tuple(leaves[token] for token in dim if token in leaves)
        if held and len(held) != len(dim):
            return None
        form.append(held)
    return tuple(form)


def ones_in_front(form: Form) -> int:
    """How many size-1 axes stand before all others."""
    return next((place for place, dim in enumerate(form) if dim), len(form))
