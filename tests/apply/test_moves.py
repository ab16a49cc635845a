"""Transposes in two steps: the same elements, and none copied by itself."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import onnx
import pytest
from onnx import helper

import relayout
from relayout.formats.onnx.parts import to_proto
from relayout.formats.onnx.reading import read
from relayout.layout.perm import innermost
from relayout.lowering.split_transposes import split_transposes
from running import run


def transpose(shape: tuple[int, ...], perm: tuple[int, ...], *, opset: int = 21) -> onnx.ModelProto:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=perm)
    read_from = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    given = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [shape[axis] for axis in perm])
    graph = helper.make_graph([node], "g", [read_from], [given])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize(
    ("perm", "inner"),
    [
        ((0, 2, 1, 3), ()),
        ((0, 2, 3, 1), ()),
        ((0, 3, 1, 2), ()),
        ((2, 3, 0, 1), ()),
        ((0, 2, 4, 1, 3), (4,)),
        ((1, 0, 3, 4, 2), (3, 4)),
        ((2, 1, 0), (2,)),
        ((), ()),
    ],
)
def test_what_moves_one_axis_or_keeps_the_innermost_stays(perm: tuple[int, ...], inner: tuple[int, ...]) -> None:
    assert innermost(perm) == inner


@pytest.mark.parametrize("perm", list(permutations(range(4))), ids=str)
def test_two_steps_give_the_same(perm: tuple[int, ...]) -> None:
    shape = (6, 5, 17, 11)
    source = transpose(shape, perm)
    found = read(source)
    notes = split_transposes(found, 2)
    result = to_proto(found)
    onnx.checker.check_model(result, full_check=True)
    assert [note.partition(": ")[2] for note in notes] == ["1 (22,440 bytes more, in runs)"] * bool(innermost(perm))
    for node in result.graph.node:
        if node.op_type == "Transpose":
            assert innermost(tuple(node.attribute[0].ints)) == ()
    feed = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    for want, got in zip(run(source, feed), run(result, feed), strict=True):
        np.testing.assert_array_equal(want, got)


@pytest.mark.parametrize(
    ("shape", "least", "opset"),
    [((6, 5, 17, 11), 12, 21), ((2, 3, 4, 5), 2, 21), ((6, 5, 17, 11), 2, 4)],
    ids=["run too short", "small", "opset 4"],
)
def test_what_two_steps_do_not_pay_for_stays(shape: tuple[int, ...], least: int, opset: int) -> None:
    found = read(transpose(shape, (0, 3, 2, 1), opset=opset))
    assert split_transposes(found, least) == ()
    assert [node.op_type for node in found.graph] == ["Transpose"]


def test_extents_that_are_not_known_are_not_reckoned_with() -> None:
    source = transpose((6, 5, 17, 11), (0, 3, 2, 1))
    source.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    source.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert split_transposes(read(source), 2) == ()


def test_a_target_has_it_done_and_the_report_says_so() -> None:
    source = transpose((16, 4, 8, 36), (0, 2, 3, 1))
    assert relayout.convert(source, target="onnxruntime-cpu").report.notes == ()
    moved = transpose((16, 4, 8, 36), (0, 3, 2, 1))
    result = relayout.convert(moved, target="onnxruntime-cpu")
    assert [node.op_type for node in result.proto.graph.node] == ["Transpose", "Reshape", "Transpose", "Reshape"]
    assert (result.report.transposes, result.report.bytes) == (1, 73728)
    (note,) = result.report.notes
    assert "in two steps: 1 (73,728 bytes more, in runs)" in note
