"""ONNX's recurrent operators, and the places of their operands."""

import onnx_ir as ir

STATES = {"GRU": 1, "LSTM": 2, "RNN": 1}
"""Operator -> how many states it has."""
SEQUENCE, KERNEL, RECURRENT, BIAS, LENGTHS, HIDDEN, MEMORY, PEEPHOLE = range(8)
"""Operands. `KERNEL` are the weights of the sequence, `RECURRENT` those of the hidden state. Only an LSTM has the last
two."""


def is_recurrent(node: ir.Node) -> bool:
    """Tell whether a node is one of them."""
    return node.op_type in STATES and not node.domain
