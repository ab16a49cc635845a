"""Operators that make values from nothing but a shape, and those that draw at random."""

from __future__ import annotations

import numpy as np

from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Placement, Signature


@rule("ConstantOfShape", kind="axis attributes")
def constant_of_shape(operator: Operator) -> Fact:
    """Any order: all elements are equal, and the shape follows, even where it is computed."""
    output, extents = operator.outputs[0], operator.constant(0)
    if output is None:
        return None
    letters = axis_letters(len(output))
    if extents is None or not all(isinstance(dim, int) for dim in output):
        return Signature(
            (None,),
            (letters,),
            block=frozenset(letters),
            changes=lambda p: Changes(gathered={0: (0, tuple(map(letters.index, p.letters(output=True))))}),
        )

    def changes(placement: Placement) -> Changes:
        sizes = [extent.number for extent in placement.extents(output=True)]
        return Changes(inputs={0: np.array(sizes, np.int64)})

    return Signature((None,), (letters,), changes=changes)


@rule("RandomNormal", "RandomUniform", kind="axis attributes")
def random(operator: Operator) -> Fact:
    """Any order: one draw is as good as another, and the shape follows (a seed fixes the order: a barrier)."""
    output = operator.outputs[0]
    if output is None or "seed" in operator.attributes or not all(isinstance(dim, int) for dim in output):
        return None
    return Signature(
        (),
        (axis_letters(len(output)),),
        changes=lambda p: Changes({"shape": tuple(extent.number for extent in p.extents(output=True))}),
    )


@rule("RandomNormalLike", "RandomUniformLike", "Bernoulli", kind="layout-agnostic", draws=True)
def random_like(operator: Operator) -> Fact:
    """Any order: one draw is as good as another (a seed fixes the order: a barrier)."""
    letters = operator.letters()
    return None if "seed" in operator.attributes else Signature((letters,), (letters,))


@rule("EyeLike", kind="axis attributes")
def eye_like(operator: Operator) -> Fact:
    """Both orders: transposed, the diagonal lies on the other side."""
    letters = axis_letters(2)

    def changes(placement: Placement) -> Changes:
        k = operator.int("k", 0)
        return Changes({"k": k if placement.letters() == letters else -k})

    return Signature((letters,), (letters,), frozenset(letters), changes=changes)
