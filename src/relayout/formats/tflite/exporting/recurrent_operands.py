"""ONNX's recurrent operators, and the places of their operands."""

import onnx_ir as ir

from relayout.formats.onnx.shape_vectors import MOVES
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.graph.subgraphs import all_nodes

STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}
"""Operator -> how many states it has."""
SEQUENCE, KERNEL, RECURRENT, BIAS, LENGTHS, HIDDEN, MEMORY, PEEPHOLE = range(8)
"""Operands. `KERNEL` are the weights of the sequence, `RECURRENT` those of the hidden state. Only an LSTM has the last
two."""
FEW_STEPS = 64
"""Steps up to which a runtime without loops, and without a kernel for an LSTM, gets them one by one."""


DEFAULTS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
"""Operator -> the activations of one direction where a node gives none."""
PARAMETERS = {
    "affine": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "elu": (1.0,),
}
"""Activations -> their alpha and beta where a node gives none."""


def is_recurrent(node: ir.Node) -> bool:
    """Tell whether a node is one of them."""
    return node.op_type in STATES and not node.domain


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
JOINS = frozenset(("Add", "Concat", "Sub"))
"""Operators that make zeros of zeros alone."""
MOST_ZEROS = 1 << 20
"""Elements up to which a constant is looked at."""


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


def has_few_steps(node: ir.Node) -> bool:
    """Return whether a recurrent node's steps may be written one by one for a runtime without loops."""
    x = node.inputs[0]
    length = None if x is None or x.shape is None else x.shape[1 if node.attributes.get_int("layout", 0) else 0]
    return isinstance(length, int) and 0 < length <= FEW_STEPS
