"""A `.tflite` imported without a target: the file's types and channels, for every runtime; and for `none`."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from tflite_cases_cells import gru_after, looped
from tflite_cases_matrix import product_in_blocks
from tflite_cases_recurrent import TIME, lstm
from tflite_running import FAST, SHARED, agree, check_model, read
from tflite_writing import Net, Scale, options

import relayout
from relayout.errors import LayoutError
from relayout.formats import tflite
from relayout.formats.tflite.importing.program import Choices
from relayout.pipeline import check_plan
from relayout.targets import targets
from relayout.targets.litert.table import passes as litert_passes
from relayout.targets.onnxruntime.import_list import ALTERNATIVES, with_vnni
from relayout.targets.portable import portable
from relayout.verification import verify

MODELS = Path(__file__).parents[3] / "models"
CHANNELS = 72
SYMMETRIC = Scale(0.05, 0)
QUANTIZING = ("DequantizeLinear", "QuantizeLinear")


def symmetric(kind: str = "int8") -> bytes:
    """Convolution, depthwise convolution of 72 channels, convolution, sum of the first and the last, around 0."""
    rng, net = np.random.default_rng(0), Net()
    shape = (1, 10, 12, CHANNELS)

    def convolved(x: int, kernel: tuple[int, ...], *, depthwise: bool = False) -> int:
        scales = Scale([0.002] * CHANNELS, 0, 3 if depthwise else 0)
        weights = net.const(rng.integers(-127, 128, kernel), kind, q=scales)
        bias = net.const(rng.integers(-99, 99, CHANNELS), "int32", q=Scale([0.0001] * CHANNELS))
        more: dict[str, Any] = {"depthMultiplier": 1} if depthwise else {}
        table = options("DepthwiseConv2DOptions" if depthwise else "Conv2DOptions", strideH=1, strideW=1, **more)
        y = net.tensor(shape, kind, q=SYMMETRIC)
        net.op("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, weights, bias], [y], table, version=3)
        return y

    x = net.input((1, 10, 12, 8), kind, q=SYMMETRIC, name="x")
    first = convolved(x, (CHANNELS, 1, 1, 8))
    last = convolved(convolved(first, (1, 3, 3, CHANNELS), depthwise=True), (CHANNELS, 1, 1, CHANNELS))
    y = net.output(shape, kind, q=SYMMETRIC, name="y")
    return net.op("ADD", [first, last], [y], options("AddOptions"), version=2).bytes()


def types(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


def quantizing(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph.all_nodes() if node.op_type in QUANTIZING]


def test_a_symmetric_network_is_one_part_between_its_borders() -> None:
    """TensorRT takes no uint8, and 80 channels would be another file's."""
    result = relayout.convert(symmetric(), target="tensorrt")
    parts = result.parts()
    assert [part.name.partition("_")[2] for part in parts] == ["host", "tensorrt", "host"]
    assert [node.op_type for part in (parts[0], parts[2]) for node in part.nodes] == ["Transpose", "Transpose"]
    convolutions = [node for node in result.model.graph if node.op_type == "Conv"]
    assert [node.attributes.get_int("group", 1) for node in convolutions] == [1, CHANNELS, 1]
    assert {node.outputs[0].shape[1] for node in convolutions if node.outputs[0].shape} == {CHANNELS}
    integers = {
        value.dtype for node in quantizing(result.model) for value in (*node.inputs[:1], *node.outputs) if value
    }
    assert integers == {ir.DataType.INT8, ir.DataType.FLOAT, ir.DataType.INT32}  # of biases
    assert verify(symmetric(), result.model).ok


@pytest.mark.parametrize("target", [None, "none", "tensorrt", "qnn"])
def test_no_target_but_onnx_runtimes_changes_types_or_channels(target: str | None) -> None:
    model = relayout.convert(symmetric(), target=target).model
    assert not any(value.dtype == ir.DataType.UINT8 for node in model.graph for value in node.outputs)
    assert max(node.attributes.get_int("group", 1) for node in model.graph if node.op_type == "Conv") == CHANNELS


def test_the_target_of_onnx_runtime_does_all_of_it() -> None:
    model = read(symmetric(), target=FAST)
    assert ir.DataType.UINT8 in {value.dtype for node in quantizing(model) for value in node.outputs}
    agree(symmetric(), target=FAST)
    agree(symmetric())


def with_zero_points(model: ir.Model) -> bool:
    return all(len(node.inputs) == 3 and node.inputs[2] is not None for node in quantizing(model))


def test_zero_points_are_always_named() -> None:
    """Also those of biases: without, rknn-toolkit2 builds no model."""
    model = relayout.convert(symmetric()).model
    biases = [node for node in quantizing(model) if node.inputs[0] and node.inputs[0].dtype == ir.DataType.INT32]
    assert len(biases) == 3
    assert with_zero_points(model)
    assert with_zero_points(relayout.convert(product_in_blocks().bytes()).model)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared models are not here")
def test_a_network_of_coral_has_zero_points_and_int8() -> None:
    model = relayout.convert(SHARED / "coral" / "tf2_mobilenet_v2_1.0_224_ptq.tflite").model
    assert with_zero_points(model)
    kinds = Counter(node.outputs[0].dtype for node in quantizing(model) if node.op_type == "QuantizeLinear")
    assert kinds[ir.DataType.INT8] > 50
    assert kinds[ir.DataType.UINT8] <= 2  # the interface's


def hybrid() -> bytes:
    """A convolution and a product of real numbers by integers."""
    rng, net = np.random.default_rng(1), Net()
    x, middle = net.input((1, 6, 6, 8)), net.tensor((1, 6, 6, 8))
    kernel = net.const(rng.integers(-127, 128, (8, 1, 1, 8)), "int8", q=Scale(0.01, 0))
    net.op("CONV_2D", [x, kernel, -1], [middle], options("Conv2DOptions", strideH=1, strideW=1), version=5)
    weights = net.const(rng.integers(-127, 128, (4, 288)), "int8", q=Scale(0.01, 0))
    net.op("FULLY_CONNECTED", [middle, weights, -1], [net.output((1, 4))], options("FullyConnectedOptions"), version=9)
    return net.bytes()


def test_integer_weights_beside_real_numbers_are_dequantized() -> None:
    found = types(relayout.convert(hybrid()).model)
    assert (found["DequantizeLinear"], found["MatMulInteger"], found["Cast"]) == (2, 0, 0)
    assert with_zero_points(relayout.convert(hybrid()).model)
    assert types(relayout.convert(hybrid(), target=FAST).model)["MatMulInteger"] > 0


def test_none_lowers_nothing() -> None:
    """No Casts for a runtime that lacks a kernel; a PAD stays, and so do the rounds of a loop."""
    net = Net()
    x, amounts = net.input((2, 3), "int16", name="x"), net.const(np.array([[0, 1], [2, 0]]), "int32")
    net.op("PAD", [x, amounts], [net.output((4, 4), "int16")], options("PadOptions"))
    assert types(relayout.convert(net.bytes()).model) == {"Pad": 1, "Cast": 3}
    assert types(relayout.convert(net.bytes(), target="none").model) == {"Pad": 1}
    net = Net()
    x, amounts = net.input((1, 6, 6, 3)), net.const([[0, 0], [1, 1], [1, 1], [0, 0]], "int32")
    padded, window = net.tensor((1, 8, 8, 3)), options("Conv2DOptions", padding=1, strideH=1, strideW=1)
    net.op("PAD", [x, amounts], [padded], options("PadOptions"))
    operands = [padded, net.const(np.ones((4, 3, 3, 3))), net.const(np.zeros(4))]
    net.op("CONV_2D", operands, [net.output((1, 6, 6, 4))], window)
    assert types(relayout.convert(net.bytes()).model)["Pad"] == 0
    assert types(relayout.convert(net.bytes(), target="none").model)["Pad"] == 1
    agree(net.bytes(), target="none")
    rounds = looped(gru_after).bytes()
    assert types(relayout.convert(rounds).model)["GRU"] == 1
    literal = types(relayout.convert(rounds, target="none").model)
    assert (literal["GRU"], literal["Loop"]) == (0, 1)
    agree(rounds, target="none")


def test_none_is_a_target_without_parts() -> None:
    result = relayout.convert(symmetric(), target="none")
    assert result.target is None
    with pytest.raises(LayoutError, match="target"):
        result.parts()


@pytest.mark.parametrize("target", ["none", None, FAST])
def test_a_plan_is_checked_on_the_model_that_it_was_made_for(target: str | None, tmp_path: Path) -> None:
    source, plan = tmp_path / "source.tflite", tmp_path / "plan.json"
    source.write_bytes(symmetric())
    plan.write_text(json.dumps(relayout.convert(source, target=target).plan))
    assert check_plan(plan, source).proved
    data = json.loads(plan.read_text())
    data["options"]["read"] |= {"fast": False, "widen": True, "saturates": False}  # as earlier releases wrote
    plan.write_text(json.dumps(data))
    assert check_plan(plan, source).proved


def test_a_limited_lstm_is_a_scan_without_a_target() -> None:
    """Pieces that cannot reach the limit, and a Scan in another branch, are what ONNX Runtime gains by."""
    content = lstm(time=19, clip=5).bytes()
    assert {"If", "LSTM"} <= set(types(read(content, target=FAST)))
    plain = types(read(content))
    assert (plain["Scan"], plain["If"], plain["LSTM"]) == (1, 0, 0)
    assert types(read(lstm(clip=TIME).bytes()))["LSTM"] == 1


@pytest.mark.parametrize("name", [name for name in targets() if not name.startswith("onnxruntime")])
def test_other_targets_import_as_the_default_does(name: str) -> None:
    """Where LiteRT's kernels run what a target leaves, only loops that round rows are not recognised."""
    with_litert = name in ("coral", "ethos-u", "ethos-u85", "litert", "litert-gpu", "nnapi", "tflite-micro", "tosa")
    assert targets()[name].tflite is (litert_passes if with_litert else portable)


def test_litert_has_one_pass_of_its_own() -> None:
    one, other = ({**each().alternatives} for each in (litert_passes, portable))
    assert one.pop("WHILE") != other.pop("WHILE")
    assert one.keys() == other.keys()
    assert litert_passes().stand_ins == portable().stand_ins


def test_every_alternative_is_there() -> None:
    """They are named by text, and loaded when an operator is met that they are for."""
    for written in ALTERNATIVES.values():
        for place in written:
            for unrolled in ("unrolled", "unrolled_without_vnni"):
                module, _, function = place.format(unrolled=unrolled).partition(".")
                assert callable(getattr(importlib.import_module(f"relayout.targets.onnxruntime.{module}"), function))


MOVING = ("Transpose", "Reshape", "Squeeze", "Unsqueeze")


@pytest.mark.parametrize("target", [None, "qnn"])
def test_integers_are_read_by_units_alone(target: str | None) -> None:
    """As accelerators know them: what pools, joins or pads them stands between the two ends of a unit."""
    model = relayout.convert(MODELS / "tinynet_int8.tflite", target=target).model
    readers = {
        user.op_type
        for node in model.graph
        for value in node.outputs
        if value.dtype in (ir.DataType.INT8, ir.DataType.UINT8)
        for user, _ in value.uses()
    }
    assert readers <= {"DequantizeLinear", *MOVING}
    assert {"MaxPool", "Concat"} <= set(types(model))
    tuned = types(read(MODELS / "tinynet_int8.tflite", target=FAST))
    assert tuned["DequantizeLinear"] < types(read(MODELS / "tinynet_int8.tflite"))["DequantizeLinear"]


def test_a_table_is_not_dequantized_for_what_is_picked_of_it() -> None:
    rng, net, q = np.random.default_rng(3), Net(), Scale(0.1, 3)
    table, places = net.const(rng.integers(-128, 128, (50, 4)), "int8", q=q), net.input((3,), "int32", 0, 49)
    net.op("GATHER", [table, places], [net.output((3, 4), "int8", q=q)], options("GatherOptions"))
    assert types(read(net.bytes())) == {"Gather": 1}
    agree(net.bytes(), net.ranges)


def test_what_the_oldest_runtime_has_no_kernel_for_is_between_casts() -> None:
    """ONNX Runtime 1.23 has no Where of int8."""
    net = Net()
    condition, x, y = net.input((2, 3), "bool"), net.input((2, 3), "int8"), net.input((2, 3), "int8")
    net.op("SELECT_V2", [condition, x, y], [net.output((2, 3), "int8")])
    assert types(read(net.bytes())) == {"Cast": 3, "Where": 1}
    assert types(read(net.bytes(), target="none")) == {"Where": 1}
    agree(net.bytes())


def test_independent_passes_over_a_file_give_the_same_in_any_order() -> None:
    content = symmetric()
    pad, data, weights = with_vnni().over_file
    results = {
        check_model(tflite.read(content, Choices(passes=replace(with_vnni(), over_file=order))))
        for order in ((pad, data, weights), (pad, weights, data), (weights, pad, data))
    }
    assert len(results) == 1


def test_passes_in_a_wrong_order_are_refused() -> None:
    pad, data, weights = with_vnni().over_file
    with pytest.raises(LayoutError, match="'pad_depthwise_channels' requires types of the file, which 'uint8_act"):
        replace(with_vnni(), over_file=(data, pad, weights))
