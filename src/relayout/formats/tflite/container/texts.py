"""Constants that are texts: a count, the offset of each, the bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from relayout.errors import ReadError
from relayout.formats.tflite.container.model import Tensor
from relayout.formats.tflite.importing.registry import Unsupported


def packed_texts(encoded: Sequence[bytes]) -> npt.NDArray[np.uint8]:
    """Return the data of a constant of strings."""
    starts = np.cumsum([4 * (len(encoded) + 2), *map(len, encoded)])
    head = np.array([len(encoded), *starts], "<i4").tobytes()
    return np.frombuffer(head + b"".join(encoded), np.uint8)


def texts(tensor: Tensor) -> list[str]:
    """The elements of a constant of strings, which ONNX wants as UTF-8.

    Raises:
        ReadError: the offsets do not fit the bytes, or their number not the shape.
        Unsupported: the bytes are no UTF-8.
    """
    data = tensor.content
    count = int(data[:4].view("<i4")[0]) if data.size >= 4 else -1
    if count != math.prod(tensor.shape) or data.size < 4 * (count + 2):
        raise ReadError(f"{count} texts do not make shape {list(tensor.shape)}", where=tensor.place)
    offsets = data[4 : 4 * (count + 2)].view("<i4").astype(np.int64)
    if np.any(np.diff(offsets) < 0) or offsets[0] < 4 * (count + 2) or offsets[-1] > data.size:
        raise ReadError("the offsets of its texts point outside its buffer", where=tensor.place)
    content = data.tobytes()
    try:
        return [content[a:b].decode() for a, b in pairwise(offsets.tolist())]
    except UnicodeDecodeError:
        raise Unsupported("texts that are not UTF-8") from None
