"""What was decided and why: the report as a value, as a table, as JSON."""

from relayout.reports.report import Interface, Report, Transposed, operators, report

__all__ = ["Interface", "Report", "Transposed", "operators", "report"]
