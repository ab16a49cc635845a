"""What computes a tensor, and what reads it: an operator may be written otherwise for the sake of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from relayout.formats.tflite.container.model import Operator, Subgraph

SPATIAL = frozenset(("AVERAGE_POOL_2D", "CONV_2D", "DEPTHWISE_CONV_2D", "L2_POOL_2D", "MAX_POOL_2D"))
"""Operators that ONNX has for `n c h w` only; operand 0 is the data."""

ELEMENTWISE = frozenset(("ADD", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "MUL", "RELU", "RELU6", "SUB", "TANH"))
"""Operators that take any order of axes, as far as `leads_to_spatial` looks through them."""

FAR = 4
"""How many elementwise operators it looks through."""


class Flow:
    """Producers and readers of a subgraph's tensors."""

    def __init__(self, subgraph: Subgraph) -> None:
        self._producers: dict[int, Operator] = {}
        self._readers: dict[int, list[Operator]] = {}
        self._leading: dict[tuple[int, int], bool] = {}
        self._outputs = frozenset(subgraph.outputs)
        for operator in subgraph.operators:
            for index in dict.fromkeys(operator.inputs):
                self._readers.setdefault(index, []).append(operator)
            for index in operator.outputs:
                self._producers[index] = operator

    def producer(self, index: int) -> Operator | None:
        """The operator that computes a tensor."""
        return self._producers.get(index)

    def readers(self, index: int) -> Sequence[Operator]:
        """The operators that read a tensor."""
        return self._readers.get(index, ())

    def sole_reader(self, index: int) -> Operator | None:
        """The only operator that reads a tensor, if there is no other and it is no output."""
        readers = self._readers.get(index, [])
        return readers[0] if len(readers) == 1 and index not in self._outputs else None

    def leads_to_spatial(self, index: int, far: int = FAR) -> bool:
        """Tell whether all that reads a tensor wants channels first, directly or behind elementwise operators.

        Then its axes will be transposed wherever it is computed, and computing it with channels first costs nothing.
        """
        key = index, far
        if key not in self._leading:
            readers = self._readers.get(index, []) if index not in self._outputs else []
            self._leading[key] = bool(readers) and all(self._is_spatial(r, index, far) for r in readers)
        return self._leading[key]

    def _is_spatial(self, reader: Operator, index: int, far: int) -> bool:
        if reader.name in SPATIAL:
            return reader.inputs[0] == index
        return (
            far > 0
            and reader.name in ELEMENTWISE
            and len(reader.outputs) == 1
            and self.leads_to_spatial(reader.outputs[0], far - 1)
        )
