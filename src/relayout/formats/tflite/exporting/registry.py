"""The one table of ONNX operators that can be written: operator -> the function that writes its builtin operators."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from relayout.listed_modules import load_all, modules_by_domain, with_line

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.draft import DraftTensor
    from relayout.formats.tflite.exporting.node import NodeExport

FAMILIES = "relayout.formats.tflite.exporting.operators"
"""The package whose modules register the operators. Its `modules.json` says which module registers which; the program
that writes `exported.json` writes it."""

Export = Callable[["NodeExport"], None]
Key = tuple[str, str]  # domain and operator


class Unwritable(Exception):  # noqa: N818 - a verdict on one operator, collected into one UnsupportedError
    """Raised by an export: TensorFlow Lite has no operators that compute this one, as it is used here.

    Any function that reads a node or writes its builtins may raise it.

    Args:
        reason: what stands in the way; equal reasons are counted together, so it names no tensor.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


REFUSAL = "relayout.refusal"  # the key of a node's meta: the `Unwritable` that says why it has no definition


class OpenExtentError(Unwritable):
    """Raised by an export that counts on an extent known only at run time: the file can be written once it is fixed."""

    def __init__(
        self,
        reason: str,  # what stands in the way
        extents: Iterable[str] = (),  # the extents by name; none: any of the node's may be meant
    ) -> None:
        self.extents = frozenset(extents)
        super().__init__(reason)


class Entry(NamedTuple):
    """One ONNX operator."""

    domain: str  # "" for ONNX's own
    op_type: str  # the operator
    export: Export  # the function that writes it

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.export.__doc__ or "").strip().partition("\n")[0]


_ENTRIES: dict[Key, Entry] = {}


def exporter(
    *names: str,  # operators of the domain
    domain: str = "",  # "" for ONNX's own
) -> Callable[[Export], Export]:
    """Register a function as the export of one or several ONNX operators.

    Raises:
        ValueError: an operator is registered twice.
    """

    def register(function: Export) -> Export:
        for name in names:
            if (domain, name) in _ENTRIES:
                raise ValueError(f"{name} is registered twice: {_ENTRIES[domain, name].export} and {function}")
            _ENTRIES[domain, name] = Entry(domain, name, function)
        return function

    return register


def each_exporter(
    rows: Mapping[str, Any],  # operator -> its builtin, or else what the function takes behind the node
    summary: str,  # the line in the table of operators, with a place for the builtin: `{}, pair by pair.`
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as the export of several ONNX operators, each with a builtin of its own."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        for name, builtin in rows.items():
            exporter(name)(with_line(function, summary.format(builtin), builtin))
        return function

    return register


class Formula(NamedTuple):
    """An operator as an expression of the builder's methods."""

    summary: str  # the line in the table of operators
    compute: Callable[["NodeExport", "DraftTensor"], "DraftTensor"]  # the node and its first operand -> the result


def formulas(rows: Mapping[str, Formula], domain: str = "") -> None:
    """Register operators by their formulas."""

    def write(op: "NodeExport", compute: Callable[..., "DraftTensor"]) -> None:
        op.give_new(compute(op, op.input(0)))

    for name, (summary, compute) in rows.items():
        exporter(name, domain=domain)(with_line(write, summary, compute))


def is_written(key: Key) -> bool:
    """Tell whether an operator is registered. No module is loaded for it."""
    return key in _ENTRIES or key in modules()


def is_custom(
    key: Key,  # the operator
    custom_ops: Mapping[str, str],  # operators that do, by name -> their domain; "" for any
) -> bool:
    """Tell whether an operator becomes a CUSTOM one; of ONNX's own only those without an export."""
    domain, name = key
    return custom_ops.get(name) in ("", domain) and (bool(domain) or not is_written(key))


def export_of(key: Key) -> Entry | None:
    """Return one registered operator; None if there is none. Of the others no more is loaded than it needs."""
    if key not in _ENTRIES and key in modules():
        import_module(f"{FAMILIES}.{modules()[key]}")
    return _ENTRIES.get(key) or entries().get(key)  # an operator may be newer than the list of modules


def modules() -> dict[Key, str]:
    """Return operator -> the module that registers it, in alphabetical order."""
    return modules_by_domain(FAMILIES)


@cache
def entries() -> dict[Key, Entry]:
    """Return every registered operator, in alphabetical order."""
    load_all(FAMILIES)
    return dict(sorted(_ENTRIES.items()))
