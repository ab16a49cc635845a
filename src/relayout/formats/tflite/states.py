"""How an ONNX model says that values were a `.tflite`'s state, which runtimes keep from run to run."""

import json
from collections.abc import Iterable
from typing import NamedTuple

STATES = "tflite.states"
"""Metadata of an LSTM node that begins with zeros in every run."""
KEPT = "kept"
"""In the `.tflite` that it was read from, each run begins with what the last one left, and the first one with zeros."""
VARIABLES = "tflite.variables"
"""Metadata of a model whose values were resource variables."""
READ, ASSIGN = "READ_VARIABLE", "ASSIGN_VARIABLE"
"""Nodes of a model between the choice of layouts and the file: what a run begins with, and what it leaves."""
RESTORED = "tflite.restored"
"""In the `meta` of such a node, in memory only: it was made of what the model says."""


class Variable(NamedTuple):
    """A resource variable.

    Args:
        name: what its users share.
        initial: the value that holds what the first run begins with.
        assigned: the value that holds what a run leaves to the next one.
        uses: how often nodes read the first value. Where they are fewer or more, some may be computed beforehand.
    """

    name: str
    initial: str
    assigned: str
    uses: int


def dump_variables(variables: Iterable[Variable]) -> str:
    """Return the metadata's text: a JSON list."""
    return json.dumps([variable._asdict() for variable in variables], separators=(",", ":"))


def load_variables(text: str) -> list[Variable]:
    """Read what `dump_variables` wrote; nothing where it is something else."""
    try:
        return [
            Variable(str(each["name"]), str(each["initial"]), str(each["assigned"]), int(each["uses"]))
            for each in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return []
