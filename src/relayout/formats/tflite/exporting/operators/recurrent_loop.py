"""A recurrent operator of many steps as WHILEs, each round of which is one step or a few.

    WHILE(place, states, results, products)  ->  { row = GATHER(products, place); states = cell(row, states);
                                                   results = DYNAMIC_UPDATE_SLICE(results, states, [place, 0, 0]) }

The product of the inputs and their weights is computed before, for all steps at once. The numbers are those of the
steps written one by one, since the operators of a step are the same.

LiteRT 2.3, one thread, as many inputs as elements of the state, which is given at all steps or last; in µs:

| cell | elements | steps | one by one, all | 1 a round | 4 | 10 | 20 | one by one, last | 1 a round | 4 | 10 |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| GRU | 4 | 100 | 40 | 135 | 66 | 69 | 79 | 35 | 69 | 55 | 56 |
| GRU | 4 | 200 | 170 | 237 | 117 | 116 | 121 | 185 | 136 | 106 | 94 |
| GRU | 32 | 200 | 357 | 282 | 192 | 175 | 178 | 336 | 163 | 141 | 134 |
| GRU | 64 | 200 | 762 | 426 | 379 | 354 | 442 | 727 | 286 | 257 | 272 |
| GRU | 128 | 200 | | 797 | 896 | 1,609 | 2,199 | | 695 | 728 | 1,503 |
| LSTM | 32 | 100 | 215 | 176 | 113 | 112 | 133 | 202 | 95 | 87 | 89 |
| LSTM | 64 | 200 | 944 | 532 | 493 | 441 | 639 | 963 | 349 | 323 | 365 |

Every step that is written has its operators and its weights in memory by itself, as their kernels pack them: beyond
the caches they wait for it. A round copies the list of results and all states.

1. A model that was a `.tflite` gets one loop of single steps: its source has such a loop, with the same operators.
2. Else a loop is written where all steps exceed a part of the caches. Its rounds take several steps where their weights
   are light.
3. Of an open length it is a loop, too. If all results are read, it goes from block to block, with one inside it from
   round to round. An LSTM of 128 elements, 100 steps and a batch of 8 takes 3,000 µs so, by the kernel 8,000.
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
from relayout.formats.tflite.exporting.recurrent_operands import (
    BIAS,
    GATES,
    PEEPHOLE,
    RECURRENT,
    is_recurrent,
    length_and_batch,
)
from relayout.graph.quantized_unit import dequantizer_of
from relayout.graph.subgraphs import all_graphs
from relayout.layout.stored_as import BATCH_FIRST

LOOP, STEPS, GROWS = "relayout.loop", "relayout.steps", "relayout.grows"
"""The keys of a node's meta: how many steps a round of its loop takes, 0 if it is none; its steps take less time than a
kernel for all of them; its runtime cannot write a result into a list, and adds it to one."""
SINCE = 14  # the version of ONNX from which on recurrent operators have the attribute `layout`
NEWEST_BUILTIN = "DYNAMIC_UPDATE_SLICE"  # the builtin of a loop that the newest runtimes alone have
MOST_STEPS = 1024  # steps up to which a sequence is written one by one
ROUND = (8, 7, 6, 5)  # how many steps a round may take
LIGHT = 1 << 16  # bytes of a step's weights up to which a round takes several steps: each of these has a copy of them
NARROW = 1 << 16
"""Bytes of a step's weights below which the kernel takes less time for a row of open length than nested loops."""
CACHES = 3 << 19
"""Bytes of all steps, their weights and operators, from which on a loop is written: out of the caches they are slow."""
GATE = 7 << 9  # bytes of the operators of one gate in one step
FLOAT_BYTES = np.dtype(np.float32).itemsize
COPIES = 220 << 10  # bytes of results of which the copies take as long as the start of one more loop
BLOCK = 16  # rounds of a block of results of open length
MOST_ZEROS = 1 << 12  # zeros up to which a list of results lies in the file
PARAMETERS = (RECURRENT, BIAS, PEEPHOLE)  # operands of a recurrent node that a step reads
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
                length, batch = length_and_batch(node)
                steps = _steps_of(node, element_bytes)
                steps_per_round = 0 if steps is None else _round_of(node, *steps, from_tflite)
                # A sequence has more steps than are written one by one, or no known number of them.
                has_too_many = length is not None and (not isinstance(length, int) or length > MOST_STEPS)
                has_builtin = is_looped(node)
                node.meta[LOOP] = max(steps_per_round, int(has_too_many)) if has_too_many or has_builtin else 0
                node.meta[GROWS] = not has_builtin
                # The kernel takes less time for one row than blocks of results of open length, of few elements.
                is_narrow = _is_read(node.outputs[0]) and batch == 1 and steps is not None and steps[0] is None
                is_narrow = is_narrow and steps is not None and steps[1] < NARROW
                is_faster = steps is not None and steps_are_faster and not is_narrow
                node.meta[STEPS] = is_faster and not from_tflite and (has_builtin or not steps_per_round)


def mark_batch_first(model: ir.Model) -> None:
    """Mark recurrent nodes: whatever computes them takes the batch first, too."""
    if model.opset_imports.get("", 1) >= SINCE:
        for node in filter(is_recurrent, model.graph):
            node.meta[BATCH_FIRST] = True


def _steps_of(node: ir.Node, element_bytes: int) -> tuple[int | None, int] | None:
    """Return how many steps a node has, None for an open length, and the bytes of a step's weights; None: unknown."""
    x, recurrent, (length, _) = node.inputs[0], node.inputs[2], length_and_batch(node)
    if x is None or recurrent is None or length is None or recurrent.shape is None or x.dtype != ir.DataType.FLOAT:
        return None
    if not recurrent.shape.is_static():
        return None
    return length if isinstance(length, int) else None, element_bytes * prod(recurrent.shape.numpy()[1:])


def _round_of(node: ir.Node, length: int | None, weights: int, from_tflite: bool) -> int:
    """Return how many steps each round of a node's loop takes; 0: its steps are written one by one."""
    if from_tflite:
        return int(length != 1)
    if length is not None and length * (weights + GATES[node.op_type] * GATE) < CACHES:
        return 0
    if weights > LIGHT:
        return 1
    if length is not None:
        return min(ROUND, key=lambda steps: length % steps)
    # Steps behind the end change the state.
    is_listed = _is_read(node.outputs[0])
    return 1 if is_listed and any(map(_is_read, node.outputs[1:])) else ROUND[0]


def _is_read(value: ir.Value) -> bool:
    return bool(value.uses()) or value.is_graph_output()


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

    1. Of a known length loops follow each other, as many as take the least time: each copies a part of the list. They
       share their body. The last one begins inside of its block of products, so that all blocks are alike. Steps that
       make no whole round are written one by one.
    2. Of an open length a loop goes from block to block, and one inside it from round to round. If only the last state
       is read, steps that make no whole round are a loop of their own.
    """
    time, length, steps_per_round = time_axis(op), products[0].dims[time_axis(op)], op.node.meta[LOOP]
    start, loop = op.ints(np.array(0)), _Loop(op, body, steps_per_round)
    if not isinstance(length, int):
        end = op.tensor(op.extent(products[0], time), TensorType.INT32)
        if body.is_listed:
            block = BLOCK * steps_per_round
            padded = [_behind(op, each, time, block) for each in products]
            _, every, states = _Loop(op, body, block, steps_per_round).write(start, end, padded, states, lengths)
            return None if every is None else _first(op, every, time, length, block), states
        if steps_per_round > 1:
            start, _, states = loop.write(start, op.sub(end, steps_per_round - 1), products, states, lengths)
        return _Loop(op, body).write(start, end, products, states, lengths)[1:]
    rounds = length // steps_per_round
    is_split = body.is_listed and not was_tflite(op.graph.model.metadata_props)
    copied = rounds * length * prod(each for each in states[0].dims if isinstance(each, int)) * FLOAT_BYTES
    size = (
        steps_per_round * ceil(rounds / max(round(sqrt(copied / COPIES)), 1)) if is_split else steps_per_round * rounds
    )
    listed, whole = list[DraftTensor](), rounds * steps_per_round
    for begin in range(0, whole, size):
        first = min(begin, whole - size)
        blocks = [op.part(each, time, first, size) for each in products]
        ends = op.sub(lengths, first) if lengths is not None and first else lengths
        done = begin - first
        _, every, states = loop.write(op.ints(np.array(done)), op.ints(np.array(size)), blocks, states, ends)
        if every is not None:
            listed.append(op.part(every, time, done, size - done))
    if whole < length:
        rest = [op.part(each, time, whole, length - whole) for each in products]
        ends = None if lengths is None else op.sub(lengths, whole)
        every, states = write_steps(op, body, rest, states, ends)
        listed += [] if every is None else [every]
    return op.concat(listed, time) if listed else None, states


def _behind(op: NodeExport, product: DraftTensor, time: int, block: int) -> DraftTensor:
    """Return products with a block of zeros behind the steps: the last block may have fewer steps."""
    return op.pad(product, [(0, block if axis == time else 0) for axis in range(3)])


def _first(op: NodeExport, every: DraftTensor, time: int, length: str, block: int) -> DraftTensor:
    """Return the results without what stands behind the steps."""
    sides, dims = [(0, 0)] * 3, list(every.dims)
    sides[time], dims[time] = (0, block), length
    return op.cut(every, sides, tuple(dims))


class _Loop:
    """WHILEs that share their graphs. They carry the step, how many there are, states, the list of results, products.

    Args:
        op: the node.
        body: one step.
        taken: how many steps a round takes.
        inside: how many of these a loop inside it takes at a time; 0: there is none, they are written one by one.
    """

    def __init__(self, op: NodeExport, body: LoopStep, steps_per_round: int = 1, inside: int = 0) -> None:
        self.op, self.body, self.taken, self.inside = op, body, steps_per_round, inside
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
    ) -> tuple[DraftTensor, DraftTensor | None, list[DraftTensor]]:
        """Write the steps from one on to another; return where they end, the list of results or None, the states."""
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
        return results[0], results[2 + count] if self.body.is_listed else None, results[2 : 2 + count]

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
        places = op.add(place, np.arange(self.taken)) if self.taken > 1 else place
        rows = [op.gather(each, places, time) for each in outer[:products]]
        lengths = outer[products] if has_lengths else None
        every: DraftTensor | None
        if self.inside:
            steps = op.minimum(op.sub(end, place), self.taken)
            ends = None if lengths is None else op.sub(lengths, place)
            _, every, states = _Loop(op, self.body, self.inside).write(op.ints(np.array(0)), steps, rows, states, ends)
        else:
            every, states = write_steps(op, self.body, rows, states, lengths, place)
        lists = [] if every is None else [self._listed(op, draft.inputs[2 + count], every, place)]
        draft.outputs = [*graph.distinct([op.add(place, self.taken), end, *states, *lists]), *outer]
        return draft

    def _listed(self, op: NodeExport, before: DraftTensor, every: DraftTensor, place: DraftTensor) -> DraftTensor:
        """Return the list of results with those of a round; it holds zeros in their places before."""
        at_time = np.eye(3, dtype=np.int32)[time_axis(op)]
        if not op.node.meta[GROWS]:
            return op.emit(NEWEST_BUILTIN, [before, every, op.mul(place, at_time)], before.dims)
        behind = op.sub(op.sub(op.extent(before, time_axis(op)), place), self.taken)
        pads = op.stack([op.mul(each, at_time) for each in (place, behind)], 1)
        return op.add(before, op.emit("PAD", [every, pads], before.dims))


def write_steps(
    op: NodeExport,  # the node, or the arithmetic inside of a body
    body: LoopStep,  # one step
    # of the products, those of these steps, or of a round of one step without the axis of time
    rows: Sequence[DraftTensor],
    states: list[DraftTensor],  # before the steps
    lengths: DraftTensor | None,  # how many steps each row of the batch has; None: all of them
    place: DraftTensor | int = 0,  # the first step
) -> tuple[DraftTensor | None, list[DraftTensor]]:
    """Write some steps one by one; return their results, if anybody reads them, and the states after them."""
    time, step, listed = time_axis(op), body.step(op), list[DraftTensor]()
    is_one = len(rows[0].dims) == len(states[0].dims)
    for number, row in enumerate([rows] if is_one else zip(*(op.unpacked(each, time) for each in rows), strict=True)):
        here = place + number if isinstance(place, int) else op.add(place, number) if number and lengths else place
        result, states = step(row, states, lengths, here)
        listed.append(result)
    return op.stack(listed, time) if listed and body.is_listed else None, states


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
