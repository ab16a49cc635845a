"""What ONNX Runtime's layout transformer leaves of a graph some nodes of which an execution provider claims for NHWC.

ONNX Runtime transforms layouts only for a provider that wants another one, and its wheel has none. `Provider` is one:
claiming_provider.c, made by the C compiler of the machine, claims the nodes that it is told and computes nothing. A
session with it runs the transformer, and saves what it made. In that model a claimed node is of a domain that no other
runtime knows; here it becomes a call of a model-local function, so that the model runs and Transposes can be counted.

Where no C compiler is, the transformer's way is repeated (`emulated`): a Transpose before input 0 and after output 0 of
every claimed node, then the optimizer of level 1. A claimed node is stood in for by a Resize of its image to the shape
that it gives, since that optimizer pushes nothing through a Resize and must know all operators; other inputs that are
computed become outputs. It lacks the transformer's own cost function, and so leaves more.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from counting import count_transposes
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

PROVIDER, REGISTERED = "ClaimingExecutionProvider", "claiming"
OWN_DOMAIN, CALLED_DOMAIN = "com.ms.internal.nhwc", "claimed"
PREFIX, COPIED = "claimed/", "_token_"
"""What the name of a claimed node begins with; what ONNX Runtime's name of its copy goes on with."""
Array = NDArray[Any]
Shapes = dict[str, tuple[int, list[int]]]


def session(
    model: onnx.ModelProto, level: str, path: Path | None = None, provider: Provider | None = None
) -> onnxruntime.InferenceSession:
    """A session of one thread that saves what it made of the model under `path`."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if path is not None:
        options.optimized_model_filepath = str(path)
    if provider is not None:
        options.add_provider_for_devices(provider.devices, {"prefix": PREFIX})
        return onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    return session(model, "ORT_DISABLE_ALL").run(None, feed)


def optimized(model: onnx.ModelProto, level: str, provider: Provider | None = None) -> onnx.ModelProto:
    """The model that a session saves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        session(model, level, path, provider)
        return onnx.load(path)


class Provider:
    """The execution provider of claiming_provider.c, in sessions of a level.

    Raises:
        OSError: there is no C compiler, or it fails.
    """

    def __init__(self, level: str) -> None:
        self.level = level
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise OSError("no C compiler")
        self._folder = tempfile.TemporaryDirectory()
        library = Path(self._folder.name) / "libclaiming.so"
        source = Path(__file__).with_name("claiming_provider.c")
        made = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", library, source], capture_output=True, text=True
        )
        if made.returncode:
            raise OSError(made.stderr.strip()[:500])
        onnxruntime.register_execution_provider_library(REGISTERED, str(library))
        self.devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == PROVIDER]
        if not self.devices:
            raise OSError(f"ONNX Runtime {onnxruntime.__version__} takes no such provider")

    def leaves(self, model: onnx.ModelProto, claimed: list[str], feed: dict[str, Array]) -> dict[str, Any]:
        """What the transformer leaves, how many nodes it converted, and by how much the result differs when run."""
        marked = onnx.ModelProto()
        marked.CopyFrom(model)
        places = {name: place for place, name in enumerate(claimed)}
        for node in marked.graph.node:
            node.name = f"{PREFIX}{places[node.output[0]]}" if node.output[0] in places else node.name
        made = optimized(marked, self.level, self)
        shapes = shapes_of(model, set(claimed), feed)
        converted = callable_nodes(made, {f"{PREFIX}{place}": len(shapes[name][1]) for name, place in places.items()})
        pairs = zip(run(model, feed), run(made, feed), strict=True)
        difference = max(apart(*pair) for pair in pairs)
        count, size = count_transposes(made, feed)
        return {"transposes": count, "bytes": size, "in_nhwc": converted, "difference": difference}


def callable_nodes(model: onnx.ModelProto, ranks: dict[str, int]) -> int:
    """Make calls of model-local functions of the nodes in ONNX Runtime's own domain; their number.

    Args:
        model: what a session saved; it is changed.
        ranks: claimed node -> rank of its image.
    """
    opsets = [each for each in model.opset_import if each.domain in ("", "ai.onnx")]
    found = [node for node in model.graph.node if node.domain == OWN_DOMAIN]
    for place, node in enumerate(found):
        body = body_of(node, ranks[node.name.rsplit(COPIED, 1)[0]])
        name, reads, gives = (
            f"{node.op_type}_{place}",
            [f"i{at}" for at in range(len(node.input))],
            list(body[-1].output),
        )
        gives += [f"o{at}" for at in range(1, len(node.output))]
        model.functions.append(helper.make_function(CALLED_DOMAIN, name, reads, gives, body, opsets))
        node.domain, node.op_type = CALLED_DOMAIN, name
        del node.attribute[:]
    if found:
        model.opset_import.append(helper.make_opsetid(CALLED_DOMAIN, 1))
    return len(found)


def body_of(node: onnx.NodeProto, rank: int) -> list[onnx.NodeProto]:
    """The standard's operator between Transposes; ONNX Runtime writes a Resize anew, for the order that it has."""
    own = onnx.NodeProto()
    own.CopyFrom(node)
    own.domain, own.input[:] = "", [f"i{at}" if name else "" for at, name in enumerate(node.input)]
    own.output[:] = [f"o{at}" for at in range(len(node.output))]
    if node.op_type == "Resize":
        return [own]
    own.input[0], own.output[0] = "x", "y"
    last, first = orders(rank)
    before = helper.make_node("Transpose", ["i0"], ["x"], perm=first)
    return [before, own, helper.make_node("Transpose", ["y"], ["o0"], perm=last)]


def orders(rank: int) -> tuple[list[int], list[int]]:
    """The perms from channels first to channels last, and back."""
    return [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]


def apart(want: Array, got: Array) -> float:
    """The largest difference, relative to the largest value."""
    if want.dtype.kind not in "fiu" or not want.size:
        return float(not np.array_equal(want, got))
    scale = float(np.abs(want.astype(np.float64)).max()) or 1.0
    return float(np.abs(want.astype(np.float64) - got.astype(np.float64)).max()) / scale


def emulated(model: onnx.ModelProto, claimed: list[str], feed: dict[str, Array]) -> dict[str, Any]:
    """What ONNX Runtime's way leaves, repeated without a provider."""
    made = optimized(wrap(model, set(claimed), feed), "ORT_ENABLE_BASIC")
    standing = sum(node.op_type == "Resize" and node.name.startswith(PREFIX) for node in made.graph.node)
    if standing != len(claimed):
        raise ValueError(f"{standing} of {len(claimed)} claimed nodes are left: the optimizer took some away")
    count, size = count_transposes(made, feed)
    return {"transposes": count, "bytes": size}


def wrap(model: onnx.ModelProto, claimed: set[str], feed: dict[str, Array]) -> onnx.ModelProto:
    """Every claimed node between two Transposes, a Resize standing in for it."""
    wrapped = onnx.ModelProto()
    wrapped.CopyFrom(model)
    shapes = shapes_of(model, claimed, feed)
    constants = {tensor.name for tensor in wrapped.graph.initializer} | {""}
    computed = {value.name for value in wrapped.graph.output}
    nodes = list(wrapped.graph.node)
    del wrapped.graph.node[:]
    for node in nodes:
        if node.op_type == "Constant":
            constants.update(node.output)
        if node.output[0] not in claimed:
            wrapped.graph.node.append(node)
            continue
        wrapped.graph.node.extend(standing_in(node, shapes, wrapped.graph))
        for name in node.input[1:]:
            if name not in constants and name not in computed:
                computed.add(name)
                wrapped.graph.output.append(helper.make_tensor_value_info(name, *shapes[name]))
    return wrapped


def standing_in(node: onnx.NodeProto, shapes: Shapes, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Transpose, Resize, Transpose in a node's place."""
    (read, _), (given, shape) = shapes[node.input[0]], shapes[node.output[0]]
    rank, stem = len(shape), f"{PREFIX}{node.output[0]}"
    last, first = orders(rank)
    sizes = [shape[axis] for axis in last]
    graph.initializer.append(helper.make_tensor(f"{stem}/sizes", TensorProto.INT64, [rank], sizes))
    read_by = [f"{stem}/x", "", "", f"{stem}/sizes"]
    own = -0.001 * len(graph.initializer)  # without use, and no two are alike: else they would become one node
    resized = [node.output[0] if read == given else f"{stem}/cast"]
    made = [
        helper.make_node("Transpose", [node.input[0]], [f"{stem}/x"], perm=last),
        helper.make_node("Resize", read_by, [f"{stem}/y"], name=stem, mode="nearest", cubic_coeff_a=own),
        helper.make_node("Transpose", [f"{stem}/y"], resized, perm=first),
    ]
    if read != given:
        made.append(helper.make_node("Cast", resized, [node.output[0]], to=given))
    return made


def shapes_of(model: onnx.ModelProto, claimed: set[str], feed: dict[str, Array]) -> Shapes:
    """Element type and extents, in a run, of what claimed nodes read and give."""
    nodes = [node for node in model.graph.node if node.output[0] in claimed]
    names = list(dict.fromkeys(name for node in nodes for name in (*node.input, node.output[0]) if name))
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    kept = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in names}
    names = [name for name in names if name not in kept and name not in feed]
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    arrays = {**kept, **feed, **dict(zip(names, run(watched, feed), strict=True))} if names else {**kept, **feed}
    return {name: (helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)) for name, array in arrays.items()}
