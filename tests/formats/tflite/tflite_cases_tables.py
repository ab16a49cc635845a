"""Small models with tables: from numbers to texts and back, so that what goes in and comes out are numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tflite_cases import cases
from tflite_writing import Net, options

KINDS = {"int64": 4, "string": 5}


def texts(net: Net, values: Sequence[str]) -> int:
    """A constant of strings."""
    content = [value.encode() for value in values]
    ends = np.cumsum([4 * (len(content) + 2), *map(len, content)])
    data = np.array([len(content), *ends], np.int32).tobytes() + b"".join(content)
    return net.tensor((len(content),), type_name="STRING", data=np.frombuffer(data, np.uint8))


def elements(net: Net, values: Sequence[int] | Sequence[str]) -> int:
    return texts(net, [str(v) for v in values]) if isinstance(values[0], str) else net.const(values, "int64")


def table(net: Net, number: int, keys: str) -> int:
    """A handle."""
    values = "string" if keys == "int64" else "int64"
    kinds = options("HashtableOptions", tableId=number, keyDtype=KINDS[keys], valueDtype=KINDS[values])
    net.op("HASHTABLE", [], [made := net.tensor((1,), type_name="RESOURCE")], kinds)
    return made


def filled(net: Net, number: int, keys: Sequence[int] | Sequence[str], values: Sequence[int] | Sequence[str]) -> None:
    with net.subgraph() as index:
        made = table(net, number, "string" if isinstance(keys[0], str) else "int64")
        operands = [made, elements(net, keys), elements(net, values)]
        net.op("HASHTABLE_IMPORT", operands, [], options("HashtableImportOptions"))
    net.op("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=index))


def found(net: Net, number: int, x: int, default: int | str, shape: tuple[int, ...]) -> int:
    """What a table has for each key."""
    numbers = isinstance(default, int)
    y = net.tensor(shape, "int64") if numbers else net.tensor(shape, type_name="STRING")
    operands = [table(net, number, "string" if numbers else "int64"), x, elements(net, [default])]  # type: ignore[list-item]
    net.op("HASHTABLE_FIND", operands, [y], options("HashtableFindOptions"))
    return y


@cases("HASHTABLE", "HASHTABLE_IMPORT", "HASHTABLE_FIND", "HASHTABLE_SIZE")
def tables() -> Iterator[Net]:
    """Of a key that comes twice the first counts, and a table is filled once."""
    net = Net()
    filled(net, 1, [5, 7, -2, 5], ["five", "seven", "", "again"])
    filled(net, 1, [5, 6], ["other", "six"])
    filled(net, 2, ["seven", "five", "none"], [70, 50, 0])
    x = net.input((3, 4), "int64", low=-3, high=8)
    names = found(net, 1, x, "none", (3, 4))
    net.graph.outputs = [found(net, 2, names, -1, (3, 4))]
    for number in (1, 2):
        made = table(net, number, "int64" if number == 1 else "string")
        net.op("HASHTABLE_SIZE", [made], [net.output((1,), "int64")], options("HashtableSizeOptions"))
    yield net


@cases("RESHAPE", "GATHER")
def texts_moved() -> Iterator[Net]:
    """Texts may be moved about between two tables."""
    net = Net()
    filled(net, 1, [1, 2], ["one", "two"])
    filled(net, 2, ["one", "two"], [10, 20])
    names = found(net, 1, net.input((2, 3), "int64", low=0, high=3), "many", (2, 3))
    net.op("RESHAPE", [names, net.const([6], "int32")], [flat := net.tensor((6,), type_name="STRING")])
    picks = net.const([5, 0, 2], "int32")
    net.op("GATHER", [flat, picks], [some := net.tensor((3,), type_name="STRING")], options("GatherOptions"))
    net.graph.outputs = [found(net, 2, some, -1, (3,))]
    yield net


@cases("SLICE", "STRIDED_SLICE", "TILE", "GATHER_ND", "SQUEEZE", "SHAPE", "EQUAL", "NOT_EQUAL")
def texts_cut() -> Iterator[Net]:
    """Texts may be cut, repeated, picked and compared between two tables."""
    net = Net()
    filled(net, 1, [1, 2, 3], ["one", "two", "three"])
    filled(net, 2, ["one", "two", "three"], [10, 20, 30])

    def text(*shape: int) -> int:
        return net.tensor(shape, type_name="STRING")

    names = found(net, 1, net.input((3, 4), "int64", low=0, high=4), "many", (3, 4))
    ints = [net.const(values, "int32") for values in ([1, 0], [2, 3], [0, 2], [2, 1], [1, 2])]
    net.op("SLICE", [names, *ints[:2]], [cut := text(2, 3)], options("SliceOptions"))
    net.op("STRIDED_SLICE", [cut, ints[2], ints[1], ints[4]], [last := text(2, 1)], options("StridedSliceOptions"))
    net.op("TILE", [last, net.const([2, 1], "int32")], [again := text(4, 1)], options("TileOptions"))
    net.op("SQUEEZE", [again], [flat := text(4)], options("SqueezeOptions", squeezeDims=[1]))
    picks = net.const([[3], [0], [1], [3], [2]], "int32")
    net.op("GATHER_ND", [flat, picks], [some := text(5)], options("GatherNdOptions"))
    for name in ("EQUAL", "NOT_EQUAL"):
        net.op(
            name,
            [some, texts(net, ["two"])],
            [net.output((5,), "bool")],
            options(f"{'Not' * (name != 'EQUAL')}EqualOptions"),
        )
    net.op("SHAPE", [some], [net.output((1,), "int32")], options("ShapeOptions", outType=2))
    net.graph.outputs.append(found(net, 2, some, -1, (5,)))
    yield net
