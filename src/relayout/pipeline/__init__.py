"""The verbs: read → lower → infer → solve → apply → write → verify."""

from relayout.pipeline.verbs import (
    Io,
    Source,
    check_plan,
    convert,
    diff,
    explain,
    inspect,
    optimize,
    read,
    relayout_in_place,
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
    "relayout_in_place",
]
