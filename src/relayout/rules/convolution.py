"""Convolutions, plain, quantized and deformable: positions fixed; a constant kernel follows its channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relayout.layout import Extent
from relayout.rules.formula import positional
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant
from relayout.rules.spatial_permutation import turning


def spatial(rank: int, prefix: str) -> Letters:
    """Letters for the axes of an image after n and c."""
    return axis_letters(rank - 2, prefix)


def per_channel(operator: Operator, indices: Sequence[int], letter: str) -> dict[int, str]:
    """Parameters that hold one item per channel; a scalar keeps its own order."""
    return {index: letter for index in indices if operator.rank(index) == 1}


def convolved(
    operator: Operator,  # the node
    kernel: int,  # the input that holds the kernel
    channels: Sequence[int],  # inputs with one item per output channel, or scalars
    alike: Sequence[int] = (),  # inputs of the output's shape
) -> Signature | None:
    """Return the signature of a convolution of input 0."""
    rank, weights = operator.rank(), operator.shape(kernel)
    if rank is None or weights is None or len(weights) != rank:
        return None
    groups, kernels, inputs = operator.int("group", 1), Extent.of(weights[0]), operator.extent(0, 1)
    # Without groups both channels may hold their factors in any order. Depthwise, they are one axis. Between the two a
    # group is a run of channels, which keep their order.
    if groups == 1:
        i, o, block = "c", "o", "n c o"
    elif inputs == kernels == Extent.of(groups):
        i, o, block = "i", "c", "n c"
    else:
        i, o, block = "i", "o", "n"
    letters_of = {0: "n c *s", kernel: f"{o} {i} *k", **per_channel(operator, channels, o)}
    signature = positional(operator, letters_of | dict.fromkeys(alike, f"n {o} *t"), f"n {o} *t", block)
    return signature if operator.domain else turning(operator, signature)


@rule("Conv", kind="layout-sensitive", layouts={0: "NC", 1: "OI"})
def conv(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k], b[o] -> y[n o *s]`: positions fixed but for s; a constant kernel follows."""
    return convolved(operator, 1, (2,))


@rule("FusedConv", kind="layout-sensitive", domain="com.microsoft", layouts={0: "NC", 1: "OI", 3: "NC"})
def fused_conv(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k], b[o], z[n o *s] -> y[n o *s]`: positions fixed."""
    return convolved(operator, 1, (2,), (3,))


@rule("ConvInteger", kind="layout-sensitive", layouts={0: "NC", 1: "OI"})
def conv_integer(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k] -> y[n o *s]`, the zero points scalars or per o: positions fixed but for s."""
    return convolved(operator, 1, (3,))


@rule("QLinearConv", kind="layout-sensitive", layouts={0: "NC", 3: "OI"})
def qlinear_conv(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k], b[o] -> y[n o *s]`, scales of w scalars or per o: positions fixed but for s."""
    return convolved(operator, 3, (4, 5, 8))


@rule("QLinearConv", kind="layout-sensitive", domain="com.microsoft")
def contributed_qlinear_conv(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n o *s]` or, with `channels_last`, `x[n *s c] -> y[n *s o]`; `w[o c *k]` in both."""
    return in_both_layouts(operator, lambda plain: convolved(plain, 3, (4, 5, 8)))


def in_both_layouts(operator: Operator, plain: Callable[[Operator], Signature | None]) -> Signature | None:
    """Both orders of an operator with a `channels_last` attribute; `plain` is the signature of one without it."""
    is_last, x, y = operator.int("channels_last", 0), operator.shape(), operator.outputs[0]
    if is_last:
        if x is None or y is None:
            return None
        inputs = ((x[0], x[-1], *x[1:-1]), *operator.inputs[1:])
        operator = replace(operator, inputs=inputs, outputs=((y[0], y[-1], *y[1:-1]), *operator.outputs[1:]))
    signature = plain(operator)
    if signature is None:
        return None
    input_letters, output_letters = signature.inputs[0] or (), signature.outputs[0] or ()
    last = Variant(
        ((input_letters[0], *input_letters[2:], input_letters[1]), *signature.inputs[1:]),
        ((output_letters[0], *output_letters[2:], output_letters[1]), *signature.outputs[1:]),
        "channels_last",
    )
    variants = (*signature.variants, last)

    def changes(placement: Placement) -> Changes:
        return Changes({"channels_last": int(placement.letters() == last.inputs[0])})

    if is_last:
        signature = replace(signature, inputs=last.inputs, outputs=last.outputs)
        variants = variants[::-1]
    return replace(signature, variants=variants, changes=changes)


def transposed(operator: Operator, bias: int) -> Signature:
    """Return the signature of a transposed convolution; `bias` is the input of one item per output channel."""
    o, block = ("o", "n c o") if operator.int("group", 1) == 1 else ("i", "n")
    signature = positional(operator, {0: "n c *s", 1: f"c {o} *k", bias: "o"}, "n o *t", block)
    return signature if operator.domain else turning(operator, signature)


@rule("ConvTranspose", kind="layout-sensitive", layouts={0: "NC", 1: "IO"})
def conv_transpose(operator: Operator) -> Fact:
    """`x[n c *s], w[c o *k], b[o] -> y[n o *s]`: positions fixed but for s; a constant kernel follows."""
    return transposed(operator, 2)


@rule("ConvTransposeWithDynamicPads", kind="layout-sensitive", domain="com.microsoft", layouts={0: "NC", 1: "IO"})
def conv_transpose_with_dynamic_pads(operator: Operator) -> Fact:
    """`x[n c *s], w[c o *k], b[o] -> y[n o *s]`: positions fixed."""
    return transposed(operator, 3)


@rule("DeformConv", kind="layout-sensitive", layouts={0: "NC", 1: "OI", 2: "NC", 4: "NC"})
def deform_conv(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k], offset[n p *t], b[o], mask[n q *t] -> y[n o *t]`: positions fixed."""
    plain = operator.int("group", 1) == 1 and operator.int("offset_group", 1) == 1
    i, block = ("c", "n c o") if plain else ("i", "n")
    inputs = {0: "n c *s", 1: f"o {i} *k", 2: "n p *t", 3: "o", 4: "n q *t"}
    return positional(operator, inputs, "n o *t", block)


@rule("Col2Im", kind="layout-sensitive")
def col2im(operator: Operator) -> Fact:
    """`x[n (c *k) l] -> y[n c *s]`: positions fixed, n in any order of its factors."""
    return positional(operator, {0: "n k l"}, "n c *s", "n") if operator.rank() == 3 else None
