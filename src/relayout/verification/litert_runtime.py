"""A .tflite in LiteRT: its file, interpreters in the child process of `runtimes`, and runs of them."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relayout.errors import WITH_RUNTIMES, MissingRuntimeError, ReadError, RelayoutError
from relayout.formats.bundle import TFL3, open_model
from relayout.formats.stored import open_stored
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.provenance import Provenance, load_provenance
from relayout.verification.feeds import EXTENTS, of_rank
from relayout.verification.runtimes import ChildModel, FailedError, asked, survives
from relayout.verification.side import (
    Array,
    Feeds,
    RunError,
    RunnableModel,
    Source,
    is_spelt,
    one_line,
)

if TYPE_CHECKING:
    from relayout.verification.litert import LiteRTSide

# Details of a tensor as LiteRT's interpreter lists them: what its integers mean.


def limits_of(details: dict[str, Any]) -> tuple[float, float] | None:
    """Return the least and the greatest real number that a tensor's integers stand for; None without one scale."""
    dtype, (scale, zero) = np.dtype(details["dtype"]), details["quantization"]
    if dtype.kind not in "iu" or not scale:
        return None
    info = np.iinfo(dtype)
    return float(scale) * (info.min - int(zero)), float(scale) * (info.max - int(zero))


def scales_of(details: dict[str, Any]) -> tuple[float, ...]:
    """Return the scales of a tensor's integers."""
    return tuple(details["quantization_parameters"]["scales"].tolist())


def value_arguments(details: dict[str, Any]) -> dict[str, Any]:
    """Return the shape, the scale and the zero point of a tensor as arguments of `ModelValue`."""
    parameters, static = details["quantization_parameters"], tuple(map(int, details["shape"]))
    stated = tuple(map(int, details["shape_signature"])) or static
    return {
        "shape": tuple(None if extent < 0 else extent for extent in stated),
        "fallback": static,
        "quantized": is_quantized(details),
        "scale": scales_of(details),
        "zero": tuple(parameters["zero_points"].tolist()),
        "axis": int(parameters["quantized_dimension"]),
    }


def is_quantized(details: dict[str, Any]) -> bool:
    """Tell whether a tensor holds integers with a scale."""
    return len(details["quantization_parameters"]["scales"]) > 0 and np.dtype(details["dtype"]).kind in "iu"


# Interpreters of LiteRT, in the child process of `runtimes`. They have the methods that LiteRT's own have.

RAISED: dict[str, Callable[[str], Exception]] = {
    "ImportError": ImportError,
    "ModuleNotFoundError": ImportError,
    "ValueError": ValueError,
}
"""What LiteRT's interpreter raises -> how to raise it here. All else is a RuntimeError, the end of its process too."""


class Interpreter:
    """A model in LiteRT.

    Args:
        package: whose interpreter it is: `ai_edge_litert`.
        source: its path, which stays as it is, or its bytes.
        kernels: LiteRT's name for a set of them.
        preserve: keep every tensor.

    Raises:
        ValueError, RuntimeError: LiteRT does not load it, or ends its process over it.
        ImportError: it is not installed.
    """

    def __init__(self, package: str, source: str | bytes, kernels: str, preserve: bool) -> None:
        self._child_model = ChildModel("interpreter", package, kernels, _options(source, preserve))
        _answered(self._child_model.open)

    def __getattr__(self, name: str) -> "_Member":
        if name.startswith("__"):
            raise AttributeError(name)
        return _Member(self, (name,))

    def ask(self, *question: Any) -> Any:
        """Return the answer of the child process to a question about the model."""
        return _answered(partial(self._child_model.ask, *question))


class _Member:
    """A method of an interpreter, or of one of its members."""

    def __init__(self, interpreter: Interpreter, path: tuple[str, ...]) -> None:
        self._interpreter, self._path = interpreter, path

    def __getattr__(self, name: str) -> "_Member":
        return _Member(self._interpreter, (*self._path, name))

    def __call__(self, *arguments: Any) -> Any:
        """Return what the method gives."""
        return self._interpreter.ask("call", self._path, arguments)


def _options(source: str | bytes, preserve: bool) -> dict[str, Any]:
    place = {"model_content": source} if isinstance(source, bytes) else {"model_path": os.path.abspath(source)}
    return {**place, "experimental_preserve_all_tensors": preserve}


def _answered(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except FailedError as error:
        raise RAISED.get(error.kind, RuntimeError)(str(error)) from None


# A .tflite file and the interpreters that LiteRT makes of it: their package, kernels and extents.

DEFAULT, REFERENCE, OPTIMIZED = "AUTO", "BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
"""LiteRT's names for its kernels: XNNPACK's where it takes an operator, and those besides."""
WITHOUT_DELEGATE = f"LiteRT's default delegate, XNNPACK, does not take the .tflite: it ran with {OPTIMIZED}"
LITERT, TENSORFLOW = "ai_edge_litert", "tensorflow.lite.python"
"""Whose interpreter runs a model: TensorFlow's has the Flex delegate, which runs operators of TensorFlow."""
NEEDED = {  # the message where it is not there
    LITERT: f"running a .tflite needs LiteRT: {WITH_RUNTIMES}",
    TENSORFLOW: "the Flex delegate's operators need TensorFlow's interpreter: pip install 'tensorflow==2.19.*'",
}
NO_DELEGATE = "Select TensorFlow op"
"""How an interpreter without the Flex delegate begins, such as that of `tensorflow-cpu`."""
FARTHEST = 1 << 19
"""One scale is so many of another at most where a kernel of LiteRT's that adds makes a multiplier below 1 of them."""


class LiteRTFile(RunnableModel):
    """A .tflite, from a path or its bytes, and the interpreters that LiteRT makes of it."""

    def __init__(
        self,
        source: Source,
        label: str = "",  # its name in messages; "": its path
    ) -> None:
        self.label = label or label_of(source)
        self._extents: tuple[int, int, int] | None = None
        self._awaits_feeds = False
        self._tried = {REFERENCE}  # `lives` tries those, with feeds
        self.content: Any = source if isinstance(source, bytes) else _path_or_bytes(Path(str(source)))
        self.loaded = self.content if isinstance(self.content, bytes) else os.path.abspath(self.content)
        self._package = TENSORFLOW if _is_left_to_flex(self) else LITERT
        self.notes: list[str] = []
        self.provenance = provenance = _provenance(self)
        self.batch, self.steps_off, self.signature = provenance.batch, provenance.steps_off, provenance.signature
        self.part = None if provenance.part is None else tuple(provenance.part["outputs"])

    @cached_property
    def model(self) -> Model:
        """The file as it is read here.

        Raises:
            RelayoutError: it is damaged; the runtime may take it nevertheless.
        """
        return load(self.content if isinstance(self.content, bytes) else Path(self.content))

    @cached_property
    def runtime(self) -> tuple[str, str]:
        """LiteRT and its version, or TensorFlow, whose interpreter it is."""
        own = self._package == LITERT
        return "LiteRT" if own else "TensorFlow", str(asked("version", LITERT if own else "tensorflow"))

    def lives(
        self,
        feeds: Mapping[int, Array],  # index of an input -> its array
        kernels: str,  # LiteRT's name for them
        preserve: bool,  # whether the interpreter keeps every tensor
    ) -> bool:
        """Return whether the model runs with these kernels: tried in a process of its own, which some kernels abort."""
        alive = self._survives(kernels, preserve, feeds)
        if alive is None:
            self.notes.append("LiteRT's reference kernels abort on the source: its spread is the optimized ones'")
        return bool(alive)

    def _survives(self, kernels: str, preserve: bool, feeds: Mapping[int, Array] | None = None) -> bool | None:
        """Return whether the model can be prepared, and runs if there are feeds; None: it ends the process."""
        fed = None if feeds is None else dict(feeds)
        return survives("attempt", self._package, kernels, _options(self.content, preserve), fed)

    def interpreter(self, kernels: str, preserve: bool = False) -> Any:
        """Return the model, ready to be fed, with the kernels of this name; `preserve` keeps every tensor.

        Where the default delegate does not take the model, the default is LiteRT without it.
        """
        try:
            return self._new_interpreter(kernels, preserve)
        except ReadError as error:
            if kernels != DEFAULT:
                raise
            try:
                interpreter = self._new_interpreter(OPTIMIZED, preserve)
            except ReadError:
                raise error from None
            self.note_without_delegate()
            return interpreter

    def note_without_delegate(self) -> None:
        """Say once that the model ran without the default delegate."""
        if WITHOUT_DELEGATE not in self.notes:
            self.notes.append(WITHOUT_DELEGATE)

    def _new_interpreter(self, kernels: str, preserve: bool) -> Any:
        package = self._package
        if not _is_installed(package):
            raise MissingRuntimeError(NEEDED[package])
        try:
            interpreter = Interpreter(package, self.content, kernels, preserve)
            self._try(interpreter, kernels)
            if self._extents:
                _resize(interpreter, self._extents)
            if not self._awaits_feeds:
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
        scales = [scale for d in bytes_ for scale in scales_of(d)]
        has_far_scales = max(scales, default=0) > FARTHEST * min(scales, default=0)
        if (has_far_scales or any(d["dtype"] is np.int16 for d in known)) and self._survives(kernels, False) is None:
            raise RelayoutError(f"LiteRT aborts on '{self.label}': there is nothing to verify against")

    def sized(self) -> Any:
        """The model with its own extents for open axes, or the first of `EXTENTS` with which kernels can be prepared.

        Where there are none, its open axes have only the extents that are fed, and it is prepared with these.

        Raises:
            ReadError: it has no open axes, and cannot be prepared.
        """
        errors: list[ReadError] = []
        for extents in (None, *EXTENTS):
            self._extents = extents
            try:
                self.interpreter(DEFAULT)
                return self.interpreter(OPTIMIZED)
            except ReadError as error:
                errors.append(error)
        self._extents, self._awaits_feeds = None, True
        interpreter = self.interpreter(OPTIMIZED)
        if any(-1 in details["shape_signature"] for details in interpreter.get_input_details()):
            return interpreter
        raise errors[0]


def label_of(source: Source) -> str:
    """Return the name of a model in messages."""
    return "the given bytes" if isinstance(source, bytes) else str(source)


def _provenance(file: LiteRTFile) -> Provenance:
    """Return what a file says of the model that it was made of; nothing of a damaged one."""
    try:
        return load_provenance(file.model)
    except RelayoutError:
        return Provenance()


def _path_or_bytes(path: Path) -> str | bytes:
    """Return the model's path for the interpreter, or its bytes if it lies in a bundle or its path is no text."""
    file = open_model(path)
    if is_spelt(path) and path.is_file() and open_stored(path).read(0, 8)[4:] == TFL3:
        return str(path)
    return file.read(0, file.size)


def _is_left_to_flex(file: LiteRTFile) -> bool:
    """Tell whether a model has operators of TensorFlow; False of a damaged one, of which the interpreter says more."""
    try:
        subgraphs = file.model.subgraphs
    except RelayoutError:
        return False
    return any(o.name.startswith("CUSTOM Flex") for subgraph in subgraphs for o in subgraph.operators)


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


# Runs of a .tflite in LiteRT, once for the same feeds, however often values are asked for.


class LiteRTRunner:
    """An interpreter that runs once for the same feeds, however often it is asked."""

    def __init__(self, model: "LiteRTSide", kernels: str, preserve: bool) -> None:
        self._model, self._kind = model, (kernels, preserve)
        self._interpreter = model.interpreter(*self._kind)
        self._fed: Feeds | None = None
        self._ran = self._failed = False  # a delegate that cannot be prepared once cannot be prepared again

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the tensors of these names that the interpreter kept."""
        if feeds is not self._fed:
            self._fed = None
            if self._ran and (self._model.remembers or self._failed):
                self._interpreter = self._model.interpreter(*self._kind)
            self._ran = self._failed = True
            self._invoke(feeds)
            self._fed, self._failed = feeds, False
        arrays = {}
        for name in names:
            index = self._model.indices[name]
            try:
                arrays[name] = _texts(np.asarray(self._interpreter.get_tensor(index)))
            except ValueError:  # fused away, inside a branch that was not taken, or without elements
                details = self._interpreter._get_tensor_details(index, 0)
                if 0 in details["shape"]:
                    with suppress(ValueError):  # too many elements: XNNPACK leaves extents beside one of 0 unset
                        arrays[name] = np.zeros(details["shape"], details["dtype"])
        return arrays

    def _invoke(self, feeds: Feeds) -> None:
        feeds = {**self._model.initial, **feeds}
        try:
            self._start(feeds)
        except (ValueError, RuntimeError) as error:
            if not self._runs_without_delegate(feeds):
                self._model.require_delegate(error)
                raise RunError(self._model.runtime[0], self._model.label, error) from None

    def _start(self, feeds: Feeds) -> None:
        interpreter = self._interpreter
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

    def _runs_without_delegate(self, feeds: Feeds) -> bool:
        """Run without the default delegate, which may fail over computed extents of 0; tell if that runs."""
        kernels, preserve = self._kind
        if kernels != DEFAULT:
            return False
        try:
            self._interpreter = self._model.interpreter(OPTIMIZED, preserve)
            self._start(feeds)
        except (ValueError, RuntimeError, RelayoutError):
            return False
        self._kind = OPTIMIZED, preserve
        self._model.note_without_delegate()
        return True


class ReferenceRunner:
    """The reference kernels; where those cannot run the model, the optimized ones, which differ from XNNPACK's too."""

    def __init__(self, model: "LiteRTSide", preserve: bool) -> None:
        self._model, self._preserve = model, preserve
        self._fed: Feeds | None = None
        self._runners: dict[str, LiteRTRunner] = {}

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the tensors of these names that the interpreter kept."""
        if feeds is not self._fed:
            fed = {self._model.indices[name]: array for name, array in feeds.items()}
            self._kernels = REFERENCE if self._model.lives(fed, REFERENCE, self._preserve) else OPTIMIZED
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
