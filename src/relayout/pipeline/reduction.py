"""The smallest part of a model that still shows a fault: delta debugging over its nodes.

A. Zeller and R. Hildebrandt, "Simplifying and isolating failure-inducing input", 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Literal, TypeVar

import onnx
import onnx_ir as ir

from relayout.arguments import SECONDS, ArgumentKind, checked, whole
from relayout.errors import RelayoutError
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.parts import cut
from relayout.formats.onnx.reading import read as read_onnx
from relayout.formats.onnx.spelling import lift_constants
from relayout.graph.subgraphs import captured
from relayout.light_dataclass import dataclass
from relayout.pipeline.conversion import optimize

Still = Literal["verify", "transpose"]
Fault = Callable[[ir.Model], bool]
T = TypeVar("T")


@dataclass(frozen=True)
class Reduced:
    """A part of a model that still shows the fault."""

    model: ir.Model  # the part
    before: int  # nodes of the source
    after: int  # nodes of the part
    tries: int  # how many parts were tried
    smallest: bool  # no node can be left out or taken out; False where the time limit stopped the search


STILL = ArgumentKind(
    "'verify', 'transpose' or a function of the part",
    lambda value: callable(value) or value in ("verify", "transpose"),
)


@checked(still=STILL, time_limit=SECONDS, seed=whole(0))
def reduce(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    # what the part must still show: `verify`, that `optimize` gives a model which computes something else; `transpose`,
    # that `optimize` leaves a Transpose; or a function of the part
    still: Still | Fault = "verify",
    time_limit: float | None = None,  # seconds after which the smallest part so far is given back
    seed: int = 0,  # of the random inputs
) -> Reduced:
    """Reduce a model to the nodes that a fault needs.

    1. Nodes are left out, in ever smaller groups; values that they made become inputs.
    2. Of what is left, a node whose operand has its result's type and shape is taken out, and the operand read instead.

    Raises:
        ReadError: the file is not a model, or is damaged.
        RelayoutError: the model itself does not show the fault.
    """
    whole = read_onnx(source)
    complete(whole)
    lift_constants(whole)
    named = {"verify": lambda model: _differs(model, seed), "transpose": _transposes}
    fault = still if callable(still) else named[still]
    if not fault(whole.clone()):
        shown = {"verify": "the optimized model computes the same", "transpose": "no Transpose remains"}
        raise RelayoutError(f"nothing to reduce: {shown.get(str(still), 'the model does not show the fault')}")
    search = _Search(whole, fault, None if time_limit is None else monotonic() + time_limit)
    smallest = search.leave_out() and search.bypass()
    return Reduced(search.model, len(whole.graph), len(search.model.graph), search.tries, smallest)


@dataclass
class _Search:
    """The smallest part so far."""

    model: ir.Model
    fault: Fault
    deadline: float | None
    tries: int = 0

    def leave_out(self) -> bool:
        """Leave out what can be, what it gave becoming an input. False where the deadline came first."""
        whole = self.model
        every = list(range(len(whole.graph)))
        needed_nodes, smallest = minimized(every, lambda some: self._shows(lambda: part(whole, some)), self.deadline)
        if len(needed_nodes) < len(every):
            self.model = part(whole, needed_nodes)
        return smallest

    def bypass(self) -> bool:
        """Take out nodes whose operand can stand for their result, to a fixed point."""
        count = -1
        while count != len(self.model.graph):
            count = len(self.model.graph)
            for index in reversed(range(count)):
                if self.deadline is not None and monotonic() > self.deadline:
                    return False
                shorter = bypassed(self.model, index)
                if shorter is not None and self._shows(shorter.clone):
                    self.model = shorter
        return True

    def _shows(self, candidate: Callable[[], ir.Model]) -> bool:
        self.tries += 1
        try:
            return self.fault(candidate())
        except Exception:  # a part that cannot be cut, planned or run does not show this fault, whatever it shows
            return False


def minimized(
    items: list[T],  # they show the fault together
    shows: Callable[[Sequence[T]], bool],  # whether some of them, in order, do
    deadline: float | None,  # `time.monotonic()` after which to stop
) -> tuple[list[T], bool]:
    """Items none of which can be left out (ddmin), and whether that was reached before the deadline."""
    parts = 2
    while len(items) > 1:
        size = -(-len(items) // parts)
        chunks = [items[start : start + size] for start in range(0, len(items), size)]
        rests = [[x for other in chunks if other is not chunk for x in other] for chunk in chunks]
        smaller = None
        for candidate in (*chunks, *rests) if parts > 2 else chunks:
            if deadline is not None and monotonic() > deadline:
                return items, False
            if shows(candidate):
                smaller = candidate
                break
        if smaller is not None:
            parts = max(parts - 1, 2) if len(smaller) > size else 2
            items = smaller
        elif size == 1:
            return items, True
        else:
            parts = min(2 * parts, len(items))
    return items, True


def part(model: ir.Model, indices: Sequence[int]) -> ir.Model:
    """Some nodes of a model's main graph as a model: what they read of others is an input, what others read an output.

    Raises:
        NamesError: a value that would be an input is of unknown type or rank.
    """
    model = model.clone()
    graph = model.graph
    chosen = set(indices)
    nodes = [node for index, node in enumerate(graph) if index in chosen]
    inside = set(nodes)
    read = [value for node in nodes for value in (*node.inputs, *captured(node)) if value is not None]
    inputs = dict.fromkeys(
        value.name or "" for value in read if value.producer() is not None and value.producer() not in inside
    )
    outputs = dict.fromkeys(value.name or "" for node in nodes for value in _read_outside(node, inside))
    return cut(model, [name for name in inputs if name not in outputs], list(outputs))


def _read_outside(node: ir.Node, inside: set[ir.Node]) -> list[ir.Value]:
    """Return the results of a node that nodes outside read; the first where nobody reads any."""
    results = [value for value in node.outputs if value.name]
    ends = [v for v in results if v.is_graph_output() or any(user not in inside for user in v.consumers())]
    return [*ends, *([] if any(v.uses() for v in results) else results[:1])]


def bypassed(model: ir.Model, index: int) -> ir.Model | None:
    """The model without a node, what reads its result reading an operand of equal type and shape; None: it has none."""
    model = model.clone()
    node = list(model.graph)[index]
    if len(node.outputs) != 1 or node.outputs[0].is_graph_output():
        return None
    (result,) = node.outputs
    alike = [v for v in node.inputs if v is not None and (v.dtype, v.shape) == (result.dtype, result.shape)]
    operand = next((value for value in alike if value.const_value is None and value.shape is not None), None)
    if operand is None:
        return None
    result.replace_all_uses_with(operand)
    model.graph.remove(node)
    return model


def _transposes(model: ir.Model) -> bool:
    return optimize(model).report.transposes > 0


def _differs(model: ir.Model, seed: int) -> bool:
    from relayout.verification import verify

    return not verify(model, optimize(model).model, seed=seed).ok
