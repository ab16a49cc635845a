"""If and Loop: IF and WHILE, with subgraphs whose operands are also the values that a body reads from outside.

Builtins that ONNX spells out are written as the file has them that they were read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import NUMPY, Dims, Draft, DraftTensor, all_known
from relayout.formats.tflite.exporting.few_axes import use_few_axes
from relayout.formats.tflite.exporting.kernel_types import kernel_type, tensor_dims
from relayout.formats.tflite.exporting.loops import is_unconditional
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.spelled_out import (
    ASSIGN,
    DOMAIN,
    READ,
    RESTORABLE,
    RESTORABLE_CUSTOM,
    RESTORED,
    Builtin,
    Operand,
)
from relayout.layout.stored_as import BATCH_FIRST


@exporter(*sorted(RESTORABLE | RESTORABLE_CUSTOM), domain=DOMAIN)
def restored(op: NodeExport) -> None:
    """The operator of the `.tflite` that the model was read from, its states kept as there; or one without options."""
    if not op.text("description"):  # a lowering wrote it
        op.result(op.op_type, op.inputs())
        return
    builtin = Builtin.parse(op.text("description"))
    if builtin is None or not op.node.meta.get(BATCH_FIRST):
        raise Unwritable("it was read from no .tflite")
    inputs = [None if each is None else _operand(op, slot, each) for slot, each in enumerate(builtin.inputs)]
    outputs = [op.output(slot) for slot in range(len(builtin.outputs))]
    results = [_result(op, output, each) for output, each in zip(outputs, builtin.outputs, strict=True)]
    operator = op.draft.add(builtin.name, inputs, results, builtin.custom_options)
    operator.is_restored = True
    operator.options.update(builtin.options)
    if "time_major" in builtin.known_options:
        operator.options["time_major"] = bool(op.integer("time_major"))
    operator.intermediates = tuple(_tensor(op, each, "between") for each in builtin.intermediates)
    for result, output in zip(results, outputs, strict=True):
        if result is not output:
            op.graph.copy(result, output)


def _result(op: NodeExport, output: DraftTensor, operand: Operand) -> DraftTensor:
    """Return a result: a node's output, or what is copied there where others read the integers with another scale."""
    output.type = operand.type
    known = output.quantization
    if known is None or operand.quantization is None or operand.quantization.equals(known):
        output.quantization = operand.quantization
        return output
    return op.draft.tensor(f"{output.name}/restored", operand.type, output.dims, operand.quantization)


def _operand(op: NodeExport, slot: int, operand: Operand) -> DraftTensor:
    if not op.has(slot):
        tensor = _tensor(op, operand, "state")
        tensor.variable = True
        return tensor
    tensor = op.graph.integers.as_stated(op.value(slot), op.graph.tensor_of(op.value(slot)))
    if tensor.type != operand.type:
        raise Unwritable(f"elements of {tensor.type.name} where the file that it was read from has others")
    if operand.variable:
        variable = _tensor(op, operand, "state")
        variable.variable = True
        op.draft.add("UNPACK", [op.reshape(tensor, (1, *tensor.dims))], [variable], num=1, axis=0)
        return variable
    return _meant(op, tensor, operand.quantization)


def _meant(op: NodeExport, tensor: DraftTensor, meaning: Quantization | None) -> DraftTensor:
    """Return a tensor with the scale that the builtin has for it: a copy, if others read it with another scale."""
    known = tensor.quantization
    if known is meaning or (known is not None and meaning is not None and meaning.equals(known)):
        return tensor
    if tensor.data is not None:  # its own copy of what names the constant
        return replace(tensor, name=op.draft.unique(f"{tensor.name}/integers"), quantization=meaning)
    if known is None or meaning is None:
        tensor.quantization = meaning
        return tensor
    copied = op.draft.tensor(f"{tensor.name}/integers", tensor.type, tensor.dims, meaning)
    op.graph.copy(tensor, copied)
    return copied


def _tensor(op: NodeExport, operand: Operand, what: str) -> DraftTensor:
    return op.draft.tensor(f"{op.name}/{what}", operand.type, operand.shape, operand.quantization)


# Resource variables, which runtimes keep from run to run.


@exporter(READ, domain=DOMAIN)
def read_variable(op: NodeExport) -> None:
    """VAR_HANDLE and READ_VARIABLE, with what CALL_ONCE assigns first."""
    name, variables = _name(op), op.graph.variables
    variables.initial[name], variables.read[name] = op.input(0), op.output(0)


@exporter(ASSIGN, domain=DOMAIN)
def assign_variable(op: NodeExport) -> None:
    """ASSIGN_VARIABLE at the end of each run."""
    op.graph.variables.assigned[_name(op)] = op.input(0)


def _name(op: NodeExport) -> str:
    if not op.node.meta.get(RESTORED):
        raise Unwritable("it was read from no .tflite")
    return op.text("variable")


SHRINKS = np.zeros(3, np.int32), np.zeros(2, np.int32)
"""The value that a loop carries, before its first round and after each, where anything in it grows.

WHILE keeps the extents of its results, unless it sees in one round that some differ. What goes from 0 to 1 along its
first axis it takes for a number and one element: a list that begins with nothing would have one row in all rounds.
"""
MOST_ROUNDS = np.iinfo(np.int32).max  # rounds that are counted; a Loop of more has no limit but its condition


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
    condition = op.reshape(op.input(0), ())
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

    They are states, collections, extents of open slices, and outer values; before them, each where it is needed, the
    number of the round, how many there are, and the condition. Slices of open extents are collected flat, since
    CONCATENATION takes none that it does not know; a RESHAPE behind the loop gives them their extents, which the rounds
    carry. Where anything grows, they carry `SHRINKS`, too.
    """

    def __init__(self, op: NodeExport) -> None:
        self.op = op
        self.body = op.node.attributes["body"].as_graph()
        self.states = len(op.node.inputs) - 2
        self.scanned = self.body.outputs[1 + self.states :]
        self.captured = outer_values(self.body)
        self.open = [value for value in self.scanned if not all_known(tensor_dims(value))]
        self.has_condition = not is_unconditional(op.node)
        self.most = op.constant(0)  # how many rounds there are, where that is known
        if self.most is not None and int(self.most.reshape(-1)[0]) > MOST_ROUNDS and self.has_condition:
            self.most = None
        self.has_limit = self.most is not None or (op.has(0) and op.constant(0) is None) or not self.has_condition
        self.carries_most = self.has_limit and self.most is None
        counter = self.body.inputs[0]
        self.has_number = self.has_limit or bool(self.open) or bool(counter.uses()) or counter.is_graph_output()
        self.grows = bool(self.scanned)  # True if anything has other extents after a round

    @property
    def first(self) -> int:
        """The place of the first state among the tensors that are carried."""
        return self.has_number + self.carries_most + self.has_condition

    def write(self) -> None:
        """Write the node."""
        op = self.op
        carried, kinds = self._carried()
        indices = [op.graph.program.index(each) for each in (self._condition(kinds), self._body(kinds))]
        results = op.outputs("WHILE", carried, kinds, cond_subgraph_index=indices[0], body_subgraph_index=indices[1])
        outputs = results[self.first : self.first + self.states + len(self.scanned)]
        shapes = dict(zip(self.open, results[self.first + len(outputs) :], strict=False))
        for place, value in enumerate(self.scanned, self.states):
            if value in shapes and op.gives(place):  # it was collected flat, one slice for each round
                shape = op.concat([op.reshape(results[0], (1,)), shapes[value]], 0)
                outputs[place] = op.emit("RESHAPE", [outputs[place], shape], (f"?{op.name}", *tensor_dims(value)))
        for slot, tensor in enumerate(outputs):
            if slot < len(op.node.outputs):  # the name of one that nobody reads would be longer after each import
                op.give(tensor, slot)

    def _carried(self) -> tuple[list[DraftTensor], list[tuple[TensorType, Dims]]]:
        """Return what is carried into the first round, and the types and extents that it has in every round."""
        op = self.op
        carried = [op.ints(np.array(0))] if self.has_number else []
        if self.carries_most:  # as the condition compares it
            carried.append(op.cast(op.reshape(op.input(0), ()), TensorType.INT64))
        if self.has_condition:
            carried.append(op.reshape(op.input(1), ()) if op.has(1) else op.const(np.array(True)))
        carried += [op.input(slot) for slot in range(2, 2 + self.states)]
        for value in self.scanned:  # nothing is collected yet
            rest = () if value in self.open else tensor_dims(value)
            carried.append(op.const(np.zeros((0, *map(int, rest)), NUMPY[kernel_type(value)])))
        carried += [op.ints([dim if isinstance(dim, int) else 0 for dim in tensor_dims(value)]) for value in self.open]
        kinds = [(tensor.type, tensor.dims) for tensor in carried]
        for place, value in enumerate(self.body.outputs[1:], self.first):
            kind, dims = kinds[place]
            joined: Dims = (f"?{op.name}", *(() if value in self.open else tensor_dims(value)))
            if place < self.first + self.states:
                joined = _joined(dims, tensor_dims(value))
                self.grows |= joined != dims
            kinds[place] = (kind, joined)
        if self.grows:
            carried.append(op.const(SHRINKS[0]))
            kinds.append((TensorType.INT32, (f"?{op.name}.shrinks",)))
        outer = [op.graph.tensor_of(value) for value in self.captured]
        return [*carried, *outer], [*kinds, *((tensor.type, tensor.dims) for tensor in outer)]

    def _condition(self, kinds: Sequence[tuple[TensorType, Dims]]) -> Draft:
        draft = Draft("condition")
        draft.inputs = [draft.tensor(f"carried_{place}", *kind) for place, kind in enumerate(kinds)]
        conditions = draft.inputs[self.first - 1 : self.first] if self.has_condition else []
        if self.has_limit:
            number, most = draft.inputs[0], draft.inputs[1] if self.carries_most else None
            if most is None:
                rounds = 0 if self.most is None else min(int(self.most.reshape(-1)[0]), MOST_ROUNDS)
                most = draft.constant("most", np.array(rounds, np.int32))
            else:
                number = draft.tensor("number", TensorType.INT64, ())
                draft.add_cast(draft.inputs[0], number)
            conditions.insert(0, draft.tensor("below", TensorType.BOOL, ()))
            draft.add("LESS", [number, most], conditions[:1])
        if len(conditions) > 1:
            both = draft.tensor("again", TensorType.BOOL, ())
            draft.add("LOGICAL_AND", conditions, [both])
            conditions = [both]
        draft.outputs = conditions
        self.op.graph.program.append(draft)
        return draft

    def _body(self, kinds: Sequence[tuple[TensorType, Dims]]) -> Draft:
        body = self.op.graph.body(self.body)
        draft = body.draft
        inputs = [draft.tensor(f"carried_{place}", *kind) for place, kind in enumerate(kinds)]
        draft.inputs = list(inputs)
        op = NodeExport(body, self.op.node)
        counter, again = self.body.inputs[:2]
        if counter.uses() or counter.is_graph_output():
            body.tensors[counter] = op.cast(inputs[0], kernel_type(counter))
        body.tensors[again] = inputs[self.first - 1] if self.has_condition else op.const(np.array(True))
        body.tensors.update(zip(self.body.inputs[2:], inputs[self.first :], strict=False))
        body.tensors.update(zip(self.captured, inputs[len(inputs) - len(self.captured) :], strict=True))
        body.write()
        begin = len(draft.operators)
        outputs, extents = [op.add(inputs[0], 1)] if self.has_number else [], list[DraftTensor]()
        outputs += inputs[1:2] if self.carries_most else []
        for place, value in enumerate(self.body.outputs):
            if body.refusals.reasons or value in body.unknown:
                return draft
            if place == 0 and not self.has_condition:
                continue
            tensor = body.tensor_of(value)
            if place > self.states:
                if value in self.open:
                    extents.append(op.extents(tensor))
                collected = inputs[self.first + place - 1]
                row = op.reshape(tensor, ("?elements",) if value in self.open else (1, *tensor.dims))
                tensor = op.emit("CONCATENATION", [collected, row], collected.dims, axis=0)
            elif place == 0:
                tensor = op.reshape(tensor, ())
            outputs.append(tensor)
        outputs += extents
        outputs += [op.const(SHRINKS[1])] if self.grows else []
        use_few_axes(draft, begin)
        draft.outputs = body.distinct([*outputs, *inputs[len(outputs) :]], is_round=True)
        return draft


def _joined(before: Dims, after: Dims) -> Dims:
    """Return the extents of a state: those that stay as they are."""
    if len(before) != len(after):
        raise Unwritable("a state of a Loop has another rank after a round")
    return tuple(a if a == b else f"?{place}" for place, (a, b) in enumerate(zip(before, after, strict=True)))
