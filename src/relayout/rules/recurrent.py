"""Recurrent layers: positions fixed; the batch and the contracted input in any order of their factors."""

from __future__ import annotations

from relayout.rules.operator import Operator
from relayout.rules.registry import rule
from relayout.rules.signature import Fact, Letters, Signature


@rule("RNN", "GRU", "LSTM", kind="layout-sensitive")
def recurrent(operator: Operator) -> Fact:
    """`x[t b i], w[d g i] -> y[t d b h], last[d b h]`: positions fixed; b and i in any order of their factors."""
    first = bool(operator.int("layout", 0))
    state: Letters = ("b", "d", "h") if first else ("d", "b", "h")
    given: dict[int, Letters] = {
        0: ("b", "t", "i") if first else ("t", "b", "i"),
        1: ("d", "g", "i"),
        2: ("d", "g", "r"),
        3: ("d", "a"),
        4: ("b",),
        5: state,
        6: state,
        7: ("d", "p"),
    }
    every: Letters = ("b", "t", "d", "h") if first else ("t", "d", "b", "h")
    outputs = (every, state, state)[: len(operator.outputs)]
    return Signature(operator.operands(given), outputs, frozenset("tdghrap"), frozenset("bi")).positional()


@rule("DynamicQuantizeLSTM", kind="layout-sensitive", domain="com.microsoft")
def quantized_lstm(operator: Operator) -> Fact:
    """`x[t b i], w[d i g] -> y[t d b h], last[d b h]`: positions fixed; b in any order of its factors."""
    state: Letters = ("d", "b", "h")
    given: dict[int, Letters] = {0: ("t", "b", "i"), 4: ("b",), 5: state, 6: state}
    outputs = (("t", "d", "b", "h"), state, state)[: len(operator.outputs)]
    # All of x is quantized by one scale.
    across = frozenset("tbi")
    return Signature(operator.operands(given), outputs, frozenset("tdhi"), frozenset("b"), across=across).positional()
