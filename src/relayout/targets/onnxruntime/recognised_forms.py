"""How ONNX Runtime takes what is recognised for every runtime: layer normalizations and recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from relayout.formats.tflite.importing.builder import dims
from relayout.formats.tflite.importing.extents import divided, product
from relayout.formats.tflite.importing.operation import Operation
from relayout.graph.quantized_unit import DEQUANTIZE
from relayout.lowering.recognise_layer_norm import layer_normalized, normalization
from relayout.lowering.recognise_recurrent.cells import Bound, Cell
from relayout.lowering.recognise_recurrent.forms import Columns
from relayout.lowering.recognise_recurrent.rows import by_rows

MOST_WIDENED = 150_000
"""Elements that a state is multiplied by in each round: where there are more, integers take less time in a Scan."""


def layer_norm_of_rows(op: Operation) -> bool:
    """Hand over an ADD as a LayerNormalization of a matrix, if it is the last piece of one.

    Of an addition of rank 3 and a LayerNormalization ONNX Runtime makes a SkipLayerNormalization, which takes six times
    as long.
    """
    return layer_normalized(op, _of_rows)


def _of_rows(op: Operation, x: ir.Value, constants: Sequence[ir.Value], epsilon: float) -> ir.Value:
    (count,) = constants[0].shape or (0,)
    assert isinstance(count, int)
    rows = op.reshape(x, (divided(product(dims(x)), count), count))
    return op.reshape(normalization(op, rows, constants, epsilon), dims(x))


def recurrent_rows(op: Operation) -> bool:
    """Hand over the results of a WHILE as those of a Scan, or of one operator where that takes less time."""
    return by_rows(op, _takes_less_time)


def _takes_less_time(cell: Cell, bound: Bound, state: ir.Value) -> bool:
    """Tell whether real numbers take less time than the file's integers, if any, and are near enough to them."""
    is_of_integers = False
    for matrix in (value.matrix for value in bound.values() if isinstance(value, Columns)):
        while (node := matrix.producer()) is not None and node.inputs[0] is not None:
            if node.op_type == DEQUANTIZE:
                return False  # ONNX Runtime does not fold that: it runs in every inference
            matrix = node.inputs[0]
        is_of_integers |= matrix.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
    units = dims(state)[-1]  # where the file holds integers, LiteRT rounds rows beside them
    few = isinstance(units, int) and len(cell.gates) * units**2 <= MOST_WIDENED
    return not is_of_integers or (cell.steady and few)
