"""Why a dimension cannot be opened."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from relayout.errors import RelayoutError
from relayout.shapes.parts import Parts

HINT = "cut the graph before it with --outputs{} (docs/how-to/batch.md says more)"
"""The advice in an error, with names where some are known."""


class OpeningError(RelayoutError):
    """A dimension cannot be opened, since an operator binds it.

    Args:
        what: what the user asked for and cannot be: `axis 2 of 'x' cannot become 33`.
        node: the operator that binds it.
        reason: what it does with it, as a predicate: `normalizes along it`.
        ends: the source's names of the last values that can be opened, if they are known.
    """

    def __init__(self, what: str, node: ir.Node, reason: str, ends: Sequence[str] = ()) -> None:
        self.what, self.node, self.reason = what, node, reason
        name = node.name or next((value.name for value in node.outputs if value.name), "") or ""
        self.operator = f"{node.op_type} '{name}'"
        names = f" {shlex.quote(','.join(ends))}" if ends else ""
        super().__init__(f"{what}: {self.operator} {reason}; {HINT.format(names)}")

    def with_ends(self, ends: Sequence[str]) -> OpeningError:
        """Return the same error with the names of the values that the graph may be cut at."""
        return OpeningError(self.what, self.node, self.reason, ends)


class MoreInputsError(Exception):
    """Other inputs, of the model or of a body, hold the same axis: they are opened, too, and following begins anew."""

    def __init__(self, seeds: Mapping[ir.Value, Parts]) -> None:
        self.seeds = seeds
