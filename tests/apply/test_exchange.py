"""Products with their operands exchanged, `yᵀ = cᵀ aᵀ`: tokens stay channels first, attention moves half as much."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout.pipeline import check_plan
from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
from running import run, same_values
from text_form import floats, model

DENSE = """g (float[{batch},6,{high},{wide}] x) => (float[{batch},8,{high},{wide}] y) {{
    c = Conv<kernel_shape=[1,1]>(x, k)
    t = Transpose<perm=[0,2,3,1]>(c)
    m = MatMul(t, w)
    b = Add(m, bias)
    r = Relu(b)
    u = Transpose<perm=[0,3,1,2]>(r)
    y = Conv<kernel_shape=[1,1]>(u, l)
}}"""

ATTENTION = """g (float[2,12,5,7] x) => (float[2,12,5,7] y) {
    c = Reshape(x, flat)
    tokens = Transpose<perm=[0,2,1]>(c)
    q = MatMul(tokens, wq)
    k = MatMul(tokens, wk)
    v = MatMul(tokens, wv)
    qs = Reshape(q, heads)
    ks = Reshape(k, heads)
    vs = Reshape(v, heads)
    qh = Transpose<perm=[0,2,1,3]>(qs)
    kh = Transpose<perm=[0,2,3,1]>(ks)
    vh = Transpose<perm=[0,2,1,3]>(vs)
    scores = MatMul(qh, kh)
    p = Softmax<axis=-1>(scores)
    o = MatMul(p, vh)
    ot = Transpose<perm=[0,2,1,3]>(o)
    om = Reshape(ot, merged)
    z = MatMul(om, wo)
    zt = Transpose<perm=[0,2,1]>(z)
    y = Reshape(zt, image)
}"""
SHAPES = {
    "flat": np.array([2, 12, 35], np.int64),
    "heads": np.array([2, 35, 3, 4], np.int64),
    "merged": np.array([2, 35, 12], np.int64),
    "image": np.array([2, 12, 5, 7], np.int64),
}


def dense(batch: object = 2, high: object = 5, wide: object = 7) -> onnx.ModelProto:
    arrays = {"k": floats(6, 6, 1, 1), "w": floats(6, 8, seed=1), "bias": floats(8, seed=2), "l": floats(8, 8, 1, 1)}
    return model(DENSE.format(batch=batch, high=high, wide=wide), **arrays)


def attention() -> onnx.ModelProto:
    weights = {name: floats(12, 12, seed=seed) for seed, name in enumerate(("wq", "wk", "wv", "wo"))}
    return model(ATTENTION, **SHAPES, **weights)


def check(source: onnx.ModelProto, size: tuple[int, ...]) -> tuple[int, onnx.ModelProto]:
    """The Transposes that are left where products exchange operands, and the result, which computes the same."""
    result = relayout.optimize(source, exchange=True)
    assert result.report.proved
    assert result.report.bytes <= relayout.optimize(source).report.bytes
    same_values(source, result.proto, [size])
    return result.report.transposes, result.proto


def test_a_dense_layer_between_convolutions_stays_channels_first() -> None:
    assert relayout.optimize(dense()).report.transposes == 2
    left, result = check(dense(), (2, 6, 5, 7))
    assert left == 0
    (product,) = [node for node in result.graph.node if node.op_type == "MatMul"]
    assert product.input[0] in {constant.name for constant in result.graph.initializer}


@pytest.mark.parametrize("flags", ["", "transA=1", "transB=1", "transA=1, transB=1"])
@pytest.mark.parametrize("bias", [(8,), (1,), (35, 8), (35, 1), None])
def test_a_gemm_of_one_image_stays_channels_first(flags: str, bias: tuple[int, ...] | None) -> None:
    """Its result is turned by exchanging its operands, its bias becomes a column."""
    source = model(
        f"""g (float[1,6,5,7] x) => (float[1,8,5,7] y) {{
            c = Conv<kernel_shape=[1,1]>(x, k)
            t = Transpose<perm=[{"1,0,2,3" if "transA" in flags else "0,2,3,1"}]>(c)
            rows = Reshape(t, flat)
            m = Gemm<alpha=0.5, beta=2.0{flags and ", " + flags}>(rows, w{", bias" if bias else ""})
            i = Reshape(m, image)
            u = Transpose<perm=[0,3,1,2]>(i)
            y = Conv<kernel_shape=[1,1]>(u, l)
        }}""",
        k=floats(6, 6, 1, 1),
        w=floats(8, 6, seed=1) if "transB" in flags else floats(6, 8, seed=1),
        l=floats(8, 8, 1, 1),
        flat=np.array([6, 35] if "transA" in flags else [35, 6], np.int64),
        image=np.array([1, 5, 7, 8], np.int64),
        **({"bias": floats(*bias, seed=2)} if bias else {}),
    )
    assert relayout.optimize(source).report.transposes == 1
    left, _ = check(source, (1, 6, 5, 7))
    assert left == 0


@pytest.mark.parametrize("extents", [("b", "h", "w"), (2, "h", 7), ("b", 5, 7), (1, 5, 1)])
def test_one_of_open_extents(extents: tuple[object, ...]) -> None:
    size = [{"b": 3, "h": 5, "w": 7}.get(str(extent), extent) for extent in extents]
    left, _ = check(dense(*extents), (int(str(size[0])), 6, int(str(size[1])), int(str(size[2]))))
    assert left == 0


def test_attention_on_an_image_moves_only_what_is_multiplied_by_itself() -> None:
    """Queries, values and results lie as their tokens do; of keys and queries one has to be turned."""
    assert relayout.optimize(attention()).report.transposes == 6
    left, _ = check(attention(), (2, 12, 5, 7))
    assert left == 1
    (move,) = relayout.optimize(attention(), exchange=True).report.remaining
    assert "MatMul q needs c last, or exchanged" in move.reason


def test_a_product_of_matrices_waits_for_the_flag() -> None:
    source = model("""g (float[3,6,5] x, float[3,7,6] p) => (float[3,7,5] y) {
        a = Transpose<perm=[0,2,1]>(x)
        c = Transpose<perm=[0,2,1]>(p)
        m = MatMul(a, c)
        y = Transpose<perm=[0,2,1]>(m)
    }""")
    assert relayout.optimize(source).report.bytes > 0
    result = relayout.optimize(source, exchange=True)
    assert [node.op_type for node in result.proto.graph.node] == ["MatMul"]
    feed = {"x": floats(3, 6, 5), "p": floats(3, 7, 6, seed=1)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5)


@pytest.mark.parametrize(("x", "p", "y"), [("2,5,12", "2,1,12", "2,1,5"), ("b,n,12", "b,1,12", "b,1,n")])
def test_a_vector_is_exchanged_by_default(x: str, p: str, y: str) -> None:
    """A pooled vector beside tokens: what a Transpose of the tokens was for is a Reshape of the vector."""
    text = "g (float[{x}] x, float[{p}] p) => (float[{y}] y) {{ a = Transpose<perm=[0,2,1]>(x) y = MatMul(p, a) }}"
    source = model(text.format(x=x, p=p, y=y))
    result = relayout.optimize(source)
    assert (result.report.transposes, result.report.verdict) == (0, "proved minimal")
    feed = {"x": floats(2, 5, 12), "p": floats(2, 1, 12, seed=1)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5)


def test_a_unit_with_what_dequantizes_its_operands_is_not_exchanged() -> None:
    """ONNX Runtime fuses it to an integer product, whose second operand has the scales of its columns."""
    text = DENSE.format(batch=2, high=5, wide=7).replace("MatMul(t, w)", "MatMul(tq, wq)")
    text = text.replace(
        "    m =", "    ti = QuantizeLinear(t, s, zero)\n    tq = DequantizeLinear(ti, s, zero)\n    m ="
    )
    text = text.replace("    m =", "    wq = DequantizeLinear<axis=1>(wi, columns)\n    m =")
    arrays = {"k": floats(6, 6, 1, 1), "bias": floats(8, seed=2), "l": floats(8, 8, 1, 1)}
    weights = np.random.default_rng(0).integers(-127, 128, (6, 8)).astype(np.int8)
    scales = {"s": np.float32(0.05), "zero": np.int8(3), "columns": np.linspace(0.01, 0.02, 8, dtype=np.float32)}
    source = model(text, wi=weights, **arrays, **{name: np.asarray(value) for name, value in scales.items()})
    result = relayout.optimize(source, exchange=True)
    assert result.report.bytes == relayout.optimize(source).report.bytes > 0
    assert [n.input[0] for n in result.proto.graph.node if n.op_type == "MatMul"] == ["tq"]


def test_a_plan_keeps_it_for_the_check(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, plan = tmp_path / "m.onnx", tmp_path / "plan.json"
    onnx.save(attention(), source)
    ran = relayout("optimize", source, tmp_path / "o.onnx", "--exchange", "--plan", plan, "--verify")
    assert ran.code == 0
    assert check_plan(plan, source).ok
    assert json.loads(plan.read_text())["options"]["exchange"] is True
    assert relayout("check", plan, source).code == 0


def test_the_pass_of_onnx_ir_takes_it() -> None:
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(dense()))
    OptimizeLayouts(exchange=True)(graph)
    assert "Transpose" not in [node.op_type for node in graph.graph]
