"""The verbs: read → lower → infer → solve → apply → write → verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relayout.lazy_exports import loaded_later
from relayout.pipeline.conversion import convert, explain, optimize
from relayout.pipeline.request import Io, Source
from relayout.pipeline.source import read

if TYPE_CHECKING:
    from relayout.pipeline.looking import check_plan, diff, inspect

__getattr__ = loaded_later(
    __name__,
    {
        **dict.fromkeys(("diff", "inspect"), "relayout.pipeline.looking"),
        "check_plan": "relayout.pipeline.looking",
    },
)

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
