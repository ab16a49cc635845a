"""The command line as people use it: many models, a file alone, pipes, terminals, completion, help."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout as package
from relayout.cli import many, running

SOURCE = Path(package.__file__).parents[1]
MODELS = Path(__file__).parents[1] / "models"
FLOAT, INT8 = MODELS / "tinynet_float.tflite", MODELS / "tinynet_int8.tflite"


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The program as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "relayout", *map(str, arguments)],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "200"} | environment,
        timeout=300,
    )


# Many models.


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Two models, a damaged one, and something else."""
    folder = tmp_path / "in"
    folder.mkdir()
    shutil.copy(FLOAT, folder / "a.tflite")
    shutil.copy(INT8, folder / "b.tflite")
    (folder / "broken.tflite").write_bytes(INT8.read_bytes()[:5000])
    (folder / "text.onnx").write_text("no model")
    return folder


@pytest.mark.parametrize("jobs", [1, 2])
def test_one_failure_never_stops_the_rest(relayout, several: Path, tmp_path: Path, jobs: int) -> None:  # type: ignore[no-untyped-def]
    files = sorted(several.iterdir())
    ran = relayout("convert", *files, "--out-dir", tmp_path / "out", "--jobs", jobs, "--verify")
    assert ran.code == 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.onnx", "b.onnx"]
    rows = [line for line in ran.out.splitlines() if re.match(r"\w+\.(tflite|onnx) ", line)]
    assert [row.split()[0] for row in rows] == ["a.tflite", "b.tflite", "broken.tflite", "text.onnx"]
    assert ["proved minimal" in row for row in rows] == [True, True, False, False]
    assert ["agrees" in row for row in rows] == [True, True, False, False]
    assert "61,440 → 5,760" in rows[1]
    assert "4 models: 2 done, 0 differ, 2 refused" in ran.out
    assert ran.err == ""


def test_many_as_json_and_their_exit_codes(relayout, several: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    good = [several / "a.tflite", several / "b.tflite"]
    ran = relayout("convert", *good, "--out-dir", tmp_path / "out", "--json")
    assert ran.code == 0
    rows = json.loads(ran.out)["models"]
    assert [(row["code"], row["bytes"][1], row["verified"]) for row in rows] == [(0, 23040, None), (0, 5760, None)]
    ran = relayout("optimize", tmp_path / "out" / "a.onnx", "--out-dir", tmp_path / "again", "-q")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert (tmp_path / "again" / "a.onnx").is_file()
    ran = relayout("convert", *good, several / "text.onnx", "--out-dir", tmp_path / "out", "-q")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("relayout: ")


@dataclass
class Found:
    """As much of a verification's report as a row needs."""

    ok: bool
    b: str = ""
    is_compared: bool = True


def test_a_result_that_differs_makes_exit_code_1(
    relayout,
    several: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    monkeypatch.setattr(running, "verified", lambda first, *_, **__: Found(first.name != "b.tflite"))
    files = several / "a.tflite", several / "b.tflite"
    ran = relayout("convert", *files, "--out-dir", tmp_path / "out", "--verify", "--json")
    assert [(row["code"], row["verified"]) for row in json.loads(ran.out)["models"]] == [(0, True), (1, False)]
    assert ran.code == 1
    assert relayout("convert", *files, several / "text.onnx", "--out-dir", tmp_path / "out", "--verify").code == 2


@pytest.mark.parametrize(
    ("fault", "many"),
    [
        *((fault, many) for fault in ("no LiteRT", "no feed", "no input") for many in (False, True)),
        ("no directory", False),
    ],
)
def test_what_cannot_be_verified_is_not_written(  # type: ignore[no-untyped-def]
    relayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, many: bool
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    target = out / "tinynet_float.onnx"
    target.write_bytes(b"old")
    given: list[object] = ["--verify"]
    if fault == "no LiteRT":
        monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    elif fault == "no directory":
        target = out / "absent" / "a.onnx"
    else:
        np.save(tmp_path / "x.npy", np.zeros((2, 24, 40, 3), np.float32))
        given += ["--input", f"imag={tmp_path / 'x.npy'}" if fault == "no input" else f"image={tmp_path / 'y.npy'}"]
    if not many:
        given += ["--plan", out / "plan.json", "--html", out / "map.html"]
    ran = relayout("convert", FLOAT, *(["--out-dir", out] if many else ["-o", target]), *given)
    said = {"no LiteRT": "pip install 'onnx-relayout[verify]'", "no feed": "y.npy", "no input": "imag"}
    assert (ran.code, said.get(fault, "there is no directory") in ran.err + ran.out) == (2, True), ran.err + ran.out
    assert [path.name for path in out.iterdir()] == ["tinynet_float.onnx"]
    assert (out / "tinynet_float.onnx").read_bytes() == b"old"


def test_a_result_that_differs_is_written_and_can_be_looked_into(  # type: ignore[no-untyped-def]
    relayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from relayout import pipeline

    plain = pipeline.convert

    def broken(source: Path, **more: object) -> object:
        result = plain(source, **more)  # type: ignore[arg-type]
        next(node for node in result.model.graph if node.op_type == "Softmax").attributes["axis"] = ir.AttrInt64(
            "axis", 0
        )
        return result

    monkeypatch.setattr(pipeline, "convert", broken)
    ran = relayout("convert", FLOAT, tmp_path / "a.onnx", "--verify")
    assert ran.code == 1
    assert "FAILED: output 'output_0' differs" in ran.out
    ran = relayout("convert", FLOAT, tmp_path / "a.onnx", "--verify", "--json")
    assert json.loads(ran.out)["verification"]["b"] == str(tmp_path / "a.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["a.onnx"]


def test_an_internal_error_is_one_row(
    relayout,
    several: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,  # type: ignore[no-untyped-def]
) -> None:
    from relayout import pipeline

    plain = pipeline.convert

    def failing(source: Path, **more: object) -> object:
        if source.name == "a.tflite":
            raise IndexError("a defect")
        return plain(source, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "convert", failing)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ran = relayout("convert", several / "a.tflite", several / "b.tflite", "--out-dir", tmp_path / "out")
    assert ran.code == 3
    assert "internal error in " in ran.out
    assert "IndexError: a defect; the traceback is in " in ran.out
    assert (tmp_path / "out" / "b.onnx").is_file()


class Deadly:
    """Whoever unpickles this dies."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (3,)


def test_a_process_that_dies_is_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [running.Job("convert", FLOAT, tmp_path / "a.onnx", {"io": Deadly()})]
    jobs += [running.Job("convert", INT8, tmp_path / f"{k}.onnx") for k in "bc"]
    jobs = [job._replace(source=shutil.copy(job.source, tmp_path / f"{k}.tflite")) for k, job in enumerate(jobs)]
    with pytest.raises(SystemExit) as stopped:
        many.run_all(jobs, 2, True, False)
    rows = json.loads(capsys.readouterr().out)["models"]
    assert stopped.value.code == 2
    assert [row["code"] for row in rows] == [2, 0, 0]
    assert rows[0]["error"].startswith("its process ended")
    assert [rows[0][key] for key in ("transposes", "bytes", "seconds")] == [None, None, None]
    assert set(rows[1]["seconds"]) >= {"read", "plan"}
    page = (MODELS.parent / "docs" / "json.md").read_text(encoding="utf-8").partition("## A row of many models")[2]
    assert {key for key in rows[1] if f"`{key}`" not in page} == set(), "of a row that the page lacks"
    assert sorted(path.name for path in tmp_path.glob("*.onnx")) == ["b.onnx", "c.onnx"]


def test_a_model_is_not_replaced_by_its_own_result(relayout, several: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    relayout("convert", several / "a.tflite", tmp_path / "a.onnx", "-q")
    source = tmp_path / "a.onnx"
    before = source.read_bytes()
    (tmp_path / "hard.onnx").hardlink_to(source)
    (tmp_path / "link.onnx").symlink_to(source)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.onnx").symlink_to(source)
    (tmp_path / "out" / "b.onnx").hardlink_to(source)
    refused = [("convert", source, "--out-dir", tmp_path), ("optimize", source, "--out-dir", tmp_path / "out")]
    refused += [("convert", several / "b.tflite", source, "--out-dir", tmp_path / "out")]
    for target in (source, tmp_path / "hard.onnx", tmp_path / "link.onnx"):
        refused += [
            ("convert", source, target),
            ("optimize", source, target),
            ("reduce", source, target),
            ("reduce", source, "-o", target),
        ]
    other = tmp_path / "other.onnx"
    refused += [("convert", source, other, option, source) for option in ("--plan", "--html", "--model-explorer")]
    refused += [("explain", source, "--html", source)]
    for arguments in refused:
        ran = relayout(*arguments)
        assert (ran.code, "replaced by its own result" in ran.err) == (2, True), (arguments, ran.err)
        assert source.read_bytes() == before
        assert not other.exists()


def test_a_source_is_replaced_where_that_is_asked_for(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, copied = tmp_path / "a.onnx", tmp_path / "copy.onnx"
    relayout("convert", FLOAT, source, "-q")
    shutil.copy(source, copied)
    expected = tmp_path / "expected.onnx"
    assert relayout("convert", source, expected, "--to", "NHWC", "-q").code == 0
    assert relayout("convert", source, source, "--to", "NHWC", "-q", "--overwrite", "--verify").code == 2
    assert source.read_bytes() == copied.read_bytes()
    assert relayout("convert", source, source, "--to", "NHWC", "-q", "--overwrite").code == 0
    assert source.read_bytes() == expected.read_bytes()
    assert relayout("optimize", source, "--out-dir", tmp_path, "-q", "--overwrite").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.onnx", "copy.onnx", "expected.onnx"]
    result = package.convert(copied)
    with pytest.raises(package.RelayoutError, match="overwrite=True"):
        result.save(copied)
    result.save(copied, overwrite=True)
    tflite = tmp_path / "m.tflite"
    shutil.copy(FLOAT, tflite)
    with pytest.raises(package.RelayoutError, match="overwrite=True"):
        package.convert(tflite, format="tflite").save(tflite)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("convert", FLOAT), "SOURCE and TARGET"),
        (("convert", FLOAT, INT8, "c.onnx"), "SOURCE and TARGET"),
        (("convert", FLOAT, INT8), "for several sources give --out-dir"),
        (("convert", FLOAT, FLOAT.with_suffix(".onnx"), "--out-dir", "out"), "would both become"),
        (("convert", FLOAT, "--out-dir", "out", "--plan", "plan.json"), "--plan is for one model"),
        (("convert", FLOAT, "-", "--plan", "-"), "both go to standard output"),
        (("convert", FLOAT, "-", "--verify"), "no file to verify"),
        (("convert", FLOAT, "out.onnx", "--verfy"), "--verify"),
        (("convert", FLOAT, "out.onnx", "--rename", "imag=x"), "did you mean 'image'"),
        (("convert", FLOAT, "out.onnx", "--inputs", "imag"), "did you mean 'image'"),
        (("convert", FLOAT, "out.onnx", "--layout", "imag=NHWC:NCHW"), "did you mean 'image'"),
        (("convert", FLOAT, "out.onnx", "--signature", "serving_defaul"), "did you mean 'serving_default'"),
        (("convert", FLOAT, "out.onnx", "--rename", "image=x", "--rename", "image=y"), "given twice"),
        (("nothing.tflite",), "does not exist"),
    ],
)
def test_misuse_is_one_clear_line(  # type: ignore[no-untyped-def]
    relayout,
    arguments: tuple[object, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = relayout(*arguments)
    assert ran.code == 2
    assert said in ran.err
    assert len([line for line in ran.err.splitlines() if line.startswith(("relayout:", "Error:"))]) == 1
    assert list(tmp_path.rglob("*.onnx")) == []


# A file alone.


def tflite_details(path: Path) -> tuple[float, int]:
    """Return what LiteRT says of the first input's integers."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(path))
    scale, zero_point = interpreter.get_input_details()[0]["quantization"]
    return float(scale), int(zero_point)


def test_a_file_alone_is_shown(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    shown = relayout(INT8)
    assert shown.code == 0
    for words in (
        "TensorFlow Lite, 19,400 bytes",
        "CONV_2D 4",
        "int8 q 14",
        "2 × 24 × 40 × 3",
        "NHWC",
        "5,760",
        "image: int8 = round(x / 0.00392157) - 128",
    ):
        assert words in shown.out, words
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["in", "the", "file,", "for", "LiteRT", "0", "0"] in rows
    assert ["as", "ONNX,", "literally", "16", "61,440"] in rows
    data = json.loads(relayout("info", INT8, "--json").out)
    assert (data["now"]["bytes"], data["keep"]["bytes"], data["convert"]["bytes"]) == (61440, 5760, 0)
    assert data["ends"][0]["free"] == "n c h w"
    details = tflite_details(INT8)
    assert (data["ends"][0]["scale"], data["ends"][0]["zero_point"]) == details
    given = ("--input-type", "uint8", "--output-type", "float32", "--io", "NCHW", "--format", "tflite")
    report = json.loads(relayout("explain", INT8, *given, "--json").out)
    assert [(end["scale"], end["zero_point"]) for end in report["interface"]] == [
        (details[0], details[1] + 128),
        (None, None),
    ]
    assert f"image: uint8 = round(x / {details[0]:.6g})" in relayout("explain", INT8, *given).out
    assert data["weights"]["int8 q"] == [7, 10832]
    relayout("convert", FLOAT, tmp_path / "a.onnx", "-q")
    (tmp_path / "a.onnx").rename(tmp_path / "named")
    data = json.loads(relayout(tmp_path / "named", "--json").out)
    assert (data["format"], data["versions"]["opset"]) == ("ONNX", 18)
    assert data["transposed"] == {"0 3 1 2": 1}
    assert data["own"] is None
    assert ["in", "the", "file", "1", "23,040"] in [
        line.split() for line in relayout(tmp_path / "named").out.splitlines()
    ]
    assert data["now"]["bytes"] == data["keep"]["bytes"] == 23040
    assert data["operators"] == json.loads(relayout("explain", tmp_path / "named", "--json").out)["operators"]


def test_a_file_that_cannot_be_converted_is_shown_nevertheless(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    sys.path.insert(0, str(Path(__file__).parent / "formats" / "tflite"))
    from tflite_writing import Net

    net = Net()
    x = net.input((2, 3), name="x")
    net.op("CUSTOM Unheard", [x], [net.output((2, 3), name="y")])
    (tmp_path / "a.tflite").write_bytes(net.bytes())
    shown = relayout(tmp_path / "a.tflite")
    assert shown.code == 0
    assert "CUSTOM Unheard 1" in shown.out
    assert "cannot be converted: 1 unsupported operator" in shown.out


# Pipes and terminals.


def test_a_model_and_a_plan_go_to_standard_output(tmp_path: Path) -> None:
    piped = run("convert", FLOAT, "-")
    assert piped.returncode == 0
    onnx.checker.check_model(onnx.load_from_string(piped.stdout))
    assert b"proved minimal" in piped.stderr
    run("convert", FLOAT, tmp_path / "a.onnx", "-q")
    assert piped.stdout == (tmp_path / "a.onnx").read_bytes()
    piped = run("convert", FLOAT, tmp_path / "b.onnx", "--plan", "-", "--json")
    assert json.loads(piped.stdout)["format"] == "relayout-plan-1"
    assert json.loads(piped.stderr)["proved"] is True


def test_a_pipe_gets_no_control_characters() -> None:
    piped = run(INT8)
    assert b"\x1b" not in piped.stdout + piped.stderr


def terminal(*arguments: object, **environment: str) -> str:
    """What a terminal shows."""
    ours, theirs = pytest.importorskip("pty").openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "relayout", *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "150"} | environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:
            break
        if not part:
            break
        shown += part
    process.wait(60)
    os.close(ours)
    return shown.decode()


def test_a_terminal_shows_progress_and_no_color_is_respected(several: Path, tmp_path: Path) -> None:
    arguments = ("convert", *sorted(several.iterdir()), "--out-dir", tmp_path / "out")
    colour = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    shown = terminal(*arguments)
    assert "4/4" in shown
    assert colour.search(shown)
    plain = terminal(*arguments, NO_COLOR="1")
    assert "4/4" in plain
    assert not colour.search(plain)
    assert "not text" in terminal("convert", FLOAT, "-")


def test_bars_count_stages_and_values(several: Path, tmp_path: Path) -> None:
    shown = terminal("convert", FLOAT, tmp_path / "a.onnx", "--verify")
    for words in ("reading …", "planning …", "rewriting …", "comparing …", "writing …", "5/6", "14/14"):
        assert words in shown, words
    shown = terminal("verify", FLOAT, tmp_path / "a.onnx", "--runs", 2)
    for words in ("loading …", "comparing …", "28/28"):
        assert words in shown, words
    assert "5/6" in terminal(FLOAT)
    shown = terminal("convert", several / "a.tflite", several / "b.tflite", "--out-dir", tmp_path / "out")
    assert "b.tflite: writing …" in shown
    shown = terminal("convert", FLOAT, tmp_path / "b.onnx", "--verify", "--quiet")
    assert shown == ""
    piped = run("verify", FLOAT, tmp_path / "a.onnx")
    assert (piped.stderr, b"\x1b" in piped.stdout) == (b"", False)


# Help and completion.


def test_help_says_the_exit_codes(relayout) -> None:  # type: ignore[no-untyped-def]
    for verb in ((), ("convert",), ("optimize",), ("verify",), ("check",), ("explain",), ("info",)):
        shown = " ".join(relayout(*verb, "--help").out.split())
        assert "0 done, 1 verification or check failed or --max-bytes exceeded, 2 the input" in shown, verb


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert b"_RELAYOUT_COMPLETE" in run(_RELAYOUT_COMPLETE=f"{shell}_source").stdout
    if shell == "bash":
        words = {"COMP_WORDS": "relayout con", "COMP_CWORD": "1", "_RELAYOUT_COMPLETE": "bash_complete"}
        assert b"plain,convert" in run(**words).stdout
        words = {"COMP_WORDS": "relayout convert --ren", "COMP_CWORD": "2", "_RELAYOUT_COMPLETE": "bash_complete"}
        assert b"plain,--rename" in run(**words).stdout
        words = {"COMP_WORDS": "relayout mod", "COMP_CWORD": "1", "_RELAYOUT_COMPLETE": "bash_complete"}
        assert b"file,mod" in run(**words).stdout
