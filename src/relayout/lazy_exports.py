"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def loaded_later(
    package: str, homes: Mapping[str, str], advice: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562).

    Args:
        package: its name.
        homes: name -> the module that has it.
        advice: name that the package does not have -> what to do instead.
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            instead = f": {advice[name]}" if advice and name in advice else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{instead}")
        return getattr(import_module(homes[name]), name)

    return attribute
