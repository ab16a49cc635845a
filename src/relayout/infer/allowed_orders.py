"""The orders of a site's factors that its signature allows: the nearest to one that is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from relayout.infer.sites import Label, Site
from relayout.infer.stored_orders import is_exchanged, tail_of
from relayout.rules import Letters


def identity(site: Site) -> Label:
    """Return the label under which the site runs as in the source graph."""
    return Label(tuple(range(len(site.factors))), 0 if site.signature.variants else -1)


def repaired(site: Site, order: Sequence[int], *, late: bool = False) -> tuple[int, ...]:
    """The nearest order that the signature allows: blocks gathered where they begin (or end), head first, tail last."""
    signature = site.signature
    if not (signature.block or signature.head or signature.tail):
        return tuple(order)
    groups = site.pattern.of(_groups, None, site)
    turned = bool(signature.transposed) and tail_of(site, order) == signature.transposed
    ends = site.pattern.of(ends_of, turned, site, signature.transposed if turned else signature.tail)
    gathered = list(order)
    if groups:
        seen: dict[int, list[int]] = {}
        for factor in reversed(order) if late else order:
            seen.setdefault(groups.get(factor, factor), []).append(factor)
        gathered = list(chain.from_iterable(seen.values()))
        if late:
            gathered.reverse()
    if signature.exchanged and not turned and (exchanged := _exchanged(site, gathered)):
        return exchanged
    if not ends:
        return tuple(gathered)
    # A stable sort: what is neither head nor tail keeps its place.
    return tuple(sorted(gathered, key=lambda factor: ends.get(factor, 0)))


def _exchanged(site: Site, order: Sequence[int]) -> tuple[int, ...] | None:
    """Return the nearest order with the operands of a product exchanged; None where the other way is nearer."""
    tail, exchanged = site.signature.tail, site.signature.exchanged
    letters = [letter for letter, _ in site.factors]
    by_letter = {letter: [factor for factor in order if letters[factor] == letter] for letter in tail}
    place = min(order.index(factors[0]) for factors in by_letter.values()) if "*" in exchanged else len(order)
    front = [factor for factor in order[:place] if letters[factor] not in tail]
    behind = [factor for factor in order[place:] if letters[factor] not in tail]
    nearer = not behind if "*" in exchanged else not is_exchanged(site, order)
    return None if nearer else (*front, *chain.from_iterable(by_letter.get(letter, behind) for letter in exchanged))


def _groups(site: Site) -> dict[int, int]:
    """Factor of an axis that lies in one block -> the first factor of that axis."""
    first: dict[str, int] = {}
    letters = [letter for letter, _ in site.factors]
    return {f: first.setdefault(letter, f) for f, letter in enumerate(letters) if letter in site.signature.block}


def ends_of(site: Site, tail: Letters) -> dict[int, int]:
    """Factor of an axis at the head or the tail -> its place: below 0 at the head, above at the tail."""
    head = site.signature.head
    place = {letter: 1 + index for index, letter in enumerate(tail)}
    place |= {letter: index - len(head) for index, letter in enumerate(head)}
    return {f: place[letter] for f, (letter, _) in enumerate(site.factors) if letter in place}
