"""Blocks of real architectures, as exporters write them: same values, proved, at most what the runtime leaves.

Every axis of a block has an extent of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser, shape_inference

import relayout
from running import by_the_runtime, moved_bytes, run

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'

ATTENTION = """
    {p}qf = MatMul({q}, {p}wq)     {p}kf = MatMul({k}, {p}wk)     {p}vf = MatMul({v}, {p}wv)
    {p}qs = Reshape({p}qf, {p}sq)  {p}ks = Reshape({p}kf, {p}sk)  {p}vs = Reshape({p}vf, {p}sk)
    {p}qh = Transpose<perm=[0,2,1,3]>({p}qs)
    {p}kh = Transpose<perm=[0,2,3,1]>({p}ks)
    {p}vh = Transpose<perm=[0,2,1,3]>({p}vs)
    {p}scores = MatMul({p}qh, {p}kh)
    {p}weights = Softmax<axis=-1>({p}scores)
    {p}mixed = MatMul({p}weights, {p}vh)
    {p}back = Transpose<perm=[0,2,1,3]>({p}mixed)
    {p}flat = Reshape({p}back, {p}so)
    {out} = MatMul({p}flat, {p}wo)
"""


def attention(out: str, q: str, kv: str, *, prefix: str = "a") -> str:
    """Attention with heads split and merged; its constants come from `attention_constants`."""
    return ATTENTION.format(p=prefix, out=out, q=q, k=kv, v=kv)


def attention_constants(
    batch: int, queries: int, keys: int, heads: int, width: int, *, prefix: str = "a"
) -> dict[str, NDArray[np.generic]]:
    whole = heads * width
    shapes = {"sq": [batch, queries, heads, width], "sk": [batch, keys, heads, width], "so": [batch, queries, whole]}
    found: dict[str, NDArray[np.generic]] = {f"{prefix}{n}": np.array(s, np.int64) for n, s in shapes.items()}
    return found | {f"{prefix}w{which}": floats(whole, whole, seed=ord(which)) for which in "qkvo"}


def floats(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return (np.random.default_rng(seed).normal(size=shape) / max(1, shape[0]) ** 0.5).astype(np.float32)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Block:
    """A block as ONNX text, its constants, and the bytes that must be left: None where only the bounds are stated."""

    text: str
    constants: Mapping[str, NDArray[np.generic]]
    left: int | None = None


BLOCKS: dict[str, Block] = {}

# Windows of 4 x 4 of an image of 8 x 12 with 18 channels, shifted, attended to, and put back.
BLOCKS["swin window attention"] = Block(
    """g (float[2,96,18] x) => (float[2,96,18] y) {
        norm = LayerNormalization(x, scale, bias)
        image = Reshape(norm, s_image)
        low = Slice(image, c0, c2, c1)   high = Slice(image, c2, c8, c1)
        rolled = Concat<axis=1>(high, low)
        cut = Reshape(rolled, s_cut)
        windows = Transpose<perm=[0,1,3,2,4,5]>(cut)
        tokens = Reshape(windows, s_tokens)
    """
    + attention("mixed", "tokens", "tokens")
    + """
        apart = Reshape(mixed, s_windows)
        reversed = Transpose<perm=[0,1,3,2,4,5]>(apart)
        whole = Reshape(reversed, s_image)
        first = Slice(whole, c6, c8, c1)   rest = Slice(whole, c0, c6, c1)
        unrolled = Concat<axis=1>(first, rest)
        flat = Reshape(unrolled, s_flat)
        y = Add(x, flat)
    }""",
    {
        **attention_constants(12, 16, 16, 3, 6),
        "scale": floats(18, seed=1),
        "bias": floats(18, seed=2),
        "s_image": ints(2, 8, 12, 18),
        "s_cut": ints(2, 2, 4, 3, 4, 18),
        "s_tokens": ints(12, 16, 18),
        "s_windows": ints(2, 2, 3, 4, 4, 18),
        "s_flat": ints(2, 96, 18),
        **{f"c{number}": ints(number) for number in (0, 1, 2, 6, 8)},
    },
)

BLOCKS["shufflenet units"] = Block(
    """g (float[2,12,5,7] x) => (float[2,9,5,7] y) {
        a, b = Split<axis=1, num_outputs=2>(x)
        c = Conv(b, w1)   d = Relu(c)
        e = Conv<group=6, pads=[1,1,1,1]>(d, w2)
        f = Conv(e, w3)   h = Relu(f)
        i = Concat<axis=1>(a, h)
        j = Reshape(i, s1)   k = Transpose<perm=[0,2,1,3,4]>(j)   l = Reshape(k, s2)
        y = Conv(l, w4)
    }""",
    {
        "w1": floats(6, 6, 1, 1, seed=1),
        "w2": floats(6, 1, 3, 3, seed=2),
        "w3": floats(6, 6, 1, 1, seed=3),
        "w4": floats(9, 12, 1, 1, seed=4),
        "s1": ints(2, 2, 6, 5, 7),
        "s2": ints(2, 12, 5, 7),
    },
    left=0,  # the shuffle goes into the kernel that reads it
)

BLOCKS["pixel shuffle"] = Block(
    """g (float[2,3,5,7] x) => (float[2,4,10,14] y) {
        a = Conv<pads=[1,1,1,1]>(x, w1)
        b = Reshape(a, s1)   c = Transpose<perm=[0,1,4,2,5,3]>(b)   d = Reshape(c, s2)
        e = Relu(d)
        y = Conv<pads=[1,1,1,1]>(e, w2)
    }""",
    {
        "w1": floats(24, 3, 3, 3, seed=1),
        "w2": floats(4, 6, 3, 3, seed=2),
        "s1": ints(2, 6, 2, 2, 5, 7),
        "s2": ints(2, 6, 10, 14),
    },
    left=4 * 2 * 24 * 5 * 7,  # rows and columns are mixed with channels, which no kernel can undo
)

BLOCKS["segformer sequence reduction"] = Block(
    """g (float[2,24,10] x) => (float[2,24,10] y) {
        a = Transpose<perm=[0,2,1]>(x)   b = Reshape(a, s1)
        c = Conv<strides=[2,2]>(b, w1)
        d = Reshape(c, s2)   e = Transpose<perm=[0,2,1]>(d)
        f = LayerNormalization(e, scale, bias)
    """
    + attention("m", "x", "f")
    + "y = Add(x, m) }",
    {
        **attention_constants(2, 24, 6, 2, 5),
        "s1": ints(2, 10, 4, 6),
        "s2": ints(2, 10, 6),
        "w1": floats(10, 10, 2, 2, seed=3),
        "scale": floats(10, seed=1),
        "bias": floats(10, seed=2),
    },
)

# A transformer over the pixels that lie at the same place of their 2 x 2 patches.
BLOCKS["mobilevit unfold and fold"] = Block(
    """g (float[2,3,6,10] x) => (float[2,5,6,10] y) {
        a = Conv(x, w1)
        b = Reshape(a, s1)   c = Transpose<perm=[0,2,1,3]>(b)   d = Reshape(c, s2)
        e = Transpose<perm=[0,3,2,1]>(d)   f = Reshape(e, s3)
        h = LayerNormalization(f, scale, bias)
    """
    + attention("m", "h", "h")
    + """
        i = Add(f, m)
        j = Reshape(i, s4)   k = Transpose<perm=[0,3,2,1]>(j)
        l = Reshape(k, s5)   n = Transpose<perm=[0,2,1,3]>(l)   o = Reshape(n, s6)
        p = Conv(o, w2)
        q = Concat<axis=1>(x, p)
        y = Conv<pads=[1,1,1,1]>(q, w3)
    }""",
    {
        **attention_constants(8, 15, 15, 2, 7),
        "w1": floats(14, 3, 1, 1, seed=1),
        "s1": ints(2 * 14 * 3, 2, 5, 2),
        "s2": ints(2, 14, 15, 4),
        "s3": ints(8, 15, 14),
        "scale": floats(14, seed=2),
        "bias": floats(14, seed=3),
        "s4": ints(2, 4, 15, 14),
        "s5": ints(2 * 14 * 3, 5, 2, 2),
        "s6": ints(2, 14, 6, 10),
        "w2": floats(4, 14, 1, 1, seed=4),
        "w3": floats(5, 7, 3, 3, seed=5),
    },
)

BLOCKS["group normalization between Transposes"] = Block(
    """g (float[2,5,7,12] x) => (float[2,5,7,8] y) {
        a = Transpose<perm=[0,3,1,2]>(x)
        b = Conv(a, w1)
        c = Reshape(b, s1)   d = InstanceNormalization(c, ones, zeros)   e = Reshape(d, s2)
        f = Mul(e, scale)   h = Add(f, bias)
        i = Transpose<perm=[0,2,3,1]>(h)
        j = Relu(i)
        k = Transpose<perm=[0,3,1,2]>(j)
        l = Conv(k, w2)
        y = Transpose<perm=[0,2,3,1]>(l)
    }""",
    {
        "w1": floats(6, 12, 1, 1, seed=1),
        "s1": ints(2, 3, -1),
        "ones": np.ones(3, np.float32),
        "zeros": np.zeros(3, np.float32),
        "s2": ints(2, 6, 5, 7),
        "scale": floats(6, 1, 1, seed=2),
        "bias": floats(6, 1, 1, seed=3),
        "w2": floats(8, 6, 1, 1, seed=4),
    },
    left=4 * 2 * 5 * 7 * (12 + 8),  # the interface alone
)

# Boxes as distributions over five bins, decoded from two scales; 4 * 5 box channels, 3 classes.
BLOCKS["yolo head"] = Block(
    """g (float[2,6,4,7] p3, float[2,6,3,5] p4) => (float[2,7,43] y) {
        a3 = Conv(p3, wb)   b3 = Conv(p3, wc)   c3 = Concat<axis=1>(a3, b3)   d3 = Reshape(c3, flat)
        a4 = Conv(p4, wb)   b4 = Conv(p4, wc)   c4 = Concat<axis=1>(a4, b4)   d4 = Reshape(c4, flat)
        e = Concat<axis=2>(d3, d4)
        box, score = Split<axis=1>(e, parts)
        f = Reshape(box, s1)   h = Transpose<perm=[0,2,1,3]>(f)
        i = Softmax<axis=1>(h)
        j = Conv(i, project)
        k = Reshape(j, s2)
        low, high = Split<axis=1, num_outputs=2>(k)
        l = Sub(anchors, low)   m = Add(anchors, high)
        n = Add(l, m)   o = Sub(m, l)
        p = Sigmoid(score)
        y = Concat<axis=1>(n, o, p)
    }""",
    {
        "wb": floats(20, 6, 1, 1, seed=1),
        "wc": floats(3, 6, 1, 1, seed=2),
        "flat": ints(2, 23, -1),
        "parts": ints(20, 3),
        "s1": ints(2, 4, 5, 43),
        "project": floats(1, 5, 1, 1, seed=3),
        "s2": ints(2, 4, 43),
        "anchors": floats(1, 2, 43, seed=4),
    },
)

BLOCKS["detr flatten and attention"] = Block(
    """g (float[2,3,8,12] x) => (float[2,24,10] y) {
        a = Conv<strides=[2,2]>(x, w1)
        b = Relu(a)
        c = Conv(b, w2)
        d = Reshape(c, s1)   e = Transpose<perm=[0,2,1]>(d)
        f = Add(e, position)
    """
    + attention("m", "f", "e")
    + "h = Add(e, m)  y = LayerNormalization(h, scale, bias) }",
    {
        **attention_constants(2, 24, 24, 2, 5),
        "w1": floats(7, 3, 2, 2, seed=1),
        "w2": floats(10, 7, 1, 1, seed=2),
        "s1": ints(2, 10, 24),
        "position": floats(24, 10, seed=3),
        "scale": floats(10, seed=4),
        "bias": floats(10, seed=5),
    },
    left=4 * 2 * 24 * 10 * 5,  # channels last once, and the four of the heads
)

BLOCKS["convnext blocks"] = Block(
    """g (float[2,6,5,7] x) => (float[2,6,5,7] y) {
        a = Conv<group=6, pads=[3,3,3,3]>(x, w1)
        b = Transpose<perm=[0,2,3,1]>(a)
        c = LayerNormalization(b, scale, bias)
        d = MatMul(c, w2)   e = Gelu(d)   f = MatMul(e, w3)   h = Mul(f, gamma)
        i = Transpose<perm=[0,3,1,2]>(h)
        j = Add(x, i)
        k = Conv<group=6, pads=[3,3,3,3]>(j, w4)
        l = Transpose<perm=[0,2,3,1]>(k)
        m = LayerNormalization(l, scale, bias)
        n = MatMul(m, w2)   o = Gelu(n)   p = MatMul(o, w3)   q = Mul(p, gamma)
        r = Transpose<perm=[0,3,1,2]>(q)
        y = Add(j, r)
    }""",
    {
        "w1": floats(6, 1, 7, 7, seed=1),
        "scale": floats(6, seed=2),
        "bias": floats(6, seed=3),
        "w2": floats(6, 24, seed=4),
        "w3": floats(24, 6, seed=5),
        "gamma": floats(6, seed=6),
        "w4": floats(6, 1, 7, 7, seed=7),
    },
)

BLOCKS["heads split and merged"] = Block(
    "g (float[3,11,20] x) => (float[3,11,20] y) {"
    + attention("m", "x", "x")
    + "n = Add(x, m)  o = LayerNormalization(n, scale, bias)"
    + attention("p", "o", "o", prefix="b")
    + "y = Add(n, p) }",
    {
        **attention_constants(3, 11, 11, 4, 5),
        **attention_constants(3, 11, 11, 4, 5, prefix="b"),
        "scale": floats(20, seed=1),
        "bias": floats(20, seed=2),
    },
    left=4 * 3 * 11 * 20 * 8,  # four of each attention: heads must be outside for the product
)

# Queries, keys and values come from convolutions over the tokens as an image; keys and values at half its size.
BLOCKS["cvt projections"] = Block(
    """g (float[2,24,10] x) => (float[2,24,10] y) {
        a = Transpose<perm=[0,2,1]>(x)   b = Reshape(a, s1)
        q1 = Conv<group=10, pads=[1,1,1,1]>(b, w1)   q2 = Reshape(q1, s2)   q = Transpose<perm=[0,2,1]>(q2)
        k1 = Conv<group=10, pads=[1,1,1,1], strides=[2,2]>(b, w2)
        k2 = Reshape(k1, s3)   k = Transpose<perm=[0,2,1]>(k2)
    """
    + attention("m", "q", "k")
    + """
        d = Add(x, m)
        e = Transpose<perm=[0,2,1]>(d)   f = Reshape(e, s1)
        h = Conv<group=10, pads=[1,1,1,1]>(f, w1)
        i = Reshape(h, s2)   y = Transpose<perm=[0,2,1]>(i)
    }""",
    {
        **attention_constants(2, 24, 6, 2, 5),
        "w1": floats(10, 1, 3, 3, seed=1),
        "w2": floats(10, 1, 3, 3, seed=2),
        "s1": ints(2, 10, 4, 6),
        "s2": ints(2, 10, 24),
        "s3": ints(2, 10, 6),
    },
)

# The query and the gates wait while depthwise convolutions widen the context.
BLOCKS["focalnet modulation"] = Block(
    """g (float[2,5,7,6] x) => (float[2,5,7,6] y) {
        a = MatMul(x, w0)
        b = Transpose<perm=[0,3,1,2]>(a)
        q, context, gates = Split<axis=1>(b, parts)
        c1 = Conv<group=6, pads=[1,1,1,1]>(context, w1)   d1 = Gelu(c1)
        g1 = Slice(gates, zero, one, one)   e1 = Mul(d1, g1)
        c2 = Conv<group=6, pads=[2,2,2,2]>(d1, w2)   d2 = Gelu(c2)
        g2 = Slice(gates, one, two, one)   e2 = Mul(d2, g2)
        f = Add(e1, e2)
        m = ReduceMean<keepdims=1>(d2, spatial)   n = Gelu(m)
        g3 = Slice(gates, two, three, one)   e3 = Mul(n, g3)
        h = Add(f, e3)
        i = Conv(h, w3)
        j = Mul(q, i)
        k = Transpose<perm=[0,2,3,1]>(j)
        l = MatMul(k, w4)
        y = Add(x, l)
    }""",
    {
        "w0": floats(6, 15, seed=1),
        "parts": ints(6, 6, 3),
        "w1": floats(6, 1, 3, 3, seed=2),
        "w2": floats(6, 1, 5, 5, seed=3),
        "w3": floats(6, 6, 1, 1, seed=4),
        "w4": floats(6, 6, seed=5),
        "spatial": ints(2, 3),
        "zero": ints(0),
        "one": ints(1),
        "two": ints(2),
        "three": ints(3),
    },
)

BLOCKS["pvtv2 convolution inside the dense layers"] = Block(
    """g (float[2,24,10] x) => (float[2,24,10] y) {
        a = LayerNormalization(x, scale, bias)
        b = MatMul(a, w1)
        c = Transpose<perm=[0,2,1]>(b)   d = Reshape(c, s1)
        e = Conv<group=14, pads=[1,1,1,1]>(d, w2)
        f = Reshape(e, s2)   h = Transpose<perm=[0,2,1]>(f)
        i = Gelu(h)
        j = MatMul(i, w3)
        y = Add(x, j)
    }""",
    {
        "scale": floats(10, seed=1),
        "bias": floats(10, seed=2),
        "w1": floats(10, 14, seed=3),
        "s1": ints(2, 14, 4, 6),
        "w2": floats(14, 1, 3, 3, seed=4),
        "s2": ints(2, 14, 24),
        "w3": floats(14, 10, seed=5),
    },
    left=4 * 2 * 24 * 14 * 2,
)

BLOCKS["whisper stem"] = Block(
    """g (float[2,8,30] x) => (float[2,15,10] y) {
        a = Conv<pads=[1,1]>(x, w1)   b = Gelu(a)
        c = Conv<pads=[1,1], strides=[2]>(b, w2)   d = Gelu(c)
        e = Transpose<perm=[0,2,1]>(d)
        f = Add(e, position)
        h = LayerNormalization(f, scale, bias)
    """
    + attention("m", "h", "h")
    + "y = Add(f, m) }",
    {
        **attention_constants(2, 15, 15, 2, 5),
        "w1": floats(10, 8, 3, seed=1),
        "w2": floats(10, 10, 3, seed=2),
        "position": floats(15, 10, seed=3),
        "scale": floats(10, seed=4),
        "bias": floats(10, seed=5),
    },
)

# As a converter from channels-last leaves it: every convolution between two Transposes.
BLOCKS["u-net, channels last"] = Block(
    """g (float[2,8,12,3] x) => (float[2,8,12,5] y) {
        a = Transpose<perm=[0,3,1,2]>(x)   b = Conv<pads=[1,1,1,1]>(a, w1)   c = Transpose<perm=[0,2,3,1]>(b)
        skip = Relu(c)
        d = Transpose<perm=[0,3,1,2]>(skip)   e = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)
        f = Conv<pads=[1,1,1,1]>(e, w2)   h = Transpose<perm=[0,2,3,1]>(f)   i = Relu(h)
        j = Transpose<perm=[0,3,1,2]>(i)   k = ConvTranspose<strides=[2,2]>(j, w3)   l = Transpose<perm=[0,2,3,1]>(k)
        m = Concat<axis=3>(skip, l)
        n = Transpose<perm=[0,3,1,2]>(m)   o = Conv(n, w4)   p = Transpose<perm=[0,2,3,1]>(o)
        y = Softmax<axis=3>(p)
    }""",
    {
        "w1": floats(6, 3, 3, 3, seed=1),
        "w2": floats(9, 6, 3, 3, seed=2),
        "w3": floats(9, 4, 2, 2, seed=3),
        "w4": floats(5, 10, 1, 1, seed=4),
    },
    left=4 * 2 * 8 * 12 * (3 + 5),
)


def model(block: Block) -> onnx.ModelProto:
    proto = parser.parse_model(HEADER + block.text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in block.constants.items())
    return shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)


def feed_for(proto: onnx.ModelProto) -> dict[str, NDArray[np.generic]]:
    shapes = {v.name: [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in proto.graph.input}
    return {name: floats(*shape, seed=17 + k) for k, (name, shape) in enumerate(shapes.items())}


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_moves_no_more_than_the_runtime_leaves(name: str) -> None:
    block = BLOCKS[name]
    source = model(block)
    feed = feed_for(source)
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        assert got.shape == want.shape
        assert np.abs(want).max() > 1e-3
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert result.report.proved
    left = moved_bytes(result.proto, feed)
    assert left == result.report.bytes
    assert left <= moved_bytes(source, feed)
    theirs = by_the_runtime(source, feed)
    assert theirs is not None
    assert left <= theirs
    if block.left is not None:
        assert left == block.left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["convnext blocks", "yolo head", "u-net, channels last", "shufflenet units"])
def test_a_block_with_a_dynamic_batch(name: str) -> None:
    """The batch is a symbol: values are equal for two of its extents, and the bytes of one example are still proved."""
    block = BLOCKS[name]
    source = model(block)
    plain = moved_bytes(relayout.optimize(source).proto, feed_for(source))
    dynamic = onnx.ModelProto()
    dynamic.CopyFrom(source)
    del dynamic.graph.value_info[:]
    for value in (*dynamic.graph.input, *dynamic.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    for tensor in dynamic.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.int64 and array.size > 2 and array[0] == 2:  # shapes begin with the batch
            free = array.copy()
            free[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(free, tensor.name))
    dynamic = shape_inference.infer_shapes(dynamic, strict_mode=True, data_prop=True)
    result = relayout.optimize(dynamic)
    assert result.report.proved
    for batch in (2, 3):
        feed = {name: np.resize(array, (batch, *array.shape[1:])) for name, array in feed_for(source).items()}
        for want, got in zip(run(dynamic, feed), run(result.proto, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert moved_bytes(result.proto, feed_for(source)) == plain


def test_every_axis_of_an_input_has_an_extent_of_its_own() -> None:
    """Blocks whose extents were equal would prove nothing."""
    for name, block in BLOCKS.items():
        for shape in re.findall(r"float\[([\d,]+)\]", block.text.split("=>")[0]):
            extents = shape.split(",")
            assert len(set(extents)) == len(extents), name
