"""What an operator's form depends on beside itself: questions about a whole import, asked once (`Program.once`)."""

from __future__ import annotations

import math

from relayout.formats.tflite.enums import TensorType
from relayout.formats.tflite.model import Operator, Subgraph
from relayout.formats.tflite.operation import BYTES_ONLY
from relayout.formats.tflite.program import Program

PIXELS = 0.1
"""How much of the work of hybrid convolutions may be in windows of one pixel, against that in larger ones."""


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
    """Whether hybrid convolutions may be products, channels last.

    Not beside depthwise ones, which need channels first; nor where much of the work is in windows of one pixel:
    these are rounded one by one, which takes longer than their product saves.
    """
    work = {True: 0, False: 0}
    for subgraph in program.model.subgraphs if program.choices.fast else ():
        for operator in subgraph.operators:
            if operator.name == "DEPTHWISE_CONV_2D":
                return False
            tensors = (*operator.inputs[1:2], *operator.outputs[:1])
            convolves = operator.name == "CONV_2D" and len(tensors) == 2 and min(tensors) >= 0
            if convolves and _is_hybrid(operator, subgraph):
                kernel, result = (subgraph.tensors[i].shape for i in tensors)
                work[kernel[1:3] == (1, 1)] += math.prod(kernel) * math.prod(result[1:3])
    return work[True] < PIXELS * work[False]
