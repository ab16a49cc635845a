"""A source with dimensions fixed, and nothing else changed: as if its exporter had written the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import onnx
import onnx_ir as ir

from relayout.formats.onnx.fixing import fixed_dim
from relayout.graph.facts import facts_of
from relayout.layout import Dim
from relayout.layout.stored_as import STATED

_Graph = onnx.GraphProto | onnx.FunctionProto


def fixed_source(source: Path | onnx.ModelProto, model: ir.Model, dims: Mapping[str, Dim]) -> onnx.ModelProto:
    """Return a source with the numbers and names of fixed dimensions wherever it states these.

    Args:
        source: an ONNX file without external data, or a model in memory, which is not changed.
        model: what was read of it, with the dimensions fixed and what follows from them inferred.
        dims: dynamic dimension -> its number, or the name of another.
    """
    proto = onnx.ModelProto()
    if isinstance(source, Path):
        proto.ParseFromString(source.read_bytes())
    else:
        proto.CopyFrom(source)
    known = {value.name: value for value in (*model.graph.inputs, *(v for node in model.graph for v in node.outputs))}
    own = facts_of(model).fixed_dims
    for graph, stated in _stated(proto.graph, *proto.functions):
        value = known.get(stated.name) if graph is proto.graph else None  # bodies may have other values of that name
        shape = None if value is None else value.meta.get(STATED) or value.shape
        for kind in _tensors(stated.type):
            inferred = list(shape or ()) if shape is not None and len(shape) == len(kind.shape.dim) else []
            for axis, dim in enumerate(kind.shape.dim):
                if dim.dim_param:
                    _fix(dim, inferred[axis] if inferred else None, dims, own)
    return proto


def _fix(
    dim: onnx.TensorShapeProto.Dimension,
    inferred: int | ir.SymbolicDim | None,
    dims: Mapping[str, Dim],
    own: frozenset[str],
) -> None:
    fixed = inferred if isinstance(inferred, int) else fixed_dim(ir.SymbolicDim(dim.dim_param), dims, own)
    if isinstance(fixed, int):
        dim.dim_value = fixed
    else:
        dim.dim_param = str(fixed.value if isinstance(fixed, ir.SymbolicDim) else fixed)


def _stated(*graphs: _Graph) -> Iterator[tuple[_Graph, onnx.ValueInfoProto]]:
    """Yield every statement of a type with its graph, in bodies, too."""
    for graph in graphs:
        if isinstance(graph, onnx.GraphProto):
            yield from ((graph, value) for value in (*graph.input, *graph.output))
        yield from ((graph, value) for value in graph.value_info)
        for node in graph.node:
            yield from _stated(*_bodies(node.attribute))


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
