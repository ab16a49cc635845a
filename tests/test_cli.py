"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from conftest import SHARED

MODELS = Path(__file__).parents[1] / "models"
FLOAT, INT8 = MODELS / "tinynet_float.tflite", MODELS / "tinynet_int8.tflite"


def test_convert_writes_a_valid_model_and_reports_the_proof(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = relayout("convert", FLOAT, tmp_path / "a.onnx")
    assert ran.code == 0
    assert "proved minimal" in ran.out
    assert "you keep input image in NHWC" in ran.out
    onnx.checker.check_model(str(tmp_path / "a.onnx"), full_check=True)
    assert ran.err == ""


def test_json_is_all_that_is_printed(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = relayout("convert", INT8, tmp_path / "a.onnx", "--json", "--verify", "--io", "convert")
    data = json.loads(ran.out)
    assert (data["transposes"], data["bytes"], data["lower_bound"], data["proved"]) == (0, 0, 0, True)
    assert data["interface"][0]["layout"] == "n h w c -> n c h w"
    assert data["verification"]["ok"] is True
    assert json.loads(relayout("explain", tmp_path / "a.onnx", "--json").out)["proved"]


def test_a_quantized_model_becomes_a_float_one_when_asked(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for quant, quantized in (("qdq", True), ("float", False)):
        ran = relayout("convert", INT8, tmp_path / "a.onnx", "--quant", quant, "-q")
        assert ran.code == 0
        types = {node.op_type for node in onnx.load(tmp_path / "a.onnx").graph.node}
        assert ("QuantizeLinear" in types) is quantized
    assert relayout("convert", INT8, tmp_path / "a.onnx", "--quant", "int8").code == 2


def test_the_last_line_names_the_target_that_helps_a_quantized_model(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    made, hint = tmp_path / "a.onnx", "add --target onnxruntime-cpu"

    def last(*line: object) -> str:
        return " ".join(relayout(*line).out.splitlines()[-3:])

    assert hint in last("convert", INT8, made, "--verify")
    assert hint in last("optimize", made, tmp_path / "b.onnx")
    assert hint in last("explain", INT8)
    assert hint in last("convert", INT8, FLOAT, "--out-dir", tmp_path / "all")
    assert hint in json.loads(relayout("explain", INT8, "--json").out)["hint"]
    for line in (
        (FLOAT,),
        (INT8, "--target", "onnxruntime-cpu"),
        (INT8, "--target", "none"),
        (INT8, "--quant", "float"),
    ):
        assert hint not in relayout("convert", *line[:1], tmp_path / "c.onnx", *line[1:]).out
    relayout("convert", INT8, made, "--target", "onnxruntime-cpu")
    assert hint not in relayout("optimize", made, tmp_path / "b.onnx").out


def test_quiet_prints_nothing(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    made, plan, page = tmp_path / "a.onnx", tmp_path / "plan.json", tmp_path / "a.html"
    for line in (
        ("convert", FLOAT, made, "--plan", plan),
        ("optimize", made, tmp_path / "b.onnx"),
        ("explain", FLOAT, "--html", page),
        ("diff", FLOAT, made, "--html", page),
        ("check", plan, FLOAT),
        ("verify", FLOAT, made),
        ("reduce", made, tmp_path / "small.onnx", "--still", "transpose"),
    ):
        ran = relayout(*line, "--quiet")
        assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert all(path.is_file() for path in (made, plan, page, tmp_path / "small.onnx"))


def test_a_part_goes_where_other_verbs_write(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    made, small, optional = tmp_path / "a.onnx", tmp_path / "small.onnx", tmp_path / "optional.onnx"
    relayout("convert", FLOAT, made, "-q")
    still = ("--still", "transpose")
    assert relayout("reduce", made, small, *still).out.endswith(f"none can be left out: {small}\n")
    assert relayout("reduce", made, "-o", optional, *still).code == 0
    assert optional.read_bytes() == small.read_bytes()
    piped = subprocess.run(
        [sys.executable, "-m", "relayout", "reduce", made, "-", *still], capture_output=True, check=True
    )
    assert piped.stdout == small.read_bytes()
    assert piped.stderr.endswith(b"none can be left out\n")
    assert relayout("reduce", made, made, *still, "--overwrite", "--external-data", "-q").code == 0
    assert len(onnx.load(made).graph.node) == len(onnx.load(small).graph.node)


def test_verification_that_fails_is_exit_code_1(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    relayout("convert", FLOAT, tmp_path / "good.onnx", "--quiet")
    assert relayout("verify", FLOAT, tmp_path / "good.onnx").code == 0
    model = onnx.load(tmp_path / "good.onnx")
    kernel = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weights = onnx.numpy_helper.to_array(kernel).copy()
    weights.reshape(-1)[::3] += np.float32(0.5)
    kernel.CopyFrom(onnx.numpy_helper.from_array(weights, kernel.name))
    onnx.save(model, tmp_path / "bad.onnx")
    assert relayout("verify", FLOAT, tmp_path / "bad.onnx").code == 1


@pytest.mark.parametrize("flags", [[], ["--json"], ["-q"]])
def test_more_bytes_than_allowed_are_exit_code_1(relayout, flags: list[str], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "o.onnx"
    left = json.loads(relayout("explain", INT8, "--json").out)["bytes"]
    assert left > 0
    for command in (["explain", INT8], ["convert", INT8, target]):
        assert relayout(*command, *flags, "--max-bytes", left).code == 0
        ran = relayout(*command, *flags, "--max-bytes", left - 1)
        assert ran.code == 1
        assert f"{left:,} bytes stay transposed, --max-bytes allows {left - 1:,}" in ran.err
    assert target.exists()
    assert relayout("explain", INT8, "--max-bytes", 10**12).code == 0
    many = relayout("convert", INT8, "--out-dir", tmp_path / "all", "--io", "convert", *flags, "--max-bytes", 0)
    assert many.code == 0
    many = relayout("convert", INT8, "--out-dir", tmp_path / "all", *flags, "--max-bytes", 0)
    assert many.code == 1
    assert "--max-bytes allows 0" in (many.err if "-q" in flags else many.out)


def test_inputs_are_read_from_files(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 24, 40, 3), np.float32))
    ran = relayout(
        "convert", FLOAT, tmp_path / "a.onnx", "--verify", "--input", f"image={tmp_path / 'x.npy'}", "--json"
    )
    assert ran.code == 0, ran.err
    assert "random" not in json.dumps(json.loads(ran.out)["verification"]["inputs"])
    np.save(tmp_path / "x.npy", np.zeros((3, 3), np.float32))
    refused = relayout("verify", FLOAT, FLOAT, "--input", f"image={tmp_path / 'x.npy'}")
    assert refused.code == 2


def test_optimize_explain_plan_and_check(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    relayout("convert", FLOAT, tmp_path / "a.onnx", "--quiet", "--plan", tmp_path / "plan.json", "--what-if")
    ran = relayout("check", tmp_path / "plan.json", FLOAT)
    assert (ran.code, "proved minimal" in ran.out) == (0, True)
    stated = json.loads((tmp_path / "plan.json").read_text()) | {"bytes": 1}
    (tmp_path / "misstated.json").write_text(json.dumps(stated))
    ran = relayout("check", tmp_path / "misstated.json", FLOAT)
    assert (ran.code, "misstated: bytes: the plan states 1, counted are 23,040" in ran.out) == (1, True)
    ran = relayout("check", tmp_path / "misstated.json", FLOAT, "--json")
    assert json.loads(ran.out)["misstated"] == [{"figure": "bytes", "stated": 1, "counted": 23040}]
    again = relayout("optimize", tmp_path / "a.onnx", tmp_path / "b.onnx", "--json")
    assert json.loads(again.out)["transposes"] == 1
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert "without the demand of input image" in relayout("explain", FLOAT, "--what-if").out
    relayout("explain", FLOAT, "--plan", tmp_path / "explained.json", "--quiet")
    assert relayout("check", tmp_path / "explained.json", FLOAT).code == 0
    wrong = relayout("check", tmp_path / "plan.json", INT8)
    assert wrong.code == 2
    assert "another model" in wrong.err


def test_optimize_for_a_runtime(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    relayout("convert", INT8, tmp_path / "a.onnx", "--quiet")
    aim = ("--target", "onnxruntime-cpu", "--quiet")
    for verb in ("convert", "optimize"):
        assert relayout(verb, tmp_path / "a.onnx", tmp_path / f"{verb}.onnx", *aim).code == 0
    made = (tmp_path / "optimize.onnx").read_bytes()
    assert b"com.microsoft" in made
    assert made == (tmp_path / "convert.onnx").read_bytes()
    refused = relayout("optimize", tmp_path / "a.onnx", tmp_path / "b.onnx", "--target", "no-such")
    assert (refused.code, (tmp_path / "b.onnx").exists()) == (2, False)


def test_ops_lists_both_registries(relayout) -> None:  # type: ignore[no-untyped-def]
    tables = json.loads(relayout("ops", "--json").out)
    assert {"operator": "Conv"}.items() <= next(row for row in tables["onnx"] if row["operator"] == "Conv").items()
    assert any(row["operator"] == "DEPTHWISE_CONV_2D" for row in tables["tflite"])
    assert "layout-sensitive" in relayout("ops").out


def test_layouts_and_dims(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    ran = relayout("convert", FLOAT, tmp_path / "a.onnx", "--layout", "image=NHWC:NCHW", "--json")
    assert json.loads(ran.out)["interface"][0]["shape"] == [2, 3, 24, 40]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("convert", "nothing.tflite", "out.onnx"), "does not exist"),
        (("convert", "README.md", "out.onnx"), "ONNX"),
        (("convert", FLOAT, "out.onnx", "--layout", "image=NHWC"), "SRC:DST"),
        (("convert", FLOAT, "out.onnx", "--layout", "image=NHWC:NCHX"), "reordering"),
        (("convert", FLOAT, "out.onnx", "--layout", "no=NHWC:NCHW"), "no tensor of that name"),
        (("convert", FLOAT, "out.onnx", "--dim", "batch=x y"), "number"),
        (("convert", FLOAT, "out.onnx", "--dim", "batch=2"), "no dimension of that name"),
        (("convert", FLOAT, "missing/out.onnx"), "missing"),
        (("convert", FLOAT, "out.onnx", "--plan", "missing/plan.json"), "missing"),
        (("convert", FLOAT, "out.onnx", "--opset", "3"), "opset"),
        (("convrt", FLOAT, "out.onnx"), "Did you mean"),
        (("verify", FLOAT, "nothing.onnx"), "nothing.onnx"),
    ],
)
def test_what_is_refused_says_why_in_one_line_and_writes_nothing(  # type: ignore[no-untyped-def]
    relayout, arguments: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text("# not a model\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    ran = relayout(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err + ran.out
    assert len([line for line in ran.err.splitlines() if line.startswith(("relayout:", "Error:"))]) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared models are not beside the project")
def test_a_custom_operator_is_carried_over_when_asked(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = SHARED / "coral" / "posenet_mobilenet_v1_075_353_481_16_quant_decoder.tflite"
    refused = relayout("convert", source, tmp_path / "a.onnx")
    assert (refused.code, "PosenetDecoderOp" in refused.err) == (2, True)
    assert not (tmp_path / "a.onnx").exists()
    ran = relayout("convert", source, tmp_path / "a.onnx", "--custom-op", "PosenetDecoderOp=coral", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["operators"]["coral:PosenetDecoderOp"] == 1
    unknown = relayout("convert", FLOAT, tmp_path / "b.onnx", "--signature", "nothing")
    assert (unknown.code, "nothing" in unknown.err) == (2, True)
