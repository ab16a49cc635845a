"""Sentences of a report about what readers would not expect: constants that grew, what was left out, other plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_ir as ir

from relayout.graph.subgraphs import all_graphs
from relayout.infer import Plan, is_scattered
from relayout.reports.report import Report

MOST_GROWN = 1 << 16
"""Bytes by which constants may grow without a word."""
MOST_SCATTERED = 1 << 16
"""Bytes by which Transposes of single elements may move more than the source's without a word."""


def constants(model: ir.Model) -> int:
    """The bytes of all initializers."""
    tensors = (value.const_value for graph in all_graphs(model.graph) for value in graph.initializers.values())
    return sum(
        sum(map(len, tensor.numpy().ravel())) if tensor.dtype == ir.DataType.STRING else tensor.nbytes
        for tensor in tensors
        if tensor is not None
    )


def grown(before: int, after: int) -> tuple[str, ...]:
    """Return the note on constants that grew, if they grew by more than a tenth and 64 KiB."""
    if after - before < MOST_GROWN or 10 * after < 11 * before:
        return ()
    return (f"constants take {after:,} bytes, {before:,} before: some are stored in more than one order, or padded",)


def unsaid(names: Sequence[str]) -> tuple[str, ...]:
    """Return the note on quantization annotations that fit no value of the result."""
    if not names:
        return ()
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (f"left out: the quantization annotation of {names[0]}{more}, which fits no value of the result",)


def left_out(plan: Plan) -> tuple[str, ...]:
    """Say how many of the source's nodes are not in the result, since no output needs them."""
    count = len(plan.sites.unneeded)
    return (f"left out: {count} {'node' if count == 1 else 'nodes'} that no output needs",) if count else ()


def scattered(plan: Plan) -> tuple[str, ...]:
    """Return the note on Transposes that copy single elements, if they move more bytes than the source's.

    ONNX Runtime's kernel takes about ten times as long for these as for runs.
    """
    found = [each.size for each in plan.crossings if is_scattered(each.root, each.given, each.order)]
    if sum(found) <= MOST_SCATTERED or plan.scattered - plan.source_scattered <= MOST_SCATTERED:
        return ()
    each = f"{len(found)} Transpose{'s copy' if len(found) > 1 else ' copies'}"
    return (
        f"{each} single elements or short runs ({sum(found):,} bytes): ONNX Runtime's CPU is faster with two that copy"
        " long runs, as --target onnxruntime-cpu writes them",
    )


FOR_SOME = "another plan moves more than the source does for some open extents"
"""How the note begins of a plan that is in question where it is known what open extents are."""


def no_worse(found: Report, decided: Plan, fewest: Plan) -> Report:
    """The report of a plan that is in no way worse than the source, where one that moves fewer bytes is.

    Args:
        found: the report.
        decided: its plan.
        fewest: the plan that moves fewer bytes.
    """
    pairs = (
        ("more Transposes", len(fewest.crossings), fewest.source_count),
        ("more copies of single elements", fewest.scattered, fewest.source_scattered),
    )
    what = " and ".join(text for text, takes, most in pairs if takes > most)
    told = f"{fewest.size:,} in {len(fewest.crossings)} (--per-transpose 0)"
    return replace(
        found,
        at_most=len(decided.crossings) if decided.sites.per_transpose else None,
        scattered_at_most=decided.scattered if decided.sites.per_scattered else None,
        notes=(*found.notes, f"fewer bytes take {what} than the source has: {told}"),
    )


def at_any_extent(found: Report, decided: Plan, fewer: Plan) -> Report:
    """Return the report of a plan that moves no more than the source in any run, where another one moves fewer bytes.

    Args:
        found: the report.
        decided: its plan.
        fewer: the plan that moves no more bytes where open extents count as 1, and more than the source in some run.
    """
    if fewer.size == decided.size:
        return found
    told = f"{FOR_SOME}, and {fewer.size:,} bytes if each counts as 1; fix them with --dim"
    return replace(found, notes=(*found.notes, told))


def unstated(names: Sequence[str]) -> str:
    """Return the note on values whose stated type or shape is not the one that their operators give."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"the operator gives another type or shape than the source states: {names[0]}{more}"
