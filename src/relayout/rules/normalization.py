"""Normalizations: over a channel's elements, over the last axes, or over groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.rules.convolution import spatial
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant, Written
from relayout.rules.turning import turning

PARAMETERS = 5
"""Operands of a BatchNormalization."""
AFFINE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types in which runtimes normalize by a product and a sum; halves they normalize in single precision."""
NORMALIZING = ("epsilon", "momentum", "spatial", "training_mode")
"""Attributes of a BatchNormalization."""
LEAST_CHANNELS = 128
"""From how many channels on ONNX Runtime's CPU takes no longer for a product and a sum than for the normalization and
two Transposes: 2.9 times as long with 16, 1.3 with 64, 0.85 with 128, 0.4 with 256 (an image of 56 x 56)."""
AFFINE_SINCE = 7
"""The opset from which a Mul stretches its operands as numpy does."""


@rule("BatchNormalization", kind="layout-sensitive", layouts={0: "NC"})
def batch_normalization(operator: Operator) -> Fact:
    """`x[n c *s], scale[c] -> y[n c *s]`: positions fixed but for s; with constants c last, too, as Mul and Add."""
    rank = operator.rank()
    if rank is None or not operator.int("spatial", 1):
        return None
    letters = ("n", "c", *spatial(rank, "s")) if rank > 1 else ("n",)
    inputs = operator.operands({0: letters, **dict.fromkeys(range(1, len(operator.inputs)), ("c",))})
    outputs = (letters, *((("c",),) * (len(operator.outputs) - 1)))
    found = turning(operator, Signature(inputs, outputs, block=frozenset(letters)).positional(), letters[2:])
    if found is None or rank < 3 or not _is_affine(operator):
        return found
    epsilon = operator.node.attributes.get_float("epsilon", 1e-5)
    written = Written("", "Mul", dict.fromkeys(NORMALIZING), then=("Add",), constants=partial(_affine, epsilon))
    channels = operator.extent(0, 1)
    costly = channels is None or not channels.is_static or channels.number < LEAST_CHANNELS
    others = (_channels_last(each, written, costly) for each in found.variants)
    return replace(found, variants=(*found.variants, *others))


def _is_affine(operator: Operator) -> bool:
    """Whether a BatchNormalization is a product and a sum with constants, of the type that it reads."""
    values = operator.node.inputs
    trained = operator.int("training_mode", 0) or any(map(operator.gives, range(1, len(operator.outputs))))
    if trained or operator.version < AFFINE_SINCE or len(values) != PARAMETERS:
        return False
    kinds = {None if value is None else value.dtype for value in values}
    return (
        len(kinds) == 1
        and kinds <= {*AFFINE}
        and all(operator.constant(slot) is not None for slot in range(1, PARAMETERS))
    )


def _affine(epsilon: float, given: Sequence[NDArray[np.generic]]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
    """`a x + b` of a normalization: computed in double precision, in the type of its scale."""
    scale, bias, mean, variance = (each.astype(np.float64) for each in given)
    with np.errstate(all="ignore"):  # without a variance it is infinite, as the normalization is
        factor = scale / np.sqrt(variance + epsilon)
        return factor.astype(given[0].dtype), (bias - mean * factor).astype(given[0].dtype)


def _channels_last(variant: Variant, written: Written, costly: bool) -> Variant:
    """A variant with its channels behind all else, where something comes so."""

    def last(operands: Sequence[Letters | None]) -> tuple[Letters | None, ...]:
        return tuple(held and tuple(sorted(held, key=lambda letter: letter == "c")) for held in operands)

    inputs, outputs = last(variant.inputs), last(variant.outputs)
    found = replace(variant, inputs=inputs, outputs=outputs, name="a product and a sum", follows=True)
    return replace(found, written=written, costly=costly)


@rule("InstanceNormalization", kind="layout-sensitive", layouts={0: "NC"})
def instance_normalization(operator: Operator) -> Fact:
    """`x[n c *s], scale[c] -> y[n c *s]`: positions fixed but for the order of s; all axes in any order of factors."""
    rank = operator.rank()
    if rank is None or operator.version < 6:
        return None
    letters = ("n", "c", *spatial(rank, "s"))
    inputs = operator.operands({0: letters, 1: ("c",), 2: ("c",)})
    return turning(operator, Signature(inputs, (letters,), block=frozenset(letters)).positional(), letters[2:])


@rule("GroupNormalization", kind="layout-sensitive", layouts={0: "NC"})
def group_normalization(operator: Operator) -> Fact:
    """`x[n c *s], scale[c] -> y[n c *s]`: positions fixed but for s; a group is a run of channels."""
    rank = operator.rank()
    if rank is None:
        return None
    letters = ("n", "c", *spatial(rank, "s"))
    each = ("c",) if operator.version >= 21 else ("g",)
    inputs = operator.operands({0: letters, 1: each, 2: each})
    found = Signature(inputs, (letters,), frozenset("cg"), frozenset(letters) - {"c"}).positional()
    return turning(operator, found, letters[2:])


@rule("MeanVarianceNormalization", kind="layout-sensitive", layouts={0: "NC"})
def mean_variance_normalization(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: positions fixed; all axes in any order of their factors."""
    # Any axes would do by the standard; runtimes know those of an n c h w tensor only.
    rank = operator.rank()
    if rank is None:
        return None
    letters = axis_letters(rank)
    return Signature((letters,), (letters,), block=frozenset(letters)).positional()


def over_last(operator: Operator, axis: int, scales: tuple[int, ...]) -> Signature | None:
    """The signature of a normalization over all axes from one on; `scales` are inputs that stretch to these."""
    shape = operator.shape()
    if not shape:
        return None
    letters = axis_letters(len(shape))
    tail = letters[axis % len(shape) :]
    given = {0: letters}
    for index in scales:
        held = operator.inputs[index] if operator.has(index) else ()
        extra = max(0, len(held or ()) - len(tail))
        if any(extent != 1 for extent in (held or ())[:extra]):
            return None  # a scale for each position beside those that are normalized
        given[index] = axis_letters(extra, "one") + tail[len(tail) + extra - len(held or ()) :]

    def changes(placement: Placement) -> Changes:
        return Changes({"axis": placement.axes(tail)[0]})

    return Signature(
        operator.operands(given), operator.results(letters), block=frozenset(tail), tail=tail, changes=changes
    )


@rule("LayerNormalization", "SimplifiedLayerNormalization", kind="axis attributes")
def layer_normalization(operator: Operator) -> Fact:
    """`x[*d *c], scale[*c] -> y[*d *c], mean[*d *1]`: c last and in order of axes; d in any order."""
    return over_last(operator, operator.int("axis", -1), (1, 2))


@rule("RMSNormalization", kind="axis attributes")
def rms_normalization(operator: Operator) -> Fact:
    """`x[*d *c], scale[*c] -> y[*d *c]`: c last and in order of axes; d in any order."""
    return over_last(operator, operator.int("axis", -1), (1,))


@rule("SkipLayerNormalization", kind="axis attributes", domain="com.microsoft")
def skip_layer_normalization(operator: Operator) -> Fact:
    """`x[*d c], skip[*d c], scale[c] -> y[*d c]`: c last; d in any order."""
    return _with_skip(operator, (2, 3, 4))


@rule("SkipSimplifiedLayerNormalization", kind="axis attributes", domain="com.microsoft")
def skip_simplified_layer_normalization(operator: Operator) -> Fact:
    """`x[*d c], skip[*d c], scale[c] -> y[*d c]`: c last; d in any order."""
    return _with_skip(operator, (2, 3))


def _with_skip(operator: Operator, scales: tuple[int, ...]) -> Signature | None:
    rank = operator.rank()
    if not rank or operator.shape() != operator.shape(1):
        return None  # the skip is stretched over the batch
    letters = axis_letters(rank)
    inputs = operator.operands({0: letters, 1: letters, **dict.fromkeys(scales, letters[-1:])})
    # Kernels count the dimensions, so none may lie in pieces.
    return Signature(inputs, operator.results(letters), block=frozenset(letters), tail=letters[-1:])
