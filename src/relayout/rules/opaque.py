"""Operators with nothing to say about axes: their operands keep the source's order.

The line of each says what it does with them; reports give it as the reason.
"""

from __future__ import annotations

from relayout.listed_modules import with_line
from relayout.rules.registry import rule

COORDINATES = "Lists coordinates in the order in which the elements lie."

ROWS = {  # what they do -> operators
    "Runs a subgraph, which sees its operands in the source's order.": "SequenceMap",
    "Holds tensors in a sequence or an optional, whose elements have no stored order of their own.": (
        "ConcatFromSequence Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty"
        " SequenceErase SequenceInsert SequenceLength SplitToSequence"
    ),
    COORDINATES: "NonZero NonMaxSuppression",
    "Has a place for every axis, packed heads and a cache included; nothing could be gained.": (
        "LinearAttention CausalConvWithState"
    ),
    "Makes or takes vectors, tables or signals: it has no layout to choose.": (
        "BlackmanWindow HammingWindow HannWindow MelWeightMatrix Range STFT"
    ),
    "Is a constant: the reader makes it an initializer, which is stored as its readers want it.": "Constant",
    "Reads strings or encoded bytes.": "ImageDecoder RegexFullMatch StringNormalizer StringSplit TfIdfVectorizer",
}
for line, names in ROWS.items():
    rule(names, kind="opaque")(with_line(lambda _: None, line))
rule("WHERE", kind="opaque", domain="tflite")(with_line(lambda _: None, COORDINATES))
LINE = "Draws classes of `x[b c]`: both axes have their place, and nothing comes before it that could gain."
rule("Multinomial", kind="opaque", draws=True)(with_line(lambda _: None, LINE))
