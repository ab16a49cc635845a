"""Loops of a `.tflite` that stay loops, since its kernels compute other numbers in them than with real weights."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Subgraph
from relayout.formats.tflite.importing.operation import Operation
from relayout.lowering.recognise_recurrent.rows import by_rows

WEIGHTS = frozenset([TensorType.INT8, TensorType.UINT8, TensorType.INT4])


def rows_of_reals(op: Operation) -> bool:
    """Hand over a WHILE as rows are, or as one recurrent operator, unless its products round rows to integers."""
    body = op.program.subgraph(op.options.body_subgraph_index, op.place)
    return not _rounds_rows(body) and by_rows(op)


def _rounds_rows(body: Subgraph) -> bool:
    """Tell whether a product of real rows has weights of integers: the kernel rounds each row to integers, too."""
    products = (each for each in body.operators if each.name in ("FULLY_CONNECTED", "BATCH_MATMUL", "CONV_2D"))
    operands = ([body.tensors[i].type for i in each.inputs[:2] if i >= 0] for each in products)
    return any(TensorType.FLOAT32 in types and not WEIGHTS.isdisjoint(types) for types in operands)
