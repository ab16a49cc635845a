"""Loops of a `.tflite` that are one operator in ONNX keep their weights of bytes, beside which LiteRT rounds rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import OpResolverType
from tflite_cases_cells import Cell, gru_after, gru_before, gru_joined, looped, lstm, rnn
from tflite_running import interpreter, run_interpreter

import relayout
from litert_runs import KERNELS, every_result_of_runs, operators
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.spelled_out import ROUNDED
from rules.law import Array, with_runtime

WHOLE = {rnn: "RNN", gru_after: "GRU"}
"""Cells whose matrices are those of the operator as they are -> the operator."""


ROUNDING = ("bytes", "around any number")


def source(cell: Cell, form: str = "around any number") -> bytes:
    return looped(cell, form=form).bytes()


def feeds(content: bytes) -> list[list[Array]]:
    graph, found = load(content).subgraphs[0], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        found.append([rng.uniform(-2, 2, graph.tensors[i].shape).astype(np.float32) for i in graph.inputs])
    return found


def distance(one: bytes, other: bytes, kernels: OpResolverType) -> float:
    """Return how far results of some runs are apart, as a part of the largest."""
    runs = zip(*(every_result_of_runs(content, feeds(one), kernels) for content in (one, other)), strict=True)
    pairs = [pair for run in runs for pair in zip(*run, strict=True) if pair[0].dtype == np.float32]
    assert pairs
    return max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)


def weights(content: bytes) -> set[TensorType]:
    """Return the types of the weights of products."""
    graphs = load(content).subgraphs
    return {g.tensors[op.inputs[1]].type for g in graphs for op in g.operators if op.name == "FULLY_CONNECTED"}


def asymmetric(content: bytes) -> set[bool]:
    """Return what products say of how they round rows."""
    graphs = load(content).subgraphs
    products = [op for graph in graphs for op in graph.operators if op.name == "FULLY_CONNECTED"]
    return {bool(op.options.asymmetric_quantize_inputs) for op in products}


def back(model: onnx.ModelProto, **asked: Any) -> bytes:
    return relayout.convert(model, format="tflite", **asked).tflite


def dequantizers(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type == "DequantizeLinear"]


def unmarked(model: onnx.ModelProto) -> onnx.ModelProto:
    for node in dequantizers(model):
        rows = [row for row in node.metadata_props if row.key != ROUNDED]
        del node.metadata_props[:]
        node.metadata_props.extend(rows)
    return model


@pytest.mark.parametrize("form", ROUNDING)
@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("cell", WHOLE)
def test_products_round_rows_as_those_of_the_file(cell: Cell, kernels: OpResolverType, form: str) -> None:
    content = source(cell, form)
    model = relayout.convert(content).proto
    assert WHOLE[cell] in [node.op_type for node in model.graph.node]
    result = back(model)
    assert weights(result) == {TensorType.INT8}
    assert "DEQUANTIZE" not in operators(result)
    assert asymmetric(result) == {form == "around any number"}
    assert distance(content, result, kernels) < 1e-5
    real = back(unmarked(model))  # planted: the same without what the weights say
    assert weights(real) == {TensorType.FLOAT32}
    assert distance(content, real, kernels) > 1e-3


@pytest.mark.parametrize("cell", [gru_before, gru_joined, lstm])
def test_weights_that_are_cut_or_joined_are_real(cell: Cell) -> None:
    """A matrix of ONNX is then none of the file's."""
    model = relayout.convert(source(cell)).proto
    result = back(model)
    assert weights(result) <= {TensorType.FLOAT32}
    assert is_as_onnx_says(model, result)


def is_as_onnx_says(model: onnx.ModelProto, result: bytes) -> bool:
    """Tell whether a file computes what ONNX Runtime computes of a model."""
    fed = feeds(result)[0]
    names = [value.name for value in model.graph.input]
    wanted = with_runtime(model, dict(zip(names, fed, strict=True)))
    (got,) = every_result_of_runs(result, [fed], KERNELS[0])
    return all(np.allclose(a, b, atol=1e-4) for a, b in zip(wanted, got, strict=True))


def changed(model: onnx.ModelProto, name: str, change: Callable[[Array], Array]) -> None:
    """Change a constant of a model, by the end of its name."""
    found = [tensor for tensor in model.graph.initializer if tensor.name.endswith(name)]
    assert found
    for tensor in found:
        array = change(onnx.numpy_helper.to_array(tensor))
        tensor.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def test_changed_weights_are_those_of_the_result() -> None:
    model = relayout.convert(source(rnn)).proto
    names = {node.input[0] for node in dequantizers(model)}
    before = load(back(model)).subgraphs[0]
    for name in names:
        changed(model, name, np.negative)
    after = load(back(model)).subgraphs[0]
    bytes_ = [
        [graph.tensors[op.inputs[1]].content.view(np.int8) for op in graph.operators if op.name == "FULLY_CONNECTED"]
        for graph in (before, after)
    ]
    for one, other in zip(*bytes_, strict=True):
        np.testing.assert_array_equal(other, -one)


def test_weights_around_another_number_are_real() -> None:
    """Products of LiteRT have none such."""
    model = relayout.convert(source(rnn)).proto
    changed(model, "/zero_point", lambda array: array + np.int8(3))
    result = back(model)
    assert weights(result) == {TensorType.FLOAT32}
    assert is_as_onnx_says(model, result)


def by_rows(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let each row of the weights have a scale of its own."""
    changed(model, "/scale", lambda array: array * np.linspace(1, 2, 4, dtype=np.float32))
    changed(model, "/zero_point", lambda array: np.zeros(4, array.dtype))
    ranks = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    for node in dequantizers(model):
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("axis", ranks[node.input[0]] - 2))
    return model


def test_a_scale_for_each_row() -> None:
    model = by_rows(relayout.convert(source(rnn)).proto)
    result = back(model)
    assert weights(result) == {TensorType.INT8}
    graph = load(result).subgraphs[0]
    scales = [graph.tensors[op.inputs[1]].quantization for op in graph.operators if op.name == "FULLY_CONNECTED"]
    for scale in scales:
        assert scale is not None
        np.testing.assert_allclose(scale.scale, 0.02 * np.linspace(1, 2, 4), rtol=1e-6)
    real = back(unmarked(model))
    assert distance(real, result, KERNELS[0]) < 0.1


def test_a_runtime_that_lacks_such_products_gets_real_ones() -> None:
    model = by_rows(relayout.convert(source(rnn)).proto)
    new, old = (weights(back(model, runtime=runtime)) for runtime in ("2.17", "2.16"))
    assert new == {TensorType.INT8}
    assert old == {TensorType.FLOAT32}


def test_weights_of_bytes_that_no_file_had_are_real() -> None:
    """ONNX means real numbers."""
    model = unmarked(relayout.convert(source(gru_after)).proto)
    result = back(model)
    assert weights(result) == {TensorType.FLOAT32}
    assert is_as_onnx_says(model, result)


def test_a_sequence_of_open_length_rounds_its_rows_too() -> None:
    content = source(rnn)
    model = relayout.convert(content).proto
    result = back(model, dims={f"{model.graph.input[-1].name}:0": "steps"})
    assert weights(result) == {TensorType.INT8}
    (fed, *_) = feeds(content)
    wanted = run_interpreter(interpreter(content), fed)
    got = run_interpreter(interpreter(result, resize={1: fed[1].shape}), fed)
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-5)
