"""Ensembles of decision trees in a `.tflite` give what ONNX Runtime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from export_running import agrees
from node_tests import run
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import relayout
from relayout.errors import UnsupportedError

ML = "ai.onnx.ml"
FEATURES = 5
NODES = (
    *("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids"),
    "missing_value_tracks_true",
)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def grown(rng: np.random.Generator, trees: int, depth: int, modes: list[str]) -> dict[str, list[Any]]:
    """Random trees, as attributes; thresholds are among the numbers that are fed."""
    lists: dict[str, list[Any]] = {name: [] for name in NODES}

    def grow(tree: int, level: int) -> int:
        place = sum(each == tree for each in lists["treeids"])
        row = len(lists["treeids"])
        is_leaf = level == depth or (level and rng.random() < 0.25)
        mode = "LEAF" if is_leaf else str(rng.choice(modes))
        made = (
            tree,
            place,
            int(rng.integers(FEATURES)),
            float(rng.integers(-3, 4)) / 2,
            mode,
            0,
            0,
            int(rng.integers(2)),
        )
        for values, each in zip(lists.values(), made, strict=True):
            values.append(each)
        if not is_leaf:
            lists["truenodeids"][row], lists["falsenodeids"][row] = grow(tree, level + 1), grow(tree, level + 1)
        return place

    for tree in range(trees):
        grow(tree, 0)
    return {f"nodes_{name}": values for name, values in lists.items()}


def leaves(nodes: dict[str, list[Any]]) -> list[tuple[int, int]]:
    rows = zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
    return [(tree, node) for tree, node, mode in rows if mode == "LEAF"]


def model(
    node: onnx.NodeProto, kind: int, *outputs: tuple[str, int], version: int = 3, opset: int = 17
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", kind, ["n", FEATURES])
    ends = [helper.make_tensor_value_info(name, each, None) for name, each in outputs]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(ML, version)]
    return helper.make_model(helper.make_graph([node], "g", [x], ends), opset_imports=imports, ir_version=8)


def numbers(n: int, *, missing: bool = False) -> NDArray[np.float32]:
    rng = np.random.default_rng(n)
    x = (rng.integers(-4, 5, (n, FEATURES)) / 2).astype(np.float32)
    x[rng.random(x.shape) < 0.2 * missing] = np.nan
    return x


def hold(source: onnx.ModelProto, *feeds: NDArray[Any]) -> None:
    """Hold what LiteRT gives to be what ONNX Runtime gives."""
    for x in feeds:
        agrees(source, {"x": x})


def regressor(modes: list[str], targets: int, depth: int = 4, **attributes: Any) -> onnx.ModelProto:
    rng = np.random.default_rng(len(modes) + targets)
    nodes = grown(rng, 6, depth, modes)
    said = [(*leaf, target, float(rng.normal())) for leaf in leaves(nodes) for target in range(targets)]
    columns = dict(zip(("treeids", "nodeids", "ids", "weights"), map(list, zip(*said, strict=True)), strict=True))
    weights = {f"target_{name}": values for name, values in columns.items()}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=targets, **nodes, **weights, **attributes
    )
    return model(node, TensorProto.FLOAT, ("y", TensorProto.FLOAT))


@pytest.mark.parametrize("modes", [[mode] for mode in MODES] + [list(MODES)], ids=lambda modes: "+".join(modes)[7:20])
def test_each_comparison_with_numbers_missing(modes: list[str]) -> None:
    hold(regressor(modes, 1), numbers(1), numbers(40), numbers(40, missing=True))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_what_leaves_say_is_aggregated(aggregate: str, targets: int) -> None:
    base = [0.5, -0.25, 1.0][:targets]
    hold(regressor(["BRANCH_LEQ"], targets, aggregate_function=aggregate, base_values=base), numbers(1), numbers(30))


@pytest.mark.parametrize("depth", [1, 12])
def test_shallow_and_deep_trees(depth: int) -> None:
    hold(regressor(["BRANCH_LEQ"], 2, depth), numbers(2), numbers(30))


def classifier(
    labels: int, ids: list[int], *, positive: bool = True, texts: bool = False, every_id: bool = True, **attributes: Any
) -> onnx.NodeProto:
    rng = np.random.default_rng(labels)
    nodes = grown(rng, 5, 4, ["BRANCH_LEQ"])
    said = [
        (*leaf, each, float(rng.random() / 5 if positive else rng.normal()))
        for leaf in leaves(nodes)
        for each in (ids if every_id else [int(rng.choice(ids))])
    ]
    columns = dict(zip(("treeids", "nodeids", "ids", "weights"), map(list, zip(*said, strict=True)), strict=True))
    weights = {f"class_{name}": values for name, values in columns.items()}
    names = (
        {"classlabels_strings": list("abcdef"[:labels])}
        if texts
        else {"classlabels_int64s": list(range(7, 7 + labels))}
    )
    return helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["y", "z"], domain=ML, **nodes, **weights, **names, **attributes
    )


@pytest.mark.parametrize("targets", [1, 3])
def test_quantiles_of_the_normal_distribution(targets: int) -> None:
    source = regressor(["BRANCH_LEQ"], targets, post_transform="PROBIT")
    (weights,) = (each for each in source.graph.node[0].attribute if each.name == "target_weights")
    weights.floats[:] = [(0.01 + abs(each)) / 30 for each in weights.floats]  # probabilities
    hold(source, numbers(1), numbers(40))


def test_a_softmax_of_scores_other_than_0() -> None:
    source = regressor(["BRANCH_LEQ"], 3, post_transform="SOFTMAX_ZERO")
    (weights,) = (each for each in source.graph.node[0].attribute if each.name == "target_weights")
    weights.floats[:] = [0.0 if place % 3 == 1 else each for place, each in enumerate(weights.floats)]
    hold(source, numbers(1), numbers(40))


@pytest.mark.parametrize(("transform", "every_id"), [("SOFTMAX_ZERO", True), ("SOFTMAX_ZERO", False), ("PROBIT", True)])
def test_other_transforms_of_classes(transform: str, every_id: bool) -> None:
    node = classifier(3, [0, 1, 2], every_id=every_id, post_transform=transform)
    source = model(node, TensorProto.FLOAT, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT))
    for x in (numbers(1), numbers(40)):
        agrees(source, {"x": x}, tolerance=3)  # a quantile near 0 is a difference of like numbers


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(("labels", "ids"), [(2, [0]), (2, [1]), (3, [0, 1, 2]), (5, [0, 1, 2, 3, 4])], ids=str)
@pytest.mark.parametrize("positive", [True, False])
def test_classes(labels: int, ids: list[int], positive: bool, transform: str) -> None:
    node = classifier(labels, ids, positive=positive, post_transform=transform)
    hold(model(node, TensorProto.FLOAT, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT)), numbers(1), numbers(40))


@pytest.mark.parametrize(("labels", "ids"), [(2, [0]), (3, [0, 1, 2])])
def test_classes_with_base_values(labels: int, ids: list[int]) -> None:
    base = [0.125, -0.5, 0.25][: len(ids)]
    node = classifier(labels, ids, positive=False, base_values=base, post_transform="LOGISTIC")
    hold(model(node, TensorProto.FLOAT, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT)), numbers(40))


def test_leaves_that_say_something_of_one_class_each() -> None:
    node = classifier(4, [0, 1, 2, 3], positive=False, every_id=False, post_transform="SOFTMAX")
    hold(model(node, TensorProto.FLOAT, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT)), numbers(40))


def test_classes_that_are_texts(tmp_path: Path) -> None:
    source = model(classifier(3, [0, 1, 2], texts=True), TensorProto.FLOAT, ("y", TensorProto.STRING), ("z", 1))
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    content, x = (tmp_path / "m.tflite").read_bytes(), numbers(20)
    wanted = onnxruntime.InferenceSession(source.SerializeToString()).run(None, {"x": x})[0]
    (given,) = [each for each in run(content, {"x": x}) if each.dtype.kind != "f"]
    assert [each if isinstance(each, str) else each.decode() for each in given.tolist()] == wanted.tolist()


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.INT32])
def test_integer_features(kind: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    source = model(classifier(3, [0, 1, 2]), kind, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT))
    hold(source, np.random.default_rng(0).integers(-3, 4, (30, FEATURES)).astype(dtype))


@pytest.mark.parametrize("opset", [9, 12, 21])
def test_any_opset(opset: int) -> None:
    node = classifier(3, [0, 1, 2])
    ends = ("y", TensorProto.INT64), ("z", TensorProto.FLOAT)
    hold(model(node, TensorProto.FLOAT, *ends, version=1, opset=opset), numbers(20))


def newer(**changes: Any) -> onnx.ModelProto:
    """A TreeEnsemble of two trees, some of its attributes changed."""
    tensors = {
        "nodes_splits": np.array([0.5, -0.5, 1.0], np.float32),
        "nodes_modes": np.array([0, 1, 3], np.uint8),
        "leaf_weights": np.array([1.5, -2.0, 0.25, 3.0, 0.5], np.float32),
    }
    attributes: dict[str, Any] = {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    attributes |= {
        "n_targets": 2,
        "aggregate_function": 1,
        "post_transform": 0,
        "tree_roots": [0, 2],
        "nodes_featureids": [0, 2, 1],
        "nodes_truenodeids": [1, 0, 3],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 4],
        "nodes_falseleafs": [1, 1, 1],
        "leaf_targetids": [0, 1, 0, 1, 0],
        **changes,
    }
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain=ML, **attributes)
    return model(node, TensorProto.FLOAT, ("y", TensorProto.FLOAT), version=5)


@pytest.mark.parametrize("aggregate", [0, 1])
def test_the_newer_operator(aggregate: int) -> None:
    hold(newer(aggregate_function=aggregate), numbers(1), numbers(40))


@pytest.mark.parametrize("tracks", [[0, 0, 0], [1, 0, 1]])
@pytest.mark.parametrize("modes", [[6, 6, 6], [6, 1, 6]])
def test_members_of_sets(modes: list[int], tracks: list[int]) -> None:
    sets = [[1.0, 3.0], [2.0], [-1.0, 1.0, 4.0]]
    listed = [each for mode, members in zip(modes, sets, strict=True) if mode == 6 for each in (*members, np.nan)]
    source = newer(
        nodes_modes=numpy_helper.from_array(np.array(modes, np.uint8)),
        membership_values=numpy_helper.from_array(np.array(listed, np.float32)),
        nodes_missing_value_tracks_true=tracks,
    )
    hold(source, 2 * numbers(1), 2 * numbers(40), 2 * numbers(40, missing=True))


@pytest.mark.parametrize(
    "change",
    [
        {"leaf_targetids": [0, 1, 0, 2, 0]},
        {"leaf_targetids": [0, 1, 0, -1, 0]},
        {"leaf_targetids": [0, 1]},
        {"nodes_modes": numpy_helper.from_array(np.array([0, 9, 3], np.uint8))},
        {"nodes_modes": numpy_helper.from_array(np.array([0, 6, 3], np.uint8))},
        {"nodes_truenodeids": [1, 0, 5]},
        {"nodes_falsenodeids": [2, 1]},
        {"nodes_featureids": [0, -1, 1]},
        {"tree_roots": [0, 3]},
        {"tree_roots": [-1]},
        {"aggregate_function": 4},
        {"post_transform": 5},
    ],
    ids=str,
)
def test_numbers_that_name_nothing_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="TreeEnsemble"):
        relayout.convert(newer(**change), format="tflite")


def test_two_scores_for_two_labels_are_refused() -> None:
    """ONNX Runtime chooses by the second score alone then, and gives 0 and 1 whatever the labels are."""
    source = model(classifier(2, [0, 1]), TensorProto.FLOAT, ("y", TensorProto.INT64), ("z", TensorProto.FLOAT))
    with pytest.raises(UnsupportedError, match="TreeEnsembleClassifier"):
        relayout.convert(source, format="tflite")


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX"])
def test_a_transform_of_one_score_is_refused(transform: str) -> None:
    with pytest.raises(UnsupportedError):
        relayout.convert(regressor(["BRANCH_LEQ"], 1, post_transform=transform), format="tflite")


def of_one_target_each(*more: tuple[int, int, int, float], **attributes: Any) -> onnx.ModelProto:
    """Leaves of one tree of which each says something of another target."""
    nodes = grown(np.random.default_rng(1), 1, 1, ["BRANCH_LEQ"])
    said = [(*leaf, target, 0.5 + target) for target, leaf in enumerate(leaves(nodes))]
    columns = zip(("treeids", "nodeids", "ids", "weights"), map(list, zip(*said, *more, strict=True)), strict=True)
    weights = {f"target_{name}": values for name, values in columns}
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain=ML, n_targets=2, **nodes, **weights, **attributes
    )
    return model(node, TensorProto.FLOAT, ("y", TensorProto.FLOAT))


def test_targets_of_which_leaves_say_nothing() -> None:
    hold(of_one_target_each(), numbers(1), numbers(30))


def test_base_values_of_targets_of_which_leaves_say_nothing_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        relayout.convert(of_one_target_each(base_values=[0.5, 1.0]), format="tflite")


def test_a_leaf_that_says_something_of_a_target_twice_is_refused() -> None:
    with pytest.raises(UnsupportedError):
        relayout.convert(of_one_target_each((0, 1, 0, 1.0)), format="tflite")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("error")
def test_thresholds_at_the_ends_of_the_range(mode: str) -> None:
    ends = [float(sign * np.float32(each)) for each in (np.inf, np.finfo(np.float32).max, 1.0) for sign in (1, -1)]
    source = regressor([mode, "BRANCH_LEQ"], 1)
    (values,) = (each for each in source.graph.node[0].attribute if each.name == "nodes_values")
    values.floats[:] = np.resize(ends, len(values.floats)).tolist()
    hold(source, np.random.default_rng(3).choice(np.array(ends, np.float32), (60, FEATURES)))


def test_a_tree_that_nobody_can_follow_is_refused() -> None:
    source = regressor(["BRANCH_LEQ"], 1)
    attributes = {each.name: each for each in source.graph.node[0].attribute}
    rows = zip(attributes["nodes_modes"].strings, attributes["nodes_nodeids"].ints, strict=True)
    place = next(row for row, (mode, node) in enumerate(rows) if mode != b"LEAF" and node)
    attributes["nodes_falsenodeids"].ints[place] = 0  # a node has the root as its child
    with pytest.raises(UnsupportedError, match="TreeEnsembleRegressor"):
        relayout.convert(source, format="tflite")
