"""Sessions of ONNX Runtime, in the child process of `runtimes`."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from relayout.errors import WITH_RUNTIMES, MissingRuntimeError
from relayout.verification.runtimes import FailedError, Held, asked
from relayout.verification.side import Array

PACKAGE = "onnxruntime"
NEEDED = f"running ONNX needs ONNX Runtime: {WITH_RUNTIMES}"
"""What to say where it is not there."""


class End(NamedTuple):
    """An input or output of a session: its name, and its type in ONNX Runtime's words."""

    name: str
    type: str


class Session:
    """A model in ONNX Runtime, on its CPU provider, with one thread.

    Args:
        source: its file, which stays as it is, or its bytes.
        optimized: with ONNX Runtime's optimizations.
        entries: its configuration, such as `{"session.x64quantprecision": "1"}`.

    Raises:
        FailedError: ONNX Runtime does not load it; AbortedError: it ends its process over it.
        MissingRuntimeError: it is not installed.
    """

    def __init__(
        self, source: Path | bytes, optimized: bool = True, entries: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._source = source if isinstance(source, bytes) else os.path.abspath(source)  # the process may be elsewhere
        self._optimized, self._entries = optimized, dict(entries)
        self._held = Held()
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
        if not self._held.is_there:
            self._open()
        found: list[Any] = asked("run", self._held.number, names, dict(feeds))
        return found

    def _open(self) -> None:
        inputs, outputs = _asked("session", self._held.number, self._source, self._optimized, self._entries)
        self._inputs, self._outputs = ([End(*end) for end in ends] for ends in (inputs, outputs))
        self._held.now_there()


def runtime_version() -> str:
    """The version of ONNX Runtime.

    Raises:
        MissingRuntimeError: it is not installed.
    """
    return str(_asked("version", PACKAGE))


def _asked(*question: Any) -> Any:
    if find_spec(PACKAGE) is None:
        raise MissingRuntimeError(NEEDED)
    try:
        return asked(*question)
    except FailedError as error:
        if error.kind in ("ImportError", "ModuleNotFoundError"):
            raise MissingRuntimeError(f"{NEEDED} ({error})") from None
        raise
