"""Einsums that ONNX Runtime's CPU provider computes as products of matrices: equal values, Transposes in the open."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

import relayout
from running import run
from text_form import floats, model

EXTENTS = {"b": 2, "h": 3, "q": 24, "k": 20, "d": 16, "r": 4, "g": 5, "w": 6}
PRODUCTS = {
    "bhqd,bhkd->bhqk": 1,
    "bqhd,bkhd->bhqk": 2,
    "bhqk,bkhd->bqhd": 2,
    "bhqk,bhkd->bhqd": 0,
    "bqgrd,bkgd->bgrqk": 2,
    "bhwqd,hkd->bhwqk": 3,
    "qk,bkd->bqd": 0,
    "hkd,bhwqd->bhwqk": 3,
    "bwhqd,hkd->bwhqk": 3,
    "bqd,rkd->brqk": 2,
    "qk,kd->qd": 0,
    "kq,kd->dq": 1,
    "bqk,kd->bqd": 0,
    "bqk,bk->bq": 0,
    "qhd,hdk->qk": 0,
    "qd,qd->": 0,
    "bqd,bkd->bkq": 1,
    " b q d , b k d -> b q k": 1,
}
"""Equation -> Transposes of its products by themselves."""


def source(equation: str, *, open_axes: str = "") -> onnx.ModelProto:
    left, _, result = equation.replace(" ", "").partition("->")
    first, second = (",".join(a if a in open_axes else str(EXTENTS[a]) for a in term) for term in left.split(","))
    said = f"[{','.join(f'z{axis}' for axis in range(len(result)))}]" if result else ""
    text = f'g (float[{first}] x, float[{second}] y) => (float{said} z) {{ z = Einsum<equation="{equation}">(x, y) }}'
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]>\n{text}')


def operators(proto: onnx.ModelProto, equation: str) -> Counter[str]:
    """The operators of a result, which gives what numpy does."""
    plain = equation.replace(" ", "")
    x, y = (floats(*(EXTENTS[a] for a in term)) for term in plain.partition("->")[0].split(","))
    (got,) = run(proto, {"x": x, "y": y})
    np.testing.assert_allclose(got, np.einsum(plain, x, y), rtol=0, atol=1e-4)
    return Counter(node.op_type for node in proto.graph.node)


@pytest.fixture(autouse=True)
def _all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.targets.onnxruntime.decompositions.LEAST_ELEMENTS", 1)


@pytest.mark.parametrize("equation", PRODUCTS)
def test_a_product(equation: str) -> None:
    result = relayout.optimize(source(equation), target="onnxruntime-cpu")
    found = operators(result.proto, equation)
    assert found["MatMul"] + found["Gemm"] == 1
    assert found["Transpose"] == PRODUCTS[equation]
    assert (result.report.source_transposes, result.report.source_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("equation", "open_axes", "expected"),
    [
        ("bqhd,bkhd->bhqk", "bqk", "MatMul"),
        ("bqgrd,bkgd->bgrqk", "bk", "MatMul"),
        ("bqgrd,bkgd->bgrqk", "qr", "Einsum"),  # two extents of one, when they are parted again
    ],
)
def test_open_extents(equation: str, open_axes: str, expected: str) -> None:
    result = relayout.optimize(source(equation, open_axes=open_axes), target="onnxruntime-cpu")
    assert operators(result.proto, equation)[expected] == 1


@pytest.mark.parametrize("equation", ["qk,kd->qd", "bqk,kd->bqd", "bhqk,bhkd->bhqd", "qk,bkd->bqd", "bhqk,kd->bhqd"])
def test_a_product_as_it_is(equation: str) -> None:
    result = relayout.optimize(source(equation), target="onnxruntime-cpu")
    assert operators(result.proto, equation) == {"MatMul": 1}


def test_an_axis_that_is_stretched_stays() -> None:
    text = 'g (float[1,24,16] x, float[2,20,16] y) => (float[2,20,24] z) { z = Einsum<equation="bqd,bkd->bkq">(x, y) }'
    result = relayout.optimize(model(text), target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == ["Einsum"]


@pytest.mark.parametrize(("equation", "short"), [("bqd,dk->bqk", "...d,dk->...k"), ("qk,kw->qw", "qk,kw")])
def test_letters_that_are_not_said(equation: str, short: str) -> None:
    proto = source(equation)
    proto.graph.node[0].attribute[0].s = short.encode()
    assert operators(relayout.optimize(proto, target="onnxruntime-cpu").proto, equation) == {"MatMul": 1}


@pytest.mark.parametrize("equation", ["qd,kd->qkd", "qdr,kd->qk", "qqd,kd->qk"])
def test_what_is_no_product_stays(equation: str) -> None:
    result = relayout.optimize(source(equation), target="onnxruntime-cpu").proto
    assert [node.op_type for node in result.graph.node] == ["Einsum"]


def test_a_transpose_inside_joins_the_one_before() -> None:
    """The heads of attention: keys are brought before their rows, and inside of the Einsum turned; now both at once."""
    text = """
        g (float[2,24,48] x, float[48,48] m, float[48,48] n) => (float[2,3,24,24] y) {
            heads = Constant<value_ints=[0, 0, 3, 16]>()
            a = MatMul(x, m)
            b = Reshape(a, heads)
            c = MatMul(x, n)
            d = Reshape(c, heads)
            e = Transpose<perm=[0,2,1,3]>(b)
            f = Transpose<perm=[0,2,1,3]>(d)
            y = Einsum<equation="bhqd,bhkd->bhqk">(e, f)
        }"""
    proto = model(text)
    result = relayout.optimize(proto, target="onnxruntime-cpu")
    feed = {"x": floats(2, 24, 48), "m": floats(48, 48, seed=1), "n": floats(48, 48, seed=2)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(proto, feed)[0], rtol=1e-4, atol=1e-3)
    assert Counter(node.op_type for node in result.proto.graph.node) == {"MatMul": 3, "Reshape": 2, "Transpose": 2}
    assert (result.report.source_transposes, result.report.transposes) == (2, 2)
