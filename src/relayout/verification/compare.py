"""How far apart two arrays are, and whether that is far."""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from relayout.light_dataclass import dataclass
from relayout.verification.side import Array

SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The spacing of floats of 16 bits, relative to their magnitude."""


class Verdict(StrEnum):
    """What a comparison found, best first. All before `DIFFERS` pass."""

    EQUAL = "equal"
    CLOSE = "close"
    """Within the tolerance, or one step of a quantized integer."""
    SPREAD = "within spread"
    """Within what the source's own runtime differs by when it uses its other kernels."""
    STEPWISE = "operator by operator"
    """Each operator before it computes what the source's does, on the source's own values."""
    DIFFERS = "differs"
    NOT_FINITE = "nan or inf differ"
    SHAPE = "shape differs"
    TYPE = "type differs"
    MISSING = "missing"

    @property
    def passes(self) -> bool:
        """Whether the values agree."""
        return self.rank < Verdict.DIFFERS.rank

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Verdict).index(self)


class Kind(StrEnum):
    """What the numbers are, which says what counts as close."""

    REAL = "real"
    """Floats: the largest error, relative to the largest magnitude of the tensor."""
    STEPS = "steps"
    """Quantized integers: the largest error in their own steps (LSB)."""
    EXACT = "exact"
    """Indices, counts, truth values, text: the share of elements that are not the same."""


@dataclass(frozen=True)
class Difference:
    """The distance of two arrays of one shape.

    Args:
        max_abs: the largest absolute difference, over elements that are finite in both.
        max_rel: that, relative to the largest magnitude in the first array; infinite if that is 0.
        share: the share of elements that are not equal.
        finite: whether NaN and infinities are in the same places.
        rounding: what the element type rounds by, relative to the magnitude, where that is more than float32 does.
    """

    max_abs: float
    max_rel: float
    share: float
    finite: bool
    rounding: float = 0.0

    def of(self, kind: Kind) -> float:
        """The number that counts for this kind."""
        return {Kind.REAL: self.max_rel, Kind.STEPS: self.max_abs, Kind.EXACT: self.share}[kind]


@dataclass(frozen=True)
class Tolerance:
    """How far floats may be apart: `|a - b| <= atol + rtol * max|a|`."""

    rtol: float
    atol: float


def kind_of(array: Array, quantized: bool) -> Kind:
    """What the numbers of an array are."""
    if _is_real(array):
        return Kind.REAL
    return Kind.STEPS if quantized and array.dtype.kind in "iu" and array.dtype.itemsize < 8 else Kind.EXACT


def difference(a: Array, b: Array) -> Difference:
    """The distance of `b` from `a`, two arrays of one shape."""
    if not a.size:
        return Difference(0.0, 0.0, 0.0, True)
    if a.dtype.kind not in "fiubcV" or b.dtype.kind not in "fiubcV":
        share = float(np.mean(a != b))
        return Difference(0.0, 0.0, share, True)
    if not _is_real(a):
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        share = float(np.mean(a != b))
        largest = float(np.max(np.abs(wide_a - wide_b)))
        return Difference(largest, relative(largest, float(np.max(np.abs(wide_a)))), share, True)
    exact = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    with np.errstate(invalid="ignore"):  # memory that a runtime never wrote may hold signalling NaNs
        wide_a, wide_b = a.astype(exact), b.astype(exact)
    sound = np.isfinite(wide_a) & np.isfinite(wide_b)
    # NaN at one place in both is no difference; neither is the same infinity.
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    largest = float(np.max(np.abs(np.subtract(wide_a, wide_b, where=sound, out=np.zeros_like(wide_a)))))
    finite, rounding = bool(np.all(same | sound)), max(SPACING.get(array.dtype.name, 0.0) for array in (a, b))
    return Difference(largest, relative(largest, magnitude(wide_a)), float(np.mean(~same)), finite, rounding)


def judge(found: Difference, kind: Kind, tolerance: Tolerance, spread: Difference | None, step: float = 0.0) -> Verdict:
    """Whether a difference is far, given how far the source's runtime is from itself, if that counts and is known.

    Args:
        found: the difference.
        kind: what the numbers are.
        tolerance: of floats.
        spread: how far the source's runtime is from itself here.
        step: of the integers that floats were dequantized from; 0 for other floats.
    """
    if not found.finite:
        return Verdict.NOT_FINITE
    if found.share == 0:
        return Verdict.EQUAL
    if kind is Kind.STEPS and found.max_abs <= 1:
        return Verdict.CLOSE
    # Runtimes compute with floats of 16 bits in float32, and round where they like: an operand or a result.
    rtol = max(tolerance.rtol, 2 * found.rounding)
    if kind is Kind.REAL and found.max_abs <= tolerance.atol + step + _scaled(rtol, found):
        return Verdict.CLOSE
    if spread is not None and found.of(kind) <= spread.of(kind) + (tolerance.rtol if kind is Kind.REAL else 0.0):
        return Verdict.SPREAD
    return Verdict.DIFFERS


def top1_agreement(a: Array, b: Array) -> tuple[int, int] | None:
    """Return in how many rows of class scores two models prefer the same class, and how many rows there are.

    A row of `b` agrees if its best score is at the best class of `a`, also where others are as good. None of what is
    no table of scores: `[rows, classes]` of real numbers or quantized integers.
    """
    if a.ndim != 2 or a.shape[1] < 2 or a.shape != b.shape or a.dtype.kind not in "fiu":
        return None
    best = b[np.arange(len(a)), a.argmax(1)]
    return int(np.sum(best == b.max(1))), len(a)


def wider(a: Difference | None, b: Difference) -> Difference:
    """Both differences at their worst."""
    if a is None:
        return b
    return Difference(
        max(a.max_abs, b.max_abs),
        max(a.max_rel, b.max_rel),
        max(a.share, b.share),
        a.finite and b.finite,
        max(a.rounding, b.rounding),
    )


def _is_real(array: Array) -> bool:
    """Floats, complex numbers, and ml_dtypes' small floats, whose kind numpy does not know."""
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and array.dtype.names is None)


def magnitude(array: Array) -> float:
    """The largest that is finite."""
    return float(np.max(np.abs(array), where=np.isfinite(array), initial=0.0))


def relative(largest: float, magnitude: float) -> float:
    """A largest error, relative to a magnitude."""
    return 0.0 if largest == 0 else largest / magnitude if magnitude else float("inf")


def _scaled(rtol: float, found: Difference) -> float:
    """`rtol * max|a|`, the magnitude taken back out of the two forms of the error."""
    return 0.0 if found.max_rel in (0.0, float("inf")) else rtol * found.max_abs / found.max_rel
