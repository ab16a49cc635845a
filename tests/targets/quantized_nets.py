"""Networks of quantized units, symmetric or not, from few lines: convolutions, depthwise ones, sums, pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 12


@dataclass
class QuantizedNet:
    """A graph that grows by units; `input` and the values of units are integers."""

    zero: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, NDArray[np.generic]] = field(default_factory=dict)
    count: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def constant(self, stem: str, value: NDArray[np.generic]) -> str:
        name = self.name(stem)
        self.constants[name] = value
        return name

    def ends(self, zero: int | None = None, scale: float = 0.05) -> list[str]:
        zeros = np.array(self.zero if zero is None else zero, np.int8)
        return [self.constant("scale", np.array(scale, np.float32)), self.constant("zero", zeros)]

    def add(self, op_type: str, inputs: Sequence[str], **attributes: object) -> str:
        result = self.name(op_type.lower())
        self.nodes.append(helper.make_node(op_type, inputs, [result], name=result, **attributes))
        return result

    def quantize(self, value: str) -> str:
        return self.add("QuantizeLinear", [value, *self.ends()])

    def dequantize(self, value: str) -> str:
        return self.add("DequantizeLinear", [value, *self.ends()])

    def kernel(self, *shape: int) -> str:
        integers = self.rng.integers(-127, 128, shape).astype(np.int8)
        return self.add("DequantizeLinear", [self.constant("w", integers), *self.ends(0, 0.01)])

    def unit(
        self, op_type: str, *values: str, kernel: Sequence[int] = (), relu: bool = False, **attributes: object
    ) -> str:
        inputs = [self.dequantize(value) for value in values]
        inputs += [self.kernel(*kernel)] if kernel else []
        value = self.add(op_type, inputs, **attributes)
        return self.quantize(self.add("Relu", [value]) if relu else value)

    def model(self, result: str, dtype: int = TensorProto.FLOAT, opset: int = 17) -> onnx.ModelProto:
        """A model whose input `x` and output `result` are real numbers, unless another type is said."""
        end = helper.make_tensor_value_info(result, dtype, None)
        graph = helper.make_graph(
            self.nodes,
            "quantized",
            [helper.make_tensor_value_info("x", dtype, [1, CHANNELS, 16, 10])],
            [end],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(made)


def residual(zero: int = 0) -> onnx.ModelProto:
    """Float in and out: a convolution, a depthwise one, another, and a sum around the two."""
    net = QuantizedNet(zero)
    first = net.unit("Conv", net.quantize("x"), kernel=(CHANNELS, CHANNELS, 1, 1), relu=True)
    inner = net.unit("Conv", first, kernel=(CHANNELS, 1, 3, 3), group=CHANNELS, pads=[1, 1, 1, 1])
    inner = net.unit("Conv", inner, kernel=(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1])
    return net.model(net.dequantize(net.unit("Add", first, inner)))


def spatial_attention(channels: int = 64) -> onnx.ModelProto:
    """Integers in and out: where to look in an image, from the greatest and the mean of its channels."""
    net = QuantizedNet()
    image = net.unit("Conv", "x", kernel=(channels, CHANNELS, 3, 3), pads=[1, 1, 1, 1], relu=True)
    axes = net.constant("axes", np.array([1], np.int64))
    both = [net.quantize(net.add(op, [net.dequantize(image), axes])) for op in ("ReduceMax", "ReduceMean")]
    weights = net.unit("Conv", net.unit("Concat", *both, axis=1), kernel=(1, 2, 7, 7), pads=[3, 3, 3, 3])
    result = net.unit("Conv", net.unit("Mul", image, net.unit("Sigmoid", weights)), kernel=(8, channels, 1, 1))
    return net.model(result, TensorProto.INT8, opset=18)


def float_and_int8() -> onnx.ModelProto:
    """A convolution on real numbers, one on integers, one with quantized weights alone."""
    net = QuantizedNet()
    real = net.constant("v", net.rng.random((CHANNELS, CHANNELS, 1, 1)).astype(np.float32))
    value = net.add("Conv", ["x", real])
    value = net.dequantize(net.unit("Conv", net.quantize(value), kernel=(CHANNELS, CHANNELS, 1, 1)))
    return net.model(net.add("Conv", [value, net.kernel(CHANNELS, CHANNELS, 1, 1)]))
