"""Paths that are no text: a file system has bytes for names, and not all of them are UTF-8."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

Run = Callable[..., Any]
INT8 = Path(__file__).parents[1] / "models" / "tinynet_int8.tflite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory, and in it a model, with such names."""
    found = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        found.mkdir()
    except OSError:
        pytest.skip("the file system takes UTF-8 only")
    shutil.copy(INT8, found / os.fsdecode(b"m\xff.tflite"))
    return found


def test_every_verb_takes_such_paths(relayout: Run, folder: Path) -> None:
    def named(ending: str) -> Path:
        return folder / os.fsdecode(b"n\xfe" + ending.encode())

    source, second, made, page = (folder / os.fsdecode(b"m\xff.tflite"), *map(named, (".tflite", ".onnx", ".html")))
    shutil.copy(source, second)
    np.save(named(".npy"), np.zeros((2, 24, 40, 3), np.int8))
    named(".toml").write_text("[operators]\nConv = ['NHWC']\n")
    for line in (
        ("info", source),
        ("convert", source, made, "--verify", "--plan", named(".json"), "--html", page),
        ("convert", source, made, "--verify", "--input", f"image={named('.npy')}", "--model-explorer", named("e.json")),
        ("optimize", made, named("o.onnx"), "--verify"),
        ("explain", made, "--html", page),
        ("check", named(".json"), source),
        ("verify", source, made),
        ("verify", made, made, "--json"),
        ("diff", source, made, "--html", page),
        ("reduce", made, named("r.onnx"), "--still", "transpose"),
        ("convert", source, made, "--desired-layouts", named(".toml"), "-q"),
        ("convert", source, made, "--target", "xnnpack", "--parts", named("parts")),
        ("convert", source, second, "--out-dir", named("out"), "--verify"),
    ):
        ran = relayout(*line)
        assert (ran.code, ran.err) == (0, ""), line[0]
    assert page.is_file()
    assert (named("out") / os.fsdecode(b"m\xff.onnx")).is_file()


def test_a_difference_is_found_and_reproduced_there(relayout: Run, folder: Path) -> None:
    source = folder / os.fsdecode(b"m\xff.tflite")
    one, other = (folder / os.fsdecode(name) for name in (b"1\xff.onnx", b"2\xff.onnx"))
    relayout("convert", source, one, "-q")
    model = onnx.load(one)
    kernel = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    kernel.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(kernel)[::-1].copy(), kernel.name))
    onnx.save(model, other)
    assert relayout("verify", source, other).code == 1
    ran = relayout("verify", one, other, "--repro", folder / os.fsdecode(b"r\xff"))
    assert (ran.code, "Traceback" in ran.err) == (1, False)
    assert (folder / os.fsdecode(b"r\xff")).is_dir()


def test_a_data_file_is_named_in_a_model_which_takes_text_only(relayout: Run, folder: Path) -> None:
    source, bad, good = (folder / os.fsdecode(name) for name in (b"m\xff.tflite", b"x\xff.onnx", b"x.onnx"))
    before = sorted(folder.iterdir())
    ran = relayout("convert", source, bad, "--external-data")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "its data file's name is no UTF-8; give the model another" in ran.err
    assert sorted(folder.iterdir()) == before
    assert relayout("convert", source, good, "--external-data", "-q").code == 0
    found = relayout("verify", source, good, "--json")
    assert json.loads(found.out)["ok"] is True
