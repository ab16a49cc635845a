"""A recurrent operator of many steps as a WHILE: its body is a round of one step, or of some.

    WHILE(place, states, results, products)  ->  { row = GATHER(products, place); states = cell(row, states);
                                                   results = DYNAMIC_UPDATE_SLICE(results, states, [place, 0]) }

The product of the inputs and their weights is computed before, for all steps at once. The numbers are those of the
steps written one by one, since the operators of a step are the same.

LiteRT 2.3, one thread, GRU of `hidden` elements and as many inputs, which gives its last state or all; in µs:

| hidden | steps | one by one | loop, last | loop, all, rounds of 1 | of 8 | to load, one by one | to load, loop |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| 32 | 16 | 11 | 18 | 23 | 33 | 700 | 300 |
| 32 | 64 | 50 | 61 | 92 | 77 | 2,500 | 500 |
| 32 | 256 | 205 | 231 | 601 | 280 | 20,000 | 700 |
| 32 | 1,000 | 3,200 | 870 | 5,800 | 1,490 | 233,000 | 700 |
| 128 | 32 | 122 | 119 | 145 | 161 | 1,500 | 600 |
| 128 | 64 | 294 | 233 | 325 | 302 | 4,000 | 800 |
| 128 | 256 | 3,100 | 896 | 2,190 | 1,260 | 28,000 | 700 |
| 128 | 1,000 | 14,800 | 3,540 | 26,700 | 7,130 | 255,000 | 900 |

Steps that are written one by one have their weights in memory once for each step, as their kernels pack them. A round
copies the list of results.

1. A model that was a `.tflite` gets rounds of one step: its source has such a loop, with the same operators.
2. Else a loop is written where the weights of all steps exceed the caches, and from many steps on.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.recognition import was_tflite
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.matrix import rounded_weights_of
from relayout.formats.tflite.exporting.recurrent_operands import BIAS, PEEPHOLE, RECURRENT, is_recurrent
from relayout.formats.tflite.exporting.scales import dequantizer_of
from relayout.graph.subgraphs import all_graphs

LOOP = "relayout.loop"
"""The key of a node's meta: it may be written as a loop."""
NEWEST_BUILTIN = "DYNAMIC_UPDATE_SLICE"
"""The builtin of a loop that the newest runtimes alone have."""
MANY_STEPS = 300
"""Steps from which on a loop is written, whatever its weights."""
CACHES = 8 << 20
"""Bytes of the weights of all steps from which on a loop is written."""
STEPS_OF_A_ROUND = 8
"""Steps of a round that writes a list of results."""
MOST_ZEROS = 1 << 12
"""Zeros up to which a list of results lies in the file."""
PARAMETERS = (RECURRENT, BIAS, PEEPHOLE)
"""Operands of a recurrent node that a step reads."""
Step = Callable[
    [DraftTensor, list[DraftTensor], DraftTensor | None, DraftTensor | int], tuple[DraftTensor, list[DraftTensor]]
]
"""Writes a step: its row of products, the states before, how many steps each row has, its number -> result, states."""


class LoopStep(NamedTuple):
    """One step of a loop.

    Args:
        step: the arithmetic inside of the body -> what writes a step there.
        is_listed: whether anybody reads the results of all steps.
    """

    step: Callable[[NodeExport], Step]
    is_listed: bool


def mark_loops(model: ir.Model, is_looped: Callable[[ir.Node], bool]) -> None:
    """Mark recurrent nodes that may be written as a loop, in place.

    Args:
        model: the model.
        is_looped: whether the runtime of a node has what such a loop is written in.
    """
    for graph in all_graphs(model.graph):
        for node in graph:
            if is_recurrent(node) and LOOP not in node.meta:
                node.meta[LOOP] = is_looped(node) and _is_long(node, was_tflite(model.metadata_props))


def _is_long(node: ir.Node, from_tflite: bool) -> bool:
    """Return whether a node of known extents has so many steps that it is written as a loop."""
    x, recurrent = node.inputs[0], node.inputs[2]
    if x is None or recurrent is None or x.shape is None or recurrent.shape is None or x.dtype != ir.DataType.FLOAT:
        return False
    length, batch = (x.shape[axis] for axis in ((1, 0) if node.attributes.get_int("layout", 0) else (0, 1)))
    if not isinstance(length, int) or not isinstance(batch, int) or not recurrent.shape.is_static():
        return False
    weights = 4 * prod(recurrent.shape.numpy()[1:])
    return length > 1 if from_tflite else length >= MANY_STEPS or length * weights >= CACHES


def write_loop(
    op: NodeExport, body: LoopStep, products: DraftTensor, states: list[DraftTensor], lengths: DraftTensor | None
) -> tuple[DraftTensor | None, list[DraftTensor]]:
    """Write all steps in rounds; return the results of all steps, `length batch hidden`, and the last states.

    Args:
        op: the node.
        body: one step.
        products: of the inputs and their weights, `length batch rows`.
        states: to begin with, `batch hidden` each.
        lengths: how many steps each row of the batch has; None: all of them.
    """
    (length, batch, rows) = known(products.dims)
    _, hidden = known(states[0].dims)
    size = STEPS_OF_A_ROUND if body.is_listed and not was_tflite(op.graph.model.metadata_props) else 1
    rounds = length // size
    computed = [op.value(slot) for slot in PARAMETERS if op.has(slot) and not _is_inside(op, slot)]
    lists = [_zeros(op, length * batch, hidden)] if body.is_listed else []
    looped = op.reshape(op.part(products, 0, 0, rounds * size), (rounds, size * batch, rows))
    outer = [looped, *([] if lengths is None else [lengths]), *map(op.graph.tensor_of, computed)]
    carried = [op.ints(np.array(0)), *states, *lists, *outer]
    kinds = [(tensor.type, tensor.dims) for tensor in carried]
    loop = _Round(op, kinds, body, size, rounds, batch)
    drafts = loop.condition(), loop.write(computed, len(states), has_lengths=lengths is not None)
    condition, inside = (op.graph.program.index(each) for each in drafts)
    results = op.outputs("WHILE", carried, kinds, cond_subgraph_index=condition, body_subgraph_index=inside)
    states = results[1 : 1 + len(states)]
    every = results[1 + len(states)] if body.is_listed else None
    step = body.step(op)
    for place in range(rounds * size, length):
        row = op.reshape(op.part(products, 0, place, 1), (batch, rows))
        result, states = step(row, states, lengths, place)
        if every is not None:
            begin = op.ints([place * batch, 0])
            every = op.emit(NEWEST_BUILTIN, [every, result, begin], every.dims)
    return None if every is None else op.reshape(every, (length, batch, hidden)), states


def _zeros(op: NodeExport, rows: int, hidden: int) -> DraftTensor:
    """Return what a list of results holds before the loop; a large one does not lie in the file."""
    if rows * hidden <= MOST_ZEROS:
        return op.const(np.zeros((rows, hidden), np.float32))
    zero, extents = op.const(np.array(0, np.float32)), op.ints([rows, hidden])
    return op.emit("FILL", [extents, zero], (rows, hidden), TensorType.FLOAT32)


class _Round(NamedTuple):
    """The graphs of a loop.

    Args:
        op: the node.
        kinds: types and extents of what the loop carries.
        body: one step.
        size: steps of a round.
        rounds: how many there are.
        batch: rows of a step.
    """

    op: NodeExport
    kinds: Sequence[tuple[TensorType, Dims]]
    body: LoopStep
    size: int
    rounds: int
    batch: int

    def condition(self) -> Draft:
        """Write the graph that tells whether there is another round."""
        draft = Draft(f"{self.op.name}/condition")
        draft.inputs = self._inputs(draft)
        again = draft.tensor("again", TensorType.BOOL, ())
        draft.add("LESS", [draft.inputs[0], draft.constant("rounds", np.array(self.rounds, np.int32))], [again])
        draft.outputs = [again]
        self.op.graph.program.append(draft)
        return draft

    def write(self, computed: Sequence[ir.Value], count: int, *, has_lengths: bool) -> Draft:
        """Write the graph of one round."""
        graph, batch = self.op.graph.body(self.op.graph.graph), self.batch
        draft, op = graph.draft, NodeExport(graph, self.op.node)
        draft.name, draft.inputs = f"{self.op.name}/round", self._inputs(draft)
        place, *states = draft.inputs[: 1 + count]
        outer = draft.inputs[1 + count + self.body.is_listed :]
        graph.tensors.update(zip(computed, outer[len(outer) - len(computed) :], strict=True))
        step, block, results = self.body.step(op), op.gather(outer[0], place, 0), list[DraftTensor]()
        for number in range(self.size):
            row = op.part(block, 0, number * batch, batch)
            here = op.add(op.mul(place, self.size), number) if has_lengths else place
            result, states = step(row, states, outer[1] if has_lengths else None, here)
            results.append(result)
        lists = []
        if self.body.is_listed:
            rows = self.size * batch
            first = place if rows == 1 else op.mul(place, rows)
            begin = op.emit("PACK", [first, op.ints(np.array(0))], (2,), values_count=2, axis=0)
            before = draft.inputs[1 + count]
            written = [before, op.concat(results, 0), begin]
            lists = [op.emit(NEWEST_BUILTIN, written, before.dims)]
        draft.outputs = [*graph.distinct([op.add(place, 1), *states, *lists]), *outer]
        return draft

    def _inputs(self, draft: Draft) -> list[DraftTensor]:
        return [draft.tensor(f"carried_{place}", *kind) for place, kind in enumerate(self.kinds)]


def constant_behind(value: ir.Value) -> ir.Value | None:
    """Return a parameter that is a constant, or the constant in half precision that it is a Cast of; else None."""
    node = value.producer()
    is_cast = node is not None and node.op_type == "Cast" and not node.domain and value.dtype == ir.DataType.FLOAT
    source = node.inputs[0] if node is not None and is_cast else value
    if source is None or source.const_value is None or source.is_graph_input():
        return None
    return source if source is value or source.dtype == ir.DataType.FLOAT16 else None


def _is_inside(op: NodeExport, slot: int) -> bool:
    """Return whether a body can hold a parameter itself: a constant, bytes, or real numbers of constant integers."""
    value = op.value(slot)
    node = dequantizer_of(value)
    source = value if node is None else node.inputs[0]
    if source is not None and constant_behind(source) is not None:
        return True
    return slot == RECURRENT and op.op_type != "LSTM" and rounded_weights_of(op, slot) is not None
