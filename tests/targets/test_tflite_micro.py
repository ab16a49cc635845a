"""The table of `tflite-micro` beside its judge: it computes on integers what LiteRT does where the table claims it.

`RELAYOUT_TFLM` is a Python that has tflite-micro; elsewhere the test is skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import relayout
from relayout.targets import target
from small import build
from targets.judging import answers, saved
from targets.unit_cases import UnitCase, unit_cases

PYTHON = os.environ.get("RELAYOUT_TFLM")
SCRIPT = "by_tflm.py"
TYPES = (np.int8, np.uint8, np.int16)
MOST_ELEMENTS = 1 << 17
FLOATING = "DEQUANTIZE"


OTHERS_OF_UINT8 = ("Max", "Min", "Transpose")
"""Operators whose bytes are not as the table has them: scaled anew at the interface, or a Transpose without claims."""


def some_cases() -> list[UnitCase]:
    cases = [case for case in unit_cases() if case.dtype in TYPES and case.weights in (np.int8,)]
    cases = [case for case in cases if case.dtype is not np.uint8 or case.op_type not in OTHERS_OF_UINT8]
    return [case for case in cases if all(array.size <= MOST_ELEMENTS for array in case.case.arrays.values())]


@pytest.mark.slow
@pytest.mark.skipif(PYTHON is None, reason="no tflite-micro: RELAYOUT_TFLM names a Python that has it")
def test_it_computes_on_integers_what_the_table_claims(tmp_path: Path) -> None:
    claimed: dict[str, tuple[UnitCase, bool, bool]] = {}
    refused: list[str] = []
    for number, case in enumerate(some_cases()):
        model, feed = case.prepared()
        try:
            result = relayout.convert(model, target=target("tflite-micro"), format="tflite")
        except relayout.UnsupportedError as error:
            refused.append(str(error))
            continue
        path = tmp_path / f"{number}.tflite"
        saved(result, feed, path)
        claims = result.report.claims
        assert claims is not None
        claimed[str(path)] = case, claims.claimed == claims.total, FLOATING in result.report.operators
    assert all("INT64 (TensorFlow Lite Micro has none" in each for each in refused)
    assert PYTHON is not None
    found = answers(PYTHON, SCRIPT, [Path(path) for path in claimed])
    wrong = [
        f"{case}: {'claimed' if is_claimed else 'not claimed'}, {found[path]}"
        for path, (case, is_claimed, is_floating) in claimed.items()
        if (found[path].get("off", 2) <= 1 and not is_floating) != is_claimed
    ]
    assert not wrong, "\n".join(wrong)


def test_integers_of_64_bits_are_refused_with_what_to_do() -> None:
    """Kernels of CAST and ARG_MAX fail over them when they run."""
    ids = build("int64[1,5] i", "e = Gather<axis = 0>(t, i) y = MatMul(e, w)", {"t": (30, 8), "w": (8, 4)})
    best = build("float[1,5] x", "y = ArgMax<axis = 1>(x)", {})
    for model, name, options in ((ids, "CAST", {"input_type": "int32"}), (best, "ARG_MAX", {"output_type": "int32"})):
        with pytest.raises(relayout.UnsupportedError, match=rf"{name} of INT64 \(TensorFlow Lite Micro has none"):
            relayout.convert(model, format="tflite", target="tflite-micro")
        assert relayout.convert(model, format="tflite", target="tflite-micro", **options).tflite
        assert relayout.convert(model, format="tflite", target="ethos-u").report.operators[name] == 1


def test_a_form_of_fewer_axes_that_counts_on_open_extents_is_left_out() -> None:
    constants = {"from": [1], "to": [2], "axis": [0]}
    source = build("bool[2,6,1,m,n] x", "y = Slice(x, from, to, axis)", constants)
    result = relayout.convert(source, format="tflite", target="tflite-micro")
    assert result.report.operators["STRIDED_SLICE"] == 1
