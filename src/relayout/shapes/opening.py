"""Open a fixed dimension of an input, in place: follow the axis, state anew what holds its extent, and infer again."""

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from relayout.errors import LayoutError
from relayout.formats.onnx import complete
from relayout.graph.subgraphs import reads
from relayout.layout import Dim, Extent
from relayout.layout.stored_as import STATED
from relayout.rules import outputs_of
from relayout.shapes.binding import Binding, of_lengths, of_rows
from relayout.shapes.bound import MoreInputsError, OpeningError
from relayout.shapes.ends import last_opened
from relayout.shapes.following import Following
from relayout.shapes.parts import Parts
from relayout.shapes.proving import contradiction
from relayout.shapes.rewriting import DimensionRewriting


class Opened(NamedTuple):
    """A dimension that was opened.

    Args:
        dim: its name, or its number where it was given another one.
        before: its extent in the source.
        inputs: input -> the axis that it is.
        outputs: output -> the axis that it is or is a part of, and how many runs of it that axis holds.
        is_batch: whether every element along it is computed by itself.
    """

    dim: Dim
    before: Dim
    inputs: Mapping[str, int]
    outputs: Mapping[str, tuple[int, Dim]]
    is_batch: bool = True


MOST_ATTEMPTS = 64
"""How many ways to regroup dimensions are tried together, where the axis has 1 element and may go into several."""


def open_axes(model: ir.Model, seeds: Mapping[ir.Value, Parts], what: str, *, rows: bool = True) -> Opened:
    """Open axes of inputs that are one dimension, in place.

    Args:
        model: the model, with known shapes.
        seeds: inputs and their opened axes.
        what: what the user asked for and may not be: `axis 2 of 'x' cannot become 33`.
        rows: whether every element along the axis must be computed by itself, as the rows of a batch are. Else the axis
            is opened as one that operators compute along, where it is none such.

    Returns:
        Which inputs and outputs hold the dimension.

    Raises:
        OpeningError: an operator binds it; the model is as it was.
    """
    is_batch = True
    try:
        following = _followed(model, dict(seeds), what, of_rows)
    except OpeningError as bound:
        if rows:
            raise bound.with_ends(last_opened(model, seeds, what, of_rows)) from None
        is_batch = False
        try:
            following = _followed(model, dict(seeds), what, of_lengths)
        except OpeningError as length:
            raise length.with_ends(last_opened(model, seeds, what, of_lengths)) from None
    for value, parts in following.parts.items():
        if parts:
            dims = following.dims(value)
            value.shape = ir.Shape([extent.number if extent.is_static else str(extent) for extent in dims])
            if STATED in value.meta:
                value.meta[STATED] = value.shape
    for value in following.computed.values():
        value.const_value = None
    outputs = {
        value.name or "": (axis, _dim(part.outer))
        for value in model.graph.outputs
        for axis, part in following.parts.get(value, {}).items()
    }
    rewriting = DimensionRewriting(model)
    for change in (*following.changes, *following.last):
        change(rewriting)
    complete(model, outputs_of)
    ends = {value: next(iter(parts.items())) for value, parts in following.parts.items() if parts}
    part = next(iter(next(iter(seeds.values())).values()))
    inputs = {value.name or "": ends[value][0] for value in model.graph.inputs if value in ends}
    if found := contradiction(model, str(part.length), _dim(part.before), rows=is_batch):
        raise LayoutError(f"{what}: the result would contradict itself: {found}")
    return Opened(_dim(part.length), _dim(part.before), inputs, outputs, is_batch)


def _dim(extent: Extent) -> Dim:
    return extent.number if extent.is_static else str(extent)


def _followed(model: ir.Model, seeds: dict[ir.Value, Parts], what: str, binding: Binding) -> Following:
    """Follow the axis; where it may go several ways, the first that leads to the end."""
    choices: dict[ir.Node, int] = {}
    first: OpeningError | None = None
    attempts = 0
    while attempts < MOST_ATTEMPTS:
        following = Following(model, seeds, what, choices, binding)
        try:
            following.run()
        except MoreInputsError as more:
            known = dict(seeds)
            for value, parts in more.seeds.items():
                seeds[value] = {**seeds.get(value, {}), **parts}
            attempts += seeds == known
            choices = {}
        except OpeningError as bound:
            first = first or bound
            attempts += 1
            if not _advance(choices, following, bound.node):
                break
        else:
            return following
    assert first is not None
    raise first


def _advance(choices: dict[ir.Node, int], following: Following, bound: ir.Node) -> bool:
    """Take the next way at the last node that has one and lies before who binds the axis; False if all were taken."""
    before = _before(bound)
    for node, number in reversed(following.offered):
        taken = choices.pop(node, 0) + 1
        if taken < number and node in before:
            choices[node] = taken
            return True
    return False


def _before(node: ir.Node) -> set[ir.Node]:
    """Return the nodes that a node's operands, and what its bodies read, are made by."""
    found: set[ir.Node] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if current not in found:
            found.add(current)
            makers = (value.producer() for value in reads(current))
            pending += [maker for maker in makers if maker is not None]
    return found
