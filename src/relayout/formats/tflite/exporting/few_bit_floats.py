"""Weights in floats of 8 or 4 bits, which LiteRT has no kernels for, as the real numbers that they stand for.

DequantizeLinear(w: FLOAT8E4M3FN, scale)  ->  w': FLOAT
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import DEQUANTIZE
from relayout.graph.source_names import Names
from relayout.graph.subgraphs import all_graphs

FEW_BITS = tuple(kind for kind in ir.DataType if kind.name.startswith(("FLOAT8", "FLOAT4")))
"""The types of such weights."""
SCALE = 1


def decode_few_bit_floats(
    model: ir.Model,
    names: Names,  # of all its values; it grows
) -> None:
    """Replace each DequantizeLinear, and each Cast, of constants of these types by a constant, in place."""
    for graph in all_graphs(model.graph):
        for node in list(graph):
            numbers = _decoded(node)
            if numbers is None or node.outputs[0].is_graph_output():
                continue
            (result,) = node.outputs
            made = ir.val(names.unique(f"{result.name}/decoded"), const_value=numbers)
            numbers.name = made.name
            graph.register_initializer(made)
            result.replace_all_uses_with(made)
            graph.remove(node, safe=True)


def _decoded(node: ir.Node) -> ir.LazyTensor | None:
    """Return the real numbers that a node gives, computed when they are used; None of any other node."""
    if node.domain or node.op_type not in (DEQUANTIZE, "Cast"):
        return None
    constants = [None if value is None or value.is_graph_input() else value.const_value for value in node.inputs]
    weights, kind = constants[0], node.outputs[0].dtype
    if weights is None or weights.dtype not in FEW_BITS or kind not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return None
    scale = constants[SCALE] if node.op_type == DEQUANTIZE else None
    if node.op_type == DEQUANTIZE and scale is None:
        return None  # the zero point is always 0
    axis, shape = node.attributes.get_int("axis", 1), weights.shape.numpy()
    block = node.attributes.get_int("block_size", 0)

    def numbers() -> ir.TensorProtocol:
        real: NDArray[np.float32] = weights.numpy().astype(np.float32)
        if scale is not None:
            real *= _stretched(scale.numpy().astype(np.float32), shape, axis, block)
        return ir.tensor(real.astype(kind.numpy()))

    return ir.LazyTensor(numbers, dtype=kind, shape=ir.Shape(shape))


def _stretched(scale: NDArray[np.float32], shape: Sequence[int], axis: int, block: int) -> NDArray[np.float32]:
    """Return scales so that they fit weights of a shape: one for all, for each place along an axis, or for a block.

    The last block may be shorter.
    """
    if block:
        return np.take(np.repeat(scale, block, axis), range(shape[axis]), axis)
    if scale.size == 1:
        return scale.reshape(())
    return scale.reshape([-1 if place == axis % len(shape) else 1 for place in range(len(shape))])
