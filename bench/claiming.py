"""What is transposed when a target claims a part of a graph for NHWC: relayout beside ONNX Runtime and TVM.

    python bench/claiming.py MODELS ... [--out DIR] [--tvm PYTHON] [--emulated] [--extended] [--seed N]

MODELS are `.onnx` files, or folders of them. Three targets claim: only convolutions; every operator that ONNX Runtime's
layout transformer calls layout-sensitive; a random half of the convolutions. DIR gets claiming.json and claiming.md.
All sides get the same graph: what ONNX Runtime's level 1 makes of the file without any claim.

* relayout: a target with those claims; the result is run beside its source.
* ONNX Runtime: its layout transformer, in a session with an execution provider that claims those nodes
  (claiming_onnxruntime.py); what it saves is run beside its source, too. Where there is no C compiler, its way is
  emulated, and the column says so; `--emulated` puts the emulation beside it. The session is at level 1. With
  `--extended` it is at level 2, where ONNX Runtime's own kernels also run a Resize that nobody claims in either order,
  and relayout's target says the same of the host.
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
from claiming_onnxruntime import Provider, apart, emulated, optimized, run
from counting import count_transposes
from numpy.typing import NDArray
from onnx import helper, version_converter
from processes import models, record
from tables import table

import relayout
from relayout.lowering.conditions import RESIZE_PLAIN, SPATIAL_ONLY, attribute
from relayout.rules import Written
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
    " GroupNormalization LRN Resize"
)
"""What TVM's ConvertLayout runs in the order that it finds; an LRN is made of such operators there."""
RESIZE_TO_SIZES = 13
"""The opset that older models are brought to, so that ONNX Runtime's stand-in exists."""
SIDES = {
    "relayout": "relayout, T / MB",
    "onnxruntime": "ONNX Runtime",
    "emulated": "ONNX Runtime's way, emulated",
    "following": "relayout, pools follow",
    "tvm": "TVM",
}
PAIRS = (("relayout", "onnxruntime"), ("relayout", "emulated"), ("following", "tvm"))
Array = NDArray[Any]


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


def target_of(claimed: Iterable[str], host: str = "") -> Target:
    """A target that runs certain nodes in NHWC; of others a host may run some in either order.

    Args:
        claimed: nodes, by the name of their first output.
        host: `TVM`, whose pools follow; `ONNX Runtime`, which has a Resize for both orders.
    """
    names = set(claimed)
    mine = Condition("a node that is claimed", lambda operator: operator.node.outputs[0].name in names)
    other = Condition("a node that is not claimed", lambda operator: not mine.holds(operator))
    rows = [Kernel(" ".join(SENSITIVE), ("NHWC",), when=mine)]
    if host == "TVM":
        rows.append(Kernel(FOLLOWING, ("NHWC", "NCHW"), when=other))
    if host == "ONNX Runtime":
        limits = (SPATIAL_ONLY, RESIZE_PLAIN, attribute("mode", ("nearest", "linear"), "nearest"))
        written = Written("", "Resize")
        rows.append(Kernel("Resize", ("NHWC", "NCHW"), (), (4,), limits, other, written=written))
    return Target("bench", "a backend that claims some nodes", tuple(rows))


def by_relayout(model: onnx.ModelProto, claimed: list[str], host: str = "") -> dict[str, Any]:
    """What relayout leaves, with its proof, and by how much the result differs when it is run."""
    began = perf_counter()
    result = relayout.convert(model, target=target_of(claimed, host))
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


def by_tvm(python: str, path: Path, model: onnx.ModelProto, claimed: list[str]) -> dict[str, Any]:
    """What TVM's ConvertLayout leaves of the model, which lies in `path`, too."""
    convolutions = nodes_of(model, CONVOLUTIONS)
    places = ",".join(str(place) for place, name in enumerate(convolutions) if name in claimed)
    return _by_tvm(python, path, len(convolutions), places)


@cache
def _by_tvm(python: str, path: Path, convolutions: int, places: str) -> dict[str, Any]:
    script = Path(__file__).with_name("claiming_tvm.py")
    done = subprocess.run([python, str(script), str(path), places], capture_output=True, text=True, timeout=600)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "Error" in line or line.startswith("tvm.error.")]
        lines = errors or [f"exit code {done.returncode}"]
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


def source_of(path: Path) -> onnx.ModelProto:
    """The graph that all sides get: what ONNX Runtime's level 1 makes of a file."""
    model = onnx.load(path)
    if next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")) < RESIZE_TO_SIZES:
        model = version_converter.convert_version(model, RESIZE_TO_SIZES)
    source = optimized(model, "ORT_ENABLE_BASIC")
    used = {node.domain for node in source.graph.node} | {"", "ai.onnx"}
    opsets = [each for each in source.opset_import if each.domain in used]
    del source.opset_import[:]
    source.opset_import.extend(opsets)
    return source


def one_of_each(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with dynamic extents of its inputs taken as 1."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_value = dim.dim_value or 1
    return fixed


def measured(path: Path, provider: Provider | None, given: argparse.Namespace) -> list[dict[str, Any]]:
    """One row a claim."""
    model = source_of(path)
    host = "ONNX Runtime" if given.extended else ""
    feed, rows = feed_of(model), []
    with tempfile.TemporaryDirectory() as folder:
        held = Path(folder) / "source.onnx"
        onnx.save(one_of_each(model), held)
        for claim, claimed in claims(model, given.seed).items():
            if not claimed:
                continue
            row: dict[str, Any] = {"model": path.stem, "claim": claim, "claimed": len(claimed)}
            row["relayout"] = attempt(by_relayout, model, claimed, host)
            if provider is not None:
                row["onnxruntime"] = attempt(provider.leaves, model, claimed, feed)
            if provider is None or given.emulated:
                row["emulated"] = attempt(emulated, model, claimed, feed)
            if given.tvm:
                row["following"] = attempt(by_relayout, model, claimed, "TVM")
                row["tvm"] = attempt(by_tvm, given.tvm, held, model, claimed)
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
    sides = [name for name in SIDES if any(name in row for row in rows)]
    each = [
        [row["model"], row["claim"], str(row["claimed"]), *(cell(row.get(name), row["claimed"]) for name in sides)]
        for row in rows
    ]
    said = {
        f"{row['model']}, {name}: {row[name]['refused']}": None
        for row in rows
        for name in sides
        if "refused" in row.get(name, {})
    }
    tables = [table(["model", "claim", "nodes", *(SIDES[name] for name in sides)], each, 2), "", sums(rows), ""]
    return "\n".join([*tables, *(f"* refused: {line}" for line in said)]) + "\n"


def sums(rows: list[dict[str, Any]]) -> str:
    """For each claim and peer: Transposes and megabytes over the models that both took."""
    lines = []
    for claim in dict.fromkeys(row["claim"] for row in rows):
        for own, peer in PAIRS:
            pairs = [(row[own], row[peer]) for row in rows if row["claim"] == claim and peer in row]
            if not pairs:
                continue
            both = [(ours, other) for ours, other in pairs if "bytes" in ours and "bytes" in other]
            totals = [
                f"{sum(one['transposes'] for one in side)} / {sum(one['bytes'] for one in side) / 1e6:.2f}"
                for side in zip(*both, strict=True)
            ]
            less = sum(ours["bytes"] < other["bytes"] for ours, other in both)
            more = sum(ours["bytes"] > other["bytes"] for ours, other in both)
            lines.append([claim, SIDES[peer], str(len(both)), *(totals or ["", ""]), str(less), str(more)])
    head = ["claim", "beside", "models", "relayout, T / MB", "the other, T / MB", "ours is less on", "more on"]
    return table(head, lines, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--tvm", metavar="PYTHON")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--extended", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    try:
        provider = Provider("ORT_ENABLE_EXTENDED" if given.extended else "ORT_ENABLE_BASIC")
    except OSError as error:
        print(f"ONNX Runtime's way is emulated: {error}", file=sys.stderr)
        provider = None
    rows: list[dict[str, Any]] = []
    for path in models(given.models, ".onnx"):
        rows += measured(path, provider, given)
        record(given.out, "claiming", rows, markdown(rows), sums(rows))
    print(markdown(rows))


if __name__ == "__main__":
    main()
