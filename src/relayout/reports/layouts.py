"""The layout of every value of a result, by its name there: for a model's metadata and for other viewers."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

import onnx_ir as ir

from relayout.graph.source_names import known_as
from relayout.graph.subgraphs import all_nodes
from relayout.infer.graph_sites import Sites
from relayout.infer.sites import Form, Order, Root, Site, order_of
from relayout.layout import ONE, Extent, perm
from relayout.layout.stored_as import TENSOR, Holds
from relayout.rules import Letters
from relayout.terminal import count_of

# Names for axes: an operator that knows what its axes are names them, and the name follows the axis through the graph.
#
# A convolution's operand is `n c h w`, so the value behind it, before it, transposed, or reshaped to tokens has axes of
# these names too. What no operator names gets the letters `a b c d` by its place.

IMAGE = {3: "n w c", 4: "n h w c", 5: "n d h w c"}
"""The axes of a TensorFlow Lite image tensor by rank, in its own order."""
FIRST = {3: "n c w", 4: "n c h w", 5: "n c d h w"}  # the same in ONNX's order
SPATIAL = {1: "w", 2: "hw", 3: "dhw"}  # the spatial axes of an image, by their number


class Axes:
    """The names of all axes of a graph.

    Args:
        sites: the graph.
        image: an input or output of rank 3 to 5 is an image that says nothing of it: `n h w c` (TensorFlow Lite).
    """

    def __init__(self, sites: Sites, image: bool) -> None:
        self._patterns = (IMAGE, FIRST) if image else (FIRST, IMAGE)
        self._image = image
        starts = list(itertools.accumulate((len(root.extents) for root in sites.roots), initial=0))
        self._base: dict[Root, int] = dict(zip(sites.roots, starts, strict=False))
        self._class = list(range(starts[-1]))
        self._named: dict[int, str] = {}
        self._kernels: dict[Root, dict[int, str]] = {}
        self._factor_names: dict[Root, tuple[str, ...]] = {}
        self._written: dict[tuple[Root, Form | Order], str] = {}
        self._ranks: dict[int, set[int]] = {}
        self._operands: set[Root] = set()
        for site in sites.sites:
            self._join(site)
        ends = [site for site in sites.sites if site.kind in ("input", "output")]
        for site in (site for site in sites.sites if site.signature.variants and site.node is not None):
            images, kernels = site.pattern.of(_meanings, None, site)
            for position, names in images:
                port = site.ports[position]
                self._operands.add(port.view.root)
                for item in self._seed(port.view.root, names):
                    self._ranks.setdefault(item, set()).add(len(port.letters))
            for position, names in kernels:
                self._kernels.setdefault(site.ports[position].view.root, names)
        for port in (port for site in ends if image for port in site.free_ports() if len(port.letters) in IMAGE):
            dims = zip(IMAGE[len(port.letters)].split(), port.view.form, strict=True)
            self._seed(port.view.root, {index: axis for axis, dim in dims for index in dim})

    def _join(self, site: Site) -> None:
        """Give what a signature calls the same axis one name on all operands."""
        base = [self._base[port.view.root] for port in site.ports]
        for first, a, other, b in site.pattern.of(_same, None, site):
            one, two = self._find(base[first] + a), self._find(base[other] + b)
            self._class[max(one, two)] = min(one, two)

    def are_of_image(self, root: Root, rank: int) -> bool:
        """Return whether operators say that a value of a rank is an image.

        A table of boxes may have axes of the same names: rows that were pixels, or columns that were channels.

        1. Each axis of several elements is one of an operator's on images: the name of none is a guess.
        2. Of a rank other than 4 such an operator takes images of this rank, or this value itself. TensorFlow Lite has
           no other ranks: there a signal is an image of one row.
        """
        classes = [self._find(self._base[root] + index) for index in range(len(root.extents))]
        ranks = [self._ranks.get(each, set()) for each in classes]
        usual = self._image or rank == len(IMAGE[4].split()) or root in self._operands
        return bool(ranks) and all(each and (usual or rank in each) for each in ranks)

    def of(self, root: Root) -> tuple[str, ...]:
        """The name of each factor of a value; where an axis is split, or two have one name, they are numbered."""
        if root not in self._factor_names:
            self._factor_names[root] = self._names(root)
        return self._factor_names[root]

    def form(self, root: Root, form: Form) -> str:
        """A form in einops' notation: `n h w c`, `n (h w) c`. Pieces of an axis that lie as in it are that axis."""
        if (root, form) not in self._written:
            self._written[root, form] = " ".join(self.dims(root, form))
        return self._written[root, form]

    def dims(self, root: Root, form: Form) -> list[str]:
        """Return what `form` says of each dimension: `n`, `(h w)`, `c`."""
        words = self._words(root, form)
        parts = [f"({word})" if " " in word else word for word in words]
        if all(form):
            return parts
        filled = self._ones(root, form, words)
        return [part if dim else one for part, dim, one in zip(parts, form, filled, strict=True)]

    def _words(self, root: Root, form: Form) -> list[str]:
        """Return the names in each dimension of a form."""
        names = self._pieces(root, [order_of(form)], {dim[0] for dim in form if dim})
        return [" ".join(names[index] for index in dim if index in names) for dim in form]

    def order(self, root: Root, order: Order) -> str:
        """Return a stored order in einops' notation, with the size-1 axes that stand in front."""
        if (root, order) not in self._written:
            (self._written[root, order],) = self.orders(root, order)
        return self._written[root, order]

    def orders(self, root: Root, *orders: Order) -> list[str]:
        """Stored orders of one value in einops' notation, under names that they share.

        Pieces of an axis that stay together in all of them have one name: `n c h w` and `n h w c`, or `n c1 h c2` and
        `n h c1 c2`.
        """
        names = self._pieces(root, orders, set())
        front = self._front(root)
        return [" ".join((*front, *(names[index] for index in order if index in names))) for order in orders]

    def extents(self, root: Root, *orders: Order) -> list[tuple[str, Extent]]:
        """List the axes that `orders` names, as it names them, with their extents: what a legend has."""
        names, extent_by_name = self._pieces(root, orders, set()), dict[str, Extent]()
        name = ""
        for index in order_of(root.logical):
            name = names.get(index, name)
            extent_by_name[name] = extent_by_name.get(name, ONE) * root.extents[index]
        return list(extent_by_name.items())

    def _front(self, root: Root) -> list[str]:
        """Return the size-1 axes before all others."""
        logical = root.logical
        leading = next((axis for axis, dim in enumerate(logical) if dim), len(logical))
        return self.form(root, logical).split()[:leading]

    def among(self, root: Root, factors: Collection[int], order: Order) -> tuple[str, str]:
        """Return some factors of a value, and an order of it, under names that they share: `c2` in `n h c1 w c2`."""
        begin = {b for a, b in pairwise(order) if (a in factors) != (b in factors)}
        names = self._pieces(root, [order], begin)
        some = " ".join(names[index] for index in order if index in names and index in factors)
        return some, " ".join((*self._front(root), *(names[index] for index in order if index in names)))

    def _pieces(self, root: Root, orders: Sequence[Order], begin: set[int]) -> dict[int, str]:
        """First factor -> name, of the pieces of axes that stay together in all orders; those in `begin` begin one."""
        names = self.of(root)
        after = [dict(pairwise(order)) for order in orders]
        pairs = [pair for dim in root.logical for pair in pairwise(dim)]
        follows = {
            b
            for a, b in pairs
            if _base(names[a]) == _base(names[b]) and b not in begin and all(each.get(a) == b for each in after)
        }
        first = [index for index in order_of(root.logical) if index not in follows]
        if not follows:
            return {index: names[index] for index in first}
        total, seen, piece_names = Counter(_base(names[index]) for index in first), Counter[str](), {}
        for index in first:
            base = _base(names[index])
            seen[base] += 1
            piece_names[index] = f"{base}{seen[base]}" if total[base] > 1 else base
        return piece_names

    def _find(self, item: int) -> int:
        while self._class[item] != item:
            self._class[item] = self._class[self._class[item]]
            item = self._class[item]
        return item

    def _seed(self, root: Root, names: Mapping[int, str]) -> list[int]:
        """Name some factors of a value, where nobody did before; return their classes."""
        classes = [self._find(self._base[root] + index) for index in names]
        for item, name in zip(classes, names.values(), strict=True):
            self._named.setdefault(item, name)
        return classes

    def _names(self, root: Root) -> tuple[str, ...]:
        base = self._base[root]
        known = [self._named.get(self._find(base + index), "") for index in range(len(root.extents))]
        known = [self._kernels.get(root, {}).get(index, name) for index, name in enumerate(known)]
        spare = _letters(len(root.dims), set(known))
        for axis, dim in enumerate(root.logical):
            for index in dim:
                known[index] = known[index] or spare[axis]
        total, seen = Counter(known), Counter[str]()
        for index in order_of(root.logical):
            if total[name := known[index]] > 1:
                seen[name] += 1
                known[index] = f"{name}{seen[name]}"
        return tuple(known)

    def _ones(self, root: Root, form: Form, words: Sequence[str]) -> list[str]:
        """Return a name for each size-1 axis of a form: what the axes beside it say or leave, else letters by place.

        In an order that no layout has (`n c w h`) they are those of the logical form, one after the other.
        """
        pattern = self._pattern(form, words)
        if pattern is not None:
            return pattern
        last = self._last(words)
        if last:
            return ["" if dim else last for dim in form]
        if form == root.logical:
            return _letters(len(form), set(words))
        logical = root.logical
        if len(form) != len(logical) or sum(not dim for dim in form) != sum(not dim for dim in logical):
            return ["1"] * len(form)
        own = self._ones(root, logical, self._words(root, logical))
        spare_names = iter([name for name, dim in zip(own, logical, strict=True) if not dim])
        return ["" if dim else next(spare_names) for dim in form]

    def _last(self, words: Sequence[str]) -> str:
        """Return the one axis of an image that is missing among the names of a form; empty where there is none."""
        for axes in (patterns[len(words)].split() for patterns in self._patterns if len(words) in patterns):
            missing = [axis for axis in axes if axis not in words]
            if len(missing) == 1 and len(set(words)) == len(words):
                return missing[0]
        return ""

    def _pattern(self, form: Form, words: Sequence[str]) -> list[str] | None:
        """Return the axes of the first image layout that fits what is known of a form."""
        bases = [{_base(word) for word in text.split()} for text in words]
        for pattern in (patterns[len(form)].split() for patterns in self._patterns if len(form) in patterns):
            fits = any(form) and all(not base or base == {axis} for base, axis in zip(bases, pattern, strict=True))
            if fits or (self._image and not any(form)):
                return pattern
        return None


def _base(name: str) -> str:
    return name.rstrip("0123456789")


def _letters(rank: int, used_letters: set[str]) -> list[str]:
    """`a b c d`, the letters in use left out; where there are too few, `a0`, `a1`."""
    if rank > 20:
        return [f"a{axis}" for axis in range(rank)]
    letters = [letter for letter in "abcdefghijklmnopqrstuvwxyz" if letter not in used_letters]
    by_place = [chr(ord("a") + axis) for axis in range(rank)]
    numbered = (f"a{number}" for number in itertools.count())
    spare = (name for name in itertools.chain(letters, numbered) if name not in by_place and name not in used_letters)
    return [letter if letter in letters else next(spare) for letter in by_place]


def _image_axes(letters: Letters) -> dict[str, str]:
    """Return the meaning of an operand's letters: n, one channel axis, and spatial axes `s0 s1` or `t0 t1`."""
    spatial = [letter for letter in letters if letter[0] in "st" and letter[1:].isdigit()]
    rest = [letter for letter in letters if letter not in spatial and letter != "n"]
    if "n" not in letters or len(rest) != 1 or len(spatial) not in SPATIAL:
        return {}
    return {"n": "n", rest[0]: "c", **dict(zip(spatial, SPATIAL[len(spatial)], strict=True))}


def _kernel_axes(letters: Letters) -> dict[str, str]:
    """Return the meaning of a kernel's letters: o and i, whatever axes of images they are, and spatial axes `k0 k1`."""
    spatial = [letter for letter in letters if letter[0] == "k" and letter[1:].isdigit()]
    rest = [letter for letter in letters if letter not in spatial]
    if len(spatial) not in SPATIAL or len(rest) != 2:
        return {}
    return {**dict(zip(rest, "oi", strict=True)), **dict(zip(spatial, SPATIAL[len(spatial)], strict=True))}


def _meanings(site: Site) -> tuple[list[tuple[int, dict[int, str]]], list[tuple[int, dict[int, str]]]]:
    """Return the operands that are images, and those that are kernels, each with the names of its root's factors."""
    images: list[tuple[int, dict[int, str]]] = []
    kernels: list[tuple[int, dict[int, str]]] = []
    for port in site.free_ports():
        for operands, names in ((images, _image_axes(port.letters)), (kernels, _kernel_axes(port.letters))):
            dims = zip(port.letters, port.view.form, strict=True)
            if names:
                factors = {index: names[letter] for letter, dim in dims if letter in names for index in dim}
                operands.append((port.position, factors))
    return images, kernels


def _same(site: Site) -> list[tuple[int, int, int, int]]:
    """(operand, factor of its root, other operand, factor of its root) that a signature calls the same axis."""
    pairs = []
    for factor in range(len(site.factors)):
        same = [(port, indices) for port in site.free_ports() if (indices := port.factors.get(factor))]
        for port, indices in same[1:]:
            first, known = same[0]
            if len(indices) == len(known):
                pairs += [(first.position, a, port.position, b) for a, b in zip(known, indices, strict=True)]
    return pairs


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
    """The layouts of the source's values, noted before the graph is rewritten.

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
        layout_by_name = {}
        for name, view in self._known.items():
            if view.root in self._roots:
                source = self._axes.form(view.root, view.form)
                now = _flattened(stored.get(self._roots[view.root], ""), source)
                layout_by_name[name] = f"{source} -> {now}" if now and now != source else source
        return layout_by_name

    def annotate(self, model: ir.Model) -> None:
        """Put every value's layout into its metadata, and what each node reads and gives into the node's."""
        layout_by_value = {value: text for value in _values(model) if (text := self._layout(value))}
        for value, text in layout_by_value.items():
            value.metadata_props[KEY] = text
        for node in all_nodes(model.graph):
            reads, gives = (
                dict.fromkeys(layout_by_value[v] for v in ends if v in layout_by_value)
                for ends in (node.inputs, node.outputs)
            )
            if gives:
                node.metadata_props[KEY] = " -> ".join(dict.fromkeys(filter(None, map(", ".join, (reads, gives)))))

    def _layout(self, value: ir.Value) -> str:
        source_values = Holds.of(value.metadata_props)
        if value.name in self._known and all(item.name != value.name for item in source_values):
            known = self._known[value.name]
            return self._axes.form(known.root, known.form)
        for item in source_values:
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
    group_of_word = {word: dim for dim in re.findall(r"\(([^)]*)\)", source) for word in dim.split()}
    parts = (list(words) for _, words in groupby(stored.split(), lambda word: group_of_word.get(word, word)))
    return " ".join(part[0] if len(part) == 1 else f"({' '.join(part)})" for part in parts)


def _form(order: Order, extents: Sequence[int], shape: ir.Shape | None) -> Form:
    """Return the factors that each stored dimension holds; nothing where the shape is not known."""
    dims = [dim for dim in shape or () if isinstance(dim, int)]
    if shape is None or len(dims) < len(shape) or -1 in extents:
        return ()
    rest, form = list(zip(order, extents, strict=True)), []
    for dim in dims:
        factors, size = [], 1
        while rest and size < dim:
            factor, extent = rest.pop(0)
            factors.append(factor)
            size *= extent
        form.append(tuple(factors))
    return tuple(form)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    yield from model.graph.inputs
    for node in all_nodes(model.graph):
        yield from node.outputs
