"""Operators that sample an image anew: resizing, grids, and the exchange of depth and space."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from relayout.layout import Dim, Extent, product
from relayout.rules.formula import positional
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant
from relayout.rules.spatial_permutation import turning

ROI_SINCE = 11  # opset from which a Resize has a region, and may have sizes
SCALES_SINCE = 9  # opset from which an Upsample takes its scales as an input
ROI, SCALES, SIZES = 1, 2, 3  # inputs of a Resize that has a region
CROPPING = "tf_crop_and_resize"  # the coordinate transformation that reads the roi
SHIFTING = (CROPPING, "tf_half_pixel_for_nn")
"""Coordinate transformations that may move an axis even where its extent stays."""


@rule("Resize", "Upsample", kind="layout-sensitive", layouts={0: "NC"})
def resize(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *t]`: positions fixed but for s; the axes that are resized are dimensions in order."""
    # Any order would do by the standard, with sizes, scales, roi and `axes` following; runtimes resize the last axes of
    # an n c *s tensor only, so the source's positions are kept, or the resized axes lie last.
    rank = operator.needed_rank()
    letters = axis_letters(rank)
    resized = frozenset(letters[axis] for axis in _resized(operator, rank))
    signature = Signature(operator.operands({0: letters}), (letters,), resized, frozenset(letters)).positional()
    signature = replace(
        signature, changes=_following(operator, letters), price=_uncertainty(operator, letters), grows=resized
    )
    # Of an image whose channels are last (JAX's) the resized axes may lie last, too.
    known = _standard(operator, rank)
    order = tuple(range(rank)) if known is None else known
    others = _ways(operator, letters, order)
    # They may be: an operand shows it by how it comes. Scales or sizes that a user feeds may resize any axes, in orders
    # that runtimes do not have.
    if known is None and not any(v is not None and v.is_graph_input() for v in operator.node.inputs[1:]):
        last, *_ = _ways(operator, letters, (0, rank - 1, *range(1, rank - 1)))
        others += (replace(last, name="channels last"),)
    if order == tuple(range(rank)):
        return replace(signature, variants=(others[0], *(replace(each, follows=True) for each in others[1:])))
    own = replace(signature.variants[0], name="as it is")
    return replace(signature, variants=(own, *(replace(each, follows=True) for each in others)))


def _ways(operator: Operator, letters: Letters, order: Sequence[int]) -> tuple[Variant, ...]:
    """List the variant whose operands have their axes in this order, and those with the axes of space turned."""
    usual = tuple(letters[axis] for axis in order)
    signature = Signature(operator.operands({0: usual}), (usual,)).positional()
    return turning(operator, signature, usual[2:]).variants


def _uncertainty(operator: Operator, letters: Letters) -> Callable[[Placement], int] | None:
    """Price every order but the source's, where it is not known which is larger: what is read, or what is given.

    It is what a Transpose would seem to save on the other side, so that none goes there; that two go is worth more.
    """
    pairs = [(Extent.of(input_extent), Extent.of(output_extent)) for input_extent, output_extent in _extents(operator)]
    known = (a == b or (a.is_static and b.is_static) or b.divide(a) is not None for a, b in pairs)
    if all(known):
        return None
    width = operator.width(0)

    def price(placement: Placement) -> int:
        if placement.letters() == letters:
            return 0
        input_size, output_size = (product(placement.extents(0, output=output)).number for output in (False, True))
        return width * abs(input_size - output_size)

    return price


def _following(operator: Operator, letters: Letters) -> Callable[[Placement], Changes]:
    """Return how scales, sizes, regions and axes follow the axes of a Resize."""
    rank = len(letters)
    axes, scales = operator.ints("axes"), operator.floats("scales")
    slots = _by_axis(operator, rank)

    def changes(placement: Placement) -> Changes:
        order = tuple(letters.index(letter) for letter in placement.letters())
        if order == tuple(range(rank)):
            return Changes()
        if axes:
            return Changes({"axes": tuple(order.index(axis) for axis in normalized(axes, rank))})
        items = {slot: tuple(axis + part * rank for part in range(parts) for axis in order) for slot, parts in slots}
        said = {"scales": tuple(scales[axis] for axis in order)} if scales and len(scales) == rank else {}
        return Changes(said, gathered={slot: (0, indices) for slot, indices in items.items()})

    return changes


def _by_axis(operator: Operator, rank: int) -> tuple[tuple[int, int], ...]:
    """List the inputs that hold something for every axis, and how much: scales and sizes one item, a roi two.

    A roi has a start for each axis and, after all starts, an end. Where a length is not known, an input that counts is
    whole.
    """
    if operator.name == "Upsample" or operator.version < ROI_SINCE:
        return ((1, 1),) if operator.has(1) else ()
    scaled = operator.shape(SCALES) != (0,) and not operator.has(SIZES)
    cropped = operator.string("coordinate_transformation_mode", "half_pixel") == CROPPING
    counts = {ROI: cropped, SCALES: scaled, SIZES: True}
    parts = {ROI: 2, SCALES: 1, SIZES: 1}
    return tuple(
        (slot, parts[slot])
        for slot in parts
        if operator.has(slot) and (counts[slot] or operator.shape(slot) == (parts[slot] * rank,))
    )


def _standard(operator: Operator, rank: int) -> tuple[int, ...] | None:
    """List the axes in the standard's order: what is copied comes first, if that is a batch and channels.

    A batch that a file resizes to a stated 1 is one all the same. Where nothing is known to be copied, channels are
    last if their extent is a number and that of axis 1 is open; None where that tells nothing, either.
    """
    copied = set(range(rank)) - set(_resized(operator, rank))
    if not copied:
        copied = {axis for axis, (input_dim, output_dim) in enumerate(_extents(operator)) if input_dim == output_dim}
    if not copied and rank > 2 and not operator.ints("axes"):
        shape = operator.shape() or ()
        if isinstance(shape[1], int) or not isinstance(shape[-1], int):
            return None
        copied = {0, rank - 1}
    if len(copied) == 1 and 0 not in copied:
        copied.add(0)
    if len(copied) != 2:
        return tuple(range(rank))
    return (*sorted(copied), *(axis for axis in range(rank) if axis not in copied))


def _extents(operator: Operator) -> list[tuple[Dim, Dim]]:
    """Pair the extents of each axis before and behind; one that is not known has a name of its own."""
    before, after = operator.shape() or (), operator.outputs[0] or ()
    pairs = zip(before, after, strict=True) if len(before) == len(after) else ()
    return [(input_dim or "?read", output_dim or "?given") for input_dim, output_dim in pairs]


def _resized(operator: Operator, rank: int) -> tuple[int, ...]:
    """Return the axes whose elements are not merely copied."""
    axes = normalized(operator.ints("axes") or tuple(range(rank)), rank)
    shape = operator.shape() or ()
    if operator.string("coordinate_transformation_mode", "half_pixel") in SHIFTING:
        return axes
    scales = _scales(operator)
    if scales is not None and len(scales) == len(axes):
        return tuple(axis for axis, factor in zip(axes, scales, strict=True) if factor != 1)
    if operator.string("keep_aspect_ratio_policy", "stretch") != "stretch" or not operator.has(SIZES):
        return axes
    sizes = operator.integers(SIZES)
    if sizes is not None and len(sizes) == len(axes):
        return tuple(axis for axis, size in zip(axes, sizes, strict=True) if size != shape[axis])
    # What stays as long as it is by sizes is copied, whoever computes them.
    extents = _extents(operator)
    return tuple(axis for axis in axes if not extents or extents[axis][0] != extents[axis][1])


def _scales(operator: Operator) -> Sequence[Any] | None:
    """Return the scales, where they are no matter of run time."""
    if operator.name == "Upsample" and operator.version < SCALES_SINCE:
        return operator.floats("scales")
    known = operator.constant(SCALES if operator.name == "Resize" and operator.version >= ROI_SINCE else 1)
    return None if known is None else known.reshape(-1).tolist()


@rule("GridSample", kind="layout-sensitive", layouts={0: "NC"})
@rule("GridSample", kind="layout-sensitive", domain="com.microsoft", layouts={0: "NC"})
def grid_sample(operator: Operator) -> Fact:
    """`x[n c *s], grid[n *t q] -> y[n c *t]`: positions fixed; n and c in any order of their factors."""
    return positional(operator, {0: "n c *s", 1: "n *t q"}, "n c *t", "n c")


@rule("AffineGrid", kind="layout-sensitive")
def affine_grid(operator: Operator) -> Fact:
    """`theta[n p q] -> grid[n *t r]`: positions fixed; n in any order of its factors."""
    return positional(operator, {0: "n p q"}, "n *t r", "n")


@rule("DepthToSpace", "SpaceToDepth", kind="layout-sensitive", layouts={0: "NC"})
def depth_and_space(operator: Operator) -> Fact:
    """`x[n c h w] -> y[n c h w]`: positions fixed."""
    return positional(operator, {0: "n c s0 s1"}, "n o t0 t1", "n")
