"""Measures the growth of time with graphs of many families: processor seconds, and the exponent over all sizes.

    python bench/growth.py [--sizes 1000,8000] [--of relu,concat,…] [--forms optimize,.tflite]

1.0 is linear. A size is the number of a graph's nodes, or of the operands, outputs or bodies that the family is named
after. Each conversion runs in a process that was forked from one in which everything is imported. Printed is a table.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from scale import residual_network
from tables import table

import relayout

FORMS: dict[str, dict[str, str]] = {"optimize": {}, ".tflite": {"format": "tflite"}}
BACK = [0, 3, 1, 2]
"""The perm from NHWC to NCHW."""


class Graph:
    """A graph of float images, 1 x 4 x 6 x 6 where nothing else is said, with nodes added one by one."""

    def __init__(self, shape: tuple[int | str, ...] = (1, 4, 6, 6)) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        self.outputs: list[onnx.ValueInfoProto] = []

    def add(self, op_type: str, *read: str, **attributes: Any) -> str:
        """Add a node with one output, and return its name."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, read, [name], f"n{len(self.nodes)}", **attributes))
        return name

    def constant(self, array: Any, name: str = "") -> str:
        """Add an initializer, or one of its own name once, and return its name."""
        name = name or f"c{len(self.constants)}"
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def input(self, name: str, shape: tuple[int | str, ...] = (1, 4, 6, 6)) -> str:
        """Add an input."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def give(self, *names: str) -> None:
        """Make values outputs of the graph."""
        self.outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]

    def turned(self, value: str) -> str:
        """A value as NHWC, and back as an operator reads it: what a converter has to see through."""
        return self.add("Transpose", self.add("Transpose", value, perm=[0, 2, 3, 1]), perm=BACK)

    def conv(self, value: str, *, own: bool = True) -> str:
        """A convolution of 4 by 4 channels with weights of its own, or with those of all."""
        weights = np.full((4, 4, 1, 1), 0.25, np.float32)
        return self.add("Conv", value, self.constant(weights, "" if own else "kernel"))

    def model(self) -> onnx.ModelProto:
        """The graph as a model."""
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def chain(graph: Graph, count: int, step: Callable[[str], str]) -> None:
    """Apply a step again and again until a graph has so many nodes."""
    value = "x"
    while len(graph.nodes) < count:
        value = step(value)
    graph.give(value)


def relu(graph: Graph, count: int) -> None:
    """One operator behind the other."""
    chain(graph, count, lambda value: graph.add("Relu", value))


def convolutions(graph: Graph, count: int) -> None:
    """Convolutions with weights of their own, and Relus."""
    chain(graph, count, lambda value: graph.add("Relu", graph.conv(value)))


def reshapes(graph: Graph, count: int) -> None:
    """Reshapes there and back with an operator between them."""
    flat, image = graph.constant([1, 4, 36]), graph.constant([1, 4, 6, 6])
    chain(graph, count, lambda value: graph.add("Reshape", graph.add("Abs", graph.add("Reshape", value, flat)), image))


def transposes(graph: Graph, count: int) -> None:
    """Each operator between Transposes that undo each other."""
    chain(graph, count, lambda value: graph.add("Relu", graph.turned(value)))


def dense(graph: Graph, count: int) -> None:
    """Blocks of eight layers, as in a DenseNet: a layer reads all earlier ones of its block."""
    narrow = graph.constant(np.full((4, 32, 1, 1), 0.1, np.float32))

    def block(value: str) -> str:
        held = [value]
        for _ in range(7):
            held.append(graph.conv(graph.add("Sum", *held)))
        return graph.add("Conv", graph.add("Concat", *held, axis=1), narrow)

    chain(graph, count, block)


def ladder(graph: Graph, count: int) -> None:
    """Down, up, and across: nested skip connections, as in a U-Net."""
    depth, value, held = count // 4, "x", []
    for _ in range(depth):
        value = graph.conv(value, own=False)
        held.append(value)
    for skip in reversed(held):
        value = graph.add("Relu", graph.conv(graph.add("Add", value, skip), own=False))
    graph.give(value)


def attention(graph: Graph, count: int) -> None:
    """Two heads: products with a Transpose of each side, as a Transformer has them."""
    graph.inputs[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 5, 8))
    apart, joined = graph.constant([1, 5, 2, 4]), graph.constant([1, 5, 8])
    square = graph.constant(np.full((8, 8), 0.1, np.float32))

    def head(value: str, perm: list[int]) -> str:
        return graph.add("Transpose", graph.add("Reshape", graph.add("MatMul", value, square), apart), perm=perm)

    def layer(value: str) -> str:
        scores = graph.add("MatMul", head(value, [0, 2, 1, 3]), head(value, [0, 2, 3, 1]))
        mixed = graph.add("MatMul", graph.add("Softmax", scores), head(value, [0, 2, 1, 3]))
        return graph.add("Add", value, graph.add("Reshape", graph.add("Transpose", mixed, perm=[0, 2, 1, 3]), joined))

    chain(graph, count, layer)


def fan_out(graph: Graph, count: int) -> None:
    """One value that all operators read; every one gives an output."""
    graph.give(*[graph.conv("x", own=False) for _ in range(count)])


def turned_outputs(graph: Graph, count: int) -> None:
    """One value that is read in two orders, by operators that give outputs in both."""
    other = graph.add("Transpose", "x", perm=[0, 2, 3, 1])
    graph.give(*[graph.add("Relu", value) for _ in range(count // 2) for value in ("x", other)])


def inputs(graph: Graph, count: int) -> None:
    """As many inputs, added one after the other."""
    value = "x"
    for number in range(count):
        value = graph.add("Add", value, graph.input(f"x{number}"))
    graph.give(value)


def concat(graph: Graph, count: int) -> None:
    """One Concat of as many operands, before a convolution."""
    joined = graph.add("Concat", *[graph.add("Relu", "x") for _ in range(count)], axis=2)
    graph.give(graph.conv(joined))


def split(graph: Graph, count: int) -> None:
    """One Split into as many, each behind an operator of its own."""
    graph.inputs[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, count, 6))
    names = [f"part{number}" for number in range(count)]
    graph.nodes.append(helper.make_node("Split", [graph.conv("x")], names, axis=2, num_outputs=count))
    graph.give(*[graph.add("Relu", name) for name in names])


def ifs(graph: Graph, count: int) -> None:
    """Ifs one behind the other, each with a Transpose in one branch."""
    graph.inputs.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, ()))
    value = "x"
    for number in range(count // 4):
        branches = {}
        for name, op_type in (("then_branch", "Relu"), ("else_branch", "Neg")):
            made = f"{name}{number}"
            node = helper.make_node(op_type, [value], [made])
            result = helper.make_tensor_value_info(made, TensorProto.FLOAT, (1, 4, 6, 6))
            branches[name] = helper.make_graph([node], made, [], [result])
        value = graph.turned(graph.add("If", "flag", **branches))
    graph.give(value)


def open_batch(graph: Graph, count: int) -> None:
    """Convolutions and Reshapes of an open batch."""
    graph.inputs[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 4, 6, 6))
    flat, image = graph.constant([0, 4, 36]), graph.constant([0, 4, 6, 6])
    chain(
        graph,
        count,
        lambda value: graph.conv(graph.add("Reshape", graph.add("Reshape", value, flat), image), own=False),
    )


def computed_shapes(graph: Graph, count: int) -> None:
    """Reshapes to shapes that are computed of the value itself."""
    tail, first, last = graph.constant([4, 36]), graph.constant([0]), graph.constant([1])
    image = graph.constant([4, 6, 6])

    def step(value: str) -> str:
        batch = graph.add("Slice", graph.add("Shape", value), first, last)
        flat = graph.add("Reshape", value, graph.add("Concat", batch, tail, axis=0))
        return graph.add("Relu", graph.add("Reshape", flat, graph.add("Concat", batch, image, axis=0)))

    graph.inputs[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("batch", 4, 6, 6))
    chain(graph, count, step)


def quantized(graph: Graph, count: int) -> None:
    """Convolutions between QuantizeLinear and DequantizeLinear."""
    scale, zero = graph.constant(np.float32(0.05)), graph.constant(np.int8(3))
    kernel = graph.constant(np.full((4, 4, 1, 1), 7, np.int8))
    scales, zeros = graph.constant(np.full(4, 0.01, np.float32)), graph.constant(np.zeros(4, np.int8))

    def step(value: str) -> str:
        weights = graph.add("DequantizeLinear", kernel, scales, zeros, axis=0)
        real = graph.add("DequantizeLinear", value, scale, zero)
        return graph.add("QuantizeLinear", graph.add("Relu", graph.add("Conv", real, weights)), scale, zero)

    value = graph.add("QuantizeLinear", "x", scale, zero)
    while len(graph.nodes) < count:
        value = step(value)
    graph.give(graph.add("DequantizeLinear", value, scale, zero))


FAMILIES: dict[str, Callable[[Graph, int], None]] = {
    made.__name__: made
    for made in (
        relu, convolutions, reshapes, transposes, dense, ladder, attention, fan_out, turned_outputs, inputs, concat,
        split, ifs, open_batch, computed_shapes, quantized,
    )
}  # fmt: skip


def network(family: str, count: int) -> onnx.ModelProto:
    """A graph of a family."""
    if family == "residual":
        return residual_network(count)  # type: ignore[no-any-return]
    graph = Graph()
    FAMILIES[family](graph, count)
    return graph.model()


def spent(model: onnx.ModelProto, options: dict[str, str]) -> float | str:
    """Processor seconds of one conversion; why there is none, if so."""
    begun = time.process_time()
    try:
        relayout.convert(model, **options)
    except relayout.RelayoutError as error:
        return str(error).splitlines()[0][:60]
    return time.process_time() - begun


def least(model: onnx.ModelProto, options: dict[str, str]) -> float | str:
    """The less of two measurements, each in a process of its own."""
    found = []
    for _ in range(2):
        with get_context("fork").Pool(1) as pool:
            found.append(pool.apply(spent, (model, options)))
    return min(found) if all(isinstance(each, float) for each in found) else found[0]


def rows(sizes: list[int], families: Iterable[str], forms: Iterable[str]) -> Iterable[list[str]]:
    """The cells of each family."""
    for family in families:
        models = {count: network(family, count) for count in sizes}
        cells = [family.replace("_", " ")]
        for form in forms:
            found = [least(models[count], FORMS[form]) for count in sizes]
            told = [each if isinstance(each, str) else f"{each:.2f}" for each in found]
            first, last = found[0], found[-1]
            exponent = "–"
            if isinstance(first, float) and isinstance(last, float):
                exponent = f"{math.log(last / first) / math.log(sizes[-1] / sizes[0]):.2f}"
            cells += [*told, exponent]
        print(*cells, sep="\t", file=sys.stderr, flush=True)
        yield cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,8000")
    parser.add_argument("--of", default=",".join(("residual", *FAMILIES)))
    parser.add_argument("--forms", default=",".join(FORMS))
    arguments = parser.parse_args()
    sizes, forms = [int(size) for size in arguments.sizes.split(",")], arguments.forms.split(",")
    for form in forms:
        relayout.convert(network("residual", 60), **FORMS[form])  # imports, rules and schemas
    head = ["family", *(cell for form in forms for cell in (*(f"{form} {size:,}" for size in sizes), "exponent"))]
    print(table(head, list(rows(sizes, arguments.of.split(","), forms)), 0))


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src")]
    main()
