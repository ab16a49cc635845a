"""Compare two models, and say where they differ first."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

import numpy as np

from relayout.formats.flatbuffer import Table
from relayout.formats.flatbuffer_writer import stream
from relayout.formats.tflite.container.model import Model

_UNSAID = {"place", "byte", "index", "beside"}
"""Where something is in its file or its subgraph: where it stands says as much."""


def first_difference(
    model: Model,  # one
    other: Model,  # the other. Metadata without a buffer counts for nothing, nor do files behind the model.
    *,
    bytewise: bool = False,  # whether constants are compared by their bytes; if not, by their lengths
) -> str:
    """Return the path of the first difference with both values, or "" if there is none."""
    one, two = (
        m._replace(metadata=tuple((name, content) for name, content in m.metadata if content is not None), files=())
        for m in (model, other)
    )
    return difference(one, two, bytewise=bytewise)


def difference(one: Any, two: Any, *, bytewise: bool = False) -> str:
    """Return the first difference of two values of any kind, with its path; "" if there is none."""
    return _difference(one, two, bytewise).removeprefix(".")


def _difference(one: Any, two: Any, bytewise: bool) -> str:
    """The rest of the path, a colon, and both values."""
    if one is two or (type(one) in _WHOLE and one == two):
        return ""
    if type(one) is type(two) is tuple and one and type(one[0]) is int and one == two:  # extents, places of tensors
        return ""
    if _is_content(one) and _is_content(two):
        return _difference_of_contents(one, two, bytewise)
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        same = np.array_equal(one, two, equal_nan=one.dtype.kind == two.dtype.kind == "f")
        return "" if same else f": {_short(one.tolist())} and {_short(two.tolist())}"
    parts, others = _parts(one), _parts(two)
    if parts is None or others is None:
        return "" if _equal(one, two) else f": {_short(one)} and {_short(two)}"
    if len(parts) != len(others):
        return f": {len(parts)} and {len(others)}"
    for (name, first), (_, second) in zip(parts, others, strict=True):
        if found := _difference(first, second, bytewise):
            return f".{name}{found}"
    return ""


_WHOLE = {str, int, bool}  # types without parts, of most values


def _equal(one: Any, two: Any) -> bool:
    """Tell whether two values without parts are equal; NaN equals NaN."""
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return False
    return bool(one == two) or bool(one != one and two != two)


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """Return the named parts of a value; None if it has none."""
    if isinstance(value, Table):
        return [("kind", value.kind), *value.fields.items()]
    if isinstance(value, tuple):
        if (names := getattr(value, "_fields", None)) is None:
            return [(str(i), part) for i, part in enumerate(value)]
        return [(name, part) for name, part in zip(names, value, strict=True) if name not in _UNSAID]
    if is_dataclass(value):
        return [(name, part) for name, part in vars(value).items() if name not in _UNSAID]
    return None


def _is_content(value: Any) -> bool:
    return hasattr(value, "chunks") or (isinstance(value, np.ndarray) and value.dtype == np.uint8)


def _difference_of_contents(one: Any, two: Any, bytewise: bool) -> str:
    if one.nbytes != two.nbytes:
        return f": {one.nbytes} and {two.nbytes} bytes"
    if bytewise and b"".join(stream(one)) != b"".join(stream(two)):
        return ": other bytes"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
