"""Matrix products: m, k and n are the last axes, and k may hold its factors in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from string import ascii_letters

import numpy as np

from relayout.layout import Extent
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Permuted, Placement, Signature, Variant

# Einsum: its equation is an axis signature already.


@rule("Einsum", kind="axis attributes")
def einsum(operator: Operator) -> Fact:
    """`x[*b *m], y[*b *n] -> [*b *k]`: b free, before the others; else its own order (diagonals: a barrier)."""
    terms = terms_of(operator)
    if terms is None:
        return None
    *inputs, output = terms
    if len(inputs) == 1 and sorted(inputs[0]) == sorted(output):
        return Permuted(tuple(inputs[0].index(letter) for letter in output))
    # Every order has an equation, but runtimes compute a product of matrices, and transpose inside what is not one:
    # bytes that would be hidden, not saved.
    batch = frozenset(output).intersection(*inputs)
    others = [tuple(letter for letter in letters if letter not in batch) for letters in terms]
    order = Signature(tuple(others), ()).letters
    tail = order if all(tuple(sorted(each, key=order.index)) == each for each in others) else None
    leads = all(batch.issuperset(letters[: len(batch)]) for letters in terms)
    agreed = len({tuple(letter for letter in letters if letter in batch) for letters in terms}) == 1
    if not agreed or (len(inputs) > 1 and (tail is None or not leads)):
        return Signature(tuple(inputs), (output,), changes=_rewritten_equation).positional()
    return Signature(
        tuple(inputs), (output,), tail=tail if len(inputs) > 1 and tail else (), changes=_rewritten_equation
    )


def terms_of(operator: Operator) -> list[Letters] | None:
    """Return the letters of each input, then of the output; None where a rank is unknown, or an axis not one axis."""
    terms = subscripts_of(operator)
    if terms is None or any(len(set(letters)) != len(letters) for letters in terms):
        return None
    return None if "..." in operator.string("equation", "") and _broadcasts(operator, terms[:-1]) else terms


def subscripts_of(operator: Operator) -> list[Letters] | None:
    """Return the letters of each input, then of the output; None where a rank is unknown.

    An input may have a letter twice, of its diagonal, and axes that are stretched.
    """
    equation = operator.string("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    ranks = [operator.rank(index) for index in range(len(operator.inputs))]
    known = [rank for rank in ranks if rank is not None]
    if len(known) != len(ranks) or len(terms) != len(ranks):
        return None
    # The axes of an ellipsis are counted from the end, so that lower ranks broadcast.
    longest = max((rank - len(term) + 3 for term, rank in zip(terms, known, strict=True) if "..." in term), default=0)
    hidden = axis_letters(longest, "e")
    inputs = [_subscripts(term, hidden, rank) for term, rank in zip(terms, known, strict=True)]
    # Without an arrow the output has the ellipsis, then what occurs once, in alphabetical order.
    once = sorted(letter for letter, count in Counter(chain.from_iterable(inputs)).items() if count == 1)
    output = _subscripts(right, hidden, None) if arrow else (*hidden, *(a for a in once if a not in hidden))
    return [*inputs, output]


def _subscripts(term: str, hidden: Letters, rank: int | None) -> Letters:
    """One letter per dimension of a term; those of an ellipsis are `hidden`, as many as the rank leaves (all: None)."""
    before, dots, after = term.partition("...")
    if not dots:
        return tuple(term)
    count = len(hidden) if rank is None else rank - len(before) - len(after)
    return (*before, *hidden[len(hidden) - count :], *after)


def _broadcasts(operator: Operator, inputs: list[Letters]) -> bool:
    """Return whether an axis has several extents: some are 1 and stretched."""
    extents: dict[str, object] = {}
    for index, letters in enumerate(inputs):
        for letter, extent in zip(letters, operator.shape(index) or (), strict=True):
            if extents.setdefault(letter, extent) != extent:
                return True
    return False


def _rewritten_equation(placement: Placement) -> Changes:
    subscripts: dict[tuple[str, int], str] = {}

    def term(letters: Letters) -> str:
        seen: Counter[str] = Counter()
        result = ""
        for letter in letters:
            result += subscripts.setdefault((letter, seen[letter]), ascii_letters[len(subscripts)])
            seen[letter] += 1
        return result

    inputs = ",".join(term(placement.letters(index)) for index in range(len(placement.inputs)))
    return Changes({"equation": f"{inputs}->{term(placement.letters(0, output=True))}"})


FUSED = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(np.float64))
"""Elements of which com.microsoft has a FusedMatMul."""


def gemm_of(operator: Operator, right: int, bias: int, columns: Sequence[int] = ()) -> Signature | None:
    """Return the signature of a Gemm; `columns` are scalars, or hold one item per column of the result.

    One without columns may run with its operands exchanged.
    """
    a: Letters = ("k", "m") if operator.int("transA", 0) else ("m", "k")
    b: Letters = ("n", "k") if operator.int("transB", 0) else ("k", "n")
    if operator.rank(0) != 2 or operator.rank(right) != 2:
        return None
    letters_of = {0: a, right: b, **{index: ("n",) for index in columns if operator.rank(index) == 1}}
    if operator.has(bias):
        rank = operator.rank(bias)
        if rank is None or rank > 2:
            return None
        letters_of[bias] = ("m", "n")[2 - rank :]

    def changes(placement: Placement) -> Changes:
        transposed = placement.letters(0) == ("k", "m"), placement.letters(right) == ("n", "k")
        exchanged = placement.letters(output=True) == ("n", "m")
        if exchanged:
            transposed = not transposed[1], not transposed[0]
        return Changes({"transA": int(transposed[0]), "transB": int(transposed[1])}, exchanged=exchanged)

    stored = operator.operands(letters_of)
    column = {bias: ("n", "m")} if bias in letters_of else {}
    variants = tuple(
        Variant(
            operator.operands({**letters_of, **more, 0: first, right: second}), (result,), name, exchanged=bool(turn)
        )
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
@rule("FusedGemm", kind="layout-sensitive", domain="com.microsoft")
def gemm(operator: Operator) -> Fact:
    """`a[m k], b[k n], c[m n] -> y[m n]` (or transposed by attribute): k may hold its factors in any order."""
    return gemm_of(operator, 1, 2)


@rule("QGemm", kind="layout-sensitive", domain="com.microsoft")
def qgemm(operator: Operator) -> Fact:
    """`a[m k], b[k n], c[m n] -> y[m n]` (or transposed by attribute), b's scales scalars or per n."""
    return gemm_of(operator, 3, 6, (4, 5))


def product_of(operator: Operator, left: int, right: int, columns: Sequence[int] = ()) -> Signature | None:
    """Return the signature of a MatMul; `columns` are scalars, or hold one item per column of the result."""
    first, second = operator.shape(left), operator.shape(right)
    if not first or not second:
        return None
    column_letters: dict[int, Letters] = {}
    for index in columns:
        if operator.rank(index) == 1 and len(second) > 1:
            column_letters[index] = ("n",)
        elif operator.rank(index) and not _are_scalars(operator, index):
            return None  # one item per row or per matrix
    if len(second) == 2 and len(first) > 2:
        # Every row is multiplied alone: all axes before k are free as they are in an elementwise operator.
        rows = axis_letters(len(first) - 1, "b")
        inputs = operator.operands({left: (*rows, "k"), right: ("k", "n"), **column_letters})
        return Signature(inputs, ((*rows, "n"),), block=frozenset("kn"), tail=("k", "n"))
    batch = axis_letters(max(len(first), len(second), 2) - 2, "b")
    a: Letters = (*batch[len(batch) - max(len(first) - 2, 0) :], *("m", "k")[-len(first) :])
    c: Letters = (*batch[len(batch) - max(len(second) - 2, 0) :], *("k", "n")[: len(second)])
    y: Letters = (*batch, *("m",)[: len(first) - 1], *("n",)[: len(second) - 1])
    inputs = operator.operands({left: a, right: c, **column_letters})
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


def _are_scalars(operator: Operator, *indices: int) -> bool:
    shapes = [operator.shape(index) for index in indices if operator.has(index)]
    return all(shape is not None and all(Extent.of(dim).is_one for dim in shape) for shape in shapes)


@rule("MatMul", kind="layout-sensitive")
def matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; batch axes free, and k in any order of its factors.

    With its operands exchanged, by `--exchange` or where m or n is 1, n, k, m are last; by one matrix, `c[k n]`, rows
    are free then, too: those that lie behind `n k` become one dimension. For a target with transposed products
    c may lie as `n k` where it is many matrices.
    """
    signature = product_of(operator, 0, 1)
    if signature is None or (operator.rank() or 0) < 2 or (operator.rank(1) or 0) < 2:
        return signature
    if "m" not in signature.tail:
        return replace(signature, exchanged=("n", "k", "*"), changes=_rewritten)
    sides = (operator.shape(0) or ())[-2], (operator.shape(1) or ())[-1]
    vector = any(Extent.of(dim).is_one for dim in sides)
    turned = TAILS[False, True] if operator.dtype(0) in FUSED else ()
    signature = replace(signature, transposed=turned, changes=_rewritten)
    return replace(signature, exchanged=("n", "k", "m"), freely=vector)


@rule("MatMulInteger", kind="layout-sensitive")
def matmul_integer(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; zero points scalars or per n (per m: a barrier)."""
    return product_of(operator, 0, 1, (3,)) if _are_scalars(operator, 2) else None


@rule("MatMulInteger16", kind="layout-sensitive", domain="com.microsoft")
def matmul_integer16(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; batch axes free, and k in any order of its factors."""
    return product_of(operator, 0, 1)


@rule("QLinearMatMul", kind="layout-sensitive")
def qlinear_matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n] -> y[*b m n]`: m, k, n last; scales of c scalars or per n (others: a barrier)."""
    return product_of(operator, 0, 3, (4, 5)) if _are_scalars(operator, 1, 2, 6, 7) else None


@rule("MatMulIntegerToFloat", kind="layout-sensitive", domain="com.microsoft")
def matmul_integer_to_float(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n], d[n] -> y[*b m n]`: m, k, n last; scales of c scalars or per n."""
    return product_of(operator, 0, 1, (3, 5, 6)) if _are_scalars(operator, 2, 4) else None


@rule("DynamicQuantizeMatMul", kind="layout-sensitive", domain="com.microsoft")
def dynamic_quantize_matmul(operator: Operator) -> Fact:
    """`a[*b m k], c[*b k n], d[n] -> y[*b m n]`: m, k, n last; scales of c scalars or per n."""
    signature = product_of(operator, 0, 1, (2, 3, 4))
    # All of a is quantized by one scale.
    return None if signature is None else replace(signature, across=frozenset(signature.inputs[0] or ()))


@rule("MatMulNBits", "MatMulBnb4", kind="layout-sensitive", domain="com.microsoft")
def matmul_of_packed(operator: Operator) -> Fact:
    """`a[*b k] -> y[*b n]`: k and n last; the packed weights keep their order."""
    rank = operator.needed_rank(least=1)
    rows = axis_letters(rank - 1, "b")
    return Signature(operator.operands({0: (*rows, "k")}), ((*rows, "n"),), frozenset("kn"), tail=("k", "n"))


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
    return replace(signature, tail=TAILS[flags]) if flags in TAILS else signature.positional()
