"""The one table of TFLite operators that can be read: name -> the function that writes its ONNX nodes."""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from relayout.listed_modules import load_all, modules_of, with_line

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.operation import Operation


class Unsupported(Exception):  # noqa: N818 - a verdict on one operator, collected into one UnsupportedError
    """Raised by a translation: this operator, as it is used here, has no ONNX counterpart yet."""

    def __init__(
        self,
        reason: str,  # what stands in the way; equal reasons are counted together, so it names no tensor
    ) -> None:
        self.reason = reason
        super().__init__(reason)


FAMILIES = "relayout.formats.tflite.importing.operators"
"""The package whose modules register the operators. Its `modules.json`, written by the program that writes the tables
of the documents, says which of them does; what it does not know is looked for in all."""

Translation = Callable[["Operation"], None]
Registered = TypeVar("Registered", bound=Translation)

ANY_OPSET = 1  # for `texts`: in any opset


class Entry(NamedTuple):
    """One TFLite operator."""

    name: str  # as the schema has it
    translate: Translation  # the function that translates it
    options: str  # the table of its options ("" if it has none)
    opset: int = 0  # from which opset on ONNX has an operator for it, where that is worth writing a newer one
    texts: int = 0  # from which opset on ONNX has an operator for it where it reads or gives texts; 0: it has none

    @property
    def of_complex(self) -> Translation:
        """The function that translates it where an operand is of complex numbers."""
        entries()
        return _OF_COMPLEX.get(self.name, self.translate)

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.translate.__doc__ or "").strip().partition("\n")[0]


_ENTRIES: dict[str, Entry] = {}


def operator(
    *names: str,  # as the schema has them, `CONV_2D`; a custom operator is `CUSTOM its_code`
    options: str = "",  # the schema's table of options; a file that leaves it out gets the defaults
    opset: int = 0,  # that models with the operator are written in, if no other is asked for; 0: any
    texts: int = 0,  # from which opset on it may read or give texts; 0: never
) -> Callable[[Registered], Registered]:
    """Register a function as the translation of one or several TFLite operators."""

    def register(function: Registered) -> Registered:
        for name in names:
            if name in _ENTRIES:
                raise ValueError(f"{name} is registered twice: {_ENTRIES[name].translate} and {function}")
            _ENTRIES[name] = Entry(name, function, options, opset, texts)
        return function

    return register


_OF_COMPLEX: dict[str, Translation] = {}


def of_complex(*names: str) -> Callable[[Translation], Translation]:
    """Register a function as the translation of operators where an operand is of complex numbers."""

    def register(function: Translation) -> Translation:
        for name in names:
            if name in _OF_COMPLEX:
                raise ValueError(f"{name} of complex numbers is registered twice")
            _OF_COMPLEX[name] = function
        return function

    return register


def each_operator(
    # operator -> what the function takes behind the operation: one argument, or a tuple of several
    rows: Mapping[str, Any],
    summary: str,  # the line in the tables of operators, with places for the arguments: `{} of booleans.`
    *,
    options: str = "",  # the schema's table of options, with places likewise
    texts: int = 0,  # from which opset on they may read or give texts; 0: never
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as the translation of several operators, each with arguments of its own."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for name, row in rows.items():
            arguments = row if isinstance(row, tuple) else (row,)
            translate = with_line(function, summary.format(*arguments), *arguments)
            operator(name, options=options.format(*arguments), texts=texts)(translate)
        return function

    return register


@cache
def entries() -> dict[str, Entry]:
    """Return every registered operator, by name in alphabetical order."""
    load_all(FAMILIES)
    return dict(sorted(_ENTRIES.items()))


def entry_of(name: str) -> Entry | None:
    """Return one registered operator; None if there is none. Of the others no more is loaded than it needs."""
    module = None if name in _ENTRIES else modules_of(FAMILIES).get(name)
    if module is not None:
        import_module(f"{FAMILIES}.{module}")
    return _ENTRIES.get(name) or entries().get(name)
