"""Random graphs with everything at once: subgraphs, quantization, shuffles, dynamic dimensions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from infer.graphs import Graph

Feed = dict[str, NDArray[np.generic]]
MOST_ELEMENTS = 4_000
"""Of a value: what a graph computes stays small."""


@dataclass
class Made:
    """A model, inputs for it, and what it has."""

    model: onnx.ModelProto
    feed: Feed
    has: set[str] = field(default_factory=set)


class Mixed(Graph):
    """A random graph whose steps may be whole subgraphs; `has` says what it came to hold."""

    def __init__(self, seed: int, rank: int = 4, outer: Mixed | None = None) -> None:
        if outer is None:
            super().__init__(seed, rank)
            self.has: set[str] = set()
            self.feed: Feed = {name: self.floats(*self.shapes[name]) for name in self.inputs}
            self.depth = 0
            return
        self.rng, self.data, self.count = outer.rng, outer.data, outer.count
        self.has, self.feed, self.depth = outer.has, outer.feed, outer.depth + 1
        self.nodes, self.constants, self.inputs = [], [], []
        # Of the graph around it, a body sees some values: the others are not read in it.
        seen = self.rng.sample(list(outer.shapes), min(2, len(outer.shapes)))
        self.shapes = {name: outer.shapes[name] for name in outer.shapes if name in seen}

    def step(self) -> None:
        before = dict(self.shapes), len(self.nodes), len(self.constants)
        of_own = [self.quantized, self.quantized, self.quantized_conv, self.shuffle, self.shuffle]
        if self.depth < 2:
            of_own += [self.branches, self.loop, self.scan]
        if self.rng.random() < 0.4:
            self.rng.choice(of_own)()
        else:
            super().step()
        if any(int(np.prod(shape)) > MOST_ELEMENTS for shape in self.shapes.values()):
            self.shapes, nodes, constants = before
            del self.nodes[nodes:], self.constants[constants:]

    # Quantization

    def quantized(self) -> None:
        """Quantize, move the integers now and then, and dequantize, with one scale or one for each channel."""
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        axis = self.rng.randrange(len(shape)) if shape and self.rng.random() < 0.4 else None
        kind = self.rng.choice([np.int8, np.uint8])
        scale, zero = self._parameters(kind, shape[axis] if axis is not None else None)
        attributes = {} if axis is None else {"axis": axis}
        quantized = self.emit("QuantizeLinear", [name, scale, zero], shape, **attributes)
        del self.shapes[quantized]
        if len(shape) > 1 and self.rng.random() < 0.5:
            perm = self.rng.sample(range(len(shape)), len(shape))
            shape = tuple(shape[a] for a in perm)
            quantized = self.emit("Transpose", [quantized], shape, perm=perm)
            del self.shapes[quantized]
            attributes = {} if axis is None else {"axis": perm.index(axis)}
        self.emit("DequantizeLinear", [quantized, scale, zero], shape, **attributes)
        self.has.add("quantized" if axis is None else "per channel")

    def quantized_conv(self) -> None:
        """A convolution whose kernel is integers with a scale for each output channel."""
        name = self.pick(4)
        if name is None:
            return
        n, c, h, w = self.shapes[name]
        o = self.rng.choice([c, 3, 4])
        kernel = self.constant(self.data.integers(-100, 100, (o, c, 1, 1)).astype(np.int8))
        scale, zero = self._parameters(np.int8, o)
        weights = self.emit("DequantizeLinear", [kernel, scale, zero], (o, c, 1, 1), axis=0)
        del self.shapes[weights]
        self.emit("Conv", [name, weights], (n, o, h, w))
        self.has.add("per channel")

    def _parameters(self, kind: type, count: int | None) -> tuple[str, str]:
        shape = () if count is None else (count,)
        scale = (0.02 + 0.03 * self.data.random(shape)).astype(np.float32)
        zero = np.zeros(shape, kind) if kind is np.int8 else np.full(shape, 128, kind)
        return self.constant(np.asarray(scale)), self.constant(np.asarray(zero))

    # Regrouping

    def shuffle(self) -> None:
        """Split an axis, permute, and merge again; in half of the cases one extent of the last shape is -1."""
        name = self.pick()
        assert name is not None
        shape = self.shapes[name]
        wide = [axis for axis, extent in enumerate(shape) if extent in (4, 6, 8, 12)]
        if not wide or len(shape) > 5:
            return
        axis = self.rng.choice(wide)
        split = (*shape[:axis], 2, shape[axis] // 2, *shape[axis + 1 :])
        perm = list(range(len(split)))
        perm[axis], perm[axis + 1] = perm[axis + 1], perm[axis]
        if self.rng.random() < 0.3:
            self.rng.shuffle(perm)
        taken = self.emit("Reshape", [name, self.constant(np.array(split, np.int64))], split)
        moved_shape = tuple(split[a] for a in perm)
        moved = self.emit("Transpose", [taken], moved_shape, perm=perm)
        merged = (*moved_shape[:axis], moved_shape[axis] * moved_shape[axis + 1], *moved_shape[axis + 2 :])
        target = list(merged)
        if self.rng.random() < 0.5:
            target[self.rng.randrange(len(target))] = -1
        self.emit("Reshape", [moved, self.constant(np.array(target, np.int64))], merged)
        self.has.add("shuffle")

    # Subgraphs

    def branches(self) -> None:
        """An If over an input; both branches read values of the graph around them."""
        condition = f"choice{len(self.feed)}"
        self.feed[condition] = np.array(self.rng.random() < 0.5)
        one, other = Mixed(0, outer=self), Mixed(0, outer=self)
        for body in (one, other):
            body.grow(self.rng.randint(1, 4))
        shape = one.shapes[one.last()]
        then, otherwise = (body.graph([body.formed(body.last(), shape)]) for body in (one, other))
        self.emit("If", [condition], shape, then_branch=then, else_branch=otherwise)
        self.has.add("If")

    def loop(self) -> None:
        """A Loop of two rounds that carries one value and collects another."""
        name = self.pick()
        assert name is not None
        shape, rounds = self.shapes[name], 2
        body = Mixed(0, outer=self)
        number, going, state = (f"{kind}{next(self.count)}" for kind in ("i", "c", "s"))
        body.shapes[state] = shape
        body.grow(self.rng.randint(1, 3))
        collected = body.last()
        collected_shape = body.shapes[collected]
        kept = body.emit("Identity", [going], ())
        del body.shapes[kept]
        outs = [kept, body.held(body.formed(collected, shape)), collected]
        outs[2] = body.emit("Identity", [collected], collected_shape)
        graph = body.graph(outs, [(number, "INT64", ()), (going, "BOOL", ()), (state, "FLOAT", shape)], ["BOOL"])
        trips, on = self.constant(np.array(rounds, np.int64)), self.constant(np.array(True))
        self._several("Loop", [trips, on, name], [shape, (rounds, *collected_shape)], body=graph)
        self.has.add("Loop")

    def scan(self) -> None:
        """A Scan over the first axis of a value."""
        names = [name for name, shape in self.shapes.items() if len(shape) > 1 and shape[0] > 1]
        if not names:
            return
        name = self.rng.choice(names)
        rounds, *rest = self.shapes[name]
        shape = tuple(rest)
        start = self.constant(self.floats(*shape))
        body = Mixed(0, outer=self)
        state, item = (f"{kind}{next(self.count)}" for kind in ("s", "e"))
        body.shapes |= {state: shape, item: shape}
        body.emit("Add", [state, item], shape)
        body.grow(self.rng.randint(1, 2))
        given = body.last()
        given_shape = body.shapes[given]
        outs = [body.held(body.formed(given, shape)), body.emit("Identity", [given], given_shape)]
        graph = body.graph(outs, [(state, "FLOAT", shape), (item, "FLOAT", shape)])
        self._several("Scan", [start, name], [shape, (rounds, *given_shape)], body=graph, num_scan_inputs=1)
        self.has.add("Scan")

    def _several(self, op: str, inputs: list[str], shapes: Sequence[tuple[int, ...]], **attributes: object) -> None:
        outputs = [self.value(shape) for shape in shapes]
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"n_{outputs[0]}", **attributes))

    def grow(self, steps: int) -> None:
        """Steps until there are so many more nodes."""
        until = len(self.nodes) + steps
        while len(self.nodes) < until:
            self.step()

    def last(self) -> str:
        """What was made last in this graph."""
        made = {name for node in self.nodes for name in node.output}
        return [name for name in self.shapes if name in made][-1]

    def formed(self, name: str, shape: tuple[int, ...]) -> str:
        """The value in another shape: as it is, regrouped, or the mean of it everywhere."""
        if self.shapes[name] == shape:
            return name
        target = self.constant(np.array(shape, np.int64))
        if int(np.prod(self.shapes[name])) == int(np.prod(shape)):
            return self.emit("Reshape", [name, target], shape)
        mean = self.emit("ReduceMean", [name], (), keepdims=0)
        return self.emit("Expand", [mean, target], shape)

    def held(self, name: str) -> str:
        """Within bounds, however often it goes round."""
        return self.emit("Tanh", [name], self.shapes[name])

    def graph(
        self, outs: Sequence[str], given: Sequence[tuple[str, str, tuple[int, ...]]] = (), kinds: Sequence[str] = ()
    ) -> onnx.GraphProto:
        """The body as a graph; outputs that it only passes on are copied, since runtimes want them made in it."""
        made = {name for node in self.nodes for name in node.output}
        outs = [name if name in made else self.emit("Identity", [name], self.shapes[name]) for name in outs]
        inputs = [helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape) for name, kind, shape in given]
        kinds = [*kinds, *["FLOAT"] * len(outs)]
        outputs = [
            helper.make_tensor_value_info(name, getattr(TensorProto, kind), self.shapes.get(name, ()))
            for name, kind in zip(outs, kinds, strict=False)
        ]
        return helper.make_graph(self.nodes, f"body{next(self.count)}", inputs, outputs, self.constants)


def mixed_model(seed: int, steps: int) -> Made:
    """A random model, some of whose inputs have dynamic dimensions, and inputs for it."""
    graph = Mixed(seed, rank=random.Random(seed).choice([3, 4, 4, 4]))
    graph.grow(steps)
    model = graph.model(1)
    choices = [name for name in graph.feed if name not in graph.inputs]
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in choices)
    if graph.rng.random() < 0.35:
        open_dimensions(model, graph.rng)
        graph.has.add("dynamic")
    return Made(model, graph.feed, graph.has)


def open_dimensions(model: onnx.ModelProto, rng: random.Random) -> None:
    """Name some extents of the inputs instead of stating them, and state nothing of what follows from them."""
    del model.graph.value_info[:]
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if axis == 0 or rng.random() < 0.3:
                dim.dim_param = f"{value.name}_{axis}"
    for value in model.graph.output:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{axis}"
