"""A border that mirrors is gathered, one axis after another: LiteRT's kernel for it moves single elements.

    Pad(x, mode reflect)    becomes    Gather ─ Gather

GATHER copies whole rows. On x64 MIRROR_PAD takes 2 to 20 times as long.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import DEQUANTIZE, unit_of
from relayout.targets.litert.insertion import Insertion, integers_of
from relayout.targets.litert.integer_scales import BYTES, scale_of

GATHER = "Gather"
INTEGERS = (*BYTES, ir.DataType.INT16)
"""Types that GATHER takes with a scale."""


def gather_mirrored_border(before: Insertion) -> bool:
    """Rewrite a Pad of real numbers by constant amounts that mirrors, and return whether it is one."""
    node = before.node
    if node.domain or node.attributes.get_string("mode", "constant") != "reflect":
        return False
    producer = None if node.inputs[0] is None else node.inputs[0].producer()
    is_simple = unit_of(node) is None or (producer is not None and producer.op_type == DEQUANTIZE)
    borders = _borders(node) if is_simple else {}
    if borders:
        _replace(before, borders)
    return bool(borders)


def _borders(node: ir.Node) -> dict[int, NDArray[np.int64]]:
    """Return which row of an axis each row of the result is, by axis; nothing where a row is mirrored twice, or cut."""
    value, amounts = node.inputs[0], integers_of(node, 1) or [*node.attributes.get_ints("pads", ())]
    if value is None or value.shape is None or value.dtype != ir.DataType.FLOAT:
        return {}
    axes = integers_of(node, 3) if len(node.inputs) > 3 and node.inputs[3] is not None else range(len(value.shape))
    borders: dict[int, NDArray[np.int64]] = {}
    for axis, before, after in zip(axes or (), amounts, amounts[len(amounts) // 2 :], strict=False):
        extent = value.shape[axis]
        if before or after:
            if not isinstance(extent, int) or not (0 <= before < extent and 0 <= after < extent):
                return {}
            borders[axis % len(value.shape)] = np.pad(np.arange(extent), (before, after), "reflect")
    return borders


def _replace(before: Insertion, borders: Mapping[int, NDArray[np.int64]]) -> None:
    """Gather along one axis after another; between integers what is between them is quantized as the operand is."""
    (value, *_), (result,) = before.node.inputs, before.node.outputs
    assert value is not None
    dequantize = value.producer() if unit_of(before.node) is not None else None
    scale = None if dequantize is None else scale_of(dequantize)
    has_kernel = scale is not None and scale.is_one and scale.dtype in INTEGERS
    for number, (axis, rows) in enumerate(borders.items()):
        if number and has_kernel and dequantize is not None and dequantize.inputs[0] is not None:
            value = before.quantized(value, dequantize.inputs[1:], dequantize.inputs[0].type)
        places = before.constant(rows, f"{result.name}/rows_{axis}")
        dims = [*(value.shape or ())]
        dims[axis] = len(rows)
        value = before.add(GATHER, [value, places], ir.Shape(dims), value.type, {"axis": axis})
    before.replace(value)
