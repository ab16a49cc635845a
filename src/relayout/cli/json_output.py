"""The output of `--json`: an object with the version of its form, also where the command fails."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from relayout.errors import RelayoutError, printable

SCHEMA = 1
"""The version of what `--json` prints (docs/json.md). It grows when a key goes or means something else."""
OPTION = "--json"


def print_json(data: Mapping[str, Any], *, err: bool = False) -> None:
    """Print an object with the version of its form: a line for each key, and for each row of a list of objects."""
    lines = (f"  {_dumped(key)}: {_lines(value)}" for key, value in {"schema": SCHEMA, **data}.items())
    click.echo("{\n" + ",\n".join(lines) + "\n}", err=err)


def _lines(value: Any) -> str:
    if not isinstance(value, list | tuple) or not all(isinstance(row, dict) for row in value) or not value:
        return _dumped(value)
    return "[\n" + ",\n".join(f"    {_dumped(row)}" for row in value) + "\n  ]"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # without an indent it is written in C


def error_object(error: Exception, message: str) -> dict[str, Any]:
    """Return what is printed of an error.

    Args:
        error: what was raised.
        message: the line that people get.
    """
    kind = type(error).__name__ if isinstance(error, RelayoutError) else "UsageError"
    told: dict[str, Any] = {"kind": kind, "message": printable(message)}
    for key in ("what", "where", "hint"):
        if value := getattr(error, key, None):
            told[key] = printable(str(value))
    return {"error": told}
