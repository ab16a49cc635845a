"""Types, shapes and numbers known in advance: the layout engine expects them, and a file may leave them out."""

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import zip_longest
from typing import NamedTuple

import onnx
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx.checking import without_weights
from relayout.formats.onnx.inferring import (
    Dims,
    ExtentNames,
    Output,
    OutputsOf,
    better_shape,
    dims_of_shape,
    is_known_value,
    is_open_dim,
    open_stated,
)
from relayout.formats.onnx.inferring_rounds import ROUNDS, infer_in_rounds
from relayout.formats.onnx.parts import holds_map
from relayout.formats.onnx.shape_vectors import Array
from relayout.formats.onnx.spelling import lift_constants
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.subgraphs import all_nodes, bodies
from relayout.layout.stored_as import STATED

# Inferred types and shapes of protobuf, given to the values of a graph.


def give_inferred(graph: ir.Graph, inferred: onnx.GraphProto, names: ExtentNames) -> None:
    """Give the values of a graph and of its bodies the types and shapes that inference found, in place."""
    types = _Types(names)
    type_of = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
    for node in graph:
        for value in node.outputs:
            declared = type_of.get(value.name or "")
            if declared is not None and not holds_map(declared) and not is_known_value(value):
                types.give(value, declared)
    nested = {node.outputs[0].name: node for node in graph if node.attributes and node.outputs and bodies(node)}
    for proto in inferred.node if nested else ():
        outer = nested.get(proto.output[0]) if proto.output else None
        for attribute in proto.attribute:
            if outer is not None and attribute.HasField("g"):
                body = outer.attributes[attribute.name].as_graph()
                for value, declared in zip(body.inputs, attribute.g.input, strict=True):
                    if value.shape is None:
                        types.give(value, declared.type)
                give_inferred(body, attribute.g, names)


class _Types:
    """Types and shapes as protobuf has them: a graph of thousands of values has few."""

    def __init__(self, names: ExtentNames) -> None:
        self._names = names
        self._known: dict[bytes, tuple[ir.TypeProtocol | None, ir.Shape | None]] = {}

    def give(self, value: ir.Value, declared: onnx.TypeProto) -> None:
        """Give a value a type, if it has none, and a shape, or extents that its own leaves open."""
        key = declared.SerializeToString()
        if key not in self._known:
            self._known[key] = (
                ir.serde.deserialize_type_proto_for_type(declared),
                ir.serde.deserialize_type_proto_for_shape(declared),
            )
        ir_type, shape = self._known[key]
        if value.type is None:  # each value its own: a type can be changed
            plain = type(ir_type) is ir.TensorType
            value.type = (
                ir.TensorType(ir_type.dtype, denotation=ir_type.denotation) if plain and ir_type else deepcopy(ir_type)
            )
        before = value.shape
        value.shape = better_shape(before, None if shape is None else shape.copy(), keep_names=value.is_graph_output())
        if before is not None and value.shape is not None:
            self._names.learn(before, tuple(value.shape))


# Shapes of the states that a Loop carries from run to run, which ONNX does not assume.


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
        remaining_states = [state for state in weaker if state is not None]
        if remaining_states == assumed:
            return inferred, known
        assumed = remaining_states
    for state in assumed:
        state.value.shape = state.before
    return infer_in_rounds(without_weights(model), used)


class _State(NamedTuple):
    """A state of a Loop, of the shape that it is assumed to have in each run."""

    node: ir.Node  # the Loop
    slot: int  # which of its states
    value: ir.Value  # the body's input
    before: ir.Shape | None  # its shape without the assumption
    first: Dims  # the extents that it begins with
    dims: Dims  # those of them that are assumed, or what the file states

    def weakened(self, node: onnx.NodeProto | None) -> "_State | None":
        """Return the state with those extents alone that the body gives back; None where it gives no such rank."""
        bodies_of = [each.g for each in node.attribute if each.name == "body"] if node is not None else []
        if not bodies_of or len(bodies_of[0].output) <= self.slot + 1:
            return None
        tensor = bodies_of[0].output[self.slot + 1].type.tensor_type
        if not tensor.HasField("shape") or len(tensor.shape.dim) != len(self.dims):
            return None
        output_dims = [
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None for dim in tensor.shape.dim
        ]
        stated: Dims = (None,) * len(output_dims) if self.before is None else dims_of_shape(self.before)
        pairs = zip(self.dims, output_dims, self.first, stated, strict=True)
        return self._replace(
            dims=tuple([dim if dim == got or dim != begins else own for dim, got, begins, own in pairs])
        )


def _assumed(node: ir.Node) -> Iterator[_State]:
    """Yield the states of a Loop that leave extents open, of the shape that they begin with."""
    attribute = node.attributes.get("body") if node.op_type == "Loop" else None
    if attribute is None or node.domain or not node.outputs:
        return
    body = attribute.as_graph()
    for slot, (state, initial_state) in enumerate(zip(body.inputs[2:], node.inputs[2:], strict=False)):
        if (
            initial_state is None
            or initial_state.shape is None
            or (state.shape is not None and len(state.shape) != len(initial_state.shape))
        ):
            continue
        first = dims_of_shape(initial_state.shape)
        stated = _stated_dims(body, state, first)
        if any(isinstance(own, int) and own != dim for dim, own in zip(first, stated, strict=True)):
            continue
        before = None if state.shape is None else ir.Shape([*stated])
        if state.shape is None or any(not isinstance(own, int) for own in stated):
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
    attribute, has_new_shapes = node.attributes.get("body"), False
    if attribute is None or attribute.type != ir.AttributeType.GRAPH:
        return False
    body = attribute.as_graph()
    for state, initial_state, next_state, value in zip(
        body.inputs[2:], node.inputs[2:], body.outputs[1:], node.outputs, strict=False
    ):
        shared = _common_dims(state, initial_state, next_state)
        if shared is None or is_known_value(value):
            continue
        before = value.shape
        value.shape = better_shape(before, ir.Shape(shared))
        has_new_shapes |= before is None or list(before) != list(value.shape or ())
    runs, states = _runs(node, body), max(0, len(node.inputs) - 2)
    for each, value in zip(body.outputs[1 + states :], node.outputs[states:], strict=False):
        if runs is not None and each.shape is not None and not (value.shape and isinstance(value.shape[0], int)):
            value.shape = better_shape(
                ir.Shape([runs, *(dim if isinstance(dim, int) else None for dim in each.shape)]), value.shape
            )
            has_new_shapes = True
    return has_new_shapes


def _common_dims(state: ir.Value, initial_state: ir.Value | None, next_state: ir.Value) -> Dims | None:
    """Return what a state has in every run, of what a body reads and gives; None where their ranks differ."""
    if state.shape is None or next_state.shape is None or len(state.shape) != len(next_state.shape):
        return None
    first = None if initial_state is None or initial_state.shape is None else dims_of_shape(initial_state.shape)
    names = first if first is not None and len(first) == len(state.shape) else ()
    triples = zip_longest(dims_of_shape(state.shape), dims_of_shape(next_state.shape), names)
    return tuple(a if a == b and (isinstance(a, int) or a == begun) else None for a, b, begun in triples)


def _runs(node: ir.Node, body: ir.Graph) -> int | None:
    """Return how often a Loop runs, where its count is known and its body always goes on: `scan` is exported so."""
    count, begins = (*node.inputs[:2], None, None)[:2]
    goes_on: ir.Value | None = body.outputs[0] if body.outputs else None
    while goes_on is not None and (producer := goes_on.producer()) is not None and producer.op_type == "Identity":
        goes_on = producer.inputs[0]
    if goes_on is None or len(body.inputs) < 2:
        return None
    conditions = (goes_on,) if goes_on is not body.inputs[1] else ()
    if not all(each is None or _is_true(each) for each in (begins, *conditions)):
        return None
    known = None if count is None else ir.convenience.get_const_tensor(count)
    return None if known is None or known.size != 1 else max(0, int(known.numpy().reshape(())))


def _is_true(value: ir.Value) -> bool:
    known = ir.convenience.get_const_tensor(value)
    return known is not None and known.size == 1 and bool(known.numpy().all())


def complete(
    model: ir.Model,
    outputs_of: OutputsOf | None = None,  # what a node gives in a model of these opsets, by what is known of its inputs
) -> None:
    """Prepare a model for the layout engine, in place.

    1. Outputs of Constant nodes become initializers: a constant is stored as its readers want it.
    2. Values get the types and shapes that ONNX infers; those that a file states stay, but for numbers that do not
       follow from the inputs: these are prices only (`CLAIMED`).
    3. What operators give that ONNX does not know is asked for; a Transpose says what it reads by what it gives.
    4. Shapes and axes that the graph computes from known extents get a `const_value`; the nodes stay.

    What cannot be inferred stays unknown. The shapes that the file states of its outputs are in their `meta`, since an
    interface is kept as it is.
    """
    for value in model.graph.outputs:
        if STATED not in value.meta:
            value.meta[STATED] = value.shape
    _open_claims(model)
    interior = (value for node in model.graph for value in node.outputs if not value.is_graph_output())
    if not any(value.type or value.shape for value in interior):
        add_facts(model, states_no_shapes=True)
    lift_constants(model)
    if all(is_known_value(value) for node in all_nodes(model.graph) for value in node.outputs):
        return
    names = ExtentNames(model.graph)
    for _ in range(ROUNDS):
        begun = _begun(model)
        try:
            inferred, known = infer_with_states(model, names.used)
        except ReadError:  # it crashes
            raise
        except Exception:  # onnx raises types of its own; what is wrong is said when the result is checked
            return
        give_inferred(model.graph, inferred, names)
        _give_contents(model.graph, known)
        names.settle(model, outputs_of)
        if not _asked(model, outputs_of) and _begun(model) == begun:
            return


def _give_contents(graph: ir.Graph, known: Mapping[str, Array]) -> None:
    for value in (value for node in graph for value in node.outputs):
        if value.name is not None and value.name in known:
            value.const_value = ir.Tensor(known[value.name])
            value.shape = ir.Shape(known[value.name].shape)


def _begun(model: ir.Model) -> int:
    """Return how many states of Loops begin with what is known of shape."""
    loops = (node for node in model.graph if node.op_type == "Loop" and not node.domain)
    return sum(value is not None and value.shape is not None for node in loops for value in node.inputs[2:])


def _open_claims(model: ir.Model) -> None:
    """Open the extents that a file states of values and that do not follow from its inputs, in place."""
    if claimed := facts_of(model).unimplied:
        add_facts(model, unimplied=frozenset())
    for value in (value for node in model.graph for value in node.outputs) if claimed else ():
        if value.name in claimed:
            open_stated(value)


def _asked(model: ir.Model, outputs_of: OutputsOf | None) -> bool:
    """Find what shape inference does not, one node after another; whether anything was found."""
    nodes = list(all_nodes(model.graph))
    has_new_shapes = False
    for node in reversed(nodes):
        if node.op_type == "Transpose" and not node.domain:
            has_new_shapes |= _read_back(node)
    for node in nodes:
        if node.op_type == "Loop" and not node.domain:
            has_new_shapes |= complete_loop(node)
        if outputs_of is None or all(is_known_value(value) for value in node.outputs if value.name):
            continue
        # Shape inference has seen as much of it, but for what a body reads of the constants around it.
        is_seen = node.graph is model.graph or not any(_is_outer_constant(value, node) for value in node.inputs)
        if (
            node.domain in ("", "ai.onnx")
            and not has_new_shapes
            and is_seen
            and _is_inferred(node, model.opset_imports)
        ):
            continue
        has_new_shapes |= _give_types(node, outputs_of(node, model.opset_imports))
    return has_new_shapes


def _is_outer_constant(value: ir.Value | None, node: ir.Node) -> bool:
    return value is not None and value.const_value is not None and value.graph is not node.graph


def _give_types(node: ir.Node, output_types: Iterable[Output]) -> bool:
    """Give the outputs of a node the types and shapes that its operator tells; return whether a shape is news."""
    has_new_shapes = False
    for value, (kind, shape) in zip(node.outputs, output_types, strict=False):
        before = None if value.shape is None else list(value.shape)
        if value.name and shape is not None:
            value.shape = better_shape(value.shape, ir.Shape([dim or None for dim in shape]))
            has_new_shapes |= before is None or before != list(value.shape or ())
        if kind is not None and value.type is None:
            value.type = ir.TensorType(kind)
    return has_new_shapes


def _read_back(node: ir.Node) -> bool:
    """Give what a Transpose reads the type and extents of what it gives, or at least the rank of its perm.

    Returns:
        Whether that was not known.
    """
    perm, value = node.attributes.get_ints("perm"), node.inputs[0] if node.inputs else None
    if value is None or value.is_graph_input() or not node.outputs:
        return False
    output = node.outputs[0]
    if value.type is None:
        value.type = deepcopy(output.type)
    if perm is None or (value.shape is not None and all(not is_open_dim(dim) for dim in value.shape)):
        return False
    before = None if value.shape is None else list(value.shape)
    dims: list[int | ir.SymbolicDim | str] = [f"{value.name}_dim_{axis}" for axis in range(len(perm))]
    if output.shape is not None and sorted(perm) == list(range(len(output.shape))):
        for axis, dim in zip(perm, output.shape, strict=True):
            dims[axis] = dims[axis] if is_open_dim(dim) else dim
    value.shape = better_shape(value.shape, ir.Shape(dims))
    return before != list(value.shape or ())


def _is_inferred(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Tell whether ONNX infers what an operator of the standard gives: of a GroupNormalization it does not."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get("", 1), "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_type_and_shape_inference_function) or bool(schema.function_body.node)
