"""Loops of a `.tflite` that stay loops, since its kernels compute other numbers in them than with real weights."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Subgraph
from relayout.formats.tflite.importing.marking import gives_others_for_integers
from relayout.formats.tflite.importing.operation import Operation
from relayout.lowering.recognise_recurrent.rows import by_rows


def rows_of_reals(op: Operation) -> bool:
    """Hand over a WHILE as rows are, or as one recurrent operator, unless its kernels round rows to integers."""
    body = op.program.subgraph(op.options.body_subgraph_index, op.place)
    return not _rounds_rows(body) and by_rows(op)


def _rounds_rows(body: Subgraph) -> bool:
    """Tell whether an operator reads integers beside real numbers, which its kernel rounds then."""
    for operator in body.operators:
        operands, results = ([body.tensors[i] for i in ends if i >= 0] for ends in (operator.inputs, operator.outputs))
        has_reals = any(each.type == TensorType.FLOAT32 for each in operands)
        if has_reals and gives_others_for_integers(operands, results):
            return True
    return False
