"""Whole networks for every target: valid, equal, proved; claimed nodes in the target's layouts, others standard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import relayout
from relayout import pipeline
from relayout.rules import Operator, OperatorLayouts
from relayout.targets import Target, targets
from relayout.targets.testing import claiming
from running import units
from targets.blocked import run_anywhere
from targets.nets import cnn, feed, qdq
from targets.row_cases import operator

ALL = list(targets().values())
VIEWS = {"flat"}
"""Flatten is a view: the rewrite writes a Reshape for it."""
KERNELS_LAST = {"arm-compute-library", "litert", "nnapi", "xnnpack"}


def converted(source: onnx.ModelProto, target: Target | str, **options: object) -> relayout.Result:
    """The result for a target, after it was held to what every result is held to."""
    before = source.SerializeToString()
    result = relayout.convert(source, target=target, **options)  # type: ignore[arg-type]
    assert source.SerializeToString() == before, "the caller's model was changed"
    onnx.checker.check_model(result.proto, full_check=True)
    assert result.report.proved
    inputs = feed(source)
    for want, got in zip(run_anywhere(source, inputs), run_anywhere(result.proto, inputs), strict=True):
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return result


def operators(proto: onnx.ModelProto) -> dict[str, Operator]:
    """The nodes of a model by name."""
    model = pipeline.read(proto)
    return {node.name or "": operator(model, index) for index, node in enumerate(model.graph)}


def domains(proto: onnx.ModelProto) -> dict[str, str]:
    return {node.name: node.domain for node in proto.graph.node}


def domain_of(way: OperatorLayouts) -> str:
    return way.domain if way.written is None else way.written.domain


def fused(target: Target) -> set[str]:
    """The domains of nodes that a target makes of what follows them: such a node has the last one's name."""
    kernels = {target.blocks.domain} if target.blocks else set()
    return {fusion.domain for fusion in target.fusions} | (kernels if target.fusions else set())


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
@pytest.mark.parametrize("net", [cnn, qdq])
def test_claimed_nodes_run_as_the_target_has_them_and_others_are_standard(net: object, target: Target) -> None:
    source = net()  # type: ignore[operator]
    if target.units and net is qdq:
        pytest.skip("its units become other operators, before they are claimed: test_units.py")
    written = domains(converted(source, target).proto)
    claims = 0
    for name, found in operators(source).items():
        if name in VIEWS or (target.fusions and name not in written):
            continue
        runner = target.runner(found)
        ways = runner.layouts(found) if runner.claims(found) else []
        allowed = {"" if str(way) == "NCHW" else domain_of(way) for way in ways} or {""}
        assert written[name] in allowed | ({""} if target.joins else set()) | fused(target), (
            f"{name} is written in {written[name]!r}, not in {allowed}"
        )
        claims += bool(ways)
    of_net = {"FLOAT"} if net is cnn else {"INT8", "UINT8"}
    rows = [row for row in target.kernels if row.layouts and (not row.types or not of_net.isdisjoint(row.types))]
    assert claims or target.name == "onnx" or target.rest or not rows, f"no node of the network is claimed by {rows}"


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_a_second_time_changes_nothing(target: Target) -> None:
    once = converted(cnn(), target).proto
    twice = converted(once, target).proto
    assert [(n.name, n.domain, n.op_type) for n in twice.graph.node] == [
        (n.name, n.domain, n.op_type) for n in once.graph.node
    ]
    assert [w.dims for w in twice.graph.initializer] == [w.dims for w in once.graph.initializer]


@pytest.mark.parametrize("name", sorted(KERNELS_LAST))
def test_depthwise_kernels_lie_as_one_h_w_c(name: str) -> None:
    proto = converted(cnn(), name).proto
    nodes = {node.name: node for node in proto.graph.node}
    shapes = {weight.name: tuple(weight.dims) for weight in proto.graph.initializer}
    assert nodes["first"].domain == "relayout.nhwc.ohwi"
    assert shapes[nodes["first"].input[1]] == (8, 3, 3, 6)
    assert nodes["depthwise"].domain == "relayout.nhwc.ihwo"
    assert shapes[nodes["depthwise"].input[1]] == (1, 3, 3, 8)


def test_kernels_of_qnn_lie_as_h_w_i_o() -> None:
    proto = converted(cnn(), "qnn").proto
    nodes = {node.name: node for node in proto.graph.node}
    shapes = {weight.name: tuple(weight.dims) for weight in proto.graph.initializer}
    assert shapes[nodes["grouped"].input[1]] == (1, 1, 4, 12)
    assert shapes[nodes["up"].input[1]] == (2, 3, 24, 10)


@pytest.mark.parametrize("name", ["nnapi", "qnn", "xnnpack", "litert"])
def test_a_quantized_unit_moves_as_one(name: str) -> None:
    """Every Transpose that remains moves bytes: none lies between an operator and its Dequantize or Quantize."""
    proto = converted(qdq(), name).proto
    moved = {node.output[0] for node in proto.graph.node if node.op_type == "Transpose"}
    assert moved, "the interface is channels first, so something must move"
    assert units(proto.graph) == dict.fromkeys(moved, 1)


MODELS = Path(__file__).parents[2] / "models"


@pytest.mark.parametrize("name", ["litert", "nnapi", "xnnpack", "arm-compute-library"])
def test_a_network_of_tensorflow_lite_needs_no_transpose_in_its_own_layout(name: str) -> None:
    result = relayout.convert(MODELS / "tinynet_float.tflite", target=name)
    assert (result.report.bytes, result.report.proved) == (0, True)
    images = ("Conv", "MaxPool", "AveragePool")
    written = {(node.op_type, node.domain) for node in result.proto.graph.node if node.op_type in images}
    assert {domain for _, domain in written} == {"relayout.nhwc", "relayout.nhwc.ohwi", "relayout.nhwc.ihwo"}


def test_a_kernel_that_is_dequantized_and_transposed_is_constant() -> None:
    result = relayout.convert(MODELS / "tinynet_int8.tflite", target="nnapi")
    domains = {node.domain for node in result.proto.graph.node if node.op_type == "Conv"}
    assert domains == {"relayout.nhwc.ohwi", "relayout.nhwc.ihwo"}
    onnx.checker.check_model(result.proto, full_check=True)


def test_only_what_is_claimed_moves() -> None:
    target = claiming({"Conv": ["NHWC OHWI"]}, unless=lambda node: "" if node.int("group", 1) == 1 else "groups")
    written = domains(converted(cnn(), target).proto)
    assert {name for name, domain in written.items() if domain} == {"first", "point"}


def test_a_claim_may_join_the_standard() -> None:
    """What joins is chosen only where it costs nothing more: channels first at both ends keeps it standard."""
    assert set(domains(converted(cnn(), claiming({"Conv": ["NHWC"]}, joins=True)).proto).values()) == {""}


REFUSED = [
    ("xnnpack", "softmax", "it wants the last axis"),
    ("xnnpack", "norm", "BatchNormalization is not in its table"),
    ("arm-compute-library", "grouped", "it runs Conv only with: no groups, depthwise"),
    ("nnapi", "up", "ConvTranspose is not in its table"),
    ("coreml", "up", "ConvTranspose is not in its table"),
]


@pytest.mark.parametrize(("name", "node", "reason"), REFUSED)
def test_reasons(name: str, node: str, reason: str) -> None:
    assert targets()[name].lacks(operators(cnn())[node]) == reason


def test_types_and_ranks_are_reasons() -> None:
    source = cnn()
    target = targets()["xnnpack"]
    model = pipeline.read(source)
    model.graph[0].inputs[0].dtype = type(model.graph[0].inputs[0].dtype).DOUBLE  # type: ignore[union-attr]
    assert target.lacks(operator(model, 0)) == "element type DOUBLE; it takes FLOAT, INT8, UINT8"
    line = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2,3,9] x) => (float[2,3,7] y) {'
        " y = MaxPool<kernel_shape=[3]>(x) }"
    )
    assert target.lacks(operator(pipeline.read(line))) == "rank 3"
