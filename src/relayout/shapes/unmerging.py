"""An operand that lost its one row, and is stretched over the rows of another: it gets its rows back.

Converters drop a batch of 1 before a sum, since the sum stretches it again:

    x[1 192] + Squeeze(y[1 192])[192]  ->  x[n 192] + y[n 192]
"""

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from relayout.layout import ONE, Extent
from relayout.rules import Signature
from relayout.shapes.parts import OpenedFactor, Parts
from relayout.shapes.repeating import extents_of


class RowOperand(NamedTuple):
    """An operand whose first dimension starts with the rows that another operand has as an axis.

    Args:
        letter: of that axis.
        part: what is opened of it.
        items: the shape with the rows as an axis of their own.
    """

    letter: str
    part: OpenedFactor
    items: list[int]


def row_operands(node: ir.Node, fact: Signature, parts: Mapping[ir.Value, Parts]) -> dict[int, RowOperand]:
    """Find the operands of a node that stretches them which get their rows back: input -> its rows."""
    whole = _whole_axes(node, fact, parts)
    order, found = fact.outputs[0] or (), dict[int, RowOperand]()
    for slot, (value, names) in enumerate(zip(node.inputs, fact.inputs, strict=True)):
        merged = parts.get(value, {}).get(0) if value is not None else None
        if value is None or not names or merged is None or merged.is_whole or not merged.outer.is_one:
            continue
        missing = order[: order.index(names[0])] if fact.broadcast and names[0] in order else ()
        letter = next((each for each in missing if each in whole and whole[each].length == merged.length), None)
        rest = [merged.inner, *extents_of(value)[1:]]
        if letter is not None and all(extent.is_static for extent in rest) and len(parts[value]) == 1:
            between = [Extent(1)] * (len(missing) - missing.index(letter) - 1)
            items = [-1, *(extent.number for extent in (*between, *rest))]
            found[slot] = RowOperand(letter, OpenedFactor(ONE, merged.length, merged.before, ONE), items)
    return found


def _whole_axes(node: ir.Node, fact: Signature, parts: Mapping[ir.Value, Parts]) -> dict[str, OpenedFactor]:
    """Return the letters of the axes that are opened as a whole."""
    whole: dict[str, OpenedFactor] = {}
    for value, names in zip(node.inputs, fact.inputs, strict=True):
        if value is None or names is None:
            continue
        for axis, part in parts.get(value, {}).items():
            if part.is_whole:
                whole.setdefault(names[axis], part)
    return whole
