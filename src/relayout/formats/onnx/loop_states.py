"""Shapes of the states that a Loop carries from run to run, which ONNX does not assume."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

import onnx
import onnx_ir as ir

from relayout.formats.onnx.checking import without_weights
from relayout.formats.onnx.inferring_rounds import infer_in_rounds
from relayout.formats.onnx.shape_vectors import Array
from relayout.formats.onnx.value_shapes import Dims, better_shape, dims_of_shape, is_known_value, open_stated
from relayout.graph.subgraphs import all_nodes
from relayout.layout.stored_as import STATED


def _open_body(body: ir.Graph) -> None:
    """Open what a body states that is given something else than it states; of its results it goes on stating that."""
    for value in body.outputs:
        value.meta.setdefault(STATED, value.shape)
    for node in all_nodes(body):
        for value in node.outputs:
            open_stated(value)


def infer_with_states(model: ir.Model, used: set[str]) -> tuple[onnx.GraphProto, dict[str, Array]]:
    """Infer with states of Loops that have in each run the rank and the extents that they begin with.

    ONNX assumes nothing of a state, whose shape may change. If a body that is given that shape gives it back, it does
    not: by induction, for all states of which it is assumed together. Of extents that do not come back nothing is
    assumed, and the others are tried again.
    """
    assumed = [state for node in model.graph for state in _assumed(node)]
    while assumed:
        for state in assumed:
            state.value.shape = ir.Shape([*state.dims])
        try:
            inferred, known = infer_in_rounds(without_weights(model), used)
        except Exception:  # an assumption may be what contradicts the graph
            break
        loops = {node.output[0]: node for node in inferred.node if node.op_type == "Loop"}
        weaker = [state.weakened(loops.get(state.node.outputs[0].name or "")) for state in assumed]
        for state in (state for state, other in zip(assumed, weaker, strict=True) if other is None):
            state.value.shape = state.before
        found = [state for state in weaker if state is not None]
        if found == assumed:
            return inferred, known
        assumed = found
    for state in assumed:
        state.value.shape = state.before
    return infer_in_rounds(without_weights(model), used)


class _State(NamedTuple):
    """A state of a Loop, of the shape that it is assumed to have in each run.

    Args:
        node: the Loop.
        slot: which of its states.
        value: the body's input.
        before: its shape without the assumption.
        first: the extents that it begins with.
        dims: those of them that are assumed, or what the file states.
    """

    node: ir.Node
    slot: int
    value: ir.Value
    before: ir.Shape | None
    first: Dims
    dims: Dims

    def weakened(self, node: onnx.NodeProto | None) -> "_State | None":
        """The state with those extents alone that the body gives back; None where it gives no such rank."""
        bodies_of = [each.g for each in node.attribute if each.name == "body"] if node is not None else []
        if not bodies_of or len(bodies_of[0].output) <= self.slot + 1:
            return None
        tensor = bodies_of[0].output[self.slot + 1].type.tensor_type
        if not tensor.HasField("shape") or len(tensor.shape.dim) != len(self.dims):
            return None
        given = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim]
        stated: Dims = (None,) * len(given) if self.before is None else dims_of_shape(self.before)
        pairs = zip(self.dims, given, self.first, stated, strict=True)
        return self._replace(
            dims=tuple([dim if dim == got or dim != begins else own for dim, got, begins, own in pairs])
        )


def _assumed(node: ir.Node) -> Iterator[_State]:
    """The states of a Loop that leave extents open, of the shape that they begin with."""
    attribute = node.attributes.get("body") if node.op_type == "Loop" else None
    if attribute is None or node.domain or not node.outputs:
        return
    body = attribute.as_graph()
    for slot, (state, given) in enumerate(zip(body.inputs[2:], node.inputs[2:], strict=False)):
        if given is None or given.shape is None or (state.shape is not None and len(state.shape) != len(given.shape)):
            continue
        first = dims_of_shape(given.shape)
        stated = _stated_dims(body, state, first)
        if any(isinstance(own, int) and own != dim for dim, own in zip(first, stated, strict=True)):
            continue
        before = None if state.shape is None else ir.Shape([*stated])
        if any(not isinstance(own, int) for own in stated):
            dims = tuple([dim if dim is not None else own for dim, own in zip(first, stated, strict=True)])
            yield _State(node, slot, state, before, first, dims)


def _stated_dims(body: ir.Graph, state: ir.Value, first: Dims) -> Dims:
    """Return what the file states of a state that begins as `first`.

    A number that the file states of a state which begins with an open extent is none that follows from its inputs: then
    the body is opened.
    """
    if state.shape is None:
        return (None,) * len(first)
    stated = dims_of_shape(state.shape)
    more = [isinstance(own, int) and not isinstance(dim, int) for dim, own in zip(first, stated, strict=True)]
    if any(more):
        _open_body(body)
    return tuple([None if says_more else own for own, says_more in zip(stated, more, strict=True)])


def complete_loop(node: ir.Node) -> bool:
    """Give the results of a Loop the shapes that follow from its states, in place; return whether that is news.

    A state is what the Loop was given or what its body gives: what their shapes share is known.

    What it stacks has as many slices as it runs.
    """
    attribute, found = node.attributes.get("body"), False
    if attribute is None or attribute.type != ir.AttributeType.GRAPH:
        return False
    body = attribute.as_graph()
    for state, begins, given, value in zip(
        body.inputs[2:], node.inputs[2:], body.outputs[1:], node.outputs, strict=False
    ):
        shared = _common_dims(state, begins, given)
        if shared is None or is_known_value(value):
            continue
        before = value.shape
        value.shape = better_shape(before, ir.Shape(shared))
        found |= before is None or list(before) != list(value.shape or ())
    runs, states = _runs(node, body), max(0, len(node.inputs) - 2)
    for each, value in zip(body.outputs[1 + states :], node.outputs[states:], strict=False):
        if runs is not None and each.shape is not None and not (value.shape and isinstance(value.shape[0], int)):
            value.shape = better_shape(
                ir.Shape([runs, *(dim if isinstance(dim, int) else None for dim in each.shape)]), value.shape
            )
            found = True
    return found


def _common_dims(state: ir.Value, begins: ir.Value | None, given: ir.Value) -> Dims | None:
    """Return what a state has in every run, of what a body reads and gives; None where their ranks differ."""
    if state.shape is None or given.shape is None or len(state.shape) != len(given.shape):
        return None
    first = None if begins is None or begins.shape is None else dims_of_shape(begins.shape)
    names = first if first is not None and len(first) == len(state.shape) else ()
    triples = zip_longest(dims_of_shape(state.shape), dims_of_shape(given.shape), names)
    return tuple(a if a == b and (isinstance(a, int) or a == begun) else None for a, b, begun in triples)


def _runs(node: ir.Node, body: ir.Graph) -> int | None:
    """How often a Loop runs, where its count is known and its body goes on in every run: how `scan` is exported."""
    count, begins = (*node.inputs[:2], None, None)[:2]
    goes_on: ir.Value | None = body.outputs[0] if body.outputs else None
    while goes_on is not None and (maker := goes_on.producer()) is not None and maker.op_type == "Identity":
        goes_on = maker.inputs[0]
    if goes_on is None or len(body.inputs) < 2:
        return None
    asked = (goes_on,) if goes_on is not body.inputs[1] else ()
    if not all(each is None or _is_true(each) for each in (begins, *asked)):
        return None
    known = None if count is None else ir.convenience.get_const_tensor(count)
    return None if known is None or known.size != 1 else max(0, int(known.numpy().reshape(())))


def _is_true(value: ir.Value) -> bool:
    known = ir.convenience.get_const_tensor(value)
    return known is not None and known.size == 1 and bool(known.numpy().all())
