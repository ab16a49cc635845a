"""Prices of operators in LiteRT in an order of axes, in bytes that might be moved instead.

CONCATENATION and SPLIT copy runs with one call each. Where a run is an element or two, the calls take several times as
long as a TRANSPOSE of the same bytes: ShuffleNet v2 took 1.4 of its time with 32 Transposes when its channels were
interleaved by CONCATENATION along a last axis of one element. Blocks of it in int8 took 0.6 of the time with runs of 4
and 8 integers that they took with a TRANSPOSE: runs of integers count as those of the real numbers that they mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from relayout.graph.domains import CONVOLUTION
from relayout.layout import Extent, product
from relayout.lowering.conditions import clip_bounds, is_constant
from relayout.rules import Operator, Placement, Signature
from relayout.targets.price_list import PriceList

SHORT = 16  # bytes below which a run is moved like a single element
TIMES = 2  # how many bytes of a Transpose a byte in short runs is worth
JOINING, PARTING = "Concat", "Split"


def _of_runs(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return what joining or parting costs beside the source's order: its bytes, where they move in shorter runs."""
    joins = operator.name == JOINING
    letters = (signature.outputs if joins else signature.inputs)[0]
    if letters is None:
        return 0
    letter, width = letters[operator.int("axis", 0) % len(letters)], operator.width(0)
    stored = sum(_in_short_runs(dims, letter, width) for dims in (placement.inputs if joins else placement.outputs))
    shapes = operator.inputs if joins else operator.outputs
    source = sum(
        _in_short_runs(tuple(zip(letters, map(Extent.of, shape), strict=True)), letter, width)
        for shape in shapes
        if shape is not None and len(shape) == len(letters)
    )
    return TIMES * max(stored - source, 0) * placement.runs


def _in_short_runs(dims: Sequence[tuple[str, Extent]] | None, letter: str, width: int) -> int:
    """Return the bytes of a piece, if what is copied at a time is short; else 0."""
    places = [place for place, (name, _) in enumerate(dims or ()) if name == letter]
    if dims is None or not places:
        return 0
    run = product(extent for _, extent in dims[places[0] :]).number * width
    return product(extent for _, extent in dims).number * width if run < SHORT else 0


SURPLUS = 1 << 20  # bytes beside those of a Transpose: more than a target or a user counts for one however small it is


def _of_transposed_rows(operator: Operator, _: Signature, placement: Placement) -> int:
    """Return the bytes of a Gemm's first operand where FULLY_CONNECTED would read it transposed, which it cannot.

    The file then has the TRANSPOSE that the Gemm has not; `SURPLUS` makes it one that the report counts. By a second
    operand that is computed, BATCH_MATMUL reads both as they lie.
    """
    exchanged = placement.letters(output=True) == ("n", "m")
    first, second = (1, 0) if exchanged else (0, 1)
    dims = placement.inputs[first] or ()
    if is_constant(operator, first) or not is_constant(operator, second) or not dims or dims[-1][0] == "k":
        return 0
    return (SURPLUS + 2 * product(extent for _, extent in dims).number * operator.width(first)) * placement.runs


def _of_elements_apart(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return the operand's bytes, several times, where ARG_MAX goes along another axis than the last.

    Its kernel then takes 4 to 9 times as long, which is 2 to 15 times what a TRANSPOSE of the operand takes.
    """
    letters, dims = signature.inputs[0], placement.inputs[0]
    if not letters or not dims:
        return 0
    letter = letters[operator.int("axis", 0) % len(letters)]
    behind = [extent for _, extent in dims[max(placement.axes((letter,))) + 1 :]]
    size = product(extent for _, extent in dims).number * operator.width(0)
    return 0 if all(extent.is_one for extent in behind) else TIMES * size * placement.runs


FUSED_BOUNDS = ((0, 6), (-1, 1), (0, np.inf))  # bounds of a Clip that is an activation of the schema
TAKES_ACTIVATIONS = frozenset(["AveragePool", CONVOLUTION, "ConvTranspose", "MaxPool"])
"""Operators with channels last whose kernels apply an activation."""
ADDS = frozenset(["Add", "Div", "Mul", "Sub"])  # operators in any order whose kernels do


def _is_fused_at_an_end(operator: Operator) -> bool:
    """Tell whether a convolution takes in an activation, behind which alone its order may change."""
    bounds = clip_bounds(operator)
    (value,) = operator.node.outputs
    is_end = value.is_graph_output() or any(use.node.op_type not in TAKES_ACTIVATIONS | ADDS for use in value.uses())
    return bounds in FUSED_BOUNDS and is_end and _convolution(operator.node.inputs[0]) is not None


def _convolution(value: ir.Value | None) -> ir.Node | None:
    """Return the operator with channels last that gives a value which one node reads, also through sums."""
    while value is not None and len(value.uses()) == 1 and not value.is_graph_output():
        node = value.producer()
        if node is None or node.op_type not in TAKES_ACTIVATIONS | ADDS:
            return None
        if node.op_type in TAKES_ACTIVATIONS:
            return node
        value = next((each for each in node.inputs if each is not None and each.producer() is not None), None)
    return None


def _of_parted_activation(operator: Operator, signature: Signature, placement: Placement) -> int:
    """Return a byte where an activation runs in another order than the convolution that could take it in.

    Among plans of the same bytes it decides for the one in which the Transpose stands behind both.
    """
    letters = signature.inputs[0]
    if letters is None or len(letters) < 3:
        return 0
    dims = [(letter, extent) for letter, extent in placement.inputs[0] or () if not extent.is_one]
    channels_last = [letters[0], *letters[2:], letters[1]]
    return (
        int([letter for letter, _ in dims] != [each for each in channels_last if each in dict(dims)]) * placement.runs
    )


PRICES = PriceList(
    {
        JOINING: _of_runs,
        PARTING: _of_runs,
        "Gemm": _of_transposed_rows,
        **dict.fromkeys(("ArgMax", "ArgMin"), _of_elements_apart),
        **dict.fromkeys(("Relu", "Clip"), _of_parted_activation),
    },
    dict.fromkeys(("Relu", "Clip"), _is_fused_at_an_end),
)
