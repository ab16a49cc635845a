"""Values as views of roots: which value a graph computes, and which ones only look at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain

import onnx_ir as ir

from relayout.infer.graph_sites import Sites
from relayout.infer.open_extents import ValueExtents
from relayout.infer.pieces import Piece, leaves, regroup
from relayout.infer.sites import Root, Site, View
from relayout.layout import Dim, Extent
from relayout.layout.regroup import Segment
from relayout.rules import draws, undoes

# Views through quantized units: what makes integers again of what was made of them computes nothing.


class RequantizedViews:
    """The values that are integers again, and the real numbers between, of which nobody else reads some.

    Attributes:
        dequantized: root of real numbers -> what made them of integers.
        integers: root of real numbers that were seen through -> the root of the integers.
    """

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.dequantized: dict[Root, Site] = {}
        self.integers: dict[Root, Root] = {}

    def view_of(self, node: ir.Node, view: View | None) -> View | None:
        """Return the integers, as a view, of which a node makes what they were: those that the operand was made of.

        Between the two stand views alone, in what a runtime calls the quantized unit of a Transpose or a Reshape.
        """
        site = None if view is None else self.dequantized.get(view.root)
        if view is None or site is None or site.node is None or not undoes(node, site.node):
            return None
        integers, result = site.free_ports()
        if site.whole or integers.view.root.constant:
            return None
        result_leaves, read = leaves(result.view.root.dims), leaves(chain(*integers.view.dims))
        if [piece.extent for piece in result_leaves] != [piece.extent for piece in read]:
            return None
        leaf = dict(zip(result_leaves, read, strict=True))
        dims = tuple(tuple(leaf[piece] for piece in leaves(dim)) for dim in view.dims)
        self.integers[view.root] = integers.view.root
        return View(integers.view.root, dims)

    def drop_unread(self) -> None:
        """Leave out what dequantizes for views and integers again alone; what moves between the two moves integers."""
        if not self.integers:
            return
        read = {port.view.root for site in self.sites.sites for port in site.ports if not port.output}
        self.integers = {real: integers for real, integers in self.integers.items() if real not in read}
        unread_sites = {self.dequantized[root]: None for root in self.integers}
        self.sites.sites = [site for site in self.sites.sites if site not in unread_sites]
        self.sites.requantizing += [site.node for site in unread_sites if site.node is not None]


class ValueViews:
    """The roots of a graph and its bodies, and the view that each value is.

    Args:
        sites: what the roots and the views are noted in.
        extents: the extents of values.

    Attributes:
        scope: the graph or body whose values come next.
        runs: how often that is computed in an inference.
    """

    def __init__(self, sites: Sites, extents: ValueExtents) -> None:
        self.sites, self.extents = sites, extents
        self.scope, self.runs = sites.graph, 1

    @contextmanager
    def inside(self, graph: ir.Graph, times: int) -> Iterator[None]:
        """Look at the values of a body, which runs so often each time that what is around it does."""
        around = self.scope, self.runs
        self.scope, self.runs = graph, self.runs * times
        yield
        self.scope, self.runs = around

    def root(
        self,
        value: ir.Value,
        *,
        constant: bool,  # whether it is known when the model is converted
        # operands that have the same axes: with the extents of one of them it has its very pieces, so that what splits
        # one splits both
        alike: Sequence[View | None] = (),
        runs: int | None = None,  # how often it is computed in an inference (default: as often as the graph runs)
    ) -> View:
        """Return a new root; a value of unknown rank becomes one opaque axis, which only barriers touch."""
        shape = self.extents.of(value)
        if shape is None:
            shape = (self.extents.symbol(),)
        extents = _extents_of(shape)
        for other in alike:
            pieces = None if other is None else other.pieces
            if other is not None and pieces is not None and tuple([piece.extent for piece in pieces]) == extents:
                dims = other.dims
                break
        else:
            pieces = tuple([Piece(extent) for extent in extents])
            dims = tuple([(piece,) for piece in pieces])
        root = Root(len(self.sites.roots), value, pieces, constant, self.scope, self.runs if runs is None else runs)
        self.sites.roots.append(root)
        view = View(root, dims, itself=True)
        self.name(value, view)
        return view

    def unread(self, value: ir.Value, shape: tuple[Dim, ...]) -> View:
        """Return a root for a value that is none of the problem, for the sake of its bytes."""
        pieces = tuple([Piece(extent) for extent in _extents_of(shape)])
        constant = value.const_value is not None
        root = Root(len(self.sites.roots), value, pieces, constant, self.scope, self.runs)
        self.sites.roots.append(root)
        return View(root, tuple([(piece,) for piece in pieces]), itself=True)

    def name(self, value: ir.Value, view: View) -> None:
        """Note what a value is a view of."""
        self.sites.views[value] = view
        self.sites.originals.setdefault(view.root, []).append(value)

    def view(self, value: ir.Value) -> View:
        """Return the view that a value is; a new root where nothing is noted of it."""
        view = self.sites.views.get(value)
        return view if view is not None else self.root(value, constant=value.const_value is not None)


def regrouped_view(view: View, parts: Sequence[Segment], shape: Sequence[Extent]) -> View | None:
    """Return a view behind a Reshape; None where an axis was split before in a way that does not agree."""
    dims: list[tuple[Piece, ...]] = [()] * len(shape)
    for part in parts:
        pieces = [piece for axis in part.source for piece in view.dims[axis]]
        dealt = regroup(pieces, [shape[axis] for axis in part.target])
        if dealt is None:
            return None
        for axis, dim in zip(part.target, dealt, strict=True):
            dims[axis] = tuple(dim)
    return View(view.root, tuple(dims))


@lru_cache(4096)
def _extents_of(shape: tuple[Dim, ...]) -> tuple[Extent, ...]:
    return tuple(map(Extent.of, shape))


def is_fixed(node: ir.Node, inputs: Sequence[View | None]) -> bool:
    """Tell whether a node computes the same in every inference: a runtime computes it once, when it loads the model."""
    for view in inputs:
        if view is not None and view.root.runs and not view.root.constant:
            return False
    return any(view is not None for view in inputs) and not draws(node)
