"""Operators of the domain com.microsoft that exporters and optimizers write."""

from __future__ import annotations

from math import sqrt

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.operators.matrix import WEIGHTS_RANK, fully_connected_weights
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

PAST_KEY, PAST_VALUE = 6, 7
"""Operands of MultiHeadAttention."""
MASKED = -10000.0
"""What is added to the scores of positions that a mask of com.microsoft's Attention hides."""


@exporter("BiasGelu", domain="com.microsoft")
def bias_gelu(op: NodeExport) -> None:
    """ADD and GELU."""
    total = op.add(op.input(0), op.input(1))
    op.result("GELU", [total], approximate=False)


@exporter("FusedMatMul", "TransposeMatMul", domain="com.microsoft")
def fused_matmul(op: NodeExport) -> None:
    """FULLY_CONNECTED where the second operand is a constant matrix or `n k`, else BATCH_MATMUL; MUL."""
    if op.integer("transBatchA") or op.integer("transBatchB"):
        raise Unwritable("axes of a batch that are transposed")
    if min(op.rank(0), op.rank(1)) < WEIGHTS_RANK:
        raise Unwritable("a product with a vector")
    left, adjoint, transposed = op.input(0), bool(op.integer("transA")), bool(op.integer("transB"))
    weights = None if adjoint else fully_connected_weights(op, transposed=transposed)
    if weights is None:
        product = op.matmul(left, op.input(1), adj_x=adjoint, adj_y=transposed)
    else:
        dims = (*left.dims[:-1], weights.dims[0])
        product = op.emit("FULLY_CONNECTED", [left, weights], dims, keep_num_dims=len(left.dims) > WEIGHTS_RANK)
    alpha = op.number("alpha", 1.0)
    op.give(product if alpha == 1.0 else op.mul(product, alpha))


@exporter("Inverse", domain="com.microsoft")
def inverse(op: NodeExport) -> None:
    """Adjugates divided by the determinant."""
    count = op.static()[-1]
    if count > 3:
        raise Unwritable("inverses of more than three rows")
    rows = [[op.at(op.at(op.input(0), -2, i), -1, j) for j in range(count)] for i in range(count)]
    cofactors = [[_cofactor(op, rows, j, i) for j in range(count)] for i in range(count)]
    terms = [op.mul(rows[0][j], cofactors[j][0]) for j in range(count)]
    total = terms[0]
    for term in terms[1:]:
        total = op.add(total, term)
    stacked = op.stack([op.stack(row, -1) for row in cofactors], -2)
    op.give(op.div(stacked, op.reshape(total, (*total.dims, 1, 1))))


def _cofactor(op: NodeExport, rows: list[list[DraftTensor]], i: int, j: int) -> DraftTensor:
    rest = [[each for b, each in enumerate(row) if b != j] for a, row in enumerate(rows) if a != i]
    if not rest:
        return op.add(op.mul(rows[0][0], 0.0), 1.0)
    found = rest[0][0] if len(rest) == 1 else op.sub(op.mul(rest[0][0], rest[1][1]), op.mul(rest[0][1], rest[1][0]))
    return op.each("NEG", found) if (i + j) % 2 else found


@exporter("MultiHeadAttention", domain="com.microsoft")
def multi_head_attention(op: NodeExport) -> None:
    """BATCH_MATMUL, SOFTMAX and BATCH_MATMUL of each head; CONCATENATION with keys and values of an earlier run."""
    if any(op.has(slot) for slot in range(PAST_VALUE + 1, len(op.node.inputs))) or op.gives(3):
        raise Unwritable("keys and values of an earlier run in a buffer, or scores as a result")
    if op.has(PAST_KEY) != op.has(PAST_VALUE):
        raise Unwritable("keys of an earlier run without values")
    heads, parts = op.integer("num_heads"), _queries_keys_values(op)
    bias = op.input(5) if op.has(5) else None
    if op.has(4):
        padding = op.input(4)
        if len(padding.dims) != 2:
            raise Unwritable("a mask of another form than one element for each key")
        hidden = _hidden(op, padding, op.number("mask_filter_value", MASKED))
        bias = hidden if bias is None else op.add(bias, hidden)
    heads_apart = [_heads(op, each, heads) for each in parts]
    for place, past in ((1, PAST_KEY), (2, PAST_VALUE)):
        if op.has(past):
            heads_apart[place] = _behind(op, op.input(past), heads_apart[place])
    op.give(_attention(op, heads_apart, heads, bias))
    for place, tensor in enumerate(heads_apart):
        if place and op.gives(place):
            op.give(tensor, place)


def _queries_keys_values(op: NodeExport) -> list[DraftTensor]:
    """Return queries, keys and values, `batch length heads·size`, with their biases.

    Raises:
        Unwritable: they are in one tensor, or their heads are apart.
    """
    if not all(op.has(slot) and len(op.dims(slot)) == 3 for slot in range(3)):
        raise Unwritable("queries, keys and values in one tensor")
    parts, begin = [op.input(slot) for slot in range(3)], 0
    for place, each in enumerate(parts) if op.has(3) else ():
        (size,) = known(each.dims[-1:])
        parts[place] = op.add(each, op.part(op.input(3), 0, begin, size))
        begin += size
    return parts


def _behind(op: NodeExport, past: DraftTensor, fresh: DraftTensor) -> DraftTensor:
    """Return keys or values of an earlier run and those of this one behind them, `batch heads places size`."""
    before, now = past.dims[2], fresh.dims[2]
    is_known = isinstance(before, int) and isinstance(now, int)
    places = sum(known((before, now))) if is_known else f"?{op.name}.runs"
    return op.emit("CONCATENATION", [past, fresh], (*fresh.dims[:2], places, fresh.dims[3]), axis=2)


def _hidden(op: NodeExport, mask: DraftTensor, value: float) -> DraftTensor:
    """Return what is added to scores: a large negative number where a mask of keys is 0."""
    batch, keys = mask.dims
    shown = op.cast(op.reshape(mask, (batch, 1, 1, keys)), TensorType.FLOAT32)
    return op.mul(op.sub(1.0, shown), value)


def _attention(op: NodeExport, parts: list[DraftTensor], heads: int, bias: DraftTensor | None) -> DraftTensor:
    """Return the attention, `batch length heads·size`, of queries, keys and values, `batch heads length size`."""
    query, key, value = parts
    (size,) = known(query.dims[-1:])
    scores = op.mul(op.matmul(query, key, adj_y=True), op.number("scale", 0.0) or 1 / sqrt(size))
    if bias is not None:
        scores = op.add(scores, bias)
    if op.integer("unidirectional"):
        rows, columns = known(scores.dims[-2:])
        later = np.triu(
            np.full((rows, columns), op.number("mask_filter_value", MASKED), np.float32), columns - rows + 1
        )
        scores = op.add(scores, later)
    weights = op.emit("SOFTMAX", [scores], scores.dims, beta=1.0)
    found = op.transpose(op.matmul(weights, value), (0, 2, 1, 3))
    batch, length, _, width = found.dims
    return op.reshape(found, (batch, length, heads * known((width,))[0]), found)


def _heads(op: NodeExport, tensor: DraftTensor, heads: int) -> DraftTensor:
    batch, length, hidden = tensor.dims
    size = known((hidden,))[0] // heads
    return op.transpose(op.reshape(tensor, (batch, length, heads, size), tensor), (0, 2, 1, 3))


@exporter("Attention", domain="com.microsoft")
def attention(op: NodeExport) -> None:
    """FULLY_CONNECTED to queries, keys and values, then as MultiHeadAttention."""
    if op.has(4) or op.has(6) or op.gives(1) or op.integers("qkv_hidden_sizes") or op.integer("do_rotary"):
        raise Unwritable("keys and values of an earlier run, or of sizes of their own")
    weights = op.transpose(op.input(1), (1, 0))
    (total,) = known(weights.dims[:1])
    inputs = [op.input(0), weights, *([op.input(2)] if op.has(2) else [])]
    made = op.emit("FULLY_CONNECTED", inputs, (*op.dims()[:-1], total), keep_num_dims=True)
    parts = [op.part(made, -1, total // 3 * place, total // 3) for place in range(3)]
    bias = op.input(5) if op.has(5) else None
    if op.has(3):
        if len(op.dims(3)) != 2:
            raise Unwritable("a mask of another form than one element for each key")
        hidden = _hidden(op, op.input(3), op.number("mask_filter_value", MASKED))
        bias = hidden if bias is None else op.add(bias, hidden)
    heads = op.integer("num_heads")
    op.give(_attention(op, [_heads(op, each, heads) for each in parts], heads, bias))


@exporter("RotaryEmbedding", domain="com.microsoft")
def rotary_embedding(op: NodeExport) -> None:
    """GATHER of the angles, MUL, ADD and SUB."""
    operand = op.input(0)
    cosine, sine = op.input(2), op.input(3)
    flat = len(operand.dims) == 3
    size = 2 * known(cosine.dims[-1:])[0]
    if op.integer("rotary_embedding_dim") not in (0, size) or op.integer("is_packed_batching"):
        raise Unwritable("a part of each head that is rotated")
    if flat:
        (hidden,) = known(operand.dims[-1:])
        operand = _heads(op, operand, hidden // size)
    (length,) = known(operand.dims[2:3])
    places = op.cast(op.input(1), TensorType.INT32)
    if len(places.dims) == 1:
        places = op.reshape(op.add(places, np.arange(length)), (1, length))
    angles = [op.gather(each, places, 0) for each in (cosine, sine)]
    cosine, sine = (op.reshape(each, (each.dims[0], 1, *each.dims[1:])) for each in angles)
    found = _rotated(op, operand, cosine, sine, interleaved=bool(op.integer("interleaved")))
    op.give(op.reshape(op.transpose(found, (0, 2, 1, 3)), op.dims()) if flat else found)


def _rotated(
    op: NodeExport, operand: DraftTensor, cosine: DraftTensor, sine: DraftTensor, *, interleaved: bool
) -> DraftTensor:
    dims = operand.dims
    half = known(dims[-1:])[0] // 2
    if interleaved:
        pairs = op.reshape(operand, (*dims[:-1], half, 2))
        first, second = (op.at(pairs, -1, place) for place in (0, 1))
    else:
        first, second = (op.part(operand, -1, begin, half) for begin in (0, half))
    turned = [
        op.sub(op.mul(first, cosine), op.mul(second, sine)),
        op.add(op.mul(first, sine), op.mul(second, cosine)),
    ]
    return op.reshape(op.stack(turned, -1), dims) if interleaved else op.concat(turned, -1)
