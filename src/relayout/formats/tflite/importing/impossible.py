"""Builtin operators that are not translated, and why not."""

from __future__ import annotations

from relayout.formats.tflite.container.enums import BUILTIN_OPERATORS
from relayout.formats.tflite.importing.registry import entries

REASONS = {
    "CALL": "no TFLite runtime has a kernel for it",
    "CONCAT_EMBEDDINGS": "no TFLite runtime has a kernel for it",
    "CUSTOM": "a custom operator is known by its code, not by this number",
    "DELEGATE": "stands for operators that a delegate has swallowed; converters never write it",
    "LSH_PROJECTION": "hashes the bytes of real numbers (FarmHash)",
    "PLACEHOLDER_FOR_GREATER_OP_CODES": "not an operator: numbers above 127 are in another field",
    "SKIP_GRAM": "takes strings apart; ONNX has no string operators for it",
    "STABLEHLO_CUSTOM_CALL": "calls a function of the exporter's own runtime by name",
    "STABLEHLO_RNG_BIT_GENERATOR": "bits of a random generator that ONNX does not have (Philox, Threefry)",
}
"""Operator -> what stands in the way."""


def untranslated() -> dict[str, str]:
    """Every builtin operator without a translation, with the reason."""
    return {name: REASONS.get(name, "not yet") for name in BUILTIN_OPERATORS if name not in entries()}
