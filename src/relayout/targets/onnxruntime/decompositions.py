"""Operators that ONNX Runtime's CPU provider runs in less time as others.

Its PRelu chooses element by element, 2 to 8 ns each on signs that nobody can foretell, where the operators below take
half of one to two (`bench/measure_expansions.py`; 1.32). Nor has it a kernel for blocks of channels: what is in blocks
is brought out of them and in again around it. Softplus and Mish compute two logarithms of each element, 15 ns; LRN adds
up and raises to a power one by one, 32 ns, and so does a cubic Resize, 80 to 500 ns. A DFT takes 3 to 30 times as long
as products of matrices do.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION, RESIZE
from relayout.graph.quantized_unit import DEQUANTIZE
from relayout.layout import Dim
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.fold_affine import channel_windows
from relayout.rules import Attribute, Letters, Operator, Signature, Step, facts
from relayout.rules.signature import Constants
from relayout.targets.onnxruntime.blocked import computing_node
from relayout.targets.onnxruntime.fourier import fourier, short_time

# Cubic Resizes along one axis after the other, which ONNX Runtime's CPU provider does in a twentieth of the time.
#
# Its kernel gathers 16 elements for each, 80 to 500 ns. The one for `antialias` goes along one axis after the other, 3
# to 7 ns, and counts more elements only where fewer are given: of images that become no smaller it gives the same.
# Others, and those of opsets before `antialias`, are two products with what each element counts along an axis.

HAS_ANTIALIAS = 18  # opset from which a Resize may be without aliases
MOST_MULTIPLIED = 2048
"""Elements of two axes together up to which two products take less time: a thirtieth of a nanosecond for each."""
MOST_BYTES = 1 << 22  # of the matrices
IMAGE = 4  # the rank of an image, whose last two axes are resized
PLACES = {  # where among the old elements each new one lies, by `coordinate_transformation_mode`
    "half_pixel": lambda at, old, new, scale: (at + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda at, old, new, scale: (at + 0.5) / scale - 0.5 if new > 1 else at * 0.0,
    "asymmetric": lambda at, old, new, scale: at / scale,
    "align_corners": lambda at, old, new, scale: at * ((old - 1) / (new - 1)) if new > 1 else at * 0.0,
}


def _coordinates(operator: Operator) -> str:
    return operator.string("coordinate_transformation_mode", "half_pixel")


CUBIC = Condition(
    "cubic, of a whole image",
    lambda operator: (
        operator.version >= 11
        and operator.string("mode", "nearest") == "cubic"
        and not operator.int("antialias", 0)
        and _coordinates(operator) != "tf_crop_and_resize"
    ),
)


def cubic(operator: Operator, constants: Constants) -> Sequence[Step]:
    """Write the same with `antialias` set, or two products, as `h' h, n c h w, w w' -> n c h' w'`."""
    sides = _sides(operator, constants)
    if not sides:
        return ()
    if operator.version >= HAS_ANTIALIAS and all(side.factor >= 1 for side in sides):
        said = {name: attribute.value for name, attribute in operator.node.attributes.items()}
        return (Step(RESIZE, tuple(range(len(operator.node.inputs))), "y", {**said, "antialias": 1}),)
    if len(sides) != IMAGE or any(side.factor != 1 for side in sides[:2]) or _coordinates(operator) not in PLACES:
        return ()
    tall, wide = sides[2:]
    entries = tall.old * tall.new + wide.old * wide.new
    if not 0 < 4 * entries <= MOST_BYTES or tall.old + wide.old > MOST_MULTIPLIED:
        return ()
    return (
        Step("MatMul", (0, np.ascontiguousarray(_matrix(operator, wide).T)), "wide"),
        Step("MatMul", (_matrix(operator, tall), "wide"), "y"),
    )


class _Side(NamedTuple):
    """An axis before and after: how many times as long it becomes, and its extents; 0 where they are not known."""

    factor: float
    old: int
    new: int


def _sides(operator: Operator, constants: Constants) -> list[_Side]:
    """Return all axes of an image; none where what becomes of one is not known, or it keeps its proportions."""
    shape, scales, sizes = operator.inputs[0], *(constants[slot] if len(constants) > slot else None for slot in (2, 3))
    by_scales = scales is not None and scales.size > 0
    scales_or_sizes = scales if by_scales else sizes
    if shape is None or scales_or_sizes is None or operator.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return []
    extents = [extent if isinstance(extent, int) else 0 for extent in shape]
    sides = [_Side(1.0, extent, extent) for extent in extents]
    for axis, number in zip(operator.ints("axes") or range(len(shape)), scales_or_sizes.tolist(), strict=True):
        old = extents[axis]
        if by_scales:
            sides[axis] = _Side(number, old, int(np.float32(old) * np.float32(number)))
        elif old:
            sides[axis] = _Side(number / old, old, number)
        else:
            return []
    return sides if all(side.factor > 0 for side in sides) else []


def _matrix(operator: Operator, side: _Side) -> NDArray[np.float32]:
    """`new old`: what each old element counts in each new one (Keys 1981)."""
    factor, old, new = side
    a = operator.node.attributes.get_float("cubic_coeff_a", -0.75)
    place = PLACES[_coordinates(operator)](np.arange(new, dtype=np.float64), old, new, factor)
    first = np.floor(place).astype(np.int64)
    taps = np.add.outer(first, np.arange(-1, 3))
    far = np.abs(place[:, None] - taps)
    near = (a + 2) * far**3 - (a + 3) * far**2 + 1
    counted = np.where(far <= 1, near, a * (far**3 - 5 * far**2 + 8 * far - 4))
    if operator.int("exclude_outside", 0):
        counted = np.where((taps >= 0) & (taps < old), counted, 0)
        counted /= counted.sum(1, keepdims=True)
    matrix = np.zeros((new, old))
    np.add.at(matrix, (np.arange(new)[:, None], taps.clip(0, old - 1)), counted)
    return matrix.astype(np.float32)


# Einsums of two operands as products of matrices, with the Transposes around them in the open.
#
# ONNX Runtime transposes inside an Einsum, whatever stands beside it; a Transpose that is seen may vanish.

Groups = Sequence[Sequence[str]]  # the letters of each dimension
OPEN = -1  # in the shape of a Reshape: the one extent that is not said


class _Product(NamedTuple):
    """An Einsum as one product of matrices: `left inner` by `inner right`, for each place of the batch."""

    order: tuple[int, int]  # the operands; the one comes first whose axes come first in the result
    batches: Groups  # the batch letters of each side; a side that lacks some is stretched along them
    batch: list[str]  # the batch letters of the product
    left: list[str]  # letters of the first side alone
    inner: list[str]  # letters that are summed
    right: list[str]  # letters of the second side alone


def einsum(operator: Operator, constants: Constants) -> Sequence[Step]:
    """`bqhd,bkhd->bhqk` and its like: each letter in two of the three, or in all."""
    fact = facts(operator)
    if not isinstance(fact, Signature) or len(fact.inputs) != 2:
        return ()
    first, second, result = (letters or () for letters in (*fact.inputs, *fact.outputs))
    extents = _extents((first, second), operator.inputs)
    product = _product(first, second, result)
    return () if extents is None or product is None else _steps(product, (first, second), result, extents)


def _extents(terms: Sequence[Letters], shapes: Sequence[Sequence[Dim] | None]) -> dict[str, Dim] | None:
    """Return the extent of each letter; None where an operand is stretched along one."""
    extents: dict[str, Dim] = {}
    for letters, shape in zip(terms, shapes, strict=False):
        for letter, extent in zip(letters, shape or (), strict=True):
            if extents.setdefault(letter, extent) != extent:
                return None
    return extents


def _product(first: Letters, second: Letters, result: Letters) -> _Product | None:
    """Return the product that computes an Einsum; None where there is none."""
    batch = [letter for letter in result if letter in first and letter in second]
    inner = _exclude(first, result)
    if not inner or {*inner} != {*_exclude(second, result)}:
        return None
    own = [[letter for letter in _exclude(result, batch) if letter in term] for term in (first, second)]
    # Axes of one operand alone that come first in the result: the other is stretched along them, and nothing moves.
    # Beside a batch that would be many small products, which take longer than to move the axes.
    leading = int(bool(result) and result[0] in own[1])
    lead = [] if batch else list(takewhile(own[leading][:-1].__contains__, result))
    own[leading] = _exclude(own[leading], lead)
    # The one whose axes come first in the result is the first of the product.
    places = [result.index(letters[0]) if letters else -1 for letters in own]
    order = (0, 1) if places[0] <= places[1] else (1, 0)
    left, right = (own[number] for number in order)
    batches = [[*lead, *batch] if number == leading else batch for number in order]
    return _Product(order, batches, [*lead, *batch], left, inner, right)


def _exclude(letters: Sequence[str], others: Sequence[str]) -> list[str]:
    return [letter for letter in letters if letter not in others]


def _steps(product: _Product, terms: Sequence[Letters], result: Letters, extents: Mapping[str, Dim]) -> Sequence[Step]:
    """Return the steps of a product; none where an extent that they need is not known."""
    order, batches, batch, left, inner, right = product
    groups = [batches[0], left, inner], [batches[1], inner, right]
    sides = [_side(number, terms[number], group, extents) for number, group in zip(order, groups, strict=True)]
    product_letters, alone = [*batch, *left, *right], [[letter] for letter in batch]
    split_shape = _shape([[letter] for letter in product_letters], [*alone, left, right], extents)
    if split_shape is None or any(side is None for side in sides):
        return ()
    steps = list(chain.from_iterable(side for side in sides if side is not None))
    read = [side[-1].name if side else number for side, number in zip(sides, order, strict=True)]
    steps.append(Step("MatMul", (read[0], read[1]), "product"))
    if len(left) != 1 or len(right) != 1:
        steps.append(Step("Reshape", ("product", split_shape), "parted"))
    if product_letters != [*result]:
        perm = tuple(product_letters.index(letter) for letter in result)
        steps.append(Step("Transpose", (steps[-1].name,), "y", {"perm": perm}))
    return steps


def _side(number: int, letters: Letters, groups: Groups, extents: Mapping[str, Dim]) -> list[Step] | None:
    """Return the steps from an operand to matrices: each axis of the first group alone, each of two groups as one.

    None where its shape is not known enough.
    """
    batch, *matrix = groups
    matrix_letters = list(chain.from_iterable(groups))
    read: int | str = number
    steps = []
    if matrix_letters != [*letters]:
        perm = tuple(letters.index(letter) for letter in matrix_letters)
        steps.append(Step("Transpose", (read,), f"turned{number}", {"perm": perm}))
        read = steps[-1].name
    if any(len(group) != 1 for group in matrix):
        shape = _shape([*([letter] for letter in batch), *matrix], [[letter] for letter in matrix_letters], extents)
        if shape is None:
            return None
        steps.append(Step("Reshape", (read, shape), f"matrix{number}"))
    return steps


def _shape(groups: Groups, source: Groups, extents: Mapping[str, Dim]) -> NDArray[np.int64] | None:
    """Return a shape with each group as one extent, of a value in other groups; None where several are not known."""
    shape = []
    for place, group in enumerate(groups):
        known = [extent for extent in (extents[letter] for letter in group) if isinstance(extent, int)]
        same = place < len(source) and [*source[place]] == [*group]
        shape.append(prod(known) if len(known) == len(group) else 0 if same else OPEN)
    return np.array(shape, np.int64) if shape.count(OPEN) <= 1 else None


LEAST_ELEMENTS = 2048  # of a value for which three more nodes are worth it, some microseconds
CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
ANY_FLOATS = Condition(
    "floats", lambda operator: operator.node.outputs[0].dtype == ir.DataType.FLOAT and operator.version >= 8
)
FLOATS = Condition(
    f"floats, at least {LEAST_ELEMENTS} of them",
    lambda operator: (
        ANY_FLOATS.holds(operator)
        and prod(extent for extent in operator.inputs[0] or () if isinstance(extent, int)) >= LEAST_ELEMENTS
    ),
)


def _prelu(operator: Operator, constants: Constants) -> Sequence[Step]:
    """`max(x, 0) + slope min(x, 0)`, equal to the last bit.

    Where each channel of an image has a slope, it is three convolutions of one element, which have kernels for blocks:
    `relu(x) - slope relu(-x)`; but for what was integers, and is in no blocks. With one slope it is a LeakyRelu.
    """
    slope, shape = constants[1], operator.inputs[0]
    if slope is None or shape is None:
        return ()
    if slope.size == 1:
        return (Step("LeakyRelu", (0,), "y", {"alpha": float(slope.item())}),)
    axes = [axis + len(shape) - slope.ndim for axis, extent in enumerate(slope.shape) if extent != 1]
    node = computing_node(operator.node.inputs[0])
    between_integers = node is not None and node.op_type == DEQUANTIZE
    if len(shape) == IMAGE and axes in ([1], [IMAGE - 1]) and not between_integers:
        return _by_channel(slope.reshape(-1), last=axes != [1])
    return (
        Step("Relu", (0,), "above"),
        Step("Min", (0, _number(0, operator)), "below"),
        Step("Mul", ("below", 1), "sloped"),
        Step("Add", ("above", "sloped"), "y"),
    )


def _number(number: float, operator: Operator) -> NDArray[np.float32]:
    """A number of as many dimensions as the operand: over a last extent of 1 a scalar takes ten times as long."""
    return np.full((1,) * (operator.rank() or 0), number, np.float32)


def _by_channel(slope: NDArray[np.generic], *, last: bool) -> Sequence[Step]:
    first = [Step("Transpose", (0,), "image", {"perm": CHANNELS_FIRST})] if last else []
    image: int | str = "image" if last else 0
    kernel: dict[str, Attribute] = {"group": slope.size, "kernel_shape": (1, 1)}
    shape = (slope.size, 1, 1, 1)
    one = np.ones(shape, np.float32)
    steps = [
        *first,
        Step(CONVOLUTION, (image, one), "same", kernel),
        Step("Relu", ("same",), "above"),
        Step(CONVOLUTION, (image, -one), "negative", kernel),
        Step("Relu", ("negative",), "below"),
        Step(CONVOLUTION, ("below", -slope.astype(np.float32).reshape(shape)), "sloped", kernel),
        Step("Add", ("sloped", "above"), "sum"),
    ]
    return [*steps, Step("Transpose", ("sum",), "y", {"perm": CHANNELS_LAST})] if last else steps


def _softplus(operator: Operator, constants: Constants) -> Sequence[Step]:
    """`max(x, 0) + log(1 + exp(-|x|))`, with one logarithm."""
    return (
        Step("Abs", (0,), "size"),
        Step("Neg", ("size",), "below"),
        Step("Exp", ("below",), "power"),
        Step("Add", ("power", _number(1, operator)), "raised"),
        Step("Log", ("raised",), "log"),
        Step("Relu", (0,), "above"),
        Step("Add", ("above", "log"), "y"),
    )


def _mish(operator: Operator, constants: Constants) -> Sequence[Step]:
    """`x tanh(log(1 + e))` with `e = exp(x)`, which is `x u / (u + 2)` with `u = e (e + 2)`; from 20 on it is x."""
    two = _number(2, operator)
    return (
        Step("Min", (0, _number(20, operator)), "limited"),
        Step("Exp", ("limited",), "e"),
        Step("Add", ("e", two), "more"),
        Step("Mul", ("e", "more"), "u"),
        Step("Add", ("u", two), "over"),
        Step("Div", ("u", "over"), "tanh"),
        Step("Mul", (0, "tanh"), "y"),
    )


MOST_CHANNELS = 512
"""Of images whose squares are added up by a convolution over all channels: of more it takes as long as LRN."""


def _lrn(operator: Operator, constants: Constants) -> Sequence[Step]:
    """`x (bias + alpha/size Σ x²) ** -beta`, where a convolution with ones beside the diagonal adds channels up."""
    shape, node = operator.inputs[0], operator.node
    said = node.attributes.get_float
    alpha, beta, bias = said("alpha", 1e-4), said("beta", 0.75), said("bias", 1.0)
    if shape is None or len(shape) != IMAGE or not isinstance(shape[1], int) or shape[1] > MOST_CHANNELS:
        return ()
    channels, size = shape[1], operator.int("size", 0)
    if alpha < 0 or bias <= 0 or size < 1:
        return ()
    kernel = channel_windows(channels, size, alpha / size)[:, :, None, None]
    return (
        Step("Mul", (0, 0), "square"),
        Step(CONVOLUTION, ("square", kernel, np.full(channels, bias, np.float32)), "sum", {"kernel_shape": (1, 1)}),
        *_power("sum", beta, operator),
        Step("Div", (0, "power"), "y"),
    )


def _power(base: str, exponent: float, operator: Operator) -> Sequence[Step]:
    """Return a power of numbers above 0, by roots where that is one or two of them."""
    if exponent == 0.5:
        return (Step("Sqrt", (base,), "power"),)
    if exponent == 0.75:
        roots = Step("Sqrt", (base,), "root"), Step("Sqrt", ("root",), "fourth")
        return (*roots, Step("Mul", ("root", "fourth"), "power"))
    log = Step("Log", (base,), "log"), Step("Mul", ("log", _number(exponent, operator)), "times")
    return (*log, Step("Exp", ("times",), "power"))


def _root(operator: Operator, constants: Constants) -> Sequence[Step]:
    """Return a square root, where the exponent is a half of any number of dimensions that the operand has, too."""
    half = constants[1]
    is_half = half is not None and half.size == 1 and half.ndim <= (operator.rank() or 0) and half.item() == 0.5
    return (Step("Sqrt", (0,), "y"),) if is_half else ()


EXPANSIONS = (
    Expansion("PRelu", (FLOATS,), _prelu),
    Expansion("Softplus", (FLOATS,), _softplus),
    Expansion("Mish", (FLOATS,), _mish),
    Expansion("Pow", (FLOATS,), _root),
    Expansion("Einsum", (FLOATS,), einsum),
    Expansion("LRN", (FLOATS,), _lrn),
    Expansion(RESIZE, (FLOATS, CUBIC), cubic),
    Expansion("DFT", (ANY_FLOATS,), fourier),
    Expansion("STFT", (ANY_FLOATS,), short_time),
)
