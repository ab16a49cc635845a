"""The TRANSPOSE operators of a file that move data when it runs."""

from __future__ import annotations

from math import prod

import numpy as np

from relayout.formats.tflite.container.model import BITS, Model, Operator, Tensor

TRANSPOSE = "TRANSPOSE"


def transposes(model: Model) -> tuple[int, int]:
    """Return how many there are in all subgraphs, and the bytes that they move; an open dimension counts as 1.

    One whose operand is constant, or that moves axes of extent 1 alone, is left out.
    """
    sizes = [
        _moved(operator, subgraph.tensors)
        for subgraph in model.subgraphs
        for operator in subgraph.operators
        if operator.name == TRANSPOSE
    ]
    return sum(size > 0 for size in sizes), sum(sizes)


def _moved(operator: Operator, tensors: tuple[Tensor, ...]) -> int:
    if len(operator.inputs) != 2 or min(operator.inputs) < 0:
        return 0  # whoever reads the operator says what is wrong with it
    data, perm = (tensors[index] for index in operator.inputs)
    rank = len(data.signature)
    if data.data is not None or not rank:
        return 0
    order = range(rank)[::-1] if perm.data is None else perm.content.view(np.int32).tolist()
    moved = [axis % rank for axis in order if data.signature[axis % rank] != 1]
    if moved == sorted(moved):
        return 0
    return prod(max(extent, 1) for extent in data.signature) * BITS.get(data.type, 8) // 8
