"""Two labels a node: the least cost is a minimum cut, and the maximum flow is its certificate.

Label 0 is the source side, 1 the sink side. For every (value, order) whose readers want it on the sink side add one
auxiliary node a with `p -> a: w` and `a -> c: infinite` for every such reader c; mirrored (`b -> p: w`, `c -> b:
infinite`) for an order wanted on the source side. A reader on the other side than the producer forces the auxiliary
node over, so w is cut once however many such readers there are; where there is one, w stands on an arc between the two
nodes themselves. (Lawler 1973; Kohli et al. 2009.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from relayout.light_dataclass import dataclass
from relayout.solve.certificate import Price, Prices
from relayout.solve.problem import Problem, ValueEnd

ALWAYS, NEVER = -1, -2  # a port that gives or wants an order under every label of its node, or under none

LENGTHS = 16  # lengths of shortest paths that are followed before the rest of a flow is pushed


@dataclass
class Network:
    """A flow network with integer capacities; arc `i ^ 1` is the reverse of arc `i`."""

    heads: list[int] = field(default_factory=list)
    capacity: list[int] = field(default_factory=list)
    arcs: list[list[int]] = field(default_factory=list)

    def node(self) -> int:
        """Return a new node."""
        self.arcs.append([])
        return len(self.arcs) - 1

    def arc(self, tail: int, head: int, capacity: int) -> int:
        """Return a new arc; its reverse starts empty."""
        self.arcs[tail].append(len(self.heads))
        self.arcs[head].append(len(self.heads) + 1)
        self.heads += [head, tail]
        self.capacity += [capacity, 0]
        return len(self.heads) - 2

    def flow_on(self, arc: int) -> int:
        """Return the flow on an arc after `maximize`."""
        return self.capacity[arc ^ 1]

    def maximize(self, source: int, sink: int) -> int:
        """Return the maximum flow: along the shortest paths first, and what is left is pushed.

        What lies near each other pays first, so that a report names it. Of a deep network the paths have many lengths,
        and each takes a look at all of it.
        """
        total = 0
        for _ in range(LENGTHS):
            levels = self._heights(sink)
            if levels[source] < 0:
                return total
            position = [0] * len(self.arcs)
            while pushed := self._augment(source, sink, levels, position):
                total += pushed
        return total + self._push(source, sink)

    def _augment(self, source: int, sink: int, heights: list[int], position: list[int]) -> int:
        """Push along one path of a level graph (Dinic 1970), and say how much; 0 where there is none."""
        heads, capacity = self.heads, self.capacity
        path: list[int] = []
        tail = source
        while tail != sink:
            arcs, below = self.arcs[tail], heights[tail] - 1
            for place in range(position[tail], len(arcs)):
                arc = arcs[place]
                if capacity[arc] and heights[heads[arc]] == below:
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

    def _push(self, source: int, sink: int) -> int:
        """Push what stands in a node towards the sink, or back where nothing more gets there; say how much arrived.

        Push and relabel, first in first out (Goldberg and Tarjan 1988), with exact heights after every so many new
        ones.
        """
        heads, capacity, arcs = self.heads, self.capacity, self.arcs
        excess, waiting = [0] * len(arcs), deque[int]()
        for arc in arcs[source]:
            if pushed := capacity[arc]:
                capacity[arc], capacity[arc ^ 1] = 0, capacity[arc ^ 1] + pushed
                excess[heads[arc]] += pushed
        waiting.extend(node for node, surplus in enumerate(excess) if surplus and node not in (source, sink))
        heights, position, lifted = self._heights(sink, source), [0] * len(arcs), 0
        while waiting:
            if lifted > len(arcs):
                heights, position, lifted = self._heights(sink, source), [0] * len(arcs), 0
            node = waiting.popleft()
            own, surplus, below = arcs[node], excess[node], heights[node] - 1
            for place in range(position[node], len(own)):
                arc = own[place]
                residual = capacity[arc]
                if not residual or heights[head := heads[arc]] != below:
                    continue
                pushed = min(residual, surplus)
                capacity[arc] -= pushed
                capacity[arc ^ 1] += pushed
                if not excess[head] and head not in (source, sink):
                    waiting.append(head)
                excess[head] += pushed
                surplus -= pushed
                if not surplus:
                    position[node] = place
                    break
            excess[node] = surplus
            if surplus:
                heights[node] = 1 + min([heights[heads[arc]] for arc in own if capacity[arc]])
                position[node] = 0
                lifted += 1
                waiting.append(node)
        return excess[sink]

    def reachable(self, source: int) -> list[bool]:
        """Return the source side of the minimum cut nearest to the source."""
        seen = [False] * len(self.arcs)
        seen[source] = True
        stack = [source]
        while stack:
            for arc in self.arcs[stack.pop()]:
                if self.capacity[arc] and not seen[head := self.heads[arc]]:
                    seen[head] = True
                    stack.append(head)
        return seen

    def _heights(self, sink: int, source: int | None = None) -> list[int]:
        """Count the arcs between each node and the sink; -1 where it is not reached.

        Args:
            sink: its node.
            source: if given, it lies above all others, and where no sink is reached, heights count from there.
        """
        heads, capacity, arcs = self.heads, self.capacity, self.arcs
        heights = [-1] * len(arcs)
        for end, height in ((sink, 0), (source, len(arcs))):
            if end is None:
                continue
            heights[end] = height
            queue = deque([end])
            while queue:
                head = queue.popleft()
                height = heights[head] + 1
                for arc in arcs[head]:
                    if capacity[arc ^ 1] and heights[tail := heads[arc]] < 0 and tail != source:
                        heights[tail] = height
                        queue.append(tail)
        return heights


def solve_two(
    problem: Problem,  # the whole problem
    nodes: Sequence[int],  # the nodes to label: a component
    values: Sequence[int],  # the values that touch them
) -> tuple[dict[int, int], Prices] | None:
    """The best labels of `nodes` (each with two), all other nodes having one label, and the prices that prove it.

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
    infinite = 1 + _most(problem, values)
    for node in nodes:
        _charge(network, (source, name[node], sink), [problem.costs[node][side ^ flipped[node]] for side in (0, 1)])
    price_arcs: list[tuple[Price, int]] = []
    prices: Prices = {}
    for index, order, producer_side, sides in _sided(problem, values, flipped):
        value = problem.values[index]
        if producer_side == NEVER and ALWAYS in sides:
            prices[index, order, sides.index(ALWAYS)] = value.weight
            continue
        side = next(s for s in (producer_side, *sides) if s >= 0)
        near, far = (source, sink) if side else (sink, source)
        producer = near if producer_side == NEVER else name[value.producer.node]
        targets = {
            reader: far if wants == ALWAYS else name[value.readers[reader].node]
            for reader, wants in enumerate(sides)
            if wants != NEVER
        }
        arcs = _gadget(network, producer, targets, (value.weight, infinite), side)
        price_arcs += [((index, order, reader), arc) for reader, arc in arcs]
    network.maximize(source, sink)
    for price, arc in price_arcs:
        if flow := network.flow_on(arc):
            prices[price] = flow
    reached = network.reachable(source)
    return {node: (0 if reached[name[node]] else 1) ^ flipped[node] for node in nodes}, prices


def _most(problem: Problem, values: Sequence[int]) -> int:
    """Return the cost of values where every reader wants another order."""
    return sum([len(problem.values[index].readers) * problem.values[index].weight for index in values])


def _sided(
    problem: Problem, values: Sequence[int], flipped: dict[int, int]
) -> Iterator[tuple[int, int, int, list[int]]]:
    """(value, order, the side that gives it, those that want it) of each order of which a Transpose may be needed."""
    for index in values:
        value = problem.values[index]
        for order in sorted({order for port in value.readers for order in port.orders}) if value.weight else ():
            producer_side = _side(value.producer, order, flipped)
            sides = [_side(port, order, flipped) for port in value.readers]
            if producer_side != ALWAYS and any(side != NEVER for side in sides):
                yield index, order, producer_side, sides


def _charge(network: Network, ends: tuple[int, int, int], costs: Sequence[int]) -> None:
    """Arcs for what the labels of a node cost: of the source, the node and the sink."""
    source, node, sink = ends
    if costs[1]:
        network.arc(source, node, costs[1])
    if costs[0]:
        network.arc(node, sink, costs[0])


def _gadget(
    network: Network,
    producer: int,  # what gives the order, or the end of the network that stands for it
    targets: Mapping[int, int],  # reader -> its node, or the end that stands for it
    capacities: tuple[int, int],  # the weight, and what no flow exceeds
    side: int,  # the side on which the order is wanted
) -> list[tuple[int, int]]:
    """Arcs for an order that costs its weight once, however many readers want it: (reader, its arc)."""
    weight, infinite = capacities
    if len(targets) == 1:  # the weight may stand on the arc itself
        return [(reader, _gadget_arc(network, producer, target, weight, side)) for reader, target in targets.items()]
    helper = network.node()
    _gadget_arc(network, producer, helper, weight, side)
    return [(reader, _gadget_arc(network, helper, target, infinite, side)) for reader, target in targets.items()]


def _gadget_arc(network: Network, outer: int, inner: int, capacity: int, side: int) -> int:
    return network.arc(outer, inner, capacity) if side else network.arc(inner, outer, capacity)


def _side(port: ValueEnd, order: int, flipped: dict[int, int]) -> int:
    """Return the side on which `port` has `order`: 0, 1, ALWAYS or NEVER."""
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
