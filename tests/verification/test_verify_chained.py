"""Results of results: batches that were opened, fixed or changed in models whose layouts were changed before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import relayout as package
from relayout import RelayoutError
from relayout.formats.tflite.container.loading import load
from relayout.layout.stored_as import OPENED_BATCH, OpenedBatch
from small import build

CONV = ("y = Conv(x, w)", {"w": (4, 3, 1, 1)})


def conv(batch: str) -> onnx.ModelProto:
    """A convolution of images of 8 by 8."""
    return build(f"float[{batch},3,8,8] x", *CONV)


def saved(path: Path, source: Any, **options: Any) -> Path:
    """Convert into a file."""
    package.convert(source, format="tflite" if path.suffix == ".tflite" else "onnx", **options).save(path)
    return path


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
@pytest.mark.parametrize("layouts", [{"io": "NHWC"}, {"io": "convert"}, {"layouts": {"x": ("NCHW", "NHWC")}}])
def test_an_open_batch_is_fixed_to_one(tmp_path: Path, suffix: str, layouts: dict[str, Any]) -> None:
    path = saved(tmp_path / f"one.{suffix}", conv("batch"), dims={"batch": 1}, **layouts)
    assert package.verify(conv("batch"), path).ok


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
@pytest.mark.parametrize("first", ["onnx", "tflite"])
@pytest.mark.parametrize("batch", [4, "n"])
def test_another_batch_of_a_result(tmp_path: Path, first: str, suffix: str, batch: int | str) -> None:
    images = saved(tmp_path / f"images.{first}", conv("1"), io="NHWC")
    path = saved(tmp_path / f"rows.{suffix}", images, batch=batch)
    found = package.verify(images, path)
    assert found.ok
    rows = [row.name for row in found.outputs]
    assert rows == (["y at batch 4"] if batch == 4 else ["y", "y at batch 3", "y at batch 7"])


def test_a_result_is_opened_and_held_against_the_first_source(tmp_path: Path) -> None:
    images = saved(tmp_path / "images.onnx", conv("1"), io="NHWC")
    path = saved(tmp_path / "rows.onnx", images, batch=4)
    assert [row.name for row in package.verify(conv("1"), path).outputs] == ["y at batch 4"]
    assert package.verify(conv("1"), path).ok


def test_a_normalized_result_is_fixed(tmp_path: Path) -> None:
    pixels = saved(tmp_path / "pixels.tflite", conv("batch"), io="NHWC", normalize={"x": ([1, 2, 3], [4, 5, 6])})
    path = saved(tmp_path / "one.tflite", pixels, dims={"batch": 1})
    assert package.verify(pixels, path).ok


def test_where_only_one_extent_ran_is_said(tmp_path: Path) -> None:
    open_rows = conv("n")
    found = package.verify(conv("2"), open_rows)
    assert found.ok
    assert "input 'x' is open in the second model and fixed in the first: only the first's extents ran" in found.notes


def test_nothing_to_compare_is_no_success(tmp_path: Path) -> None:
    other = build("float[1,3,8,8] x", "z = Relu(x)", {})
    part = saved(tmp_path / "part.onnx", build("float[1,3,8,8] x", "h = Relu(x) y = Neg(h)", {}), outputs=["h"])
    kept = onnx.load(part)
    kept.graph.output[0].name = kept.graph.node[0].output[0] = "elsewhere"
    onnx.save(kept, part)
    found = package.verify(other, part)
    assert not found.ok
    assert found.verdict.startswith("NOT COMPARED: no output of ")
    assert not found.is_compared


def test_a_constant_is_no_output_of_a_part(tmp_path: Path) -> None:
    with pytest.raises(RelayoutError, match="--outputs w: it is a constant"):
        package.convert(conv("1"), outputs=["w"])
    path = saved(tmp_path / "m.tflite", conv("1"))
    weight = next(tensor.name for tensor in load(path).subgraphs[0].tensors if tensor.shape == (4, 1, 1, 3))
    with pytest.raises(RelayoutError, match="it is a constant"):
        package.convert(path, outputs=[weight])


def test_a_piece_of_a_joined_name_is_asked_about() -> None:
    source = Path(__file__).parents[2] / "models" / "tinynet_float.tflite"
    with pytest.raises(RelayoutError, match="did you mean 'tinynet_1/dense_2_1/MatMul;tinynet_1/dense_2_1/Relu;"):
        package.convert(source, outputs=["tinynet_1/dense_2_1/Relu"])


@pytest.mark.parametrize("outputs", [{"y": (9, 1)}, {"y": (0, 5)}, {"y": (0, 0)}])
def test_a_record_of_a_batch_that_does_not_fit_is_one_error(outputs: dict[str, tuple[int, int]]) -> None:
    rows = conv("n")
    kept = rows.metadata_props.add()
    kept.key, kept.value = OPENED_BATCH, OpenedBatch({"x": 0}, outputs).dump()
    with pytest.raises(RelayoutError, match="runs of the batch"):
        package.verify(conv("1"), rows)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"inputs": {"x": -1}, "outputs": {}}', '{"inputs": {"x": 7}, "outputs": {}}']
)
def test_a_record_that_says_nothing_is_passed_over(text: str) -> None:
    rows = conv("n")
    kept = rows.metadata_props.add()
    kept.key, kept.value = OPENED_BATCH, text
    found = package.verify(conv("1"), rows)
    assert found.ok
    assert any("is open in the second model" in note for note in found.notes)
