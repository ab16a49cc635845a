"""Builtins that ONNX has no operator for, recognised in a draft; and operators that run on integers as they are.

MUL(SUB(a, b), SUB(a, b))            ->  SQUARED_DIFFERENCE(a, b)
DIV(1, SQRT(x))                      ->  RSQRT(x)
QUANTIZE(RSQRT(DEQUANTIZE(x)))       ->  RSQRT(x), on integers
SELECT_V2(RESHAPE(c, [n 1 1]), a, b) ->  SELECT(c, a, b), which chooses whole rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor

LEAST = -128
"""The least integer of 8 bits: where it means 0, no number is below 0."""


def recognise(draft: Draft, *, for_litert: bool) -> None:
    """Write such operators, in place; those that nobody reads any more stay.

    Args:
        draft: the graph.
        for_litert: whether LiteRT alone has to run it: others have no SELECT.
    """
    search = _Search(draft)
    for operator in draft.operators:
        if operator.is_restored:
            continue
        if operator.name in ("MUL", "SQUARE"):
            search.squared_difference(operator)
        elif operator.name == "DIV":
            search.inverse_root(operator)
        elif operator.name == "SELECT_V2" and for_litert:
            search.selection_of_rows(operator)
    for operator in draft.operators:
        if operator.name == "QUANTIZE":
            search.on_integers(operator)


class _Search:
    def __init__(self, draft: Draft) -> None:
        own = [operator for operator in draft.operators if not operator.is_restored]
        self.producers = {tensor: operator for operator in own for tensor in operator.outputs}
        self.readers = draft.readers()

    def _producer(self, tensor: DraftTensor | None, name: str, readers: int = 1) -> DraftOperator | None:
        """Return the operator of a name that gives a tensor which that many operands are."""
        producer = None if tensor is None else self.producers.get(tensor)
        if producer is None or producer.name != name or tensor is None or self.readers.get(tensor) != readers:
            return None
        return None if producer.options.get("fused_activation_function") else producer

    def squared_difference(self, operator: DraftOperator) -> None:
        """Write a product of a difference with itself as one operator."""
        first = operator.inputs[0]
        both = operator.name == "SQUARE" or operator.inputs[1] is first
        before = self._producer(first, "SUB", readers=len(operator.inputs)) if both else None
        if before is None or operator.outputs[0].type != TensorType.FLOAT32 or operator.outputs[0].quantization:
            return
        if not operator.options.get("fused_activation_function"):
            operator.name, operator.inputs, operator.options = "SQUARED_DIFFERENCE", list(before.inputs), {}

    def selection_of_rows(self, operator: DraftOperator) -> None:
        """Write a choice by the first axis alone without a RESHAPE of its condition."""
        rows, first, second = operator.inputs
        before = self._producer(rows, "RESHAPE")
        condition = None if before is None else before.inputs[0]
        if rows is None or condition is None or first is None or second is None or not first.is_static:
            return
        dims = first.dims
        if len(dims) > 1 and condition.dims == dims[:1] and second.dims == dims and rows.dims == _column(dims):
            operator.name, operator.inputs = "SELECT", [condition, first, second]

    def inverse_root(self, operator: DraftOperator) -> None:
        """Write 1 by a root as one operator."""
        one, root = operator.inputs
        before = self._producer(root, "SQRT")
        array = None if one is None else one.array
        if before is None or array is None or array.size != 1 or not np.all(array == 1):
            return
        if operator.outputs[0].type == TensorType.FLOAT32 and not operator.options.get("fused_activation_function"):
            operator.name, operator.inputs, operator.options = "RSQRT", list(before.inputs), {}

    def on_integers(self, operator: DraftOperator) -> None:
        """Let an operator between DEQUANTIZEs and a QUANTIZE run on integers, where a kernel does."""
        (result,), (source,) = operator.outputs, operator.inputs
        producer = None if source is None else self.producers.get(source)
        takes = None if producer is None else KERNELS.get(producer.name)
        if producer is None or takes is None or source is None or self.readers.get(source) != 1:
            return
        dequantized = [None if each is None else self.producers.get(each) for each in producer.inputs]
        if any(each is None or each.name != "DEQUANTIZE" for each in dequantized):
            return
        integers = [each.inputs[0] for each in dequantized if each is not None]
        if not all(each is not None and _is_byte(each) for each in (*integers, result)) or not takes(integers):
            return
        operator.name, operator.inputs, operator.options = producer.name, integers, dict(producer.options)


def _is_byte(tensor: DraftTensor) -> bool:
    meaning = tensor.quantization
    return tensor.type == TensorType.INT8 and meaning is not None and not meaning.per_channel


def _are_positive(tensors: list[DraftTensor | None]) -> bool:
    """Return whether no integers mean numbers below 0, of which the kernel makes an error."""
    return all(
        each is not None and each.quantization is not None and int(each.quantization.zero_point[0]) == LEAST
        for each in tensors
    )


KERNELS: Mapping[str, Callable[[list[DraftTensor | None]], bool]] = {
    "GELU": lambda _: True,
    "RSQRT": _are_positive,
    "SQUARED_DIFFERENCE": lambda _: True,
}
"""Builtin with a kernel for int8 -> whether it takes some operands."""


def _column(dims: Dims) -> Dims:
    """Return the extents of one element for each place of the first axis."""
    return (dims[0], *[1] * (len(dims) - 1))
