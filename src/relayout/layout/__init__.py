"""Factors, orders, layouts and their names; regrouping; re-laying arrays. Knows no ONNX."""

from relayout.layout.extents import ONE, Dim, Extent, product
from relayout.layout.layout import Factor, Layout, describe, perm_of
from relayout.layout.regroup import Segment, segments

__all__ = ["ONE", "Dim", "Extent", "Factor", "Layout", "Segment", "describe", "perm_of", "product", "segments"]
