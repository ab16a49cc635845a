"""Operators on images whose axes of space may change places: what is said axis by axis changes places with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

from relayout.layout import perm as perms
from relayout.rules.operator import Operator
from relayout.rules.signature import Changes, Letters, Placement, Signature, Variant

MOST_AXES = 3
"""Of an image: more have too many orders to list."""
AXIS_BY_AXIS = ("dilations", "kernel_shape", "output_padding", "output_shape", "strides")
"""Attributes that hold one item for each axis of space."""


def turning(operator: Operator, signature: Signature | None, *space: Letters) -> Signature | None:
    """The signature with a variant for every other order of the axes of space, the same on all operands.

    Args:
        operator: the node.
        signature: one with the standard's order as its only variant.
        space: for images, results, kernels: their letters of the axes of space; those at one place belong together.
    """
    count = len(space[0]) if space else 0
    if signature is None or not 1 < count <= MOST_AXES or not _fits(operator, count):
        return signature

    said = {name: found for name in AXIS_BY_AXIS if (found := operator.ints(name)) is not None}
    pads = operator.ints("pads")

    def changes(placement: Placement) -> Changes:
        held = placement.letters()
        if held not in turned:
            return Changes()
        order = tuple(sorted(range(count), key=lambda axis: held.index(space[0][axis])))
        lists = {name: perms.permute(order, found) for name, found in said.items()}
        if pads is not None:
            lists["pads"] = (*perms.permute(order, pads[:count]), *perms.permute(order, pads[count:]))
        return Changes(lists)

    variants = _variants(*signature.variants, space)
    turned = [variant.inputs[0] for variant in variants[1:]]
    return replace(signature, variants=variants, changes=changes)


def _fits(operator: Operator, count: int) -> bool:
    """Whether what is said axis by axis is said of all axes of space, and of no others."""
    attributes = operator.node.attributes
    lists = [name for name in (*AXIS_BY_AXIS, "pads") if name in attributes]
    return all(len(operator.ints(name) or ()) == (2 * count if name == "pads" else count) for name in lists)


@cache
def _variants(plain: Variant, space: tuple[Letters, ...]) -> tuple[Variant, ...]:
    """A variant, and its twins in all other orders of the axes of space."""
    return (plain, *(_turned(plain, space, order) for order in list(permutations(range(len(space[0]))))[1:]))


def _turned(plain: Variant, space: Sequence[Letters], order: Sequence[int]) -> Variant:
    """A variant with its axes of space in another order."""
    other = {letters[place]: letters[axis] for letters in space for place, axis in enumerate(order)}

    def turn(operands: Sequence[Letters | None]) -> tuple[Letters | None, ...]:
        return tuple(held and tuple(other.get(letter, letter) for letter in held) for held in operands)

    return replace(plain, inputs=turn(plain.inputs), outputs=turn(plain.outputs), name="turned", follows=True)
