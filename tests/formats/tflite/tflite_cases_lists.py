"""TensorFlow's lists of tensors, which are left to the Flex delegate: the expected values are numpy's.

Keras' recurrent layers with open batches and `tf.map_fn` are the loops here; files that TensorFlow's converter wrote of
such layers were held against its interpreter, which has the delegate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from tflite_cases import cases
from tflite_cases_control import binary, constant, loop
from tflite_cases_tensorflow import left
from tflite_writing import Net, options

TIME, ROW = 5, (2, 4)
LIST = "VARIANT"


def list_of(net: Net, name: str, operands: Sequence[int], **attributes: Any) -> int:
    """The list that an operator of lists yields."""
    y = net.tensor((), type_name=LIST)
    left(net, f"TensorList{name}" if name != "Empty" else "EmptyTensorList", operands, y, **attributes)
    return y


def taken(net: Net, name: str, operands: Sequence[int], shape: Sequence[int], kind: str = "float32") -> int:
    """The output that an operator of lists yields."""
    y = net.output(shape, kind)
    left(net, f"TensorList{name}", operands, y)
    return y


def writing(
    known: Any,
    place: Callable[[Net, int, int], int],
    *,
    first: Any = None,
    count: int = TIME,
    resized: bool = False,
    read: str = "",
    opened: bool = False,
    thin: bool = False,
    limited: str = "",
    step: Callable[[Net, int, int], int] | None = None,
) -> Net:
    """`h = tanh(x[t] + h)` over the rows of x, written into a list at a place that follows from list and counter.

    `step`: what h becomes of a row and h, instead. `opened`: how many rows x has is open, and so is the first axis of
    each; the loop is given their number, and begins with zeros. `thin`: it begins with a state of fewer rows, which
    broadcasts. `limited`: another limit than how many rows there are stops the loop, a constant `beside` it, or it
    becomes `less` in every round.
    """
    net, batch = Net(), (-1 if opened or thin else ROW[0], ROW[1])
    x, number = net.tensor((TIME, *ROW), signature=(-1 if opened else TIME, *batch)), net.const(count, "int32")
    net.graph.inputs, net.ranges = [x], [(-2, 2)]
    if opened:
        net.op("SHAPE", [x], [shape := net.tensor((3,), "int32")], options("ShapeOptions"))
        number, *extents = (net.tensor((), "int32") for _ in range(3))
        for axis, extent in enumerate((number, *extents)):
            net.op("GATHER", [shape, net.const(axis, "int32")], [extent], options("GatherOptions"))
        net.op("PACK", extents, [wanted := net.tensor((2,), "int32")], options("PackOptions", valuesCount=2))
        net.op("FILL", [wanted, constant(net, 0.0)], [h := net.tensor(ROW, signature=batch)], options("FillOptions"))
    else:
        h = net.input((1, ROW[1]) if thin else ROW)
    rows = list_of(net, "Reserve", [net.const(known, "int32"), number])
    begun = [net.const(0, "int32"), rows, h, x, number]

    def operands(n: Net) -> list[int]:
        state, whole = n.tensor(ROW, signature=batch), n.tensor((TIME, *ROW), signature=(-1, *batch))
        return [n.tensor((), "int32"), n.tensor((), type_name=LIST), state, whole, n.tensor((), "int32")]

    with net.subgraph() as test:
        net.graph.inputs = operands(net)
        limit = net.graph.inputs[4] if opened else constant(net, TIME, "int32")
        going = binary(net, "LESS", net.graph.inputs[0], limit, (), "bool")
        if limited == "beside":
            other = binary(net, "LESS", net.graph.inputs[0], constant(net, 3, "int32"), (), "bool")
            net.op("LOGICAL_AND", [going, other], [going := net.tensor((), "bool")])
        net.graph.outputs = [going]
    with net.subgraph() as body:
        net.graph.inputs = t = operands(net)
        net.op("GATHER", [t[3], t[0]], [row := net.tensor(ROW, signature=batch)], options("GatherOptions"))
        if step is None:
            net.op("ADD", [row, t[2]], [total := net.tensor(ROW, signature=batch)], options("AddOptions"))
            net.op("TANH", [total], [state := net.tensor(ROW, signature=batch)])
        else:
            state = step(net, row, t[2])
        new = state
        if read:  # a list that a round reads is a state
            again = net.tensor(ROW)
            left(net, "TensorListGetItem", [t[1], t[0], net.const(ROW, "int32")], again)
            if read == "joined":
                net.op("CONCATENATION", [new, again], [new := net.tensor((4, 4))], options("ConcatenationOptions"))
            else:
                new = binary(net, "ADD", new, again, ROW)
        after = list_of(net, "SetItem", [t[1], place(net, t[1], t[0]), new], resize_if_index_out_of_bounds=resized)
        one = constant(net, 1, "int32")
        limit = binary(net, "SUB", t[4], one, (), "int32") if limited == "less" else t[4]
        net.graph.outputs = [binary(net, "ADD", t[0], one, (), "int32"), after, state, t[3], limit]
    finals = operands(net)
    net.graph.outputs = [finals[2]]
    loop(net, begun, finals, (test, body))
    taken(net, "Stack", [finals[1], net.const(known if first is None else first, "int32")], (count or TIME, *ROW))
    if opened:
        net.graph.tensors[net.graph.outputs[1]].shapeSignature = [-1, *batch]
        net.graph.outputs.append(finals[0])
    return net


def at_counter(net: Net, rows: int, counter: int) -> int:
    return counter


def from_the_end(net: Net, rows: int, counter: int) -> int:
    return binary(net, "SUB", constant(net, TIME - 1, "int32"), counter, (), "int32")


def at_the_beginning(net: Net, rows: int, counter: int) -> int:
    return constant(net, 0, "int32")


def at_length(net: Net, rows: int, counter: int) -> int:
    y = net.tensor((), "int32")
    left(net, "TensorListLength", [rows], y)
    return y


def states(x: Any, h: Any) -> list[Any]:
    found = [h]
    for row in x:
        found.append(np.tanh(row + found[-1]))
    return found[1:]


@cases(*(f"CUSTOM FlexTensorList{name}" for name in ("Reserve", "SetItem", "Stack")))
def lists_of_rounds() -> Iterator[Net]:
    for known in (ROW, (-1, ROW[1]), (-1, -1)):
        net = writing(known, at_counter)
        net.expected = lambda x, h: (states(x, h)[-1], np.stack(states(x, h)))
        yield net
        net = writing(known, from_the_end)
        net.expected = lambda x, h: (states(x, h)[-1], np.stack(states(x, h)[::-1]))
        yield net
        net = writing(known, at_the_beginning, count=1)
        net.expected = lambda x, h: (states(x, h)[-1], states(x, h)[-1][None])
        yield net
    net = writing(-1, at_counter, first=ROW)
    net.expected = lambda x, h: (states(x, h)[-1], np.stack(states(x, h)))
    yield net


@cases("CUSTOM FlexTensorListSetItem")
def lists_beside_a_state_that_grows() -> Iterator[Net]:
    for place, step in ((at_counter, 1), (from_the_end, -1)):
        net = writing(ROW, place, thin=True)
        net.expected = lambda x, h, step=step: (states(x, h)[-1], np.stack(states(x, h)[::step]))
        yield net


@cases("CUSTOM FlexTensorListSetItem")
def lists_that_a_branch_writes() -> Iterator[Net]:
    for chosen in (True, False):
        net = Net()
        rows = list_of(net, "Reserve", [net.const((-1, ROW[1]), "int32"), net.const(2, "int32")])
        operands = [rows, net.input(ROW)]
        branches = []
        for index in (0, 1):
            with net.subgraph() as branch:
                net.graph.inputs = t = [net.tensor((), type_name=LIST), net.tensor(ROW)]
                place = constant(net, index, "int32")
                net.graph.outputs = [list_of(net, "SetItem", [t[0], place, t[1]], resize_if_index_out_of_bounds=False)]
            branches.append(branch)
        table = options("IfOptions", thenSubgraphIndex=branches[0], elseSubgraphIndex=branches[1])
        found = net.tensor((), type_name=LIST)
        net.op("IF", [constant(net, chosen, "bool"), *operands], [found], table)
        taken(net, "Stack", [found, net.const(ROW, "int32")], (2, *ROW))
        net.expected = lambda x, chosen=chosen: np.stack([x, 0 * x] if chosen else [0 * x, x])
        yield net


@cases("CUSTOM FlexTensorListLength", "CUSTOM FlexTensorListSetItem")
def lists_that_grow() -> Iterator[Net]:
    for known in (ROW, (-1, ROW[1])):
        net = writing(known, at_length, count=0, resized=True)
        net.expected = lambda x, h: (states(x, h)[-1], np.stack(states(x, h)))
        yield net


@cases("CUSTOM FlexTensorListGetItem")
def lists_that_are_read() -> Iterator[Net]:
    net = writing(ROW, at_counter, read="added")
    net.expected = lambda x, h: (states(x, h)[-1], np.stack(states(x, h)))  # what is read are zeros
    yield net
    net = Net()
    rows = list_of(net, "FromTensor", [net.input((3, *ROW)), net.const(ROW, "int32")])
    taken(net, "GetItem", [rows, net.input((), "int32", 0, 2), net.const(ROW, "int32")], ROW)
    net.expected = lambda x, i: x[i]
    yield net


@cases(*(f"CUSTOM Flex{name}" for name in ("EmptyTensorList", "TensorListPushBack", "TensorListPopBack")))
def lists_as_stacks() -> Iterator[Net]:
    for known in (ROW, (-1, -1)):
        net = Net()
        shape = net.const(known, "int32")
        rows = list_of(net, "Empty", [shape, net.const(-1, "int32")])
        for row in [net.input(ROW) for _ in range(3)]:
            rows = list_of(net, "PushBack", [rows, row])
        fewer = net.tensor((), type_name=LIST)
        left(net, "TensorListPopBack", [rows, shape], fewer)
        net.graph.operators[-1].outputs = [fewer, net.output(ROW)]
        taken(net, "Stack", [fewer, shape], (2, *ROW))
        net.expected = lambda a, b, c: (c, np.stack([a, b]))
        yield net


@cases("CUSTOM FlexTensorListPushBack")
def lists_of_numbers() -> Iterator[Net]:
    """Only what is put together tells that a row has no axes: a file writes so of what nobody knows the rank of."""
    net = Net()
    unknown = net.const(-1, "int32")
    rows = list_of(net, "Empty", [unknown, unknown])
    for row in [net.input(()) for _ in range(3)]:
        rows = list_of(net, "PushBack", [rows, row])
    taken(net, "Stack", [rows, unknown], (3,))
    net.expected = lambda a, b, c: np.stack([a, b, c])
    yield net


@cases(*(f"CUSTOM FlexTensorList{name}" for name in ("FromTensor", "Gather", "Resize")))
def lists_of_what_is_there() -> Iterator[Net]:
    for count in (1, 3, 5):
        net = Net()
        shape = net.const(ROW, "int32")
        rows = list_of(net, "FromTensor", [net.input((3, *ROW)), shape])
        taken(net, "Stack", [list_of(net, "Resize", [rows, net.const(count, "int32")]), shape], (count, *ROW))
        taken(net, "Gather", [rows, net.const([2, 0], "int32"), shape], (2, *ROW))
        wanted = np.zeros((count, *ROW), np.float32)
        net.expected = lambda x, wanted=wanted: (
            np.concatenate([x[: len(wanted)], wanted[len(x[: len(wanted)]) :]]),
            x[[2, 0]],
        )
        yield net
