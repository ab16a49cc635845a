"""Places in a file as people know them: the kind of an operator, the name of what it computes, and its number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from relayout.errors import MOST_SHOWN, ReadError, UnsupportedError, shortened

_PLACE = re.compile(r"subgraphs\[(\d+)\]\.(operator|tensor)s\[(\d+)\][.,]? ?(.*)", re.DOTALL)


def place_in_words(
    place: str,
    subgraphs: Sequence[Any],  # those of the file, as values or as tables
    kind_of: Callable[[Any], str] = lambda operator: "",  # returns which operator one is; "" where that is said already
) -> str:
    """Name the operator or tensor at a place in a file; a place of another form stays.

    `subgraphs[0].operators[5].inputs[1]` -> `CONV_2D 'y' (operator 5 of subgraph 0, inputs[1])`
    `subgraphs[0].tensors[2].shape` -> `'w', tensor 2 of subgraph 0, shape`
    """
    if (match := _PLACE.fullmatch(place)) is None:
        return place
    number, noun, index, rest = int(match[1]), match[2], int(match[3]), match[4]
    subgraph, kind = subgraphs[number], ""
    where = ", ".join(filter(None, (f"{noun} {index} of subgraph {number}", rest)))
    if noun == "operator":
        operator = subgraph.operators[index]
        kind, index = kind_of(operator), next(iter(operator.outputs), -1)
    name = subgraph.tensors[index].name if 0 <= index < len(subgraph.tensors) else ""
    label = " ".join(filter(None, (kind, repr(shortened(name, MOST_SHOWN)) if name else "")))
    if kind:
        return f"{label} ({where})"
    return ", ".join(filter(None, (label, where)))


@contextmanager
def places_in_words(subgraphs: Sequence[Any], kind_of: Callable[[Any], str]) -> Iterator[None]:
    """Name the operators and tensors at the places of errors inside."""
    try:
        yield
    except UnsupportedError as error:
        operators = {kind: (count, place_in_words(place, subgraphs)) for kind, (count, place) in error.found.items()}
        raise UnsupportedError(operators, error.hint) from error
    except ReadError as error:
        place = place_in_words(error.where, subgraphs, kind_of)
        if place == error.where:
            raise
        raise ReadError(error.what, where=place, hint=error.hint) from error
