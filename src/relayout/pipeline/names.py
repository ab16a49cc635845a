"""Names that a user gives: those of `--rename` mean the source's, and layouts that are more likely a slip."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from relayout.errors import LayoutError
from relayout.layout import Layout
from relayout.reports.layouts import layout_name
from relayout.reports.report import Interface
from relayout.rules.layouts import IMAGES, parsed_as

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


def refuse_unusual_layouts(layouts: Mapping[str, tuple[str, str]]) -> None:
    """Refuse layouts of images that nobody stores images in: `NCWH` is more likely `NCHW` with a slip.

    Letters in lower case with spaces (`n c w h`) mean any order.

    Raises:
        LayoutError: a word of N, C, D, H and W names an unusual order.
    """
    for name, pair in layouts.items():
        for text in pair:
            if not set("NC") < set(text) <= set("NCDHW"):
                continue
            try:
                parsed_as(text, IMAGES, "images")
            except LayoutError as error:
                fault, letters = str(error).partition(" (")[0], " ".join(text.lower())
                raise LayoutError(
                    f"--layout {name}={pair[0]}:{pair[1]}: {fault} If you mean it, write it in lower case with spaces:"
                    f" '{letters}'"
                ) from error


def contradicted_names(
    layouts: Mapping[str, tuple[str, str]], interface: Sequence[Interface], images: Collection[str]
) -> Iterator[str]:
    """Say where the layout that a user calls an image's is not the one that the model shows.

    Args:
        layouts: tensor -> the layout that the user calls it by, and the one to store it in.
        interface: the inputs and outputs of the model.
        images: those of them that operators take as images; of others a layout is a guess.

    Raises:
        LayoutError: an operator shows another one.
    """
    shown = {end.name: layout_name(end.layout.partition(" -> ")[0]) for end in interface}
    for name, (source, stored) in layouts.items():
        known, named = shown.get(name, ""), "".join(Layout.parse(source).axes)
        if known.isupper() and named != known and sorted(named) == sorted(known):
            fault = f"{name} is {known} here; you called it {named}"
            if name in images and source.isupper():
                raise LayoutError(
                    f"--layout {name}={source}:{stored}: an operator shows that {fault}. Write --layout"
                    f" {name}={known}:… with the layout that you want, or '{' '.join(source.lower())}' if you mean it"
                )
            yield f"{fault}: --layout {name}={known}:… names its axes as they are"
