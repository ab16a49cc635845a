"""Packages whose modules register operators; a package's `modules.json` says which module registers which.

So a process loads those modules alone that its model needs.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def modules_of(package: str) -> dict[str, Any]:
    """Return name -> what the package's list says of it: the module, and more where the package has more to say."""
    listing: dict[str, Any] = json.loads(pkgutil.get_data(package, "modules.json") or b"{}")
    return listing


@cache
def modules_by_domain(package: str) -> dict[tuple[str, str], Any]:
    """Return `modules_of` by domain and operator: a name is `domain:operator`, or the operator's alone."""
    split = {name.rpartition(":"): said for name, said in modules_of(package).items()}
    return {(domain, name): said for (domain, _, name), said in split.items()}


def with_line(
    function: Callable[..., Any],
    line: str,  # what the table of operators says
    *arguments: Any,  # what the function takes behind its first argument
) -> Callable[[Any], Any]:
    """Return a function of one argument to register, whose docstring is a line of its own."""

    def registered(first: Any) -> Any:
        return function(first, *arguments)

    registered.__doc__, registered.__module__ = line, function.__module__
    return registered


@cache
def load_all(package: str) -> None:
    """Load every module of a package."""
    for module in sorted(info.name for info in pkgutil.iter_modules(import_module(package).__path__)):
        import_module(f"{package}.{module}")
