"""Names that a user gives: those of `--rename` mean the source's, and an unusual layout is asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from relayout.errors import LayoutError
from relayout.rules.known_layouts import IMAGES, parsed_as

T = TypeVar("T")


class SourceNames:
    """The names of the source, by those that a user gives.

    Args:
        rename: name of the source -> name in the result.
    """

    def __init__(self, rename: Mapping[str, str] | None) -> None:
        given = rename or {}
        self._old = {new: old for old, new in given.items() if new not in given}

    def one(self, name: str) -> str:
        """Return the source's name of a value that may be given by its new one."""
        return self._old.get(name, name)

    def listed(self, names: Sequence[str] | None) -> list[str]:
        """Return the source's names of several."""
        return [self.one(name) for name in names or ()]

    def keys(self, options: Mapping[str, T] | None) -> dict[str, T]:
        """Return options by the source's names."""
        return {self.one(name): value for name, value in (options or {}).items()}

    def places(self, dims: Mapping[str, T] | None) -> dict[str, T]:
        """Return what is asked of dimensions, `input:axis` by the source's name of the input."""
        found = {}
        for key, value in (dims or {}).items():
            name, mark, axis = key.rpartition(":")
            found[f"{self.one(name)}{mark}{axis}" if mark else key] = value
        return found


def layout_doubts(layouts: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Ask about layouts of images that nobody stores images in: `NCWH` is more likely `NCHW` with a slip."""
    for name, pair in layouts.items():
        for text in pair:
            if set(text) <= set("NCDHW") and len(text) > 2:
                try:
                    parsed_as(text, IMAGES, "images")
                except LayoutError as error:
                    yield f"--layout {name}={pair[0]}:{pair[1]}: {str(error).partition(' (')[0]}"
