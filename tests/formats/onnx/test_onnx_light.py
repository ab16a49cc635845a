"""ONNX's own light models: weights that are computed from shapes, no shape stated, version 3 of the IR."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper, parser

import relayout

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
SMALL = ["light_bvlc_alexnet", "light_resnet50", "light_squeezenet", "light_vgg19"]


@pytest.mark.parametrize("name", SMALL)
def test_every_convolution_runs_in_the_layout_asked_for(name: str) -> None:
    result = relayout.convert(LIGHT / f"{name}.onnx", to="NHWC")
    counts = result.report.operators
    assert counts["relayout.nhwc:Conv"] >= 5
    assert "Conv" not in counts
    assert result.report.transposes == 1
    assert not any("Conv" in reason for reason in result.report.barriers)


@pytest.mark.parametrize("target", ["xnnpack", "tensorrt"])
def test_a_target_knows_their_shapes(target: str) -> None:
    result = relayout.convert(LIGHT / "light_squeezenet.onnx", target=target)
    assert not result.report.barriers
    assert not any("can run in another layout" in note for note in result.report.notes)


def light(version: int) -> onnx.ModelProto:
    """A weight from a shape, a mask that nobody reads, and constants that are inputs, too, as early files have them."""
    model = parser.parse_model(
        f"""<ir_version: {version}, opset_import: ["": 9]> g (float[1,3,8,9] x, int64[4] s) => (y) {{
            w = ConstantOfShape(s) a = Conv(x, w) d, mask = Dropout(a) b = Relu(d) y = Conv(b, v) }}"""
    )
    shape = helper.make_tensor("s", TensorProto.INT64, [4], [4, 3, 2, 3])
    kernel = helper.make_tensor("v", TensorProto.FLOAT, [5, 4, 1, 1], [0.5] * 20)
    model.graph.initializer.extend([shape, kernel])
    model.graph.input.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, [5, 4, 1, 1]))
    return model


@pytest.mark.parametrize("version", [3, 4, 8])
def test_weights_that_are_computed_in_files_of_any_version(version: int) -> None:
    result = relayout.convert(light(version), to="NHWC", io="convert")
    assert result.report.operators["relayout.nhwc:Conv"] == 2
    assert result.report.transposes == 0


def test_a_report_says_what_does_not_run_as_asked() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 13, "some.where": 1]> g (float[1,3,8,9] x) => (y) {
            a = Conv(x, w) b = some.where.Mystery(a) c = Conv(b, v) d = Conv(c, v)
            y = MaxPool<kernel_shape=[2,2]>(d) }"""
    )
    for name, dims in (("w", [4, 3, 2, 3]), ("v", [4, 4, 1, 1])):
        model.graph.initializer.append(
            helper.make_tensor(name, 1, dims, [0.5] * (dims[0] * dims[1] * dims[2] * dims[3]))
        )
    found = relayout.explain(model, to="NHWC").notes
    assert "1 of 3 Conv can run in another layout: the rank of what Conv reads is not known" in found
    assert "0 of 1 MaxPool can run in another layout: the rank of what MaxPool reads is not known" in found
    assert not relayout.explain(model).notes


def test_a_report_says_that_nothing_has_layouts() -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }'
    )
    (said,) = relayout.explain(model, to="NHWC").notes
    assert said == "no operator of this model has layouts: NHWC is asked for, and nothing can run in it"
