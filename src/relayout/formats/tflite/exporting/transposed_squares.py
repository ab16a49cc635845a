"""A product of a transposed tensor with itself reads a copy of it once.

LiteRT's XNNPACK folds a TRANSPOSE into the products that read it, operand by operand. Where both operands of a
BATCH_MATMUL are the result of one TRANSPOSE, it computes another product (LiteRT 2.3; float32, every rank):

    x -> TRANSPOSE -> t -> BATCH_MATMUL(t, t)    becomes    t -> SLICE -> copy;  BATCH_MATMUL(t, copy)

Other builtins that read a transposed tensor twice are right, and so are products of two tensors.
"""

from __future__ import annotations

from relayout.formats.tflite.exporting.draft import Draft, DraftOperator
from relayout.formats.tflite.exporting.shared_memory import whole_slice


def separate_operands(draft: Draft) -> None:
    """Let such products read a copy as their second operand, in place."""
    transposed = {tensor for operator in draft.operators if operator.name == "TRANSPOSE" for tensor in operator.outputs}
    operators: list[DraftOperator] = []
    for operator in draft.operators:
        if operator.name == "BATCH_MATMUL":
            left, right = operator.inputs[:2]
            if left is right and left is not None and left in transposed:
                copy = whole_slice(draft, left)
                operators.append(copy)
                operator.inputs[1] = copy.outputs[0]
        operators.append(operator)
    draft.operators = operators
