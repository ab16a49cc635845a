"""Activations: operators that a network applies to each element of a result."""

from __future__ import annotations

import math

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import NUMPY, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter


@exporter("Elu")
def elu(op: NodeExport) -> None:
    """ELU; with another alpha MAXIMUM, MINIMUM, EXP, SUB, MUL and ADD."""
    alpha = op.number("alpha", 1.0)
    if alpha == 1.0:
        op.result("ELU", [op.input(0)])
        return
    operand = op.input(0)
    below = op.each("EXP", op.minimum(operand, 0.0))
    scaled = op.mul(op.sub(below, 1.0), alpha)
    op.result("ADD", [op.each("RELU", operand), scaled])


@exporter("Selu")
def selu(op: NodeExport) -> None:
    """RELU, EXP and sums."""
    alpha, gamma = op.number("alpha", 1.6732632), op.number("gamma", 1.0507010)
    operand = op.input(0)
    below = op.each("EXP", op.minimum(operand, 0.0))
    scaled = op.mul(op.sub(below, 1.0), alpha * gamma)
    above = op.mul(op.each("RELU", operand), gamma)
    op.result("ADD", [above, scaled])


@exporter("Celu")
def celu(op: NodeExport) -> None:
    """ELU between a division and a product."""
    alpha, operand = op.number("alpha", 1.0), op.input(0)
    if alpha <= 0:
        raise Unwritable("an alpha that is not above 0")
    inner = op.each("ELU", op.mul(operand, 1.0 / alpha))
    below = op.mul(op.minimum(inner, 0.0), alpha)
    op.result("ADD", [op.each("RELU", operand), below])


@exporter("LeakyRelu")
def leaky_relu(op: NodeExport) -> None:
    """LEAKY_RELU."""
    op.result("LEAKY_RELU", [op.input(0)], alpha=op.number("alpha", 0.01))


@exporter("PRelu")
def prelu(op: NodeExport) -> None:
    """PRELU with a slope for each channel; with others a sum of RELU and a product."""
    operand, slope = op.input(0), op.input(1)
    dims = operand.dims
    ones = (1,) * (len(dims) - 1 - len(slope.dims))
    tail = slope.dims[len(slope.dims) - len(dims) + 1 :] if len(slope.dims) >= len(dims) else ones + slope.dims
    fits = len(dims) > 1 and len(tail) == len(dims) - 1 and all(dim in (1, dims[i + 1]) for i, dim in enumerate(tail))
    if fits and slope.data is not None and (len(slope.dims) < len(dims) or slope.dims[0] == 1):
        op.result("PRELU", [operand, op.reshape(slope, tail)])
        return
    if op.quantized:
        raise Unwritable("slopes of other axes than the last ones")
    below = op.mul(op.minimum(operand, 0.0), slope)
    op.result("ADD", [op.each("RELU", operand), below])


@exporter("Gelu")
@exporter("Gelu", "FastGelu", "QuickGelu", domain="com.microsoft")
def gelu(op: NodeExport) -> None:
    """GELU; QuickGelu as a product with LOGISTIC."""
    operand = op.input(0)
    if op.op_type == "QuickGelu":
        scaled = op.mul(operand, op.number("alpha", 1.702))
        op.result("MUL", [operand, op.each("LOGISTIC", scaled)])
        return
    if op.op_type == "FastGelu" and op.has(1):
        operand = op.add(operand, op.input(1))
    approximate = op.op_type == "FastGelu" or op.text("approximate", "none") == "tanh"
    op.result("GELU", [operand], approximate=approximate)


@exporter("Swish")
def swish(op: NodeExport) -> None:
    """MUL with LOGISTIC."""
    operand = op.input(0)
    alpha = op.number("alpha", 1.0)
    inner = operand if alpha == 1.0 else op.mul(operand, alpha)
    op.result("MUL", [operand, op.each("LOGISTIC", inner)])


@exporter("HardSigmoid")
def hard_sigmoid(op: NodeExport) -> None:
    """`RELU6(6 alpha x + 6 beta) / 6`: MUL where alpha is not 1/6, ADD and MUL, in 0.8 of the time of RELU_0_TO_1."""
    operand = op.input(0)
    factor = 6 * op.number("alpha", 0.2)
    scaled = operand if abs(factor - 1) < 1e-6 else op.mul(operand, factor)
    moved = op.add(scaled, 6 * op.number("beta", 0.5))
    op.result("MUL", [op.each("RELU6", moved), op.real(1 / 6)])


@exporter("Relu")
def relu(op: NodeExport) -> None:
    """RELU; MAXIMUM with 0 of integers that stand for themselves."""
    operand = op.input(0)
    if operand.type == TensorType.FLOAT32 or op.quantized:
        op.result("RELU", [operand])
    else:
        op.give(op.maximum(operand, 0))


@exporter("Clip")
def clip(op: NodeExport) -> None:
    """RELU, RELU6, RELU_N1_TO_1 or RELU_0_TO_1 where its bounds are these; else MAXIMUM and MINIMUM."""
    operand = op.input(0)
    low, high = _bound(op, 1, "min", -math.inf), _bound(op, 2, "max", math.inf)
    names = {
        (0.0, math.inf): "RELU",
        (0.0, 6.0): "RELU6",
        (-1.0, 1.0): "RELU_N1_TO_1",
        (0.0, 1.0): "RELU_0_TO_1",
    }
    if operand.type == TensorType.FLOAT32 or op.quantized:
        name = None if low is None or high is None else names.get((low, high))
        if name is not None:
            op.result(name, [operand])
            return
        if op.quantized:
            raise Unwritable("bounds of a quantized Clip that no activation has")
    result = operand
    if low != -math.inf:
        bound = op.input(1) if low is None else op.real(np.asarray(low, NUMPY[operand.type]), operand)
        result = op.maximum(result, bound)
    if high != math.inf:
        bound = op.input(2) if high is None else op.real(np.asarray(high, NUMPY[operand.type]), operand)
        result = op.minimum(result, bound)
    op.give(result)


def _bound(op: NodeExport, slot: int, name: str, default: float) -> float | None:
    """Return a bound of a Clip; None where it is computed."""
    if op.node.attributes.get(name) is not None:
        value = op.number(name)
        return math.copysign(math.inf, value) if abs(value) >= float(np.finfo(np.float32).max) else value
    if not op.has(slot):
        return default
    array = op.constant(slot)
    if array is None:
        return None
    value = float(array.reshape(-1)[0])
    kind = array.dtype
    limit = float(np.finfo(kind).max) if np.issubdtype(kind, np.floating) else math.inf
    return math.copysign(math.inf, value) if abs(value) >= limit else value


@exporter("ThresholdedRelu")
def thresholded_relu(op: NodeExport) -> None:
    """GREATER and SELECT_V2."""
    operand = op.input(0)
    above = op.compare("GREATER", operand, op.number("alpha", 1.0))
    op.result("SELECT_V2", [above, operand, op.real(0.0)])


@exporter("Shrink")
def shrink(op: NodeExport) -> None:
    """LESS, GREATER and SELECT_V2, on real numbers."""
    operand, limit, bias = op.input(0), op.number("lambd", 0.5), op.number("bias", 0.0)
    number = op.cast(operand, TensorType.FLOAT32)  # of integers, too: bounds need not be whole
    inner = op.select(op.compare("GREATER", number, limit), op.sub(number, bias), 0.0)
    found = op.select(op.compare("LESS", number, -limit), op.add(number, bias), inner)
    op.give(op.cast(found, operand.type))


@exporter("Softsign")
def softsign(op: NodeExport) -> None:
    """ABS, ADD and DIV."""
    operand = op.input(0)
    size = op.add(op.each("ABS", operand), 1.0)
    op.result("DIV", [operand, size])


@exporter("Softplus")
def softplus(op: NodeExport) -> None:
    """`max(x, 0) + log(1 + exp(-|x|))`."""
    operand = op.input(0)
    op.give(_softplus(op, operand))


def _softplus(op: NodeExport, operand: DraftTensor) -> DraftTensor:
    size = op.each("EXP", op.each("NEG", op.each("ABS", operand)))
    log = op.each("LOG", op.add(size, 1.0))
    return op.add(op.each("RELU", operand), log)


@exporter("Mish")
def mish(op: NodeExport) -> None:
    """A product with TANH of Softplus."""
    operand = op.input(0)
    op.result("MUL", [operand, op.each("TANH", _softplus(op, operand))])
