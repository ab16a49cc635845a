"""Dynamic dimensions of a model, fixed to numbers or given the names of others, wherever the model states them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, nearest_name
from relayout.formats.onnx.wire import LENGTH, MODEL_GRAPH, Field, bodies_of, fields, opening
from relayout.formats.stored import CHUNK, FileWindow, open_stored
from relayout.graph.facts import facts_of
from relayout.graph.subgraphs import all_graphs
from relayout.layout import Dim, Extent, product
from relayout.layout.expressions import names_in, replace_names
from relayout.layout.stored_as import STATED

NAMELESS = "?"  # the beginning of names that a report gives to dimensions without one in the model
MOST_NAMED = 10  # dimensions that an error names


def fix_dims(
    model: ir.Model,  # the model; what follows from a dimension is to be inferred afterwards
    dims: Mapping[str, Dim],  # name -> an extent, or another name
) -> frozenset[str]:
    """Fix dynamic dimensions, in place: in the main graph, in the bodies of its nodes, and in functions.

    A name may be a product, a quotient, or any expression of names that are dimensions themselves:

        h=224: [1, 3, h, ((h-1)//2)+1] -> [1, 3, 224, 112]

    Returns:
        The names of all dynamic dimensions that the model had.
    """
    values = list(_values(model))
    texts = {text for value in values for shape in _shapes(value) for text in _texts(shape)}
    own = frozenset(name for text in texts for name in Extent.of(text).names)
    known = own.union(*(names for text in texts if (names := names_in(text)) <= own))
    for value in values if not known.isdisjoint(dims) else ():
        if value.shape is not None:
            value.shape = _fixed_shape(value.shape, dims, own)
        if value.meta.get(STATED) is not None:
            value.meta[STATED] = _fixed_shape(value.meta[STATED], dims, own)
    return known


def check_dims(
    model: ir.Model,
    dims: Mapping[str, Dim],  # name -> an extent, or another name
    known: frozenset[str],  # the names that the model has
) -> None:
    """Check what a user wants of dynamic dimensions.

    Raises:
        LayoutError: no such dimension, an extent below 1, or the name of a dimension that is given another extent.
    """
    for name, extent in dims.items():
        if name not in known:
            raise LayoutError(f"dimension {name}: {_why_unknown(model, name, extent, known)}")
        if extent in dims:
            raise LayoutError(f"dimension {name}={extent}: {extent} becomes {dims[str(extent)]}; give {name} that, too")
        if not isinstance(extent, str) and extent < 1:
            raise LayoutError(f"dimension {name}={extent}: an extent is at least 1")


def check_at(
    model: ir.Model,
    at: Mapping[str, int],  # name -> an extent
    declared: Iterable[str],  # the extents that the inputs state
) -> None:
    """Check the dynamic dimensions that bytes are to be counted at.

    Raises:
        LayoutError: the inputs have no such dimension.
    """
    known = frozenset(name for text in declared for name in Extent.of(text).names | names_in(text))
    known = frozenset(name for name in known if not name.isdecimal())
    if not known:
        raise LayoutError(f"at {', '.join(at)}: no input has a dynamic dimension, so all bytes are known")
    for name, extent in at.items():
        if name not in known:
            raise LayoutError(f"at {name}={extent}: {_why_unknown(model, name, extent, known)}")


def _why_unknown(model: ir.Model, name: str, extent: Dim, known: frozenset[str]) -> str:
    """Return what to say of a name that no dimension has, and how to ask for what may be meant."""
    if name.startswith(NAMELESS):
        places = [
            f"{value.name}:{axis}={extent}"
            for value in model.graph.inputs
            for axis, dim in enumerate(value.shape or ())
            if isinstance(dim, ir.SymbolicDim) and dim.value is None
        ]
        advice = f"{_first(places)} names one of an input by its place" if places else "no input has one"
        return f"so a report calls a dimension without a name in the model; {advice}"
    if not known:
        return (
            "the model has no dimension of that name (dynamic dimensions: none);"
            f" --batch {extent} (in Python batch={extent!r}) or --dim INPUT:AXIS={extent}"
            f" (dims={{'INPUT:AXIS': {extent!r}}}) opens one that is fixed"
        )
    texts = [text for value in model.graph.inputs for shape in _shapes(value) for text in _texts(shape)]
    of_inputs = [each for text in texts for each in sorted(Extent.of(text).names | names_in(text)) if each in known]
    names = list(dict.fromkeys([*of_inputs, *sorted(known)]))
    near = nearest_name(name, names)
    meant = "" if near is None else f"; did you mean {near!r}?"
    return f"the model has no dimension of that name{meant} (dynamic dimensions: {_first(names)})"


def _first(names: Sequence[str]) -> str:
    """Return a list of names, of which many are counted."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def state_results(model: ir.Model) -> None:
    """Let the outputs of a model with fixed dimensions state the extents that follow from these, in place."""
    for value in model.graph.outputs:
        stated, inferred = value.meta.get(STATED), value.shape
        if stated is not None and inferred is not None and len(stated) == len(inferred):
            pairs = zip(stated, inferred, strict=True)
            value.meta[STATED] = ir.Shape([b if isinstance(b, int) else a for a, b in pairs])


# Complexity: each kind of extent that an output may state is one guard of two nested loops.
def state_names(
    model: ir.Model,  # its shapes are inferred
    *,
    # whether an extent that is no such name, and does not follow from the inputs as a number, is open, too
    opens: bool,
) -> list[str]:
    """Let outputs state the names that their extents have on the inputs, where they state numbers, in place.

    Exporters leave the length of their example there. A runtime that believes it runs at that length alone.

    Returns:
        A sentence for the report about each such output.
    """
    known = {name for value in model.graph.inputs for text in _texts(value.shape or ()) for name in _names(text)}
    notes = []
    for value in model.graph.outputs if known else ():
        stated, inferred = value.meta.get(STATED), value.shape
        if stated is None or inferred is None or len(stated) != len(inferred) or value.is_graph_input():
            continue
        names = {
            axis: dim.value
            for axis, dim in enumerate(inferred)
            if isinstance(stated[axis], int) and isinstance(dim, ir.SymbolicDim) and dim.value
        }
        of_inputs = {axis: name for axis, name in names.items() if known.issuperset(_names(name))}
        names = names if opens else of_inputs
        if names:
            value.meta[STATED] = ir.Shape([names.get(axis, dim) for axis, dim in enumerate(stated)])
            extents = [f"{of_inputs.get(axis, 'open')} on axis {axis}, stated as {stated[axis]}" for axis in names]
            notes.append(f"extents of output {value.name} follow from the inputs: {'; '.join(extents)}")
    return notes


def _names(text: str) -> frozenset[str]:
    return Extent.of(text).names | names_in(text)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        for inner in all_graphs(graph):
            yield from inner.inputs
            yield from (value for node in inner for value in node.outputs)


def _shapes(value: ir.Value) -> Iterator[ir.Shape]:
    yield from (shape for shape in (value.shape, value.meta.get(STATED)) if shape is not None)


def _texts(shape: Iterable[int | ir.SymbolicDim]) -> Iterator[str]:
    yield from (dim.value for dim in shape if isinstance(dim, ir.SymbolicDim) and dim.value)


def _fixed_shape(shape: ir.Shape, dims: Mapping[str, Dim], own: frozenset[str]) -> ir.Shape:
    return ir.Shape([fixed_dim(dim, dims, own) for dim in shape])


def fixed_dim(
    dim: int | ir.SymbolicDim,  # the dimension
    dims: Mapping[str, Dim],  # name -> number, or another name
    own: frozenset[str],  # names of dimensions that are no expressions of others
) -> int | str | ir.SymbolicDim:
    """Return a dimension as it is with others fixed."""
    if isinstance(dim, int) or not dim.value:
        return dim
    extent = Extent.of(dim.value).fixed(dims)
    factors = [Extent.of(_replaced(symbol, dims, own)) for symbol in extent.symbols]
    extent = Extent(extent.number) * product(factors)
    return extent.number if extent.is_static else str(extent)


def _replaced(symbol: str, dims: Mapping[str, Dim], own: frozenset[str]) -> Dim:
    names = names_in(symbol)
    return replace_names(symbol, dims) if names <= own and not names.isdisjoint(dims) else symbol


# A source file with dimensions fixed, and nothing else changed: as if its exporter had written the numbers.
#
# The file is copied field by field. Fields that state types, and nodes with bodies, are written anew, each at its
# place; weights are never in memory.

MODEL_FUNCTION, GRAPH_NODE = 25, 1
GRAPH_TYPES = frozenset({11, 12, 13})  # field numbers of `GraphProto`: inputs, outputs, and types of interior values


class FixedSource:
    """An ONNX file without external data, with dimensions fixed.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        model: ir.Model,  # what was read of it, with the dimensions fixed and what follows from them inferred
        dims: Mapping[str, Dim],  # dynamic dimension -> its number, or the name of another
    ) -> None:
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
            if bodies := list(bodies_of([node])):
                for body in bodies:
                    self._fixed_inside(body)
                return _written(field, node)
        return field.begin, field.stop

    def _fixed_inside(self, graph: onnx.GraphProto | onnx.FunctionProto) -> onnx.GraphProto | onnx.FunctionProto:
        """Fix the types in a body or a function, in place: only by name, for it may have other values of one name."""
        ends = (*graph.input, *graph.output) if isinstance(graph, onnx.GraphProto) else ()
        for stated in (*ends, *graph.value_info):
            self._fixed(stated, None)
        for body in bodies_of(graph.node):
            self._fixed_inside(body)
        return graph

    def _fixed(
        self,
        stated: onnx.ValueInfoProto,  # a value's type
        shape: ir.Shape | None,  # the shape that was inferred, if that is known
    ) -> onnx.ValueInfoProto:
        """Fix the dimensions of a type, in place."""
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


def _tensors(kind: onnx.TypeProto) -> Iterator[onnx.TypeProto.Tensor]:
    """Yield the tensors of a type: one, or the elements of a sequence or an optional."""
    which = kind.WhichOneof("value")
    if which == "tensor_type":
        yield kind.tensor_type
    elif which in ("sequence_type", "optional_type"):
        yield from _tensors(getattr(kind, which).elem_type)
