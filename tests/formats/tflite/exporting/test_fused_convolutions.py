"""Convolutions of ONNX Runtime that have taken in what follows them, as TensorFlow Lite's operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import relayout
from relayout.errors import UnsupportedError
from relayout.graph.domains import INTERNAL_NHWC
from relayout.lowering import fold_affine
from small import build
from text_form import floats, model

TEXT = (
    "g (float[2,3,9,8] x, float[2,5,5,8] z) => (float[2,5,5,8] y) { y = Conv<strides=[2,1], pads=[1,1,1,1]>(x, w, b) }"
)
ACTIVATIONS = {
    "": [],
    "Relu": [],
    "Tanh": [],
    "Sigmoid": [],
    "LeakyRelu": [0.3],
    "HardSigmoid": [0.3, 0.4],
    "Clip": [-0.5, 1.25],
}


def fused(activation: str, parameters: list[float], *operands: str) -> onnx.ModelProto:
    proto = model(TEXT, w=floats(5, 3, 3, 3), b=floats(5))
    (node,) = proto.graph.node
    node.domain, node.op_type = "com.microsoft", "FusedConv"
    node.input[:] = ["x", "w", *operands]
    if "z" not in operands:
        del proto.graph.input[1]
    if activation:
        node.attribute.append(helper.make_attribute("activation", activation))
    if parameters:
        node.attribute.append(helper.make_attribute("activation_params", parameters))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


@pytest.mark.parametrize("operands", [(), ("b",), ("b", "z"), ("", "z")], ids=",".join)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_onnx_runtime(tmp_path: Path, activation: str, operands: tuple[str, ...]) -> None:
    proto = fused(activation, ACTIVATIONS[activation], *operands)
    relayout.convert(proto, format="tflite").save(tmp_path / "r.tflite")
    assert relayout.verify(proto, tmp_path / "r.tflite").ok


def test_in_the_internal_domain(tmp_path: Path) -> None:
    """Images in NHWC, as ONNX Runtime's layout transformation leaves them."""
    proto = fused("LeakyRelu", [0.3], "b")
    (node,) = proto.graph.node
    node.domain, node.op_type = INTERNAL_NHWC, "Conv"
    for value, dims in ((proto.graph.input[0], (2, 9, 8, 3)), (proto.graph.output[0], (2, 5, 8, 5))):
        value.CopyFrom(helper.make_tensor_value_info(value.name, 1, dims))
    result = relayout.convert(proto, format="tflite")
    assert not result.report.transposes
    result.save(tmp_path / "r.tflite")
    assert relayout.verify(proto, tmp_path / "r.tflite").ok


@pytest.mark.parametrize(("activation", "parameters"), [("Mish", []), ("LeakyRelu", []), ("Relu", [1.0])])
def test_activations_that_are_not_known(activation: str, parameters: list[float]) -> None:
    with pytest.raises(UnsupportedError, match="FusedConv"):
        relayout.convert(fused(activation, parameters), format="tflite")


def test_a_scaled_kernel_is_made_when_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel at a time is in memory: ResNet-50 of 102 MB took 210 MB, and takes as much as its file."""
    made: list[int] = []
    scaled = fold_affine._scaled

    def counted(*given: Any) -> Any:
        made.append(1)
        return scaled(*given)

    monkeypatch.setattr(fold_affine, "_scaled", counted)
    rng = np.random.default_rng(0)
    kernel, scale = (rng.normal(size=shape).astype(np.float32) for shape in ((128, 64, 5, 5), (1, 128, 1, 1)))
    source = build("float[1,64,8,8] x", "c = Conv<pads = [2, 2, 2, 2]>(x, k) y = Mul(c, s)", {"k": kernel, "s": scale})
    result = relayout.convert(source, format="tflite")
    assert not made
    assert result.report.operators == {"CONV_2D": 1, "TRANSPOSE": 2}
    assert result.tflite
    assert made
