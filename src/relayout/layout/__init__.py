"""Factors, orders, layouts and their names; regrouping. Knows no ONNX."""

from relayout.layout.extents import ONE, Dim, Extent, Learned, product, quotient
from relayout.layout.layout import Factor, Layout, perm_of
from relayout.layout.regroup import Segment, segments

__all__ = ["ONE", "Dim", "Extent", "Factor", "Layout", "Learned", "Segment"]
__all__ += ["perm_of", "product", "quotient", "segments"]
