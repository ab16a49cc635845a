"""The table of `rknn` beside its judge: rknn-toolkit2 puts an operator on the NPU exactly where the table claims it.

`RELAYOUT_RKNN` is a Python that has rknn-toolkit2; elsewhere the test is skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from relayout.targets import target
from targets.judging import BENCH, answers
from targets.unit_cases import UnitCase, unit_cases

PYTHON = os.environ.get("RELAYOUT_RKNN")
SCRIPT = "by_rknn.py"
BYTES = (np.int8, np.uint8)
NETWORK = BENCH.parent / "models" / "tinynet_int8.tflite"
MOST_ELEMENTS = 1 << 17
NEWEST_OPSET = 19
VIEWS = frozenset({"Reshape", "Transpose", "exDataConvert"})
"""Operators of its own that move integers: the CPU's where that is faster."""
UNCLAIMED = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that have no row, since they run here or there."""


def some_cases() -> list[UnitCase]:
    found = (case for case in unit_cases() if case.dtype in BYTES and case.op_type not in UNCLAIMED)
    return [case for case in found if all(array.size <= MOST_ELEMENTS for array in case.case.arrays.values())]


def is_on_npu(answer: dict[str, Any]) -> bool:
    rows = [row for row in answer.get("rows", []) if row[0] not in VIEWS]
    return "refused" not in answer and all(row[1:] == ["INT8", "NPU"] for row in rows)


needs_toolkit = pytest.mark.skipif(PYTHON is None, reason="no rknn-toolkit2: RELAYOUT_RKNN names a Python that has it")


@pytest.mark.slow
@needs_toolkit
def test_the_toolkit_takes_what_the_table_claims(tmp_path: Path) -> None:
    claimed: dict[str, tuple[UnitCase, bool]] = {}
    for number, case in enumerate(some_cases()):
        model, _ = case.prepared()
        model.opset_import[0].version = NEWEST_OPSET
        path = tmp_path / f"{number}.onnx"
        onnx.save(model, path)
        claims = relayout.convert(model, target=target("rknn")).report.claims
        assert claims is not None
        claimed[str(path)] = case, claims.claimed == claims.total
    assert PYTHON is not None
    found = answers(PYTHON, SCRIPT, [Path(path) for path in claimed])
    wrong = [
        f"{case}: {'claimed' if is_claimed else 'not claimed'}, {found[path]}"
        for path, (case, is_claimed) in claimed.items()
        if is_on_npu(found[path]) != is_claimed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@needs_toolkit
def test_what_a_tflite_becomes_by_default_is_built(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    relayout.convert(NETWORK).save(path)
    assert PYTHON is not None
    (answer,) = answers(PYTHON, SCRIPT, [path]).values()
    assert "refused" not in answer, answer
    convolutions = [row for row in answer["rows"] if row[0].startswith("Conv")]
    assert convolutions
    assert all(row[1:] == ["INT8", "NPU"] for row in convolutions)
