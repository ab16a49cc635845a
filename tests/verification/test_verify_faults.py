"""Planted faults: each must be found, and at the operator where it was planted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import relayout
from relayout.formats import tflite
from relayout.verification import Verdict, VerifyReport, verify

MODELS = Path(__file__).parents[2] / "models"
PRECISIONS = ("float", "int8", "dynamic")


def convolutions(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "Conv"]


def constant(value: ir.Value | None) -> ir.Value:
    """The initializer behind a value, through DequantizeLinear."""
    while value is not None and value.const_value is None:
        value = value.producer().inputs[0]
    return value


def replaced(model: ir.Model, value: ir.Value, change: Callable[[np.ndarray], np.ndarray]) -> None:
    name = value.name
    value.const_value = ir.tensor(np.ascontiguousarray(change(value.const_value.numpy())), name=name)


def wrong_weight(model: ir.Model, place: int) -> None:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[1] = -array[1]
        return array

    replaced(model, constant(convolutions(model)[place].inputs[1]), change)


def mirrored_kernel(model: ir.Model, place: int) -> None:
    replaced(model, constant(convolutions(model)[place].inputs[1]), lambda array: array[..., ::-1])


def dropped_bias(model: ir.Model, place: int) -> None:
    node = convolutions(model)[place]
    assert node.inputs[2] is not None
    node.replace_input_with(2, None)


def wrong_pads(model: ir.Model, place: int) -> None:
    node = convolutions(model)[place]
    pads = list(node.attributes["pads"].as_ints())
    node.attributes["pads"] = ir.AttrInt64s("pads", pads[2:] + pads[:2])


def convolution_operators(path: Path) -> list[str]:
    """The interpreter's indices of the operators that become Conv."""
    rows = verify(path, path).rows
    return [row.node for row in rows if row.operator in ("CONV_2D", "DEPTHWISE_CONV_2D")]


def damaged(precision: str, damage: Callable[[ir.Model], None], io: str = "convert") -> VerifyReport:
    path = MODELS / f"tinynet_{precision}.tflite"
    model = relayout.convert(path, io=io).model
    damage(model)
    return verify(path, model)


@pytest.mark.parametrize("place", [0, 1, 3, 4])
@pytest.mark.parametrize("fault", [wrong_weight, dropped_bias])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.sampled(every=3)
def test_a_fault_in_a_convolution_is_found_there(precision: str, fault: Callable[..., None], place: int) -> None:
    report = damaged(precision, lambda model: fault(model, place))
    expected = convolution_operators(MODELS / f"tinynet_{precision}.tflite")[place]
    assert not report.ok
    assert report.first is not None
    assert (report.first.node, report.first.verdict) == (expected, Verdict.DIFFERS)
    assert report.first.name in report.verdict
    before = [row for row in report.rows if row.order < report.first.order]
    assert all(row.ok for row in before)
    assert len(before) >= place


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_mirrored_kernel_is_found(precision: str) -> None:
    report = damaged(precision, lambda model: mirrored_kernel(model, 0))
    assert not report.ok
    assert report.first is not None
    assert report.first.operator == "CONV_2D"


def test_asymmetric_padding_on_the_wrong_side_is_found() -> None:
    report = damaged("float", lambda model: wrong_pads(model, 0))
    assert not report.ok
    assert report.first is not None
    assert (report.first.operator, report.first.node) == ("CONV_2D", "0")


def test_swapped_operands_are_found() -> None:
    """Concat with its inputs in the other order: the same shape, other channels."""
    path = MODELS / "tinynet_float.tflite"
    model = tflite.read(path)
    (node,) = (node for node in model.graph if node.op_type == "Concat")
    inputs = list(node.inputs)
    assert inputs[0].shape != inputs[1].shape
    for place, value in enumerate(reversed(inputs)):
        node.replace_input_with(place, value)
    report = verify(path, model)
    assert not report.ok
    assert report.first is not None
    assert report.first.operator == "CONCATENATION"


def test_a_wrong_transpose_is_found() -> None:
    """The flattened features in the order of the other axes: what layout mistakes look like."""

    def transpose(model: ir.Model) -> None:
        (node,) = (node for node in model.graph if node.op_type == "Reshape")
        swapped = ir.node("Transpose", [node.inputs[0]], attributes={"perm": [0, 1, 3, 2]})
        model.graph.insert_before(node, swapped)
        node.replace_input_with(0, swapped.outputs[0])

    report = damaged("float", transpose)
    assert not report.ok
    assert report.first is not None
    assert report.first.operator in ("RESHAPE", "FULLY_CONNECTED")


def nchw_output(declare: bool) -> tuple[ir.Model, ir.Model]:
    """A model that ends in an image, and one that ends in the same image `n c h w`, which it may declare or not."""
    source = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,4,5,3] x) => (float[2,4,5,3] y) { y = Relu(x) }'
    )
    note = '[{"name":"y","factors":[2,4,5,3],"perm":[0,3,1,2],"shape":[2,4,5,3]}]'
    result = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,4,5,3] x) => (float[2,3,4,5] y) '
        "{ t = Relu(x)  y = Transpose<perm = [0, 3, 1, 2]>(t) }"
    )
    if declare:
        result.graph.outputs[0].metadata_props["relayout.holds"] = note
    return source, result


def test_an_undeclared_layout_of_an_output_is_a_fault() -> None:
    assert verify(*nchw_output(declare=True)).ok
    report = verify(*nchw_output(declare=False))
    assert not report.ok
    assert [row.verdict for row in report.outputs] == [Verdict.SHAPE]
    assert "output 'y' shape differs" in report.verdict


def test_a_wrongly_declared_layout_is_a_fault() -> None:
    source, result = nchw_output(declare=True)
    notes = result.graph.outputs[0].metadata_props
    notes["relayout.holds"] = notes["relayout.holds"].replace("[0,3,1,2]", "[0,3,2,1]")
    assert not verify(source, result).ok
    notes["relayout.holds"] = notes["relayout.holds"].replace("[2,4,5,3]", "[2,4,5,7]")
    report = verify(source, result)
    assert [row.verdict for row in report.outputs] == [Verdict.SHAPE]
    assert "declared to hold" in report.notes[0]
