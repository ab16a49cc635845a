"""A source file with dimensions fixed, and nothing else changed: as if its exporter had written the numbers.

The file is copied field by field. Fields that state types, and nodes with bodies, are written anew, each at its place;
weights are never in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from relayout.formats.onnx.fixing import fixed_dim
from relayout.formats.onnx.wire import LENGTH, MODEL_GRAPH, Field, fields, opening
from relayout.formats.stored import CHUNK, FileWindow, open_stored
from relayout.graph.facts import facts_of
from relayout.layout import Dim
from relayout.layout.stored_as import STATED

MODEL_FUNCTION, GRAPH_NODE = 25, 1
GRAPH_TYPES = frozenset({11, 12, 13})
"""Field numbers of `GraphProto`: inputs, outputs, and types of interior values."""


class FixedSource:
    """An ONNX file without external data, with dimensions fixed.

    Args:
        path: the file.
        model: what was read of it, with the dimensions fixed and what follows from them inferred.
        dims: dynamic dimension -> its number, or the name of another.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path, model: ir.Model, dims: Mapping[str, Dim]) -> None:
        self._file = open_stored(path)
        self._dims, self._own = dims, facts_of(model).fixed_dims
        values = (*model.graph.inputs, *(value for node in model.graph for value in node.outputs))
        self._known = {value.name: value.meta.get(STATED) or value.shape for value in values}
        self._pieces: list[bytes | tuple[int, int]] = []
        buffer = FileWindow(self._file)
        for field in fields(buffer, 0, len(buffer)):
            if (field.number, field.kind) == (MODEL_GRAPH, LENGTH):
                inner = [self._of_graph(buffer, each) for each in fields(buffer, field.start, field.stop)]
                self._pieces += [opening(MODEL_GRAPH, sum(map(_size, inner))), *inner]
            elif (field.number, field.kind) == (MODEL_FUNCTION, LENGTH):
                function = onnx.FunctionProto.FromString(bytes(buffer[field.start : field.stop]))
                self._pieces.append(_written(field, self._fixed_inside(function)))
            else:
                self._pieces.append((field.begin, field.stop))

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of the file, some at a time.

        Raises:
            ReadError: the source has been written to meanwhile.
        """
        for piece in self._pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            begin, stop = piece
            for start in range(begin, stop, CHUNK):
                yield self._file.read(start, min(CHUNK, stop - start))

    def _of_graph(self, buffer: FileWindow, field: Field) -> bytes | tuple[int, int]:
        """Return a field of the main graph: anew where it states types, else where it stands."""
        if field.kind == LENGTH and field.number in GRAPH_TYPES:
            stated = onnx.ValueInfoProto.FromString(bytes(buffer[field.start : field.stop]))
            return _written(field, self._fixed(stated, self._known.get(stated.name)))
        if field.kind == LENGTH and field.number == GRAPH_NODE:
            node = onnx.NodeProto.FromString(bytes(buffer[field.start : field.stop]))
            bodies = list(_bodies(node.attribute))
            if bodies:
                for body in bodies:
                    self._fixed_inside(body)
                return _written(field, node)
        return field.begin, field.stop

    def _fixed_inside(self, graph: onnx.GraphProto | onnx.FunctionProto) -> onnx.GraphProto | onnx.FunctionProto:
        """Fix the types in a body or a function, in place: only by name, for it may have other values of one name."""
        ends = (*graph.input, *graph.output) if isinstance(graph, onnx.GraphProto) else ()
        for stated in (*ends, *graph.value_info):
            self._fixed(stated, None)
        for body in _bodies(attribute for node in graph.node for attribute in node.attribute):
            self._fixed_inside(body)
        return graph

    def _fixed(self, stated: onnx.ValueInfoProto, shape: ir.Shape | None) -> onnx.ValueInfoProto:
        """Fix the dimensions of a type, in place.

        Args:
            stated: a value's type.
            shape: the shape that was inferred, if that is known.
        """
        for kind in _tensors(stated.type):
            fits = shape is not None and len(shape) == len(kind.shape.dim)
            for axis, dim in enumerate(kind.shape.dim):
                if dim.dim_param:
                    self._fix(dim, shape[axis] if fits and shape is not None else None)
        return stated

    def _fix(self, dim: onnx.TensorShapeProto.Dimension, inferred: int | ir.SymbolicDim | None) -> None:
        stated = ir.SymbolicDim(dim.dim_param)
        fixed = inferred if isinstance(inferred, int) else fixed_dim(stated, self._dims, self._own)
        if isinstance(fixed, int):
            dim.dim_value = fixed
        else:
            dim.dim_param = str(fixed.value if isinstance(fixed, ir.SymbolicDim) else fixed)


def _written(
    field: Field, message: onnx.ValueInfoProto | onnx.NodeProto | onnx.GraphProto | onnx.FunctionProto
) -> bytes:
    """Return a field with another message."""
    content: bytes = message.SerializeToString(deterministic=True)
    return opening(field.number, len(content)) + content


def _size(piece: bytes | tuple[int, int]) -> int:
    return len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]


def _bodies(attributes: Iterable[onnx.AttributeProto]) -> Iterator[onnx.GraphProto]:
    for attribute in attributes:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensors(kind: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    """Yield the tensors of a type: one, or the elements of a sequence or an optional."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        yield kind.tensor_type
    elif which in ("sequence_type", "optional_type"):
        yield from _tensors(getattr(kind, which).elem_type)
