"""The descriptions of a `.tflite`, in a `.tflite` again: at once and through ONNX, where it is still true."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter
from test_tflite_metadata import LABELS, appended, described, model

import relayout
from relayout.formats.archive import files
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.metadata import METADATA

WAYS = ("through ONNX", "at once")
BINARY = bytes(range(256)) + b"\0\0\0"
BUFFERS = {METADATA: described(), "CONVERSION_METADATA": BINARY, "note": "café".encode()}
FILES: dict[str, bytes | str] = {"labels.txt": LABELS, "model.bin": b"\xff\xfe\0"}


def back(source: bytes, folder: Path, way: str, **options: object) -> bytes:
    (folder / "source.tflite").write_bytes(source)
    if way == "at once":
        relayout.convert(folder / "source.tflite", format="tflite", **options).save(folder / "back.tflite")  # type: ignore[arg-type]
    else:
        relayout.convert(folder / "source.tflite", **options).save(folder / "there.onnx")  # type: ignore[arg-type]
        relayout.convert(folder / "there.onnx", format="tflite").save(folder / "back.tflite")
    return (folder / "back.tflite").read_bytes()


def buffers(content: bytes) -> dict[str, bytes]:
    return {name: np.asarray(raw).tobytes() for name, raw in load(content).metadata if raw is not None}


@pytest.mark.parametrize("way", WAYS)
def test_buffers_and_files_are_those_of_the_source(way: str, tmp_path: Path) -> None:
    result = back(appended(model(BUFFERS), FILES), tmp_path, way)
    found = buffers(result)
    assert {name: found[name] for name in BUFFERS} == BUFFERS
    assert files(result) == {"labels.txt": LABELS.encode(), "model.bin": b"\xff\xfe\0"}
    with zipfile.ZipFile(io.BytesIO(result)) as archive:  # as other readers find it
        assert archive.testzip() is None
        assert archive.read("labels.txt") == LABELS.encode()
    interpreter = Interpreter(model_content=result)
    assert [detail["name"] for detail in interpreter.get_input_details()] == ["x"]


@pytest.mark.parametrize("way", WAYS)
def test_what_is_not_true_of_a_result_is_left_out(way: str, tmp_path: Path) -> None:
    source = model({"OfflineMemoryAllocation": b"\1\0\0\0", "min_runtime_version": b"9.9.9", METADATA: described()})
    found = buffers(back(source, tmp_path, way))
    assert "OfflineMemoryAllocation" not in found
    assert found["min_runtime_version"].rstrip(b"\0") != b"9.9.9"
    turned = buffers(back(source, tmp_path, way, layouts={"x": ("NC", "CN")}))
    assert METADATA not in turned


def test_damaged_metadata_is_left_out(tmp_path: Path) -> None:
    relayout.convert(model({METADATA: described()})).save(tmp_path / "there.onnx")
    there = relayout.convert(tmp_path / "there.onnx").model
    key = "tflite.metadata.TFLITE_METADATA;base64"
    for text in ("nonsense", "AAAA", ""):
        there.metadata_props[key] = text
        found = buffers(relayout.convert(there, format="tflite").tflite)
        assert METADATA not in found


def test_equal_sources_give_equal_bytes(tmp_path: Path) -> None:
    source = appended(model(BUFFERS), FILES)
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
    for way in WAYS:
        assert back(source, first, way) == back(source, second, way)
