"""How the operands of a site are stored under a label: their dimensions, and the order of their factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import onnx_ir as ir

from relayout.errors import LayoutError, nearest_values
from relayout.infer.sites import Label, Order, Placed, Port, Site, order_of
from relayout.layout import Layout, perm_of, product
from relayout.layout.stored_as import TENSOR
from relayout.rules import Letters
from relayout.rules.signature import Part, Variant, parts_of

# Explicit layouts: orders that a user asks for, tensor by tensor.


class Pins:
    """The stored orders that are asked for.

    Args:
        graph: the graph that the tensors are in.
        layouts: tensor name -> (its layout in the source, its stored layout).

    Raises:
        LayoutError: a tensor does not exist, is constant, or does not fit its layout.
    """

    def __init__(self, graph: ir.Graph, layouts: Mapping[str, tuple[str, str]]) -> None:
        self._perms: dict[str, tuple[int, ...]] = {}
        for name, (source, target) in layouts.items():
            try:
                self._perms[name] = perm_of(source, target)
            except LayoutError as error:
                raise LayoutError(f"--layout {name}={source}:{target}: {error}") from None
        if not layouts:
            return
        values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        known = {name: value for value in reversed(values) for name in _names(value)}
        for name, (source, target) in layouts.items():
            if name not in known:
                raise LayoutError(f"--layout {name}: the model has no tensor of that name{nearest_values(name, known)}")
            value = known[name]
            if value.const_value is not None:
                raise LayoutError(f"--layout {name}: a constant is stored as its readers want it, and cannot be pinned")
            rank = None if value.shape is None else len(value.shape)
            if rank != len(Layout.parse(source).axes):
                raise LayoutError(f"--layout {name}={source}:{target}: the tensor has rank {rank}")

    def __bool__(self) -> bool:
        return bool(self._perms)

    def perm(self, value: ir.Value) -> tuple[int, ...] | None:
        """Return the perm from the source's order of a value to the one that is asked for, if one is."""
        return next((self._perms[name] for name in _names(value) if name in self._perms), None) if self._perms else None


def _names(value: ir.Value) -> list[str]:
    return [name for name in (value.name, value.metadata_props.get(TENSOR)) if name]


StoredDim = tuple[str, tuple[int, ...]]
"""A stored dimension of an operand: what it is called, and the factors of the operand's root that it holds."""


def placed(site: Site, label: Label, port: Port) -> Placed:
    """Return the stored dimensions of one operand under a label."""
    known = site.pattern.placed.get((label, port.position))
    if known is None:
        known = site.pattern.placed[label, port.position] = _placed(site, label, port)
    return known


def variant_of(site: Site, label: Label) -> Variant | None:
    """Return the variant that decides where a site's axes lie under a label; None where they lie as the label says."""
    variant = site.signature.variants[label.variant] if label.variant >= 0 else None
    return None if variant is None or variant.free else variant


def orders(site: Site, label: Label) -> tuple[Order, ...]:
    """Return the stored order of every operand under a label."""
    return site.pattern.of(_orders, label, site, label)


def _orders(site: Site, label: Label) -> tuple[Order, ...]:
    return tuple([_order(site, label, port) for port in site.ports])


def stored_order_numbers(site: Site, label: Label) -> tuple[int, ...]:
    """Return the number of the stored order of every operand under a label, in its value's space."""
    known = site.pattern.numbers.get(label)
    if known is None:
        known = site.pattern.numbers[label] = _numbers(site, orders(site, label))
    return known


def source_numbers(site: Site) -> tuple[int, ...]:
    """Return the number of the order in which the source graph stores each operand."""
    return site.pattern.of(_source_numbers, None, site)


def _source_numbers(site: Site) -> tuple[int, ...]:
    return _numbers(site, [order_of(port.view.form) for port in site.ports])


def _numbers(site: Site, stored: Sequence[Order]) -> tuple[int, ...]:
    return tuple([port.view.root.space.orders.number(order) for port, order in zip(site.ports, stored, strict=True)])


def _order(site: Site, label: Label, port: Port) -> Order:
    """The stored order of one operand under a label: its factors as they come, where no dimension is made of others."""
    if port.pinned:
        return order_of(port.view.form)
    if variant_of(site, label) or site.pattern.of(_is_divided, None, site):
        return order_of(tuple([indices for _, indices in _dims_of(site, label, port)]))
    lies = port.factors
    return tuple([leaf for factor in label.order if factor in lies for leaf in lies[factor]])


def _is_divided(site: Site) -> bool:
    """Tell whether an operand holds in several dimensions an axis that must lie in one."""
    return any(len(port.dims(letter)) > 1 for port in site.ports for letter in site.whole)


def _placed(site: Site, label: Label, port: Port) -> Placed:
    if port.pinned:
        form = port.view.form
        return Placed(tuple(zip(port.letters, port.view.extents, strict=True)), form, order_of(form))
    dims, extents = _dims_of(site, label, port), port.view.root.extents
    form = tuple([indices for _, indices in dims])
    lengths = tuple([(letter, product([extents[index] for index in indices])) for letter, indices in dims])
    return Placed(lengths, form, order_of(form))


def _dims_of(site: Site, label: Label, port: Port) -> list[StoredDim]:
    """Return the stored dimensions of an operand."""
    variant = variant_of(site, label)
    dims = _dims(site, label, port) if variant is None else _dims_in_variant(site, label, variant, port)
    if site.signature.broadcast and not site.signature.variants:
        while len(dims) > len(port.letters) and not dims[0][1] and dims[0][0] not in port.letters:
            del dims[0]
    if "*" in site.signature.exchanged and variant is None and is_exchanged(site, label.order):
        # What lies behind the tail's axes is one dimension.
        end = 1 + max(place for place, (letter, _) in enumerate(dims) if letter in site.signature.tail)
        behind = tuple([index for _, indices in dims[end:] for index in indices])
        dims = [*dims[:end], ("*", behind)] if end < len(dims) else dims
    return dims


def _dims(site: Site, label: Label, port: Port) -> list[StoredDim]:
    """Return the dimensions where the axes lie as a label says."""
    has, dims = port.axes, []
    for name, letter, factors in site.pattern.of(_runs, label.order, site, label.order):
        axes = has.get(letter, ())
        if len(axes) > 1 and name in site.whole:
            dims += [(name, port.view.form[axis]) for axis in axes]
        elif axes or (name in site.signature.stretched and not port.output):
            dims.append((name, _leaves(port, factors)))
    return dims


def _dims_in_variant(site: Site, label: Label, variant: Variant, port: Port) -> list[StoredDim]:
    """Return the dimensions where the axes lie as a variant says."""
    factors = site.pattern.of(_by_letter, label.order, site, label.order)
    tokens = site.pattern.of(_tokens, (label.variant, port.position), site, variant, port)
    return [
        (
            name,
            _leaves(
                port,
                [factor for part, in_source_order in parts for factor in _part(factors, part, in_source_order, port)],
            ),
        )
        for name, parts in tokens
    ]


def _leaves(port: Port, factors: Sequence[int]) -> tuple[int, ...]:
    """Return the factors of a value that an operand holds of those of its site."""
    return tuple([leaf for factor in factors for leaf in port.factors.get(factor, ())])


def _runs(site: Site, order: Order) -> list[tuple[str, str, list[int]]]:
    """Return the dimensions of a site's axes in an order: what each is called, its axis, and its factors."""
    runs = []
    for letter, run in groupby(order, key=lambda factor: site.factors[factor][0]):
        factors = list(run)
        if letter not in site.grain:
            runs.append((letter, letter, factors))
            continue
        # The axis itself begins with what stays together; what a grain holds before it lies in a dimension of its own.
        first = next((place for place, factor in enumerate(factors) if site.factors[factor][1] == 0), len(factors))
        runs += [(f"{letter}%", letter, factors[:first])] if first else []
        runs += [(letter, letter, factors[first:])] if first < len(factors) else []
    return runs


def _by_letter(site: Site, order: Order) -> dict[str, tuple[int, ...]]:
    """Letter -> its factors as they come in an order."""
    factors: dict[str, tuple[int, ...]] = {}
    for factor in order:
        letter = site.factors[factor][0]
        factors[letter] = (*factors.get(letter, ()), factor)
    return factors


def _tokens(site: Site, variant: Variant, port: Port) -> list[tuple[str, list[tuple[Part, bool]]]]:
    """The dimensions of an operand in a variant: what each is called, its parts, and whether they keep their order.

    What one operand holds in tiles, or as a whole, keeps the source's order in all of them.
    """
    stored = (variant.outputs if port.output else variant.inputs)[0 if site.node is None else port.slot]
    ordered_letters = site.whole.union(letter for letter, _ in variant.tiles)
    tokens = []
    for parts in map(parts_of, dict.fromkeys(stored or ())):
        name = "*".join([part.letter for part in parts])
        if parts[0].letter in port.axes or (name in site.signature.stretched and not port.output):
            tokens.append((name, [(part, part.letter in ordered_letters) for part in parts]))
    return tokens


def _part(by_letter: Mapping[str, tuple[int, ...]], part: Part, in_source_order: bool, port: Port) -> Sequence[int]:
    """List the factors of a part of a variant's dimension; `in_source_order`: in the source's order."""
    factors = by_letter.get(part.letter, ())
    if in_source_order and len(factors) > 1:
        factors = tuple(sorted(factors))
    return _tiled(factors, part, port) if part.tile else factors


def _tiled(factors: Sequence[int], part: Part, port: Port) -> Sequence[int]:
    """Of the factors of an axis in tiles, in the source's order, those of the tile, or the others."""
    size, first = 1, len(factors)
    while size < part.tile and first:
        first -= 1
        for leaf in port.factors.get(factors[first], ()):
            size *= port.view.root.extents[leaf].number
    return factors[first:] if part.inner else factors[:first]


def is_exchanged(site: Site, order: Sequence[int]) -> bool:
    """Tell whether the tail's axes come in another order than the tail's."""
    return tail_of(site, order) != site.signature.tail


def tail_of(site: Site, order: Sequence[int]) -> Letters:
    """Return the tail's axes in the order in which they end."""
    letters = dict.fromkeys(site.factors[factor][0] for factor in reversed(order))
    return tuple(letter for letter in letters if letter in site.signature.tail)[::-1]
