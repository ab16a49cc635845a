"""The shape of a Reshape that is computed at run time, from the extents of values that are there."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.apply.forms_in_words import tag
from relayout.errors import LayoutError
from relayout.infer import Form, Root, Sites
from relayout.layout import Extent, product

SHAPE_HAS_ENDS = 15
"""Opset from which a Shape tells of some axes alone."""


class StoredValues(Protocol):
    """The values that are there, and what adds nodes that compute one from them."""

    sites: Sites
    stored: dict[tuple[Root, Form], ir.Value]

    @property
    def version(self) -> int:
        """The version of the standard's operators."""

    def constant(self, name: str, array: NDArray[np.generic]) -> ir.Value:
        """A new initializer."""

    def compute(
        self, root: Root, name: str, op_type: str, inputs: Sequence[ir.Value], attributes: Sequence[ir.Attr] = ()
    ) -> ir.Value:
        """The result of a new node, integers, in the graph where `root` is computed."""


class RunTimeShapes:
    """Shapes computed at run time.

    Args:
        storage: the values that are there.
    """

    def __init__(self, storage: StoredValues) -> None:
        self.storage = storage

    def of(self, root: Root, source: Form, target: Form) -> ir.Value:
        """The shape of `target` at run time, from that of `source`: several dimensions of both are dynamic.

        What lies in one dimension of `source` with others is read from another value that has it for itself. One
        dimension at most that no value has is a -1: in a run in which another one is 0 it cannot be found. A dimension
        that stays where it is is a 0.
        """
        stem = f"{root.value.name}__{tag(root, target)}"
        held, parts = self.storage.stored[root, source], list[Any]()
        for place, dim in enumerate(target):
            extent = product(root.extents[index] for index in dim)
            axes = tuple([axis for axis, found in enumerate(source) if found and set(found) <= set(dim)])
            if extent.is_static:
                parts.append(extent.number)
            elif place < len(source) and source[place] == dim:
                parts.append(0)
            elif tuple(index for axis in axes for index in source[axis]) != dim:
                left = -1 not in parts and not self._is_measurable(root, extent)
                parts.append(-1 if left else self._measured(root, stem, extent))
            elif len(axes) == 1:
                parts.append(axes)
            else:
                taken = self._extents(root, stem, held, axes)
                parts.append(self.storage.compute(root, f"{stem}/product", "ReduceProd", [taken]))
        pieces: list[ir.Value] = []
        for kind, group in groupby(parts, type):
            alike = list(group)
            if kind is int:
                pieces.append(self.storage.constant(f"{stem}/extents", np.array(alike, np.int64)))
            elif kind is tuple:
                pieces.append(self._extents(root, stem, held, [axis for (axis,) in alike]))
            else:
                pieces += alike
        if len(pieces) == 1:
            return pieces[0]
        return self.storage.compute(root, f"{stem}/target", "Concat", pieces, [ir.AttrInt64("axis", 0)])

    def _extents(self, root: Root, stem: str, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """Extents of a value at run time."""
        name, first = f"{stem}/shape", axes[0]
        if self.storage.version >= SHAPE_HAS_ENDS and list(axes) == list(range(first, first + len(axes))):
            ends = [ir.AttrInt64("start", first), ir.AttrInt64("end", first + len(axes))]
            return self.storage.compute(root, name, "Shape", [value], ends)
        wanted = self.storage.constant(f"{stem}/axes", np.array(axes, np.int64))
        return self.storage.compute(
            root, f"{stem}/taken", "Gather", [self.storage.compute(root, name, "Shape", [value]), wanted]
        )

    def _measured(self, root: Root, stem: str, extent: Extent) -> ir.Value:
        """An extent at run time: symbols that stored values have as dimensions, multiplied."""
        factors = (
            [self.storage.constant(f"{stem}/extent", np.array([extent.number], np.int64))] if extent.number != 1 else []
        )
        for symbol in extent.symbols:
            value, axis, times = self._having(root, Extent(1, (symbol,)))
            taken = self._extents(root, stem, value, [axis])
            if times > 1:
                divisor = self.storage.constant(f"{stem}/times", np.array([times], np.int64))
                taken = self.storage.compute(root, f"{stem}/quotient", "Div", [taken, divisor])
            factors.append(taken)
        if len(factors) == 1:
            return factors[0]
        joined = self.storage.compute(root, f"{stem}/factors", "Concat", factors, [ir.AttrInt64("axis", 0)])
        return self.storage.compute(root, f"{stem}/product", "ReduceProd", [joined])

    def _is_measurable(self, root: Root, extent: Extent) -> bool:
        """Tell whether some value has each symbol of an extent as a dimension."""
        try:
            for symbol in extent.symbols:
                self._having(root, Extent(1, (symbol,)))
        except LayoutError:
            return False
        return True

    def _having(self, root: Root, extent: Extent) -> tuple[ir.Value, int, int]:
        """A value that is there where `root` is, its dimension of that extent, and how many times it has that.

        Raises:
            LayoutError: there is none.
        """
        several: tuple[ir.Value, int, int] | None = None
        for (other, form), value in self.storage.stored.items():
            if not other.constant and other.graph in (root.graph, self.storage.sites.graph):
                for axis, found in enumerate(other.shape(form)):
                    times = found.divide(extent)
                    if times is not None and times.is_one:
                        return value, axis, 1
                    if times is not None and times.is_static and several is None:
                        several = value, axis, times.number
        if several is not None:
            return several
        raise LayoutError(
            f"the extent {extent} of '{root.value.name}' is in no dimension of its own; fix it with --dim"
        )


def constant_shape(root: Root, source: Form, target: Form) -> tuple[int, ...] | None:
    """The constant `shape` of a Reshape: 0 copies a dynamic dimension in place, -1 stands for one other.

    None where several dimensions would have to be computed.
    """
    shape: list[int] = []
    for axis, dim in enumerate(target):
        extent = product(root.extents[index] for index in dim)
        if extent.is_static:
            shape.append(extent.number)
        elif axis < len(source) and source[axis] == dim:
            shape.append(0)
        else:
            shape.append(-1)
    return tuple(shape) if shape.count(-1) <= 1 else None
