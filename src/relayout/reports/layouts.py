"""The layout of every value of a result, by its name there: for a model's metadata and for other viewers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import onnx_ir as ir

from relayout.graph.source_names import known_as
from relayout.graph.subgraphs import all_nodes
from relayout.infer.graph_sites import Sites
from relayout.infer.sites import Form, Order, order_of
from relayout.layout import perm
from relayout.layout.stored_as import TENSOR, Holds
from relayout.reports.axes import Axes
from relayout.terminal import count_of

# Layouts for people: by the name that they have (`NHWC`), else as letters (`n b h w`); and sizes in one unit.

IMAGES = ("ncw", "nchw", "ncdhw")  # the axes of images, in any order
KERNELS = ("oiw", "oihw", "oidhw")  # the axes of kernels
NAMED = frozenset("".join(sorted(axes)) for axes in (*IMAGES, *KERNELS))
UNITS = ("bytes", "KB", "MB", "GB", "TB")


def layout_name(letters: str) -> str:
    """Return the name of a layout in einops' notation where it has one, and its letters where it has none.

    >>> layout_name("n h w c"), layout_name("o h w i"), layout_name("n (h w) c"), layout_name("n c")
    ('NHWC', 'OHWI', 'n (h w) c', 'n c')
    """
    axes = letters.split(" ")
    named = all(len(axis) == 1 for axis in axes) and "".join(sorted(axes)) in NAMED
    return "".join(axes).upper() if named else letters


def layout_names(change: str) -> str:
    """Return a change of layouts with their names: `n h w c -> n c h w` is `NHWC -> NCHW`."""
    return " -> ".join(map(layout_name, change.split(" -> ")))


def end_layout(
    change: str,  # the layout, or two with an arrow between
    shape: Sequence[int | str],  # the shape in the last one
    same: str = "unchanged",  # the text where the order stays and has no name
) -> str:
    """Return the layout of an input or output: its name, or letters with their extents where the order changes.

    Letters of one tensor say nothing of another's, so they are not shown where the order stays.

    >>> end_layout("n h w c -> n c h w", (1, 3, 8, 8)), end_layout("n b", (1, 10))
    ('NHWC -> NCHW', 'unchanged')
    >>> end_layout("a b c -> a c b", (1, 49, 16))
    'a b c -> a c b (a = 1, c = 49, b = 16)'
    """
    named = layout_names(change)
    if named != change:
        return named
    if " -> " not in change:
        return same
    axes = re.findall(r"\([^)]*\)|[^ ]+", change.rpartition(" -> ")[2])
    if len(axes) != len(shape):
        return change
    return f"{change} ({', '.join(f'{axis} = {extent}' for axis, extent in zip(axes, shape, strict=True))})"


def size_name(count: int) -> str:
    """Return a number of bytes in the decimal unit that people say it in.

    >>> size_name(0), size_name(999), size_name(150_528), size_name(4_339_058)
    ('0 bytes', '999 bytes', '151 KB', '4.34 MB')
    """
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if not unit:
        return count_of(count, "byte")
    return f"{value:.3g} {UNITS[unit]}"


KEY = "relayout.layout"
"""Metadata of a value: its stored order in einops' notation, such as `n c h w`; of a node: those of what it reads and
gives, such as `n h w c -> n c h w`, since viewers show metadata of nodes, but not of values inside a graph."""


class Naming:
    """What the values of the source are, noted before the graph is rewritten.

    `tensors` holds what values are called in the file that was read, where that is another name than the graph's.
    """

    def __init__(self, sites: Sites, axes: Axes) -> None:
        self._axes = axes
        self._known = {value.name: view for value, view in sites.views.items() if value.name}
        self.tensors = {
            other: value.name
            for value in sites.views
            if value.name and (other := value.metadata_props.get(TENSOR) or known_as(value)) != value.name
        }
        self._roots = {root: root.value.name or "" for root in sites.roots if not root.constant}

    def of(self, model: ir.Model) -> dict[str, str]:
        """Name -> layout, for every computed value of a result that holds a value of the source."""
        return {value.name: text for value in _values(model) if value.name and (text := self._layout(value))}

    def of_source(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Name -> layout, for every computed value of the source; `n h w c -> n c h w` where the result stores another.

        Args:
            stored: name of a value that some node computes -> its layout in the result.
        """
        found = {}
        for name, view in self._known.items():
            if view.root in self._roots:
                source = self._axes.form(view.root, view.form)
                now = _flattened(stored.get(self._roots[view.root], ""), source)
                found[name] = f"{source} -> {now}" if now and now != source else source
        return found

    def annotate(self, model: ir.Model) -> None:
        """Put every value's layout into its metadata, and what each node reads and gives into the node's."""
        found = {value: text for value in _values(model) if (text := self._layout(value))}
        for value, text in found.items():
            value.metadata_props[KEY] = text
        for node in all_nodes(model.graph):
            reads, gives = (dict.fromkeys(found[v] for v in ends if v in found) for ends in (node.inputs, node.outputs))
            if gives:
                node.metadata_props[KEY] = " -> ".join(dict.fromkeys(filter(None, map(", ".join, (reads, gives)))))

    def _layout(self, value: ir.Value) -> str:
        held = Holds.load(value.metadata_props[Holds.KEY]) if Holds.KEY in value.metadata_props else []
        if value.name in self._known and all(item.name != value.name for item in held):
            known = self._known[value.name]
            return self._axes.form(known.root, known.form)
        for item in held:
            if item.name in self._known:
                root, form = self._known[item.name].root, self._known[item.name].form
                order = order_of(form)
                if len(order) == len(item.perm):
                    order, extents = perm.permute(item.perm, order), perm.permute(item.perm, item.factors)
                    form = _form(order, extents, value.shape)
                    return self._axes.form(root, form) if form else self._axes.order(root, order)
        return ""


def _flattened(stored: str, source: str) -> str:
    """A stored order as a Reshape that flattens it leaves it: `n c h w` for a value `n (h w c)` is `n (c h w)`."""
    together = {word: dim for dim in re.findall(r"\(([^)]*)\)", source) for word in dim.split()}
    parts = (list(words) for _, words in groupby(stored.split(), lambda word: together.get(word, word)))
    return " ".join(part[0] if len(part) == 1 else f"({' '.join(part)})" for part in parts)


def _form(order: Order, extents: Sequence[int], shape: ir.Shape | None) -> Form:
    """The factors that each stored dimension holds; nothing where the shape is not known."""
    dims = [dim for dim in shape or () if isinstance(dim, int)]
    if shape is None or len(dims) < len(shape) or -1 in extents:
        return ()
    rest, form = list(zip(order, extents, strict=True)), []
    for dim in dims:
        held, size = [], 1
        while rest and size < dim:
            factor, extent = rest.pop(0)
            held.append(factor)
            size *= extent
        form.append(tuple(held))
    return tuple(form)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in all_nodes(model.graph):
        yield from node.outputs
