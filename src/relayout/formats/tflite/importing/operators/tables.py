"""Tables that operators share by number: filled once from constants, asked again and again."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.container.texts import texts
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.state import handle
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, operator
from relayout.formats.tflite.importing.tensors import array
from relayout.formats.tflite.importing.variables import Handle

_DOMAIN, _VERSION = "ai.onnx.ml", 4
_SUFFIX = {TensorType.INT64: "int64", TensorType.STRING: "string"}


@operator("HASHTABLE", options="HashtableOptions")
def hashtable(op: Operation) -> None:
    """Nothing: the table's number, which the operators below follow."""
    op.output()
    op.tensors.handles[op.operator.outputs[0]] = Handle("table", str(op.options.table_id))


def _elements(op: Operation, i: int, tensor: Tensor) -> list[str | int]:
    if tensor.type not in _SUFFIX:
        raise Unsupported(f"a table of {tensor.type.name}")
    if not op.tensors.is_constant(tensor) and op.stored(i).const_value is None:
        raise Unsupported("a table that is computed")
    return [*texts(tensor)] if tensor.type == TensorType.STRING else [int(v) for v in array(tensor).reshape(-1)]


@operator("HASHTABLE_IMPORT", options="HashtableImportOptions", texts=ANY_OPSET)
def hashtable_import(op: Operation) -> None:
    """Nothing: keys and values, which must be constants. If a key occurs twice, the first wins."""
    table = handle(op, "table")
    keys, values = op.input(1), op.input(2)
    if {keys.type, values.type} != set(_SUFFIX):
        raise Unsupported(f"a table from {keys.type.name} to {values.type.name}")
    content: dict[str | int, str | int] = {}
    both = _elements(op, 1, keys), _elements(op, 2, values)
    if len(both[0]) != len(both[1]):
        raise ReadError(f"{len(both[0])} keys for {len(both[1])} values", where=op.place)
    for key, value in zip(*both, strict=True):
        content.setdefault(key, value)
    # A table that is filled already stays as it is.
    op.program.tables.setdefault(table.key, content)


def _content(op: Operation) -> dict[str | int, str | int]:
    found = op.program.tables.get(handle(op, "table").key)
    if found is None:
        raise Unsupported("a table that nothing fills")
    return found


@operator("HASHTABLE_FIND", options="HashtableFindOptions", texts=ANY_OPSET)
def hashtable_find(op: Operation) -> None:
    """LabelEncoder (ai.onnx.ml), from numbers to texts or from texts to numbers."""
    content, keys, value_type = _content(op), op.stored(1), op.output().type
    default = _elements(op, 2, op.input(2))
    if {op.input(1).type, value_type} != set(_SUFFIX) or op.input(2).type != value_type or len(default) != 1:
        raise Unsupported(f"a table from {op.input(1).type.name} to {value_type.name}")
    if not content or not isinstance(next(iter(content)), str if op.input(1).type == TensorType.STRING else int):
        raise Unsupported("a table that is empty or holds other types")
    suffix = _SUFFIX[value_type]
    attributes = {
        f"keys_{_SUFFIX[op.input(1).type]}s": list(content),
        f"values_{suffix}s": list(content.values()),
        f"default_{suffix}": default[0],
    }
    op.program.domains[_DOMAIN] = _VERSION
    outputs = [(op.hint("found"), op.tensors.dtype(op.output()), dims(keys))]
    (found,) = op.builder.emit("LabelEncoder", [keys], outputs, source=op.source, domain=_DOMAIN, **attributes)
    op.result_stored(found)


@operator("HASHTABLE_SIZE", options="HashtableSizeOptions")
def hashtable_size(op: Operation) -> None:
    """A constant."""
    size = op.builder.array(op.hint("size"), np.array([len(_content(op))], np.int64))
    op.result_stored(op.emit("Identity", [size], (1,), ir.DataType.INT64))
