"""Quantization annotations follow their values, and name what is there."""

from __future__ import annotations

import onnx
import pytest

import relayout

NETWORK = """<ir_version: 10, opset_import: ["" : 20]>
g (float[1, 8, 6, 3] x) => (float[1, 8, 6, 3] y, float[1, 3, 6, 8] w)
<float s = {0.1}, int8 z = {1}, float t = {0.2}, float spare = {0.3},
 float[3] each = {0.1, 0.2, 0.3}, int8[3] zeros = {0, 1, 2}> {
    a = Transpose <perm = [0, 3, 1, 2]> (x)
    b = Relu (a)
    c = Transpose <perm = [0, 2, 3, 1]> (b)
    y = Sigmoid (c)
    d = Transpose <perm = [0, 2, 1, 3]> (y)
    e = Exp (d)
    f = Abs (e)
    w = Transpose <perm = [0, 3, 2, 1]> (f)
}"""
SCALE, ZERO = "SCALE_TENSOR", "ZERO_POINT_TENSOR"


def annotated(**scales: tuple[str, str]) -> onnx.ModelProto:
    """The network, in which tensors have a scale and a zero point."""
    model = onnx.parser.parse_model(NETWORK)
    for name, (scale, zero) in scales.items():
        entry = model.graph.quantization_annotation.add(tensor_name=name)
        entry.quant_parameter_tensor_names.add(key=SCALE, value=scale)
        entry.quant_parameter_tensor_names.add(key=ZERO, value=zero)
    return model


def annotations(model: onnx.ModelProto) -> dict[str, tuple[str, str]]:
    """Tensor -> scale and zero point; all of them are there, and nothing is said twice."""
    graph = model.graph
    constants = {tensor.name for tensor in graph.initializer}
    there = constants | {value.name for value in graph.input} | {name for node in graph.node for name in node.output}
    found = {}
    for entry in graph.quantization_annotation:
        said = {each.key: each.value for each in entry.quant_parameter_tensor_names}
        assert entry.tensor_name in there
        assert entry.tensor_name not in found
        assert constants.issuperset(said.values())
        found[entry.tensor_name] = (said[SCALE], said[ZERO])
    return found


def test_a_value_that_goes_on_under_another_name_keeps_its_annotation() -> None:
    result = relayout.convert(annotated(b=("s", "z"), e=("each", "zeros"), y=("t", "z")))
    assert result.report.transposes == 1
    assert not any(node.output[0] == "b" for node in result.proto.graph.node), "it is c that is there"
    found = annotations(result.proto)
    assert found["c"] == ("s", "z")
    assert found["y"] == ("t", "z")
    assert ("each", "zeros") in found.values()
    assert not any("annotation" in note for note in result.report.notes)
    assert "spare" not in {tensor.name for tensor in result.proto.graph.initializer}


def test_an_annotation_that_fits_no_value_is_left_out_and_told_of() -> None:
    result = relayout.convert(annotated(b=("t", "z"), c=("s", "z")))
    assert annotations(result.proto) == {"c": ("s", "z")}
    assert "left out: the quantization annotation of b, which fits no value of the result" in result.report.notes
    assert "t" not in {tensor.name for tensor in result.proto.graph.initializer}


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_an_output_in_another_order_keeps_its_annotation(io: str) -> None:
    model = annotated(x=("s", "z"), y=("t", "z"), w=("each", "zeros"))
    layouts = {"y": ("NHWC", "NCHW")} if io == "convert" else None
    found = annotations(relayout.convert(model, io=io, layouts=layouts).proto)
    assert {name: found[name] for name in "xyw"} == {"x": ("s", "z"), "y": ("t", "z"), "w": ("each", "zeros")}


def test_a_name_that_is_nowhere_is_not_written() -> None:
    assert annotations(relayout.convert(annotated(c=("nowhere", "z"))).proto) == {}


def test_a_part_says_nothing_of_tensors_that_it_does_not_have() -> None:
    model = annotated(b=("s", "z"), e=("t", "z"))
    assert annotations(relayout.convert(model, outputs=["c"]).proto) == {"c": ("s", "z")}
    assert annotations(relayout.convert(model, inputs=["e"], outputs=["w"]).proto) == {"e": ("t", "z")}


def test_what_is_not_annotated_keeps_no_spare_initializer() -> None:
    assert {tensor.name for tensor in relayout.convert(annotated()).proto.graph.initializer} == set()


def test_a_value_in_another_type_is_not_given_the_zero_point_of_its_own() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 8, 6, 3] x) => (float[1, 8, 6, 3] y) <float s = {0.1}, int8 z = {1}> {
        q = QuantizeLinear (x, s, z)
        d = DequantizeLinear (q, s, z)
        y = Relu (d)
    }""")
    entry = model.graph.quantization_annotation.add(tensor_name="q")
    entry.quant_parameter_tensor_names.add(key=SCALE, value="s")
    entry.quant_parameter_tensor_names.add(key=ZERO, value="z")
    assert annotations(relayout.convert(model, rename={"d": "real"}).proto) == {"q": ("s", "z")}
    moved = relayout.convert(model, target="onnxruntime-cpu").proto
    assert any(node.output[0] == "q/unsigned" for node in moved.graph.node)
    assert annotations(moved) == {}
