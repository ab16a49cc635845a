"""Normalizations: over a channel's elements, over the last axes, or over groups; and reductions of axes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import permutations, product
from math import factorial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.rules.facts import along_computed
from relayout.rules.formula import positional
from relayout.rules.operator import Operator, axis_letters, normalized
from relayout.rules.registry import rule
from relayout.rules.signature import (
    Changes,
    Constants,
    Fact,
    Letters,
    Placement,
    Signature,
    Step,
    Variant,
    renumbered_axis,
)
from relayout.rules.spatial_permutation import turning

# Reductions, and what is normalised along one axis.

AXES_AS_INPUT = 18  # opset from which reductions (13 for ReduceSum) take axes as an input
FLATTENS_BEFORE = 13  # opset before which Softmax flattens its input to two dimensions at `axis`
MOST_ORDERS = 24  # of an operator whose orders are listed; beyond, the flattened axes stay as they are


def reduced_letters(letters: Letters, axes: Letters, keep: int) -> Letters:
    """Return the output's letters of a reduction."""
    return letters if keep else tuple(letter for letter in letters if letter not in axes)


@rule(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd",
    "ReduceSum ReduceSumSquare",
    kind="axis attributes",
)
@rule("QLinearReduceMean", kind="axis attributes", domain="com.microsoft")
def reduction(operator: Operator) -> Fact:
    """Any order; the reduced axes are renumbered, even in pieces; computed ones only where axes are kept."""
    letters = operator.letters()
    as_input = operator.version >= (13 if operator.name == "ReduceSum" else AXES_AS_INPUT)
    axes = operator.integers(1) if as_input else operator.ints("axes")
    if as_input and operator.has(1) and axes is None:
        return along_computed(operator, 1, ordered=False) if operator.int("keepdims", 1) else None
    if not axes:
        gone = () if as_input and operator.int("noop_with_empty_axes", 0) else letters
    else:
        gone = tuple(letters[axis] for axis in normalized(axes, len(letters)))

    def changes(placement: Placement) -> Changes:
        if not axes:
            return Changes()
        where = placement.axes(gone)
        return Changes(inputs={1: np.array(where, np.int64)}) if as_input else Changes({"axes": where})

    output = reduced_letters(letters, gone, operator.int("keepdims", 1))
    return Signature(operator.operands({0: letters}), (output,), changes=changes, across=frozenset(gone))


@rule("ArgMax", "ArgMin", kind="axis attributes")
def arg(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(least=1)
    axis = letters[operator.int("axis", 0) % len(letters)]
    output = reduced_letters(letters, (axis,), operator.int("keepdims", 1))
    return Signature((letters,), (output,), frozenset({axis}), changes=renumbered_axis(axis))


@rule("Softmax", "LogSoftmax", "Hardmax", kind="axis attributes")
def softmax(operator: Operator) -> Fact:
    """Any order; the axis is one dimension and is renumbered (before opset 13: all from the axis on stay last)."""
    ordered = operator.name == "Hardmax"  # the first of equal maxima wins
    if operator.version < FLATTENS_BEFORE:
        return flattened_from(operator, operator.int("axis", 1), ordered=ordered)
    return along(operator, operator.int("axis", -1), ordered=ordered)


def along(operator: Operator, axis: int, *, ordered: bool) -> Signature:
    """Everything happens along one axis, in order or in any order of its factors."""
    letters = operator.letters(least=1)
    one = frozenset((letter := letters[axis % len(letters)],))
    inputs, whole, changes = (
        operator.operands({0: letters}),
        one if ordered else frozenset[str](),
        renumbered_axis(letter),
    )
    return Signature(inputs, (letters,), whole, one, changes=changes, across=one)


def flattened_from(operator: Operator, axis: int, *, ordered: bool) -> Signature | None:
    """Everything happens along all axes from one on, as if they were one: they stay last, in order or in any order."""
    letters = operator.letters(least=1)
    rank = len(letters)
    if axis >= rank:  # nothing is left to normalise
        return None
    head, tail = letters[: axis % rank], letters[axis % rank :]
    inputs, across = operator.operands({0: letters}), frozenset(tail)

    def changes(placement: Placement) -> Changes:
        return Changes({"axis": placement.axes(tail)[0]})

    if not ordered and not head:
        return Signature(inputs, (letters,), changes=lambda _: Changes({"axis": 0}), across=across)
    orders = factorial(len(head)) * factorial(len(tail))
    if ordered or len(tail) == 1 or orders > MOST_ORDERS:
        whole = frozenset(tail) if ordered else frozenset()
        return Signature(inputs, (letters,), whole, frozenset(tail), tail, changes=changes, across=across)
    variants = tuple(
        Variant(operator.operands({0: (*first, *last)}), ((*first, *last),))
        for first, last in product(permutations(head), permutations(tail))
    )
    return Signature(inputs, (letters,), block=frozenset(letters), variants=variants, changes=changes, across=across)


@rule("LpNormalization", kind="axis attributes")
def lp_normalization(operator: Operator) -> Fact:
    """Any order; the axis is one dimension and is renumbered."""
    return along(operator, operator.int("axis", -1), ordered=False)


@rule("CumSum", "CumProd", kind="axis attributes")
def cumulative(operator: Operator) -> Fact:
    """Any order; the axis is one dimension in order and is renumbered, even where it is computed."""
    rank, axes = operator.rank(), operator.integers(1)
    parameter = operator.constant(1)
    if parameter is None:
        return along_computed(operator, 1, ordered=True)
    if not rank or not axes:
        return None
    letters = axis_letters(rank)
    axis = letters[axes[0] % rank]

    def changes(placement: Placement) -> Changes:
        return Changes(inputs={1: np.full(parameter.shape, placement.axis(axis), parameter.dtype)})

    return Signature((letters, None), (letters,), frozenset({axis}), changes=changes)


@rule("TopK", kind="axis attributes")
def top_k(operator: Operator) -> Fact:
    """Any order, the same for values and indices; the axis is one dimension in order and is renumbered."""
    letters = operator.letters(least=1)
    axis = letters[operator.int("axis", -1) % len(letters)]
    inputs, outputs = operator.operands({0: letters}), operator.results(letters)
    return Signature(inputs, outputs, frozenset({axis}), changes=renumbered_axis(axis))


PARAMETERS = 5  # operands of a BatchNormalization
PLAIN = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
"""Types in which several operators compute what a normalization does; halves it computes in single precision."""
LEAST_CHANNELS = 128
"""From how many channels on a product and a sum cost no more than the normalization and two Transposes: they stretch
constants in runs of as many elements, and each run has a cost of its own."""
STRETCHING = 7  # the opset from which a Mul stretches its operands as numpy does


@rule("BatchNormalization", kind="layout-sensitive", layouts={0: "NC"})
def batch_normalization(operator: Operator) -> Fact:
    """`x[n c *s], scale[c] -> y[n c *s]`: positions fixed but for s; with constants c last, too, as Mul and Add."""
    rank = operator.needed_rank()
    if not operator.int("spatial", 1):
        return None
    x = "n c *s" if rank > 1 else "n"
    trained = operator.int("training_mode", 0) or any(map(operator.gives, range(1, len(operator.outputs))))
    parameters, outputs = dict.fromkeys(range(1, len(operator.inputs)), "c"), x + ", c" * (len(operator.outputs) - 1)
    plain = positional(operator, {0: x, **parameters}, outputs, x, across=x.replace(" c", "") if trained else "")
    signature = turning(operator, plain)
    if rank < 3 or trained or not _has_constants(operator, PARAMETERS):
        return signature
    steps = partial(_affine, operator.float("epsilon", 1e-5))
    channels = operator.extent(0, 1)
    costly = channels is None or not channels.is_static or channels.number < LEAST_CHANNELS
    others = (replace(_channels_last(each), steps=steps, costly=costly) for each in signature.variants)
    return replace(signature, variants=(*signature.variants, *others))


def _has_constants(operator: Operator, count: int) -> bool:
    """Tell whether a normalization has `count` operands of one type that it computes in, constant but for the first."""
    if operator.version < STRETCHING or len(operator.inputs) != count:
        return False
    kinds = {operator.kind(slot) for slot in range(count)}
    return len(kinds) == 1 and kinds <= {*PLAIN} and all(map(operator.is_initializer, range(1, count)))


def _affine(epsilon: float, _: Placement, constants: Constants) -> tuple[Step, ...]:
    """`a x + b`, both computed in double precision, in the type of the scale."""
    scale, bias, mean, variance = (each.astype(np.float64) for each in constants[1:] if each is not None)
    kind = next(each.dtype for each in constants if each is not None)
    with np.errstate(all="ignore"):  # without a variance it is infinite, as the normalization is
        factor = scale / np.sqrt(variance + epsilon)
        shift = bias - mean * factor
        return Step("Mul", (0, factor.astype(kind)), "scaled"), Step(
            "Add", ("scaled", shift.astype(kind)), "normalized"
        )


def _channels_last(variant: Variant) -> Variant:
    """Return a variant with its channels behind all else, where something comes so."""

    def last(operands: Sequence[Letters | None]) -> tuple[Letters | None, ...]:
        return tuple(operand and tuple(sorted(operand, key=lambda letter: letter == "c")) for operand in operands)

    inputs, outputs = last(variant.inputs), last(variant.outputs)
    return replace(variant, inputs=inputs, outputs=outputs, name="several operators", follows=True)


@rule("InstanceNormalization", kind="layout-sensitive", layouts={0: "NC"})
def instance_normalization(operator: Operator) -> Fact:
    """`x[n c *s], scale[c] -> y[n c *s]`: positions fixed but for s; with constants any order, as means."""
    rank = operator.rank()
    if rank is None or operator.version < 6:
        return None
    plain = positional(operator, {0: "n c *s", 1: "c", 2: "c"}, "n c *s", "n c *s", across="*s")
    signature = turning(operator, plain)
    if rank < 3 or not _has_constants(operator, 3):
        return signature
    steps = partial(_over_space, Normalizing.of(operator))
    anyhow = replace(signature.standard, name="several operators", steps=steps, free=True, follows=True, costly=True)
    return replace(signature, variants=(*signature.variants, anyhow))


def _over_space(normalizing: "Normalizing", placement: Placement, constants: Constants) -> Iterator[Step]:
    """Mean and variance over all axes but n and c, wherever these lie."""
    letters = placement.letters()
    scale_extents = iter(placement.extents(1))
    stretched = [next(scale_extents).number if letter == "c" else 1 for letter in letters]
    scale, bias = (each.reshape(stretched) for each in constants[1:] if each is not None)
    space = [axis for axis, letter in enumerate(letters) if letter not in ("n", "c")]
    return normalizing(0, space, scale, bias)


@rule("GroupNormalization", kind="layout-sensitive", layouts={0: "NC"})
def group_normalization(operator: Operator) -> Fact:
    """`x[n c *s], scale[c] -> y[n c *s]`: positions fixed but for s; with constants c last, too, as means."""
    rank = operator.needed_rank()
    each = "c" if operator.version >= 21 else "g"
    turned = turning(operator, positional(operator, {0: "n c *s", 1: each, 2: each}, "n c *s", "n *s", across="*s"))
    groups, channels = operator.int("num_groups", 0), operator.extent(0, 1)
    if rank < 3 or not groups or channels is None or not channels.is_static:
        return turned
    if not _has_constants(operator, 3):
        return turned
    normalizing, sizes = Normalizing.of(operator), (groups, channels.number // groups)

    def steps(placement: Placement, constants: Constants) -> Iterator[Step]:
        """Mean and variance over all axes but n, and over each group of the last one."""
        scale, bias = (each.reshape(groups, -1) for each in constants[1:] if each is not None)
        rank = len(placement.letters())
        yield Step("Reshape", (0, _as_before(rank - 1, *sizes)), "grouped")
        yield from normalizing("grouped", (*range(1, rank - 1), rank), scale, bias)
        yield Step("Reshape", ("normalized", _as_before(rank - 1, channels.number)), "joined")

    others = (replace(_channels_last(each), steps=steps, costly=True) for each in turned.variants)
    return replace(turned, variants=(*turned.variants, *others))


def _as_before(count: int, *extents: int) -> NDArray[np.int64]:
    """Return the shape with so many extents as they are, and others behind them."""
    return np.array([0] * count + list(extents), np.int64)


class Normalizing(NamedTuple):
    """`(x - mean) / sqrt(variance + epsilon) * scale + bias` as operators on each element and reductions."""

    version: int
    epsilon: float

    @staticmethod
    def of(operator: Operator) -> "Normalizing":
        """As a node normalizes."""
        return Normalizing(operator.version, operator.float("epsilon", 1e-5))

    def __call__(
        self, operand: int | str, axes: Sequence[int], scale: NDArray[np.generic], bias: NDArray[np.generic]
    ) -> Iterator[Step]:
        """The steps, of which the last gives `normalized`; scale and bias stretch to the operand."""
        yield from self.by(lambda source, name: iter([self.mean(source, axes, name)]), operand, scale, bias)

    def by(
        self,
        # the steps that take a mean of their first argument, and give it the name of the second
        mean: Callable[[int | str, str], Iterator[Step]],
        operand: int | str,  # x
        scale: NDArray[np.generic],  # it stretches to x
        bias: NDArray[np.generic],  # likewise
    ) -> Iterator[Step]:
        """Yield the steps where a mean is taken otherwise; the last gives `normalized`."""
        yield from mean(operand, "mean")
        yield Step("Sub", (operand, "mean"), "centered")
        yield Step("Mul", ("centered", "centered"), "squared")
        yield from mean("squared", "variance")
        yield Step("Add", ("variance", np.array(self.epsilon, scale.dtype)), "raised")
        yield Step("Sqrt", ("raised",), "deviation")
        is_scaled = bool((scale != 1).any())
        yield Step("Div", (np.ones(1, scale.dtype), "deviation"), "inverse" if is_scaled else "factor")
        if is_scaled:
            yield Step("Mul", ("inverse", scale), "factor")
        yield Step("Mul", ("centered", "factor"), "scaled" if bias.any() else "normalized")
        if bias.any():
            yield Step("Add", ("scaled", bias), "normalized")

    def mean(self, operand: int | str, axes: Sequence[int], name: str) -> Step:
        """Return the mean over some axes, which stay with an extent of 1."""
        if self.version < AXES_AS_INPUT:
            return Step("ReduceMean", (operand,), name, {"axes": tuple(axes)})
        return Step("ReduceMean", (operand, np.array(axes, np.int64)), name)


@rule("MeanVarianceNormalization", kind="layout-sensitive", layouts={0: "NC"})
def mean_variance_normalization(operator: Operator) -> Fact:
    """`x[n c *s] -> y[n c *s]`: positions fixed; all axes in any order of their factors."""
    # Any axes would do by the standard; runtimes know those of an n c h w tensor only.
    letters = operator.letters()
    axes = operator.ints("axes") or (0, *range(2, len(letters)))
    across = frozenset(letters[axis] for axis in normalized(axes, len(letters)))
    return Signature((letters,), (letters,), block=frozenset(letters), across=across).positional()


def over_last(operator: Operator, axis: int, scales: tuple[int, ...]) -> Signature | None:
    """Return the signature of a normalization over all axes from one on; `scales` are inputs that stretch to these."""
    shape = operator.shape()
    if not shape:
        return None
    letters = axis_letters(len(shape))
    tail = letters[axis % len(shape) :]
    letters_of = {0: letters}
    for index in scales:
        scale_shape = operator.inputs[index] if operator.has(index) else ()
        extra = max(0, len(scale_shape or ()) - len(tail))
        if any(extent != 1 for extent in (scale_shape or ())[:extra]):
            return None  # a scale for each position beside those that are normalized
        letters_of[index] = axis_letters(extra, "one") + tail[len(tail) + extra - len(scale_shape or ()) :]

    def changes(placement: Placement) -> Changes:
        return Changes({"axis": placement.axes(tail)[0]})

    inputs, block = operator.operands(letters_of), frozenset(tail)
    return Signature(inputs, operator.results(letters), block=block, tail=tail, changes=changes, across=block)


@rule("LayerNormalization", "SimplifiedLayerNormalization", kind="axis attributes")
def layer_normalization(operator: Operator) -> Fact:
    """`x[*d *c], scale[*c] -> y[*d *c], mean[*d *1]`: c last and in order of axes; d in any order."""
    return over_last(operator, operator.int("axis", -1), (1, 2))


@rule("RMSNormalization", kind="axis attributes")
def rms_normalization(operator: Operator) -> Fact:
    """`x[*d *c], scale[*c] -> y[*d *c]`: c last and in order of axes; d in any order."""
    return over_last(operator, operator.int("axis", -1), (1,))


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", kind="axis attributes", domain="com.microsoft")
def skip_layer_normalization(operator: Operator) -> Fact:
    """`x[*d c], skip[*d c], scale[c] -> y[*d c]`: c last; d in any order."""
    letters = operator.letters(least=1)
    if operator.shape() != operator.shape(1):
        return None  # the skip is stretched over the batch
    inputs = operator.operands({0: letters, 1: letters, **dict.fromkeys((2, 3, 4), letters[-1:])})
    # Kernels count the dimensions, so none may lie in pieces.
    last = letters[-1:]
    return Signature(inputs, operator.results(letters), block=frozenset(letters), tail=last, across=frozenset(last))
