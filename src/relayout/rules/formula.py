"""Signatures of operators whose axes have places, by the letters of each operand: `n c *s`."""

from __future__ import annotations

from collections.abc import Mapping

from relayout.rules.operator import Letters, Operator, axis_letters
from relayout.rules.signature import Signature


def positional(
    operator: Operator,  # the node
    # input -> its letters; `*s` stands for `s0 s1 …`, as many as the first operand with such letters leaves room for
    inputs: Mapping[int, str],
    outputs: str,  # the letters of each output, between commas; more than the node has are left out
    block: str,  # the letters of axes that may hold their factors in any order; those of all others keep their order
    across: str = "",  # the letters of axes along which elements depend on each other
) -> Signature:
    """Return the signature of an operator that exists in the standard's order only.

    Raises:
        ValueError: the rank of the operand with the axes `*s` is not known.
    """
    output_letters = outputs.split(", ")
    shapes = [(text, operator.shape(slot)) for slot, text in inputs.items()]
    shapes += zip(output_letters, operator.outputs, strict=False)
    count = 0
    if (first := next((each for each in shapes if "*" in each[0]), None)) is not None:
        text, shape = first
        if shape is None:
            raise ValueError(f"the rank of an operand of {operator.name} is not known")
        count = len(shape) - len(text.split()) + 1

    def letters(text: str) -> Letters:
        words = ((word,) if word[0] != "*" else axis_letters(count, word[1:]) for word in text.split())
        return tuple(letter for each in words for letter in each)

    read, gives = {slot: letters(text) for slot, text in inputs.items()}, tuple(map(letters, output_letters))
    free, whole = frozenset(letters(block)), frozenset[str]().union(*read.values(), *gives)
    return Signature(
        operator.operands(read), gives[: len(operator.outputs)], whole - free, free, across=frozenset(letters(across))
    ).positional()
