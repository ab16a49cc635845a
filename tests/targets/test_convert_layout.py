"""Layouts that are asked for: the cases of TVM's ConvertLayout, of its document and of the discussions about it.

Every case is a small graph in the standard's order, what is asked of it, the functions that must be there, and what is
moved: the shapes of all values that are transposed at run time. Where TVM's own expectation moves more, it stands
beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import relayout
import small
from relayout.targets import FLOAT, Condition, Kernel, Target
from running import run
from small import build
from transposes import left

MINUS = '<domain: "some.where", opset_import: ["": 21]> Minus (x) => (y) { y = Neg(x) }'
DIMS = {"n": 2, "h": 11, "v": 9, "k": 1}
"""Dynamic extents in a run."""
FED = {"start": [0, 1, 1, 1], "end": [1, 4, 8, 8], "shape": [1]}
"""Inputs whose values matter."""
Array = NDArray[np.generic]
Shape = tuple[int, ...]
X, Y = (2, 3, 11, 9), (2, 4, 9, 8)
"""Image before and after `Conv(x, w)`: all extents differ."""
W = {"w": (4, 3, 3, 2)}
OHWI = {"Conv": ["NHWC", "OHWI"]}


def graph(inputs: str, text: str, constants: Mapping[str, Any]) -> onnx.ModelProto:
    model = build(inputs, text, constants, functions=MINUS if "Minus" in text else "")
    foreign = [node.output[0] for node in model.graph.node if node.op_type == "SampleOp"]
    if foreign:  # ONNX infers nothing behind it: what it gives and what the graph gives are stated
        watched = onnx.ModelProto()
        watched.CopyFrom(model)
        watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in foreign)
        stated = [
            onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, array.shape)
            for value, array in zip(watched.graph.output, run(watched, feed_of(model)), strict=True)
        ]
        del model.graph.output[:]
        model.graph.output.extend(stated[: -len(foreign)])
        model.graph.value_info.extend(stated[-len(foreign) :])
    return model


def feed_of(model: onnx.ModelProto) -> dict[str, Array]:
    return small.feed_of(model, DIMS, FED)


def functions_of(model: onnx.ModelProto) -> dict[str, int]:
    return dict(
        Counter(
            f"{n.domain.removeprefix('relayout.')}:{n.op_type}" for n in model.graph.node if "relayout." in n.domain
        )
    )


def converted(source: onnx.ModelProto, **options: Any) -> tuple[relayout.Result, int]:
    """The result, valid, proved, equal in numbers, with the Transposes that it says; and the bytes moved."""
    before = source.SerializeToString()
    result = relayout.convert(source, **options)
    assert source.SerializeToString() == before, "the caller's model was changed"
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    feed = feed_of(source)
    for want, got in zip(run(source, feed), run(proto, feed), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert result.report.proved, result.report.verdict
    count, size = left(proto, feed)
    assert count == result.report.transposes
    values = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    if all(dim.HasField("dim_value") for value in values for dim in value.type.tensor_type.shape.dim):
        assert size == result.report.bytes
    return result, size


@dataclass(frozen=True)
class Case:
    """A graph and what its conversion must give.

    Args:
        text: the nodes.
        moved: the shapes of the values that are transposed at run time.
        functions: how many calls of which functions there are.
        asked: what is asked for.
        tvm: what TVM's own expectation transposes, where it is more.
        inputs: the graph's inputs.
        constants: its constants.
        sizes: bytes of an element of each moved value; 4 by default.
    """

    text: str
    moved: Sequence[Shape]
    functions: Mapping[str, int] = field(default_factory=lambda: {"nhwc.ohwi:Conv": 1})
    asked: Mapping[str, Any] = field(default_factory=lambda: {"desired_layouts": OHWI})
    tvm: Sequence[Shape] = ()
    inputs: str = "float[2,3,11,9] x"
    constants: Mapping[str, Any] = field(default_factory=dict)
    sizes: Sequence[int] = ()


def bytes_of(shapes: Sequence[Shape], sizes: Sequence[int] = ()) -> int:
    return sum(prod(shape) * size for shape, size in zip(shapes, sizes or [4] * len(shapes), strict=True))


TO_NHWC = {"to": "NHWC"}
NHWC = {"nhwc:Conv": 1}
TWO = {"nhwc.ohwi:Conv": 2}
A = "a = Conv(x, w)"
PLAIN = {
    # the document's example; its other direction is below
    "the document's two convolutions": Case(
        "a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv<pads=[1,1,1,1]>(b, u) y = Relu(c)",
        [(1, 7, 13, 12), (1, 4, 13, 12)],
        TWO,
        inputs="float[1,7,13,12] x",
        constants={"w": (5, 7, 3, 3), "u": (4, 5, 3, 3)},
    ),
    "conv2d": Case("y = Conv(x, w)", [X, Y]),
    "conv2d, NHWC images only": Case("y = Conv(x, w)", [X, Y], NHWC, TO_NHWC),
    "conv2d_onlydim": Case("y = Conv(x, w)", [X, Y], inputs="float[n,3,h,v] x"),
    "a kernel that is an input": Case(
        "y = Conv(x, w)", [X, (4, 3, 3, 2), Y], inputs="float[2,3,11,9] x, float[4,3,3,2] w"
    ),
    "a kernel that is an input keeps its order": Case(
        "y = Conv(x, w)", [X, Y], NHWC, TO_NHWC, inputs="float[2,3,11,9] x, float[4,3,3,2] w"
    ),
    "matchcast_bias": Case(f"{A} y = Add(a, z)", [X, Y], tvm=[X, Y, Y], inputs="float[n,3,h,v] x, float[n,4,9,8] z"),
    "relu": Case(f"{A} y = Relu(a)", [X, Y]),
    "relu_conv2d_relu": Case("r = Relu(x) a = Conv(r, w) y = Relu(a)", [X, Y]),
    "relu_tanh": Case(f"{A} b = Relu(a) y = Tanh(b)", [X, Y]),
    "add": Case(f"{A} y = Add(a, z)", [X, Y], tvm=[X, Y, Y], inputs="float[2,3,11,9] x, float[2,4,9,8] z"),
    "add_relu_conv2d": Case(
        f"{A} b = Add(a, z) c = Relu(b) y = Conv(c, u)",
        [X, Y, (2, 5, 7, 7)],
        TWO,
        inputs="float[2,3,11,9] x, float[2,4,9,8] z",
        constants={"u": (5, 4, 3, 2)},
    ),
    "fma_relu_conv2d": Case(
        f"{A} m = Mul(a, s) b = Add(m, z) c = Relu(b) y = Conv(c, u)",
        [X, Y, Y, (2, 5, 7, 7)],
        TWO,
        inputs="float[2,3,11,9] x, float[2,4,9,8] s, float[2,4,9,8] z",
        constants={"u": (5, 4, 3, 2)},
    ),
    "sum": Case(f"{A} y = ReduceSum<keepdims=0>(a, k)", [X], constants={"k": [2, 3]}),
    "sum_keepdim": Case(f"{A} y = ReduceSum(a, k)", [X], tvm=[X, (2, 4, 1, 1)], constants={"k": [2, 3]}),
    "sum_negative_dims": Case(f"{A} y = ReduceSum<keepdims=0>(a, k)", [X], constants={"k": [-2, -1]}),
    "argmax": Case(
        f"{A} b = ArgMax<axis=2, keepdims=0>(a) c = ReduceMax<keepdims=0>(a, k) d = ReduceMean<keepdims=0>(a, k)",
        [X, (2, 4, 8)],
        sizes=[4, 8],
        constants={"k": [2, 3]},
    ),
    "transpose": Case(f"{A} y = Transpose<perm=[3,2,1,0]>(a)", [X, Y]),
    "transpose back": Case(f"{A} y = Transpose<perm=[0,2,3,1]>(a)", [X]),
    "transpose without perm": Case(f"{A} b = Add(a, z) y = Transpose(b)", [X, Y], constants={"z": (4, 9, 8)}),
    "expand_dims": Case(f"{A} y = Unsqueeze(a, k)", [X, Y], constants={"k": [-3, 1]}),
    "expand_dims_squeeze": Case(
        f"{A} b = Unsqueeze(a, k) y = Squeeze(b, s)", [X, Y], constants={"k": [-3, 1], "s": [1, 3]}
    ),
    "squeeze of a negative axis": Case(
        "a = Conv(x, w) y = Squeeze(a, k)", [X], constants={"w": (1, 3, 3, 2), "k": [-3]}, tvm=[X, (2, 9, 8)]
    ),
    "strided_slice": Case(
        f"{A} y = Slice(a, s, e, k)", [X, (2, 3, 5, 7)], constants={"s": [0, 1, 1], "e": [3, 6, 8], "k": [1, 2, 3]}
    ),
    "strided_slice by channels": Case(
        f"{A} y = Slice(a, s, e, k)", [X, (1, 3, 9, 8)], constants={"s": [1, 1], "e": [2, 4], "k": [0, 1]}
    ),
    "strided_slice with steps": Case(
        f"{A} y = Slice(a, s, e, k, t)",
        [X, (2, 4, 5, 2)],
        constants={"s": [0, 0], "e": [9, 8], "k": [2, 3], "t": [2, 5]},
    ),
    "dynamic_strided_slice": Case(
        f"{A} y = Slice(a, start, end)",
        [X, (1, 3, 7, 7)],
        tvm=[X, Y],
        inputs="float[2,3,11,9] x, int64[4] start, int64[4] end",
    ),
    "flip": Case(f"{A} y = Slice(a, s, e, k, t)", [X, Y], constants={"s": [-1], "e": [-9], "k": [1], "t": [-1]}),
    "concat": Case(f"{A} b = Relu(a) y = Concat<axis=1>(b, a)", [X, Y], tvm=[X, (2, 8, 9, 8)]),
    "concat of two convolutions": Case(
        "a = Conv(x, w) b = Conv(x, u) y = Concat<axis=1>(a, b)", [X, (2, 9, 9, 8)], TWO, constants={"u": (5, 3, 3, 2)}
    ),
    "concat_split": Case(
        f"{A} b = Relu(a) c = Concat<axis=1>(b, a) y, z = Split<axis=1, num_outputs=2>(c)", [X, Y], tvm=[X, Y, Y]
    ),
    "split by channels": Case(
        f"{A} p, q = Split<axis=-3>(a, k) y = Relu(p) z = Tanh(q)",
        [X, (2, 3, 9, 8)],
        tvm=[X, (2, 1, 9, 8), (2, 3, 9, 8)],
        constants={"k": [1, 3]},
    ),
    "maxpool2d": Case(
        f"{A} y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)",
        [X, (2, 4, 4, 4)],
        {"nhwc.ohwi:Conv": 1, "nhwc:MaxPool": 1},
        {"desired_layouts": {**OHWI, "MaxPool": ["NHWC"]}},
    ),
    "avgpool2d": Case(
        f"{A} y = GlobalAveragePool(a)",
        [X],
        {"nhwc:Conv": 1, "nhwc:GlobalAveragePool": 1},
        TO_NHWC,
        tvm=[X, (2, 4, 1, 1)],
    ),
    "softmax": Case(f"{A} y = Softmax<axis=1>(a)", [X, Y]),
    "softmax between convolutions": Case(
        f"{A} s = Softmax<axis=-3>(a) y = Conv(s, u)", [X, (2, 5, 7, 7)], TWO, constants={"u": (5, 4, 3, 2)}
    ),
    "batchnorm": Case(
        f"{A} y = BatchNormalization(a, g, b, m, v)",
        [X, Y],
        {"nhwc:Conv": 1, "nhwc:BatchNormalization": 1},
        TO_NHWC,
        constants={"g": (4,), "b": (4,), "m": (4,), "v": np.array([1, 2, 3, 4], np.float32)},
    ),
    "instance_norm": Case(
        f"{A} y = InstanceNormalization(a, g, b)",
        [X, Y],
        {"nhwc:Conv": 1, "nhwc:InstanceNormalization": 1},
        TO_NHWC,
        constants={"g": (4,), "b": (4,)},
    ),
    "lrn": Case(f"{A} y = LRN<size=3>(a)", [X, Y], {"nhwc:Conv": 1, "nhwc:LRN": 1}, TO_NHWC),
    "l2_normalize": Case(f"{A} y = LpNormalization<axis=1>(a)", [X, Y]),
    "layernorm over rows and columns": Case(
        f"{A} y = LayerNormalization<axis=2>(a, g, b)", [X, Y], constants={"g": (9, 8), "b": (9, 8)}
    ),
    "layernorm over all but the batch": Case(
        f"{A} y = LayerNormalization<axis=1>(a, g, b)", [X, Y], constants={"g": (4, 9, 8), "b": (4, 9, 8)}
    ),
    "layernorm over channels": Case(
        f"{A} t = Transpose<perm=[0,2,3,1]>(a) n = LayerNormalization(t, g, b)"
        f" u = Transpose<perm=[0,3,1,2]>(n) y = Conv(u, z)",
        [X, (2, 5, 7, 7)],
        TWO,
        constants={"g": (4,), "b": (4,), "z": (5, 4, 3, 2)},
    ),
    "resize2d": Case(
        f"{A} y = Resize(a, , s)",
        [X, (2, 4, 18, 24)],
        {"nhwc:Conv": 1, "nhwc:Resize": 1},
        TO_NHWC,
        constants={"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "resize2d first": Case(
        "r = Resize(x, , s) y = Conv(r, w)",
        [X, (2, 4, 20, 26)],
        {"nhwc:Conv": 1, "nhwc:Resize": 1},
        TO_NHWC,
        constants={"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "unknown_bias_dim": Case(
        f"{A} z = Reshape(q, shape) b = Add(a, z) y = Reshape(b, l)",
        [X, Y],
        inputs="float[2,3,11,9] x, float[1] q, int64[k] shape",
        constants={"l": [2, 4, 72]},
    ),
    "binary_broadcast of rank 2": Case(
        f"{A} b = Add(a, z) y = Conv(b, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        tvm=[X, Y, Y, (2, 5, 7, 7)],
        inputs="float[2,3,11,9] x, float[9,8] z",
        constants={"u": (5, 4, 3, 2)},
    ),
    "binary_broadcast of rank 1": Case(
        f"{A} b = Mul(z, a) y = Conv(b, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        tvm=[X, Y, Y, (2, 5, 7, 7)],
        inputs="float[2,3,11,9] x, float[8] z",
        constants={"u": (5, 4, 3, 2)},
    ),
    "binary_broadcast of a bias": Case(
        f"{A} b = Add(a, z) c = Sub(q, b) y = Conv(c, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        tvm=[X, Y, Y, (2, 5, 7, 7)],
        constants={"u": (5, 4, 3, 2), "z": (4, 1, 1), "q": (1, 4, 1, 1)},
    ),
    "binary_broadcast of a matrix of channels and rows": Case(
        f"{A} b = Add(a, z) y = Conv(b, u)",
        [X, (4, 9), (2, 5, 7, 7)],
        TWO,
        tvm=[X, Y, Y, (2, 5, 7, 7)],
        inputs="float[2,3,11,9] x, float[4,9,1] z",
        constants={"u": (5, 4, 3, 2)},
    ),
    "scalar": Case(f"{A} y = Add(a, z)", [X, Y], constants={"z": ()}),
    "clip, leaky relu, gelu, pad and where between convolutions": Case(
        f"{A} b = Clip(a, lo, hi) c = LeakyRelu(b) d = Gelu(c) e = Pad(d, p) f = Greater(e, lo)"
        f" g = Where(f, e, lo) y = Conv(g, u)",
        [X, (2, 5, 10, 8)],
        TWO,
        tvm=[X, Y, Y, (2, 5, 10, 8)],
        constants={"u": (5, 4, 3, 2), "lo": np.float32(-0.5), "hi": np.float32(0.5), "p": [0, 0, 1, 0, 0, 0, 2, 1]},
    ),
    "prelu": Case(
        f"{A} b = PRelu(a, s) y = Conv(b, u)", [X, (2, 5, 7, 7)], TWO, constants={"u": (5, 4, 3, 2), "s": (4, 1, 1)}
    ),
    "pad of channels": Case(
        f"{A} b = Pad(a, p) y = Conv(b, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        constants={"u": (5, 7, 3, 2), "p": [0, 1, 0, 0, 0, 2, 0, 0]},
    ),
    "dropout and identity": Case(
        f"{A} b = Dropout(a) c = Identity(b) y = Conv(c, u)", [X, (2, 5, 7, 7)], TWO, constants={"u": (5, 4, 3, 2)}
    ),
    "stack": Case(
        f"{A} b = Relu(a) c = Unsqueeze(a, k) d = Unsqueeze(b, k) e = Concat<axis=1>(c, d)"
        f" y = ReduceMax<keepdims=0>(e, k)",
        [X, Y],
        constants={"k": [1]},
    ),
    "repeat": Case(
        f"{A} b = Unsqueeze(a, k) c = Tile(b, r) y = Reshape(c, s)",
        [X, Y],
        tvm=[X, (2, 8, 9, 8)],
        constants={"k": [2], "r": [1, 1, 2, 1, 1], "s": [2, 8, 9, 8]},
    ),
    "repeat, flattened": Case(
        f"{A} f = Reshape(a, m) b = Unsqueeze(f, k) c = Tile(b, r) y = Reshape(c, m)",
        [X, Y],
        constants={"m": [-1], "k": [1], "r": [1, 2]},
    ),
    "tile": Case(f"{A} y = Tile(a, r)", [X, Y], tvm=[X, (2, 8, 9, 8)], constants={"r": [1, 2, 1, 1]}),
    "tile_large_value": Case(f"{A} y = Tile(a, r)", [X, Y], tvm=[X, (2, 40, 9, 8)], constants={"r": [1, 10, 1, 1]}),
    "expand": Case(
        f"{A} m = ReduceMean(a, k) e = Expand(m, s) y = Conv(e, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        constants={"k": [2, 3], "s": [1, 1, 9, 8], "u": (5, 4, 3, 2)},
    ),
    "scatter_elements": Case(
        f"{A} b = Relu(a) y = ScatterElements<axis=1>(b, i, z)",
        [X, Y],
        tvm=[X, Y, Y, Y],
        inputs="float[2,3,11,9] x, int64[2,4,9,8] i, float[2,4,9,8] z",
    ),
    "gather_elements": Case(
        f"{A} y = GatherElements<axis=1>(a, i)", [X, Y], tvm=[X, Y, Y], inputs="float[2,3,11,9] x, int64[2,4,9,8] i"
    ),
    "gather of channels": Case(
        f"{A} b = Gather<axis=1>(a, i) y = Conv(b, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        constants={"i": [3, 0], "u": (5, 2, 3, 2)},
    ),
    "scatter_nd": Case(
        f"{A} b = Relu(a) y = ScatterND(b, i, z)",
        [X, Y],
        tvm=[X, Y, Y],
        inputs="float[2,3,11,9] x, float[1,4,9,8] z",
        constants={"i": [[1]]},
    ),
    "topk": Case(
        f"{A} k, i = TopK<axis=2>(a, c) y = Conv(k, u)",
        [X, (2, 4, 2, 8), (2, 5, 2, 7)],
        TWO,
        sizes=[4, 8, 4],
        constants={"c": [2], "u": (5, 4, 1, 2)},
    ),
    "one relu read by two convolutions": Case(
        "r = Relu(x) a = Conv(r, w) b = Conv(r, u) y = Sub(a, b)",
        [X, Y],
        TWO,
        tvm=[X, X, Y],
        constants={"u": (4, 3, 3, 2)},
    ),
    "dual_path": Case(
        f"{A} r = Relu(a) b = Conv(r, u) s = Relu(b) y = Flatten(s) z = Flatten(r)",
        [X, (2, 5, 7, 7), Y],
        TWO,
        constants={"u": (5, 4, 3, 2)},
    ),
    "a flattened image into a product": Case(
        f"{A} f = Flatten(a) y = Gemm(f, m)", [X], constants={"m": (288, 5)}, tvm=[X, Y]
    ),
    "a reshape that splits the channels": Case(
        f"{A} r = Reshape(a, s) t = Transpose<perm=[0,2,1,3,4]>(r) q = Reshape(t, j) y = Conv(q, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        tvm=[X, Y, Y, (2, 5, 7, 7)],
        constants={"s": [2, 2, 2, 9, 8], "j": [2, 4, 9, 8], "u": (5, 4, 3, 2)},
    ),
    "depth to space": Case(
        f"{A} b = DepthToSpace<blocksize=2>(a) y = Relu(b)",
        [X, (2, 1, 18, 16)][:1],
        {"nhwc:Conv": 1, "nhwc:DepthToSpace": 1},
        TO_NHWC,
    ),
    "a convolution in one dimension": Case(
        "y = Conv(x, w)",
        [(2, 3, 11), (2, 4, 9)],
        {"nwc.owi:Conv": 1},
        inputs="float[2,3,11] x",
        constants={"w": (4, 3, 3)},
    ),
    "a convolution in three dimensions": Case(
        "y = Conv(x, w)",
        [(2, 3, 11, 9, 7), (2, 4, 9, 8, 6)],
        {"ndhwc.odhwi:Conv": 1},
        inputs="float[2,3,11,9,7] x",
        constants={"w": (4, 3, 3, 2, 2)},
    ),
    "grouped": Case(
        "y = Conv<group=3>(x, w)",
        [(2, 6, 11, 9), (2, 9, 9, 8)],
        inputs="float[2,6,11,9] x",
        constants={"w": (9, 2, 3, 2)},
    ),
    "depthwise": Case(
        "y = Conv<group=6>(x, w)",
        [(2, 6, 11, 9), (2, 6, 9, 8)],
        inputs="float[2,6,11,9] x",
        constants={"w": (6, 1, 3, 2)},
    ),
    "depthwise, HWOI": Case(
        "y = Conv<group=6>(x, w)",
        [(2, 6, 11, 9), (2, 6, 9, 8)],
        {"nhwc.hwoi:Conv": 1},
        {"desired_layouts": {"Conv": ["NHWC", "HWOI"]}},
        inputs="float[2,6,11,9] x",
        constants={"w": (6, 1, 3, 2)},
    ),
    "HWIO": Case(
        "y = Conv(x, w, b)",
        [X, Y],
        {"nhwc.hwio:Conv": 1},
        {"desired_layouts": {"Conv": ["NHWC", "HWIO"]}},
        constants={"b": (4,)},
    ),
    "another kernel and the same images": Case(
        "y = Conv(x, w)", [], {"nchw.ohwi:Conv": 1}, {"desired_layouts": {"Conv": ["NCHW", "OHWI"]}}
    ),
    "HWNC": Case("y = Conv(x, w)", [X, Y], {"hwnc.hwoi:Conv": 1}, {"desired_layouts": {"Conv": ["HWNC", "HWOI"]}}),
    "CHWN": Case(f"{A} y = Relu(a)", [X, Y], {"chwn:Conv": 1}, {"to": "CHWN"}),
    "conv_transpose": Case(
        "y = ConvTranspose<strides=[2,1]>(x, w)",
        [X, (2, 4, 23, 10)],
        {"nhwc.ohwi:ConvTranspose": 1},
        {"desired_layouts": {"ConvTranspose": ["NHWC", "OHWI"]}},
        constants={"w": (3, 4, 3, 2)},
    ),
    "conv_transpose, IHWO, grouped": Case(
        "y = ConvTranspose<group=2>(x, w)",
        [(2, 6, 11, 9), (2, 8, 13, 10)],
        {"nhwc.ihwo:ConvTranspose": 1},
        {"desired_layouts": {"ConvTranspose": ["NHWC", "IHWO"]}},
        inputs="float[2,6,11,9] x",
        constants={"w": (6, 4, 3, 2)},
    ),
    "deformable_conv": Case(
        f"{A} y = DeformConv(a, u, q)",
        [X, (2, 12, 7, 7), (2, 5, 7, 7)],
        {"nhwc:Conv": 1, "nhwc:DeformConv": 1},
        TO_NHWC,
        inputs="float[2,3,11,9] x, float[2,12,7,7] q",
        constants={"u": (5, 4, 3, 2)},
    ),
    "roi_align": Case(
        f"{A} y = RoiAlign<output_height=3, output_width=5>(a, r, i)",
        [X, (6, 4, 3, 5)],
        {"nhwc:Conv": 1, "nhwc:RoiAlign": 1},
        TO_NHWC,
        constants={
            "r": np.array(
                [[1, 1, 5, 6], [0, 0, 7, 8], [2, 1, 7, 4], [0, 3, 6, 7], [1, 2, 4, 8], [0, 1, 3, 5]], np.float32
            ),
            "i": [0, 1, 1, 0, 0, 1],
        },
    ),
    "no_desired_layout": Case(
        f"{A} y = MaxPool<kernel_shape=[2,2]>(a)",
        [X, Y],
        {"nhwc.hwio:Conv": 1},
        {"desired_layouts": {"Conv": ["NHWC", "HWIO"]}},
    ),
    "no_convert_layout": Case(f"{A} y = Relu(a)", [], {}, {"desired_layouts": {"Conv": ["NCHW", "default"]}}),
    "pool in its own layout": Case(
        "a = MaxPool<kernel_shape=[2,2]>(x) b = Relu(a) y = Conv(b, w)",
        [X, (2, 3, 10, 8)],
        {"nhwc:MaxPool": 1},
        {"desired_layouts": {"Conv": ["NCHW"], "MaxPool": ["NHWC"]}},
    ),
    "different_ops": Case(
        "a = Conv(x, w) b = ConvTranspose(a, u) y = Conv(b, z)",
        [X, Y, (2, 3, 11, 9), (2, 7, 9, 8)],
        {"nhwc.hwio:Conv": 2},
        {"desired_layouts": {"Conv": ["NHWC", "HWIO"], "ConvTranspose": ["NCHW"]}},
        constants={"u": (4, 3, 3, 2), "z": (7, 3, 3, 2)},
    ),
    "skip_layers": Case(
        "a = Conv(x, w) b = Relu(a) y = Conv(b, u)",
        [Y, (2, 5, 7, 7)],
        {"hwnc.hwoi:Conv": 1},
        {"desired_layouts": {"Conv": ["HWNC", "HWOI"]}, "node_layouts": {"a": "NCHW"}},
        constants={"u": (5, 4, 3, 2)},
    ),
    "a function": Case(
        f"{A} b = Relu(a) c = some.where.Minus(b) d = Relu(c) y = Conv(d, u)",
        [X, (2, 5, 7, 7)],
        TWO,
        constants={"u": (5, 4, 3, 2)},
    ),
    "an operator that is not known": Case(
        f"{A} b = Relu(a) c = com.microsoft.SampleOp(b) d = Relu(c) y = Conv(d, u)",
        [X, Y, Y, (2, 5, 7, 7)],
        TWO,
        constants={"u": (5, 4, 3, 2)},
    ),
    "the last convolution gives a vector": Case(
        "a = Conv(x, w) r = Relu(a) y = Squeeze(r, k)", [X], constants={"w": (4, 3, 11, 9), "k": [-2, 3]}
    ),
    "slice_like": Case(
        f"{A} s = Shape<start=2>(z) o = Slice(a, p, s, q)",
        [X, (2, 4, 5, 7)],
        tvm=[X, Y],
        inputs="float[2,3,11,9] x, float[2,1,5,7] z",
        constants={"p": [0, 0], "q": [2, 3]},
    ),
}

X4, Y4 = (2, 8, 11, 9), (2, 12, 9, 7)
W4 = {"w": (12, 8, 3, 3)}
BLOCKED = {"Conv": ["NCHW4c", "OIHW4o"]}
B = {"nchw4c.oihw4o:Conv": 1}


def blocked(
    text: str, moved: Sequence[Shape], functions: Mapping[str, int] = B, also: Sequence[str] = (), **given: Any
) -> Case:
    """A case in tiles of four channels; `also`: other operators that shall run so."""
    asked = {"desired_layouts": {**BLOCKED, **{name: ["NCHW4c"] for name in also}}}
    constants = {**W4, **given.pop("constants", {})}
    inputs = given.pop("inputs", "float[2,8,11,9] x")
    return Case(text, moved, functions, given.pop("asked", asked), inputs=inputs, constants=constants, **given)


TILED = {
    "conv2d": blocked("y = Conv(x, w)", [X4, Y4]),
    "conv2d, NHWC4c": blocked(
        "y = Conv(x, w)", [X4, Y4], {"nhwc4c.ohwi4o:Conv": 1}, asked={"desired_layouts": {"Conv": ["NHWC4c", "OHWI4o"]}}
    ),
    "conv2d, N4cHWC": blocked(
        "y = Conv(x, w)", [X4, Y4], {"n4chwc.o4ohwi:Conv": 1}, asked={"desired_layouts": {"Conv": ["N4cHWC", "O4oHWI"]}}
    ),
    "conv2d, NCHW2n4c": blocked(
        "y = Conv(x, w)",
        [X4, Y4],
        {"nchw2n4c.oihw2i4o:Conv": 1},
        asked={"desired_layouts": {"Conv": ["NCHW2n4c", "OIHW2i4o"]}},
    ),
    "relu, a bias and a scalar": blocked(
        "a = Conv(x, w, b) r = Relu(a) s = Add(r, z) y = Mul(s, q)",
        [X4, Y4],
        constants={"b": (12,), "z": (1, 12, 1, 1), "q": ()},
    ),
    "relu_tanh": blocked("r = Relu(x) a = Conv(r, w) s = Relu(a) y = Tanh(s)", [X4, Y4]),
    "a bias of channels alone": blocked("a = Conv(x, w) y = Add(a, z)", [X4, Y4], constants={"z": (12, 1, 1)}),
    "a bias of rows and columns": blocked(
        "a = Conv(x, w) b = Add(a, z) y = Conv(b, u)",
        [X4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 2},
        tvm=[X4, Y4, Y4, (2, 4, 8, 5)],
        inputs="float[2,8,11,9] x, float[9,7] z",
        constants={"u": (4, 12, 2, 3)},
    ),
    "add": blocked(
        "a = Conv(x, w) y = Add(a, z)", [X4, Y4], tvm=[X4, Y4, Y4], inputs="float[2,8,11,9] x, float[2,12,9,7] z"
    ),
    "add_relu_conv2d": blocked(
        "a = Conv(x, w) b = Add(a, z) c = Relu(b) y = Conv(c, u)",
        [X4, Y4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 2},
        inputs="float[2,8,11,9] x, float[2,12,9,7] z",
        constants={"u": (4, 12, 2, 3)},
    ),
    "sum": blocked("a = Conv(x, w) y = ReduceSum<keepdims=0>(a, k)", [X4], constants={"k": [2, 3]}),
    "sum_keepdims": blocked("a = Conv(x, w) y = ReduceSum(a, k)", [X4], constants={"k": [2, 3]}),
    "sum of channels": blocked("a = Conv(x, w) y = ReduceSum<keepdims=0>(a, k)", [X4], constants={"k": [1, 2]}),
    "sum of channels, keepdims": blocked("a = Conv(x, w) y = ReduceSum(a, k)", [X4], constants={"k": [1]}),
    "sum of channels, NHWC4c": blocked(
        "a = Conv(x, w) y = ReduceSum<keepdims=0>(a, k)",
        [X4],
        {"nhwc4c.ohwi4o:Conv": 1},
        constants={"k": [-3, 2]},
        asked={"desired_layouts": {"Conv": ["NHWC4c", "OHWI4o"]}},
    ),
    "sum of channels, NCHW2n4c": blocked(
        "a = Conv(x, w) y = ReduceSum<keepdims=0>(a, k)",
        [X4, (2, 7)],
        {"nchw2n4c.oihw2i4o:Conv": 1},
        constants={"k": [1, 2]},
        asked={"desired_layouts": {"Conv": ["NCHW2n4c", "OIHW2i4o"]}},
    ),
    "transpose": blocked("a = Conv(x, w) y = Transpose<perm=[3,2,1,0]>(a)", [X4, Y4], tvm=[X4, Y4, Y4]),
    "expand_dims": blocked("a = Conv(x, w) y = Unsqueeze(a, k)", [X4, Y4], constants={"k": [-3, 1]}),
    "squeeze": blocked(
        "a = Conv(x, w) y = Squeeze(a, k)",
        [(1, 8, 11, 9), (12, 9, 7)],
        inputs="float[1,8,11,9] x",
        constants={"k": [0]},
    ),
    "strided_slice": blocked(
        "a = Conv(x, w) y = Slice(a, s, e, k)",
        [X4, (2, 12, 5, 7)],
        constants={"s": [1], "e": [6], "k": [2]},
        tvm=[X4, Y4],
    ),
    "strided_slice of channels": blocked(
        "a = Conv(x, w) y = Slice(a, s, e, k)",
        [X4, (2, 8, 9, 7)],
        constants={"s": [4], "e": [12], "k": [1]},
        tvm=[X4, Y4],
    ),
    "strided_slice that cuts a tile": blocked(
        "a = Conv(x, w) y = Slice(a, s, e, k)", [X4, Y4], constants={"s": [3], "e": [12], "k": [1]}
    ),
    "concat": blocked("a = Conv(x, w) b = Relu(a) y = Concat<axis=1>(b, a)", [X4, Y4], tvm=[X4, (2, 24, 9, 7)]),
    "concat between convolutions": blocked(
        "a = Conv(x, w) b = Conv(x, v) c = Concat<axis=1>(a, b) y = Conv(c, u)",
        [X4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 3},
        constants={"v": (4, 8, 3, 3), "u": (4, 16, 2, 3)},
    ),
    "split between convolutions": blocked(
        "a = Conv(x, w) p, q = Split<axis=1>(a, k) c = Conv(p, v) d = Conv(q, u) y = Add(c, d)",
        [X4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 3},
        constants={"k": [4, 8], "v": (4, 4, 2, 3), "u": (4, 8, 2, 3)},
    ),
    "split that cuts a tile": blocked(
        "a = Conv(x, w) p, q = Split<axis=1>(a, k) y = Relu(p) z = Relu(q)", [X4, Y4], constants={"k": [5, 7]}
    ),
    "maxpool2d": blocked(
        "a = Conv(x, w) y = MaxPool<kernel_shape=[2,3]>(a)",
        [X4, (2, 12, 8, 5)],
        {**B, "nchw4c:MaxPool": 1},
        ["MaxPool"],
    ),
    "pool and convolution, NHWC4c": blocked(
        "p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) a = Conv(p, w) y = Relu(a)",
        [(2, 8, 11, 9), (2, 12, 3, 2)],
        {"nhwc4c:MaxPool": 1, "nhwc4c:Conv": 1},
        asked={"to": "NHWC4c"},
    ),
    "avgpool2d": blocked(
        "a = Conv(x, w) p = GlobalAveragePool(a) y = Conv(p, u)",
        [X4],
        {"nchw4c.oihw4o:Conv": 2, "nchw4c:GlobalAveragePool": 1},
        ["GlobalAveragePool"],
        constants={"u": (4, 12, 1, 1)},
        tvm=[X4, (2, 4, 1, 1)],
    ),
    "softmax": blocked("a = Conv(x, w) y = Softmax<axis=1>(a)", [X4, Y4]),
    "softmax of columns": blocked(
        "a = Conv(x, w) s = Softmax<axis=3>(a) y = Conv(s, u)",
        [X4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 2},
        tvm=[X4, Y4, Y4, (2, 4, 8, 5)],
        constants={"u": (4, 12, 2, 3)},
    ),
    "batchnorm": blocked(
        "a = Conv(x, w) b = BatchNormalization(a, g, h, m, v) y = Conv(b, u)",
        [X4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 2, "nchw4c:BatchNormalization": 1},
        ["BatchNormalization"],
        tvm=[X4, Y4, Y4, (2, 4, 8, 5)],
        constants={"g": (12,), "h": (12,), "m": (12,), "v": np.arange(1, 13, dtype=np.float32), "u": (4, 12, 2, 3)},
    ),
    "layernorm over rows and columns": blocked(
        "a = Conv(x, w) y = LayerNormalization<axis=2>(a, g, b)", [X4, Y4], constants={"g": (9, 7), "b": (9, 7)}
    ),
    "prelu": blocked(
        "a = Conv(x, w) p = PRelu(a, s) y = Conv(p, u)",
        [X4, (2, 4, 8, 5)],
        {"nchw4c.oihw4o:Conv": 2},
        tvm=[X4, Y4, Y4, (2, 4, 8, 5)],
        constants={"s": (12, 1, 1), "u": (4, 12, 2, 3)},
    ),
    "pad of rows": blocked(
        "a = Conv(x, w) p = Pad(a, k) y = Conv(p, u)",
        [X4, (2, 4, 10, 8)],
        {"nchw4c.oihw4o:Conv": 2},
        constants={"k": [0, 0, 1, 2, 0, 0, 1, 1], "u": (4, 12, 2, 3)},
    ),
    "resize2d": blocked(
        "a = Conv(x, w) y = Resize(a, , s)",
        [X4, (2, 12, 18, 21)],
        {"nchw4c:Conv": 1, "nchw4c:Resize": 1},
        asked={"to": "NCHW4c"},
        constants={"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "three convolutions and a concatenation": blocked(
        "a = Conv(x, w) b = Add(a, p) c = Relu(b) d = Conv(c, u) e = Add(d, q) f = Relu(e) g = Conv(f, v)"
        " y = Concat<axis=1>(g, g)",
        [X4, (2, 4, 6, 2)],
        {"nchw4c.oihw4o:Conv": 3},
        constants={"p": (1, 12, 1, 1), "q": (1, 8, 1, 1), "u": (8, 12, 2, 3), "v": (4, 8, 3, 4)},
        tvm=[X4, (2, 8, 6, 2)],
    ),
    "one convolution by itself": blocked(
        "a = Conv(x, w) b = Relu(a) y = Conv(b, u)",
        [X4, Y4],
        {"nchw4c.oihw4o:Conv": 1},
        constants={"u": (5, 12, 2, 3)},
        asked={"desired_layouts": BLOCKED, "node_layouts": {"y": ["NCHW", "OIHW"]}},
    ),
    "channels that do not fall into tiles": blocked(
        "a = Conv(x, w) b = Relu(a) y = Conv(b, u)",
        [(2, 12, 9, 7)][:0],
        {"nchw_nchw4c:Conv": 1, "nchw4c_nchw:Conv": 1},
        asked={"to": "NCHW4c"},
        inputs="float[2,3,11,9] x",
        constants={"w": (12, 3, 3, 3), "u": (5, 12, 2, 3)},
    ),
    "resnet, NCHW8c": blocked(
        "a = Conv<strides=[2,2]>(x, w) r = Relu(a) p = MaxPool<kernel_shape=[3,3], strides=[2,2]>(r)"
        " b = Conv<pads=[1,1,1,1]>(p, u) c = Relu(b)"
        " d = Conv(p, v) e = Relu(d) f = Add(c, e) y = GlobalMaxPool(f)",
        [],
        {"nchw_nchw8c:Conv": 1, "nchw8c:Conv": 2, "nchw8c:MaxPool": 1, "nchw8c:GlobalMaxPool": 1},
        asked={"to": "NCHW8c"},
        inputs="float[2,3,25,21] x",
        constants={"w": (16, 3, 5, 4), "u": (24, 16, 3, 3), "v": (24, 16, 1, 1)},
        tvm=[(2, 24, 1, 1)],
    ),
    "depthwise": blocked(
        "a = Conv(x, w) y = Conv<group=12>(a, u)",
        [X4, (2, 12, 7, 6)],
        {"nchw4c.oihw4o:Conv": 2},
        constants={"u": (12, 1, 3, 2)},
    ),
    "depthwise, OIHW1i4o": blocked(
        "y = Conv<group=8>(x, w)",
        [X4, (2, 8, 9, 7)],
        B,
        constants={"w": (8, 1, 3, 3)},
        asked={"desired_layouts": {"Conv": ["NCHW4c", "OIHW1i4o"]}},
    ),
    "grouped": blocked("y = Conv<group=2>(x, w)", [X4, (2, 12, 9, 7)], constants={"w": (12, 4, 3, 3)}),
    "upsampling and a pool": blocked(
        "a = Conv(x, w) b = Resize(a, , s) y = AveragePool<kernel_shape=[2,2], strides=[2,2]>(b)",
        [X4, (2, 12, 9, 10)],
        {"nchw4c:Conv": 1, "nchw4c:Resize": 1, "nchw4c:AveragePool": 1},
        asked={"to": "NCHW4c"},
        constants={"s": np.array([1, 1, 2, 3], np.float32)},
    ),
    "axes that change their meaning": blocked(
        "a = Conv(x, w) t = Transpose<perm=[0,1,3,2]>(a) y = Conv(t, u)",
        [X4, Y4, (2, 4, 6, 7)],
        {"nchw4c.oihw4o:Conv": 2},
        constants={"u": (4, 12, 2, 3)},
    ),
    "two reductions that are added": blocked(
        "a = Conv(x, w) b = ReduceMin(a, h) c = ReduceMin(a, v) y = Add(b, c)",
        [X4, (2, 12, 1, 7), (2, 12, 9, 1)],
        constants={"h": [2], "v": [3]},
    ),
}


def proved_least(case: Case) -> None:
    kernel = W if ", w" in case.text and " w" not in case.inputs else {}
    result, size = converted(graph(case.inputs, case.text, {**kernel, **case.constants}), **case.asked)
    assert functions_of(result.proto) == dict(case.functions)
    assert size == bytes_of(case.moved, case.sizes), [(left.shape, left.reason) for left in result.report.remaining]
    assert result.report.transposes == len(case.moved)
    assert not case.tvm or size < bytes_of(case.tvm)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_layouts(name: str) -> None:
    proved_least(PLAIN[name])


@pytest.mark.parametrize("name", TILED)
def test_blocked_layouts(name: str) -> None:
    proved_least(TILED[name])


P, Q = "perm=[0,3,1,2]", "perm=[0,2,3,1]"


def attributes(model: onnx.ModelProto, op_type: str) -> list[dict[str, Any]]:
    nodes = [node for node in model.graph.node if node.op_type == op_type]
    return [{a.name: helper.get_attribute_value(a) for a in node.attribute} for node in nodes]


def array(model: onnx.ModelProto, name: str) -> Array:
    return next(numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == name)


def shapes(values: Sequence[onnx.ValueInfoProto]) -> list[list[int]]:
    return [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values]


def nhwc(output: str, text: str) -> str:
    """A node of the standard on images, `Conv(x, w)`, where the graph's own order is NHWC."""
    head, _, rest = text.partition("(")
    image = rest.split(",")[0].rstrip(")")
    inner = f"{head}({rest.replace(image, f'{output}_in', 1)}"
    return f"{output}_in = Transpose<{P}>({image}) {output}_out = {inner} {output} = Transpose<{Q}>({output}_out)"


WIDE = "float[2,11,9,3] x"


def test_the_documents_example_from_nhwc_to_nchw() -> None:
    """Two transforms of data, at the ends; none of weights, whose OHWI order is folded."""
    text = f"k = Transpose<{P}>(w) {nhwc('a', 'Conv(x, k)')} b = Relu(a) {nhwc('c', 'Conv(b, u)')} y = Relu(c)"
    source = build(WIDE, text, {"w": (4, 3, 2, 3), "u": (5, 4, 3, 2)})
    result, size = converted(source, to="NCHW")
    assert result.report.operators == {"Transpose": 2, "Conv": 2, "Relu": 2}
    assert size == bytes_of([X, (2, 5, 7, 7)])


def test_sum_over_axis_3_becomes_sum_over_axis_1() -> None:
    """The forum's example. The sums keep one channel: only the input is transposed."""
    text = f"{nhwc('a', 'Conv(x, w)')} b = ReduceSum(a, k) {nhwc('c', 'Conv(b, u)')} y = ReduceSum(c, k)"
    source = build(WIDE, text, {"w": (4, 3, 3, 2), "u": (5, 1, 3, 2), "k": [3]})
    result, size = converted(source, to="NCHW")
    assert size == bytes_of([X])
    sums = [node for node in result.proto.graph.node if node.op_type == "ReduceSum"]
    assert [array(result.proto, node.input[1]).tolist() for node in sums] == [[1], [1]]


AXES = {
    "Softmax": ("s = Softmax<axis=3>(a)", "axis", 1),
    "Concat": ("s = Concat<axis=-1>(a, a)", "axis", 1),
    "ArgMax": ("s = ArgMax<axis=2>(a)", "axis", 3),
    "LpNormalization": ("s = LpNormalization<axis=1>(a)", "axis", 2),
    "Hardmax": ("s = Hardmax(a)", "axis", 1),
    "GatherElements": ("s = GatherElements<axis=-2>(a, i)", "axis", 3),
    "DequantizeLinear": ("q = QuantizeLinear<axis=3>(a, z) s = DequantizeLinear<axis=3>(q, z)", "axis", 1),
}


@pytest.mark.parametrize("op_type", AXES)
def test_axes_are_renumbered(op_type: str) -> None:
    """An operator of an NHWC graph between convolutions counts NCHW's axes afterwards."""
    text, name, axis = AXES[op_type]
    indices = np.random.default_rng(0).integers(0, 8, (2, 9, 8, 4))
    constants = {"w": (4, 3, 3, 2), "i": indices, "z": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}
    known = build(WIDE, f"{nhwc('a', 'Conv(x, w)')} {text}", constants)
    channels = shapes(known.graph.output)[0][3]
    cast = "t = Cast<to=1>(s)"
    source = build(
        WIDE,
        f"{nhwc('a', 'Conv(x, w)')} {text} {cast} {nhwc('y', 'Conv(t, u)')}",
        {**constants, "u": (5, channels, 3, 1)},
    )
    result, _ = converted(source, to="NCHW")
    assert [given[name] for given in attributes(result.proto, op_type)] == [axis]
    assert result.report.transposes == 2


MEANS_NHWC = {
    "reshape of rows and columns": (
        "r = Reshape(a, s) y = MatMul(r, m)",
        {"s": [2, 72, 4], "m": (4, 5)},
        [X, (2, 4, 72)],
    ),
    "flatten into a product": ("r = Flatten(a) y = MatMul(r, m)", {"m": (288, 5)}, [X]),
    "reshape into a product": ("r = Reshape(a, s) y = Gemm(r, m)", {"s": [2, -1], "m": (288, 5)}, [X]),
    "squeeze of rows": ("p = Slice(a, b, e, k) y = Squeeze(p, k)", {"b": [2], "e": [3], "k": [1]}, [X, (2, 4, 8)]),
    "squeeze of a pooled image": ("p = ReduceMean(a, k) y = Squeeze(p, k)", {"k": [1, 2]}, [X]),
    "squeeze without axes": ("p = ReduceMax(a, k) q = Squeeze(p) y = MatMul(q, m)", {"k": [1, 2], "m": (4, 5)}, [X]),
    "pad, slice and tile": (
        "p = Pad(a, d) q = Slice(p, b, e) y = Tile(q, r)",
        {"d": [0, 1, 0, 0, 0, 0, 2, 1], "b": [0, 1, 2, 0], "e": [1, 10, 9, 3], "r": [1, 1, 2, 1]},
        [X, (1, 3, 9, 7)],
    ),
    "a bias of channels and one of columns and channels": (
        f"p = Add(a, c) q = Mul(p, v) {nhwc('y', 'Conv(q, u)')}",
        {"c": (4,), "v": (8, 4), "u": (5, 4, 3, 2)},
        [X, (2, 5, 7, 7)],
    ),
}


@pytest.mark.parametrize("name", MEANS_NHWC)
def test_what_means_nhwc_keeps_its_meaning(name: str) -> None:
    text, constants, moved = MEANS_NHWC[name]
    source = build(WIDE, f"{nhwc('a', 'Conv(x, w)')} {text}", {**W, **constants})
    result, size = converted(source, to="NCHW")
    assert size == bytes_of(moved)
    assert not functions_of(result.proto)


def test_the_kernel_of_a_tflite_file_is_stored_as_it_was() -> None:
    """OHWI -> OIHW in the graph, OHWI asked for: one way, and no bytes are moved when the model runs."""
    source = build("float[2,3,11,9] x", f"k = Transpose<{P}>(w) a = Conv(x, k) y = Relu(a)", {"w": (4, 3, 2, 3)})
    result, size = converted(source, desired_layouts={"Conv": ["NHWC", "OHWI"]})
    assert size == bytes_of([X, Y])
    (stored,) = (tensor for tensor in result.proto.graph.initializer if tensor.dims == [4, 3, 2, 3])
    np.testing.assert_array_equal(numpy_helper.to_array(stored), array(source, "w"))
    assert len(result.proto.graph.initializer) == 1


KERNELS = {"HWIO": (2, 3, 1, 0), "OHWI": (0, 2, 3, 1), "HWOI": (2, 3, 0, 1), "IHWO": (1, 2, 3, 0)}


@pytest.mark.parametrize("layout", KERNELS)
@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
def test_kernels_in_every_order(layout: str, op_type: str) -> None:
    """The stored kernel is the one transposed; a transposed convolution's first axis is I."""
    source = build(
        "float[2,3,11,9] x", f"y = {op_type}(x, w)", {"w": (4, 3, 3, 2) if op_type == "Conv" else (3, 4, 3, 2)}
    )
    result, _ = converted(source, desired_layouts={op_type: ["NHWC", layout]})
    perm = KERNELS[layout] if op_type == "Conv" else tuple({0: 1, 1: 0}.get(axis, axis) for axis in KERNELS[layout])
    (stored,) = result.proto.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(stored), array(source, "w").transpose(perm))
    assert functions_of(result.proto) == {f"nhwc.{layout.lower()}:{op_type}": 1}


NETWORK = (
    "a = Conv(x, w) b = Relu(a) p = MaxPool<kernel_shape=[2,2]>(b) c = Conv<group=4>(p, u) d = Concat<axis=1>(p, p)"
    " e = Slice(d, s, t, k) f = Add(c, e) h = GlobalAveragePool(f) g = Mul(f, h) y = Softmax<axis=1>(g)"
)
PARTS: dict[str, Any] = {"w": (4, 3, 3, 2), "u": (4, 1, 1, 1), "s": [2], "t": [6], "k": [1]}


@pytest.mark.parametrize("layout", ["NHWC", "CHWN", "NCHW2c", "NHWC4c"])
def test_there_and_back(layout: str) -> None:
    """A model that was converted and converted back has the source's operators and kernels, and no Transpose."""
    source = build("float[2,3,11,9] x", NETWORK, PARTS)
    there, _ = converted(source, to=layout)
    assert sum(functions_of(there.proto).values()) == 4
    again = onnx.load_from_string(there.proto.SerializeToString())
    back, size = converted(again, to="NCHW")
    assert (size, functions_of(back.proto), len(back.proto.functions)) == (0, {}, 0)
    count = Counter(node.op_type for node in source.graph.node)
    assert {name: number for name, number in back.report.operators.items() if name != "Reshape"} == dict(count)
    feed = feed_of(source)
    for want, got in zip(run(source, feed), run(back.proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_another_kernel_and_another_tile_for_what_is_converted_already() -> None:
    source = build(
        "float[2,8,11,9] x", "a = Conv(x, w) b = Relu(a) y = Conv(b, u)", {"w": (12, 8, 3, 3), "u": (4, 12, 2, 3)}
    )
    first, size = converted(source, desired_layouts={"Conv": ["NHWC", "HWIO"]})
    second, again = converted(first.proto, desired_layouts={"Conv": ["NHWC", "OHWI"]})
    assert (again, functions_of(second.proto)) == (size, {"nhwc.ohwi:Conv": 2})
    four, size = converted(source, to="NCHW4c")
    two, again = converted(four.proto, to="NCHW2c")
    assert (again, functions_of(two.proto)) == (size, {"nchw2c:Conv": 2})
    assert {key[0] for key in two.model.functions} == {"relayout.nchw2c"}


def test_the_interface_may_take_the_layout() -> None:
    source = build("float[2,3,11,9] x", "a = Conv(x, w) y = Relu(a)", W)
    result = relayout.convert(source, to="NHWC", io="convert")
    assert (result.report.transposes, result.report.proved) == (0, True)
    assert [shapes(result.proto.graph.input), shapes(result.proto.graph.output)] == [[[2, 11, 9, 3]], [[2, 9, 8, 4]]]
    feed = feed_of(source)
    (want,) = run(source, feed)
    (got,) = run(result.proto, {"x": feed["x"].transpose(0, 2, 3, 1)})
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-5, atol=1e-6)


def test_a_callback_decides_by_node() -> None:
    """TVM's `layout_cb`: wide convolutions in tiles, the last one in NHWC, the rest as they are."""

    def layout_for(node: Any) -> Sequence[str] | None:
        out = node.inputs[1].shape[0]
        return {12: ("NCHW4c", "OIHW4o"), 4: ("NHWC", "OHWI")}.get(out)

    text = "a = Conv(x, w) b = Relu(a) c = Conv(b, u) d = Relu(c) y = Conv(d, v)"
    source = build("float[2,8,11,9] x", text, {"w": (12, 8, 3, 3), "u": (5, 12, 2, 3), "v": (4, 5, 3, 2)})
    result, size = converted(source, layout_for=layout_for)
    assert functions_of(result.proto) == {"nchw4c.oihw4o:Conv": 1, "nhwc.ohwi:Conv": 1}
    assert size == bytes_of([X4, Y4, (2, 5, 8, 5), (2, 4, 6, 4)])


ONE_GROUP = Condition("one group", lambda operator: operator.int("group", 1) == 1)
ARM = Target(
    "arm",
    "a library with kernels for one in three convolutions",
    (
        Kernel("Conv", ("NHWC OHWI",), FLOAT, (4,), (ONE_GROUP,)),
        Kernel("Relu Add Concat"),
    ),
)


def test_a_library_takes_what_it_has_kernels_for() -> None:
    """The forum's Arm Compute Library: its convolutions in NHWC with OHWI kernels, the rest in the graph's order."""
    text = "a = Conv(x, w) b = Relu(a) c = Conv<group=4>(b, u) d = Relu(c) y = Conv(d, v)"
    source = build("float[2,3,11,9] x", text, {"w": (4, 3, 3, 2), "u": (4, 1, 1, 1), "v": (5, 4, 3, 2)})
    result, size = converted(source, target=ARM)
    assert functions_of(result.proto) == {"nhwc.ohwi:Conv": 2}
    assert size == bytes_of([X, Y, Y, (2, 5, 7, 7)])
    wished, size = converted(source, target=ARM, desired_layouts={"Conv": ["NHWC", "default"]})
    assert functions_of(wished.proto) == {"nhwc.ohwi:Conv": 2, "nhwc:Conv": 1}
    assert size == bytes_of([X, (2, 5, 7, 7)])


def test_standard_operators_for_a_runtime_without_functions() -> None:
    source = build("float[2,3,11,9] x", NETWORK, PARTS)
    options = {"to": "NHWC", "inline": True}
    result = relayout.convert(source, **options)
    onnx.checker.check_model(result.proto, full_check=True)
    assert not result.proto.functions
    assert {node.domain for node in result.proto.graph.node} == {""}
    feed = feed_of(source)
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


QUANTIZED = {
    "QLinearConv": (
        "q = QuantizeLinear(x, one, zero) a = QLinearConv(q, one, zero, w, s, none, two, zero)"
        " r = DequantizeLinear(a, two, zero)"
        " y = Relu(r)",
        {"nhwc:QLinearConv": 1},
        [X, Y],
        [1, 1],
    ),
    "ConvInteger": (
        "q = QuantizeLinear(x, one, zero) a = ConvInteger(q, w, zero) y = Cast<to=1>(a)",
        {"nhwc:ConvInteger": 1},
        [X, Y],
        [1, 4],
    ),
    "Q and DQ around each": (
        "q = QuantizeLinear(x, one, zero) d = DequantizeLinear(q, one, zero)"
        " k = DequantizeLinear<axis=0>(w, s, none) a = Conv(d, k)"
        " b = QuantizeLinear(a, two, zero) c = DequantizeLinear(b, two, zero) y = Relu(c)",
        {"nhwc:Conv": 1},
        [X, Y],
        [1, 1],
    ),
    "requantized by channel": (
        "q = QuantizeLinear(x, one, zero) a = QLinearConv(q, one, zero, w, s, none, two, zero)"
        " r = DequantizeLinear(a, two, zero)"
        " b = QuantizeLinear<axis=1>(r, t, none4) c = DequantizeLinear<axis=1>(b, t, none4) y = Relu(c)",
        {"nhwc:QLinearConv": 1},
        [X, Y],
        [1, 1],
    ),
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_convolutions(name: str) -> None:
    """Transposes settle on the bytes' side."""
    text, functions, moved, sizes = QUANTIZED[name]
    rng = np.random.default_rng(5)
    constants = {
        "one": np.float32(0.02),
        "two": np.float32(0.05),
        "zero": np.uint8(3),
        "none": np.zeros(4, np.int8),
        "none4": np.zeros(4, np.uint8),
        "s": np.array([0.01, 0.02, 0.03, 0.04], np.float32),
        "t": np.array([0.02, 0.03, 0.04, 0.05], np.float32),
        "w": rng.integers(-100, 100, (4, 3, 3, 2)).astype(np.int8),
    }
    result, size = converted(build("float[2,3,11,9] x", text, constants), to="NHWC")
    assert functions_of(result.proto) == functions
    assert size == bytes_of(moved, sizes)


WHOLE = {
    "grouped": "y = Conv<group=2>(x, w)",
    "grouped and transposed": "y = ConvTranspose<group=2>(x, w)",
    "groups": "y = GroupNormalization<num_groups=2>(x, k, k)",
    "neighbours": "y = LRN<size=3>(x)",
    "indices": "y, i = MaxPool<kernel_shape=[2,2]>(x)",
    "depth": "y = DepthToSpace<blocksize=2>(x)",
    "space": "y = SpaceToDepth<blocksize=2>(x)",
}
"""Operators that need their channels in order."""


@pytest.mark.parametrize("body", WHOLE.values(), ids=list(WHOLE))
@pytest.mark.parametrize("layout", ["NCHW2c", "NCHW4c", "NHWC"])
def test_channels_in_order_are_read_again_in_tiles(body: str, layout: str) -> None:
    source = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[2,8,4,6] x, float[8,4,2,2] w, float[8] k) => (float[n,c,h,t] y) {{ {body} }}""")
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 8, 4, 6), "w": (8, 4, 2, 2), "k": (8,)}
    feed = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    (want, *_) = run(source, feed)
    there = relayout.convert(source, to=layout).proto
    results = {"again": relayout.optimize(there)} | {
        to: relayout.convert(there, to=to) for to in ("NCHW", "NHWC", "NCHW2c")
    }
    for name, result in results.items():
        np.testing.assert_allclose(run(result.proto, feed)[0], want, rtol=1e-5, atol=1e-5, err_msg=name)


def test_an_extent_inside_of_a_dimension_is_read_elsewhere() -> None:
    """A group normalization as it is exported: behind it an image is `n (c h v) g`, and nothing says what h is."""
    text = """
    a = Conv<pads=[2,2,2,2]>(x, w)
    b = Reshape(a, groups)
    c = InstanceNormalization(b, one, zero)
    s = Shape(a)
    d = Reshape(c, s)
    e = Mul(d, scale)
    y = Conv<pads=[1,1,1,1]>(e, u)"""
    rng = np.random.default_rng(0)
    kernels = {"w": (24, 3, 5, 5), "scale": (24, 1, 1), "u": (24, 24, 3, 3)}
    constants = {name: rng.normal(size=shape).astype(np.float32) for name, shape in kernels.items()}
    constants |= {"groups": np.array([0, 4, -1]), "one": np.ones(4, np.float32), "zero": np.zeros(4, np.float32)}
    source = build("float[n,3,h,v] x", text, constants)
    del source.graph.value_info[:]
    source.graph.value_info.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 24, "h", "v"]) for name in "ade"
    )
    result, _ = converted(source, to="NHWC")
    assert any(node.op_type == "Concat" for node in result.proto.graph.node)
