"""A runtime ends its process over a model, and this process says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from relayout.errors import RelayoutError
from relayout.verification import verify
from relayout.verification.ort_runtime import Session
from relayout.verification.runtimes import AbortedError, FailedError

SOURCE = """<ir_version: 10, opset_import: ["": 13]> g (float[2,3,1,4] x, bool c) => (float[2,3,4,1] y) {
    q = QuantizeLinear(x, s, z) v = DequantizeLinear(q, s, z) r = Reshape(v, shape)
    y = If<then_branch = t () => (float[2,3,4,1] a) { a = Identity(r) },
           else_branch = e () => (float[2,3,4,1] b) { n = Neg(v) b = Reshape(n, shape) }>(c) }"""
"""ONNX Runtime 1.32 aborts over it: an int8 value with a Reshape beside a branch that captures it."""


def aborting() -> onnx.ModelProto:
    model = parser.parse_model(SOURCE)
    constants = {"s": np.float32(0.05), "z": np.uint8(3), "shape": np.array([2, 3, 4, 1])}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return model


def sound() -> onnx.ModelProto:
    return parser.parse_model(
        '<ir_version: 10, opset_import: ["": 13]> g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }'
    )


@pytest.fixture(scope="module")
def aborts() -> None:
    try:
        Session(aborting().SerializeToString())
    except AbortedError:
        return
    pytest.skip("this ONNX Runtime survives it")


@pytest.mark.usefixtures("aborts")
def test_an_abort_is_one_error_and_what_follows_runs() -> None:
    with pytest.raises(
        RelayoutError, match=r"ONNX Runtime cannot load 'the given model': it ends its process \(signal"
    ):
        verify(aborting(), aborting())
    assert verify(sound(), sound()).ok


@pytest.mark.usefixtures("aborts")
def test_sessions_outlive_the_process_that_had_them() -> None:
    session = Session(sound().SerializeToString())
    feeds = {"x": np.ones((2, 3), np.float32)}
    assert session.run(["y"], feeds)[0].tolist() == [[-1.0] * 3] * 2
    with pytest.raises(AbortedError):
        Session(aborting().SerializeToString())
    assert session.run(None, feeds)[0].tolist() == [[-1.0] * 3] * 2


@pytest.mark.usefixtures("aborts")
def test_the_command_line_says_it_and_leaves_nothing_behind(tmp_path: Path, relayout: Any) -> None:
    onnx.save(aborting(), tmp_path / "a.onnx")
    onnx.save(sound(), tmp_path / "b.onnx")
    ran = relayout("verify", tmp_path / "a.onnx", tmp_path / "a.onnx")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "it ends its process" in ran.err
    ran = relayout("optimize", tmp_path / "a.onnx", tmp_path / "b.onnx", "--out-dir", tmp_path / "out", "--verify")
    assert ran.code == 2
    assert "1 done, 0 differ, 1 refused" in ran.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["b.onnx"]


def test_what_a_session_says_is_an_error() -> None:
    with pytest.raises(FailedError, match="invalid dimensions"):
        Session(sound().SerializeToString()).run(["y"], {"x": np.ones((2, 2), np.float32)})
    with pytest.raises(FailedError, match=r"(?i)protobuf"):
        Session(b"no model")


def test_arrays_of_every_kind_go_both_ways() -> None:
    text = """<ir_version: 10, opset_import: ["": 13]> g (string[2] s, bool[2] b, float16[0,2] e) =>
        (string[2] t, bool[2] c, float16[0,2] f, seq(float16[0,2]) q) {
        t = Identity(s) c = Not(b) f = Identity(e) q = SequenceConstruct(e) }"""
    session = Session(parser.parse_model(text).SerializeToString())
    strings, half = np.array(["a", "ü"], object), np.zeros((0, 2), np.float16)
    found = session.run(None, {"s": strings, "b": np.array([True, False]), "e": half})
    assert [end.type for end in session.outputs][-1] == "seq(tensor(float16))"
    assert found[0].tolist() == ["a", "ü"]
    assert found[1].tolist() == [False, True]
    assert (found[2].shape, found[2].dtype, len(found[3])) == ((0, 2), np.float16, 1)
    found[1][0] = True  # results are the caller's own


def test_a_path_is_meant_from_where_this_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Session(sound().SerializeToString())
    other = parser.parse_model('<ir_version: 10, opset_import: ["": 13]> g (int8[2] i) => (int8[2] j) { j = Neg(i) }')
    for name, each in (("here", sound()), ("there", other)):
        (tmp_path / name).mkdir()
        onnx.save(each, tmp_path / name / "m.onnx")
    for name, expected in (("here", "x"), ("there", "i")):
        monkeypatch.chdir(tmp_path / name)
        assert [end.name for end in Session(Path("m.onnx")).inputs] == [expected]


def test_nothing_is_left_where_temporary_files_are(tmp_path: Path) -> None:
    onnx.save(sound(), tmp_path / "m.onnx")
    place = tmp_path / "temporary"
    place.mkdir()
    code = "import sys; from relayout.verification import verify; print(verify(*sys.argv[1:]).ok)"
    models = [tmp_path / "m.onnx", tmp_path / "m.onnx"]
    environment = {**os.environ, "TMPDIR": str(place)}
    ran = subprocess.run([sys.executable, "-c", code, *models], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "True\n"), ran.stderr
    assert list(place.iterdir()) == []
