"""Files that appear whole, all of them, or not at all.

1. A file is written beside its place under a name of our own, and renamed. Nobody sees half of it. Where a file is
   replaced, all that is written is made durable first: if the machine stops, the old one is there or the new one.
2. A link is never followed: at the place of a symbolic link, the link is replaced, and what it points at stays. Links
   among the devices (`/dev/stdout`) are the system's: they are refused.
3. A file that is replaced gives its permissions to the new one; a write-protected one is not replaced.
4. What a model was read from is replaced only where that is asked for, whatever name it is given by.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType

from relayout.errors import WriteError
from relayout.graph.facts import Identity

DEVICES = "/dev"
"""Where links stand for devices and open files. `/dev/stdout` leads to a regular file wherever a shell redirects it."""


def identity(file: str | Path | int) -> Identity | None:
    """Return the identity of a file or an open descriptor; None where there is no file."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def known_files(*files: str | Path | int) -> frozenset[Identity]:
    """Return the identities of those files that are there."""
    return frozenset(known for known in map(identity, files) if known is not None)


def refuse_sources(place: Path, sources: Collection[Identity], *, ever: bool = True) -> None:
    """Refuse a place that is one of the files which are read, under that name or another.

    Args:
        place: where something would be written.
        sources: what is read.
        ever: whether there is a way to ask for it, which the message then names.

    Raises:
        WriteError: it is one of them.
    """
    if sources and identity(place) in sources:
        allowed = ", or --overwrite (in Python overwrite=True)" if ever else ""
        what = f"'{place}' would be replaced by its own result: it is a file that the model is read from"
        raise WriteError(f"{what}; give another name{allowed}")


def write_text(place: Path, text: str) -> None:
    """Write a text file, or nothing.

    Raises:
        WriteError: the place cannot be written.
    """
    try:
        with Replacement() as files:
            files.write(place, [text.encode()])
    except OSError as error:
        raise WriteError(f"cannot write '{place}': {error.strerror or error}") from error


class Replacement:
    """Files written beside their places under temporary names; renamed in the order written when the block ends well.

    On any other end, Ctrl-C included, the temporary files are removed and the places are as they were.

    Args:
        sources: files that may not be replaced, under whatever name.
    """

    def __init__(self, sources: Collection[Identity] = ()) -> None:
        self._sources = sources
        self._staged: list[tuple[Path, Path]] = []

    def __enter__(self) -> Replacement:
        return self

    def check(self, place: Path) -> None:
        """Refuse a place that may not be replaced, before anything is.

        Raises:
            WriteError: it is a source, write-protected, not a file, or in no directory.
        """
        self._mode(place)

    def write(self, place: Path, chunks: Iterable[bytes | memoryview]) -> Path:
        """Write what `place` will hold. Returns where it is until the block ends."""
        mode = self._mode(place)
        staged = place.with_name(f".{place.name[:200]}.{os.urandom(6).hex()}.tmp")
        # Not tempfile's 0600: a new file has the permissions that any new file of this user has.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        self._staged.append((staged, place))
        with open(os.open(staged, flags, 0o666 if mode is None else mode), "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            for chunk in chunks:
                file.write(chunk)
        return staged

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fresh: list[Path] = []
        try:
            if kind is None:
                lost = any(os.path.lexists(place) for _, place in self._staged)
                for staged, _ in self._staged if lost else ():
                    _sync(staged, os.O_RDWR)
                for staged, place in self._staged:
                    self._mode(place)
                    if not os.path.lexists(place):
                        fresh.append(place)
                    os.replace(staged, place)
                if lost:
                    with contextlib.suppress(OSError):  # not every system can
                        _sync(self._staged[-1][1].parent, os.O_RDONLY)
                return
        except BaseException:
            for place in fresh:
                place.unlink(missing_ok=True)
            raise
        finally:
            for staged, _ in self._staged:
                staged.unlink(missing_ok=True)

    def _mode(self, place: Path) -> int | None:
        """Return the permissions of the file that would be replaced; None where there is none, or a link to it.

        Raises:
            WriteError: it may not be replaced.
        """
        refuse_sources(place, self._sources)
        if not place.parent.is_dir():
            raise WriteError(f"cannot write '{place}': there is no directory '{place.parent}'")
        if place.is_symlink() and os.path.realpath(place.parent) == DEVICES:
            raise WriteError(f"cannot write '{place}': it stands for a device; `-` is standard output")
        try:
            status = place.stat()
        except FileNotFoundError:
            return None
        if stat.S_ISDIR(status.st_mode):
            raise WriteError(f"cannot write '{place}': it is a directory; give the name of a file")
        if not stat.S_ISREG(status.st_mode):
            raise WriteError(f"cannot write '{place}': it exists and is not a regular file")
        if place.is_symlink():
            return None
        if not os.access(place, os.W_OK):
            raise WriteError(f"cannot write '{place}': it is write-protected")
        return stat.S_IMODE(status.st_mode) & 0o777


def _sync(path: Path, mode: int) -> None:
    """Make what was written there durable: a file's contents, or the renames in a directory."""
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
