"""onnx2tf on the standard's node tests: its file counts as right in whatever types and layout it has the test's values.

Inputs go in by name where it kept the names, else by place; with channels last, or as they are. Outputs may have other
types and channels last. The better of both ways counts, so no layout that it chose is held against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from there_and_back import error_line, peer_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


class Peer:
    """A process that has imported onnx2tf; each conversion runs in a fork of it."""

    def __init__(self, python: str) -> None:
        self.tool = peer_of(python)

    def convert(self, model: onnx.ModelProto, folder: Path) -> Path | str:
        """Return the file that it wrote, or why there is none."""
        source, log = folder / "model.onnx", folder / "log"
        onnx.save(model, source)
        done = self.tool.run(["-i", str(source), "-o", str(folder / "out"), "-n"], log, fork=True)
        result = folder / "out" / "model_float32.tflite"
        died = f"the process died of signal {-done.code}" if done.code < 0 else ""
        return result if result.exists() else (died or error_line(log)).replace(str(folder), "")[:300]

    def close(self) -> None:
        """End the process."""
        if self.tool.server is not None:
            self.tool.server.communicate()


def ways(content: bytes, feed: dict[str, Array], shapes: list[tuple[int, ...]]) -> Iterator[Callable[[], list[Array]]]:
    """Yield the ways to run a file: inputs with channels last or as they are, outputs read in either layout."""
    for last in (True, False):
        for back in (True, False):
            yield lambda last=last, back=back: run_loosely(content, feed, shapes, last=last, back=back)


def run_loosely(
    content: bytes, feed: dict[str, Array], shapes: list[tuple[int, ...]], *, last: bool, back: bool
) -> list[Array]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    details = interpreter.get_input_details()
    names = [detail["name"].removeprefix("serving_default_").partition(":")[0] for detail in details]
    names = names if set(names) <= set(feed) else list(feed)
    arrays = [np.moveaxis(feed[name], 1, -1) if last and feed[name].ndim > 2 else feed[name] for name in names]
    for detail, array in zip(details, arrays, strict=True):
        if tuple(detail["shape"]) != array.shape:
            interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()
    for detail, array in zip(details, arrays, strict=True):
        interpreter.set_tensor(detail["index"], np.array(array, detail["dtype"], order="C"))
    interpreter.invoke()
    return [
        reading(interpreter.get_tensor(detail["index"]), shape, back)
        for detail, shape in zip(interpreter.get_output_details(), shapes, strict=True)
    ]


def reading(array: Array, shape: tuple[int, ...], back: bool) -> Array:
    """Return an output in the test's layout where it has channels last."""
    moved = np.moveaxis(array, -1, 1) if array.ndim > 2 else array
    return moved if moved.shape == shape and (back or array.shape != shape) else array
