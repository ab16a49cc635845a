"""Quantized units from the cases of operators: integers in, Dequantize - operator - Quantize, integers out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from rules.law import Array, Case
from running import run

KERNELS = {
    "Conv": lambda _: 0,
    "ConvTranspose": lambda _: 1,
    "MatMul": lambda _: -1,
    "Gemm": lambda case: 0 if case.attributes.get("transB") else 1,
}
"""Operator -> the axis of its second operand along which scales lie."""
OPERANDS = frozenset({"Add", "Mul", "Sub", "Max", "Min"})
"""Operators whose constants are quantized as their other operands are."""
SHARED = 0.05
"""The scale where all of a unit's integers mean the same."""


def parameters(dtype: type, scale: float) -> tuple[Array, Array]:
    """A scale and a zero point that is neither 0 nor the middle; of 16 bits the middle, as kernels want it."""
    zero = {np.uint8: 117, np.int8: -9, np.uint16: 32768, np.int16: 0}[dtype]
    return np.array(scale, np.float32), np.array(zero, dtype)


def integers(real: Array, scale: Array, zero: Array) -> Array:
    ends = np.iinfo(zero.dtype)
    return np.asarray(np.clip(np.rint(real / scale) + zero, ends.min, ends.max), zero.dtype)


def quantized(
    case: Case, dtype: type, *, alike: bool, constants_too: bool = False, weights: type = np.int8
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A case as a quantized unit, and what it is fed.

    Args:
        case: a node on floats.
        dtype: of the data's integers.
        alike: one scale and zero point for all that is read and given.
        constants_too: whether constant operands of sums and products are quantized, too.
        weights: of the weights' integers.
    """
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    feed: dict[str, Array] = {}
    read: list[str] = []
    scales: list[Array] = []

    def dequantized(name: str, real: Array, scale: Array, zero: Array, axis: int = 0, *, fed: bool = False) -> None:
        shape = [1] * real.ndim
        if scale.ndim:
            shape[axis] = -1
        stored = (
            integers(real, scale.reshape(shape), zero.reshape(shape)) if scale.ndim else integers(real, scale, zero)
        )
        (feed if fed else constants)[name] = stored
        constants.update({f"{name}_scale": scale, f"{name}_zero": zero})
        along = {"axis": axis} if scale.ndim else {}
        nodes.append(
            helper.make_node("DequantizeLinear", [name, f"{name}_scale", f"{name}_zero"], [f"{name}_real"], **along)
        )
        read.append(f"{name}_real")
        scales.append(scale)

    for slot, (name, array) in enumerate(case.inputs.items()):
        if array is None:
            read.append("")
        elif np.asarray(array).dtype != np.float32:
            read.append(name)
            (constants if name in case.constants else feed)[name] = np.asarray(array)
        elif name not in case.constants or (constants_too and case.op_type in OPERANDS):
            largest = SHARED if alike else float(np.abs(array).max()) / 100 * (1 + slot / 7) or SHARED
            is_fed = name not in case.constants
            dequantized(name, np.asarray(array), *parameters(dtype, largest), fed=is_fed)
        elif slot == 1 and case.op_type in KERNELS:
            axis = KERNELS[case.op_type](case) % array.ndim
            others = tuple(other for other in range(array.ndim) if other != axis)
            scale = (np.abs(array).max(others) / 120).astype(np.float32)
            dequantized(name, array, scale, np.zeros(scale.shape, weights), axis)
        elif slot == 2 and case.op_type in KERNELS:
            scale = np.broadcast_to(scales[0] * scales[1], array.shape).astype(np.float32)
            dequantized(name, array, np.ascontiguousarray(scale), np.zeros(array.shape, np.int32))
        else:
            read.append(name)
            constants[name] = np.asarray(array)
    fed = {name: array for name, array in case.arrays.items() if name not in case.constants}
    found = run(replace(case, domain="").bare(), fed)
    names = ["result"] if len(found) == 1 else [f"result{index}" for index in range(len(found))]
    nodes.append(
        helper.make_node(case.op_type, read, [f"{name}_real" for name in names], name="node", **case.attributes)
    )
    results: dict[str, Array] = {}
    for name, real in zip(names, found, strict=True):
        if real.dtype != np.float32:
            nodes.append(helper.make_node("Identity", [f"{name}_real"], [name]))
            results[name] = real
            continue
        scale, zero = parameters(dtype, SHARED if alike else float(np.abs(real).max()) / 110 or SHARED)
        constants |= {f"{name}_scale": scale, f"{name}_zero": zero}
        nodes.append(helper.make_node("QuantizeLinear", [f"{name}_real", f"{name}_scale", f"{name}_zero"], [name]))
        results[name] = integers(real, scale, zero)
    return model(nodes, constants, feed, results, case.opset), feed


def rescaled(x: Array, dtype: type) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Integers that get another scale, and what they are."""
    (scale, zero), (result, other) = parameters(dtype, 0.02), parameters(dtype, 0.03)
    stored = integers(x, scale, zero)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        helper.make_node("QuantizeLinear", ["real", "result_scale", "result_zero"], ["result"], name="node"),
    ]
    constants = {"scale": scale, "zero": zero, "result_scale": result, "result_zero": other}
    return model(nodes, constants, {"x": stored}, {"result": stored}), {"x": stored}


def model(
    nodes: list[onnx.NodeProto],
    constants: Mapping[str, Array],
    feed: Mapping[str, Array],
    outputs: Mapping[str, Array],
    opset: int = 21,
) -> onnx.ModelProto:
    """A model from its nodes; types and shapes of the interface are those of arrays."""

    def info(name: str, array: Array) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    graph = helper.make_graph(
        nodes,
        "units",
        [info(name, array) for name, array in feed.items()],
        [info(name, array) for name, array in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return shape_inference.infer_shapes(made)
