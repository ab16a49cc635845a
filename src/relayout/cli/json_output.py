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
    """Print an object with the version of its form."""
    click.echo(json.dumps({"schema": SCHEMA, **data}, indent=2, ensure_ascii=False), err=err)


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
