"""What is transposed when a target claims a part of a graph for NHWC: relayout beside ONNX Runtime and TVM.

    python bench/claiming.py MODELS ... [--out DIR] [--tvm PYTHON] [--seed N]

MODELS are `.onnx` files, or folders of them. Three targets claim: only convolutions; every operator that ONNX Runtime's
layout transformer calls layout-sensitive; a random half of the convolutions. DIR gets claiming.json and claiming.md.

* relayout: a target with those claims; the result is run beside its source.
* ONNX Runtime: its layout transformer needs an execution provider that wants NHWC, which its wheel has not. Its own way
  is repeated: a Transpose before input 0 and after output 0 of every claimed node, then its level-1 optimizer. The
  claimed node is stood in for by a Resize of its image to the shape that it gives, since the optimizer pushes nothing
  through a Resize at level 1 and must know all operators; other inputs that are computed become outputs. What differs:
  the transformer's second cost function, which always pushes a Transpose between NCHW and NHWC.
* TVM: ConvertLayout of Relax, claimed convolutions asked for in NHWC with OHWI kernels; other operators cannot be
  asked for and follow, so it is compared with relayout for a target that runs them in both orders. PYTHON is that of
  an environment with apache-tvm; models that it cannot import are said.

Counted are Transposes of values that depend on an input and that move more than axes of extent 1; bytes are those of
the values that they give in a run (TVM: of its types), with a dynamic extent of an input taken as 1.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
from judge import count_transposes
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, version_converter
from processes import models, record
from tables import table

import relayout
from relayout.targets import Condition, Kernel, Target

CONVOLUTIONS = ("Conv", "ConvTranspose")
_NAMES = """
    Conv ConvTranspose ConvInteger QLinearConv BatchNormalization InstanceNormalization LRN AveragePool LpPool MaxPool
    MaxUnpool GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample DepthToSpace SpaceToDepth Resize
"""
SENSITIVE = tuple(_NAMES.split())
"""What ONNX Runtime's layout transformer converts, of the standard's operators."""
FOLLOWING = (
    "AveragePool MaxPool GlobalAveragePool GlobalMaxPool BatchNormalization InstanceNormalization"
    " GroupNormalization Resize"
)
"""What TVM's ConvertLayout runs in the order that it finds."""
RESIZE_TO_SIZES = 13
"""The opset that older models are brought to, so that ONNX Runtime's stand-in exists."""
SIDES = ("relayout", "onnxruntime", "following", "tvm")
Array = NDArray[Any]
Shapes = dict[str, tuple[int, list[int]]]


def nodes_of(model: onnx.ModelProto, op_types: Iterable[str]) -> list[str]:
    """Nodes of the main graph whose image depends on an input, by the name of their first output, in order."""
    wanted = set(op_types)
    constants = {tensor.name for tensor in model.graph.initializer} | {""}
    found = []
    for node in model.graph.node:
        if all(name in constants for name in node.input) and not any(a.HasField("g") for a in node.attribute):
            constants.update(node.output)
        elif node.op_type in wanted and node.domain in ("", "ai.onnx") and node.input[0] not in constants:
            found.append(node.output[0])
    return found


def claims(model: onnx.ModelProto, seed: int) -> dict[str, list[str]]:
    """Claim -> claimed nodes."""
    convolutions = nodes_of(model, CONVOLUTIONS)
    half = random.Random(seed).sample(convolutions, len(convolutions) // 2)
    return {
        "convolutions": convolutions,
        "all layout-sensitive": nodes_of(model, SENSITIVE),
        "half of the convolutions": [name for name in convolutions if name in half],
    }


def target_of(claimed: Iterable[str], *, following: bool) -> Target:
    """A target that runs certain nodes in NHWC, and, where asked for, those that TVM lets follow in either order."""
    names = set(claimed)
    mine = Condition("a node that is claimed", lambda operator: operator.node.outputs[0].name in names)
    other = Condition("a node that is not claimed", lambda operator: not mine.holds(operator))
    rows = [Kernel(" ".join(SENSITIVE), ("NHWC",), when=mine)]
    if following:
        rows.append(Kernel(FOLLOWING, ("NHWC", "NCHW"), when=other))
    return Target("bench", "a backend that claims some nodes", tuple(rows))


def by_relayout(model: onnx.ModelProto, claimed: list[str], following: bool = False) -> dict[str, Any]:
    """What relayout leaves, with its proof, and by how much the result differs when it is run."""
    began = perf_counter()
    result = relayout.convert(model, target=target_of(claimed, following=following))
    seconds = perf_counter() - began
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    converted = sum(node.domain.startswith("relayout.") for node in proto.graph.node)
    feed = feed_of(model)
    difference = max(apart(*pair) for pair in zip(run(model, feed), run(proto, feed), strict=True))
    count, size = count_transposes(proto, feed)
    return {
        "transposes": count,
        "bytes": size,
        "proved": result.report.proved,
        "in_nhwc": converted,
        "difference": float(difference),
        "seconds": round(seconds, 2),
    }


def apart(want: Array, got: Array) -> float:
    """The largest difference, relative to the largest value."""
    if want.dtype.kind not in "fiu" or not want.size:
        return float(not np.array_equal(want, got))
    scale = float(np.abs(want.astype(np.float64)).max()) or 1.0
    return float(np.abs(want.astype(np.float64) - got.astype(np.float64)).max()) / scale


def feed_of(model: onnx.ModelProto) -> dict[str, Array]:
    rng, feed = np.random.default_rng(0), {}
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        shape = [dim.dim_value or 1 for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        random_floats = dtype.kind == "f"
        feed[value.name] = (
            rng.normal(size=shape).astype(dtype) if random_floats else rng.integers(0, 2, shape).astype(dtype)
        )
    return feed


def session(model: onnx.ModelProto, level: str, path: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    if path is not None:
        options.optimized_model_filepath = str(path)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])


def run(model: onnx.ModelProto, feed: dict[str, Array]) -> list[Array]:
    return session(model, "ORT_DISABLE_ALL").run(None, feed)


def by_onnxruntime(model: onnx.ModelProto, claimed: list[str]) -> dict[str, Any]:
    """What ONNX Runtime's way leaves."""
    feed = feed_of(model)
    wrapped = wrap(model, set(claimed), feed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        session(wrapped, "ORT_ENABLE_BASIC", path)
        optimized = onnx.load(path)
    standing = sum(node.op_type == "Resize" and node.name.startswith("claimed/") for node in optimized.graph.node)
    if standing != len(claimed):
        raise ValueError(f"{standing} of {len(claimed)} claimed nodes are left: the optimizer took some away")
    count, size = count_transposes(optimized, feed)
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
    rank, stem = len(shape), f"claimed/{node.output[0]}"
    last, first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
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


def by_tvm(python: str, path: Path, model: onnx.ModelProto, claimed: list[str]) -> dict[str, Any]:
    """What TVM's ConvertLayout leaves."""
    convolutions = nodes_of(model, CONVOLUTIONS)
    places = ",".join(str(place) for place, name in enumerate(convolutions) if name in claimed)
    return _by_tvm(python, path, len(convolutions), places)


@cache
def _by_tvm(python: str, path: Path, convolutions: int, places: str) -> dict[str, Any]:
    script = Path(__file__).with_name("claiming_tvm.py")
    done = subprocess.run([python, str(script), str(path), places], capture_output=True, text=True, timeout=600)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or [f"exit code {done.returncode}"]
        raise ValueError(lines[-1].strip())
    told = json.loads(done.stdout.strip().splitlines()[-1])
    if told["convolutions"] != convolutions:
        raise ValueError(f"{told['convolutions']} of {convolutions} convolutions were imported")
    return {"transposes": told["left"][0], "bytes": told["left"][1]}


def attempt(what: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """A result, or why there is none."""
    try:
        return what(*given)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def measured(path: Path, python: str | None, seed: int) -> list[dict[str, Any]]:
    """One row a claim."""
    model = onnx.load(path)
    if next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")) < RESIZE_TO_SIZES:
        model = version_converter.convert_version(model, RESIZE_TO_SIZES)
    rows = []
    for claim, claimed in claims(model, seed).items():
        row: dict[str, Any] = {"model": path.stem, "claim": claim, "claimed": len(claimed)}
        row["relayout"] = attempt(by_relayout, model, claimed)
        row["onnxruntime"] = attempt(by_onnxruntime, model, claimed)
        if python:
            row["following"] = attempt(by_relayout, model, claimed, True)
            row["tvm"] = attempt(by_tvm, python, path, model, claimed)
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def cell(told: dict[str, Any] | None, claimed: int) -> str:
    if told is None:
        return ""
    if "refused" in told:
        return "refused"
    said = f"{told['transposes']} / {told['bytes'] / 1e6:.3f}"
    if not told.get("proved", True):
        said += " (not proved)"
    if told.get("in_nhwc", claimed) < claimed:
        said += f" ({told['in_nhwc']} of {claimed} in NHWC)"
    return said


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, its sums, and what was refused."""
    each = [
        [row["model"], row["claim"], str(row["claimed"]), *(cell(row.get(name), row["claimed"]) for name in SIDES)]
        for row in rows
    ]
    said = {
        f"{row['model']}, {name}: {row[name]['refused']}": None
        for row in rows
        for name in SIDES
        if "refused" in row.get(name, {})
    }
    first = ["model", "claim", "nodes", "relayout, T / MB", "ONNX Runtime's way", "relayout, pools follow", "TVM"]
    tables = [table(first, each, 2), "", sums(rows), ""]
    return "\n".join([*tables, *(f"* refused: {line}" for line in said)]) + "\n"


def sums(rows: list[dict[str, Any]]) -> str:
    """For each claim and peer: Transposes and megabytes over the models that both took."""
    lines = []
    for claim in dict.fromkeys(row["claim"] for row in rows):
        for own, peer in (SIDES[:2], SIDES[2:]):
            pairs = [(row[own], row[peer]) for row in rows if row["claim"] == claim and peer in row]
            both = [(ours, other) for ours, other in pairs if "bytes" in ours and "bytes" in other]
            totals = [
                f"{sum(one['transposes'] for one in side)} / {sum(one['bytes'] for one in side) / 1e6:.2f}"
                for side in zip(*both, strict=True)
            ]
            less = sum(ours["bytes"] < other["bytes"] for ours, other in both)
            more = sum(ours["bytes"] > other["bytes"] for ours, other in both)
            lines.append([claim, peer, str(len(both)), *(totals or ["", ""]), str(less), str(more)])
    head = ["claim", "beside", "models", "relayout, T / MB", "the other, T / MB", "ours is less on", "more on"]
    return table(head, lines, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--tvm", metavar="PYTHON")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for path in models(given.models, ".onnx"):
        rows += measured(path, given.tvm, given.seed)
        record(given.out, "claiming", rows, markdown(rows), sums(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
