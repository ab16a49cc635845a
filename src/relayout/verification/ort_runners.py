"""Runs of sessions of ONNX Runtime, whose results are arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from relayout.verification.runtimes import FailedError
from relayout.verification.sessions import Session
from relayout.verification.side import Array, Feeds, RunError


class OrtRunner:
    """A session."""

    def __init__(self, label: str, session: Session, initial: Feeds) -> None:
        self._label, self._session, self._initial = label, session, initial
        self._inputs = {value.name for value in session.get_inputs()}
        self._shown = {value.name for value in session.get_outputs() if _is_plain(value.type)}

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """The values of these names, outputs of this session's model, as far as numpy can hold them."""
        asked = [name for name in names if name in self._shown]
        fed = {name: array for name, array in {**self._initial, **feeds}.items() if name in self._inputs}
        try:
            results = self._session.run(asked, fed) if asked else []
        except FailedError as error:
            raise RunError("ONNX Runtime", self._label, error) from None
        return {name: _one_array(value) for name, value in zip(asked, results, strict=True)}


class ForcedOrt:
    """A session some of whose inputs are values of the model."""

    requantized = 0.0

    def __init__(self, runner: OrtRunner, given: dict[str, str], levels: int) -> None:
        self._runner, self.given, self.levels = runner, given, levels

    def run(self, feeds: Feeds, names: Sequence[str]) -> dict[str, Array]:
        """The values of these names."""
        return self._runner.run(feeds, names)


_PLAIN = frozenset(
    "float double float16 bool string int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()  # noqa: SIM905
)
"""Element types, in ONNX Runtime's words, that it hands out as numpy arrays."""


def _is_plain(kind: str) -> bool:
    """Tell whether ONNX Runtime hands out a value as numpy arrays: a tensor, a sequence, a map or an optional of them.

    >>> _is_plain("seq(tensor(float))"), _is_plain("tensor(bfloat16)")
    (True, False)
    """
    elements = re.findall(r"tensor\((\w+)\)", kind)
    return bool(elements) and _PLAIN.issuperset(elements)


def _one_array(value: Any) -> Array:
    """A value as one array: of a sequence its tensors, stacked, or one after another where their shapes differ."""
    if not isinstance(value, list | dict):
        return np.asarray(value)
    tensors = list(_tensors(value))
    if not tensors or len({tensor.shape for tensor in tensors}) == 1:
        return np.asarray(tensors)
    return np.concatenate([tensor.reshape(-1) for tensor in tensors])


def _tensors(value: Any) -> Iterator[Array]:
    """The tensors in a sequence, and those of a map by its keys."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if not isinstance(value, list):
        yield np.asarray(value)
        return
    for item in value:
        yield from _tensors(item)
