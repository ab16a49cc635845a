"""Inputs for a model that its operators can take: widths that weights imply, and sample rates."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from relayout.formats.onnx.reading import read
from relayout.verification import verify
from relayout.verification.feeds import SAMPLE_RATE
from relayout.verification.stated_numbers import implied_extents

WEIGHTS = {
    "w": (1, 12, 7),
    "r": (1, 12, 4),
    "k": (7, 5),
    "kernel": (6, 3, 3, 3),
    "line": (7,),
    "one": (1,),
}


def model(text: str, opset: int = 18) -> onnx.ModelProto:
    text = text.replace("G(", "GRU<hidden_size=4>(")
    made = parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> g {text}')
    rng = np.random.default_rng(0)
    for name, shape in WEIGHTS.items():
        if any(name in node.input for node in made.graph.node):
            made.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return made


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("(float[t,b,?] x) => (float[t,1,b,4] y) { y = G(x, w, r) }", (2, 16, 7)),
        ("(float[b,?,t] x) => (float[t,1,b,4] y) { a = Transpose<perm=[2,0,1]>(x) y = G(a, w, r) }", (2, 7, 16)),
        ("(float[t,b,?] x) => (float[t,1,b,4] y) { n = Neg(x) a = Relu(n) y = G(a, w, r) }", (2, 16, 7)),
        ("(float[b,width] x) => (float[b,5] y) { y = MatMul(x, k) }", (2, 7)),
        ("(float[b,?] x) => (float[b,?] y) { y = Add(x, line) }", (2, 7)),
        ("(float[b,?] x) => (float[b,?] y) { y = Add(x, one) }", (2, 16)),
        ("(float[n,?,h,w] x) => (float[n,6,p,q] y) { y = Conv(x, kernel) }", (2, 3, 64, 64)),
        (
            "(float[n,h,w,?] x) => (float[n,6,p,q] y) { a = Transpose<perm=[0,3,1,2]>(x) y = Conv(a, kernel) }",
            (2, 64, 64, 3),
        ),
        ("(float[b,?] x) => (float[b,?] y) { y = Concat<axis=1>(x, x) }", (2, 16)),
    ],
)
def test_widths_that_weights_imply_are_fed(text: str, shape: tuple[int, ...]) -> None:
    report = verify(model(text), model(text))
    assert report.ok
    assert report.inputs[0].shape == shape
    assert not report.notes


def test_what_is_stated_or_contradicts_itself_is_not_implied() -> None:
    assert implied_extents(read(model("(float[2,3] x) => (float[2,3] y) { y = Neg(x) }"))) == {}
    text = "(float[b,?] x) => (float[b,5] y, float[b,?] z) { y = MatMul(x, k) z = Add(x, line) }"
    assert implied_extents(read(model(text)))["x"] == (None, 7)
    assert implied_extents(read(model("(float[b,c] x) => (float[b,c] y) { y = Neg(x) }"))).get("x") == (None, None)


def test_a_sample_rate_is_fed_to_what_reads_one() -> None:
    text = """(int64 rate, float[2] x) => (float[9,4] y)
        <int64 bins={4}, int64 length={16}, float low={20.0}, float high={7000.0}> {
        y = MelWeightMatrix(bins, length, rate, low, high) }"""
    made = model(text)
    report = verify(made, made)
    assert report.ok
    assert SAMPLE_RATE == 16_000  # twice the upper limit at least: ONNX Runtime refuses less
