"""Two models side by side: who is slower is told, in whatever order they come; what cannot run is one error."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import relayout
from relayout.errors import ReadError
from relayout.verification import benching, runtime_server, runtimes
from relayout.verification.benching import bench
from text_form import floats, model

ROOT = Path(__file__).parents[2]
DYNAMIC = ROOT / "models" / "tinynet_dynamic.tflite"


def product(folder: Path, size: int) -> Path:
    """Products of square matrices."""
    source = model(
        f"g (float[{size},{size}] x) => (float[{size},{size}] y) {{ y = MatMul(x, w) }}", w=floats(size, size)
    )
    onnx.save(source, folder / f"{size}.onnx")
    return folder / f"{size}.onnx"


def test_the_slower_one_is_told_in_any_order(tmp_path: Path) -> None:
    """A product of a thousand times the work: no machine is noisy enough to hide it."""
    small, large = product(tmp_path, 32), product(tmp_path, 512)
    told = bench(small, large, seconds=0.3)
    back = bench(large, small, seconds=0.3)
    assert told.ratio > 3 > 1 / 3 > back.ratio
    assert told.low <= told.ratio <= told.high
    assert told.b.milliseconds > told.a.milliseconds
    assert "takes" in str(told)
    assert json.loads(json.dumps(told.to_dict()))["a"]["model"] == str(small)


def test_the_first_of_a_turn_alternates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    plain = benching._Model.time

    def noted(self: benching._Model) -> float:
        order.append(self.path.name)
        return plain(self)

    monkeypatch.setattr(benching._Model, "time", noted)
    bench(product(tmp_path, 8), product(tmp_path, 16), seconds=0.2)
    turns = [tuple(order[place : place + 2]) for place in range(2, len(order), 2)]
    assert turns[:4] == 2 * [("16.onnx", "8.onnx"), ("8.onnx", "16.onnx")]


def test_each_model_runs_in_its_own_runtime_with_open_extents(tmp_path: Path) -> None:
    relayout.convert(DYNAMIC).save(tmp_path / "a.onnx")
    told = bench(DYNAMIC, tmp_path / "a.onnx", seconds=0.2, threads=2)
    assert [told.a.runtime.split()[0], told.b.runtime.split()[0]] == ["LiteRT", "ONNX"]
    assert told.threads == 2


def test_it_takes_what_other_verbs_take(tmp_path: Path) -> None:
    """A model in a bundle, a file in ONNX Runtime's format under another ending, and a path that is no text."""
    with zipfile.ZipFile(tmp_path / "m.task", "w") as bundle:
        bundle.writestr("inner.tflite", DYNAMIC.read_bytes())
    assert bench(tmp_path / "m.task" / "inner.tflite", DYNAMIC, seconds=0.1).ratio > 0
    plain = product(tmp_path, 8)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "own.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
    (tmp_path / "own.ort").rename(tmp_path / "own.onnx")
    unspelt = tmp_path / os.fsdecode(b"\xff.onnx")
    unspelt.write_bytes(plain.read_bytes())
    assert bench(tmp_path / "own.onnx", unspelt, seconds=0.1).ratio > 0


def test_an_input_is_fed(tmp_path: Path) -> None:
    path = product(tmp_path, 8)
    assert bench(path, path, seconds=0.1, inputs={"x": np.ones((8, 8), np.float32)}).ratio > 0
    with pytest.raises(relayout.RelayoutError, match="shape"):
        bench(path, path, seconds=0.1, inputs={"x": np.ones((8, 9), np.float32)})
    with pytest.raises(relayout.RelayoutError, match="no input of the two models is called 'X'; did you mean 'x'"):
        bench(path, path, seconds=0.1, inputs={"X": np.ones((8, 8), np.float32)})


def test_both_models_are_prepared_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads, the numbers that are fed, and the extents that the first one drew."""
    prepared: list[tuple[int, dict[str, np.ndarray]]] = []  # type: ignore[type-arg]
    plain = runtimes.asked

    def noted(kind: str, number: int, *given: Any) -> Any:
        if kind == "prepared":
            prepared.append((given[2], given[3]))
        return plain(kind, number, *given)

    monkeypatch.setattr(runtimes, "asked", noted)
    fed = product(tmp_path, 8)
    bench(fed, fed, seconds=0.1, threads=2, inputs={"x": np.ones((8, 8), np.float32)})
    assert [threads for threads, _ in prepared] == [2, 2]
    assert all((feeds["x"] == 1).all() for _, feeds in prepared)
    prepared.clear()
    text = "g (float[n,3] x) => (float[n,3] y) { y = Relu(x) }"
    onnx.save(model(text), tmp_path / "open.onnx")
    monkeypatch.setattr(benching, "EXTENTS_TRIED", ((1, 1, 5), (1, 1, 5)))
    (first, second) = tmp_path / "fixed.onnx", tmp_path / "open.onnx"
    onnx.save(model(text), first)
    bench(first, second, seconds=0.1)
    assert prepared[0][1]["x"].shape == prepared[1][1]["x"].shape


def test_the_runtime_gets_the_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    plain = onnxruntime.InferenceSession

    def noted(source: str, options: Any, **more: Any) -> Any:
        counts.append(options.intra_op_num_threads)
        return plain(source, options, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", noted)
    runtime_server._prepared(0, "onnxruntime", str(product(tmp_path, 8)), 2, {"x": np.ones((8, 8), np.float32)})
    assert counts == [2]


def test_what_cannot_run_is_one_error(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Unknown", ["x"], ["y"], domain="acme")],
        "g",
        [helper.make_tensor_value_info("x", 1, [1])],
        [helper.make_tensor_value_info("y", 1, [1])],
    )
    unknown = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)])
    onnx.save(unknown, tmp_path / "unknown.onnx")
    with pytest.raises(ReadError, match=r"unknown\.onnx"):
        bench(product(tmp_path, 8), tmp_path / "unknown.onnx", seconds=0.1)


def test_the_command_prints_a_line_and_json(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = product(tmp_path, 8)
    ran = relayout("bench", path, path, "--seconds", "0.1")
    assert ran.code == 0
    assert ran.out.startswith("8.onnx takes ")
    assert json.loads(relayout("bench", path, path, "--seconds", "0.1", "--json").out)["schema"] == 1
