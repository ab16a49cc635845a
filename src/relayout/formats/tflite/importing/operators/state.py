"""Variables and tables that operators share by name."""

from __future__ import annotations

from relayout.errors import ReadError
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.bodies import discard
from relayout.formats.tflite.importing.registry import Unsupported, operator
from relayout.formats.tflite.importing.variables import Handle, initial_text, variable_name


@operator("VAR_HANDLE", options="VarHandleOptions")
def var_handle(op: Operation) -> None:
    """Nothing: the variable's name, which READ_VARIABLE and ASSIGN_VARIABLE follow."""
    op.output()
    op.tensors.handles[op.operator.outputs[0]] = Handle("variable", variable_name(op.operator))


def handle(op: Operation, kind: str) -> Handle:
    """What operand 0 refers to."""
    op.input(0)
    found = op.tensors.handles.get(op.operator.inputs[0])
    if found is None or found.kind != kind:
        raise Unsupported(f"a {kind} that no handle names")
    return found


@operator("READ_VARIABLE", options="ReadVariableOptions")
def read_variable(op: Operation) -> None:
    """What was assigned last, in this run or with `state="io"` in the run before."""
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
    discard(nodes)
