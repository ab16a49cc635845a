"""Which layouts there are for images and for kernels; any other is more likely a typing error."""

from __future__ import annotations

from relayout.errors import LayoutError
from relayout.layout import Layout
from relayout.rules.layouts import SPATIAL

USUAL = {
    "images": ("N*C", "NC*", "C*N", "*CN", "*NC"),
    "kernels": ("OI*", "O*I", "*IO", "*OI", "IO*", "I*O"),
}
"""The orders that images and kernels are stored in anywhere; `*` are the spatial axes, together and as D, H, W."""
IMAGES, KERNELS = frozenset("NC"), frozenset("OI")


def parsed_as(text: str, outer: frozenset[str], what: str) -> Layout:
    """Read a layout of images (N, C and 1 to 3 spatial axes) or of kernels (O, I and these)."""
    layout = Layout.parse(text)
    spatial = set(layout.axes) - outer
    if not outer < set(layout.axes) or not spatial <= set(SPATIAL):
        raise LayoutError(f"{text} is no layout of {what}: it names {', '.join(sorted(outer))}, and some of D, H and W")
    _usual(layout, "".join(axis for axis in "DHW" if axis in spatial), what)
    return layout


def _usual(layout: Layout, spatial: str, what: str) -> None:
    """Refuse an order that nobody stores images or kernels in: more likely a typing error than a wish.

    A blocked layout may hold the outer part of an axis anywhere (`NHCW16c`).
    """
    order, usual = "".join(layout.axes), [each.replace("*", spatial) for each in USUAL[what]]
    if layout.is_plain and order not in usual:
        meant = min(usual, key=lambda each: _swaps(order, each))
        raise LayoutError(
            f"{order} is no usual layout of {what}; did you mean {meant!r}? "
            f"(Usual are {', '.join(usual)}; --layout TENSOR=SRC:DST stores one tensor in any order.)"
        )


def _swaps(order: str, other: str) -> int:
    """How many swaps of neighbours lead from one order of axes to another."""
    places = [other.index(axis) for axis in order]
    return sum(place > later for i, place in enumerate(places) for later in places[i + 1 :])
