"""Small models with control flow: models of several subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tflite_cases import I8, cases, rng
from tflite_writing import Net, options

EMPTY_MAP = [0, 0, 1, 0, 0, 36, 1]
"""A FlexBuffer: a map of nothing."""

Body = Callable[[Net, list[int]], list[int]]


def subgraph(net: Net, shapes: list[tuple[tuple[int, ...], str]], body: Body) -> int:
    """Another subgraph: its inputs are of these shapes and types, its outputs what `body` returns."""
    with net.subgraph() as index:
        net.graph.outputs = body(net, [net.input(shape, dtype) for shape, dtype in shapes])
    return index


def binary(net: Net, name: str, a: int, b: int, shape: tuple[int, ...], dtype: str = "float32") -> int:
    table = {"ADD": "AddOptions", "MUL": "MulOptions", "SUB": "SubOptions", "LESS": "LessOptions"}[name]
    net.op(name, [a, b], [y := net.tensor(shape, dtype)], options(table))
    return y


def constant(net: Net, value: float, dtype: str = "float32") -> int:
    return net.const(np.array(value), dtype)


@cases("IF")
def ifs() -> Iterator[Net]:
    for scalar in (True, False):
        net = Net()
        shape = (2, 3)
        condition, x, y = net.input(() if scalar else (1,), "bool"), net.input(shape), net.input(shape)
        kinds = [(shape, "float32")] * 2
        then = subgraph(net, kinds, lambda n, t: [binary(n, "ADD", *t, (2, 3)), t[0]])
        other = subgraph(net, kinds, lambda n, t: [t[1], t[1]])
        table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
        yield net.op("IF", [condition, x, y], [net.output(shape), net.output(shape)], table)


@cases("IF")
def constant_branches() -> Iterator[Net]:
    """A branch that yields a constant, and both of them a condition that is computed."""
    for limit in (-100.0, 100.0):
        net = Net()
        x = net.input((3,))
        net.op("REDUCE_MAX", [x, net.const([0], "int32")], [top := net.tensor(())], options("ReducerOptions"))
        net.op("LESS", [top, constant(net, limit)], [condition := net.tensor((), "bool")], options("LessOptions"))
        then = subgraph(net, [((3,), "float32")], lambda n, t: [n.const([1, 2, 3])])
        other = subgraph(net, [((3,), "float32")], lambda n, t: [binary(n, "MUL", t[0], t[0], (3,))])
        table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
        net.op("IF", [condition, x], [y := net.tensor((3,))], table)
        net.op("NEG", [y], [net.output((3,))])
        yield net


@cases("IF")
def nested_ifs() -> Iterator[Net]:
    net = Net()
    shape = (2, 3)
    a, b, x = net.input((), "bool"), net.input((), "bool"), net.input(shape)
    kinds = [((), "bool"), (shape, "float32")]
    double = subgraph(net, kinds[1:], lambda n, t: [binary(n, "ADD", t[0], t[0], shape)])
    square = subgraph(net, kinds[1:], lambda n, t: [binary(n, "MUL", t[0], t[0], shape)])

    def choose(n: Net, t: list[int]) -> list[int]:
        table = options("IfOptions", thenSubgraphIndex=double, elseSubgraphIndex=square)
        n.op("IF", t, [y := n.tensor(shape)], table)
        return [y]

    then = subgraph(net, kinds, choose)
    other = subgraph(net, kinds, lambda n, t: [t[1]])
    table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
    yield net.op("IF", [a, b, x], [net.output(shape)], table)


@cases("IF")
def branches_of_two_shapes() -> Iterator[Net]:
    for value in (False, True):
        net = Net()
        x = net.input((2, 3))
        condition = net.const(np.array(value), "bool")
        table = options("ConcatenationOptions", axis=0)

        def longer(n: Net, t: list[int], table: object = table) -> list[int]:
            n.op("CONCATENATION", [t[0], t[0]], [y := n.tensor((4, 3))], table)
            return [y]

        then = subgraph(net, [((2, 3), "float32")], longer)
        other = subgraph(net, [((2, 3), "float32")], lambda n, t: [t[0]])
        table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
        yield net.op("IF", [condition, x], [net.output((4, 3) if value else (2, 3), signature=(-1, 3))], table)


def counting(net: Net, body: Body, kinds: list[tuple[tuple[int, ...], str]], rounds: int) -> tuple[int, int]:
    """Condition and body of a loop whose first state counts the rounds."""
    test = subgraph(net, kinds, lambda n, t: [binary(n, "LESS", t[0], constant(n, rounds, "int32"), (), "bool")])

    def step(n: Net, t: list[int]) -> list[int]:
        return [binary(n, "ADD", t[0], constant(n, 1, "int32"), (), "int32"), *body(n, t)]

    return test, subgraph(net, kinds, step)


def loop(
    net: Net, operands: list[int], results: list[int], both: tuple[int, int], name: str = "WHILE", kind: str = "While"
) -> Net:
    table = options(f"{kind}Options", condSubgraphIndex=both[0], bodySubgraphIndex=both[1])
    return net.op(name, operands, results, table)


@cases("WHILE")
def loops() -> Iterator[Net]:
    for rounds in (5, 0):
        net = Net()
        start, x, step = net.const(np.array(0), "int32"), net.input((2, 3)), net.input((2, 3))
        kinds = [((), "int32"), ((2, 3), "float32"), ((2, 3), "float32")]
        both = counting(net, lambda n, t: [binary(n, "ADD", t[1], t[2], (2, 3)), t[2]], kinds, rounds)
        results = [net.output((), "int32"), net.output((2, 3)), net.output((2, 3))]
        yield loop(net, [start, x, step], results, both)


@cases("WHILE")
def swaps() -> Iterator[Net]:
    """States that trade places; one that becomes a constant."""
    for rounds in (1, 2, 3):
        for order in ([2, 1], [2, 3, 1], [3, 1, 2]):
            net = Net()
            operands = [net.const(np.array(0), "int32"), *(net.input((3,)) for _ in order), net.input((3,))]
            kinds = [((), "int32"), *[((3,), "float32")] * (len(order) + 1)]
            both = counting(net, lambda n, t, order=order: [*(t[i] for i in order), n.const([7, 8, 9])], kinds, rounds)
            results = [net.output((), "int32"), *[net.output((3,)) for _ in kinds[1:]]]
            yield loop(net, operands, results, both)


@cases("STABLEHLO_WHILE")
def stablehlo_loops() -> Iterator[Net]:
    """One that adds up, in floats and integers, and one whose states trade places."""
    for dtype in ("float32", "int32"):
        net = Net()
        start, x, step = net.const(np.array(0), "int32"), net.input((2, 3), dtype), net.input((2, 3), dtype)
        kinds = [((), "int32"), ((2, 3), dtype), ((2, 3), dtype)]
        both = counting(net, lambda n, t, d=dtype: [binary(n, "ADD", t[1], t[2], (2, 3), d), t[2]], kinds, 4)
        results = [net.output((), "int32"), net.output((2, 3), dtype), net.output((2, 3), dtype)]
        net.expected = lambda x, step: (np.array(4), x + step + step + step + step, step)
        yield loop(net, [start, x, step], results, both, "STABLEHLO_WHILE", "StablehloWhile")
    net = Net()
    operands = [net.const(np.array(0), "int32"), net.input((3,)), net.input((3,))]
    kinds = [((), "int32"), *[((3,), "float32")] * 2]
    both = counting(net, lambda n, t: [t[2], t[1]], kinds, 3)
    results = [net.output((), "int32"), *[net.output((3,)) for _ in kinds[1:]]]
    net.expected = lambda a, b: (np.array(3), b, a)
    yield loop(net, operands, results, both, "STABLEHLO_WHILE", "StablehloWhile")


@cases("STABLEHLO_CASE")
def stablehlo_cases() -> Iterator[Net]:
    """One, two and four branches, chosen at run time; an index outside means the last."""
    for count, chosen in ((1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3), (4, -1), (4, 9)):
        for dtype in ("float32", "int32") if count == 4 else ("float32",):
            net, shape = Net(), (2, 3)
            index = net.input((), "int32", chosen, chosen)
            operands = [net.input(shape, dtype), net.input(shape, dtype)]
            indices = []
            for k in range(count):
                indices.append(
                    subgraph(
                        net,
                        [(shape, dtype)] * 2,
                        lambda n, t, k=k, d=dtype: [
                            binary(n, "ADD" if k % 2 else "MUL", t[0], constant(n, k + 2, d), (2, 3), d),
                            t[k % 2],
                        ],
                    )
                )
            table = options("StablehloCaseOptions", branchSubgraphIndices=indices)
            results = [net.output(shape, dtype), net.output(shape, dtype)]
            yield net.op("STABLEHLO_CASE", [index, *operands], results, table)


@cases("WHILE")
def growing() -> Iterator[Net]:
    """A state that is longer after each round."""
    net = Net()
    start, x = net.const(np.array(0), "int32"), net.input((1, 3))

    def body(n: Net, t: list[int]) -> list[int]:
        table = options("ConcatenationOptions", axis=0)
        n.op("CONCATENATION", [t[1], t[1]], [y := n.tensor((2, 3), signature=(-1, 3))], table)
        return [y]

    both = counting(net, body, [((), "int32"), ((1, 3), "float32")], 3)
    yield loop(net, [start, x], [net.output((), "int32"), net.output((8, 3), signature=(-1, 3))], both)


@cases("WHILE")
def nested_loops() -> Iterator[Net]:
    """Three rounds of two rounds of a matrix product."""
    net = Net()
    start, x = net.const(np.array(0), "int32"), net.input((2, 3))
    weights = rng().normal(size=(3, 3))
    kinds = [((), "int32"), ((2, 3), "float32")]

    def dense(n: Net, t: list[int]) -> list[int]:
        n.op("FULLY_CONNECTED", [t[1], n.const(weights), -1], [y := n.tensor((2, 3))], options("FullyConnectedOptions"))
        return [y]

    inner = counting(net, dense, kinds, 2)

    def again(n: Net, t: list[int]) -> list[int]:
        y = n.tensor((2, 3))
        loop(n, [n.const(np.array(0), "int32"), t[1]], [n.tensor((), "int32"), y], inner)
        return [y]

    outer = counting(net, again, kinds, 3)
    yield loop(net, [start, x], [net.output((), "int32"), net.output((2, 3))], outer)


@cases("WHILE")
def constants_handed_in() -> Iterator[Net]:
    """A permutation that comes in as an operand of the loop, which is as good as one inside."""
    net, order = Net(), [1, 0]
    start, x, perm = net.const(np.array(0), "int32"), net.input((3, 3)), net.const(order, "int32")

    def body(n: Net, t: list[int]) -> list[int]:
        n.op("TRANSPOSE", [t[1], t[2]], [y := n.tensor((3, 3))])
        return [binary(n, "ADD", y, t[1], (3, 3)), t[2]]

    both = counting(net, body, [((), "int32"), ((3, 3), "float32"), ((2,), "int32")], 3)
    results = [net.output((), "int32"), net.output((3, 3)), net.tensor((2,), "int32")]
    yield loop(net, [start, x, perm], results, both)


@cases("WHILE")
def quantized_loop() -> Iterator[Net]:
    net = Net()
    start, x = net.const(np.array(0), "int32"), net.input((2, 3), "int8", q=I8)
    pair = []
    for part in ("test", "step"):
        with net.subgraph() as index:
            i, state = net.input((), "int32"), net.input((2, 3), "int8", q=I8)
            if part == "test":
                net.graph.outputs = [binary(net, "LESS", i, constant(net, 2, "int32"), (), "bool")]
            else:
                y = net.tensor((2, 3), "int8", q=I8)
                half = net.const(np.full((2, 3), 10), "int8", q=I8)
                net.op("ADD", [state, half], [y], options("AddOptions"), version=2)
                net.graph.outputs = [binary(net, "ADD", i, constant(net, 1, "int32"), (), "int32"), y]
        pair.append(index)
    loop(net, [start, x], [net.output((), "int32"), net.output((2, 3), "int8", q=I8)], (pair[0], pair[1]))
    net.slack = 1  # one step of rounding for each round
    yield net


@cases("STABLEHLO_COMPOSITE")
def composites() -> Iterator[Net]:
    net = Net()
    x, y = net.input((2, 3)), net.input((2, 3))
    index = subgraph(net, [((2, 3), "float32")] * 2, lambda n, t: [binary(n, "MUL", *t, (2, 3)), t[0]])
    table = options("StableHLOCompositeOptions", name="some.product", decompositionSubgraphIndex=index)
    table.compositeAttributes = EMPTY_MAP
    yield net.op("STABLEHLO_COMPOSITE", [x, y], [net.output((2, 3)), net.output((2, 3))], table)
