"""Constants as contents of a `.tflite` file. Those of an ONNX graph are evaluated, or read, when they are written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from relayout.errors import WriteError
from relayout.formats.onnx.parts import raw_chunks
from relayout.formats.stored import nbytes


class TensorContent:
    """The raw data of a tensor. Both formats store it alike: little-endian, types below a byte packed, the first low.

    Args:
        tensor: a tensor, which may be lazy.

    Raises:
        WriteError: it is one of strings (see `texts.packed_texts`).
    """

    def __init__(self, tensor: ir.TensorProtocol) -> None:
        if tensor.dtype == ir.DataType.STRING:
            raise WriteError(f"constant {tensor.name!r} has strings, which are no raw data")
        self.tensor = tensor
        self.nbytes = nbytes(tensor.dtype, tuple(tensor.shape.numpy()))

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes; a lazy tensor is evaluated anew for each call."""
        return raw_chunks(self.tensor, self.nbytes)


def array_content(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array as a constant's data: little-endian, in C order, copied only if they are not so."""
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return ordered.reshape(-1).view(np.uint8)
