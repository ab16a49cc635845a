"""Interpreters of LiteRT, in the child process of `runtimes`. They have the methods that LiteRT's own have."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from relayout.verification.runtimes import FailedError, Held, asked

RAISED: dict[str, Callable[[str], Exception]] = {
    "ImportError": ImportError,
    "ModuleNotFoundError": ImportError,
    "ValueError": ValueError,
}
"""What LiteRT's interpreter raises -> how to raise it here. All else is a RuntimeError, the end of its process too."""


class Interpreter:
    """A model in LiteRT.

    Args:
        package: whose interpreter it is: `ai_edge_litert`.
        source: its path, which stays as it is, or its bytes.
        kernels: LiteRT's name for a set of them.
        preserve: keep every tensor.

    Raises:
        ValueError, RuntimeError: LiteRT does not load it, or ends its process over it.
        ImportError: it is not installed.
    """

    def __init__(self, package: str, source: str | bytes, kernels: str, preserve: bool) -> None:
        self._package, self._kernels = package, kernels
        place = {"model_content": source} if isinstance(source, bytes) else {"model_path": os.path.abspath(source)}
        self._options = {**place, "experimental_preserve_all_tensors": preserve}
        self._held = Held()
        self._open()

    def __getattr__(self, name: str) -> _Member:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Member(self, (name,))

    def get_signature_runner(self, key: str) -> Signature:
        """A function for a signature."""
        return Signature(self, key)

    def ask(self, kind: str, *given: Any) -> Any:
        """The answer of the child process to a question about the model."""
        if not self._held.is_there:
            self._open()
        return _asked(kind, self._held.number, *given)

    def _open(self) -> None:
        _asked("interpreter", self._held.number, self._package, self._kernels, self._options)
        self._held.now_there()


class Signature:
    """A signature of a model.

    Raises:
        ValueError: there is none of that key.
    """

    def __init__(self, interpreter: Interpreter, key: str) -> None:
        self._interpreter, self._key = interpreter, key
        self._inputs = interpreter.ask("signature", key, "get_input_details", {})

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Name -> what LiteRT says of the input."""
        found: dict[str, dict[str, Any]] = self._inputs
        return found

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Name -> what LiteRT says of the output."""
        found: dict[str, dict[str, Any]] = self._interpreter.ask("signature", self._key, "get_output_details", {})
        return found

    def __call__(self, **feeds: Any) -> dict[str, Any]:
        """The outputs, by name."""
        found: dict[str, Any] = self._interpreter.ask("signature", self._key, "__call__", feeds)
        return found


class _Member:
    """A method of an interpreter, or of one of its members."""

    def __init__(self, interpreter: Interpreter, path: tuple[str, ...]) -> None:
        self._interpreter, self._path = interpreter, path

    def __getattr__(self, name: str) -> _Member:
        return _Member(self._interpreter, (*self._path, name))

    def __call__(self, *given: Any) -> Any:
        """Return what the method gives."""
        return self._interpreter.ask("call", self._path, given)


def _asked(*question: Any) -> Any:
    try:
        return asked(*question)
    except FailedError as error:
        raise RAISED.get(error.kind, RuntimeError)(str(error)) from None
