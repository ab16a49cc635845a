"""Outputs that operators read, too: LiteRT's GPU accelerator fuses these operators, and then the output has no numbers.

y = FULLY_CONNECTED(x), z = ADD(y, bias)    ->    t = FULLY_CONNECTED(x), z = ADD(t, bias), y = RESHAPE(t)
"""

from __future__ import annotations

import numpy as np

from relayout.formats.tflite.exporting.draft import Draft, DraftOperator, DraftTensor


def separate_outputs(draft: Draft) -> None:
    """Give each output that an operator reads a copy of its own, in place."""
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
