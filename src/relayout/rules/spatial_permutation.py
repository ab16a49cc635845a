"""Operators on images whose axes of space may change places: what is said axis by axis changes places with them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations

from relayout.layout import perm as perms
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.signature import Changes, Letters, Placement, Signature, Variant

MOST_AXES = 3  # of an image: more have too many orders to list
AXIS_BY_AXIS = ("dilations", "kernel_shape", "output_padding", "output_shape", "strides")
"""Attributes that hold one item for each axis of space."""


def turning(
    operator: Operator,  # the node
    signature: Signature,  # one with the standard's order as its only variant
    # letters of the axes of space, of which those at one place belong together; by default those of images (`s0 …`),
    # results (`t0 …`) and kernels (`k0 …`)
    *space: Letters,
) -> Signature:
    """Return the signature with a variant for every other order of the axes of space, the same on all operands."""
    space = space or tuple(axis_letters((operator.rank() or 0) - 2, each) for each in "stk")
    count = len(space[0])
    lists = [name for name in (*AXIS_BY_AXIS, "pads") if name in operator.attributes]
    # What is said axis by axis must be said of all axes of space, and of no others.
    if any(len(operator.ints(name) or ()) != (2 * count if name == "pads" else count) for name in lists):
        return signature
    if not 1 < count <= MOST_AXES:
        return signature
    said = {name: numbers for name in AXIS_BY_AXIS if (numbers := operator.ints(name)) is not None}
    pads = operator.ints("pads")

    def changes(placement: Placement) -> Changes:
        letters = placement.letters()
        if letters not in turned:
            return Changes()
        order = tuple(sorted(range(count), key=lambda axis: letters.index(space[0][axis])))
        lists = {name: perms.permute(order, numbers) for name, numbers in said.items()}
        if pads is not None:
            lists["pads"] = (*perms.permute(order, pads[:count]), *perms.permute(order, pads[count:]))
        return Changes(lists)

    variants = _variants(*signature.variants, space)
    turned = [variant.inputs[0] for variant in variants[1:]]
    return replace(signature, variants=variants, changes=changes)


@cache
def _variants(plain: Variant, space: tuple[Letters, ...]) -> tuple[Variant, ...]:
    """Return a variant, and its twins in all other orders of the axes of space."""
    variants = [plain]
    for order in list(permutations(range(len(space[0]))))[1:]:
        other = {letters[place]: letters[axis] for letters in space for place, axis in enumerate(order)}
        inputs, outputs = (
            tuple(operand and tuple(other.get(letter, letter) for letter in operand) for operand in operands)
            for operands in (plain.inputs, plain.outputs)
        )
        variants.append(replace(plain, inputs=inputs, outputs=outputs, name="turned", follows=True))
    return tuple(variants)
