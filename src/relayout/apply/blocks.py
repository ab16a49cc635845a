"""Blocks of channels, as the kernels of a target want them: how images come there, and which CPUs have them."""

from typing import NamedTuple


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
