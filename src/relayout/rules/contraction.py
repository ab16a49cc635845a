"""Convolutions, pools and matrix products: operators that sum over axes."""

from __future__ import annotations

from dataclasses import replace

from relayout.layout import Extent
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant


def _spatial(rank: int, prefix: str) -> Letters:
    return axis_letters(rank - 2, prefix)


def _optional(operator: Operator, index: int, letters: Letters) -> tuple[Letters | None, ...]:
    return (letters if operator.has(index) else None,) if index < len(operator.inputs) else ()


@rule("Conv", kind="layout-sensitive")
def conv(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k], b[o] -> y[n o *s]`: positions fixed; a constant kernel follows any order within c and o."""
    rank = operator.rank()
    if rank is None or operator.inputs[1] is None:
        return None
    x, y = _spatial(rank, "s"), _spatial(rank, "t")
    k = _spatial(rank, "k")
    groups, kernels = operator.int("group", 1), Extent.of(operator.inputs[1][0])
    channels = operator.extent(0, 1)
    whole = frozenset((*x, *y, *k))
    if groups == 1:
        inputs: tuple[Letters | None, ...] = (("n", "c", *x), ("o", "c", *k), *_optional(operator, 2, ("o",)))
        return Signature(inputs, (("n", "o", *y),), whole, frozenset("nco")).positional()
    if channels == kernels and Extent.of(groups) == channels:
        inputs = (("n", "c", *x), ("c", "i", *k), *_optional(operator, 2, ("c",)))
        return Signature(inputs, (("n", "c", *y),), whole | {"i"}, frozenset("nc")).positional()
    inputs = (("n", "c", *x), ("o", "i", *k), *_optional(operator, 2, ("o",)))
    return Signature(inputs, (("n", "o", *y),), whole | frozenset("coi"), frozenset("n")).positional()


@rule("ConvTranspose", kind="layout-sensitive")
def conv_transpose(operator: Operator) -> Fact:
    """`x[n c *s], w[c o *k], b[o] -> y[n o *s]`: positions fixed; a constant kernel follows any order within c and o."""
    rank = operator.rank()
    if rank is None:
        return None
    x, y, k = _spatial(rank, "s"), _spatial(rank, "t"), _spatial(rank, "k")
    whole = frozenset((*x, *y, *k))
    if operator.int("group", 1) == 1:
        inputs: tuple[Letters | None, ...] = (("n", "c", *x), ("c", "o", *k), *_optional(operator, 2, ("o",)))
        return Signature(inputs, (("n", "o", *y),), whole, frozenset("nco")).positional()
    inputs = (("n", "c", *x), ("c", "i", *k), *_optional(operator, 2, ("o",)))
    return Signature(inputs, (("n", "o", *y),), whole | frozenset("coi"), frozenset("n")).positional()


@rule("AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", kind="layout-sensitive")
def pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: positions fixed."""
    rank = operator.rank()
    if rank is None:
        return None
    x, y = _spatial(rank, "s"), _spatial(rank, "t")
    return Signature((("n", "c", *x),), (("n", "c", *y),), frozenset((*x, *y)), frozenset("nc")).positional()


@rule("MaxPool", kind="layout-sensitive")
def max_pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: positions fixed; indices count into the flattened input and keep their order."""
    fact = pool(operator)
    if not isinstance(fact, Signature) or len(operator.outputs) == 1:
        return fact
    y = fact.outputs[0]
    assert y is not None
    whole = fact.whole | frozenset("nc")
    return replace(fact, outputs=(y, y), whole=whole, variants=(Variant(fact.inputs, (y, y)),))


@rule("DepthToSpace", "SpaceToDepth", kind="layout-sensitive")
def depth_and_space(operator: Operator) -> Fact:
    """`x[n c h w] -> y[n c h w]`: positions fixed."""
    if operator.rank() != 4:
        return None
    letters = ("n", "c", "s0", "s1")
    return Signature((letters,), (("n", "o", "t0", "t1"),), frozenset(("c", "o", "s0", "s1", "t0", "t1")), frozenset("n")).positional()


@rule("LRN", kind="layout-sensitive")
def lrn(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: neighbours in c are summed, so c keeps its place and its order."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = ("n", "c", *_spatial(rank, "s"))
    return Signature((letters,), (letters,), frozenset("c"), frozenset(letters)).positional()


@rule("Gemm", kind="layout-sensitive")
def gemm(operator: Operator) -> Fact:
    """`a[m k], b[k n], c[m n] -> y[m n]` (or transposed by attribute): k may hold its factors in any order."""
    a: Letters = ("k", "m") if operator.int("transA", 0) else ("m", "k")
    b: Letters = ("n", "k") if operator.int("transB", 0) else ("k", "n")
    bias: tuple[Letters | None, ...] = ()
    if len(operator.inputs) > 2:
        shape = operator.inputs[2]
        if operator.has(2) and shape is None:
            return None
        bias = (("m", "n")[2 - len(shape) :] if shape is not None else None,)
    return Signature((a, b, *bias), (("m", "n"),), block=frozenset("mnk"), broadcast=True).positional()


@rule("MatMul", kind="layout-sensitive")
def matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; batch axes free, and k in any order of its factors."""
    left, right, output = operator.inputs[0], operator.inputs[1], operator.outputs[0]
    if left is None or right is None or output is None:
        return None
    rank = max(len(left), len(right))
    batch = axis_letters(max(rank - 2, 0), "b")
    a: Letters = (*batch[len(batch) - max(len(left) - 2, 0) :], *("m", "k")[-len(left) :])
    c: Letters = (*batch[len(batch) - max(len(right) - 2, 0) :], *("k", "n")[: len(right)])
    if len(right) == 2 and len(left) > 2:
        # Every row is multiplied alone: all axes before k are free as they are in an elementwise operator.
        rows = axis_letters(len(left) - 1, "b")
        return Signature(((*rows, "k"), ("k", "n")), ((*rows, "n"),), block=frozenset("kn"), tail=("k", "n"))
    y: Letters = (*batch, *("m",)[: len(left) - 1], *("n",)[: len(right) - 1])
    return Signature((a, c), (y,), block=frozenset("mkn"), tail=("m", "k", "n"), broadcast=True)
