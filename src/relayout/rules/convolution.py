"""Convolutions, plain, quantized and deformable: positions fixed; a constant kernel follows its channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from relayout.layout import Extent
from relayout.rules.operator import Operator, axis_letters
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant
from relayout.rules.spatial_permutation import turning


def spatial(rank: int, prefix: str) -> Letters:
    """Letters for the axes of an image after n and c."""
    return axis_letters(rank - 2, prefix)


def per_channel(operator: Operator, indices: Sequence[int], letter: str) -> dict[int, Letters]:
    """Parameters that hold one item per channel; a scalar keeps its own order."""
    return {index: (letter,) for index in indices if operator.rank(index) == 1}


def convolved(
    operator: Operator,  # the node
    kernel: int,  # the input that holds the kernel
    channels: Sequence[int],  # inputs with one item per output channel, or scalars
    alike: Sequence[int] = (),  # inputs of the output's shape
) -> Signature | None:
    """The signature of a convolution of input 0."""
    rank, weights = operator.rank(), operator.shape(kernel)
    if rank is None or weights is None or len(weights) != rank:
        return None
    x, y, k = spatial(rank, "s"), spatial(rank, "t"), spatial(rank, "k")
    groups, kernels, inputs = operator.int("group", 1), Extent.of(weights[0]), operator.extent(0, 1)
    whole = frozenset((*x, *y, *k))
    # Without groups both channels may hold their factors in any order. Depthwise, they are one axis. Between the two a
    # group is a run of channels, which keep their order.
    if groups == 1:
        c, i, o, ordered = "c", "c", "o", frozenset[str]()
    elif inputs == kernels == Extent.of(groups):
        c, i, o, ordered = "c", "i", "c", frozenset("i")
    else:
        c, i, o, ordered = "c", "i", "o", frozenset("coi")
    given: dict[int, Letters] = {0: ("n", c, *x), kernel: (o, i, *k), **per_channel(operator, channels, o)}
    output = ("n", o, *y)
    operands = operator.operands(given | dict.fromkeys(alike, output))
    signature = Signature(operands, (output,), whole | ordered, frozenset(("n", c, o)) - ordered).positional()
    return signature if operator.domain else turning(operator, signature, x, y, k)


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
    read, given = signature.inputs[0] or (), signature.outputs[0] or ()
    last = Variant(
        ((read[0], *read[2:], read[1]), *signature.inputs[1:]),
        ((given[0], *given[2:], given[1]), *signature.outputs[1:]),
        "channels_last",
    )
    variants = (*signature.variants, last)

    def changes(placement: Placement) -> Changes:
        return Changes({"channels_last": int(placement.letters() == last.inputs[0])})

    if is_last:
        signature = replace(signature, inputs=last.inputs, outputs=last.outputs)
        variants = variants[::-1]
    return replace(signature, variants=variants, changes=changes)


def transposed(operator: Operator, channels: Mapping[int, Letters]) -> Signature:
    """The signature of a transposed convolution; `channels` are inputs of one item per output channel."""
    rank, grouped = operator.needed_rank(), operator.int("group", 1) != 1
    x, y, k = spatial(rank, "s"), spatial(rank, "t"), spatial(rank, "k")
    operands = operator.operands({0: ("n", "c", *x), 1: ("c", "i" if grouped else "o", *k), **channels})
    ordered = frozenset("coi") if grouped else frozenset[str]()
    whole = frozenset((*x, *y, *k)) | ordered
    signature = Signature(operands, (("n", "o", *y),), whole, frozenset("nco") - ordered).positional()
    return signature if operator.domain else turning(operator, signature, x, y, k)


@rule("ConvTranspose", kind="layout-sensitive", layouts={0: "NC", 1: "IO"})
def conv_transpose(operator: Operator) -> Fact:
    """`x[n c *s], w[c o *k], b[o] -> y[n o *s]`: positions fixed but for s; a constant kernel follows."""
    return transposed(operator, {2: ("o",)})


@rule("ConvTransposeWithDynamicPads", kind="layout-sensitive", domain="com.microsoft", layouts={0: "NC", 1: "IO"})
def conv_transpose_with_dynamic_pads(operator: Operator) -> Fact:
    """`x[n c *s], w[c o *k], b[o] -> y[n o *s]`: positions fixed."""
    return transposed(operator, {3: ("o",)})


@rule("DeformConv", kind="layout-sensitive", layouts={0: "NC", 1: "OI", 2: "NC", 4: "NC"})
def deform_conv(operator: Operator) -> Fact:
    """`x[n c *s], w[o c *k], offset[n p *t], b[o], mask[n q *t] -> y[n o *t]`: positions fixed."""
    rank = operator.needed_rank()
    x, y, k = spatial(rank, "s"), spatial(rank, "t"), spatial(rank, "k")
    plain = operator.int("group", 1) == 1 and operator.int("offset_group", 1) == 1
    kernel = ("o", "c" if plain else "i", *k)
    operands = operator.operands({0: ("n", "c", *x), 1: kernel, 2: ("n", "p", *y), 3: ("o",), 4: ("n", "q", *y)})
    ordered = frozenset("pq") if plain else frozenset("copqi")
    whole = frozenset((*x, *y, *k)) | ordered
    return Signature(operands, (("n", "o", *y),), whole, frozenset("nco") - ordered).positional()


@rule("Col2Im", kind="layout-sensitive")
def col2im(operator: Operator) -> Fact:
    """`x[n (c *k) l] -> y[n c *s]`: positions fixed, n in any order of its factors."""
    output = operator.outputs[0]
    if operator.rank() != 3 or output is None:
        return None
    y = spatial(len(output), "s")
    whole = frozenset(("k", "l", "c", *y))
    return Signature(operator.operands({0: ("n", "k", "l")}), (("n", "c", *y),), whole, frozenset("n")).positional()
