"""ONNX's recurrent operators, and the places of their operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.onnx.replacing import Writing
from relayout.formats.onnx.shape_vectors import MOVES
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs, all_nodes
from relayout.layout.regroup import segments

STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}  # operator -> how many states it has
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
"""Operator -> how many gates it has, each with as many rows of the weights as the state has elements."""
SEQUENCE, KERNEL, RECURRENT, BIAS, LENGTHS, HIDDEN, MEMORY, PEEPHOLE = range(8)
"""Operands. `KERNEL` are the weights of the sequence, `RECURRENT` those of the hidden state. Only an LSTM has the last
two."""
FEW_STEPS = 64  # steps up to which a runtime without loops, and without a kernel for an LSTM, gets them one by one


DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
"""Operator -> the activations of one direction where a node gives none."""
PARAMETERS = {  # activations -> their alpha and beta where a node gives none
    "affine": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "elu": (1.0,),
}


def is_recurrent(node: ir.Node) -> bool:
    """Tell whether a node is one of them."""
    return node.op_type in STATES and not node.domain


def directions_of(node: ir.Node) -> int:
    """Return how many directions a node has."""
    return 2 if node.attributes.get_string("direction", "forward") == "bidirectional" else 1


def misfit_of(node: ir.Node) -> str:
    """Say which weights of a recurrent node have other extents than its input and state want; empty if none has."""
    x, recurrent, attributes = node.inputs[SEQUENCE], node.inputs[RECURRENT], node.attributes
    ends = () if recurrent is None or recurrent.shape is None else recurrent.shape[-1:]
    hidden = attributes.get_int("hidden_size", next((end for end in ends if isinstance(end, int)), 0))
    rows, directions = GATES[node.op_type] * hidden, directions_of(node)
    elements = None if x is None or x.shape is None else next(iter(x.shape[-1:]), None)
    expected: dict[int, list[Any]] = {  # operand -> its extents
        KERNEL: [directions, rows, elements],
        RECURRENT: [directions, rows, hidden],
        BIAS: [directions, 2 * rows],
        PEEPHOLE: [directions, 3 * hidden],
    }
    for slot, extents in expected.items():
        value = node.inputs[slot] if slot < len(node.inputs) else None
        if value is None or value.shape is None or not value.shape.is_static() or not isinstance(elements, int):
            continue
        if list(value.shape) != extents:
            actual, fitting = (" × ".join(str(extent) for extent in each) for each in (value.shape.numpy(), extents))
            return f"weights '{value.name}' of {actual} elements, where {fitting} fit"
    return ""


def activations_of(node: ir.Node, number: int) -> list[tuple[str, list[float]]]:
    """Return the activations of one direction in lower case, each with its alpha and beta if it has such.

    A node lists its numbers for both directions. Each function with such a parameter takes the next one, so that the
    second direction begins where the functions of the first one end.
    """
    default, attributes = DEFAULTS[node.op_type], node.attributes
    attribute = attributes.get("activations")
    names = [name.lower() for name in (default * 2 if attribute is None else attribute.as_strings())] or default
    lists = [attributes.get("activation_alpha"), attributes.get("activation_beta")]
    numbers = [iter(() if each is None else each.as_floats()) for each in lists]
    every = [
        (name, [next(numbers[place], usual) for place, usual in enumerate(PARAMETERS.get(name, ()))]) for name in names
    ]
    return every[number * len(default) : (number + 1) * len(default)]


REPEATS = frozenset(("Expand", "Split", "Tile"))
"""Operators whose results hold some elements of their first operand, or all of them several times."""
JOINS = frozenset(("Add", "Concat", "Sub"))  # operators that make zeros of zeros alone
MOST_ZEROS = 1 << 20  # elements up to which a constant is looked at


def drop_zero_states(model: ir.Model) -> bool:
    """Leave out initial states that are zeros, whatever computes them, in place; return whether there were any.

    Exporters compute them: `ConstantOfShape(Concat(1, Gather(Shape(x), 0), h))`.
    """
    dropped = False
    for node in all_nodes(model.graph):
        if not is_recurrent(node):
            continue
        for slot in range(HIDDEN, min(HIDDEN + STATES[node.op_type], len(node.inputs))):
            value = node.inputs[slot]
            if value is not None and _is_zero(value):
                node.replace_input_with(slot, None)
                dropped = True
    return dropped


def _is_zero(value: ir.Value) -> bool:
    """Tell whether all elements of a value are zeros."""
    if value.is_graph_input():
        return False
    if value.const_value is not None:
        return value.const_value.size <= MOST_ZEROS and not value.const_value.numpy().any()
    node = value.producer()
    if node is None or node.domain:
        return node is not None and (node.domain, node.op_type) == (DOMAIN, "ZEROS_LIKE")
    if node.op_type == "ConstantOfShape":
        fill = node.attributes.get("value")
        return fill is None or not fill.as_tensor().numpy().any()
    sources = node.inputs if node.op_type in JOINS else node.inputs[:1]
    moves = node.op_type in MOVES or node.op_type in REPEATS or node.op_type in JOINS
    return moves and all(source is not None and _is_zero(source) for source in sources)


def length_and_batch(node: ir.Node) -> tuple[int | ir.SymbolicDim | None, int | ir.SymbolicDim | None]:
    """Return how many steps the sequences of a recurrent node have, and how many these are; None of an unknown rank."""
    x = node.inputs[SEQUENCE]
    if x is None or x.shape is None:
        return None, None
    first, second, *_ = *x.shape, None, None
    return (second, first) if node.attributes.get_int("layout", 0) else (first, second)


def has_few_steps(node: ir.Node) -> bool:
    """Return whether a recurrent node's steps may be written one by one for a runtime without loops."""
    length, _ = length_and_batch(node)
    return isinstance(length, int) and 0 < length <= FEW_STEPS


# The last step of a recurrent operator's results, which is its last state: nobody needs those of all steps then.


VIEWS = ("Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
LAST_STATE = 1  # the output that holds it


def read_last_states(model: ir.Model, names: Names) -> bool:
    """Let nodes that pick the last step of a sequence read the last state, in place; return whether there were any.

        y, _ = GRU(x)                _, h = GRU(x)
        z = Transpose(y)      ->     z = Transpose(Unsqueeze(h, 0))
        last = Gather(z, -1)         last = Squeeze(z)

    A sequence of rows that are all as long may lie behind views that leave its steps one axis.
    """
    changed, version = False, model.opset_imports.get("", 1)
    for graph in all_graphs(model.graph):
        for node in list(graph):
            axis = _picked_axis(node)
            views = None if axis is None else _views_of_steps(node.inputs[0], axis)
            if views is not None and axis is not None:
                _Pick(graph, node, names, version).run(views, axis)
                changed = True
    return changed


def _picked_axis(node: ir.Node) -> int | None:
    """Return the axis along which a Gather takes only the last element; None for any other node."""
    if node.op_type != "Gather" or node.domain or node.inputs[0] is None or node.inputs[0].shape is None:
        return None
    place, shape = _constant(node, 1), node.inputs[0].shape
    axis = node.attributes.get_int("axis", 0) % max(len(shape), 1)
    if place is None or place.ndim > 1 or place.size != 1 or shape[axis] == 1:
        return None
    number, length = int(place.reshape(-1)[0]), shape[axis]
    return axis if number == -1 or (isinstance(length, int) and length > 1 and number == length - 1) else None


def _views_of_steps(value: ir.Value | None, axis: int) -> list[ir.Node] | None:
    """Return the views between the results of a recurrent operator and a value whose axis is time, in order."""
    views: list[ir.Node] = []
    while value is not None and (node := value.producer()) is not None and not node.domain:
        if is_recurrent(node):  # its last step is its last state if it runs forward and no row is shorter
            is_forward = node.attributes.get_string("direction", "forward") == "forward"
            has_lengths = len(node.inputs) > LENGTHS and node.inputs[LENGTHS] is not None
            is_last = is_forward and not has_lengths and not node.attributes.get_int("layout", 0)
            return views[::-1] if value is node.outputs[0] and axis == 0 and is_last else None
        before = _axis_before(node, axis) if node.op_type in VIEWS else None
        if before is None:
            return None
        views.append(node)
        axis, value = before, node.inputs[0]
    return None


def _axis_before(view: ir.Node, axis: int) -> int | None:
    """Return the axis of a view's operand that an axis of its result is; None where it is none by itself."""
    before, after = (None if each is None else each.shape for each in (view.inputs[0], view.outputs[0]))
    if view.op_type == "Transpose":
        return None if after is None else int(view.attributes.get_ints("perm", range(len(after))[::-1])[axis])
    source, target = _dims(before), _dims(after)
    # A Reshape to one step finds out one extent by itself.
    is_found = [place for place, dim in enumerate(target) if place != axis and isinstance(dim, str)]
    if not source or not target or len(is_found) > 1:
        return None
    groups = segments(source, target) or ()
    own = next((group for group in groups if axis in group.target), None)
    if own is None or own.factors is None or len(own.factors) != 1:
        return None
    return next(place for place in own.source if source[place] != 1)


def _dims(shape: ir.Shape | None) -> list[int | str]:
    """Return the extents of a shape; none where one has neither a number nor a name."""
    dims = [dim if isinstance(dim, int) else dim.value or "" for dim in shape or ()]
    return [] if "" in dims else dims


def _constant(node: ir.Node, slot: int) -> NDArray[np.int64] | None:
    value = node.inputs[slot]
    return None if value is None or value.const_value is None else value.const_value.numpy()


class _Pick(Writing):
    """A Gather of the last step as one of the last state."""

    def run(self, views: list[ir.Node], axis: int) -> None:
        recurrence = (views[0] if views else self.node).inputs[0].producer()  # type: ignore[union-attr]
        assert recurrence is not None
        if len(recurrence.outputs) == LAST_STATE:
            recurrence.resize_outputs(LAST_STATE + 1)
        state = recurrence.outputs[LAST_STATE]
        state.name = state.name or self.names.unique(f"{self.stem}/state")
        value = self.unsqueeze(state, 0)
        axes = [axis]
        for view in reversed(views):
            axes.append(_axis_before(view, axes[-1]) or 0)
        for view, place in zip(views, axes[-2::-1], strict=True):
            value = self._of_one_step(view, value, place)
        places = _constant(self.node, 1)
        if places is not None and not places.ndim:
            value = self.squeeze(value, axis)
        self.finish([value])

    def _of_one_step(self, view: ir.Node, value: ir.Value, axis: int) -> ir.Value:
        """Add a view of one step; `axis` is time in its result."""
        if view.op_type in ("Identity", "Transpose"):
            return self.add(view.op_type, [value], **{name: each.value for name, each in view.attributes.items()})
        assert view.outputs[0].shape is not None
        extents = [extent if isinstance(extent, int) else -1 for extent in view.outputs[0].shape]
        extents[axis] = 1
        return self.add("Reshape", [value, self.constant(np.array(extents, np.int64))])
