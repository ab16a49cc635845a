"""Processor time of `optimize` by stage on large graphs, beside onnx-ir; and its memory on a 10 GB model.

    python bench/scale.py [--out DIRECTORY] [--sizes 1000,10000,50000,200000] [--gigabytes 10]

A graph is a residual network with a Transpose at every sixth node. The large model's weights lie in a sparse file of
external data; every kernel is re-laid, since a channel shuffle goes into it. Each measurement runs in a process of its
own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PERM = (0, 2, 3, 1)
EXTENTS = (3, 4, 5)
WIDTH = 8192
"""Channels of the large model: each kernel has 256 MiB."""


def residual_network(count: int) -> Any:
    """`count` nodes in blocks of six: Transpose, Relu, Conv, Sigmoid, Add, Tanh; every third has Neg instead of Conv.

    The Add reads the end of the last block of equal shape, three blocks back, or the Transpose.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    shape, nodes, ends = (2, *EXTENTS), [], ["x"]
    kernels = [numpy_helper.from_array(np.ones((c, c, 1, 1), np.float32), f"k{c}") for c in EXTENTS]
    for block in range(count // 6):
        shape = tuple(shape[axis] for axis in PERM)
        values = [f"b{block}_{place}" for place in range(6)]
        inner = ("Conv", [values[1], f"k{shape[1]}"], {}) if block % 3 else ("Neg", [values[1]], {})
        steps = [
            ("Transpose", [ends[-1]], {"perm": PERM}),
            ("Relu", [values[0]], {}),
            inner,
            ("Sigmoid", [values[2]], {}),
            ("Add", [values[3], ends[-3] if block > 1 else values[0]], {}),
            ("Tanh", [values[4]], {}),
        ]
        nodes += [
            helper.make_node(op, read, [value], f"{value}_{op}", **attributes)
            for value, (op, read, attributes) in zip(values, steps, strict=True)
        ]
        ends.append(values[-1])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, *EXTENTS))]
    outputs = [helper.make_tensor_value_info(ends[-1], TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "residual", inputs, outputs, kernels)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def large_model(path: Path, gigabytes: float) -> int:
    """Shuffles and dense convolutions; returns the bytes of the weights, which take no room on the disk."""
    from onnx import StringStringEntryProto, TensorProto, helper, save

    size = 4 * WIDTH * WIDTH
    count = max(1, round(gigabytes * 1e9 / size))
    data = path.with_name(path.name + ".data")
    with data.open("wb") as file:
        file.truncate(count * size)
    shapes = [helper.make_tensor(name, TensorProto.INT64, [len(dims)], dims) for name, dims in SHUFFLE.items()]
    kernels, nodes, given = [], [], "x"
    for number in range(count):
        kernel = TensorProto(name=f"k{number}", dims=[WIDTH, WIDTH, 1, 1], data_type=TensorProto.FLOAT)
        kernel.data_location = TensorProto.EXTERNAL
        for key, value in (("location", data.name), ("offset", number * size), ("length", size)):
            kernel.external_data.append(StringStringEntryProto(key=key, value=str(value)))
        kernels.append(kernel)
        nodes += [
            helper.make_node("Reshape", [given, "split"], [f"a{number}"], f"split{number}"),
            helper.make_node("Transpose", [f"a{number}"], [f"b{number}"], f"shuffle{number}", perm=[0, 2, 1, 3, 4]),
            helper.make_node("Reshape", [f"b{number}", "joined"], [f"c{number}"], f"join{number}"),
            helper.make_node("Conv", [f"c{number}", f"k{number}"], [f"d{number}"], f"conv{number}"),
            helper.make_node("Relu", [f"d{number}"], [f"e{number}"], f"relu{number}"),
        ]
        given = f"e{number}"
    shape = [1, WIDTH, 2, 3]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(given, TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "large", inputs, outputs, [*shapes, *kernels])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return count * size


SHUFFLE = {"split": [1, 4, WIDTH // 4, 2, 3], "joined": [1, WIDTH, 2, 3]}


# What one process measures


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Stages:
    """Processor seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, stage: str, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        begun = time.process_time()
        found = action(*arguments, **options)
        self.seconds[stage] = self.seconds.get(stage, 0) + time.process_time() - begun
        return found


def staged(source: str, target: str) -> dict[str, Any]:
    """`optimize`, one stage after the other."""
    import gc

    import highspy  # noqa: F401  (imports are not counted)

    from relayout.formats.onnx import check, complete, read, write
    from relayout.infer import build, candidates, planning
    from relayout.rewrite import apply

    gc.disable()  # as the pipeline does
    stages = Stages()
    model = stages.run("read", read, Path(source))
    stages.run("complete", complete, model)
    sites = stages.run("build", build, model)
    found = stages.run("candidates", candidates.candidates, sites)
    formulation = stages.run("formulate", planning.formulate, sites, among=found)
    kept = planning.formulate, planning.solve
    planning.formulate = lambda *_, **__: formulation
    planning.solve = lambda *given, **options: stages.run("solve", kept[1], *given, **options)
    plan = stages.run("certify", planning.plan, sites)
    stages.seconds["certify"] -= stages.seconds["solve"]
    planning.formulate, planning.solve = kept
    result = stages.run("apply", apply, model, plan)
    stages.run("check", check, result)
    stages.run("write", write, result, target)
    moved = {"transposes": [plan.source_count, len(plan.crossings)], "proved": plan.proved}
    return {"seconds": stages.seconds, "peak_mb": peak_mb(), **moved}


def whole(source: str, target: str) -> dict[str, Any]:
    import highspy  # noqa: F401  (imports are not counted)

    import relayout
    import relayout.formats.onnx
    import relayout.pipeline

    begun = time.process_time()
    result = relayout.optimize(source)
    result.save(target)
    report = result.report
    moved = {"transposes": [report.source_transposes, report.transposes], "proved": report.proved}
    return {"seconds": {"total": time.process_time() - begun}, "peak_mb": peak_mb(), **moved}


def read_and_write(source: str, target: str) -> dict[str, Any]:
    import onnx_ir

    begun = time.process_time()
    onnx_ir.save(onnx_ir.load(source), target)
    return {"seconds": {"total": time.process_time() - begun}, "peak_mb": peak_mb()}


MEASURES = {"staged": staged, "whole": whole, "onnx-ir": read_and_write}


# The table


def measured(kind: str, source: Path, target: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--measure", kind, str(source), str(target)], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{kind}: {done.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def row(count: int, scratch: Path) -> dict[str, Any]:
    from onnx import save

    source = scratch / f"{count}.onnx"
    save(residual_network(count), source)
    found = {kind: measured(kind, source, scratch / "out.onnx") for kind in MEASURES}
    source.unlink()
    return {"nodes": count} | found


def table(rows: list[dict[str, Any]]) -> str:
    stages = list(rows[0]["staged"]["seconds"])
    head = ["nodes", *stages, "total s", "peak MB", "onnx-ir s", "times onnx-ir", "Transposes", "proved"]
    lines = [head, ["---:"] * len(head)]
    for item in rows:
        total, base = item["whole"]["seconds"]["total"], item["onnx-ir"]["seconds"]["total"]
        lines.append(
            [
                f"{item['nodes']:,}",
                *(f"{item['staged']['seconds'][stage]:.2f}" for stage in stages),
                f"{total:.2f}",
                f"{item['whole']['peak_mb']:.0f}",
                f"{base:.2f}",
                f"{total / base:.1f}",
                " → ".join(f"{number:,}" for number in item["whole"]["transposes"]),
                "yes" if item["whole"]["proved"] else "no",
            ]
        )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="1000,10000,50000,200000")
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of the large model; 0 leaves it out")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    if options.measure:
        kind, source, target = options.measure
        print(json.dumps(MEASURES[kind](source, target)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out) as folder:
        scratch = Path(folder)
        rows = [row(int(size), scratch) for size in options.sizes.split(",") if size]
        text = table(rows) + "\n" if rows else ""
        found: dict[str, Any] = {"rows": rows}
        if options.gigabytes:
            size = large_model(scratch / "large.onnx", options.gigabytes)
            found["large"] = measured("whole", scratch / "large.onnx", scratch / "out.onnx") | {"bytes": size}
            took, peak = found["large"]["seconds"]["total"], found["large"]["peak_mb"]
            moved = " → ".join(map(str, found["large"]["transposes"]))
            text += f"\n{size / 1e9:.1f} GB of weights: {took:.0f} s, peak {peak:.0f} MB, Transposes {moved}\n"
    (options.out / "scale.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (options.out / "scale.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
