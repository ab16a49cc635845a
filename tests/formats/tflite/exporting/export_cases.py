"""The cases of the exporter: those of the rules, and more for operators, types and forms that these lack."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from relayout.formats.tflite.exporting import (
    attention_definitions,
    fused_definitions,
    ml_definitions,
    standard_definitions,
)
from relayout.formats.tflite.exporting.registry import entries
from relayout.graph.domains import MICROSOFT
from relayout.targets.litert.table import TARGET
from rules.cases import FAMILIES
from rules.law import Case

TOLERANCE: dict[str, float] = {
    "LRN": 20.0,  # LiteRT's reference kernel takes the power in another way
    "Tan": 10.0,  # a sine divided by a cosine: near a pole a rounding of the cosine is as large as what is left of it
}
"""Operator -> how much farther from ONNX Runtime its numbers may be than those of others, with the reason beside it."""


DEFINED = ("AffineGrid", "Attention", "RotaryEmbedding", "SwiGLU")
"""Operators that are written as the body by which the standard defines them."""


@cache
def cases() -> tuple[Case, ...]:
    """Return all cases of operators that the exporter has, or that are written as others before."""
    known = {*entries(), *(("", row.op_type) for row in TARGET.expansions), *(("", name) for name in DEFINED)}
    known |= {(ml_definitions.DOMAIN, name) for name in ml_definitions.DEFINITIONS}
    contributed = {*attention_definitions.DEFINITIONS, *fused_definitions.DEFINITIONS}
    # Kernels round what a DynamicQuantizeLSTM multiplies; test_dynamic_lstm.py holds it to the LSTM of its weights.
    known |= {(MICROSOFT, name) for name in contributed - {"DynamicQuantizeLSTM"}}
    known |= {("", name) for name in standard_definitions.DEFINITIONS}
    return tuple(case for case in _every() if (case.domain, case.op_type) in known)


def _every() -> Iterator[Case]:
    for family in FAMILIES:
        yield from family.cases()
    for path in sorted(Path(__file__).parent.glob("export_cases_*.py")):
        yield from import_module(path.stem).cases()
