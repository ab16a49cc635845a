"""Operators for an older runtime: what its kernels lack is written by other operators, or refused.

    RELU_0_TO_1  ->  RELU, MINIMUM     where the runtime is older than 2.10

The facts are the table of operator versions (`container/versions.py`) and of the runtimes that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from relayout.errors import LayoutError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.container.runtimes import Builtins, first_runtime, parsed
from relayout.formats.tflite.container.versions import version
from relayout.formats.tflite.exporting.draft import NUMPY, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.spelled_out import Builtin, Operand

PARTS = 3
"""Numbers of a runtime's version: `2.14` is `2.14.0`."""


def version_numbers(runtime: str) -> tuple[int, ...]:
    """Return a runtime as three numbers.

    Raises:
        LayoutError: it is written otherwise.
    """
    words = runtime.split(".")
    if not 1 <= len(words) <= PARTS or not all(word.isascii() and word.isdecimal() and len(word) < 5 for word in words):
        raise LayoutError(f"{runtime!r} is no version of TensorFlow Lite; write it as 2.14")
    return (*map(int, words), *[0] * (PARTS - len(words)))


def is_older(runtime: str, name: str, number: int) -> str:
    """Return the first runtime that has an operator in a version, if a runtime is older; else nothing."""
    first = first_runtime(name, number)
    return first if first and version_numbers(runtime) < parsed(first) else ""


def write_for(draft: Draft, begin: int, runtime: str) -> None:
    """Write operators for a runtime, in place.

    Args:
        draft: the graph.
        begin: the first operator to look at.
        runtime: such as `2.14`.

    Raises:
        Unwritable: the runtime lacks one, and no others compute it.
    """
    added = draft.operators[begin:]
    del draft.operators[begin:]
    for operator in added:
        is_known = operator.is_restored or not is_older(runtime, operator.name, 1)
        rewrite = None if is_known else REWRITES.get(operator.name)
        if rewrite is None or not rewrite(draft, operator):
            draft.operators.append(operator)
    refuse_newer(draft, begin, runtime)


def refuse_newer(draft: Draft, begin: int, runtime: str) -> None:
    """Refuse operators, from the one numbered `begin` on, that a runtime lacks.

    Raises:
        Unwritable: the runtime is older than the version of one.
    """
    for operator in draft.operators[begin:]:
        number = version(*draft.described(operator))
        if first := is_older(runtime, operator.name, number):
            raise Unwritable(f"{operator.name} in version {number} is in runtimes from {first} on")


def lacks(runtime: str, builtin: Builtin) -> bool:
    """Return whether a runtime is older than a builtin that nodes say that they were."""
    draft = Draft()

    def tensor(operand: Operand) -> DraftTensor:
        return draft.tensor("operand", operand.type, operand.shape, operand.quantization)

    inputs = [None if each is None else tensor(each) for each in builtin.inputs]
    made = draft.add(builtin.name, inputs, [tensor(each) for each in builtin.outputs])
    made.options.update(builtin.options)
    return bool(is_older(runtime, builtin.name, version(*draft.described(made))))


def newer_operators(model: Model, runtime: str) -> dict[str, tuple[int, str]]:
    """Return operators of a file that a runtime lacks: name and version -> how often, and where first."""
    found: dict[str, tuple[int, str]] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if runtime and (first := is_older(runtime, operator.name, operator.version)):
                key = f"{operator.name} in version {operator.version} (in runtimes from {first} on)"
                count, place = found.get(key, (0, operator.place))
                found[key] = (count + 1, place)
    return found


def _relu_0_to_1(draft: Draft, operator: DraftOperator) -> bool:
    (source,), (result,) = operator.inputs, operator.outputs
    assert source is not None
    positive = draft.tensor(f"{result.name}/relu", source.type, source.dims)
    draft.add("RELU", [source], [positive])
    draft.add("MINIMUM", [positive, draft.constant("one", np.array(1, np.float32))], [result])
    return True


def _gelu(draft: Draft, operator: DraftOperator) -> bool:
    """Write the approximation, `x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`; erf has no builtin."""
    (source,), (result,) = operator.inputs, operator.outputs
    if not operator.options.get("approximate") or source is None:
        return False

    def step(name: str, *operands: DraftTensor | float, to: DraftTensor | None = None) -> DraftTensor:
        tensors = [
            each if isinstance(each, DraftTensor) else draft.constant("number", np.array(each, np.float32))
            for each in operands
        ]
        made = draft.tensor(f"{result.name}/{name.lower()}", result.type, result.dims) if to is None else to
        draft.add(name, tensors, [made])
        return made

    cube = step("MUL", step("MUL", source, source), source)
    inner = step("MUL", step("ADD", source, step("MUL", cube, 0.044715)), float(np.sqrt(2 / np.pi)))
    outer = step("ADD", step("TANH", inner), 1.0)
    step("MUL", step("MUL", source, 0.5), outer, to=result)
    return True


REWRITES: Mapping[str, Callable[[Draft, DraftOperator], bool]] = {"GELU": _gelu, "RELU_0_TO_1": _relu_0_to_1}
"""Builtin -> what writes it by older ones, at the end of the draft; False where they do not compute it."""


# Operators for a runtime that has some builtins alone: others are written by these, or refused.
#
# RELU_0_TO_1   ->  RELU, MINIMUM
# RELU_N1_TO_1  ->  MAXIMUM, MINIMUM


def write_with(draft: Draft, builtins: Builtins | None) -> None:
    """Write operators by builtins that a runtime has, in place; those that nothing computes stay. None: it has all."""
    if builtins is None:
        return
    operators = list(draft.operators)
    draft.operators.clear()
    for operator in operators:
        rewrite = builtins.rewrite if builtins.has(operator.name, _kind(operator)) else OTHERS.get(operator.name)
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
