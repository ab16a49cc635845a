"""What was decided and why: the report as a value, as a table, as JSON, as a page."""

from relayout.reports.axes import Axes
from relayout.reports.layouts import Naming
from relayout.reports.report import (
    Interface,
    Report,
    Transposed,
    at_any_extent,
    constants,
    grown,
    left_out,
    no_worse,
    operators,
    report,
    scattered,
    unsaid,
    unstated,
)

__all__ = [
    "Axes",
    "Interface",
    "Naming",
    "Report",
    "Transposed",
    "at_any_extent",
    "constants",
    "grown",
    "left_out",
    "no_worse",
    "operators",
    "report",
    "scattered",
    "unsaid",
    "unstated",
]
