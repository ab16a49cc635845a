"""Which values of the second model hold which of the source's: several may hold one, and one may hold several.

The first that holds a value is what its operator makes; others are copies of it in other orders of axes. In a float
model one value may stand for integers, for the same with another scale, and for the floats that they mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from relayout.verification.matching import holding
from relayout.verification.pairs import Pair
from relayout.verification.side import ModelValue

Choice: TypeAlias = dict[str, Pair]
"""Of a value of the second model that holds several of the source's: which it is given."""


class Holders:
    """All values of the second model that hold one of the source's.

    Args:
        pairs: one for each value of the source.
        rights: the values of the second model.
    """

    def __init__(self, pairs: Sequence[Pair], rights: Sequence[ModelValue]) -> None:
        self.first = {pair.left.name: pair for pair in pairs}
        found = {_key(pair): pair for pair in self.first.values()}
        for pair in holding([pair.left for pair in self.first.values()], rights):
            found.setdefault(_key(pair), pair)
        self.held: dict[str, list[Pair]] = {}
        for pair in sorted(found.values(), key=lambda pair: pair.left.order):
            self.held.setdefault(pair.right.name, []).append(pair)
        made = {pair.left.name: _key(pair) for pair in sorted(found.values(), key=lambda pair: -pair.right.order)}
        own = {*made.values(), *map(_key, self.first.values())}
        # A copy is judged by the last of the values that it holds: the operator nearest to what may be wrong there.
        last = {_key(pairs[-1]) for pairs in self.held.values()}
        self.judged = [pair for key, pair in found.items() if key in own or key in last]
        self._own = own

    def source_of(self, pair: Pair) -> Pair | None:
        """The earlier value of the source that the same tensor holds: the second model does nothing between the two."""
        if _key(pair) not in self._own:
            return None
        earlier = [other for other in self.held[pair.right.name] if other.left.order < pair.left.order]
        operand = next((other for other in earlier if other.left.name in pair.left.operands), None)
        return operand or (earlier[-1] if earlier else None)


def choices(part: Sequence[Pair], held: Iterable[tuple[str, list[Pair]]]) -> list[tuple[Choice, list[Pair]]]:
    """Some pairs, put together as they can be judged in one run: what the source's operators read is given.

    Args:
        part: the pairs.
        held: values of the second model that are given, and the pairs of which they may be.
    """
    several = [(name, pairs) for name, pairs in held if len(pairs) > 1]
    groups: list[tuple[Choice, list[Pair]]] = []
    for pair in part:
        read = (pair.left.name, *pair.left.operands)
        wants = {name: one for name, pairs in several for one in pairs[::-1] if one.left.name in read}
        for choice, members in groups:
            if all(choice.get(name, one).left.name == one.left.name for name, one in wants.items()):
                choice.update(wants)
                members.append(pair)
                break
        else:
            groups.append((wants, [pair]))
    return groups


def _key(pair: Pair) -> tuple[str, str]:
    return pair.left.name, pair.right.name
