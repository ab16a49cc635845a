"""ONNX's C++ code crashes, and this process does not."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper, parser

from relayout import isolation
from relayout.errors import ReadError
from relayout.formats.onnx.reading import read
from relayout.isolation import calls
from relayout.isolation.calls import NativeCrashError
from relayout.isolation.process import DiedError, Process

HEADER = '<ir_version: 10, opset_import: ["": 18]>'
CRASHING = "g (float[2,3,4] x, float[3] k) => (float[?] y) { r = Relu(x) y, z = Split<num_outputs=1>(r) w = Neg(k) }"
SOUND = "g (float[2,3,4] x) => (float[2,3,4] y) { y = Relu(x) }"


def proto(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


def kept() -> Process:
    process = calls._process()
    assert process is not None
    return process


@pytest.mark.parametrize("ask", [isolation.infer_shapes, isolation.check_model])
def test_a_crash_is_one_error_that_names_the_node(ask) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(NativeCrashError, match=r"crashes over this model \(signal SIGABRT\).*Split 'y'"):
        ask(proto(CRASHING))
    assert isolation.infer_shapes(proto(SOUND)).graph.output[0].name == "y"


def test_the_node_is_named_where_another_is_odd_too() -> None:
    text = CRASHING.replace("r = Relu(x)", "r = Relu(x) q = Concat<axis=100>(x, x)")
    with pytest.raises(NativeCrashError, match=r"Split 'y' \(num_outputs = 1\)"):
        isolation.infer_shapes(proto(text))


def test_what_propagates_is_unknown_after_a_crash() -> None:
    assert isolation.propagate(proto(CRASHING), is_short=True) is None


def test_readers_say_which_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(proto(CRASHING), path)
    with pytest.raises(ReadError, match=f"{path}.*Split 'y'.*correct what that node says"):
        read(path)


def test_of_many_models_one_is_a_row_and_the_others_are_done(tmp_path: Path, relayout: Any) -> None:
    for name, text in (("a", SOUND), ("b", CRASHING), ("c", SOUND)):
        onnx.save(proto(text), tmp_path / f"{name}.onnx")
    ran = relayout("optimize", *sorted(tmp_path.glob("*.onnx")), "--out-dir", tmp_path / "out")
    assert ran.code == 2
    assert "3 models: 2 done, 0 differ, 1 refused" in ran.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a.onnx", "c.onnx"]


def test_answers_are_those_of_this_process() -> None:
    odd = proto("g (float[2,3] x, int64[4294967296] e) => (float[2,3] y) { y = Relu(x) }")
    assert isolation.doubt_of_model(odd)
    assert isolation.infer_shapes(odd) == onnx.shape_inference.infer_shapes(odd)
    wrong = proto("g (float[2,3] x, int64[4294967296] e) => (float[2,4] y) { y = Softmax<axis=5>(x) }")
    with pytest.raises(onnx.shape_inference.InferenceError) as ours:
        isolation.infer_shapes(wrong, strict=True)
    with pytest.raises(onnx.shape_inference.InferenceError) as theirs:
        onnx.shape_inference.infer_shapes(wrong, strict_mode=True)
    assert str(ours.value) == str(theirs.value)
    wrong.graph.node[0].op_type = "Softmix"
    with pytest.raises(onnx.checker.ValidationError, match="Softmix"):
        isolation.check_model(wrong)


def test_a_node_alone_is_answered_alike() -> None:
    schema = onnx.defs.get_schema("Concat", 13, "")
    types = {name: helper.make_tensor_type_proto(1, [2, 3]) for name in "ab"}
    near, far = (helper.make_node("Concat", ["a", "b"], ["c"], axis=axis) for axis in (1, 100))
    assert isolation.infer_node_outputs(schema, near, types, {}, 13)["c"].tensor_type.shape.dim[1].dim_value == 6
    assert isolation.doubt_of_node(far, schema)
    with pytest.raises(onnx.shape_inference.InferenceError):
        isolation.infer_node_outputs(schema, far, types, {}, 13)
    gather = onnx.defs.get_schema("GatherND", 13, "")
    node = helper.make_node("GatherND", ["a", "b"], ["c"], batch_dims=-9)
    types["b"] = helper.make_tensor_type_proto(7, [2, 3])
    with pytest.raises(NativeCrashError, match="GatherND 'c': batch_dims = -9"):
        isolation.infer_node_outputs(gather, node, types, {}, 13)


def test_memory_is_an_answer() -> None:
    long = proto("g (float[2] x) => (int64[?] y) { k = Constant<value=int64[1]{1000000000}>() t = Concat<axis=0>(k)"
                 " c = ConstantOfShape<value=int64[1]{3}>(t) y = Add(c, c) }")  # fmt: skip
    assert isolation.propagate(long, is_short=False) is None
    assert isolation.infer_shapes(proto(SOUND)) is not None


def test_a_usual_model_starts_no_process(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(
        proto("g (float[2,3,4,5] x) => (float[2,3,4,5] y) { a = Transpose<perm=[0,2,3,1]>(x) y = Relu(a) }"), path
    )
    code = "import sys, relayout; relayout.optimize(sys.argv[1]).save(sys.argv[2])\n"
    code += "from relayout.isolation import calls; print(calls._process().runs)"
    ran = subprocess.run([sys.executable, "-c", code, path, tmp_path / "o.onnx"], capture_output=True, text=True)
    assert (ran.stdout, ran.returncode) == ("False\n", 0), ran.stderr


def test_a_model_of_many_nodes_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MANY", 1)
    monkeypatch.setattr(
        calls, "doubt_of_model", lambda model: "" if len(model.graph.node) == 1 else pytest.fail("looked")
    )
    two = proto(SOUND.replace("y = Relu(x)", "a = Relu(x) y = Neg(a)"))
    kept().close()
    isolation.infer_shapes(proto(SOUND))
    assert not kept().runs
    assert isolation.infer_shapes(two) == onnx.shape_inference.infer_shapes(two)
    assert kept().runs


def test_a_killed_process_starts_again() -> None:
    odd = proto("g (float[2,3] x, int64[4294967296] e) => (float[2,3] y) { y = Relu(x) }")
    isolation.infer_shapes(odd)
    first = kept()._child
    assert first is not None
    first.kill()
    first.wait()
    isolation.infer_shapes(odd)
    assert kept().runs
    assert kept()._child is not first
    kept().close()
    assert not kept().runs


def test_a_question_may_take_too_long(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import sys, time\nsys.stdin.buffer.read(1)\ntime.sleep(60)\n", encoding="utf-8")
    process = Process([], str(script))
    with pytest.raises(DiedError, match="takes more than 1 s") as raised:
        process.ask([b"x"], 1)
    assert raised.value.late
    assert not process.runs


@pytest.mark.parametrize(("code", "how"), [("sys.exit(3)", "exit status 3"), ("os.abort()", "signal SIGABRT")])
def test_how_a_process_ended_is_said(code: str, how: str, tmp_path: Path) -> None:
    script = tmp_path / "ends.py"
    script.write_text(f"import os, sys\n{code}\n", encoding="utf-8")
    with pytest.raises(DiedError, match=how):
        Process([], str(script)).ask([b"x" * 100_000])


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_fork_has_a_process_of_its_own() -> None:
    import os

    odd = proto("g (float[2,3] x, int64[4294967296] e) => (float[2,3] y) { y = Relu(x) }")
    isolation.infer_shapes(odd)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other tests leave threads
        child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(0 if not kept().runs and isolation.infer_shapes(odd).graph.node and kept().runs else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert isolation.infer_shapes(odd).graph.node


def test_without_a_python_to_start_it_asks_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_process", lambda: None)
    odd = proto("g (float[2,3] x, int64[4294967296] e) => (float[2,3] y) { y = Relu(x) }")
    assert isolation.infer_shapes(odd).graph.node
