"""A result that is named behind the source replaces no original: where both are `.tflite`, or the order looks wrong."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from relayout.formats.recognition import is_own_result

MODELS = Path(__file__).parents[1] / "models"

NETWORK = """
<ir_version: 10, opset_import: ["" : 20], producer_name: "pytorch">
network (float[1, 3, 8, 6] x) => (float[1, 8, 6, 3] y)
{ a = Transpose <perm = [0, 2, 3, 1]> (x)
  b = Transpose <perm = [0, 3, 1, 2]> (a)
  c = Relu (b)
  y = Transpose <perm = [0, 2, 3, 1]> (c) }
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with models of somebody's own."""
    shutil.copy(MODELS / "tinynet_float.tflite", tmp_path / "a.tflite")
    shutil.copy(MODELS / "tinynet_int8.tflite", tmp_path / "b.tflite")
    onnx.save(onnx.parser.parse_model(NETWORK), tmp_path / "a.onnx")
    onnx.save(onnx.parser.parse_model(NETWORK.replace("Relu", "Abs")), tmp_path / "b.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("verb", ["convert", "optimize", "reduce --still transpose"])
@pytest.mark.parametrize("ends", ["a.tflite b.onnx", "a.onnx b.tflite", "a.tflite b.tflite", "a.onnx b.onnx"])
def test_an_original_is_not_replaced(relayout: Callable[..., Any], place: Path, verb: str, ends: str) -> None:
    """The source is a result, but for a `.tflite` behind another: the two may be in the wrong order."""
    source, target = ends.split()
    if verb != "convert" and ends != "a.onnx b.onnx":
        pytest.skip("this verb makes ONNX of ONNX")
    if ends != "a.tflite b.tflite":
        before = (place / target).read_bytes()
        assert relayout(*verb.split(), source, target).code == 0  # a source of the user's: nothing is in doubt
        (place / target).write_bytes(before)
        assert relayout("convert", source, "-o", f"made{Path(source).suffix}").code == 0
        source = f"made{Path(source).suffix}"
    before = (place / target).read_bytes()
    refused = relayout(*verb.split(), source, target)
    assert refused.code == 2
    assert f"{target} is there already, and relayout did not write it: -o {target} replaces it" in refused.err
    assert (place / target).read_bytes() == before
    for option in (["-o", target], [target, "--overwrite"]):
        (place / target).write_bytes(before)
        assert relayout(*verb.split(), source, *option).code == 0
        assert (place / target).read_bytes() != before
        assert is_own_result(place / target)
    assert relayout(*verb.split(), source, target).code == 0  # what relayout wrote


def test_a_copy_of_the_source_and_an_empty_file_are_replaced(relayout: Callable[..., Any], place: Path) -> None:
    least = NETWORK.split("{")[0] + "{ y = Transpose <perm = [0, 2, 3, 1]> (x) }"
    onnx.save(onnx.parser.parse_model(least), "least.onnx")
    (place / "empty.onnx").touch()
    for target in ("copy.onnx", "copy.onnx", "empty.onnx"):
        assert relayout("optimize", "least.onnx", target).code == 0
    assert (place / "copy.onnx").read_bytes() == (place / "least.onnx").read_bytes()


@pytest.mark.parametrize("name", ["a.tflite", "a.onnx"])
def test_a_result_in_the_place_of_its_source_is_one_error(relayout: Callable[..., Any], place: Path, name: str) -> None:
    refused = relayout("convert", name, name)
    assert refused.code == 2
    assert "would be replaced by its own result" in refused.err
    assert "-o" not in refused.err.split()


def test_of_a_large_file_little_is_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from relayout.formats.stored import StoredFile

    read: list[int] = []
    reading = StoredFile.read
    monkeypatch.setattr(StoredFile, "read", lambda file, at, length: read.append(length) or reading(file, at, length))
    model = onnx.parser.parse_model(NETWORK)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1 << 20, np.float32), "w"))
    model.metadata_props.add(key="relayout.source_format", value="onnx")
    onnx.save(model, "large.onnx")
    assert is_own_result(Path("large.onnx"))
    assert sum(read) < 1 << 18
    assert not is_own_result(Path("a.tflite"))
    Path("noise.onnx").write_bytes(bytes(range(256)) * 9)
    assert not is_own_result(Path("noise.onnx"))
