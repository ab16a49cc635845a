"""The batch that was opened in a model, as its metadata says it: `verify` runs the source batch after batch."""

import json
from collections.abc import Mapping
from typing import NamedTuple

OPENED_BATCH = "relayout.batch"
"""Metadata of a model whose batch was opened, or got another extent: see `OpenedBatch`, as JSON."""


class OpenedBatch(NamedTuple):
    """A batch that was opened: whatever lies along it is computed by itself.

    Args:
        inputs: input of the source -> the axis that is the batch.
        outputs: output of the source -> the axis that holds the batch, and how many runs of it.
    """

    inputs: Mapping[str, int]
    outputs: Mapping[str, tuple[int, int]]

    def dump(self) -> str:
        """Return it as JSON; equal batches give equal texts."""
        outputs = {name: list(place) for name, place in self.outputs.items()}
        return json.dumps({"inputs": dict(self.inputs), "outputs": outputs}, ensure_ascii=False)

    @classmethod
    def load(cls, text: str | None) -> "OpenedBatch | None":
        """Return what a model's metadata says; None where it says nothing, or nothing that can be read."""
        try:
            data = json.loads(text or "")
            inputs = {str(name): _natural(axis) for name, axis in data["inputs"].items()}
            outputs = {str(name): (_natural(axis), _natural(runs)) for name, (axis, runs) in data["outputs"].items()}
            return cls(inputs, outputs)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


def _natural(number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 31:
        raise ValueError("no natural number")
    return number
