"""Plan -> graph, and graph -> parts."""

from relayout.rewrite.apply import apply
from relayout.rewrite.functions import inline_functions
from relayout.rewrite.regions import Part, as_functions, part_model, parts
from relayout.rewrite.renaming import rename

__all__ = ["Part", "apply", "as_functions", "inline_functions", "part_model", "parts", "rename"]
