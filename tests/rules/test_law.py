"""Every rule obeys the law, and no rule goes without a case."""

from __future__ import annotations

import numpy as np
import pytest
from rules.cases import cases
from rules.law import MOST, Case, forced

from relayout.rules import registry

VIEWS = {"Transpose", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}
"""Views are held by the tests of infer and rewrite: they are no nodes of the problem."""


@pytest.mark.parametrize("case", cases(), ids=str)
def test_run_of_relaid_equals_relaid_run(case: Case) -> None:
    tried = 0
    for label, expected, got in forced(case, MOST):
        tried += 1
        for want, have in zip(expected, got, strict=True):
            assert have.shape == want.shape, label
            np.testing.assert_allclose(have, want, rtol=2e-5, atol=2e-6, err_msg=label)
    assert tried


def test_every_rule_has_a_case() -> None:
    covered = {(case.domain, case.op_type) for case in cases()}
    ruled = {key for key in registry() if key[1] not in VIEWS}
    assert ruled - covered == set()
