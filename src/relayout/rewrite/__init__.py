"""Choice -> graph: attributes, constants, Transposes."""

from relayout.rewrite.apply import apply
from relayout.rewrite.renaming import rename

__all__ = ["apply", "rename"]
