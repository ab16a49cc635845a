"""Measure operators that `--target onnxruntime-cpu` writes as others, beside themselves.

    python bench/measure_expansions.py [--rounds 15]

Each runs between two convolutions of one element, on one thread at full optimization, in images of several extents, and
the same as relayout writes it; so does a Relu in its place. The time is what is above that of the Relu: in nanoseconds
for each element, of images that are small in all. Fourier transforms run alone: microseconds for each of some
transforms of so many elements, and the largest error beside numpy's in double precision, of the largest element. So
do cubic Resizes: nanoseconds for each element that they give.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from measure_prices import nanoseconds
from onnx import helper, numpy_helper
from tables import table

import relayout

IMAGES = (
    (16, 96, 96),
    (32, 112, 112),
    (64, 28, 28),
    (128, 14, 14),
    (24, 96, 96),
    (28, 48, 48),
    (16, 8, 8),
    (16, 16, 16),
    (21, 48, 48),
)
"""Channels, height and width; the fifth and the sixth do not fall into blocks of 16, the last not into any."""
OPERATORS: dict[str, dict[str, int]] = {"PRelu": {}, "Softplus": {}, "Mish": {}, "LRN": {"size": 5}}
CUBIC = (
    ((3, 64, 64), 2.0),
    ((3, 256, 256), 4.0),
    ((16, 64, 64), 1.5),
    ((64, 32, 32), 2.0),
    ((256, 16, 16), 2.0),
    ((3, 240, 240), 0.9),
)
"""Channels, height and width, and how many times the sides become as long."""
TRANSFORMS = (
    ("DFT", 256, 98),
    ("DFT", 400, 98),
    ("DFT", 512, 1),
    ("DFT", 512, 98),
    ("DFT", 1000, 98),
    ("DFT", 1024, 98),
    ("DFT", 2048, 98),
    ("DFT", 4096, 98),
    ("STFT", 256, 98),
    ("STFT", 400, 98),
    ("STFT", 512, 98),
)
"""Operator, elements of each transform, and transforms: of real numbers, and of windows of which each half is new."""


def chain(op_type: str, c: int, h: int, w: int) -> onnx.ModelProto:
    """An operator between two convolutions of one element."""
    rng = np.random.default_rng(0)
    kernel, slope = rng.normal(size=(c, c, 1, 1)) / c**0.5, rng.uniform(-0.3, 0.3, (c, 1, 1))
    read = ["before", "slope"] if op_type == "PRelu" else ["before"]
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["before"]),
        helper.make_node(op_type, read, ["behind"], **OPERATORS.get(op_type, {})),
        helper.make_node("Conv", ["behind", "kernel"], ["y"]),
    ]
    return built(nodes, (1, c, h, w), kernel=kernel.astype(np.float32), slope=slope.astype(np.float32))


def built(nodes: list[onnx.NodeProto], shape: tuple[int, ...], **constants: np.ndarray) -> onnx.ModelProto:
    """A model of nodes from `x` to `y`."""
    read, given = (helper.make_tensor_value_info(*end) for end in (("x", 1, shape), ("y", 1, None)))
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "measured", [read], [given], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def transform(op_type: str, count: int, rows: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Transforms of real numbers, half of each result, and the shape of what they are of."""
    shape = (1, rows, count, 1) if op_type == "DFT" else (1, (rows - 1) * (count // 2) + count, 1)
    read = ["x", "", "axis"] if op_type == "DFT" else ["x", "step", "", "count"]
    numbers = {"axis": -2, "step": count // 2, "count": count}
    constants = {name: np.array(numbers[name], np.int64) for name in read[1:] if name}
    return built([helper.make_node(op_type, read, ["y"], onesided=1)], shape, **constants), shape


def transforms(rounds: int) -> list[list[str]]:
    """The rows of the second table."""
    lines = []
    for op_type, count, rows in TRANSFORMS:
        one, shape = transform(op_type, count, rows)
        models = one, relayout.optimize(one, target="onnxruntime-cpu").proto
        times = nanoseconds([run_of(model) for model in models], rounds)
        feed = np.random.default_rng(1).normal(size=shape).astype(np.float32)
        signal = feed.reshape(rows, count) if op_type == "DFT" else windows(feed.reshape(-1), count)
        exact = np.fft.rfft(signal.astype(np.float64))
        wanted = np.stack([exact.real, exact.imag], -1)
        errors = [np.abs(run_of(model)()[0][0] - wanted).max() / np.abs(wanted).max() for model in models]
        each = [f"{time / rows / 1e3:.1f}" for time in times]
        size = len(models[1].SerializeToString()) - len(one.SerializeToString())
        told = [f"{error:.0e}" for error in errors]
        lines.append([op_type, f"{rows} of {count}", *each, f"{times[1] / times[0]:.2f}", *told, f"{size / 1e6:.2f}"])
    return lines


def windows(signal: np.ndarray, count: int) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(signal, count)[:: count // 2]


def cubic(rounds: int) -> list[list[str]]:
    """The rows of the third table."""
    lines = []
    for (c, h, w), scale in CUBIC:
        node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="cubic")
        one = built([node], (1, c, h, w), scales=np.array([1, 1, scale, scale], np.float32))
        runs = [run_of(model) for model in (one, relayout.optimize(one, target="onnxruntime-cpu").proto)]
        given = runs[0]()[0].size
        lines.append([f"{c} × {h} × {w}", f"{scale:g}", *(f"{time / given:.2f}" for time in nanoseconds(runs, rounds))])
    return lines


def run_of(model: onnx.ModelProto) -> Callable[[], Any]:
    """A run of a model on noise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {
        each.name: np.random.default_rng(1).normal(size=each.shape).astype(np.float32) for each in session.get_inputs()
    }
    return lambda: session.run(None, feed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    lines = []
    for op_type in OPERATORS:
        for c, h, w in IMAGES:
            one = chain(op_type, c, h, w)
            others = relayout.optimize(one, target="onnxruntime-cpu").proto
            runs = [run_of(model) for model in (chain("Relu", c, h, w), one, others)]
            relu, *both = nanoseconds(runs, rounds)
            each = [f"{(time - relu) / (c * h * w):.2f}" for time in both]
            stays = any(node.op_type == op_type for node in others.graph.node)
            lines.append([op_type, f"{c} × {h} × {w}", *each, "itself" if stays else "others"])
    print(table(["operator", "image", "ns an element", "as written", "which is"], lines))
    print()
    head = ["operator", "transforms", "µs each", "as written", "ratio", "error", "as written", "MB more"]
    print(table(head, transforms(rounds)))
    print()
    print(table(["cubic Resize of", "times", "ns for an element of the result", "as written"], cubic(rounds)))


if __name__ == "__main__":
    main()
