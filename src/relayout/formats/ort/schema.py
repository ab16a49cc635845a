"""The schema of ORT-format models as rows: what each table holds, slot by slot.

A row reads `name:type` or `name:type=default`; its position is its slot; `_` is a slot that is passed over. A union
takes two slots, the first of which (`..._type`) tells its member. A test compares these rows with the bindings that the
`onnxruntime` package carries, field by field.

What is passed over tells nothing of what a model computes: the types that its kernels are built for, how nodes are
numbered and joined (names say that, too), the execution provider of a node, and what earlier versions held in a slot.
Of runtime optimizations, which ONNX Runtime applies when it loads a file, only their names are read.
"""

from __future__ import annotations

from relayout.formats.flatbuffer import Schema, rows

VERSIONS = ("4", "5", "6")
"""Versions of the format that are read: what these rows hold is alike in all of them."""

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
