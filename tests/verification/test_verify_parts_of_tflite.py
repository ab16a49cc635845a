"""A part of a `.tflite` is compared with its source, whose other part LiteRT has no kernel for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import relayout
from relayout.errors import ReadError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A network whose results go into an operator that LiteRT does not know."""
    made = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "mine": 1]>
        g (float[1,4,6,3] x) => (float[1,4,6,3] z) { t = Sigmoid(x) y = Tanh(t) z = mine.Decode(y) }"""
    )
    path = tmp_path / "source.tflite"
    relayout.convert(made, format="tflite", custom_ops={"Decode": ""}).save(path)
    return path


@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_what_the_cut_leaves_out_need_not_run(source: Path, kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"part.{kind}"
    relayout.convert(source, outputs=["y"], format=kind).save(path)
    report = relayout.verify(source, path)
    assert report.ok
    assert any(
        note.startswith("the source ran as the result was cut, since of the whole LiteRT") for note in report.notes
    )


def test_a_part_that_computes_something_else_fails(source: Path, tmp_path: Path) -> None:
    part = relayout.convert(source, outputs=["y"]).proto
    (node,) = (node for node in part.graph.node if node.op_type == "Tanh")
    node.op_type = "Softsign"
    onnx.save(part, tmp_path / "part.onnx")
    assert not relayout.verify(source, tmp_path / "part.onnx").ok


def test_a_whole_that_does_not_run_is_an_error(source: Path, tmp_path: Path) -> None:
    relayout.convert(source, custom_ops={"Decode": "mine"}).save(tmp_path / "whole.onnx")
    with pytest.raises(ReadError, match="unresolved custom op: Decode"):
        relayout.verify(source, tmp_path / "whole.onnx")
