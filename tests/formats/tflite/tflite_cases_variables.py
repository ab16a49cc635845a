"""Small models with variables, inside and outside of branches and loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tflite_cases import cases
from tflite_cases_control import binary, constant, counting, loop, subgraph
from tflite_writing import Net, options


def variable(net: Net, name: str) -> int:
    net.op(
        "VAR_HANDLE", [], [h := net.tensor((1,), type_name="RESOURCE")], options("VarHandleOptions", sharedName=name)
    )
    return h


def initialised(net: Net, values: dict[str, np.ndarray]) -> Net:
    """Assign first values to variables, once."""

    def start(n: Net, _: list[int]) -> list[int]:
        for name, value in values.items():
            n.op("ASSIGN_VARIABLE", [variable(n, name), n.const(value)], [], options("AssignVariableOptions"))
        return []

    index = subgraph(net, [], start)
    return net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=index))


def running_sum(net: Net, x: int, shape: tuple[int, ...], name: str = "total") -> int:
    """Add to a variable, and what it holds then."""
    h = variable(net, name)
    net.op("READ_VARIABLE", [h], [old := net.tensor(shape)], options("ReadVariableOptions"))
    new = binary(net, "ADD", old, x, shape)
    net.op("ASSIGN_VARIABLE", [h, new], [], options("AssignVariableOptions"))
    net.op("READ_VARIABLE", [variable(net, name)], [y := net.tensor(shape)], options("ReadVariableOptions"))
    return y


@cases("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
def sums() -> Iterator[Net]:
    net = initialised(Net(), {"total": np.full((2, 3), 5)})
    net.graph.outputs = [running_sum(net, net.input((2, 3)), (2, 3))]
    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1))  # done already: nothing happens
    net.op("READ_VARIABLE", [variable(net, "total")], [net.output((2, 3))], options("ReadVariableOptions"))
    yield net
    net = initialised(Net(), {"total": np.arange(3), "other": np.full(3, 2)})
    x = net.input((3,))
    net.graph.outputs = [running_sum(net, running_sum(net, x, (3,)), (3,), "other")]
    yield net


@cases("WHILE", "IF")
def variables_inside() -> Iterator[Net]:
    """A branch and a loop that assign to a variable; the handle is made inside, or handed in."""
    for inside in (True, False):
        net = initialised(Net(), {"total": np.full(3, 5)})
        start, x = net.const(np.array(0), "int32"), net.input((3,))

        def add(n: Net, t: list[int], inside: bool = inside) -> list[int]:
            if inside:
                running_sum(n, t[1], (3,))
            else:
                n.op("READ_VARIABLE", [t[2]], [old := n.tensor((3,))], options("ReadVariableOptions"))
                n.op("ASSIGN_VARIABLE", [t[2], binary(n, "ADD", old, t[1], (3,))], [], options("AssignVariableOptions"))
            return [binary(n, "ADD", t[1], t[1], (3,)), *t[2:]]

        if inside:
            both = counting(net, add, [((), "int32"), ((3,), "float32")], 3)
            loop(net, [start, x], [net.tensor((), "int32"), net.tensor((3,))], both)
        else:
            pair = []
            for part in ("test", "step"):
                with net.subgraph() as index:
                    t = [net.input((), "int32"), net.input((3,))]
                    t += [net.tensor((1,), type_name="RESOURCE")]
                    net.graph.inputs = t
                    net.graph.outputs = (
                        [binary(net, "LESS", t[0], constant(net, 3, "int32"), (), "bool")]
                        if part == "test"
                        else [binary(net, "ADD", t[0], constant(net, 1, "int32"), (), "int32"), *add(net, t)]
                    )
                pair.append(index)
            results = [net.tensor((), "int32"), net.tensor((3,)), net.tensor((1,), type_name="RESOURCE")]
            loop(net, [start, x, variable(net, "total")], results, (pair[0], pair[1]))
        condition = net.input((), "bool")

        def double(n: Net, t: list[int]) -> list[int]:
            return [running_sum(n, t[0], (3,))]

        then = subgraph(net, [((3,), "float32")], double)
        other = subgraph(net, [((3,), "float32")], lambda n, t: [t[0]])
        table = options("IfOptions", thenSubgraphIndex=then, elseSubgraphIndex=other)
        net.op("IF", [condition, x], [net.output((3,))], table)
        y = net.output((3,))
        net.op("READ_VARIABLE", [variable(net, "total")], [y], options("ReadVariableOptions"))
        yield net
