"""ScatterND that writes a box of a tensor as Slices and Concats, through which layouts pass.

    x[:, :, a:b] = u    =    Concat<axis=2>(Slice(x, to a), u, Slice(x, from b))

PyTorch writes such an assignment as a ScatterND whose places are a constant for each element. A box that ends within
several axes is one along the first of them, of a part that has a box along the next.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.lowering.conditions import Condition, attribute
from relayout.lowering.decomposition_rows import Expansion
from relayout.rules import Operator, Step
from relayout.rules.signature import Constants


class Box(NamedTuple):
    """Elements that are written along one axis, of which others stay."""

    axis: int
    begin: int
    end: int
    extent: int


def _boxes(operator: Operator) -> list[Box] | None:
    """Return the axes along which a part is written; None where the places are no box, or not known."""
    constant, dims = operator.constant(1), operator.shape(0)
    if constant is None or dims is None or not constant.size or operator.unit() is not None:
        return None
    places = constant.astype(np.int64)
    extents, count = places.shape[:-1], places.shape[-1]
    if len(extents) != count or not all(isinstance(dim, int) for dim in dims[:count]):
        return None
    known = np.array(dims[:count], np.int64)
    begin = places.reshape(-1, count)[0]
    begin = begin + known * (begin < 0)
    if not np.array_equal(places + known * (places < 0), begin + np.moveaxis(np.indices(extents), 0, -1)):
        return None
    rows = zip(begin.tolist(), extents, known.tolist(), strict=True)
    return [Box(axis, at, at + size, dim) for axis, (at, size, dim) in enumerate(rows) if size < dim]


def _steps(operator: Operator, _: Constants) -> Sequence[Step]:
    boxes = _boxes(operator)
    return () if boxes is None else list(_written(0, boxes)) or (Step("Identity", (2,), "written"),)


def _written(source: int | str, boxes: Sequence[Box]) -> Iterator[Step]:
    """Yield what writes the updates into a box of a value."""
    if not boxes:
        return
    (axis, begin, end, extent), rest = boxes[0], boxes[1:]
    middle: int | str = 2
    if rest:
        yield _slice(source, axis, begin, end, f"inside {axis}")
        yield from _written(f"inside {axis}", rest)
        middle = f"written {rest[0].axis}"
    parts: list[int | str] = [middle]
    if begin:
        yield _slice(source, axis, 0, begin, f"before {axis}")
        parts.insert(0, f"before {axis}")
    if end < extent:
        yield _slice(source, axis, end, extent, f"behind {axis}")
        parts.append(f"behind {axis}")
    yield Step("Concat", tuple(parts), f"written {axis}", {"axis": axis})


def _slice(source: int | str, axis: int, begin: int, end: int, name: str) -> Step:
    numbers: list[NDArray[np.int64]] = [np.array([number], np.int64) for number in (begin, end, axis)]
    return Step("Slice", (source, *numbers), name)


BOX = Condition("places are a box", lambda operator: _boxes(operator) is not None)
SCATTERED_BOXES = Expansion("ScatterND", (attribute("reduction", ("none",), "none"), BOX), _steps, of_tflite=False)
