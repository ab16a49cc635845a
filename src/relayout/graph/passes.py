"""A pass, which rewrites a graph or a file: its function, what it runs on, what it requires and ends."""

import inspect
from collections.abc import Callable, Sequence
from enum import IntEnum
from importlib import import_module
from typing import Any, NamedTuple

from relayout.errors import LayoutError


class Stage(IntEnum):
    """The subject of a pass, in the order of a conversion."""

    FILE = 0  # a `.tflite` as it was parsed, `model`; the pass returns another one
    SOURCE = 1  # the graph of a model that was read: what an `UnpreparedModel` has
    GRAPH = 2  # the graph before its layouts are chosen: `model`, `target`, and what a `Target` has
    PLACED = 3  # the graph in the layouts that were chosen: the same
    FINAL = 4  # the graph as it is written, bodies of functions in place where the target has none: the same
    EXPORT = 5  # the graph that becomes a `.tflite`: what an `ExportedGraph` has
    DRAFT = 6  # the draft of a `.tflite`: what a `DraftFile` has; `draft` is each of its graphs in turn
    WRITTEN = 7  # a `.tflite` as it is written, behind quantization: `file`, `builtins`; the pass returns another one


class Pass(NamedTuple):
    """A pass.

    Its function names what it works with: each parameter without a default gets what the stage has of that name. It
    changes this in place, and returns for a report how many there were of what (`{"Neg": 2}`), or sentences.

    Args:
        name: how lists and errors call it.
        function: what runs, or `module.name` below `relayout`, which is loaded when it runs.
        line: what it makes, as a report says it before the counts; "": the name.
        stage: what it runs on.
        requires: facts that must hold before it, as `docs/passes.md` has them.
        ends: facts that no longer hold behind it.
        column: the column of `Target` that is empty where it has nothing to do; "": it runs wherever it is listed.
    """

    name: str
    function: str | Callable[..., Any]
    line: str = ""
    stage: Stage = Stage.GRAPH
    requires: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    column: str = ""

    def loaded(self) -> Callable[..., Any]:
        """Return the function."""
        if not isinstance(self.function, str):
            return self.function
        module, _, name = self.function.rpartition(".")
        function: Callable[..., Any] = getattr(import_module(f"relayout.{module}"), name)
        return function

    def parameters(self) -> list[str]:
        """Return the names of what the function works with."""
        parameters = inspect.signature(self.loaded()).parameters.values()
        named = (each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD))
        return [each.name for each in named if each.default is each.empty]

    def run(self, subject: object, **others: object) -> Any:
        """Call the function with what it names, of the others and of the attributes of the subject."""
        names = self.parameters()
        return self.loaded()(**{name: others[name] if name in others else getattr(subject, name) for name in names})


def check_order(passes: Sequence[Pass], where: str = "") -> None:
    """Hold passes, in the order in which they run, to what each requires.

    Raises:
        LayoutError: one stands behind one that ends what it requires.
    """
    ended: dict[str, str] = {}
    for row in passes:
        for fact in sorted(ended.keys() & set(row.requires)):
            raise LayoutError(
                f"{where}pass {row.name!r} requires {fact}, which {ended[fact]!r} before it ends: swap them"
            )
        ended |= dict.fromkeys(row.ends, row.name)
