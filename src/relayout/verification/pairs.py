"""Two values of two models that should be the same, and how to lay both the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from relayout.errors import LayoutError, RelayoutError
from relayout.layout import Extent
from relayout.layout.stored_as import Holds, fill_factors, resolved
from relayout.light_dataclass import dataclass
from relayout.verification.held_arrays import fits_shape, relaid_as, restore_array, shape_text, stored_extents
from relayout.verification.permuting import proposal
from relayout.verification.side import Array, ModelValue

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
        if self.left.quantized and are_shifted(left.dtype, right.dtype):
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
        array = left if mine is None else mine.normalized(self._real(left))
        array = self._typed(restore_array(array, self.left_held) if self.left_held else array)
        if self.right_held:
            if not fits_shape(array.shape, stated_dims(self.right_held)):
                stated = shape_text(stated_dims(self.right_held))
                raise RelayoutError(
                    f"input '{self.name}' is {list(array.shape)} in the first model, and the second was made of one "
                    f"where it is {stated}: compare it with the model that it was made of"
                )
            array = relaid_as(array, self.right_held, self.right.shape)
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

    def _real(self, left: Array) -> Array:
        """Return the real numbers of quantized integers, and any other array of the source as it is."""
        return self.left.real(left).astype(np.float32) if self.left.scale and left.dtype.kind in "iu" else left

    def _typed(self, array: Array) -> Array:
        """Return the source's array in the second model's type, or as real numbers where pixels are made of it.

        Raises:
            RelayoutError: the two types hold other things.
        """
        wanted = array.dtype if self.right.dtype is None else self.right.dtype
        if self.reads_pixels:
            array = self._real(array)
        elif self.left.quantized and are_shifted(array.dtype, wanted):
            return _shifted(array)
        elif array.dtype != wanted and self.left.scale and wanted.kind == "f":
            return self.left.real(array).astype(wanted)
        is_real = array.dtype.kind == "f"
        if is_real and wanted.kind == "f" and self.left.normalization is not None:
            return array.astype(wanted)
        if array.dtype == wanted or (is_real and (self.reads_pixels or self.right.scale)):
            return array
        raise RelayoutError(f"input '{self.name}' is {array.dtype} in the first model and {wanted} in the second")

    def _rounded(self, array: Array) -> Array:
        """Return real numbers as the integers that the second model reads, and other arrays as they are."""
        wanted = self.right.dtype
        if wanted is None or array.dtype == wanted:
            return array
        return _in_steps(array, self.right, wanted) if self.right.scale else _within(array, wanted)

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
        array = restore_array(pixels, self.left_held) if self.left_held else pixels
        array = relaid_as(array, self.right_held, self.right.shape) if self.right_held else array
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
        told = None if self.right.shape is None else self._told_of_source(self.right.shape)
        if told is not None or self.right_held is None:
            return told
        stated, held = stated_dims(self.right_held), self.left_held
        if held is None:
            return stated  # an axis of one element is none of its factors
        one_by_one = len(held.factors) == len(held.shape) == len(stated) == len(held.perm)
        return tuple([stated[axis] for axis in held.perm]) if one_by_one else None

    def symbols(self) -> dict[str, str]:
        """Dynamic dimensions of the source -> what its counterpart calls them, which may be one name for several."""
        told = self._told_of_source(self.right.symbols) or ()
        return {mine: theirs for mine, theirs in zip(self.left.symbols, told, strict=False) if mine and theirs}

    def _told_of_source(self, told: tuple[T, ...]) -> tuple[T, ...] | None:
        """What the counterpart tells of its axes, in the source's order; None where these are split or joined."""
        held = self.right_held
        if self.left_held or held is None:
            return None if self.left_held else told
        if len(held.factors) == len(held.shape) == len(told):
            # stored[i] = source[perm[i]], so the source's axis perm[i] is the stored axis i.
            return tuple(told[held.perm.index(axis)] for axis in range(len(held.shape)))
        return None


def stated_dims(held: Holds) -> tuple[int | None, ...]:
    """The shape of the source's value; None for a dynamic dimension."""
    return tuple(None if extent == -1 else extent for extent in held.shape)


def _in_steps(array: Array, value: ModelValue, dtype: np.dtype[Any]) -> Array:
    """Real numbers as the integers of a value, at their limits where they lie beyond."""
    limits = np.iinfo(dtype)
    steps: Array = np.clip(np.rint(value.in_steps(array)), limits.min, limits.max).astype(dtype)
    return steps


def _within(array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the nearest integers of a type."""
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(np.rint(array), limits.min, limits.max).astype(dtype))


def are_shifted(*types: np.dtype[Any]) -> bool:
    """Tell whether types are int8 and uint8, which may be the same 128 apart."""
    return set(types) == {np.dtype(np.int8), np.dtype(np.uint8)}


def _shifted(array: Array) -> Array:
    """int8 as uint8, 128 higher, or back."""
    other = np.uint8 if array.dtype == np.int8 else np.int8
    return (array.view(np.uint8) ^ np.uint8(128)).view(other)


def _extent(name: str, extents: Mapping[str, int]) -> int | None:
    """The extent that a name stands for; None where it, or a name in it, is not known."""
    named = Extent.of(name)
    return extents.get(name) or (named.value(extents) if name and named.names <= extents.keys() else None)
