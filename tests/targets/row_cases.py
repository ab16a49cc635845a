"""Nodes for the rows of tables: the cases of the operators' rules, and those that only tables tell apart."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir

from relayout import pipeline
from relayout.rules import Operator
from rules.cases import cases as of_rules
from rules.cases.making import f, i, ints, positive
from rules.law import Array, Case
from targets.unit_cases import UnitCase, unit_cases

IMAGE = (2, 6, 9, 8)
HALF = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
FLOOR = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def of_tables() -> Iterator[Case]:
    image = f(*IMAGE)
    yield Case("Conv", {"x": image, "w": f(6, 1, 3, 2), "b": f(6)}, ("w", "b"), {"group": 6, "dilations": [2, 1]})
    yield Case("Conv", {"x": f(2, 20, 9, 8), "w": f(6, 20, 3, 2)}, ("w",))
    yield Case("MaxPool", {"x": image}, attributes={"kernel_shape": [3, 2]})
    yield Case("AveragePool", {"x": image}, attributes={"kernel_shape": [3, 2], "auto_pad": "SAME_UPPER"})
    for attributes in (HALF, FLOOR):
        yield Case("Resize", {"x": image, "r": None, "c": None, "s": i(2, 6, 18, 16)}, ("s",), attributes)
    low, high = np.array(0, np.float32), np.array(6, np.float32)
    yield Case("Clip", {"x": f(2, 3, 4, 6), "a": low, "b": high}, ("a", "b"))
    yield Case("Gemm", {"x": f(3, 4), "w": f(4, 5), "b": f(5)}, ("w", "b"))
    yield Case("MatMul", {"x": f(3, 4), "w": f(4, 5)}, ("w",))
    yield Case("PRelu", {"x": image, "s": f(6, 1, 1)}, ("s",))
    yield Case("Softmax", {"x": image}, attributes={"axis": 3})
    yield Case("LogSoftmax", {"x": image}, attributes={"axis": -1})
    yield Case("Pad", {"x": image, "p": i(0, 0, 1, 2, 0, 0, 0, 1)}, ("p",))
    yield Case("Reshape", {"x": image, "s": i(2, 54, 8)}, ("s",))
    yield Case("Flatten", {"x": image})
    yield Case("Transpose", {"x": image}, attributes={"perm": [0, 2, 1, 3]})
    yield Case("Squeeze", {"x": f(2, 1, 4), "a": i(1)}, ("a",))
    yield Case("Unsqueeze", {"x": f(2, 3, 4), "a": i(1)}, ("a",))
    yield Case("QuantizeLinear", {"x": image, "s": positive(), "z": np.array(0, np.int8)}, ("s", "z"))
    yield Case(
        "DequantizeLinear", {"x": ints(*IMAGE, dtype=np.int8), "s": positive(), "z": np.array(0, np.int8)}, ("s", "z")
    )
    yield from beyond_limits(image)
    yield from in_blocks()
    yield from without_rules()
    for kernel, group in (((4, 6, 3, 2), 1), ((6, 1, 3, 2), 6), ((4, 3, 3, 2), 2)):
        given = convolved(kernel)
        yield Case("QLinearConv", given, tuple(name for name in given if name != "x"), {"group": group})


def without_rules() -> Iterator[Case]:
    """Nodes of operators whose rules say nothing of layouts, so that the rules have no cases of them."""
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [2, 2, 3, 3]]], np.float32)
    scores = np.array([[[0.9, 0.8, 0.7]]], np.float32)
    most, least = np.array([2]), np.array([0.5], np.float32)
    given = {"b": boxes, "s": scores, "n": most, "o": least, "t": np.array([0], np.float32)}
    yield Case("NonMaxSuppression", given, ("n", "o", "t"))
    yield Case("NonZero", {"x": np.array([[0, 2, 0], [3, 0, 4]], np.float32)})
    yield Case("Range", {"a": np.array(2), "b": np.array(9), "c": np.array(3)})
    yield Case("STFT", {"x": f(2, 40, 1), "s": np.array(4), "w": None, "l": np.array(16)}, ("s", "l"))
    yield Case("Identity", {"x": f(2, 3)})
    yield Case("Constant", {}, attributes={"value": onnx.numpy_helper.from_array(f(2, 3))})
    branch = onnx.parser.parse_graph("branch () => (float[2] y) <float[2] y = {1, 2}> {}")
    yield Case("If", {"c": np.array(True)}, attributes={"then_branch": branch, "else_branch": branch})
    body = onnx.parser.parse_graph(
        "body (int64 i, bool go, float[2, 3] x) => (bool on, float[2, 3] y) { on = Identity(go)  y = Add(x, x) }"
    )
    yield Case("Loop", {"n": np.array(3), "go": np.array(True), "x": f(2, 3)}, ("n", "go"), {"body": body})


def in_blocks() -> Iterator[Case]:
    """Nodes whose channels fall into blocks of 8 and of 16."""
    image = f(2, 32, 9, 8)
    for c, kernel, group in ((32, (16, 32, 3, 2), 1), (32, (32, 1, 3, 2), 32), (3, (16, 3, 3, 2), 1)):
        given = {"x": f(2, c, 9, 8), "w": f(*kernel), "b": f(kernel[0])}
        yield Case("Conv", given, ("w", "b"), {"group": group})
        fused = {"group": group, "activation": "Relu"}
        yield Case("FusedConv", {**given, "z": f(2, kernel[0], 7, 7)}, ("w", "b"), fused, domain="com.microsoft")
    window = {"kernel_shape": [3, 2]}
    yield Case("MaxPool", {"x": image}, attributes=window)
    yield Case("AveragePool", {"x": image}, attributes=window)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield Case(op, {"x": image})
    given = {"x": image, "w": f(16, 32, 3, 2), "b": f(16), "z": f(2, 16, 7, 7)}
    yield Case("FusedConv", given, ("w",), domain="com.microsoft")
    yield Case("FusedConv", given, ("b",), domain="com.microsoft")


def beyond_limits(image: Array) -> Iterator[Case]:
    """Nodes that some limit of some table refuses, and that the rules' cases do not have."""
    yield Case("Conv", {"x": image, "w": f(4, 6, 3, 2)}, ("w",), dynamic=True)
    yield Case("MaxPool", {"x": image}, attributes={"kernel_shape": [1, 1]})
    window = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    for op in ("MaxPool", "AveragePool"):
        yield Case(op, {"x": image}, attributes={**window, "ceil_mode": 1})
    yield Case("AveragePool", {"x": image}, attributes={**window, "count_include_pad": 1})
    sizes = i(2, 6, 5, 4)
    yield Case("Resize", {"x": image, "r": None, "c": None, "s": sizes}, ("s",), {**HALF, "antialias": 1})
    yield Case("Resize", {"x": image, "r": None, "c": None, "s": i(2, 6, 18, 16)}, ("s",), {"mode": "cubic"})
    yield Case("PRelu", {"x": image, "s": f(6, 1, 1)})
    parameters = {"s": positive(6), "b": f(6), "m": f(6), "v": positive(6)}
    given = {"x": image, **parameters}
    yield Case("BatchNormalization", given, tuple(parameters), {"training_mode": 1}, outputs=3)
    yield Case("Reshape", {"x": image, "s": i(2, 54, 8)})
    yield Case("ReduceMean", {"x": image, "a": i(2)})


def convolved(kernel: tuple[int, ...]) -> dict[str, Array | None]:
    """The inputs of a QLinearConv of bytes."""
    zero, scale = np.array(3, np.uint8), np.array(0.02, np.float32)
    x = ints(*IMAGE, dtype=np.uint8)
    w = ints(*kernel, dtype=np.uint8)
    return {"x": x, "xs": scale, "xz": zero, "w": w, "ws": scale, "wz": zero, "ys": scale, "yz": zero}


@cache
def real_cases() -> tuple[Case, ...]:
    """Cases of one node each; those that put axes together from pieces have a Reshape before it, and are left out."""
    return (*of_tables(), *(case for case in of_rules() if not case.split))


@cache
def cases() -> tuple[Case | UnitCase, ...]:
    """Cases of one node, and those of a quantized unit."""
    return (*real_cases(), *unit_cases())


@cache
def prepared(case_number: int) -> tuple[onnx.ModelProto, dict[str, Array], Operator]:
    """A case's model, what it is fed, and its node as tables see it: of a quantized unit the operator."""
    case = cases()[case_number]
    model, feed = case.prepared()
    graph = pipeline.read(model)
    index = -1 if isinstance(case, Case) else next(at for at, node in enumerate(graph.graph) if node.name == "node")
    return model, feed, operator(graph, index)


def operator(model: ir.Model, index: int = -1) -> Operator:
    """A node of a model, as the engine gives it to a target."""
    node = model.graph[index]

    def shape(value: ir.Value | None) -> tuple[int | str, ...] | None:
        if value is None or value.shape is None:
            return None
        return tuple(dim if isinstance(dim, int) else str(dim) for dim in value.shape)

    version = model.opset_imports.get(node.domain, 1)
    return Operator(node, version, tuple(map(shape, node.inputs)), tuple(map(shape, node.outputs)))
