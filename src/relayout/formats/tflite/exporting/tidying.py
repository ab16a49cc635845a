"""Operators that a draft does not need: those that nobody reads, and a RESHAPE of what a RESHAPE gives.

RESHAPE(RESHAPE(x, [5 1 2 4]), [5 2 4])  ->  x, where that is its shape
"""

from __future__ import annotations

from collections.abc import Mapping

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.recognising import recognise
from relayout.formats.tflite.exporting.signs import has_zero_point_of_16_bits, is_change_of_sign
from relayout.formats.tflite.exporting.whole_axes import join_whole_axes

SHAPE = 1
"""Place of the new shape among the operands of RESHAPE."""
MOVERS = frozenset({"RESHAPE", "REVERSE_V2", "SLICE", "STRIDED_SLICE", "TRANSPOSE"})
"""Builtins that move elements of their first operand, of integers as of real numbers."""
MOVED = (TensorType.INT8, TensorType.UINT8, TensorType.INT16)
"""Integers that they move."""
REQUANTIZED = {
    TensorType.INT8: MOVED,
    TensorType.UINT8: MOVED,
    TensorType.INT16: (TensorType.INT16, TensorType.INT8),
}
"""Integers -> those that QUANTIZE makes of them."""


def tidy(draft: Draft, *, for_litert: bool) -> None:
    """Remove such operators, in place.

    Args:
        draft: the graph.
        for_litert: whether LiteRT alone has to run it.
    """
    recognise(draft, for_litert=for_litert)
    _move_integers(draft)
    _merge_sign_changes(draft)
    _merge_reshapes(draft)
    join_whole_axes(draft)
    remove_unread(draft)
    _remove_copies(draft)
    remove_unread(draft)


def tidy_reshapes(draft: Draft) -> None:
    """Merge RESHAPEs, and remove operators that nobody reads, in place."""
    _merge_reshapes(draft)
    remove_unread(draft)
    _remove_copies(draft)
    remove_unread(draft)


def _move_integers(draft: Draft) -> None:
    """Let operators that only move elements move integers, where they stand between a DEQUANTIZE and a QUANTIZE."""
    producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
    readers = draft.readers()
    aliases: dict[DraftTensor, DraftTensor] = {}
    for operator in draft.operators:
        operator.inputs = [None if each is None else aliases.get(each, each) for each in operator.inputs]
        if operator.name != "QUANTIZE":
            continue
        (result,) = operator.outputs
        source, path = _integers_before(operator, producers, readers)
        if source is None or not _is_requantized(source, result):
            continue
        for mover in path:
            mover.outputs[0].type, mover.outputs[0].quantization = source.type, source.quantization
        if path:
            path[-1].inputs = [source, *path[-1].inputs[1:]]
            source = path[0].outputs[0]
        operator.inputs = [source]
        if not _has_same_elements(source, result):
            continue
        if result not in draft.outputs:
            aliases[result] = source
        elif path:
            path[0].outputs, operator.outputs = [result], []
    draft.operators = [each for each in draft.operators if each.outputs]


def _integers_before(
    operator: DraftOperator, producers: dict[DraftTensor, DraftOperator], readers: Mapping[DraftTensor, int]
) -> tuple[DraftTensor | None, list[DraftOperator]]:
    """Return the integers that become what a QUANTIZE reads, and the operators that move it, the last one first."""
    path: list[DraftOperator] = []
    before = _producer(operator, producers)
    while before is not None and before.name in MOVERS and readers.get(before.outputs[0]) == 1:
        path.append(before)
        before = _producer(before, producers)
    source = None if before is None or before.name != "DEQUANTIZE" else before.inputs[0]
    return (source if source is not None and source.type in MOVED else None), path


def _is_requantized(a: DraftTensor, b: DraftTensor) -> bool:
    """Return whether QUANTIZE makes integers of others, without real numbers between them.

    Of 16 bits it makes others of 16 bits only where neither has a zero point.
    """
    one_scale = all(each.quantization is not None and not each.quantization.per_channel for each in (a, b))
    has_kernel = b.type != TensorType.INT16 or a.type != TensorType.INT16
    has_kernel = has_kernel or not (has_zero_point_of_16_bits(a) or has_zero_point_of_16_bits(b))
    return one_scale and b.type in REQUANTIZED.get(a.type, ()) and (has_kernel or _has_same_elements(a, b))


def _merge_sign_changes(draft: Draft) -> None:
    """Let one QUANTIZE change the scale and the sign, where two do so one after the other.

    The kernel rounds once either way: a change of sign is exact.
    """
    producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
    readers = draft.readers()
    for operator in draft.operators:
        before = _producer(operator, producers) if operator.name == "QUANTIZE" else None
        if before is None or before.name != "QUANTIZE":
            continue
        source, middle, result = before.inputs[0], before.outputs[0], operator.outputs[0]
        if source is None or not _is_requantized(source, result) or _has_same_elements(source, result):
            continue
        if is_change_of_sign(source, middle) or (is_change_of_sign(middle, result) and readers[middle] == 1):
            operator.inputs = [source]


def _producer(operator: DraftOperator, producers: dict[DraftTensor, DraftOperator]) -> DraftOperator | None:
    source = operator.inputs[0]
    return None if source is None else producers.get(source)


def _merge_reshapes(draft: Draft) -> None:
    """Let each RESHAPE read what stands before the RESHAPEs before it."""
    producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
    for operator in draft.operators:
        if operator.name != "RESHAPE":
            continue
        while (before := _reshape_before(operator, producers)) is not None:
            operator.inputs = [before.inputs[0], *operator.inputs[SHAPE:]]


def _is_copy(operator: DraftOperator) -> bool:
    """Return whether an operator is a RESHAPE to the shape of its operand."""
    source = operator.inputs[0] if operator.name == "RESHAPE" else None
    if source is None or not source.is_static:
        return False
    return source.dims == operator.outputs[0].dims and _has_same_elements(source, operator.outputs[0])


def _remove_copies(draft: Draft) -> None:
    """Remove each RESHAPE to the shape of its operand."""
    producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
    readers = draft.readers()
    aliases: dict[DraftTensor, DraftTensor] = {}
    for operator in draft.operators:
        operator.inputs = [None if each is None else aliases.get(each, each) for each in operator.inputs]
        if not _is_copy(operator):
            continue
        source, (result,) = operator.inputs[0], operator.outputs
        assert source is not None
        if result not in draft.outputs:
            aliases[result] = source
        elif readers.get(source) == 1 and source in producers:
            producer = producers[source]
            producer.outputs = [result if each is source else each for each in producer.outputs]
            operator.outputs = []
    draft.operators = [each for each in draft.operators if each.outputs]


def _reshape_before(operator: DraftOperator, producers: dict[DraftTensor, DraftOperator]) -> DraftOperator | None:
    """Return the RESHAPE that gives what a RESHAPE to constant extents reads."""
    source, shape = operator.inputs[0], operator.inputs[SHAPE] if len(operator.inputs) > SHAPE else None
    before = None if source is None else producers.get(source)
    if before is None or before.name != "RESHAPE" or before.inputs[0] is None or shape is None or shape.data is None:
        return None
    return before if _has_same_elements(before.inputs[0], operator.outputs[0]) else None


def _has_same_elements(a: DraftTensor, b: DraftTensor) -> bool:
    if a.type != b.type or (a.quantization is None) != (b.quantization is None):
        return False
    return a.quantization is None or a.quantization.equals(b.quantization)


def remove_unread(draft: Draft) -> None:
    """Remove operators whose results nobody reads; what a custom operator does besides is not known."""
    read = {id(tensor) for tensor in draft.outputs}
    kept: list[DraftOperator] = []
    for operator in reversed(draft.operators):
        if operator.name.startswith("CUSTOM") or any(id(tensor) in read for tensor in operator.outputs):
            kept.append(operator)
            read |= {id(tensor) for tensor in operator.inputs if tensor is not None}
    draft.operators = kept[::-1]
