"""The verbs: read → lower → infer → solve → apply → write → verify."""

from relayout.pipeline.conversion import convert, explain, optimize
from relayout.pipeline.looking import diff, inspect
from relayout.pipeline.plan_check import check_plan
from relayout.pipeline.request import Io, Source
from relayout.pipeline.source import read

__all__ = [
    "Io",
    "Source",
    "check_plan",
    "convert",
    "diff",
    "explain",
    "inspect",
    "optimize",
    "read",
]
