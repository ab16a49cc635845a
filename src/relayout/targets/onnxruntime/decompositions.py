"""Operators that ONNX Runtime's CPU provider runs in less time as others.

Its PRelu chooses element by element, 2 to 8 ns each on signs that nobody can foretell, where the operators below take
half of one to two (`bench/measure_expansions.py`; 1.32). Nor has it a kernel for blocks of channels: what is in blocks
is brought out of them and in again around it. Softplus and Mish compute two logarithms of each element, 15 ns; LRN adds
up and raises to a power one by one, 32 ns, and so does a cubic Resize, 80 to 500 ns. A DFT takes 3 to 30 times as long
as products of matrices do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from relayout.lowering.channel_windows import channel_windows
from relayout.lowering.conditions import Condition
from relayout.lowering.decomposition_rows import Expansion
from relayout.lowering.unit_rows import DEQUANTIZING
from relayout.rules import Attribute, Operator, Step
from relayout.rules.signature import Constants
from relayout.targets.onnxruntime.blocked import maker
from relayout.targets.onnxruntime.cubic_resize import CUBIC, cubic
from relayout.targets.onnxruntime.einsum import einsum
from relayout.targets.onnxruntime.fourier import fourier, short_time

LEAST_ELEMENTS = 2048
"""Of a value for which three more nodes are worth it, some microseconds."""
IMAGE = 4
"""The rank of what has convolutions of one element that are fast."""
CHANNELS_FIRST, CHANNELS_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
FLOATS = Condition(
    f"floats, at least {LEAST_ELEMENTS} of them",
    lambda operator: _is_float(operator) and _elements(operator) >= LEAST_ELEMENTS,
)
ANY_FLOATS = Condition("floats", lambda operator: _is_float(operator))


def _is_float(operator: Operator) -> bool:
    dtype = operator.node.outputs[0].dtype
    return dtype is not None and dtype.name == "FLOAT" and operator.version >= 8


def _elements(operator: Operator) -> int:
    return prod(extent for extent in operator.inputs[0] or () if isinstance(extent, int))


def _prelu(operator: Operator, given: Constants) -> Sequence[Step]:
    """`max(x, 0) + slope min(x, 0)`, equal to the last bit.

    Where each channel of an image has a slope, it is three convolutions of one element, which have kernels for blocks:
    `relu(x) - slope relu(-x)`; but for what was integers, and is in no blocks. With one slope it is a LeakyRelu.
    """
    slope, shape = given[1], operator.inputs[0]
    if slope is None or shape is None:
        return ()
    if slope.size == 1:
        return (Step("LeakyRelu", (0,), "y", {"alpha": float(slope.item())}),)
    channel, node = _channel(slope.shape, len(shape)), maker(operator.node.inputs[0])
    between_integers = node is not None and node.op_type in DEQUANTIZING
    if len(shape) == IMAGE and channel in (1, IMAGE - 1) and not between_integers:
        return _by_channel(slope.reshape(-1), last=channel != 1)
    return (
        Step("Relu", (0,), "above"),
        Step("Min", (0, _number(0, operator)), "below"),
        Step("Mul", ("below", 1), "sloped"),
        Step("Add", ("above", "sloped"), "y"),
    )


def _number(number: float, operator: Operator) -> NDArray[np.float32]:
    """A number of as many dimensions as the operand: over a last extent of 1 a scalar takes ten times as long."""
    return np.full((1,) * (operator.rank() or 0), number, np.float32)


def _channel(slope: Sequence[int], rank: int) -> int | None:
    """The one axis of an operand along which slopes differ; None where they differ along none, or several."""
    found = [axis + rank - len(slope) for axis, extent in enumerate(slope) if extent != 1]
    return found[0] if len(found) == 1 else None


def _by_channel(slope: NDArray[np.generic], *, last: bool) -> Sequence[Step]:
    first = [Step("Transpose", (0,), "image", {"perm": CHANNELS_FIRST})] if last else []
    image: int | str = "image" if last else 0
    kernel: dict[str, Attribute] = {"group": slope.size, "kernel_shape": (1, 1)}
    shape = (slope.size, 1, 1, 1)
    one = np.ones(shape, np.float32)
    steps = [
        *first,
        Step("Conv", (image, one), "same", kernel),
        Step("Relu", ("same",), "above"),
        Step("Conv", (image, -one), "negative", kernel),
        Step("Relu", ("negative",), "below"),
        Step("Conv", ("below", -slope.astype(np.float32).reshape(shape)), "sloped", kernel),
        Step("Add", ("sloped", "above"), "sum"),
    ]
    return [*steps, Step("Transpose", ("sum",), "y", {"perm": CHANNELS_LAST})] if last else steps


def _softplus(operator: Operator, given: Constants) -> Sequence[Step]:
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


def _mish(operator: Operator, given: Constants) -> Sequence[Step]:
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


def _lrn(operator: Operator, given: Constants) -> Sequence[Step]:
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
        Step("Conv", ("square", kernel, np.full(channels, bias, np.float32)), "sum", {"kernel_shape": (1, 1)}),
        *_power("sum", beta, operator),
        Step("Div", (0, "power"), "y"),
    )


def _power(base: str, exponent: float, operator: Operator) -> Sequence[Step]:
    """A power of numbers above 0, by roots where that is one or two of them."""
    if exponent == 0.5:
        return (Step("Sqrt", (base,), "power"),)
    if exponent == 0.75:
        roots = Step("Sqrt", (base,), "root"), Step("Sqrt", ("root",), "fourth")
        return (*roots, Step("Mul", ("root", "fourth"), "power"))
    log = Step("Log", (base,), "log"), Step("Mul", ("log", _number(exponent, operator)), "times")
    return (*log, Step("Exp", ("times",), "power"))


def _root(operator: Operator, given: Constants) -> Sequence[Step]:
    """A square root, where the exponent is a half of any number of dimensions that the operand has, too."""
    exponent = given[1]
    if exponent is None or exponent.size != 1 or exponent.ndim > (operator.rank() or 0) or exponent.item() != 0.5:
        return ()
    return (Step("Sqrt", (0,), "y"),)


EXPANSIONS = (
    Expansion("PRelu", (FLOATS,), _prelu),
    Expansion("Softplus", (FLOATS,), _softplus),
    Expansion("Mish", (FLOATS,), _mish),
    Expansion("Pow", (FLOATS,), _root),
    Expansion("Einsum", (FLOATS,), einsum),
    Expansion("LRN", (FLOATS,), _lrn),
    Expansion("Resize", (FLOATS, CUBIC), cubic),
    Expansion("DFT", (ANY_FLOATS,), fourier),
    Expansion("STFT", (ANY_FLOATS,), short_time),
)
