"""Operators that pick or place elements by index."""

from __future__ import annotations

from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, renumbered_axis


@rule("Gather", kind="axis attributes")
def gather(operator: Operator) -> Fact:
    """`x[*a g *b], i[*i] -> y[*a *i *b]`: any order that keeps the indices' axes together; the axis is renumbered.

    Of a list any order of the indices, `x[g], i[*i] -> y[*i]`: a table of results.
    """
    letters, indices = operator.letters(least=1), operator.needed_rank(1)
    if len(letters) == 1:
        free = axis_letters(indices, "i")
        return Signature((letters, free), (free,), frozenset(letters))
    axis = operator.int("axis", 0) % len(letters)
    taken = letters[axis]
    # The axes of the indices stand where the gathered axis stood: one letter, of another extent and in several
    # dimensions, which stay together.
    inner = (taken,) * indices
    output = (*letters[:axis], *inner, *letters[axis + 1 :])
    return Signature((letters, inner), (output,), frozenset({taken}), changes=renumbered_axis(taken))


@rule("GatherElements", kind="axis attributes")
def gather_elements(operator: Operator) -> Fact:
    """Any order, the same for data and indices; the axis is one dimension in order and is renumbered."""
    return _elements(operator, (0, 1))


@rule("ScatterElements", "Scatter", kind="axis attributes")
def scatter_elements(operator: Operator) -> Fact:
    """Any order, the same for data, indices and updates; the axis is one dimension in order and is renumbered."""
    return _elements(operator, (0, 1, 2))


def _elements(operator: Operator, inputs: tuple[int, ...]) -> Signature | None:
    data, indices = operator.shape(), operator.shape(1)
    if not data or indices is None or len(data) != len(indices):
        return None
    letters = axis_letters(len(data))
    axis = letters[operator.int("axis", 0) % len(data)]
    # Where the indices cover only the first items of an axis, its order counts.
    partly = {letter for letter, whole, part in zip(letters, data, indices, strict=True) if whole != part}
    given = operator.operands(dict.fromkeys(inputs, letters))
    return Signature(given, (letters,), frozenset({axis} | partly), changes=renumbered_axis(axis))


@rule("GatherND", kind="axis attributes")
def gather_nd(operator: Operator) -> Fact:
    """`x[*g *r], i[*i t] -> y[*i *r]`: g and i in any order, the index tuples t follow; r last (batch axes first)."""
    return indexed_by_tuples(operator, operator.int("batch_dims", 0))


@rule("GatherND", kind="axis attributes", domain="com.microsoft")
def contributed_gather_nd(operator: Operator) -> Fact:
    """`x[*g *r], i[*i t] -> y[*i *r]`: g and i in any order, the index tuples t follow; r last."""
    return indexed_by_tuples(operator, 0)


def indexed_by_tuples(operator: Operator, batch: int) -> Signature | None:
    """The signature of GatherND with the first `batch` axes shared by data and indices."""
    found = _tuples(operator, batch)
    if found is None:
        return None
    shared, indexed, rest, items = found
    data, indices, output = (*shared, *indexed, *rest), (*shared, *items, "t"), (*shared, *items, *rest)
    whole = frozenset((*indexed, "t"))

    def changes(placement: Placement) -> Changes:
        return Changes({"batch_dims": len(placement.axes(shared))}) if batch else _follow(indexed, placement)

    # Indexed axes and indices' axes come after the shared ones, if there are any, so they keep their order.
    tail = (*indexed, *items, *rest, "t") if batch else (*rest, "t")
    return Signature((data, indices), (output,), whole, tail=tail, changes=changes)


@rule("ScatterND", kind="axis attributes")
def scatter_nd(operator: Operator) -> Fact:
    """`x[*g *r], i[*i t], u[*i *r] -> y[*g *r]`: g and i in any order, the index tuples t follow; r last."""
    found = _tuples(operator, 0)
    if found is None:
        return None
    _, indexed, rest, items = found
    data = (*indexed, *rest)
    return Signature(
        (data, (*items, "t"), (*items, *rest)),
        (data,),
        frozenset((*indexed, "t")),
        tail=(*rest, "t"),
        changes=lambda p: _follow(indexed, p),
    )


def _tuples(operator: Operator, batch: int) -> tuple[Letters, Letters, Letters, Letters] | None:
    """The axes that data and indices share, those that are indexed, those copied, and those of the indices."""
    data, indices = operator.shape(), operator.shape(1)
    if data is None or not indices or not isinstance(indices[-1], int) or not 0 <= batch < len(indices):
        return None
    end, letters = batch + indices[-1], axis_letters(len(data))
    if end > len(data):
        return None
    return letters[:batch], letters[batch:end], letters[end:], axis_letters(len(indices) - 1 - batch, "i")


def _follow(indexed: Letters, placement: Placement) -> Changes:
    stored = tuple(indexed.index(letter) for letter in placement.letters() if letter in indexed)
    if stored == tuple(range(len(indexed))):
        return Changes()
    return Changes(gathered={1: (placement.axis("t", 1), stored)})


@rule("Compress", kind="axis attributes")
def compress(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered (without one: flattened, a barrier)."""
    letters = operator.letters(least=1)
    if "axis" not in operator.attributes:
        return None
    axis = letters[operator.int("axis", 0) % len(letters)]
    return Signature((letters, None), (letters,), frozenset({axis}), changes=renumbered_axis(axis))


@rule("OneHot", kind="axis attributes")
def one_hot(operator: Operator) -> Fact:
    """`i[*a *b] -> y[*a o *b]`: any order; the axis of the new one is renumbered."""
    letters = operator.letters()
    axis = operator.int("axis", -1) % (len(letters) + 1)
    inputs, output = operator.operands({0: letters}), (*letters[:axis], "o", *letters[axis:])
    changes = renumbered_axis("o", output=True)
    return Signature(inputs, (output,), frozenset("o"), changes=changes) if operator.gives(0) else None


@rule("TensorScatter", kind="layout-sensitive")
def tensor_scatter(operator: Operator) -> Fact:
    """`x[n *a s *b], u[n *a s *b], i[n] -> y[n *a s *b]`: n first; the axis s is one dimension and is renumbered."""
    letters = operator.letters(least=2)
    axis = letters[operator.int("axis", -2) % len(letters)]
    inputs = operator.operands({0: letters, 1: letters, 2: letters[:1]})
    return Signature(inputs, (letters,), frozenset({axis}), frozenset(letters)).positional()
