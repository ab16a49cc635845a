"""Means as Vela takes them: of one image, over axes of space, each of at most 4,096 elements.

    MEAN(x[2 6 9 8], 3)  ->  RESHAPE(MEAN(RESHAPE(x, [108 8 1]), 1), [2 6 9 1])

Neighbours that are averaged are one axis, as are those before and those behind it: RESHAPEs cost nothing. Vela averages
eight channels in the time of one, so that a mean of neighbours that lie last is one of eighths, and then of these:

    MEAN(x[32 768], 1)   ->  MEAN(RESHAPE(MEAN(RESHAPE(x, [32 96 8]), 1), [32 8 1]), 1)
"""

from collections.abc import Sequence
from itertools import groupby
from math import prod
from typing import NamedTuple

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.exporting.draft import DraftTensor
from relayout.formats.tflite.exporting.rewriting import Rewriting

LONGEST = 4096
"""The longest axis that Vela averages."""
FEWEST_AXES, MOST_AXES = 2, 4
LANES, SHORTEST = 8, 128
"""Channels that are averaged at once, and from how many elements on two means take less time."""


class MeanForm(NamedTuple):
    """A tensor and the axes of it over which a mean is taken."""

    dims: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def is_taken(self) -> bool:
        """True if Vela takes it."""
        if not FEWEST_AXES <= len(self.dims) <= MOST_AXES or max(self.dims[axis] for axis in self.axes) > LONGEST:
            return False
        is_one_image = len(self.dims) < MOST_AXES or self.dims[0] == 1
        leaves_last = len(self.dims) - 1 not in self.axes or len(self.dims) == FEWEST_AXES or 1 in self.dims[-3:]
        return is_one_image and leaves_last


def mean_form(dims: Sequence[int | str], axes: Sequence[int]) -> MeanForm:
    """Return the form in which Vela takes a mean, its own or one on joined axes; where it takes none, one of few axes.

    Args:
        dims: the tensor's extents. Vela takes an open one for 1, and of such a tensor no axes are joined.
        axes: the axes that are averaged; there is at least one.
    """
    extents = tuple(dim if isinstance(dim, int) else 1 for dim in dims)
    own = MeanForm(extents, tuple(sorted({axis % len(extents) for axis in axes})))
    if own.is_taken or extents != tuple(dims):
        return own
    joined = _joined(own)
    return joined if joined.is_taken or len(extents) > MOST_AXES else own


def _joined(form: MeanForm) -> MeanForm:
    """Return a mean over one axis of three, or over two of one image, where the axes are neighbours."""
    larger = [axis for axis, extent in enumerate(form.dims) if extent != 1]
    runs = [(is_averaged, list(run)) for is_averaged, run in groupby(larger, lambda axis: axis in form.axes)]
    places = [place for place, (is_averaged, _) in enumerate(runs) if is_averaged] or [len(runs)]
    if len(places) > 1:
        return MeanForm(tuple(prod(form.dims[axis] for axis in run) for _, run in runs), tuple(places))
    before, along, behind = (
        prod(form.dims[axis] for _, run in some for axis in run)
        for some in (runs[: places[0]], runs[places[0] : places[0] + 1], runs[places[0] + 1 :])
    )
    rows = next((rows for rows in range(-(-along // LONGEST), LONGEST + 1) if not along % rows), 1)
    if rows == 1 or before > 1:
        return MeanForm((before, along, behind), (1,))
    return MeanForm((1, rows, along // rows, behind), (1, 2))


def _in_lanes(form: MeanForm) -> tuple[MeanForm, ...]:
    """Return the two means of a mean over the last elements; none where it is another, or short."""
    larger = [axis for axis, extent in enumerate(form.dims) if extent != 1 or axis in form.axes]
    along = prod(form.dims[axis] for axis in form.axes)
    if larger[-len(form.axes) :] != list(form.axes) or along < SHORTEST or along % LANES:
        return ()
    before = prod(form.dims) // along
    parts = mean_form((before, along // LANES, LANES), (1,)), MeanForm((before, LANES, 1), (1,))
    return parts if all(part.is_taken for part in parts) else ()


def write_mean(op: Rewriting) -> DraftTensor | None:
    """Write a mean in the form that Vela takes, and return what it gives; None where that is its own.

    A mean of integers stays one, since what lies between two has no scale.
    """
    source, axes = op.operands[:2] if op.operator.name == "MEAN" else (None, None)
    if source is None or axes is None or axes.array is None or not axes.array.size or not source.is_static:
        return None
    form, result = mean_form(source.dims, axes.array.reshape(-1).tolist()), op.result
    forms = _in_lanes(form) if result.type == TensorType.FLOAT32 else ()
    if not forms and form.dims == source.dims:
        return None
    last = source
    for each in forms or (form,):
        dims = tuple(1 if axis in each.axes else extent for axis, extent in enumerate(each.dims))
        inputs = [op.reshape(last, each.dims), op.ints(each.axes)]
        last = op.emit("MEAN", inputs, dims, result.type, result.quantization, keep_dims=True)
    return last
