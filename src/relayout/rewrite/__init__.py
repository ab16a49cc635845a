"""Plan -> graph."""

from relayout.rewrite.apply import apply
from relayout.rewrite.functions import inline_functions
from relayout.rewrite.renaming import rename

__all__ = ["apply", "inline_functions", "rename"]
