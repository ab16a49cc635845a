"""Files that appear whole, all of them, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from relayout.errors import WriteError


class Replacement:
    """Files written beside their places under temporary names; renamed in the order written when the block ends well.

    On any other end, Ctrl-C included, the temporary files are removed and the places are as they were.
    """

    def __init__(self, overwrite: bool = True) -> None:
        self._overwrite = overwrite
        self._staged: list[tuple[Path, Path]] = []

    def __enter__(self) -> Replacement:
        return self

    def write(self, place: Path, chunks: Iterable[bytes | memoryview]) -> None:
        """Write what `place` will hold."""
        self._refuse_other(place)
        staged = place.with_name(f".{place.name[:200]}.{secrets.token_hex(6)}.tmp")
        # Not tempfile's 0600: the result has the permissions that any new file of this user has.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._staged.append((staged, place))
        with open(os.open(staged, flags, 0o666), "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fresh: list[Path] = []
        try:
            if kind is None:
                for staged, place in self._staged:
                    self._refuse_other(place)
                    if not os.path.lexists(place):
                        fresh.append(place)
                    os.replace(staged, place)
                _sync_directory(self._staged[-1][1].parent)
                return
        except BaseException:
            for place in fresh:
                place.unlink(missing_ok=True)
            raise
        finally:
            for staged, _ in self._staged:
                staged.unlink(missing_ok=True)

    def _refuse_other(self, place: Path) -> None:
        try:
            status = place.stat()
        except FileNotFoundError:
            if not place.parent.is_dir():
                raise WriteError(f"cannot write '{place}': there is no directory '{place.parent}'") from None
            return
        if not stat.S_ISREG(status.st_mode):
            raise WriteError(f"cannot write '{place}': it exists and is not a regular file")
        if not self._overwrite:
            raise WriteError(f"'{place}' exists")


def _sync_directory(directory: Path) -> None:
    """Make the renames durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
