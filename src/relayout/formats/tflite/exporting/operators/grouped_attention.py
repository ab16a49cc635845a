"""Attention in which several heads of queries share one of keys and values, with the keys and values of earlier runs.

Keys of a run stand behind those of earlier runs. `past` counts these in each row; a first run has none:

    past    = 0 if length == total else ends + 1 - length
    present = GATHER(CONCATENATION(past_key, key, zeros), places)
    shown   = place <= min(past + step, ends)
"""

from __future__ import annotations

from functools import cached_property
from math import sqrt

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor, known
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable, exporter

QUERY, KEY, VALUE, PAST_KEY, PAST_VALUE, ENDS, TOTAL, COSINES, SINES, POSITIONS = range(10)
"""Operands of GroupQueryAttention."""
ELSE = {
    "smooth_softmax": (0, -1),
    "qk_output": (0,),
    "causal": (1,),
    "kv_cache_bit_width": (0,),
    "sliding_window_cache": (0,),
    "k_quant_type": ("NONE",),
    "v_quant_type": ("NONE",),
}
"""Attributes -> what they are where nothing else is asked for."""


@exporter("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(op: NodeExport) -> None:
    """BATCH_MATMUL, SELECT_V2 of the keys that are not later, SOFTMAX and BATCH_MATMUL; a past by GATHER."""
    if any(op.node.attributes[name].value not in values for name, values in ELSE.items() if name in op.node.attributes):
        raise Unwritable("another softmax or mask, or keys and values of few bits")
    if any(op.has(slot) for slot in range(POSITIONS + 1, len(op.node.inputs))) or op.gives(3):
        raise Unwritable("a bias, sinks, norms, or scales of keys and values")
    if op.has(PAST_KEY) != op.has(PAST_VALUE):
        raise Unwritable("keys of an earlier run without values")
    _Attention(op).write()


class _Attention:
    """One node, and where its keys stand."""

    def __init__(self, op: NodeExport) -> None:
        self.op = op
        self.heads, self.groups = op.integer("num_heads"), op.integer("kv_num_heads")
        self.batch, self.length, width = op.dims(QUERY)
        (hidden,) = known((width,))
        self.size = hidden // (self.heads if op.has(KEY) else self.heads + 2 * self.groups)
        self.rows = op.input(QUERY)
        self.ends = op.reshape(op.cast(op.input(ENDS), TensorType.INT32), (self.batch, 1))
        self.count = op.tensor(op.extent(self.rows, 1), TensorType.INT32)
        self.total = self._total()
        self.past = self._past()

    def write(self) -> None:
        """Write the node."""
        op = self.op
        query, key, value = self._operands()
        if op.integer("do_rotary"):
            query, key = self._rotated(query), self._rotated(key)
        query, key, value = (op.transpose(each, (0, 2, 1, 3)) for each in (query, key, value))
        key, value = self._present(key, PAST_KEY), self._present(value, PAST_VALUE)
        found = self._mixed(query, key, value)
        last: Dims = (self.batch, self.length, self.heads * self.size)
        op.give(op.reshape(op.transpose(found, (0, 2, 1, 3)), last, self.rows))
        for slot, tensor in ((1, key), (2, value)):
            if op.gives(slot):
                op.give(tensor, slot)

    def _operands(self) -> list[DraftTensor]:
        """Return queries, keys and values, `batch length heads size`."""
        op, counts = self.op, (self.heads, self.groups, self.groups)
        if op.has(KEY):
            parts = [op.input(slot) for slot in (QUERY, KEY, VALUE)]
        else:
            begins = np.cumsum([0, *counts]) * self.size
            parts = [
                self.op.part(self.rows, 2, int(begin), count * self.size)
                for begin, count in zip(begins, counts, strict=False)
            ]
        if any(part.dims[:2] != parts[0].dims[:2] for part in parts):
            raise Unwritable("keys of another length than the queries")
        return [
            self.op.reshape(part, (self.batch, self.length, count, self.size))
            for part, count in zip(parts, counts, strict=True)
        ]

    def _total(self) -> DraftTensor:
        """Return how many keys the longest row has, this run's among them: a scalar of int32."""
        total = self.op.constant(TOTAL)
        if total is not None:
            return self.op.ints(total.reshape(()))
        return self.op.reshape(self.op.cast(self.op.input(TOTAL), TensorType.INT32), ())

    def _past(self) -> DraftTensor:
        """Return how many keys of earlier runs each row has, `batch 1`."""
        op = self.op
        none = op.ints(np.array([[0]]))
        earlier = op.sub(op.add(self.ends, 1), self.count)
        if self.total.array is not None and self.count.array is not None:
            return none if self._is_first else earlier
        return op.select(op.compare("EQUAL", self.count, self.total), none, earlier)

    @property
    def _is_first(self) -> bool:
        """True if the run is known to be the first one."""
        total, count = self.total.array, self.count.array
        return total is not None and count is not None and bool(total == count)

    @cached_property
    def _positions(self) -> DraftTensor:
        """Return the places of this run's keys among all of their row, `batch length`."""
        return self.op.add(self.past, self.op.arange(self.count, self.length))

    @cached_property
    def _angles(self) -> list[DraftTensor]:
        """Return cosines and sines of this run's places, `batch length 1 half`."""
        op = self.op
        places = op.cast(op.input(POSITIONS), TensorType.INT32) if op.has(POSITIONS) else self._positions
        (half,) = known(op.dims(COSINES)[1:])
        found = [op.gather(op.input(slot), places, 0) for slot in (COSINES, SINES)]
        return [op.reshape(each, (places.dims[0], self.length, 1, half), each) for each in found]

    def _rotated(self, tensor: DraftTensor) -> DraftTensor:
        """Return heads turned by the angles of their places, `batch length heads size`."""
        op = self.op
        cosine, sine = self._angles
        (half,) = known(cosine.dims[3:])
        turned = op.part(tensor, 3, 0, 2 * half)
        if op.integer("rotary_interleaved"):
            pairs = op.reshape(turned, (*tensor.dims[:3], half, 2), tensor)
            a, b = (op.reshape(op.part(pairs, 4, place, 1), (*tensor.dims[:3], half), tensor) for place in (0, 1))
        else:
            a, b = (op.part(turned, 3, place * half, half) for place in (0, 1))
        first = op.sub(op.mul(a, cosine), op.mul(b, sine))
        second = op.add(op.mul(a, sine), op.mul(b, cosine))
        if op.integer("rotary_interleaved"):
            columns = [op.reshape(each, (*tensor.dims[:3], half, 1), tensor) for each in (first, second)]
            parts = [op.reshape(op.concat(columns, 4), turned.dims, tensor)]
        else:
            parts = [first, second]
        if 2 * half < self.size:
            parts.append(op.part(tensor, 3, 2 * half, self.size - 2 * half))
        return op.concat(parts, 3)

    def _present(self, fresh: DraftTensor, slot: int) -> DraftTensor:
        """Return the keys or values of all runs, `batch groups places size`; zeros behind a row that ended before."""
        op = self.op
        if self._is_first and self._room.array is not None and not self._room.array:
            return fresh
        none = op.emit("ZEROS_LIKE", [op.part(fresh, 2, 0, 1)], (*fresh.dims[:2], 1, self.size))
        sources = [op.input(slot), fresh, none] if op.has(slot) else [fresh, none]
        begin, capacity = self._room, self._capacity
        extent: int | str = f"?{op.name}.present" if capacity.array is None else int(capacity.array)
        joined = op.emit("CONCATENATION", sources, (*fresh.dims[:2], f"?{op.name}.runs", self.size), axis=2)
        places = self.op.arange(capacity, extent)
        ours = op.sub(places, self.past)  # batch places
        ends = op.add(begin, self.count)
        later = op.select(op.compare("LESS", ours, self.count), op.add(begin, ours), ends)
        chosen = op.select(op.compare("LESS", places, self.past), places, later)
        rows: Dims = (self.batch, self.groups, extent)
        target = op.concat([op.part(op.extents(fresh), 0, 0, 2), op.reshape(capacity, (1,))], 0)
        chosen = op.reshape(chosen, (chosen.dims[0], 1, extent), chosen)
        chosen = op.emit("BROADCAST_TO", [chosen, target], rows)
        return op.emit("GATHER", [joined, chosen], (*rows, self.size), axis=2, batch_dims=2)

    def _mixed(self, query: DraftTensor, key: DraftTensor, value: DraftTensor) -> DraftTensor:
        """Return the weighted sums of values, `batch heads length size`."""
        op = self.op
        places, shared = key.dims[2], self.heads // self.groups
        if isinstance(self.batch, int) or isinstance(self.length, int):
            each = shared * self.length if isinstance(self.length, int) else f"?{op.name}.queries"
            grouped: Dims = (self.batch, self.groups, each)
        else:
            grouped = (self.batch, self.groups, shared, self.length)
            key, value = (op.reshape(each, (*each.dims[:2], 1, *each.dims[2:]), each) for each in (key, value))
        scores = op.matmul(op.reshape(query, (*grouped, self.size), query), key, adj_y=True)
        scores = op.mul(scores, op.number("scale", 0.0) or 1 / sqrt(self.size))
        if cap := op.number("softcap"):
            scores = op.mul(op.each("TANH", op.div(scores, cap)), cap)
        apart: Dims = (self.batch, self.heads, self.length, places)
        scores = self._reshaped(scores, apart, query, key)
        shown = self._shown(places)
        scores = op.select(shown, scores, float(np.finfo(np.float32).min))
        weights = op.emit("SOFTMAX", [scores], apart, beta=1.0)
        if op.integer("local_window_size", -1) >= 0:  # a window behind the end of a row shows no key at all
            weights = op.select(shown, weights, 0.0)
        weights = self._reshaped(weights, (*grouped, places), query, key)
        found = op.matmul(weights, value)
        return op.reshape(found, (self.batch, self.heads, self.length, self.size), query)

    def _reshaped(self, tensor: DraftTensor, dims: Dims, query: DraftTensor, key: DraftTensor) -> DraftTensor:
        """Return a tensor of rows of queries and places of keys with other extents, several of which may be open."""
        if sum(not isinstance(dim, int) for dim in dims) < 2:
            return self.op.reshape(tensor, dims)
        op, parts = self.op, []
        for dim in dims:
            if isinstance(dim, int):
                parts.append(op.ints([dim]))
            else:
                source = next((each for each in (tensor, query, key) if dim in each.dims), None)
                if source is None:
                    parts.append(op.ints([-1]))
                    continue
                parts.append(op.part(op.extents(source), 0, source.dims.index(dim), 1))
        return self.op.emit("RESHAPE", [tensor, op.concat(parts, 0)], dims)

    def _shown(self, extent: int | str) -> DraftTensor:
        """Return which keys a query sees, `batch 1 length places`: none that is later or behind the end of its row."""
        op = self.op
        positions = self._positions
        column = op.reshape(positions, (positions.dims[0], 1, self.length, 1), positions)
        ends = op.reshape(self.ends, (self.batch, 1, 1, 1), self.ends)
        places = self.op.arange(self._capacity, extent)
        shown = op.compare("LESS_EQUAL", places, op.minimum(column, ends))
        window = op.integer("local_window_size", -1)
        if window < 0:
            return shown
        return op.both(shown, op.compare("GREATER", places, op.sub(column, window)))

    @cached_property
    def _room(self) -> DraftTensor:
        """Return for how many keys of earlier runs there is room: a scalar of int32."""
        if not self.op.has(PAST_KEY):
            return self.op.ints(np.array(0))
        return self.op.tensor(self.op.extent(self.op.input(PAST_KEY), 2), TensorType.INT32)

    @cached_property
    def _capacity(self) -> DraftTensor:
        """Return how many places of keys there are behind the run: a scalar of int32."""
        return self.op.maximum(self._room, self.total)
