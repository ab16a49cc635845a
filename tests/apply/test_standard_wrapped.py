"""The standard's own node tests, each with its inputs and outputs behind random Transposes.

Same values, same interface, never more bytes than before, and never more than ONNX Runtime's own optimizer leaves.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, shape_inference

import relayout
from running import by_the_runtime, moved_bytes, run

Feed = dict[str, NDArray[np.generic]]
RANDOM = ("bernoulli", "random", "dropout", "multinomial", "training")
"""Tests whose results are drawn: no two runs agree."""


def cases() -> list[Any]:
    """All node tests that have a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [case for case in collect_testcases(None) if case.model is not None]


def standard() -> Iterator[tuple[str, onnx.ModelProto, Feed]]:
    for case in cases():
        given, names = case.data_sets[0][0], [value.name for value in case.model.graph.input]
        arrays = len(given) == len(names) and all(isinstance(item, np.ndarray) for item in given)
        if arrays and not any(word in case.name for word in RANDOM):
            yield case.name, case.model, dict(zip(names, given, strict=True))


def wrapped(model: onnx.ModelProto, feed: Feed, rng: random.Random) -> tuple[onnx.ModelProto, Feed]:
    """The model behind Transposes: every input and output of rank 2 and more is stored in a random order."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph, fed = result.graph, dict(feed)
    if not any(imported.domain == "" for imported in result.opset_import):
        result.opset_import.append(helper.make_opsetid("", 21))
    before, after = [], []
    for value in graph.input:
        array = feed[value.name]
        if array.ndim > 1 and value.type.HasField("tensor_type"):
            perm = rng.sample(range(array.ndim), array.ndim)
            inverse = [int(axis) for axis in np.argsort(perm)]
            before.append(helper.make_node("Transpose", [f"{value.name}__in"], [value.name], perm=perm))
            fed[f"{value.name}__in"] = np.ascontiguousarray(fed.pop(value.name).transpose(inverse))
            kind = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(f"{value.name}__in", kind, fed[f"{value.name}__in"].shape))
    for value in graph.output:
        tensor = value.type.tensor_type
        rank = len(tensor.shape.dim)
        if rank > 1 and value.type.HasField("tensor_type"):
            perm = rng.sample(range(rank), rank)
            after.append(helper.make_node("Transpose", [value.name], [f"{value.name}__out"], perm=perm))
            shape = [tensor.shape.dim[axis].dim_value or tensor.shape.dim[axis].dim_param or None for axis in perm]
            value.CopyFrom(helper.make_tensor_value_info(f"{value.name}__out", tensor.elem_type, shape))
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    return shape_inference.infer_shapes(result, data_prop=True), fed


def tolerance(array: NDArray[np.generic]) -> tuple[float, float]:
    """Relative and absolute: another order of axes is another order of summation."""
    return (1e-2, 1e-2) if array.dtype.itemsize == 2 else (1e-4, 1e-5)


def signature(model: onnx.ModelProto) -> list[tuple[str, bytes]]:
    return [(v.name, v.type.SerializeToString()) for v in (*model.graph.input, *model.graph.output)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_standard_node_tests_behind_transposes() -> None:
    count: Counter[str] = Counter()
    faults = []
    for name, source, given in standard():
        model, feed = wrapped(source, given, random.Random(name))
        try:
            want = run(model, feed)
        except Exception:
            count["does not run"] += 1
            continue
        count["runs"] += 1
        result = relayout.optimize(model)
        report = result.report
        try:
            got = run(result.proto, feed)
        except Exception as error:
            faults.append(f"{name}: {str(error)[:200]}")
            continue
        for expected, array in zip(want, got, strict=True):
            equal = array.shape == expected.shape and (
                np.array_equal(expected, array)
                or (expected.dtype.kind in "fc" and np.allclose(expected, array, *tolerance(expected), equal_nan=True))
            )
            if not equal:
                faults.append(f"{name}: values differ")
        if signature(result.proto) != signature(model):
            faults.append(f"{name}: the interface differs")
        if (report.bytes, report.transposes) > (report.source_bytes, report.source_transposes):
            faults.append(f"{name}: {report.bytes} bytes, the source had {report.source_bytes}")
        left, ours = by_the_runtime(model, feed), moved_bytes(result.proto, feed)
        if left is not None:
            count["optimized by the runtime"] += 1
            count["fewer than the runtime"] += ours < left
            if ours > left and not resized_by_what_is_fed(model):
                faults.append(f"{name}: {ours} bytes, the runtime leaves {left}")
    print(dict(count))
    assert not faults, "\n".join(faults)
    assert count["runs"] > 1000


def resized_by_what_is_fed(model: onnx.ModelProto) -> bool:
    """Tell whether sizes of a Resize are fed. ONNX Runtime moves Transposes in front of it whatever comes."""
    fed = {value.name for value in model.graph.input}
    return any(node.op_type == "Resize" and fed.intersection(node.input[1:]) for node in model.graph.node)


def transposes(model: onnx.ModelProto) -> int:
    """How many Transposes a file has, also those that move nothing: of axes of one element, or in the same order."""
    return sum(node.op_type == "Transpose" for node in model.graph.node)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_standard_node_tests_alone_come_back_byte_for_byte() -> None:
    """Also those that the runtime does not run; those with Transposes may have fewer, also where these move nothing."""
    count: Counter[str] = Counter()
    faults = []
    for case in cases():
        name, source = case.name, case.model
        result = relayout.optimize(source)
        before = result.report.source_transposes, result.report.source_bytes
        after = result.report.transposes, result.report.bytes
        count["kept" if after == before else "fewer"] += 1
        if after > before or after[1] > before[1]:
            faults.append(f"{name}: {after}, the source had {before}")
        elif transposes(result.proto) < transposes(source):
            count["without what moves nothing"] += 1
        elif after == before and result.proto.SerializeToString() != source.SerializeToString():
            faults.append(f"{name}: is another model")
    print(dict(count))
    assert not faults, "\n".join(faults)
    assert count["kept"] > 1800
    assert count["without what moves nothing"] < 100
