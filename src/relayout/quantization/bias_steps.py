"""Steps of a kernel's integers in which its bias fits.

An integer kernel adds its bias in steps of `scale(x) · scale(w)`. Where all weights of an output are 0, or almost, the
quantizer's step is so small that no integer holds the bias: the output would be as if there was none.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Subgraph, Tensor, array_content

PLACES: Mapping[str, tuple[int, int, int]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), (0, 1, 2)),
    "TRANSPOSE_CONV": (2, 1, 3),
}
"""Operator -> the places of its image, kernel and bias."""
MOST: Mapping[TensorType, int] = {TensorType.INT32: 1 << 30, TensorType.INT64: 1 << 40}
"""Type of a bias -> the most steps that it may have: LiteRT rescales no more."""
CLIPPED = (1 << 31) - 1
"""Steps from which on the quantizer clips a bias."""


def with_room_for_biases(
    quantized: Model,  # the quantized file
    file: Model,  # the float one, whose tensors have the same names
) -> Model:
    """Return a quantized file in which each bias fits; the scales of kernels are larger where they have to be."""
    reals: dict[str, NDArray[np.float32]] = {}
    for graph in file.subgraphs:
        for operator in graph.operators:
            for kernel, place in _kernel_and_bias(operator):
                bias = graph.tensors[place]
                if bias.type == TensorType.FLOAT32 and bias.data is not None:
                    reals[graph.tensors[kernel].name] = bias.content.view(np.float32)
    return quantized._replace(subgraphs=tuple(_with_room(graph, reals) for graph in quantized.subgraphs))


def _kernel_and_bias(operator: Operator) -> list[tuple[int, int]]:
    """Return the tensors of an operator's kernel and bias; nothing where it has none."""
    _, kernel, bias = PLACES.get(operator.name, (0, 0, len(operator.inputs)))
    return [(operator.inputs[kernel], each) for each in operator.inputs[bias : bias + 1] if each >= 0]


def _with_room(
    graph: Subgraph,
    reals: Mapping[str, NDArray[np.float32]],  # name of a kernel -> the bias beside it
) -> Subgraph:
    """Return a graph in which each bias fits."""
    tensors, operators = [*graph.tensors], [*graph.operators]
    readers = Counter(each for operator in operators for each in operator.inputs)
    for number, operator in enumerate(operators):
        for place, own in _kernel_and_bias(operator):
            image, kernel, bias = tensors[operator.inputs[PLACES[operator.name][0]]], tensors[place], tensors[own]
            if kernel.name not in reals or readers[place] > 1:
                continue
            tensors[place], changed = _with_steps(image, kernel, bias, reals[kernel.name])
            if changed is not bias:  # others may read it
                tensors.append(replace(changed, index=len(tensors), name=f"{kernel.name}/bias"))
                inputs = (tensors[-1].index if each == own else each for each in operator.inputs)
                operators[number] = operator._replace(inputs=tuple(inputs))
    return graph._replace(tensors=tuple(tensors), operators=tuple(operators))


def _with_steps(image: Tensor, kernel: Tensor, bias: Tensor, reals: NDArray[np.float32]) -> tuple[Tensor, Tensor]:
    """Return a kernel and its bias with steps that are large enough."""
    own, most = kernel.quantization, MOST.get(bias.type)
    if own is None or most is None or image.quantization is None or bias.quantization is None:
        return kernel, bias
    if kernel.type != TensorType.INT8 or own.scale.size != reals.size or own.zero_point.any():
        return kernel, bias
    steps = image.quantization.scale.astype(np.float64) * own.scale
    larger = np.maximum(steps, np.abs(reals.astype(np.float64)) / most)
    sums = np.rint(reals / larger).astype(np.int32 if bias.type == TensorType.INT32 else np.int64)
    if np.array_equal(steps, larger):  # of 64 bits the quantizer uses 32
        return kernel, bias if np.abs(sums).max() < CLIPPED else replace(bias, data=array_content(sums))
    shape = [-1 if axis == own.axis else 1 for axis in range(len(kernel.shape))]
    integers = kernel.content.view(np.int8).reshape(kernel.shape)
    fewer = np.rint(integers * (steps / larger).reshape(shape)).astype(np.int8)
    scale = (own.scale * (larger / steps)).astype(np.float32)
    meaning = bias.quantization._replace(scale=larger.astype(np.float32))
    return (
        replace(kernel, data=array_content(fewer), quantization=own._replace(scale=scale)),
        replace(bias, data=array_content(sums), quantization=meaning),
    )
