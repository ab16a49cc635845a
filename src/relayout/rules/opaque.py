"""Operators with nothing to say about axes: their operands keep the source's order.

The line of each says what it does with them; reports give it as the reason.
"""

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
@rule("WHERE", kind="opaque", domain="tflite")
def coordinates(_: Operator) -> Fact:
    """Lists coordinates in the order in which the elements lie."""
    return None


@rule("Multinomial", kind="opaque", draws=True)
def classes(_: Operator) -> Fact:
    """Draws classes of `x[b c]`: both axes have their place, and nothing comes before it that could gain."""
    return None


@rule("LinearAttention", "CausalConvWithState", kind="opaque")
def recurrent_attention(_: Operator) -> Fact:
    """Has a place for every axis, packed heads and a cache included; nothing could be gained."""
    return None


@rule("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range", "STFT", kind="opaque")
def signals(_: Operator) -> Fact:
    """Makes or takes vectors, tables or signals: it has no layout to choose."""
    return None


@rule("Constant", kind="opaque")
def constant(_: Operator) -> Fact:
    """Is a constant: the reader makes it an initializer, which is stored as its readers want it."""
    return None


@rule("ImageDecoder", "RegexFullMatch", "StringNormalizer", "StringSplit", "TfIdfVectorizer", kind="opaque")
def text(_: Operator) -> Fact:
    """Reads strings or encoded bytes."""
    return None
