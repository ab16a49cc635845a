"""Reasons for which a `.tflite` that comes back has more operators than its source, found from the operators alone."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: tuple[tuple[frozenset[str], frozenset[str], str], ...] = ()
"""Operators that went, operators that came (any of either), and why. The first row that fits counts."""


UNKNOWN = "no reason is known"


def reason_of(gone: Mapping[str, int], added: Mapping[str, int]) -> str:
    """Return the reason of the first row that fits; without one, the operators themselves."""
    for went, came, why in REASONS:
        if (not went or went & gone.keys()) and (not came or came & added.keys()):
            return why
    said = [", ".join(sorted(names)) or "none" for names in (gone, added)]
    return f"{UNKNOWN}: {said[0]} became {said[1]}"
