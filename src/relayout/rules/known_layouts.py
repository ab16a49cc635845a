"""Which layouts there are for images and for kernels; any other is more likely a typing error."""

from __future__ import annotations

from relayout.errors import LayoutError
from relayout.layout import Layout
from relayout.rules.layouts import SPATIAL, Laid
from relayout.rules.registry import Rule

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


def laid_as(text: str) -> Laid:
    """Read the layouts in which an operator runs: `NHWC`, `NHWC OHWI` or `NCHW->NCHW16c OIHW`.

    Raises:
        LayoutError: it is not so written, is none that images or kernels have, or the two are of different ranks.
    """
    if not isinstance(text, str):
        raise LayoutError(f"{text!r} is no text: layouts are written 'NHWC', or 'NHWC OHWI' with that of the kernel")
    layouts = Laid.parse(text)
    images, *kernels = text.split()
    data = parsed_as(images.partition("->")[0], IMAGES, "images")
    others = [parsed_as(each, IMAGES, "images") for each in images.split("->")[1:]]
    for other in (*others, *(parsed_as(each, KERNELS, "kernels") for each in kernels)):
        if set(other.axes) & set(SPATIAL) != set(data.axes) & set(SPATIAL):
            raise LayoutError(f"{text}: {data} and {other} name different spatial axes")
    return layouts


def why_not(layouts: Laid, rule: Rule) -> str:
    """Why an operator has no layouts such as these; empty if it may have them."""
    if not rule.layouts:
        return (
            "it has no layouts of its own and follows its neighbours; a row for it without layouts claims it in"
            " whatever order they have"
        )
    kernel = next((named for named in rule.layouts.values() if named != "NC"), None)
    if layouts.kernel is not None and kernel is None:
        return f"it has no kernel that could lie in {layouts.kernel}; leave that out"
    return ""


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
