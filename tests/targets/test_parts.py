"""What a target runs as parts of a graph: whole, connected, in an order, and together the same model."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser, shape_inference

import relayout
from relayout.errors import LayoutError, WriteError
from relayout.rewrite import parts
from relayout.rules import Operator
from relayout.targets.testing import claiming
from running import run

NPU = claiming({"Conv": ["NHWC OHWI"], "Relu": [], "MaxPool": ["NHWC"], "Transpose": []}, name="npu")
HEADER = '<ir_version: 10, opset_import: ["": 20]>\n'


def model(text: str, **constants: NDArray[np.generic]) -> onnx.ModelProto:
    proto = parser.parse_model(HEADER + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return shape_inference.infer_shapes(proto, data_prop=True)


def floats(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def branching() -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """Two branches of convolutions; a Softmax on one of them has to come back from the host before they meet."""
    source = model(
        """g (float[2,3,8,10] x) => (float[2,5,8,10] y, float[2,4,8,10] z) {
            a = Conv(x, u)
            b = Relu(a)
            s = Softmax<axis=1>(b)
            c = Conv(s, v)
            d = Conv(b, v)
            e = Add(c, d)
            y = Relu(e)
            z = Tanh(b)
        }""",
        u=floats(4, 3, 1, 1),
        v=floats(5, 4, 1, 1, seed=1),
    )
    return source, {"x": floats(2, 3, 8, 10, seed=2)}


def run_parts(directory: Path, feed: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs of the manifest's parts, each run by itself in order on what was given before."""
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    known = dict(feed)
    for part in manifest["parts"]:
        session = onnxruntime.InferenceSession(str(directory / part["file"]), providers=["CPUExecutionProvider"])
        given = session.run(part["outputs"], {name: known[name] for name in part["inputs"]})
        known.update(zip(part["outputs"], given, strict=True))
    return [known[name] for name in manifest["outputs"]]


def test_parts_run_one_after_another_compute_what_the_model_does(tmp_path: Path) -> None:
    source, feed = branching()
    result = relayout.convert(source, target=NPU)
    assert result.report.proved
    result.save_parts(tmp_path / "parts")
    for want, got in zip(run(source, feed), run_parts(tmp_path / "parts", feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_part_is_claimed_as_a_whole_or_not_at_all() -> None:
    source, _ = branching()
    result = relayout.convert(source, target=NPU)
    found = result.parts()
    nodes = [node for part in found for node in part.nodes]
    assert sorted(id(node) for node in nodes) == sorted(id(node) for node in result.model.graph)
    claimed = {node.op_type for part in found if part.claimed for node in part.nodes}
    assert claimed == {"Conv", "Relu", "Transpose"}, "Transposes came with the conversion, and are the target's, too"
    assert {node.op_type for part in found if not part.claimed for node in part.nodes} == {"Softmax", "Add", "Tanh"}


def test_what_waits_for_the_host_is_another_part() -> None:
    source, _ = branching()
    found = relayout.convert(source, target=NPU).parts()
    (before,) = (part for part in found if any(node.outputs[0].name.startswith("a") for node in part.nodes))
    after = [part for part in found if part.claimed and found.index(part) > found.index(before)]
    assert after, "the convolution of the Softmax cannot run with that of its operand: a cycle"
    made: set[ir.Value] = set()
    inputs = {value for part in found for value in part.inputs if value.is_graph_input()}
    for part in found:
        assert set(part.inputs) <= made | inputs
        made.update(part.outputs)


def test_regions_as_functions(tmp_path: Path) -> None:
    source, feed = branching()
    result = relayout.convert(source, target=NPU, regions="functions")
    result.save(tmp_path / "functions.onnx")
    proto = onnx.load(tmp_path / "functions.onnx")
    onnx.checker.check_model(proto, full_check=True)
    left = {node.op_type for node in proto.graph.node if not node.domain.startswith("regions.")}
    assert left == {"Softmax", "Add", "Tanh"}
    assert [node.domain for node in proto.graph.node].count("regions.npu") >= 2
    for want, got in zip(run(source, feed), run(proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_operator_that_became_the_targets_own_is_claimed_in_the_second_round() -> None:
    """Softmax over channels: the target has it for the last axis only, where channels lie once all is NHWC."""

    def unless(operator: Operator) -> str:
        if operator.name != "Softmax":
            return ""
        last = operator.int("axis", -1) % len(operator.inputs[0] or ()) == len(operator.inputs[0] or ()) - 1
        return "" if last else "its axis is not the last"

    target = claiming({"Conv": ["NHWC"], "Softmax": []}, name="npu", unless=unless)
    source = model(
        "g (float[2,3,8,10] x) => (float[2,5,8,10] y) { a = Conv(x, u) s = Softmax<axis=1>(a) y = Conv(s, v) }",
        u=floats(4, 3, 1, 1),
        v=floats(5, 4, 1, 1, seed=1),
    )
    result = relayout.convert(source, target=target)
    (part,) = (part for part in result.parts() if part.claimed)
    assert part.operators == {"Softmax": 1, "relayout.nhwc:Conv": 2}
    assert not any(part.claimed and "Softmax" in part.operators for part in parts(ir.from_proto(source), target))


def test_a_partial_claim_inside_a_branch() -> None:
    source = model(
        """g (float[2,3,8,10] x, bool c) => (float[2,4,8,10] y) {
            y = If (c) <
                then_branch = g1 () => (float[2,4,8,10] p) { a = Conv(x, u) p = Tanh(a) },
                else_branch = g2 () => (float[2,4,8,10] q) { b = Conv(x, u) d = Relu(b) q = Sigmoid(d) }
            >
        }""",
        u=floats(4, 3, 1, 1),
    )
    result = relayout.convert(source, target=NPU)
    bodies = [node for node in result.model.graph.all_nodes() if node.op_type == "Conv"]
    assert {node.domain for node in bodies} == {"relayout.nhwc.ohwi"}
    assert result.report.proved
    for taken in (True, False):
        feed = {"x": floats(2, 3, 8, 10, seed=3), "c": np.array(taken)}
        np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_random_claims_on_random_graphs(seed: int, tmp_path: Path) -> None:
    """Any set of claims falls into parts that run in order, and together compute the model."""
    rng = random.Random(seed)
    lines, names = [], ["x"]
    for place in range(14):
        first, second = rng.choice(names[-4:]), rng.choice(names[-4:])
        operator = rng.choice(["Relu", "Tanh", "Sigmoid", "Add", "Conv", "Conv"])
        operands = {"Add": f"{first}, {second}", "Conv": f"{first}, w"}.get(operator, first)
        lines.append(f"v{place} = {operator}({operands})")
        names.append(f"v{place}")
    ends = ", ".join(f"float[1,4,5,6] {name}" for name in names[-2:])
    source = model(f"g (float[1,4,5,6] x) => ({ends}) {{ {chr(10).join(lines)} }}", w=floats(4, 4, 1, 1) / 4)
    claims = {name: [] for name in rng.sample(["Relu", "Tanh", "Sigmoid", "Add"], 2)} | {"Conv": ["NHWC"]}
    result = relayout.convert(source, target=claiming(claims, name="npu"))
    feed = {"x": floats(1, 4, 5, 6, seed=seed)}
    result.save_parts(tmp_path / "parts")
    functions = relayout.convert(source, target=claiming(claims, name="npu"), regions="functions").proto
    for want, got, called in zip(
        run(source, feed), run_parts(tmp_path / "parts", feed), run(functions, feed), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(called, want, rtol=1e-4, atol=1e-5)


def test_parts_want_a_target_and_a_directory_of_their_own(tmp_path: Path) -> None:
    source, _ = branching()
    with pytest.raises(LayoutError, match="target"):
        relayout.convert(source, to="NHWC").parts()
    with pytest.raises(LayoutError, match="target"):
        relayout.convert(source, regions="functions")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(WriteError, match="not empty"):
        relayout.convert(source, target=NPU).save_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt"]
