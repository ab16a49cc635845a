"""What an operator's form depends on beside itself: questions about a whole import, asked once (`Program.once`)."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Operator, Subgraph
from relayout.formats.tflite.importing.operation import BYTES_ONLY
from relayout.formats.tflite.importing.program import Program


def multiplies_alone(program: Program) -> bool:
    """Whether no operators but matrix products have real operands and weights of 8 or 4 bits."""
    return not any(
        _is_hybrid(operator, subgraph)
        for subgraph in program.model.subgraphs
        for operator in subgraph.operators
        if operator.name != "FULLY_CONNECTED"
    )


def _is_hybrid(operator: Operator, subgraph: Subgraph) -> bool:
    """Whether an operator has real operands and weights of 8 or 4 bits."""
    operands = [subgraph.tensors[i] for i in operator.inputs if i >= 0]
    weights = any(t.type in (*BYTES_ONLY, TensorType.INT4) and t.data is not None for t in operands)
    return weights and any(t.type == TensorType.FLOAT32 and t.data is None for t in operands)


def unrolls(program: Program) -> bool:
    """Whether hybrid convolutions may be products, channels last."""
    return program.choices.fast and not program.once(multiplies_alone)
