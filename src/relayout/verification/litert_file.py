"""A .tflite file and the interpreters that LiteRT makes of it: their package, kernels and extents."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from relayout.errors import WITH_RUNTIMES, MissingRuntimeError, ReadError, RelayoutError
from relayout.formats.bundle import TFL3, open_model
from relayout.formats.stored import open_stored
from relayout.formats.tflite.container.loading import load
from relayout.verification.feeds import EXTENTS, of_rank
from relayout.verification.interpreters import Interpreter
from relayout.verification.litert_details import is_quantized, quantization_arguments
from relayout.verification.runtimes import asked
from relayout.verification.side import Array, Source, is_spelt, one_line

DEFAULT, REFERENCE, OPTIMIZED = "AUTO", "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
"""LiteRT's names for its kernels: XNNPACK's where it takes an operator, and those besides."""
WITHOUT_DELEGATE = "LiteRT's default delegate, XNNPACK, does not take the source: it ran without"
LITERT, TENSORFLOW = "ai_edge_litert", "tensorflow.lite.python"
"""Whose interpreter runs a model: TensorFlow's has the Flex delegate, which runs operators of TensorFlow."""
NEEDED = {
    LITERT: f"running a .tflite needs LiteRT: {WITH_RUNTIMES}",
    TENSORFLOW: "the Flex delegate's operators need TensorFlow's interpreter: pip install 'tensorflow==2.19.*'",
}
"""The message where it is not there."""
NO_DELEGATE = "Select TensorFlow op"
"""How an interpreter without the Flex delegate begins, such as that of `tensorflow-cpu`."""
FARTHEST = 1 << 19
"""One scale is so many of another at most where a kernel of LiteRT's that adds makes a multiplier below 1 of them."""


class LiteRTFile:
    """A .tflite, from a path or its bytes, and the interpreters that LiteRT makes of it."""

    def __init__(self, source: Source) -> None:
        self.label = "the given bytes" if isinstance(source, bytes) else str(source)
        self._extents: tuple[int, int, int] | None = None
        self._tried = {REFERENCE}  # `lives` tries those, with feeds
        self.content: Any = source if isinstance(source, bytes) else _given(Path(str(source)))
        self._package = TENSORFLOW if _is_left_to_flex(source) else LITERT
        self.notes: list[str] = []

    @property
    def loaded(self) -> str | bytes:
        """The file that the interpreter loads, as an absolute path, or the model's bytes."""
        return self.content if isinstance(self.content, bytes) else os.path.abspath(self.content)

    @property
    def runtime(self) -> tuple[str, str]:
        """LiteRT and its version, or TensorFlow, whose interpreter it is."""
        own = self._package == LITERT
        return "LiteRT" if own else "TensorFlow", str(asked("version", LITERT if own else "tensorflow"))

    def lives(self, feeds: Mapping[int, Array], kernels: str, preserve: bool) -> bool:
        """Return whether the model runs with these kernels: tried in a process of its own, which some kernels abort.

        Args:
            feeds: index of an input -> its array.
            kernels: LiteRT's name for them.
            preserve: whether the interpreter keeps every tensor.
        """
        status = self._attempt(kernels, preserve, feeds)
        if status < 0:
            self.notes.append("LiteRT's reference kernels abort on the source: its spread is the optimized ones'")
        return status == 0

    def _attempt(self, kernels: str, preserve: bool, feeds: Mapping[int, Array] | None = None) -> int:
        """The exit status of a process that prepares the model, and runs it if there are feeds; 1 without a Python."""
        if not sys.executable or getattr(sys, "frozen", False):
            return 1
        with tempfile.TemporaryDirectory(prefix="relayout-verify-") as directory:
            model, fed = Path(directory, "model.tflite"), Path(directory, "feeds")
            if isinstance(self.content, bytes):
                model.write_bytes(self.content)
            else:
                model = Path(self.content)
            if feeds is not None:
                fed.write_bytes(pickle.dumps(dict(feeds)))
            start = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
            script = Path(__file__).with_name("probe_process.py")
            ended = subprocess.run(
                [sys.executable, "-c", start, script, model, fed, kernels, "preserve" * preserve, self._package],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        return ended.returncode

    def interpreter(self, kernels: str, preserve: bool = False) -> Any:
        """The model, ready to be fed, with the kernels of this name; `preserve` keeps every tensor.

        Where the default delegate does not take the model, the default is LiteRT without it.
        """
        try:
            return self._made(kernels, preserve)
        except ReadError as error:
            if kernels != DEFAULT:
                raise
            try:
                made = self._made(OPTIMIZED, preserve)
            except ReadError:
                raise error from None
            if WITHOUT_DELEGATE not in self.notes:
                self.notes.append(WITHOUT_DELEGATE)
            return made

    def _made(self, kernels: str, preserve: bool) -> Any:
        package = self._package
        if not _is_installed(package):
            raise MissingRuntimeError(NEEDED[package])
        try:
            interpreter = Interpreter(package, self.content, kernels, preserve)
            self._try(interpreter, kernels)
            if self._extents:
                _resize(interpreter, self._extents)
            interpreter.allocate_tensors()
        except ImportError as error:
            raise MissingRuntimeError(f"{NEEDED[package]} ({one_line(error)})") from None
        except (ValueError, RuntimeError) as error:
            self.require_delegate(error)
            raise ReadError(f"{self.runtime[0]} cannot run the model: {one_line(error)}", where=self.label) from None
        return interpreter

    def require_delegate(self, error: Exception) -> None:
        """Say what a model needs that has operators of TensorFlow, if that is what an interpreter lacks."""
        if str(error).startswith(NO_DELEGATE):
            raise MissingRuntimeError(f"{NEEDED[TENSORFLOW]}, which is built with that delegate") from None

    def _try(self, interpreter: Any, kernels: str) -> None:
        """Prepare a model that some kernels abort in a process of its own first.

        That is one of quantized 16-bit integers, or of 8-bit ones with scales so far apart that no multiplier goes from
        one to the other.
        """
        if kernels in self._tried:
            return
        self._tried.add(kernels)
        known = [d for d in interpreter.get_tensor_details() if is_quantized(d)]
        bytes_ = (d for d in known if np.dtype(d["dtype"]).itemsize == 1)
        scales = [scale for d in bytes_ for scale in quantization_arguments(d)["scale"]]
        apart = max(scales, default=0) > FARTHEST * min(scales, default=0)
        if (apart or any(d["dtype"] is np.int16 for d in known)) and self._attempt(kernels, False) < 0:
            raise RelayoutError(f"LiteRT aborts on '{self.label}': there is nothing to verify against")

    def sized(self) -> Any:
        """The model with its own extents for open axes, or the first of `EXTENTS` with which kernels can be prepared.

        Raises:
            ReadError: there is none.
        """
        errors: list[ReadError] = []
        for extents in (None, *EXTENTS):
            self._extents = extents
            try:
                self.interpreter(DEFAULT)
                return self.interpreter(OPTIMIZED)
            except ReadError as error:
                errors.append(error)
        raise errors[0]


def _given(path: Path) -> str | bytes:
    """How the interpreter gets a model: by its path, or as bytes where it lies in a bundle, or its path is no text."""
    file = open_model(path)
    if is_spelt(path) and path.is_file() and open_stored(path).read(0, 8)[4:] == TFL3:
        return str(path)
    return file.read(0, file.size)


def _is_left_to_flex(source: Source) -> bool:
    """Tell whether a model has operators of TensorFlow; False of a damaged one, of which the interpreter says more."""
    try:
        model = load(source if isinstance(source, bytes) else Path(str(source)))
    except RelayoutError:
        return False
    return any(o.name.startswith("CUSTOM Flex") for subgraph in model.subgraphs for o in subgraph.operators)


def _is_installed(package: str) -> bool:
    """Tell whether there is an interpreter, as far as can be told without loading it."""
    try:
        return find_spec(f"{LITERT}.interpreter" if package == LITERT else "tensorflow") is not None
    except ModuleNotFoundError:
        return False


def _resize(interpreter: Any, extents: tuple[int, int, int]) -> None:
    """Give open axes of inputs, but for a batch, an extent: those of images, of volumes, and all others."""
    for details in interpreter.get_input_details():
        own = [int(n) for n in details["shape"]]
        open_axes = [axis for axis, n in enumerate(details["shape_signature"]) if n == -1 and (axis or len(own) == 1)]
        if open_axes:
            shape = [of_rank(len(own), extents) if axis in open_axes else n for axis, n in enumerate(own)]
            interpreter.resize_tensor_input(details["index"], shape)
