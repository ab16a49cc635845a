"""The errors that relayout raises: each says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile

MOST_CHARACTERS = 2000  # of one message: what a file calls something may be of any length


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return the text, without its middle where it is longer than `most`."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"


class RelayoutError(Exception):
    """Anything a user can cause. The command line prints it as one line and exits with 2."""

    def __str__(self) -> str:
        return shortened(printable(super().__str__()))


class ReadError(RelayoutError):
    """A file is not a model, or is damaged: nothing was written.

    Args:
        what: what is wrong, in one sentence without a full stop.
        where: the place in the file (`'x', tensor 3 of subgraph 0, shape`), or the file itself.
        hint: what to do about it, if there is something.
    """

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        place = f" at {where}" if where else ""
        advice = f"; {hint}" if hint else ""
        super().__init__(f"{what}{place}{advice}")

    def within(self, file: str) -> ReadError:
        """Return the error with the file that it is about, printable: names in a file can hold anything."""
        where = self.where if self.where.startswith(file) else ", ".join(filter(None, (file, self.where)))
        return ReadError(printable(self.what), where=printable(where), hint=self.hint)


class WriteError(RelayoutError):
    """The output cannot be written, or would not be valid: nothing was written."""


class InvalidModelError(WriteError):
    """The output would not be valid ONNX."""

    def __init__(
        self,
        what: str,  # what the checker or shape inference says
        source: str = "",  # what it says of the model that this one was made of, if that is not valid, either
    ) -> None:
        self.what = what
        parts = ["" if source == what else f"the model would not be valid ONNX: {what}"]
        parts.append(f"its source is not valid ONNX: {source}; fix that first" if source else "")
        super().__init__("; ".join(filter(None, parts)))


class UnsupportedError(RelayoutError):
    """The model holds operators that cannot be converted: all of them, each with count and first place.

    Args:
        found: operator and reason -> (how often, first place).
        hint: what to do about it, if there is something.
    """

    def __init__(self, found: dict[str, tuple[int, str]], hint: str = "") -> None:
        self.found, self.hint = found, hint
        listed = "; ".join(f"{name} ×{count} (first: {place})" for name, (count, place) in found.items())
        noun = "operator" if len(found) == 1 else "operators"
        super().__init__(f"{len(found)} unsupported {noun}: {listed}{f'; {hint}' if hint else ''}")


class LayoutError(RelayoutError):
    """A layout is not well formed, or does not fit the tensor or operator it is asked for."""


class ExtensionError(RelayoutError):
    """A rule or a target of the user's own is wrong: what raises it, of which node, and in which line of which file."""


WITH_RUNTIMES = "pip install 'onnx-relayout[verify]'"
"""The command that installs the runtimes. The package is called otherwise than its module and its command."""


class MissingRuntimeError(RelayoutError):
    """A runtime that verification needs is not installed."""


class NamesError(RelayoutError):
    """A name that is given for a value of the model is not there, is there twice, or is taken."""


@contextmanager
def in_file(file: str) -> Iterator[None]:
    """Say of every `ReadError` inside which file it is about."""
    try:
        yield
    except ReadError as error:
        raise error.within(file) from None


def printable(text: str) -> str:
    """The text with a sign in the place of each character that is none, such as those that command a terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message on an unknown name: `; did you mean 'x'?`, or all names where none is near."""
    known = list(dict.fromkeys(names))[:MOST_NEAR]
    if (near := nearest_name(name, known)) is not None:
        return f"; did you mean {near!r}?"
    if len(known) == 1:
        return f"; there is only {known[0]!r}"
    return f"; there are {', '.join(map(repr, known))}" if 0 < len(known) <= MOST_LISTED else ""


def nearest_values(name: str, names: Iterable[str]) -> str:
    """Return the end of a message on an unknown name of a model: what was meant, or up to three names that are near."""
    known = list(dict.fromkeys(names))[:MOST_NEAR]
    if len(known) <= FEW_VALUES or nearest_name(name, known) is not None:
        return nearest(name, known)
    near = _most_alike(name, known)
    listed = f"the nearest are {', '.join(map(repr, near))}; " if near else ""
    return f"; {listed}`relayout explain FILE --html map.html` shows all"


FEW_VALUES = 6  # names of values that a message lists, all of them


def _most_alike(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three names that share most with one, and at least half of it in a row."""
    from difflib import SequenceMatcher

    folded_name = name.casefold()

    def alike(each: str) -> tuple[int, float]:
        matcher = SequenceMatcher(None, folded_name, each.casefold())
        return max(block.size for block in matcher.get_matching_blocks()), matcher.quick_ratio()

    likeness_by_name = {each: alike(each) for each in names}
    near = [each for each in likeness_by_name if 2 * likeness_by_name[each][0] >= len(folded_name)]
    return [
        shortened(each, MOST_SHOWN) for each in sorted(near, key=lambda each: likeness_by_name[each], reverse=True)[:3]
    ]


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that is most like an unknown one; None where none is near.

    A name that is a piece of one goes first: TensorFlow joins those of what it fused, `a/BiasAdd;a/Conv2D;bias`.
    """
    from difflib import SequenceMatcher, get_close_matches

    def likeness(each: str) -> tuple[float, bool, int]:
        alike = takewhile(lambda pair: pair[0] == pair[1], zip(folded_name, each, strict=False))
        return SequenceMatcher(None, folded_name, each).ratio(), sorted(folded_name) == sorted(each), len(list(alike))

    folded_name = name.casefold()
    known = list(dict.fromkeys(names))[:MOST_NEAR]
    if joined := next((each for each in known if name in each.split(";")), None):
        return joined
    folded = {each.casefold(): each for each in known}
    close_matches = get_close_matches(folded_name, folded, n=MOST_LISTED)
    return (
        folded[max(close_matches, key=likeness)] if close_matches else None
    )  # of equally near ones the same letters, or one that begins alike


MOST_NEAR, MOST_LISTED, MOST_SHOWN = 20_000, 24, 100
"""Names that a suggestion is looked for among, names that a message lists, and characters of each."""
