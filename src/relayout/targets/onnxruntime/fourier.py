"""Fourier transforms as products of matrices, which ONNX Runtime's CPU provider computes in less time.

Its DFT takes 2 ns for each element and each factor of two, and where the length is no power of two it transforms three
times as many, with errors of 1e-4. With `N = A B`, `n = B a + b` and `k = c + A d` (Cooley and Tukey 1965),

    X[c + A d] = Σ_b w_N^(b c) w_B^(b d) Σ_a w_A^(a c) x[B a + b],    w_M = exp(-2πi / M)

is a product of `A` by `A` for each `b`, and one of `B` by `B` for each `c`, which has the factor between the two in it.
A short-time transform is a convolution with the whole matrix, windowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relayout.graph.domains import CONVOLUTION
from relayout.layout import Dim
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

AXIS_IS_INPUT = 20  # opset from which the axis is an input
LEAST_LENGTH, LEAST_ELEMENTS = 64, 512
"""Of a transform, and of all that are computed at once, for which ten nodes are worth it."""
MOST_BYTES, LEAST_BYTES = 1 << 22, 16  # of the matrices, and of what they have for each element at least
MOST_WINDOWED = 512
"""Elements of a window, where they are a power of two, up to which one matrix is better than short transforms."""


def fourier(operator: Operator, constants: Constants) -> Sequence[Step]:
    """A DFT of floats along the axis before the last, as `r n p -> r k 2`; p: 1 of real numbers, 2 of complex ones."""
    shape, length = operator.inputs[0], _number(constants, 1)
    axis = (
        operator.int("axis", 1)
        if operator.version < AXIS_IS_INPUT
        else _number(constants, 2)
        if operator.has(2)
        else -2
    )
    if shape is None or len(shape) < 3 or axis not in (len(shape) - 2, -2):
        return ()
    *rows, count, parts = shape
    known = [extent for extent in rows if isinstance(extent, int)]
    half, inverse = bool(operator.int("onesided", 0)), bool(operator.int("inverse", 0))
    if not isinstance(count, int) or (operator.has(1) and length != count) or count * LEAST_BYTES > MOST_BYTES:
        return ()
    if parts not in (1, 2) or (half and (inverse or parts == 2)):
        return ()
    if count < LEAST_LENGTH or (len(known) == len(rows) and prod(known) * count * parts < LEAST_ELEMENTS):
        return ()
    transform = Transform(count, parts, inverse=inverse, half=half)
    return transform.steps(rows) if transform.bytes <= MOST_BYTES else ()


def short_time(operator: Operator, constants: Constants) -> Sequence[Step]:
    """Return an STFT of real numbers, `b n 1 -> b f k 2` (PyTorch has `b n`), as a convolution.

    It has a channel for each part of each frequency.
    """
    shape, window = operator.inputs[0], constants[2] if len(constants) > 2 else None
    step, length = _number(constants, 1), _number(constants, 3)
    if shape is None or not (len(shape) == 2 or (len(shape) == 3 and shape[2] == 1)):
        return ()
    if not step or step < 0 or (operator.has(2) and window is None):
        return ()
    count = length or (0 if window is None else window.size)
    if not _is_quicker(count):
        return ()
    frequencies = count // 2 + 1 if operator.int("onesided", 1) else count
    short = isinstance(shape[1], int) and shape[1] < count
    if short or 8 * frequencies * count > MOST_BYTES or (window is not None and window.shape != (count,)):
        return ()
    kernel, flat = _kernel(count, frequencies, window), len(shape) == 2
    return (
        Step("Unsqueeze", (0, _shape(1)), "signal") if flat else Step("Transpose", (0,), "signal", {"perm": (0, 2, 1)}),
        Step(CONVOLUTION, ("signal", kernel), "frames", {"strides": (step,), "kernel_shape": (count,)}),
        Step("Transpose", ("frames",), "last", {"perm": (0, 2, 1)}),
        Step("Reshape", ("last", _shape(0, 0, frequencies, 2)), "y"),
    )


def _is_quicker(count: int) -> bool:
    """Tell whether a window of this length takes less time by one matrix."""
    return count >= LEAST_LENGTH and (count <= MOST_WINDOWED or count & (count - 1) != 0)


def _kernel(count: int, frequencies: int, window: NDArray[Any] | None) -> NDArray[np.float32]:
    """Return the windowed matrix of a transform as the kernel of a convolution: `(frequency part) 1 n`."""
    roots = np.exp(-2j * np.pi * np.outer(np.arange(frequencies), np.arange(count)) / count)
    roots = roots * (1 if window is None else window)
    return np.stack([roots.real, roots.imag], 1).reshape(2 * frequencies, 1, count).astype(np.float32)


def _number(constants: Constants, slot: int) -> int | None:
    """Return a constant number; None where there is none, or it is computed."""
    said = constants[slot] if len(constants) > slot else None
    return None if said is None else int(said.item())


class Transform:
    """A transform of `count` elements in two products.

    Args:
        count: the elements.
        parts: 1 of real numbers, 2 of complex ones.
        inverse: whether it is the inverse transform.
        half: whether the result ends where that of real numbers is mirrored.
    """

    def __init__(self, count: int, parts: int, *, inverse: bool, half: bool) -> None:
        self.count, self.parts, self.half = count, parts, half
        self.sign, self.scale = (1, 1 / count) if inverse else (-1, 1.0)
        # The fewest numbers are multiplied.
        self.a = min(
            (a for a in range(1, count + 1) if count % a == 0),
            key=lambda a: 2 * a * count * parts * (a > 1) + self._entries(a, count // a),
        )
        self.b = count // self.a
        self.frequency_count = count // 2 + 1 if half else count

    def _entries(self, a: int, b: int) -> int:
        """Return how many numbers the second matrices have."""
        return a * b * self.parts * (1 + (a > 1)) * 2 * self._half_count(b)

    def _half_count(self, b: int) -> int:
        return b // 2 + 1 if self.half else b

    @property
    def bytes(self) -> int:
        """Of the matrices."""
        return 4 * self._entries(self.a, self.b)

    def _roots(self, turns: NDArray[np.float64]) -> NDArray[np.complex128]:
        roots: NDArray[np.complex128] = np.exp(self.sign * 2j * np.pi * turns)
        return roots

    def _second(self) -> NDArray[np.float32]:
        """`c (z b p) (d q)`: what part p of an element counts, times part z of the first product, in part q."""
        c, b, d = np.ogrid[: self.a, : self.b, : self._half_count(self.b)]
        roots = self.scale * self._roots(b * c / self.count + b * d / self.b)
        units = (1, 1j)
        entries = [
            [np.stack([(roots * z * p).real, (roots * z * p).imag], -1) for p in units[: self.parts]]
            for z in units[: 1 + (self.a > 1)]
        ]
        matrices = np.array(entries).transpose(2, 0, 3, 1, 4, 5)  # z p c b d q -> c z b p d q
        return matrices.reshape(self.a, -1, 2 * d.size).astype(np.float32)

    def steps(self, rows: Sequence[Dim]) -> Sequence[Step]:
        """Return the operators, of an operand with these axes before the one that is transformed."""
        ahead, size, frequencies = len(rows), self.b * self.parts, self._half_count(self.b)
        same, second, a = (0,) * ahead, self._second(), np.arange(self.a)
        # `(c z) a`: cosines and sines, as parts z of a complex number.
        roots = self._roots(np.outer(a, a) / self.a)
        first = np.stack([roots.real, roots.imag], 1).reshape(2 * self.a, self.a).astype(np.float32)
        if self.a == 1:
            return (
                Step("Reshape", (0, _shape(*same, size)), "joined"),
                Step("MatMul", ("joined", second[0]), "product"),
                Step("Reshape", ("product", _shape(*same, frequencies, 2)), "y"),
            )
        # The rows of the second product are those of one axis, the longest: the last open one, where there are some.
        inner = max(range(ahead), key=lambda axis: (extent if isinstance(extent := rows[axis], int) else inf, axis))
        others = [axis for axis in range(ahead) if axis != inner]
        places = {axis: place for place, axis in enumerate([*others, inner], 1)}
        perm = (*(places[axis] for axis in range(ahead)), ahead + 1, 0, ahead + 2)
        steps = (
            Step("Reshape", (0, _shape(*same, self.a, size)), "split"),
            Step("MatMul", (first, "split"), "first"),
            Step("Reshape", ("first", _shape(*same, self.a, 2 * size)), "joined"),
            Step("Transpose", ("joined",), "apart", {"perm": (ahead, *others, inner, ahead + 1)}),
            Step("MatMul", ("apart", second.reshape(self.a, *[1] * len(others), 2 * size, 2 * frequencies)), "second"),
            Step("Reshape", ("second", _shape(*(0,) * (ahead + 1), frequencies, 2)), "parted"),
            Step("Transpose", ("parted",), "together", {"perm": perm}),
            Step("Reshape", ("together", _shape(*same, frequencies * self.a, 2)), "whole"),
        )
        if frequencies * self.a == self.frequency_count:
            return steps
        return (*steps, Step("Slice", ("whole", _shape(0), _shape(self.frequency_count), _shape(ahead)), "y"))


def _shape(*extents: int) -> NDArray[np.int64]:
    return np.array(extents, np.int64)
