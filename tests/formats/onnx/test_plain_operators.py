"""NumPy computes of shapes the same as ONNX's reference does, types included."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from relayout.formats.onnx.evaluating import FUNCTIONS, OTHERS, Evaluation, compute_plainly
from relayout.formats.onnx.shape_vectors import MOVES, move_elements, object_vector
from relayout.layout import Extent
from text_form import model

V, W = np.array([3, 0, 7, 2]), np.array([2, 5, 7, 1])
GRID = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
MOVING: list[tuple[str, list[Any], dict[str, Any]]] = [
    *(("Cast", [V], {"to": to}) for to in (TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT)),
    *(("Cast", [GRID / 3 - 2], {"to": to}) for to in (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)),
    ("Concat", [V, V, np.array([1])], {"axis": 0}),
    ("Concat", [GRID, GRID[:, :1]], {"axis": -2}),
    *(("Flatten", [GRID], {"axis": axis}) for axis in (-3, -1, 0, 2, 3)),
    ("Flatten", [GRID], {}),
    ("Flatten", [np.array(5)], {"axis": 0}),
    ("Gather", [V, np.array(-1)], {}),
    ("Gather", [V, np.array([[1, 3]], np.int32)], {"axis": 0}),
    ("Gather", [GRID, np.array([2, 0])], {"axis": -2}),
    ("Identity", [GRID], {}),
    ("Reshape", [GRID, np.array([0, -1])], {}),
    ("Reshape", [GRID[:0], np.array([3, 0])], {"allowzero": 1}),
    ("Slice", [V, np.array([1]), np.array([9])], {}),
    ("Slice", [V, np.array([-1]), np.array([-(2**63)]), np.array([0]), np.array([-2])], {}),
    ("Slice", [GRID, np.array([1, -9]), np.array([2**31, -1]), np.array([-1, 1])], {}),
    ("Slice", [GRID, np.array([1, 1, 1]), np.array([2, 2, 2]), None, np.array([1, 1, 2])], {}),
    ("Squeeze", [GRID[:1, :, :1], np.array([-1])], {}),
    ("Squeeze", [GRID[:1, :, :1]], {}),
    ("Transpose", [GRID], {"perm": [2, 0, 1]}),
    ("Transpose", [GRID], {}),
    ("Unsqueeze", [np.array(3), np.array([0])], {}),
    ("Unsqueeze", [GRID, np.array([0, -1])], {}),
]
INTEGERS = {
    "Abs",
    "Add",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mul",
    "Neg",
    "Sub",
    "Pow",
}
TRUTHS = {"And", "Not", "Or"}
ONE = {"Abs", "Ceil", "Exp", "Floor", "Neg", "Not", "Relu", "Sigmoid"}
FORMS: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("ConstantOfShape", [np.array([2, 3])], {}),
    ("ConstantOfShape", [np.array([2, 3])], {"value": onnx.helper.make_tensor("v", TensorProto.INT64, [1], [-1])}),
    ("ConstantOfShape", [np.zeros(0, np.int64)], {}),
    ("Clip", [GRID, np.array(3, np.float32), np.array(9, np.float32)], {}),
    ("Clip", [V, np.array(2)], {}),
    ("Clip", [GRID, None, np.array(9, np.float32)], {}),
    ("Relu", [3 - V], {}),
    ("Sigmoid", [GRID - 9], {}),
    ("Expand", [GRID[:, :1], np.array([5, 1, 3, 1])], {}),
    ("Expand", [np.array(True), np.array([2])], {}),
    ("GatherElements", [GRID, np.array([[[2, -1, 0, 1]], [[0, 0, 1, 2]]])], {"axis": 1}),
    ("GatherElements", [V, np.array([3, -4], np.int32)], {}),
    ("ScatterND", [GRID, np.array([[1, 0], [0, 0]]), GRID[:, 0] - 40], {}),
    ("ScatterND", [GRID, np.array([[[1, 0, 2]], [[0, 0, 3]]]), np.array([[7], [-5]], np.float32)], {}),
    ("MatMul", [GRID, GRID[0].T], {}),
    ("Mod", [V, W], {}),
    ("Mod", [-V, W], {"fmod": 0}),
    ("Range", [np.array(1), np.array(9), np.array(3)], {}),
    ("Range", [np.array(9.0), np.array(1.0), np.array(-2.5)], {}),
    ("Where", [V > W, V, np.array(4)], {}),
]
ELEMENTWISE: list[tuple[str, list[Any], dict[str, Any]]] = [
    (op, [a, b][: 1 if op in ONE else 2], {})
    for op in FUNCTIONS
    if op not in ("MatMul", "Mod", "Range", "Where")
    for a, b in (
        [(V > 2, W > 2)] if op in TRUTHS else [(V / 2, W / 4), *([(V, W), (V[:, None], W)] if op in INTEGERS else [])]
    )
]


def _node(op: str, operands: list[Any], attributes: dict[str, Any]) -> onnx.NodeProto:
    names = [f"i{place}" if array is not None else "" for place, array in enumerate(operands)]
    return onnx.helper.make_node(op, names, ["o"], **attributes)


def _by_reference(node: onnx.NodeProto, operands: list[Any]) -> Any:
    feed = {name: array for name, array in zip(node.input, operands, strict=True) if name}
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feed.items()
    ]
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("o")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    return ReferenceEvaluator(model).run(None, feed)[0]


@pytest.mark.parametrize(("op", "operands", "attributes"), [*MOVING, *ELEMENTWISE, *FORMS])
def test_it_is_what_the_reference_computes(op: str, operands: list[Any], attributes: dict[str, Any]) -> None:
    node = _node(op, operands, attributes)
    expected = np.asarray(_by_reference(node, operands))
    found = (move_elements if op in MOVES else compute_plainly)(node, operands)
    assert found is not None
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.int8])
def test_integers_are_truncated_as_the_standard_has_it(kind: type) -> None:
    a, b = np.array([-7, 7, -7, 6, -6, 0, 1], kind), np.array([2, -2, -2, -3, 3, -5, -9], kind)
    found = compute_plainly(_node("Div", [a, b], {}), [a, b])
    assert found is not None
    assert found.dtype == kind
    assert found.tolist() == [-3, -3, 3, -2, -2, 0, 0]


def test_every_operator_is_held_to_the_reference() -> None:
    assert {op for op, *_ in (*MOVING, *ELEMENTWISE, *FORMS)} == MOVES.keys() | FUNCTIONS.keys() | OTHERS.keys()


def test_other_forms_are_left_to_the_reference() -> None:
    assert move_elements(_node("Slice", [V], {"starts": [1], "ends": [2]}), [V]) is None  # before opset 10
    assert move_elements(_node("Cast", [V], {"to": TensorProto.STRING}), [V]) is None
    assert move_elements(_node("Reshape", [V], {"shape": [2, 2]}), [V]) is None
    assert compute_plainly(_node("Mod", [V, W], {"fmod": 1}), [V, W]) is None
    assert compute_plainly(_node("Clip", [GRID], {"min": 1.0}), [GRID]) is None  # before opset 11
    assert compute_plainly(_node("Add", [V, W], {"axis": 1, "broadcast": 1}), [V, W]) is None
    assert compute_plainly(_node("Add", [V, W], {}), [V, W.astype(np.int32)]) is None


@pytest.mark.parametrize("node", ["y = Concat(s, s)", "y = Cast(s)", "y = Gather(s, far)", "y = Reshape(s, far)"])
def test_what_is_wrong_is_not_known_in_advance(node: str) -> None:
    """An attribute that is not there, or a place: nothing is known, and what else follows is still found."""
    source = model(f"g (float[2,3] x) => (int64[n] y) {{ s = Shape(x) {node} }}", far=np.array([7]))
    evaluation = Evaluation(source, {})
    found = [dict(evaluation.run(each)) for each in source.graph.node]
    assert [list(each) for each in found] == [["s"], []]


def test_extents_with_names_move_as_numbers_do() -> None:
    n, h = Extent.of("n"), Extent.of("h")
    dims = object_vector([n, 3, h, 5])
    assert list(move_elements(_node("Gather", [dims, V], {}), [dims, np.array([2, 0])])) == [h, n]  # type: ignore[arg-type]
    picked = move_elements(_node("Gather", [dims, V], {}), [dims, np.array(1)])
    assert picked is not None
    assert picked.dtype == np.int64
    assert picked == 3
    one = move_elements(_node("Gather", [dims, V], {}), [dims, np.array(0)])
    assert one is not None
    assert one.item() == n
    joined = move_elements(_node("Concat", [dims, V], {"axis": 0}), [dims[2:], np.array([4])])
    assert joined is not None
    assert joined.tolist() == [h, 5, 4]
    assert move_elements(_node("Reshape", [V, dims], {}), [V, dims]) is None, "a shape that is not known"
