"""Einsum: its equation is an axis signature already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from string import ascii_letters

from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Permuted, Placement, Signature


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
    tail = _common([tuple(letter for letter in letters if letter not in batch) for letters in terms])
    leads = all(batch.issuperset(letters[: len(batch)]) for letters in terms)
    agreed = len({tuple(letter for letter in letters if letter in batch) for letters in terms}) == 1
    if not agreed or (len(inputs) > 1 and (tail is None or not leads)):
        return Signature(tuple(inputs), (output,), changes=_rewritten).positional()
    return Signature(tuple(inputs), (output,), tail=tail if len(inputs) > 1 and tail else (), changes=_rewritten)


def terms_of(operator: Operator) -> list[Letters] | None:
    """Return the letters of each input, then of the output; None where a rank is unknown, or an axis not one axis."""
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
    output = _subscripts(right, hidden, None) if arrow else _implied(inputs, hidden)
    if any(_repeats(letters) for letters in (*inputs, output)) or (hidden and _broadcasts(operator, inputs)):
        return None
    return [*inputs, output]


def _common(operands: Sequence[Letters]) -> Letters | None:
    """An order that all operands agree with; None where there is none."""
    order = Signature(tuple(operands), ()).letters
    fits = all(tuple(sorted(letters, key=order.index)) == letters for letters in operands)
    return order if fits else None


def _repeats(letters: Letters) -> bool:
    """Whether a term takes a diagonal."""
    return len(set(letters)) != len(letters)


def _subscripts(term: str, hidden: Letters, rank: int | None) -> Letters:
    """One letter per dimension of a term; those of an ellipsis are `hidden`, as many as the rank leaves (all: None)."""
    before, dots, after = term.partition("...")
    if not dots:
        return tuple(term)
    count = len(hidden) if rank is None else rank - len(before) - len(after)
    return (*before, *hidden[len(hidden) - count :], *after)


def _implied(inputs: list[Letters], hidden: Letters) -> Letters:
    """The output of an equation without an arrow: the ellipsis, then what occurs once, in alphabetical order."""
    times = Counter(letter for letters in inputs for letter in letters)
    return (*hidden, *sorted(letter for letter, count in times.items() if count == 1 and letter not in hidden))


def _broadcasts(operator: Operator, inputs: list[Letters]) -> bool:
    """Whether an axis has several extents: some are 1 and stretched."""
    extents: dict[str, object] = {}
    for index, letters in enumerate(inputs):
        for letter, extent in zip(letters, operator.shape(index) or (), strict=True):
            if extents.setdefault(letter, extent) != extent:
                return True
    return False


def _rewritten(placement: Placement) -> Changes:
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
