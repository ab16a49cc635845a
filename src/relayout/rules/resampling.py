"""Operators that sample an image anew: resizing, grids, and the exchange of depth and space."""

from __future__ import annotations

from dataclasses import replace

from relayout.rules.convolution import spatial
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Placement, Signature
from relayout.rules.spatial_permutation import turning

ROI_SINCE = 11
"""Opset from which a Resize has a region, and may have sizes."""
SCALES_SINCE = 9
"""Opset from which an Upsample takes its scales as an input."""
CROPPING = "tf_crop_and_resize"
"""The coordinate transformation that reads the roi."""
SHIFTING = (CROPPING, "tf_half_pixel_for_nn")
"""Coordinate transformations that may move an axis even where its extent stays."""


@rule("Resize", "Upsample", kind="layout-sensitive", layouts={0: "NC"})
def resize(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *t]`: positions fixed but for s; the axes that are resized are dimensions in order."""
    # Any order would do by the standard, with sizes, scales, roi and `axes` following; runtimes resize the last axes of
    # an n c *s tensor only, so the source's positions are kept, or the resized axes lie last.
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    resized = frozenset(letters[axis] for axis in _resized(operator, rank))
    # What each input holds for each axis: scales (and sizes) one item, a roi a start and, after all starts, an end.
    parts = {1: 1} if operator.name == "Upsample" or operator.version < ROI_SINCE else {1: 2, 2: 1, 3: 1}
    given = {slot: operator.shape(slot) for slot in parts if operator.has(slot) and operator.shape(slot) != (0,)}
    axes = operator.ints("axes")
    cropped = operator.string("coordinate_transformation_mode", "half_pixel") == CROPPING

    def changes(placement: Placement) -> Changes:
        order = tuple(letters.index(letter) for letter in placement.letters())
        if order == tuple(range(rank)):
            return Changes()
        if axes:
            return Changes({"axes": tuple(order.index(axis) for axis in normalized(axes, rank))})
        # A roi that counts is whole, whatever is known of its length.
        whole = [slot for slot in given if given[slot] == (parts[slot] * rank,) or (slot == 1 and cropped)]
        items = {slot: tuple(axis + part * rank for part in range(parts[slot]) for axis in order) for slot in whole}
        return Changes(gathered={slot: (0, held) for slot, held in items.items()})

    # Of an image whose channels are last (JAX's) the resized axes may lie last, too.
    copied = tuple(letter for letter in letters if letter not in resized)
    usual = (*copied, *(letter for letter in letters if letter in resized)) if len(copied) == 2 else letters
    found = Signature(operator.operands({0: letters}), (letters,), resized, frozenset(letters)).positional()
    told = operator.name == "Upsample" and operator.version < SCALES_SINCE
    # What a Transpose costs behind it is not known where the extents there are not: it stays where it is.
    priced = all(isinstance(dim, int) or dim in (operator.shape() or ()) for dim in operator.outputs[0] or ("",))
    # A cubic Resize gathers single elements along the last axis, which costs more than the Transposes that it saves.
    alike = operator.string("mode", "nearest") != "cubic" and not axes and not told
    if alike and priced and all(shape == (parts[slot] * rank,) for slot, shape in given.items()):
        last = Signature(operator.operands({0: usual}), (usual,)).positional()
        others = (turning(operator, last, usual[2:]) or last).variants
        own = () if usual == letters else (replace(found.variants[0], name="as it is"),)
        found = replace(found, variants=(*own, *(replace(each, follows=bool(own) or each.follows) for each in others)))
    return replace(found, changes=changes)


def _resized(operator: Operator, rank: int) -> tuple[int, ...]:
    """The axes whose elements are not merely copied."""
    axes = normalized(operator.ints("axes") or tuple(range(rank)), rank)
    shape = operator.shape() or ()
    if operator.string("coordinate_transformation_mode", "half_pixel") in SHIFTING:
        return axes
    scales = operator.constant(2 if operator.name == "Resize" and operator.version >= 11 else 1)
    if scales is not None and scales.size == len(axes):
        factors = tuple(float(scale) for scale in scales)
        return tuple(axis for axis, factor in zip(axes, factors, strict=True) if factor != 1)
    sizes = operator.integers(3)
    exact = operator.string("keep_aspect_ratio_policy", "stretch") == "stretch"
    if exact and sizes is not None and len(sizes) == len(axes):
        return tuple(axis for axis, size in zip(axes, sizes, strict=True) if size != shape[axis])
    return axes


@rule("GridSample", kind="layout-sensitive", layouts={0: "NC"})
def grid_sample(operator: Operator) -> Fact:
    """`x[n c *s], grid[n *t q] -> y[n c *t]`: positions fixed; n and c in any order of their factors."""
    return _sampled(operator)


@rule("GridSample", kind="layout-sensitive", domain="com.microsoft", layouts={0: "NC"})
def contributed_grid_sample(operator: Operator) -> Fact:
    """`x[n c *s], grid[n *t q] -> y[n c *t]`: positions fixed; n and c in any order of their factors."""
    return _sampled(operator)


def _sampled(operator: Operator) -> Signature | None:
    rank = operator.rank()
    if rank is None:
        return None
    x, y = spatial(rank, "s"), spatial(rank, "t")
    inputs = (("n", "c", *x), ("n", *y, "q"))
    return Signature(inputs, (("n", "c", *y),), frozenset((*x, *y, "q")), frozenset("nc")).positional()


@rule("AffineGrid", kind="layout-sensitive")
def affine_grid(operator: Operator) -> Fact:
    """`theta[n p q] -> grid[n *t r]`: positions fixed; n in any order of its factors."""
    output = operator.outputs[0]
    if output is None:
        return None
    y = spatial(len(output), "t")
    return Signature(
        (("n", "p", "q"), None), (("n", *y, "r"),), frozenset(("p", "q", "r", *y)), frozenset("n")
    ).positional()


@rule("DepthToSpace", "SpaceToDepth", kind="layout-sensitive", layouts={0: "NC"})
def depth_and_space(operator: Operator) -> Fact:
    """`x[n c h w] -> y[n c h w]`: positions fixed."""
    x, y = ("n", "c", "s0", "s1"), ("n", "o", "t0", "t1")
    return Signature((x,), (y,), frozenset((*x, *y)) - {"n"}, frozenset("n")).positional()
