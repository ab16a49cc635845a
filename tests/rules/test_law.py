"""Every rule obeys the law, and no rule goes without a case."""

from __future__ import annotations

import pytest

from relayout.rules import registry
from rules.cases import cases
from rules.law import Case, forced, holds

VIEWS = {"Transpose", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}
"""Views are held by the tests of infer and rewrite: they are no nodes of the problem."""
UNTRIED = {
    **dict.fromkeys(("If", "Loop", "Scan"), "the orders of what crosses a border are held by test_nested.py"),
    "QLinearReduceMean": "ONNX Runtime has no kernel for CPUs",
}
BUILTINS = "tflite"
"""The domain of builtins that no runtime of ONNX has: `test_there_and_back.py` runs them between Transposes."""


@pytest.mark.parametrize("case", cases(), ids=str)
def test_run_of_relaid_equals_relaid_run(case: Case) -> None:
    found = list(forced(*case.prepared(), cut=case.split))
    assert found
    for tried in found:
        holds(tried)


def test_every_rule_has_a_case() -> None:
    covered = {(case.domain, case.op_type) for case in cases()}
    ruled = {key for key, rule in registry().items() if key[1] not in VIEWS | UNTRIED.keys() and rule.kind != "opaque"}
    assert {key for key in ruled - covered if key[0] != BUILTINS} == set()
