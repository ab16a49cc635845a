"""A child process that answers questions, is kept, and may die."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relayout.isolation import frames

if TYPE_CHECKING:
    import subprocess


class DiedError(Exception):
    """The child process ended over a question, or was ended since it took too long."""

    def __init__(
        self,
        how: str,  # how it ended, in words: `signal SIGSEGV`
        late: bool = False,  # whether it took too long
    ) -> None:
        self.how, self.late = how, late
        super().__init__(how)


class Process:
    """A child process that starts at the first question, and again after its death."""

    def __init__(
        self,
        options: Sequence[str],  # of the Python interpreter
        # a file of Python; it reads questions from its standard input and writes answers to its standard output
        script: str,
        arguments: Sequence[str] = (),  # of the script
        environment: Mapping[str, str] | None = None,  # variables that are set besides those of this process
    ) -> None:
        self._command = [sys.executable, *options, script, *arguments]
        self._environment = environment
        self._child: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    @staticmethod
    def serving(
        script: Path,  # the file, which may import what this process may
        environment: Mapping[str, str],  # variables that are set besides those of this process
    ) -> Process:
        """Return a process that answers by the function `answer` of a file of Python; see `answer`."""
        path = os.pathsep.join(filter(None, sys.path))
        quiet = {"PYTHONPATH": path, "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"}
        return Process([], frames.__file__, [str(script)], {**quiet, **environment})

    @staticmethod
    def can_start() -> bool:
        """Tell whether this Python can start another: one that is built into a program cannot."""
        return bool(sys.executable) and not getattr(sys, "frozen", False)

    @property
    def child(self) -> int:
        """The number of the child process; another one after a death, and 0 where there is none."""
        return self._child.pid if self._child is not None and self.runs else 0

    @property
    def runs(self) -> bool:
        """True if the child process was started and has not ended."""
        return self._child is not None and self._owner == os.getpid() and self._child.poll() is None

    def ask(self, question: Sequence[bytes | memoryview], seconds: float | None = None) -> list[bytes]:
        """Return the answer to a question.

        Args:
            question: some byte strings.
            seconds: after so long the child process is ended; None: never.

        Raises:
            DiedError: it ended, or was ended.
        """
        with self._lock:
            child = self._started()
            assert child.stdin is not None
            assert child.stdout is not None
            begin = time.monotonic()
            timer = None if seconds is None else threading.Timer(seconds, child.kill)
            if timer is not None:
                timer.daemon = True
                timer.start()
            try:
                frames.send(child.stdin, question)
                return frames.receive(child.stdout)
            except (EOFError, OSError):
                is_late = seconds is not None and time.monotonic() - begin >= seconds
                self._end(child)
                if is_late:
                    raise DiedError(f"it takes more than {seconds:.0f} s", late=True) from None
                raise DiedError(_how(child.returncode)) from None
            except BaseException:  # interrupted in the middle of an answer: the next would get the rest of it
                child.kill()
                self._end(child)
                raise
            finally:
                if timer is not None:
                    timer.cancel()

    def answer(self, *question: Any, seconds: float | None = None) -> Any:
        """Return what the function `answer` of a process that is `serving` gives. The errors are those of `ask`."""
        return frames.unpack(self.ask(frames.pack(question), seconds))

    def start(self) -> None:
        """Start the child process before the first question: it loads while this one goes on."""
        with self._lock:
            self._started()

    def close(self) -> None:
        """End the child process."""
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)

    def _started(self) -> subprocess.Popen[bytes]:
        import subprocess  # most models need none

        if self._child is not None and self.runs:
            return self._child
        if self._child is not None and self._owner == os.getpid():
            self._end(self._child)
        self._child = subprocess.Popen(
            self._command,
            env=None if self._environment is None else {**os.environ, **self._environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other
        )
        self._owner = os.getpid()
        atexit.register(self.close)
        return self._child

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        from subprocess import TimeoutExpired

        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was not yet written has no reader
                    stream.close()
        with contextlib.suppress(TimeoutExpired):
            child.wait(timeout=1)
        if child.returncode is None:
            child.kill()
            child.wait()
        self._child = None
        atexit.unregister(self.close)


def _how(status: int) -> str:
    """Return the end of a process in words."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
