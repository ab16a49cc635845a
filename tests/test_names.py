"""Names that a user gives: other ones for the result's values, and the part of a graph between named values."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

import relayout
from relayout import pipeline
from relayout.apply.provenance import rename
from relayout.errors import NamesError, RelayoutError

sys.path.insert(0, str(Path(__file__).parent / "formats" / "tflite"))
from tflite_cases_control import ifs
from tflite_writing import Net, options

MODELS = Path(__file__).parents[1] / "models"
FLOAT, INT8 = MODELS / "tinynet_float.tflite", MODELS / "tinynet_int8.tflite"
SUM, POOLED = "tinynet_1/add_1_1/Add", "tinynet_1/max_pooling2d_1_1/MaxPool2d"

BRANCHING = """
<ir_version: 9, opset_import: ["" : 20]>
branching (float[2,3,5,7] x, float[2,3,5,7] other, bool flag) => (float[2,5,7,3] y, float[2,3,5,7] z) {
    doubled = Add (x, x)
    lower, upper = Split <axis=3, num_outputs=2> (doubled)
    both = Concat <axis=3> (upper, lower)
    shifted = Add (both, other)
    chosen = If (flag) <
        then_branch = then () => (float[2,3,5,7] t) { inside = Neg (doubled)  t = Add (inside, shifted) },
        else_branch = other_branch () => (float[2,3,5,7] e) { e = Identity (shifted) }
    >
    y = Transpose <perm=[0,2,3,1]> (chosen)
    z = Sigmoid (shifted)
}
"""


def branching() -> onnx.ModelProto:
    return onnx.parser.parse_model(BRANCHING)


def names(values: list[ir.Value]) -> list[str | None]:
    return [value.name for value in values]


def saved(result: relayout.Result, path: Path) -> Path:
    result.save(path)
    onnx.checker.check_model(str(path), full_check=True)
    return path


# Renaming.


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_ends_and_interior_values_of_a_tflite_are_renamed(io: str, tmp_path: Path) -> None:
    given = {"image": "x", "output_0": "y", SUM: "sum"}
    result = relayout.convert(INT8, io=io, rename=given)  # type: ignore[arg-type]
    made = names([value for node in result.model.graph for value in node.outputs])
    assert names(result.model.graph.inputs) == ["x"]
    assert names(result.model.graph.outputs) == ["y"]
    assert "sum__nchw" in made
    assert [end.name for end in result.report.interface] == ["x", "y"]
    if io == "convert":
        assert "x" in result.model.metadata_props["relayout.interface"]
    found = relayout.verify(INT8, saved(result, tmp_path / "a.onnx"))
    plain = relayout.convert(INT8, io=io)  # type: ignore[arg-type]
    assert found.ok
    assert len(found.rows) == len(relayout.verify(INT8, saved(plain, tmp_path / "b.onnx")).rows)
    assert found.unmatched == 0


def test_a_name_of_the_file_s_own_is_known_too() -> None:
    result = relayout.convert(INT8, rename={"serving_default_image:0": "x"})
    assert names(result.model.graph.inputs) == ["x"]


def test_names_are_exchanged_and_still_found(tmp_path: Path) -> None:
    """Two values of one type swap names: only the metadata says which is which."""
    result = relayout.optimize(branching(), rename={"x": "other", "other": "x", "z": "chosen", "chosen": "z"})
    assert names(result.model.graph.inputs)[:2] == ["other", "x"]
    path = saved(result, tmp_path / "a.onnx")
    source = tmp_path / "source.onnx"
    onnx.save(branching(), source)
    assert relayout.verify(source, path).ok
    assert relayout.verify(path, path).ok
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    onnx.save(model, tmp_path / "without.onnx")
    assert not relayout.verify(source, tmp_path / "without.onnx").ok


def test_a_renamed_model_can_be_renamed_again(tmp_path: Path) -> None:
    first = saved(relayout.convert(FLOAT, rename={"image": "a"}), tmp_path / "a.onnx")
    second = saved(relayout.optimize(first, rename={"a": "b"}), tmp_path / "b.onnx")
    assert relayout.verify(first, second).ok
    assert relayout.verify(FLOAT, second).ok


def test_a_constant_is_renamed() -> None:
    model = relayout.convert(FLOAT).model
    name = next(iter(model.graph.initializers))
    rename(model, {name: "kernel"})
    assert model.graph.initializers["kernel"].name == "kernel"
    assert name not in model.graph.initializers


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"imag": "x"}, "--rename imag=x: the result has no value of that name"),
        ({"shiftd": "a"}, "did you mean 'shifted'"),
        ({"x": "doubled"}, "another value has that name"),
        ({"x": "inside"}, "another value has that name"),
        ({"x": "a", "other": "a"}, "gives two values the name 'a'"),
        ({"inside": "a"}, "inside the body of another operator"),
        ({"x": ""}, "the new name is empty"),
    ],
)
def test_names_that_cannot_be_given_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(NamesError, match=said):
        relayout.optimize(branching(), rename=given)


def test_the_plan_of_a_renamed_part_can_be_checked(tmp_path: Path) -> None:
    result = relayout.convert(INT8, inputs=[SUM], rename={SUM: "sum"})
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    assert pipeline.check_plan(tmp_path / "plan.json", INT8).proved
    with pytest.raises(RelayoutError, match="another model"):
        pipeline.check_plan(tmp_path / "plan.json", FLOAT)


# Cutting.


@pytest.mark.parametrize("source", [FLOAT, INT8], ids=lambda path: path.stem)
@pytest.mark.parametrize("io", ["keep", "convert"])
@pytest.mark.parametrize(("inputs", "outputs"), [([SUM], [POOLED]), ([SUM], []), ([], [POOLED]), (["image"], [SUM])])
@pytest.mark.sampled(every=3)
def test_a_part_of_a_tflite_computes_what_the_whole_does(
    source: Path, io: str, inputs: list[str], outputs: list[str], tmp_path: Path
) -> None:
    if source == FLOAT:
        fused = [t for t in tensors(FLOAT) if t.startswith(SUM)]
        assert fused, "the model has changed"
        inputs, outputs = ([fused[0] if name == SUM else name for name in side] for side in (inputs, outputs))
    result = relayout.convert(source, inputs=inputs, outputs=outputs, io=io)  # type: ignore[arg-type]
    assert names(result.model.graph.inputs) == (inputs or ["image"])
    assert names(result.model.graph.outputs) == (outputs or ["output_0"])
    assert result.report.proved
    assert len(list(result.model.graph)) < len(list(relayout.convert(source).model.graph))
    path = saved(result, tmp_path / "a.onnx")
    found = relayout.verify(source, path)
    assert found.ok
    assert len([row for row in found.rows if row.output]) == 1
    assert not relayout.verify(source, damaged(path, tmp_path / "bad.onnx")).ok


@pytest.mark.parametrize(("inputs", "outputs"), [([SUM], []), ([], [POOLED]), ([SUM], [POOLED])])
def test_a_part_gives_the_same_bits_as_the_whole(inputs: list[str], outputs: list[str], tmp_path: Path) -> None:
    """In one runtime there is no rounding to allow for."""
    whole = saved(relayout.convert(INT8), tmp_path / "whole.onnx")
    part = saved(relayout.convert(INT8, inputs=inputs, outputs=outputs), tmp_path / "part.onnx")
    found = relayout.verify(whole, part)
    assert found.ok
    assert len(found.rows) > 5
    assert {row.verdict.value for row in found.rows} == {"equal"}


def tensors(path: Path) -> list[str]:
    from relayout.formats.tflite.container.loading import load

    return [tensor.name for tensor in load(path).subgraphs[0].tensors]


def damaged(path: Path, target: Path) -> Path:
    model = onnx.load(path)
    number = next(t for t in reversed(model.graph.initializer) if t.data_type == onnx.TensorProto.FLOAT)
    array = onnx.numpy_helper.to_array(number) * np.float32(1.5) + np.float32(0.25)
    number.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32), number.name))
    onnx.save(model, target)
    return target


@pytest.mark.parametrize(
    ("inputs", "outputs", "ends"),
    [
        (["doubled"], [], (["doubled", "other", "flag"], ["y", "z"])),
        (["lower"], ["both"], (["lower", "x"], ["both"])),
        (["shifted"], ["z"], (["shifted"], ["z"])),
        (["shifted"], ["y"], (["shifted", "x", "flag"], ["y"])),
        (["shifted", "doubled"], ["chosen"], (["shifted", "doubled", "flag"], ["chosen"])),
        ([], ["both"], (["x"], ["both"])),
        ([], ["z", "both"], (["x", "other"], ["z", "both"])),
        (["other", "x"], ["z"], (["other", "x"], ["z"])),
        (["flag"], ["both"], (["flag", "x"], ["both"])),
    ],
)
def test_a_part_of_an_onnx(
    inputs: list[str], outputs: list[str], ends: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    onnx.save(branching(), tmp_path / "source.onnx")
    result = relayout.optimize(tmp_path / "source.onnx", inputs=inputs, outputs=outputs)
    assert (names(result.model.graph.inputs), names(result.model.graph.outputs)) == ends
    assert all(v.shape is not None and v.dtype is not None for v in result.model.graph.inputs)
    found = relayout.verify(tmp_path / "source.onnx", saved(result, tmp_path / "part.onnx"))
    assert found.ok
    assert [row.name for row in found.rows if row.output] == outputs or ["y", "z"]


def test_a_result_that_is_also_made_keeps_two_names() -> None:
    """One half of a Split is given, the other is computed: the Split's own half must not carry the input's name."""
    result = relayout.optimize(branching(), inputs=["lower"], outputs=["both"])
    made = names([value for node in result.model.graph for value in node.outputs])
    assert "lower" not in made
    assert "lower__unread" in made
    session = pytest.importorskip("onnxruntime").InferenceSession(result.proto.SerializeToString())
    x, lower = np.ones((2, 3, 5, 7), np.float32), np.full((2, 3, 5, 4), 9, np.float32)
    (both,) = session.run(None, {"x": x, "lower": lower})
    assert (both[..., :3] == 2).all()
    assert (both[..., 3:] == 9).all()


@pytest.mark.parametrize(
    ("inputs", "outputs", "said"),
    [
        (["doubld"], [], "no value of that name; did you mean 'doubled'"),
        ([], ["inside"], "inside the body of another operator"),
        (["doubled"], ["doubled"], "an input and an output"),
        ([], ["x"], "--outputs x: it is an input of the model: nothing lies in between"),
        (["doubled"], ["y", "x"], "--outputs x: it is an input of the model"),
        (["z"], ["both"], "none of the outputs is computed from it"),
        (["doubled", "doubled"], [], "given twice"),
        ([], ["y", "y"], "given twice"),
    ],
)
def test_cuts_that_cannot_be_made_are_refused(inputs: list[str], outputs: list[str], said: str) -> None:
    with pytest.raises(NamesError, match=said):
        relayout.optimize(branching(), inputs=inputs, outputs=outputs)


def test_a_constant_is_no_input_of_a_part() -> None:
    text = BRANCHING.replace("doubled = Add (x, x)", "c = Constant <value_float=2.0> ()  doubled = Mul (x, c)")
    with pytest.raises(NamesError, match="it is a constant"):
        relayout.optimize(onnx.parser.parse_model(text), inputs=["c"])


def test_a_value_of_unknown_type_is_no_output_of_a_part() -> None:
    """Nothing tells what an unknown operator gives, and an output without a type cannot be written."""
    text = BRANCHING.replace("doubled = Add (x, x)", "c = my.Op (x)  doubled = Add (x, x)").replace(
        "[", '["my" : 1, ', 1
    )
    with pytest.raises(NamesError, match="--outputs c: its type is not known"):
        relayout.optimize(onnx.parser.parse_model(text), outputs=["c"])


def test_what_lies_outside_a_part_of_a_tflite_is_not_translated(tmp_path: Path) -> None:
    net = Net()
    x = net.input((2, 3), name="x")
    net.op("NEG", [x], [a := net.tensor((2, 3), name="a")])
    net.op("EXP", [a], [b := net.tensor((2, 3), name="b")])
    net.op("CUSTOM Unheard", [b], [net.output((2, 3), name="y")])
    (tmp_path / "a.tflite").write_bytes(net.bytes())
    with pytest.raises(relayout.UnsupportedError):
        relayout.convert(tmp_path / "a.tflite")
    result = relayout.convert(tmp_path / "a.tflite", outputs=["b"])
    assert [node.op_type for node in result.model.graph] == ["Neg", "Exp"]


def test_an_input_of_a_tflite_is_no_output_of_a_part() -> None:
    with pytest.raises(NamesError, match="--outputs image: it is an input of the model: nothing lies in between"):
        relayout.convert(FLOAT, outputs=["image"])


def test_an_input_and_an_output_of_one_name_are_told_apart() -> None:
    net = Net()
    state = net.input((2, 3), name="old")
    net.op("NEG", [state], [net.output((2, 3), name="new")])
    net.sign({"state": 0}, {"state": 1})
    result = relayout.convert(net.bytes(), outputs=["state"])
    assert [node.op_type for node in result.model.graph] == ["Neg"]


def test_a_part_of_a_tflite_with_several_results(tmp_path: Path) -> None:
    net = Net()
    x = net.input((2, 6), name="x")
    parts = [net.tensor((2, 3), name=name) for name in ("left", "right")]
    net.op("SPLIT", [net.const(1, "int32"), x], parts, options("SplitOptions", numSplits=2))
    net.op("SUB", parts, [net.output((2, 3), name="y")], options("SubOptions"))
    (tmp_path / "a.tflite").write_bytes(net.bytes())
    result = relayout.convert(tmp_path / "a.tflite", inputs=["left"])
    assert names(result.model.graph.inputs) == ["left", "x"]
    assert relayout.verify(tmp_path / "a.tflite", saved(result, tmp_path / "a.onnx")).ok


def test_assignments_belong_to_the_variables_of_a_part(tmp_path: Path) -> None:
    from tflite_cases_variables import sums

    for number, net in enumerate(sums()):
        path = tmp_path / f"{number}.tflite"
        path.write_bytes(net.bytes())
        ends = [t.name for t in (net.graph.tensors[i] for i in net.graph.outputs)]
        whole, part = relayout.convert(path), relayout.convert(path, outputs=ends)
        assert [n.op_type for n in whole.model.graph] == [n.op_type for n in part.model.graph]


def test_tensors_of_one_name_and_bodies(tmp_path: Path) -> None:
    net = Net()
    x = net.input((2, 3), name="x")
    net.op("NEG", [x], [a := net.tensor((2, 3), name="same")])
    net.op("EXP", [a], [b := net.tensor((2, 3), name="same")])
    net.op("ABS", [b], [net.output((2, 3), name="y")])
    (tmp_path / "a.tflite").write_bytes(net.bytes())
    with pytest.raises(NamesError, match="2 tensors have that name; say which: same#1, same#2"):
        relayout.convert(tmp_path / "a.tflite", inputs=["same"])
    result = relayout.convert(tmp_path / "a.tflite", inputs=["same#2"])
    assert [node.op_type for node in result.model.graph] == ["Abs"]
    body = next(iter(ifs()))
    body.model.subgraphs[1].tensors[2].name = "inside"
    (tmp_path / "b.tflite").write_bytes(body.bytes())
    with pytest.raises(NamesError, match="inside the body of another operator"):
        relayout.convert(tmp_path / "b.tflite", outputs=["inside"])
    with pytest.raises(NamesError, match="no tensor of that name"):
        relayout.convert(tmp_path / "b.tflite", outputs=["nothing"])
