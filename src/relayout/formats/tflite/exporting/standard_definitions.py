"""Definitions of operators of the standard that LiteRT runs along other axes: Transposes that layouts pass through.

Gemm<transA=1>(x, w)  ->  Gemm(Transpose(x), w)
DFT<axis=0>(x)        ->  Transpose(DFT(Transpose(x)))
Col2Im(x)             ->  Reshape(Transpose(Reshape(x))),    where blocks do not overlap
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import prod

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

from relayout.formats.tflite.exporting.builder import require_few
from relayout.formats.tflite.exporting.definition_body import DefinitionBody, definition_by
from relayout.formats.tflite.exporting.registry import OpenExtentError, Unwritable

LARGEST = 1 << 24  # elements of a matrix up to which a transform is written
AXIS_AS_OPERAND = 20  # the version of the standard from which on the axis of a DFT is an operand


def _dft(body: DefinitionBody) -> None:
    """MatMul with the transform's matrix, real and imaginary parts side by side, between Transposes."""
    attributes, rank, shape = body.node.attributes, body.rank, body.shape or ()
    axis = attributes.get_int("axis", 1)
    if body.version >= AXIS_AS_OPERAND:
        axis = int(body.required_constant(2, "the axis of a transform").reshape(-1)[0]) if body.has(2) else -2
    axis %= rank
    count, parts = shape[axis], shape[-1]
    if not isinstance(count, int) or not isinstance(parts, int):
        raise OpenExtentError("the length of a transform is known only at run time")
    if body.kind not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        raise Unwritable("a transform of other numbers than float32 and float16")
    inverse, onesided = bool(attributes.get_int("inverse", 0)), bool(attributes.get_int("onesided", 0))
    is_real = inverse and onesided  # half a spectrum, which is that of real numbers
    length = 2 * (count - 1) if is_real else count
    if body.has(1):
        length = int(body.required_constant(1, "the length of a transform").reshape(-1)[0])
    bins = length // 2 + 1 if onesided and not inverse else length
    if is_real:
        matrix = from_half(length, count)
    else:
        matrix = transform_matrix(length, bins, min(count, length), count, parts, inverse=inverse)
    order = [*(each for each in range(rank - 1) if each != axis), axis, rank - 1]
    data = "x0" if axis == rank - 2 else body.transpose("x0", *order)
    front = (0,) * (rank - 2)
    columns = body.const(np.ascontiguousarray(matrix.T.astype(body.kind.numpy())))
    spectrum = body.add("MatMul", body.reshape(data, *(front or (1,)), count * parts), columns)
    spectrum = body.reshape(spectrum, *front, bins, 1 if is_real else 2)
    body.give(spectrum if axis == rank - 2 else body.transpose(spectrum, *np.argsort(order).tolist()))


def transform_matrix(
    length: int,  # of the transform
    bins: int,  # frequencies that are wanted
    used: int,  # elements that count
    count: int,  # elements that there are
    parts: int,  # 1 for real numbers, 2 for complex ones
    *,
    inverse: bool = False,  # whether it is the way back
) -> NDArray[np.float32]:
    """Return the matrix of a transform, `bins·2 count·parts`."""
    if bins * count * 2 * parts > LARGEST:
        raise Unwritable("a transform of that length")
    angles = 2 * np.pi * ((np.arange(bins)[:, None] * np.arange(used)) % length) / length
    real, imaginary = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    matrix = np.zeros((bins, 2, count, parts))
    matrix[:, 0, :used, 0], matrix[:, 1, :used, 0] = real, imaginary
    if parts > 1:
        matrix[:, 0, :used, 1], matrix[:, 1, :used, 1] = -imaginary, real
    if inverse:
        matrix /= length
    return matrix.reshape(bins * 2, count * parts).astype(np.float32)


def from_half(
    length: int,  # of the result
    count: int,  # frequencies that there are: those beyond half the length do not count
) -> NDArray[np.float32]:
    """Return the matrix of the way back from half a spectrum to real numbers, `length count·2`.

    Each frequency but the first and that of half the length stands for its mirror image, too.
    """
    if length * count * 2 > LARGEST:
        raise Unwritable("a transform of that length")
    frequencies = np.arange(min(count, length // 2 + 1))
    angles = 2 * np.pi * ((np.arange(length)[:, None] * frequencies) % length) / length
    weights = np.where((frequencies == 0) | (2 * frequencies == length), 1, 2) / length
    matrix = np.zeros((length, count, 2))
    matrix[:, : len(frequencies), 0] = weights * np.cos(angles)
    matrix[:, : len(frequencies), 1] = -weights * np.sin(angles)
    return matrix.reshape(length, count * 2).astype(np.float32)


def _col2im(body: DefinitionBody) -> None:
    """Reshape, Transpose and Reshape; where blocks overlap ScatterND, which adds, between Transposes."""
    whole, sides = (
        body.required_constant(1, "the extents of an image").tolist(),
        body.required_constant(2, "the extents of a block").tolist(),
    )
    count = len(whole)
    attributes = body.node.attributes
    pads = attributes.get_ints("pads", [0] * (2 * count))
    strides, dilations = (attributes.get_ints(name, [1] * count) for name in ("strides", "dilations"))
    batch, columns, blocks = body.shape or ()
    if not isinstance(columns, int) or not isinstance(blocks, int):
        raise OpenExtentError("the number of blocks or channels is known only at run time")
    channels = columns // prod(sides)
    numbers = [extent // side for extent, side in zip(whole, sides, strict=True)]
    is_cut = [*strides] == sides and not any(pads) and all(step == 1 for step in dilations)
    if is_cut:
        if prod(numbers) != blocks:
            raise Unwritable("another number of blocks than the image has")
        body.give(_beside_each_other(body, channels, sides, numbers, whole))
        return
    if not isinstance(batch, int):
        raise OpenExtentError("the number of images is known only at run time")
    bordered = [extent + pads[axis] + pads[count + axis] for axis, extent in enumerate(whole)]
    require_few(prod(sides) * blocks)
    places = _block_places(bordered, sides, strides, dilations)
    if places.size != prod(sides) * blocks:
        raise Unwritable("another number of blocks than the image has")
    rows = body.transpose(body.reshape("x0", batch * channels, prod(sides) * blocks), 1, 0)
    zeros = onnx.numpy_helper.from_array(np.zeros(1, (body.kind or ir.DataType.FLOAT).numpy()))
    lines = [1] * (count == 1) + bordered  # an axis more: places along one axis are scattered element by element
    target = body.add("ConstantOfShape", body.const(np.array([*lines, batch * channels])), value=zeros)
    coordinates = body.const(np.stack(np.unravel_index(places.reshape(-1), lines), -1))
    sums = body.add("ScatterND", target, coordinates, rows, reduction="add")
    image = body.transpose(sums, len(lines), *range(len(lines)))
    image = body.reshape(image, batch, channels, *bordered)
    for axis, extent in enumerate(whole):
        image = image if bordered[axis] == extent else body.part(image, 2 + axis, pads[axis], extent)
    body.give(image)


def _beside_each_other(
    body: DefinitionBody, channels: int, sides: Sequence[int], numbers: Sequence[int], whole: Sequence[int]
) -> str:
    """Return the image of blocks that do not overlap, with zeros where no block lies."""
    split, count = body.reshape("x0", 0, channels, *sides, *numbers), len(sides)
    order = chain.from_iterable((2 + count + axis, 2 + axis) for axis in range(count))
    covered = [number * side for number, side in zip(numbers, sides, strict=True)]
    image = body.reshape(body.transpose(split, 0, 1, *order), 0, channels, *covered)
    rest = [extent - part for extent, part in zip(whole, covered, strict=True)]
    return body.add("Pad", image, body.const(np.array([0] * (4 + count) + rest))) if any(rest) else image


def _block_places(
    whole: Sequence[int], block: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> NDArray[np.int64]:
    """Return where each element of each block lies in an image, `block… blocks…`."""
    count = len(whole)
    places = np.zeros([1] * (2 * count), np.int64)
    for axis, extent in enumerate(whole):
        starts = np.arange(0, extent - (block[axis] - 1) * dilations[axis], strides[axis])
        along = np.arange(block[axis])[:, None] * dilations[axis] + starts
        shape = [1] * (2 * count)
        shape[axis], shape[count + axis] = along.shape
        places = places + along.reshape(shape) * prod(whole[axis + 1 :])
    return places


DEFINITIONS: Mapping[str, Callable[[DefinitionBody], None]] = {"Col2Im": _col2im, "DFT": _dft}
"""Operator of the standard -> what adds the nodes that compute it."""
standard_definition_of = definition_by(("", "ai.onnx"), DEFINITIONS, DefinitionBody)
