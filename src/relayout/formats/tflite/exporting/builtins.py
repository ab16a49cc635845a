"""Operators for a runtime that has some builtins alone: others are written by these, or refused.

RELU_0_TO_1   ->  RELU, MINIMUM
RELU_N1_TO_1  ->  MAXIMUM, MINIMUM
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from relayout.formats.tflite.builtin_set import Builtins
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.node import NUMPY
from relayout.formats.tflite.exporting.older import REWRITES


def write_with(draft: Draft, builtins: Builtins | None) -> None:
    """Write operators by builtins that a runtime has, in place; those that nothing computes stay. None: it has all."""
    if builtins is None:
        return
    operators = list(draft.operators)
    draft.operators.clear()
    for operator in operators:
        rewrite = None if builtins.has(operator.name, _kind(operator)) else OTHERS.get(operator.name)
        if rewrite is None or not rewrite(draft, operator):
            draft.operators.append(operator)


def _kind(operator: DraftOperator) -> TensorType | None:
    return next((each.type for each in operator.inputs if each is not None), None)


def lacking(model: Model, builtins: Builtins | None) -> dict[str, tuple[int, str]]:
    """Return the operators of a file that a runtime lacks: name and reason -> how often, and where first."""
    found: dict[str, tuple[int, str]] = {}
    for graph in model.subgraphs if builtins is not None else ():
        for operator in graph.operators:
            kinds = [graph.tensors[each].type for each in operator.inputs if each >= 0]
            if builtins is not None and not builtins.has(operator.name, kinds[0] if kinds else None):
                key = f"{operator.name} ({builtins.of} has no such builtin)"
                count, place = found.get(key, (0, operator.place))
                found[key] = (count + 1, place)
    return found


def _clamp(low: float, high: float) -> Callable[[Draft, DraftOperator], bool]:
    def rewrite(draft: Draft, operator: DraftOperator) -> bool:
        (source,), (result,) = operator.inputs, operator.outputs
        assert source is not None
        if result.quantization is not None and source.quantization is not None:
            moved = draft.tensor(f"{result.name}/moved", result.type, result.dims, result.quantization)
            draft.add("QUANTIZE", [source], [moved])
            source = moved
        above = draft.tensor(f"{result.name}/above", result.type, result.dims, result.quantization)
        draft.add("MAXIMUM", [source, _bound(draft, result, low)], [above])
        draft.add("MINIMUM", [above, _bound(draft, result, high)], [result])
        return True

    return rewrite


def _bound(draft: Draft, like: DraftTensor, number: float) -> DraftTensor:
    """Return a constant that means a number, of the type and scale of a tensor."""
    if like.quantization is None:
        return draft.constant("bound", np.array(number, NUMPY[like.type]))
    limits, scale, zero = np.iinfo(NUMPY[like.type]), like.quantization.scale[0], like.quantization.zero_point[0]
    integer = np.clip(np.rint(number / scale) + zero, limits.min, limits.max).astype(NUMPY[like.type])
    return draft.constant("bound", np.asarray(integer), like.quantization)


OTHERS: Mapping[str, Callable[[Draft, DraftOperator], bool]] = {
    **REWRITES,
    "RELU_0_TO_1": _clamp(0.0, 1.0),
    "RELU_N1_TO_1": _clamp(-1.0, 1.0),
}
"""Builtin -> what writes it by others, at the end of the draft; False where they do not compute it."""
