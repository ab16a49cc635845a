"""Choice -> graph: attributes, constants, Transposes."""

from relayout.rewrite.apply import apply

__all__ = ["apply"]
