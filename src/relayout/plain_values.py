"""Records as dictionaries, for JSON."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def plain(item: Any) -> Any:
    """Return a value with its records as dictionaries, all the way down: dataclasses and named tuples."""
    if is_dataclass(item) and not isinstance(item, type):
        return {each.name: plain(getattr(item, each.name)) for each in fields(item)}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return {name: plain(value) for name, value in zip(item._fields, item, strict=True)}
    if isinstance(item, list | tuple):
        return type(item)(map(plain, item))
    return {key: plain(value) for key, value in item.items()} if isinstance(item, dict) else item
