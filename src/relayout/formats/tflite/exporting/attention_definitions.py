"""Definitions of the attentions and rotary embeddings of com.microsoft, as operators of the standard.

Heads are split off by Reshape and Transpose, before layouts are chosen: these are views then, as any others.

    MultiHeadAttention(q, k, v)  ->  Softmax(q · scale · kᵀ) · v,    each `b h s d`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from relayout.formats.tflite.exporting.definition_body import DefinitionBody, definition_by
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable
from relayout.graph.domains import MICROSOFT

MASKED = -10000.0  # the addend to the scores of positions that a mask hides
HEADS_BEFORE_SEQUENCE = (0, 2, 1, 3)


class AttentionBody(DefinitionBody):
    """The nodes of a definition of an attention."""

    @property
    def real(self) -> np.dtype[Any]:
        """The type of the numbers."""
        kind = ir.DataType.FLOAT if self.kind in (ir.DataType.UINT8, ir.DataType.INT8) else self.kind
        if kind not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
            raise Unwritable(f"an attention of {'unknown' if kind is None else kind.name}")
        return kind.numpy()

    def extent(self, slot: int, axis: int) -> int:
        """Return an extent of an operand that must be known."""
        dim = self.dims(slot)[axis]
        if not isinstance(dim, int):
            raise OpenExtentError("an extent that is known only at run time", [dim])
        return dim

    def head_count(self, name: str = "num_heads") -> int:
        """Return how many heads an attribute states."""
        if (count := self.integer(name)) < 1:
            raise Unwritable(f"a {name} of {count}")
        return count

    def real_const(self, number: float) -> str:
        """Add a constant of the type of the numbers."""
        limits = np.finfo(self.real)
        return self.const(np.array(np.clip(number, limits.min, limits.max), self.real))

    def int32(self, number: int) -> str:
        """Add a scalar of int32."""
        return self.const(np.array(number, np.int32))

    def sequence(self, slot: int, axis: int) -> str:
        """Add an extent of an operand, as a scalar of int32; one that is known is computed as any other constant."""
        extent = self.add("Gather", self.add("Shape", f"x{slot}"), self.const(np.array(axis, np.int64)))
        return self.add("Cast", extent, to=onnx.TensorProto.INT32)

    def arange(self, count: str) -> str:
        """Add the int32 from 0 on."""
        return self.add("Range", self.int32(0), count, self.int32(1))

    def heads(self, tensor: str, count: int, size: int) -> str:
        """Add heads as an axis before the sequence: `b s h*d` as `b h s d`."""
        return self.transpose(self.reshape(tensor, 0, 0, count, size), *HEADS_BEFORE_SEQUENCE)

    def packed(self, tensor: str, width: int) -> str:
        """Add heads behind the sequence: `b h s d` as `b s h*d`."""
        return self.reshape(self.transpose(tensor, *HEADS_BEFORE_SEQUENCE), 0, 0, width)

    def scores(self, query: str, key: str, size: int) -> str:
        """Add the products of queries and keys, `b h s t`, times the scale."""
        query = self.add("Mul", query, self.real_const(self.number("scale") or 1 / sqrt(size)))
        return self.add("MatMul", query, self.transpose(key, 0, 1, 3, 2))

    def attention(self, query: str, keys_values: tuple[str, str], size: int, bias: str) -> str:
        """Add the weighted sums of values, `b h s d`."""
        key, value = keys_values
        scores = self.scores(query, key, size)
        if bias:
            scores = self.add("Add", scores, bias)
        return self.add("MatMul", self.add("Softmax", scores, axis=3), value)

    def bias(self, mask: int, addend: int | None, keys: tuple[int, int] | None) -> str:
        """Add what is added to scores: an operand, and a large negative number where a mask of keys is 0.

        Args:
            mask: the operand that is a mask.
            addend: the operand that is added, if there may be one.
            keys: the operand and its axis that is the sequence of all keys; None if they are joined of two.
        """
        bias = f"x{addend}" if addend is not None and self.has(addend) else ""
        if not self.has(mask):
            return bias
        shown = self.add("Cast", self._key_mask(mask, keys), to=int(ir.DataType.from_numpy(self.real)))
        hidden = self.add("Sub", self.real_const(1.0), shown)
        hidden = self.add("Mul", hidden, self.real_const(self.number("mask_filter_value", MASKED)))
        return self.add("Add", bias, hidden) if bias else hidden

    def _key_mask(self, mask: int, keys: tuple[int, int] | None) -> str:
        """Add 1 for each key that a mask shows, 0 for the others, `b 1 s t` or `b 1 1 t`."""
        rank = len(self.dims(mask))
        if rank == 1 and self.dims(mask) == self.dims(0)[:1] and keys is not None:  # how many keys of a row are shown
            return self.add("Less", self.arange(self.sequence(*keys)), self.reshape(f"x{mask}", -1, 1, 1, 1))
        if rank not in (2, 3):
            raise Unwritable("a mask of another form than one element for each key")
        extents = (0, 1, 1, -1) if rank == 2 else (0, 1, self.extent(mask, 1), -1)
        return self.reshape(f"x{mask}", *extents)

    def later(self, rows: int, columns: int, bias: str) -> str:
        """Add a large negative number to the scores of keys that come after a query."""
        limits = np.finfo(self.real)
        masked = np.clip(self.number("mask_filter_value", MASKED), limits.min, limits.max)
        hidden = self.const(np.triu(np.full((rows, columns), masked, self.real), columns - rows + 1))
        return self.add("Add", bias, hidden) if bias else hidden

    def rotated(
        self,
        tensor: str,  # the heads, of four axes, the last of them the elements of a head
        size: int,  # elements of a head
        angles: Sequence[str],  # cosines and sines, of four axes, too
        half: int,  # pairs that are turned: the first `2 half` elements of each head
        name: str,  # the attribute that says whether the elements of a pair are neighbours
    ) -> str:
        """Add heads turned by angles."""
        cosine, sine = angles
        turned, same = (self.part(tensor, 3, 0, 2 * half) if 2 * half < size else tensor), (0, 0, 0)
        if self.integer(name):
            pairs = self.reshape(turned, *same, half, 2)
            a, b = (self.reshape(self.part(pairs, 4, place, 1), *same, half) for place in (0, 1))
        else:
            a, b = (self.part(turned, 3, begin, half) for begin in (0, half))
        first = self.add("Sub", self.add("Mul", a, cosine), self.add("Mul", b, sine))
        second = self.add("Add", self.add("Mul", a, sine), self.add("Mul", b, cosine))
        parts = [first, second]
        if self.integer(name):
            columns = [self.reshape(each, *same, half, 1) for each in parts]
            parts = [self.reshape(self.add("Concat", *columns, axis=4), *same, 2 * half)]
        if 2 * half < size:
            parts.append(self.part(tensor, 3, 2 * half, size - 2 * half))
        return self.add("Concat", *parts, axis=3) if len(parts) > 1 else parts[0]


PAST_KEY, PAST_VALUE = 6, 7  # operands of MultiHeadAttention


def _multi_head_attention(body: AttentionBody) -> None:
    """MatMul, Softmax and MatMul of each head; Concat with keys and values of an earlier run."""
    if any(map(body.has, range(PAST_VALUE + 1, len(body.node.inputs)))) or body.gives(3):
        raise Unwritable("keys and values of an earlier run in a buffer, or scores as a result")
    if body.has(PAST_KEY) != body.has(PAST_VALUE):
        raise Unwritable("keys of an earlier run without values")
    if not body.has(1) or not body.has(2) or len(body.dims(0)) != 3:
        raise Unwritable("queries, keys and values in one tensor")
    count, parts, widths, begin = body.head_count(), [], [], 0
    for slot in range(3):
        tensor, has_head_axis = f"x{slot}", len(body.dims(slot)) == 4
        size = body.extent(slot, -1) // (1 if has_head_axis else count)
        if body.has(3) and not has_head_axis:  # kernels add none to keys and values whose heads are apart
            tensor = body.add("Add", tensor, body.part("x3", 0, begin, size * count))
        parts.append(tensor if has_head_axis else body.heads(tensor, count, size))
        widths.append(size)
        begin += size * count
    query, others = parts[0], parts[1:]
    for place, past in enumerate((PAST_KEY, PAST_VALUE)):
        if body.has(past):
            others[place] = body.add("Concat", f"x{past}", others[place], axis=2)
    bias = body.bias(4, 5, None if body.has(PAST_KEY) else (1, len(body.dims(1)) - 2))
    if body.integer("unidirectional"):
        columns = sum(body.extent(slot, axis) for slot, axis in ((1, -2), (PAST_KEY, 2)) if body.has(slot))
        bias = body.later(body.extent(0, 1), columns, bias)
    sums = body.attention(query, (others[0], others[1]), widths[0], bias)
    body.give(body.packed(sums, count * widths[2]))
    for slot, tensor in enumerate(others, 1):
        body.give(tensor, slot)


def _attention(body: AttentionBody) -> None:
    """MatMul to queries, keys and values, then as MultiHeadAttention."""
    sizes = body.integers("qkv_hidden_sizes")
    if body.has(4) or body.has(6) or sizes:
        raise Unwritable("keys and values of an earlier run, or of sizes of their own")
    _self_attention(body, "x0", "x1", (3, 5))


def _quantized_attention(body: AttentionBody) -> None:
    """MatMul of the real numbers to queries, keys and values, then as MultiHeadAttention."""
    if body.has(8):
        raise Unwritable("keys and values of an earlier run")
    _self_attention(body, body.real_numbers("x0", 3, 6), body.weights(1, 4, 7), (5, None))


def _self_attention(
    body: AttentionBody,
    states: str,  # the hidden states, `b s c`
    weights: str,  # the matrix that makes queries, keys and values of them, `c 3*h*d`
    masks: tuple[int, int | None],  # the operands that are a mask of keys and an addend to the scores
) -> None:
    if body.gives(1) or body.integer("do_rotary"):
        raise Unwritable("keys and values as a result, or angles")
    if len(body.dims(0)) != 3 or len(body.dims(1)) != 2:
        raise Unwritable("states or weights of another rank than 3 and 2")
    count, width = body.head_count(), body.extent(1, 1) // 3
    if width % count:
        raise Unwritable(f"{count} heads of {width} elements together")
    joined = body.add("MatMul", states, weights)
    if body.has(2):
        joined = body.add("Add", joined, "x2")
    parts = [body.heads(body.part(joined, 2, width * place, width), count, width // count) for place in range(3)]
    bias = body.bias(*masks, (0, 1))
    if body.integer("unidirectional"):
        bias = body.later(body.extent(0, 1), body.extent(0, 1), bias)
    query, key, value = parts
    body.give(body.packed(body.attention(query, (key, value), width // count, bias), width))


def _rotary_embedding(body: AttentionBody) -> None:
    """Gather of the angles, Mul, Add and Sub; heads stay where they are."""
    rank, half = len(body.dims(0)), body.extent(2, 1)
    if body.integer("is_packed_batching"):
        raise Unwritable("rows of several lengths in one")
    last, count = body.extent(0, -1), body.integer("num_heads")
    size = last if rank == 4 else last // count if count else 2 * half
    if body.integer("rotary_embedding_dim") not in (0, 2 * half):
        raise Unwritable("angles of another number than the elements that are turned")
    sequence = rank - 2 if rank == 4 else 1
    places = body.add("Cast", "x1", to=onnx.TensorProto.INT32)
    if len(body.dims(1)) == 1:
        along = body.arange(body.sequence(0, sequence))
        places = body.reshape(body.add("Add", places, along), 1, -1)
    row = (0, 1, -1, half) if rank == 4 else (0, -1, 1, half)
    angles = [body.reshape(body.add("Gather", f"x{slot}", places), *row) for slot in (2, 3)]
    heads = "x0" if rank == 4 else body.reshape("x0", 0, 0, last // size, size)
    rotated_heads = body.rotated(heads, size, angles, half, "interleaved")
    body.give(rotated_heads if rank == 4 else body.reshape(rotated_heads, 0, 0, last))


# Attention in which several heads of queries share one of keys and values, with the keys and values of earlier runs.
#
# Keys of a run stand behind those of earlier runs. `past` counts these in each row; a first run has none:
#
#     past    = 0 if length == total else ends + 1 - length
#     present = Gather(Concat(past_key, key, zeros), places)
#     shown   = place <= min(past + step, ends)

QUERY, KEY, VALUE, PAST_KEYS, PAST_VALUES, ENDS, TOTAL, COSINES, SINES, POSITIONS = range(10)
"""Operands of GroupQueryAttention."""
ELSE = {  # attributes -> what they are where nothing else is asked for
    "smooth_softmax": (0, -1),
    "qk_output": (0,),
    "causal": (1,),
    "kv_cache_bit_width": (0,),
    "sliding_window_cache": (0,),
    "k_quant_type": ("NONE",),
    "v_quant_type": ("NONE",),
}
GATHERS_IN_BATCHES = 12  # the version of the standard from which on GatherND has a batch


def _group_query_attention(body: AttentionBody) -> None:
    """MatMul, Where of the keys that are not later, Softmax and MatMul; a past by GatherND."""
    attributes = body.node.attributes
    if any(attributes[name].value not in values for name, values in ELSE.items() if name in attributes):
        raise Unwritable("another softmax or mask, or keys and values of few bits")
    if any(map(body.has, range(POSITIONS + 1, len(body.node.inputs)))) or body.gives(3):
        raise Unwritable("a bias, sinks, norms, or scales of keys and values")
    if body.has(PAST_KEYS) != body.has(PAST_VALUES):
        raise Unwritable("keys of an earlier run without values")
    body.require_opset(GATHERS_IN_BATCHES)
    _GroupedAttention(body).write()


class _GroupedAttention:
    """One node, and where its keys stand."""

    def __init__(self, body: AttentionBody) -> None:
        self.body = body
        self.heads, self.groups = body.head_count(), body.head_count("kv_num_heads")
        self.length = body.dims(QUERY)[1]
        self.size = body.extent(QUERY, 2) // (self.heads if body.has(KEY) else self.heads + 2 * self.groups)
        known = body.constant(TOTAL)
        self.known_total = None if known is None else int(known.reshape(-1)[0])
        self.is_first = self.known_total is not None and self.known_total == self.length
        """True if the run is known to be the first one."""
        self.count = body.sequence(QUERY, 1)
        self.total = body.reshape(f"x{TOTAL}") if known is None else body.int32(self.known_total or 0)

    def write(self) -> None:
        """Write the node."""
        body = self.body
        query, key, value = self._operands()
        if body.integer("do_rotary"):
            angles, half = self._angles
            turning = self.size, angles, half, "rotary_interleaved"
            query, key = (body.rotated(each, *turning) for each in (query, key))
        query, key, value = (body.transpose(each, *HEADS_BEFORE_SEQUENCE) for each in (query, key, value))
        key, value = self._present(key, PAST_KEYS), self._present(value, PAST_VALUES)
        body.give(body.packed(self._mixed(query, key, value), self.heads * self.size))
        body.give(key, 1)
        body.give(value, 2)

    def _operands(self) -> list[str]:
        """Add queries, keys and values, `batch length heads size`."""
        body, counts = self.body, (self.heads, self.groups, self.groups)
        if body.has(KEY):
            parts = [f"x{slot}" for slot in (QUERY, KEY, VALUE)]
            if any(body.dims(slot)[:2] != body.dims(QUERY)[:2] for slot in (KEY, VALUE)):
                raise Unwritable("keys of another length than the queries")
        else:
            begins = np.cumsum([0, *counts]) * self.size
            rows = zip(begins, counts, strict=False)
            parts = [body.part(f"x{QUERY}", 2, int(begin), count * self.size) for begin, count in rows]
        return [body.reshape(part, 0, 0, count, self.size) for part, count in zip(parts, counts, strict=True)]

    @cached_property
    def past(self) -> str:
        """The number of keys of earlier runs of each row, `batch 1`."""
        body, none = self.body, self.body.const(np.zeros((1, 1), np.int32))
        if self.is_first:
            return none
        ends = body.reshape(f"x{ENDS}", -1, 1)
        earlier = body.add("Sub", body.add("Add", ends, body.int32(1)), self.count)
        if self.known_total is not None and isinstance(self.length, int):
            return earlier
        return body.add("Where", body.add("Equal", self.count, self.total), none, earlier)

    @cached_property
    def positions(self) -> str:
        """The places of this run's keys among all of their row, `batch length`."""
        return self.body.add("Add", self.past, self.body.arange(self.count))

    @cached_property
    def _angles(self) -> tuple[list[str], int]:
        """Cosines and sines of this run's places, `batch length 1 half`, and how many pairs are turned."""
        body, half = self.body, self.body.extent(COSINES, 1)
        places = f"x{POSITIONS}" if body.has(POSITIONS) else self.positions
        angles = [body.add("Gather", f"x{slot}", places) for slot in (COSINES, SINES)]
        return [body.reshape(each, 0, 0, 1, half) for each in angles], half

    @cached_property
    def begin(self) -> str:
        """For how many keys of earlier runs there is room, as a scalar."""
        return self.body.sequence(PAST_KEYS, 2) if self.body.has(PAST_KEYS) else self.body.int32(0)

    @cached_property
    def capacity(self) -> str:
        """The number of places of keys behind the run, as a scalar."""
        return self.body.add("Max", self.begin, self.total)

    @cached_property
    def places(self) -> str:
        """The places of keys."""
        return self.body.arange(self.capacity)

    def _present(self, fresh: str, slot: int) -> str:
        """Add the keys or values of all runs, `batch groups places size`; zeros behind a row that ended before."""
        if self.is_first and (not self.body.has(slot) or self.body.dims(slot)[2] == 0):
            return fresh
        body, sources = self.body, [f"x{slot}"] if self.body.has(slot) else []
        joined = body.add("Concat", *sources, fresh, self._zeros, axis=2)
        return body.add("GatherND", joined, self._chosen, batch_dims=2)

    @cached_property
    def _zeros(self) -> str:
        """A key of zeros, `batch groups 1 size`."""
        body, rest = self.body, (self.groups, 1, self.size)
        target = body.add("Concat", self._batch, body.const(np.array(rest, np.int64)), axis=0)
        return body.add("Expand", body.const(np.zeros((1, 1, 1, 1), body.real)), target)

    @cached_property
    def _batch(self) -> str:
        """The number of rows, as a vector of int64."""
        return self.body.part(self.body.add("Shape", f"x{QUERY}"), 0, 0, 1)

    @cached_property
    def _chosen(self) -> str:
        """Return which of the joined keys lies at each place, `batch groups places 1`."""
        body = self.body
        ours = body.add("Sub", self.places, self.past)
        is_here = body.add("Less", ours, self.count)
        later = body.add("Where", is_here, *(body.add("Add", self.begin, each) for each in (ours, self.count)))
        chosen = body.add("Where", body.add("Less", self.places, self.past), self.places, later)
        chosen = body.reshape(body.add("Max", chosen, body.int32(0)), 0, 1, -1, 1)
        capacity = body.reshape(body.add("Cast", self.capacity, to=onnx.TensorProto.INT64), 1)
        counts = [body.const(np.array([each], np.int64)) for each in (self.groups, 1)]
        target = body.add("Concat", self._batch, counts[0], capacity, counts[1], axis=0)
        return body.add("Cast", body.add("Expand", chosen, target), to=onnx.TensorProto.INT64)

    def _mixed(self, query: str, key: str, value: str) -> str:
        """Add the weighted sums of values, `batch heads length size`."""
        body = self.body
        scores = body.scores(body.reshape(query, 0, self.groups, -1, self.size), key, self.size)
        if cap := body.number("softcap"):
            limit = body.real_const(cap)
            scores = body.add("Mul", body.add("Tanh", body.add("Div", scores, limit)), limit)
        shown = self._shown()
        scores = body.reshape(scores, 0, self.heads, -1, 0)
        scores = body.add("Where", shown, scores, body.real_const(-np.inf))
        weights = body.add("Softmax", scores, axis=3)
        if body.integer("local_window_size", -1) >= 0:  # a window behind the end of a row shows no key at all
            weights = body.add("Where", shown, weights, body.real_const(0.0))
        sums = body.add("MatMul", body.reshape(weights, 0, self.groups, -1, 0), value)
        return body.reshape(sums, 0, self.heads, -1, self.size)

    def _shown(self) -> str:
        """Add which keys a query sees, `batch 1 length places`: none that is later or behind the end of its row."""
        body = self.body
        column = body.reshape(self.positions, 0, 1, -1, 1)
        ends = body.reshape(f"x{ENDS}", -1, 1, 1, 1)
        shown = body.add("LessOrEqual", self.places, body.add("Min", column, ends))
        window = body.integer("local_window_size", -1)
        if window < 0:
            return shown
        return body.add("And", shown, body.add("Greater", self.places, body.add("Sub", column, body.int32(window))))


DEFINITIONS: Mapping[str, Callable[[AttentionBody], None]] = {
    "Attention": _attention,
    "GroupQueryAttention": _group_query_attention,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _quantized_attention,
    "RotaryEmbedding": _rotary_embedding,
}
"""Operator of com.microsoft -> what adds the nodes that compute it."""
attention_definition_of = definition_by((MICROSOFT,), DEFINITIONS, AttentionBody)
