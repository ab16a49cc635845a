"""`relayout ops --to-tflite` lists what a case showed in LiteRT, and nothing else."""

from __future__ import annotations

import export_table

from relayout.formats.tflite.exporting.registry import entries
from relayout.formats.tflite.spelled_out import DOMAIN
from relayout.reports import coverage
from relayout.targets.litert.table import TARGET


def test_the_table_claims_what_the_cases_show_and_no_more() -> None:
    hint = "run python tests/formats/tflite/exporting/export_table.py"
    assert export_table.EXPORTED.read_text(encoding="utf-8") == export_table.text(), hint


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
