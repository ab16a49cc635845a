"""Tensors that LiteRT would overwrite before all their readers have run: these get a copy.

LiteRT lets an operator write its result over an operand that has no other reader, and it gives what a RESHAPE makes the
memory of what it reads. Of a chain of such operators it looks at the readers of the first tensor and of the last one,
and not at those between (`ArenaPlanner::IdentifyInPlaceTensors`, LiteRT 2.3):

    a -> ADD -> b -> RESHAPE -> c -> MUL -> d        d lies where a, b and c do
                  -> SUB                             and if it runs behind MUL, it reads d instead of b
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import prod

import numpy as np

from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor

VIEWS = frozenset({"BITCAST", "EXPAND_DIMS", "RESHAPE", "SQUEEZE"})
"""Builtins whose result is what their first operand holds."""
WRITERS = {"ADD": 2, "DIV": 2, "DYNAMIC_UPDATE_SLICE": 1, "MUL": 2, "SOFTMAX": 1, "SUB": 2}
"""Builtins that may write over an operand -> over how many of the first."""


def separate(draft: Draft) -> None:
    """Let operators that would overwrite what is still read write over a copy, in place."""
    readers, last = draft.readers(), _last_readers(draft)
    for tensor in (*draft.inputs, *(each for each in readers if each.variable)):
        readers[tensor] = readers.get(tensor, 0) + 1
    ends = frozenset(draft.inputs), frozenset(draft.outputs)
    memory: dict[DraftTensor, DraftTensor] = {}
    operators: list[DraftOperator] = []
    for place, operator in enumerate(draft.operators):
        written = _written_over(operator, readers, memory, *ends)
        if written is not None:
            root, result = memory.get(written, written), operator.outputs[0]
            if operator.name in WRITERS and last.get(root, place) > place:
                operators.append(copy := whole_slice(draft, written))
                (root,) = copy.outputs  # in whose memory the result lies
                readers[root] = 1
                operator.inputs = [root if each is written else each for each in operator.inputs]
            memory[result] = root
            last[root] = max(last.get(root, place), last.get(result, place))  # of all that lies there
        operators.append(operator)
    draft.operators = operators


def _last_readers(draft: Draft) -> dict[DraftTensor, int]:
    """Return the place of each tensor's last reader."""
    return {
        tensor: place
        for place, operator in enumerate(draft.operators)
        for tensor in operator.inputs
        if tensor is not None
    }


def _written_over(
    operator: DraftOperator,
    readers: Mapping[DraftTensor, int],
    memory: Mapping[DraftTensor, DraftTensor],
    inputs: Container[DraftTensor],
    outputs: Container[DraftTensor],
) -> DraftTensor | None:
    """Return the operand in whose memory an operator's result lies; None where it has memory of its own."""
    if not operator.outputs or operator.outputs[0] in outputs:
        return None
    operands = operator.inputs[: 1 if operator.name in VIEWS else WRITERS.get(operator.name, 0)]
    for tensor in operands:
        if tensor is None or tensor.data is not None or tensor in inputs:
            continue
        if operator.name in VIEWS:
            return tensor
        if readers[tensor] == 1 and _may_be_as_long(tensor, operator.outputs[0]):
            return tensor if readers[memory.get(tensor, tensor)] == 1 else None
    return None


def _may_be_as_long(one: DraftTensor, other: DraftTensor) -> bool:
    """Tell whether two tensors may have as many bytes: of open extents that is not known."""
    return not one.is_static or not other.is_static or prod(one.shape) == prod(other.shape)


def whole_slice(draft: Draft, tensor: DraftTensor) -> DraftOperator:
    """Return a SLICE of all of a tensor: a copy for an operator to read instead."""
    copy = draft.tensor(f"{tensor.name}/copy", tensor.type, tensor.dims, tensor.quantization)
    begin, size = (draft.constant("whole", np.full(len(tensor.dims), each, np.int32)) for each in (0, -1))
    return DraftOperator("SLICE", [tensor, begin, size], [copy])
