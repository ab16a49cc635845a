"""ONNX in: from a file, a proto or an IR model, to an IR model of our own whose weights are read when needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]

from relayout.errors import ReadError, in_file
from relayout.formats.bundle import HEAD
from relayout.formats.onnx import wire
from relayout.formats.onnx.atomic import known_files
from relayout.formats.onnx.checking import drop_contradicted
from relayout.formats.onnx.first_opsets import OLDEST, raise_first_opsets
from relayout.formats.onnx.inferring import is_settled
from relayout.formats.onnx.internal_nhwc import name_known
from relayout.formats.onnx.parts import MAP, holds_map, one_line
from relayout.formats.onnx.spelling import lift_tensors
from relayout.formats.onnx.structure import EXTERNAL_KEYS, check_data, check_structure, shape_of, tensors_in, type_of
from relayout.formats.onnx.tensors import CachedTensor, DataFiles, make_dense, rename_generated
from relayout.formats.onnx.wire import (
    GRAPH_INITIALIZER,
    LENGTH,
    MODEL_GRAPH,
    TENSOR_RAW_DATA,
    bodies_of,
    fields,
    opening,
)
from relayout.formats.recognition import ORTM, not_a
from relayout.formats.stored import FileWindow, StoredFile, content_of, nbytes, open_stored, stored_tensor
from relayout.graph.facts import add_facts, add_notes
from relayout.graph.subgraphs import all_graphs, all_nodes

# Types and shapes that a graph states of its values: what is stated alike is read once.
#
# A graph has far more values than types, and onnx-ir reads a type for each.

Types = Mapping[str, tuple[ir.TensorType, ir.Shape | None]]  # value -> its type and its shape


def take_types(graph: onnx.GraphProto) -> Types:
    """Take out of a graph what it states of values that are tensors, where it states nothing else of them."""
    known: dict[bytes, tuple[ir.TensorType, ir.Shape | None]] = {}
    types, others = {}, []
    for value in graph.value_info:
        kind = value.type
        if value.doc_string or value.metadata_props or not kind.HasField("tensor_type"):
            others.append(value)
            continue
        key = kind.SerializeToString()
        if key not in known:
            tensor = ir.serde.deserialize_type_proto_for_type(kind)
            assert isinstance(tensor, ir.TensorType)
            known[key] = tensor, ir.serde.deserialize_type_proto_for_shape(kind)
        types[value.name] = known[key]
    if types:
        graph.ClearField("value_info")
        graph.value_info.extend(others)
    return types


def give_types(graph: ir.Graph, types: Types) -> None:
    """Give values the types that were taken out of the graph's proto; an input and an output state their own."""
    if not types:
        return
    stated = {*graph.inputs, *graph.outputs}
    for value in chain(graph.initializers.values(), *(node.outputs for node in graph)):
        known = types.get(value.name or "")
        if known is not None and value not in stated:
            tensor, shape = known
            value.type, value.shape = ir.TensorType(tensor.dtype, denotation=tensor.denotation), shape


LIFTED = 1 << 12  # raw data of so many bytes stays in the file (or in the caller's proto) instead of being parsed
ALIAS = "ai.onnx"  # another name of the standard's domain, which is empty; of nodes onnx-ir knows that
DEFAULTS = 4
"""Version of the IR from which on an input may have a default; before, each initializer is an input, too, and runtimes
take it for the constant that it is."""


def read(source: str | Path | onnx.ModelProto | ir.Model) -> ir.Model:
    """Read an ONNX model: a new `ir.Model`, checked to be a graph whose tensors have their data.

    1. From a path, weights (in the file or external) stay on disk until they are used.
    2. External data is read only from regular files inside the model's directory.
    3. From a proto, large weights are read from that proto when they are used; it is not changed.
    4. Types and shapes that their operators contradict are not what values state (`drop_contradicted`).
    5. An `ir.Model` is cloned; its tensors are shared, its graph is not. What has one as its `model` stands for it: a
       result, or what `torch.onnx.export(…, dynamo=True)` returns.
    6. The standard's domain has one name, sparse constants are dense, and before version 4 of the IR, in which each
       initializer had to be an input, too, constants are no inputs.
    7. Constants have no names that a runtime's optimizer gives again (`tensors`).
    8. Operators of opset 1 to 6 are those of opset 7 (`first_opsets`).

    Raises:
        ReadError: the source is not an ONNX model, is damaged, incomplete, or not a graph.
    """
    if isinstance(wrapped_model := getattr(source, "model", None), ir.Model):
        source = wrapped_model
    model = _read(source)
    for imports in (model.opset_imports, *(function.opset_imports for function in model.functions.values())):
        if ALIAS in imports:
            imports.setdefault("", imports.pop(ALIAS))
    if (model.ir_version or DEFAULTS) < DEFAULTS:
        model.graph.inputs[:] = [value for value in model.graph.inputs if not value.is_initializer()]
    add_facts(model, origin=source)
    return model


def _read(source: str | Path | onnx.ModelProto | ir.Model) -> ir.Model:
    if isinstance(source, ir.Model):
        is_old = source.opset_imports.get("", OLDEST) < OLDEST
        return _Reading("the given Model").from_proto(ir.to_proto(source)) if is_old else source.clone()
    if isinstance(source, onnx.ModelProto):
        return _Reading("the given ModelProto").from_proto(source)
    if not isinstance(source, str | os.PathLike):
        raise ReadError(
            f"{type(source).__name__} is no model",
            hint="give a path, the bytes of a .tflite or of ONNX, a file that is open with mode 'rb',"
            " an onnx.ModelProto, an onnx_ir.Model, or what torch.onnx.export(…, dynamo=True) returns",
        )
    return _Reading(os.fspath(source)).from_path(Path(source))


class _Reading:
    """One model on its way in: the proto without its large weights, then the weights put back, still in the file."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.lifted: dict[str, ir.TensorProtocol] = {}

    def from_path(self, path: Path) -> ir.Model:
        file = open_stored(path)
        if file.read(0, min(HEAD, file.size))[4:8] == ORTM:
            return self.from_ort(file, path)
        with in_file(self.origin):
            proto, spans = _parsed(FileWindow(file))
        for index, (offset, length) in spans.items():
            tensor = proto.graph.initializer[index]
            where = f"{self.origin}, initializer '{tensor.name}'"
            dtype, shape = type_of(tensor, where), shape_of(tensor, where)
            if dtype == ir.DataType.STRING or nbytes(dtype, shape) != length:
                raise ReadError(f"{length} bytes of data do not fit {dtype.name}{list(shape)}", where=where)
            self.lifted[tensor.name] = _with_notes(stored_tensor(file, offset, dtype, shape, tensor.name), tensor)
        files = DataFiles(path)
        model = self._model(proto, files)
        add_facts(model, files=known_files(file.descriptor, *files.descriptors))
        return model

    def from_ort(self, file: StoredFile, path: Path) -> ir.Model:
        """Return the model in an ORT-format file."""
        from relayout.formats.ort.loading import MOST_READ, load

        with in_file(self.origin):
            loaded = load(content_of(file, MOST_READ), f"{path.name}.data", LIFTED)
        self.lifted, files = loaded.weights, DataFiles(path)
        model = self._model(loaded.proto, files)
        add_facts(
            model,
            files=known_files(file.descriptor, *files.descriptors),
            ort_format=loaded.version,
            is_unlike_source=True,
        )
        add_notes(model, *loaded.notes)
        return model

    def from_proto(self, source: onnx.ModelProto) -> ir.Model:
        proto = onnx.ModelProto()
        _copy_fields(source, proto, but="graph")
        if source.HasField("graph"):
            proto.graph.SetInParent()
            _copy_fields(source.graph, proto.graph, but="initializer")
        for tensor in source.graph.initializer:
            copy = proto.graph.initializer.add()
            if tensor.ByteSize() < LIFTED or not tensor.HasField("raw_data"):
                copy.CopyFrom(tensor)
                continue
            where = f"{self.origin}, initializer '{tensor.name}'"
            check_data(tensor, where)
            _copy_fields(tensor, copy, but="raw_data")
            self.lifted[copy.name] = _with_notes(_lazy(tensor), copy)
        return self._model(proto, None)

    def _model(self, proto: onnx.ModelProto, files: DataFiles | None) -> ir.Model:
        with in_file(self.origin):
            if not proto.HasField("graph") or proto.ir_version <= 0:
                raise ReadError("not an ONNX model: it holds no graph")
            make_dense(proto)
            for where, tensor in tensors_in(proto):
                if tensor.name not in self.lifted or not where.startswith("initializer"):
                    check_data(tensor, where)
                    for index in reversed(range(len(tensor.external_data))):
                        if tensor.external_data[index].key not in EXTERNAL_KEYS:
                            del tensor.external_data[index]
            unsorted = check_structure(proto)
            internal = name_known(proto)
            raised = raise_first_opsets(proto)
            squeezed = _squeeze_all(proto.graph, frozenset())
            _state_once(proto.graph)
            _drop_untyped(proto.graph)
            contradicted, unimplied, inferred = drop_contradicted(proto)
            silent = not proto.graph.value_info
            if silent and inferred is not None and is_settled(inferred.graph):
                for value, stated in zip(inferred.graph.output, proto.graph.output, strict=True):
                    value.CopyFrom(stated)
                proto = inferred  # nothing is left to `complete` but outputs that leave extents open
            lift_tensors(proto.graph)
            model = _deserialized(proto)
            add_facts(
                model,
                states_no_shapes=silent,
                is_annotated=bool(proto.graph.quantization_annotation),
                contradicted=contradicted,
                unimplied=frozenset(unimplied),
                is_unlike_source=internal.renamed or bool(raised),
                is_raised=bool(raised),
                notes=(
                    *internal.notes,
                    *raised,
                    *(
                        f"Squeeze '{name}' has no axes: all of one element are taken out, as runtimes do"
                        for name in squeezed
                    ),
                ),
            )
            for name, lifted in self.lifted.items():
                model.graph.initializers[name].const_value = lifted
            _replace_tensors(model, files)
            if rename_generated(model):
                add_facts(model, is_unlike_source=True)
        if unsorted:
            for graph in (model.graph, *(function.graph for function in model.functions.values())):
                graph.sort()
        return model


def _lazy(tensor: onnx.TensorProto) -> ir.LazyTensor:
    """Return the tensor, read from the caller's proto each time; renaming ours does not rename the caller's."""
    return ir.LazyTensor(
        lambda: ir.serde.TensorProtoTensor(tensor),
        ir.DataType(tensor.data_type),
        ir.Shape(tensor.dims),
        name=tensor.name,
    )


def _with_notes(tensor: ir.TensorProtocol, proto: onnx.TensorProto) -> ir.TensorProtocol:
    tensor.doc_string = proto.doc_string or None
    tensor.metadata_props.update({entry.key: entry.value for entry in proto.metadata_props})
    return tensor


def _copy_fields(source: Message, target: Message, but: str) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if isinstance(value, Message):
            getattr(target, field.name).CopyFrom(value)
        elif hasattr(value, "extend"):
            getattr(target, field.name).MergeFrom(value)
        elif field.type == field.TYPE_STRING and isinstance(value, bytes):  # no UTF-8: it can be read, and not set
            setattr(target, field.name, value.decode(errors="replace"))
        else:
            setattr(target, field.name, value)


def _parsed(buffer: FileWindow) -> tuple[onnx.ModelProto, dict[int, tuple[int, int]]]:
    """Return the model without large raw data, and where that data is: initializer -> offset, length."""
    head = bytes(buffer[:HEAD])
    try:
        skeleton, spans = _without_weights(buffer)
        proto = onnx.ModelProto.FromString(skeleton)
    except ReadError as error:
        raise not_a("an ONNX model", head, error.what, error.where) from None
    except DecodeError:
        raise not_a("an ONNX model", head, "it cannot be parsed") from None
    if not proto.HasField("graph") or proto.ir_version <= 0:
        raise not_a("an ONNX model", head, "it holds no graph")
    return proto, spans


def _without_weights(buffer: FileWindow) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """Return the model's bytes without large raw data, and where that data is: initializer -> offset, length."""
    model, graph = bytearray(), bytearray()
    spans: dict[int, tuple[int, int]] = {}
    count, has_graph = 0, False
    for outer in fields(buffer, 0, len(buffer)):
        if outer.number != MODEL_GRAPH or outer.kind != LENGTH:
            model += buffer[outer.begin : outer.stop]
            continue
        has_graph = True
        for inner in fields(buffer, outer.start, outer.stop):
            if inner.number == GRAPH_INITIALIZER and inner.kind == LENGTH:
                header, span = _without_raw_data(buffer, inner.start, inner.stop)
                graph += opening(GRAPH_INITIALIZER, len(header)) + header
                if span:
                    spans[count] = span
                count += 1
            else:
                graph += buffer[inner.begin : inner.stop]
    if has_graph:
        model += opening(MODEL_GRAPH, len(graph)) + graph
    return bytes(model), spans


def _without_raw_data(buffer: FileWindow, start: int, stop: int) -> tuple[bytes, tuple[int, int] | None]:
    if stop - start < LIFTED:
        return bytes(buffer[start:stop]), None
    raw = [f for f in fields(buffer, start, stop) if f.number == TENSOR_RAW_DATA and f.kind == LENGTH]
    if not raw or raw[-1].stop - raw[-1].start < LIFTED:
        return bytes(buffer[start:stop]), None
    cuts = [start, *(edge for field in raw for edge in (field.begin, field.stop)), stop]
    remaining_bytes = b"".join(bytes(buffer[begin:end]) for begin, end in zip(cuts[::2], cuts[1::2], strict=True))
    return remaining_bytes, (raw[-1].start, raw[-1].stop - raw[-1].start)


def _deserialized(proto: onnx.ModelProto) -> ir.Model:
    maps = dict(_taken_maps(proto.graph))
    try:
        types = take_types(proto.graph)
        model = ir.from_proto(proto)
        give_types(model.graph, types)
        for value in (*model.graph.inputs, *model.graph.outputs):
            if value is not None and value.name in maps:
                value.meta[MAP] = maps[value.name]
        return model
    except Exception as error:  # onnx-ir's own checks raise errors of many types, wrapped in each other
        raise ReadError(f"not a valid ONNX model: {one_line(error).partition('. Please contribute')[0]}") from None


def _squeeze_all(
    graph: onnx.GraphProto,  # the main graph, or a body in it
    outer: frozenset[str],  # the constants around it that hold no elements
) -> list[str]:
    """Take axes out of Squeezes that name none, in place, and say which: runtimes take all of one element then, and
    ONNX's inference takes none.
    """
    hollow = outer.union(tensor.name for tensor in graph.initializer if list(tensor.dims) == [0])
    hollow = hollow.union(node.output[0] for node in graph.node if node.op_type == "Constant" and _is_hollow(node))
    squeeze_names = []
    for node in graph.node:
        if node.op_type == "Squeeze" and node.domain in ("", ALIAS):
            named = [index for index, attribute in enumerate(node.attribute) if attribute.name == "axes"]
            for index in named if not any(node.attribute[index].ints for index in named) else ():
                del node.attribute[index]
                squeeze_names.append(node.name or node.output[0])
            if len(node.input) > 1 and node.input[1] in hollow:
                del node.input[1:]
                squeeze_names.append(node.name or node.output[0])
    for body in bodies_of(graph.node):
        squeeze_names += _squeeze_all(body, hollow)
    return squeeze_names


def _is_hollow(node: onnx.NodeProto) -> bool:
    """Tell whether a Constant holds no elements."""
    return any(
        (attribute.name == "value" and list(attribute.t.dims) == [0])
        or (attribute.name == "value_ints" and not attribute.ints)
        for attribute in node.attribute
    )


def _state_once(main: onnx.GraphProto) -> None:
    """Let an output that is an input or a constant, too, state what that does: the two are one value, in bodies
    likewise.

    ONNX's inference takes a constant for what the output states: of a Slice whose steps are an output of unknown
    extents it tells another shape.
    """
    for graph in wire.nested_graphs(main):
        types = {value.name: value.type for value in graph.input if value.HasField("type")}
        if graph.initializer:
            outputs = {value.name for value in graph.output}
            constants = (tensor for tensor in graph.initializer if tensor.name in outputs)
            types |= {each.name: onnx.helper.make_tensor_type_proto(each.data_type, each.dims) for each in constants}
        for value in graph.output:
            if value.name in types:
                value.type.CopyFrom(types[value.name])


def _drop_untyped(main: onnx.GraphProto) -> None:
    """Drop what is stated of inner values without an element type, in bodies likewise: inference tells it."""
    for graph in wire.nested_graphs(main):
        for place in reversed(range(len(graph.value_info))):
            stated = graph.value_info[place].type
            if stated.HasField("tensor_type") and not stated.tensor_type.elem_type:
                del graph.value_info[place]


def _taken_maps(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto]]:
    """Yield the types of values that hold maps, which onnx-ir does not have: they are taken out of the graph."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        if holds_map(value.type):
            kind = deepcopy(value.type)
            value.ClearField("type")
            yield value.name, kind


def _replace_tensors(model: ir.Model, files: DataFiles | None) -> None:
    """Replace external tensors by those of checked files, and others by tensors that are decoded once."""

    def own(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if isinstance(tensor, ir.TensorProtoTensor):
            return CachedTensor(tensor)
        if not isinstance(tensor, ir.ExternalTensor):
            return tensor
        if files is None:
            raise ReadError(
                f"the data of '{tensor.name}' is in another file, and a proto has no place to look for it",
                hint="pass the model's path, or onnx.load(path) with its external data",
            )
        add_facts(model, has_external_data=True)
        return files.tensor(tensor)

    for graph in (*all_graphs(model.graph), *(graph for f in model.functions.values() for graph in f.subgraphs())):
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = own(value.const_value)
    for node in chain(all_nodes(model.graph), *map(all_nodes, model.functions.values())):
        for name, attribute in list(node.attributes.data.items()) if node.attributes.data else ():
            if attribute.type == ir.AttributeType.TENSOR and isinstance(attribute.value, ir.ExternalTensor):
                node.attributes[name] = ir.AttrTensor(name, own(attribute.value))
            elif attribute.type == ir.AttributeType.TENSORS and attribute.value:
                node.attributes[name] = ir.AttrTensors(name, [own(tensor) for tensor in attribute.value])
