"""The table of `tosa` beside its judge: it legalizes what the table claims, to a valid model with LiteRT's values.

`RELAYOUT_TOSA` names a Python that has TOSA's tools, where they are not on the path; elsewhere the tests are skipped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import relayout
from relayout.targets import target
from relayout.targets.tosa import COARSEST_TANH
from rules.law import Array, Case
from targets.judging import BENCH, answers, in_parts, part_of, python_with, saved
from targets.row_cases import real_cases
from targets.unit_cases import UnitCase, unit_cases

PYTHON = python_with("RELAYOUT_TOSA", program="tosa_reference_model")
SCRIPT = "by_tosa.py"
TOSA = target("tosa")
NAMES = frozenset(name for row in TOSA.kernels for name in row.op_types.split())
REFUSED = frozenset({"CumSum", "Erf", "Gelu", "LRN", "Mod", "ReverseSequence", "TopK"})
"""Operators that are tried although no row is about them: it stays so until TOSA's tools take all their cases."""
UNCLAIMED = frozenset({"QuantizeLinear"})
"""Operators of real numbers that are right by chance: the range of their results decides."""
MOST_ELEMENTS = 1 << 17
MOST_STEPS, MOST_PART = 1, 1e-4
"""The largest difference of integers, in steps, and of real numbers, by the largest value."""
LOGITS = "tinynet_1/dense_3_1/MatMul;tinynet_1/dense_3_1/BiasAdd"
"""The tensor before the Softmax, which makes many steps of one."""
needs_tosa = pytest.mark.skipif(PYTHON is None, reason="no TOSA tools: RELAYOUT_TOSA names a Python that has them")


@cache
def some_cases() -> list[Case | UnitCase]:
    reals = [case for case in real_cases() if not case.domain and case.op_type in (NAMES | REFUSED) - UNCLAIMED]
    tried: list[Case | UnitCase] = [*unit_cases(), *reals]
    return [case for case in tried if all(0 < array.size <= MOST_ELEMENTS for array in arrays_of(case))]


def arrays_of(case: Case | UnitCase) -> list[Array]:
    return list((case.case if isinstance(case, UnitCase) else case).arrays.values())


@needs_tosa
@in_parts
def test_tosa_computes_what_the_table_claims(part: int, tmp_path: Path) -> None:
    claimed: dict[str, tuple[Case | UnitCase, bool]] = {}
    for number, case in enumerate(part_of(some_cases(), part)):
        model, feed = case.prepared()
        try:
            result = relayout.convert(model, target=TOSA, format="tflite")
        except relayout.RelayoutError:  # TensorFlow Lite has no such operator
            continue
        claims = result.report.claims
        assert claims is not None
        if not claims.total:  # a view alone
            continue
        path = tmp_path / f"{number}.tflite"
        saved(result, feed, path)
        claimed[str(path)] = case, claims.claimed == claims.total
    assert PYTHON is not None
    found = answers(PYTHON, SCRIPT, [Path(path) for path in claimed])
    wrong = []
    for path, (case, is_claimed) in claimed.items():
        most = MOST_STEPS if isinstance(case, UnitCase) else MOST_PART
        is_right = found[path].get("off", most + 1) <= most
        if is_right != is_claimed and "untouched" not in found[path]:
            wrong.append(f"{case}: {'claimed' if is_claimed else 'not claimed'}, {found[path]}")
    assert not wrong, "\n".join(wrong)


@needs_tosa
@pytest.mark.parametrize(("name", "most"), [("tinynet_int8", 2), ("tinynet_float", MOST_PART)])
def test_a_network_that_is_claimed_as_a_whole_runs(name: str, most: float, tmp_path: Path) -> None:
    source = BENCH.parent / "models" / f"{name}.tflite"
    result = relayout.convert(source, target=TOSA, format="tflite", outputs=[LOGITS])
    claims = result.report.claims
    assert claims is not None
    assert claims.claimed == claims.total
    dtype, rng = np.int8 if "int8" in name else np.float32, np.random.default_rng(0)
    image = rng.integers(-128, 128, (2, 24, 40, 3)) if dtype is np.int8 else rng.random((2, 24, 40, 3))
    saved(result, {"image": image.astype(dtype)}, tmp_path / "network.tflite")
    assert PYTHON is not None
    (answer,) = answers(PYTHON, SCRIPT, [tmp_path / "network.tflite"]).values()
    assert answer.get("off", most + 1) <= most, answer


@needs_tosa
@pytest.mark.parametrize(("scale", "is_claimed"), [(COARSEST_TANH, True), (1 / 64, False)])
def test_a_tanh_of_words_is_claimed_where_its_table_is_right(scale: float, is_claimed: bool, tmp_path: Path) -> None:
    case = next(each for each in unit_cases() if str(each) == "Tanh-21-1x6x9x8--int16-scales")
    model, feed = case.prepared()
    for constant in model.graph.initializer:
        if constant.name == "x_scale":
            constant.CopyFrom(onnx.numpy_helper.from_array(np.array(scale, np.float32), "x_scale"))
    result = relayout.convert(model, target=TOSA, format="tflite")
    claims, path = result.report.claims, tmp_path / "m.tflite"
    assert claims is not None
    assert (claims.claimed == claims.total) == is_claimed
    saved(result, feed, path)
    assert PYTHON is not None
    answer = answers(PYTHON, SCRIPT, [path])[str(path)]
    assert not is_claimed or answer.get("off", np.inf) <= MOST_STEPS
