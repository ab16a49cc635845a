"""A GELU that exporters spell out is one builtin of LiteRT."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

import relayout
from running import run

SPELLED = {
    "half last": "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
    "half in the middle": "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(s, half) y = Mul(x, p)",
    "half of the operand": "h = Mul(x, half) d = Div(x, root) e = Erf(d) s = Add(one, e) y = Mul(h, s)",
    "a product": "d = Mul(x, inverse) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
}
OTHERS = {
    "another factor": "d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, one)",
    "another operand": "z = Neg(x) d = Div(x, root) e = Erf(d) s = Add(e, one) p = Mul(z, s) y = Mul(p, half)",
    "another root": "d = Div(x, half) e = Erf(d) s = Add(e, one) p = Mul(x, s) y = Mul(p, half)",
}


def source(nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3, 5] x) => (float[2, 3, 5] y)
        <float root = {{1.4142135}}, float inverse = {{0.70710677}}, float one = {{1.0}}, float half = {{0.5}}>
        {{ {nodes} }}""")


@pytest.mark.parametrize(
    ("nodes", "is_gelu"), [*((n, True) for n in SPELLED.values()), *((n, False) for n in OTHERS.values())]
)
def test_spelled_out(nodes: str, is_gelu: bool) -> None:
    model = source(nodes)
    result = relayout.convert(model, format="tflite")
    assert result.file is not None
    names = [operator.name for operator in result.file.subgraphs[0].operators]
    assert (names == ["GELU"]) == is_gelu
    x = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    given = Interpreter(model_content=result.tflite).get_signature_runner()(x=x)["y"]
    np.testing.assert_allclose(given, run(model, {"x": x})[0], rtol=1e-4, atol=1e-5)
