"""A CONCATENATION along a part of an axis, between Reshapes, joins the whole axis.

    CONCATENATION([240 2 4], [60 2 4])  ->  RESHAPE to [600 4]    becomes
    CONCATENATION([480 4], [120 4])

What it reads is reshaped anyway, so the RESHAPE behind it goes. Elements lie as before: along the axes behind the one
that is joined every operand has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from relayout.formats.tflite.exporting.draft import Dims, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.node import known


def join_whole_axes(draft: Draft) -> None:
    """Write such CONCATENATIONs, in place."""
    producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
    readers = draft.readers()
    behind = {
        operator.inputs[0]: operator for operator in draft.operators if operator.name == "RESHAPE" and operator.inputs
    }
    removed: set[DraftOperator] = set()
    for operator in draft.operators:
        after = behind.get(operator.outputs[0]) if operator.name == "CONCATENATION" else None
        if after is None or operator.is_restored or readers[operator.outputs[0]] != 1:
            continue
        reshapes, count = _reshapes_before(operator, producers, readers), _merged_axes(operator, after)
        if count and len(reshapes) == len(operator.inputs):
            _merge(draft, operator, reshapes, count)
            operator.outputs = after.outputs
            removed.add(after)
    draft.operators = [each for each in draft.operators if each not in removed]


def _reshapes_before(
    operator: DraftOperator, producers: Mapping[DraftTensor, DraftOperator], readers: Mapping[DraftTensor, int]
) -> list[DraftOperator]:
    """Return the Reshapes whose results an operator alone reads."""
    before = [producers.get(each) for each in operator.inputs if each is not None and readers[each] == 1]
    return [each for each in before if each is not None and each.name == "RESHAPE" and not each.is_restored]


def _merged_axes(operator: DraftOperator, after: DraftOperator) -> int:
    """Return how many axes behind the joined one a RESHAPE merges with it; 0 where it does something else."""
    (result,), (reshaped,) = operator.outputs, after.outputs
    count = len(result.dims) - len(reshaped.dims)
    if count <= 0 or not result.is_static or result.type != reshaped.type:
        return 0
    axis = operator.options.get("axis", 0) % len(result.dims)
    return count if axis + count < len(result.dims) and _merged(result.dims, axis, count) == reshaped.dims else 0


def _merged(dims: Dims, axis: int, count: int) -> Dims:
    """Return extents with an axis and some behind it as one."""
    return (*dims[:axis], prod(known(dims[axis : axis + count + 1])), *dims[axis + count + 1 :])


def _merge(draft: Draft, operator: DraftOperator, reshapes: list[DraftOperator], count: int) -> None:
    """Let the operands of a CONCATENATION have an axis and those behind it as one."""
    axis = operator.options.get("axis", 0) % len(operator.outputs[0].dims)
    for place, reshape in enumerate(reshapes):
        tensor = reshape.outputs[0]
        dims = known(_merged(tensor.dims, axis, count))
        made = draft.tensor(f"{tensor.name}/whole", tensor.type, dims, tensor.quantization)
        reshape.inputs = [reshape.inputs[0], draft.constant("shape", np.array(dims, np.int32))]
        reshape.outputs, operator.inputs[place] = [made], made
    operator.options["axis"] = axis
