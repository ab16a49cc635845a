"""Recurrent layers: positions fixed; the batch and the contracted input in any order of their factors."""

from __future__ import annotations

from dataclasses import replace

from relayout.layout.stored_as import BATCH_FIRST
from relayout.rules.formula import positional
from relayout.rules.operator import Operator
from relayout.rules.registry import rule
from relayout.rules.signature import Changes, Fact, Letters, Placement, Signature, Variant

SECOND = {"BIDIRECTIONAL_SEQUENCE_LSTM": 39, "BIDIRECTIONAL_SEQUENCE_RNN": 9}  # the operand that is a second sequence


@rule("RNN", "GRU", "LSTM", kind="layout-sensitive")
def recurrent(operator: Operator) -> Fact:
    """`x[t b i], w[d g i] -> y[t d b h], last[d b h]`: positions fixed; b and i in any order of their factors."""
    first = bool(operator.int("layout", 0))
    x, every, state = ("b t i", "b t d h", "b d h") if first else ("t b i", "t d b h", "d b h")
    letters_of = {0: x, 1: "d g i", 2: "d g r", 3: "d a", 4: "b", 5: state, 6: state, 7: "d p"}
    signature = positional(operator, letters_of, f"{every}, {state}, {state}", "b i")
    return _in_both(signature, "layout", 1) if operator.node.meta.get(BATCH_FIRST) else signature


@rule(
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BIDIRECTIONAL_SEQUENCE_RNN",
    kind="layout-sensitive",
    domain="tflite",
)
def builtin(operator: Operator) -> Fact:
    """`x[t b i] -> y[t b h]`, or `x[b t i] -> y[b t h]`: positions fixed, parameters as they are."""
    return _in_both(_builtin(operator), "time_major", 0)


@rule("BIDIRECTIONAL_SEQUENCE_LSTM", kind="layout-sensitive", domain="tflite")
def bidirectional_lstm(operator: Operator) -> Fact:
    """`x[t b i] -> y[t b h]`, or `x[b t i] -> y[b t h]`; with both halves in one result as it is."""
    signature = _builtin(operator)
    return signature if operator.int("merge_outputs", 0) else _in_both(signature, "time_major", 0)


def _builtin(operator: Operator) -> Signature:
    order = "t b" if operator.int("time_major", 0) else "b t"
    letters_of = {SECOND.get(operator.name, 0): f"{order} j", 0: f"{order} i"}
    return positional(operator, letters_of, f"{order} h, {order} k", "b")


@rule("LSTM", "RNN", "SVDF", kind="layout-sensitive", domain="tflite")
def one_step(operator: Operator) -> Fact:
    """`x[b i] -> y[b h]`: positions fixed, parameters as they are."""
    states = {1: "b h", 4: "b k"} if len(operator.outputs) > 1 else {}
    return positional(operator, {0: "b i", **states}, "b h, b k, b l, b m", "b")


def _in_both(signature: Signature, name: str, batch_first: int) -> Signature:
    """Add the variant with the other value of an attribute, which is `batch_first` where the batch comes first.

    Else it comes before the last axis.
    """
    (plain,) = signature.variants
    if plain.inputs[0] is None:
        return signature

    def turned(letters: Letters | None) -> Letters | None:
        if letters is None or len(letters) < 3 or "b" not in letters:
            return letters
        rest = tuple(letter for letter in letters if letter != "b")
        return (*rest[:-1], "b", rest[-1]) if letters[0] == "b" else ("b", *rest)

    inputs, outputs = (tuple(map(turned, operands)) for operands in (plain.inputs, plain.outputs))

    def changes(placement: Placement) -> Changes:
        return Changes({name: batch_first if placement.letters(0)[0] == "b" else 1 - batch_first})

    return replace(signature, variants=(plain, Variant(inputs, outputs, "batch first")), changes=changes)


@rule("DynamicQuantizeLSTM", kind="layout-sensitive", domain="com.microsoft")
def quantized_lstm(operator: Operator) -> Fact:
    """`x[t b i], w[d i g] -> y[t d b h], last[d b h]`: positions fixed; b in any order of its factors."""
    letters_of = {0: "t b i", 4: "b", 5: "d b h", 6: "d b h"}
    # All of x is quantized by one scale.
    return positional(operator, letters_of, "t d b h, d b h, d b h", "b", across="t b i")
