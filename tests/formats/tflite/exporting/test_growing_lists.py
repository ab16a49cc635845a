"""A WHILE that collects a list runs, whatever else it carries."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from node_tests import run
from onnx import helper, numpy_helper

import relayout

ROUNDS = 2500
"""More than are written one by one."""


NODES = (("Tanh", "s", "t"), ("Neg", "s", "q"), ("Identity", "c", "again"))


def loop(*, condition: bool, known: bool) -> onnx.ModelProto:
    """A Loop with a number of rounds, a state and a list of what each round gives."""
    body = helper.make_graph(
        [helper.make_node(kind, [read], [given]) for kind, read, given in NODES],
        "round",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("c", 9, []),
            helper.make_tensor_value_info("s", 1, [3]),
        ],
        [helper.make_tensor_value_info("again", 9, [])]
        + [helper.make_tensor_value_info(name, 1, [3]) for name in ("t", "q")],
    )
    constants = {"yes": np.array(True), **({"n": np.array(ROUNDS)} if known else {})}
    node = helper.make_node("Loop", ["n", "yes" if condition else "", "x"], ["last", "list"], body=body)
    graph = helper.make_graph(
        [node],
        "loop",
        [helper.make_tensor_value_info("x", 1, [3])] + ([] if known else [helper.make_tensor_value_info("n", 7, [])]),
        [helper.make_tensor_value_info("last", 1, [3]), helper.make_tensor_value_info("list", 1, ["rounds", 3])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("condition", [False, True])
def test_a_list_grows_in_a_loop(condition: bool, known: bool, reference: bool) -> None:
    model = loop(condition=condition, known=known)
    feed = {"x": np.array([0.5, -1, 2], np.float32), **({} if known else {"n": np.array(ROUNDS)})}
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    found = run(relayout.convert(model, format="tflite").tflite, feed, reference=reference)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)  # Tanh, 2,500 times


def growing(*, condition: bool, limit: bool) -> onnx.ModelProto:
    """A Loop whose state begins with no row and gets one in each round; its condition is a number that it computes."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["t", "step"], ["time"]),
            helper.make_node("Less", ["time", "end"], ["goes"])
            if condition
            else helper.make_node("Identity", ["c"], ["goes"]),
            helper.make_node("Add", ["row", "time"], ["new"]),
            helper.make_node("Concat", ["s", "new"], ["longer"], axis=0),
        ],
        "round",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("c", 9, []),
            helper.make_tensor_value_info("t", 1, []),
            helper.make_tensor_value_info("s", 1, ["rows", 2]),
        ],
        [
            helper.make_tensor_value_info("goes", 9, []),
            helper.make_tensor_value_info("time", 1, []),
            helper.make_tensor_value_info("longer", 1, ["more", 2]),
        ],
        [
            numpy_helper.from_array(np.array(0.5, np.float32), "step"),
            numpy_helper.from_array(np.array(900, np.float32), "end"),
            numpy_helper.from_array(np.ones((1, 2), np.float32), "row"),
        ],
    )
    node = helper.make_node("Loop", ["n" if limit else "", "yes", "x", "none"], ["last", "rows"], body=body)
    graph = helper.make_graph(
        [node],
        "growing",
        [helper.make_tensor_value_info("x", 1, [])],
        [helper.make_tensor_value_info("last", 1, []), helper.make_tensor_value_info("rows", 1, ["all", 2])],
        [
            numpy_helper.from_array(np.array(ROUNDS), "n"),
            numpy_helper.from_array(np.array(True), "yes"),
            numpy_helper.from_array(np.zeros((0, 2), np.float32), "none"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(("condition", "limit"), [(False, True), (True, True), (True, False)])
def test_a_state_grows_from_nothing(condition: bool, limit: bool, reference: bool) -> None:
    model, feed = growing(condition=condition, limit=limit), {"x": np.array(0.25, np.float32)}
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    found = run(relayout.convert(model, format="tflite").tflite, feed, reference=reference)
    assert wanted[1].shape[0] > 1000
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("target", ["litert", "tflite-micro", "ethos-u"])
@pytest.mark.parametrize("outputs", [["y", "h"], ["", "h"]])
def test_a_long_recurrent_operator_runs_for_every_target(target: str, outputs: list[str]) -> None:
    rng, steps = np.random.default_rng(1), 1030
    weights = {"w": rng.standard_normal((1, 4, 3)), "r": 0.1 * rng.standard_normal((1, 4, 4))}
    ends = {"y": [steps, 1, 1, 4], "h": [1, 1, 4]}
    graph = helper.make_graph(
        [helper.make_node("RNN", ["x", "w", "r"], outputs, hidden_size=4)],
        "long",
        [helper.make_tensor_value_info("x", 1, [steps, 1, 3])],
        [helper.make_tensor_value_info(name, 1, ends[name]) for name in outputs if name],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feed = {"x": rng.standard_normal((steps, 1, 3)).astype(np.float32)}
    wanted = ort.InferenceSession(model.SerializeToString()).run(None, feed)
    found = run(relayout.convert(model, format="tflite", target=target).tflite, feed)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
