"""Resource variables of a file: until its graph is complete, what a run reads of them is an input, the rest outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.light_dataclass import dataclass


@dataclass
class DraftVariables:
    """The variables of a graph, by name.

    Args:
        initial: what the first run begins with: a constant.
        read: what every run begins with.
        assigned: what it leaves to the next one.
    """

    initial: dict[str, DraftTensor] = field(default_factory=dict)
    read: dict[str, DraftTensor] = field(default_factory=dict)
    assigned: dict[str, DraftTensor] = field(default_factory=dict)


@contextmanager
def as_ends(draft: Draft, variables: DraftVariables) -> Iterator[None]:
    """Let variables be inputs and outputs of a graph, for what looks at its operators."""
    inputs, outputs = len(draft.inputs), len(draft.outputs)
    draft.inputs += variables.read.values()
    draft.outputs += variables.assigned.values()
    yield
    variables.read = dict(zip(variables.read, draft.inputs[inputs:], strict=True))
    variables.assigned = dict(zip(variables.assigned, draft.outputs[outputs:], strict=True))
    del draft.inputs[inputs:], draft.outputs[outputs:]


def write_variables(program: list[Draft], variables: DraftVariables) -> None:
    """Add the operators that set variables up, read them first, and assign to them last, to the first graph, in place.

    Args:
        program: the graphs of the file; what sets them up becomes the last one.
        variables: those of the first graph.
    """
    if not variables.initial:
        return
    draft, setting_up = program[0], Draft("set_up_variables")
    for name, tensor in variables.initial.items():
        setting_up.add("ASSIGN_VARIABLE", [_handle(setting_up, name), tensor], [])
    before = draft.operators
    draft.operators = []
    draft.add("CALL_ONCE", [], [], init_subgraph_index=len(program))
    program.append(setting_up)
    for name in variables.initial:
        handle = _handle(draft, name)
        draft.add("READ_VARIABLE", [handle], [variables.read[name]])
        before.append(DraftOperator("ASSIGN_VARIABLE", [handle, variables.assigned[name]], []))
    draft.operators += before


def _handle(draft: Draft, name: str) -> DraftTensor:
    handle = draft.tensor(f"{name}/handle", TensorType.RESOURCE, (1,))
    draft.add("VAR_HANDLE", [], [handle], shared_name=name)
    return handle
