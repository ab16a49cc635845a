"""Matrix products: m, k and n are the last axes, and k may hold its factors in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relayout.layout import Extent
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant

FUSED = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64))
"""Elements of which com.microsoft has a FusedMatMul."""


def gemm_of(operator: Operator, left: int, right: int, bias: int, columns: Sequence[int] = ()) -> Signature | None:
    """The signature of a Gemm; `columns` are scalars, or hold one item per column of the result.

    One without columns may run with its operands exchanged.
    """
    a: Letters = ("k", "m") if operator.int("transA", 0) else ("m", "k")
    b: Letters = ("n", "k") if operator.int("transB", 0) else ("k", "n")
    if operator.rank(left) != 2 or operator.rank(right) != 2:
        return None
    given = {left: a, right: b, **{index: ("n",) for index in columns if operator.rank(index) == 1}}
    if operator.has(bias):
        rank = operator.rank(bias)
        if rank is None or rank > 2:
            return None
        given[bias] = ("m", "n")[2 - rank :]

    def changes(placement: Placement) -> Changes:
        transposed = placement.letters(left) == ("k", "m"), placement.letters(right) == ("n", "k")
        exchanged = placement.letters(output=True) == ("n", "m")
        if exchanged:
            transposed = not transposed[1], not transposed[0]
        return Changes({"transA": int(transposed[0]), "transB": int(transposed[1])}, exchanged=exchanged)

    stored = operator.operands(given)
    column = {bias: ("n", "m")} if bias in given else {}
    variants = tuple(
        Variant(operator.operands({**given, **more, left: first, right: second}), (result,), name, exchanged=bool(turn))
        for turn, more, result in (("", {}, ("m", "n")), ("exchanged", column, ("n", "m")))
        if not (turn and columns)
        for first, second, name in (
            (a, b, turn or "standard"),
            (a[::-1], b, f"{turn}a"),
            (a, b[::-1], f"{turn}b"),
            (a[::-1], b[::-1], f"{turn}both"),
        )
    )
    block = frozenset("mnk")
    return Signature(stored, (("m", "n"),), block=block, broadcast=True, variants=variants, changes=changes)


@rule("Gemm", kind="layout-sensitive")
def gemm(operator: Operator) -> Fact:
    """`a[m k], b[k n], c[m n] -> y[m n]` (or transposed by attribute): k may hold its factors in any order."""
    return gemm_of(operator, 0, 1, 2)


@rule("FusedGemm", kind="layout-sensitive", domain="com.microsoft")
def fused_gemm(operator: Operator) -> Fact:
    """`a[m k], b[k n], c[m n] -> y[m n]` (or transposed by attribute): k may hold its factors in any order."""
    return gemm_of(operator, 0, 1, 2)


@rule("QGemm", kind="layout-sensitive", domain="com.microsoft")
def qgemm(operator: Operator) -> Fact:
    """`a[m k], b[k n], c[m n] -> y[m n]` (or transposed by attribute), b's scales scalars or per n."""
    return gemm_of(operator, 0, 3, 6, (4, 5))


def product_of(operator: Operator, left: int, right: int, columns: Sequence[int] = ()) -> Signature | None:
    """The signature of a MatMul; `columns` are scalars, or hold one item per column of the result."""
    first, second = operator.shape(left), operator.shape(right)
    if not first or not second:
        return None
    given: dict[int, Letters] = {}
    for index in columns:
        if operator.rank(index) == 1 and len(second) > 1:
            given[index] = ("n",)
        elif operator.rank(index) and not _is_scalar(operator, index):
            return None  # one item per row or per matrix
    if len(second) == 2 and len(first) > 2:
        # Every row is multiplied alone: all axes before k are free as they are in an elementwise operator.
        rows = axis_letters(len(first) - 1, "b")
        inputs = operator.operands({left: (*rows, "k"), right: ("k", "n"), **given})
        return Signature(inputs, ((*rows, "n"),), block=frozenset("kn"), tail=("k", "n"))
    batch = axis_letters(max(len(first), len(second), 2) - 2, "b")
    a: Letters = (*batch[len(batch) - max(len(first) - 2, 0) :], *("m", "k")[-len(first) :])
    c: Letters = (*batch[len(batch) - max(len(second) - 2, 0) :], *("k", "n")[: len(second)])
    y: Letters = (*batch, *("m",)[: len(first) - 1], *("n",)[: len(second) - 1])
    inputs = operator.operands({left: a, right: c, **given})
    return Signature(inputs, (y,), block=frozenset("mkn"), tail=("m", "k", "n"), broadcast=True)


def _rewritten(placement: Placement) -> Changes:
    """The operands change places where the first is not summed over its last axis.

    Where the second is summed over its last axis, too, the product is a FusedMatMul that transposes it.
    """
    if placement.letters(0)[-1] != "k":
        return Changes(exchanged=True)
    if placement.letters(1)[-1] != "k":
        return Changes()
    return Changes({"transB": 1}, op_type="FusedMatMul", domain="com.microsoft")


def _is_scalar(operator: Operator, index: int) -> bool:
    shape = operator.shape(index)
    return shape is not None and all(Extent.of(dim).is_one for dim in shape)


@rule("MatMul", kind="layout-sensitive")
def matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; batch axes free, and k in any order of its factors.

    With its operands exchanged, by `--exchange` or where m or n is 1, n, k, m are last; by one matrix, `c[k n]`, rows
    are free then, too: those that lie behind `n k` become one dimension. For a target with transposed products
    c may lie as `n k` where it is many matrices.
    """
    found = product_of(operator, 0, 1)
    if found is None or (operator.rank() or 0) < 2 or (operator.rank(1) or 0) < 2:
        return found
    if "m" not in found.tail:
        return replace(found, exchanged=("n", "k", "*"), changes=_rewritten)
    sides = (operator.shape(0) or ())[-2], (operator.shape(1) or ())[-1]
    vector = any(Extent.of(dim).is_one for dim in sides)
    turned = TAILS[False, True] if operator.dtype(0) in FUSED else ()
    found = replace(found, transposed=turned, changes=_rewritten)
    return replace(found, exchanged=("n", "k", "m"), freely=vector)


@rule("MatMulInteger", kind="layout-sensitive")
def matmul_integer(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; zero points scalars or per n (per m: a barrier)."""
    return product_of(operator, 0, 1, (3,)) if _all_scalars(operator, 2) else None


@rule("MatMulInteger16", kind="layout-sensitive", domain="com.microsoft")
def matmul_integer16(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; batch axes free, and k in any order of its factors."""
    return product_of(operator, 0, 1)


@rule("QLinearMatMul", kind="layout-sensitive")
def qlinear_matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; scales of c scalars or per n (others: a barrier)."""
    return product_of(operator, 0, 3, (4, 5)) if _all_scalars(operator, 1, 2, 6, 7) else None


@rule("MatMulIntegerToFloat", kind="layout-sensitive", domain="com.microsoft")
def matmul_integer_to_float(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n], d[n] -> y[*b m n]`: m, k, n last; scales of c scalars or per n."""
    return product_of(operator, 0, 1, (3, 5, 6)) if _all_scalars(operator, 2, 4) else None


@rule("DynamicQuantizeMatMul", kind="layout-sensitive", domain="com.microsoft")
def dynamic_quantize_matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n], d[n] -> y[*b m n]`: m, k, n last; scales of c scalars or per n."""
    found = product_of(operator, 0, 1, (2, 3, 4))
    # All of a is quantized by one scale.
    return None if found is None else replace(found, across=frozenset(found.inputs[0] or ()))


@rule("MatMulNBits", "MatMulBnb4", kind="layout-sensitive", domain="com.microsoft")
def matmul_of_packed(operator: Operator) -> Fact:
    """`a[*b k] -> y[*b n]`: k and n last; the packed weights keep their order."""
    rank = operator.rank()
    if not rank:
        return None
    rows = axis_letters(rank - 1, "b")
    return Signature(operator.operands({0: (*rows, "k")}), ((*rows, "n"),), frozenset("kn"), tail=("k", "n"))


def _all_scalars(operator: Operator, *indices: int) -> bool:
    return all(_is_scalar(operator, index) for index in indices if operator.has(index))


TAILS: dict[tuple[bool, bool], Letters] = {
    (False, False): ("m", "k", "n"),
    (True, False): ("k", "m", "n"),
    (False, True): ("m", "n", "k"),
}
"""The order of m, k and n that all three operands agree with, by what is transposed; with both there is none."""


@rule("FusedMatMul", "TransposeMatMul", kind="layout-sensitive", domain="com.microsoft")
def fused_matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]` (or transposed by attribute): m, k, n last; batch axes free."""
    first, second = operator.rank(), operator.rank(1)
    flags = bool(operator.int("transA", 0)), bool(operator.int("transB", 0))
    if first is None or second is None or first < 2 or second < 2:
        return None
    if operator.int("transBatchA", 0) or operator.int("transBatchB", 0):
        return None
    batch = axis_letters(max(first, second) - 2, "b")
    a = ("k", "m") if flags[0] else ("m", "k")
    b = ("n", "k") if flags[1] else ("k", "n")
    inputs = ((*batch[len(batch) - first + 2 :], *a), (*batch[len(batch) - second + 2 :], *b))
    signature = Signature(inputs, ((*batch, "m", "n"),), block=frozenset("mkn"), broadcast=True)
    if flags not in TAILS:
        return signature.positional()
    return Signature(inputs, signature.outputs, block=frozenset("mkn"), tail=TAILS[flags], broadcast=True)
