"""Columns of a target's tables whose entries are looked up: a name that does not exist would claim nothing."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, nearest
from relayout.rules import registry

_TYPES = tuple(ir.DataType.__members__)


def check_types(names: Sequence[str], where: str) -> None:
    """Look element types up.

    Raises:
        LayoutError: there is none of a name.
    """
    for name in names:
        if name not in ir.DataType.__members__:
            raise LayoutError(f"{where}no element type {name!r}{nearest(name, _TYPES)}")


def check_operators(names: Sequence[str]) -> None:
    """Look operators of ONNX's own domain up: those of the standard, and those that have a rule here.

    Raises:
        LayoutError: there is none of a name.
    """
    for name in names:
        if not onnx.defs.has(name) and ("", name) not in registry():
            known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
            raise LayoutError(f"ONNX has no operator {name!r}{nearest(name, sorted(known))}")
