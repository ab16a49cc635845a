"""A side of a comparison: a model in the runtime that runs it, its values by name, and how to run it."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from itertools import product, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relayout.errors import ReadError, RelayoutError
from relayout.formats.bundle import TFL3
from relayout.formats.recognition import is_tflite
from relayout.layout import Extent
from relayout.layout.normalization import Normalization
from relayout.layout.stored_as import Holds, OpenedBatch
from relayout.light_dataclass import dataclass

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir


Array: TypeAlias = NDArray[Any]
Feeds: TypeAlias = Mapping[str, Array]
Source: TypeAlias = "str | Path | bytes | onnx.ModelProto | ir.Model"

ONNX_RUNTIME = "ONNX Runtime"

OPEN = 64  # what a name in an extent counts, where only the room that a value takes is of interest


class Precision(StrEnum):
    """The kinds of numbers that a model computes with, the most precise first."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    QUANTIZED = "quantized"


class BatchBlocks(NamedTuple):
    """The blocks of an image of which each element goes to a batch of its own (SPACE_TO_BATCH_ND)."""

    extents: tuple[int, ...]  # of the axes behind the first

    def parts(self, image: Array) -> Iterator[Array]:
        """Yield what goes to each batch, as a view of the image."""
        for starts in product(*map(range, self.extents)):
            yield image[:, *(slice(start, None, step) for start, step in zip(starts, self.extents, strict=True))]


class RunError(RelayoutError):
    """A runtime fails on what it is fed."""

    def __init__(self, runtime: str, label: str, error: Exception) -> None:
        super().__init__(f"{runtime} fails on '{label}': {one_line(error)}")


@dataclass(frozen=True)
class Places:
    """The elements of a tensor that an input of integers counts, each of which is written no more than once."""

    extents: tuple[int | None, ...]  # of the tensor; None for a dynamic dimension
    # the one that it counts along; None: its last axis holds one number for each of the first axes
    axis: int | None = None


@dataclass(frozen=True)
class ModelValue:
    """One value of a model: an input, an output, or what an operator made in between."""

    name: str  # its name, unique on its side
    dtype: np.dtype[Any] | None  # its element type, None where the model does not say
    # its shape, None for a dynamic dimension; None as a whole where the model does not say
    shape: tuple[int | None, ...] | None
    aliases: tuple[str, ...] = ()  # other names that a counterpart may have: the tensor's own, those of signatures
    # the values of the source that it holds in some layout; its own namesake as it is, if not among them
    source_values: tuple[Holds, ...] = ()
    operator: str = ""  # the operator that makes it; empty for a graph input
    node: str = ""  # which one
    order: int = 0  # its place among the values in topological order
    quantized: bool = False
    # the steps of quantized integers, one for all or one for each index of `axis`; empty where there are none
    scale: tuple[float, ...] = ()
    zero: tuple[int, ...] = ()  # the integers that mean 0.0, as many
    axis: int = 0
    bound: int | None = None  # for an integer input that counts into something: how many there are
    distinct: bool = False  # for an integer input: whether places are computed from it that are written once each
    places: Places | None = None  # for an integer input that names elements to write to: which ones it may name
    symbols: tuple[str, ...] = ()  # names of the dynamic dimensions; dimensions of one name have one size
    # the extents that the model itself puts in the place of dynamic ones, if it does
    fallback: tuple[int, ...] | None = None
    step: float = 0.0  # for a float that was dequantized: the step of the integer before; else 0
    # for such a float: the least and the greatest number that the integer before can stand for
    limits: tuple[float, float] | None = None
    operands: tuple[str, ...] = ()  # the names of the values that its operator reads
    title: str = ""  # what people call it, where that is another name than its own, and no other value's
    # extents that operators imply for dynamic dimensions of an input; empty where none is known
    implied: tuple[int | None, ...] = ()
    likely: int | None = None  # a number that an input probably is, such as a sample rate
    # of an input: what its model does to what it is fed, where the source is fed the result of that
    normalization: Normalization | None = None
    # the shapes that values of its side have with what is fed, by name, as far as that was asked for
    fed: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """All names that it holds the value of, as it is: its own, unless it declares those to be in another layout."""
        own = (self.name, *self.aliases)
        return () if any(item.name in own for item in self.source_values) else own

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names that the value declares to have had in its source; its own name where it declares nothing."""
        return (*self.aliases, *(item.name for item in self.source_values)) or (self.name,)

    def size(self, other: "ModelValue | None" = None) -> int:
        """Bytes that it takes, as its shape tells, or its counterpart's; what is open in an extent counts `OPEN`."""
        size = self.dtype.itemsize if self.dtype is not None else 4
        if self.name in self.fed:
            return size * math.prod(OPEN if extent is None else extent for extent in self.fed[self.name])
        value = self if self.shape is not None or other is None else other
        for extent, name in zip_longest(value.shape or (), value.symbols):
            size *= (Extent.of(name).value({}, OPEN) if name else OPEN) if extent is None else extent
        return size

    def real(self, integers: Array) -> Array:
        """Return the real numbers that quantized integers stand for, in double precision."""
        scale, zero = self._parameters(integers.ndim)
        real: Array = (integers.astype(np.float64) - zero) * scale
        return real

    def in_steps(self, real: Array) -> Array:
        """Return the quantized integers that stand for real numbers, before they are rounded and clamped."""
        scale, zero = self._parameters(real.ndim)
        steps: Array = real.astype(np.float64) / scale + zero
        return steps

    def _parameters(self, rank: int) -> tuple[Array, Array]:
        shape = [-1 if axis == self.axis and len(self.scale) > 1 else 1 for axis in range(rank)]
        return np.array(self.scale).reshape(shape), np.array(self.zero).reshape(shape)

    @property
    def all_names(self) -> tuple[str, ...]:
        """All names that it may be called by, whatever the layout."""
        return (self.name, *self.aliases, *(item.name for item in self.source_values))


class Runner(Protocol):
    """A model ready to run."""

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """The values of these names; those that the runtime cannot show are left out. RelayoutError if it fails."""


class Forced(Protocol):
    """A model of which some interior values are given."""

    @property
    def model(self) -> "ir.Model | bytes":
        """The part of the model that is run: of a `.tflite` the bytes of a file."""

    @property
    def sources(self) -> Mapping[str, str]:
        """The part's inputs, in its order -> what they are in the model."""

    @property
    def shown(self) -> Mapping[str, str]:
        """The values that it makes, each with the name that it has in the part."""

    @property
    def entries(self) -> Mapping[str, str]:
        """The fed values that it needs, each with the name under which to feed it."""

    @property
    def levels(self) -> int:
        """To how many levels it rounds real numbers while it runs, by their range; 0 if it does not."""

    @property
    def requantized(self) -> float:
        """The most steps of the result in one step of integers that get its scale on the way; 0 if there are none."""

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the values of these names, made of what is given before them. RelayoutError if it fails."""


NOTHING: Mapping[str, Any] = MappingProxyType({})


class RunnableModel:
    """A model and its runtime; what a runtime does not tell is nothing."""

    label: str  # the name of the model in messages
    loaded: str | bytes  # the file that its runtime loads, as an absolute path, or the model's bytes
    inputs: Sequence[ModelValue]  # the graph's inputs, in its order
    initial: Feeds
    """Inputs that are state from run to run -> what they begin with, which they are fed where nobody else does."""
    outputs: Sequence[ModelValue]  # the graph's outputs, in its order
    interiors: Sequence[ModelValue]  # the results of operators that are no outputs, in topological order
    rounds: bool  # True if it computes with quantized numbers anywhere, so that kernels may round differently
    has_other_kernels = False  # True if its runtime has another set of kernels, with which programs may run it as well
    levels = 0
    """To how many levels activations are rounded where both kinds of kernels round alike; 0 where they are not."""
    notes: list[str]  # notes for the reader of the report
    signature: str | None = None
    """The signature of a .tflite that it declares to be made of, where that is not of the first subgraph."""
    batch: OpenedBatch | None = None  # the batch that was opened in it, if it declares that
    part: tuple[str, ...] | None = None  # of a model that declares to be a part of its source: its outputs' names there
    steps_off: Mapping[str, int] = NOTHING
    """Quantized values of its source -> the steps by which it declares that they may be off."""

    @property
    def runtime(self) -> tuple[str, str]:
        """Name and version of what runs it."""
        raise NotImplementedError

    @property
    def precision(self) -> Precision:
        """The least precise numbers that it computes with, or stores weights in."""
        raise NotImplementedError

    @property
    def rounding(self) -> float:
        """The rounding of its floats while it computes, relative to their magnitude; 0 for no more than float32's."""
        return 0.0

    @property
    def in_float(self) -> Mapping[str, tuple[str, ...]]:
        """Type of an operator -> the names of those that compute in float in a model with quantized integers."""
        return NOTHING

    @property
    def ranges(self) -> Mapping[str, tuple[float, float, float]]:
        """Inputs that are quantized, or are as soon as they are read -> the least and greatest number, and the step."""
        return NOTHING

    @property
    def rounded(self) -> Mapping[str, tuple[int | BatchBlocks, ...]]:
        """Real values whose rows operators round to 8 bits before they compute with them, and how long a row is."""
        return NOTHING

    @property
    def drawn(self) -> frozenset[str]:
        """Values that are drawn at random, others in each run: nothing else can be said of them than their shapes."""
        return frozenset()

    @property
    def implied(self) -> Mapping[str, tuple[int | None, ...]]:
        """Inputs with open extents -> those that operators imply for them."""
        return NOTHING

    def relax(self) -> bool:
        """Run without the runtime's optimizations from now on; whether that is something new."""
        return False

    def learn(self, feeds: Feeds) -> None:
        """Learn the open extents of interior values from what is fed: `Value.size` tells them from now on."""

    def runner(
        self,
        # values that are asked for besides the outputs; asking for them may change how it is run
        interiors: Sequence[str] = (),
        reference: bool = False,  # with the runtime's other kernels, to see how far it agrees with itself
        # quantized values that are moved at random by up to so many steps, where the runtime can do that
        moved: Mapping[str, int] | None = None,
    ) -> Runner:
        """Return the model, ready to run."""
        raise NotImplementedError

    def forced(
        self,
        shown: Sequence[str],  # what it makes
        entry_names: Sequence[str],  # interior values that are not computed but fed, wherever they are read
        nudge: float = 0,  # the steps by which real numbers are moved before what is shown is quantized
        *,
        terms: bool = False,  # whether the magnitudes are added up of what is added up for what is shown
        # whether recurrent operators that make what is shown are given that as their earlier results; None if there are
        # none that can be
        own: bool = False,
    ) -> Forced | None:
        """Return the part of the model that makes some values of others; None if its runtime cannot be given any."""
        return None

    @property
    def operands_of(self) -> Mapping[str, tuple[str, ...]]:
        """Computed values, in an order in which they can be computed -> those that their operators read."""
        return NOTHING

    def before(self, name: str) -> set[str]:
        """Return the names of all values that a value is made of, itself among them."""
        ancestors: set[str] = set()
        waiting = [name]
        while waiting:
            value = waiting.pop()
            if value not in ancestors:
                ancestors.add(value)
                waiting += self.operands_of.get(value, ())
        return ancestors

    def behind(self, names: Set[str]) -> set[str]:
        """Return the names of all values that are made of any of these, these among them."""
        descendants = set(names)
        for value, operands in self.operands_of.items() if names else ():
            if not descendants.isdisjoint(operands):
                descendants.add(value)
        return descendants

    def sum_behind(self, name: str) -> str | None:
        """The name of the sum that a value is, but for clamps and for where its elements lie; None if it is none."""
        return None


@contextmanager
def open_side(
    source: Source,  # the model
    signature: str | None = None,  # of a .tflite, the signature to run; None: its first subgraph
    *,
    other: RunnableModel | None = None,  # what is held against it, if it is the source
) -> Iterator[RunnableModel]:
    """The side of a model: `.tflite` runs in LiteRT, ONNX in ONNX Runtime.

    Raises:
        ReadError: it is neither, or the runtime cannot load it.
        MissingRuntimeError: the runtime is not installed.
    """
    from relayout.formats.in_memory import model_source

    source = model_source(source)
    if _runs_in_litert(source):
        from relayout.verification.litert import LiteRTSide, side_of_part

        try:
            opened = LiteRTSide(source) if signature is None else side_of_part(source, signature)
        except ReadError as error:
            if other is None or other.part is None:
                raise
            try:
                opened = side_of_part(source, signature, other.part)
            except RelayoutError:
                raise error from None
            # LiteRT has no kernel for what the cut leaves out.
            opened.notes.append(f"the source ran as the result was cut, since of the whole {error.what}")
        yield opened
        return
    from relayout.verification.ort import OrtSide

    elsewhere = other is not None and other.runtime[0] != ONNX_RUNTIME
    with OrtSide(source, steps=elsewhere) as side:
        yield side


def precision_of_types(types: Iterable[Any]) -> Precision:
    """Return what a model without quantized integers computes with, of the types of all its values."""
    narrow = any(np.dtype(each).name in ("float16", "bfloat16") for each in types)
    return Precision.FLOAT16 if narrow else Precision.FLOAT32


def is_spelt(path: str | Path) -> bool:
    """Tell whether a path is text, as runtimes want it. A path of other bytes has signs here that are no characters."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def one_line(error: BaseException, most: int = 300) -> str:
    """Return a runtime's message in one line, without the addresses of its source code and manuals."""
    text = str(error)[: 10 * most]  # a name in it may be of any length, over which patterns take the square of it
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : (Load model from \S+ failed:)?", "", text)
    text = re.sub(r"\w+ onnxruntime::.*?\) (?=[A-Z])", "", text)
    text = re.sub(r"See instructions: \S+|\S+\.(cc|h):\d+\s*|0x[0-9a-f]{6,}", " ", text)
    text = " ".join(text.split()).rstrip(".") or type(error).__name__
    return text if len(text) <= most else text[: most - 1] + "…"


def _runs_in_litert(source: Source) -> bool:
    if isinstance(source, bytes):
        return source[4:8] == TFL3
    return isinstance(source, str | Path) and is_tflite(source)


# A model whose values do not fit into memory together: it runs again for each part of them.


class OnDemandRunner:
    """One runner at a time, which shows the values that are asked for: a runtime keeps all that it shows."""

    def __init__(
        self,
        shown: Iterable[str],  # the values that a runner has to be made for
        make: Callable[[Sequence[str]], Runner],  # what makes one that shows some of them
    ) -> None:
        self._shown, self._make = set(shown), make
        self._names: list[str] = []
        self._runner: Runner | None = None

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """Return the values of these names."""
        shown_names = [name for name in names if name in self._shown]
        if self._runner is None or shown_names != self._names:
            self._runner = None  # the room that it took is given back first
            self._runner, self._names = self._make(shown_names), shown_names
        return self._runner.run(feeds, names)
