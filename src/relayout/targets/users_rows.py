"""The functions of a user in a target's rows: each error in one names the target, the row, the node and the line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from relayout import arguments
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import why_not_written
from relayout.rules.users_functions import UsersFunction, is_users

if TYPE_CHECKING:
    from relayout.targets.target_table import Target


def guard_rows(target: Target) -> None:
    """Put a `UsersFunction` in the place of each function of a target that is none of this package's.

    Rows are replaced, and never changed: they may be another target's, too.
    """
    where = f"target {target.name!r}: "

    def condition(limit: Condition) -> Condition:
        if not is_users(limit.holds):
            return limit
        what = f"{where}the condition {limit.line!r}"
        return replace(limit, holds=UsersFunction(what, limit.holds, otherwise=False, check=_no_truth))

    def conditions(limits: tuple[Condition, ...]) -> tuple[Condition, ...]:
        return tuple(map(condition, limits)) if any(is_users(limit.holds) for limit in limits) else limits

    columns: dict[str, Any] = {
        "kernels": [
            (row, {"limits": conditions(row.limits), "when": None if row.when is None else condition(row.when)})
            for row in target.kernels
        ],
        "expansions": [
            (
                row,
                {
                    "limits": conditions(row.limits),
                    "steps": _guarded(
                        f"{where}the expansion of {row.op_type}", row.steps, otherwise=(), check=_unwritable
                    ),
                },
            )
            for row in target.expansions
        ],
        "units": [
            (
                row,
                {"limits": conditions(row.limits)}
                | {
                    name: _guarded(f"{where}`{name}` of a unit of {row.op_types}", getattr(row, name))
                    for name in ("channel", "attributes", "squeezed")
                },
            )
            for row in target.units
        ],
    }
    changed: dict[str, Any] = {
        name: tuple([_replaced(row, columns) for row, columns in rows]) for name, rows in columns.items()
    }
    changed["fusions"] = tuple(
        [
            row._replace(
                limits=conditions(row.limits),
                activations={
                    name: _guarded(f"{where}the parameters of {name} in a fusion of {row.op_type}", function)
                    for name, function in row.activations.items()
                },
            )
            for row in target.fusions
        ]
    )
    for name in ("price", "tflite", "single_consumers"):
        if (function := getattr(target, name)) is not None:
            options = {"check": _no_price} if name == "price" else {}
            changed[name] = _guarded(f"{where}`{name}`", function, **options)
    vars(target).update(changed)


def _replaced(row: Any, columns: dict[str, Any]) -> Any:
    """Return a row with other columns; the row itself where they are the same."""
    different = {name: value for name, value in columns.items() if getattr(row, name) is not value}
    return replace(row, **different) if different else row


def _guarded(what: str, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return UsersFunction(what, function, **options) if is_users(function) else function


def _no_truth(_: Sequence[Any], answer: Any) -> str:
    return "" if isinstance(answer, bool | np.bool_) else f"it returns {type(answer).__name__}, not True or False"


def _no_price(_: Sequence[Any], answer: Any) -> str:
    is_price = arguments.whole(0).fits(answer)
    return "" if is_price else f"it returns {answer!r}, not bytes, a whole number from 0 on"


def _unwritable(args: Sequence[Any], answer: Any) -> str:
    return why_not_written(args[0], answer)
