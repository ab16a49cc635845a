"""Pools, and other operators on windows of an image."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relayout.rules.convolution import in_both_layouts, spatial
from relayout.rules.formula import positional
from relayout.rules.normalization import AXES_AS_INPUT
from relayout.rules.operator import Operator
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Placement, Signature
from relayout.rules.spatial_permutation import turning


def pooled(operator: Operator) -> Signature:
    """Return the signature of a pool: the axes of a window keep their order."""
    return positional(operator, {0: "n c *s"}, "n c *t", "n c")


def pooled_at_once(operator: Operator) -> Signature:
    """Return the signature of a pool over the whole image, whose axes may hold their factors in any order."""
    signature = pooled(operator)
    return replace(signature, block=signature.block | signature.whole, whole=frozenset())


@rule("AveragePool", "LpPool", kind="layout-sensitive", layouts={0: "NC"})
def pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: positions fixed but for s, whose axes may lie in any order."""
    return turning(operator, pooled(operator))


REDUCING = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
"""Pool over the whole image -> the reduction that it is, which knows no channels."""


@rule("GlobalAveragePool", "GlobalMaxPool", kind="layout-sensitive", layouts={0: "NC"})
def global_reduction(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *1]`: any order, even in pieces; other than with n and c first it is a reduction over s."""
    rank = operator.rank()
    if rank is None or rank < 3:
        return turning(operator, pooled_at_once(operator))
    space = spatial(rank, "s")

    def changes(placement: Placement) -> Changes:
        where = placement.axes(space)
        if placement.letters()[:2] == ("n", "c") and len(where) == len(placement.letters()) - 2:
            return Changes()
        name = REDUCING[operator.name]
        if operator.version < AXES_AS_INPUT:
            return Changes({"axes": where}, op_type=name)
        return Changes(inputs={1: np.array(where, np.int64)}, op_type=name)

    letters = ("n", "c", *space)
    return Signature((letters,), (letters,), changes=changes, across=frozenset(space))


@rule("GlobalLpPool", kind="layout-sensitive", layouts={0: "NC"})
def global_pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *1]`: positions fixed but for s, whose axes may lie in any order."""
    return turning(operator, pooled_at_once(operator))


@rule("QLinearAveragePool", kind="layout-sensitive", domain="com.microsoft")
def qlinear_average_pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]` or, with `channels_last`, `x[n *s c] -> y[n *s c]`."""
    return in_both_layouts(operator, pooled)


@rule("QLinearGlobalAveragePool", kind="layout-sensitive", domain="com.microsoft")
def qlinear_global_average_pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *1]` or, with `channels_last`, `x[n *s c] -> y[n *1 c]`."""
    return in_both_layouts(operator, pooled_at_once)


@rule("NhwcMaxPool", kind="layout-sensitive", domain="com.microsoft")
def nhwc_max_pool(operator: Operator) -> Fact:
    """`x[n *s c] -> y[n *s c]`: positions fixed."""
    return positional(operator, {0: "n *s c"}, "n *t c", "n c")


@rule("MaxPool", kind="layout-sensitive", layouts={0: "NC"})
def max_pool(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: positions fixed but for s; indices count into the flattened input."""
    signature = pooled(operator)
    outputs = operator.results(signature.outputs[0] or ())
    if operator.gives(1):
        return replace(signature, outputs=outputs, whole=signature.whole | frozenset("nc")).positional()
    return turning(operator, replace(signature, outputs=outputs).positional())


@rule("MaxUnpool", kind="layout-sensitive", layouts={0: "NC", 1: "NC"})
def max_unpool(operator: Operator) -> Fact:
    """`x[n c *s], i[n c *s] -> y[n c *s]`: positions fixed; indices count into the flattened output."""
    return positional(operator, {0: "n c *s", 1: "n c *s"}, "n c *t", "")


@rule("LRN", kind="layout-sensitive", layouts={0: "NC"})
def lrn(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: neighbours in c are summed, so c keeps its place and its order; s in any."""
    rank = operator.needed_rank()
    letters = ("n", "c", *spatial(rank, "s"))
    signature = Signature((letters,), (letters,), frozenset("c"), frozenset(letters)).positional()
    return turning(operator, signature)


@rule("ImageScaler", kind="layout-sensitive")
def image_scaler(operator: Operator) -> Fact:
    """`x[n c h w] -> y[n c h w]`: an attribute has a number for each c, which keeps its place and its order."""
    letters = ("n", "c", "s0", "s1")
    return Signature((letters,), (letters,), frozenset("c"), frozenset(letters)).positional()


@rule("Crop", kind="layout-sensitive")
def crop(operator: Operator) -> Fact:
    """`x[n c h w] -> y[n c *t]`: attributes say what is cut off; n and c in any order of their factors."""
    return positional(operator, {0: "n c s0 s1"}, "n c t0 t1", "n c")


@rule("RoiAlign", kind="layout-sensitive", layouts={0: "NC"})
@rule("CropAndResize", kind="layout-sensitive", domain="com.microsoft", layouts={0: "NC"})
@rule("MaxRoiPool", kind="layout-sensitive", layouts={0: "NC"})
def regions(operator: Operator) -> Fact:
    """`x[n c h w], rois[r q], i[r] -> y[r c *t]`: MaxRoiPool has no i; positions fixed; r and c in any order."""
    return positional(operator, {0: "n c s0 s1", 1: "r q", 2: "r"}, "r c t0 t1", "r c")
