"""A small model of the layout problem, of its own: random graphs, and the least bytes over all stored orders.

It shares nothing with relayout but ONNX. An operator runs over *axes*; one way to run it is an order of all of them,
and what it reads and gives lies in that order. Least bytes over all ways of all operators at once, by eliminating one
operator after the other from tables of costs (a dynamic program, exact).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Costs = NDArray[np.int64]
Order = tuple[int, ...]
BYTES = {TensorProto.FLOAT: 4, TensorProto.INT8: 1}


@dataclass(frozen=True)
class Value:
    """A name in the graph: dimensions as groups of the axes of the tensor that it is a view of."""

    name: str
    tensor: int
    dims: tuple[Order, ...]


@dataclass(frozen=True)
class Tensor:
    """What an operator computes: the extent of each axis, and its type."""

    extents: tuple[int, ...]
    kind: int

    @property
    def bytes(self) -> int:
        return math.prod(self.extents) * BYTES[self.kind]


@dataclass(frozen=True)
class End:
    """One operand: the operator's axis -> the tensor's axis, where it has it."""

    tensor: int
    axes: Mapping[int, int]
    output: bool = False


@dataclass(frozen=True)
class Operator:
    """The orders that it can run in, and what it touches."""

    ways: tuple[Order, ...]
    ends: tuple[End, ...]


def orders(free: Sequence[int], last: Sequence[Sequence[int]] = ()) -> tuple[Order, ...]:
    """All orders of the free axes, then each group of `last` in turn, each in any order within."""
    tails = [list(itertools.permutations(group)) for group in last]
    return tuple(
        tuple(itertools.chain(front, *back))
        for front in itertools.permutations(free)
        for back in itertools.product(*tails)
    )


@dataclass
class Graph:
    """A random graph, and the same graph as operators over axes."""

    rng: random.Random
    keep: bool
    exchange: bool = False
    transposed: bool = False
    values: list[Value] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    operators: list[Operator] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    known: set[str] = field(default_factory=set)
    names: dict[object, str] = field(default_factory=dict)

    # Building

    def tensor(self, extents: Sequence[int], kind: int) -> int:
        self.tensors.append(Tensor(tuple(extents), kind))
        return len(self.tensors) - 1

    def shape(self, value: Value) -> tuple[int, ...]:
        extents = self.tensors[value.tensor].extents
        return tuple(math.prod(extents[axis] for axis in dim) for dim in value.dims)

    def groups(self, value: Value) -> list[list[int]]:
        """The extents of the axes of each dimension."""
        return [[self.tensors[value.tensor].extents[axis] for axis in dim] for dim in value.dims]

    def kind(self, value: Value) -> int:
        return self.tensors[value.tensor].kind

    def constant(self, array: NDArray[np.generic]) -> str:
        """A constant's name; equal ones are one, so that equal nodes are seen to be equal."""
        name = f"c{len(self.constants)}"
        known = self.names.setdefault((array.dtype.str, array.shape, array.tobytes()), name)
        if known == name:
            self.constants.append(numpy_helper.from_array(array, name))
        return known

    def floats(self, *shape: int) -> str:
        rng = np.random.default_rng(len(self.constants))
        return self.constant((rng.normal(size=shape) / max(1, shape[-1])).astype(np.float32))

    def node(self, op: str, inputs: list[str], count: int = 1, **attributes: object) -> list[str]:
        """A node, unless the same one is there: a runtime would run the two as one."""
        text = f"{op} {inputs} {sorted(attributes.items())}"
        if text in self.known:
            return []
        self.known.add(text)
        outputs = [f"v{len(self.nodes)}_{slot}" for slot in range(count)]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"n{len(self.nodes)}", **attributes))
        return outputs

    def add(
        self, names: Sequence[str], read: Sequence[Value], given: Sequence[Value], ends: Sequence[End], ways: object
    ) -> None:
        """An operator with what it gives."""
        assert isinstance(ways, tuple)
        self.operators.append(Operator(ways, tuple(ends)))
        self.values += given

    def pick(self, allowed: Callable[[Value], bool] = lambda _: True) -> Value | None:
        found = [value for value in self.values if allowed(value)]
        return self.rng.choice(found[-5:]) if found else None

    def plain(self, value: Value) -> bool:
        """Whether no dimension is a group: what only a view merged is not taken apart again by an operator."""
        return self.kind(value) == TensorProto.FLOAT and all(len(dim) < 2 for dim in value.dims)

    # Views: no operator in the other sense

    def transpose(self) -> None:
        value = self.pick(lambda v: len(v.dims) > 1)
        if value is not None:
            perm = self.rng.sample(range(len(value.dims)), len(value.dims))
            for name in self.node("Transpose", [value.name], perm=perm):
                self.values.append(Value(name, value.tensor, tuple(value.dims[axis] for axis in perm)))

    def merge(self) -> None:
        value = self.pick(lambda v: self.plain(v) and len(v.dims) > 2)
        if value is not None:
            axis = self.rng.randrange(len(value.dims) - 1)
            merged = value.dims[axis] + value.dims[axis + 1]
            self.reshape(value, (*value.dims[:axis], merged, *value.dims[axis + 2 :]))

    def split(self) -> None:
        value = self.pick(lambda v: any(len(dim) > 1 for dim in v.dims))
        if value is not None:
            parts = tuple((axis,) for dim in value.dims for axis in dim or ())
            if all(value.dims):
                self.reshape(value, parts)

    def reshape(self, value: Value, dims: tuple[Order, ...]) -> None:
        target = Value("", value.tensor, dims)
        shape = self.constant(np.array(self.shape(target), np.int64))
        for name in self.node("Reshape", [value.name, shape]):
            self.values.append(Value(name, value.tensor, dims))

    # Operators

    def elementwise(self, value: Value, others: Sequence[Value], names: Sequence[str], kind: int) -> None:
        """Any order of all axes of `value`; another operand may lack some, and is stretched."""
        flat = [axis for dim in value.dims for axis in dim]
        number = {axis: place for place, axis in enumerate(flat)}
        ends = []
        for read in (value, *others):
            pairs = zip(value.dims, read.dims, strict=True)
            held = {number[a]: b for ours, theirs in pairs for a, b in zip(ours, theirs, strict=False)}
            ends.append(End(read.tensor, held))
        extents = [self.tensors[value.tensor].extents[axis] for axis in flat]
        given = []
        for name in names:
            made = self.tensor(extents, kind)
            given.append(Value(name, made, tuple(tuple(number[axis] for axis in dim) for dim in value.dims)))
            ends.append(End(made, {place: place for place in range(len(flat))}, output=True))
        self.add(names, (value, *others), given, ends, orders(range(len(flat))))

    def unary(self) -> None:
        value = self.pick(lambda v: self.kind(v) == TensorProto.FLOAT)
        if value is not None:
            alpha = 0.1 + 0.01 * len(self.nodes)
            if names := self.node("LeakyRelu", [value.name], alpha=alpha):
                self.elementwise(value, [], names, TensorProto.FLOAT)

    def cast(self) -> None:
        """To a quarter of the bytes, or back."""
        value = self.pick()
        if value is not None:
            kind = TensorProto.FLOAT if self.kind(value) == TensorProto.INT8 else TensorProto.INT8
            if names := self.node("Cast", [value.name], to=kind):
                self.elementwise(value, [], names, kind)

    def binary(self) -> None:
        value = self.pick(lambda v: self.kind(v) == TensorProto.FLOAT)
        if value is None:
            return

        def alike(other: Value) -> bool:
            """The same shape by the same groups of extents, or 1."""
            ours, theirs = self.groups(value), self.groups(other)
            fits = len(ours) == len(theirs) and all(b in (a, []) for a, b in zip(ours, theirs, strict=True))
            return fits and self.kind(other) == TensorProto.FLOAT

        other = self.pick(alike)
        if other is not None and (names := self.node("Add", [value.name, other.name])):
            self.elementwise(value, [other], names, TensorProto.FLOAT)

    def softmax(self) -> None:
        value = self.pick(lambda v: self.plain(v) and len(v.dims) > 0)
        if value is not None:
            axis = self.rng.randrange(len(value.dims))
            if names := self.node("Softmax", [value.name], axis=axis):
                self.elementwise(value, [], names, TensorProto.FLOAT)

    def along(self, value: Value, names: Sequence[str], axis: int, extents: Sequence[int], read: list[Value]) -> None:
        """An operator that changes the extent of one axis; it runs in any order."""
        rank = len(value.dims)
        ends = [End(v.tensor, {place: dim[0] for place, dim in enumerate(v.dims) if dim}) for v in read]
        given = []
        for name, extent in zip(names, extents, strict=True):
            shape = [extent if place == axis else e for place, e in enumerate(self.shape(value))]
            made = self.tensor(shape, TensorProto.FLOAT)
            given.append(Value(name, made, tuple((place,) for place in range(rank))))
            ends.append(End(made, {place: place for place in range(rank)}, output=True))
        self.add(names, read, given, ends, orders(range(rank)))

    def concat(self) -> None:
        value = self.pick(lambda v: self.plain(v) and all(v.dims) and len(v.dims) > 1)
        if value is None:
            return
        axis = self.rng.randrange(len(value.dims))
        shape = self.shape(value)
        other = self.pick(lambda v: self.plain(v) and all(v.dims) and self.shape(v) == shape)
        if other is not None and (names := self.node("Concat", [value.name, other.name], axis=axis)):
            self.along(value, names, axis, [2 * shape[axis]], [value, other])

    def halves(self) -> None:
        value = self.pick(lambda v: self.plain(v) and all(v.dims) and any(e > 3 for e in self.shape(v)))
        if value is None:
            return
        shape = self.shape(value)
        axis = self.rng.choice([place for place, extent in enumerate(shape) if extent > 3])
        sizes = [2, shape[axis] - 2]
        parts = self.constant(np.array(sizes, np.int64))
        if names := self.node("Split", [value.name, parts], 2, axis=axis):
            self.along(value, names, axis, sizes, [value])

    def reduce(self) -> None:
        value = self.pick(lambda v: self.plain(v) and all(v.dims) and len(v.dims) > 1)
        if value is None:
            return
        rank, keep = len(value.dims), self.rng.randint(0, 1)
        axis = self.rng.randrange(rank)
        axes = self.constant(np.array([axis], np.int64))
        if not (names := self.node("ReduceMean", [value.name, axes], keepdims=keep)):
            return
        left = [place for place in range(rank) if place != axis]
        made = self.tensor([self.shape(value)[place] for place in left], TensorProto.FLOAT)
        groups: list[Order] = [(number,) for number in range(len(left))]
        if keep:
            groups.insert(axis, ())
        ends = (
            End(value.tensor, {place: dim[0] for place, dim in enumerate(value.dims)}),
            End(made, {place: number for number, place in enumerate(left)}, output=True),
        )
        self.add(names, [value], [Value(names[0], made, tuple(groups))], ends, orders(range(rank)))

    def channels(self, op: str) -> None:
        """Positions fixed; a dense convolution's channels may hold their axes in any order, as its batch may."""
        value = self.pick(lambda v: self.kind(v) == TensorProto.FLOAT and 3 <= len(v.dims) <= 4 and all(v.dims))
        if value is None or (op == "LRN" and not self.plain(value)):
            return
        shape = self.shape(value)
        flat = [axis for dim in value.dims for axis in dim]
        number = {axis: place for place, axis in enumerate(flat)}
        extents = self.tensors[value.tensor].extents
        given: list[tuple[int, ...]]
        if op == "LRN" and len(shape) < 4:  # which ONNX Runtime has for images only
            names = self.node("AveragePool", [value.name], kernel_shape=[1])
            given = [tuple(number[axis] for axis in dim) for dim in value.dims]
        elif op == "LRN":
            names = self.node("LRN", [value.name], size=3, alpha=0.1 + 0.01 * len(self.nodes))
            given = [tuple(number[axis] for axis in dim) for dim in value.dims]
        else:
            width = self.rng.choice([3, 7])
            names = self.node("Conv", [value.name, self.floats(width, shape[1], *[1] * (len(shape) - 2))])
            given = [tuple(number[axis] for axis in dim) for dim in value.dims]
            given[1] = (len(flat),)
        if not names:
            return
        kept = [place for dim in given for place in dim]
        sizes = [7 if place == len(flat) else extents[flat[place]] for place in kept]
        if op == "Conv":
            sizes = [width if place == len(flat) else size for place, size in zip(kept, sizes, strict=True)]
        made = self.tensor(sizes, TensorProto.FLOAT)
        where = {place: index for index, place in enumerate(kept)}
        ends = (
            End(value.tensor, dict(enumerate(flat))),
            End(made, where, output=True),
        )
        first, second, *rest = [tuple(number[axis] for axis in dim) for dim in value.dims]
        new = [(len(flat),)] if op == "Conv" else []
        # The axes of space keep what they hold in order; which of them comes first is free.
        ways = tuple(
            way
            for space in itertools.permutations(rest)
            for way in orders((), [first, second, *new, *((place,) for dim in space for place in dim)])
        )
        dims = tuple(tuple(where[place] for place in dim) for dim in given)
        self.add(names, [value], [Value(names[0], made, dims)], ends, ways)

    def conv(self) -> None:
        self.channels("Conv")

    def local(self) -> None:
        self.channels("LRN")

    def dense(self) -> None:
        """By a constant matrix: axes before the last dimension are free, that may hold its own in any order."""
        self.multiplied(each=False)

    def product(self) -> None:
        """By a constant matrix for each of the axes before the last two dimensions: these are free."""
        self.multiplied(each=True)

    def pair(self) -> None:
        """Of a value and the same with its last two dimensions exchanged, which may be read as it is."""
        value = self.pick(lambda v: self.plain(v) and len(v.dims) > 2 and all(v.dims))
        if value is None:
            return
        rank = len(value.dims)
        perm = [*range(rank - 2), rank - 1, rank - 2]
        for turned in self.node("Transpose", [value.name], perm=perm):
            self.values.append(Value(turned, value.tensor, tuple(value.dims[axis] for axis in perm)))
            flat = [axis for dim in value.dims for axis in dim]
            shape = self.shape(value)
            names = self.node("MatMul", [value.name, turned])
            made = self.tensor([*shape[:-1], shape[-2]], TensorProto.FLOAT)
            batch, (m, k, n) = list(range(rank - 2)), (rank - 2, rank - 1, rank)
            ends = (
                End(value.tensor, dict(enumerate(flat))),
                End(value.tensor, {**dict(enumerate(flat[:-2])), k: flat[k], n: flat[m]}),
                End(made, {**{place: place for place in (*batch, m)}, n: rank - 1}, output=True),
            )
            ways = orders(batch, [[m], [k], [n]])
            ways += orders(batch, [[m], [n], [k]]) if self.transposed else ()
            self.add(names, [value], [Value(names[0], made, tuple((place,) for place in range(rank)))], ends, ways)

    def multiplied(self, *, each: bool) -> None:
        value = self.pick(lambda v: self.kind(v) == TensorProto.FLOAT and len(v.dims) > 2 and all(v.dims))
        if value is None:
            return
        shape = self.shape(value)
        matrices = self.floats(*(shape[:-2] if each else ()), shape[-1], 7)
        if not (names := self.node("MatMul", [value.name, matrices])):
            return
        flat = [axis for dim in value.dims for axis in dim]
        rows = list(range(len(flat) - len(value.dims[-1])))
        free, left = (rows[: -len(value.dims[-2])], rows[-len(value.dims[-2]) :]) if each else (rows, [])
        summed, new = list(range(len(rows), len(flat))), [len(flat)]
        extents = self.tensors[value.tensor].extents
        made = self.tensor([*(extents[flat[place]] for place in rows), 7], TensorProto.FLOAT)
        ends = (
            End(value.tensor, dict(enumerate(flat))),
            End(made, {**{place: place for place in rows}, len(flat): len(rows)}, output=True),
        )
        groups = iter(rows)
        dims = tuple(tuple(next(groups) for _ in dim) for dim in value.dims[:-1])
        ways = orders(free, [left, summed, new])
        if self.exchange and each:
            ways += orders(free, [new, summed, left])
        elif self.exchange:  # with any rows behind, at least one
            ways += tuple(
                (*order[:place], *new, *inner, *order[place:])
                for order in itertools.permutations(rows)
                for place in range(len(rows))
                for inner in itertools.permutations(summed)
            )
        self.add(names, [value], [Value(names[0], made, (*dims, (len(rows),)))], ends, ways)

    # The interface

    def input(self, name: str, extents: Sequence[int]) -> Value:
        made = self.tensor(extents, TensorProto.FLOAT)
        value = Value(name, made, tuple((axis,) for axis in range(len(extents))))
        axes = range(len(extents))
        ways = (tuple(axes),) if self.keep else orders(axes)
        self.operators.append(Operator(ways, (End(made, dict(enumerate(axes)), output=True),)))
        self.values.append(value)
        return value

    def output(self, value: Value) -> None:
        """As it is written, or with its dimensions in any order."""
        flat = [axis for dim in value.dims for axis in dim]
        dims = (value.dims,) if self.keep else itertools.permutations(value.dims)
        ways = dict.fromkeys(tuple(flat.index(axis) for dim in dim_order for axis in dim) for dim_order in dims)
        self.operators.append(Operator(tuple(ways), (End(value.tensor, dict(enumerate(flat))),)))


def _before_the_last_columns(order: Order, summed: Sequence[int], new: Sequence[int]) -> Order:
    """The order of a product's axes in which those that are summed lie before the columns that end it."""
    place = len(order)
    while place and order[place - 1] in new:
        place -= 1
    return (*order[:place], *summed, *order[place:])


WEIGHTS = {"transpose": 4, "binary": 3} | dict.fromkeys(("unary", "reduce", "conv", "dense", "merge"), 2)
WEIGHTS |= dict.fromkeys(("cast", "softmax", "concat", "halves", "local", "split"), 1)
TRANSPOSED = ["pair", "transpose"] * 10
PRODUCTS = ["product", "transpose"] * 10 + ["dense"] * 6
STEPS = [step for step, weight in WEIGHTS.items() for _ in range(weight)]


def random_graph(
    seed: int, steps: int, rank: int, *, keep: bool = True, exchange: bool = False, transposed: bool = False
) -> tuple[onnx.ModelProto, Graph]:
    """A model, and the same as operators over axes; without `keep` its interface lies in any order, with `exchange`
    products may run with their operands exchanged, with `transposed` by a matrix that lies transposed.
    """
    rng = random.Random(seed)
    graph = Graph(rng, keep, exchange, transposed)
    kinds = STEPS + (PRODUCTS if exchange else []) + (TRANSPOSED if transposed else [])
    extents = [2, 3, 4, 5]
    inputs = [graph.input(f"x{number}", rng.sample(extents, rank)) for number in range(rng.choice([1, 1, 2]))]
    while len(graph.nodes) < steps:
        getattr(graph, rng.choice(kinds))()
    read = {name for node in graph.nodes for name in node.input}
    ends = [value for value in graph.values if value.name not in read and value not in inputs]
    inner = [value for value in graph.values if value.name in read and value not in inputs]
    ends += rng.sample(inner, min(len(inner), rng.randint(0, 1)))
    for value in ends:
        graph.output(value)

    def info(value: Value) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(value.name, graph.kind(value), graph.shape(value))

    proto = helper.make_graph(graph.nodes, "g", list(map(info, inputs)), list(map(info, ends)), graph.constants)
    return helper.make_model(proto, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), graph


# The least bytes


def least_bytes(graph: Graph, most: int = 1 << 24) -> int | None:
    """The fewest bytes over all ways of all operators; None where a table would have more than `most` entries."""
    tables = [(nodes, costs) for nodes, costs in _tables(graph, most)]
    if any(costs is None for _, costs in tables):
        return None
    left: list[tuple[tuple[int, ...], Costs]] = [(nodes, costs) for nodes, costs in tables if costs is not None]
    constant = sum(int(costs) for nodes, costs in left if not nodes)
    left = [(nodes, costs) for nodes, costs in left if nodes]
    sizes = [len(operator.ways) for operator in graph.operators]
    while left:
        touched = {
            node: {other for nodes, _ in left if node in nodes for other in nodes}
            for nodes, _ in left
            for node in nodes
        }
        chosen = min(touched, key=lambda node: (math.prod(sizes[other] for other in touched[node]), node))
        scope = tuple(sorted(touched[chosen]))
        if math.prod(sizes[node] for node in scope) > most:
            return None
        total = np.zeros([sizes[node] for node in scope], np.int64)
        for nodes, costs in left:
            if chosen in nodes:
                total += costs.reshape([sizes[node] if node in nodes else 1 for node in scope])
        left = [(nodes, costs) for nodes, costs in left if chosen not in nodes]
        least = total.min(axis=scope.index(chosen))
        rest = tuple(node for node in scope if node != chosen)
        if rest:
            left.append((rest, least))
        else:
            constant += int(least)
    return constant


def _tables(graph: Graph, most: int) -> Iterator[tuple[tuple[int, ...], Costs | None]]:
    """For each tensor: the operators that touch it, and its cost for each choice of their ways."""
    for index, tensor in enumerate(graph.tensors):
        touching = [
            (node, end) for node, operator in enumerate(graph.operators) for end in operator.ends if end.tensor == index
        ]
        nodes = tuple(sorted({node for node, _ in touching}))
        if math.prod(len(graph.operators[node].ways) for node in nodes) > most:
            yield nodes, None
            continue
        numbers: dict[Order, int] = {}
        given, wanted = None, []
        for node, end in touching:
            stored = [numbers.setdefault(_stored(tensor, end, way), len(numbers)) for way in graph.operators[node].ways]
            shape = [len(stored) if other == node else 1 for other in nodes]
            table = np.array(stored).reshape(shape)
            if end.output:
                given = table
            else:
                wanted.append(table)
        assert given is not None
        count = np.zeros([len(graph.operators[node].ways) for node in nodes], np.int64)
        for number, table in enumerate(wanted):
            fresh = table != given
            for earlier in wanted[:number]:
                fresh = fresh & (table != earlier)
            count = count + fresh
        yield nodes, count * tensor.bytes


def _stored(tensor: Tensor, end: End, way: Order) -> Order:
    axes = [end.axes[axis] for axis in way if axis in end.axes]
    return tuple(axis for axis in axes if tensor.extents[axis] > 1)
