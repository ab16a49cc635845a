"""There and back again changes nothing more: the third file is, byte for byte, the second, names included."""

from __future__ import annotations

from pathlib import Path

import pytest

import relayout
from relayout.formats.tflite.container.loading import load

MODELS = sorted((Path(__file__).parents[3] / "models").glob("*.tflite"))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_the_third_file_is_the_second(model: Path, tmp_path: Path) -> None:
    files, source = [], model
    for number in range(3):
        relayout.convert(source).save(tmp_path / f"{number}.onnx")
        source = tmp_path / f"{number}.tflite"
        relayout.convert(tmp_path / f"{number}.onnx", format="tflite").save(source)
        files.append(source.read_bytes())
    assert files[2] == files[1]
    names = [tensor.name for tensor in load(files[2]).subgraphs[0].tensors]
    assert not [name for name in names if name.count("/as_in_file") > 1 or name.count("/builtin") > 1]


def test_values_are_still_compared_by_the_names_of_the_file(tmp_path: Path) -> None:
    """The metadata has the file's name of a value where that is another one."""
    (model,) = (path for path in MODELS if path.stem == "tinynet_dynamic")
    relayout.convert(model).save(tmp_path / "a.onnx")
    relayout.convert(tmp_path / "a.onnx", format="tflite").save(tmp_path / "b.tflite")
    relayout.convert(tmp_path / "b.tflite").save(tmp_path / "c.onnx")
    assert relayout.verify(tmp_path / "b.tflite", tmp_path / "c.onnx").ok
