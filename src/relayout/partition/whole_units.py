"""Quantized units as wholes: while a model is parted, each has DequantizeLinears and views of its own, in one part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir

from relayout.apply.duplicate_dequantize import apart, together
from relayout.graph.quantized_unit import is_dequantized_view, unit_of


@contextmanager
def whole_units(model: ir.Model) -> Iterator[None]:
    """Give each quantized unit DequantizeLinears, and views behind them, of its own, in place, until the block ends."""
    duplicates = apart(model, is_dequantized_view)
    together([[node for node in group if unit_of(node) is None] for group in duplicates])
    try:
        yield
    finally:
        together(duplicates)
