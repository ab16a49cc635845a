"""A convolution over three axes as the sum of convolutions over two: XNNPACK has none over three.

    y[n d h w o]  =  sum over t of  Conv(x[n (stride · d + dilation · t) h w c], kernel[t])

The images of a volume are a batch. On x64 LiteRT's own kernel for three axes takes 3 to 7 times as long.
"""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.graph.quantized_unit import unit_of
from relayout.targets.litert.insertion import OPEN, Insertion, shape_from

VOLUME, IMAGE = "relayout.ndhwc.dhwio", "relayout.nhwc.ohwi"
"""Domains of convolutions over three axes and over two."""
MOST_PARTS = 64
"""Convolutions that one becomes."""


def split_volume(before: Insertion) -> bool:
    """Rewrite a convolution of volumes of real numbers, without groups, by constants; return whether it is one."""
    node = before.node
    image, kernel, *_ = node.inputs
    if node.domain != VOLUME or image is None or kernel is None or not _is_constant(node):
        return False
    batch, *extents = image.shape or ir.Shape(())
    given = [extent for extent in extents if isinstance(extent, int)]
    is_known = len(given) == 4 and all(isinstance(extent, int) for extent in [*(node.outputs[0].shape or ())][1:])
    is_real = image.dtype == kernel.dtype == ir.DataType.FLOAT and unit_of(node) is None
    is_plain = node.attributes.get_string("auto_pad", "NOTSET") == "NOTSET" and node.attributes.get_int("group", 1) == 1
    if not (is_real and is_plain and is_known) or kernel.const_value is None:
        return False
    weights = kernel.const_value.numpy()
    if len(weights) > MOST_PARTS:
        return False
    _write_sum(before, image, [batch if isinstance(batch, int) else OPEN, *given], weights)
    return True


def _is_constant(node: ir.Node) -> bool:
    """Tell whether a convolution's kernel and bias are constants: no quantizer takes a bias that is computed."""
    parameters = (value for value in node.inputs[1:] if value is not None)
    return all(value.const_value is not None and not value.is_graph_input() for value in parameters)


def _write_sum(before: Insertion, image: ir.Value, dims: Sequence[int], kernel: NDArray[np.generic]) -> None:
    """Write a convolution for each image of the kernel, and their sum; the first has the bias."""
    node, (result,) = before.node, before.node.outputs
    (stride, *strides), (dilation, *dilations) = (
        node.attributes.get_ints(name, [1] * 3) for name in ("strides", "dilations")
    )
    front, *begins = node.attributes.get_ints("pads", [0] * 6)[:3]
    ends = node.attributes.get_ints("pads", [0] * 6)[4:]
    (batch, before_depth, *_), (depth, *space, outputs) = dims, [int(each) for each in [*(result.shape or ())][1:]]
    # The depth in blocks of the stride, so that no Slice takes every second image.
    blocks = max(depth + (len(kernel) - 1) * dilation // stride, -(-(front + before_depth) // stride))
    phases = _phases(before, image, [batch, blocks, *dims[2:]], stride, front, before_depth)
    flat = OPEN if batch == OPEN else batch * depth
    attributes = {"strides": strides, "dilations": dilations, "pads": [*begins, *ends]}
    total: ir.Value | None = None
    for tap, weights in enumerate(kernel):
        first, phase = divmod(tap * dilation, stride)
        name = f"{result.name}/tap_{tap}"
        part = before.part(phases[phase], {1: (first, first + depth)}, f"{name}/images")
        part = before.reshaped(part, [flat, *dims[2:]], f"{name}/batch")
        turned = before.constant(np.ascontiguousarray(weights.transpose(3, 0, 1, 2)), f"{name}/kernel")
        inputs = [part, turned, *(node.inputs[2:] if total is None else [])]
        shape = shape_from([flat, *space, outputs])
        made = before.add("Conv", inputs, shape, image.type, attributes, domain=IMAGE, name=name)
        total = made if total is None else before.add("Add", [total, made], shape, image.type)
    assert total is not None
    before.replace(before.reshaped(total, [batch, depth, *space, outputs], f"{result.name}/volume"))


def _phases(
    before: Insertion, image: ir.Value, dims: Sequence[int], stride: int, front: int, depth: int
) -> list[ir.Value]:
    """Return every image of the padded depth that is so many behind the first of each block.

    Args:
        before: the place.
        image: `n d h w c`.
        dims: its extents, that of the depth in blocks.
        stride: images of a block.
        front: images of zeros in front.
        depth: of the image.
    """
    result, (batch, blocks, *rest) = before.node.outputs[0], dims
    behind = blocks * stride - front - depth
    if front or behind:
        image = before.bordered(image, {1: (front, behind)}, f"{result.name}/padded")
    if stride == 1:
        return [image]
    split = before.reshaped(image, [batch, blocks, stride * rest[0], *rest[1:]], f"{result.name}/blocks")
    bounds = [(phase * rest[0], (phase + 1) * rest[0]) for phase in range(stride)]
    return [before.part(split, {2: each}, f"{result.name}/phase_{phase}") for phase, each in enumerate(bounds)]
