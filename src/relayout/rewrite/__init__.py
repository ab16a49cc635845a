"""Plan -> graph."""

from relayout.rewrite.apply import apply
from relayout.rewrite.functions import inline_functions

__all__ = ["apply", "inline_functions"]
