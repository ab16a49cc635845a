"""Sessions of ONNX Runtime in a child process, which is kept: where a model ends it, that is an error."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from relayout.errors import MissingRuntimeError
from relayout.isolation import DiedError, Process, frames
from relayout.verification.side import Array

NEEDED = "running ONNX needs ONNX Runtime: pip install 'relayout[verify]'"
"""What to say where it is not there."""

_NUMBERS = count()
_CLOSED: list[int] = []
"""Numbers of sessions that nobody has any longer."""


class FailedError(Exception):
    """What ONNX Runtime says of a model, or of what it is fed."""


class AbortedError(FailedError):
    """ONNX Runtime ended its process."""


class End(NamedTuple):
    """An input or output of a session: its name, and its type in ONNX Runtime's words."""

    name: str
    type: str


class Session:
    """A model in ONNX Runtime, on its CPU provider, with one thread.

    Args:
        source: its file, which stays as it is, or its bytes.
        optimized: with ONNX Runtime's optimizations.

    Raises:
        FailedError: ONNX Runtime does not load it; AbortedError: it ends its process over it.
        MissingRuntimeError: it is not installed.
    """

    def __init__(self, source: Path | bytes, optimized: bool = True) -> None:
        self._source = source if isinstance(source, bytes) else os.path.abspath(source)  # the process may be elsewhere
        self._optimized = optimized
        self._number = next(_NUMBERS)
        self._child = 0
        self._open()

    def get_inputs(self) -> list[End]:
        """The model's inputs."""
        return self._inputs

    def get_outputs(self) -> list[End]:
        """The model's outputs."""
        return self._outputs

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, Array]) -> list[Any]:
        """The outputs of these names, or all.

        Raises:
            FailedError: ONNX Runtime fails; AbortedError: it ends its process.
        """
        if self._child != _process().child:  # another model, or this one, ended the process that had it
            self._open()
        found: list[Any] = _asked("run", self._number, names, dict(feeds))
        return found

    def _open(self) -> None:
        inputs, outputs = _asked("open", self._number, self._source, self._optimized)
        self._inputs, self._outputs = ([End(*end) for end in ends] for ends in (inputs, outputs))
        self._child = _process().child

    def __del__(self) -> None:
        _CLOSED.append(self._number)  # that is told with the next question: this may be in the middle of one


def prepare() -> None:
    """Begin to load ONNX Runtime, if it is installed."""
    if find_spec("onnxruntime") is not None:
        _process().start()


def runtime_version() -> str:
    """The version of ONNX Runtime.

    Raises:
        MissingRuntimeError: it is not installed.
    """
    return str(_asked("version"))


@cache
def _process() -> Process:
    script = Path(__file__).with_name("ort_server.py")
    path = os.pathsep.join(filter(None, sys.path))
    return Process([], str(script), [frames.__file__], {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore"})


def _asked(*question: Any) -> Any:
    if find_spec("onnxruntime") is None:
        raise MissingRuntimeError(NEEDED)
    closed = [_CLOSED.pop() for _ in range(len(_CLOSED))]
    views: list[pickle.PickleBuffer] = []
    head = pickle.dumps((closed, *question), protocol=5, buffer_callback=views.append)
    try:
        head, *buffers = _process().ask([head, *(view.raw() for view in views)])
    except DiedError as death:
        raise AbortedError(f"it ends its process ({death.how})") from None
    error, found = pickle.loads(head, buffers=[bytearray(buffer) for buffer in buffers])
    if error:
        raise FailedError(error)
    return found
