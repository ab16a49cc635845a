"""Attention whose heads are an axis, or packed behind the sequence: whichever needs no Transpose."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import relayout
from running import run
from small import build, feed_of

SIZES = {"n": 2, "t": 5, "p": 3}
WEIGHTS = {"wq": (8, 12), "wk": (8, 6), "wv": (8, 4), "wo": (8, 8)}
SHAPES = {"sq": [0, 0, 4, 3], "sk": [0, 0, 2, 3], "sv": [0, 0, 2, 2], "so": [0, 0, 8]}
HEADS = """
    q = MatMul(x, wq) q4 = Reshape(q, sq) qt = T0213(q4)
    k = MatMul(x, wk) k4 = Reshape(k, sk) kt = T0213(k4)
    v = MatMul(x, wv) v4 = Reshape(v, sv) vt = T0213(v4)
"""
BACK = "ot = T0213(o) o3 = Reshape(ot, so) y = MatMul(o3, wo)"
ANGLES = {"cs": (8, 1), "sn": (8, 1), "at": np.arange(10).reshape(2, 5) % 8}
"""Angles of the first two channels of each head."""


def transposes(model: onnx.ModelProto) -> int:
    return sum(node.op_type == "Transpose" for node in model.graph.node)


def agrees(source: onnx.ModelProto) -> onnx.ModelProto:
    """The optimized model, which computes what its source does."""
    feed = feed_of(source, SIZES)
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    for want, have in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)
    assert result.report.proved
    return result.proto


@pytest.mark.parametrize("extents", ["n,t", "2,5", "n,5"])
def test_an_exported_layer_transposes_nothing(extents: str) -> None:
    text = f"{HEADS} o = Attention<is_causal=1>(qt, kt, vt) {BACK}"
    source = build(f"float[{extents},8] x", text, WEIGHTS | SHAPES, opset=23)
    assert transposes(source) == 4
    assert transposes(agrees(source)) == 0


def test_rotary_embeddings_follow() -> None:
    text = f"""{HEADS}
        qr = RotaryEmbedding<rotary_embedding_dim=2>(qt, cs, sn, at)
        kr = RotaryEmbedding<rotary_embedding_dim=2>(kt, cs, sn, at)
        o = Attention(qr, kr, vt) {BACK}"""
    source = build("float[2,5,8] x", text, WEIGHTS | SHAPES | ANGLES, opset=23)
    assert transposes(source) == 4
    assert transposes(agrees(source)) == 0


def test_a_cache_stays_as_it_is() -> None:
    text = f"{HEADS} o, nk, nv, w = Attention<qk_matmul_output_mode=1>(qt, kt, vt, m, pk, pv) {BACK}"
    inputs = "float[n,5,8] x, float[n,1,5,8] m, float[n,2,3,3] pk, float[n,2,3,2] pv"
    source = build(inputs, text, WEIGHTS | SHAPES, opset=23)
    assert transposes(source) == 4
    assert transposes(agrees(source)) == 0


def test_heads_that_are_an_axis_already_are_not_packed() -> None:
    text = """
        qt = T0213(q) q3 = Reshape(qt, s) kt = T0213(k) k3 = Reshape(kt, s) vt = T0213(v) v3 = Reshape(vt, s)
        o = Attention<q_num_heads=4, kv_num_heads=4>(q3, k3, v3) o4 = Reshape(o, s4) y = T0213(o4)"""
    inputs = "float[2,4,5,3] q, float[2,4,7,3] k, float[2,4,7,3] v"
    source = build(inputs, text, {"s": [0, 0, 12], "s4": [0, 0, 4, 3]}, opset=24)
    assert transposes(source) == 4
    result = agrees(source)
    assert transposes(result) == 0
    assert [node.op_type for node in result.graph.node] == ["Attention"]
    assert not result.graph.node[0].attribute


def test_keys_and_values_of_a_contributed_operator() -> None:
    text = """
        kt = T0213(k) k3 = Reshape(kt, s) vt = T0213(v) v3 = Reshape(vt, s)
        o = com.microsoft.MultiHeadAttention<num_heads=4>(q, k3, v3) y = Relu(o)"""
    source = build("float[2,5,12] q, float[2,4,7,3] k, float[2,4,7,3] v", text, {"s": [0, 0, 12]})
    assert transposes(source) == 2
    assert transposes(agrees(source)) == 0
