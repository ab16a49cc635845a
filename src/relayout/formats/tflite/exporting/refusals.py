"""The operators, inputs and outputs that cannot be written, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from relayout.errors import LayoutError, UnsupportedError
from relayout.formats.tflite.exporting.node import IMAGES
from relayout.graph.source_names import label
from relayout.layout.expressions import names_in
from relayout.layout.stored_as import Holds


class UnwritableGraphError(UnsupportedError):
    """Operators, inputs or outputs cannot be written: all of them, each with its reason."""

    def __init__(
        self,
        reasons: dict[str, tuple[int, str]],  # operator and reason -> (how often, first place)
        values: set[str],  # the first output of each such operator; of an input, those of the operators that read it
        hint: str = "",  # what to do about it
    ) -> None:
        self.values = values
        super().__init__(reasons, hint)


class Refusals:
    """The operators of a model that cannot be written, gathered over all of its graphs."""

    def __init__(self) -> None:
        self.reasons: dict[str, tuple[int, str]] = {}  # operator and reason -> (how often, first place)
        self.values: set[str] = set()  # the first outputs of the nodes that are refused
        self.open_extents: set[str] = set()
        """Extents known only at run time that stand in the way of a node: names, and expressions of names."""

    def refuse(self, node: ir.Node, reason: str) -> None:
        """Note an operator that cannot be written."""
        kind = f"{node.domain}:{node.op_type}" if node.domain and not node.domain.startswith(IMAGES) else node.op_type
        key = f"{kind} ({reason})"
        count, first = self.reasons.get(key, (0, _place(node)))
        self.reasons[key] = (count + 1, first)
        self.values.add(node.outputs[0].name or "")

    def refuse_end(self, kind: str, value: ir.Value, reason: str, nodes: Sequence[ir.Node | None]) -> None:
        """Note an input or output that cannot be written; `nodes` read or compute it."""
        self.reasons[f"{kind} {value.name} ({reason})"] = (1, value.name or "")
        self.values.update(node.outputs[0].name or "" for node in nodes if node is not None)


def dims_to_fix(open_extents: Iterable[str], inputs: Sequence[ir.Value]) -> str:
    """Return what fixes the extents that stand in the way, by the names that inputs have; empty where no input has any.

    An extent that is computed says nothing of the inputs that it follows from: then all of their names are listed.
    """
    names = dict.fromkeys(
        name
        for value in inputs
        for axis, dim in enumerate(value.shape or ())
        if isinstance(dim, ir.SymbolicDim)
        for name in ([f"{value.name}:{axis}"] if dim.value is None else sorted(names_in(dim.value)) or [dim.value])
    )
    open_names = {name for extent in open_extents for name in (extent, *names_in(extent))}
    chosen = [name for name in names if name in open_names] or list(names)
    if not open_extents or not chosen:
        return ""
    return f"{' '.join(f'--dim {name}=N' for name in chosen)} fixes what is known only at run time; "


def _place(node: ir.Node) -> str:
    """Return where an operator is: its name, or the source's name of its result.

    A result that is stored in another order is called by the source's name and that order: `y__nhwc`.
    """
    name, result = label(node), node.outputs[0]
    try:
        source_values = Holds.of(result.metadata_props)
    except LayoutError:  # metadata of others
        source_values = []
    return next((each.name for each in source_values if not node.name and name.startswith(f"{each.name}__")), name)
