"""The lowering passes that a target may list, what each requires of a graph, and what no longer holds behind it.

A target's list is checked against these rows when the target is created. Passes of which neither ends what the other
requires may stand in any order.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relayout.errors import LayoutError, nearest

UNITS = "quantized units as in the source"
CHANNELS = "channels as in the source"
CONVOLUTIONS = "convolutions of the standard"
TRANSPOSES = "Transposes as the plan has them"
SHAPES = "shapes that name each axis"


class PassRow(NamedTuple):
    """One lowering pass.

    Args:
        name: how a target lists it.
        line: what a report says of it.
        requires: facts that must hold of a graph before it.
        ends: facts that no longer hold behind it.
        after: whether it runs after layouts are chosen.
    """

    name: str
    line: str
    requires: frozenset[str]
    ends: frozenset[str] = frozenset()
    after: bool = False


def _row(name: str, line: str, requires: set[str], ends: str = "", *, after: bool = False) -> PassRow:
    return PassRow(name, line, frozenset(requires), frozenset({ends} if ends else ()), after)


PASSES: Mapping[str, PassRow] = {
    row.name: row
    for row in (
        _row("qlinear-to-qdq", "operators on integers as quantized units", {UNITS}),
        _row("recognise-gelu", "operators that were spelled out", {UNITS}),
        _row("drop-expand", "Expands that their readers do themselves", set()),
        _row("keep-integers", "quantized units that stay on integers", {UNITS}),
        _row("decompose", "operators that take less time as others", {UNITS}),
        _row("keep-float", "quantized units that stay on real numbers", {UNITS}),
        _row("qdq-to-integer", "quantized units that run on integers", {UNITS}, UNITS),
        _row("fold-affine", "scales and shifts in the weights of convolutions", {CHANNELS, CONVOLUTIONS}),
        _row("pad-channels", "values with more channels", {CONVOLUTIONS}, CHANNELS),
        _row("fuse-epilogue", "taken in by the convolutions before them", {CONVOLUTIONS}, CONVOLUTIONS),
        _row("split-transposes", "Transposes in two steps", {TRANSPOSES}, TRANSPOSES, after=True),
        _row("int8-weights-to-uint8", "kernels of int8 stored as uint8", {SHAPES}, after=True),
        _row("merge-block-dims", "kernels in blocks of channels", {SHAPES}, SHAPES, after=True),
    )
}
"""Name -> pass, in the order in which a target has them that says nothing."""
IN_ORDER = tuple(PASSES)
"""Every pass: one whose rows a target does not have does nothing."""


def check_passes(names: Sequence[str], where: str = "") -> None:
    """Hold a list of passes to what each requires.

    Raises:
        LayoutError: a pass is not known, is listed twice, or stands behind one that ends what it requires.
    """
    ended: dict[str, str] = {}
    met: set[str] = set()
    for name in names:
        row = PASSES.get(name)
        if row is None:
            raise LayoutError(f"{where}there is no lowering pass {name!r}{nearest(name, list(PASSES))}")
        if name in met:
            raise LayoutError(f"{where}lowering pass {name!r} is listed twice")
        if not row.after and any(PASSES[other].after for other in met):
            raise LayoutError(f"{where}{name!r} runs before layouts are chosen: list it before those that run after")
        for fact in sorted(row.requires & ended.keys()):
            raise LayoutError(f"{where}{name!r} requires {fact}, which {ended[fact]!r} before it ends: swap them")
        ended |= dict.fromkeys(row.ends, name)
        met.add(name)
