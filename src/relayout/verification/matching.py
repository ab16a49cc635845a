"""Which values of two models are counterparts: inputs, outputs, and values inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from relayout.layout.stored_as import Holds
from relayout.verification.pairs import Pair, are_shifted, stated_dims
from relayout.verification.side import ModelValue

AT_ONCE = 1 << 25  # bytes of interior values that are asked of a runtime at a time


def match_interface(
    lefts: Sequence[ModelValue], rights: Sequence[ModelValue], *, by_name_only: bool = False
) -> tuple[list[Pair], list[ModelValue], list[ModelValue]]:
    """Inputs with inputs, or outputs with outputs: by name, then what is left over by position.

    A name that the right model says its value had in the source goes before the name that it has now: names may have
    been exchanged.

    Returns:
        pairs in the order of `lefts`, and what has no counterpart on either side.
    """
    pair_by_place: dict[int, Pair] = {}
    paired_rights: set[int] = set()
    alike: list[Callable[[int, int], bool]] = [
        lambda i, j: _called(lefts[i]) == _called(rights[j]),
        lambda i, j: not set(lefts[i].all_names).isdisjoint(rights[j].source_names),
        lambda i, j: _share_name(lefts[i], rights[j]),
    ]
    if not by_name_only and len(lefts) == len(rights):
        alike.append(lambda i, j: i == j)
    for same in alike:
        for i, left in enumerate(lefts):
            j = next((j for j in range(len(rights)) if j not in paired_rights and same(i, j)), None)
            if i not in pair_by_place and j is not None:
                pair_by_place[i] = Pair(left, rights[j], *_layouts(left, rights[j]))
                paired_rights.add(j)
    lost = [left for i, left in enumerate(lefts) if i not in pair_by_place]
    return (
        [pair_by_place[i] for i in sorted(pair_by_place)],
        lost,
        [right for j, right in enumerate(rights) if j not in paired_rights],
    )


def match_ends(
    lefts: Sequence[ModelValue],  # the values of the left model
    rights: Sequence[ModelValue],  # inputs or outputs of the part
    *,
    any_extents: bool = False,  # whether extents may differ, since the part has another batch
) -> list[Pair]:
    """Values of the left model that a part of it begins or ends with: one pair for each of those."""
    pair_of_right: dict[int, Pair] = {}
    for pair in sorted(
        match_interiors(lefts, rights, any_extents=any_extents), key=lambda pair: pair.declared
    ):  # by its own name first
        pair_of_right.setdefault(id(pair.right), pair)
    return [pair_of_right[id(right)] for right in rights if id(right) in pair_of_right]


def match_interiors(
    lefts: Sequence[ModelValue], rights: Sequence[ModelValue], *, any_extents: bool = False
) -> list[Pair]:
    """Values that both models have: by name where the layout is the source's, else by what is declared."""
    same = {_called(right): right for right in reversed(rights) if right.names}
    direct: dict[str, ModelValue] = {}
    holders: dict[str, tuple[ModelValue, Holds]] = {}
    re_laid: dict[str, tuple[ModelValue, Holds]] = {}  # a name in the source's file, of a value in another layout
    for right in rights:  # what a value was called in the source goes before what it is called
        for name in right.aliases if right.names else ():
            direct.setdefault(name, right)
            if len(right.source_values) == 1:
                re_laid.setdefault(name, (right, right.source_values[0]))
    for right in rights:
        for name in right.names:
            direct.setdefault(name, right)
        for item in reversed(right.source_values):
            holders.setdefault(item.name, (right, item))

    def candidates(left: ModelValue, name: str, mine: Holds | None) -> Iterator[Pair]:
        if mine is None and _called(left) in same:
            yield Pair(left, same[_called(left)])
        elif name in direct:
            yield Pair(left, direct[name], mine)
        elif name in holders:
            yield Pair(left, holders[name][0], mine, holders[name][1])
        if name in re_laid:
            yield Pair(left, re_laid[name][0], mine, re_laid[name][1])

    chosen: list[Pair | None] = []
    for left in lefts:
        named = [*((name, None) for name in left.names), *((item.name, item) for item in left.source_values)]
        pairs = (pair for each in named for pair in candidates(left, *each))
        chosen.append(next((pair for pair in pairs if _plausible(pair, any_extents=any_extents)), None))
    return [pair for pair in chosen if pair is not None]


def holding(lefts: Sequence[ModelValue], rights: Sequence[ModelValue]) -> list[Pair]:
    """Every value of the right model that holds one of the left, with that: a copy in another order of axes, too."""
    holders: dict[str, list[tuple[ModelValue, Holds | None]]] = {}
    for right in rights:
        for name, item in [(name, None) for name in right.names] + [(item.name, item) for item in right.source_values]:
            holders.setdefault(name, []).append((right, item))
    pair_by_names: dict[tuple[str, str], Pair] = {}
    for left in lefts:
        for name, mine in [(n, None) for n in left.names] + [(item.name, item) for item in left.source_values]:
            for right, item in holders.get(name, ()):
                pair = Pair(left, right, mine, item)
                if _plausible(pair):
                    pair_by_names.setdefault((left.name, right.name), pair)
    return list(pair_by_names.values())


def stands_for_integers(pair: Pair) -> bool:
    """Tell whether a float of the right model stands for integers of the left one."""
    right = pair.right.dtype
    return bool(pair.left.scale and pair.left.dtype != right and right is not None and right.kind == "f")


def batches(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """Yield the pairs in parts whose values fit in `AT_ONCE` bytes."""
    part: list[Pair] = []
    size = 0
    for pair in pairs:
        item = pair.left.size(pair.right)
        if part and size + item > AT_ONCE:
            yield part
            part, size = [], 0
        part.append(pair)
        size += item
    if part:
        yield part


def _called(value: ModelValue) -> tuple[str, ...]:
    return (value.name, *value.aliases)


def _share_name(left: ModelValue, right: ModelValue) -> bool:
    return not set(left.all_names).isdisjoint(right.all_names)


def _layouts(left: ModelValue, right: ModelValue) -> tuple[Holds | None, Holds | None]:
    """Return the layouts of an input or output on both sides: those under which both have the same shape.

    What a model declares speaks of the models that it was made of, and these may have a name in common: then of the
    first of them. Of what shapes allow, the first: both were made of a third; one of them of the other, which was made
    of none; the right one of the left one, or the left one of the right one; neither.
    """
    candidates = _declared_layouts(left, right)
    if not candidates and not _share_name(left, right):  # counterparts by place
        by_place = [
            next(iter(layouts.values())) if len(layouts) == 1 else None for layouts in map(_by_name, (left, right))
        ]
        return by_place[0], by_place[1]
    return min([*candidates, (None, None)], key=lambda layouts: _distance(left, right, *layouts))


def _declared_layouts(left: ModelValue, right: ModelValue) -> list[tuple[Holds | None, Holds | None]]:
    mine, theirs = _by_name(left), _by_name(right)
    common = [(mine[name], theirs[name]) for name in (*left.all_names, *theirs) if name in mine and name in theirs]
    layouts: list[tuple[Holds | None, Holds | None]] = [(one, other) for one, other in common if one == other]
    layouts += common
    layouts += [(None, theirs[name]) for name in (left.name, *left.aliases) if name in theirs]
    layouts += [(item, None) for name, item in mine.items() if name in right.all_names]
    layouts += [(None, item) for name, item in theirs.items() if name in left.all_names]
    layouts += [(None, item) for item in right.source_values if item.name in left.all_names]
    layouts += [(item, None) for item in left.source_values if item.name in right.all_names]
    return layouts


def _by_name(value: ModelValue) -> dict[str, Holds]:
    return {item.name: item for item in value.source_values}


def _distance(left: ModelValue, right: ModelValue, left_held: Holds | None, right_held: Holds | None) -> int:
    """Shapes with these layouts undone: 0 the same, dynamic dimensions too; 1 they can be the same; more: they cannot.

    Of those that cannot, the less axes differ the nearer they are: a batch may have got another number.
    """
    mine, theirs = (
        value.shape if holds is None else stated_dims(holds)
        for value, holds in ((left, left_held), (right, right_held))
    )
    if mine is None or theirs is None:
        return 1
    if mine == theirs:
        return 0
    if len(mine) != len(theirs):
        return 2 + max(len(mine), len(theirs))
    return 1 + sum(None not in (a, b) and a != b for a, b in zip(mine, theirs, strict=True))


def _plausible(pair: Pair, *, any_extents: bool = False) -> bool:
    """A value of the same name is only then the same value if type and shape can be the same."""
    left, right = pair.left, pair.right
    same_type = left.dtype is None or right.dtype is None or left.dtype == right.dtype
    if not (same_type or _stands_for(left, right)):
        return False
    one = stated_dims(pair.left_held) if pair.left_held else left.shape
    other = stated_dims(pair.right_held) if pair.right_held else right.shape
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(
        any_extents or None in (a, b) or a == b for a, b in zip(one, other, strict=True)
    )


def _stands_for(left: ModelValue, right: ModelValue) -> bool:
    """Tell whether one value can stand for the quantized integers of the other."""
    if left.dtype is None or right.dtype is None:
        return False
    scaled = any(one.scale and other.kind == "f" for one, other in ((left, right.dtype), (right, left.dtype)))
    return scaled or (left.quantized and are_shifted(left.dtype, right.dtype))


# Which values of the second model hold which of the source's: several may hold one, and one may hold several.
#
# The first that holds a value is what its operator makes; others are copies of it in other orders of axes. In a float
# model one value may stand for integers, for the same with another scale, and for the floats that they mean.

Choice: TypeAlias = dict[str, Pair]
"""Of a value of the second model that holds several of the source's: which it is given."""


class Holders:
    """All values of the second model that hold one of the source's."""

    def __init__(
        self,
        pairs: Sequence[Pair],  # one for each value of the source
        rights: Sequence[ModelValue],  # the values of the second model
    ) -> None:
        self.first = {pair.left.name: pair for pair in pairs}
        pair_by_key = {_key(pair): pair for pair in self.first.values()}
        for pair in holding([pair.left for pair in self.first.values()], rights):
            pair_by_key.setdefault(_key(pair), pair)
        self.pairs_by_right: dict[str, list[Pair]] = {}
        for pair in sorted(pair_by_key.values(), key=lambda pair: pair.left.order):
            self.pairs_by_right.setdefault(pair.right.name, []).append(pair)
        key_by_source = {
            pair.left.name: _key(pair) for pair in sorted(pair_by_key.values(), key=lambda pair: -pair.right.order)
        }
        own = {*key_by_source.values(), *map(_key, self.first.values())}
        # A copy is judged by the last of the values that it holds: the operator nearest to what may be wrong there.
        last = {_key(pairs[-1]) for pairs in self.pairs_by_right.values()}
        self.judged = [pair for key, pair in pair_by_key.items() if key in own or key in last]
        self._own = own

    def source_of(self, pair: Pair) -> Pair | None:
        """The earlier value of the source that the same tensor holds: the second model does nothing between the two."""
        if _key(pair) not in self._own:
            return None
        earlier = [other for other in self.pairs_by_right[pair.right.name] if other.left.order < pair.left.order]
        operand = next((other for other in earlier if other.left.name in pair.left.operands), None)
        return operand or (earlier[-1] if earlier else None)


def choices(
    part: Sequence[Pair],  # the pairs
    # values of the second model that are given, and the pairs of which they may be
    pairs_by_name: Iterable[tuple[str, list[Pair]]],
) -> list[tuple[Choice, list[Pair]]]:
    """Return some pairs, put together as they can be judged in one run: what the source's operators read is given."""
    several = [(name, pairs) for name, pairs in pairs_by_name if len(pairs) > 1]
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
