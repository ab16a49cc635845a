"""Count what an ONNX model transposes in one run, from the values that the run gives: one counter for every tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper

Array = NDArray[Any]
REARRANGE = ("DepthToSpace", "SpaceToDepth")
"""A Transpose between two Reshapes under another name."""


def run_time_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes that depend on an input of the graph."""
    constants = {tensor.name for tensor in graph.initializer} | {""}
    for node in graph.node:
        if all(name in constants for name in node.input) and not any(a.HasField("g") for a in node.attribute):
            constants.update(node.output)
        else:
            yield node


def run_time_transposes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The Transposes of values that depend on an input of the graph, and what is a Transpose by another name."""
    moving = ("Transpose", *REARRANGE)
    return [node for node in run_time_nodes(graph) if node.op_type in moving and node.domain in ("", "ai.onnx")]


def moves(node: onnx.NodeProto, stored: Array) -> bool:
    """Whether a Transpose moves more than axes of size 1; `stored` is what it gave."""
    if node.op_type in REARRANGE:
        return stored.size > 0
    perms = [list(attribute.ints) for attribute in node.attribute if attribute.name == "perm"]
    perm = perms[0] if perms else list(reversed(range(stored.ndim)))
    large = [axis for axis, extent in zip(perm, stored.shape, strict=True) if extent != 1]
    return large != sorted(large)


VIEWS = ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")


def units(graph: onnx.GraphProto) -> dict[str, int]:
    """What a Transpose gives -> bytes of an element, where it moves integers: in a quantized unit of its own.

    That is between a DequantizeLinear and QuantizeLinears of the same scale and zero point, beside views alone.
    """
    maker = {name: node for node in graph.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {output.name: [onnx.NodeProto()] for output in graph.output}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    tensors = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}

    def ends(name: str) -> list[onnx.NodeProto]:
        behind = readers.get(name, [])
        return [e for node in behind for e in (ends(node.output[0]) if node.op_type in VIEWS else [node])]

    found = {}
    for node in (node for node in graph.node if node.op_type == "Transpose"):
        first = maker.get(node.input[0])
        while first is not None and first.op_type in VIEWS:
            first = maker.get(first.input[0])
        if first is None or first.op_type != "DequantizeLinear" or not {*first.input[1:]} <= tensors.keys():
            continue
        said = [tensors[name] for name in first.input[1:]]
        if len(said) == 2 and all(
            end.op_type == "QuantizeLinear"
            and len(end.input) == 3
            and all(name in tensors for name in end.input[1:])
            and all(
                a.dtype == tensors[b].dtype and np.array_equal(a, tensors[b])
                for a, b in zip(said, end.input[1:], strict=True)
            )
            for end in ends(node.output[0])
        ):
            found[node.output[0]] = said[1].itemsize
    return found


def in_full(model: onnx.ModelProto | str) -> str | bytes:
    """What to load: with kernels of uint8 where products of int8 saturate (x64 without VNNI), whichever tool wrote it.

    A peer's environment has no relayout; what runs there loads the model as it is.
    """
    given = model if isinstance(model, str) else model.SerializeToString()
    try:
        import onnx_ir

        from relayout.lowering.int8_weights_to_uint8 import unsigned_kernels
        from relayout.verification.ort import has_products, saturates
    except ImportError:
        return given
    made = onnx_ir.load(model) if isinstance(model, str) else onnx_ir.from_proto(model)
    if not (has_products(made) and saturates(onnxruntime.InferenceSession) and unsigned_kernels(made)):
        return given
    return onnx_ir.to_proto(made).SerializeToString()


def session_of(model: onnx.ModelProto | str, *, optimized: bool | None = None) -> onnxruntime.InferenceSession:
    """A session of one thread; a model in memory runs as it is written, a file fully optimized."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if optimized is None:
        optimized = isinstance(model, str)
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(in_full(model), options, providers=["CPUExecutionProvider"])


def count_transposes(model: onnx.ModelProto, fed: dict[str, Array]) -> tuple[int, int]:
    """How many Transposes move data in one run, and how many bytes they give. The model gets further outputs.

    A Transpose in a quantized unit of its own moves integers: runtimes that know such units run it so.

    One in the body of a Loop or Scan is one, and its bytes count in each trip.
    """
    within = list(stacked(model.graph))
    nodes, integers = run_time_transposes(model.graph), units(model.graph)
    known = {output.name for output in model.graph.output}
    for node in nodes:
        if node.output[0] not in known:
            model.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
    names = [node.output[0] for node in nodes] + [name for _, name in within]
    given = [np.asarray(array) for array in session_of(model).run(names, fed)] if names else []
    pairs = zip(nodes, given, strict=False)
    moving = [a.size * integers.get(node.output[0], a.itemsize) for node, a in pairs if moves(node, a)]
    trips = zip(within, given[len(nodes) :], strict=True)
    moving += [array.nbytes for (node, _), array in trips if len(array) and moves(node, array[0])]
    return len(moving), sum(moving)


def stacked(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    """The Transposes of bodies of loops, each with an output of the graph, made here, that stacks what it gives."""
    constants = {tensor.name for tensor in graph.initializer}
    for number, node in enumerate(graph.node):
        for attribute in node.attribute if node.op_type in ("Loop", "Scan") else ():
            if not attribute.HasField("g"):
                continue
            body = attribute.g
            fixed = [tensor.name for tensor in body.initializer]
            body.initializer.extend(onnx.TensorProto(name=name) for name in constants)  # seen as such, from outside
            inner = run_time_transposes(body)
            del body.initializer[len(fixed) :]
            for place, each in enumerate(inner):
                name = f"stacked_{number}_{place}"
                body.node.append(onnx.helper.make_node("Identity", [each.output[0]], [f"{name}_slice"]))
                body.output.append(onnx.ValueInfoProto(name=f"{name}_slice"))
                node.output.append(name)
                graph.output.append(onnx.ValueInfoProto(name=name))
                yield each, name


def first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
