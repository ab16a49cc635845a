"""Tables that operators share by number: filled once from constants, asked again and again."""

from __future__ import annotations

import numpy as np

from relayout.errors import ReadError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Tensor, texts
from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, operator
from relayout.formats.tflite.importing.tensors import array
from relayout.formats.tflite.importing.variables import Handle, initial_text, variable_name

# Variables and tables that operators share by name.


@operator("VAR_HANDLE", options="VarHandleOptions")
def var_handle(op: Operation) -> None:
    """Nothing: the variable's name, which READ_VARIABLE and ASSIGN_VARIABLE follow."""
    op.output()
    op.tensors.handles[op.operator.outputs[0]] = Handle("variable", variable_name(op.operator))


def handle(op: Operation, kind: str) -> Handle:
    """Return what operand 0 refers to."""
    op.input(0)
    found = op.tensors.handles.get(op.operator.inputs[0])
    if found is None or found.kind != kind:
        raise Unsupported(f"a {kind} that no handle names")
    return found


@operator("READ_VARIABLE", options="ReadVariableOptions")
def read_variable(op: Operation) -> None:
    """The value assigned last, in this run or with `state="io"` in the run before."""
    variable, tensor = handle(op, "variable"), op.output()
    shape = op.out_dims(op.tensors.declared(tensor))
    op.program.variables.read.add(variable.name)
    value = op.program.variables.load(variable.key, variable.name, op.tensors.dtype(tensor), shape)
    if value is None:
        raise Unsupported("a variable that is read before anything assigns to it")
    if value.dtype != op.tensors.dtype(tensor):
        raise ReadError(f"variable {variable.name} holds {value.dtype}", where=op.place)
    op.result_stored(value)


@operator("ASSIGN_VARIABLE", options="AssignVariableOptions")
def assign_variable(op: Operation) -> None:
    """Nothing: the operand is the variable's value from here on."""
    variable = handle(op, "variable")
    op.program.variables.changed.add(variable.name)
    op.program.variables.store(variable.key, variable.name, op.stored(1))


@operator("CALL_ONCE", options="CallOnceOptions")
def call_once(op: Operation) -> None:
    """The subgraph, at the beginning of each run; with `state="io"` nothing, since its work comes in as inputs.

    There, an input tells its initial value as metadata, `relayout.initial`: JSON, one number where all are equal.
    """
    index, program = op.options.init_subgraph_index, op.program
    if index in program.initialised:
        return
    program.initialised.add(index)
    if program.choices.state == "zero" and not program.nested:
        with program.variables.setting_up():
            program.inline(index, [], op.place)
        return
    with program.variables.setting_up(), program.variables.apart() as before, op.builder.body() as nodes:
        program.inline(index, [], op.place)
        if program.choices.state == "zero" and program.variables.assigned(before):
            raise Unsupported("variables that a branch or loop sets up")
        for key in program.variables.assigned(before):
            program.variables.initial[key] = initial_text(program.variables.current[key])
    op.builder.discard(nodes)


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
    if (found := op.program.tables.get(handle(op, "table").key)) is None:
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
    op.result_stored(op.emit("Identity", [size]))
