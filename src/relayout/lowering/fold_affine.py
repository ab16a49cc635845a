"""A scale and a shift per channel into the convolution before them, or a convolution of one element of their own.

`y = BatchNormalization(Conv(x, w, b))` is `Conv(x, a w, a b + c)`. A runtime folds them, too, unless it is given the
convolution in a form that it does not know; so what is written in such a form has them folded before. A positive scale
behind a Relu stands as well before it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.apply.blocks import BlockSizes
from relayout.graph.domains import CONVOLUTION
from relayout.graph.subgraphs import become
from relayout.layout.normalization import Normalization
from relayout.lowering.constants import Constants
from relayout.lowering.fuse_epilogue import Fusion, only_reader
from relayout.lowering.unit_rows import Reals, scale_and_shift
from relayout.rules import Permuted
from relayout.rules.facts import kernel_axes, operator_of

# An input's normalization in the kernels of the convolutions that read it, where that computes the same.
#
#     x -> Sub(mean) -> Div(std) -> Conv(k, b)   becomes   x -> Sub(mean) -> Conv(k / std, b)
#                            and without borders   becomes   x -> Conv(k / std, b - sum(k * mean / std))
#
# Zeros that a convolution puts around its image are means of raw numbers, not zeros. Such a convolution keeps its Sub.

CHANNELS = 1  # the axis of the channels that a convolution reads


class _Reader(NamedTuple):
    """A convolution that reads an input, maybe behind Transposes."""

    node: ir.Node  # the convolution
    kernel: NDArray[np.generic]  # its kernel
    axis: int | None  # where it reads the axis of the normalization's channels; None where one number is for all

    def per_channel(self, numbers: tuple[float, ...]) -> NDArray[np.float64]:
        """Return numbers for each channel, to be multiplied with the kernel."""
        group = self.node.attributes.get_int("group", 1)
        out, each = self.kernel.shape[:2]
        channels = np.broadcast_to(np.array(numbers, np.float64), group * each).reshape(group, each)
        return np.repeat(channels, out // group, axis=0).reshape(out, each, *(1,) * (self.kernel.ndim - 2))

    @property
    def has_borders(self) -> bool:
        """True if the convolution puts zeros around its image, or may."""
        attributes = self.node.attributes
        pads = attributes.get_ints("pads", [])
        return attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or any(pads)


def fold_normalization(
    constants: Constants,  # of the model
    value: ir.Value,  # the input
    normalization: Normalization,  # its normalization, with the axis as the input stores it
) -> Normalization:
    """Fold what an input is normalized with into the kernels that read it, in place.

    Returns:
        What operators still have to do: `normalization` if nothing was folded.
    """
    between: list[ir.Value] = []
    readers = list(_readers(constants, value, normalization.axis, between))
    if not readers or None in readers:
        return normalization
    convolutions = [reader for reader in readers if reader is not None]
    if not all(_is_exact(reader, normalization) for reader in convolutions):
        return normalization
    keeps_mean = any(reader.has_borders for reader in convolutions)
    for reader in convolutions:
        _fold(constants, reader, normalization, keeps_mean=keeps_mean)
    for each in between:  # it holds other numbers than the source's of that name
        each.name = constants.names.unique(f"{each.name}/raw")
        each.metadata_props.clear()
    zeros, ones = (0.0,) * len(normalization.mean), (1.0,) * len(normalization.std)
    return normalization._replace(mean=normalization.mean if keeps_mean else zeros, std=ones)


def _readers(
    constants: Constants, value: ir.Value, axis: int | None, between: list[ir.Value]
) -> Iterator[_Reader | None]:
    """Yield what reads a value: a convolution, or None for anything else; collect the Transposes' results between."""
    if value.is_graph_output():
        yield None
    for node, _ in value.uses():
        if node.graph is not constants.model.graph:
            yield None
        elif isinstance(fact := constants.facts.of(operator_of(constants.model, node)), Permuted):
            between.append(node.outputs[0])
            there = None if axis is None else fact.perm.index(axis)
            yield from _readers(constants, node.outputs[0], there, between)
        else:
            yield _reader(constants, node, axis)


def _reader(constants: Constants, node: ir.Node, axis: int | None) -> _Reader | None:
    if node.op_type != CONVOLUTION or node.domain not in ("", "ai.onnx") or axis not in (None, CHANNELS):
        return None
    known = [constants.array(each) for each in node.inputs[1:] if each is not None]
    image = node.inputs[0]
    dtype = None if image is None or image.dtype is None else image.dtype.numpy()
    if not known or any(array is None or array.dtype != dtype for array in known) or known[0] is None:
        return None
    return _Reader(node, known[0], axis)


def _is_exact(reader: _Reader, normalization: Normalization) -> bool:
    """Tell whether a kernel's type holds its numbers once they are divided: none is infinite, or subnormal."""
    kernel = reader.kernel
    with np.errstate(all="ignore"):
        scaled = np.abs((kernel.astype(np.float64) / reader.per_channel(normalization.std))[kernel != 0])
    limits = np.finfo(str(kernel.dtype))
    return not scaled.size or bool(float(limits.tiny) <= scaled.min() and scaled.max() <= float(limits.max))


def _fold(constants: Constants, reader: _Reader, normalization: Normalization, *, keeps_mean: bool) -> None:
    node, kernel = reader.node, reader.kernel
    stem = node.name or node.outputs[0].name or node.op_type
    scaled = kernel.astype(np.float64) / reader.per_channel(normalization.std)
    node.replace_input_with(1, constants.new(f"{stem}/scaled", scaled.astype(kernel.dtype)))
    if keeps_mean:
        return
    moved = (scaled * reader.per_channel(normalization.mean)).sum(axis=tuple(range(1, kernel.ndim)))
    bias = constants.array(node.inputs[2]) if len(node.inputs) > 2 else None
    shift = -moved if bias is None else bias.astype(np.float64) - moved
    node.resize_inputs(3)
    node.replace_input_with(2, constants.new(f"{stem}/shift", shift.astype(kernel.dtype)))


# An LRN adds squares up over windows of channels: a convolution of one element with a band matrix does so, too.


def channel_windows(
    channels: int,  # how many there are
    size: int,  # channels in a window, of which an even one has one more behind the middle
    weight: float,  # what each channel of a window is multiplied by
) -> NDArray[np.float32]:
    """Return a matrix `o i` that sums channels up."""
    ahead = np.subtract.outer(np.arange(channels), np.arange(channels))  # how far `i` lies before `o`
    inside = (ahead <= (size - 1) // 2) & (-ahead <= size - 1 - (size - 1) // 2)
    return np.where(inside, np.float32(weight), np.float32(0))


RANK = 4
HOMOGENEOUS = frozenset({"LeakyRelu", "Relu"})
"""Activations that a positive scale may stand before or behind: `s relu(x) = relu(s x)`."""


def fold_scales(model: ir.Model, fusions: Sequence[Fusion], blocks: BlockSizes | None) -> dict[str, int]:
    """Fold scales and shifts per channel into the convolutions before them that a target fuses, in place; in blocks
    into convolutions of one element of their own, too.

    Returns:
        Operator that was folded -> how many.
    """
    counts: Counter[str] = Counter()
    folding = _Folding(model, blocks.tile if blocks else 0)
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
    """The nodes that are folded in a model."""

    def __init__(
        self,
        model: ir.Model,
        tile: int,  # the channels of a block, where scales become kernels by themselves; 0: they do not
    ) -> None:
        self.model, self.tile, self.constants = model, tile, Constants(model)

    def is_kernel(self, node: ir.Node, fusion: Fusion) -> bool:
        """Tell whether a node is a convolution of floats with constants."""
        if node.domain not in ("", "ai.onnx") or node.op_type != fusion.op_type:
            return False
        known = [self.constants.tensor(value) for value in node.inputs[1:] if value is not None]
        floats = all(tensor is not None and tensor.dtype == ir.DataType.FLOAT for tensor in known)
        return bool(known) and floats and known[0] is not None and len(known[0].shape) == RANK

    def may_become(self, node: ir.Node, fusion: Fusion) -> bool:
        """Tell whether convolutions alone read a scale and shift, by itself or with an activation."""
        if not self.tile:
            return False
        affine_map = self._scale(node)
        if affine_map is None or affine_map[1].size % self.tile:
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

        One number for all channels counts as a number `of_all`.
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
        affine_map = scale_and_shift(operator, known)
        return None if affine_map is None or operator.shape(affine_map[0]) != shape else affine_map

    def write_kernel(self, node: ir.Node, fusion: Fusion) -> None:
        """Write a scale and shift as a convolution of one element, each channel a group."""
        affine_map = self._scale(node)
        assert affine_map is not None
        slot, scale, shift = affine_map
        stem, read = node.name or node.outputs[0].name or node.op_type, node.inputs[slot]
        kernel = self.constants.new(f"{stem}/kernel", scale.reshape(-1, 1, 1, 1).astype(np.float32))
        bias = self.constants.new(f"{stem}/bias", shift.astype(np.float32))
        attributes = ir.AttrInt64("group", scale.size), ir.AttrInt64s("kernel_shape", (1, 1))
        become(node, node.domain, fusion.op_type, [read, kernel, bias], attributes)

    def fold(
        self,
        node: ir.Node,  # the convolution
        last: ir.Node,  # the convolution, or an activation behind it, before which a positive scale may stand
        after: ir.Node,  # the other node, which reads what `last` gives
    ) -> bool:
        """Let a convolution do what another node does, if that is a scale and a shift per channel."""
        affine_map = self._scale(after, of_all=True)
        if affine_map is None or after.inputs[affine_map[0]] is not last.outputs[0]:
            return False
        _, scale, shift = affine_map
        if last is not node and (np.any(shift) or not np.all(scale > 0)):
            return False
        kernel = self.constants.tensor(node.inputs[1])
        bias = self.constants.array(node.inputs[2]) if len(node.inputs) > 2 else None
        assert kernel is not None
        group = node.attributes.get_int("group", 1) if kernel_axes(node.op_type) == "IO" else 0
        outputs, inputs = kernel.shape.numpy()[:2]
        if (inputs * group if group else outputs) != scale.size:
            return False
        moved = shift if bias is None else bias.astype(np.float64) * scale + shift
        stem = node.name or node.outputs[0].name or node.op_type
        node.resize_inputs(3)
        if not np.all(scale == 1):
            scaling = partial(_scaled, kernel, scale, group)
            scaled = ir.LazyTensor(scaling, kernel.dtype, ir.Shape(kernel.shape.numpy()))
            node.replace_input_with(1, self.constants.put(f"{stem}/scaled", scaled))
        node.replace_input_with(2, self.constants.new(f"{stem}/shift", moved.astype(np.float32)))
        output, value = after.outputs[0], last.outputs[0]
        ir.convenience.replace_all_uses_with(output, value, replace_graph_outputs=True)
        assert after.graph is not None
        after.graph.remove(after, safe=True)
        value.name, value.shape, value.doc_string = output.name, output.shape, output.doc_string
        value.meta.update(output.meta)
        value.metadata_props.clear()
        value.metadata_props.update(output.metadata_props)
        return True


def _scaled(
    # `o i *s`; of a transposed convolution `i o *s`, the inputs of all groups and the outputs of one
    kernel: ir.TensorProtocol,
    scale: Reals,  # of each output channel
    group: int,  # the groups of a transposed convolution; 0 of any other
) -> ir.TensorProtocol:
    """Return a kernel whose output channels are scaled: when it is written, so that one at a time is in memory."""
    array = kernel.numpy()
    by_channel = np.repeat(scale.reshape(group, -1), len(array) // group, axis=0) if group else scale
    by_channel = by_channel.reshape(*by_channel.shape, *(1,) * (array.ndim - by_channel.ndim))
    scaled = np.empty(array.shape, np.float32)
    np.multiply(array, by_channel, out=scaled, dtype=np.float64, casting="same_kind")
    return ir.Tensor(scaled)
