"""Operands of two types where ONNX has one are refused: LiteRT would not run the file."""

from __future__ import annotations

import onnx
import pytest

import relayout
from relayout.errors import UnsupportedError


@pytest.mark.parametrize(
    "node", ["y = MatMul(x, w)", "y = Add(x, w)", "y = Concat<axis = 0>(x, x, w)", "y = Gemm(x, x, w)"]
)
def test_operands_of_two_types_are_refused(node: str) -> None:
    source = f"""<ir_version: 9, opset_import: ["" : 18]>
        g (float[2, 2] x) => (y) <double[2, 2] w = {{1, 2, 3, 4}}> {{ {node} }}"""
    with pytest.raises(UnsupportedError, match="operands of FLOAT and DOUBLE, which ONNX wants to be of one type"):
        relayout.convert(onnx.parser.parse_model(source), format="tflite")


def test_operands_that_may_differ_are_taken() -> None:
    """A Gather has indices of another type, a Pow an exponent of one."""
    source = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[2, 2] x) => (y) <int64[2] i = {1, 0}, double e = {2}> { z = Gather(x, i) y = Pow(z, e) }"""
    assert relayout.convert(onnx.parser.parse_model(source), format="tflite").tflite
