"""The table of `openvino` beside its judge: OpenVINO reads what the table claims, and computes as ONNX Runtime does.

`RELAYOUT_OPENVINO` names a Python that has openvino, where this one has not; elsewhere the tests are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from node_tests import NodeTest, node_tests

import relayout
from products import SATURATES
from relayout import pipeline
from relayout.targets import target
from rules.law import Array, with_runtime
from running import run
from targets.judging import BENCH, PARTS, answers, in_parts, part_of, python_with
from targets.row_cases import cases, operator, prepared
from targets.unit_cases import UnitCase

PYTHON = python_with("RELAYOUT_OPENVINO", module="openvino")
SCRIPT = "by_openvino_nodes.py"
OPENVINO = target("openvino")
NAMES = frozenset(name for row in OPENVINO.kernels for name in row.op_types.split())
CAREFUL = frozenset({"AveragePool", "Hardmax", "MaxPool", "Resize", "Softmax", "Tile"})
"""Operators whose rows claim less than is right: some nodes outside of a limit are wrong, and others are not."""
PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
MOST_ELEMENTS = 1 << 17
MOST_STEPS, MOST_PART = 1, 1e-4
"""The largest difference of quantized integers, in steps, and of other numbers, by the largest value."""
HALF_PART = 1e-3
needs_openvino = pytest.mark.skipif(PYTHON is None, reason="no openvino: pip install '.[judges]'")


def written(model: onnx.ModelProto, feed: Mapping[str, Array], outputs: Sequence[Array], path: Path) -> None:
    onnx.save(model, path)
    names = [value.name for value in model.graph.input]
    arrays = {f"i{place}": feed[name] for place, name in enumerate(names)}
    arrays |= {f"o{place}": array for place, array in enumerate(outputs)}
    np.savez(path.with_suffix(".npz"), names=np.array(names, np.str_), **arrays)


def is_right(answer: dict[str, Any], most: float) -> bool:
    return float(answer.get("off", np.inf)) <= most


def is_quantized(case: object) -> bool:
    return isinstance(case, UnitCase) or "Quant" in str(case) or "QLinear" in str(case)


@cache
def case_numbers() -> list[int]:
    found = []
    for number, case in enumerate(cases()):
        arrays = (case.case if isinstance(case, UnitCase) else case).arrays.values()
        if not case.domain and case.op_type in NAMES and all(array.size <= MOST_ELEMENTS for array in arrays):
            found.append(number)
    return found


@needs_openvino
@in_parts
def test_openvino_computes_what_the_table_claims(part: int, tmp_path: Path) -> None:
    tried: dict[str, int] = {}
    for number in part_of(case_numbers(), part):
        model, feed, _ = prepared(number)
        path = tmp_path / f"{number}.onnx"
        written(model, feed, with_runtime(model, feed), path)
        tried[str(path)] = number
    assert PYTHON is not None
    found = answers(PYTHON, SCRIPT, [Path(path) for path in tried])
    wrong = []
    for path, number in tried.items():
        case, answer = cases()[number], found[path]
        is_claimed = OPENVINO.claims(prepared(number)[2])
        right = is_right(answer, MOST_STEPS if is_quantized(case) else MOST_PART)
        if SATURATES and is_claimed and isinstance(case, UnitCase) and case.op_type in PRODUCTS:
            continue  # products of bytes may saturate on this CPU, in either runtime
        if is_claimed != right and not (right and case.op_type in CAREFUL):
            wrong.append(f"{case}: {'claimed' if is_claimed else 'not claimed'}, {answer}")
    assert not wrong, "\n".join(wrong)


@cache
def single_node_tests() -> list[NodeTest]:
    tests = (test for test in node_tests() if not isinstance(test, str) and len(test.model.graph.node) == 1)
    return [test for test in tests if all(map(np.size, test.inputs.values()))]


@needs_openvino
@in_parts
def test_openvino_passes_the_node_tests_that_the_table_claims(part: int, tmp_path: Path) -> None:
    """The standard's own tests reach types and attributes that no case has; a node that is not claimed may be right."""
    tried: dict[str, NodeTest] = {}
    for test in part_of(single_node_tests(), part):
        if OPENVINO.claims(operator(pipeline.read(test.model))):
            path = tmp_path / f"{test.name}.onnx"
            written(test.model, test.inputs, test.outputs, path)
            tried[str(path)] = test
    assert PYTHON is not None
    found = answers(PYTHON, SCRIPT, [Path(path) for path in tried])
    wrong = []
    for path, test in tried.items():
        most = MOST_STEPS if "quantize" in test.name else HALF_PART
        if not is_right(found[path], most):
            wrong.append(f"{test.name}: {found[path]}")
    assert not wrong, "\n".join(wrong)
    assert len(tried) > 500 // PARTS


@needs_openvino
@pytest.mark.parametrize(("name", "most"), [("tinynet_int8", 2), ("tinynet_float", MOST_PART)])
def test_a_network_that_is_claimed_as_a_whole_runs(name: str, most: float, tmp_path: Path) -> None:
    source = BENCH.parent / "models" / f"{name}.tflite"
    result = relayout.convert(source, target=OPENVINO)
    claims = result.report.claims
    assert claims is not None
    assert claims.claimed == claims.total
    rng = np.random.default_rng(0)
    (value,) = result.proto.graph.input
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    image = rng.integers(-128, 128, shape).astype(np.int8) if "int8" in name else rng.random(shape, np.float32)
    feed = {value.name: image}
    written(result.proto, feed, run(result.proto, feed), tmp_path / "network.onnx")
    assert PYTHON is not None
    (answer,) = answers(PYTHON, SCRIPT, [tmp_path / "network.onnx"]).values()
    assert is_right(answer, most), answer
