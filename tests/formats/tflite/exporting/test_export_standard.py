"""A sample of the standard's node tests: none is wrong, and none is a file that does not run."""

from __future__ import annotations

import pytest
from node_tests import NodeTest, node_tests, verdict

SAMPLE = 9
"""Every how many tests one is tried."""
TESTS = [test for test in node_tests(constants=True) if isinstance(test, NodeTest)][::SAMPLE]
REFUSED = {
    "test_image_decoder_decode_pnm_rgb",
    "test_string_concat_zero_dimensional",
    "test_strnormalizer_export_monday_casesensintive_upper",
    "test_tfidfvectorizer_tf_onlybigrams_skip5",
}
"""Tests of the sample that LiteRT's kernels cannot compute; `docs/node-tests.md` has the reasons of all."""

NAMED = (
    "batchnorm_example_training_mode",
    "batchnorm_epsilon_training_mode",
    "convtranspose_dilations",
    "dft_irfft",
    "bitshift_right_int64",
    "convinteger_with_padding",
    "flexattention_score_mod",
    "qlinearmatmul_2D_int8_float16",
)
"""Tests of what ONNX Runtime does not compute, so that no other test holds it."""


@pytest.mark.parametrize("constants", [True, False])
def test_what_no_runtime_of_onnx_computes(constants: bool) -> None:
    tests = [test for test in node_tests(constants=constants) if isinstance(test, NodeTest)]
    found = {test.name: verdict(test) for test in tests if test.name.removeprefix("test_") in NAMED}
    assert len(found) == len(NAMED)
    assert {each for name, each in found.items() if constants or "dft" not in name} == {("right", "")}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, tuple[str, str]]:
    return {test.name: verdict(test) for test in TESTS}


def test_no_test_is_wrong_or_does_not_run(verdicts: dict[str, tuple[str, str]]) -> None:
    assert {name: each for name, each in verdicts.items() if each[0] in ("wrong", "does not run", "died")} == {}


def test_all_but_the_exclusions_are_right(verdicts: dict[str, tuple[str, str]]) -> None:
    refused = {name for name, (found, _) in verdicts.items() if found not in ("right", "as ONNX Runtime")}
    assert len(verdicts) > 150
    assert refused == REFUSED


def test_each_refusal_has_a_reason(verdicts: dict[str, tuple[str, str]]) -> None:
    refused = [reason for found, reason in verdicts.values() if found == "refused"]
    assert refused
    assert all(" (" in reason for reason in refused)
