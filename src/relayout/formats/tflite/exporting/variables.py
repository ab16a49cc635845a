"""Resource variables of a file: until its graph is complete, what a run reads of them is an input, the rest outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.graph.subgraphs import graph_values
from relayout.layout.stored_as import Holds
from relayout.light_dataclass import dataclass

# Tables of a file, which runtimes fill in the first run. Operators give their handles when all graphs are complete.

FIRST = 1 << 16
"""The number of the first table: LiteRT counts tables and resource variables together, and variables from 0 on."""


def write_tables(program: list[Draft]) -> None:
    """Let a new last graph fill the tables of a file, and give each graph the handles of those that it reads."""
    numbers: dict[tuple[bytes, ...], int] = {}
    filling = Draft("fill_tables")
    for draft in program:
        handles = (each for operator in draft.operators for each in operator.inputs if each in draft.tables)
        read = [(handle, *draft.tables[handle]) for handle in dict.fromkeys(handles) if handle is not None]
        for handle, keys, values in read:
            content = (_bytes(keys), _bytes(values))
            if content not in numbers:
                numbers[content] = FIRST + len(numbers)
                filled = filling.tensor(f"table_{len(numbers) - 1}", TensorType.RESOURCE, (1,))
                filling.operators.append(_table(filled, numbers[content], keys, values))
                filling.add("HASHTABLE_IMPORT", [filled, keys, values], [])
            handle.name = draft.unique(f"{handle.name}_{numbers[content] - FIRST}")
        draft.operators[:0] = [_table(handle, numbers[_bytes(k), _bytes(v)], k, v) for handle, k, v in read]
    if numbers:
        once = DraftOperator("CALL_ONCE", [], [], {"init_subgraph_index": len(program)})
        program[0].operators.insert(0, once)
        program.append(filling)


def _table(handle: DraftTensor, number: int, keys: DraftTensor, values: DraftTensor) -> DraftOperator:
    said = {"table_id": number, "key_dtype": keys.type, "value_dtype": values.type}
    return DraftOperator("HASHTABLE", [], [handle], said)


def _bytes(tensor: DraftTensor) -> bytes:
    return np.asarray(tensor.data).tobytes()


# The values of a graph by their names, by the tensors of a file that they hold, and those that constants give.


class ValuesByTensor:
    """The values of a graph by their names, and by the tensors of a file that they hold."""

    def __init__(
        self,
        graph: ir.Graph,  # a graph, or a body
        around: ValuesByTensor | None = None,  # the values of the graph around it
    ) -> None:
        self.around = around
        self.taken: set[str | None] = set() if around is None else around.taken
        self._computed: set[ir.Value | None] = set() if around is None else set(around._computed)
        self._holding: dict[str, list[ir.Value]] = {}
        for value in graph_values(graph):
            self.add(value)
        for node in graph:
            shape = None if node.op_type != "Shape" or node.inputs[0] is None else node.inputs[0].shape
            is_extents = shape is not None and shape.is_static()
            if is_extents or all(value is None or self.follows_from_constants(value) for value in node.inputs):
                self._computed.update(node.outputs)

    def follows_from_constants(self, value: ir.Value) -> bool:
        """Return whether a value is a constant, or computed from constants and from extents that are numbers alone."""
        if value.producer() is not None:
            return value in self._computed
        return value.const_value is not None and not value.is_graph_input()

    def add(self, value: ir.Value) -> None:
        """Take note of a value."""
        self.taken.add(value.name)
        for name in {value.name or "", *(source_value.name for source_value in Holds.of(value.metadata_props))}:
            self._holding.setdefault(name, []).append(value)

    def holding(self, name: str) -> Iterator[ir.Value]:
        """Yield the values that are there and hold a tensor."""
        for value in self._holding.get(name, ()):
            node = value.producer()
            if value.name is not None and (node is None or node.graph is not None):
                yield value
        if self.around is not None:
            yield from self.around.holding(name)

    def unique(self, name: str) -> str:
        """Return a name that no value has."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


@dataclass
class DraftVariables:
    """The variables of a graph, by name."""

    initial: dict[str, DraftTensor] = field(default_factory=dict)  # what the first run begins with: a constant
    read: dict[str, DraftTensor] = field(default_factory=dict)  # what every run begins with
    assigned: dict[str, DraftTensor] = field(default_factory=dict)  # what it leaves to the next one


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


def write_variables(program: list[Draft], variables: DraftVariables, variables_as_ends: ExitStack) -> None:
    """Add the operators that set variables up, read them first, and assign to them last, to the first graph, in place.

    Args:
        program: the graphs of the file; what sets them up becomes the last one.
        variables: those of the first graph.
        variables_as_ends: lets them be inputs and outputs until it is closed.
    """
    variables_as_ends.close()
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
