"""Measure what ONNX Runtime's plain kernels of floats cost beside those for blocks of channels.

    python bench/measure_blocked_prices.py [--rounds 15] [--table src/relayout/targets/onnxruntime/blocked_prices.py]

The table of `--target onnxruntime-cpu-nchwc`: as `bench/measure_prices.py` does it, each kernel runs as a model of one
node on one thread, plain and in this CPU's blocks, and so do ReorderInput and ReorderOutput. A price is the median over
images of what the plain kernel takes longer, per element that is read or given, in elements that could have been
reordered meanwhile. Of convolutions it is that of a window of one element, and what each further one adds.

Where an operand is stretched over an image in blocks only 16 elements lie together, and ONNX Runtime multiplies them
run by run: what that takes longer is a price per element that is given, and what a node takes at all is set against it.
To reduce such an image takes longer, too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from measure_prices import IMAGES, idle, in_one_line, nanoseconds, processor
from onnx import helper, numpy_helper

BLOCKED = "com.microsoft.nchwc"
TAPS, TILE, CHAIN = 3, 16, 33
REDUCING = ("ReduceMax", "ReduceMean", "ReduceMin")
WINDOW = {"kernel_shape": [TAPS, TAPS], "pads": [TAPS // 2] * 4}
POOLS: dict[str, dict[str, Any]] = {
    "MaxPool": WINDOW,
    "AveragePool": WINDOW,
    "GlobalAveragePool": {},
    "GlobalMaxPool": {},
}


Array = np.ndarray[Any, Any]


def run_of(
    op_type: str, domain: str, shape: tuple[int, ...], weights: Array | None = None, **said: object
) -> Callable[[], object]:
    """A run of one node on a random image."""
    inputs = ["x"] if weights is None else ["x", "w"]
    node = helper.make_node(op_type, inputs, ["y"], domain=domain, **said)
    return run_all([node], shape, [] if weights is None else [numpy_helper.from_array(weights, "w")])


def product(image: tuple[int, ...], numbers: tuple[int, ...]) -> Callable[[], object]:
    """A run of a product of an image with numbers that are stretched over it."""
    return run_of("Mul", "", image, np.ones(numbers, np.float32))


def relus(count: int) -> Callable[[], object]:
    """A run of so many nodes on next to nothing."""
    nodes = [helper.make_node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(count)]
    nodes[-1].output[0] = "y"
    return run_all(nodes, (1, 4), [])


def run_all(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], constants: list[onnx.TensorProto]
) -> Callable[[], object]:
    """A run of nodes from `x` to `y`."""
    ends = [helper.make_tensor_value_info("x", 1, shape)], [helper.make_empty_tensor_value_info("y")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(BLOCKED, 1)]
    graph = helper.make_graph(nodes, "one", *ends, constants)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    feed = {"x": np.random.default_rng(0).normal(size=shape).astype(np.float32)}
    return lambda: session.run(None, feed)


def measured(rounds: int) -> Iterator[tuple[str, float]]:
    """(kernel, price) of each image."""
    for c, h, w in IMAGES:
        shape, elements = (1, c, h, w), c * h * w
        forms: dict[str, tuple[str, Array | None, dict[str, Any]]]
        forms = {name: (name, None, said) for name, said in POOLS.items()}
        for name, taps, groups in (("Conv 1", 1, 1), ("Conv", TAPS, 1), ("depthwise 1", 1, c), ("depthwise", TAPS, c)):
            kernel = np.random.default_rng(c).normal(size=(c, c // groups, taps, taps)).astype(np.float32)
            forms[name] = ("Conv", kernel, {"group": groups, "kernel_shape": [taps] * 2, "pads": [taps // 2] * 4})
        pairs = [
            run_of(op_type, domain, shape, kernel, **said)
            for op_type, kernel, said in forms.values()
            for domain in ("", BLOCKED)
        ]
        moves = [run_of("ReorderInput", BLOCKED, shape), run_of("ReorderOutput", BLOCKED, shape, channels=c)]
        times = nanoseconds([*pairs, *moves, idle().session()], rounds)
        there, back, nothing = times[-3:]
        move = ((there + back) / 2 - nothing) / elements
        for place, name in enumerate(forms):
            given = c if name.startswith("Global") else elements
            yield name, (times[2 * place] - times[2 * place + 1]) / (elements + given) / move
        tiles = (1, c // TILE, h, w, TILE)
        stretched = [product(shape, (1, c, 1, 1)), product(tiles, (1, c // TILE, 1, 1, TILE)), relus(1), relus(CHAIN)]
        plain, blocked, one, many = nanoseconds(stretched, rounds)
        yield "stretched", (blocked - plain) / elements / move
        yield "node", (many - one) / (CHAIN - 1) / move
        for name in REDUCING:
            ways = (shape, [2, 3]), (tiles, [2, 3]), ((1, h, w, c), [1, 2])
            first, blocked, last = nanoseconds([run_of(name, "", image, axes=axes) for image, axes in ways], rounds)
            yield f"{name} in blocks", (blocked - first) / elements / move
            yield f"{name} last", (last - first) / elements / move
        print(f"{shape}: reorder {move:.3f} ns per element", file=sys.stderr, flush=True)


def table(rows: list[tuple[str, float]]) -> str:
    """The module that keeps the prices."""
    known = {name: statistics.median(price for other, price in rows if other == name) for name, _ in rows}
    kernels = {"Conv": known["Conv 1"], **{name: known[name] for name in POOLS}}
    per_tap = {name: (known[name] - known[f"{name} 1"]) / (TAPS**2 - 1) for name in ("Conv", "depthwise")}
    lines = [
        '"""What ONNX Runtime\'s plain kernels of floats take longer than those for blocks, in reordered elements.',
        "",
        "Per element that they read or give. Written by `bench/measure_blocked_prices.py`: not edited by hand.",
        '"""',
        "",
        f'MEASURED = "ONNX Runtime {onnxruntime.__version__}, {processor()}"',
        f"KERNELS = {in_one_line(kernels)}",
        f"PER_TAP = {in_one_line(per_tap)}",
        '"""For each element of a window above the first."""',
        *(
            f"{where.upper().replace(' ', '_')} = {in_one_line({name: known[f'{name} {where}'] for name in REDUCING})}"
            for where in ("in blocks", "last")
        ),
        '"""What takes longer over the axes of space, in blocks and channels last, per element that is read."""',
        f"STRETCHED, NODE = {known['stretched']:.2f}, {round(known['node'], -3):.0f}",
        '"""Of an operand that is stretched in blocks, per element; of a node, whatever it does, in all."""',
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    made = table(list(measured(options.rounds)))
    if options.table:
        options.table.write_text(made, encoding="utf-8")
    else:
        print(made)


if __name__ == "__main__":
    main()
