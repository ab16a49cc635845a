"""Graph -> sites: follow the nodes once, ask the rules, carry splits along the axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeGuard

import numpy as np
import onnx_ir as ir

from relayout.graph.domains import domain_of_version
from relayout.graph.source_names import is_added, label
from relayout.graph.subgraphs import captured
from relayout.infer.needed import needed_nodes
from relayout.infer.nesting import Inner, repeated, sure_runs
from relayout.infer.open_extents import Relation, least_extents, relations, stacked
from relayout.infer.pieces import Piece, leaves, regroup
from relayout.infer.pins import Pins
from relayout.infer.sites import Numbering, Port, Root, Site, View, order_of
from relayout.infer.splits import carry, refine, tile
from relayout.layout import ONE, Dim, Extent, Learned, product, quotient, segments
from relayout.layout.stored_as import CLAIMED
from relayout.rules import (
    FUNCTIONS,
    WRAPPING,
    Changes,
    Fact,
    Facts,
    Letters,
    Nested,
    Operator,
    Permuted,
    Placement,
    Regrouped,
    Signature,
    Variant,
    axis_letters,
    draws,
    is_known,
    is_view,
    rule_of,
    undoes,
)

Choose = Callable[[Operator, Signature], Signature]

ASKED = "asked"
"""The name of the variant of an input, an output or an interior value whose layout was asked for."""
ROUNDS = 4
"""How often a graph is gone through again because a Reshape told something of dynamic extents."""
VIEWS = (Permuted, Regrouped)
"""What is known of a node that only looks at its operand otherwise. As a union it would be made for every node."""


class Move(NamedTuple):
    """A Transpose of the source that moves data.

    Args:
        name: of the value that it gives.
        root: what it moves.
        times: how often it does each time that this is computed.
    """

    name: str
    root: Root
    times: int = 1


@dataclass(eq=False)
class Sites:
    """A graph as the engine sees it.

    Args:
        graph: the source graph.
        roots: all roots, in the order of their producers.
        sites: interface, nodes and pins, in the order of the graph.
        views: every value of the graph as a view of its root.
        moves: the source's own Transposes that move data.
        inners: the bodies that are part of the problem.
        repeats: value whose conversions stand in a loop -> how often that runs.
        originals: root -> the values that are views of it.
        viewing: the source's nodes that are views: (node, what it reads, what it gives).
        permuting: those of them that are Transposes.
        requantizing: the source's nodes that make integers again of what was made of them, moved or not: views, too;
            and those that made it, where nobody else reads it.
        idle: how many Transposes of the source move nothing: axes of one element, or no elements.
        unneeded: the source's nodes that no output needs. Their Transposes are among `moves`.
        named: an extent as the product that it is -> the name that the source has for it.
        likely: dynamic dimension that nobody named -> the extent that an operand beside it has there, or those that an
            operator makes it of have at least: a price only.
        relations: what is known of dynamic dimensions that nobody named, in the order of the graph.
        declared: what the inputs call their open extents.
        is_open: some extents are not numbers.
        chosen: a target has given some node other variants: the source itself is none of the choices.
        contested: Reshapes split an axis in ways that do not agree: the first is free, and the others are barriers.
        per_transpose: what each Transpose costs besides the bytes that it moves, in bytes.
        per_scattered: what each byte costs besides, in bytes, that is taken element by element.
    """

    graph: ir.Graph
    roots: list[Root] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    views: dict[ir.Value, View] = field(default_factory=dict)
    moves: list[Move] = field(default_factory=list)
    inners: dict[ir.Graph, Inner] = field(default_factory=dict)
    repeats: dict[Root, int] = field(default_factory=dict)
    originals: dict[Root, list[ir.Value]] = field(default_factory=dict)
    viewing: list[tuple[ir.Node, View, View]] = field(default_factory=list)
    permuting: set[ir.Node] = field(default_factory=set)
    requantizing: list[ir.Node] = field(default_factory=list)
    idle: int = 0
    unneeded: list[ir.Node] = field(default_factory=list)
    named: dict[Extent, str] = field(default_factory=dict)
    likely: dict[str, int] = field(default_factory=dict)
    relations: list[Relation] = field(default_factory=list)
    declared: frozenset[str] = frozenset()
    is_open: bool = False
    chosen: bool = False
    contested: bool = False
    per_transpose: int = 0
    per_scattered: int = 0

    @property
    def seen_through(self) -> list[ir.Node]:
        """The source's nodes that are none of the problem: views, and what makes the same integers again."""
        return [*(node for node, _, _ in self.viewing), *self.requantizing]


def build(
    model: ir.Model,
    *,
    keep_interface: bool = True,
    layouts: Mapping[str, tuple[str, str]] | None = None,
    choose: Choose | None = None,
    per_transpose: int = 0,
    per_scattered: int = 0,
    exchange: bool = False,
) -> Sites:
    """The sites of a model's main graph.

    Args:
        model: every value should have type and shape; one without is a barrier.
        keep_interface: whether inputs and outputs keep their stored order.
        layouts: tensor name -> (source layout, stored layout): a pin on that value.
        choose: what a target makes of a node's signature: other variants.
        per_transpose: what each Transpose costs besides the bytes that it moves, in bytes.
        per_scattered: what each byte costs besides, in bytes, that is taken element by element.
        exchange: whether a product of two matrices may run with its operands exchanged.

    Raises:
        LayoutError: a pinned tensor does not exist, is constant, or does not fit its layout.
    """

    def built(known: Learned, depths: Mapping[ir.Value, int] | None = None) -> _Builder:
        builder = _Builder(model, keep_interface, dict(layouts or {}), choose, exchange, known, depths)
        builder.run()
        return builder

    builder = built(Learned())
    for _ in range(ROUNDS):
        if builder.learned == builder.known:
            break
        builder = built(builder.learned)
    if builder.sites.contested:
        builder = built(builder.known, _depths(builder.met))
    builder.sites.per_transpose, builder.sites.per_scattered = per_transpose, per_scattered
    return builder.sites


class _Builder:
    """Sites, node after node.

    Of two splits of one axis that do not agree the first is free, and the other a barrier. So that this is the same one
    for a graph and for what becomes of it, in which Reshapes stand elsewhere, such a graph is gone through by depth: by
    how many operators besides views lie on the longest way to a node.

    A dynamic extent that some Reshape divides by a number is that many times its quotient, everywhere.

    Args:
        known: what is known of dynamic extents.
        depths: value -> its depth, where nodes are taken in that order.

    Attributes:
        learned: the same, with what was found.
    """

    def __init__(
        self,
        model: ir.Model,
        keep_interface: bool,
        layouts: dict[str, tuple[str, str]],
        choose: Choose | None,
        exchange: bool,
        known: Learned,
        depths: Mapping[ir.Value, int] | None = None,
    ) -> None:
        self.choose, self.exchange = choose, exchange
        self.by_depth = depths
        self.known = self.learned = known
        self.met: list[Met] = []
        self.facts = Facts()
        self.versions: dict[str, int] = {}
        self.graph = model.graph
        self.keep = keep_interface
        self.pins = Pins(model.graph, layouts)
        self.sites = Sites(model.graph)
        self.scope = model.graph
        self.runs = 1
        self.symbolic = False
        self.grained: list[tuple[Site, str, int]] = []
        self.moves: list[tuple[ir.Node, View, View]] = []
        self.dequantized: dict[Root, Site] = {}
        self.integers: dict[Root, Root] = {}
        self.unknown = 0
        self.static: dict[ir.Value, tuple[int, ...]] = {}
        self.unnamed: dict[tuple[ir.Value, int], str] = {}
        self.aliases: dict[str, Dim] = dict(known.same)
        self.declared: set[str] = set()
        self.claimed: dict[str, int] = {}
        self.needed = needed_nodes(self.graph, self._is_entered)

    def run(self) -> None:
        for value in self.graph.inputs:
            self._interface(value, self._root(value, constant=False), output=True)
        self.declared = {str(dim) for value in self.graph.inputs for dim in self._shape(value) or ()}
        self._inside(self.graph)
        for slot, value in enumerate(self.graph.outputs):
            self._interface(value, self._view(value), output=False, slot=slot)
        # A run that is split by one may be split by another, before or behind it: all in turn, there and back.
        while [grained for grained in self.grained if refine(*grained)]:
            self.grained.reverse()
        if self.integers:
            self._drop_unread()
        likely = least_extents(self.sites.relations, self._claims()).items()
        self.sites.likely = {name: extent for name, extent in likely if name not in self.declared}
        self.sites.declared, self.sites.is_open = frozenset(self.declared), self.symbolic
        numbering = Numbering()
        for root in self.sites.roots:
            numbering.root(root)
        for site in self.sites.sites:
            numbering.site(site)
        turned = {before.root for _, before, _ in self.moves}
        self.sites.repeats = repeated(self.sites.inners, self.sites.sites, turned)
        for node, before, after in self.moves:
            if before.root.constant and before.root.value.producer() is None:
                continue
            if before.root.is_empty or order_of(before.form) == order_of(after.form):
                self.sites.idle += is_view(node)
            else:
                moved = self.integers.get(before.root, before.root)
                times = sure_runs(self.sites.inners, node.graph, before.root.graph)
                self.sites.moves.append(Move(node.outputs[0].name or "", moved, times))

    def _claims(self) -> dict[str, int]:
        """Return the extents that a file states and nobody names: they count as a price only."""
        return {name: extent for name, extent in self.claimed.items() if name not in self.declared}

    def _drop_unread(self) -> None:
        """Leave out what dequantizes for views and integers again alone; what moves between the two moves integers."""
        read = {port.view.root for site in self.sites.sites for port in site.ports if not port.output}
        self.integers = {real: integers for real, integers in self.integers.items() if real not in read}
        left = {self.dequantized[root]: None for root in self.integers}
        self.sites.sites = [site for site in self.sites.sites if site not in left]
        self.sites.requantizing += [site.node for site in left if site.node is not None]

    def _inside(self, graph: ir.Graph) -> None:
        """Everything in a graph but its inputs and outputs."""
        outer, self.scope = self.scope, graph
        for value in graph.initializers.values():
            if value not in self.sites.views:
                self._root(value, constant=True)
        for node in graph if self.by_depth is None else sorted(graph, key=self._depth):
            if node in self.needed:
                self._node(node)
            else:
                self._unneeded(node)
        self.scope = outer

    # Values

    def _shape(self, value: ir.Value) -> tuple[Dim, ...] | None:
        found = self.static.get(value)
        if found is not None:
            return found
        if value.const_value is not None:
            self.static[value] = tuple(value.const_value.shape.numpy())
            return self.static[value]
        if value.shape is None or type(value.type) in WRAPPING:
            return None  # what a sequence is said to have is its elements' shape
        given = value.shape.dims
        if is_static(given):
            self.static[value] = given
            return given
        dims: list[Dim] = []
        for axis, dim in enumerate(given):
            if isinstance(dim, int):
                dims.append(dim)
                continue
            self.symbolic = True
            name = str(dim.value) if dim.value is not None else self.unnamed.setdefault((value, axis), self._symbol())
            known = self._known_as(name)
            if (claimed := value.meta.get(CLAIMED)) is not None and isinstance(claimed[axis], int):
                self.claimed.setdefault(name, claimed[axis])
            dims.append(self._in_quotients(known) if self.known.divisors and isinstance(known, str) else known)
        return tuple(dims)

    def _known_as(self, name: str) -> Dim:
        """What is known of a dynamic extent; of a product what is known of each factor."""
        if name in self.aliases:
            return self.aliases[name]
        whole = Extent.of(name) if self.aliases else None
        if whole is None or self.aliases.keys().isdisjoint({*whole.symbols, *whole.names}):
            return name
        found = whole.fixed(self.aliases)
        if found.is_static:
            return found.number
        self.sites.named.setdefault(found, name)
        return str(found) if Extent.of(str(found)) == found else name

    def _in_quotients(self, dim: str) -> Dim:
        """A dynamic extent, with the quotients of the divided ones in it."""
        whole = Extent.of(dim)
        found = Extent(whole.number)
        for symbol in whole.symbols:
            inner = quotient(symbol)
            extent, by = inner if inner else (Extent(1, (symbol,)), 1)
            parts = [self._quotient(name) for name in extent.symbols]
            divided = (Extent(extent.number) * product(parts)).floor(Extent(by))
            found = found * (divided or Extent(1, (symbol,)))
        if found == whole:
            return dim
        self.sites.named.setdefault(found, dim)
        return str(found)

    def _quotient(self, name: str) -> Extent:
        """A divided extent as a number times its quotient; any other as it is."""
        by = Extent(self.known.divisors.get(name, 1))
        return by * (Extent(1, (name,)).floor(by) or ONE)

    def _symbol(self) -> str:
        """A name for a dimension that has none."""
        self.unknown += 1
        return f"?{self.unknown}"

    def _root(
        self, value: ir.Value, *, constant: bool, alike: Sequence[View | None] = (), runs: int | None = None
    ) -> View:
        """A new root; a value of unknown rank becomes one opaque axis, which only barriers touch.

        Args:
            value: the value.
            constant: whether it is known when the model is converted.
            alike: operands that have the same axes: with the extents of one of them it has its very pieces, so that
                what splits one splits both.
            runs: how often it is computed in an inference (default: as often as the graph runs).
        """
        shape = self._shape(value)
        if shape is None:
            shape = (self._symbol(),)
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
        self._name(value, view)
        return view

    def _unread(self, value: ir.Value, shape: tuple[Dim, ...]) -> View:
        """A root for a value that is none of the problem, for the sake of its bytes."""
        pieces = tuple([Piece(extent) for extent in _extents_of(shape)])
        constant = value.const_value is not None
        root = Root(len(self.sites.roots), value, pieces, constant, self.scope, self.runs)
        self.sites.roots.append(root)
        return View(root, tuple([(piece,) for piece in pieces]), itself=True)

    def _name(self, value: ir.Value, view: View) -> None:
        self.sites.views[value] = view
        self.sites.originals.setdefault(view.root, []).append(value)

    def _view(self, value: ir.Value) -> View:
        found = self.sites.views.get(value)
        return found if found is not None else self._root(value, constant=value.const_value is not None)

    def _add(self, site: Site) -> None:
        site.graph = self.scope
        self.sites.sites.append(site)

    # The interface and pins

    def _interface(self, value: ir.Value, view: View, *, output: bool, slot: int = 0) -> None:
        letters = axis_letters(len(view.dims))
        perm = self.pins.perm(value)
        stored = letters if perm is None else tuple(letters[axis] for axis in perm)
        variant = Variant((stored,), (stored,), name="standard" if perm is None else ASKED)
        pinned = (variant,) if self.keep or perm is not None else ()
        signature = Signature((letters,), (letters,), whole=frozenset(letters), variants=pinned)
        kind = "input" if output else "output"
        port = Port(view, letters, output, slot)
        self._add(Site(kind, value.name or "", None, signature, [port], kind, whole=frozenset(letters)))

    def _pin_inside(self, value: ir.Value) -> None:
        """Store an interior value as asked: its producer writes to the pin, its readers read from it."""
        perm = self.pins.perm(value)
        if perm is None or value.is_graph_output() or value.is_graph_input():
            return
        before = self.sites.views[value]
        letters = axis_letters(len(before.dims))
        stored = tuple(letters[axis] for axis in perm)
        signature = Signature(
            (letters,), (letters,), whole=frozenset(letters), variants=(Variant((stored,), (stored,), name=ASKED),)
        )
        self.sites.originals[before.root].remove(value)
        after = self._root(value, constant=False)
        ports = [Port(before, letters, False, 0), Port(after, letters, True, 0)]
        self._add(Site("pin", value.name or "", None, signature, ports, "pin", whole=frozenset(letters)))

    # Nodes

    def _operator(self, node: ir.Node) -> Operator:
        return Operator(
            node,
            self.versions.get(node.domain) or self._version(node.domain),
            tuple([None if value is None else self._shape(value) for value in node.inputs]),
            tuple([self._shape(value) for value in node.outputs]),
        )

    def _is_entered(self, node: ir.Node) -> bool:
        """Tell whether a node's bodies are part of the problem."""
        return isinstance(self.facts.of(self._operator(node)), Nested)

    def _unneeded(self, node: ir.Node) -> None:
        """Leave out a node that no output needs; a Transpose counts as one of the source's."""
        self.sites.unneeded.append(node)
        operator = self._operator(node)
        fact, value, shape = self.facts.of(operator), node.inputs[0] if node.inputs else None, operator.shape(0)
        if isinstance(fact, Permuted) and value is not None and shape is not None and not is_added(node):
            before = self.sites.views.get(value) or self._unread(value, shape)
            after = self._as_view(fact, before)
            if after is not None:
                self.moves.append((node, before, after))

    def _node(self, node: ir.Node) -> None:
        known = self.sites.views
        inputs = [None if value is None else known.get(value) or self._view(value) for value in node.inputs]
        operator = self._operator(node)
        fact = self.facts.of(operator)
        if isinstance(fact, Signature):
            variants = fact.variants
            fact = fact.cheap if self.choose is None else self.choose(operator, fact)
            self.sites.chosen |= self.choose is not None and fact.variants != variants
        implicit = captured(node) if node.attributes else []
        seen = fact if isinstance(fact, VIEWS) else None
        self.met.append((node, implicit, seen is not None))
        if isinstance(fact, Nested):
            self._nested(node, fact, inputs)
            return
        if seen is not None and inputs[0] is not None:
            view, stated = self._as_view(seen, inputs[0]), operator.outputs[0]
            if view is not None and (stated is None or len(stated) == len(view.dims)):
                self._name(node.outputs[0], view)
                self.sites.viewing.append((node, inputs[0], view))
                if isinstance(seen, Permuted):
                    self.sites.permuting.add(node)
                if isinstance(seen, Permuted) and not is_added(node):
                    self.moves.append((node, inputs[0], view))
                self._pin_inside(node.outputs[0])
                return
            fact = self._barrier_signature(seen, inputs[0])
        if isinstance(fact, Signature) and fact.with_maker and (again := self._requantized(node, inputs[0])):
            self._name(node.outputs[0], again)
            self.sites.requantizing.append(node)
            self._pin_inside(node.outputs[0])
            return
        if isinstance(fact, Signature) and fact.exchanges and not self._may_exchange(fact, inputs):
            fact = fact.in_place
        runs = 0 if isinstance(fact, Signature) and not implicit and _is_fixed(node, inputs) else None
        given = node.outputs
        outputs = [
            self._root(value, constant=value.const_value is not None, alike=_alike(fact, inputs, slot), runs=runs)
            for slot, value in enumerate(given)
        ]
        reason = "" if isinstance(fact, Signature) else _why_barrier(operator)
        signature = fact if isinstance(fact, Signature) else Signature((None,) * len(inputs), (None,) * len(outputs))
        if runs == 0 and signature.price is not None:
            signature = replace(signature, price=None)  # what runs once, when a model is loaded, costs nothing
        site = self._site(node, signature, inputs, outputs, [self._view(value) for value in implicit], reason)
        if signature.with_reader:
            self.dequantized.update((view.root, site) for view in outputs)
        for value in given if self.pins else ():
            self._pin_inside(value)

    def _version(self, domain: str) -> int:
        """The version of a domain's operators; functions of layouts are of the standard's."""
        imported = self.graph.opset_imports.get(domain_of_version(domain, FUNCTIONS), 1)
        return self.versions.setdefault(domain, imported)

    def _requantized(self, node: ir.Node, view: View | None) -> View | None:
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

    def _may_exchange(self, fact: Signature, inputs: Sequence[View | None]) -> bool:
        """Whether operands may be exchanged: a kernel takes those of a quantized unit in their places."""
        unit = any(view is not None and view.root in self.dequantized for view in inputs)
        return (self.exchange or fact.freely) and not unit

    def _depth(self, node: ir.Node) -> int:
        """How deep a node lies, as it was found; last where it gives nothing."""
        depths = self.by_depth or {}
        return depths.get(node.outputs[0], len(depths)) if node.outputs else len(depths)

    def _nested(self, node: ir.Node, fact: Nested, inputs: Sequence[View | None]) -> None:
        """A node with subgraphs: the bodies' sites, then one site for the node and all ends of its bodies."""
        graphs = tuple(node.attributes[body.attribute].as_graph() for body in fact.bodies)
        ports: list[Port] = []
        operator, called = _operator(node), label(node)
        enter = Site("enter", f"{node.op_type} {called}", None, Signature((), ()), [], "enter")
        for number, (graph, body) in enumerate(zip(graphs, fact.bodies, strict=True)):
            self.sites.inners[graph] = Inner(self.scope, fact.runs, fact.surely)
            self._add(replace(enter, bodies=(graph,)))
            outer, self.scope, runs, self.runs = self.scope, graph, self.runs, self.runs * fact.runs
            given = [(value, self._root(value, constant=False)) for value in graph.inputs]
            self._inside(graph)
            read = [self._view(value) for value in graph.outputs]
            self.scope, self.runs = outer, runs
            ports += self._ends([view for _, view in given], body.inputs, True, number)
            ports += self._ends(read, body.outputs, False, number)
        outputs = [self._root(value, constant=False) for value in node.outputs]
        ports += self._ends(inputs, fact.signature.inputs, False) + self._ends(outputs, fact.signature.outputs, True)
        self.sites.relations += stacked(ports, fact.signature.whole, fact.runs) if self.symbolic else ()
        # What is carried as one value is a site of its own: values that a node carries side by side do not depend on
        # each other's orders.
        for carried in _values(ports):
            named = {letter for port in carried for letter in port.letters}
            signature = Signature(
                (),
                tuple(dict.fromkeys(port.letters for port in carried)),
                whole=fact.signature.whole & named,
                head=tuple(letter for letter in fact.signature.head if letter in named),
            )
            border = Site(operator, called, None, signature, carried, "border")
            self._carried(border)
            self._add(border)
        kept = [port for port in ports if port.pinned]
        signature = Signature((), (), changes=fact.signature.changes)
        self._add(Site(operator, called, node, signature, kept, bodies=graphs, carried=tuple(ports)))

    def _ends(
        self, views: Sequence[View | None], given: Sequence[Letters | None], output: bool, body: int = -1
    ) -> list[Port]:
        return [
            Port(
                view, axis_letters(len(view.dims)) if letters is None else letters, output, slot, letters is None, body
            )
            for slot, (view, letters) in enumerate(zip(views, given, strict=False))
            if view is not None
        ]

    def _as_view(self, fact: Permuted | Regrouped, view: View) -> View | None:
        if isinstance(fact, Permuted):
            fits = len(fact.perm) == len(view.dims)
            return View(view.root, tuple(view.dims[axis] for axis in fact.perm)) if fits else None
        shape = self._solved(view.extents, fact.shape)
        parts = segments(view.extents, shape)
        if parts is None or any(part.is_barrier for part in parts):
            self._learn(view.extents, shape)
            return None
        dims: list[tuple[Piece, ...]] = [()] * len(fact.shape)
        for part in parts:
            pieces = [piece for axis in part.source for piece in view.dims[axis]]
            dealt = regroup(pieces, [shape[axis] for axis in part.target])
            if dealt is None:
                self.sites.contested = True
                return None
            for axis, dim in zip(part.target, dealt, strict=True):
                dims[axis] = tuple(dim)
        return View(view.root, tuple(dims))

    def _learn(self, source: Sequence[Extent], target: Sequence[Extent]) -> None:
        """Note what a Reshape tells of extents, where it is run every time: in the main graph."""
        if self.scope is self.graph and self.symbolic:
            self.learned = self.learned.of(source, target)

    def _solved(self, source: Sequence[Extent], target: Sequence[Dim]) -> list[Extent]:
        """The target's extents, with the one that shape inference could not name found from the number of elements."""
        known = {symbol for extent in source for symbol in extent.symbols}
        extents = [Extent.of(dim) for dim in target]
        unknown = [axis for axis, extent in enumerate(extents) if set(extent.symbols) - known]
        if len(unknown) != 1:
            return extents
        (axis,) = unknown
        rest = product(extent for position, extent in enumerate(extents) if position != axis)
        found = product(source).divide(rest) if rest.number else None
        if found is None:
            return extents
        if not self.declared.isdisjoint(extents[axis].symbols):
            self._learn(source, extents)
        unnamed, extents[axis] = extents[axis], found
        if unnamed.number > 1 or len(unnamed.symbols) > 1:
            return extents  # a product: found is more than its symbol stands for
        (name,) = unnamed.symbols
        single = found.number == len(found.symbols) == 1
        if found.is_static:
            self.aliases[name] = found.number
        elif Extent.of(str(found)) == found and (single or name not in self.declared):
            self.aliases[name] = str(found)
        return extents

    def _barrier_signature(self, fact: Permuted | Regrouped, view: View) -> Signature | None:
        """A Reshape that mixes elements: every segment keeps its own order, but segments may change places."""
        parts = segments(view.extents, fact.shape) if isinstance(fact, Regrouped) else None
        if parts is None or not isinstance(fact, Regrouped) or sum(isinstance(dim, str) for dim in fact.shape) > 1:
            return None
        inputs, outputs = [""] * len(view.dims), [""] * len(fact.shape)
        for number, part in enumerate(parts):
            for axis in part.source:
                inputs[axis] = f"g{number}"
            for axis in part.target:
                outputs[axis] = f"g{number}"
        whole = frozenset(inputs) | frozenset(outputs)
        return Signature((tuple(inputs), None), (tuple(outputs),), whole=whole, changes=_reshape)

    def _site(
        self,
        node: ir.Node,
        signature: Signature,
        inputs: Sequence[View | None],
        outputs: Sequence[View],
        implicit: Sequence[View],
        reason: str,
    ) -> Site:
        ports: list[Port] = []
        for views, given, output in ((inputs, signature.inputs, False), (outputs, signature.outputs, True)):
            for slot, view in enumerate(views):
                letters = given[slot] if slot < len(given) else None
                if view is not None:
                    pinned = letters is None
                    ports.append(Port(view, letters or axis_letters(len(view.dims)), output, slot, pinned))
        ports += [Port(view, axis_letters(len(view.dims)), False, -1, pinned=True) for view in implicit]
        site = Site(_operator(node), label(node), node, signature, ports, reason=reason)
        if self.symbolic:
            self.sites.relations += relations(site, self.declared)
        self._carried(site)
        if signature.variants:
            tile(site)
        self._add(site)
        return site

    def _carried(self, site: Site) -> None:
        carry(site)
        if site.signature.grain:
            self.grained += [(site, *grain) for grain in site.signature.grain]


Met = tuple[ir.Node, Sequence[ir.Value], bool]
"""A node, what its subgraphs capture, and whether it is a view. A Reshape that mixes elements is one: in any graph."""


def _depths(met: Sequence[Met]) -> dict[ir.Value, int]:
    """How deep values lie, from the nodes in their order: one deeper than what the node reads; a view as deep."""
    depths: dict[ir.Value, int] = {}
    for node, implicit, looks in met:
        read = [depths.get(value, 0) for value in (*node.inputs, *implicit) if value is not None]
        depths.update(dict.fromkeys(node.outputs, max(read, default=0) + (not looks)))
    return depths


def _operator(node: ir.Node) -> str:
    return f"{node.domain}:{node.op_type}" if node.domain else node.op_type


def _why_barrier(operator: Operator) -> str:
    """Why an operator that has no signature is a barrier."""
    given = zip(operator.node.inputs, operator.inputs, strict=True)
    if is_known(operator.node) and any(value is not None and shape is None for value, shape in given):
        return f"the rank of what {operator.name} reads is not known"
    rule = rule_of(operator)
    if rule is not None and rule.kind == "opaque" and rule.line:
        return f"{operator.name} {rule.line[0].lower()}{rule.line[1:].rstrip('.')}"
    return f"what {operator.name} does with axes is not known here"


def _is_fixed(node: ir.Node, inputs: Sequence[View | None]) -> bool:
    """Whether a node computes the same in every inference: a runtime computes it once, when it loads the model."""
    for view in inputs:
        if view is not None and view.root.runs and not view.root.constant:
            return False
    return any(view is not None for view in inputs) and not draws(node)


def _alike(fact: Fact, inputs: Sequence[View | None], slot: int) -> list[View | None]:
    """The inputs that have the same axes as an output, all of which may lie in pieces."""
    if not isinstance(fact, Signature) or not (alike := fact.alike[slot]):
        return []
    return [inputs[index] for index in alike]


@lru_cache(4096)
def _extents_of(shape: tuple[Dim, ...]) -> tuple[Extent, ...]:
    return tuple(map(Extent.of, shape))


def is_static(dims: tuple[int | ir.SymbolicDim, ...]) -> TypeGuard[tuple[int, ...]]:
    """Whether all extents are numbers."""
    return set(map(type, dims)) <= {int}


def _values(ports: Sequence[Port]) -> list[list[Port]]:
    """The ends of each value that is carried across a border: those that share a letter, or have none."""
    values: dict[str, list[Port]] = {}
    for port in (port for port in ports if not port.pinned):
        known = next((values[letter] for letter in port.letters or ("",) if letter in values), [])
        known.append(port)
        values.update(dict.fromkeys(port.letters or ("",), known))
    return list({id(value): value for value in values.values()}.values())


def _reshape(placement: Placement) -> Changes:
    """A Reshape to the stored shape of its output, whatever operator it was."""
    extents = placement.extents(output=True)
    shape = [extent.number if extent.is_static else -1 for extent in extents]
    removed = dict.fromkeys(("axis", "axes", "allowzero"))
    return Changes(removed, {1: np.array(shape, np.int64)}, op_type="Reshape")
