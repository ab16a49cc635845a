"""Runtimes in a child process, which is kept: where a model ends it, that is an error."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from relayout.isolation.process import DiedError, Process

_NUMBERS = count()
_CLOSED: list[int] = []


class FailedError(Exception):
    """An error that a runtime raises about a model, or about what it is fed."""

    def __init__(
        self,
        said: str,  # in its words
        kind: str = "",  # the type of its error
    ) -> None:
        self.kind = kind
        super().__init__(said)


class AbortedError(FailedError):
    """A runtime ended its process."""


class ChildModel:
    """A model that the child process has; a process that starts after the death of one gets it again."""

    def __init__(
        self,
        kind: str,  # the question by which the process gets it
        *arguments: Any,  # what that is given behind the model's number
    ) -> None:
        self._number, self._kind, self._arguments = next(_NUMBERS), kind, arguments
        self._child = -1

    def open(self) -> Any:
        """Give the process the model, and return its answer; errors as of `asked`."""
        answer = asked(self._kind, self._number, *self._arguments)
        self._child = _child()
        return answer

    def ask(self, kind: str, *arguments: Any) -> Any:
        """Return the answer to a question about the model; errors as of `asked`."""
        if self._child != _child():
            self.open()
        return asked(kind, self._number, *arguments)

    def __del__(self) -> None:
        _CLOSED.append(self._number)  # that is told with the next question: this may be in the middle of one


def prepare() -> None:
    """Start the child process before the first question."""
    process = _process()
    if process is not None:
        process.start()


def asked(kind: str, *arguments: Any) -> Any:
    """Return an answer of the child process: see `runtime_server.ASKED`.

    Raises:
        FailedError: the runtime raises an error; AbortedError: it ends its process.
    """
    closed = [_CLOSED.pop() for _ in range(len(_CLOSED))]
    return _answered(_process(), closed, kind, *arguments)


def survives(kind: str, *arguments: Any) -> bool | None:
    """Return whether a question has an answer, of a process that it may end; None: it ends it."""
    if not Process.can_start():
        return False
    process = _new_process()
    try:
        _answered(process, [], kind, *arguments)
    except AbortedError:
        return None
    except FailedError:
        return False
    finally:
        process.close()
    return True


def _answered(process: Process | None, *question: Any) -> Any:
    if process is None:
        from relayout.verification.runtime_server import answer

        error, said, reply = answer(*question)
    else:
        try:
            error, said, reply = process.answer(*question)
        except DiedError as death:
            raise AbortedError(f"it ends its process ({death.how})") from None
    if error:
        raise FailedError(said, error)
    return reply


def _child() -> int:
    process = _process()
    return 0 if process is None else process.child


@cache
def _own_directory() -> str:
    """Return a directory for files of runtimes, such as ONNX Runtime's telemetry; it goes when this process ends."""
    directory = tempfile.mkdtemp(prefix="relayout-verify-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@cache
def _process() -> Process | None:
    return _new_process() if Process.can_start() else None


def _new_process() -> Process:
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), _own_directory())
    return Process.serving(Path(__file__).with_name("runtime_server.py"), places)
