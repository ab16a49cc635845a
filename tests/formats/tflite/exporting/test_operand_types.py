"""Operands that do not fit each other, in type or extents, are refused: LiteRT would not run the file."""

from __future__ import annotations

import onnx
import pytest

import relayout
from relayout.errors import UnsupportedError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft
from relayout.formats.tflite.exporting.kernel_types import require_broadcast
from relayout.formats.tflite.exporting.registry import Unwritable


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


def test_coordinates_of_another_batch_are_refused() -> None:
    """ONNX Runtime takes them, although ONNX has it that batches are alike; LiteRT's kernel does not."""
    source = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[1, 2, 2] x) => (y) <int64[2, 1] i = {1, 0}> { y = GatherND<batch_dims=1>(x, i) }"""
    with pytest.raises(relayout.UnsupportedError, match="coordinates of another batch"):
        relayout.convert(onnx.parser.parse_model(source), format="tflite")


def test_operands_that_do_not_broadcast_are_refused() -> None:
    """A definition that ONNX gives an operator may have them: a RotaryEmbedding of an odd number of columns."""
    draft = Draft()
    long, short, result = (draft.tensor("t", TensorType.FLOAT32, dims) for dims in ((2, 1, 3), (4, 2), (2, 4, 3)))
    draft.add("MUL", [long, draft.tensor("t", TensorType.FLOAT32, ("n", 1, 3)), result], [result])
    draft.add("CONCATENATION", [long, short], [result])
    for operator in draft.operators:
        require_broadcast(operator)
    with pytest.raises(Unwritable, match="operands of 2 and 3 elements along one axis"):
        require_broadcast(draft.add("MUL", [long, short], [result]))
