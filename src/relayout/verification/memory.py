"""How much memory the machine has, by which the room for values is measured."""

from __future__ import annotations

import os

USUAL_MEMORY = 8 << 30
"""Bytes of memory of a machine that does not say how much it has."""


def memory_of_machine() -> int:
    """Return the bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no such call
        return USUAL_MEMORY
