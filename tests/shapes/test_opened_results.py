"""The batch of relayout's own results, whose metadata states the one that they had, and of parts, is opened."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from small import build

ROOT = Path(__file__).parents[2]
FLOAT = ROOT / "models" / "tinynet_float.tflite"


@pytest.mark.parametrize("first", [[], ["--io", "NCHW"], ["--io", "convert"]], ids=["keep", "NCHW", "convert"])
@pytest.mark.parametrize("batch", ["n", "5"])
@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_a_result_is_opened_once_more(relayout: Any, tmp_path: Path, first: list[str], batch: str, suffix: str) -> None:
    once, again = tmp_path / "once.onnx", tmp_path / f"again.{suffix}"
    assert relayout("convert", FLOAT, once, *first).code == 0
    ran = relayout("convert", once, again, "--batch", batch, "--verify")
    assert ran.code == 0, ran.err + ran.out
    assert "PASSED" in ran.out


@pytest.mark.parametrize("batch", ["n", "4"])
def test_a_part_is_opened_and_verified_where_it_ends(relayout: Any, tmp_path: Path, batch: str) -> None:
    end = "tinynet_1/flatten_1_1/Reshape"
    ran = relayout("convert", FLOAT, tmp_path / "part.onnx", "--outputs", end, "--batch", batch, "--verify")
    assert ran.code == 0, ran.err + ran.out
    assert "PASSED" in ran.out


def test_a_batch_inside_of_an_axis_is_compared_row_by_row(relayout: Any, tmp_path: Path) -> None:
    """Rows of y are those of x by turns: an outer axis of 3 comes before the batch."""
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2,3,4] x) => (float[6,4] y)'
        " <int64[2] s = {6, 4}> { t = Transpose<perm=[1,0,2]>(x) y = Reshape(t, s) }"
    )
    onnx.save(proto, tmp_path / "outer.onnx")
    ran = relayout("convert", tmp_path / "outer.onnx", tmp_path / "n.onnx", "--batch", "n", "--verify")
    assert ran.code == 0, ran.err + ran.out
    assert "PASSED: 1 output agrees at batches 2, 3 and 7" in ran.out


def test_where_the_batch_is_bound_the_error_says_up_to_where_it_opens(relayout: Any, tmp_path: Path) -> None:
    """Two outputs depend on what mixes the rows, one does not; what follows from constants is no end."""
    text = (
        "a = Relu(x) b = Neg(x) c = Sigmoid(b) m = ReduceMean<keepdims=1>(a, zero) k = Neg(bias)"
        " d = Add(c, k) y = Mul(m, d)"
    )
    model = build("float[2,4] x", text, {"zero": [0], "bias": (1, 4)})
    model.graph.output.append(onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [2, 4]))
    onnx.save(model, tmp_path / "m.onnx")
    ran = relayout("convert", tmp_path / "m.onnx", tmp_path / "n.onnx", "--batch", "n")
    assert ran.code == 2
    assert "ReduceMean 'm' computes along it; cut the graph before it with --outputs a,d,b (" in ran.err
    ran = relayout(
        "convert", tmp_path / "m.onnx", tmp_path / "n.onnx", "--batch", "n", "--outputs", "a,d,b", "--verify"
    )
    assert ran.code == 0, ran.err + ran.out


def test_a_builtin_of_several_nodes_is_cut_whole(relayout: Any, tmp_path: Path) -> None:
    source = ROOT / "models" / "tinynet_int8.tflite"
    ran = relayout("convert", source, tmp_path / "n.onnx", "--dim", "image:1=n")
    assert ran.code == 2
    names = shlex.split(ran.err.partition("--outputs ")[2].rpartition(" (")[0])
    assert names
    ran = relayout("convert", source, tmp_path / "n.onnx", "--dim", "image:1=n", "--outputs", *names)
    assert ran.code == 0, ran.err + ran.out
