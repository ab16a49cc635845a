"""Small networks with every layout-sensitive operator that a backend may or may not have. All extents differ."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from graph_texts import model

Array = NDArray[np.generic]

CNN = """
cnn (float[2,6,13,11] x) => (float[2,7] y, float[2,10,24,22] z) {
    [first] c1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
    [relu] r1 = Relu(c1)
    [depthwise] d1 = Conv<group=8, pads=[1,1,1,1]>(r1, w2, b2)
    [norm] n1 = BatchNormalization(d1, scale, bias, mean, var)
    [grouped] g1 = Conv<group=2>(n1, w3)
    [max] m1 = MaxPool<kernel_shape=[3,3], strides=[2,2]>(g1)
    [average] a1 = AveragePool<kernel_shape=[3,3], strides=[2,2]>(g1)
    [concat] k1 = Concat<axis=1>(m1, a1)
    [up] u1 = ConvTranspose<strides=[2,2]>(k1, w4)
    [resize] s1 = Resize<mode="linear">(u1, , , sizes)
    [point] p1 = Conv(s1, w5)
    [add] q1 = Add(p1, s1)
    [softmax] z = Softmax<axis=1>(q1)
    [pool] h1 = GlobalAveragePool(q1)
    [flat] f1 = Flatten(h1)
    [gemm] y = Gemm(f1, w6, b6)
}"""

QDQ = """
qdq (float[2,6,13,11] x) => (float[2,8,13,11] y) {
    [q0] i0 = QuantizeLinear(x, s, z)
    [d0] f0 = DequantizeLinear(i0, s, z)
    [dw1] v1 = DequantizeLinear(w1q, s, z)
    [conv1] c1 = Conv<pads=[1,1,1,1]>(f0, v1)
    [q1] i1 = QuantizeLinear(c1, s1, z)
    [d1] f1 = DequantizeLinear(i1, s1, z)
    [dw2] v2 = DequantizeLinear(w2q, s, z)
    [conv2] c2 = Conv<group=8, pads=[1,1,1,1]>(f1, v2)
    [q2] i2 = QuantizeLinear(c2, s1, z)
    [d2] f2 = DequantizeLinear(i2, s1, z)
    [add] a1 = Add(f2, f1)
    [q3] i3 = QuantizeLinear(a1, s1, z)
    [d3] y = DequantizeLinear(i3, s1, z)
}"""

BLOCKED = """
blocked (float[2,3,13,11] x) => (float[2,32,4,3] y) {
    [stem] c1 = Conv<pads=[1,1,1,1]>(x, w1, b1)
    [relu] r1 = Relu(c1)
    [body] c2 = Conv<pads=[1,1,1,1], strides=[2,2]>(r1, w2)
    [max] m1 = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(c2)
    [last] y = Conv(m1, w3)
}"""


def floats(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng([seed, *shape]).normal(size=shape) / 2).astype(np.float32)


def cnn() -> onnx.ModelProto:
    one = {name: np.abs(floats(8, seed=seed)) + 0.5 for seed, name in enumerate(("scale", "bias", "mean", "var"))}
    kernels = {"w1": floats(8, 6, 3, 3), "w2": floats(8, 1, 3, 3), "w3": floats(12, 4, 1, 1)}
    kernels |= {"w4": floats(24, 10, 2, 3), "w5": floats(10, 10, 1, 1), "w6": floats(10, 7), "b6": floats(7)}
    sizes = np.array([2, 10, 24, 22], np.int64)
    return model(CNN, b1=floats(8), b2=floats(8, seed=1), sizes=sizes, **one, **kernels)


def qdq() -> onnx.ModelProto:
    def kernel(*shape: int) -> Array:
        return np.random.default_rng(shape).integers(-100, 100, shape).astype(np.int8)

    scales = {"s": np.array(0.02, np.float32), "s1": np.array(0.05, np.float32), "z": np.array(0, np.int8)}
    return model(QDQ, w1q=kernel(8, 6, 3, 3), w2q=kernel(8, 1, 3, 3), **scales)


def blocked() -> onnx.ModelProto:
    kernels = {"w1": floats(16, 3, 3, 3), "w2": floats(32, 16, 3, 3), "w3": floats(32, 32, 1, 1)}
    return model(BLOCKED, b1=floats(16), **kernels)


def feed(proto: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Random inputs."""
    constants = {value.name for value in proto.graph.initializer}
    found = {}
    for value in proto.graph.input:
        if value.name not in constants:
            shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
            found[value.name] = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return found
