"""Processor time of `optimize` by stage as graphs grow, beside onnx-ir; its memory as weights grow; and both as a node
may run in more orders.

    python bench/scale.py [--out DIRECTORY] [--sizes 1000,10000,50000,200000,1000000] [--gigabytes 0.01,0.1,1,10]
                          [--orders 2,6,12,24,48] [--labels-of MODEL|FOLDER …]

An empty list leaves its part out. A graph is a residual network with a Transpose at every sixth node. A large model's
weights lie in a sparse file of external data; every kernel is re-laid, since a channel shuffle goes into it. A graph of
many orders is a chain of 1,000 Adds between inputs and outputs that are stored in as many. Each measurement runs in a
process of its own.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

from processes import answer, models, record
from tables import table

PERM = (0, 2, 3, 1)
EXTENTS = (3, 4, 5)
AGAIN, QUICK = 4, 50_000
"""How often a graph of at most so many nodes is measured again."""
WIDTH = 8192
"""Channels of a large model at most: each kernel has 256 MiB."""


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

    width = min(WIDTH, 4 * round(math.sqrt(gigabytes * 1e9 / 4) / 4))
    size = 4 * width * width
    count = max(1, round(gigabytes * 1e9 / size))
    data = path.with_name(path.name + ".data")
    with data.open("wb") as file:
        file.truncate(count * size)
    shuffle = {"split": [1, 4, width // 4, 2, 3], "joined": [1, width, 2, 3]}
    shapes = [helper.make_tensor(name, TensorProto.INT64, [len(dims)], dims) for name, dims in shuffle.items()]
    kernels, nodes, given = [], [], "x"
    for number in range(count):
        kernel = TensorProto(name=f"k{number}", dims=[width, width, 1, 1], data_type=TensorProto.FLOAT)
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
    shape = [1, width, 2, 3]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    outputs = [helper.make_tensor_value_info(given, TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "large", inputs, outputs, [*shapes, *kernels])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return count * size


ADDS, TOLD = 1000, 50
"""Nodes of a chain, and how often one of its values is an output."""
EXTENTS_OF_ORDERS = (2, 3, 4, 5, 6, 7)


def ordered_network(orders: int) -> Any:
    """A chain of Adds; what it reads, and every 50th value that it gives, is stored in one of so many orders.

    Which one is drawn with a fixed seed, so no single order suits all.
    """
    from onnx import TensorProto, helper

    draw = random.Random(0)
    axes = list(permutations(range(len(EXTENTS_OF_ORDERS))))
    perms = [axes[0], *draw.sample(axes[1:], orders - 1)]
    ends: dict[str, list[Any]] = {"in": [], "out": []}
    nodes = []

    def stated(kind: str, name: str, shape: Sequence[int]) -> None:
        ends[kind].append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    for number, perm in enumerate(perms):
        stated("in", f"x{number}", [EXTENTS_OF_ORDERS[axis] for axis in perm])
        back = [perm.index(axis) for axis in range(len(perm))]
        nodes.append(helper.make_node("Transpose", [f"x{number}"], [f"t{number}"], f"in{number}", perm=back))
    value = "t0"
    for step in range(ADDS):
        nodes.append(helper.make_node("Add", [value, f"t{draw.randrange(orders)}"], [f"v{step}"], f"add{step}"))
        value = f"v{step}"
        if step % TOLD == TOLD - 1:
            perm = draw.choice(perms)
            nodes.append(helper.make_node("Transpose", [value], [f"y{step}"], f"out{step}", perm=perm))
            stated("out", f"y{step}", [EXTENTS_OF_ORDERS[axis] for axis in perm])
    graph = helper.make_graph(nodes, "orders", ends["in"], ends["out"])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


# What one process measures


STAGES = {
    "read": "relayout.formats.onnx.reading:read",
    "complete": "relayout.formats.onnx.completing:complete",
    "build": "relayout.pipeline.planning:build",
    "candidates": "relayout.infer.formulation:candidates",
    "formulate": "relayout.infer.plans:formulate",
    "solve": "relayout.infer.plans:solve",
    "certify": "relayout.pipeline.planning:plan",
    "report": "relayout.pipeline.planning:report",
    "name": "relayout.pipeline.stages:Naming",
    "apply": "relayout.pipeline.stages:apply",
    "check": "relayout.formats.onnx.writing:check_parts",
    "write": "relayout.formats.onnx.writing:write",
}
"""Stage -> the function that it is, where the pipeline looks it up. A stage's time is without the stages inside it."""


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Stages:
    """Processor seconds by stage, each without those inside it; `other` is what no stage has."""

    def __init__(self) -> None:
        self.seconds = {"other": 0.0}
        self.running = ["other"]
        self.since = time.process_time()

    def switch(self) -> None:
        now = time.process_time()
        self.seconds[self.running[-1]] = self.seconds.get(self.running[-1], 0) + now - self.since
        self.since = now

    def timed(self, stage: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            self.switch()
            self.running.append(stage)
            try:
                return action(*arguments, **options)
            finally:
                self.switch()
                self.running.pop()

        return run

    def watch(self) -> None:
        """Put a timed one in the place of every stage's function."""
        for stage, place in STAGES.items():
            module, _, name = place.partition(":")
            home = importlib.import_module(module)
            setattr(home, name, self.timed(stage, getattr(home, name)))


def optimize(source: str, target: str) -> dict[str, Any]:
    """`relayout.optimize` and its stages, as a command runs it: no garbage is looked for. Imports do not count."""
    import highspy  # noqa: F401

    import relayout
    import relayout.formats.onnx.reading
    import relayout.formats.onnx.writing
    import relayout.pipeline
    import relayout.solve.branching
    from relayout.cli.starting import one_job, short_process
    from relayout.isolation import calls

    relayout.rules.registry()
    with short_process():
        one_job()
        stages = Stages()
        stages.watch()
        result = relayout.optimize(source)
        result.save(target)
        stages.switch()
    stages.seconds["onnx"] = in_child(calls._process())
    report = result.report
    return {
        "seconds": {"total": sum(stages.seconds.values())} | stages.seconds,
        "peak_mb": peak_mb(),
        "transposes": [report.source_transposes, report.transposes],
        "bytes": [report.source_bytes, report.bytes],
        "lower_bound": report.lower_bound,
        "proved": report.proved,
    }


def labels(source: str, target: str) -> dict[str, Any]:
    """In how many ways the nodes of a model may run, those left out that follow others."""
    import relayout
    import relayout.infer.formulation as formulation

    found: list[int] = []
    action = formulation.candidates

    def counted(*arguments: Any) -> Any:
        result = action(*arguments)
        found.extend(len(each) for each in result.labels if each)
        return result

    formulation.candidates = counted
    (relayout.convert if source.endswith(".tflite") else relayout.optimize)(source)
    return {"mean": statistics.mean(found or [0]), "most": max(found, default=0)}


def in_child(child: Any) -> float:
    """Processor seconds of the process that asks ONNX's checker and shape inference about large models."""
    if child is None or not child.runs:
        return 0.0
    child.close()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


COLUMNS = {
    "read": ["read"],
    "complete": ["complete"],
    "choose": ["build", "candidates", "formulate", "solve", "certify"],
    "report": ["report", "name"],
    "rewrite": ["apply"],
    "check": ["check"],
    "write": ["write"],
    "ONNX's own": ["onnx"],
    "other": ["other"],
}
"""Column of the table -> stages."""
OWN = ("choose", "report", "rewrite")
"""What is neither reading nor writing, nor shape inference or the checker."""


def read_and_write(source: str, target: str, *, collect: bool) -> dict[str, Any]:
    """onnx-ir alone, with Python's garbage collector as it starts, or at rest as in a command of relayout."""
    import onnx_ir

    if not collect:
        gc.disable()
    begun = time.process_time()
    onnx_ir.save(onnx_ir.load(source), target)
    return {"seconds": {"total": time.process_time() - begun}, "peak_mb": peak_mb()}


MEASURES = {
    "relayout": optimize,
    "labels": labels,
    "onnx-ir": partial(read_and_write, collect=False),
    "onnx-ir, collecting": partial(read_and_write, collect=True),
}

COMPARED = ("relayout", "onnx-ir", "onnx-ir, collecting")


# The table


def measured(kind: str, source: Path, target: Path, limit: float) -> dict[str, Any]:
    """What a process of its own measures of itself; {"why": …} where it fails."""
    return answer(sys.executable, Path(__file__).name, "--measure", kind, str(source), str(target), limit=limit)


def row(count: int, scratch: Path, limit: float) -> dict[str, Any]:
    from onnx import save

    source = scratch / f"{count}.onnx"
    save(residual_network(count), source)
    found = {kind: measured(kind, source, scratch / "out.onnx", limit) for kind in COMPARED}
    for _ in range(AGAIN if count <= QUICK else 0):
        for kind in COMPARED:
            found[kind] = least(found[kind], measured(kind, source, scratch / "out.onnx", limit))
    source.unlink()
    return {"nodes": count} | found


def least(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of two measurements the one in less time: what is above it is others' work."""
    return other if "why" in one or ("why" not in other and total(other) < total(one)) else one


def total(measurement: dict[str, Any]) -> float:
    return float(measurement["seconds"]["total"])


def weights(gigabytes: float, scratch: Path, limit: float) -> dict[str, Any]:
    """The model of large weights: its bytes, its seconds and its memory."""
    source, target = scratch / "large.onnx", scratch / "out.onnx"
    size = large_model(source, gigabytes)
    found = measured("relayout", source, target, limit) | {"gigabytes": size / 1e9}
    for path in scratch.iterdir():
        path.unlink()
    return found


def orders_row(orders: int, scratch: Path, limit: float) -> dict[str, Any]:
    """The chain of so many orders: its seconds and its memory."""
    from onnx import save

    source = scratch / "orders.onnx"
    save(ordered_network(orders), source)
    return measured("relayout", source, scratch / "out.onnx", limit) | {"orders": orders}


def growth(rows: list[dict[str, Any]]) -> str:
    done = [item for item in rows if not any("why" in item[kind] for kind in COMPARED)]
    failed = [
        f"{item['nodes']:,} nodes: {item[kind]['why']}" for item in rows for kind in COMPARED if "why" in item[kind]
    ]
    head = ["nodes", *COLUMNS, "total s", "peak MB", *(f"{kind} s" for kind in COMPARED[1:])]
    head += ["own work", "Transposes", "proved"]
    lines = []
    for item in done:
        ours, bases = item["relayout"], [total(item[kind]) for kind in COMPARED[1:]]
        spent = {column: sum(ours["seconds"].get(stage, 0) for stage in held) for column, held in COLUMNS.items()}
        own = sum(spent[column] for column in OWN)
        lines.append(
            [
                f"{item['nodes']:,}",
                *(f"{seconds:.2f}" for seconds in spent.values()),
                f"{total(ours):.2f}",
                f"{ours['peak_mb']:.0f}",
                *(f"{base:.2f}" for base in bases),
                f"{own:.2f}: " + ", ".join(f"{own / base:.1f}" for base in bases),
                " → ".join(f"{number:,}" for number in ours["transposes"]),
                "yes" if ours["proved"] else "no",
            ]
        )
    return "\n\n".join([table(head, lines, 0), *failed])


def sizes_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        [f"{item['gigabytes']:.2f}", *(["–", item["why"], ""] if "why" in item else cells_of(item))] for item in rows
    ]
    return table(["GB of weights", "s", "peak MB", "Transposes"], lines, 0)


def orders_table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for item in rows:
        cells = ["–", "", item.get("why", ""), "", "", ""]
        if "why" not in item:
            spent = item["seconds"]
            told = [sum(spent.get(stage, 0) for stage in stages) for stages in (COLUMNS["choose"][:3], ["solve"])]
            cells = [*(f"{seconds:.2f}" for seconds in told), *cells_of(item), "yes" if item["proved"] else "no"]
        lines.append([f"{item['orders']}", *cells])
    return table(["orders", "find and formulate", "solve", "s", "peak MB", "Transposes", "proved"], lines, 0)


def labels_of(paths: list[Path], limit: float) -> list[dict[str, Any]]:
    """The labels of every model among the paths and in the folders among them."""
    files = [*models(paths, ".tflite"), *models([path for path in paths if path.is_dir()], ".onnx")]
    found = [measured("labels", file, file, limit) | {"model": file.stem} for file in files]
    return [item for item in found if "why" not in item]


def labels_line(rows: list[dict[str, Any]]) -> str:
    means = sorted(item["mean"] for item in rows)
    most = max(rows, key=lambda item: float(item["most"]))
    spread = f"{statistics.median(means):.1f} in the median model, {means[-1]:.1f} in the one with most of them"
    single = f"one node of {most['model']} has {most['most']}"
    return f"Orders that a node may run in, on average, of {len(rows)} models: {spread}; {single}."


def cells_of(item: dict[str, Any]) -> list[str]:
    return [
        f"{item['seconds']['total']:.1f}",
        f"{item['peak_mb']:.0f}",
        " → ".join(f"{number:,}" for number in item["transposes"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--sizes", default="1000,10000,50000,200000,1000000")
    parser.add_argument("--gigabytes", default="0.01,0.1,1,10", help="of the models of large weights")
    parser.add_argument("--orders", default="2,6,12,24,48", help="in which nodes may run")
    parser.add_argument("--labels-of", nargs="*", type=Path, default=[], help="models whose labels are counted")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that one measurement may take")
    parser.add_argument("--out", type=Path, default=Path("out"))
    options = parser.parse_args()
    if options.measure:
        kind, source, target = options.measure
        print(json.dumps(MEASURES[kind](source, target)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"nodes": [], "weights": [], "orders": [], "labels": []}
    for size in filter(None, options.sizes.split(",")):
        with tempfile.TemporaryDirectory(dir=options.out) as folder:
            found["nodes"].append(row(int(size), Path(folder), options.limit))
        save(found, options.out)
    for size in filter(None, options.gigabytes.split(",")):
        with tempfile.TemporaryDirectory(dir=options.out) as folder:
            found["weights"].append(weights(float(size), Path(folder), options.limit))
        save(found, options.out)
    for size in filter(None, options.orders.split(",")):
        with tempfile.TemporaryDirectory(dir=options.out) as folder:
            found["orders"].append(orders_row(int(size), Path(folder), options.limit))
        save(found, options.out)
    found["labels"] = labels_of(options.labels_of, options.limit)
    save(found, options.out)
    print((options.out / "scale.md").read_text(encoding="utf-8"))


def save(found: dict[str, Any], folder: Path) -> None:
    parts = [growth(found["nodes"])] if found["nodes"] else []
    parts += [sizes_table(found["weights"])] if found["weights"] else []
    parts += [orders_table(found["orders"])] if found["orders"] else []
    parts += [labels_line(found["labels"])] if found["labels"] else []
    text = "\n\n".join(parts)
    record(folder, "scale", found, text, text)


if __name__ == "__main__":
    main()
