"""What a Transpose costs besides its bytes decides between one large and several small ones."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout import RelayoutError
from relayout.pipeline import check_plan
from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
from relayout.targets.testing import claiming
from text_form import model

LARGE, SMALL = 4 * 8**3, 4 * 8**2
"""Bytes of the value behind the source's one Transpose, and of each of the two that can be turned instead."""
EQUAL = LARGE - 2 * SMALL
"""What a Transpose costs besides where one large and two small ones cost the same."""


def two_small_or_one_large() -> onnx.ModelProto:
    text = """
        g (float[8,8,8] x) => (float[8,8] y, float[8,8] z) {
            t = Transpose<perm=[2,1,0]>(x)
            y = ReduceMax<keepdims=0>(t, middle)
            z = ReduceMin<keepdims=0>(t, middle)
        }"""
    return model(text, middle=np.array([1]))


@pytest.mark.parametrize(
    ("each", "count", "size"), [(0, 2, 2 * SMALL), (EQUAL - 1, 2, 2 * SMALL), (EQUAL + 1, 1, LARGE)]
)
def test_bytes_and_what_each_costs_count_together(each: int, count: int, size: int) -> None:
    report = relayout.optimize(two_small_or_one_large(), per_transpose=each).report
    assert (report.transposes, report.bytes, report.lower_bound, report.proved) == (count, size, size, True)
    assert report.verdict == "proved minimal" + (f" with {each:,} bytes for each Transpose" if each else "")
    assert sum(cause.bytes for left in report.remaining for cause in left.causes) == size


def test_a_price_is_not_told_of_a_result_without_transposes() -> None:
    proto = model("g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }")
    assert relayout.optimize(proto, per_transpose=100).report.verdict == "proved minimal"


def test_a_target_says_what_each_costs_and_the_option_what_instead() -> None:
    target = replace(claiming({"Conv": ["NHWC"]}), per_transpose=EQUAL + 1)
    source = two_small_or_one_large()
    assert relayout.convert(source, target=target).report.transposes == 1
    assert relayout.convert(source, target=target, per_transpose=0).report.transposes == 2


def test_a_plan_keeps_it_for_the_check(relayout, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source, plan = tmp_path / "m.onnx", tmp_path / "plan.json"
    onnx.save(two_small_or_one_large(), source)
    ran = relayout("optimize", source, tmp_path / "o.onnx", "--per-transpose", 5000, "--plan", plan)
    assert ran.code == 0
    checked = relayout("check", plan, source)
    said = "1 Transpose, 2,048 bytes; lower bound 2,048: proved minimal with 5,000 bytes for each Transpose\n"
    assert (checked.code, checked.out) == (0, said)
    stated = json.loads(plan.read_text())
    for other, error in ((0, "exceed the weight"), (50_000, "")):
        stated["options"]["per_transpose"] = other
        plan.write_text(json.dumps(stated))
        with pytest.raises(RelayoutError, match=error) if error else nullcontext():
            assert not check_plan(plan, source).ok


def test_numpys_integers_are_numbers(tmp_path: Path) -> None:
    result = relayout.convert(two_small_or_one_large(), per_transpose=np.int64(EQUAL + 1), io="keep")
    (tmp_path / "plan.json").write_text(json.dumps(result.plan))
    assert check_plan(tmp_path / "plan.json", two_small_or_one_large()).ok
    assert json.loads(json.dumps(result.report.to_dict()))["per_transpose"] == EQUAL + 1


def test_the_pass_of_onnx_ir_takes_it() -> None:
    def left(**options: int) -> int:
        graph = ir.from_proto(two_small_or_one_large())
        OptimizeLayouts(**options)(graph)
        return sum(node.op_type == "Transpose" for node in graph.graph)

    assert (left(), left(per_transpose=0), left(per_transpose=EQUAL + 1)) == (1, 2, 1)
    with pytest.raises(relayout.RelayoutError, match="a whole number from 0 to"):
        OptimizeLayouts(per_transpose=-1)


@pytest.mark.parametrize(("each", "saved"), [(0, 2 * SMALL), (5000, 5000 + LARGE)])
def test_what_if_counts_it_on_both_sides(each: int, saved: int) -> None:
    report = relayout.optimize(two_small_or_one_large(), per_transpose=each, what_if=True).report
    assert max(item.bytes for item in report.what_if if item.site.startswith("input")) == saved
