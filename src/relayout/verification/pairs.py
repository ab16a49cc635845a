"""Which value of one model is the counterpart of which of the other, and how to lay both the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from relayout.errors import LayoutError, RelayoutError
from relayout.layout import Extent
from relayout.layout.stored_as import Holds, fill_factors, resolved
from relayout.verification.held_arrays import fits_shape, relaid_as, restore_array, shape_text, stored_extents
from relayout.verification.permuting import proposal
from relayout.verification.side import Array, ModelValue

T = TypeVar("T")

AT_ONCE = 1 << 28
"""Bytes of interior values that are asked of a runtime at a time."""


@dataclass(frozen=True)
class Pair:
    """Two values that should be the same, once the layouts that their models declare are undone."""

    left: ModelValue
    right: ModelValue
    left_held: Holds | None = None
    right_held: Holds | None = None

    @property
    def name(self) -> str:
        """What both hold, by the source's name."""
        return self.left_held.name if self.left_held else self.left.title or self.left.name

    @property
    def declared(self) -> bool:
        """Whether a model says that the two are counterparts, rather than only their names."""
        return bool(self.left_held or self.right_held)

    def same_way(self, left: Array, right: Array, *, exact: bool = False) -> tuple[Array, Array]:
        """Both arrays in the layout and type of the source.

        1. A float that stands for a quantized integer, in a model that was dequantized, becomes that integer.
        2. A quantized uint8 that stands for an int8 is 128 higher, as its zero point is; both become int8.
           A quantized integer that stands for a float becomes that float.
        3. Where the source dequantizes, a float that no integer there stands for becomes the nearest that one does.

        Args:
            left: the source's.
            right: what is held against it.
            exact: leave what 1. makes as it is before it is rounded: in the integer's steps, within its type's range.

        Raises:
            LayoutError: what a model declares does not fit the array.
        """
        if self.left_held:
            own = self.left_held if self.right_held else resolved(self.left_held, right.shape)
            left = restore_array(left, own)
        if self.right_held:
            right = restore_array(right, resolved(self.right_held, left.shape))
        if self.left.quantized and _are_shifted(left.dtype, right.dtype):
            left, right = (array if array.dtype == np.int8 else _shifted(array) for array in (left, right))
        if left.dtype != right.dtype and self.left.scale and right.dtype.kind == "f":
            limits = np.iinfo(left.dtype)
            steps = np.clip(np.nan_to_num(self.left.in_steps(right), nan=limits.min), limits.min, limits.max)
            right = steps if exact else np.rint(steps).astype(left.dtype)
        elif left.dtype != right.dtype and self.right.scale and left.dtype.kind == "f":
            right = self.right.real(right).astype(left.dtype)
        elif left.dtype == right.dtype and self.left.limits:
            right = np.clip(right, *(right.dtype.type(limit) for limit in self.left.limits))
        return left, right

    def carried(self, left: Array) -> Array:
        """The array that feeds `right` what `left` feeds the source.

        Raises:
            RelayoutError: the two inputs cannot hold the same.
        """
        mine, theirs = self.left.normalization, self.right.normalization
        array = left if mine is None else mine.normalized(left)
        array = restore_array(array, self.left_held) if self.left_held else array
        if self.right.dtype is not None and self.left.quantized and _are_shifted(array.dtype, self.right.dtype):
            array = _shifted(array)
        wanted = array.dtype if self.right.dtype is None else self.right.dtype
        if array.dtype != wanted and self.left.scale and wanted.kind == "f":
            array = self.left.real(array).astype(wanted)
        in_steps = array.dtype != wanted and bool(self.right.scale) and array.dtype.kind == "f"
        as_pixels = self._reads_pixels() and array.dtype.kind == "f"
        if array.dtype != wanted and not in_steps and not as_pixels:
            raise RelayoutError(f"input '{self.name}' is {array.dtype} in the first model and {wanted} in the second")
        if self.right_held:
            if not fits_shape(array.shape, _dims(self.right_held)):
                raise RelayoutError(
                    f"input '{self.name}' is {list(array.shape)} in the first model, and the second was made of one "
                    f"where it is {shape_text(_dims(self.right_held))}: compare it with the model that it was made of"
                )
            array = relaid_as(array, self.right_held, self.right.shape)
        try:
            array = array if theirs is None else theirs.raw(array)
        except LayoutError as error:
            raise LayoutError(f"{error}; {self._advice(left.shape)}") from None
        array = _in_steps(array, self.right, wanted) if in_steps else array
        array = _within(array, wanted) if as_pixels else array
        if not fits_shape(array.shape, self.right.shape):
            raise RelayoutError(
                f"input '{self.name}' would be fed {list(array.shape)}, and the second model wants "
                f"{shape_text(self.right.shape)}; {self._advice(array.shape)}"
            )
        return np.asarray(array, order="C")

    def _reads_pixels(self) -> bool:
        """Tell whether the second model makes real numbers of integers that are not quantized."""
        value = self.right
        is_integer = value.dtype is not None and value.dtype.kind in "iu"
        return is_integer and value.normalization is not None and not value.scale

    def whole(self, left: Array) -> Array:
        """The array nearest to `left` of which the second model can be fed the same: where it reads pixels, of these.

        Raises:
            RelayoutError: the two inputs cannot hold the same.
        """
        mine, theirs = self.left.normalization, self.right.normalization
        if not self._reads_pixels() or left.dtype.kind != "f" or theirs is None:
            return left
        array = theirs.normalized(self.carried(left))
        array = restore_array(array, resolved(self.right_held, left.shape)) if self.right_held else array
        array = relaid_as(array, self.left_held, left.shape) if self.left_held else array
        return np.asarray(array if mine is None else mine.raw(array), left.dtype)

    def _advice(self, shape: tuple[int, ...]) -> str:
        """Say what to do about an input that does not fit."""
        option = "" if self.declared else proposal(self.left.title or self.left.name, shape, self.right.shape or ())
        return "it declares no other layout" + (f"; if both mean the same, say so: {option}" if option else "")

    def extents(self, left: Array) -> dict[str, int]:
        """What the source's array tells of dynamic dimensions of its counterpart, by their names."""
        right, held = self.right, self.right_held
        if self.left_held or not any(right.symbols) or right.shape is None:
            return {}
        laid = left.shape if held is None else stored_extents(left, held)
        stored = laid and fill_factors([-1 if extent is None else extent for extent in right.shape], laid)
        return {name: extent for name, extent in zip(right.symbols, stored or (), strict=False) if name}

    def fixed(self, extents: Mapping[str, int]) -> Pair:
        """The pair with these extents for the counterpart's dynamic dimensions, and for products of them."""
        if None not in (self.right.shape or ()) or not self.right.symbols:  # a .tflite names no dimension
            return self
        named = zip(self.right.shape or (), self.right.symbols, strict=False)
        shape = tuple(_extent(name, extents) if extent is None else extent for extent, name in named)
        return replace(self, right=replace(self.right, shape=shape))

    def source_shape(self) -> tuple[int | None, ...] | None:
        """What the counterpart's static shape says of the source's; None if nothing."""
        told = None if self.right.shape is None else self._in_source(self.right.shape)
        if told is not None or self.right_held is None:
            return told
        stated, held = _dims(self.right_held), self.left_held
        if held is None:
            return stated  # an axis of one element is none of its factors
        one_by_one = len(held.factors) == len(held.shape) == len(stated) == len(held.perm)
        return tuple([stated[axis] for axis in held.perm]) if one_by_one else None

    def symbols(self) -> dict[str, str]:
        """Dynamic dimensions of the source -> what its counterpart calls them, which may be one name for several."""
        told = self._in_source(self.right.symbols) or ()
        return {mine: theirs for mine, theirs in zip(self.left.symbols, told, strict=False) if mine and theirs}

    def _in_source(self, told: tuple[T, ...]) -> tuple[T, ...] | None:
        """What the counterpart tells of its axes, in the source's order; None where these are split or joined."""
        held = self.right_held
        if self.left_held or held is None:
            return None if self.left_held else told
        if len(held.factors) == len(held.shape) == len(told):
            # stored[i] = source[perm[i]], so the source's axis perm[i] is the stored axis i.
            return tuple(told[held.perm.index(axis)] for axis in range(len(held.shape)))
        return None


def match_interface(
    lefts: Sequence[ModelValue], rights: Sequence[ModelValue], *, by_name_only: bool = False
) -> tuple[list[Pair], list[ModelValue], list[ModelValue]]:
    """Inputs with inputs, or outputs with outputs: by name, then what is left over by position.

    A name that the right model says its value had in the source goes before the name that it has now: names may have
    been exchanged.

    Returns:
        pairs in the order of `lefts`, and what has no counterpart on either side.
    """
    found: dict[int, Pair] = {}
    taken: set[int] = set()
    alike: list[Callable[[int, int], bool]] = [
        lambda i, j: _called(lefts[i]) == _called(rights[j]),
        lambda i, j: not set(lefts[i].all_names).isdisjoint(rights[j].source_names),
        lambda i, j: _share_name(lefts[i], rights[j]),
    ]
    if not by_name_only and len(lefts) == len(rights):
        alike.append(lambda i, j: i == j)
    for same in alike:
        for i, left in enumerate(lefts):
            j = next((j for j in range(len(rights)) if j not in taken and same(i, j)), None)
            if i not in found and j is not None:
                found[i] = Pair(left, rights[j], *_layouts(left, rights[j]))
                taken.add(j)
    lost = [left for i, left in enumerate(lefts) if i not in found]
    return [found[i] for i in sorted(found)], lost, [right for j, right in enumerate(rights) if j not in taken]


def match_ends(lefts: Sequence[ModelValue], rights: Sequence[ModelValue]) -> list[Pair]:
    """Values of the left model that a part of it begins or ends with: one pair for each of those."""
    found: dict[int, Pair] = {}
    for pair in sorted(match_interiors(lefts, rights), key=lambda pair: pair.declared):  # by its own name first
        found.setdefault(id(pair.right), pair)
    return [found[id(right)] for right in rights if id(right) in found]


def match_interiors(lefts: Sequence[ModelValue], rights: Sequence[ModelValue]) -> list[Pair]:
    """Values that both models have: by name where the layout is the source's, else by what is declared."""
    same = {_called(right): right for right in reversed(rights) if right.names}
    direct: dict[str, ModelValue] = {}
    held: dict[str, tuple[ModelValue, Holds]] = {}
    for right in rights:  # what a value was called in the source goes before what it is called
        for name in right.aliases if right.names else ():
            direct.setdefault(name, right)
    for right in rights:
        for name in right.names:
            direct.setdefault(name, right)
        for item in reversed(right.held):
            held.setdefault(item.name, (right, item))
    pairs = []
    for left in lefts:
        for name, mine in [(n, None) for n in left.names] + [(item.name, item) for item in left.held]:
            pair = None
            if mine is None and _called(left) in same:
                pair = Pair(left, same[_called(left)])
            elif name in direct:
                pair = Pair(left, direct[name], mine)
            elif name in held:
                pair = Pair(left, held[name][0], mine, held[name][1])
            if pair and _plausible(pair):
                pairs.append(pair)
                break
    return pairs


def holding(lefts: Sequence[ModelValue], rights: Sequence[ModelValue]) -> list[Pair]:
    """Every value of the right model that holds one of the left, with that: a copy in another order of axes, too."""
    holders: dict[str, list[tuple[ModelValue, Holds | None]]] = {}
    for right in rights:
        for name, item in [(name, None) for name in right.names] + [(item.name, item) for item in right.held]:
            holders.setdefault(name, []).append((right, item))
    found: dict[tuple[str, str], Pair] = {}
    for left in lefts:
        for name, mine in [(n, None) for n in left.names] + [(item.name, item) for item in left.held]:
            for right, item in holders.get(name, ()):
                pair = Pair(left, right, mine, item)
                if _plausible(pair):
                    found.setdefault((left.name, right.name), pair)
    return list(found.values())


def stands_for_integers(pair: Pair) -> bool:
    """Whether a float in the right model means what integers of the left one do."""
    right = pair.right.dtype
    return bool(pair.left.scale and pair.left.dtype != right and right is not None and right.kind == "f")


def batches(pairs: Sequence[Pair]) -> Iterator[list[Pair]]:
    """The pairs in parts whose values fit in `AT_ONCE` bytes."""
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
    """The layouts of an input or output on both sides: those under which both have the same shape.

    What a model declares speaks of the models that it was made of, and these may have a name in common: then of the
    first of them. Of what shapes allow, the first: both were made of a third; one of them of the other, which was made
    of none; the right one of the left one, or the left one of the right one; neither.
    """
    found = _declared_layouts(left, right)
    if not found and not _share_name(left, right):  # counterparts by place
        by_place = [next(iter(held.values())) if len(held) == 1 else None for held in map(_by_name, (left, right))]
        return by_place[0], by_place[1]
    return min([*found, (None, None)], key=lambda held: _apart(left, right, *held))


def _declared_layouts(left: ModelValue, right: ModelValue) -> list[tuple[Holds | None, Holds | None]]:
    mine, theirs = _by_name(left), _by_name(right)
    common = [(mine[name], theirs[name]) for name in (*left.all_names, *theirs) if name in mine and name in theirs]
    found: list[tuple[Holds | None, Holds | None]] = [(one, other) for one, other in common if one == other]
    found += common
    found += [(None, theirs[name]) for name in (left.name, *left.aliases) if name in theirs]
    found += [(item, None) for name, item in mine.items() if name in right.all_names]
    found += [(None, item) for name, item in theirs.items() if name in left.all_names]
    found += [(None, item) for item in right.held if item.name in left.all_names]
    found += [(item, None) for item in left.held if item.name in right.all_names]
    return found


def _by_name(value: ModelValue) -> dict[str, Holds]:
    return {item.name: item for item in value.held}


def _apart(left: ModelValue, right: ModelValue, left_held: Holds | None, right_held: Holds | None) -> int:
    """Shapes with these layouts undone: 0 the same, dynamic dimensions too; 1 they can be the same; more: they cannot.

    Of those that cannot, the less axes differ the nearer they are: a batch may have got another number.
    """
    mine, theirs = (
        value.shape if held is None else _dims(held) for value, held in ((left, left_held), (right, right_held))
    )
    if mine is None or theirs is None:
        return 1
    if mine == theirs:
        return 0
    if len(mine) != len(theirs):
        return 2 + max(len(mine), len(theirs))
    return 1 + sum(None not in (a, b) and a != b for a, b in zip(mine, theirs, strict=True))


def _dims(held: Holds) -> tuple[int | None, ...]:
    """The shape of the source's value; None for a dynamic dimension."""
    return tuple(None if extent == -1 else extent for extent in held.shape)


def _plausible(pair: Pair) -> bool:
    """A value of the same name is only then the same value if type and shape can be the same."""
    left, right = pair.left, pair.right
    same_type = left.dtype is None or right.dtype is None or left.dtype == right.dtype
    if not (same_type or _stands_for(left, right)):
        return False
    if pair.left_held or pair.right_held or left.shape is None or right.shape is None:
        return True
    return len(left.shape) == len(right.shape) and all(
        None in (a, b) or a == b for a, b in zip(left.shape, right.shape, strict=True)
    )


def _stands_for(left: ModelValue, right: ModelValue) -> bool:
    """Whether one value can mean what the quantized integers of the other mean."""
    if left.dtype is None or right.dtype is None:
        return False
    return bool(left.scale and right.dtype.kind == "f") or (left.quantized and _are_shifted(left.dtype, right.dtype))


def _in_steps(array: Array, value: ModelValue, dtype: np.dtype[Any]) -> Array:
    """Real numbers as the integers of a value, at their limits where they lie beyond."""
    limits = np.iinfo(dtype)
    steps: Array = np.clip(np.rint(value.in_steps(array)), limits.min, limits.max).astype(dtype)
    return steps


def _within(array: Array, dtype: np.dtype[Any]) -> Array:
    """Real numbers as the nearest integers of a type."""
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(np.rint(array), limits.min, limits.max).astype(dtype))


def _are_shifted(*types: np.dtype[Any]) -> bool:
    return set(types) == {np.dtype(np.int8), np.dtype(np.uint8)}


def _shifted(array: Array) -> Array:
    """int8 as uint8, 128 higher, or back."""
    other = np.uint8 if array.dtype == np.int8 else np.int8
    return (array.view(np.uint8) ^ np.uint8(128)).view(other)


def _extent(name: str, extents: Mapping[str, int]) -> int | None:
    """The extent that a name stands for; None where it, or a name in it, is not known."""
    named = Extent.of(name)
    return extents.get(name) or (named.value(extents) if name and named.names <= extents.keys() else None)
