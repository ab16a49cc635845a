"""Constants of a file: decoded once, kept beside it, sparse, or under names that a runtime's optimizer gave them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray
from onnx import numpy_helper

from relayout.errors import ReadError
from relayout.formats.onnx.parts import ANNOTATION
from relayout.formats.onnx.structure import MOST_ELEMENTS, check_data, shape_of
from relayout.formats.onnx.wire import graphs_in
from relayout.formats.stored import StoredFile, nbytes, stored_tensor
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs, graph_values

# Tensors of a file that are decoded once, though many ask for them.

MOST = 1 << 12  # elements of a tensor up to which they are kept


class CachedTensor(ir.TensorProtoTensor):
    """A tensor of a proto that keeps its type and shape, and a small one its elements, too."""

    __slots__ = ("_elements", "_kept_dtype", "_kept_shape")

    def __init__(self, tensor: ir.TensorProtoTensor) -> None:
        super().__init__(tensor.raw)
        self._kept_dtype, self._kept_shape = tensor.dtype, tensor.shape
        self._elements: NDArray[Any] | None = None

    @property
    def dtype(self) -> ir.DataType:  # type: ignore[override]  # a property there, too
        """The type of its elements."""
        return self._kept_dtype

    @property
    def shape(self) -> ir.Shape:  # type: ignore[override]  # a property there, too
        """Its extents."""
        return self._kept_shape

    def numpy(self) -> NDArray[Any]:
        """Return the elements, which nobody may write to."""
        if self._elements is not None:
            return self._elements
        elements: NDArray[Any] = np.asarray(super().numpy())
        if elements.size <= MOST:
            elements.flags.writeable = False
            self._elements = elements
        return elements


# External data: which file a model may name, and where in it a tensor lies.
#
# A model is data from somebody else, and its `location` is a path. It is followed only if the file it leads to, with
# all links resolved, lies in the model's own directory and has no second name elsewhere. One exception: the cache of
# the Hugging Face Hub keeps `snapshots/<revision>/model.onnx_data -> ../../blobs/<hash>`, and those links work.

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class DataFiles:
    """The files that external tensors of one model may lie in; each is checked and opened once."""

    def __init__(self, model: Path) -> None:
        here, real = model.parent, Path(os.path.realpath(model)).parent
        # A model reached through a link of the user's own is accompanied by its data where it really is.
        self._directories = [here] if os.path.realpath(here) == str(real) else [here, real]
        self._open: dict[str, StoredFile] = {}

    @property
    def descriptors(self) -> list[int]:
        """The files that were opened."""
        return [file.descriptor for file in self._open.values()]

    def tensor(self, external: ir.ExternalTensor) -> ir.TensorProtocol:
        """Return the same tensor, of a file that was checked."""
        where = f"external data of '{external.name}'"
        shape = external.shape.numpy()
        length = nbytes(external.dtype, shape)
        offset = external.offset or 0
        if external.length not in (None, 0, length) or length > MOST_ELEMENTS:
            raise ReadError(
                f"{external.dtype.name}{list(shape)} needs {length} bytes, not {external.length} at {offset}",
                where=where,
            )
        file = self._file(os.fspath(external.location), where)
        if offset + length > file.size:
            raise ReadError(
                f"'{file.name}' has {file.size} bytes, and bytes {offset} to {offset + length} are asked for",
                where=where,
                hint="the file is incomplete; download or export it again",
            )
        tensor = stored_tensor(file, offset, external.dtype, shape, external.name)
        tensor.doc_string = external.doc_string
        tensor.metadata_props.update(external.metadata_props)
        return tensor

    def _file(self, location: str, where: str) -> StoredFile:
        if location in self._open:
            return self._open[location]
        windows = PureWindowsPath(location)
        is_absolute = PurePosixPath(location).is_absolute() or windows.drive or windows.root
        if not windows.parts or ".." in windows.parts or "\0" in location or is_absolute:
            raise ReadError(f"'{location}' is not a path inside the model's directory", where=where)
        for directory in self._directories:
            if os.path.lexists(directory / location):
                self._open[location] = _open(directory, location, where)
                return self._open[location]
        raise ReadError(
            f"'{location}' is not in '{self._directories[-1]}'",
            where=where,
            hint="put it beside the model, under this name",
        )


def _open(directory: Path, location: str, where: str) -> StoredFile:
    real = Path(os.path.realpath(directory / location))
    base = Path(os.path.realpath(directory))
    if not real.is_relative_to(base) and not _is_hub_blob(base, real):
        raise ReadError(f"'{location}' leads out of the model's directory, to '{real}'", where=where)
    if real == base:
        raise ReadError(f"'{location}' is not a regular file", where=where)
    try:
        # Without following a link put there since, and without waiting for a pipe's other end.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = _descend(base if real.is_relative_to(base) else real.parent, real, flags)
    except OSError as error:
        raise ReadError(f"'{location}' cannot be opened: {error.strerror}", where=where) from None
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ReadError(f"'{location}' is not a regular file", where=where)
        if status.st_nlink > 1:
            raise ReadError(
                f"'{location}' is a file with {status.st_nlink} names (hard links)", where=where, hint="copy it instead"
            )
        undo.pop_all()
    return StoredFile(descriptor, location)


def _descend(base: Path, real: Path, flags: int) -> int:
    """Open `real`, a directory at a time from `base` on: none of them can have become a link since the check."""
    if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
        return os.open(real, flags)
    *folders, name = real.relative_to(base).parts
    here = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


def _is_hub_blob(base: Path, real: Path) -> bool:
    """Is `base` inside `<repository>/snapshots/<revision>` and `real` a `<repository>/blobs/<hash>`?"""
    repository = real.parent.parent
    return (
        real.parent.name == "blobs"
        and _HASH.fullmatch(real.name) is not None
        and base.is_relative_to(repository / "snapshots")
        and base != repository / "snapshots"
    )


# Sparse constants of a file, as dense ones: what a layout is of, and what runtimes make of them, too.

INDICES = (onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.INT16, onnx.TensorProto.INT8)
"""Element types of places: ONNX has the first alone, and ONNX Runtime writes the shortest that will do."""
MOST_BYTES = 1 << 30  # of a sparse constant once it is dense: a file of a few bytes may state any shape


def make_dense(model: onnx.ModelProto) -> None:
    """Store sparse initializers and sparse Constants dense, in place.

    Raises:
        ReadError: one has no data, or indices outside of its shape, or takes too much memory.
    """
    _graph(model.graph, "")
    for function in model.functions:
        _nodes(function.node, f"function '{function.name}', ")


def _graph(graph: onnx.GraphProto, place: str) -> None:
    for sparse in graph.sparse_initializer:
        graph.initializer.append(_dense(sparse, f"{place}sparse initializer '{sparse.values.name}'"))
    graph.ClearField("sparse_initializer")
    _nodes(graph.node, place)


def _nodes(nodes: Iterable[onnx.NodeProto], place: str) -> None:
    for node in nodes:
        attributes = node.attribute
        for attribute in attributes if attributes else ():
            if attribute.name == "sparse_value" and node.op_type == "Constant":
                dense = _dense(attribute.sparse_tensor, f"{place}Constant '{node.name}'")
                attribute.CopyFrom(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=dense))
            for graph in graphs_in(attribute):
                _graph(graph, f"{place}{node.op_type} '{node.name}', attribute '{attribute.name}', ")


def _dense(sparse: onnx.SparseTensorProto, where: str) -> onnx.TensorProto:
    """The tensor, whose elements are given with their places: `v[n]`, and `i[n]` in the flat tensor or `i[n rank]`."""
    values, indices = sparse.values, sparse.indices
    shape = shape_of(onnx.TensorProto(dims=sparse.dims), where)
    for tensor in (values, indices):
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.HasField("segment"):
            raise ReadError("sparse, in a file of its own or in segments", where=where, hint="store it dense")
        check_data(tensor, where)
    numbers = values.data_type != onnx.TensorProto.STRING and len(values.dims) == 1
    if not numbers or indices.data_type not in INDICES:
        raise ReadError("sparse, but not of numbers in a list with their places", where=where, hint="store it dense")
    elements, places = numpy_helper.to_array(values), numpy_helper.to_array(indices)
    if math.prod(shape) * elements.dtype.itemsize > MOST_BYTES:
        raise ReadError(f"sparse, of the shape {list(shape)}: too large to be dense", where=where)
    extents = shape
    if places.shape == elements.shape:
        places, extents = places[:, None], (math.prod(shape),)
    elif places.shape != (elements.size, len(shape)):
        raise ReadError(f"{elements.size} elements with places of the shape {list(places.shape)}", where=where)
    if np.any((places < 0) | (places >= np.array(extents, np.int64))):
        raise ReadError(f"an element lies outside of the shape {list(shape)}", where=where)
    dense = np.zeros(extents, elements.dtype)
    dense[tuple(places.T)] = elements
    dense_tensor = numpy_helper.from_array(dense.reshape(shape))
    try:
        dense_tensor.name = values.name
    except UnicodeError:
        raise ReadError("a name that is not UTF-8", where=where) from None
    return dense_tensor


# Constants with names that the optimizer of a runtime gave them: it gives these names again.
#
# A model that an optimizer wrote holds constants such as `gemm_input_shape_token_18`. Whoever loads it optimizes it
# again: where a constant of that name lost its readers, a new one gets the name, and takes the other's data or is
# refused. Here each gets a name of its own, for good:
#
#     gemm_input_shape_token_18  ->  gemm_input_shape_constant_18

GENERATED = re.compile(r"_token_(?=\d)|_new_(?=shape$)")
"""What an optimizer puts between the name of a purpose and a number, or behind the name of a node."""


def rename_generated(model: ir.Model) -> int:
    """Give such constants other names, in place; inputs and outputs keep theirs.

    Returns:
        How many there were.
    """
    graphs = list(all_graphs(model.graph))
    constants = [
        value
        for graph in graphs
        for value in graph.initializers.values()
        if GENERATED.search(value.name or "") and not (value.is_graph_input() or value.is_graph_output())
    ]
    if not constants:
        return 0
    names = Names.of(model)
    renamed: dict[str, str] = {}
    for value in constants:
        before = value.name or ""
        renamed[before] = value.name = names.unique(GENERATED.sub("_constant_", before))
        if value.const_value is not None:
            value.const_value.name = value.name
    for value in (value for graph in graphs for value in graph_values(graph)):
        if annotation := value.meta.get(ANNOTATION):
            value.meta[ANNOTATION] = {key: renamed.get(name, name) for key, name in annotation.items()}
    return len(renamed)
