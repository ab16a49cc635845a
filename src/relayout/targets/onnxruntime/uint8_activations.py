"""int8 activations as uint8: the same numbers, integers and zero points 128 higher.

On x86 ONNX Runtime has integer kernels for activations of uint8. A unit of dequantize - operator - quantize on int8 is
changed to uint8 by its optimizer only where the quantized tensor has one reader; around every other one the units stay
float. So the importer changes the types itself, in the model that was read: what it yields is a model that TFLite could
run, too. Weights stay int8, which is what those kernels want beside uint8 activations. The interface keeps its types.

1. A tensor is changed where only operators of the tables below read and write it.
2. Where others do as well, or it is part of the interface, it has a twin of uint8, and a QUANTIZE between the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

import numpy as np

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor
from relayout.formats.tflite.importing.import_passes import AS_IN_FILE
from relayout.formats.tflite.importing.importer import SubgraphRewriting
from relayout.graph.passes import Pass, Stage
from relayout.light_dataclass import dataclass

SHIFT = 128
BYTES = (TensorType.INT8, TensorType.UINT8)

COMPUTING = (  # operators that compute with what integers mean, and yield integers that mean the result
    "ABS ADD ADD_N AVERAGE_POOL_2D BATCH_MATMUL CONV_2D CONV_3D CONV_3D_TRANSPOSE COS CUMSUM DEPTHWISE_CONV_2D DIV ELU "
    "EXP FULLY_CONNECTED GELU HARD_SWISH L2_NORMALIZATION LEAKY_RELU LOG LOGISTIC LOG_SOFTMAX MEAN MUL PRELU "
    "REDUCE_PROD RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESIZE_BILINEAR RSQRT SIN SOFTMAX SQRT SQUARE SQUARED_DIFFERENCE "
    "SUB SUM TANH TRANSPOSE_CONV"
)

MOVING = (  # operators that move or compare integers, for which a shift of all of them is no difference
    "ARG_MAX ARG_MIN BATCH_TO_SPACE_ND BROADCAST_TO CONCATENATION DEPTH_TO_SPACE EXPAND_DIMS GATHER GATHER_ND MAXIMUM "
    "MAX_POOL_2D MINIMUM MIRROR_PAD PACK PAD PADV2 REDUCE_MAX REDUCE_MIN RESHAPE RESIZE_NEAREST_NEIGHBOR REVERSE_V2 "
    "SELECT SELECT_V2 SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK"
)

KNOWN = frozenset(f"{COMPUTING} {MOVING}".split())

TOLERANT = frozenset(("DEQUANTIZE", "QUANTIZE", "RANK", "SHAPE"))
"""Operators that take either type, and give either where they give one of the two."""

DATA_OF_WEIGHTS = {
    **dict.fromkeys(("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), 0),
    **dict.fromkeys(("CONV_3D_TRANSPOSE", "TRANSPOSE_CONV"), 2),
}
"""Operators whose operand 1 is weights -> which operand is data."""
WEIGHTS = {"BATCH_MATMUL": (0, 1), **dict.fromkeys((*DATA_OF_WEIGHTS, "PRELU"), (1,))}
"""Which operands stay as they are where nothing in their subgraph computes them."""


def unsigned(model: Model) -> Model:
    """Return the model with int8 activations as uint8, wherever operators are known that do not notice."""
    return model._replace(subgraphs=tuple(_Shifting(subgraph).run() for subgraph in model.subgraphs))


PASS = Pass("uint8_activations", unsigned, stage=Stage.FILE, ends=(AS_IN_FILE,))


def moved_by_128(tensor: Tensor, kind: TensorType = TensorType.UINT8) -> Tensor:
    """Return the same numbers as uint8, or as int8; a constant's elements become a copy."""
    if tensor.quantization is None:
        raise ValueError(f"{tensor.name} is not quantized")
    shift = SHIFT if kind == TensorType.UINT8 else -SHIFT
    quantization = tensor.quantization._replace(zero_point=tensor.quantization.zero_point + shift)
    data = None if tensor.data is None else tensor.content ^ np.uint8(SHIFT)
    return replace(tensor, type=kind, quantization=quantization, data=data, shifted=True)


@dataclass
class _Shifting(SubgraphRewriting):
    """One subgraph while its tensors are changed. `twins` are uint8 beside a tensor that stays, by its index."""

    twins: dict[int, int] = field(default_factory=dict)

    def run(self) -> Subgraph:
        subgraph = self.subgraph
        changed = [(operator, self._changed(operator)) for operator in subgraph.operators]
        if not any(changed_tensors for operator, changed_tensors in changed if operator.name in COMPUTING.split()):
            return subgraph
        fixed_tensors = {*subgraph.inputs, *subgraph.outputs}
        for operator, changed_tensors in changed:
            if operator.name not in TOLERANT:
                fixed_tensors |= {*operator.inputs, *operator.outputs, *operator.intermediates} - {-1} - changed_tensors
        for index in sorted(set().union(*(changed_tensors for _, changed_tensors in changed))):
            if index in fixed_tensors:
                self.twins[index] = self.add(moved_by_128(self.tensors[index]), "unsigned")
            else:
                self.tensors[index] = moved_by_128(self.tensors[index])
        operators = [*self._twinned(subgraph.inputs)]
        for operator, changed_tensors in changed:
            operators += self._written(operator, changed_tensors)
        return subgraph._replace(tensors=tuple(self.tensors), operators=tuple(operators))

    def _data(self, operator: Operator) -> set[int]:
        """Return an operator's operands but its weights: constants, and what is handed in, as weights to a branch."""
        weights, graph_inputs = WEIGHTS.get(operator.name, ()), self.subgraph.inputs
        slots = [(slot, i) for slot, i in enumerate(operator.inputs) if i >= 0]
        return {i for s, i in slots if s not in weights or not (self.tensors[i].data is not None or i in graph_inputs)}

    def _changed(self, operator: Operator) -> set[int]:
        """Return the tensors that an operator would have unsigned; none where some of its bytes cannot be.

        Nor where all of its operands are constants: a table, of which a few are picked, is not copied. Nor where it
        computes and yields something else than bytes: sums of products, for one, are those of the integers themselves.
        """
        if operator.name not in KNOWN:
            return set()
        data, results = self._data(operator), {i for i in operator.outputs if i >= 0}
        if all(self.tensors[i].data is not None for i in data):
            return set()
        narrow = {i for i in data | results if self.tensors[i].type in BYTES}
        if operator.name in COMPUTING.split() and not results <= narrow:
            return set()
        for tensor in (self.tensors[i] for i in narrow):
            quantization, is_plain = tensor.quantization, not tensor.is_variable and tensor.sparsity is None
            if tensor.type != TensorType.INT8 or not is_plain or quantization is None or quantization.per_channel:
                return set()
        return narrow

    def _quantize(self, source: int, target: int) -> Operator:
        place = self.tensors[source].place
        return Operator("QUANTIZE", 1, (source,), (target,), (), None, np.empty(0, np.uint8), place)

    def _twinned(self, indices: tuple[int, ...]) -> Iterator[Operator]:
        """Yield the operators that make the twins of these tensors."""
        yield from (self._quantize(i, self.twins[i]) for i in dict.fromkeys(indices) if i in self.twins)

    def _written(self, operator: Operator, changed_tensors: set[int]) -> Iterator[Operator]:
        """The operator, on twins where it would have them; and what makes the other of each pair of its results."""

        def own(index: int) -> int:
            return self.twins[index] if index in changed_tensors and index in self.twins else index

        data = self._data(operator)
        inputs = tuple(own(i) if i in data else i for i in operator.inputs)
        outputs = tuple(map(own, operator.outputs))
        yield operator._replace(inputs=inputs, outputs=outputs)
        for index, written in zip(operator.outputs, outputs, strict=True):
            if written != index:
                yield self._quantize(written, index)
            else:
                yield from self._twinned((index,))


# Weights of uint8 beside data of uint8 as int8: the same numbers, integers and zero point 128 lower.
#
# ONNX Runtime multiplies uint8 by int8 twice as fast as uint8 by uint8. The tensor that is added beside the file's own
# is `moved_by_128`: what refuses or reads it goes by the type in the file.


def int8_weights(model: Model) -> Model:
    """Return the model with weights of uint8 as int8, where they have one scale and meet data of uint8."""
    return model._replace(subgraphs=tuple(_WeightsAsInt8(subgraph).run() for subgraph in model.subgraphs))


WEIGHTS_PASS = Pass("int8_weights", int8_weights, stage=Stage.FILE)
"""It goes by the type that each tensor has in the file: it may stand anywhere."""


class _WeightsAsInt8(SubgraphRewriting):
    """One subgraph while its weights are changed."""

    def run(self) -> Subgraph:
        int8_of: dict[int, int] = {}
        operators = tuple(self._rewritten(operator, int8_of) for operator in self.subgraph.operators)
        return self.subgraph._replace(tensors=tuple(self.tensors), operators=operators) if int8_of else self.subgraph

    def _rewritten(self, operator: Operator, int8_of: dict[int, int]) -> Operator:
        data = DATA_OF_WEIGHTS.get(operator.name)
        if data is None or len(operator.inputs) <= max(data, 1) or min(operator.inputs[data], operator.inputs[1]) < 0:
            return operator
        index = operator.inputs[1]
        weights, quantization = self.tensors[index], self.tensors[index].quantization
        of_bytes = self.tensors[operator.inputs[data]].stated == TensorType.UINT8
        if not of_bytes or not _is_plain(weights, TensorType.UINT8) or quantization is None or quantization.per_channel:
            return operator
        if index not in int8_of:
            int8_of[index] = self.add(moved_by_128(self.tensors[index], TensorType.INT8), "lowered")
        return operator._replace(inputs=(operator.inputs[0], int8_of[index], *operator.inputs[2:]))


# Depthwise convolutions of int8 with channels in sixteens: the others get some more, which nothing comes of.
#
# ONNX Runtime's fast kernel takes so many channels at once and no other numbers: 72 channels take two and a half times
# as long as 80. What is more is computed from weights of 0, passes through operators that keep channels apart, and
# meets weights of 0 again in the convolutions behind; the other channels hold what they held. Tensors that have grown
# have a name of their own.
#
# 1. Tensors that have their channels in common (operand and result of a depthwise convolution, of an addition ...) grow
#    together, or not at all.
# 2. They grow if a depthwise convolution is among them, and nothing but convolutions and such operators sees them.

TOGETHER, LEAST = 16, 8
"""So many channels at once are what the kernel takes; and so few of them are not worth as many others."""

KEEPING = frozenset(  # operators of which a channel of the result follows from the same channel of the operands alone
    ("ADD", "DEPTHWISE_CONV_2D", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MEAN", "MUL", "RELU", "RELU6", "SUB", "TANH")
)

_ELEMENTS = {TensorType.INT8: np.int8, TensorType.INT32: np.int32, TensorType.FLOAT32: np.float32}


def aligned(model: Model) -> Model:
    """Return the model with channels of depthwise convolutions in sixteens, wherever nobody notices."""
    return model._replace(subgraphs=tuple(_Growing(subgraph).run() for subgraph in model.subgraphs))


PADDING_PASS = Pass("pad_depthwise_channels", aligned, stage=Stage.FILE, requires=(AS_IN_FILE,))
"""Images are int8 for it: channels of what is uint8 already stay as many."""


def _channels(tensor: Tensor) -> int:
    """Return the channels of an image that may grow; 0 of any other tensor."""
    quantization = tensor.quantization
    image = tensor.type == TensorType.INT8 and len(tensor.shape) == 4 and tensor.signature[3] == tensor.shape[3]
    plain = tensor.data is None and not tensor.is_variable and quantization is not None and not quantization.per_channel
    return tensor.shape[3] if image and plain else 0


def _is_plain(tensor: Tensor, *types: TensorType) -> bool:
    """Tell whether a tensor is a dense constant of one of these types."""
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
        uneven_tensors = set()
        for operator in operators:
            fixed |= self._join(operator)
            if operator.name == "DEPTHWISE_CONV_2D":
                channels = {i: _channels(self.tensors[i]) for i in operator.outputs if i >= 0}
                uneven_tensors |= {i for i, count in channels.items() if count >= LEAST and count % TOGETHER}
        groups = {self._root(i) for i in uneven_tensors} - {self._root(i) for i in fixed}
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
        """Return a convolution's weights and bias."""
        constants = [self.tensors[i] if i >= 0 else None for i in operator.inputs[1:3]]
        return constants[0] if constants else None, constants[1] if len(constants) > 1 else None

    def _has_weights(self, operator: Operator, axis: int) -> bool:
        """Tell whether a convolution without groups has weights around 0 that can grow, the results along an axis."""
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
        """Tell whether an operator keeps its operands' channels separate, and all have the same number of them."""
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
        """Return the operator with constants that fit its tensors."""
        grew = growing.intersection((*operator.inputs, *operator.outputs))
        if not grew:
            return operator
        inputs = list(operator.inputs)
        for slot, axis, extent in self._changes(operator, growing):
            inputs[slot] = self.add(grown(self.tensors[inputs[slot]], axis, extent), "wider")
        return operator._replace(inputs=tuple(inputs))

    def _changes(self, operator: Operator, growing: set[int]) -> Iterator[tuple[int, int, int]]:
        """Yield operand, axis and new extent of each constant that grows."""
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
