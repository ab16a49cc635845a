"""Random layout problems in numbers."""

from __future__ import annotations

import itertools
import random

from relayout.solve.problem import Problem, Value, ValueEnd


def random_problem(seed: int, labels: int, *, pinned: float = 0.4, aligned: bool = True, hard: float = 0.0) -> Problem:
    """A small layered graph; `aligned` labels mean the same order everywhere, as layouts of one region do.

    Of a value's pairs of orders so many are hard as `hard` says.
    """
    rng = random.Random(seed)
    count = rng.randint(2, 7)
    sizes = [1 if rng.random() < pinned else labels for _ in range(count)]
    kinds = [[rng.randrange(labels)] if size == 1 else list(range(labels)) for size in sizes]
    costs = tuple(tuple(rng.choice([0, 0, 0, 1, 5]) for _ in range(size)) for size in sizes)

    def port(node: int) -> ValueEnd:
        orders = kinds[node] if aligned else [rng.randrange(labels) for _ in range(sizes[node])]
        return ValueEnd(node, tuple(orders))

    values = []
    for node in range(count - 1):
        readers = rng.sample(range(node + 1, count), rng.randint(1, min(3, count - 1 - node)))
        value = Value(rng.choice([0, 1, 3, 7, 1000]), port(node), tuple(map(port, readers)))
        if hard:
            pairs = itertools.permutations(range(labels), 2)
            value = value._replace(
                hard=frozenset(p for p in pairs if rng.random() < hard), more=rng.choice([1, 2, 9, value.weight])
            )
        values.append(value)
    return Problem(costs, tuple(values))


def tree_problem(seed: int) -> Problem:
    """A tree of few nodes, each with up to three values to the next: most tell apart less and less, some anything."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(2, 6))]
    costs = tuple(tuple(rng.choice([0, 0, 1, 2, 3, 5]) for _ in range(size)) for size in sizes)
    values = []
    for node in range(1, len(sizes)):
        ends, orders = [rng.randrange(node), node], rng.randint(2, 4)
        rng.shuffle(ends)
        held = [[rng.randrange(orders) for _ in range(sizes[end])] for end in ends]
        for _ in range(rng.choice([1, 1, 2, 3])):
            first, second = (ValueEnd(end, tuple(each)) for end, each in zip(ends, held, strict=True))
            values.append(Value(rng.choice([0, 1, 2, 3, 4]), first, (second,)))
            coarser = [rng.randrange(max(1, orders - 1)) for _ in range(orders)]
            held = [[coarser[order] for order in each] for each in held]
            if rng.random() < 0.15:
                held[1] = [rng.randrange(orders) for _ in held[1]]
            if rng.random() < 0.5:
                ends.reverse()
                held.reverse()
    rng.shuffle(values)
    return Problem(costs, tuple(values))


def dense_problem(nodes: int, labels: int, seed: int = 0) -> Problem:
    """Free nodes without any order among them: for a thousand of them, minutes of linear programming."""
    rng = random.Random(seed)

    def port() -> ValueEnd:
        return ValueEnd(rng.randrange(nodes), tuple(rng.randrange(labels) for _ in range(labels)))

    costs = tuple(tuple(rng.choice([0, 0, 1, 5]) for _ in range(labels)) for _ in range(nodes))
    values = tuple(Value(rng.choice([1, 3, 7, 1000]), port(), (port(), port(), port())) for _ in range(2 * nodes))
    return Problem(costs, values)
