"""Colours of layouts: a layout that has a name has the same colour wherever a graph is drawn."""

from __future__ import annotations

from collections.abc import Iterable

OWN = {"NHWC": 0, "NCHW": 1, "NWC": 2, "NCW": 3, "NDHWC": 4, "NCDHW": 5}
"""The colours that belong to a layout of images."""
COUNT = 7
"""Colours for layouts; one more is for all layouts beyond them."""


def colour_numbers(layouts: Iterable[str]) -> dict[str, int]:
    """Return the number of each layout's colour, from 0 to `COUNT`; the last is shared by those that are left.

    1. A layout of images has its own colour.
    2. Any other layout gets one that no layout here has, the first layouts first.

    >>> colour_numbers(["NCHW", "n b", "NHWC", "n (h w) c"])
    {'NCHW': 1, 'n b': 6, 'NHWC': 0, 'n (h w) c': 5}
    """
    distinct = list(dict.fromkeys(layouts))
    taken = {OWN[layout] for layout in distinct if layout in OWN}
    free = [number for number in reversed(range(COUNT)) if number not in taken]
    others = (layout for layout in distinct if layout not in OWN)
    numbers = OWN | {layout: free[place] if place < len(free) else COUNT for place, layout in enumerate(others)}
    return {layout: numbers[layout] for layout in distinct}
