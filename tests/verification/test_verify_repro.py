"""A wrong rule, planted, is found and named by verify, cut out with a script that fails by itself, and reduced."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser, shape_inference

import relayout
from relayout import cli
from relayout.errors import RelayoutError
from relayout.formats.tflite.container.loading import load
from relayout.pipeline.reduction import minimized, part, reduce
from relayout.rules import Fact, Operator, Signature, registry
from relayout.rules.signature import unchanged
from relayout.verification import reproduce, reproducing

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[2,6,5,4] x) => (float[2,6,5,4] y, float[2,3,6,5] z) {
    a = Tanh(x)
    b = Transpose<perm=[0,3,1,2]>(a)
    c = Conv(b, k)
    d = Transpose<perm=[0,2,3,1]>(c)
    e = Sigmoid(d)
    f = Softmax<axis=3>(e)
    h = Abs(f)
    i = Exp(h)
    j = Transpose<perm=[0,3,1,2]>(i)
    z = Conv(j, l)
    y = Sqrt(a)
}"""


@pytest.fixture
def source() -> onnx.ModelProto:
    proto = parser.parse_model(TEXT)
    rng = np.random.default_rng(3)
    for name, shape in (("k", (7, 4, 1, 1)), ("l", (3, 7, 1, 1))):
        proto.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return shape_inference.infer_shapes(proto)


@pytest.fixture
def wrong_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Softmax's axis does not follow when its operand is stored in another order."""
    right = registry()["", "Softmax"]

    def wrong(operator: Operator) -> Fact:
        fact = right.facts(operator)
        return replace(fact, changes=unchanged) if isinstance(fact, Signature) else fact

    monkeypatch.setitem(registry(), ("", "Softmax"), right._replace(facts=wrong))


def fails(folder: Path) -> subprocess.CompletedProcess[str]:
    """The script, run by itself, somewhere else, without relayout."""
    return subprocess.run(
        [sys.executable, "-I", str(folder.resolve() / "run.py")], capture_output=True, text=True, check=False, cwd="/"
    )


@pytest.mark.usefixtures("wrong_softmax")
def test_a_wrong_rule_is_named_and_its_reproduction_fails_by_itself(source: onnx.ModelProto, tmp_path: Path) -> None:
    wrong = relayout.optimize(source).proto
    found = relayout.verify(source, wrong)
    assert not found.ok
    assert found.first is not None
    assert (found.first.operator, found.first.name) == ("Softmax", "f")
    written = reproduce(source, wrong, found, tmp_path / "repro")
    assert (written.nodes, written.whole, written.value) == (1, False, "f")
    assert written.made_by.startswith("Softmax")
    for side in "ab":
        model = onnx.load(tmp_path / "repro" / f"{side}.onnx")
        assert [node.op_type for node in model.graph.node] == ["Softmax"]
        onnx.checker.check_model(model, full_check=True)
    ran = fails(tmp_path / "repro")
    assert ran.returncode == 1, ran.stderr
    assert "a.onnx agrees" in ran.stdout
    assert "b.onnx DIFFERS" in ran.stdout
    # Put right, the script says so.
    model = onnx.load(tmp_path / "repro" / "b.onnx")
    model.graph.node[0].attribute[0].i = 1
    onnx.save(model, tmp_path / "repro" / "b.onnx")
    assert fails(tmp_path / "repro").returncode == 0


@pytest.mark.usefixtures("wrong_softmax")
def test_a_part_of_the_source_that_its_runtime_refuses_is_left_out(
    source: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = relayout.optimize(source).proto
    cut, parts = reproducing._part, []

    def refusing(*arguments: Any) -> Any:
        parts.append(arguments)
        if len(parts) > 1:
            raise RelayoutError("the runtime refuses it")
        return cut(*arguments)

    monkeypatch.setattr(reproducing, "_part", refusing)
    reproduce(source, wrong, relayout.verify(source, wrong), tmp_path / "repro")
    assert len(parts) == 2
    assert not (tmp_path / "repro" / "a.onnx").exists()
    ran = fails(tmp_path / "repro")
    assert (ran.returncode, "b.onnx DIFFERS" in ran.stdout) == (1, True), ran.stderr


def test_the_same_model_without_the_fault_is_verified_and_there_is_nothing_to_reproduce_or_reduce(
    source: onnx.ModelProto, tmp_path: Path
) -> None:
    result = relayout.optimize(source).proto
    found = relayout.verify(source, result)
    assert found.ok
    with pytest.raises(RelayoutError, match="nothing to reproduce"):
        reproduce(source, result, found, tmp_path / "repro")
    with pytest.raises(RelayoutError, match="nothing to reduce"):
        reduce(source)
    assert not (tmp_path / "repro").exists()


@pytest.mark.usefixtures("wrong_softmax")
def test_a_wrong_rule_is_reduced_to_the_nodes_that_show_it(source: onnx.ModelProto) -> None:
    found = reduce(source)
    kinds = [node.op_type for node in found.model.graph]
    assert "Softmax" in kinds
    assert len(kinds) <= 4 < found.before
    assert found.smallest
    assert not relayout.verify(found.model, relayout.optimize(found.model).model).ok
    for left_out in range(len(kinds)):
        rest = part(found.model, [index for index in range(len(kinds)) if index != left_out])
        assert relayout.verify(rest, relayout.optimize(rest).model).ok


def test_a_transpose_that_remains_is_reduced_to_what_needs_it(source: onnx.ModelProto) -> None:
    found = reduce(source, still="transpose")
    assert relayout.optimize(found.model).report.transposes == 1
    assert sorted(node.op_type for node in found.model.graph) in (["Transpose"], ["Conv", "Transpose"])


def test_minimized_keeps_what_is_needed_and_nothing_else() -> None:
    for needed in ({3}, {0, 9}, {2, 3, 11}, set(range(13)), {12}, {0, 6, 7, 12}):
        kept, smallest = minimized(list(range(13)), lambda items, needed=needed: needed <= set(items), None)
        assert (set(kept), smallest) == (needed, True)
    assert minimized(list(range(8)), lambda _: True, 0.0) == (list(range(8)), False)


@pytest.mark.usefixtures("wrong_softmax")
def test_the_command_line_writes_both(
    source: onnx.ModelProto,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    onnx.save(source, tmp_path / "a.onnx")

    def run(*arguments: object) -> int:
        monkeypatch.setattr("sys.argv", ["relayout", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as stopped:
            return int(stopped.code or 0)
        return 0

    assert run("optimize", tmp_path / "a.onnx", tmp_path / "b.onnx", "-q") == 0
    assert run("verify", tmp_path / "a.onnx", tmp_path / "b.onnx", "--repro", tmp_path / "r") == 1
    assert "1 node around Softmax" in capsys.readouterr().out
    assert fails(tmp_path / "r").returncode == 1
    assert run("verify", tmp_path / "a.onnx", tmp_path / "b.onnx", "--repro", tmp_path / "r") == 2
    said = capsys.readouterr()
    assert ("not an empty directory" in said.err, said.out) == (True, "")  # before anything is run
    model = onnx.load(tmp_path / "a.onnx")
    model.graph.output[0].name = model.graph.node[-1].output[0] = "other"
    model.graph.output.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, None))
    model.graph.node.add(op_type="Relu", input=["other"], output=["more"])
    onnx.save(model, tmp_path / "more.onnx")
    assert run("verify", tmp_path / "more.onnx", tmp_path / "a.onnx", "--repro", tmp_path / "s") == 1
    assert "which no part shows" in capsys.readouterr().err
    assert run("reduce", tmp_path / "a.onnx", "-o", tmp_path / "small.onnx", "--json") == 0
    assert json.loads(capsys.readouterr().out)["smallest"] is True
    assert len(onnx.load(tmp_path / "small.onnx").graph.node) <= 4
    assert run("reduce", tmp_path / "missing.onnx", tmp_path / "c.onnx") == 2
    assert capsys.readouterr().err.startswith("relayout:")


def test_a_tflite_source_gives_a_part_of_its_own(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "models" / "tinynet_float.tflite"
    relayout.convert(source).save(tmp_path / "b.onnx")
    model = onnx.load(tmp_path / "b.onnx")
    pool = next(node for node in model.graph.node if node.op_type == "AveragePool")
    pool.op_type = "MaxPool"
    for attribute in [a for a in pool.attribute if a.name == "count_include_pad"]:
        pool.attribute.remove(attribute)
    onnx.save(model, tmp_path / "b.onnx")
    found = relayout.verify(source, tmp_path / "b.onnx")
    written = reproduce(source, tmp_path / "b.onnx", found, tmp_path / "repro")
    assert "MaxPool" in written.made_by
    assert written.nodes <= 3
    assert len(load(tmp_path / "repro" / "a.tflite").subgraphs[0].operators) <= 3
    ran = fails(tmp_path / "repro")
    assert ran.returncode == 1, ran.stderr
    assert "a.tflite agrees" in ran.stdout


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_a_tflite_result_gives_a_file_of_the_operators_that_differ(
    source: onnx.ModelProto, tmp_path: Path, io: str
) -> None:
    changed = onnx.ModelProto()
    changed.CopyFrom(source)
    kernel = next(tensor for tensor in changed.graph.initializer if tensor.name == "l")
    kernel.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(kernel) * np.float32(1.01), "l"))
    relayout.convert(changed, format="tflite", io=io).save(tmp_path / "b.tflite")
    found = relayout.verify(source, tmp_path / "b.tflite")
    assert not found.ok
    written = reproduce(source, tmp_path / "b.tflite", found, tmp_path / "repro")
    assert written.nodes <= 2
    assert "CONV_2D" in {operator.name for operator in load(tmp_path / "repro" / "b.tflite").subgraphs[0].operators}
    ran = fails(tmp_path / "repro")
    assert ran.returncode == 1
    assert "a.onnx agrees" in ran.stdout
    assert "b.tflite DIFFERS" in ran.stdout
    right = relayout.convert(source, format="tflite", io=io)
    assert relayout.verify(source, right.tflite).ok
