"""A depthwise convolution by a large window is the sum of several by every second row and column of it.

    Conv(x, w)    becomes    Conv(x, w[0::2, 0::2]) + Conv(x, w[0::2, 1::2]) + Conv(x, w[1::2, 0::2]) + ...

The parts have the dilations 2, and the whole padding on both sides, so that no image has a border of its own.

XNNPACK computes up to 25 elements of a window at a time. On x64 its kernel for more takes 3 to 6 times as long as the
four parts and their sum (7 × 7 and 9 × 9 of 24 to 768 channels).
"""

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np
import onnx_ir as ir

from relayout.graph.quantized_unit import unit_of
from relayout.targets.litert.insertion import Insertion

CONV = "Conv"
DEPTHWISE = ("relayout.nhwc.ihwo", "relayout.nwc.iwo")
"""Domains of depthwise convolutions: their kernels have an axis of one, those of the window, and channels."""
MOST_AT_A_TIME = 25
"""Elements of a window that a kernel of XNNPACK computes at a time."""


def split_large_window(before: Insertion) -> bool:
    """Rewrite a depthwise convolution of real numbers by a large window, and return whether it is one."""
    steps = _steps(before.node) if before.node.domain in DEPTHWISE else ()
    if steps:
        _replace(before, steps)
    return bool(steps)


def _steps(node: ir.Node) -> tuple[int, ...]:
    """Return the step between the rows and columns that a part has; nothing where the convolution stays whole."""
    image, kernel = node.inputs[:2]
    if image is None or image.dtype != ir.DataType.FLOAT or kernel is None or kernel.const_value is None:
        return ()
    if kernel.dtype != image.dtype or kernel.is_graph_input() or unit_of(node) is not None:
        return ()
    sizes = kernel.const_value.shape.numpy()[1:-1]
    dilations = node.attributes.get_ints("dilations", [1] * len(sizes))
    pads = [(size - 1) * dilation // 2 for size, dilation in zip(sizes, dilations, strict=True)]
    is_same = node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME")
    is_centred = is_same or [*node.attributes.get_ints("pads", [0] * 2 * len(sizes))] == pads * 2
    is_dense = all(stride == 1 for stride in node.attributes.get_ints("strides", [1]))
    is_odd = all(size % 2 for size in sizes)
    if not (is_centred and is_dense and is_odd) or prod(sizes) <= MOST_AT_A_TIME:
        return ()
    fitting = [steps for steps in product((1, 2), repeat=len(sizes)) if _largest(sizes, steps) <= MOST_AT_A_TIME]
    return min(fitting, key=lambda steps: (prod(steps), _largest(sizes, steps)), default=())


def _largest(sizes: Sequence[int], steps: Sequence[int]) -> int:
    return prod(-(-size // step) for size, step in zip(sizes, steps, strict=True))


def _replace(before: Insertion, steps: Sequence[int]) -> None:
    """Write the parts and their sum; the first part has the bias."""
    node = before.node
    (image, kernel, *bias), (result,) = node.inputs, node.outputs
    assert kernel is not None
    assert kernel.const_value is not None
    weights, rank = kernel.const_value.numpy(), len(steps)
    own = {name: each for name, each in node.attributes.items() if name != "auto_pad"}
    dilations = node.attributes.get_ints("dilations", [1] * rank)
    total: ir.Value | None = None
    for firsts in product(*map(range, steps)):
        every = tuple(slice(first, None, step) for first, step in zip(firsts, steps, strict=True))
        part = np.ascontiguousarray(weights[:, *every])
        spread = [step * dilation for step, dilation in zip(steps, dilations, strict=True)]
        pads = [(size - 1) * dilation // 2 for size, dilation in zip(part.shape[1:-1], spread, strict=True)]
        window = {"kernel_shape": [*part.shape[1:-1]], "dilations": spread, "pads": pads * 2}
        name = f"{result.name}/{'_'.join(map(str, firsts))}"
        inputs = [image, before.constant(part, f"{name}/kernel"), *(bias if total is None else [])]
        part_sum = before.add(CONV, inputs, result.shape, result.type, {**own, **window}, domain=node.domain, name=name)
        total = part_sum if total is None else before.add("Add", [total, part_sum], result.shape, result.type)
    assert total is not None
    before.replace(total)
