"""Random graphs of open extents, some of which depend on numbers that are fed: never run at one size alone."""

from __future__ import annotations

import random

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Feed = dict[str, NDArray[np.generic]]
RANK = 4
SIZES = ((2, 3, 4, 5), (1, 7, 3, 2), (3, 2, 9, 4))
"""Extents of the inputs, in one run after another."""


class Opened:
    """A graph under construction: every value is of rank 4, and no constant depends on an extent."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.amounts: dict[str, str] = {}
        self.values: list[str] = []
        names = ["n", "c", "h", "w"]
        for number in range(self.rng.choice([1, 1, 2])):
            fixed = self.rng.randrange(RANK) if self.rng.random() < 0.5 else None
            dims = [SIZES[0][axis] if axis == fixed else f"{name}{number}" for axis, name in enumerate(names)]
            self.inputs.append(helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, dims))
            self.values.append(f"x{number}")

    def emit(self, op: str, inputs: list[str], **attributes: object) -> None:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"n_{output}", **attributes))
        self.values.append(output)

    def pick(self) -> str:
        return self.rng.choice(self.values[-4:])

    def amount(self, kind: str, count: int) -> str:
        """An input of so many numbers that only a run knows."""
        name = f"{kind}{len(self.amounts)}"
        element = TensorProto.FLOAT if kind == "scales" else TensorProto.INT64
        self.inputs.append(helper.make_tensor_value_info(name, element, [count]))
        self.amounts[name] = kind
        return name

    def constant(self, array: NDArray[np.generic]) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def step(self) -> None:
        steps = [self.unary, self.transpose, self.transpose, self.concat, self.reduce, self.add, self.pool]
        computed = [self.tile, self.pad, self.expand, self.slice, self.tile, self.pad]
        self.rng.choice(steps + computed)()

    def unary(self) -> None:
        self.emit(self.rng.choice(["Relu", "Neg", "Tanh"]), [self.pick()])

    def transpose(self) -> None:
        self.emit("Transpose", [self.pick()], perm=self.rng.sample(range(RANK), RANK))

    def concat(self) -> None:
        value = self.pick()
        self.emit("Concat", [value] * self.rng.choice([2, 3]), axis=self.rng.randrange(RANK))

    def reduce(self) -> None:
        axes = self.constant(np.array([self.rng.randrange(RANK)], np.int64))
        self.emit("ReduceMean", [self.pick(), axes], keepdims=1)

    def add(self) -> None:
        value = self.pick()
        self.emit("Relu", [value])
        self.emit("Add", [value, self.values[-1]])

    def pool(self) -> None:
        self.emit("MaxPool", [self.pick()], kernel_shape=[1, 2], strides=[1, 1], pads=[0, 1, 0, 0])

    def tile(self) -> None:
        self.emit("Tile", [self.pick(), self.amount("repeats", RANK)])

    def pad(self) -> None:
        self.emit("Pad", [self.pick(), self.amount("pads", 2 * RANK)])

    def expand(self) -> None:
        self.reduce()
        self.emit("Expand", [self.values[-1], self.amount("shape", RANK)])

    def slice(self) -> None:
        axes = self.constant(np.array([self.rng.randrange(RANK)], np.int64))
        self.emit("Slice", [self.pick(), self.amount("starts", 1), self.amount("ends", 1), axes])


MOST_TIMES = 20_000
"""How often a model repeats an element at most: one of seven Tiles took 23 GB."""


def opened_model(seed: int, steps: int) -> tuple[onnx.ModelProto, list[Feed]]:
    """A random model of open extents, and inputs for it of several sizes."""
    graph = Opened(seed)
    for _ in range(steps):
        graph.step()
    read = {name for node in graph.nodes for name in node.input}
    ends = [name for name in graph.values if name.startswith("v") and name not in read]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * RANK) for name in ends]
    proto = helper.make_graph(graph.nodes, "opened", graph.inputs, outputs, graph.constants)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model, [_feed(graph, size, number) for number, size in enumerate(SIZES)]


def _feed(graph: Opened, size: tuple[int, ...], number: int) -> Feed:
    rng = np.random.default_rng(number)
    feed: Feed = {}
    times = 1
    for value in graph.inputs:
        dims = value.type.tensor_type.shape.dim
        if value.name in graph.amounts:
            feed[value.name] = _numbers(graph.amounts[value.name], dims[0].dim_value, rng)
            if graph.amounts[value.name] == "repeats":
                times *= int(feed[value.name].prod())
                if times > MOST_TIMES:
                    feed[value.name][:] = 1
        else:
            shape = [dim.dim_value or extent for dim, extent in zip(dims, size, strict=True)]
            feed[value.name] = rng.normal(size=shape).astype(np.float32)
    return feed


def _numbers(kind: str, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    least, most = {"repeats": (1, 3), "pads": (0, 2), "shape": (1, 1), "starts": (0, 1), "ends": (1, 4)}[kind]
    return rng.integers(least, most, count, endpoint=True)
