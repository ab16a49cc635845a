"""Files and small models for the tests of the writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tflite_cases import every

from conftest import KERAS, SHARED
from relayout.formats.flatbuffer_writer import LIMIT
from relayout.formats.stored import CHUNK
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.model import Model, Operator, Signature, Subgraph, Tensor
from relayout.formats.tflite.container.writer import options

OWN = sorted((Path(__file__).parents[3] / "models").glob("*.tflite"))
FINDINGS = sorted((Path(__file__).parents[2] / "fuzz" / "findings").glob("*.tflite"))
BESIDE = sorted(SHARED.parent.rglob("*.tflite"))
"""Real files beside the project; none where they are absent."""

FILES = [*OWN, *sorted(KERAS.glob("*.tflite")), *FINDINGS, *BESIDE]

Ranges = Sequence[tuple[float, float]]

INSIDE, BEHIND = LIMIT, 0
"""The most bytes of a flatbuffer: buffers are in it, or behind it."""


@cache
def built() -> dict[str, tuple[bytes, Ranges]]:
    """The small models of the importer's tests, and the ranges of their inputs."""
    return {name: (net.bytes(), net.ranges) for name, net in every().items()}


def added(size: int = 1000) -> Model:
    """A constant and an input, added."""
    constant = np.arange(size, dtype=np.float32).view(np.uint8)
    return sum_of(size, constant)


def sum_of(size: int, constant: Any) -> Model:
    tensors = (
        Tensor(0, "x", TensorType.FLOAT32, (size,), (size,)),
        Tensor(1, "c", TensorType.FLOAT32, (size,), (size,), constant),
        Tensor(2, "y", TensorType.FLOAT32, (size,), (size,)),
    )
    operator = Operator("ADD", 1, (0, 1), (2,), options=options("AddOptions"))
    graph = Subgraph("main", tensors, (0,), (2,), (operator,))
    return Model("", (graph,), (Signature("serve", 0, (("left", 0),), (("sum", 2),)),))


class Pieces:
    """Bytes that nobody holds."""

    def __init__(self, nbytes: int, *, missing: int = 0, error: Exception | None = None) -> None:
        self.nbytes, self.missing, self.error = nbytes, missing, error

    def chunks(self) -> Iterator[bytes]:
        piece = bytes(range(256)) * (CHUNK // 256)
        left = self.nbytes - self.missing
        while left > 0:
            yield piece[:left]
            left -= CHUNK
            if self.error and left < self.nbytes // 2:
                raise self.error
