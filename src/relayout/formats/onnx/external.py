"""External data: which file a model may name, and where in it a tensor lies.

A model is data from somebody else, and its `location` is a path. It is followed only if the file it leads to, with all
links resolved, lies in the model's own directory and has no second name elsewhere. One exception: the cache of the
Hugging Face Hub keeps `snapshots/<revision>/model.onnx_data -> ../../blobs/<hash>`, and those links work.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx_ir as ir

from relayout.errors import ReadError
from relayout.formats.onnx.sizes import MOST_ELEMENTS
from relayout.formats.stored import StoredFile, nbytes, stored_tensor

_HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class DataFiles:
    """The files that external tensors of one model may lie in; each is checked and opened once."""

    def __init__(self, model: Path) -> None:
        here, real = model.parent, Path(os.path.realpath(model)).parent
        # A model reached through a link of the user's own is accompanied by its data where it really is.
        self._directories = [here] if os.path.realpath(here) == str(real) else [here, real]
        self._open: dict[str, StoredFile] = {}

    @property
    def descriptors(self) -> list[int]:
        """The files that were opened."""
        return [file.descriptor for file in self._open.values()]

    def tensor(self, external: ir.ExternalTensor) -> ir.TensorProtocol:
        """The same tensor, of a file that was checked."""
        where = f"external data of '{external.name}'"
        shape = external.shape.numpy()
        length = nbytes(external.dtype, shape)
        offset = external.offset or 0
        if external.length not in (None, 0, length) or length > MOST_ELEMENTS:
            raise ReadError(
                f"{external.dtype.name}{list(shape)} needs {length} bytes, not {external.length} at {offset}",
                where=where,
            )
        file = self._file(os.fspath(external.location), where)
        if offset + length > file.size:
            raise ReadError(
                f"'{file.name}' has {file.size} bytes, and bytes {offset} to {offset + length} are asked for",
                where=where,
                hint="the file is incomplete; download or export it again",
            )
        tensor = stored_tensor(file, offset, external.dtype, shape, external.name)
        tensor.doc_string = external.doc_string
        tensor.metadata_props.update(external.metadata_props)
        return tensor

    def _file(self, location: str, where: str) -> StoredFile:
        if location in self._open:
            return self._open[location]
        parts = PureWindowsPath(location).parts
        if not parts or ".." in parts or "\0" in location or _absolute(location):
            raise ReadError(f"'{location}' is not a path inside the model's directory", where=where)
        for directory in self._directories:
            if os.path.lexists(directory / location):
                self._open[location] = _open(directory, location, where)
                return self._open[location]
        raise ReadError(
            f"'{location}' is not in '{self._directories[-1]}'",
            where=where,
            hint="put it beside the model, under this name",
        )


def _absolute(location: str) -> bool:
    windows = PureWindowsPath(location)
    return bool(PurePosixPath(location).is_absolute() or windows.drive or windows.root)


def _open(directory: Path, location: str, where: str) -> StoredFile:
    real = Path(os.path.realpath(directory / location))
    base = Path(os.path.realpath(directory))
    if not real.is_relative_to(base) and not _is_hub_blob(base, real):
        raise ReadError(f"'{location}' leads out of the model's directory, to '{real}'", where=where)
    if real == base:
        raise ReadError(f"'{location}' is not a regular file", where=where)
    try:
        # Without following a link put there since, and without waiting for a pipe's other end.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = _descend(base if real.is_relative_to(base) else real.parent, real, flags)
    except OSError as error:
        raise ReadError(f"'{location}' cannot be opened: {error.strerror}", where=where) from None
    with contextlib.ExitStack() as undo:
        undo.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ReadError(f"'{location}' is not a regular file", where=where)
        if status.st_nlink > 1:
            raise ReadError(
                f"'{location}' is a file with {status.st_nlink} names (hard links)", where=where, hint="copy it instead"
            )
        undo.pop_all()
    return StoredFile(descriptor, location)


def _descend(base: Path, real: Path, flags: int) -> int:
    """Open `real`, a directory at a time from `base` on: none of them can have become a link since the check."""
    if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
        return os.open(real, flags)
    *folders, name = real.relative_to(base).parts
    here = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        return os.open(name, flags, dir_fd=here)
    finally:
        os.close(here)


def _is_hub_blob(base: Path, real: Path) -> bool:
    """Is `base` inside `<repository>/snapshots/<revision>` and `real` a `<repository>/blobs/<hash>`?"""
    repository = real.parent.parent
    return (
        real.parent.name == "blobs"
        and _HASH.fullmatch(real.name) is not None
        and base.is_relative_to(repository / "snapshots")
        and base != repository / "snapshots"
    )
