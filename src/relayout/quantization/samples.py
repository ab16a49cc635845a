"""Samples for a calibration: arrays and images from files, or from an iterable, one dictionary of inputs at a time.

A sample is what the *source* is fed: its names, shapes and numbers. `ModelInput` brings it into the result's.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from relayout.errors import RelayoutError, nearest
from relayout.layout.normalization import Normalization
from relayout.layout.stored_as import Holds, relay, resolved, restore
from relayout.quantization.request import INSTALL

Array = NDArray[Any]
IMAGES = (".bmp", ".jpeg", ".jpg", ".png", ".webp")  # Suffixes of images
ARRAYS = (".npy", ".npz")
CHANNELS = {1: "L", 3: "RGB", 4: "RGBA"}  # channels of an image -> Pillow's name of its mode
WHITE = 255  # the greatest number of a pixel


class SampleError(RelayoutError):
    """Samples are missing, or not what the model is fed."""


class ModelInput(NamedTuple):
    """An input of the result, and what the source has in its place."""

    name: str  # in the source
    tensor: str  # the name in the result
    stored_name: str  # the name of the tensor in a `.tflite` source
    shape: tuple[int | None, ...]  # the source's extents; None where open
    stored: tuple[int | None, ...]  # the result's extents
    dtype: np.dtype[Any]  # the element type
    holds: Holds | None = None  # how the result stores it; None: as the source
    # what the result does to its numbers first, where the source is fed normalized ones
    normalization: Normalization | None = None

    def __str__(self) -> str:
        """Return name, type and shape, as a message has them."""
        extents = " × ".join("?" if extent is None else str(extent) for extent in self.shape)
        return f"'{self.name}' {self.dtype} {extents or 'scalar'}"

    def fed(self, array: Array, *, is_raw: bool) -> Array:
        """Return the array that the result is fed.

        Args:
            array: a sample in the source's layout.
            is_raw: True if the numbers are those that the result normalizes.
        """
        array = self._stored(array)
        if self.normalization is not None and not is_raw:
            array = self.normalization.raw(array.astype(np.float64))
        return np.ascontiguousarray(array, self.dtype)

    def in_source(self, pixels: Array) -> Array:
        """Return pixels in the source's layout, normalized as the source is fed them."""
        assert self.normalization is not None
        normal = self.normalization.normalized(self._stored(pixels))
        return np.asarray(normal if self.holds is None else restore(normal, resolved(self.holds, pixels.shape)))

    def _stored(self, array: Array) -> Array:
        """Return an array of the source as the result stores it."""
        if self.holds is None:
            return array
        shape = [-1 if extent is None else extent for extent in self.stored]
        return relay(array, resolved(self.holds, array.shape), shape if shape.count(-1) < 2 else None)


class Samples:
    """The samples of a request, read one file after the other.

    Args:
        source: files, a folder, an iterable of arrays or of dictionaries by input, or one dictionary of arrays that
            have the samples along a leading axis.
        inputs: what a sample has.

    Raises:
        SampleError: there are none, or files of other kinds.
    """

    def __init__(self, source: Any, inputs: Sequence[ModelInput]) -> None:
        self.inputs = inputs
        self.files: list[Path] = []
        self.items: Iterable[Any] = ()
        self.first: dict[str, Array] = {}  # the first sample that was read, as the source is fed it
        if source is None:
            raise self._error("samples tell the range of each value: give --calibrate DATA (calibrate=)")
        paths = _paths(source)
        if paths is None:
            self.items = [source] if isinstance(source, Mapping) else source
        else:
            self.files = [file for path in paths for file in self._listed(path)]

    def _error(self, text: str) -> SampleError:
        """Return an error that says what a sample has."""
        listed = ", ".join(map(str, self.inputs))
        if len(self.inputs) != 1:
            parts = ".npz files whose keys are these names, each with a leading axis of samples"
            return SampleError(f"{text}; a sample is the inputs {listed}: {parts}")
        parts = ".npy files of one sample or of several along a leading axis"
        images = ", or images" if _channel_axis(self.inputs[0].shape) is not None else ""
        return SampleError(f"{text}; a sample is input {listed}: {parts}{images}")

    def _listed(self, path: Path) -> list[Path]:
        """Return the files of samples that a path names."""
        known = (*ARRAYS, *IMAGES)
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix.lower() in known and file.is_file())
            if not files:
                raise self._error(f"--calibrate {path}: the folder has no {', '.join(known)}")
            return files
        if not path.is_file():
            raise self._error(f"--calibrate {path}: there is no such file or folder")
        if path.suffix.lower() not in known:
            kind = path.suffix or "a file without a suffix"
            raise self._error(f"--calibrate {path}: {kind} is none of {', '.join(known)}")
        return [path]

    def __len__(self) -> int:
        """Return the number of files or samples where it is known, else 0: a progress bar's."""
        return len(self.files) or (len(self.items) if isinstance(self.items, Sized) else 0)

    def __iter__(self) -> Iterator[dict[str, Array]]:
        """Yield what the result is fed: tensor -> array.

        Raises:
            SampleError: a sample has another name, shape or type, or there is none.
        """
        count = 0
        for fed in self._all():
            count += 1
            yield fed
        if not count:
            raise self._error("--calibrate: there is no sample")

    def _all(self) -> Iterator[dict[str, Array]]:
        for file in self.files:
            yield from self._of_file(file)
        try:
            items = iter(self.items)
        except TypeError:
            kind = type(self.items).__name__
            raise self._error(
                f"calibrate={kind}: it takes a path, or arrays or dictionaries one after the other"
            ) from None
        for place, item in enumerate(items):
            yield from self._of_item(item, f"sample {place}")

    def _of_file(self, file: Path) -> Iterator[dict[str, Array]]:
        if file.suffix.lower() in IMAGES:
            yield self._image(file)
            return
        try:
            loaded = np.load(file, allow_pickle=False)
            item = loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded}
        except (OSError, ValueError, EOFError, BadZipFile, MemoryError) as error:
            if not _is_of_numpy(file):
                raise SampleError(f"{file}: it is no file that numpy.save or numpy.savez wrote") from None
            raise SampleError(f"{file}: no array can be read: {' '.join(str(error).split())}") from None
        yield from self._of_item(item, str(file))

    def _of_item(self, item: Any, where: str) -> Iterator[dict[str, Array]]:
        if not isinstance(item, Mapping):
            if len(self.inputs) != 1:
                raise self._error(f"{where}: one array, and the model has {len(self.inputs)} inputs")
            item = {self.inputs[0].name: item}
        arrays = self._by_input(item, where)
        counts = {each.name: len(pieces) for each, pieces in zip(self.inputs, arrays, strict=True)}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
            raise SampleError(f"{where}: not as many samples of each input: {said}")
        for pieces in zip(*arrays, strict=True):
            rows = zip(self.inputs, pieces, strict=True)
            are_raw = [each.normalization is not None and piece.dtype == np.uint8 for each, piece in rows]
            yield self._fed(pieces, are_raw)

    def _by_input(self, item: Mapping[str, Any], where: str) -> list[list[Array]]:
        """Return the samples of each input."""
        known = {name: each.name for each in self.inputs for name in (each.tensor, each.stored_name, each.name)}
        for name in item:
            if name not in known:
                raise self._error(f"{where}: {name!r} is no input{nearest(str(name), known)}")
        by_name = {known[name]: array for name, array in item.items()}
        missing = [each.name for each in self.inputs if each.name not in by_name]
        if missing:
            raise self._error(f"{where}: it lacks {', '.join(map(repr, missing))}")
        input_arrays = [(each, by_name[each.name]) for each in self.inputs]  # arrays of PyTorch or JAX, too
        arrays = [(each, a.detach().cpu() if hasattr(a, "detach") else a) for each, a in input_arrays]
        return [_samples_of(np.asarray(array), each, where) for each, array in arrays]

    def _image(self, file: Path) -> dict[str, Array]:
        """Return a sample of an image: resized to the input's extents, its pixels normalized or 0 to 1."""
        if len(self.inputs) != 1:
            raise self._error(f"{file}: an image, and the model has {len(self.inputs)} inputs")
        (each,) = self.inputs
        axis = _channel_axis(each.shape)
        if axis is None:
            raise self._error(f"{file}: an image, and {each} is none with 1, 3 or 4 channels")
        height, width = (each.shape[1:3]) if axis == 3 else (each.shape[2:4])
        if height is None or width is None:
            raise SampleError(
                f"{file}: the extents of {each} are open: fix them with --dim, such as --dim"
                f" {each.name}:{2 if axis == 1 else 1}=224, or give arrays"
            )
        pixels = _pixels(file, height, width, CHANNELS[each.shape[axis] or 3])
        pixels = pixels[None] if axis == 3 else pixels.transpose(2, 0, 1)[None]
        array, is_raw = np.repeat(pixels, each.shape[0] or 1, 0), each.normalization is not None
        if not is_raw and each.dtype.kind == "f":
            array = np.asarray(array / WHITE, each.dtype)
        elif not is_raw and each.dtype != np.uint8:
            raise self._error(f"{file}: an image, and {each} is neither real numbers nor uint8")
        return self._fed([array], [is_raw])

    def _fed(self, pieces: Sequence[Array], are_raw: Sequence[bool]) -> dict[str, Array]:
        """Return what the result is fed of a sample, and note the first one in the source's numbers."""
        rows = list(zip(self.inputs, pieces, are_raw, strict=True))
        if not self.first:
            self.first = {each.name: each.in_source(piece) if raw else piece for each, piece, raw in rows}
        return {each.tensor: each.fed(piece, is_raw=raw) for each, piece, raw in rows}


def _paths(source: Any) -> list[Path] | None:
    """Return the paths that a source is; None where it is an iterable of samples."""
    if isinstance(source, str | os.PathLike):
        return [Path(source)]
    if isinstance(source, Sequence) and source and all(isinstance(each, str | os.PathLike) for each in source):
        return [Path(each) for each in source]
    return None


def _is_of_numpy(file: Path) -> bool:
    """Tell whether a file begins as numpy's do."""
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(6).startswith((b"\x93NUMPY", b"PK"))
    return True


def _samples_of(array: Array, each: ModelInput, where: str) -> list[Array]:
    """Part an array into samples: it is one, lacks the batch, or has several along a leading axis.

    Raises:
        SampleError: its shape or type is another one.
    """
    is_pixels = each.normalization is not None and array.dtype == np.uint8
    if not is_pixels and (array.dtype.kind != each.dtype.kind):
        is_whole = array.dtype.kind in "iu"
        advice = " (an array is fed as it is; image files and --normalize are for pixels)" if is_whole else ""
        raise SampleError(f"{where}: {array.dtype}, and the model wants {each}{advice}")
    array = array if is_pixels else array.astype(each.dtype)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SampleError(f"{where}: '{each.name}' has NaN or infinities, which have no integers")
    shape = each.shape
    if _fits(array.shape, shape):
        return [array]
    if _fits(array.shape[1:], shape):
        return list(array)
    if shape and shape[0] in (1, None) and _fits(array.shape, shape[1:]):
        return [array[None]]
    if shape and shape[0] and array.ndim and _fits(array.shape[1:], shape[1:]) and not len(array) % shape[0]:
        return list(array.reshape(-1, *shape[:1], *array.shape[1:]))
    extents = " × ".join(map(str, array.shape)) or "scalar"
    raise SampleError(f"{where}: an array of {extents}, and the model wants {each}, {_cure(array.shape, shape)}")


def _cure(shape: Sequence[int], stated: Sequence[int | None]) -> str:
    """Return what to do about an array of another shape."""
    if None not in stated and sorted(shape) == sorted(each or 0 for each in stated):
        return "since a sample has the source's layout: transpose it"
    return "or several along a leading axis"


def _fits(shape: Sequence[int], stated: Sequence[int | None]) -> bool:
    return len(shape) == len(stated) and all(want in (None, have) for have, want in zip(shape, stated, strict=True))


def _channel_axis(shape: Sequence[int | None]) -> int | None:
    """Return the axis of an image's channels: `n c h w -> 1`, `n h w c -> 3`; None where this is no image."""
    if len(shape) != 4:
        return None
    return next((axis for axis in (1, 3) if shape[axis] in CHANNELS), None)


def _pixels(file: Path, height: int, width: int, mode: str) -> Array:
    """Return an image as rows, columns and channels of uint8.

    Raises:
        SampleError: Pillow is not installed, or does not read the file.
    """
    try:
        from PIL import Image
    except ImportError:
        raise SampleError(f"{file}: images need Pillow: {INSTALL}") from None
    try:
        with Image.open(file) as image:
            resized = image.convert(mode).resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise SampleError(f"{file}: no image can be read: {' '.join(str(error).split())}") from None
    return np.asarray(resized, np.uint8).reshape(height, width, -1)
