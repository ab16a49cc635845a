"""Every row of every table is exercised: by a node that it claims, run before and after."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from relayout.errors import LayoutError
from relayout.rules import Laid, registry
from relayout.targets import Kernel, Target, targets
from running import run
from targets.blocked import run_anywhere
from targets.row_cases import cases, prepared

ROWS = [(target, row) for target in targets().values() for row in target.kernels]


def named(item: object) -> str:
    return item.name if isinstance(item, Target) else f"{item.op_types.split()[0]}-{item.when or 'all'}"  # type: ignore[attr-defined]


def numbers(op_type: str, domain: str) -> list[int]:
    return [number for number, case in enumerate(cases()) if (case.op_type, case.domain) == (op_type, domain)]


def claimed(row: Kernel, op_type: str) -> list[int]:
    """The cases of an operator that a row claims."""
    found = []
    for number in numbers(op_type, row.domain):
        _, _, operator = prepared(number)
        if row.concerns(operator, row.domain, op_type) and not row.lacks(operator):
            found.append(number)
    return found


@pytest.mark.parametrize(("target", "row"), ROWS, ids=named)
def test_row_claims_a_node_that_runs_in_its_layout(target: Target, row: Kernel) -> None:
    for op_type in row.op_types.split():
        found = claimed(row, op_type)
        assert found, f"{target.name} claims no case of {op_type}"
        model, feed, operator = prepared(found[0])
        assert target.claims(operator)
        # A node alone may be cheaper as it is, where that is a way, too.
        result = relayout.convert(model, target=replace(target, joins=target.joins and target.blocks is None))
        onnx.checker.check_model(result.proto, full_check=True)
        assert result.report.proved
        written = [(node.domain, node.op_type) for node in result.proto.graph.node]
        if row.layouts:
            wanted = Laid.parse(row.layouts[0])
            plain = str(wanted) == "NCHW"
            one = (row.domain if plain else wanted.domain, op_type)
            if row.written is not None and not plain:
                one = (row.written.domain, row.written.op_type)
            assert one in written, f"{written} are not in {row.layouts}"
        for want, got in zip(run(model, feed), run_anywhere(result.proto, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("target", "row"), ROWS, ids=named)
def test_row_has_layouts_where_its_operators_have_them(target: Target, row: Kernel) -> None:
    for op_type in row.op_types.split():
        rule = registry().get((row.domain, op_type))
        assert rule is not None, f"{op_type} is not known"
        assert bool(rule.layouts) == bool(row.layouts), op_type
    for text in row.layouts:
        assert Laid.parse(text)


LIMITS = sorted({str(limit) for _, row in ROWS for limit in row.limits})


@pytest.mark.parametrize("line", LIMITS)
def test_a_limit_tells_nodes_apart(line: str) -> None:
    """Of the operators that have it some node meets it, and some does not."""
    found = set()
    for _, row in ROWS:
        for limit in (limit for limit in row.limits if str(limit) == line and len(found) < 2):
            for number in (number for op_type in row.op_types.split() for number in numbers(op_type, row.domain)):
                found.add(bool(limit.holds(prepared(number)[2])))
    assert found == {True, False}


def test_a_row_without_a_case_is_seen() -> None:
    """Planted: a row whose limits nothing meets claims no case."""
    row = Kernel("Conv", ("NHWC OHWI",), ("STRING",))
    assert claimed(row, "Conv") == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"op_types": "Convv"}, "ONNX has no operator 'Convv'; did you mean 'Conv'?"),
        ({"op_types": "MaxPool AvgPool"}, "ONNX has no operator 'AvgPool'"),
        ({"op_types": "Conv", "layouts": ("NHWC OHWX",)}, "OHWX is no layout of kernels"),
        ({"op_types": "Conv", "layouts": ("NHCW OHWI",)}, "NHCW is no usual layout of images"),
        ({"op_types": "Conv", "layouts": ("NCHW->NHCX",)}, "NHCX is no layout of images"),
        ({"op_types": "Conv", "layouts": "NHWC"}, "a row for Conv: 'NHWC' is no list; write ('NHWC',)"),
        ({"op_types": "Conv", "types": ("FLOAT32",)}, "a row for Conv: no element type 'FLOAT32'; did you mean 'FLOAT"),
        ({"op_types": "Conv", "types": "FLOAT"}, "'FLOAT' is no list"),
        ({"op_types": "Conv", "ranks": 4}, "4 is no list; write (4,)"),
    ],
)
def test_a_row_that_would_claim_nothing_is_refused(row: dict[str, Any], said: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(said)):
        Kernel(**row)
    assert Kernel("Anything", domain="vendor").op_types == "Anything"
