"""Why a Transpose remains: the demands that its bytes separate, read off the certificate."""

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from relayout.infer.build import ASKED
from relayout.infer.plans import Crossing, Plan
from relayout.infer.sites import Form, Order, Port, Root, Site, order_of
from relayout.infer.stored_orders import placed
from relayout.reports.layouts import Axes, layout_name, size_name
from relayout.rules import is_known
from relayout.solve.decomposition import End, Path, paths
from relayout.solve.problem import Problem

MOST = 3  # pairs of demands that a sentence names


class Cause(NamedTuple):
    """Two demands that cannot both be met without moving bytes."""

    above: str  # which operator, on the producer's side, needs which layout
    below: str  # which operator, on the readers' side, needs which other
    bytes: int  # what therefore crosses between the two
    interface: bool = False  # whether one of the two is an input or output whose layout is kept
    asked: bool = False  # whether one of the two is a tensor whose layout was asked for
    # whether one of the two is an operator that keeps the source's layout since nothing is known of it
    barrier: bool = False
    open_extents: bool = False  # whether one of the two is an operator that is known, but not with these open extents
    kinds: tuple[str, str] = ("", "")  # the operators of the two, or `input` and `output`


def causes(plan: Plan, axes: Axes) -> list[tuple[Cause, ...]]:
    """For each crossing of a plan its causes, heaviest first; their bytes sum to the crossing's."""
    return _Causes(plan, axes).run()


def sentence(causes: Sequence[Cause]) -> str:
    """Return causes as a sentence, and what removes them."""
    return f"{why(causes)} {remedy(causes)}"


def why(causes: Sequence[Cause]) -> str:
    """Return causes as a sentence."""
    several = len(causes) > 1
    parts = [
        f"because {cause.above} and {cause.below}" + (f" ({size_name(cause.bytes)})" if several else "")
        for cause in causes[:MOST]
    ]
    more = f", and for {len(causes) - MOST} more reasons" if len(causes) > MOST else ""
    return f"Needed {', and '.join(parts)}{more}."


def remedy(causes: Sequence[Cause]) -> str:
    """Return what removes a Transpose, or makes it cheaper."""
    if all(cause.interface for cause in causes):
        return "Remove it with `convert --io convert`."
    if any(cause.interface for cause in causes):
        return "A part of it goes with `convert --io convert`."
    if any(cause.asked for cause in causes):
        return "It stays while you ask for that layout (--layout, --io)."
    if any(cause.open_extents for cause in causes):
        return "Fixed extents may remove it: --dim NAME=N."
    if any(cause.barrier for cause in causes):
        return "Remove it by a rule for that operator (docs/how-to/custom-operator.md)."
    kinds = " or ".join(dict.fromkeys(kind for cause in causes[:MOST] for kind in cause.kinds))
    return f"Only a backend with a kernel for {kinds} in the other's layout can do without it (--target)."


class _Demand(NamedTuple):
    """A demand of a site on a value, in words, and what the site is."""

    words: str
    site: Site

    @property
    def interface(self) -> bool:
        """True if it is an input or output whose layout is kept, and not asked for."""
        return self.site.kind in ("input", "output") and bool(self.site.signature.variants) and not self.is_asked

    @property
    def is_asked(self) -> bool:
        """True if it is a tensor whose layout was asked for."""
        return any(variant.name == ASKED for variant in self.site.signature.variants)

    @property
    def is_open(self) -> bool:
        """True if it is an operator whose rule says nothing of these operands, because some extents are open."""
        node = self.site.node
        if node is None or not self.site.reason or not is_known(node):
            return False
        return any(
            v is not None and v.shape is not None and not v.shape.is_static() for v in (*node.inputs, *node.outputs)
        )

    @property
    def kind(self) -> str:
        """Its operator, or `input` and `output`."""
        return self.site.name.split(" ")[0]


def _cause(above: _Demand, below: _Demand, share: int) -> Cause:
    return Cause(
        above.words,
        below.words,
        share,
        above.interface or below.interface,
        above.is_asked or below.is_asked,
        bool(above.site.reason or below.site.reason),
        above.is_open or below.is_open,
        (above.kind, below.kind),
    )


class _Causes:
    def __init__(self, plan: Plan, axes: Axes) -> None:
        self.plan, self.axes = plan, axes
        self.sites = plan.sites.sites
        self.demanding: set[int] = set()
        self.nearest: dict[tuple[tuple[int, ...], Root], tuple[int, Root]] = {}

    def run(self) -> list[tuple[Cause, ...]]:
        formulation, solution = self.plan.formulation, self.plan.solution
        grouped: dict[tuple[Root, Order], list[Path]] = {}
        graph = Problem(formulation.problem.costs, formulation.values)
        for path in paths(graph, solution.choice, solution.certificate):
            order = formulation.orders[path.value][path.order]
            grouped.setdefault((formulation.roots[path.value], order), []).append(path)
        return [
            self._of(crossing, grouped.get((formulation.stands(crossing.root), crossing.order), []))
            for crossing in self.plan.crossings
        ]

    def _of(self, crossing: Crossing, paths: Sequence[Path]) -> tuple[Cause, ...]:
        amounts: dict[tuple[_Demand, _Demand], Fraction] = {}
        for path in paths:
            pair = self._demand(path.first, path), self._demand(path.last, path)
            amounts[pair] = amounts.get(pair, Fraction(0)) + path.amount
        total = sum(amounts.values(), Fraction(0))
        shares = {pair: int(crossing.size * amount / total) for pair, amount in amounts.items()}
        heaviest = max(shares, key=lambda pair: shares[pair])
        shares[heaviest] += crossing.size - sum(shares.values())
        # A path may end where a label's own price holds it: closeness to the source, which weighs less than a byte.
        causes = [_cause(*pair, share) for pair, share in shares.items() if share or pair == heaviest]
        return tuple(sorted(causes, key=lambda cause: -cause.bytes))

    def _demand(self, end: End, path: Path) -> _Demand:
        formulation, choice = self.plan.formulation, self.plan.solution.choice
        value, root = formulation.problem.values[path.value], formulation.roots[path.value]
        above = end is path.first
        if path.first.node == path.last.node and not above:
            # Back where it began: whatever the reader takes instead, it does not take what is given.
            order = formulation.orders[path.value][path.order]
            return self._said(value.readers[path.reader].node, root, order)
        readers = [port.node for port in value.readers if port.orders[choice[port.node]] == path.order]
        nodes = (value.producer.node,) if above else tuple(dict.fromkeys(readers))
        if not (end.fixed and self._parts[end.node] in {self._parts[node] for node in nodes}):
            # Of more than two orders, a price may serve several paths, and lead on to other Transposes: no proof then,
            # but where to look.
            # The nearest site that wants an order by itself and that no Transpose parts from the first ones.
            if (nodes, root) not in self.nearest:
                self.nearest[nodes, root] = self._search(nodes, root)
            near, root = self.nearest[nodes, root]
            order = placed(self.sites[near], self.plan.labels[near], self._port(near, root)).order
            return self._said(near, root, order)
        return self._said(end.node, formulation.roots[end.value], formulation.orders[end.value][end.order])

    @cached_property
    def _parts(self) -> list[int]:
        """Site -> which of the parts, between which Transposes stand, it is in: the number of one of its sites."""
        parts = list(range(len(self.sites)))
        for node in range(len(self.sites)):
            if parts[node] == node:
                self._reach(node, parts)
        return parts

    def _reach(self, first: int, parts: list[int]) -> None:
        """Give a part the number of its first site, and note whether any of its sites wants an order by itself."""
        queue = deque([first])
        while queue:
            node = queue.popleft()
            if self._is_demand(node):
                self.demanding.add(first)
            for other, _ in self._links.get(node, ()):
                if parts[other] != first:
                    parts[other] = first
                    queue.append(other)

    def _search(self, begin: tuple[int, ...], root: Root) -> tuple[int, Root]:
        if not any(self._parts[node] in self.demanding for node in begin):
            return begin[0], root
        root_by_node = dict.fromkeys(begin, root)
        queue = deque(root_by_node)
        while queue:
            node = queue.popleft()
            if self._is_demand(node):
                return node, root_by_node[node]
            for other, by in self._links.get(node, ()):
                if other not in root_by_node:
                    root_by_node[other] = by
                    queue.append(other)
        return begin[0], root

    @cached_property
    def _links(self) -> dict[int, list[tuple[int, Root]]]:
        """Site -> the sites that it gives a value to, or has one from, without a Transpose in between."""
        links: dict[int, list[tuple[int, Root]]] = {}
        formulation, choice = self.plan.formulation, self.plan.solution.choice
        for value, root in zip(formulation.values, formulation.roots, strict=True):
            producer = value.producer
            for reader in value.readers:
                if reader.orders[choice[reader.node]] == producer.orders[choice[producer.node]]:
                    links.setdefault(producer.node, []).append((reader.node, root))
                    links.setdefault(reader.node, []).append((producer.node, root))
        return links

    def _is_demand(self, node: int) -> bool:
        """Tell whether a site by itself requires an order."""
        site = self.sites[node]
        only = len(self.plan.formulation.labels[node]) == 1
        return bool(site.signature.tail) or (
            only and (site.kind != "node" or bool(site.reason) or bool(site.signature.variants))
        )

    def _port(self, node: int, root: Root) -> Port:
        """Return the first operand of a site for which a value stands in the problem."""
        stands = self.plan.formulation.stands
        return next(port for port in self.sites[node].ports if stands(port.view.root) is root)

    def _said(self, node: int, root: Root, order: Order) -> _Demand:
        return _Demand(self._words(node, root, order), self.sites[node])

    def _words(self, node: int, root: Root, order: Order) -> str:
        """Return a site's demand on a value that it reads or writes in an order, in the words of its own operand."""
        site, port = self.sites[node], self._port(node, root)
        layout = self._layout(node, port, order)
        if any(variant.name == ASKED for variant in site.signature.variants):
            return f"you store {site.name} in {layout}"
        if site.kind in ("input", "output") and site.signature.variants:
            return f"you keep {site.name} in {layout}"
        if site.kind != "node":
            return f"{site.name} is in {layout}"
        if site.reason:
            return f"{site.name} keeps the source's {layout} ({site.reason})"
        if site.signature.variants:
            return f"{site.name} needs {layout}"
        return f"{site.name} {self._needs(node, port, order)}"

    def _layout(self, node: int, port: Port, order: Order) -> str:
        """Return the layout of an operand that is in an order: a view has other dimensions than its root."""
        root, form = port.view.root, self._form(node, port)
        return layout_name(self.axes.form(root, form) if order_of(form) == order else self.axes.order(root, order))

    def _form(self, node: int, port: Port) -> Form:
        """Return the dimensions of an operand as the plan stores them."""
        return placed(self.sites[node], self.plan.labels[node], port).form

    def _needs(self, node: int, port: Port, order: Order) -> str:
        """Return the axes of an operand that an operator needs last, or as one dimension, and their order."""
        site, root, layout = self.sites[node], port.view.root, self._layout(node, port, order)
        letter_dims = list(zip(port.letters, port.view.form, strict=True))
        last = {factor for letter, dim in letter_dims if letter in site.signature.tail for factor in dim}
        if last:
            names, layout = self._some(node, port, order, last)
            place = "last, or exchanged" if site.signature.exchanged else "last"
            return f"needs {layout}" if last >= set(order) else f"needs {names} {place} ({layout})"
        groups = [self.axes.among(root, dim, order)[0] for letter, dim in letter_dims if letter in site.signature.block]
        grouped_axes = ", ".join(f"({group})" for group in groups if " " in group)
        return f"needs {grouped_axes} as one dimension ({layout})" if grouped_axes else f"takes {layout} only"

    def _some(self, node: int, port: Port, order: Order, factors: set[int]) -> tuple[str, str]:
        """Return the names of some axes of an operand, and its layout, in which they have these names."""
        root, form = port.view.root, self._form(node, port)
        if order_of(form) != order:
            names, whole = self.axes.among(root, factors, order)
            return names, layout_name(whole)
        dims = self.axes.dims(root, form)
        dim_words = [words for words, dim in zip(dims, form, strict=True) if factors & set(dim)]
        return " ".join(dim_words), layout_name(" ".join(dims))
