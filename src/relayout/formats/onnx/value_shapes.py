"""The shape that is stated of a value, and the better one that becomes known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from relayout.layout.stored_as import CLAIMED

MADE_UP = re.compile(r"unk__[0-9]+")
"""Names that ONNX's shape inference makes up for unknown extents."""
Dims = tuple[int | str | None, ...]
"""Extents of a shape; None is one that is not known."""
Output = tuple[ir.DataType | None, Sequence[int | str] | None]
"""Element type and shape of an output; None is a type or rank that is not known, "" an extent."""
OutputsOf = Callable[[ir.Node, Mapping[str, int]], Sequence[Output]]


def open_stated(value: ir.Value) -> None:
    """Open the extents that a file states of a value; what it states is a price only."""
    if value.shape is not None and CLAIMED not in value.meta:
        value.meta[CLAIMED] = value.shape
        value.shape = ir.Shape([None if isinstance(dim, int) else dim for dim in value.shape])


def dims_of_shape(shape: ir.Shape) -> Dims:
    """Return the extents of a shape: a number, a name, or None."""
    return tuple([dim if isinstance(dim, int) else dim.value for dim in shape])


def is_known_value(value: ir.Value) -> bool:
    """Return whether the type and every extent of a value are known."""
    return value.type is not None and value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


def better_shape(stated: ir.Shape | None, inferred: ir.Shape | None, *, kept: bool = True) -> ir.Shape | None:
    """Return the stated shape, with the extents that it leaves open taken from the inferred one.

    Where it need not be `kept`, so are those that an inference before has made names for.
    """
    if stated is None or inferred is None or len(stated) != len(inferred):
        return stated if stated is not None else inferred
    pairs = zip(stated, inferred, strict=True)
    return ir.Shape([b if isinstance(b, int) or is_open_dim(a, kept=kept) else a for a, b in pairs])


def is_open_dim(dim: int | ir.SymbolicDim, *, kept: bool = True) -> bool:
    """Return whether a dimension has no extent; with `kept` False a made-up name counts as none."""
    if isinstance(dim, int):
        return False
    return dim.value is None or (not kept and MADE_UP.fullmatch(dim.value) is not None)
