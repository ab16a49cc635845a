"""Views through quantized units: what makes integers again of what was made of them computes nothing."""

from __future__ import annotations

from itertools import chain

import onnx_ir as ir

from relayout.infer.graph_sites import Sites
from relayout.infer.pieces import leaves
from relayout.infer.sites import Root, Site, View
from relayout.rules import undoes


class RequantizedViews:
    """The values that are integers again, and the real numbers between, of which nobody else reads some.

    Args:
        sites: of the graph.

    Attributes:
        dequantized: root of real numbers -> what made them of integers.
        integers: root of real numbers that were seen through -> the root of the integers.
    """

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.dequantized: dict[Root, Site] = {}
        self.integers: dict[Root, Root] = {}

    def view_of(self, node: ir.Node, view: View | None) -> View | None:
        """The integers, as a view, of which a node makes what they were: those that the operand was made of.

        Between the two stand views alone, in what a runtime calls the quantized unit of a Transpose or a Reshape.
        """
        site = None if view is None else self.dequantized.get(view.root)
        if view is None or site is None or site.node is None or not undoes(node, site.node):
            return None
        integers, result = site.free_ports()
        if site.whole or integers.view.root.constant:
            return None
        made, read = leaves(result.view.root.dims), leaves(chain(*integers.view.dims))
        if [piece.extent for piece in made] != [piece.extent for piece in read]:
            return None
        leaf = dict(zip(made, read, strict=True))
        dims = tuple(tuple(leaf[piece] for piece in leaves(dim)) for dim in view.dims)
        self.integers[view.root] = integers.view.root
        return View(integers.view.root, dims)

    def drop_unread(self) -> None:
        """Leave out what dequantizes for views and integers again alone; what moves between the two moves integers."""
        if not self.integers:
            return
        read = {port.view.root for site in self.sites.sites for port in site.ports if not port.output}
        self.integers = {real: integers for real, integers in self.integers.items() if real not in read}
        left = {self.dequantized[root]: None for root in self.integers}
        self.sites.sites = [site for site in self.sites.sites if site not in left]
        self.sites.requantizing += [site.node for site in left if site.node is not None]
