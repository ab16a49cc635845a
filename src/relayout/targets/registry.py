"""All targets: one module each in this room, and those of other packages by entry point."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from types import ModuleType

from relayout.errors import LayoutError, nearest
from relayout.rules.registry import registered_by
from relayout.rules.users_functions import words_of
from relayout.targets.target_table import Kernel, Target

GROUP = "relayout.targets"  # entry points of this group name a `Target` each
SHORT = 3  # letters of an alias up to which it is not proposed for another name: `gpu` for `npu`
OPERATORS = "ops:"  # the prefix of a target's name that is a list of operators
OPERATORS_ALONE = "ops"  # the name of a target that is a list of operators


@cache
def targets() -> dict[str, Target]:
    """Name -> target, in alphabetical order.

    Raises:
        LayoutError: two targets of one name, or an entry point that names no target.
    """
    from importlib.metadata import entry_points  # it takes longer to load than all tables

    target_by_name: dict[str, Target] = {}
    for module in _own():
        for target in _of(module):
            _add(target_by_name, target)
    for point in entry_points(group=GROUP):
        try:
            target = point.load()
        except Exception as error:  # whatever a module of another package raises
            raise LayoutError(f"entry point {point.name!r} of {GROUP} cannot be loaded ({error})") from error
        if not isinstance(target, Target):
            raise LayoutError(f"entry point {point.name!r} of {GROUP} names {type(target).__name__}, not a Target")
        _add(target_by_name, target)
    return dict(sorted(target_by_name.items()))


def _own(
    of: str | None = None,  # a target's name: only those whose own name it is, or begins with; None: all
) -> Iterator[ModuleType]:
    """Yield the modules of this package, and of each folder those that its `TABLES` names: the rest is loaded late."""
    package = importlib.import_module("relayout.targets")
    for info in pkgutil.iter_modules(package.__path__):
        if of is not None and not f"{of}-".startswith(f"{info.name.replace('_', '-')}-"):
            continue
        module = importlib.import_module(f"relayout.targets.{info.name}")
        yield module
        yield from (importlib.import_module(f"{module.__name__}.{name}") for name in getattr(module, "TABLES", ()))


def _of(module: ModuleType) -> list[Target]:
    """Return the targets that a module has."""
    return [*getattr(module, "TARGETS", ()), *([module.TARGET] if hasattr(module, "TARGET") else [])]


def is_stated(name: str) -> bool:
    """Return whether a text states where a table is, or which operators are in it, rather than a target's name."""
    return name.endswith(".toml") or name.rpartition(":")[0].endswith(".py") or name.startswith(OPERATORS)


def _stated(text: str) -> Target:
    if text.endswith(".toml"):
        from relayout.targets.table_file import read_table

        return read_table(Path(text))
    if text.startswith(OPERATORS):
        return of_operators(text.removeprefix(OPERATORS).split(","))
    path, _, variable = text.rpartition(":")
    return _of_module(Path(path), variable)


def of_operators(names: Sequence[str]) -> Target:
    """Return a target that runs operators of ONNX, in every layout, on every element type.

    Raises:
        LayoutError: one is no operator.
    """
    operators = [name.strip() for name in names if name.strip()]
    if not operators:
        raise LayoutError("no operators: name some, such as Conv,Relu")
    return Target(OPERATORS_ALONE, f"{', '.join(operators)}, as asked for", (Kernel(" ".join(operators)),))


def _of_module(path: Path, variable: str) -> Target:
    """Return a target that a Python file makes.

    Raises:
        LayoutError: the file cannot be run, or has no target of that name.
    """
    if not path.is_file():
        raise LayoutError(f"there is no file '{path}'")
    from relayout.targets.table_file import MOST_BYTES

    if path.stat().st_size > MOST_BYTES:
        raise LayoutError(f"{path} is too long for a table: {path.stat().st_size:,} bytes")
    spec = importlib.util.spec_from_file_location(f"relayout_target_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise LayoutError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for the types of their fields
    try:
        # Standard output is for reports and models; each model of several runs the file.
        with redirect_stdout(sys.stderr), registered_by(os.path.abspath(path)):
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a user's file raises: SystemExit would end the process
        raise LayoutError(f"{path}{_line_in(path, error)}: {words_of(error)}") from error
    target_by_name = {name: value for name, value in vars(module).items() if isinstance(value, Target)}
    if variable not in target_by_name:
        near = nearest(variable, target_by_name)
        raise LayoutError(f"{path} makes no Target {variable!r}{near}")
    return target_by_name[variable]


def _line_in(path: Path, error: BaseException) -> str:
    """Return the last line of a file that an error has come through, as a message has it."""
    file = os.path.abspath(path)  # as the interpreter names it
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file and error.lineno:
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines else ""


@cache
def aliases() -> dict[str, str | Callable[[], str]]:
    """Return other name -> the target's own name, or a function that returns the one for this machine.

    A module of a target names them in its `ALIASES`.

    Raises:
        LayoutError: two modules have an alias of one name.
    """
    names: dict[str, str | Callable[[], str]] = {}
    for module in _own():
        for alias, owner in getattr(module, "ALIASES", {}).items():
            if alias in names:
                raise LayoutError(f"two targets have the alias {alias!r}")
            names[alias] = owner
    return dict(sorted(names.items()))


def _own_name(name: str, known: Collection[str]) -> str:
    """Return the name of the target that a name, an alias, or another spelling of one stands for."""
    for spelling in (name, name.lower().replace("_", "-")):
        if spelling in known:
            return spelling
        if spelling in aliases():
            owner = aliases()[spelling]
            return owner if isinstance(owner, str) else owner()
    return name


def _add(target_by_name: dict[str, Target], target: Target) -> None:
    if target.name in target_by_name:
        raise LayoutError(f"two targets are called {target.name!r}")
    target_by_name[target.name] = target


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # no file can have such a name
        return False


def target(name: str) -> Target:
    """Return a target.

    Args:
        name: its name or an alias (`tflm`), `_` for `-` and capitals allowed; `npu.toml`, a table in a file;
            `file.py:NAME`, a `Target` of that name in a Python file, which is run; `ops:Conv,Relu`, a target that runs
            these operators.

    Raises:
        LayoutError: there is none.
        ReadError: a file cannot be read.
        MissingRuntimeError: to find out which it is here needs a runtime that is not installed.
    """
    if is_stated(name):
        return _stated(name)
    for module in _own(name):  # the others need not be loaded
        for each in _of(module):
            if each.name == name:
                return each
    known = targets()
    name = _own_name(name, known)
    if name.endswith(".py"):
        raise LayoutError(f"{name}: say which Target of the file: {name}:NAME")
    if name not in known and ("/" in name or "." in name):
        raise LayoutError(f"there is no target {name!r}: the name of a table's file ends in .toml, or is FILE.py:NAME")
    if name not in known:
        table = f"{name}.toml"
        near = (
            f"; there is a file of that name: {table}"
            if _is_file(table)
            else nearest(name, [*known, *(each for each in aliases() if len(each) > SHORT)]) or nearest(name, known)
        )
        raise LayoutError(f"there is no target {name!r}{near}")
    return known[name]
