"""What the layout engine expects of a model and a file may leave out: types, shapes, and what is known in advance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy

import onnx
import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx.extent_names import ExtentNames
from relayout.formats.onnx.inferred_types import give_inferred
from relayout.formats.onnx.lifting_constants import lift_constants
from relayout.formats.onnx.shape_vectors import Array
from relayout.formats.onnx.value_shapes import Output, OutputsOf, better_shape, is_known_value, is_open_dim, open_stated
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.subgraphs import all_nodes
from relayout.layout.stored_as import STATED


def complete(model: ir.Model, outputs_of: OutputsOf | None = None) -> None:
    """Prepare a model for the layout engine, in place.

    1. Outputs of Constant nodes become initializers: a constant is stored as its readers want it.
    2. Values get the types and shapes that ONNX infers; those that a file states stay, but for numbers that do not
       follow from the inputs: these are prices only (`CLAIMED`).
    3. What operators give that ONNX does not know is asked for; a Transpose says what it reads by what it gives.
    4. Shapes and axes that the graph computes from known extents get a `const_value`; the nodes stay.

    What cannot be inferred stays unknown. The shapes that the file states of its outputs are in their `meta`, since an
    interface is kept as it is.

    Args:
        model: the model.
        outputs_of: what a node gives in a model of these opsets, by what is known of its inputs.
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
    from relayout.formats.onnx.inferring_rounds import ROUNDS
    from relayout.formats.onnx.loop_states import infer_with_states

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
    """How many states of Loops begin with what is known of shape."""
    loops = (node for node in model.graph if node.op_type == "Loop" and not node.domain)
    return sum(value is not None and value.shape is not None for node in loops for value in node.inputs[2:])


def _open_claims(model: ir.Model) -> None:
    """Open the extents that a file states of values and that do not follow from its inputs, in place."""
    claimed = facts_of(model).unimplied
    if claimed:
        add_facts(model, unimplied=frozenset())
    for value in (value for node in model.graph for value in node.outputs) if claimed else ():
        if value.name in claimed:
            open_stated(value)


def _asked(model: ir.Model, outputs_of: OutputsOf | None) -> bool:
    """Find what shape inference does not, one node after another; whether anything was found."""
    nodes = list(all_nodes(model.graph))
    found = False
    for node in reversed(nodes):
        if node.op_type == "Transpose" and not node.domain:
            found |= _read_back(node)
    for node in nodes:
        if node.op_type == "Loop" and not node.domain:
            from relayout.formats.onnx.loop_states import complete_loop

            found |= complete_loop(node)
        if outputs_of is None or all(is_known_value(value) for value in node.outputs if value.name):
            continue
        if node.domain in ("", "ai.onnx") and not found and _is_inferred(node, model.opset_imports):
            continue  # shape inference has seen as much of it
        found |= _give_types(node, outputs_of(node, model.opset_imports))
    return found


def _give_types(node: ir.Node, told: Iterable[Output]) -> bool:
    """Give the outputs of a node the types and shapes that its operator tells; return whether a shape is news."""
    found = False
    for value, (kind, shape) in zip(node.outputs, told, strict=False):
        before = None if value.shape is None else list(value.shape)
        if value.name and shape is not None:
            value.shape = better_shape(value.shape, ir.Shape([dim or None for dim in shape]))
            found |= before is None or before != list(value.shape or ())
        if kind is not None and value.type is None:
            value.type = ir.TensorType(kind)
    return found


def _read_back(node: ir.Node) -> bool:
    """What a Transpose reads has the type and the extents of what it gives, or at least the rank of its perm.

    Returns:
        Whether that was not known.
    """
    perm, value = node.attributes.get_ints("perm"), node.inputs[0] if node.inputs else None
    if value is None or value.is_graph_input() or not node.outputs:
        return False
    given = node.outputs[0]
    if value.type is None:
        value.type = deepcopy(given.type)
    if perm is None or (value.shape is not None and all(not is_open_dim(dim) for dim in value.shape)):
        return False
    before = None if value.shape is None else list(value.shape)
    dims: list[int | ir.SymbolicDim | str] = [f"{value.name}_dim_{axis}" for axis in range(len(perm))]
    if given.shape is not None and sorted(perm) == list(range(len(given.shape))):
        for axis, dim in zip(perm, given.shape, strict=True):
            dims[axis] = dims[axis] if is_open_dim(dim) else dim
    value.shape = better_shape(value.shape, ir.Shape(dims))
    return before != list(value.shape or ())


def _is_inferred(node: ir.Node, opsets: Mapping[str, int]) -> bool:
    """Whether ONNX infers what an operator of the standard gives: of a GroupNormalization it does not."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets.get("", 1), "")
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_type_and_shape_inference_function) or bool(schema.function_body.node)
