"""All targets: one module each in this room, and those of other packages by entry point."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType

from relayout.errors import LayoutError, nearest
from relayout.targets.target import Target

GROUP = "relayout.targets"
"""Entry points of this group name a `Target` each."""


@cache
def targets() -> dict[str, Target]:
    """Name -> target, in alphabetical order.

    Raises:
        LayoutError: two targets of one name, or an entry point that names no target.
    """
    found: dict[str, Target] = {}
    for module in _own():
        for target in (*getattr(module, "TARGETS", ()), *([module.TARGET] if hasattr(module, "TARGET") else [])):
            _add(found, target)
    for point in entry_points(group=GROUP):
        try:
            target = point.load()
        except Exception as error:  # whatever a module of another package raises
            raise LayoutError(f"entry point {point.name!r} of {GROUP} cannot be loaded ({error})") from error
        if not isinstance(target, Target):
            raise LayoutError(f"entry point {point.name!r} of {GROUP} names {type(target).__name__}, not a Target")
        _add(found, target)
    return dict(sorted(found.items()))


def _own() -> Iterator[ModuleType]:
    """Return the modules of this package, and of each folder those that its `TABLES` names: the rest is loaded late."""
    package = importlib.import_module("relayout.targets")
    for info in pkgutil.iter_modules(package.__path__, "relayout.targets."):
        module = importlib.import_module(info.name)
        yield module
        yield from (importlib.import_module(f"{info.name}.{name}") for name in getattr(module, "TABLES", ()))


@cache
def _aliases() -> dict[str, Callable[[], str]]:
    """Name -> what finds out which target it is on this machine."""
    return {name: find for module in _own() for name, find in getattr(module, "ALIASES", {}).items()}


def _add(found: dict[str, Target], target: Target) -> None:
    if target.name in found:
        raise LayoutError(f"two targets are called {target.name!r}")
    found[target.name] = target


def target(name: str) -> Target:
    """The target of a name, or the one that a name stands for on this machine.

    Raises:
        LayoutError: there is none.
        MissingRuntimeError: to find out which it is here needs a runtime that is not installed.
    """
    known = targets()
    if name in _aliases():
        name = _aliases()[name]()
    if name not in known:
        raise LayoutError(f"there is no target {name!r}{nearest(name, [*known, *_aliases()])}")
    return known[name]
