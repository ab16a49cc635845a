"""What a target asks of the operators of a `.tflite` beyond that LiteRT's CPU kernels run them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from relayout.formats.tflite.exporting.draft import Draft, DraftOperator


class RefusedOperator(NamedTuple):
    """An operator of a file that its target does not take."""

    name: str  # the builtin
    reason: str  # why not
    tensor: str  # its first result
    node: str  # the first output of the node of the graph that it is a part of; "" where it is a part of none


class FileForms:
    """The forms of operators that a target takes, for the export of one file; by default all that are written."""

    def __init__(
        self,
        rewrite: Callable[[Draft], object] = id,  # writes the operators of a graph in these forms, in place
        end: Callable[[Draft], object] = id,  # does to a graph what comes last, when operators are fused
        # returns why the target does not take an operator; "" where it does
        lacks: Callable[[DraftOperator], str] = lambda _: "",
        *,
        unrolls: bool = False,  # whether it wants the steps of an LSTM one by one
    ) -> None:
        self.unrolls = unrolls
        self.rewrite, self.end, self.lacks = rewrite, end, lacks
        self.refused: list[RefusedOperator] = []  # the operators of the file that the target does not take


def write_in_forms(draft: Draft, forms: FileForms) -> None:
    """Write operators in the forms that the target takes, in place."""
    forms.rewrite(draft)


def finish_forms(program: Sequence[Draft], forms: FileForms) -> None:
    """Do what the target wants last, and look at every operator as it is going to be written."""
    for draft in program:
        forms.end(draft)
    forms.refused = [
        RefusedOperator(operator.name, reason, operator.outputs[0].name if operator.outputs else "", operator.node)
        for draft in program
        for operator in draft.operators
        if (reason := forms.lacks(operator))
    ]
