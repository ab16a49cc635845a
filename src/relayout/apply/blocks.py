"""Blocks of channels, as the kernels of a target want them: how images come there, and which CPUs have them."""

from typing import NamedTuple

import onnx_ir as ir

from relayout.infer.sites import Form, Root
from relayout.layout import Extent, product
from relayout.rules import Variant
from relayout.rules.signature import part_of

# Which operands of a node lie in tiles, and are called by shapes in which each tile is joined to its axis.

JOINED = "relayout.joined"
"""In a node's `meta`: (whether it is an output, slot) -> the stored dimensions that make each one that it states."""
Groups = tuple[tuple[int, ...], ...]
BLOCKED: Groups = ((0,), (1, 4), (2,), (3,))  # an image `n c/16 h w 16`


def state_joined(node: ir.Node, variant: Variant) -> None:
    """Note of a node which of its operands it calls by joined shapes."""
    sides = ((False, variant.inputs), (True, variant.outputs))
    joined: dict[tuple[bool, int], Groups] = {}
    for output, slot, letters in ((o, slot, each) for o, side in sides for slot, each in enumerate(side) if each):
        parts = list(enumerate(map(part_of, letters)))
        inner = {part.letter: place for place, part in parts if part.inner}
        if inner:
            outer = [(place, part) for place, part in parts if not part.inner]
            joined[output, slot] = tuple(
                (place, inner[part.letter]) if part.tile else (place,) for place, part in outer
            )
    node.meta[JOINED] = joined


def plain_forms(root: Root, form: Form, tile: int) -> tuple[Form, ...]:
    """The forms of an image that lies in blocks, `n c/16 h w 16`, channels first and last; none where it does not."""
    if len(form) != 1 + max(place for dim in BLOCKED for place in dim):
        return ()
    n, outer, h, w, inner = form
    channels = [root.extents[index] for index in (*outer, *inner)]
    if product(root.extents[index] for index in inner) != Extent.of(tile) or not all(e.is_static for e in channels):
        return ()
    return (n, (*outer, *inner), h, w), (n, h, w, (*outer, *inner))


class BlockSizes(NamedTuple):
    """Kernels that are right for one size of blocks only, which their nodes do not say.

    Args:
        tile: channels in a block.
        domain: the domain of the kernels, and of the transforms.
        into: the operator that brings an image `n c h w` or, with `channels_last`, `n h w c` into blocks.
        back: the one that brings it out of them; it has an attribute `channels` besides.
        features: what a CPU has whose blocks are of that size.
        padded_kernels: operators of ONNX, in one string, in whose constant kernels zeros may be added to make channels
            up to whole blocks.
        padded: operators that may stand between them: of numbers, in whatever channel, they make numbers.
        joining: operators that lay their operands one after another along an attribute `axis`: where that is the
            channels, they do the same whether the shapes name blocks or not.
    """

    tile: int
    domain: str
    into: str
    back: str
    features: str
    padded_kernels: str = ""
    padded: str = ""
    joining: str = ""
