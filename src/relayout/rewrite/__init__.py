"""Plan -> graph, and graph -> parts."""

from relayout.rewrite.apply import apply
from relayout.rewrite.folding import fold_scales
from relayout.rewrite.functions import inline_functions
from relayout.rewrite.fusing import fuse_kernels
from relayout.rewrite.joining import join_tiles
from relayout.rewrite.moves import in_two_steps
from relayout.rewrite.padding import pad_channels
from relayout.rewrite.regions import Part, as_functions, part_model, parts
from relayout.rewrite.renaming import rename
from relayout.rewrite.units import fuse_units

__all__ = [
    "Part",
    "apply",
    "as_functions",
    "fold_scales",
    "fuse_kernels",
    "fuse_units",
    "in_two_steps",
    "inline_functions",
    "join_tiles",
    "pad_channels",
    "part_model",
    "parts",
    "rename",
]
