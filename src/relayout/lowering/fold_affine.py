"""A scale and a shift per channel into the convolution before them, or a convolution of one element of their own.

`y = BatchNormalization(Conv(x, w, b))` is `Conv(x, a w, a b + c)`. A runtime folds them, too, unless it is given the
convolution in a form that it does not know; so what is written in such a form has them folded before. A positive scale
behind a Relu stands as well before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx_ir as ir

from relayout.lowering.constants import Constants
from relayout.lowering.fuse_epilogue import only_reader
from relayout.lowering.fusion_rows import Fusion
from relayout.lowering.unit_rows import Reals, scale_and_shift
from relayout.rules.in_graph import operator_of

RANK = 4
HOMOGENEOUS = frozenset({"LeakyRelu", "Relu"})
"""Activations that a positive scale may stand before or behind: `s relu(x) = relu(s x)`."""


def fold_scales(model: ir.Model, fusions: Sequence[Fusion], tile: int = 0) -> dict[str, int]:
    """Fold scales and shifts per channel into the convolutions before them that a target fuses, in place; in blocks
    into convolutions of one element of their own, too.

    Returns:
        Operator that was folded -> how many.
    """
    counts: Counter[str] = Counter()
    folding = _Folding(model, tile)
    for node in list(model.graph):
        for fusion in fusions:
            if node.graph is None:
                break
            if folding.may_become(node, fusion):
                counts[node.op_type] += 1
                folding.write_kernel(node, fusion)
            if folding.is_kernel(node, fusion):
                while (after := only_reader(node)) is not None and folding.fold(node, node, after):
                    counts[after.op_type] += 1
                if after is not None and after.op_type in HOMOGENEOUS:
                    while (behind := only_reader(after)) is not None and folding.fold(node, after, behind):
                        counts[behind.op_type] += 1
    return dict(sorted(counts.items()))


class _Folding:
    """What is folded in a model.

    Args:
        model: the model.
        tile: the channels of a block, where scales become kernels by themselves; 0: they do not.
    """

    def __init__(self, model: ir.Model, tile: int) -> None:
        self.model, self.tile, self.constants = model, tile, Constants(model)

    def is_kernel(self, node: ir.Node, fusion: Fusion) -> bool:
        """Whether a node is a convolution of floats with constants."""
        if node.domain not in ("", "ai.onnx") or node.op_type != fusion.op_type:
            return False
        known = [self.constants.tensor(value) for value in node.inputs[1:] if value is not None]
        floats = all(tensor is not None and tensor.dtype == ir.DataType.FLOAT for tensor in known)
        return bool(known) and floats and known[0] is not None and len(known[0].shape) == RANK

    def may_become(self, node: ir.Node, fusion: Fusion) -> bool:
        """Whether a scale and shift, by itself or with an activation, stands before convolutions and nothing else."""
        if not self.tile:
            return False
        found = self._scale(node)
        if found is None or found[1].size % self.tile:
            return False
        while (after := only_reader(node)) is not None:
            if self._scale(after) is None and after.op_type not in fusion.activations:
                break
            node = after
        uses = list(node.outputs[0].uses())
        kernels = all(use.idx == 0 and self.is_kernel(use.node, fusion) for use in uses)
        return bool(uses) and kernels and not node.outputs[0].is_graph_output()

    def _scale(self, node: ir.Node, *, of_all: bool = False) -> tuple[int, Reals, Reals] | None:
        """Return the slot of an image of floats that a node reads, and the scale and shift of each channel.

        Args:
            node: the node.
            of_all: whether one number for all channels counts as a number for each.
        """
        operator = operator_of(self.model, node)
        if node.domain not in ("", "ai.onnx") or operator.gives(1) or operator.int("training_mode", 0):
            return None
        shape, dtype = operator.outputs[0], node.outputs[0].dtype
        if shape is None or len(shape) != RANK or dtype != ir.DataType.FLOAT:
            return None
        arrays = [self.constants.array(value) for value in node.inputs]
        known = [None if each is None else each.astype(np.float64) for each in arrays]
        if of_all and isinstance(shape[1], int):
            row = (1, shape[1], 1, 1)
            known = [np.full(row, each.item()) if each is not None and each.size == 1 else each for each in known]
        found = scale_and_shift(operator, known)
        return None if found is None or operator.shape(found[0]) != shape else found

    def write_kernel(self, node: ir.Node, fusion: Fusion) -> None:
        """Write a scale and shift as a convolution of one element, each channel a group."""
        found = self._scale(node)
        assert found is not None
        slot, scale, shift = found
        stem, read = node.name or node.outputs[0].name or node.op_type, node.inputs[slot]
        node.op_type, node.version = fusion.op_type, None
        node.attributes.clear()
        for attribute in (ir.AttrInt64("group", scale.size), ir.AttrInt64s("kernel_shape", (1, 1))):
            node.attributes.add(attribute)
        kernel = self.constants.new(f"{stem}/kernel", scale.reshape(-1, 1, 1, 1).astype(np.float32))
        node.resize_inputs(3)
        for place, value in enumerate((read, kernel, self.constants.new(f"{stem}/bias", shift.astype(np.float32)))):
            node.replace_input_with(place, value)

    def fold(self, node: ir.Node, last: ir.Node, after: ir.Node) -> bool:
        """Let a convolution do what another node does, if that is a scale and a shift per channel.

        Args:
            node: the convolution.
            last: the convolution, or an activation behind it, before which a positive scale may stand.
            after: the other node, which reads what `last` gives.
        """
        found = self._scale(after, of_all=True)
        if found is None or after.inputs[found[0]] is not last.outputs[0]:
            return False
        _, scale, shift = found
        if last is not node and (np.any(shift) or not np.all(scale > 0)):
            return False
        kernel = self.constants.tensor(node.inputs[1])
        bias = self.constants.array(node.inputs[2]) if len(node.inputs) > 2 else None
        assert kernel is not None
        if kernel.shape[0] != scale.size:
            return False
        moved = shift if bias is None else bias.astype(np.float64) * scale + shift
        stem = node.name or node.outputs[0].name or node.op_type
        node.resize_inputs(3)
        if not np.all(scale == 1):
            scaled = ir.LazyTensor(partial(_scaled, kernel, scale), kernel.dtype, ir.Shape(kernel.shape.numpy()))
            node.replace_input_with(1, self.constants.put(f"{stem}/scaled", scaled))
        node.replace_input_with(2, self.constants.new(f"{stem}/shift", moved.astype(np.float32)))
        given, value = after.outputs[0], last.outputs[0]
        ir.convenience.replace_all_uses_with(given, value, replace_graph_outputs=True)
        assert after.graph is not None
        after.graph.remove(after, safe=True)
        value.name, value.shape, value.doc_string = given.name, given.shape, given.doc_string
        value.meta.update(given.meta)
        value.metadata_props.clear()
        value.metadata_props.update(given.metadata_props)
        return True


def _scaled(kernel: ir.TensorProtocol, scale: Reals) -> ir.TensorProtocol:
    """Return a kernel whose output channels are scaled: when it is written, so that one at a time is in memory."""
    array = kernel.numpy()
    by_channel = scale.reshape(-1, *(1,) * (array.ndim - 1))
    scaled = np.empty(array.shape, np.float32)
    np.multiply(array, by_channel, out=scaled, dtype=np.float64, casting="same_kind")
    return ir.Tensor(scaled)
