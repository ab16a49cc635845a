"""ONNX out: streamed, atomic, and the same bytes for the same model.

The file is what protobuf would write, fields in another order: the model's own fields, then the graph's length, the
graph's own fields, and each initializer as header and raw data. All lengths follow from types and shapes, so one weight
at a time is in memory, and never twice.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import onnx
import onnx_ir as ir

from relayout.errors import InvalidModelError, RelayoutError, WriteError
from relayout.formats.onnx.atomic import Replacement
from relayout.formats.onnx.checking import UNRANKED, check, check_parts
from relayout.formats.onnx.parts import Weight, one_line, split, wrong_length
from relayout.formats.onnx.wire import GRAPH_INITIALIZER, LIMIT, MODEL_GRAPH, TENSOR_RAW_DATA, opening
from relayout.graph.facts import Identity, facts_of

if TYPE_CHECKING:
    from relayout.formats.onnx.fixing import FixedSource

EXTERNAL = 1 << 10  # tensors below this size stay in the model, as others' readers expect of shapes and scalars

CHUNK = 1 << 20  # bytes of a plain copy at a time

PLACES = re.compile(r"'[^']*'| ?==>.*")  # what a message of the checker says of the place
CONTRADICTION = "ShapeInferenceError"  # in a message about shapes

PAGE, GRANULE = 1 << 12, 1 << 16
"""External tensors begin at a page, large ones at Windows' granularity of mapping: then a runtime can map them."""


def write(
    model: ir.Model,  # the model; it is not changed
    path: str | Path,  # the file; an existing one is replaced when the new one is complete
    *,
    external_data: bool | None = None,  # weights in `<path>.data`; by default only if the model is above 2 GiB
    # whether that may be a file which the model was read from: its own, or one of its data files
    overwrite: bool = False,
    # whether `check` has been called for it; if not, it is held to the standard here, serialized once
    checked: bool = True,
) -> None:
    """Write the model to `path`, or nothing.

    Where there is a data file already, a model and its data are replaced such that whenever the process ends, killed or
    not, the model that is there has its own data: the old one, or the new one.

    Raises:
        WriteError: the file cannot be written, is one that the model was read from, would be above 2 GiB, or would not
            be valid, and what it was read from is. Nothing has been written.
    """
    target = Path(path)
    if not target.name or os.fspath(path).endswith(("/", os.sep)):
        raise WriteError(f"cannot write '{path}': it is not the name of a file")
    data = target.with_name(target.name + ".data")
    proto, weights = split(model)
    if not checked:
        try:
            check_parts(model, proto, weights)
        except InvalidModelError as error:
            _excuse(model, error.what)
    plan = _Plan.of(proto, weights)
    if external_data or (external_data is None and plan.length > LIMIT):
        try:
            data.name.encode()
        except UnicodeEncodeError:
            raise WriteError(
                f"cannot write '{target}': its data file's name is no UTF-8; give the model another"
            ) from None
        plan = _Plan.of(proto, weights, data.name)
    if plan.length > LIMIT:
        raise WriteError(f"the model would be {plan.length} bytes, above protobuf's 2 GiB; allow external data")
    sources = () if overwrite else facts_of(model).files
    try:
        if not plan.external:
            with Replacement(sources) as files:
                files.write(target, plan.model())
        elif not os.path.lexists(data):
            with Replacement(sources) as files:  # the data first: until the model is there, nothing refers to it
                files.write(data, plan.data())
                files.write(target, plan.model())
        else:
            beside = target.with_name(f"{target.name[:200]}.{os.urandom(6).hex()}.data")
            with Replacement(sources) as files:
                files.check(data)
                aside = _Plan.of(proto, weights, beside.name)
                files.write(beside, aside.data())
                files.write(target, aside.model())
            _settle(target, data, beside, plan)
    except RelayoutError:
        raise
    except OSError as error:
        raise WriteError(f"cannot write '{target}': {error.strerror or error}") from error
    except Exception as error:  # a lazy tensor runs code of its own
        raise WriteError(f"cannot write '{target}': {one_line(error)}") from error


def _excuse(model: ir.Model, fault: str) -> None:
    """Let a fault pass that the model's source has, too: then the source is no more valid.

    Runtimes load much that the standard does not allow: plugins in its domain, operators that are newer than the
    version which a file imports, inputs without a shape. Operands that contradict each other are a fault in any case.

    Raises:
        InvalidModelError: it is another one, or the source has none.
    """
    from relayout.formats.onnx.reading import read

    own = ""
    try:
        if (origin := facts_of(model).origin) is not None:
            check(read(origin))
    except InvalidModelError as error:
        own = error.what
    except RelayoutError:
        pass  # the source has gone, or is another file now
    if CONTRADICTION in fault or PLACES.sub("", own) != PLACES.sub("", fault):
        raise InvalidModelError(fault, "" if own.startswith(UNRANKED) else own)


def _settle(target: Path, data: Path, beside: Path, plan: "_Plan") -> None:
    """Give the data of a new model the name of the old one's.

    Two files cannot be renamed at once, and an old model must not meet new data. So the new model came with data under
    a name of its own; now that it is there, the data is copied over the old one's, and a model that refers to the copy
    takes the new one's place. Whenever this ends, there is a model with its data: where it fails, with the first name.
    """
    with contextlib.suppress(OSError, WriteError):
        with beside.open("rb") as file, Replacement() as files:
            files.write(data, iter(lambda: file.read(CHUNK), b""))
            files.write(target, plan.model())
        beside.unlink()


def copy(source: "Path | FixedSource", path: str | Path, *, sources: Collection[Identity] = ()) -> None:
    """Write the bytes of a file, maybe with dimensions fixed, to `path`, or nothing.

    Args:
        source: the file.
        path: the file; an existing one is replaced when the new one is complete.
        sources: files that are not replaced.

    Raises:
        WriteError: `path` cannot be written, or is one of `sources`.
        OSError: `source` cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(source, Path):
            file = stack.enter_context(source.open("rb"))
            chunks: Iterator[bytes] = iter(lambda: file.read(CHUNK), b"")
        else:
            chunks = source.chunks()
        files = stack.enter_context(Replacement(sources))
        try:
            files.write(Path(path), chunks)
        except OSError as error:
            raise WriteError(f"cannot write '{path}': {error.strerror or error}") from error


class _Entry(NamedTuple):
    """An initializer with all ready that stands before its data, which follows or lies at `offset` of the data file."""

    weight: Weight  # the initializer
    lead: bytes  # what stands before the data, tag and length of the whole included
    length: int  # of all that is in the model's file, the data included where it follows
    offset: int = -1  # where the data is in the data file; negative where it follows

    @classmethod
    def of(cls, weight: Weight, location: str = "", offset: int = -1) -> "_Entry":
        """Return an initializer whose data follows, or lies in the data file of that name."""
        proto, size = weight.header(), 0 if location else weight.size
        if location:
            proto.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", location), ("offset", offset), ("length", weight.size)):
                proto.external_data.add(key=key, value=str(value))
        header = proto.SerializeToString(deterministic=True)
        if not (location or weight.is_string):
            header += opening(TENSOR_RAW_DATA, size)
        lead = opening(GRAPH_INITIALIZER, len(header) + size) + header
        return cls(weight, lead, len(lead) + size, offset)


class _Plan(NamedTuple):
    """All that is to be written, with all lengths known."""

    head: bytes
    graph: bytes
    entries: list[_Entry]
    graph_length: int
    external: bool

    @classmethod
    def of(
        cls,
        proto: onnx.ModelProto,
        weights: list[Weight],
        location: str = "",
    ) -> "_Plan":
        entries, end = [], 0
        for weight in weights:
            if location and weight.size >= EXTERNAL:
                step = GRANULE if weight.size >= 16 * GRANULE else PAGE
                offset = -(-end // step) * step
                end = offset + weight.size
                entries.append(_Entry.of(weight, location, offset))
            else:
                entries.append(_Entry.of(weight))
        shell = deepcopy(proto)
        shell.ClearField("graph")
        head, graph = (message.SerializeToString(deterministic=True) for message in (shell, proto.graph))
        return cls(head, graph, entries, len(graph) + sum([entry.length for entry in entries]), end > 0)

    @property
    def length(self) -> int:
        return len(self.head) + len(opening(MODEL_GRAPH, self.graph_length)) + self.graph_length

    def model(self) -> Iterator[bytes | memoryview]:
        yield self.head
        yield opening(MODEL_GRAPH, self.graph_length)
        yield self.graph
        for entry in self.entries:
            yield entry.lead
            if entry.offset < 0:
                yield from _measured(entry.weight)

    def data(self) -> Iterator[bytes | memoryview]:
        end = 0
        for entry in self.entries:
            if entry.offset >= 0:
                yield bytes(entry.offset - end)
                yield from _measured(entry.weight)
                end = entry.offset + entry.weight.size


def _measured(weight: Weight) -> Iterator[bytes | memoryview]:
    """Yield the weight's data; WriteError if it is not as long as the lengths before it say."""
    if weight.is_string:
        return
    length = 0
    for chunk in weight.chunks():
        length += len(chunk)
        yield chunk
    if length != weight.size:
        raise WriteError(wrong_length(weight, length))
