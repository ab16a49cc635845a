"""Depthwise convolutions of int8 with channels in sixteens: the others get some more, which nothing comes of.

ONNX Runtime's fast kernel takes so many channels at once and no other numbers: 72 channels take two and a half times as
long as 80. What is more is computed from weights of 0, passes through operators that keep channels apart, and meets
weights of 0 again in the convolutions behind; the other channels hold what they held. Tensors that have grown have a
name of their own.

1. Tensors that have their channels in common (operand and result of a depthwise convolution, of an addition ...) grow
   together, or not at all.
2. They grow if a depthwise convolution is among them, and nothing but convolutions and such operators sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.importing.import_passes import AS_IN_FILE, FilePass
from relayout.formats.tflite.importing.importer import SubgraphRewriting
from relayout.light_dataclass import dataclass

TOGETHER, LEAST = 16, 8
"""So many channels at once are what the kernel takes; and so few of them are not worth as many others."""

KEEPING = frozenset(  # operators of which a channel of the result follows from the same channel of the operands alone
    ("ADD", "DEPTHWISE_CONV_2D", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MEAN", "MUL", "RELU", "RELU6", "SUB", "TANH")
)

_ELEMENTS = {TensorType.INT8: np.int8, TensorType.INT32: np.int32, TensorType.FLOAT32: np.float32}


def aligned(model: Model) -> Model:
    """The model with channels of depthwise convolutions in sixteens, wherever nobody notices."""
    return model._replace(subgraphs=tuple(_Growing(subgraph).run() for subgraph in model.subgraphs))


PASS = FilePass("pad_depthwise_channels", aligned, requires=frozenset((AS_IN_FILE,)))
"""Images are int8 for it: channels of what is uint8 already stay as many."""


def _channels(tensor: Tensor) -> int:
    """The channels of an image that may grow; 0 of any other tensor."""
    quantization = tensor.quantization
    image = tensor.type == TensorType.INT8 and len(tensor.shape) == 4 and tensor.signature[3] == tensor.shape[3]
    plain = tensor.data is None and not tensor.is_variable and quantization is not None and not quantization.per_channel
    return tensor.shape[3] if image and plain else 0


def _is_plain(tensor: Tensor, *types: TensorType) -> bool:
    """Whether a tensor is a dense constant of one of these types."""
    return tensor.data is not None and tensor.sparsity is None and tensor.type in types


def grown(tensor: Tensor, axis: int, extent: int) -> Tensor:
    """A constant or an image with more elements along one axis; zeros in a constant, with the last one's scale."""
    shape = (*tensor.shape[:axis], extent, *tensor.shape[axis + 1 :])
    more = [(0, extent - have if i == axis else 0) for i, have in enumerate(tensor.shape)]
    quantization, data = tensor.quantization, None if tensor.data is None else tensor.content
    if data is not None:
        zero = int(quantization.zero_point[0]) if quantization is not None else 0
        elements = data.view(np.dtype(_ELEMENTS[tensor.type]).newbyteorder("<")).reshape(tensor.shape)
        data = np.pad(elements, more, constant_values=zero).reshape(-1).view(np.uint8)
    if quantization is not None and quantization.per_channel and quantization.axis == axis:
        last = (0, extent - quantization.scale.size)  # the last pair again and again
        pair = (np.pad(v, last, mode="edge") for v in (quantization.scale, quantization.zero_point))
        scale, zero_point = pair
        quantization = quantization._replace(scale=scale.astype(np.float32), zero_point=zero_point.astype(np.int64))
    signature = (*tensor.signature[:axis], extent, *tensor.signature[axis + 1 :])
    return replace(tensor, shape=shape, signature=signature, data=data, quantization=quantization)


@dataclass
class _Growing(SubgraphRewriting):
    """One subgraph while its tensors grow. `parents` joins tensors that have their channels in common."""

    parents: dict[int, int] = field(default_factory=dict)

    def run(self) -> Subgraph:
        operators, fixed = self.subgraph.operators, {*self.subgraph.inputs, *self.subgraph.outputs}
        wanted = set()
        for operator in operators:
            fixed |= self._join(operator)
            if operator.name == "DEPTHWISE_CONV_2D":
                channels = {i: _channels(self.tensors[i]) for i in operator.outputs if i >= 0}
                wanted |= {i for i, count in channels.items() if count >= LEAST and count % TOGETHER}
        groups = {self._root(i) for i in wanted} - {self._root(i) for i in fixed}
        if not groups:
            return self.subgraph
        growing = {i for i in self.parents if self._root(i) in groups}
        for i in sorted(growing):
            tensor = self.tensors[i]
            more = -(-tensor.shape[3] // TOGETHER) * TOGETHER
            self.tensors[i] = replace(grown(tensor, 3, more), name=f"{tensor.name}/wider")
        rewritten = tuple(self._rewritten(operator, growing) for operator in operators)
        return self.subgraph._replace(tensors=tuple(self.tensors), operators=rewritten)

    def _root(self, index: int) -> int:
        while self.parents.setdefault(index, index) != index:
            self.parents[index] = self.parents[self.parents[index]]
            index = self.parents[index]
        return index

    def _join(self, operator: Operator) -> set[int]:
        """Join the tensors whose channels are the same; returns those that have to stay as they are."""
        seen = {*operator.inputs, *operator.outputs, *operator.intermediates} - {-1}
        if operator.name not in KEEPING | {"CONV_2D"} or len(operator.outputs) != 1 or min(operator.outputs) < 0:
            return seen
        if operator.name == "CONV_2D":
            return seen - {operator.inputs[0], operator.outputs[0]} if self._has_weights(operator, 0) else seen
        images = {i for i in seen if _channels(self.tensors[i])}
        if not self._keeps(operator, images):
            return seen
        first, *others = sorted(images)
        for other in others:
            self.parents[self._root(other)] = self._root(first)
        return set()

    def _constants(self, operator: Operator) -> tuple[Tensor | None, Tensor | None]:
        """A convolution's weights and bias."""
        found = [self.tensors[i] if i >= 0 else None for i in operator.inputs[1:3]]
        return found[0] if found else None, found[1] if len(found) > 1 else None

    def _has_weights(self, operator: Operator, axis: int) -> bool:
        """Whether a convolution that is not grouped has weights around 0 that can grow, the results along an axis."""
        kernel, bias = self._constants(operator)
        if kernel is None or kernel.quantization is None or operator.inputs[0] < 0:
            return False
        quantization, data = kernel.quantization, self.tensors[operator.inputs[0]]
        result = self.tensors[operator.outputs[0]]
        channels = result.shape[-1:]
        return (
            _is_plain(kernel, TensorType.INT8)
            and len(kernel.shape) == len(data.shape) == len(result.shape) == 4
            and kernel.shape[3] == data.shape[3]
            and kernel.shape[axis : axis + 1] == channels
            and not quantization.zero_point.any()
            and (not quantization.per_channel or quantization.axis == axis)
            and (bias is None or (_is_plain(bias, TensorType.INT32) and bias.shape == channels))
        )

    def _keeps(self, operator: Operator, images: set[int]) -> bool:
        """Whether an operator keeps apart the channels of all of its operands, which are as many."""
        counts = {_channels(self.tensors[i]) for i in images}
        if len(counts) != 1 or operator.outputs[0] not in images:
            return False
        if operator.name == "DEPTHWISE_CONV_2D":
            return self._has_weights(operator, 3) and operator.inputs[0] in images
        rest = [self.tensors[i] for i in operator.inputs if i >= 0 and i not in images]
        if operator.name == "MEAN":
            if len(rest) != 1 or not _is_plain(rest[0], TensorType.INT32):
                return False
            return set(rest[0].content.view("<i4").tolist()) <= {1, 2}  # height and width, counted from the front
        # A constant beside an image: one for all channels, or one for each.
        return all(
            _is_plain(t, TensorType.INT8)
            and t.quantization is not None
            and not t.quantization.per_channel
            and (t.shape[-1:] in ((), (1,)) or t.shape[-1] in counts)
            for t in rest
        )

    def _rewritten(self, operator: Operator, growing: set[int]) -> Operator:
        """The operator with constants that fit its tensors."""
        grew = growing.intersection((*operator.inputs, *operator.outputs))
        if not grew:
            return operator
        inputs = list(operator.inputs)
        for slot, axis, extent in self._changes(operator, growing):
            inputs[slot] = self.add(grown(self.tensors[inputs[slot]], axis, extent), "wider")
        return operator._replace(inputs=tuple(inputs))

    def _changes(self, operator: Operator, growing: set[int]) -> Iterator[tuple[int, int, int]]:
        """Which constants grow: operand, axis, extent."""
        _, bias = self._constants(operator)
        result = self.tensors[operator.outputs[0]].shape[-1]
        if operator.name == "CONV_2D":
            if operator.outputs[0] in growing:
                yield 1, 0, result
                if bias is not None:
                    yield 2, 0, result
            if operator.inputs[0] in growing:
                yield 1, 3, self.tensors[operator.inputs[0]].shape[3]
        elif operator.name == "DEPTHWISE_CONV_2D":
            yield 1, 3, result
            if bias is not None:
                yield 2, 0, result
        elif operator.name != "MEAN":
            for slot, index in enumerate(operator.inputs):
                tensor = self.tensors[index]
                if index >= 0 and tensor.data is not None and tensor.shape[-1:] not in ((), (1,)):
                    yield slot, len(tensor.shape) - 1, result
