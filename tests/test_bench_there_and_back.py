"""`bench/there_and_back.py` without a peer: it converts, judges, and writes its page; its judge sees planted faults."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

import judge_back
import node_tests_page
import there_and_back_page
from added_operators import MOVED, REASONS, UNKNOWN, reason_of, reason_of_bytes
from comparing_runs import compared
from node_tests_peer import ways

from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.container.loading import load

ROOT = Path(__file__).parents[1]
INT8, FLOAT = (ROOT / "models" / f"tinynet_{kind}.tflite" for kind in ("int8", "float"))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, str]:
    """The findings of a run on two shipped models, a damaged one and an ONNX model, and its page."""
    folder = tmp_path_factory.mktemp("models")
    for path in (INT8, FLOAT):
        shutil.copy(path, folder)
    (folder / "damaged.tflite").write_bytes(b"no model")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3, 4, 5]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.save(model, folder / "relu.onnx")
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {name: value for name, value in os.environ.items() if name != "ONNX2TF_PYTHON"} | {"PYTHONPATH": path}
    out, script = folder / "out", str(ROOT / "bench" / "there_and_back.py")
    command = [sys.executable, script, f"shipped={folder}", "--out", str(out), "--page", str(out / "page.md")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    text = (out / "page.md").read_text(encoding="utf-8")
    assert str(folder) not in text
    assert str(ROOT) not in text
    return json.loads((out / "there_and_back.json").read_text(encoding="utf-8")), text


def test_shipped_models_come_back_exactly(found: tuple[Any, str]) -> None:
    rows = {each["model"]: each for each in found[0]["models"]}
    for name in ("tinynet_int8", "tinynet_float"):
        assert list(rows[name]["source"]["modes"]) == ["default", "reference"]
        for row in rows[name]["tools"].values():
            assert row["modes"] == {"default": "exact", "reference": "exact"}
            assert row["operators"] <= rows[name]["source"]["operators"]
            assert row["bytes"] <= rows[name]["source"]["bytes"]
            assert set(row["lost"]) <= {"tensor names"}
    assert rows["tinynet_int8"]["source"]["integer"]
    assert not rows["tinynet_float"]["source"]["integer"]
    assert "left_out" in rows["damaged"]
    assert rows["relu"]["back"]["equal"]


def test_the_page_says_what_was_found(found: tuple[Any, str]) -> None:
    text = found[1]
    assert "| all | through ONNX | 2 | 2 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "through ONNX: 1 of 1; at once: 1 of 1" in text
    assert "`shipped/damaged`" in text


def test_the_page_names_every_loss(found: tuple[Any, str]) -> None:
    known = json.loads(json.dumps(found[0]))
    row = next(each for each in known["models"] if each["model"] == "tinynet_int8")["tools"]["through ONNX"]
    row |= {"bytes": row["bytes"] + 1, "operators": row["operators"] + 1, "added": {"FLOOR": 1}, "lost": ["files"]}
    text = there_and_back_page.page(known)
    why = "no reason is known: none became FLOOR"
    assert f"through ONNX: more transposed bytes, {why} (1): `shipped/tinynet_int8 (6,720 to 6,721)`" in text
    assert f"| {UNKNOWN}" in text
    assert "| files behind the model | 1 of 2 | 0 of 2 |" in text
    row |= {"verdict": "wrong", "error": 0.5}
    assert "through ONNX: wrong: other numbers (1): `shipped/tinynet_int8`" in there_and_back_page.page(known)


def runs_of(path: Path, source: Path, folder: Path) -> dict[str, Any]:
    judge_back.run(str(source), str(path), "default", 0, str(folder / "outputs.npz"), loose=False)
    with np.load(folder / "outputs.npz") as arrays:
        return dict(arrays)


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(0, "exact"), (1, "right"), (3, "close"), (90, "wrong")],
)
def test_one_step_of_a_quantized_output_is_right_and_not_exact(change: int, verdict: str, tmp_path: Path) -> None:
    wanted = runs_of(INT8, INT8, tmp_path)
    other = dict(wanted)
    other["2.0"] = wanted["2.0"] - wanted["2.0"].dtype.type(change) * (wanted["2.0"] == wanted["2.0"].max())
    assert compared(wanted, other)["verdict"] == verdict
    assert compared(wanted, other, runs=2)["verdict"] == "exact"


def test_other_shapes_types_and_indices_are_wrong() -> None:
    nothing = np.zeros(2)
    wanted = {"0.0": np.arange(6, dtype=np.int32).reshape(2, 3), "scale.0": nothing}
    for other in (wanted["0.0"].T, wanted["0.0"] + 1, wanted["0.0"].astype(np.int64)):
        assert compared(wanted, {"0.0": other, "scale.0": nothing})["verdict"] == "wrong"
    assert compared(wanted, {"scale.0": nothing})["verdict"] == "wrong"
    image = {"0.0": np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4), "scale.0": nothing}
    for order in ((0, 3, 1, 2), (0, 2, 3, 1)):
        moved = {"0.0": image["0.0"].transpose(order), "scale.0": nothing}
        assert compared(image, moved)["verdict"] == "wrong"
        assert compared(image, moved, loose=True)["verdict"] == "right"
    moved["0.0"] = moved["0.0"] + 1
    assert compared(image, moved, loose=True)["verdict"] == "wrong"
    assert compared(wanted, {"0.0": wanted["0.0"].astype(np.int64), "scale.0": nothing}, loose=True)["error"] == 0


def test_a_name_a_type_and_a_buffer_that_differ_are_told() -> None:
    content = INT8.read_bytes()
    model = load(content)
    before = judge_back.named(model, content)
    (graph,), (signature,) = model.subgraphs, model.signatures
    place = graph.inputs[0]
    tensors = list(graph.tensors)
    tensors[place] = tensors[place].__class__(
        **{**tensors[place].__dict__, "name": "other", "signature": (-1, 24, 40, 3), "quantization": None}
    )
    changed = model._replace(
        subgraphs=(graph._replace(tensors=tuple(tensors)),),
        signatures=(signature._replace(key="other"),),
        metadata=(),
    )
    after = judge_back.named(changed, content)
    assert {kind for kind in before if before[kind] != after[kind]} == {
        "tensor names",
        "types",
        "open extents",
        "signatures",
        "metadata",
    }


def test_each_reason_speaks_of_operators_that_there_are() -> None:
    known = set(BUILTIN_OPERATORS)
    for reason in (*REASONS, *MOVED):
        assert reason.gone | reason.came
        assert reason.gone | reason.came | reason.beside <= known, reason.why
        assert reason.fits(dict.fromkeys(reason.gone, 1), dict.fromkeys(reason.came, 1))


@pytest.mark.parametrize(
    ("gone", "added", "why"),
    [
        ({}, {"RESHAPE": 2}, "which moves nothing"),
        ({}, {"RESHAPE": 2, "TRANSPOSE": 1}, "order of axes"),
        ({}, {"DEQUANTIZE": 1}, "dynamic range"),
        ({}, {"DEQUANTIZE": 1, "QUANTIZE": 1}, "computes with real numbers"),
        ({"SOFTMAX": 1}, {"GATHER": 3, "FLOOR": 1}, "a way of its own"),
        ({"CUSTOM TFLite_Detection_PostProcess": 1}, {"ADD": 9}, "custom in the file"),
        ({"ADD": 1}, {"FLOOR": 1}, UNKNOWN),
        ({}, {"DEQUANTIZE": 1, "RESHAPE": 2}, "a scale for each block"),
        ({}, {"DEQUANTIZE": 2, "QUANTIZE": 1, "RESHAPE": 2}, "computes with real numbers"),
        ({"CONCATENATION": 1}, {"PACK": 1, "RESHAPE": 1}, "the cell of a loop"),
        ({"STRIDED_SLICE": 1}, {"REVERSE_V2": 1, "RESHAPE": 2}, "backwards"),
    ],
)
def test_operators_that_came_and_went_have_a_reason(gone: dict[str, int], added: dict[str, int], why: str) -> None:
    assert why in reason_of(gone, added)


def test_more_transposed_bytes_have_a_reason() -> None:
    assert "spectrum" in reason_of_bytes({"RFFT2D": 1}, {"TRANSPOSE": 2})
    assert "shuffled" in reason_of_bytes({"TRANSPOSE": 1}, {"RESHAPE": 4})
    assert reason_of_bytes({}, {"TRANSPOSE": 1}) == reason_of({}, {"TRANSPOSE": 1})


def test_a_refusal_is_listed_by_operator_and_reason() -> None:
    error = "1 unsupported operator: Pow (powers of INT64) ×1 (first: z); --custom-op NAME writes an operator"
    tests = {"test_pow": ["refused", error], "test_add": ["right", ""], "test_x": ["other types", "float64"]}
    text = node_tests_page.page({"date": "", "versions": {}, "constants": True, "tests": tests})
    assert "| powers of INT64 | Pow | `pow` | 1 |" in text
    assert "| relayout, all tests | 2 | 1 | 0 | 1 | 0 | 0 | 0 | 50.0% |" in text
    assert "| float64 | 1 |" in text


def test_a_peer_may_have_channels_last() -> None:
    content = FLOAT.read_bytes()
    feed = {"image": np.ones((2, 3, 24, 40), np.float32)}
    right = []
    for run in ways(content, feed, [(2, 6)]):
        try:
            right.append(run()[0].shape)
        except (RuntimeError, ValueError):
            right.append(None)
    assert right == [(2, 6), (2, 6), None, None]
