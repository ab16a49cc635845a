"""A model in two parts: the proto of everything but the weights, and the weights one by one."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import NamesError, WriteError, nearest_values
from relayout.formats.onnx import wire
from relayout.formats.onnx.wire import LIMIT
from relayout.formats.stored import CHUNK, StoredArray, nbytes
from relayout.graph.facts import copy_facts, facts_of
from relayout.graph.subgraphs import all_nodes, graph_values, reads
from relayout.graph.walks import reached
from relayout.layout.stored_as import TENSOR

ANNOTATION = "quant_parameter_tensor_names"
"""Under this key of a value's `meta` onnx-ir keeps the value's `quantization_annotation`."""
MAP = "relayout.map"
"""In the `meta` of an input or output that holds maps (what a classifier of scikit-learn gives): its type, as a proto,
since onnx-ir has none for it."""
CONSTANTS = 4  # version of the format from which on an initializer need not be an input


class Weight(NamedTuple):
    """An initializer: what its TensorProto says, and its data on demand."""

    value: ir.Value  # the initializer
    tensor: ir.TensorProtocol  # its elements
    dtype: ir.DataType  # their type. Strings have no raw data: they are serialized as a whole.
    dims: tuple[int, ...]  # its shape
    size: int  # bytes of the raw data

    @classmethod
    def of(cls, value: ir.Value, tensor: ir.TensorProtocol) -> "Weight":
        """Return an initializer with a tensor."""
        dtype, dims = tensor.dtype, tuple(tensor.shape.numpy())
        return cls(value, tensor, dtype, dims, 0 if dtype == ir.DataType.STRING else nbytes(dtype, dims))

    @property
    def is_string(self) -> bool:
        """Tell whether it has no raw data."""
        return self.dtype == ir.DataType.STRING

    def header(self) -> onnx.TensorProto:
        """Return the TensorProto without its data; strings with theirs."""
        proto = onnx.TensorProto(name=self.value.name or "", data_type=self.dtype.value, dims=self.dims)
        if self.is_string:
            proto.string_data.extend(self.tensor.numpy().reshape(-1))
        if self.tensor.doc_string:
            proto.doc_string = self.tensor.doc_string
        for key in sorted(self.tensor.metadata_props):
            proto.metadata_props.add(key=key, value=self.tensor.metadata_props[key])
        return proto

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Return the raw data in pieces."""
        return raw_chunks(self.tensor, self.size)


def raw_chunks(
    tensor: ir.TensorProtocol,  # no tensor of strings
    size: int,  # how many bytes that are
) -> Iterator[bytes | memoryview]:
    """Yield a tensor's raw data: of a lazy one its value, of one in a file a chunk at a time, and nothing twice."""
    raw = getattr(tensor, "raw", None)
    if isinstance(raw, StoredArray):
        yield from raw.chunks()
    elif tensor.dtype.bitwidth < 8 or size <= CHUNK:
        yield tensor.tobytes()
    else:
        strided = getattr(tensor, "strided", None)  # of one that is re-laid a piece at a time is copied
        yield from _array_chunks(tensor.numpy() if strided is None else strided())


def _version(model: ir.Model) -> int:
    """Return the version of the format: 4 at least where an initializer is no input, which runtimes refuse before."""
    version = model.ir_version or CONSTANTS
    only = (value for value in model.graph.initializers.values() if not value.is_graph_input())
    return version if version >= CONSTANTS or next(only, None) is None else CONSTANTS


def split(model: ir.Model, *, inferred: bool = False) -> tuple[onnx.ModelProto, list[Weight]]:
    """Return the proto without the main graph's initializers, and these in the graph's order.

    Equal models give equal protos: opsets are sorted, metadata is sorted, all else is in the model's own order. The
    types of initializers are not repeated as value_info, as onnx-ir would do; metadata on their values is kept.

    Args:
        model: the model.
        inferred: whether interior values have the types and shapes that were inferred, where the model's source states
            none (`ModelFacts.states_no_shapes`).
    """
    graph = model.graph
    domains = sorted(graph.opset_imports)
    view = ir.GraphView(
        graph.inputs,
        graph.outputs,
        nodes=graph,
        doc_string=graph.doc_string,
        opset_imports={domain: graph.opset_imports[domain] for domain in domains},
        name=graph.name,
        metadata_props=dict(graph.metadata_props),
    )
    shell = ir.Model(
        view,  # type: ignore[arg-type]  # documented: a model can be made of a view, to serialize it
        ir_version=_version(model),
        **_frame(model),
    )
    if hasattr(model, "device_configurations"):
        shell.device_configurations = model.device_configurations
    try:
        with _hidden(model, inferred=inferred):
            proto = ir.to_proto(shell)
    except Exception as error:  # what onnx-ir raises on a model that cannot be serialized has many types
        raise WriteError(f"the model cannot be serialized: {one_line(error)}") from error
    _complete_calls(proto)
    for stated, value in zip((*proto.graph.input, *proto.graph.output), (*graph.inputs, *graph.outputs), strict=True):
        if value is not None and MAP in value.meta:
            stated.type.CopyFrom(value.meta[MAP])
    weights = []
    inputs = {id(value) for value in graph.inputs}
    for name, value in graph.initializers.items():
        if value.const_value is None:
            raise WriteError(f"initializer '{name}' has no data")
        weights.append(Weight.of(value, value.const_value))
        if id(value) not in inputs:
            _keep_notes(proto.graph, value)
    _drop_annotations(proto.graph, {weight.value.name for weight in weights})
    return proto, weights


def holds_map(kind: onnx.TypeProto) -> bool:
    """Tell whether values of a type are maps, or sequences of them."""
    which = kind.WhichOneof("value")
    if which in ("sequence_type", "optional_type"):
        return holds_map(getattr(kind, which).elem_type)
    return bool(which == "map_type")


def _drop_annotations(graph: onnx.GraphProto, weights: set[str | None]) -> None:
    """Leave out what a part of a graph says of values with tensors that are in another part."""
    if not graph.quantization_annotation:
        return
    there = weights | {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    remaining_entries = [
        entry
        for entry in graph.quantization_annotation
        if there.issuperset({entry.tensor_name, *(each.value for each in entry.quant_parameter_tensor_names)})
    ]
    del graph.quantization_annotation[:]
    graph.quantization_annotation.extend(remaining_entries)


@contextmanager
def _hidden(model: ir.Model, *, inferred: bool) -> Iterator[None]:
    """Within it, values have no types and shapes that the file of a model does not state.

    1. A value of an unknown type has no shape: a file has no place for one, and onnx-ir warns of it.
    2. Where the model's source states none, nor have values of the main graph, but where nobody else infers them. A
       runtime that knows more shapes of a result than of its source fuses other operators, slower ones at times. In the
       body of a Loop ONNX does not see a shape that is a constant of the graph around it.
    """
    nodes = chain(all_nodes(model.graph), *(all_nodes(function) for function in model.functions.values()))
    untyped = [value for node in nodes for value in node.outputs if value.type is None and value.shape is not None]
    is_silent = facts_of(model).states_no_shapes and not inferred
    inferred_nodes = [node for node in model.graph if not node.domain or node.op_identifier() in model.functions]
    silent = [value for node in inferred_nodes for value in node.outputs if is_silent and not value.is_graph_output()]
    hidden = [(value, value.type, value.shape) for value in (*untyped, *silent)]
    try:
        for value, _, _ in hidden:
            value.shape = None
        for value in silent:
            if not value.metadata_props and not value.doc_string:
                value.type = None
        yield
    finally:
        for value, kind, shape in hidden:
            value.type, value.shape = kind, shape


def _complete_calls(proto: onnx.ModelProto) -> None:
    """Give calls of functions the last outputs that nobody reads, under empty names; onnx-ir leaves them out.

    Of an operator of the standard that is the same. A call needs as many outputs as its function has: shape inference
    and ONNX Runtime refuse another.
    """
    counts = {(f.domain, f.name, f.overload): len(f.output) for f in proto.functions}
    for owner in (proto.graph, *proto.functions) if counts else ():
        for node in wire.all_nodes(owner.node):
            missing = counts.get((node.domain, node.op_type, node.overload), 0) - len(node.output)
            node.output.extend([""] * missing)


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Return the model as one proto, all weights in it.

    Raises:
        WriteError: the model cannot be serialized, or is above protobuf's 2 GiB.
    """
    proto, weights = split(model)
    if sum(weight.size for weight in weights) > LIMIT:
        raise WriteError("the model is above 2 GiB, more than one proto can hold; write it to a file instead")
    for weight in weights:
        tensor = weight.header()
        if not weight.is_string:
            tensor.raw_data = b"".join(weight.chunks())
            if len(tensor.raw_data) != weight.size:
                raise WriteError(wrong_length(weight, len(tensor.raw_data)))
        proto.graph.initializer.append(tensor)
    return proto


def wrong_length(weight: Weight, length: int) -> str:
    """Return what to say when a tensor's data is not what its type and shape promise."""
    stated = f"{weight.dtype.name}{list(weight.dims)}"
    return f"initializer '{weight.value.name}' is {stated}, {weight.size} bytes, and gave {length}"


def one_line(error: BaseException, most: int = 300) -> str:
    """Return the innermost cause of an error, in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= most else text[: most - 1] + "…"


def _keep_notes(graph: onnx.GraphProto, value: ir.Value) -> None:
    if value.metadata_props or value.doc_string:
        graph.value_info.append(ir.serde.serialize_value(value))
    if annotation := value.meta.get(ANNOTATION):
        entry = graph.quantization_annotation.add(tensor_name=value.name)
        for key in sorted(annotation):
            entry.quant_parameter_tensor_names.add(key=key, value=annotation[key])


def _array_chunks(array: NDArray[Any]) -> Iterator[memoryview]:
    """Yield a large array's bytes, little-endian and in C order; only what is not already so is copied, in slices."""
    if sys.byteorder == "big" and array.dtype.byteorder != "<":
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.flags.c_contiguous:
        flat = array.reshape(-1).view(np.uint8).data
        yield from (flat[start : start + CHUNK] for start in range(0, len(flat), CHUNK))
        return
    rows = max(1, CHUNK // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), rows):
        part = np.ascontiguousarray(array[start : start + rows])
        yield part.reshape(-1).view(np.uint8).data


# A part of an ONNX graph: what lies between named values.


def cut(
    model: ir.Model,  # completed, so that types and shapes are known where they can be
    inputs: Sequence[str] | None,  # names of values of the main graph: its inputs, or interior values
    outputs: Sequence[str] | None,  # likewise
) -> ir.Model:
    """Return the part of a model that computes `outputs` from `inputs`.

    1. Without `outputs` the part ends where the model does; without `inputs` it begins there.
    2. `inputs` come first, in the order given. An input of the model that the part needs besides stays an input.
    3. What none of the outputs needs is dropped.

    Raises:
        NamesError: a name is unknown, inside a subgraph, given twice or on both sides, an output of the part is of
            unknown type or a constant, or an input cannot be one: a constant, of unknown type or rank, or not what any
            of the outputs is computed from.
    """
    graph = model.graph
    known = _known(graph)
    starts = [_find(model, known, "inputs", name) for name in once("inputs", inputs or ())]
    ends = [_find(model, known, "outputs", name) for name in once("outputs", outputs or ())] or list(graph.outputs)
    for value, name in zip(starts, inputs or (), strict=True):
        _check_start(value, name, ends)
    for value, name in zip(ends, outputs or (), strict=False):
        _check_end(value, name)
    read = _reached(graph, ends, set(starts))
    for value, name in zip(starts, inputs or (), strict=True):
        if value not in read and not value.is_graph_input():
            raise NamesError(f"--inputs {name}: none of the outputs is computed from it, or only through other inputs")
    starts += [value for value in graph.inputs if value in read and value not in starts and not value.is_initializer()]
    return _make_model(model, ir.convenience.extract(graph, [_entry(graph, value) for value in starts], ends))


def _check_end(value: ir.Value, name: str) -> None:
    """Refuse what cannot be an output: an input, too, unless the model itself gives it back."""
    if value.is_graph_input() and not value.is_graph_output():
        raise NamesError(f"--outputs {name}: it is an input of the model: nothing lies in between")
    if value.const_value is not None and not value.is_graph_output():
        raise NamesError(f"--outputs {name}: it is a constant")
    if value.type is None:
        raise NamesError(f"--outputs {name}: its type is not known, so it cannot be an output")


def _make_model(model: ir.Model, part: ir.Graph) -> ir.Model:
    """Return a part of a model's graph as a model with the same facts."""
    if facts_of(model).is_annotated:
        _keep_named(model.graph, part)
    result = ir.Model(
        part,
        ir_version=model.ir_version,
        **_frame(model),
    )
    copy_facts(model, result)
    return result


def _keep_named(graph: ir.Graph, part: ir.Graph) -> None:
    """The scales and zero points of the part's values, which no node need read."""
    values = [*part.inputs, *(value for node in part for value in node.outputs)]
    named = {name for value in values for name in value.meta.get(ANNOTATION, {}).values()}
    for name, value in graph.initializers.items():
        if name in named and name not in part.initializers:
            parameter = ir.Value(name=name, type=value.type, shape=value.shape, const_value=value.const_value)
            part.register_initializer(parameter)


def once(side: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names; none may be there twice."""
    for i, name in enumerate(names):
        if name in names[:i]:
            raise NamesError(f"--{side}: {name!r} is given twice")
    return names


def _known(graph: ir.Graph) -> dict[str, ir.Value]:
    values = list(graph_values(graph))
    other = {value.metadata_props[TENSOR]: value for value in reversed(values) if TENSOR in value.metadata_props}
    return other | {value.name: value for value in reversed(values) if value.name}


def _find(model: ir.Model, known: dict[str, ir.Value], side: str, name: str) -> ir.Value:
    if (value := known.get(name)) is not None:
        return value
    for node in all_nodes(model.graph):
        if node.graph is not model.graph and any(output.name == name for output in node.outputs):
            raise NamesError(
                f"--{side} {name}: the value lies inside the body of another operator; a cut goes around it"
            )
    computed = (each for each, known_value in known.items() if known_value.const_value is None)
    raise NamesError(f"--{side} {name}: the model has no value of that name{nearest_values(name, computed)}")


def _check_start(value: ir.Value, name: str, ends: list[ir.Value]) -> None:
    if value.is_initializer() and not value.is_graph_input():
        raise NamesError(f"--inputs {name}: it is a constant")
    if any(value is end for end in ends):
        raise NamesError(f"{name!r} is an input and an output of the part: nothing lies in between")
    if value.type is None or value.dtype is None or value.shape is None:
        raise NamesError(f"--inputs {name}: its type and rank are not known, so it cannot be an input")


def _reached(graph: ir.Graph, ends: Iterable[ir.Value], starts: set[ir.Value]) -> set[ir.Value]:
    """Return every value that the ends are computed from, not looking beyond the starts."""

    def operands(value: ir.Value) -> list[ir.Value]:
        node = value.producer()
        return [] if value in starts or node is None else [each for each in reads(node) if each.graph is graph]

    return set(reached(ends, operands))


def _entry(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """An input in the place of an interior value. What makes that value may stay for other results of its own."""
    if value.is_graph_input():
        return value
    dims = [
        dim if isinstance(dim, int) or dim.value is not None else f"{value.name}_{axis}"
        for axis, dim in enumerate(value.shape or ())
    ]
    entry = ir.Value(name=value.name, type=value.type, shape=ir.Shape(dims), doc_string=value.doc_string)
    entry.metadata_props.update(value.metadata_props)
    entry.meta.update({key: said for key, said in value.meta.items() if key == ANNOTATION})
    output_names = {other.name for node in all_nodes(graph) for other in node.outputs}
    value.name = next(name for k in count() if (name := f"{entry.name}__unread{k or ''}") not in output_names)
    value.replace_all_uses_with(entry, replace_graph_outputs=True)
    graph.inputs.append(entry)
    return entry


def _frame(model: ir.Model) -> dict[str, Any]:
    """Return what a model says beside its graph and the version of the IR."""
    return {
        "producer_name": model.producer_name,
        "producer_version": model.producer_version,
        "domain": model.domain,
        "model_version": model.model_version,
        "doc_string": model.doc_string,
        "functions": tuple(model.functions.values()),
        "metadata_props": dict(model.metadata_props),
    }
