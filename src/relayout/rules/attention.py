"""Attention and rotary embeddings, with the axes of heads apart or packed.

`q[b h s d]` has heads before the sequence; `q[b s h*d]` has them packed behind it, as a product of matrices gives them.
Both are one operator of the standard, so each is a variant of the other: what an exporter transposes around one of them
it need not transpose around the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx_ir as ir

from relayout.rules.operator import Operator, Output
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant, unchanged

CONTRIBUTED = "com.microsoft"
PACKED = 3  # the rank of operands whose heads are packed
APART = 4  # the rank of operands whose heads are an axis
UNKNOWN = ""  # an extent that nothing tells

Operands = dict[int, Letters]


def _positional(operator: Operator, inputs: Operands, outputs: Operands) -> Signature:
    """Make a signature with a place for every axis; an output whose rank is not known keeps its order.

    Batches may hold their factors in any order.
    """
    letters_of = {slot: letters for slot, letters in inputs.items() if operator.rank(slot) == len(letters)}
    gives = tuple(
        letters if shape is not None and (letters := outputs.get(slot)) and len(letters) == len(shape) else None
        for slot, shape in enumerate(operator.outputs)
    )
    unnamed = [slot for slot in range(len(operator.inputs)) if operator.rank(slot) and slot not in letters_of]
    unnamed += [slot for slot, shape in enumerate(operator.outputs) if shape and gives[slot] is None]
    named = {letter for letters in (*letters_of.values(), *gives) for letter in letters or ()}
    free = frozenset("b") if not unnamed else frozenset()
    return Signature(operator.operands(letters_of), gives, frozenset(named) - free, free).positional()


def _also(
    signature: Signature, name: str, inputs: Operands, outputs: Operands, changes: Callable[[Placement], Changes]
) -> Signature:
    """Add a variant in which these operands lie otherwise."""
    (plain,) = signature.variants
    other = Variant(
        tuple(letters and inputs.get(slot, letters) for slot, letters in enumerate(plain.inputs)),
        tuple(letters and outputs.get(slot, letters) for slot, letters in enumerate(plain.outputs)),
        name,
    )
    return replace(signature, variants=(plain, other), changes=changes)


def _packed(letters: Letters) -> Letters:
    """Pack heads: `b h s d` becomes `b s h*d`."""
    batch, heads, sequence, size = letters
    return batch, sequence, f"{heads}*{size}"


def _unpacked(letters: Letters, size: int) -> Letters:
    """Take heads of `size` channels apart: `b s c` becomes `b c/size s c%size`."""
    batch, sequence, channels = letters
    return batch, f"{channels}/{size}", sequence, f"{channels}%{size}"


def _size(operator: Operator, slot: int, heads: int) -> int:
    """Count the channels of one head of a packed input; 0 where they are not known or do not divide."""
    channels = _length(operator, slot, 2)
    return 0 if heads < 1 or channels % heads else channels // heads


def _length(operator: Operator, slot: int, axis: int) -> int:
    """Return an extent of an input; 0 where it is not known."""
    shape = operator.shape(slot)
    dim = shape[axis] if shape and axis < len(shape) else 0
    return dim if isinstance(dim, int) else 0


@rule("Attention", kind="layout-sensitive")
def attention(operator: Operator) -> Fact:
    """`q[b h s d], k[b g t d], v[b g t e] -> y[b h s e]`, or all with heads packed: `q[b s h*d] -> y[b s h*e]`."""
    rank = operator.rank()
    if (
        rank not in (PACKED, APART)
        or any(operator.rank(slot) != rank for slot in (1, 2))
        or len(operator.outputs[0] or ()) != rank
    ):
        return None
    mask = ("b", "h", "s", "m")[max(APART - (operator.rank(3) or 0), 0) :]
    inputs: Operands = {3: mask, 4: ("b", "g", "p", "d"), 5: ("b", "g", "p", "e"), 6: ("b",)}
    outputs: Operands = {1: ("b", "g", "u", "d"), 2: ("b", "g", "u", "e"), 3: ("b", "h", "s", "u")}
    if rank == APART:
        return _with_heads_apart(operator, inputs, outputs)
    return _with_heads_packed(operator, inputs, outputs)


def _with_heads_apart(operator: Operator, inputs: Operands, outputs: Operands) -> Signature:
    q, k, v, y = ("b", "h", "s", "d"), ("b", "g", "t", "d"), ("b", "g", "t", "e"), ("b", "h", "s", "e")
    signature = _positional(operator, {0: q, 1: k, 2: v, **inputs}, {0: y, **outputs})
    heads, shared = _length(operator, 0, 1), _length(operator, 1, 1)
    if not heads or not shared:
        return signature

    def changes(placement: Placement) -> Changes:
        packed = len(placement.letters()) == PACKED
        return Changes({"q_num_heads": heads, "kv_num_heads": shared} if packed else {})

    return _also(signature, "heads packed", {0: _packed(q), 1: _packed(k), 2: _packed(v)}, {0: _packed(y)}, changes)


def _with_heads_packed(operator: Operator, inputs: Operands, outputs: Operands) -> Signature:
    q, k, v, y = ("b", "s", "c"), ("b", "t", "i"), ("b", "t", "j"), ("b", "s", "o")
    signature = _positional(operator, {0: q, 1: k, 2: v, **inputs}, {0: y, **outputs})
    shared = operator.int("kv_num_heads", 0)
    size, length = _size(operator, 1, shared), _size(operator, 2, shared)
    if not size or not length or _size(operator, 0, operator.int("q_num_heads", 0)) != size:
        return signature

    def changes(placement: Placement) -> Changes:
        is_unpacked = len(placement.letters()) == APART  # their numbers are extents then
        return Changes(dict.fromkeys(("q_num_heads", "kv_num_heads")) if is_unpacked else {})

    others = {0: _unpacked(q, size), 1: _unpacked(k, size), 2: _unpacked(v, length)}
    return _also(signature, "heads apart", others, {0: _unpacked(y, length)}, changes)


@rule("RotaryEmbedding", kind="layout-sensitive")
def rotary_embedding(operator: Operator) -> Fact:
    """`x[b h s d] -> y[b h s d]`, or with heads packed: `x[b s h*d] -> y[b s h*d]`."""
    return _rotary(operator, 1, 2, 3, operator.int("num_heads", 0))


@rule("RotaryEmbedding", kind="layout-sensitive", domain=CONTRIBUTED)
def contributed_rotary_embedding(operator: Operator) -> Fact:
    """`x[b h s d] -> y[b h s d]`, or with heads packed: `x[b s h*d] -> y[b s h*d]`."""
    if operator.int("is_packed_batching", 0):
        return None
    heads, half = operator.int("num_heads", 0), _length(operator, 2, 1)
    if not heads and half and operator.rank() == PACKED:
        heads = _length(operator, 0, 2) // (2 * half)
    return _rotary(operator, 2, 3, 1, heads)


def _rotary(
    operator: Operator,  # the node
    cosine: int,  # the input with the cosines of angles: of positions, or of batches and positions
    sine: int,  # the input with their sines
    positions: int,  # the input with positions: of batches and a sequence, or one alone
    heads: int,  # how many heads are packed
) -> Signature | None:
    """Make the signature of a rotary embedding."""
    rank = operator.rank()
    if rank not in (PACKED, APART) or len(operator.outputs[0] or ()) != rank:
        return None
    angles = ("b", "s", "r") if operator.rank(cosine) == PACKED else ("p", "r")
    where = ("b", "s") if operator.rank(positions) == 2 else ("o",)
    inputs: Operands = {cosine: angles, sine: angles, positions: where}
    x = ("b", "h", "s", "d") if rank == APART else ("b", "s", "c")
    signature = _positional(operator, {0: x, **inputs}, {0: x})
    if rank == PACKED:
        size = _size(operator, 0, heads)
        letters = _unpacked(x, size)
        return _also(signature, "heads apart", {0: letters}, {0: letters}, unchanged) if size else signature
    number = _length(operator, 0, 1)

    def changes(placement: Placement) -> Changes:
        return Changes({"num_heads": number} if len(placement.letters()) == PACKED else {})

    return _also(signature, "heads packed", {0: _packed(x)}, {0: _packed(x)}, changes) if number else signature


@rule("MultiHeadAttention", kind="layout-sensitive", domain=CONTRIBUTED)
def multi_head_attention(operator: Operator) -> Fact:
    """`q[b s c], k[b t h*d], v[b t h*d] -> y[b s o]`; without a bias or a past also `k[b h t d], v[b h t d]`."""
    rank = operator.rank(1)
    inputs: Operands = {0: ("b", "s", "c"), 4: ("b", "t"), 5: ("b", "h", "s", "u")}
    inputs |= {6: ("b", "h", "p", "d"), 7: ("b", "h", "p", "e")}
    outputs: Operands = {0: ("b", "s", "o"), 1: ("b", "h", "u", "d"), 2: ("b", "h", "u", "e")}
    if operator.rank() != PACKED or rank != operator.rank(2) or rank not in (PACKED, APART):
        return _positional(operator, {}, outputs)
    k, v = (("b", "h", "t", "d"),) * 2 if rank == APART else (("b", "t", "i"), ("b", "t", "j"))
    signature = _positional(operator, {**inputs, 1: k, 2: v}, outputs)
    # A kernel adds no bias to keys and values whose heads are apart, and joins them with no past.
    if any(map(operator.has, (3, 6, 7))) or any(map(operator.gives, range(1, len(operator.outputs)))):
        return signature
    if rank == APART:
        return _also(signature, "heads packed", {1: _packed(k), 2: _packed(v)}, {}, unchanged)
    size = _size(operator, 1, operator.int("num_heads", 0))
    if not size or size != _size(operator, 2, operator.int("num_heads", 0)):
        return signature
    return _also(signature, "heads apart", {1: _unpacked(k, size), 2: _unpacked(v, size)}, {}, unchanged)


@rule("GroupQueryAttention", kind="layout-sensitive", domain=CONTRIBUTED)
def group_query_attention(operator: Operator) -> Fact:
    """`q[b s c], k[b t i], v[b t j] -> y[b s o]`: heads are packed; it has no other form."""
    inputs: Operands = {0: ("b", "s", "c"), 1: ("b", "t", "i"), 2: ("b", "t", "j"), 5: ("b",), 6: ("l",)}
    inputs |= {3: ("b", "g", "p", "d"), 4: ("b", "g", "p", "e"), 7: ("a", "r"), 8: ("a", "r"), 9: ("b", "s")}
    return _positional(operator, inputs, {0: ("b", "s", "o"), 1: ("b", "g", "u", "d"), 2: ("b", "g", "u", "e")})


def _self_attention_shapes(operator: Operator) -> list[Output]:
    """Return rows with the values of every head; the type is that of the states, or of the scale of integers."""
    states, kind = operator.shape(), operator.kind(0)
    if kind in (ir.DataType.UINT8, ir.DataType.INT8):
        kind = operator.kind(3)
    *_, last = operator.ints("qkv_hidden_sizes") or (_length(operator, 1, 1) // 3 or UNKNOWN,)
    return [(kind, None if states is None or len(states) != PACKED else (*states[:2], last))]


@rule("Attention", "QAttention", kind="layout-sensitive", domain=CONTRIBUTED, shapes=_self_attention_shapes)
def contributed_attention(operator: Operator) -> Fact:
    """`x[b s c], w[c k] -> y[b s o]`: heads are packed, in its weights, too; it has no other form."""
    mask, past, *parameters = (5, 8, 4, 7) if operator.name == "QAttention" else (3, 4)
    inputs: Operands = {0: ("b", "s", "c"), 1: ("c", "k"), mask: ("b", "t"), past: ("z", "b", "h", "p", "d")}
    inputs |= dict.fromkeys((2, *parameters), ("k",))
    return _positional(operator, inputs, {0: ("b", "s", "o"), 1: ("z", "b", "h", "u", "d")})


def _embedding_shapes(operator: Operator) -> list[Output]:
    """Return a row of the table for each word, a count for each row of words, and the sums of rows."""
    words, table, kind = operator.shape(), operator.shape(2), operator.kind(2)
    if words is None or table is None or len(words) != 2 or len(table) != 2:
        return [(kind, None)]
    rows = (kind, (*words, table[-1]))
    return [rows, (ir.DataType.INT32, words[:1]), rows]


@rule("EmbedLayerNormalization", kind="layout-sensitive", domain=CONTRIBUTED, shapes=_embedding_shapes)
def embed_layer_normalization(operator: Operator) -> Fact:
    """`words[b s], table[v c] -> y[b s c]`: it has no other form."""
    inputs: Operands = dict.fromkeys((0, 1, 7, 8), ("b", "s"))
    inputs |= {slot: (letter, "c") for slot, letter in zip((2, 3, 4), "vpg", strict=True)}
    inputs |= dict.fromkeys((5, 6), ("c",))
    return _positional(operator, inputs, {0: ("b", "s", "c"), 1: ("b",), 2: ("b", "s", "c")})
