"""What is printed: names as they are, whatever they hold; in a pipe nothing is left out, in any encoding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import relayout as package

SOURCE, MODELS = Path(package.__file__).parents[1], Path(__file__).parents[1] / "models"
MARKUP, COMMANDS = "[/red]x[bold]", "\x1b[31mx\ty\nz\u202e"
EXIT = "import sys; from relayout import cli; cli.main()"


def network(path: Path, said: str) -> Path:
    """A model in which all that has a name is called `said`, or nearly."""
    nodes = [
        helper.make_node("Transpose", [f"{said}in"], ["a"], name=f"{said}1", perm=[0, 3, 1, 2]),
        helper.make_node("Strange", ["a"], [f"{said}b"], name=f"{said}2", domain=said, note=said),
        helper.make_node("LRN", [f"{said}b"], ["c"], name=f"{said}3", size=3),
        helper.make_node("Transpose", ["c"], [f"{said}out"], name=f"{said}4", perm=[0, 2, 3, 1]),
    ]
    ends = [helper.make_tensor_value_info(f"{said}{end}", TensorProto.FLOAT, [said, 6, 4, 8]) for end in ("in", "out")]
    values = [helper.make_tensor_value_info(f"{said}b", TensorProto.FLOAT, [said, 8, 6, 4])]
    graph = helper.make_graph(nodes, said, ends[:1], ends[1:], value_info=values)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(said, 1)]
    model = helper.make_model(graph, producer_name=said, doc_string=said, ir_version=10, opset_imports=opsets)
    onnx.save(model, path)
    return path


LINES = [
    "{}",
    "explain {} --what-if",
    "explain {} --layout nothing=NHWC:NCHW",
    "convert {} o.onnx --to NHWC",
    "convert {} --out-dir d",
    "optimize {} o.onnx --verify",
    "diff {} {}",
    "reduce {} o.onnx --still transpose",
    "verify {} {}",
]


@pytest.mark.parametrize("said", [MARKUP, COMMANDS], ids=["markup", "commands"])
@pytest.mark.parametrize("line", LINES)
def test_names_are_shown_and_do_nothing(
    relayout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    said: str,  # type: ignore[no-untyped-def]
) -> None:
    monkeypatch.chdir(tmp_path)
    network(tmp_path / "m.onnx", said)
    ran = relayout(*line.format("m.onnx", "m.onnx").split())
    assert "Traceback" not in ran.err
    assert set(ran.out + ran.err) & set("\x1b\t\u202e\r") == set()
    if ran.code == 2:
        assert ran.err.count("\n") == 1
    else:
        assert ran.code == 0
    if line.startswith(("{}", "explain {} --what", "convert {} o")) and said == MARKUP:
        assert MARKUP in ran.out


def test_a_report_prints_names_of_any_kind(tmp_path: Path) -> None:
    report = package.explain(network(tmp_path / "m.onnx", MARKUP))
    assert f"{MARKUP}in" in str(report)


def piped(*line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-c", EXIT, *line],
        capture_output=True,
        env={"PYTHONPATH": str(SOURCE), **environment},
        timeout=300,
        check=False,
    )


def test_in_a_pipe_each_operator_is_one_line() -> None:
    lines = piped("ops", "--tflite").stdout.decode().splitlines()
    (found,) = (line for line in lines if line.startswith("UNIDIRECTIONAL_SEQUENCE_LSTM "))
    assert "float32" in found
    assert found == found.rstrip()
    rows = json.loads(piped("ops", "--tflite", "--json").stdout)
    assert rows.pop("schema") == 1
    assert len(lines) == sum(map(len, rows.values())) + 2 * len(rows)  # with titles and headings


@pytest.mark.parametrize("verb", ["convert", "info"])
def test_a_pipe_gets_what_a_wide_terminal_shows(verb: str, tmp_path: Path) -> None:
    line = [verb, str(MODELS / "tinynet_int8.tflite"), *([str(tmp_path / "out.onnx")] if verb == "convert" else [])]
    plain, wide = (piped(*line, **columns).stdout.decode().splitlines() for columns in ({}, {"COLUMNS": "1000"}))
    timed = "read 0."
    assert [row for row in plain if timed not in row] == [row.rstrip() for row in wide if timed not in row]
    assert len(plain) > 5


def test_in_a_pipe_each_model_is_one_line(tmp_path: Path) -> None:
    said = piped("convert", "nothing.tflite", "this is no model.onnx", "--out-dir", str(tmp_path))
    assert said.returncode == 2
    rows = said.stdout.decode().splitlines()
    assert [row.split("  ")[0] for row in rows[1:-1]] == ["nothing.tflite", "this is no model.onnx"]


def test_numbers_are_not_cut(tmp_path: Path) -> None:
    source = MODELS / "tinynet_float.tflite"
    package.convert(source, outputs=["tinynet_1/add_1_1/Add"]).save(tmp_path / "part.onnx")
    ran = piped("verify", str(source), str(tmp_path / "part.onnx"), COLUMNS="80")
    assert ran.returncode == 0
    (row,) = (line for line in ran.stdout.decode().splitlines() if line.lstrip().startswith("tinynet"))
    assert "e-0" in row
    assert "agrees" in row


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
@pytest.mark.sampled(every=2)
def test_any_encoding_will_do(tmp_path: Path, encoding: str) -> None:
    source = str(MODELS / "tinynet_int8.tflite")
    ran = piped("convert", source, "--out-dir", str(tmp_path), PYTHONIOENCODING=encoding)
    assert (ran.returncode, ran.stderr) == (0, b"")
    page = piped("explain", source, "--html", "-", PYTHONIOENCODING=encoding)
    assert page.returncode == 0
    assert page.stdout == piped("explain", source, "--html", "-").stdout


def test_streams_may_be_closed() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.stderr = None; {EXIT}", "info", "nothing.onnx"],
        env={"PYTHONPATH": str(SOURCE)},
        check=False,
    )
    assert ran.returncode == 2


def test_a_reader_that_has_read_enough_is_no_failed_verification() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        ran = subprocess.run(
            [sys.executable, "-c", EXIT, "ops"],
            stdout=unread,
            stderr=subprocess.PIPE,
            env={"PYTHONPATH": str(SOURCE)},
            timeout=300,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (141, b"")
