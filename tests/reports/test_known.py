"""Reports speak of the source's values, also of those that are brought into other forms before layouts are decided."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import relayout
from relayout.reports.page import MARK
from relayout.targets import Target
from relayout.targets.onnxruntime.import_list import with_vnni

MODELS = Path(__file__).parents[2] / "models"
UNIT = """<ir_version: 10, opset_import: ["" : 20]>
g (int8[1, 3, 12, 10] input) => (int8[1, 8, 10, 8] y, float[1, 8, 10, 8] z)
<float s = {0.05}, int8 zero = {3}, float t = {0.01}, int8 none = {0}> {
    x = DequantizeLinear (input, s, zero)
    k = DequantizeLinear (w, t, none)
    c = Conv (x, k)
    q = QuantizeLinear (c, s, zero)
    d = DequantizeLinear (q, s, zero)
    z = Relu (d)
    y = QuantizeLinear (d, s, zero)
}"""


def unit() -> onnx.ModelProto:
    model = onnx.parser.parse_model(UNIT)
    kernel = np.random.default_rng(0).integers(-100, 100, (8, 3, 3, 3)).astype(np.int8)
    model.graph.initializer.append(numpy_helper.from_array(kernel, "w"))
    return model


def test_a_tensor_beside_an_input_is_told_of_as_the_input() -> None:
    """For some targets `image` has `image/unsigned` beside it: nobody but relayout knows that name."""
    result = relayout.convert(
        MODELS / "tinynet_int8.tflite", target=Target("tuned", "any layout", (), tflite=with_vnni)
    )
    (left,) = result.report.remaining
    assert left.tensor == "image"
    assert left.producer == "QuantizeLinear image"
    assert left.readers == ("DequantizeLinear image",)
    made = [value for node in result.model.graph for value in node.outputs if "image/unsigned" in (value.name or "")]
    assert made
    assert not any("stands_for" in key for value in made for key in value.metadata_props)


def test_values_of_units_are_told_of_as_those_of_the_source() -> None:
    result = relayout.convert(unit(), target="onnxruntime-cpu")
    assert {left.tensor for left in result.report.remaining} == {"q", "x"}
    said = " ".join(f"{left.producer} {left.readers} {left.reason}" for left in result.report.remaining)
    assert "QLinearConv q needs N" in said
    assert not any(made in said for made in ("/unsigned", "/real", "/kept"))
    marked = {name for name, data in result.node_data()["results"].items() if data["bgColor"] == MARK}
    assert {"q", "q/unsigned", "x", "x/unsigned"} <= marked, "a viewer of the source and of the result"


def test_a_wish_for_a_node_is_by_the_name_that_the_source_has_for_what_it_gives() -> None:
    free = relayout.convert(unit(), target="onnxruntime-cpu")
    assert free.report.transposes == 2
    asked = relayout.convert(unit(), target="onnxruntime-cpu", node_layouts={"q": "NCHW"})
    assert asked.report.transposes == 0


def test_channels_that_are_added_for_blocks_change_no_name_in_a_report() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 32, 9, 7] x) => (float[1, 32, 9, 7] y) {
        a = Conv (x, v)
        b = Relu (a)
        y = Conv (b, w)
    }""")
    numbers = np.random.default_rng(0)
    for name, shape in (("v", (12, 32, 1, 1)), ("w", (32, 12, 1, 1))):
        model.graph.initializer.append(numpy_helper.from_array(numbers.normal(size=shape).astype(np.float32), name))
    result = relayout.convert(model, target="onnxruntime-cpu-nchwc16")
    spoken = " ".join(f"{left.tensor} {left.producer} {left.reason}" for left in result.report.remaining)
    assert any("/padded" in (value.name or "") for node in result.model.graph for value in node.outputs)
    assert "/padded" not in spoken
