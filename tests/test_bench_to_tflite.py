"""`bench/to_tflite.py` without a peer: it converts, judges, counts, and writes its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import to_tflite_page
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

ROOT = Path(__file__).parents[1]
PIXELS = 6 * 5


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {name: value for name, value in os.environ.items() if name != "ONNX2TF_PYTHON"} | {"PYTHONPATH": path}


def answer(script: str, *arguments: str | Path) -> Any:
    command = [sys.executable, str(ROOT / "bench" / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def verdicts(source: Path, result: Path) -> Any:
    return json.loads(answer("judge_tflite.py", "judge", source, result))["results"][str(result)]


def converted(source: Path) -> Path:
    result = source.with_suffix(".tflite")
    command = [sys.executable, "-m", "relayout", "convert", str(source), str(result), "-q"]
    subprocess.run(command, check=True, env=environment())
    return result


def saved(path: Path, nodes: list[onnx.NodeProto], constants: dict[str, Any], **shapes: list[int]) -> Path:
    """Save a model whose last value is its output, the others its inputs."""
    *inputs, output = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in shapes.items()]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "small", inputs, [output], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def shuffle(path: Path, bias: float = 0.0) -> Path:
    """A convolution from 3 to 4 channels, then a Gather that permutes the channels."""
    weights = np.arange(12, dtype=np.float32).reshape(4, 3, 1, 1) / 12
    constants = {"w": weights, "b": np.full(4, bias, np.float32), "order": np.array([2, 0, 3, 1])}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"]),
        helper.make_node("Sigmoid", ["conv"], ["sigmoid"]),
        helper.make_node("Gather", ["sigmoid", "order"], ["y"], axis=1),
    ]
    return saved(path, nodes, constants, x=[1, 3, 6, 5], y=[1, 4, 6, 5])


def test_a_run_without_a_peer(tmp_path: Path) -> None:
    shuffle(tmp_path / "shuffle.onnx")
    page = tmp_path / "page.md"
    answer("to_tflite.py", "--out", tmp_path / "out", "--page", page, tmp_path / "shuffle.onnx")
    (model,) = json.loads((tmp_path / "out" / "to_tflite.json").read_text(encoding="utf-8"))["models"]
    assert model["quantized"] is False
    for row in model["tools"].values():
        assert {name: told["verdict"] for name, told in row["kernels"].items()} == {
            "default": "right",
            "reference": "right",
        }
        assert row["bytes"] >= row["lower_bound"]
    text = page.read_text(encoding="utf-8")
    assert "onnx2tf was not installed" in text
    assert str(tmp_path) not in text
    assert str(ROOT) not in text


def test_the_judge_counts_transposes_and_shuffles(tmp_path: Path) -> None:
    source = shuffle(tmp_path / "shuffle.onnx")
    found = verdicts(source, converted(source))
    assert found["moves"] == {"GATHER": 1, "TRANSPOSE": 2}
    assert found["bytes"] == (3 + 4 + 4) * PIXELS * 4
    assert found["kernels"]["default"]["verdict"] == "right"


def test_the_judge_sees_the_result_of_another_model(tmp_path: Path) -> None:
    result = converted(shuffle(tmp_path / "other.onnx", bias=-2.0))
    found = verdicts(shuffle(tmp_path / "shuffle.onnx"), result)
    assert {told["verdict"] for told in found["kernels"].values()} == {"wrong"}


@pytest.mark.parametrize(("axis", "moved"), [(1, 8 * 5 * 4), (0, 0)])
def test_the_judge_counts_short_runs_of_a_concatenation(tmp_path: Path, axis: int, moved: int) -> None:
    """Runs of 12 and 8 bytes take turns along the last axis; along the first there is one run each."""
    shapes = {"a": [8, 3], "b": [8, 2], "y": [8, 5]} if axis else {"a": [3, 8], "b": [2, 8], "y": [5, 8]}
    nodes = [helper.make_node("Concat", ["a", "b"], ["y"], axis=axis)]
    source = saved(tmp_path / "concat.onnx", nodes, {}, **shapes)
    assert verdicts(source, converted(source))["bytes"] == moved


def test_the_sentence_of_the_readme() -> None:
    tools = {
        to_tflite_page.CONVERT: {"bytes": 10, "ms": [1.0]},
        to_tflite_page.PEER: {"bytes": 40, "ms": [2.0]},
    }
    rest = {"operators": 1, "megabytes": 1, "processor": 1, "peak": 1}
    kernels = {"kernels": {kind: {"verdict": "right"} for kind in ("default", "reference")}}
    model = {"model": "m", "quantized": False, "tools": {name: row | rest | kernels for name, row in tools.items()}}
    readme = to_tflite_page.with_sentence(
        f"a\n{to_tflite_page.BEGIN}\nold\n{to_tflite_page.END}\nb", {"models": [model]}
    )
    assert "transpose 25 % of the bytes and run in 0.50 times the time (1 float models)" in readme
    assert readme.startswith("a\n")
    assert readme.endswith("\nb")
    assert "old" not in readme
    with pytest.raises(ValueError, match="no line between"):
        to_tflite_page.with_sentence("a", {"models": [model]})
