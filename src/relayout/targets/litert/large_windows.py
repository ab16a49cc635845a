"""A depthwise convolution by a large window as the sum of several by parts of it.

XNNPACK computes up to 25 elements of a window at a time; a convolution by more it leaves to LiteRT's own kernel. On x64
that takes 2 to 60 times as long as the parts and their sum (7 × 7 to 31 × 31 elements, 24 to 768 channels). Between
integers of 8 bits the parts and their sum are of real numbers, which gives the same integers within one step.

1. Parts by every second row and column, if their windows stay in the middle of the image:

       Conv(x, w)    becomes    Conv(x, w[0::2, 0::2]) + Conv(x, w[0::2, 1::2]) + Conv(x, w[1::2, 0::2]) + ...

   They have dilations of 2, and the whole padding on both sides, so that no image has a border of its own.

2. Parts of neighbouring rows and columns otherwise. Each reads the image from its own first element on:

       Conv(x, w)    becomes    Conv(x[0:-4], w[0:3]) + Conv(x[3:-2], w[3:5]) + Conv(x[5:], w[5:7])
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from math import prod
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import BYTES, stored_reals, unit_of
from relayout.targets.litert.insertion import Insertion

DEPTHWISE = ("relayout.nhwc.ihwo", "relayout.nwc.iwo")
"""Domains of depthwise convolutions: their kernels have an axis of one, those of the window, and channels."""
MOST_AT_A_TIME = 25  # elements of a window that a kernel of XNNPACK computes at a time
MOST_PARTS = 64  # convolutions that one becomes: 31 by 31 elements are 42


class _Window(NamedTuple):
    """One axis of space."""

    size: int  # elements of the window
    stride: int
    dilation: int
    extent: int | None  # of the image; None: it is open
    result: int | None  # the extent of the result; None: it is open
    pads: tuple[int, int] | None  # zeros before and behind the image; None: as many as SAME says, of an open extent

    @property
    def is_centred(self) -> bool:
        """True if every second element of the window may be a window that lies in the middle of the image."""
        half = (self.size - 1) * self.dilation // 2
        return self.stride == 1 and self.size % 2 == 1 and self.pads in (None, (half, half))

    def chunks(self, largest: int) -> list[tuple[int, int]]:
        """Return first element and size of parts of about the same size, none larger than that."""
        bounds = np.linspace(0, self.size, -(-self.size // largest) + 1).round().astype(int).tolist()
        return [(begin, end - begin) for begin, end in pairwise(bounds)]


def split_large_window(before: Insertion) -> bool:
    """Rewrite a depthwise convolution by a large window, and return whether it is one."""
    windows = _windows(before.node) if before.node.domain in DEPTHWISE else []
    sizes = [window.size for window in windows]
    if prod(sizes) <= MOST_AT_A_TIME:
        return False
    # The step between the rows and columns of a part, where such parts suffice
    fitting = (steps for steps in product((1, 2), repeat=len(sizes)) if _largest(sizes, steps) <= MOST_AT_A_TIME)
    steps = min(fitting, key=lambda steps: (prod(steps), _largest(sizes, steps)), default=())
    if steps and all(window.is_centred for window in windows):
        parts = list(_every_second(before, windows, steps))
    elif all(None not in window for window in windows) and prod(map(len, _chunks(windows))) <= MOST_PARTS:
        parts = list(_neighbouring(before, windows))
    else:
        return False
    _write_sum(before, parts)
    return True


def _windows(node: ir.Node) -> list[_Window]:
    """Return the axes of space of a convolution by constants, of real numbers or of bytes; none of any other."""
    (image, kernel), result = node.inputs[:2], node.outputs[0]
    if image is None or image.dtype != ir.DataType.FLOAT or kernel is None or kernel.dtype != image.dtype:
        return []
    numbers, unit = stored_reals(kernel), unit_of(node)
    if numbers is None or (unit is not None and any(each.dtype not in BYTES for each in unit.activations)):
        return []
    sizes = numbers.shape[1:-1]
    count, attributes = len(sizes), node.attributes
    strides, dilations = (attributes.get_ints(name, [1] * count) for name in ("strides", "dilations"))
    pads, rule = attributes.get_ints("pads", [0] * 2 * count), attributes.get_string("auto_pad", "NOTSET")
    extents, results = (
        [each if isinstance(each, int) else None for each in value.shape or ()][1:-1] for value in (image, result)
    )
    sides: Iterable[tuple[int, int] | None] = zip(pads[:count], pads[count:], strict=True)
    if rule.startswith("SAME"):
        sides = [_same(*each, rule) for each in zip(sizes, strides, dilations, extents, results, strict=True)]
    return [_Window(*each) for each in zip(sizes, strides, dilations, extents, results, sides, strict=True)]


def _same(
    size: int, stride: int, dilation: int, extent: int | None, result: int | None, rule: str
) -> tuple[int, int] | None:
    """Return the zeros that SAME puts around an axis."""
    if extent is None or result is None:
        return None
    total = max(0, (result - 1) * stride + (size - 1) * dilation + 1 - extent)
    less = total // 2
    return (total - less, less) if rule == "SAME_LOWER" else (less, total - less)


class _Part(NamedTuple):
    """A convolution by a part of a window: what it reads, its kernel, and attributes beside the whole one's."""

    image: ir.Value
    kernel: NDArray[np.generic]
    attributes: dict[str, list[int]]


def _kernel_of(before: Insertion) -> NDArray[np.generic]:
    numbers = stored_reals(before.node.inputs[1])
    assert numbers is not None
    return numbers.astype(np.float32)


def _largest(sizes: Sequence[int], steps: Sequence[int]) -> int:
    return prod(-(-size // step) for size, step in zip(sizes, steps, strict=True))


def _every_second(before: Insertion, windows: Sequence[_Window], steps: Sequence[int]) -> Iterator[_Part]:
    image, weights = before.node.inputs[0], _kernel_of(before)
    assert image is not None
    spread = [step * window.dilation for step, window in zip(steps, windows, strict=True)]
    for firsts in product(*map(range, steps)):
        part = weights[:, *(slice(first, None, step) for first, step in zip(firsts, steps, strict=True))]
        pads = [(size - 1) * dilation // 2 for size, dilation in zip(part.shape[1:-1], spread, strict=True)]
        yield _Part(image, part, {"dilations": spread, "pads": pads * 2})


def _neighbouring(before: Insertion, windows: Sequence[_Window]) -> Iterator[_Part]:
    image, weights = before.node.inputs[0], _kernel_of(before)
    assert image is not None
    sides = [window.pads or (0, 0) for window in windows]
    if any(map(any, sides)):
        image = before.bordered(image, dict(enumerate(sides, 1)), f"{before.node.outputs[0].name}/padded")
    for chunks in product(*_chunks(windows)):
        part = weights[:, *(slice(first, first + size) for first, size in chunks)]
        yield _Part(_from(before, image, windows, chunks), part, {"pads": [0] * 2 * len(windows)})


def _chunks(windows: Sequence[_Window]) -> list[list[tuple[int, int]]]:
    """Return the parts of each axis: as few as there can be, in all, and of long rows."""
    *rows, last = windows
    height = rows[0].size if rows else 1
    sizes = ((max(1, MOST_AT_A_TIME // width), width) for width in range(1, min(last.size, MOST_AT_A_TIME) + 1))
    tall, wide = min(sizes, key=lambda each: (-(-height // each[0]) * -(-last.size // each[1]), -each[1]))
    return [*(window.chunks(tall) for window in rows), last.chunks(wide)]


def _from(
    before: Insertion, image: ir.Value, windows: Sequence[_Window], chunks: Sequence[tuple[int, int]]
) -> ir.Value:
    """Return what the part of a window reads."""
    places = [first * window.dilation for window, (first, _) in zip(windows, chunks, strict=True)]
    lengths = [
        ((window.result or 0) - 1) * window.stride + (size - 1) * window.dilation + 1
        for window, (_, size) in zip(windows, chunks, strict=True)
    ]
    if [*(image.shape or ())][1:-1] == lengths:
        return image
    bounds = {
        axis: (place, place + length) for axis, (place, length) in enumerate(zip(places, lengths, strict=True), 1)
    }
    return before.part(image, bounds, f"{before.node.outputs[0].name}/from_{'_'.join(map(str, places))}")


def _write_sum(before: Insertion, parts: Sequence[_Part]) -> None:
    """Write the parts and their sum; the first part has the bias."""
    node = before.node
    (_, _, *bias), (result,) = node.inputs, node.outputs
    if unit_of(node) is not None and bias and (numbers := stored_reals(bias[0])) is not None:
        bias = [before.constant(numbers.astype(np.float32), f"{result.name}/bias")]
    own = {name: each for name, each in node.attributes.items() if name != "auto_pad"}
    total: ir.Value | None = None
    for number, part in enumerate(parts):
        name = f"{result.name}/part_{number}"
        kernel = before.constant(np.ascontiguousarray(part.kernel), f"{name}/kernel")
        attributes = {**own, **part.attributes, "kernel_shape": [*part.kernel.shape[1:-1]]}
        inputs = [part.image, kernel, *(bias if total is None else [])]
        one = before.add(node.op_type, inputs, result.shape, result.type, attributes, domain=node.domain, name=name)
        total = one if total is None else before.add("Add", [total, one], result.shape, result.type)
    assert total is not None
    before.replace(total)
