"""By how much a Resize stretches each axis: the one place that decides it.

scales              the scale that is stated, whatever the extents: 5 elements times 1.1 are 5, and are interpolated
sizes               size / extent
sizes, policy       the least or largest size / extent, for all axes
an axis not named   1

Where all extents stay, ONNX Runtime copies the tensor, whatever the scales.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce, wraps
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.builder import Operand
from relayout.formats.tflite.exporting.draft import Dims, DraftTensor
from relayout.formats.tflite.exporting.node import NodeExport
from relayout.formats.tflite.exporting.registry import Unwritable
from relayout.graph.domains import RESIZE
from relayout.layout import Extent

HALF = 0.5


class NearestBuiltin(NamedTuple):
    """The options of RESIZE_NEAREST_NEIGHBOR."""

    align_corners: bool
    half_pixel_centers: bool

    def nearest_places(self, extent: int, count: int) -> NDArray[np.int32]:
        """Return which element each result is, as LiteRT's kernel computes it: with a factor, in single precision."""
        x = np.arange(count, dtype=np.float32)
        aligned = self.align_corners and count > 1
        factor = np.float32(extent - aligned) / np.float32(count - aligned)
        place = (x + np.float32(HALF if self.half_pixel_centers else 0)) * factor
        rounded = np.floor(place + np.float32(HALF)) if self.align_corners else np.floor(place)
        nearest_elements: NDArray[np.int32] = rounded.clip(0, extent - 1).astype(np.int32)
        return nearest_elements


NEAREST_BUILTINS = (NearestBuiltin(False, False), NearestBuiltin(False, True), NearestBuiltin(True, False))


def stays_exact(scale: float) -> bool:
    """Return whether RESIZE_NEAREST_NEIGHBOR repeats each element that many times, whatever the extent.

    Its factor is the inverse in single precision. Where that is less than the inverse, the first of the repeated
    elements may be the one before.
    """
    return scale == int(scale) and Fraction(float(np.float32(1) / np.float32(scale))) >= Fraction(1, int(scale))


SIZES = 3  # the operand of a Resize that holds sizes
POLICIES = {"not_larger": min, "not_smaller": max}  # Policy for the aspect ratio -> which factor all axes take
LARGER = {"not_larger": "MINIMUM", "not_smaller": "MAXIMUM"}
"""Policy for the aspect ratio -> the builtin that finds that factor."""
DOUBLED = 2.0  # from this scale on no extent stays


def _once(method: Callable[[Any, int], Operand]) -> Callable[[Any, int], Operand]:
    """Compute what a method gives of an axis once for each axis."""

    @wraps(method)
    def computed(factors: "Factors", axis: int) -> Operand:
        if (method, axis) not in factors.computed:
            factors.computed[method, axis] = method(factors, axis)
        return factors.computed[method, axis]

    return computed


class Factors:
    """The sizes and the factors of a Resize, each known or computed; what is computed is computed once."""

    def __init__(
        self,
        op: NodeExport,  # the node
        dims: Dims,  # the extents of its result
    ) -> None:
        self.op, self.dims = op, dims
        slot = 2 if is_new(op) else 1
        has_sizes = op.has(SIZES) and op.dims(SIZES) != (0,)
        self.scales = slot if op.has(slot) and op.dims(slot) != (0,) and not has_sizes else None
        axes = [stored_axis(op, axis % op.rank()) for axis in op.integers("axes") or range(op.rank())]
        self.place_of = {axis: place for place, axis in enumerate(axes)}
        self.policy = op.text("keep_aspect_ratio_policy", "stretch") if op.has(SIZES) and self.scales is None else ""
        self._numbers = self._find()
        self.computed: dict[tuple[Callable[..., Operand], int], Operand] = {}

    @property
    def is_stretched(self) -> bool:
        """True if each axis takes the size that is stated for it."""
        return bool(self.policy) and self.policy not in POLICIES

    def number(self, axis: int) -> float | None:
        """Return the factor of an axis; None where it is known only at run time."""
        return self._numbers[axis]

    def changed(self) -> list[int]:
        """Return the axes along which the result may differ from the operand, in the stored order."""
        before, last, numbers = self.op.dims(), self.op.rank() - 1, self._numbers
        changed = [axis for axis, number in enumerate(numbers) if number != 1.0]
        changed = [axis for axis in changed if (before[axis], self.dims[axis]) != (1, 1)]
        # Two of four axes are interpolated at most: if channels keep their extent, an unnamed batch does, too.
        keeps_channels = before[last] == self.dims[last] and numbers[last] in (1.0, None)
        is_image = last == 3 and self.op.layouts[0] and self.op.text("mode", "nearest") != "nearest"
        is_spatial = is_image and keeps_channels
        return [axis for axis in changed if axis in (1, 2) or not is_spatial or numbers[axis] is not None]

    def stays(self, axes: list[int]) -> bool | DraftTensor:
        """Return whether the extents of axes stay, so that the result is a copy: known, or a scalar of the run."""
        op, before, open_axes = self.op, self.op.dims(), list[int]()
        for axis in axes:
            a, b, number = before[axis], self.dims[axis], self.number(axis)
            if isinstance(a, int) and isinstance(b, int):
                if a != b:
                    return False
                continue
            open_axes.append(axis)
            is_given = self.is_stretched and number is None  # by sizes: where they stay, each place is its own
            if is_given or (number is not None and not 1 < number < DOUBLED):
                return False

        def is_same(axis: int) -> DraftTensor:
            first, second = self.count(axis), op.extent(op.input(0), axis)
            return op.compare("EQUAL", op.tensor(first, TensorType.INT32), op.tensor(second, TensorType.INT32))

        return reduce(op.both, map(is_same, open_axes)) if open_axes else True

    @_once
    def extent(self, axis: int) -> Operand:
        """Return the number of elements of the operand along an axis, as a real number."""
        return self.op.real_extent(self.op.input(0), axis)

    @_once
    def last(self, axis: int) -> Operand:
        """Return the place of the last element of the operand along an axis, as a real number."""
        extent = self.extent(axis)
        return self.op.sub(extent, 1.0) if isinstance(extent, DraftTensor) else extent - 1

    @_once
    def count(self, axis: int) -> Operand:
        """Return the number of elements of the result along an axis: a number, or a scalar of int32."""
        dim, op = self.dims[axis], self.op
        if isinstance(dim, int):
            return dim
        if self.number(axis) == 1.0:
            return op.extent(self.op.input(0), axis)
        if self.is_stretched:
            return self._item(SIZES, axis, TensorType.INT32)
        extent, scale = self.extent(axis), self.scale(axis)
        if not (isinstance(extent, DraftTensor) or isinstance(scale, DraftTensor)):
            return int(np.floor(np.float32(extent) * np.float32(scale) + np.float32(0.5 if self.policy else 0)))
        product = op.mul(extent, scale)
        if self.policy:
            product = op.add(product, 0.5)
        return op.cast(op.each("FLOOR", product), TensorType.INT32)

    @_once
    def scale(self, axis: int) -> Operand:
        """Return the factor along an axis, as a real number."""
        number = self.number(axis)
        if number is not None:
            return float(np.float32(number))
        if self.scales is not None:
            return self._item(self.scales, axis, TensorType.FLOAT32)
        if self.policy in POLICIES:
            return self._common(0)
        return self.op.div(real(self.op, self.count(axis)), self.extent(axis))

    @_once
    def _common(self, _: int) -> Operand:
        """Return the factor of all axes that have a size: the least or the largest of their own."""
        op = self.op
        ratios = [op.div(self._item(SIZES, axis, TensorType.FLOAT32), self.extent(axis)) for axis in self.place_of]
        return reduce(partial(op.each, LARGER[self.policy]), ratios)

    def size(self) -> DraftTensor:
        """Return height and width of the result of a builtin, `2`."""
        op = self.op
        parts = [op.reshape(op.tensor(self.count(axis), TensorType.INT32), (1,)) for axis in (1, 2)]
        return op.concat(parts, 0)

    def _find(self) -> list[float | None]:
        """Return the factor of each axis, None where it is known only at run time."""
        op, rank = self.op, self.op.rank()
        listed = self._listed()
        ratios = [_ratio(a, b) for a, b in zip(op.dims(), self.dims, strict=True)]
        if self.policy in POLICIES:
            sizes, extents = op.constant(SIZES), [op.dims()[axis] for axis in self.place_of]
            ratios = [None] * rank
            if sizes is not None and all(isinstance(extent, int) and extent for extent in extents):
                stated = (float(size) / int(extent) for size, extent in zip(sizes.reshape(-1), extents, strict=True))
                ratios = [POLICIES[self.policy](stated)] * rank
        factors: list[float | None] = [1.0] * rank
        for axis, place in self.place_of.items():
            factors[axis] = ratios[axis] if listed is None else listed[place]
        return factors

    def _listed(self) -> list[float | None] | None:
        """Return the scales that are stated; None where the sizes tell them."""
        scales: list[float | None] = [None] * len(self.place_of)
        if self.op.node.attributes.get("scales") is not None:
            scales = [*self.op.numbers("scales")]
        elif self.scales is None:
            return None
        elif listed := _items(self.op.value(self.scales)):
            scales = listed
        if len(scales) != len(self.place_of):
            raise Unwritable(f"scales for {len(scales)} of {len(self.place_of)} axes")
        return scales

    def _item(self, slot: int, axis: int, kind: TensorType) -> DraftTensor:
        return self.op.cast(self.op.at(self.op.input(slot), 0, self.place_of[axis]), kind)


def is_new(op: NodeExport) -> bool:
    """Return whether a node says its coordinates and its rounding."""
    return op.op_type == RESIZE and op.version > 10


def stored_axis(op: NodeExport, axis: int) -> int:
    """Return where an axis of the source lies: operands of an operator in another layout count in the source's."""
    if not op.layouts[0] or axis == 0:
        return axis
    return op.rank() - 1 if axis == 1 else axis - 1


def real(op: NodeExport, number: Operand) -> Operand:
    """Return a number or a scalar of integers as a real number."""
    return op.cast(number, TensorType.FLOAT32) if isinstance(number, DraftTensor) else number


def _items(value: ir.Value) -> list[float | None] | None:
    """Return the elements of a vector, None for one that is computed; None if their number is not known."""
    if value.const_value is not None and not value.is_graph_input():
        return [float(each) for each in value.const_value.numpy().reshape(-1)]
    node = value.producer()
    if node is not None and node.op_type == "Concat" and not node.domain:
        parts = [_items(part) for part in node.inputs if part is not None]
        return None if any(part is None for part in parts) else [each for part in parts for each in part or ()]
    extent = value.shape[0] if value.shape is not None and len(value.shape) == 1 else None
    return [None] * extent if isinstance(extent, int) else None


def _ratio(before: int | str, after: int | str) -> float | None:
    """Return by how much an extent grows; None where that is known only at run time."""
    if isinstance(before, int) and isinstance(after, int):
        return after / before if before else 1.0
    quotient = Extent.of(after).divide(Extent.of(before))
    return float(quotient.number) if quotient is not None and quotient.is_static else None
