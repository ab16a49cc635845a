"""Cubic Resizes along one axis after the other, which ONNX Runtime's CPU provider does in a twentieth of the time.

Its kernel gathers 16 elements for each, 80 to 500 ns. The one for `antialias` goes along one axis after the other, 3 to
7 ns, and counts more elements only where fewer are given: of images that become no smaller it gives the same. Others,
and those of opsets before `antialias`, are two products with what each element counts along an axis.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.lowering.conditions import Condition
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants

HAS_ANTIALIAS = 18
"""Opset from which a Resize may be without aliases."""
MOST_MULTIPLIED = 2048
"""Elements of two axes together up to which two products take less time: a thirtieth of a nanosecond for each."""
MOST_BYTES = 1 << 22
"""Of the matrices."""
IMAGE = 4
"""The rank of an image, whose last two axes are resized."""
PLACES = {
    "half_pixel": lambda at, old, new, scale: (at + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda at, old, new, scale: (at + 0.5) / scale - 0.5 if new > 1 else at * 0.0,
    "asymmetric": lambda at, old, new, scale: at / scale,
    "align_corners": lambda at, old, new, scale: at * ((old - 1) / (new - 1)) if new > 1 else at * 0.0,
}
"""Where among the old elements each new one lies, by `coordinate_transformation_mode`."""


def _is_cubic(operator: Operator) -> bool:
    cubic = operator.version >= 11 and operator.string("mode", "nearest") == "cubic"
    return cubic and not operator.int("antialias", 0) and _coordinates(operator) != "tf_crop_and_resize"


def _coordinates(operator: Operator) -> str:
    return operator.string("coordinate_transformation_mode", "half_pixel")


CUBIC = Condition("cubic, of a whole image", _is_cubic)


def cubic(operator: Operator, given: Constants) -> Sequence[Step]:
    """The same with `antialias` set, or two products, as `h' h, n c h w, w w' -> n c h' w'`."""
    sides = _sides(operator, given)
    if not sides:
        return ()
    if operator.version >= HAS_ANTIALIAS and all(side.factor >= 1 for side in sides):
        said = {name: attribute.value for name, attribute in operator.node.attributes.items()}
        return (Step("Resize", tuple(range(len(operator.node.inputs))), "y", {**said, "antialias": 1}),)
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


def _sides(operator: Operator, given: Constants) -> list[_Side]:
    """All axes of an image; none where what becomes of one is not known, or it keeps its proportions."""
    shape, scales, sizes = operator.inputs[0], *(given[slot] if len(given) > slot else None for slot in (2, 3))
    by_scales = scales is not None and scales.size > 0
    asked = scales if by_scales else sizes
    if shape is None or asked is None or operator.string("keep_aspect_ratio_policy", "stretch") != "stretch":
        return []
    extents = [extent if isinstance(extent, int) else 0 for extent in shape]
    found = [_Side(1.0, extent, extent) for extent in extents]
    for axis, number in zip(operator.ints("axes") or range(len(shape)), asked.tolist(), strict=True):
        old = extents[axis]
        if by_scales:
            found[axis] = _Side(number, old, int(np.float32(old) * np.float32(number)))
        elif old:
            found[axis] = _Side(number / old, old, number)
        else:
            return []
    return found if all(side.factor > 0 for side in found) else []


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
