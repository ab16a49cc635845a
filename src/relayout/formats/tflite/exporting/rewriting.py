"""Operators of a draft that are written as others: a form adds those, and returns what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relayout.formats.tflite.exporting.builder import BuiltinBuilder
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.registry import OpenExtentError


class Rewriting(BuiltinBuilder):
    """The operators that stand for one, under construction."""

    def __init__(
        self,
        draft: Draft,  # the graph that they are added to
        operator: DraftOperator,  # the operator that they stand for
    ) -> None:
        super().__init__(draft, operator.outputs[0].name)
        self.operator, self.result = operator, operator.outputs[0]
        self.operands = [each for each in operator.inputs if each is not None]  # an optional one may be absent

    @property
    def fused(self) -> dict[str, Any]:
        """The activation that the operator applies, as an option."""
        kind = self.operator.options.get("fused_activation_function")
        return {"fused_activation_function": kind} if kind else {}

    def same(
        self,
        *inputs: DraftTensor | None,  # the operands
        name: str = "",  # the other one
        dims: Dims | None = None,  # the extents of what it gives; None: those of the result
    ) -> DraftTensor:
        """Add the operator itself, or another with its options, on other operands."""
        kind, result, options = name or self.operator.name, self.result, self.operator.options
        return self.emit(kind, inputs, dims or result.dims, result.type, result.quantization, **options)

    def finish(self, results: DraftTensor | Sequence[DraftTensor]) -> None:
        """Let what was computed be the results of the operator."""
        tensors = [results] if isinstance(results, DraftTensor) else results
        for tensor, result in zip(tensors, self.operator.outputs, strict=False):
            self.become(tensor, result)


Form = Callable[[Any], DraftTensor | Sequence[DraftTensor] | None]
"""Write the operator of a `Rewriting` otherwise, and return its results; None where it stays, and nothing was added."""


def rewrite_operators(
    draft: Draft,  # the graph
    begin: int,  # the first operator to look at
    form_of: Callable[[DraftOperator], Form | None],  # what writes an operator; None: it stays
) -> None:
    """Write operators as others, in place."""
    operators = draft.operators[begin:]
    del draft.operators[begin:]
    for operator in operators:
        written = len(draft.operators)
        form = form_of(operator) if operator.outputs else None  # what assigns to a variable has no results
        if form is None or not _is_written(Rewriting(draft, operator), form):
            draft.operators[written:] = [operator]


def _is_written(writing: Rewriting, form: Form) -> bool:
    """Write an operator otherwise, and tell whether it is: it stays where that counts on an extent that is open."""
    try:
        results = form(writing)
        if results is not None:
            writing.finish(results)
    except OpenExtentError:
        return False
    return results is not None
