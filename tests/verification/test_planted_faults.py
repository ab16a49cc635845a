"""A sample of the faults that `bench/planted_faults.py` plants: each that an output shows is seen."""

from __future__ import annotations

import planted_faults
import pytest

SAMPLE = 4
"""Faults of a case that are planted here; the bench plants all."""


@pytest.fixture(scope="module")
def cases() -> dict[str, planted_faults.Case]:
    return {case.name: case for case in planted_faults.cases()}


@pytest.mark.parametrize(
    "name",
    [
        "float to .onnx, --io keep",
        "float16 to .onnx, --io convert",
        "dynamic to .onnx, --io keep",
        "float to .tflite",
        "int8 to .tflite",
        "convolutions to .onnx, --io convert",
        "attention to .tflite",
    ],
)
def test_faults_that_outputs_show_are_seen(cases: dict[str, planted_faults.Case], name: str) -> None:
    case = cases[name]
    assert planted_faults.passes(case.source, case.result)
    bounds = planted_faults.Bounds(case)
    every = list(planted_faults.faults(case.result))
    sample = every[:: len(every) // SAMPLE]
    over = [fault for fault in sample if bounds.exceeded(fault.content)]
    assert over
    missed = [fault.name for fault in over if planted_faults.passes(case.source, fault.content)]
    assert missed == []
