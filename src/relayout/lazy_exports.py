"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in `relayout/__init__.py`
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


def loaded_later(
    package: str,  # its name
    homes: Mapping[str, str],  # name -> the module that has it
    # the module with `COMMANDS`, names of commands that are taken for functions; empty if there is none
    commands: str = "",
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package (PEP 562)."""

    def attribute(name: str) -> Any:
        if name not in homes:
            lines = import_module(commands).COMMANDS if commands else {}
            instead = f": it is a command: relayout {lines[name]}" if name in lines else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{instead}")
        return getattr(import_module(homes[name]), name)

    return attribute
