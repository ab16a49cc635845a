"""Plan -> graph, and graph -> parts."""

from relayout.rewrite.apply import apply
from relayout.rewrite.functions import inline_functions
from relayout.rewrite.kernels import as_kernels, as_transposes, in_blocks, in_full
from relayout.rewrite.regions import REGIONS, Part, as_functions, part_model, parts
from relayout.rewrite.renaming import rename
from relayout.rewrite.sharing import apart, together

__all__ = [
    "REGIONS",
    "Part",
    "apart",
    "apply",
    "as_functions",
    "as_kernels",
    "as_transposes",
    "in_blocks",
    "in_full",
    "inline_functions",
    "part_model",
    "parts",
    "rename",
    "together",
]
