"""Operators that run subgraphs: what is carried across their border is one value in one order."""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from relayout.rules.operator import WRAPPING, Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Body, Changes, Fact, Letters, Nested, Placement, Signature

UNKNOWN_RUNS = 2  # how often a loop counts whose trip count is computed: more than once, or it would be no loop
MOST_RUNS = 1 << 20  # how often a loop counts at most


def _rank(value: ir.Value | None) -> int | None:
    if value is None or value.shape is None or type(value.type) in WRAPPING:
        return None
    return len(value.shape)


def _shared(letters: str, *ranks: int | None) -> Letters | None:
    """Letters for a value that crosses a border, where both sides have one rank."""
    rank = ranks[0]
    return axis_letters(rank, letters) if rank is not None and all(other == rank for other in ranks) else None


@rule("If", kind="layout-agnostic")
def if_(operator: Operator) -> Fact:
    """Any order, output by output, the same in both branches."""
    node = operator.node
    graphs = [node.attributes.get_graph(name) for name in ("then_branch", "else_branch")]
    if any(graph is None or graph.inputs for graph in graphs):
        return None  # branches are given nothing, and read what is around them
    outputs: list[Letters | None] = []
    for index, shape in enumerate(operator.outputs):
        ranks = [_rank(graph.outputs[index]) for graph in graphs if graph is not None]
        outputs.append(_shared(f"o{index}.", None if shape is None else len(shape), *ranks))
    bodies = tuple(Body(name, (), tuple(outputs)) for name in ("then_branch", "else_branch"))
    return Nested(Signature((None,), tuple(outputs)), bodies)


class _Carried(NamedTuple):
    """A value that a loop carries across its border."""

    outer: Letters | None = None  # its letters outside; None: it keeps its own order
    inner: Letters | None = None  # its letters inside
    axis: str = ""  # the letter of the axis that is scanned; empty for a state
    head: Letters = ()  # letters that stand first outside
    place: int = 0  # the axis that is scanned, as the source counts it


@rule("Loop", kind="layout-agnostic")
def loop(operator: Operator) -> Fact:
    """Any order for each carried value, the same before, inside and after, and for the slices of stacked outputs."""
    node = operator.node
    body = node.attributes.get_graph("body")
    carried = len(node.inputs) - 2
    if body is None or len(body.inputs) != carried + 2:
        return None
    letters: list[Letters | None] = []
    for index in range(carried):
        ends = (node.inputs[index + 2], body.inputs[index + 2], body.outputs[index + 1], node.outputs[index])
        letters.append(_shared(f"v{index}.", *map(_rank, ends)))
    stacked = [
        _sliced(f"o{index}.", outer, inner, 0, first=True)
        for index, (outer, inner) in enumerate(zip(node.outputs[carried:], body.outputs[carried + 1 :], strict=True))
    ]
    trips = operator.integers(0) if operator.has(0) else None
    runs = max(1, min(trips[0], MOST_RUNS)) if trips else UNKNOWN_RUNS
    inside = Body("body", (None, None, *letters), (None, *letters, *(value.inner for value in stacked)))
    signature = Signature(
        (None, None, *letters),
        (*letters, *(value.outer for value in stacked)),
        whole=frozenset(value.axis for value in stacked if value.axis),
        head=tuple(letter for value in stacked for letter in value.head),
    )
    goes = operator.constant(1) if operator.has(1) else None
    begins = not operator.has(1) or (goes is not None and bool(goes.all()))
    counted = not operator.has(0) or (trips is not None and trips[0] > 0)
    return Nested(signature, (inside,), runs, surely=begins and counted)


BATCHED = 8  # the one opset whose Scan has a batch in front, and no attributes for axes


@rule("Scan", kind="axis attributes")
def scan(operator: Operator) -> Fact:
    """Any order for each state and for the slices of what is scanned, whose axis is renumbered (opset 8: `b t *d`)."""
    node = operator.node
    body = node.attributes.get_graph("body")
    scanned = operator.int("num_scan_inputs", 0)
    skipped = 1 if operator.version == BATCHED else 0
    states = len(node.inputs) - scanned - skipped
    if body is None or states < 0 or len(body.inputs) != states + scanned or len(body.outputs) != len(node.outputs):
        return None
    stacked = len(node.outputs) - states
    leading = ("b",) * skipped
    carried = [
        _across(
            f"v{k}.",
            (_rank(node.inputs[skipped + k]), _rank(node.outputs[k])),
            (_rank(body.inputs[k]), _rank(body.outputs[k])),
            leading,
        )
        for k in range(states)
    ]
    input_slices = [
        _sliced(f"i{k}.", node.inputs[skipped + states + k], body.inputs[states + k], axis, leading)
        for k, axis in enumerate(operator.ints("scan_input_axes") or (0,) * scanned)
    ]
    output_slices = [
        _sliced(f"o{k}.", node.outputs[states + k], body.outputs[states + k], axis, leading)
        for k, axis in enumerate(operator.ints("scan_output_axes") or (0,) * stacked)
    ]
    if len(input_slices) != scanned or len(output_slices) != stacked:
        return None
    values, entering, leaving = (
        (*carried, *input_slices, *output_slices),
        _sides(*carried, *input_slices),
        _sides(*carried, *output_slices),
    )
    inside = Body("body", entering[1], leaving[1])

    def changes(placement: Placement) -> Changes:
        if leading:
            return Changes()
        return Changes(
            {
                "scan_input_axes": _moved(placement, input_slices, states, output=False),
                "scan_output_axes": _moved(placement, output_slices, states, output=True),
            }
        )

    signature = Signature(
        (*(None,) * skipped, *entering[0]),
        leaving[0],
        whole=frozenset(value.axis for value in values if value.axis),
        head=tuple(letter for value in values for letter in value.head),
        changes=changes,
    )
    rounds = _rounds(operator, states + skipped, input_slices)
    return Nested(signature, (inside,), rounds or UNKNOWN_RUNS, surely=bool(rounds))


def _sides(*values: _Carried) -> tuple[tuple[Letters | None, ...], tuple[Letters | None, ...]]:
    """Return the letters of values outside and inside."""
    return tuple(value.outer for value in values), tuple(value.inner for value in values)


def _rounds(operator: Operator, first: int, read: Sequence[_Carried]) -> int:
    """Return how often the body runs: the first known extent that is scanned; 0 where none is known."""
    shapes = (operator.shape(first + k) for k in range(len(read)))
    extents = (shape[value.place] for value, shape in zip(read, shapes, strict=True) if value.axis and shape)
    return min(next((extent for extent in extents if isinstance(extent, int)), 0), MOST_RUNS)


def _across(prefix: str, outside: Sequence[int | None], inside: Sequence[int | None], leading: Letters) -> _Carried:
    """A state: the same axes outside and inside, but for what leads outside."""
    rank = inside[0]
    if rank is None or any(other != rank for other in inside) or any(o != rank + len(leading) for o in outside):
        return _Carried()
    head = tuple(prefix + letter for letter in leading)
    inner = axis_letters(rank, prefix)
    return _Carried((*head, *inner), inner, head=head)


def _sliced(
    prefix: str, whole: ir.Value | None, part: ir.Value, axis: int, leading: Letters = (), *, first: bool = False
) -> _Carried:
    """A value that is read or given slice by slice.

    `leading` are letters of axes that stand before the sliced one outside only. An axis that is `first` stands first,
    or behind what leads, and cannot be renumbered.
    """
    outer, inner = _rank(whole), _rank(part)
    if outer is None or inner is None or outer != inner + len(leading) + 1:
        return _Carried(place=axis)
    letters, along = axis_letters(inner, prefix), f"{prefix}t"
    before = tuple(prefix + letter for letter in leading)
    fixed = first or bool(leading)
    (place,) = (len(leading),) if fixed else normalized((axis,), outer)
    named = (*before, *letters)
    return _Carried((*named[:place], along, *named[place:]), letters, along, (*before, along) if fixed else (), place)


def _moved(placement: Placement, values: Sequence[_Carried], first: int, *, output: bool) -> tuple[int, ...] | None:
    """Return the axes that are scanned, in the order that was chosen; None where they are what they are by default."""
    axes = tuple(
        placement.axis(value.axis, first + k, output=output) if value.axis else value.place
        for k, value in enumerate(values)
    )
    return axes if any(axes) else None
