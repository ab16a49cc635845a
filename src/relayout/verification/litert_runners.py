"""Runs of a .tflite in LiteRT, once for the same feeds, however often values are asked for."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from relayout.verification.litert_file import OPTIMIZED, REFERENCE, LiteRTFile
from relayout.verification.side import Array, Feeds, RunError


class LoadedModel(NamedTuple):
    """The facts on a model that a run needs.

    Args:
        file: the model.
        indices: name of a value -> the index of its tensor.
        initial: inputs that are state -> what they begin with.
        remembers: whether it has resources, which are not reset.
    """

    file: LiteRTFile
    indices: Mapping[str, int]
    initial: Feeds
    remembers: bool


class LiteRTRunner:
    """An interpreter that runs once for the same feeds, however often it is asked."""

    def __init__(self, model: LoadedModel, kernels: str, preserve: bool) -> None:
        self._model, self._kind = model, (kernels, preserve)
        self._interpreter = model.file.interpreter(*self._kind)
        self._fed: Feeds | None = None
        self._ran = self._failed = False  # a delegate that cannot be prepared once cannot be prepared again

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """The tensors of these names that the interpreter kept."""
        if feeds is not self._fed:
            self._fed = None
            if self._ran and (self._model.remembers or self._failed):
                self._interpreter = self._model.file.interpreter(*self._kind)
            self._ran = self._failed = True
            self._invoke(feeds)
            self._fed, self._failed = feeds, False
        found = {}
        for name in names:
            index = self._model.indices[name]
            try:
                found[name] = _texts(np.asarray(self._interpreter.get_tensor(index)))
            except ValueError:  # fused away, inside a branch that was not taken, or without elements
                details = self._interpreter._get_tensor_details(index, 0)
                if 0 in details["shape"]:
                    found[name] = np.zeros(details["shape"], details["dtype"])
        return found

    def _invoke(self, feeds: Feeds) -> None:
        interpreter = self._interpreter
        feeds = {**self._model.initial, **feeds}
        try:
            current = {int(d["index"]): tuple(d["shape"]) for d in interpreter.get_input_details()}
            shapes = {self._model.indices[name]: array.shape for name, array in feeds.items()}
            for index, shape in shapes.items():
                if current[index] != shape:
                    interpreter.resize_tensor_input(index, shape)
            interpreter.allocate_tensors()
            interpreter.reset_all_variables()
            for name, array in feeds.items():
                interpreter.set_tensor(self._model.indices[name], _bytes(array))
            interpreter.invoke()
        except (ValueError, RuntimeError) as error:
            self._model.file.require_delegate(error)
            raise RunError(self._model.file.runtime[0], self._model.file.label, error) from None


class ReferenceRunner:
    """The reference kernels; where those cannot run the model, the optimized ones, which differ from XNNPACK's too."""

    def __init__(self, model: LoadedModel, preserve: bool) -> None:
        self._model, self._preserve = model, preserve
        self._fed: Feeds | None = None
        self._runners: dict[str, LiteRTRunner] = {}

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """The tensors of these names that the interpreter kept."""
        if feeds is not self._fed:
            fed = {self._model.indices[name]: array for name, array in feeds.items()}
            self._kernels = REFERENCE if self._model.file.lives(fed, REFERENCE, self._preserve) else OPTIMIZED
            self._fed = feeds
        if self._kernels not in self._runners:
            self._runners[self._kernels] = LiteRTRunner(self._model, self._kernels, self._preserve)
        return self._runners[self._kernels].run(feeds, names)


def _texts(array: Array) -> Array:
    """Texts, where LiteRT has bytes; any other array as it is."""
    if array.dtype.kind not in "SO":
        return array
    texts = [item.decode(errors="replace") if isinstance(item, bytes) else item for item in array.reshape(-1)]
    return np.array(texts, np.object_).reshape(array.shape)


def _bytes(array: Array) -> Array:
    """Texts as LiteRT takes them: as bytes. Of an array of objects without axes it would read the address."""
    if array.dtype.kind != "O":
        return array
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
    if array.ndim == 0:
        return np.array(texts[0])
    return np.array(texts, np.object_).reshape(array.shape)
