"""The activations that LiteRT's integer kernels apply, and the bounds of those in a graph."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import ActivationFunctionType
from relayout.targets.litert.integer_scales import BYTES, DEQUANTIZING, SHIFTS, scale_of


def fused_activation(bounds: tuple[float, float], quantize: ir.Node) -> ActivationFunctionType | None:
    """Return the activation that keeps a result in bounds; NONE where the range of its integers does; None: no one."""
    scale = scale_of(quantize)
    if scale is None or not scale.is_one:
        return None
    least, most = (-128, 127) if scale.dtype in BYTES else (-32768, 32767)
    step, zero = float(scale.scale[0]), int(scale.zero[0])
    low, high = (bound if np.isinf(bound) else np.rint(bound / step) + zero for bound in bounds)
    if low <= least and high >= most:
        return ActivationFunctionType.NONE
    for kind, (floor, ceiling) in CLAMPS.items():
        if bounds[0] == floor and (bounds[1] == ceiling or (high >= most and np.isinf(ceiling))):
            return kind
    return None


def clamp_bounds(node: ir.Node) -> tuple[float, float] | None:
    """Return the least and the most that a Clip gives; None where they are computed."""
    found: list[float] = []
    for slot, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        value = node.inputs[slot] if slot < len(node.inputs) else None
        array = None if value is None else _constant(value)
        if value is not None and array is None:
            return None
        found.append(node.attributes.get_float(name, default) if array is None else float(array.reshape(-1)[0]))
    return found[0], found[1]


BOUNDS: Mapping[str, Callable[[ir.Node], tuple[float, float] | None]] = {
    "Relu": lambda _: (0.0, float("inf")),
    "Clip": clamp_bounds,
}
"""Activation -> the bounds that it keeps its operand in; None where they are computed."""
CLAMPS: Mapping[ActivationFunctionType, tuple[float, float]] = {
    ActivationFunctionType.RELU: (0.0, float("inf")),
    ActivationFunctionType.RELU6: (0.0, 6.0),
    ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""Activations that kernels of integers apply, and their bounds."""


def _constant(value: ir.Value) -> NDArray[np.generic] | None:
    """Return a constant, also one that was quantized."""
    if value.const_value is not None:
        return value.const_value.numpy()
    node = value.producer()
    if node is None or node.op_type not in DEQUANTIZING or node.inputs[0] is None or node.inputs[0].const_value is None:
        return None
    scale = scale_of(node)
    if scale is None or not scale.is_one:
        return None
    shift = SHIFTS.get(scale.dtype, 0)
    integers = node.inputs[0].const_value.numpy().astype(np.float64) - shift
    found: NDArray[np.generic] = (integers - scale.zero[0]) * scale.scale[0]
    return found
