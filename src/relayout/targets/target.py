"""What a target is: the operators that it runs, in which layouts, on which element types. A table, not a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.layout import Layout
from relayout.rules import Laid, Operator, Placement, is_function

FLOAT = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")
INT8 = ("INT8", "UINT8")


def anything(_: Operator) -> str:
    """No limit."""
    return ""


@dataclass(frozen=True)
class Kernel:
    """A row of a target's table: operators that it runs.

    Args:
        op_types: names of operators; one string may hold several.
        layouts: where they are layout-sensitive: each way that the target has, best first: the layout of images and,
            after a space, that of the kernel (`NHWC OHWI`). Empty: any order of axes.
        types: element types of input 0 (ONNX's names); empty: any.
        ranks: ranks of input 0; empty: any.
        limit: why the target cannot run a node, or an empty string.
        domain: the operators' domain.
    """

    op_types: str
    layouts: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    limit: Callable[[Operator], str] = anything
    domain: str = ""

    def lacks(self, operator: Operator) -> str:
        """Why this row does not run a node of its operators; empty if it does."""
        value = operator.node.inputs[0] if operator.node.inputs else None
        dtype = None if value is None or value.dtype is None else value.dtype.name
        if self.types and dtype not in self.types:
            return f"element type {dtype or 'unknown'}"
        rank = operator.rank() if operator.inputs else None
        if self.ranks and rank not in self.ranks:
            return f"rank {'unknown' if rank is None else rank}"
        return self.limit(operator)


@dataclass(frozen=True)
class Target:
    """A backend: what it runs, and how.

    Args:
        name: how `--target` calls it.
        line: what it is, in a line.
        kernels: its table; empty: every operator, in every layout, as the standard and its functions have it.
        joins: it also runs layout-sensitive operators in the standard's order: its ways join the default ones.
        price: what running a node in an order costs beside its best one, in bytes that might be moved instead.
    """

    name: str
    line: str
    kernels: tuple[Kernel, ...]
    joins: bool = False
    price: Callable[[Operator, Placement], int] | None = None

    def rows(self, operator: Operator) -> Iterator[Kernel]:
        """The rows for a node's operator."""
        domain = "" if operator.node.domain == "ai.onnx" or is_function(operator) else operator.node.domain
        yield from (row for row in self.kernels if row.domain == domain and operator.name in row.op_types.split())

    def lacks(self, operator: Operator) -> str:
        """Why the target cannot run a node; empty if it can."""
        if not self.kernels:
            return ""
        reasons = [row.lacks(operator) for row in self.rows(operator)]
        if not reasons:
            return f"{operator.name} is not in its table"
        return "" if not all(reasons) else reasons[0]

    def claims(self, operator: Operator) -> bool:
        """Whether the target runs a node, in one of its layouts."""
        return not self.lacks(operator)

    def layouts(self, operator: Operator) -> list[Laid]:
        """The ways in which the target runs a node that it claims, best first; none: any order of axes."""
        return [laid_of(text) for row in self.rows(operator) if not row.lacks(operator) for text in row.layouts]


def laid_of(text: str) -> Laid:
    """Read `NHWC`, `NHWC OHWI` or `NCHW->NCHW16c OIHW`.

    Raises:
        LayoutError: it is not so written.
    """
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise LayoutError(f"{text!r}: a layout of images, and that of the kernel where there is one")
    data, _, result = words[0].partition("->")
    kernel = Layout.parse(words[1]) if len(words) == 2 else None
    return Laid(Layout.parse(data), kernel, Layout.parse(result) if result else None)


def element_types(values: Sequence[ir.Value | None]) -> tuple[str, ...]:
    """The names of the element types of values; `unknown` where there is none."""
    return tuple("unknown" if value is None or value.dtype is None else value.dtype.name for value in values)
