"""Graph -> sites: follow the nodes once, ask the rules, carry splits along the axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from relayout.graph.source_names import is_added, is_copied, label
from relayout.graph.subgraphs import bodies, captured
from relayout.infer.graph_sites import Inner, Move, Sites, repeated, sure_runs
from relayout.infer.open_extents import ValueExtents, extents_at, least_extents, relations, stacked
from relayout.infer.sites import Numbering, Port, Root, Site, View, order_of
from relayout.infer.splits import carry, refine, tile
from relayout.infer.stored_orders import Pins
from relayout.infer.value_views import RequantizedViews, ValueViews, is_fixed, regrouped_view
from relayout.layout import Dim, Learned, segments
from relayout.rules import (
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
    domain_of_version,
    is_known,
    is_view,
    may_go,
    rule_of,
)

# How deep a node lies: how many operators besides views lie on the longest way to it.

NodeReads = tuple[ir.Node, Sequence[ir.Value], bool]
"""A node, what its subgraphs capture, and whether it is a view. A Reshape that mixes elements is one: in any graph."""


def depths_of(nodes: Sequence[NodeReads]) -> dict[ir.Value, int]:
    """Return the depths of values, by the nodes in order: one deeper than what the node reads; a view as deep."""
    depths: dict[ir.Value, int] = {}
    for node, implicit, looks in nodes:
        read = [depths.get(value, 0) for value in (*node.inputs, *implicit) if value is not None]
        depths.update(dict.fromkeys(node.outputs, max(read, default=0) + (not looks)))
    return depths


# The ports of a node, and the border of one with bodies: what it carries in, round and out.


def ports_of(
    views: Sequence[View | None],  # the operands or the results; None where one is left out
    letters_by_slot: Sequence[
        Letters | None
    ],  # the letters of their axes; None, or none at all, for one that keeps its order
    output: bool,  # whether the node or the body gives them
    body: int = -1,  # the number of the body; -1 for the node itself
) -> list[Port]:
    """Return the ports of what a node, or a body of one, reads or gives."""
    ports = []
    for slot, view in enumerate(views):
        letters = letters_by_slot[slot] if slot < len(letters_by_slot) else None
        if view is not None:
            every = axis_letters(len(view.dims)) if letters is None else letters
            ports.append(Port(view, every, output, slot, letters is None, body))
    return ports


def carried_values(ports: Sequence[Port]) -> list[list[Port]]:
    """Return the ends of each value that is carried across a border: those that share a letter, or have none."""
    values: dict[str, list[Port]] = {}
    for port in (port for port in ports if not port.pinned):
        known = next((values[letter] for letter in port.letters or ("",) if letter in values), [])
        known.append(port)
        values.update(dict.fromkeys(port.letters or ("",), known))
    return list({id(value): value for value in values.values()}.values())


# The nodes that some output needs. The others are none of the problem, and not in the result.


def needed_nodes(graph: ir.Graph, is_entered: Callable[[ir.Node], bool], needed: set[ir.Node]) -> set[ir.Value | None]:
    """Collect the nodes of a graph, and of its bodies, on which an output depends; return the values that these read.

    An operator without a rule is needed, whoever reads what it gives: nobody knows what it does besides. Of a node
    whose bodies are not part of the problem (`is_entered`) all nodes in them are needed.
    """
    read_values: set[ir.Value | None] = set(graph.outputs)
    for node in reversed(graph):
        if read_values.isdisjoint(node.outputs) and may_go(node):
            continue
        needed.add(node)
        read_values.update(node.inputs)
        inner = bodies(node) if node.attributes else []
        if inner and not is_entered(node):
            read_values.update(captured(node))
            inner = []
        for body in inner:
            read_values |= needed_nodes(body, is_entered, needed)
    return read_values


# Barriers: operators of which no axis is known, and Reshapes that mix elements.


def why_barrier(operator: Operator) -> str:
    """Return why an operator that has no signature is a barrier."""
    operands = zip(operator.node.inputs, operator.inputs, strict=True)
    if is_known(operator.node) and any(value is not None and shape is None for value, shape in operands):
        return f"the rank of what {operator.name} reads is not known"
    rule = rule_of(operator)
    if rule is not None and rule.kind == "opaque" and rule.line:
        return f"{operator.name} {rule.line[0].lower()}{rule.line[1:].rstrip('.')}"
    return f"what {operator.name} does with axes is not known here"


def barrier_signature(fact: Permuted | Regrouped, view: View) -> Signature | None:
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


def _reshape(placement: Placement) -> Changes:
    """Return a Reshape to the stored shape of its output, whatever operator it was."""
    extents = placement.extents(output=True)
    shape = [extent.number if extent.is_static else -1 for extent in extents]
    removed = dict.fromkeys(("axis", "axes", "allowzero"))
    return Changes(removed, {1: np.array(shape, np.int64)}, op_type="Reshape")


# The source's own Transposes: what each moves, and how often.


def source_moves(
    transposes: Iterable[tuple[ir.Node, View, View]],  # of the graph: the node, what it reads, and what it gives
    # real numbers that are integers again behind views alone -> the integers: these are moved
    integers: Mapping[Root, Root],
    inners: Mapping[ir.Graph, Inner],  # the bodies that are part of the problem
) -> tuple[list[Move], int]:
    """Return the source's Transposes that move data, and how many move nothing."""
    moves: list[Move] = []
    places: dict[str, int] = {}
    idle = 0
    for node, before, after in transposes:
        if before.root.constant and before.root.value.producer() is None:
            continue
        start, order = order_of(before.form), order_of(after.form)
        if before.root.is_empty or start == order:
            idle += is_view(node) and not is_copied(node)
            continue
        moved = integers.get(before.root, before.root)
        times = sure_runs(inners, node.graph, before.root.graph)
        move = Move(node.outputs[0].name or "", moved, start, order, before.root, times)
        if not is_copied(node):
            places[label(node)] = len(moves)
            moves.append(move)
        elif moved is before.root and label(node) in places:
            # One reader of what the source moves once wants real numbers: these are what it moves.
            place = places[label(node)]
            moves[place] = move._replace(name=moves[place].name)
    return moves, idle


Choose = Callable[[Operator, Signature], Signature]

ASKED = "asked"  # the name of the variant of an input, an output or an interior value whose layout was asked for
ROUNDS = 4  # how often a graph is gone through again because a Reshape told something of dynamic extents
VIEWS = (Permuted, Regrouped)
"""What is known of a node that only looks at its operand otherwise. As a union it would be made for every node."""


def build(
    model: ir.Model,  # every value should have type and shape; one without is a barrier
    *,
    keep_interface: bool = True,  # whether inputs and outputs keep their stored order
    # tensor name -> (source layout, stored layout): a pin on that value
    layouts: Mapping[str, tuple[str, str]] | None = None,
    choose: Choose | None = None,  # what a target makes of a node's signature: other variants
    per_transpose: int = 0,  # what each Transpose costs besides the bytes that it moves, in bytes
    per_scattered: int = 0,  # what each byte costs besides, in bytes, that is taken element by element
    # axes that one Transpose moves at most, those that stay beside each other as one; 0: any number
    most_axes: int = 0,
    exchange: bool = False,  # whether a product of two matrices may run with its operands exchanged
    at: Mapping[str, int] | None = None,  # dynamic dimension -> the extent that it counts with; any other counts as 1
) -> Sites:
    """Return the sites of a model's main graph.

    Raises:
        LayoutError: a pinned tensor does not exist, is constant, or does not fit its layout.
    """

    def built(known: Learned, depths: Mapping[ir.Value, int] | None = None) -> _Builder:
        builder = _Builder(model, keep_interface, dict(layouts or {}), choose, exchange, known, depths)
        builder.run()
        return builder

    builder, rounds = built(Learned()), 0
    while builder.extents.learned != builder.extents.known and rounds < ROUNDS:
        builder, rounds = built(builder.extents.learned), rounds + 1
    if builder.sites.contested:
        builder = built(builder.extents.known, depths_of(builder.nodes))
    builder.sites.per_transpose, builder.sites.per_scattered = per_transpose, per_scattered
    builder.sites.most_axes = most_axes
    if at:
        builder.sites.at = extents_at(builder.sites.relations, builder.sites.roots, builder.sites.declared, at)
    return builder.sites


class _Builder:
    """Sites, node after node.

    Of two splits of one axis that do not agree the first is free, and the other a barrier. So that this is the same one
    for a graph and for what becomes of it, in which Reshapes stand elsewhere, such a graph is gone through by depth: by
    how many operators besides views lie on the longest way to a node.
    """

    def __init__(
        self,
        model: ir.Model,
        keep_interface: bool,
        layouts: dict[str, tuple[str, str]],
        choose: Choose | None,
        exchange: bool,
        known: Learned,  # what is known of dynamic extents
        depths: Mapping[ir.Value, int] | None = None,  # value -> its depth, where nodes are taken in that order
    ) -> None:
        self.choose, self.exchange = choose, exchange
        self.by_depth = depths
        self.nodes: list[NodeReads] = []
        self.facts = Facts()
        self.versions: dict[str, int] = {}
        self.graph = model.graph
        self.keep = keep_interface
        self.pins = Pins(model.graph, layouts)
        self.extents = ValueExtents(known)
        self.sites = Sites(model.graph, named=self.extents.named)
        self.values = ValueViews(self.sites, self.extents)
        self.grained: list[tuple[Site, str, int]] = []
        self.moves: list[tuple[ir.Node, View, View]] = []
        self.requantized = RequantizedViews(self.sites)
        self.needed: set[ir.Node] = set()
        needed_nodes(self.graph, lambda node: isinstance(self.facts.of(self._operator(node)), Nested), self.needed)

    def run(self) -> None:
        for value in self.graph.inputs:
            self._interface(value, self.values.root(value, constant=False), output=True)
        self.extents.declared = {str(dim) for value in self.graph.inputs for dim in self.extents.of(value) or ()}
        self._inside(self.graph)
        for slot, value in enumerate(self.graph.outputs):
            self._interface(value, self.values.view(value), output=False, slot=slot)
        # A run that is split by one may be split by another, before or behind it: all in turn, there and back.
        while [grained for grained in self.grained if refine(*grained)]:
            self.grained.reverse()
        self.requantized.drop_unread()
        likely = least_extents(self.sites.relations, self.extents.claims()).items()
        self.sites.likely = {name: extent for name, extent in likely if name not in self.extents.declared}
        self.sites.declared, self.sites.is_open = frozenset(self.extents.declared), self.extents.symbolic
        numbering = Numbering()
        for root in self.sites.roots:
            numbering.root(root)
        for site in self.sites.sites:
            numbering.site(site)
        turned = {before.root for _, before, _ in self.moves}
        self.sites.repeats = repeated(self.sites.inners, self.sites.sites, turned)
        self.sites.moves, self.sites.idle = source_moves(self.moves, self.requantized.integers, self.sites.inners)

    def _inside(self, graph: ir.Graph) -> None:
        """Everything in a graph but its inputs and outputs."""
        for value in graph.initializers.values():
            if value not in self.sites.views:
                self.values.root(value, constant=True)
        nodes: Iterable[ir.Node] = graph
        if (depths := self.by_depth) is not None:  # last what gives nothing
            last = len(depths)
            nodes = sorted(graph, key=lambda node: next((depths.get(v, last) for v in node.outputs[:1]), last))
        for node in nodes:
            if node in self.needed:
                self._node(node)
            else:
                self._unneeded(node)

    def _add(self, site: Site) -> None:
        site.graph = self.values.scope
        self.sites.sites.append(site)

    def _interface(self, value: ir.Value, view: View, *, output: bool, slot: int = 0) -> None:
        letters = axis_letters(len(view.dims))
        perm = self.pins.perm(value)
        stored = letters if perm is None else tuple(letters[axis] for axis in perm)
        variant = Variant((stored,), (stored,), name="standard" if perm is None else ASKED)
        pinned = (variant,) if self.keep or perm is not None else ()
        signature = Signature((letters,), (letters,), whole=frozenset(letters), variants=pinned)
        kind = "input" if output else "output"
        ports = [Port(view, letters, output, slot)]
        self._add(Site(kind, value.name or "", None, signature, ports, kind, whole=frozenset(letters)))

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
        after = self.values.root(value, constant=False)
        ports = [Port(before, letters, False, 0), Port(after, letters, True, 0)]
        self._add(Site("pin", value.name or "", None, signature, ports, "pin", whole=frozenset(letters)))

    def _operator(self, node: ir.Node) -> Operator:
        version = self.versions.get(node.domain)
        if version is None:  # functions of layouts are of the standard's
            version = self.graph.opset_imports.get(domain_of_version(node.domain), 1)
            self.versions[node.domain] = version
        return Operator(
            node,
            version,
            tuple([None if value is None else self.extents.of(value) for value in node.inputs]),
            tuple([self.extents.of(value) for value in node.outputs]),
        )

    def _unneeded(self, node: ir.Node) -> None:
        """Leave out a node that no output needs; a Transpose counts as one of the source's."""
        self.sites.unneeded.append(node)
        operator = self._operator(node)
        fact, value, shape = self.facts.of(operator), node.inputs[0] if node.inputs else None, operator.shape(0)
        if isinstance(fact, Permuted) and value is not None and shape is not None and not is_added(node):
            before = self.sites.views.get(value) or self.values.unread(value, shape)
            after = self._as_view(fact, before)
            if after is not None:
                self.moves.append((node, before, after))

    def _node(self, node: ir.Node) -> None:
        known = self.sites.views
        inputs = [None if value is None else known.get(value) or self.values.view(value) for value in node.inputs]
        operator = self._operator(node)
        fact = self._fact(operator)
        implicit = captured(node) if node.attributes else []
        seen = fact if isinstance(fact, VIEWS) else None
        self.nodes.append((node, implicit, seen is not None))
        if isinstance(fact, Nested):
            self._nested(node, fact, inputs)
            return
        if seen is not None and inputs[0] is not None:
            if self._looks(node, seen, inputs[0], operator.outputs[0]):
                return
            fact = barrier_signature(seen, inputs[0])
        if not isinstance(fact, Signature):
            signature = Signature((None,) * len(inputs), (None,) * len(node.outputs))
            self._computed(node, signature, inputs, implicit, why_barrier(operator) if inputs else "")
            return
        if fact.with_producer and (again := self.requantized.view_of(node, inputs[0])):
            self.values.name(node.outputs[0], again)
            self.sites.requantizing.append(node)
            self._pin_inside(node.outputs[0])
            return
        # A kernel takes the operands of a quantized unit in their places.
        if fact.exchanges and not ((self.exchange or fact.freely) and not self._is_unit(inputs)):
            fact = fact.in_place
        if fact.transposed and self._is_unit(inputs):
            fact = fact.untransposed
        self._computed(node, fact, inputs, implicit)

    def _fact(self, operator: Operator) -> Fact:
        """Return the rule's fact on an operator, with the variants that a target makes of its own."""
        fact = self.facts.of(operator)
        if not isinstance(fact, Signature):
            return fact
        if self.choose is None:
            return fact.cheap.untransposed
        chosen = self.choose(operator, fact)
        self.sites.chosen |= chosen.variants != fact.variants
        return chosen

    def _looks(self, node: ir.Node, fact: Permuted | Regrouped, before: View, stated: Sequence[Dim] | None) -> bool:
        """Take a node for a view of what it reads, if it is one of the rank that is stated."""
        view = self._as_view(fact, before)
        if view is None or (stated is not None and len(stated) != len(view.dims)):
            return False
        self.values.name(node.outputs[0], view)
        self.sites.viewing.append((node, before, view))
        if isinstance(fact, Permuted):
            self.sites.permuting.add(node)
            if not is_added(node):
                self.moves.append((node, before, view))
        self._pin_inside(node.outputs[0])
        return True

    def _computed(
        self,
        node: ir.Node,
        signature: Signature,
        inputs: Sequence[View | None],
        implicit: Sequence[ir.Value],
        barrier: str = "",
    ) -> None:
        """Add the site of a node that computes what it gives; `barrier`: why nothing is known of it, if so."""
        runs = 0 if not barrier and not implicit and is_fixed(node, inputs) else None
        outputs = []
        for slot, value in enumerate(node.outputs):
            # Inputs that have the same axes as the output, all of which may lie in pieces.
            alike = [inputs[index] for index in signature.alike[slot]]
            outputs.append(self.values.root(value, constant=value.const_value is not None, alike=alike, runs=runs))
        if runs == 0 and signature.price is not None:
            signature = replace(signature, price=None)  # what runs once, when a model is loaded, costs nothing
        site = self._site(node, signature, inputs, outputs, [self.values.view(value) for value in implicit], barrier)
        if signature.with_reader:
            self.requantized.dequantized.update((view.root, site) for view in outputs)
        for value in node.outputs if self.pins else ():
            self._pin_inside(value)

    def _is_unit(self, inputs: Sequence[View | None]) -> bool:
        return any(view is not None and view.root in self.requantized.dequantized for view in inputs)

    def _nested(self, node: ir.Node, fact: Nested, inputs: Sequence[View | None]) -> None:
        """A node with subgraphs: the bodies' sites, then one site for the node and all ends of its bodies."""
        graphs = tuple(node.attributes[body.attribute].as_graph() for body in fact.bodies)
        ports: list[Port] = []
        operator, called = _operator(node), label(node)
        enter = Site("enter", f"{node.op_type} {called}", None, Signature((), ()), [], "enter")
        for number, (graph, body) in enumerate(zip(graphs, fact.bodies, strict=True)):
            self.sites.inners[graph] = Inner(self.values.scope, fact.runs, fact.surely)
            self._add(replace(enter, bodies=(graph,)))
            with self.values.inside(graph, fact.runs):
                body_inputs = [self.values.root(value, constant=False) for value in graph.inputs]
                self._inside(graph)
                read = [self.values.view(value) for value in graph.outputs]
            ports += ports_of(body_inputs, body.inputs, True, number)
            ports += ports_of(read, body.outputs, False, number)
        outputs = [self.values.root(value, constant=False) for value in node.outputs]
        ports += ports_of(inputs, fact.signature.inputs, False) + ports_of(outputs, fact.signature.outputs, True)
        self.sites.relations += stacked(ports, fact.signature.whole, fact.runs) if self.extents.symbolic else ()
        # What is carried as one value is a site of its own: values that a node carries side by side do not depend on
        # each other's orders.
        for carried in carried_values(ports):
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
        pinned_ports = [port for port in ports if port.pinned]
        signature = Signature((), (), changes=fact.signature.changes)
        self._add(Site(operator, called, node, signature, pinned_ports, bodies=graphs, carried=tuple(ports)))

    def _as_view(self, fact: Permuted | Regrouped, view: View) -> View | None:
        if isinstance(fact, Permuted):
            fits = len(fact.perm) == len(view.dims)
            return View(view.root, tuple(view.dims[axis] for axis in fact.perm)) if fits else None
        always = self.values.scope is self.graph
        shape = self.extents.solved(view.extents, fact.shape, always=always)
        parts = segments(view.extents, shape)
        if parts is None or any(part.is_barrier for part in parts):
            if always:
                self.extents.learn(view.extents, shape)
            return None
        regrouped = regrouped_view(view, parts, shape)
        self.sites.contested |= regrouped is None
        return regrouped

    def _site(
        self,
        node: ir.Node,
        signature: Signature,
        inputs: Sequence[View | None],
        outputs: Sequence[View],
        implicit: Sequence[View],
        reason: str,
    ) -> Site:
        ports = ports_of(inputs, signature.inputs, False) + ports_of(outputs, signature.outputs, True)
        ports += [Port(view, axis_letters(len(view.dims)), False, -1, pinned=True) for view in implicit]
        site = Site(_operator(node), label(node), node, signature, ports, reason=reason)
        if self.extents.symbolic:
            self.sites.relations += relations(site, self.extents.declared)
        self._carried(site)
        if signature.variants:
            tile(site)
        self._add(site)
        return site

    def _carried(self, site: Site) -> None:
        carry(site)
        if site.signature.grain:
            self.grained += [(site, *grain) for grain in site.signature.grain]


def _operator(node: ir.Node) -> str:
    return f"{node.domain}:{node.op_type}" if node.domain else node.op_type
