"""A recurrent operator of many steps as WHILEs whose body is one step.

    WHILE(place, states, results, products)  ->  { row = GATHER(products, place); states = cell(row, states);
                                                   results = DYNAMIC_UPDATE_SLICE(results, states, [place, 0, 0]) }

The product of the inputs and their weights is computed before, for all steps at once. The numbers are those of the
steps written one by one, since the operators of a step are the same.

LiteRT 2.3, one thread, as many inputs as elements of the state, which is given last or at all steps; in µs:

| cell | elements | steps | one by one | loop, last | loops, all | kernel |
| --- | ---: | ---: | ---: | ---: | ---: | ---: |
| GRU | 32 | 24 | 17 | 25 | 49 | |
| GRU | 64 | 64 | 97 | 101 | 148 | |
| GRU | 128 | 100 | 1,130 | 371 | 455 | |
| GRU | 512 | 50 | 11,400 | 2,610 | 2,720 | |
| LSTM | 32 | 24 | 21 | 31 | 55 | 32 |
| LSTM | 64 | 64 | 125 | 124 | 180 | 202 |
| LSTM | 128 | 100 | 1,770 | 473 | 565 | 1,050 |
| LSTM | 512 | 50 | 13,400 | 3,580 | 3,710 | 12,300 |

Steps that are written one by one have their weights in memory once for each step, as their kernels pack them: beyond
the caches they wait for memory. A round copies the list of results, so that all steps are chained loops with short
lists.

1. A model that was a `.tflite` gets one loop: its source has such a loop, with the same operators.
2. Else a loop is written where the weights of all steps exceed the caches, and from many steps on.
"""

from collections.abc import Callable, Sequence
from math import ceil, prod, sqrt
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
from relayout.layout.stored_as import BATCH_FIRST

LOOP, STEPS = "relayout.loop", "relayout.steps"
"""The keys of a node's meta: it is written as a loop; its steps take less time than a kernel for all of them."""
SINCE = 14
"""The version of ONNX from which on recurrent operators have the attribute `layout`."""
NEWEST_BUILTIN = "DYNAMIC_UPDATE_SLICE"
"""The builtin of a loop that the newest runtimes alone have."""
MANY_STEPS = 300
"""Steps from which on a loop is written, whatever its weights."""
CACHES = 8 << 20
"""Bytes of the weights of all steps from which on a loop is written."""
MOST_ZEROS = 1 << 12
"""Zeros up to which a list of results lies in the file."""
PARAMETERS = (RECURRENT, BIAS, PEEPHOLE)
"""Operands of a recurrent node that a step reads."""
Step = Callable[
    [Sequence[DraftTensor], list[DraftTensor], DraftTensor | None, DraftTensor | int],
    tuple[DraftTensor, list[DraftTensor]],
]
"""Writes a step: its rows of products, the states before, how many steps each row has, its number -> result, states."""


class LoopStep(NamedTuple):
    """One step of a loop.

    Args:
        step: the arithmetic inside of the body -> what writes a step there.
        is_listed: whether anybody reads the results of all steps.
    """

    step: Callable[[NodeExport], Step]
    is_listed: bool


def mark_loops(model: ir.Model, is_looped: Callable[[ir.Node], bool], *, steps_are_faster: bool) -> None:
    """Mark recurrent nodes of known extents that are written step by step or as a loop, in place.

    Args:
        model: the model.
        is_looped: whether the runtime of a node has what such a loop is written in.
        steps_are_faster: whether an LSTM takes less time step by step than by a kernel for all steps.
    """
    from_tflite = was_tflite(model.metadata_props)
    for graph in all_graphs(model.graph):
        for node in graph:
            if is_recurrent(node) and LOOP not in node.meta:
                steps = _steps_of(node)
                is_long = steps is not None and _is_long(*steps, from_tflite)
                node.meta[LOOP] = is_long and is_looped(node)
                node.meta[STEPS] = (
                    steps is not None and steps_are_faster and not from_tflite and is_long == node.meta[LOOP]
                )


def mark_batch_first(model: ir.Model) -> None:
    """Mark recurrent nodes: whatever computes them takes the batch first, too."""
    if model.opset_imports.get("", 1) >= SINCE:
        for node in filter(is_recurrent, model.graph):
            node.meta[BATCH_FIRST] = True


def _steps_of(node: ir.Node) -> tuple[int, int] | None:
    """Return the number of a node's steps and the bytes of a step's weights; None where extents are open."""
    x, recurrent = node.inputs[0], node.inputs[2]
    if x is None or recurrent is None or x.shape is None or recurrent.shape is None or x.dtype != ir.DataType.FLOAT:
        return None
    length, batch = (x.shape[axis] for axis in ((1, 0) if node.attributes.get_int("layout", 0) else (0, 1)))
    if not isinstance(length, int) or not isinstance(batch, int) or not recurrent.shape.is_static():
        return None
    return length, 4 * prod(recurrent.shape.numpy()[1:])


def _is_long(length: int, weights: int, from_tflite: bool) -> bool:
    """Return whether so many steps are written as a loop."""
    return length > 1 if from_tflite else length >= MANY_STEPS or length * weights >= CACHES


def time_axis(op: NodeExport) -> int:
    """Return the axis of a sequence that is time; the other one of the first two is the batch."""
    return 1 if op.integer("layout") else 0


def write_loop(
    op: NodeExport,
    body: LoopStep,
    products: Sequence[DraftTensor],
    states: list[DraftTensor],
    lengths: DraftTensor | None,
) -> tuple[DraftTensor | None, list[DraftTensor]]:
    """Write all steps in loops; return the results of all steps, as the products lie, and the last states.

    Each round copies the list of results. Where there is one, about `√length` loops follow each other, which have a
    list of as many steps each. They share their body. The last one begins inside of its block of products, so that all
    blocks are alike.

    Args:
        op: the node.
        body: one step.
        products: of the inputs and their weights, `length batch rows` each, or `batch length rows`.
        states: to begin with, `batch hidden` each.
        lengths: how many steps each row of the batch has; None: all of them.
    """
    time, (_, hidden) = time_axis(op), known(states[0].dims)
    extents = list(known(products[0].dims))
    length, extents[2] = extents[time], hidden
    is_split = body.is_listed and not was_tflite(op.graph.model.metadata_props)
    extents[time] = size = ceil(length / round(sqrt(length))) if is_split else length
    computed = [op.value(slot) for slot in PARAMETERS if op.has(slot) and not _is_inside(op, slot)]
    outer, count = list(map(op.graph.tensor_of, computed)), len(states)
    lists, listed = [_zeros(op, extents)] if body.is_listed else [], list[DraftTensor]()
    graphs: tuple[int, ...] = ()
    for begin in range(0, length, size):
        first = min(begin, length - size)
        blocks = [op.part(each, time, first, size) for each in products]
        ends = [] if lengths is None else [op.sub(lengths, first) if first else lengths]
        carried = [op.ints(np.array(begin - first)), *states, *lists, *blocks, *ends, *outer]
        kinds = [(tensor.type, tensor.dims) for tensor in carried]
        if not graphs:
            loop = _Round(op, kinds, body, size, len(products))
            drafts = loop.condition(), loop.write(computed, count, has_lengths=lengths is not None)
            graphs = tuple(op.graph.program.index(each) for each in drafts)
        results = op.outputs("WHILE", carried, kinds, cond_subgraph_index=graphs[0], body_subgraph_index=graphs[1])
        states = results[1 : 1 + count]
        if body.is_listed:
            listed.append(op.part(results[1 + count], time, begin - first, size - (begin - first)))
    return op.concat(listed, time) if listed else None, states


def _zeros(op: NodeExport, extents: Sequence[int]) -> DraftTensor:
    """Return what a list of results holds before the loop; a large one does not lie in the file."""
    if prod(extents) <= MOST_ZEROS:
        return op.const(np.zeros(extents, np.float32))
    zero, shape = op.const(np.array(0, np.float32)), op.ints(extents)
    return op.emit("FILL", [shape, zero], tuple(extents), TensorType.FLOAT32)


class _Round(NamedTuple):
    """The graphs of loops of some steps each.

    Args:
        op: the node.
        kinds: types and extents of what the loop carries.
        body: one step.
        size: steps of a loop.
        products: how many products of the inputs there are.
    """

    op: NodeExport
    kinds: Sequence[tuple[TensorType, Dims]]
    body: LoopStep
    size: int
    products: int

    def condition(self) -> Draft:
        """Write the graph that tells whether there is another round."""
        draft = Draft(f"{self.op.name}/condition")
        draft.inputs = self._inputs(draft)
        again = draft.tensor("again", TensorType.BOOL, ())
        draft.add("LESS", [draft.inputs[0], draft.constant("rounds", np.array(self.size, np.int32))], [again])
        draft.outputs = [again]
        self.op.graph.program.append(draft)
        return draft

    def write(self, computed: Sequence[ir.Value], count: int, *, has_lengths: bool) -> Draft:
        """Write the graph of one round."""
        graph, time = self.op.graph.body(self.op.graph.graph), time_axis(self.op)
        draft, op = graph.draft, NodeExport(graph, self.op.node)
        draft.name, draft.inputs = f"{self.op.name}/round", self._inputs(draft)
        place, *states = draft.inputs[: 1 + count]
        outer = draft.inputs[1 + count + self.body.is_listed :]
        graph.tensors.update(zip(computed, outer[len(outer) - len(computed) :], strict=True))
        rows = [op.gather(each, place, time) for each in outer[: self.products]]
        lengths = outer[self.products] if has_lengths else None
        result, states = self.body.step(op)(rows, states, lengths, place)
        lists = []
        if self.body.is_listed:
            before, begin = draft.inputs[1 + count], [op.ints(np.array(0))] * 3
            begin[time] = place
            corner = op.emit("PACK", begin, (3,), values_count=3, axis=0)
            lists = [op.emit(NEWEST_BUILTIN, [before, op.stack([result], time), corner], before.dims)]
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
