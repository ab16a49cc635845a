"""Operators with nothing to say about axes: their operands keep the source's order."""

from __future__ import annotations

from relayout.rules.operator import Operator
from relayout.rules.registry import rule
from relayout.rules.signature import Fact


@rule("SequenceMap", kind="opaque")
def subgraphs(_: Operator) -> Fact:
    """Runs a subgraph, which sees its operands in the source's order."""
    return None


@rule(
    "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct",
    "SequenceEmpty SequenceErase SequenceInsert SequenceLength SplitToSequence",
    kind="opaque",
)
def sequences(_: Operator) -> Fact:
    """Holds tensors in a sequence or an optional, whose elements have no stored order of their own."""
    return None


@rule("NonZero", "NonMaxSuppression", kind="opaque")
def coordinates(_: Operator) -> Fact:
    """Lists coordinates in the order in which the elements lie."""
    return None


@rule("Multinomial", kind="opaque", draws=True)
def classes(_: Operator) -> Fact:
    """Draws classes of `x[b c]`: both axes have their place, and nothing comes before it that could gain."""
    return None


@rule("Attention", "RotaryEmbedding", "LinearAttention", "CausalConvWithState", kind="opaque")
def attention(_: Operator) -> Fact:
    """Axes of its operands have their places, packed heads and a cache included; nothing could be gained."""
    return None


@rule("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range", "STFT", kind="opaque")
def signals(_: Operator) -> Fact:
    """A vector, a table or a batch of signals: one order only."""
    return None


@rule("Constant", kind="opaque")
def constant(_: Operator) -> Fact:
    """A constant: the reader makes it an initializer, which is stored as its readers want it."""
    return None


@rule("ImageDecoder", "RegexFullMatch", "StringNormalizer", "StringSplit", "TfIdfVectorizer", kind="opaque")
def text(_: Operator) -> Fact:
    """Strings or encoded bytes."""
    return None
