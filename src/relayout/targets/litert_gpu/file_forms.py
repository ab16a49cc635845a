"""What is done to the operators of a `.tflite` for LiteRT's GPU accelerator, and which of them it does not take."""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor
from relayout.formats.tflite.exporting.file_forms import FileForms
from relayout.targets.litert_gpu.forms import FORMS, GENERAL
from relayout.targets.litert_gpu.operator_form import reason_of
from relayout.targets.litert_gpu.rewriting import array_of, rewrite

LONG, SHORT = TensorType.INT64, TensorType.INT32
OPTIONS = ("out_data_type", "in_data_type", "output_type", "out_type")  # options that state an element type
FIXED = frozenset({"WHERE", "UNIQUE", "BUCKETIZE", "HASHTABLE_FIND", "HASHTABLE_SIZE", "HASHTABLE_IMPORT", "CALL_ONCE"})
"""Builtins whose kernels have integers of 64 bits at places of their own; they stay as they are, between CASTs."""


def _rewrite(draft: Draft) -> None:
    """Write the operators of a graph in forms that the accelerator takes, in place."""
    narrow_integers(draft)
    rewrite(draft, FORMS, GENERAL)


def file_forms() -> FileForms:
    """Return the forms that the accelerator takes."""
    return FileForms(_rewrite, separate_outputs, reason_of, unrolls=True)


def narrow_integers(draft: Draft) -> None:
    """Write integers of 64 bits as such of 32, in place: ids, places and extents.

        CAST(x) to INT64, GATHER by it   ->  GATHER by x

    Inputs and outputs keep their types; a CAST stands between them and the graph. A constant beyond 32 bits becomes
    the nearest number, as the ends of slices are meant.
    """
    if not any(tensor.type == LONG for tensor in draft.tensors()):
        return
    shorter: dict[DraftTensor, DraftTensor] = {}
    operators: list[DraftOperator] = []
    for fed in draft.inputs:
        if fed.type == LONG:
            shorter[fed] = draft.tensor(f"{fed.name}/int32", SHORT, fed.dims)
            operators.append(_cast(fed, shorter[fed]))
    ends = {*draft.inputs, *draft.outputs}
    for operator in draft.operators:
        is_fixed = operator.name in FIXED or operator.name.startswith(("CUSTOM", "STABLEHLO")) or operator.is_restored
        behind: list[DraftOperator] = []
        for place, tensor in enumerate(operator.inputs):
            if tensor is None or not _is_long(tensor):
                continue
            if not is_fixed:
                operator.inputs[place] = _shorter(draft, tensor, shorter)
            elif (narrow := shorter.get(tensor)) is not None:
                wide = operator.inputs[place] = draft.tensor(f"{narrow.name}/int64", LONG, narrow.dims)
                operators.append(_cast(narrow, wide))
        for place, result in enumerate(operator.outputs):
            if result.type != LONG:
                continue
            narrow = shorter[result] = draft.tensor(f"{result.name}/int32", SHORT, result.dims)
            if is_fixed:
                behind.append(_cast(result, narrow))
            else:
                operator.outputs[place] = narrow
                if result in ends:
                    behind.append(_cast(narrow, result))
        if not is_fixed:
            for name in OPTIONS:
                if operator.options.get(name) == LONG:
                    operator.options[name] = SHORT
        operators += [operator, *behind]
    draft.operators = operators
    _drop_casts(draft)


def _is_long(tensor: DraftTensor) -> bool:
    """Tell whether an operand has 64 bits; a bias of 16-bit kernels, which has a scale, keeps them."""
    return tensor.type == LONG and tensor.quantization is None


def _cast(source: DraftTensor, result: DraftTensor) -> DraftOperator:
    return DraftOperator("CAST", [source], [result], {"in_data_type": source.type, "out_data_type": result.type})


def _shorter(draft: Draft, tensor: DraftTensor, shorter: dict[DraftTensor, DraftTensor]) -> DraftTensor:
    """Return the tensor that stands for one of 64 bits."""
    if tensor not in shorter:
        array = array_of(tensor)
        if array is None:
            return tensor
        ends = np.iinfo(np.int32)
        shorter[tensor] = draft.constant(f"{tensor.name}/int32", np.clip(array, ends.min, ends.max).astype(np.int32))
    return shorter[tensor]


def _drop_casts(draft: Draft) -> None:
    """Remove each CAST to the type of its operand; of one that gives an output, the operand is the output."""
    ends, names = {*draft.inputs, *draft.outputs}, dict[DraftTensor, DraftTensor]()

    def name_of(tensor: DraftTensor) -> DraftTensor:
        while tensor in names:
            tensor = names[tensor]
        return tensor

    for operator in draft.operators:
        if operator.name != "CAST" or operator.inputs[0] is None:
            continue
        source, result = name_of(operator.inputs[0]), operator.outputs[0]
        if source.type == result.type and result not in draft.outputs:
            names[result] = source
        elif source.type == result.type and source not in ends and source.data is None:
            names[source] = result
    for operator in draft.operators:
        operator.inputs = [None if each is None else name_of(each) for each in operator.inputs]
        operator.outputs = [name_of(each) for each in operator.outputs]
    draft.operators = [each for each in draft.operators if each.name != "CAST" or each.inputs[0] is not each.outputs[0]]


def separate_outputs(draft: Draft) -> None:
    """Give each output that an operator reads a copy of its own, in place.

        y = FULLY_CONNECTED(x), z = ADD(y, bias)  ->  t = FULLY_CONNECTED(x), z = ADD(t, bias), y = RESHAPE(t)

    The accelerator fuses such operators, and then the output has no numbers.
    """
    read = {tensor for operator in draft.operators for tensor in operator.inputs}
    inner: dict[DraftTensor, DraftTensor] = {}
    for tensor in dict.fromkeys(draft.outputs):
        if tensor in read and tensor not in draft.inputs and tensor.data is None and tensor.is_static:
            inner[tensor] = draft.tensor(f"{tensor.name}/inner", tensor.type, tensor.dims, tensor.quantization)
    if not inner:
        return
    for operator in draft.operators:
        operator.inputs = [None if each is None else inner.get(each, each) for each in operator.inputs]
        operator.outputs = [inner.get(each, each) for each in operator.outputs]
    for result, tensor in inner.items():
        shape = draft.constant("shape", np.array(tensor.shape, np.int32))
        draft.operators.append(DraftOperator("RESHAPE", [tensor, shape], [result]))
