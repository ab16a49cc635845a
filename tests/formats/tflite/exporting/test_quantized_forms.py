"""Every form in which an operator can be written, between integers: LiteRT runs it, on integers or on real numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from export_cases import cases
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph

import relayout
from relayout.errors import UnsupportedError
from relayout.targets.litert.quantized_units import ROWS
from rules.law import Array
from running import run
from targets.unit_cases import UnitCase

MOST_STEPS = 2
"""A kernel rounds to its own scale, and a QUANTIZE behind it to another."""
NOT_QUANTIZED = (Fail, InvalidArgument, InvalidGraph, ValueError)
"""Messages of ONNX Runtime about forms that no quantizer writes, and of NumPy about those without elements."""
OPERATORS = sorted({case.op_type for case in cases() if case.op_type in ROWS and not case.domain})


def expected_of(unit: UnitCase) -> tuple[onnx.ModelProto, dict[str, Array], list[Array]] | None:
    """The model, what it is fed and what it gives; None of a form that has no quantized one."""
    try:
        model, feed = unit.prepared()
        return model, feed, run(model, feed)
    except NOT_QUANTIZED:
        return None


def steps_off(unit: UnitCase) -> float | None:
    """How far LiteRT's integers are from the expected ones; None of what is refused or has no quantized form."""
    known = expected_of(unit)
    if known is None:
        return None
    model, feed, expected = known
    try:
        content = relayout.convert(model, format="tflite").tflite
    except UnsupportedError:
        return None
    outputs = Interpreter(model_content=content, num_threads=1).get_signature_runner()(**feed)
    pairs = [(outputs[each.name], array) for each, array in zip(model.graph.output, expected, strict=True)]
    return max(float(np.abs(one.astype(np.float64) - other).max(initial=0)) for one, other in pairs)


def assert_near(op_type: str, dtypes: list[type], alikes: list[bool]) -> None:
    forms = [case for case in cases() if case.op_type == op_type and not case.domain]
    off = {str(unit): steps_off(unit) for unit in (UnitCase(*each) for each in product(forms, dtypes, alikes))}
    assert 2 * sum(steps is not None for steps in off.values()) >= len(off), "fewer than half of the forms ran"
    assert {name: steps for name, steps in off.items() if steps is not None and steps > MOST_STEPS} == {}


@pytest.mark.parametrize("op_type", OPERATORS)
def test_litert_runs_every_form_between_bytes(op_type: str) -> None:
    assert_near(op_type, [np.int8], [False])


@pytest.mark.slow
@pytest.mark.parametrize("op_type", OPERATORS)
def test_litert_runs_every_form_between_other_integers(op_type: str) -> None:
    assert_near(op_type, [np.int8, np.uint8, np.int16], [True, False])
