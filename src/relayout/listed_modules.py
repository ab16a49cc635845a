"""Packages whose modules register operators; a package's `modules.json` says which module registers which.

So a process loads those modules alone that its model needs.
"""

from __future__ import annotations

import json
import pkgutil
from functools import cache
from importlib import import_module
from typing import Any


@cache
def modules_of(package: str) -> dict[str, Any]:
    """Return name -> what the package's list says of it: the module, and more where the package has more to say."""
    found: dict[str, Any] = json.loads(pkgutil.get_data(package, "modules.json") or b"{}")
    return found


@cache
def modules_by_domain(package: str) -> dict[tuple[str, str], Any]:
    """Return `modules_of` by domain and operator: a name is `domain:operator`, or the operator's alone."""
    split = {name.rpartition(":"): said for name, said in modules_of(package).items()}
    return {(domain, name): said for (domain, _, name), said in split.items()}


@cache
def load_all(package: str) -> None:
    """Load every module of a package."""
    for module in sorted(info.name for info in pkgutil.iter_modules(import_module(package).__path__)):
        import_module(f"{package}.{module}")
