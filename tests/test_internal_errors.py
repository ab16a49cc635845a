"""Whatever goes wrong is one error: of relayout's classes in Python, one line and an exit code on the command line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import relayout as package
import relayout.rules
from relayout.errors import RelayoutError
from relayout.internal_errors import InternalError

NETWORK = """
<ir_version: 10, opset_import: ["" : 20]>
network (float[1, 3, 8, 6] x) => (float[1, 8, 6, 3] y)
{ a = Relu (x)
  y = Transpose <perm = [0, 2, 3, 1]> (a) }
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(NETWORK), path)
    return path


def test_a_fault_is_one_class_of_error_that_names_step_and_node(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["relayout.rules.facts"], "_fitted", None)
    said = r"internal error in \w+ while reading (Relu|Transpose) '[ay]': TypeError"
    with pytest.raises(InternalError, match=said) as error:
        package.explain(source)
    assert isinstance(error.value.__cause__, TypeError)


def test_a_fault_is_a_line_with_exit_code_3_and_a_file(  # type: ignore[no-untyped-def]
    relayout, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("relayout.pipeline.planning.plan", None)
    ran = relayout("convert", source, tmp_path / "o.onnx")
    assert ran.code == 3
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    (saved,) = tmp_path.glob("relayout-error-*.txt")
    assert f"the traceback is in {saved}" in ran.err
    assert "TypeError" in saved.read_text(encoding="utf-8").splitlines()[-1]
    assert not (tmp_path / "o.onnx").exists()


def test_an_error_of_the_callers_own_code_stays_what_it_is(source: Path) -> None:
    class OwnError(Exception):
        """A caller's."""

    def inputs() -> object:
        raise OwnError

    class Feed(dict[str, object]):
        def items(self) -> object:  # type: ignore[override]
            return inputs()

    with pytest.raises(OwnError):
        package.verify(source, source, inputs=Feed())  # type: ignore[arg-type]


def test_wrong_arguments_are_type_errors(source: Path) -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        package.convert()  # type: ignore[call-arg]


def resize_of_opset_6() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
        helper.make_node("Resize", ["c", "s"], ["y"], mode="nearest"),
    ]
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, [2, 2, 1, 1], [1.0] * 4),
        helper.make_tensor("s", TensorProto.FLOAT, [4], [1.0, 1.0, 2.0, 2.0]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 8, 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 6)], ir_version=4)


def unknown_element_type(where: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(NETWORK)
    if where == "input":
        model.graph.input[0].type.tensor_type.elem_type = 99
    elif where == "weight":
        model.graph.initializer.append(TensorProto(name="w", data_type=99, dims=[1], raw_data=b"1234"))
    elif where == "value":
        model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [1, 3, 8, 6]))
        model.graph.value_info[0].type.tensor_type.elem_type = 99
    else:
        model.graph.node.append(helper.make_node("Cast", ["a"], ["z"], to=99))
        model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 3, 8, 6]))
    return model


def refusal(model: onnx.ModelProto, options: dict[str, str]) -> RelayoutError | None:
    """Return the error that a conversion ends with; None where it does not fail."""
    try:
        package.convert(model, **options)  # type: ignore[arg-type]
    except RelayoutError as error:
        return error
    return None


@pytest.mark.parametrize("where", ["input", "weight", "value", "cast"])
@pytest.mark.parametrize("options", [{}, {"to": "NHWC"}, {"format": "tflite"}], ids=["onnx", "nhwc", "tflite"])
def test_an_element_type_that_does_not_exist(where: str, options: dict[str, str]) -> None:
    assert not isinstance(refusal(unknown_element_type(where), options), InternalError)


@pytest.mark.parametrize("options", [{"to": "NHWC"}, {}, {"format": "tflite"}], ids=["nhwc", "onnx", "tflite"])
def test_an_operator_that_its_opset_lacks(options: dict[str, str]) -> None:
    assert not isinstance(refusal(resize_of_opset_6(), options), InternalError)


CONTRIBUTED = """
<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
network (float[1, 4, 6] x) => (float[1, 4, 6] y) {{ y = com.microsoft.{} (x, x, x) }}
"""


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("GroupNorm <activation = 1>", "com.microsoft:GroupNorm .TensorFlow Lite has no such operator."),
        ("MultiHeadAttention", "com.microsoft:MultiHeadAttention .a num_heads of 0."),
        ("MultiHeadAttention <num_heads = 2.0>", "attribute 'num_heads' is of the type FLOAT at MultiHead"),
        ("FusedConv <activation = 1>", "attribute 'activation' is of the type INT at FusedConv 'y'"),
    ],
)
def test_attributes_of_operators_without_a_schema(node: str, says: str) -> None:
    error = refusal(onnx.parser.parse_model(CONTRIBUTED.format(node)), {"format": "tflite"})
    assert not isinstance(error, InternalError)
    assert re.search(says, str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
@pytest.mark.parametrize("seconds", [0.15, 0.3])
def test_an_interruption_while_it_loads_is_one_line(seconds: float, source: Path, tmp_path: Path) -> None:
    """The first 0.1 s are Python's own."""
    begin = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)"  # in the background, too
    code = f"{begin}; import relayout.cli as c; sys.stdout.write('.'); sys.stdout.flush(); c.main()"
    command = [sys.executable, "-c", code, "convert", str(source), str(tmp_path / "o.onnx"), "--target", "litert"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])},
    )
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(seconds / 10)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode()) in [(130, "relayout: interrupted\n"), (0, "")]
    assert process.returncode == 130
