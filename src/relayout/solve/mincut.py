"""Two labels a node: the least cost is a minimum cut, and the maximum flow is its certificate.

Label 0 is the source side, 1 the sink side. For every (value, order) whose readers want it on the sink side add one
auxiliary node a with `p -> a: w` and `a -> c: infinite` for every such reader c; mirrored (`b -> p: w`, `c -> b:
infinite`) for an order wanted on the source side. A reader on the other side than the producer forces the auxiliary
node over, so w is cut once however many such readers there are; where there is one, w stands on an arc between the two
nodes themselves. (Lawler 1973; Kohli et al. 2009.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from relayout.solve.certificate import Price, Prices
from relayout.solve.problem import Problem, ValueEnd

ALWAYS, NEVER = -1, -2
"""A port that gives or wants an order under every label of its node, or under none."""


@dataclass
class Network:
    """A flow network with integer capacities; arc `i ^ 1` is the reverse of arc `i`."""

    heads: list[int] = field(default_factory=list)
    capacity: list[int] = field(default_factory=list)
    arcs: list[list[int]] = field(default_factory=list)

    def node(self) -> int:
        """A new node."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> int:
        """A new arc; its reverse starts empty."""
        self.arcs[tail].append(len(self.heads))
        self.arcs[head].append(len(self.heads) + 1)
        self.heads += [head, tail]
        self.capacity += [capacity, 0]
        return len(self.heads) - 2

    def flow_on(self, arc: int) -> int:
        """The flow on an arc after `maximize`."""
        return self.capacity[arc ^ 1]

    def maximize(self, source: int, sink: int) -> int:
        """The maximum flow (Dinic 1970): shortest augmenting paths, level by level."""
        total = 0
        while (levels := self._levels(source))[sink] >= 0:
            position = [0] * len(self.arcs)
            while pushed := self._augment(source, sink, levels, position):
                total += pushed
        return total

    def reachable(self, source: int) -> list[bool]:
        """The source side of the minimum cut nearest to the source."""
        return [level >= 0 for level in self._levels(source)]

    def _levels(self, source: int) -> list[int]:
        heads, capacity, arcs = self.heads, self.capacity, self.arcs
        levels = [-1] * len(arcs)
        levels[source] = 0
        queue = deque([source])
        while queue:
            tail = queue.popleft()
            level = levels[tail] + 1
            for arc in arcs[tail]:
                if capacity[arc] and levels[head := heads[arc]] < 0:
                    levels[head] = level
                    queue.append(head)
        return levels

    def _augment(self, source: int, sink: int, levels: list[int], position: list[int]) -> int:
        heads, capacity = self.heads, self.capacity
        path: list[int] = []
        tail = source
        while tail != sink:
            arcs, level = self.arcs[tail], levels[tail] + 1
            for place in range(position[tail], len(arcs)):
                arc = arcs[place]
                if capacity[arc] and levels[heads[arc]] == level:
                    position[tail] = place
                    path.append(arc)
                    tail = heads[arc]
                    break
            else:
                position[tail] = len(arcs)
                if not path:
                    return 0
                tail = heads[path.pop() ^ 1]
                position[tail] += 1
        pushed = min([capacity[arc] for arc in path])
        for arc in path:
            capacity[arc] -= pushed
            capacity[arc ^ 1] += pushed
        return pushed


def solve_two(problem: Problem, nodes: Sequence[int], values: Sequence[int]) -> tuple[dict[int, int], Prices] | None:
    """The best labels of `nodes` (each with two), all other nodes having one label, and the prices that prove it.

    Args:
        problem: the whole problem.
        nodes: the nodes to label: a component.
        values: the values that touch them.

    Returns:
        (node -> label, prices), or None where the labels cannot be sided so that every order is wanted on one
        side only (then it is no cut, and the integer program is needed).
    """
    flipped = _sides(problem, nodes, values)
    if flipped is None:
        return None
    network = Network()
    source, sink = network.node(), network.node()
    name = {node: network.node() for node in nodes}
    infinite = 1 + sum(len(v.readers) * v.weight for v in map(problem.values.__getitem__, values))
    for node in nodes:
        costs = [problem.costs[node][label ^ flipped[node]] for label in (0, 1)]
        if costs[1]:
            network.arc(source, name[node], costs[1])
        if costs[0]:
            network.arc(name[node], sink, costs[0])
    wanted: list[tuple[Price, int]] = []
    prices: Prices = {}
    for index in values:
        value = problem.values[index]
        for order in sorted({order for port in value.readers for order in port.orders}):
            given = _side(value.producer, order, flipped)
            sides = [_side(port, order, flipped) for port in value.readers]
            if given == ALWAYS or not value.weight or all(side == NEVER for side in sides):
                continue
            if given == NEVER and ALWAYS in sides:
                prices[index, order, sides.index(ALWAYS)] = value.weight
                continue
            side = next(s for s in (given, *sides) if s >= 0)
            producer = (source if side else sink) if given == NEVER else name[value.producer.node]
            targets = [
                (reader, (sink if side else source) if wants == ALWAYS else name[value.readers[reader].node])
                for reader, wants in enumerate(sides)
                if wants != NEVER
            ]
            if len(targets) == 1:  # the weight may stand on the arc itself
                ((reader, target),) = targets
                wanted.append(((index, order, reader), _gadget_arc(network, producer, target, value.weight, side)))
                continue
            helper = network.node()
            _gadget_arc(network, producer, helper, value.weight, side)
            for reader, target in targets:
                wanted.append(((index, order, reader), _gadget_arc(network, helper, target, infinite, side)))
    network.maximize(source, sink)
    for price, arc in wanted:
        if flow := network.flow_on(arc):
            prices[price] = flow
    reached = network.reachable(source)
    return {node: (0 if reached[name[node]] else 1) ^ flipped[node] for node in nodes}, prices


def _gadget_arc(network: Network, outer: int, inner: int, capacity: int, side: int) -> int:
    return network.arc(outer, inner, capacity) if side else network.arc(inner, outer, capacity)


def _side(port: ValueEnd, order: int, flipped: dict[int, int]) -> int:
    """The side on which `port` has `order`: 0, 1, ALWAYS or NEVER."""
    orders = port.orders
    if order not in orders:
        return NEVER
    return ALWAYS if len(set(orders)) == 1 else orders.index(order) ^ flipped[port.node]


def _sides(problem: Problem, nodes: Sequence[int], values: Sequence[int]) -> dict[int, int] | None:
    """For each node whether its labels swap sides, so that each order of a value is on one side at all its ports."""
    same: dict[int, list[tuple[int, int]]] = {node: [] for node in nodes}
    unflipped = dict.fromkeys(nodes, 0)
    for index in values:
        value = problem.values[index]
        anchors: dict[int, tuple[int, int]] = {}
        for port in (value.producer, *value.readers):
            for order in sorted(set(port.orders)):
                if (side := _side(port, order, unflipped)) < 0:
                    continue
                node, first = anchors.setdefault(order, (port.node, side))
                same[node].append((port.node, first ^ side))
                same[port.node].append((node, first ^ side))
    flipped: dict[int, int] = {}
    for start in nodes:
        flipped.setdefault(start, 0)
        stack = [start]
        while stack:
            node = stack.pop()
            for other, parity in same[node]:
                if other not in flipped:
                    flipped[other] = flipped[node] ^ parity
                    stack.append(other)
                elif flipped[other] != flipped[node] ^ parity:
                    return None
    return flipped
