"""Attention in which several heads of queries share one of keys and values, without an earlier run."""

from __future__ import annotations

from math import sqrt

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport, known
from relayout.formats.tflite.exporting.registry import Unwritable, exporter
from relayout.formats.tflite.exporting.steps import Steps

QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, ENDS, TOTAL = range(7)
"""Operands of GroupQueryAttention."""
ELSE = {"do_rotary": 0, "local_window_size": -1, "smooth_softmax": 0, "softcap": 0.0, "qk_output": 0}
"""Attributes -> what they are where nothing else is asked for."""


@exporter("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(op: NodeExport) -> None:
    """BATCH_MATMUL, SELECT_V2 of the keys that are not later, SOFTMAX and BATCH_MATMUL."""
    steps = Steps(op)
    if not op.has(KEY) or not op.has(VALUE):
        raise Unwritable("queries, keys and values in one tensor")
    if op.has(PAST_KEY) or op.has(PAST_VALUE) or len(op.node.inputs) > TOTAL + 1:
        raise Unwritable("keys and values of an earlier run, or tables of angles")
    if any(name in op.node.attributes and op.node.attributes[name].value != value for name, value in ELSE.items()):
        raise Unwritable("an attention with a window, rotated heads, or another softmax")
    batch, length, _ = op.static(QUERY)
    total = op.required_constant(TOTAL, "the number of keys")
    if total.reshape(-1).tolist() != [length] or op.gives(3):
        raise Unwritable("keys and values of an earlier run, or tables of angles")
    heads, groups = op.integer("num_heads"), op.integer("kv_num_heads")
    query, key, value = (_heads(steps, op.input(slot), heads if slot == QUERY else groups) for slot in range(3))
    (size,) = known(query.dims[-1:])
    shared = (batch, groups, heads // groups * length)
    scores = steps.matmul(steps.reshape(query, (*shared, size)), key, adj_y=True)
    scores = steps.mul(scores, op.number("scale", 0.0) or 1 / sqrt(size))
    scores = steps.reshape(scores, (batch, heads, length, length))
    ends = steps.reshape(steps.cast(op.input(ENDS), TensorType.INT32), (batch, 1, 1, 1))
    within = steps.compare("GREATER_EQUAL", ends, np.arange(length).reshape(1, 1, 1, length))
    shown = steps.both(op.const(np.tril(np.ones((1, 1, length, length), bool))), within)
    scores = steps.select(shown, scores, float(np.finfo(np.float32).min))
    weights = op.emit("SOFTMAX", [scores], scores.dims, beta=1.0)
    found = steps.matmul(steps.reshape(weights, (*shared, length)), value)
    found = steps.reshape(found, (batch, heads, length, size))
    steps.give(steps.reshape(steps.transpose(found, (0, 2, 1, 3)), (batch, length, heads * size)))
    for slot, tensor in ((1, key), (2, value)):
        if op.gives(slot):
            steps.give(tensor, slot)


def _heads(steps: Steps, tensor: DraftTensor, heads: int) -> DraftTensor:
    batch, length, hidden = known(tensor.dims)
    return steps.transpose(steps.reshape(tensor, (batch, length, heads, hidden // heads)), (0, 2, 1, 3))
