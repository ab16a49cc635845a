"""What to feed a model: arrays that were given, or random ones that look like what such a model sees."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.format import MAGIC_PREFIX

from relayout.errors import ReadError, RelayoutError, nearest
from relayout.formats.stored import open_stored
from relayout.verification.pairs import Pair, fits_shape
from relayout.verification.side import Array, Feeds, ModelValue, Places, RunnableModel

BATCH = 2  # size of a dynamic first dimension

EXTENTS = ((64, 32, 16), (32, 64, 512), (48, 48, 4096), (224, 112, 16000))
"""Sizes of other dynamic dimensions, those of images, of volumes and all others: one after the other, where a model
does not run with the first. A window of sound is longer than 16 samples, and lines of text may be 32 or 48 rows high;
the last are those of classifiers of images, of video, and of a second of sound.
"""

IMAGE = 4  # the rank of images; volumes and videos have more

MOST, MOST_STATED = 1 << 27, 1 << 31
"""Elements of an input whose dynamic dimensions nobody gave, and of any other: more would fill the memory."""

SMALL = 10  # integers that are fed where nothing says how far they may count

IMAGE_FROM = 8

SAMPLE_RATE = 16_000  # what is fed to an input that operators read as a sample rate: that of speech

TEXTS = ("0", "1", "-2", "30", "4", "567", "0008", "9")  # texts that are fed


ARCHIVE = b"PK"  # the first bytes of a file of several arrays

REMEDY = "write one with numpy.save"  # the advice about a file that is no array


def to_give(name: str) -> str:
    """Return the advice of a message: the option that gives an array for an input."""
    return f"give an array for it: --input {name}=FILE.npy"


def user_feeds(
    inputs: Mapping[str, Any] | Any,  # by name; of a model with one input its array alone; None: nothing is given
    values: Sequence[ModelValue],  # the inputs
) -> dict[str, Array]:
    """Return the arrays a caller gave, by the input's own name; from `.npy` files where a path was given.

    Raises:
        RelayoutError: no input has that name, or the array is not one for that input.
        ReadError: the file is not a `.npy` file.
    """
    if inputs is not None and not isinstance(inputs, Mapping):
        if len(values) != 1:
            names = ", ".join(value.name for value in values)
            raise RelayoutError(f"a sample of several inputs names them: {{name: array}} of {names}")
        inputs = {values[0].name: inputs}
    feeds = {}
    for name, source in (inputs or {}).items():
        value = next((v for v in values if name in v.all_names), None)
        if value is None:
            known = [known for value in values for known in reversed(value.all_names)]
            raise RelayoutError(f"no input is called '{name}'{nearest(name, known)}")
        array = _loaded(source) if isinstance(source, str | os.PathLike) else np.asarray(source)
        feeds[value.name] = _fitted(array, value, name)
    return feeds


# Complexity: each kind of element has numbers of its own, one branch each.
def random_feed(
    value: ModelValue, shape: tuple[int, ...], rng: np.random.Generator, signed: bool, careful: bool = False
) -> Array:
    """Return a random array for an input, never constant along any axis.

    1. Images (rank 4, 1, 3 or 4 channels in the last or second place, at least 8 pixels each way): smooth, since noise
       saturates quantized networks; floats in [-1, 1] if `signed`, else in [0, 1]; 8-bit integers over their range.
    2. Other floats are normal, quantized integers normal over their range, other integers small, truth values even.
    3. Texts are numbers.
    4. What operators read as a sample rate is one.
    5. Integers that name elements to write to, or of which places are computed, differ from each other, where that many
       fit: over one place that is written twice runtimes may differ.
    6. If `careful`, integers that may count something are 0, and floats that are no image small whole numbers, which
       may be cast to such.
    """
    dtype = value.dtype
    if dtype is None or dtype.kind not in "fiubcO":
        raise RelayoutError(f"no random {dtype} can be made for '{value.name}'; {to_give(value.name)}")
    if 0 in shape:
        return np.zeros(shape, dtype)
    if value.likely is not None:
        return np.full(shape, value.likely, dtype)
    if dtype.kind == "O":
        return np.asarray(np.array(TEXTS)[rng.integers(0, len(TEXTS), shape)], np.object_)
    channels = channel_axis(shape)
    byte = dtype.kind in "iu" and dtype.itemsize == 1
    if channels is not None and (dtype.kind == "f" or byte):
        unit = smooth_images(shape, channels, rng)
        if byte:
            limits = np.iinfo(dtype)
            unit = np.rint(limits.min + unit * (limits.max - limits.min))
        elif signed:
            unit = 2 * unit - 1
        return unit.astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind == "c":
        return np.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape), dtype)
    if dtype.kind == "f":
        return np.asarray(rng.integers(0, SMALL, shape) if careful else rng.normal(size=shape), dtype)
    if value.quantized or byte:
        limits = np.iinfo(dtype)
        middle, spread = (limits.max + limits.min + 1) / 2, (limits.max - limits.min) / 5
        return np.asarray(np.clip(np.rint(rng.normal(middle, spread, shape)), limits.min, limits.max), dtype)
    if value.places is not None and (places := _distinct_places(value.places, shape, rng)) is not None:
        return places.astype(dtype)
    most = 1 if careful else min(value.bound or SMALL, np.iinfo(dtype).max)
    if value.distinct and (size := math.prod(shape)) <= most:
        return np.asarray(rng.permutation(most)[:size].reshape(shape), dtype)
    return np.asarray(rng.integers(0, most, shape), dtype)


def _distinct_places(places: Places, shape: tuple[int, ...], rng: np.random.Generator) -> Array | None:
    """Return indices that name no element twice; None where that many do not fit. An open axis is as long as theirs."""
    extents = places.extents
    if places.axis is not None and len(shape) == len(extents):
        length = extents[places.axis] or shape[places.axis]
        fits = shape[places.axis] <= length
        return rng.permutation(length)[np.indices(shape).sum(axis=0) % length] if fits else None
    if places.axis is not None or shape[-1] > len(extents):
        return None
    sizes, count = [extent or shape[0] for extent in extents[: shape[-1]]], math.prod(shape[:-1])
    if count > math.prod(sizes):
        return None
    named = np.stack(np.unravel_index(rng.permutation(math.prod(sizes))[:count], sizes), axis=-1)
    return np.asarray(named.reshape(shape))


def channel_axis(shape: Sequence[int]) -> int | None:
    """Return the channels of an image, or None if this is no image: `n h w c -> 3`, `n c h w -> 1`."""
    if len(shape) != 4:
        return None
    for axis, spatial in ((3, shape[1:3]), (1, shape[2:4])):
        if shape[axis] in (1, 3, 4) and min(spatial) >= IMAGE_FROM:
            return axis
    return None


def smooth_images(shape: tuple[int, ...], channels: int, rng: np.random.Generator) -> Array:
    """Images in [0, 1]: two octaves of random fields, interpolated, and a little noise."""
    n, height, width, c = (shape[axis] for axis in ((0, 1, 2, 3) if channels == 3 else (0, 2, 3, 1)))
    image: Array = np.zeros((n, height, width, c))
    for cells, weight in ((4, 1.0), (13, 0.35)):
        grid = rng.random((n, cells + 1, cells + 1, c)) * weight
        image += _stretched(_stretched(grid, 1, height), 2, width)
    image += rng.normal(0, 0.03, image.shape)
    low, high = image.min(), image.max()
    image = (image - low) / (high - low or 1.0)
    return image if channels == 3 else image.transpose(0, 3, 1, 2)


def dynamic_shape(
    value: ModelValue,  # an input
    sizes: dict[str, int],  # symbol -> extent, which grows
    # those of the axes of images, of volumes, and of all others, behind the first
    extents: tuple[int, int, int] = EXTENTS[0],
    batch: int = BATCH,  # that of the first
) -> tuple[int, ...]:
    """Return the value's shape with a size for every dynamic dimension; `sizes` keeps those of named ones.

    Raises:
        RelayoutError: the model does not say how many dimensions the value has, or it would have too many elements.
    """
    if value.shape is None:
        raise RelayoutError(f"the model does not say the shape of '{value.name}'; {to_give(value.name)}")
    other = of_rank(len(value.shape), extents)
    shape = []
    for axis, extent in enumerate(value.shape):
        symbol = value.symbols[axis] if axis < len(value.symbols) else ""
        size = batch if axis == 0 else other
        if axis < len(value.implied) and (implied_extent := value.implied[axis]) is not None:
            shape.append(implied_extent if extent is None else extent)
            continue
        shape.append(extent if extent is not None else sizes.setdefault(symbol, size) if symbol else size)
    if math.prod(shape) > (MOST if None in value.shape else MOST_STATED):
        listed = " × ".join(map(str, shape))
        raise RelayoutError(f"'{value.name}' would have {listed} elements; {to_give(value.name)}")
    return tuple(shape)


def of_rank(rank: int, extents: tuple[int, int, int]) -> int:
    """Of extents for images, volumes and all others that for an array of a rank."""
    return extents[0 if rank == IMAGE else 1 if rank > IMAGE else 2]


def _stretched(grid: Array, axis: int, size: int) -> Array:
    """Linear interpolation along one axis to `size` points."""
    place = np.linspace(0, grid.shape[axis] - 1, size)
    lower = np.minimum(place.astype(int), grid.shape[axis] - 2)
    share: Array = (place - lower).reshape([-1 if a == axis else 1 for a in range(grid.ndim)])
    stretched: Array = grid.take(lower, axis) * (1 - share) + grid.take(lower + 1, axis) * share
    return stretched


def _loaded(source: str | os.PathLike[str]) -> Array:
    try:
        open_stored(Path(source))
        with Path(source).open("rb") as file:
            begins = file.read(len(MAGIC_PREFIX))
            if not begins.startswith((MAGIC_PREFIX, ARCHIVE)):  # else NumPy takes it for one of Python's own files
                raise ReadError("not a .npy file", where=str(source), hint=REMEDY)
            file.seek(0)
            array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, BadZipFile) as error:
        raise ReadError(f"not a .npy file: {' '.join(str(error).split())}", where=str(source)) from None
    if not isinstance(array, np.ndarray):
        raise ReadError("an archive, not one array", where=str(source), hint=REMEDY)
    return array


def _fitted(array: Array, value: ModelValue, name: str) -> Array:
    if value.dtype is not None and array.dtype != value.dtype:
        if not np.can_cast(array.dtype, value.dtype, "same_kind"):
            raise RelayoutError(f"input '{name}' is {value.dtype}, and the array given for it is {array.dtype}")
        array = array.astype(value.dtype)
    if not fits_shape(array.shape, value.shape):
        want = ["?" if extent is None else extent for extent in value.shape or ()]
        raise RelayoutError(f"input '{name}' has the shape {want}, and the array given for it {list(array.shape)}")
    return np.asarray(array, order="C")


# Random arrays for the inputs of a source, and the sizes of its dynamic dimensions.


def random_feeds(
    source: RunnableModel,
    inputs: Sequence[Pair],  # its inputs and their counterparts
    fixed_feeds: Feeds,  # those that are not random, by name
    rng: np.random.Generator,  # where the others come from
    signed: bool,  # whether the others may be negative
    extents: tuple[int, int, int] | None,  # of dynamic dimensions; None: the model's own
    careful: bool,  # whether integers are 0 and floats whole numbers, since the source does not run with others
    batch: int = BATCH,  # the first extent, where it is open
) -> dict[str, Array]:
    """Return arrays for all inputs of the source; where its counterpart reads pixels, what random ones are there."""
    sizes: dict[str, int] = {}
    alike = {mine: theirs for pair in inputs for mine, theirs in pair.symbols().items()}
    source_inputs = [
        replace(
            value,
            symbols=tuple(alike.get(name, name) for name in value.symbols),
            implied=source.implied.get(value.name, ()),
        )
        for value in source.inputs
    ]
    for value in source_inputs:
        if value.name in fixed_feeds:
            sizes.update(zip(value.symbols, fixed_feeds[value.name].shape, strict=False))
    drawn = (pair for pair in inputs if pair.reads_pixels)  # and the source real numbers
    pixels = {p.left.name: p for p in drawn if p.left.dtype is not None and p.left.dtype.kind == "f"}
    source_shapes = {pair.left.name: pair.source_shape() for pair in inputs}
    feeds: dict[str, Array] = {}
    for value in source_inputs:
        if value.name in fixed_feeds:
            feeds[value.name] = fixed_feeds[value.name]
            continue
        if extents is None and value.fallback:
            shape = value.fallback
        else:
            shape = _settled(
                dynamic_shape(value, sizes, extents or EXTENTS[0], batch), value.shape, source_shapes.get(value.name)
            )
        pair = pixels.get(value.name)
        if pair is None or value.dtype is None:
            feeds[value.name] = random_feed(value, shape, rng, signed, careful)
        else:
            whole = random_feed(replace(value, dtype=pair.right.dtype), shape, rng, signed, careful)
            feeds[value.name] = pair.of_pixels(whole).astype(value.dtype)
    return feeds


def _settled(
    shape: tuple[int, ...], own: tuple[int | None, ...] | None, counterpart_shape: tuple[int | None, ...] | None
) -> tuple[int, ...]:
    """Return the sizes, where the source leaves them open and its counterpart does not: the counterpart's."""
    if own is None or counterpart_shape is None or len(counterpart_shape) != len(shape):
        return shape
    return tuple(
        size if known is not None or fixed is None else fixed
        for size, known, fixed in zip(shape, own, counterpart_shape, strict=True)
    )
