"""Control flow: subgraphs that run or do not, once or often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import compress

import onnx_ir as ir

from relayout.formats.tflite.container.model import Subgraph
from relayout.formats.tflite.importing.builder import Dim, Dims, Handle, dims
from relayout.formats.tflite.importing.operation import Operation
from relayout.formats.tflite.importing.operators.shape import scalar
from relayout.formats.tflite.importing.program import Given
from relayout.formats.tflite.importing.registry import ANY_OPSET, Unsupported, operator
from relayout.graph.subgraphs import reads
from relayout.light_dataclass import dataclass

# What the bodies of an If, a Loop and a Scan have in common: operands, states, graphs inside a node.

BOOL = ir.DataType.BOOL


def carried_operands(op: Operation, first: int = 0) -> list[Given]:
    """Return what stands behind each operand from a position on."""
    return [
        op.tensors.handles.get(op.operator.inputs[i]) or op.stored(i) for i in range(first, len(op.operator.inputs))
    ]


def hand_over(op: Operation, results: Sequence[Given]) -> None:
    """Hand over values and handles, one for each result."""
    if len(results) != len(op.operator.outputs):
        raise op.damaged(f"{len(results)} results for {len(op.operator.outputs)} tensors")
    for i, result in enumerate(results):
        if isinstance(result, Handle):
            op.tensors.handles[op.operator.outputs[i]] = result
        else:
            op.result_stored(result, i)


@dataclass
class NodeBody:
    """A graph inside a node: nodes that may read any value outside, and outputs of their own."""

    op: Operation
    nodes: list[ir.Node] = field(default_factory=list)

    def graph(self, inputs: Sequence[ir.Value], values: Sequence[ir.Value], name: str) -> ir.Graph:
        """Return the body as a graph; each of its outputs is computed within, and there once."""
        outputs: list[ir.Value] = []
        inner_ids = {id(value) for node in self.nodes for value in node.outputs}
        with self.op.builder.body() as more:
            for value in values:
                own = id(value) in inner_ids and not any(value is other for other in outputs)
                outputs.append(value if own else self.op.emit("Identity", [value], dims(value)))
        return ir.Graph(inputs, outputs, nodes=self.nodes + more, name=self.op.hint(name))


def fresh(op: Operation) -> str:
    """Return a name for an extent that no other has."""
    return op.builder.names.unique(op.hint("extent"))


def values_of(operands: Sequence[Given], positions: Sequence[int]) -> list[ir.Value]:
    """Return the values at these positions, where no resources may be."""
    values = [value for i in positions if isinstance(value := operands[i], ir.Value)]
    if len(values) != len(positions):
        raise Unsupported("a loop that changes which resource it uses")
    return values


def _state(op: Operation, first: ir.Value, loose: set[int]) -> ir.Value:
    """Return a state of the loop inside the body; the extents of its `loose` axes may be others in every round."""
    shape = [fresh(op) if axis in loose or not isinstance(d, int) else d for axis, d in enumerate(dims(first))]
    return op.builder.value(op.builder.names.unique(op.hint("state")), first.dtype or BOOL, tuple(shape))


def _changed_extents(op: Operation, states: Sequence[ir.Value], lasts: Sequence[ir.Value]) -> set[tuple[int, int]]:
    """(state, axis) of each extent that is not after a round what it was before."""
    changed = set()
    for k, (a, b) in enumerate(zip(states, lasts, strict=True)):
        if a.dtype != b.dtype:
            raise op.damaged("a round changes the type of a state")
        if len(dims(a)) != len(dims(b)):
            raise Unsupported("a round that changes the rank of a state")
        changed |= {(k, axis) for axis, (m, n) in enumerate(zip(dims(a), dims(b), strict=True)) if m != n}
    return {(k, axis) for k, axis in changed if isinstance(dims(states[k])[axis], int)}


MAX_BRANCHES = 64  # of one operator; each is an If inside the last

_INT64 = ir.DataType.INT64


@operator("IF", options="IfOptions", texts=ANY_OPSET)
def if_(op: Operation) -> None:
    """If; its branches are the subgraphs, which read their operands from outside."""
    if op.stored(0).dtype != BOOL:
        raise op.damaged(f"the condition is {op.stored(0).dtype}")
    indices = (op.options.then_subgraph_index, op.options.else_subgraph_index)
    hand_over(op, _chosen(op, [scalar(op, op.stored(0))], carried_operands(op, 1), indices))


@operator("STABLEHLO_CASE", options="StablehloCaseOptions")
def case(op: Operation) -> None:
    """An If inside the other branch of the one before; an index that names no branch means the last."""
    index, indices = op.stored(0), [int(i) for i in op.options.branch_subgraph_indices[:MAX_BRANCHES]]
    if index.dtype != ir.DataType.INT32 or not indices:
        raise op.damaged(f"{len(indices)} branches, chosen by {index.dtype}")
    if len(op.options.branch_subgraph_indices) > MAX_BRANCHES:
        raise Unsupported(f"more than {MAX_BRANCHES} branches")
    place = scalar(op, index)
    conditions = [op.emit("Equal", [place, op.number(k, place)]) for k in range(len(indices) - 1)]
    hand_over(op, _chosen(op, conditions, carried_operands(op, 1), indices))


def _chosen(
    op: Operation,  # the operator
    conditions: Sequence[ir.Value],  # for every subgraph but the last, whether it is taken if none before it is
    operands: Sequence[Given],  # what each of them reads
    indices: Sequence[int],  # the subgraphs
) -> list[Given]:
    """Return the results of the subgraph that is taken, of an If of two or of several, one inside the other.

    What any assigns to a variable becomes a result of all.
    """
    if not conditions:
        return op.program.inline(indices[0], operands, op.place)
    variables = op.program.variables
    bodies, results, assigned_values = [], [], []
    for chain in ((conditions[:0], indices[:1]), (conditions[1:], indices[1:])):
        body = NodeBody(op)
        with variables.forgetting() as before, op.builder.body() as body.nodes:
            results.append(_chosen(op, chain[0], operands, chain[1]))
            assigned_values.append({key: variables.current[key] for key in variables.assigned(before)})
        bodies.append(body)
    yielded = _aligned(op, *results)
    keys = {key: value for side in assigned_values for key, value in side.items()}
    for key, value in keys.items():
        value_before = variables.initial_value(key, value)
        yielded.append((assigned_values[0].get(key, value_before), assigned_values[1].get(key, value_before)))
    graphs = [
        body.graph([], [pair[side] for pair in yielded], name)
        for side, (body, name) in enumerate(zip(bodies, ("then", "else"), strict=True))
    ]
    outputs = [(op.hint("if"), a.dtype or BOOL, _either(op, dims(a), dims(b))) for a, b in yielded]
    values = iter(
        op.builder.emit("If", [conditions[0]], outputs, source=op.source, then_branch=graphs[0], else_branch=graphs[1])
        if outputs
        else ()
    )
    outcomes = [result if isinstance(result, Handle) else next(values) for result in results[0]]
    for key, value in zip(keys, values, strict=True):
        variables.store(key, key, value)
    return outcomes


def _aligned(op: Operation, ours: Sequence[Given], theirs: Sequence[Given]) -> list[tuple[ir.Value, ir.Value]]:
    """Return the values of two branches, side by side; handles must be the same in both."""
    pairs = []
    if len(ours) != len(theirs):
        raise op.damaged("the branches differ in their number of results")
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, ir.Value) and isinstance(b, ir.Value):
            if a.dtype != b.dtype:
                raise op.damaged("the branches differ in their types")
            pairs.append((a, b))
        elif a != b:
            raise Unsupported("branches that yield different resources")
    return pairs


def _either(op: Operation, a: Dims, b: Dims) -> Dims:
    """Return what is known of a result that has one shape or the other."""
    if len(a) != len(b):
        raise Unsupported("results of different ranks")
    return tuple(m if m == n and m is not None else fresh(op) for m, n in zip(a, b, strict=True))


@operator("STABLEHLO_WHILE", options="StablehloWhileOptions")
def stablehlo_while(op: Operation) -> None:
    """As WHILE, but all states take their new values at once, as StableHLO says; LiteRT has no kernel for it."""
    loop(op, op.options.cond_subgraph_index, op.options.body_subgraph_index, at_once=True)


@operator("WHILE", options="WhileOptions", texts=ANY_OPSET)
def while_(op: Operation) -> None:
    """Loop of the body's subgraph, then the condition's."""
    loop(op, op.options.cond_subgraph_index, op.options.body_subgraph_index)


def loop(op: Operation, condition: int, body: int, *, at_once: bool = False) -> None:
    """A Loop of two subgraphs.

    1. An operand that the body passes on untouched is the same in every round: no state of the loop.
    2. Variables to which the body assigns are states of the loop.
    3. The runtime copies results to operands one after the other (see `_copied`), unless all are taken `at_once`.
    4. Where a round gives a state another extent than it had, that extent is unknown, and the body is written again.
    5. What nobody reads, neither behind the loop nor a round for anything else, is no state of the loop. So the
       condition that a WHILE carries, which a Loop computes in its body, does not come back as a state.
    """
    operands, variables = carried_operands(op), op.program.variables
    inner = op.program.subgraph(body, op.place)
    if not len(operands) == len(inner.inputs) == len(inner.outputs):
        raise op.damaged("the body's operands and results differ in number")
    carried = [i for i, (a, b) in enumerate(zip(inner.inputs, inner.outputs, strict=True)) if a != b]
    proceed = _test(op, condition, operands)
    keys: dict[str, ir.Value] = {}
    loose: set[tuple[int, int]] = set()
    while True:
        firsts = [*values_of(operands, carried), *keys.values()]
        states = [_state(op, value, {axis for i, axis in loose if i == k}) for k, value in enumerate(firsts)]
        loop_body, now = NodeBody(op), _replace_at(operands, carried, states)
        with variables.forgetting(), op.builder.body() as loop_body.nodes:
            variables.current.update(zip(keys, states[len(carried) :], strict=True))
            before = dict(variables.current)
            results = op.program.inline(body, now, op.place)
            after = results if at_once else _copied(inner, results)
            lasts = [*values_of(after, carried), *(variables.current[key] for key in keys)]
            again = _test(op, condition, after)
            more = {k: variables.current[k] for k in variables.assigned(before) if k not in keys}
        changed = _changed_extents(op, states, lasts)
        if not more and changed <= loose:
            break
        op.builder.discard(loop_body.nodes)
        keys |= {key: variables.initial_value(key, value) for key, value in more.items()}
        loose |= changed
    if not states:
        raise Unsupported("a loop without a state")
    is_needed = _needed(op, loop_body, carried, states, lasts, again)
    carried = list(compress(carried, is_needed))
    firsts, states, lasts = (list(compress(values, is_needed)) for values in (firsts, states, lasts))
    count = op.builder.value(op.builder.names.unique(op.hint("round")), _INT64, ())
    going = op.builder.value(op.builder.names.unique(op.hint("going")), BOOL, ())
    values = op.builder.emit(
        "Loop",
        [None, proceed, *firsts],
        [(op.hint("loop"), s.dtype or BOOL, tuple(_closed(op, s))) for s in states],
        source=op.source,
        body=loop_body.graph([count, going, *states], [again, *lasts], "body"),
    )
    hand_over(op, _replace_at(operands, carried, values))
    for key, value in zip(keys, values[len(carried) :], strict=True):
        variables.store(key, key, value)


def _needed(
    op: Operation,  # the loop
    body: NodeBody,  # its nodes
    carried: Sequence[int],  # the operands of the loop that are its first states; further ones are variables
    states: Sequence[ir.Value],  # all of them, before a round
    lasts: Sequence[ir.Value],  # the same, after it
    again: ir.Value,  # whether there is another round
) -> list[bool]:
    """Return which states anybody reads, and take back the nodes of the body that are there for the others alone."""
    tensors = op.tensors.subgraph
    outside = {index for each in tensors.operators for index in each.inputs} | set(tensors.outputs)
    results = [op.operator.outputs[place] for place in carried]
    is_read = [k >= len(results) or results[k] in outside for k in range(len(states))]
    read = {again, *compress(lasts, is_read)}
    reached = _reached(body.nodes, read, list(zip(states, lasts, strict=True)))
    is_needed = [is_read[k] or state in read for k, state in enumerate(states)]
    if not any(is_needed):  # a Loop has at least one
        return [True] * len(states)
    if not all(is_needed):
        op.builder.discard([node for node in body.nodes if node not in reached])
        body.nodes = [node for node in body.nodes if node in reached]
    return is_needed


def _reached(
    nodes: Sequence[ir.Node],  # of the body
    read: set[ir.Value],  # values; they grow
    rounds: Sequence[tuple[ir.Value, ir.Value]],  # of each state the value before and after a round
) -> set[ir.Node]:
    """Return the nodes of a round for what is read, and add what they read in turn, also in the round before."""
    needed_nodes, size = set[ir.Node](), 0
    while len(read) > size:
        size = len(read)
        for node in reversed(nodes):
            if node not in needed_nodes and not read.isdisjoint(node.outputs):
                needed_nodes.add(node)
                read.update(reads(node))
        read.update(last for state, last in rounds if state in read)
    return needed_nodes


def _replace_at(operands: Sequence[Given], places: Sequence[int], values: Sequence[ir.Value]) -> list[Given]:
    """Return the operands with the first values at these places."""
    new_operands = list(operands)
    for place, value in zip(places, values, strict=False):
        new_operands[place] = value
    return new_operands


def _copied(body: Subgraph, results: Sequence[Given]) -> list[Given]:
    """The states after a round: a result that is another operand as it is holds what was copied there just before.

    So a body that only swaps two states leaves the second in both. TFLite's runtime does that, and so does its import.
    """
    after: list[Given] = []
    for i, tensor in enumerate(body.outputs):
        source = body.inputs.index(tensor) if tensor in body.inputs else i
        after.append(after[source] if source < i else results[i])
    return after


def _closed(op: Operation, state: ir.Value) -> list[Dim]:
    """Return the shape of a state after the last round: a name for an extent means another one in each round."""
    return [dim if isinstance(dim, int) else fresh(op) for dim in dims(state)]


def _test(op: Operation, condition: int, operands: Sequence[Given]) -> ir.Value:
    """Tell whether there is another round."""
    results = op.program.inline(condition, operands, op.place)
    if len(results) != 1 or not isinstance(results[0], ir.Value) or results[0].dtype != BOOL:
        raise op.damaged("the condition does not yield one boolean")
    return scalar(op, results[0])
