"""Exact solution by variable elimination: nonserial dynamic programming (Bertelè and Brioschi 1972).

Nodes leave the component one after another. All tables that know of the node are added, and the least over its labels
is a table of its neighbours:

    m(neighbours) = min_l ( cost[node][l] + Σ tables that mention the node )

The last table is one number, the least cost. Going back, each node takes the label that was the least. The tables grow
with the neighbours at the time, so the order decides: networks are long and narrow, and a component of 400 nodes with
30 labels each takes a million cells. Branching has no such bound where relaxations are not tight.

A table tells labels apart only where they differ in the orders of the values that it sums: its axes have a place for
each *class* of labels. A value that many nodes read has a node of its own, whose labels are the sets of orders in which
the value exists: each reader then shares a table with this node alone.

An order is a proof by itself: whoever has it computes the least cost again, in integers (`least_cost`).
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relayout.solve.problem import Problem, Value, ValueEnd

MOST_CELLS = 1 << 26  # cells of all tables of a component together: about a second
LARGEST_TABLE = 1 << 22  # cells of one table: 32 MB

EXACT = 1 << 61  # costs up to which 64-bit integers add up exactly
FEWER_SETS = 16
"""A value has a node of its own where its ends combine in so many times more ways than two sets of orders do."""

Classes = tuple[int, ...]  # label of a node -> its class, numbered as they come
Scope = dict[int, Classes]  # node that a table mentions -> the classes of its labels there: an axis each, in this order


class _Step(NamedTuple):
    """The elimination of one node."""

    node: int
    tables: tuple[int, ...]  # the tables that mention it: values first, then those that earlier steps left
    scope: Scope  # of their sum, the node's own axis last

    @property
    def cells(self) -> int:
        """The cells of the sum."""
        return prod(max(classes) + 1 for classes in self.scope.values())


class _Scopes:
    """The tables of a component as far as they are known without their numbers: what each tells apart."""

    def __init__(
        self,
        problem: Problem,  # the whole problem
        nodes: Iterable[int],  # the nodes of the component
        values: Iterable[int],  # the values that touch them
    ) -> None:
        self.tables_of: dict[int, dict[int, None]] = {node: {} for node in nodes if node >= 0}
        self.scopes: list[Scope] = []
        self.values: list[tuple[Value, tuple[int, ...] | None]] = []
        """Each value with the orders that its own node has sets of; None where it has no node of its own."""
        self._joint: dict[tuple[Classes, Classes], Classes] = {}
        for index in values:
            value = problem.values[index]
            scope = self._of_value(value)
            reader_orders = _wanted_if_many(value, scope)
            self.values.append((value, reader_orders))
            if reader_orders is None:
                self._add(scope)
                continue
            own = own_node(index)
            self.tables_of[own] = {}
            sets = tuple(range(1 << len(reader_orders)))
            for end in (value.producer, *value.readers):
                ends = {end.node: self._refined((0,) * len(end.orders), end.orders)}
                self._add({own: sets} | (ends if end.node in self.tables_of else {}))

    def step(self, node: int) -> _Step:
        """Return the step that eliminates a node now."""
        tables = tuple(self.tables_of[node])
        scope: Scope = {}
        for table in tables:
            for other, classes in self.scopes[table].items():
                scope[other] = self._refined(scope[other], classes) if other in scope else classes
        own = scope.pop(node, None)
        ordered = {other: scope[other] for other in sorted(scope)}
        return _Step(node, tables, ordered if own is None else {**ordered, node: own})

    def eliminate(self, step: _Step) -> list[int]:
        """Put one table in the place of those that a step adds; return the nodes that it mentions."""
        for table in step.tables:
            for other in self.scopes[table]:
                self.tables_of[other].pop(table, None)
        others = {other: classes for other, classes in step.scope.items() if other != step.node}
        self._add(others)
        return list(others)

    def _add(self, scope: Scope) -> None:
        for node in scope:
            self.tables_of[node][len(self.scopes)] = None
        self.scopes.append(scope)

    def _of_value(self, value: Value) -> Scope:
        scope: Scope = {}
        for end in (value.producer, *value.readers) if value.weight or value.hard else ():
            if end.node in self.tables_of:
                classes = scope.get(end.node, (0,) * len(end.orders))
                scope[end.node] = self._refined(classes, end.orders)
        return scope

    def _refined(self, first: Classes, second: Classes) -> Classes:
        """Return the classes of labels that are alike in both."""
        if first == second:
            return first
        known = self._joint.get((first, second))
        if known is None:
            number: dict[tuple[int, int], int] = {}
            pairs = zip(first, second, strict=True)
            known = self._joint[first, second] = tuple([number.setdefault(pair, len(number)) for pair in pairs])
        return known


def own_node(value: int) -> int:
    """Return the number of a value's own node: negative, so that it is none of the problem's."""
    return -1 - value


def _wanted_if_many(value: Value, scope: Scope) -> tuple[int, ...] | None:
    """Return the orders that readers want, if sets of them are far fewer than the combinations of a value's ends."""
    reader_orders = sorted({order for end in value.readers for order in end.orders})
    combinations = prod(max(classes) + 1 for classes in scope.values())
    return tuple(reader_orders) if combinations > FEWER_SETS << 2 * len(reader_orders) else None


def elimination_order(
    problem: Problem,  # the whole problem
    nodes: Sequence[int],  # the nodes of a component; all others beside them have one label
    values: Sequence[int],  # the values that touch them
) -> tuple[int, ...] | None:
    """Return the order that eliminates the node with the smallest table first; None where the tables are too large."""
    if problem.most(nodes, values) >= EXACT:
        return None
    scopes = _Scopes(problem, nodes, values)
    steps = {node: scopes.step(node) for node in scopes.tables_of}
    queue = [(step.cells, node) for node, step in steps.items()]
    heapify(queue)
    order: list[int] = []
    room = MOST_CELLS
    while queue:
        cells, node = heappop(queue)
        if node not in steps or cells != steps[node].cells:
            continue
        room -= cells
        if room < 0 or cells > LARGEST_TABLE:
            return None
        order.append(node)
        for other in scopes.eliminate(steps.pop(node)):
            steps[other] = scopes.step(other)
            heappush(queue, (steps[other].cells, other))
    return tuple(order)


def has_room(problem: Problem, order: Sequence[int], values: Sequence[int]) -> bool:
    """Tell whether an order names each node once, its tables are small enough, and the costs exact in 64 bits."""
    if problem.most(order, values) >= EXACT:
        return False
    scopes, room = _Scopes(problem, order, values), MOST_CELLS
    if sorted(order) != sorted(scopes.tables_of):
        return False
    for node in order:
        step = scopes.step(node)
        room -= step.cells
        if room < 0 or step.cells > LARGEST_TABLE:
            return False
        scopes.eliminate(step)
    return True


def least_cost(
    problem: Problem,  # the whole problem
    order: Sequence[int],  # the nodes of the component as they are eliminated; `has_room` says whether that is possible
    values: Sequence[int],  # the values that touch them
) -> tuple[int, dict[int, int]]:
    """Return the least cost of a component, and labels that have it: the first of several for each node."""
    scopes = _Scopes(problem, order, values)
    tables = list(_tables(scopes))
    least = sum(int(cells) for cells, scope in zip(tables, scopes.scopes, strict=True) if not scope)
    choices: list[tuple[_Step, NDArray[np.int64], list[int]]] = []
    for node in order:
        step = scopes.step(node)
        total = np.zeros([max(classes) + 1 for classes in step.scope.values()], np.int64)
        for table in step.tables:
            total += _spread(tables[table], scopes.scopes[table], step.scope)
            tables[table] = np.zeros(0, np.int64)  # not needed again
        scopes.eliminate(step)
        costs = problem.costs[node] if node >= 0 else (0,) * len(step.scope[node])
        best_labels = _cheapest(costs, step.scope.get(node, (0,) * len(costs)))
        if node not in step.scope:  # no value tells its labels apart
            total = total[..., np.newaxis]
        total += np.array([costs[label] for label in best_labels], np.int64)
        choices.append((step, total.argmin(-1), best_labels))
        tables.append(total.min(-1))
        if tables[-1].ndim == 0:
            least += int(tables[-1])
    labels: dict[int, int] = {}
    for step, best, best_labels in reversed(choices):
        place = tuple([classes[labels[other]] for other, classes in step.scope.items() if other != step.node])
        labels[step.node] = best_labels[int(best[place])]
    return least, {node: label for node, label in labels.items() if node >= 0}


def _tables(scopes: _Scopes) -> Iterator[NDArray[np.int64]]:
    """Yield the tables of all values, as `scopes` has them.

    Where a value has a node of its own, a reader may want an order in which the value does not exist. It then pays the
    most that the order can cost by itself. So some set of orders is always as cheap, and nothing is forbidden.
    """
    unread = iter(list(scopes.scopes))
    for value, reader_orders in scopes.values:
        if reader_orders is None:
            yield _value_table(value, next(unread))
            continue
        sets = np.arange(1 << len(reader_orders))
        lacks = np.array([1 - (sets >> place & 1) for place in range(len(reader_orders))], np.int64)
        for position, end in enumerate((value.producer, *value.readers)):
            scope = next(unread)
            orders = _orders_by_class(end, scope)
            if position:
                rows = [(value.weight + value.more) * lacks[reader_orders.index(order)] for order in orders]
            else:
                rows = [
                    np.array([value.price(order, each) for each in reader_orders]) @ (1 - lacks) for order in orders
                ]
            cells = np.array(rows, np.int64).T
            yield cells if end.node in scope else cells[:, 0]


def _orders_by_class(end: ValueEnd, scope: Scope) -> list[int]:
    """Return the order of each class of labels at an end; the only one where the end's node has no choice."""
    if end.node not in scope:
        return [end.orders[0]]
    by_class = dict(zip(scope[end.node], end.orders, strict=True))
    return [by_class[number] for number in range(len(by_class))]


def _cheapest(costs: Sequence[int], classes: Classes) -> list[int]:
    """Return class -> its cheapest label, the first of several."""
    best: dict[int, int] = {}
    for label, number in enumerate(classes):
        if number not in best or costs[label] < costs[best[number]]:
            best[number] = label
    return [best[number] for number in range(len(best))]


def _spread(cells: NDArray[np.int64], own: Scope, scope: Scope) -> NDArray[np.int64]:
    """Return a table with the axes of a larger scope, which tells at least as many labels apart."""
    if not own:
        return cells
    axes = [node for node in scope if node in own]
    cells = cells.transpose([list(own).index(node) for node in axes])
    for axis, node in enumerate(axes):
        if own[node] != scope[node]:
            coarse = dict(zip(scope[node], own[node], strict=True))
            cells = cells.take([coarse[number] for number in range(len(coarse))], axis)
    extents = iter(cells.shape)
    return cells.reshape([next(extents) if node in own else 1 for node in scope])


def _value_table(value: Value, scope: Scope) -> NDArray[np.int64]:
    """Return what a value costs for each combination of classes of labels at its ends."""
    if not (value.weight or value.hard):
        return np.zeros((), np.int64)
    ends = (value.producer, *value.readers)
    count = 1 + max(max(end.orders) for end in ends)
    prices = np.full((count, count), value.weight, np.int64)
    for producer_order, order in value.hard:
        if max(producer_order, order) < count:
            prices[producer_order, order] += value.more
    np.fill_diagonal(prices, 0)
    orders: list[NDArray[np.int64]] = []
    for end in ends:
        by_class = np.array(_orders_by_class(end, scope), np.int64)
        orders.append(by_class.reshape([-1 if other == end.node else 1 for other in scope]))
    producer, *reader_orders = orders
    cells = np.zeros([max(classes) + 1 for classes in scope.values()], np.int64)
    for number, wish in enumerate(reader_orders):
        paid = prices[producer, wish]
        for earlier in reader_orders[:number]:  # an order that several readers want is made once
            paid = paid * (wish != earlier)
        cells += paid
    return cells
