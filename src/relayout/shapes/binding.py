"""Operators whose result depends on how many elements an opened axis has.

A batch is opened where every row is computed by itself. Any other dimension, such as the length of a sequence, may also
be computed along: the result is the same graph at another extent, and rows are nothing that could be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relayout.layout import Extent
from relayout.rules import Operator, Signature
from relayout.shapes.parts import OpenedFactor

Binding = Callable[[Signature, Operator, str, OpenedFactor], str]
"""Say why a letter of a node cannot be opened; nothing if it can."""


def of_rows(fact: Signature, operator: Operator, letter: str, part: OpenedFactor) -> str:
    """Say what an operator does along an axis but compute each element by itself."""
    if letter in fact.whole:
        return "slices, pads, joins or picks along it"
    if letter in fact.across:
        return "computes along it"
    for index, (names, shape) in enumerate(zip(fact.outputs, operator.outputs, strict=True)):
        value = operator.node.outputs[index]
        if not (value.uses() or value.is_graph_output()):
            continue
        if names is None:
            return "makes one result of all its elements"
        if letter not in names:
            return "adds up along it" if index == 0 else f"leaves it out of output {index}"
        if shape is not None and Extent.of(shape[names.index(letter)]) != part.source_extent:
            return f"changes its extent from {part.source_extent} to {shape[names.index(letter)]}"
    return ""


def of_lengths(fact: Signature, operator: Operator, letter: str, part: OpenedFactor) -> str:
    """Say what an operator does along an axis that counts its elements: cut it, or make it longer."""
    computes = letter in fact.across or any(letter not in names for names in fact.outputs if names is not None)
    if computes and part.source_extent.is_one:
        return "computes along its one element"
    allows = COUNTING_NOTHING.get((operator.node.domain, operator.node.op_type))
    if letter in fact.whole and (allows is None or not allows(operator)):
        return "slices, pads, joins or picks along it by number"
    for names, shape in zip(fact.outputs, operator.outputs, strict=True):
        if names is None or shape is None or letter not in names:
            continue
        extent = Extent.of(shape[names.index(letter)])
        if extent != part.source_extent and not (extent.is_one and letter in fact.across):
            return f"changes its extent from {part.source_extent} to {extent}"
    return ""


def always(_operator: Operator) -> bool:
    """Nothing in the node counts the elements."""
    return True


def without_lengths(operator: Operator) -> bool:
    """A recurrent layer counts them where it is told the length of each sequence."""
    return not operator.has(4)


COUNTING_NOTHING: Mapping[tuple[str, str], Callable[[Operator], bool]] = {
    **dict.fromkeys((("", name) for name in ("ArgMax", "ArgMin", "CumProd", "CumSum", "Hardmax", "Trilu")), always),
    **dict.fromkeys((("", name) for name in ("GRU", "LSTM", "RNN")), without_lengths),
}
"""Operators that treat an axis as a sequence, of whatever length -> whether a node does."""
