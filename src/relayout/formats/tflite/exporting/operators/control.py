"""If and Loop: IF and WHILE, with subgraphs whose operands are also the values that a body reads from outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftTensor
from relayout.formats.tflite.exporting.few_axes import use_few_axes
from relayout.formats.tflite.exporting.node import NUMPY, NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps
from relayout.formats.tflite.exporting.value_types import kernel_type, tensor_dims


@exporter("If")
def if_(op: NodeExport) -> None:
    """IF; what its branches read from outside are operands."""
    branches = [op.node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    captured = list(dict.fromkeys(value for branch in branches for value in outer_values(branch)))
    indices = []
    for branch in branches:
        body = op.graph.body(branch)
        body.take([*captured])
        body.write()
        body.give_all(branch.outputs, op)
        indices.append(op.graph.program.index(body.draft))
    condition = op.reshaped(op.input(0), ())
    operands = [op.graph.tensor_of(value) for value in captured]
    then, otherwise = indices
    op.results("IF", [condition, *operands], then_subgraph_index=then, else_subgraph_index=otherwise)


def outer_values(graph: ir.Graph) -> list[ir.Value]:
    """Return the computed values of other graphs that a body reads, also in bodies of its own."""
    inside = set(graph.inputs) | {value for node in graph.all_nodes() for value in node.outputs}
    for each in graph.subgraphs():
        inside |= set(each.inputs)
    read = [
        *(value for node in graph.all_nodes() for value in node.inputs),
        *graph.outputs,
        *(value for each in graph.subgraphs() for value in each.outputs),
    ]
    return [
        value
        for value in dict.fromkeys(read)
        if value is not None and value not in inside and (value.const_value is None or value.is_graph_input())
    ]


@exporter("Loop")
def loop(op: NodeExport) -> None:
    """WHILE over the number of rounds, the condition, the states, what was collected, and what is read from outside."""
    _Loop(op).write()


class _Loop:
    """A Loop, and the tensors that WHILE carries.

    They are number, rounds, condition, states, collections, extents of open slices, and outer values. Slices of open
    extents are collected flat, since CONCATENATION takes none that it does not know; a RESHAPE behind the loop gives
    them their extents, which the rounds carry.
    """

    def __init__(self, op: NodeExport) -> None:
        self.op, self.steps = op, Steps(op)
        self.body = op.node.attributes["body"].as_graph()
        self.states = len(op.node.inputs) - 2
        self.scanned = self.body.outputs[1 + self.states :]
        self.captured = outer_values(self.body)
        self.open = [value for value in self.scanned if not self._is_static(value)]

    def write(self) -> None:
        """Write the node."""
        op, steps = self.op, self.steps
        one = steps.ints(np.array(0))
        most = steps.cast(steps.reshape(op.input(0), ()), TensorType.INT64) if op.has(0) else self._no_limit()
        condition = steps.reshape(op.input(1), ()) if op.has(1) else op.const(np.array(True))
        states = [op.input(slot) for slot in range(2, 2 + self.states)]
        collected = [self._nothing(value) for value in self.scanned]
        extents = [
            steps.ints([dim if isinstance(dim, int) else 0 for dim in self._slice(value)]) for value in self.open
        ]
        outer = [op.graph.tensor_of(value) for value in self.captured]
        carried = [one, most, condition, *states, *collected, *extents, *outer]
        kinds = [(tensor.type, tensor.dims) for tensor in carried]
        for place, value in enumerate(self.scanned):
            rest = () if value in self.open else self._slice(value)
            kinds[3 + self.states + place] = (collected[place].type, (f"?{op.name}", *rest))
        for place, value in enumerate(self.body.outputs[1 : 1 + self.states]):
            kinds[3 + place] = (states[place].type, _joined(states[place].dims, tensor_dims(value)))
        indices = [op.graph.program.index(each) for each in (self._condition(kinds), self._body(kinds))]
        results = steps.outputs("WHILE", carried, kinds, cond_subgraph_index=indices[0], body_subgraph_index=indices[1])
        found = results[3 : 3 + self.states + len(self.scanned)]
        shapes = dict(zip(self.open, results[3 + len(found) :], strict=False))
        for place, value in enumerate(self.scanned, self.states):
            if value in shapes and op.gives(place):
                found[place] = self._shaped(value, found[place], results[0], shapes[value])
        for slot, tensor in enumerate(found):
            if op.gives(slot):
                op.give(tensor, slot)

    def _shaped(self, value: ir.Value, flat: DraftTensor, rounds: DraftTensor, extents: DraftTensor) -> DraftTensor:
        """Return slices that were collected flat, one for each round."""
        steps = self.steps
        shape = steps.concat([steps.reshape(rounds, (1,)), extents], 0)
        return self.op.emit("RESHAPE", [flat, shape], (f"?{self.op.name}", *self._slice(value)))

    def _nothing(self, value: ir.Value) -> DraftTensor:
        """Return what is collected before the first round."""
        rest = () if value in self.open else self._slice(value)
        return self.op.const(np.zeros((0, *map(int, rest)), NUMPY[self._kind(value)]))

    def _is_static(self, value: ir.Value) -> bool:
        return all(isinstance(dim, int) for dim in self._slice(value))

    def _no_limit(self) -> DraftTensor:
        return self.op.const(np.array(np.iinfo(np.int64).max))

    def _kind(self, value: ir.Value) -> TensorType:
        return kernel_type(value)

    def _slice(self, value: ir.Value) -> Dims:
        return tensor_dims(value)

    def _condition(self, kinds: Sequence[tuple[TensorType, Dims]]) -> Draft:
        draft = Draft("condition")
        draft.inputs = [draft.tensor(f"carried_{place}", *kind) for place, kind in enumerate(kinds)]
        number = draft.tensor("number", TensorType.INT64, ())
        draft.add("CAST", [draft.inputs[0]], [number], in_data_type=TensorType.INT32, out_data_type=TensorType.INT64)
        below, again = (draft.tensor(name, TensorType.BOOL, ()) for name in ("below", "again"))
        draft.add("LESS", [number, draft.inputs[1]], [below])
        draft.add("LOGICAL_AND", [below, draft.inputs[2]], [again])
        draft.outputs = [again]
        self.op.graph.program.append(draft)
        return draft

    def _body(self, kinds: Sequence[tuple[TensorType, Dims]]) -> Draft:
        body = self.op.graph.body(self.body)
        draft = body.draft
        inputs = [draft.tensor(f"carried_{place}", *kind) for place, kind in enumerate(kinds)]
        draft.inputs = list(inputs)
        number, most, condition = inputs[:3]
        steps = Steps(NodeExport(body, self.op.node))
        counter = self.body.inputs[0]
        body.tensors[counter] = steps.cast(number, self._kind(counter))
        body.tensors[self.body.inputs[1]] = condition
        body.tensors.update(zip(self.body.inputs[2:], inputs[3:], strict=False))
        body.tensors.update(zip(self.captured, inputs[len(inputs) - len(self.captured) :], strict=True))
        body.write()
        begin = len(draft.operators)
        outputs, extents = [steps.add(number, 1), most], list[DraftTensor]()
        for place, value in enumerate(self.body.outputs):
            if body.refusals.reasons or value in body.unknown:
                return draft
            tensor = body.tensor_of(value)
            if place > self.states:
                if value in self.open:
                    extents.append(steps.extents(tensor))
                tensor = self._appended(steps, inputs[2 + place], tensor, flat=value in self.open)
            elif place == 0:
                tensor = steps.reshape(tensor, ())
            outputs.append(tensor)
        outputs += extents
        use_few_axes(draft, begin)
        draft.outputs = body.distinct([*outputs, *inputs[len(outputs) :]])
        return draft

    def _appended(self, steps: Steps, collected: DraftTensor, tensor: DraftTensor, *, flat: bool) -> DraftTensor:
        row = steps.reshape(tensor, ("?elements",) if flat else (1, *tensor.dims))
        return steps.op.emit("CONCATENATION", [collected, row], collected.dims, axis=0)


def _joined(before: Dims, after: Dims) -> Dims:
    """Return the extents of a state: those that stay as they are."""
    if len(before) != len(after):
        raise Unwritable("a state of a Loop has another rank after a round")
    return tuple(a if a == b else f"?{place}" for place, (a, b) in enumerate(zip(before, after, strict=True)))
