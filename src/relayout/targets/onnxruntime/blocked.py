"""Where ONNX Runtime's CPU provider runs floats in blocks of channels: what its own optimizer makes of a graph.

Its pass over a graph brings convolutions into blocks, and what reads them, as long as there is a kernel (ONNX Runtime,
"nchwc_transformer.cc"; what it does with a graph was seen by running 1.32).
"""

from __future__ import annotations

import onnx_ir as ir

from relayout.lowering.conditions import Condition

IN_BLOCKS = (
    "Add AveragePool Clip Elu GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Identity LeakyRelu MaxPool Mul Relu"
    " Resize Sigmoid Sum Tanh"
)
INTO_BLOCKS = ("Conv",)  # what ONNX Runtime runs in blocks where it reads them, and what gives them of anything
ANYWHERE = ("Transpose",)  # what stands where layouts have it: it is not looked at
NEAR = 8  # how many operators are looked at for a convolution before them
BLOCK = 16  # channels in a block of the widest CPU; what falls into such blocks falls into those of all others


def _kernel(node: ir.Node) -> tuple[int, int, int] | None:
    """Output channels, input channels of a group, and groups of a convolution, where they are numbers."""
    kernel = node.inputs[1] if len(node.inputs) > 1 else None
    outputs, read = (None, None) if kernel is None or kernel.shape is None else tuple(kernel.shape)[:2]
    if not isinstance(outputs, int) or not isinstance(read, int):
        return None
    return outputs, read, node.attributes.get_int("group", 1)


def is_blocked(node: ir.Node) -> bool:
    """Tell whether a convolution reads and writes blocks: channels in fours, or in whole blocks if it has groups."""
    if (kernel := _kernel(node)) is None:
        return False
    outputs, read, groups = kernel
    if groups == 1:
        return read >= BLOCK and read % 4 == 0
    each = outputs // groups
    return outputs % BLOCK == 0 if read == each == 1 else read % BLOCK == each % BLOCK == 0


def is_stem(node: ir.Node) -> bool:
    """Tell whether a convolution reads an image of few channels as it is, and writes blocks."""
    kernel = _kernel(node)
    return kernel is not None and kernel[2] == 1 and kernel[1] < BLOCK


def computing_node(value: ir.Value | None) -> ir.Node | None:
    """Return the node that computes a value; nodes that keep its elements and change their order are skipped."""
    node = None if value is None else value.producer()
    while node is not None and not node.domain and node.op_type in ANYWHERE and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def lies_in_blocks(value: ir.Value | None, near: int = NEAR) -> bool:
    """Tell whether ONNX Runtime stores a value in blocks: a convolution gave it, or operators in blocks after one."""
    node = computing_node(value)
    if node is None:
        return False
    if node.domain or node.op_type not in (*INTO_BLOCKS, *IN_BLOCKS.split()) or not near:
        return False
    if node.op_type in INTO_BLOCKS:
        return is_blocked(node) or is_stem(node)
    images = [each for each in node.inputs if each is not None and each.const_value is None]
    return bool(images) and all(lies_in_blocks(each, near - 1) for each in images)


BLOCKED = Condition("in blocks of 16 channels", lambda operator: is_blocked(operator.node))
STEM = Condition("fewer than 16 channels", lambda operator: is_stem(operator.node))
