"""Random ONNX graphs that mix pins, views and free operators; every extent of a tensor differs where it can."""

from __future__ import annotations

import itertools
import random

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """A graph under construction: values with their shapes, one random step at a time."""

    def __init__(self, seed: int, rank: int = 4) -> None:
        self.rng = random.Random(seed)
        self.data = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.count = itertools.count()
        extents = [2, 3, 4, 6, 5]
        self.rng.shuffle(extents)
        self.inputs = [self.value(tuple(extents[:rank]), f"x{i}") for i in range(self.rng.choice([1, 1, 2]))]

    def value(self, shape: tuple[int, ...], name: str | None = None) -> str:
        name = name or f"v{next(self.count)}"
        self.shapes[name] = shape
        return name

    def constant(self, array: NDArray[np.generic]) -> str:
        name = f"c{next(self.count)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def emit(self, op: str, inputs: list[str], shape: tuple[int, ...], **attributes: object) -> str:
        output = self.value(shape)
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"n_{output}", **attributes))
        return output

    def floats(self, *shape: int) -> NDArray[np.float32]:
        return self.data.normal(size=shape).astype(np.float32)

    def pick(self, rank: int | None = None) -> str | None:
        names = [name for name, shape in self.shapes.items() if rank is None or len(shape) == rank]
        return self.rng.choice(names[-6:]) if names else None

    # Steps

    def step(self) -> None:
        choices = [
            self.unary,
            self.unary,
            self.add,
            self.broadcast,
            self.transpose,
            self.transpose,
            self.conv,
            self.conv,
        ]
        choices += [
            self.reshape,
            self.reshape,
            self.reduce,
            self.softmax,
            self.concat,
            self.slice,
            self.pad,
            self.dense,
        ]
        self.rng.choice(choices)()

    def unary(self) -> None:
        name = self.pick()
        assert name is not None
        self.emit(self.rng.choice(["Relu", "Sigmoid", "Tanh"]), [name], self.shapes[name])

    def add(self) -> None:
        name = self.pick()
        assert name is not None
        same = [other for other, shape in self.shapes.items() if shape == self.shapes[name]]
        self.emit(self.rng.choice(["Add", "Mul"]), [name, self.rng.choice(same)], self.shapes[name])

    def broadcast(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        low = shape[self.rng.randint(0, len(shape)) :]
        low = tuple(extent if self.rng.random() < 0.7 else 1 for extent in low)
        self.emit("Add", self.rng.sample([name, self.constant(self.floats(*low))], 2), shape)

    def transpose(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        perm = list(range(len(shape)))
        if len(perm) == 4 and self.rng.random() < 0.7:
            perm = self.rng.choice([[0, 3, 1, 2], [0, 2, 3, 1]])
        else:
            self.rng.shuffle(perm)
        self.emit("Transpose", [name], tuple(shape[axis] for axis in perm), perm=perm)

    def conv(self) -> None:
        name = self.pick(4)
        if name is None:
            return
        n, c, h, w = self.shapes[name]
        o = self.rng.choice([c, 3, 4])
        kernel = self.constant(self.floats(o, c, 1, 1))
        self.emit("Conv", [name, kernel], (n, o, h, w))

    def reshape(self) -> None:
        name = self.pick()
        assert name is not None
        shape = list(self.shapes[name])
        if self.rng.random() < 0.5 and len(shape) > 1:
            axis = self.rng.randrange(len(shape) - 1)
            shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        elif len(shape) < 6:
            splittable = [axis for axis, extent in enumerate(shape) if extent in (4, 6, 8, 12, 15, 10, 20, 30, 24)]
            if not splittable:
                return
            axis = self.rng.choice(splittable)
            factor = self.rng.choice([f for f in range(2, shape[axis]) if shape[axis] % f == 0])
            shape[axis : axis + 1] = [factor, shape[axis] // factor]
        self.emit("Reshape", [name, self.constant(np.array(shape, np.int64))], tuple(shape))

    def reduce(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        if len(shape) < 2:
            return
        axes = sorted(self.rng.sample(range(len(shape)), self.rng.randint(1, len(shape) - 1)))
        keep = self.rng.randint(0, 1)
        left = tuple(1 if a in axes else e for a, e in enumerate(shape) if keep or a not in axes)
        self.emit("ReduceMean", [name, self.constant(np.array(axes, np.int64))], left, keepdims=keep)

    def softmax(self) -> None:
        name = self.pick()
        assert name is not None
        if self.shapes[name]:
            self.emit("Softmax", [name], self.shapes[name], axis=self.rng.randrange(len(self.shapes[name])))

    def concat(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        if not shape:
            return
        axis = self.rng.randrange(len(shape))
        same = [other for other, s in self.shapes.items() if s == shape]
        out = (*shape[:axis], shape[axis] * 2, *shape[axis + 1 :])
        self.emit("Concat", [name, self.rng.choice(same)], out, axis=axis)

    def slice(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        axes = [axis for axis, extent in enumerate(shape) if extent > 2]
        if not axes:
            return
        axis = self.rng.choice(axes)
        ends = [self.constant(np.array([value], np.int64)) for value in (1, shape[axis], axis)]
        self.emit("Slice", [name, *ends], (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :]))

    def pad(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        pads = [self.rng.choice([0, 0, 1]) for _ in range(2 * len(shape))]
        out = tuple(e + pads[a] + pads[a + len(shape)] for a, e in enumerate(shape))
        self.emit("Pad", [name, self.constant(np.array(pads, np.int64))], out)

    def dense(self) -> None:
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        if len(shape) >= 2:
            self.emit("MatMul", [name, self.constant(self.floats(shape[-1], 7))], (*shape[:-1], 7))

    def model(self, outputs: int) -> onnx.ModelProto:
        read = {name for node in self.nodes for name in node.input}
        loose = [name for name in self.shapes if name not in read and name not in self.inputs]
        extra = [name for name in self.shapes if name in read and name not in self.inputs]
        named = (loose + self.rng.sample(extra, min(len(extra), outputs)))[: max(outputs, len(loose))]

        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])

        graph = helper.make_graph(
            self.nodes, "random", [info(n) for n in self.inputs], [info(n) for n in named], self.constants
        )
        graph.value_info.extend(info(n) for n in self.shapes if n not in self.inputs and n not in named)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def random_model(seed: int, steps: int, rank: int = 4) -> tuple[onnx.ModelProto, dict[str, NDArray[np.float32]]]:
    """A random model that computes something, and inputs for it."""
    graph = Graph(seed, rank)
    while len(graph.nodes) < steps:
        graph.step()
        if graph.nodes and int(np.prod(graph.shapes[graph.nodes[-1].output[0]])) > 20_000:
            graph.shapes.pop(graph.nodes.pop().output[0])
    feed = {name: graph.floats(*graph.shapes[name]) for name in graph.inputs}
    return graph.model(1), feed
