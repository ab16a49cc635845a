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
2. Else a loop is written where the weights of all steps exceed a part of the caches, and from many steps on.
3. Of an open length it is a loop, too. If all results are read, it goes from block to block, with one inside it from
   step to step. An LSTM of 128 elements, 100 steps and a batch of 8 takes 3,000 µs so, by the kernel 8,000.
"""

from collections.abc import Callable, Sequence
from math import ceil, prod, sqrt
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from relayout.formats.recognition import was_tflite
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftTensor, all_known, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.matrix import rounded_weights_of
from relayout.formats.tflite.exporting.recurrent_operands import BIAS, PEEPHOLE, RECURRENT, is_recurrent
from relayout.formats.tflite.exporting.scales import dequantizer_of
from relayout.graph.subgraphs import all_graphs
from relayout.layout.stored_as import BATCH_FIRST

LOOP, STEPS, GROWS = "relayout.loop", "relayout.steps", "relayout.grows"
"""The keys of a node's meta: it is written as a loop; its steps take less time than a kernel for all of them; its
runtime cannot write a result into a list, and adds it to one."""
SINCE = 14
"""The version of ONNX from which on recurrent operators have the attribute `layout`."""
NEWEST_BUILTIN = "DYNAMIC_UPDATE_SLICE"
"""The builtin of a loop that the newest runtimes alone have."""
MOST_STEPS = 1024
"""Steps up to which a sequence is written one by one."""
MANY_STEPS = 300
"""Steps from which on a loop is written, whatever its weights."""
NARROW = 1 << 16
"""Bytes of a step's weights below which the kernel takes less time for a row of open length than nested loops."""
CACHES = 4 << 20
"""Bytes of the weights of all steps from which on a loop is written; a quarter of them if the last state is read alone.

Other operators and programs take a part of the caches: steps take twice the time of loops then.
"""
BLOCK = 32
"""Steps of a block of results of open length."""
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
    """One step of a loop."""

    step: Callable[[NodeExport], Step]  # the arithmetic inside of the body -> what writes a step there
    is_listed: bool  # whether anybody reads the results of all steps


def mark_loops(
    model: ir.Model,
    is_looped: Callable[[ir.Node], bool],  # whether the runtime of a node has what such a loop is written in
    element_bytes: int,  # of an element of the weights in the file
    *,
    steps_are_faster: bool,  # whether an LSTM takes less time step by step than by a kernel for all steps
) -> None:
    """Mark recurrent nodes that are written step by step or as a loop, in place."""
    from_tflite = was_tflite(model.metadata_props)
    for graph in all_graphs(model.graph):
        for node in graph:
            if is_recurrent(node) and LOOP not in node.meta:
                steps, every = _steps_of(node, element_bytes), node.outputs[0]
                is_listed = bool(every.uses()) or every.is_graph_output()
                is_long = steps is not None and _is_long(*steps, from_tflite, is_listed=is_listed)
                has_too_many, has_builtin = _has_too_many_steps(node), is_looped(node)
                node.meta[LOOP] = has_too_many or (is_long and has_builtin)
                node.meta[GROWS] = not has_builtin
                is_narrow = is_listed and steps is not None and _is_narrow(node, *steps)
                is_faster = steps is not None and steps_are_faster and not is_narrow
                node.meta[STEPS] = is_faster and not from_tflite and (has_builtin or not is_long)


def mark_batch_first(model: ir.Model) -> None:
    """Mark recurrent nodes: whatever computes them takes the batch first, too."""
    if model.opset_imports.get("", 1) >= SINCE:
        for node in filter(is_recurrent, model.graph):
            node.meta[BATCH_FIRST] = True


def _steps_of(node: ir.Node, element_bytes: int) -> tuple[int | None, int] | None:
    """Return how many steps a node has, None for an open length, and the bytes of a step's weights; None: unknown."""
    x, recurrent = node.inputs[0], node.inputs[2]
    if x is None or recurrent is None or x.shape is None or recurrent.shape is None or x.dtype != ir.DataType.FLOAT:
        return None
    length = x.shape[1 if node.attributes.get_int("layout", 0) else 0]
    if not recurrent.shape.is_static():
        return None
    return length if isinstance(length, int) else None, element_bytes * prod(recurrent.shape.numpy()[1:])


def _has_too_many_steps(node: ir.Node) -> bool:
    """Return whether a sequence has more steps than are written one by one, or no known number of them."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return False
    length = x.shape[1 if node.attributes.get_int("layout", 0) else 0]
    return not isinstance(length, int) or length > MOST_STEPS


def _is_narrow(node: ir.Node, length: int | None, weights: int) -> bool:
    """Return whether the kernel takes less time for one row than blocks of results of open length, of few elements."""
    x = node.inputs[0]
    is_row = x is not None and x.shape is not None and x.shape[0 if node.attributes.get_int("layout", 0) else 1] == 1
    return length is None and is_row and weights < NARROW


def _is_long(length: int | None, weights: int, from_tflite: bool, *, is_listed: bool) -> bool:
    """Return whether so many steps are written as a loop."""
    if length is None:
        return True
    caches = CACHES if is_listed else CACHES // 4
    return length > 1 if from_tflite else length >= MANY_STEPS or length * weights >= caches


def time_axis(op: NodeExport) -> int:
    """Return the axis of a sequence that is time; the other one of the first two is the batch."""
    return 1 if op.integer("layout") else 0


def write_loop(
    op: NodeExport,  # the node
    body: LoopStep,  # one step
    # of the inputs and their weights, `length batch rows` each, or `batch length rows`
    products: Sequence[DraftTensor],
    states: list[DraftTensor],  # to begin with, `batch hidden` each
    lengths: DraftTensor | None,  # how many steps each row of the batch has; None: all of them
) -> tuple[DraftTensor | None, list[DraftTensor]]:
    """Write all steps in loops; return the results of all steps, as the products lie, and the last states.

    Each round copies the list of results, so that lists are short:

    1. Of a known length about `√length` loops follow each other, which have a list of as many steps each. They share
       their body. The last one begins inside of its block of products, so that all blocks are alike.
    2. Of an open length a loop goes from block to block, and one inside it from step to step.
    """
    time, length = time_axis(op), products[0].dims[time_axis(op)]
    zero = op.ints(np.array(0))
    if not isinstance(length, int):
        steps = op.tensor(op.extent(products[0], time), TensorType.INT32)
        if not body.is_listed:
            return _Loop(op, body).write(zero, steps, products, states, lengths)
        padded = [_behind(op, each, time) for each in products]
        every, states = _Loop(op, body, BLOCK).write(zero, steps, padded, states, lengths)
        return None if every is None else _first(op, every, time, length), states
    is_split = body.is_listed and not was_tflite(op.graph.model.metadata_props)
    size = ceil(length / round(sqrt(length))) if is_split else length
    loop, listed = _Loop(op, body), list[DraftTensor]()
    for begin in range(0, length, size):
        first = min(begin, length - size)
        blocks = [op.part(each, time, first, size) for each in products]
        ends = op.sub(lengths, first) if lengths is not None and first else lengths
        done = begin - first
        every, states = loop.write(op.ints(np.array(done)), op.ints(np.array(size)), blocks, states, ends)
        if every is not None:
            listed.append(op.part(every, time, done, size - done))
    return op.concat(listed, time) if listed else None, states


def _behind(op: NodeExport, product: DraftTensor, time: int) -> DraftTensor:
    """Return products with a block of zeros behind the steps: the last block may have fewer steps."""
    dims, pads = list(product.dims), np.zeros((3, 2), np.int32)
    dims[time], pads[time, 1] = f"{dims[time]} + {BLOCK}", BLOCK
    return op.emit("PAD", [product, op.const(pads)], tuple(dims))


def _first(op: NodeExport, every: DraftTensor, time: int, length: str) -> DraftTensor:
    """Return the results without what stands behind the steps."""
    ends, dims = [0] * 3, list(every.dims)
    ends[time], dims[time] = -BLOCK, length
    inputs = [every, op.ints([0] * 3), op.ints(ends), op.ints([1] * 3)]
    return op.emit("STRIDED_SLICE", inputs, tuple(dims), end_mask=~(1 << time) & 7)


class _Loop:
    """WHILEs that share their graphs. They carry the step, how many there are, states, the list of results, products.

    Args:
        op: the node.
        body: one step.
        block: how many steps a round takes: those of several are a loop inside it.
    """

    def __init__(self, op: NodeExport, body: LoopStep, block: int = 1) -> None:
        self.op, self.body, self.block = op, body, block
        self.computed = [op.value(slot) for slot in PARAMETERS if op.has(slot) and not _is_inside(op, slot)]
        self.graphs: tuple[int, int] | None = None
        self.zeros: list[DraftTensor] = []

    def write(
        self,
        begin: DraftTensor,
        end: DraftTensor,
        products: Sequence[DraftTensor],
        states: list[DraftTensor],
        lengths: DraftTensor | None,
    ) -> tuple[DraftTensor | None, list[DraftTensor]]:
        """Write the steps from one on to another; return the list of results, if there is one, and the last states."""
        op, count = self.op, len(states)
        if self.body.is_listed and not self.zeros:
            self.zeros = [_zeros(op, products[0], states[0])]
        ends = [] if lengths is None else [lengths]
        carried = [begin, end, *states, *self.zeros, *products, *ends, *map(op.graph.tensor_of, self.computed)]
        kinds = [(tensor.type, tensor.dims) for tensor in carried]
        if self.graphs is None:
            drafts = self._condition(kinds), self._round(kinds, count, len(products), has_lengths=lengths is not None)
            first, second = (op.graph.program.index(each) for each in drafts)
            self.graphs = first, second
        results = op.outputs(
            "WHILE", carried, kinds, cond_subgraph_index=self.graphs[0], body_subgraph_index=self.graphs[1]
        )
        return results[2 + count] if self.body.is_listed else None, results[2 : 2 + count]

    def _condition(self, kinds: Sequence[tuple[TensorType, Dims]]) -> Draft:
        """Write the graph that tells whether there is another round."""
        draft = Draft(f"{self.op.name}/condition")
        draft.inputs = _inputs(draft, kinds)
        again = draft.tensor("again", TensorType.BOOL, ())
        draft.add("LESS", draft.inputs[:2], [again])
        draft.outputs = [again]
        self.op.graph.program.append(draft)
        return draft

    def _round(
        self, kinds: Sequence[tuple[TensorType, Dims]], count: int, products: int, *, has_lengths: bool
    ) -> Draft:
        """Write the graph of one round."""
        graph, time = self.op.graph.body(self.op.graph.graph), time_axis(self.op)
        draft, op = graph.draft, NodeExport(graph, self.op.node)
        draft.name, draft.inputs = f"{self.op.name}/round", _inputs(draft, kinds)
        place, end, *states = draft.inputs[: 2 + count]
        outer = draft.inputs[2 + count + self.body.is_listed :]
        graph.tensors.update(zip(self.computed, outer[len(outer) - len(self.computed) :], strict=True))
        places = op.add(place, np.arange(self.block)) if self.block > 1 else place
        rows = [op.gather(each, places, time) for each in outer[:products]]
        lengths = outer[products] if has_lengths else None
        every: DraftTensor | None
        if self.block > 1:
            steps = op.minimum(op.sub(end, place), self.block)
            ends = None if lengths is None else op.sub(lengths, place)
            every, states = _Loop(op, self.body).write(op.ints(np.array(0)), steps, rows, states, ends)
        else:
            result, states = self.body.step(op)(rows, states, lengths, place)
            every = op.stack([result], time) if self.body.is_listed else None
        lists = []
        if every is not None:
            before = draft.inputs[2 + count]
            lists = [self._listed(op, before, every, place)]
        draft.outputs = [*graph.distinct([op.add(place, self.block), end, *states, *lists]), *outer]
        return draft

    def _listed(self, op: NodeExport, before: DraftTensor, every: DraftTensor, place: DraftTensor) -> DraftTensor:
        """Return the list of results with those of a round; it holds zeros in their places before."""
        at_time = np.eye(3, dtype=np.int32)[time_axis(op)]
        if not op.node.meta[GROWS]:
            return op.emit(NEWEST_BUILTIN, [before, every, op.mul(place, at_time)], before.dims)
        behind = op.sub(op.sub(op.extent(before, time_axis(op)), place), self.block)
        pads = op.stack([op.mul(each, at_time) for each in (place, behind)], 1)
        return op.add(before, op.emit("PAD", [every, pads], before.dims))


def _inputs(draft: Draft, kinds: Sequence[tuple[TensorType, Dims]]) -> list[DraftTensor]:
    return [draft.tensor(f"carried_{place}", *kind) for place, kind in enumerate(kinds)]


def _zeros(
    op: NodeExport,  # the node
    product: DraftTensor,  # of the inputs and their weights, of the steps of the loop
    state: DraftTensor,  # one before the loop
) -> DraftTensor:
    """Return what a list of results holds before the loop; a large one does not lie in the file."""
    dims = (*product.dims[:2], state.dims[1])
    if not all_known(dims):
        like = op.part(product, 2, 0, known(dims[2:])[0])
        return op.emit("ZEROS_LIKE", [like], dims)
    if prod(known(dims)) <= MOST_ZEROS:
        return op.const(np.zeros(known(dims), np.float32))
    zero, shape = op.const(np.array(0, np.float32)), op.ints(known(dims))
    return op.emit("FILL", [shape, zero], dims, TensorType.FLOAT32)


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
