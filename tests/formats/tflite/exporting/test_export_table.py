"""`relayout ops --to-tflite` lists what a case showed in LiteRT, and nothing else."""

from __future__ import annotations

import export_table
import numpy as np
import pytest
from export_cases import cases

import relayout
from registered_modules import modules
from relayout.formats.tflite.exporting.registry import entries
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.reports import coverage
from relayout.targets.litert.table import TARGET
from small import build


def test_the_table_claims_what_the_cases_show_and_no_more() -> None:
    hint = "run python tests/formats/tflite/exporting/export_table.py"
    assert export_table.EXPORTED.read_text(encoding="utf-8") == export_table.text(), hint
    assert export_table.MODULES.read_text(encoding="utf-8") == modules("exporting"), hint


def test_every_operator_that_is_written_is_listed() -> None:
    rows = {row["operator"]: row for row in coverage.tables("to_tflite")["to_tflite"]}
    written = {f"{domain}:{name}" if domain else name for domain, name in entries() if domain != DOMAIN}
    assert written | {row.op_type for row in TARGET.expansions} <= rows.keys()
    assert all(row["numbers"] and row["becomes"] for row in rows.values())


def test_an_operator_without_a_case_is_not_listed(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Planted: an operator is registered, and no case ran."""
    from relayout.formats.tflite.exporting import registry

    entry = entries()["", "Relu"]._replace(op_type="Untried")
    monkeypatch.setattr(registry, "entries", lambda: {**entries(), ("", "Untried"): entry})
    listed = {row["operator"] for row in coverage.tables("to_tflite")["to_tflite"]}
    assert "Relu" in listed
    assert "Untried" not in listed


def test_every_operator_that_is_written_is_claimed() -> None:
    """Each operator of the exporter has a row of the target, or is written as others before layouts are chosen."""
    claimed = {(row.domain, name) for row in TARGET.kernels for name in row.op_types.split()}
    claimed |= {("", row.op_type) for row in TARGET.expansions}
    assert set(entries()) - claimed == set(), "without a layout rule (src/relayout/rules/), or a row of the target"


CLAIMED = {f"{case.domain}:{case.op_type}": case for case in cases() if case.domain == "com.microsoft"}
"""A case of each operator outside of ONNX's domain."""
IN_ORDER = {case.op_type: case for case in cases() if case.op_type in ("GridSample", "MaxUnpool", "RoiAlign")}
"""A case of each operator on images that runs in ONNX's order."""


@pytest.mark.parametrize("name", [*CLAIMED, *IN_ORDER])
def test_the_report_claims_what_was_written(name: str) -> None:
    model, _ = (CLAIMED | IN_ORDER)[name].prepared()
    report = relayout.convert(model, format="tflite").report
    assert report.claims is not None
    assert report.claims.claimed == report.claims.total


def test_the_report_claims_branches_and_loops() -> None:
    text = "y, h = GRU<hidden_size=4>(x, w, r)  s = ReduceSum<keepdims=0>(y)  d = Greater(s, zero)"
    model = build("float[t,2,3] x", text, {"w": (1, 12, 3), "r": (1, 12, 4), "zero": np.float32(0)}, outputs=("d",))
    report = relayout.convert(model, format="tflite").report
    assert report.claims is not None
    assert report.claims.claimed == report.claims.total
