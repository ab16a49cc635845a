"""Two values of two models that should be the same: the layouts they lie in, and how to lay both alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from string import ascii_uppercase
from typing import Any, TypeVar

import numpy as np

from relayout.errors import LayoutError, RelayoutError, nearest
from relayout.layout import Extent, perm_of
from relayout.layout import perm as perms
from relayout.layout.stored_as import Holds, fill_factors, relay, resolved, resolved_as_stored, restore
from relayout.light_dataclass import dataclass
from relayout.verification.side import Array, ModelValue

# Layouts of inputs and outputs that models do not declare: what a user says of them, and what their shapes propose.

Shape = Sequence[int | None]

USUAL = {  # the perms that are looked for first, and what people call them
    perm_of(*pair): ":".join(pair)
    for pair in (("NHWC", "NCHW"), ("NCHW", "NHWC"), ("NDHWC", "NCDHW"), ("NCDHW", "NDHWC"), ("NCW", "NWC"))
}
LONG_INTEGERS = {np.dtype(np.int64), np.dtype(np.int32)}
"""Types of ids, places and lengths: a conversion may make one of the other."""
SHORTENED = (np.dtype(np.float64), np.dtype(np.float32))  # the type of a source and that of its result, of `--float32`
MOST_AXES = 6  # all perms of so many axes are tried


def with_layouts(
    pairs: Sequence[Pair],  # inputs and outputs
    layouts: Mapping[str, tuple[str, str]],  # name -> its layout in the first model, and in the second
) -> list[Pair]:
    """Return the pairs, those that a user speaks of in the layouts that are given.

    Raises:
        LayoutError: a layout is none, or not one of the tensor's rank.
    """
    return [
        next((_with_layouts(pair, name, *layouts[name]) for name in _names(pair) if name in layouts), pair)
        for pair in pairs
    ]


def refuse_unknown(pairs: Iterable[Pair], layouts: Mapping[str, tuple[str, str]]) -> None:
    """Refuse layouts of tensors that are no inputs or outputs.

    Raises:
        RelayoutError: there is one.
    """
    known = [name for pair in pairs for name in _names(pair)]
    for name in layouts:
        if name not in known:
            raise RelayoutError(f"--layout {name}: no input or output is called so{nearest(name, known)}")


def permuted(pair: Pair, perm: Sequence[int]) -> Pair:
    """Return the pair where the second model has the first's axes in the order of a perm."""
    shape = pair.left.shape if pair.left.shape is not None else (None,) * len(perm)
    extents = tuple(-1 if extent is None else extent for extent in shape)
    return replace(pair, left_held=None, right_held=Holds(pair.left.name, extents, tuple(perm), extents))


def fitting_perm(shape: Sequence[int], other_shape: Shape) -> tuple[int, ...] | None:
    """Return the only perm that takes a shape to another; among several a usual one, if only one is.

    >>> fitting_perm((1, 8, 9, 3), (1, 3, 8, 9))
    (0, 3, 1, 2)
    >>> fitting_perm((2, 64, 64, 3), (None, 3, None, None))
    (0, 3, 1, 2)
    >>> fitting_perm((1, 4, 5, 6), (1, 6, 6, 6)) is None
    True
    """
    rank = len(shape)
    if rank != len(other_shape) or rank > MOST_AXES:
        return None
    fitting = [perm for perm in permutations(range(rank)) if fits_shape(perms.permute(perm, shape), other_shape)]
    if len(fitting) > 1:
        fitting = [perm for perm in fitting if perm in USUAL]
    return fitting[0] if len(fitting) == 1 else None


def proposal(name: str, shape: Sequence[int], other_shape: Shape) -> str:
    """Return the option with which two tensors would be compared; nothing where their shapes do not tell it."""
    perm = fitting_perm(shape, other_shape)
    return "" if perm is None else f"--layout {name}={called(perm)}"


def advice(pairs: Iterable[Pair]) -> list[str]:
    """Return what to say of inputs whose open extents hide that a usual perm makes the two shapes one."""
    proposals = []
    for pair in pairs:
        left, right = pair.left.shape, pair.right.shape
        if pair.declared or left is None or right is None or None not in left or left == right:
            continue
        perm = next((perm for perm in USUAL if len(perm) == len(left) and perms.permute(perm, left) == right), None)
        if perm is not None:
            name, first, second = pair.left.title or pair.left.name, *map(shape_text, (left, right))
            proposals.append(
                f"input '{name}' is {first} in the first model and {second} in the second; if both mean the same, say"
                f" so: --layout {name}={called(perm)}"
            )
    return proposals


def called(perm: tuple[int, ...]) -> str:
    """Return how a user writes a perm: `NHWC:NCHW`."""
    letters = ascii_uppercase[: len(perm)]
    return USUAL.get(perm) or f"{letters}:{''.join(perms.permute(perm, letters))}"


def _with_layouts(pair: Pair, name: str, source: str, target: str) -> Pair:
    try:
        perm = perm_of(source, target)
    except LayoutError as error:
        raise LayoutError(f"--layout {name}={source}:{target}: {error}") from None
    shapes = [value.shape for value in (pair.left, pair.right) if value.shape is not None]
    for shape in shapes:
        if len(shape) != len(perm):
            raise LayoutError(f"--layout {name}={source}:{target}: the tensor has rank {len(shape)}")
    if len(shapes) == 2 and not _may_be(perms.permute(perm, shapes[0]), shapes[1]):
        raise LayoutError(f"--layout {name}={source}:{target}: {_why_not(name, perm, *shapes)}")
    return permuted(pair, perm)


def _why_not(name: str, perm: tuple[int, ...], first: Shape, second: Shape) -> str:
    """Return why a perm does not take a shape to another, and what to ask for."""
    if _may_be(first, second):
        advice = "; both models have the same order: leave --layout out"
    else:
        fitting = "" if None in first else proposal(name, [extent or 0 for extent in first], second)
        advice = fitting and f"; {fitting} fits"
    return (
        f"in the second model it would be {shape_text(perms.permute(perm, first))}, and is {shape_text(second)}{advice}"
    )


def _names(pair: Pair) -> list[str]:
    return list(dict.fromkeys((*pair.left.all_names, *pair.right.all_names)))


def _may_be(shape: Shape, other_shape: Shape) -> bool:
    return all(None in pair or pair[0] == pair[1] for pair in zip(shape, other_shape, strict=True))


# Arrays brought into the layouts that models declare, and back.


def stored_extents(left: Array, holds: Holds) -> tuple[int, ...] | None:
    """Return the extents of the factors of an array of the source, as they are stored; None where it does not tell."""
    holds = resolved(holds, left.shape)
    known = math.prod(factor for factor in holds.factors if factor != -1)
    if holds.factors.count(-1) > 1 or known < 1 or len(holds.perm) != len(holds.factors):
        return None
    return perms.permute(holds.perm, [left.size // known if factor == -1 else factor for factor in holds.factors])


def restore_array(array: Array, holds: Holds) -> Array:
    """Return the source's array of a stored one.

    Raises:
        LayoutError: it cannot hold that.
    """
    try:
        return np.asarray(restore(array, resolved_as_stored(holds, array.shape)))
    except ValueError:
        raise LayoutError(_misfit(array, holds)) from None


def relaid_as(array: Array, holds: Holds, stored: tuple[int | None, ...] | None) -> Array:
    """Return the array of the source as it is stored; `stored` is the stored shape, as far as it is known.

    Raises:
        LayoutError: it cannot be stored so.
    """
    extents = [extent for extent in stored or () if extent is not None]
    if stored is not None and len(extents) == len(stored):
        holds = resolved_as_stored(holds, extents)
    try:
        array = relay(array, resolved(holds, array.shape))
        if not fits_shape(array.shape, stored):
            stored_shape = [-1 if extent is None else extent for extent in stored or ()]
            array = array.reshape(fill_factors(stored_shape, array.shape) or stored_shape)
        return np.asarray(array)
    except ValueError:
        raise LayoutError(_misfit(array, holds)) from None


def _misfit(array: Array, holds: Holds) -> str:
    return f"{list(array.shape)} is declared to hold '{holds.name}' with factors {holds.factors}, which it cannot"


def fits_shape(shape: Sequence[int], other_shape: Shape | None) -> bool:
    """Tell whether an array of a shape is what is wanted, as far as that is known."""
    return other_shape is None or (
        len(shape) == len(other_shape) and all(w in (None, s) for s, w in zip(shape, other_shape, strict=True))
    )


def shape_text(shape: Shape | None) -> str:
    """Return a shape in a message; `?` where it is not known."""
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape or ()) + "]"


# Two values of two models that should be the same, and how to lay both the same way.

T = TypeVar("T")


@dataclass(frozen=True)
class Pair:
    """Two values that should be the same, once the layouts that their models declare are undone."""

    left: ModelValue
    right: ModelValue
    left_held: Holds | None = None
    right_held: Holds | None = None

    @property
    def name(self) -> str:
        """The source's name of the value that both hold."""
        return self.left_held.name if self.left_held else self.left.title or self.left.name

    @property
    def declared(self) -> bool:
        """True if a model declares the two to be counterparts, so that not only their names say it."""
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
        if self.left.quantized and are_shifted(left.dtype, right.dtype):
            left, right = (array if array.dtype == np.int8 else _shifted(array) for array in (left, right))
        if left.dtype != right.dtype and self.left.scale and right.dtype.kind == "f":
            limits = np.iinfo(left.dtype)
            steps = np.clip(np.nan_to_num(self.left.in_steps(right), nan=limits.min), limits.min, limits.max)
            right = steps if exact else np.rint(steps).astype(left.dtype)
        elif left.dtype != right.dtype and self.right.scale and left.dtype.kind == "f":
            right = self.right.real(right).astype(left.dtype)
        elif {left.dtype, right.dtype} == LONG_INTEGERS:  # `--output-type int32`
            left, right = left.astype(np.int64), right.astype(np.int64)
        elif (left.dtype, right.dtype) == SHORTENED:  # `--float32`
            left, right = left.astype(np.float64), right.astype(np.float64)
        elif left.dtype == right.dtype and self.left.limits:
            right = np.clip(right, *(right.dtype.type(limit) for limit in self.left.limits))
        return left, right

    def carried(self, left: Array) -> Array:
        """Return the array that feeds `right` what `left` feeds the source.

        Raises:
            RelayoutError: the two inputs cannot hold the same.
        """
        mine, theirs = self.left.normalization, self.right.normalization
        array = left if mine is None else mine.normalized(self._real(left))
        array = self._typed(restore_array(array, self.left_held) if self.left_held else array)
        array = self._as_stored(array)
        try:
            array = array if theirs is None else theirs.raw(array)
        except LayoutError as error:
            raise LayoutError(f"{error}; {self._advice(left.shape)}") from None
        array = self._rounded(array)
        if not fits_shape(array.shape, self.right.shape):
            raise RelayoutError(
                f"input '{self.name}' would be fed {list(array.shape)}, and the second model wants "
                f"{shape_text(self.right.shape)}; {self._advice(array.shape)}"
            )
        return np.asarray(array, order="C")

    def _as_stored(self, array: Array) -> Array:
        """Return the source's array in the layout of the second model's input.

        Raises:
            RelayoutError: the second model was made of one with another shape.
        """
        if self.right_held is None:
            return array
        dims = stated_dims(self.right_held)
        if not fits_shape(array.shape, dims):
            raise RelayoutError(
                f"input '{self.left.title or self.left.name}' is {list(array.shape)} in the first model, and the"
                f" second was made of one where it is {shape_text(dims)}: compare it with the model that it was made of"
            )
        return relaid_as(array, self.right_held, self.right.shape)

    def _real(self, left: Array) -> Array:
        """Return the real numbers of quantized integers, and any other array of the source as it is."""
        return self.left.real(left).astype(np.float32) if self.left.scale and left.dtype.kind in "iu" else left

    def _typed(self, array: Array) -> Array:
        """Return the source's array in the second model's type, or as real numbers where pixels are made of it.

        Raises:
            RelayoutError: the two types hold other things.
        """
        other_type = array.dtype if self.right.dtype is None else self.right.dtype
        if self.reads_pixels:
            array = self._real(array)
        elif self.left.quantized and are_shifted(array.dtype, other_type):
            return _shifted(array)
        elif array.dtype != other_type and self.left.scale and other_type.kind == "f":
            return self.left.real(array).astype(other_type)
        is_real = array.dtype.kind == "f"
        if is_real and other_type.kind == "f" and self.left.normalization is not None:
            return array.astype(other_type)
        if array.dtype == other_type or (is_real and (self.reads_pixels or self.right.scale)):
            return array
        if {array.dtype, other_type} == LONG_INTEGERS:  # `--input-type int32`
            return array
        if (array.dtype, other_type) == SHORTENED:  # `--float32`
            return array.astype(other_type)
        raise RelayoutError(f"input '{self.name}' is {array.dtype} in the first model and {other_type} in the second")

    def _rounded(self, array: Array) -> Array:
        """Return real numbers as the integers that the second model reads, and other arrays as they are."""
        other_type = self.right.dtype
        if other_type is None or array.dtype == other_type:
            return array
        limits, numbers = np.iinfo(other_type), self.right.in_steps(array) if self.right.scale else array
        return np.asarray(np.clip(np.rint(numbers), limits.min, limits.max).astype(other_type))

    @property
    def reads_pixels(self) -> bool:
        """True if the second model makes real numbers of integers that are not quantized, and normalizes them."""
        value = self.right
        is_integer = value.dtype is not None and value.dtype.kind in "iu"
        return is_integer and value.normalization is not None and not value.scale

    def of_pixels(self, pixels: Array) -> Array:
        """Return the source's input for which the second model is fed these pixels.

        Args:
            pixels: in the source's shape.

        Raises:
            RelayoutError: the two inputs cannot hold the same.
        """
        array = self._as_stored(restore_array(pixels, self.left_held) if self.left_held else pixels)
        return self._in_source(array, pixels.shape)

    def whole(self, left: Array) -> Array:
        """Return the array nearest to `left` that whole pixels stand for.

        Raises:
            RelayoutError: the two inputs cannot hold the same.
        """
        return self._in_source(self.carried(left), left.shape)

    def _in_source(self, pixels: Array, shape: tuple[int, ...]) -> Array:
        """Return the source's input for pixels that lie as the second model reads them."""
        mine, theirs = self.left.normalization, self.right.normalization
        assert theirs is not None
        array = theirs.normalized(pixels)
        array = restore_array(array, resolved(self.right_held, shape)) if self.right_held else array
        array = relaid_as(array, self.left_held, shape) if self.left_held else array
        return array if mine is None else mine.raw(array)

    def _advice(self, shape: tuple[int, ...]) -> str:
        """Say what to do about an input that does not fit."""
        option = "" if self.declared else proposal(self.left.title or self.left.name, shape, self.right.shape or ())
        return "it declares no other layout" + (f"; if both mean the same, say so: {option}" if option else "")

    def extents(self, left: Array) -> dict[str, int]:
        """Return the extents of the counterpart's dynamic dimensions that the source's array tells, by their names."""
        right, holds = self.right, self.right_held
        if self.left_held or not any(right.symbols) or right.shape is None:
            return {}
        factor_extents = left.shape if holds is None else stored_extents(left, holds)
        stored = factor_extents and fill_factors(
            [-1 if extent is None else extent for extent in right.shape], factor_extents
        )
        return {name: extent for name, extent in zip(right.symbols, stored or (), strict=False) if name}

    def fixed(self, extents: Mapping[str, int]) -> Pair:
        """Return the pair with these extents for the counterpart's dynamic dimensions, and for products of them."""
        if None not in (self.right.shape or ()) or not self.right.symbols:  # a .tflite names no dimension
            return self
        named = zip(self.right.shape or (), self.right.symbols, strict=False)
        shape = tuple(_extent(name, extents) if extent is None else extent for extent, name in named)
        return replace(self, right=replace(self.right, shape=shape))

    def source_shape(self) -> tuple[int | None, ...] | None:
        """Return the source's shape as the counterpart's static shape tells it; None if it tells nothing."""
        source_dims = None if self.right.shape is None else self._told_of_source(self.right.shape)
        if source_dims is not None or self.right_held is None:
            return source_dims
        stated, holds = stated_dims(self.right_held), self.left_held
        if holds is None:
            return stated  # an axis of one element is none of its factors
        one_by_one = len(holds.factors) == len(holds.shape) == len(stated) == len(holds.perm)
        return tuple([stated[axis] for axis in holds.perm]) if one_by_one else None

    def symbols(self) -> dict[str, str]:
        """Dynamic dimensions of the source -> what its counterpart calls them, which may be one name for several."""
        counterpart_names = self._told_of_source(self.right.symbols) or ()
        return {
            mine: theirs for mine, theirs in zip(self.left.symbols, counterpart_names, strict=False) if mine and theirs
        }

    def _told_of_source(self, axis_values: tuple[T, ...]) -> tuple[T, ...] | None:
        """Return the counterpart's value for each axis, in the source's order; None where axes are split or joined."""
        holds = self.right_held
        if self.left_held or holds is None:
            return None if self.left_held else axis_values
        if len(holds.factors) == len(holds.shape) == len(axis_values):
            # stored[i] = source[perm[i]], so the source's axis perm[i] is the stored axis i.
            return tuple(axis_values[holds.perm.index(axis)] for axis in range(len(holds.shape)))
        return None


def stated_dims(holds: Holds) -> tuple[int | None, ...]:
    """Return the shape of the source's value; None for a dynamic dimension."""
    return tuple(None if extent == -1 else extent for extent in holds.shape)


def are_shifted(*types: np.dtype[Any]) -> bool:
    """Tell whether types are int8 and uint8, which may be the same 128 apart."""
    return set(types) == {np.dtype(np.int8), np.dtype(np.uint8)}


def _shifted(array: Array) -> Array:
    """int8 as uint8, 128 higher, or back."""
    other = np.uint8 if array.dtype == np.int8 else np.int8
    return (array.view(np.uint8) ^ np.uint8(128)).view(other)


def _extent(name: str, extents: Mapping[str, int]) -> int | None:
    """Return the extent that a name stands for; None where it, or a name in it, is not known."""
    named = Extent.of(name)
    return extents.get(name) or (named.value(extents) if name and named.names <= extents.keys() else None)
