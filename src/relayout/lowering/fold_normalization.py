"""An input's normalization in the kernels of the convolutions that read it, where that computes the same.

    x -> Sub(mean) -> Div(std) -> Conv(k, b)   becomes   x -> Sub(mean) -> Conv(k / std, b)
                           and without borders   becomes   x -> Conv(k / std, b - sum(k * mean / std))

Zeros that a convolution puts around its image are means of raw numbers, not zeros. Such a convolution keeps its Sub.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.layout.normalization import Normalization
from relayout.lowering.constants import Constants
from relayout.rules import Permuted
from relayout.rules.in_graph import operator_of

FOLDS = frozenset({"Conv"})
"""Operators whose kernel takes a scale and a mean of what they read."""
CHANNELS = 1
"""The axis of a Conv's channels."""


class _Reader(NamedTuple):
    """A convolution that reads an input, maybe behind Transposes.

    Args:
        node: the convolution.
        kernel: its kernel.
        axis: where it reads the axis of the normalization's channels; None where one number is for all.
    """

    node: ir.Node
    kernel: NDArray[np.generic]
    axis: int | None

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


def fold_normalization(constants: Constants, value: ir.Value, wanted: Normalization) -> Normalization:
    """Fold what an input is normalized with into the kernels that read it, in place.

    Args:
        constants: of the model.
        value: the input.
        wanted: its normalization, with the axis as the input stores it.

    Returns:
        What operators still have to do: `wanted` if nothing was folded.
    """
    between: list[ir.Value] = []
    readers = list(_readers(constants, value, wanted.axis, between))
    if not readers or None in readers:
        return wanted
    convolutions = [reader for reader in readers if reader is not None]
    if not all(_is_exact(reader, wanted) for reader in convolutions):
        return wanted
    keeps_mean = any(reader.has_borders for reader in convolutions)
    for reader in convolutions:
        _fold(constants, reader, wanted, keeps_mean=keeps_mean)
    for each in between:  # it holds other numbers than the source's of that name
        each.name = constants.names.unique(f"{each.name}/raw")
        each.metadata_props.clear()
    zeros, ones = (0.0,) * len(wanted.mean), (1.0,) * len(wanted.std)
    return wanted._replace(mean=wanted.mean if keeps_mean else zeros, std=ones)


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
    if node.op_type not in FOLDS or node.domain not in ("", "ai.onnx") or axis not in (None, CHANNELS):
        return None
    known = [constants.array(each) for each in node.inputs[1:] if each is not None]
    image = node.inputs[0]
    dtype = None if image is None or image.dtype is None else image.dtype.numpy()
    if not known or any(array is None or array.dtype != dtype for array in known) or known[0] is None:
        return None
    return _Reader(node, known[0], axis)


def _is_exact(reader: _Reader, wanted: Normalization) -> bool:
    """Tell whether a kernel's type holds its numbers once they are divided: none is infinite, or subnormal."""
    kernel = reader.kernel
    with np.errstate(all="ignore"):
        scaled = np.abs((kernel.astype(np.float64) / reader.per_channel(wanted.std))[kernel != 0])
    limits = np.finfo(str(kernel.dtype))
    return not scaled.size or bool(float(limits.tiny) <= scaled.min() and scaled.max() <= float(limits.max))


def _fold(constants: Constants, reader: _Reader, wanted: Normalization, *, keeps_mean: bool) -> None:
    node, kernel = reader.node, reader.kernel
    stem = node.name or node.outputs[0].name or node.op_type
    scaled = kernel.astype(np.float64) / reader.per_channel(wanted.std)
    node.replace_input_with(1, constants.new(f"{stem}/scaled", scaled.astype(kernel.dtype)))
    if keeps_mean:
        return
    moved = (scaled * reader.per_channel(wanted.mean)).sum(axis=tuple(range(1, kernel.ndim)))
    bias = constants.array(node.inputs[2]) if len(node.inputs) > 2 else None
    shift = -moved if bias is None else bias.astype(np.float64) - moved
    node.resize_inputs(3)
    node.replace_input_with(2, constants.new(f"{stem}/shift", shift.astype(kernel.dtype)))
