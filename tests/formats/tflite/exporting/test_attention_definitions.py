"""Attentions of com.microsoft are operators of the standard before layouts are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from export_running import agrees
from numpy.typing import NDArray
from onnx import numpy_helper, parser

import relayout
from moved_bytes import run_time_transposes
from relayout.errors import UnsupportedError
from text_form import floats

HEADER = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>\n'

HEADS = """g (float[2,5,6,9] q, float[2,5,54] k, float[2,5,54] v) => (float[2,5,54] y) {
    flat = Reshape(q, shape) y = com.microsoft.MultiHeadAttention<num_heads=6>(flat, k, v) }"""
SHAPE = np.array([2, 5, 54], np.int64)


def model(text: str, **constants: NDArray[Any]) -> onnx.ModelProto:
    proto = parser.parse_model(HEADER + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


def test_heads_are_views_of_the_problem() -> None:
    source = model(HEADS, shape=SHAPE)
    feed = {"q": floats(2, 5, 6, 9), "k": floats(2, 5, 54, seed=1), "v": floats(2, 5, 54, seed=2)}
    agrees(source, feed)
    result = relayout.convert(source, format="tflite")
    moved = run_time_transposes(result.file)
    assert (result.report.transposes, result.report.bytes) == (len(moved), sum(moved)) == (4, 4 * 2 * 5 * 54 * 4)
    assert result.report.proved


@pytest.mark.parametrize(("size", "attributes"), [(8, ""), (12, ", rotary_embedding_dim=8")])
def test_rotated_heads_stay_packed(size: int, attributes: str) -> None:
    """Their angles stretch along the axis of heads, wherever that is; a part of each head may be turned."""
    source = model(
        f"g (float[2,5,{3 * size}] x, int64[2,5] p) => (float[2,5,{3 * size}] y)"
        f" {{ y = com.microsoft.RotaryEmbedding<num_heads=3{attributes}>(x, p, c, s) }}",
        c=floats(11, 4),
        s=floats(11, 4, seed=1),
    )
    agrees(source, {"x": floats(2, 5, 3 * size), "p": np.arange(10).reshape(2, 5)})
    assert relayout.convert(source, format="tflite").report.transposes == 0


def test_an_attention_that_the_user_asks_for_is_a_custom_operator() -> None:
    source = model(HEADS, shape=SHAPE)
    result = relayout.convert(source, format="tflite", custom_ops={"MultiHeadAttention": ""})
    assert result.report.operators == {"CUSTOM MultiHeadAttention": 1, "RESHAPE": 1}


def test_what_has_no_definition_says_why() -> None:
    source = model(
        HEADS.replace("num_heads=6", "num_heads=6, unidirectional=1").replace("2,5", "2,n"), shape=SHAPE * [1, 0, 1]
    )
    with pytest.raises(UnsupportedError, match=r"known only at run time.*--dim n=N"):
        relayout.convert(source, format="tflite")


@pytest.mark.parametrize("keys", ["float[2,5,8] k, float[2,5,8] v", "float[2,2,5,4] k, float[2,2,5,4] v"])
def test_a_mask_of_counts_counts_the_keys_not_the_queries(keys: str) -> None:
    source = model(
        f"g (float[2,1,8] q, {keys}, int32[2] m) => (float[2,1,8] y)"
        " { y = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v, , m) }"
    )
    shape = (2, 5, 8) if "5,8" in keys else (2, 2, 5, 4)
    feed = {"q": floats(2, 1, 8), "k": floats(*shape, seed=1), "v": floats(*shape, seed=2)}
    agrees(source, {**feed, "m": np.array([3, 2], np.int32)})


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("MatMulIntegerToFloat(a, b)", "operand 3 is missing"),
        ("EmbedLayerNormalization(a, , b, b, , d, d)", "no matrices"),
        ("QAttention<num_heads=3>(c, b, d, s, s)", "3 heads of 8 elements"),
    ],
)
def test_operands_that_do_not_fit_are_refused(node: str, said: str) -> None:
    text = f"""g (uint8[5] a, uint8[8,24] b, uint8[2,5,8] c, float[24] d, float s) => (y)
        {{ y = com.microsoft.{node} }}"""
    with pytest.raises(UnsupportedError, match=said):
        relayout.convert(model(text), format="tflite")
