"""Operators for an older runtime: what its kernels lack is written by other operators, or refused.

    RELU_0_TO_1  ->  RELU, MINIMUM     where the runtime is older than 2.10
    GELU         ->  sums, products, EXP or TANH     where it is older than 2.9

The facts are the table of operator versions (`container/versions.py`) and of the runtimes that have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from relayout.errors import LayoutError
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph
from relayout.formats.tflite.container.places import place_in_words
from relayout.formats.tflite.container.runtimes import Builtins, first_runtime, parsed
from relayout.formats.tflite.container.versions import version
from relayout.formats.tflite.elementwise import FUNCTIONS
from relayout.formats.tflite.exporting.draft import NUMPY, Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.formats.tflite.exporting.rewriting import Form, Rewriting, rewrite_operators
from relayout.formats.tflite.exporting.tidying import remove_unread
from relayout.formats.tflite.spelled_out import Builtin, Operand

PARTS = 3  # numbers of a runtime's version: `2.14` is `2.14.0`


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


def write_for(
    draft: Draft,  # the graph
    begin: int,  # the first operator to look at
    runtime: str,  # such as `2.14`
) -> None:
    """Write operators for a runtime, in place."""

    def form_of(operator: DraftOperator) -> Form | None:
        is_known = operator.is_restored or not is_older(runtime, operator.name, 1)
        return None if is_known else REWRITES.get(operator.name)

    rewrite_operators(draft, begin, form_of)
    refuse_newer(draft, begin, runtime)


def refuse_newer(draft: Draft, begin: int, runtime: str) -> None:
    """Refuse operators, from the one numbered `begin` on, that a runtime lacks."""
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
    operator = draft.add(builtin.name, inputs, [tensor(each) for each in builtin.outputs])
    operator.options.update(builtin.options)
    return bool(is_older(runtime, builtin.name, version(*draft.described(operator))))


def newer_operators(model: Model, runtime: str) -> dict[str, tuple[int, str]]:
    """Return operators of a file that a runtime lacks: name and version -> how often, and where first."""

    def reason(_: Subgraph, operator: Operator) -> str:
        first = is_older(runtime, operator.name, operator.version)
        return f"{operator.name} in version {operator.version} (in runtimes from {first} on)" if first else ""

    return _counted(model, reason) if runtime else {}


def _counted(model: Model, reason_of: Callable[[Subgraph, Operator], str]) -> dict[str, tuple[int, str]]:
    """Return the operators of a file that are refused: name and reason -> how often, and where first."""
    refusals: dict[str, tuple[int, str]] = {}
    for graph in model.subgraphs:
        for operator in graph.operators:
            if key := reason_of(graph, operator):
                count, place = refusals.get(key, (0, place_in_words(operator.place, model.subgraphs)))
                refusals[key] = (count + 1, place)
    return refusals


ERFC = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""Coefficients of erfc(z) exp(z²) in powers of `1 / (1 + 0.3275911 z)`, from the first on: right to 1.5e-7
(Hastings 1955; Abramowitz and Stegun 7.1.26)."""


def _gelu(op: Rewriting) -> DraftTensor:
    """Write GELU; of integers between DEQUANTIZE and QUANTIZE."""
    (x,), result = op.operands, op.result
    if result.quantization is None:
        return _real_gelu(op, x)
    real = _real_gelu(op, op.emit("DEQUANTIZE", [x], x.dims, TensorType.FLOAT32))
    return op.emit("QUANTIZE", [real], x.dims, result.type, result.quantization)


def _real_gelu(op: Rewriting, x: DraftTensor) -> DraftTensor:
    """Write GELU, `max(x, 0) - |x| erfc(|x| / √2) / 2`, since no builtin is an erf.

    The approximation is `x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    """
    if op.operator.options.get("approximate"):
        inner = op.mul(op.add(x, op.mul(op.mul(op.mul(x, x), x), 0.044715)), math.sqrt(2 / math.pi))
        return op.mul(op.mul(x, 0.5), op.add(op.each("TANH", inner), 1.0))
    size = op.each("ABS", x)
    part = op.div(1.0, op.add(op.mul(size, 0.3275911 / math.sqrt(2)), 1.0))
    total = op.mul(part, ERFC[-1])
    for coefficient in ERFC[-2::-1]:
        total = op.mul(op.add(total, coefficient), part)
    half = op.mul(total, op.each("EXP", op.mul(op.mul(size, size), -0.5)))
    return op.sub(op.each("RELU", x), op.mul(op.mul(size, half), 0.5))


REWRITES: Mapping[str, Form] = {  # builtin -> what writes it by older ones
    "GELU": _gelu,
    "RELU_0_TO_1": lambda op: op.minimum(op.each("RELU", op.operands[0]), 1.0),
}


# Operators for a runtime that has some builtins alone: others are written by these, looked up in tables, or refused.
#
# RELU_0_TO_1   ->  RELU, MINIMUM
# RELU_N1_TO_1  ->  MAXIMUM, MINIMUM


def before_quantization(builtins: Builtins, kind: str) -> Builtins:
    """Return the builtins that a float file may have before it is quantized; tables replace some of them later."""
    is_looked_up = builtins.on_bytes is not None and kind == "int8"
    tabulated = FUNCTIONS.keys() - OTHERS.keys() - builtins.names if is_looked_up else frozenset[str]()
    return builtins._replace(names=builtins.names | builtins.integers, tabulated=frozenset(tabulated))


def write_with(draft: Draft, builtins: Builtins | None) -> None:
    """Write operators by builtins that a runtime has (None: all), in place, where these compute them."""
    if builtins is None:
        return

    def form_of(operator: DraftOperator) -> Form | None:
        kind = next((each.type for each in operator.inputs if each is not None), None)
        return builtins.form if builtins.has(operator.name, kind) else OTHERS.get(operator.name)

    rewrite_operators(draft, 0, form_of)
    remove_unread(draft)


def lacking(model: Model, builtins: Builtins | None) -> dict[str, tuple[int, str]]:
    """Return the operators of a file that a runtime lacks: name and reason -> how often, and where first."""
    if builtins is None:
        return {}

    def reason(graph: Subgraph, operator: Operator) -> str:
        kinds = [graph.tensors[each].type for each in operator.inputs if each >= 0]
        computed = [each for each in operator.inputs if each >= 0 and graph.tensors[each].data is None]
        is_function = operator.name in builtins.tabulated and len(computed) == 1
        if not is_function and not builtins.has(operator.name, kinds[0] if kinds else None):
            return f"{operator.name} ({builtins.of} has no such builtin)"
        kinds += [graph.tensors[each].type for each in operator.outputs]
        lacks = next((kind.name for kind in kinds if (operator.name, kind) in builtins.lacks), "")
        cure = "--input-type or --output-type int32"
        return f"{operator.name} of {lacks} ({builtins.of} has none: {cure})" if lacks else ""

    return _counted(model, reason)


def _clamp(low: float, high: float) -> Form:
    def clamped(op: Rewriting) -> DraftTensor:
        source, result = op.operands[0], op.result
        if result.quantization is not None and source.quantization is not None:
            source = op.emit("QUANTIZE", [source], source.dims, result.type, result.quantization)
        return op.minimum(op.maximum(source, _bound(op.draft, result, low)), _bound(op.draft, result, high))

    return clamped


def _bound(draft: Draft, like: DraftTensor, number: float) -> DraftTensor:
    """Return a constant that means a number, of the type and scale of a tensor."""
    if like.quantization is None:
        return draft.constant("bound", np.array(number, NUMPY[like.type]))
    limits, scale, zero = np.iinfo(NUMPY[like.type]), like.quantization.scale[0], like.quantization.zero_point[0]
    integer = np.clip(np.rint(number / scale) + zero, limits.min, limits.max).astype(NUMPY[like.type])
    return draft.constant("bound", np.asarray(integer), like.quantization)


OTHERS: Mapping[str, Form] = {**REWRITES, "RELU_0_TO_1": _clamp(0.0, 1.0), "RELU_N1_TO_1": _clamp(-1.0, 1.0)}
"""Builtin -> what writes it by others."""
