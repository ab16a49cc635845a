"""An ORT-format model as the ONNX that it holds: a proto without the large weights, and these where they lie.

The reader of ONNX goes on from there: it checks that the graph is one, and that every tensor has its data. The numbers
of element types and of attribute types are ONNX's own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.errors import ReadError
from relayout.formats.flatbuffer import OVERLAP, Schema, Source, Table, read_root, rows
from relayout.formats.onnx.structure import shape_of, type_of
from relayout.formats.onnx.wire import all_nodes
from relayout.formats.recognition import ORTM
from relayout.formats.stored import StoredArray, nbytes, tensor_of

# The schema of ORT-format models as rows: what each table holds, slot by slot.
#
# A row reads `name:type` or `name:type=default`; its position is its slot; `_` is a slot that is passed over. A union
# takes two slots, the first of which (`..._type`) tells its member. A test compares these rows with the bindings that
# the `onnxruntime` package carries, field by field.
#
# What is passed over tells nothing of what a model computes: the types that its kernels are built for, how nodes are
# numbered and joined (names say that, too), the execution provider of a node, and what earlier versions held in a slot.
# Of runtime optimizations, which ONNX Runtime applies when it loads a file, only their names are read.

VERSIONS = ("4", "5", "6")  # versions of the format that are read: what these rows hold is alike in all of them

_TABLES = {
    "InferenceSession": "ort_version:string model:Model _ _",
    "Model": (
        "ir_version:int64 opset_import:[OperatorSetId] producer_name:string producer_version:string domain:string"
        " model_version:int64 doc_string:string graph:Graph graph_doc_string:string metadata_props:[StringStringEntry]"
    ),
    "OperatorSetId": "domain:string version:int64",
    "StringStringEntry": "key:string value:string",
    "Graph": (
        "initializers:[Tensor] node_args:[ValueInfo] nodes:[Node] _ _ inputs:[string] outputs:[string]"
        " sparse_initializers:[SparseTensor] runtime_optimizations:RuntimeOptimizations"
    ),
    "RuntimeOptimizations": "records:[RuntimeOptimizationRecordContainerEntry]",
    "RuntimeOptimizationRecordContainerEntry": "optimizer_name:string _",
    "Node": (
        "name:string doc_string:string domain:string since_version:int32 _ op_type:string _ _ inputs:[string]"
        " outputs:[string] attributes:[Attribute] _ _"
    ),
    "Attribute": (
        "name:string doc_string:string type:AttributeType f:float32 i:int64 s:bytes t:Tensor g:Graph floats:[float32]"
        " ints:[int64] strings:[bytes] tensors:[Tensor] graphs:[Graph]"
    ),
    "Tensor": (
        "name:string doc_string:string dims:[int64] data_type:TensorDataType raw_data:[uint8] string_data:[bytes]"
        " external_data_offset:int64=-1"
    ),
    "SparseTensor": "values:Tensor indices:Tensor dims:[int64]",
    "ValueInfo": "name:string doc_string:string type:TypeInfo",
    "TypeInfo": "denotation:string value_type:uint8 value:TypeInfoValue",
    "TensorTypeAndShape": "elem_type:TensorDataType shape:Shape",
    "SequenceType": "elem_type:TypeInfo",
    "MapType": "key_type:TensorDataType value_type:TypeInfo",
    "Shape": "dim:[Dimension]",
    "Dimension": "value:DimensionValue denotation:string",
    "DimensionValue": "dim_type:DimensionValueType dim_value:int64 dim_param:string",
}

SCHEMA = Schema(
    tables={name: rows(text) for name, text in _TABLES.items()},
    unions={"TypeInfoValue": ("NONE", "TensorTypeAndShape", "SequenceType", "MapType")},
    enums={"AttributeType": "int32", "TensorDataType": "int32", "DimensionValueType": "int8"},
)


MOST_READ = 1 << 22  # bytes of a file that are read into memory, once. A larger file is read in pieces.

REPEATED = 1 << 28
"""Bytes of names that a file may repeat beyond what the reader of FlatBuffers allows in general: a name lies in the
file once, and every node that reads a value points at it."""
AGAIN = 28  # and no more than so many times the file's length


_VALUE, _NAME = 1, 2  # a dimension: a number, or a name


class Loaded(NamedTuple):
    """The content of an ORT-format model."""

    proto: onnx.ModelProto  # the model without its large weights
    weights: dict[str, ir.TensorProtocol]  # name of an initializer -> its tensor, where it is large
    version: int  # of the format
    notes: tuple[str, ...]  # what is passed over


def load(
    data: Source,  # the whole file
    beside: str,  # the name of the file that holds the weights that do not lie inside, in the same folder
    large: int,  # bytes from which on an initializer of the main graph stays in the file
) -> Loaded:
    """Read an ORT-format model.

    Raises:
        ReadError: it is damaged, or of a version that is not read.
    """
    root = read_root(data, SCHEMA, "InferenceSession", ORTM, repeated=min(REPEATED, AGAIN * len(data)))
    if root.ort_version not in VERSIONS:
        raise ReadError(
            f"an ORT-format model of version {root.ort_version[:20]!r}, and {VERSIONS[0]} to {VERSIONS[-1]} are read",
            hint="give the .onnx file that it was made from",
        )
    if root.model is None or root.model.graph is None:
        raise ReadError("the ORT-format model holds no graph", where=f"byte {root.byte}")
    return _Loading(beside, large, OVERLAP * len(data)).model(root.model, int(root.ort_version))


class _Loading:
    """One file on its way in."""

    def __init__(
        self,
        beside: str,  # the name of the file with the weights that do not lie inside
        large: int,  # bytes from which on an initializer of the main graph stays in the file
        room: int,  # bytes of elements that may be copied, since tensors of a damaged file may share them
    ) -> None:
        self.beside, self.large, self.room = beside, large, room
        self.versions: dict[str, int] = {}
        self.weights: dict[str, ir.TensorProtocol] = {}
        self.passed_over: dict[str, None] = {}

    def model(self, table: Table, version: int) -> Loaded:
        self.versions = {each.domain: each.version for each in table.opset_import}
        proto = onnx.ModelProto(ir_version=table.ir_version, model_version=table.model_version)
        proto.graph.CopyFrom(self.graph(table.graph, "graph", large=self.large))
        if table.graph_doc_string:
            proto.graph.doc_string = table.graph_doc_string
        _take_texts(proto, table, "producer_name", "producer_version", "domain", "doc_string")
        # ONNX Runtime imports every domain that it knows.
        used = {"", *(node.domain for node in all_nodes(proto.graph.node))}
        imports = [(domain, version) for domain, version in self.versions.items() if domain in used]
        proto.opset_import.extend(onnx.OperatorSetIdProto(domain=d, version=v) for d, v in imports)
        said = {each.key: each.value for each in table.metadata_props}
        proto.metadata_props.extend(onnx.StringStringEntryProto(key=key, value=text) for key, text in said.items())
        return Loaded(proto, self.weights, version, self.notes())

    def notes(self) -> tuple[str, ...]:
        if not self.passed_over:
            return ()
        return (f"passed over: optimizations that ONNX Runtime applies when it loads: {', '.join(self.passed_over)}",)

    def graph(self, table: Table, place: str, large: int = 0) -> onnx.GraphProto:
        """Return a graph; `large`: bytes from which on its initializers stay in the file, 0: none does."""
        proto = onnx.GraphProto(name="graph" if place == "graph" else "body")
        tensor = partial(self.tensor, large=large)
        proto.initializer.extend(_each(tensor, table.initializers, f"{place}.initializers"))
        proto.sparse_initializer.extend(_each(self.sparse, table.sparse_initializers, f"{place}.sparse_initializers"))
        proto.node.extend(_each(self.node, table.nodes, f"{place}.nodes"))
        stated = {each.name: each for each in table.node_args}
        proto.input.extend(_value(name, stated.get(name)) for name in table.inputs)
        proto.output.extend(_value(name, stated.get(name)) for name in table.outputs)
        ends = {*table.inputs, *table.outputs}
        inner_names = dict.fromkeys(name for node in proto.node for name in node.output if name not in ends)
        known = (stated[name] for name in inner_names if name in stated and stated[name].type is not None)
        proto.value_info.extend(_value(each.name, each) for each in known)
        if table.runtime_optimizations is not None:
            records = table.runtime_optimizations.records
            self.passed_over |= dict.fromkeys(each.optimizer_name for each in records)
        return proto

    def node(self, table: Table, place: str) -> onnx.NodeProto:
        proto = onnx.NodeProto(input=table.inputs, output=table.outputs)
        _take_texts(proto, table, "name", "doc_string", "domain", "op_type")
        definition = _definition(proto.op_type, self.versions.get(proto.domain, 0), proto.domain)
        for attribute in _each(self.attribute, table.attributes, f"{place}.attributes"):
            if definition is None or attribute != definition.defaults.get(attribute.name):  # it writes them, too
                proto.attribute.append(attribute)
        if definition is not None and (fault := definition.fault(proto, table.since_version)):
            raise ReadError(fault, where=f"{place}, byte {table.byte}")
        return proto

    def attribute(self, table: Table, place: str) -> onnx.AttributeProto:
        if table.type not in _FIELDS:
            raise ReadError(f"an attribute of type {table.type}", where=f"{place}, byte {table.byte}")
        proto = onnx.AttributeProto(type=table.type)
        _take_texts(proto, table, "name", "doc_string")
        field, make = _FIELDS[table.type]
        if table.fields[field] is None:
            raise ReadError(f"an attribute without its {field}", where=f"{place}, byte {table.byte}")
        value = make(self, table.fields[field], f"{place}.{field}")
        target = getattr(proto, field)
        if hasattr(target, "extend"):
            target.extend(value)
        elif hasattr(target, "CopyFrom"):
            target.CopyFrom(value)
        else:
            setattr(proto, field, value)
        return proto

    def tensor(self, table: Table, place: str, large: int = 0) -> onnx.TensorProto:
        proto = onnx.TensorProto(dims=table.dims.tolist(), data_type=table.data_type)
        _take_texts(proto, table, "name", "doc_string")
        if table.data_type == onnx.TensorProto.STRING:
            proto.string_data.extend(table.string_data)
        elif table.external_data_offset >= 0:
            proto.data_location = onnx.TensorProto.EXTERNAL
            proto.external_data.add(key="location", value=self.beside)
            proto.external_data.add(key="offset", value=str(table.external_data_offset))
        elif large and table.raw_data.nbytes >= large:
            self.weights[proto.name] = _weight(table, proto, f"{place}, byte {table.byte}")
        else:
            self.room -= table.raw_data.nbytes
            if self.room < 0:
                raise ReadError("tensors share more elements than the file holds", where=f"{place}, byte {table.byte}")
            proto.raw_data = np.asarray(table.raw_data).tobytes()
        return proto

    def sparse(self, table: Table, place: str) -> onnx.SparseTensorProto:
        if table.values is None or table.indices is None:
            raise ReadError("a sparse tensor without elements or places", where=f"{place}, byte {table.byte}")
        values, indices = (self.tensor(each, place) for each in (table.values, table.indices))
        return onnx.SparseTensorProto(values=values, indices=indices, dims=table.dims.tolist())


Made = TypeVar("Made")


def _each(make: Callable[[Table, str], Made], tables: Iterable[Table], place: str) -> Iterator[Made]:
    """Yield what is made of each table of a list, in its place."""
    return (make(table, f"{place}[{index}]") for index, table in enumerate(tables))


def _as_it_is(_: _Loading, value: Any, __: str) -> Any:
    return value


def _numbers(_: _Loading, values: NDArray[Any], __: str) -> list[Any]:
    numbers: list[Any] = values.tolist()
    return numbers


_FIELDS: Mapping[int, tuple[str, Callable[[_Loading, Any, str], Any]]] = {
    onnx.AttributeProto.FLOAT: ("f", _as_it_is),
    onnx.AttributeProto.INT: ("i", _as_it_is),
    onnx.AttributeProto.STRING: ("s", _as_it_is),
    onnx.AttributeProto.TENSOR: ("t", _Loading.tensor),
    onnx.AttributeProto.GRAPH: ("g", _Loading.graph),
    onnx.AttributeProto.FLOATS: ("floats", _numbers),
    onnx.AttributeProto.INTS: ("ints", _numbers),
    onnx.AttributeProto.STRINGS: ("strings", _as_it_is),
    onnx.AttributeProto.TENSORS: ("tensors", lambda loading, tables, place: _each(loading.tensor, tables, place)),
    onnx.AttributeProto.GRAPHS: ("graphs", lambda loading, tables, place: _each(loading.graph, tables, place)),
}
"""Type of an attribute -> the field that holds it, of both formats, and how it is made."""


class _Definition(NamedTuple):
    """An operator of ONNX, as a file imports it."""

    since: int  # since which version it is as it is
    defaults: Mapping[str, onnx.AttributeProto]  # attribute -> its default
    attributes: frozenset[str]  # the attributes that it has to have
    operands: tuple[str, ...]  # the names of its operands; "" for one that may be absent

    def fault(self, node: onnx.NodeProto, since: int) -> str:
        """Return what is wrong with a node; empty where nothing is."""
        if since != self.since:
            return f"{node.op_type} of version {since}, and the file imports that of version {self.since}"
        missing = sorted(self.attributes - {attribute.name for attribute in node.attribute})
        for place, name in enumerate(self.operands):
            if name and not (place < len(node.input) and node.input[place]):
                missing.append(name)
        return f"{node.op_type} without its {' and its '.join(map(repr, missing))}" if missing else ""


@lru_cache(1024)
def _definition(op_type: str, version: int, domain: str) -> _Definition | None:
    """Return an operator's definition; None: ONNX has none."""
    if not 0 < version <= _newest().get(domain, 0) or not onnx.defs.has(op_type, version, domain):
        return None
    schema = onnx.defs.get_schema(op_type, version, domain)
    values = {name: each.default_value for name, each in schema.attributes.items()}
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    return _Definition(
        schema.since_version,
        {name: value for name, value in values.items() if value.name},
        frozenset(name for name, each in schema.attributes.items() if each.required),
        tuple(each.name if each.option == single else "" for each in schema.inputs),
    )


@cache
def _newest() -> Mapping[str, int]:
    """Domain -> the newest version of its operators that this ONNX has."""
    version_of: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        version_of[schema.domain] = max(schema.since_version, version_of.get(schema.domain, 0))
    return version_of


def _take_texts(proto: Any, table: Table, *names: str) -> None:
    """Copy texts that are not empty: one that is empty is absent."""
    for name in names:
        if text := table.fields[name]:
            setattr(proto, name, text)


def _weight(table: Table, header: onnx.TensorProto, where: str) -> ir.TensorProtocol:
    """Return the tensor whose elements stay in the file."""
    dtype, shape = type_of(header, where), shape_of(header, where)
    data: NDArray[np.uint8] | StoredArray = table.raw_data
    if dtype == ir.DataType.STRING or nbytes(dtype, shape) != data.nbytes:
        raise ReadError(f"{data.nbytes} bytes of data do not fit {dtype.name}{list(shape)}", where=where)
    tensor = tensor_of(data, dtype, shape, header.name)
    tensor.doc_string = header.doc_string or None
    return tensor


def _value(name: str, table: Table | None) -> onnx.ValueInfoProto:
    proto = onnx.ValueInfoProto(name=name)
    if table is not None:
        _take_texts(proto, table, "doc_string")
        if table.type is not None:
            proto.type.CopyFrom(_type(table.type))
    return proto


def _type(table: Table) -> onnx.TypeProto:
    proto, member = onnx.TypeProto(), table.value
    _take_texts(proto, table, "denotation")
    kind = "" if member is None else member.kind
    if kind == "TensorTypeAndShape":
        proto.tensor_type.elem_type = member.elem_type
        if member.shape is not None:
            proto.tensor_type.shape.dim.extend(map(_dimension, member.shape.dim))
    elif kind == "SequenceType" and member.elem_type is not None:
        proto.sequence_type.elem_type.CopyFrom(_type(member.elem_type))
    elif kind == "MapType" and member.value_type is not None:
        proto.map_type.key_type = member.key_type
        proto.map_type.value_type.CopyFrom(_type(member.value_type))
    return proto


def _dimension(table: Table) -> onnx.TensorShapeProto.Dimension:
    proto = onnx.TensorShapeProto.Dimension()
    _take_texts(proto, table, "denotation")
    if table.value is not None and table.value.dim_type == _VALUE:
        proto.dim_value = table.value.dim_value
    elif table.value is not None and table.value.dim_type == _NAME and table.value.dim_param:
        proto.dim_param = table.value.dim_param
    return proto
