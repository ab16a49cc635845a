"""The errors that relayout raises: each says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

MOST_CHARACTERS = 2000
"""Of one message: what a file calls something may be of any length."""


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, without its middle where it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"


class RelayoutError(Exception):
    """Anything a user can cause. The command line prints it as one line and exits with 2."""

    def __str__(self) -> str:
        return shortened(super().__str__())


class ReadError(RelayoutError):
    """A file is not a model, or is damaged: nothing was written.

    Args:
        what: what is wrong, in one sentence without a full stop.
        where: the place in the file (`subgraphs[0].tensors[3].shape, byte 412`), or the file itself.
        hint: what to do about it, if there is something.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        place = f" at {where}" if where else ""
        advice = f"; {hint}" if hint else ""
        super().__init__(f"{what}{place}{advice}")


class WriteError(RelayoutError):
    """The output cannot be written, or would not be valid: nothing was written."""


class UnsupportedError(RelayoutError):
    """The model holds operators that cannot be converted: all of them, each with count and first place.

    Args:
        found: operator and reason -> (how often, first place).
    """

    def __init__(self, found: dict[str, tuple[int, str]]) -> None:
        self.found = found
        listed = "; ".join(f"{name} ×{count} (first: {place})" for name, (count, place) in found.items())
        super().__init__(f"{len(found)} unsupported: {listed}")


class LayoutError(RelayoutError):
    """A layout is not well formed, or does not fit the tensor or operator it is asked for."""


class MissingRuntimeError(RelayoutError):
    """A runtime that verification needs is not installed."""


class NamesError(RelayoutError):
    """A name that is given for a value of the model is not there, is there twice, or is taken."""


def nearest(name: str, names: Iterable[str]) -> str:
    """What a message adds to an unknown name: `; did you mean 'x'?`, or nothing where no name is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(dict.fromkeys(names))[:MOST_NEAR], n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


MOST_NEAR = 20_000
"""Names that a suggestion is looked for among."""
