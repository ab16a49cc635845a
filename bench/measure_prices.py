"""Measure what ONNX Runtime's CPU kernels cost in either order of axes: the table of `--target onnxruntime-cpu`.

    python bench/measure_prices.py [--rounds 15] [--json FILE] [--table src/relayout/targets/onnxruntime/prices.py]

Each operator runs as a model of one node without optimizations, on one thread, on images of several extents, channels
first and last, and so does the Transpose between the two: they take turns, and count the processor's time. A price is
the median over images of what one order takes longer than the other, per element that is read or given, in elements
that could have been transposed meanwhile. Without `--table` the table is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper

IMAGES = ((32, 112, 112), (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7))
"""Channels, height and width."""
RUNS = (1, 2, 3, 4, 6, 8, 16, 32)
"""Elements that lie together in what is transposed."""
CHANNELS = (4, 8, 12, 16, 24, 32, 48, 64, 128)
BATCH_SECONDS = 0.004
MICROSOFT = "com.microsoft"
SLOWER = 1.05
"""What counts as slower, beside noise."""
UNPRICED = frozenset(("QLinearConcat", "QLinearMul"))
"""Measured, and in no table: what they take longer depends on the image, and on either side of nothing."""

Array = np.ndarray[Any, Any]
Given = dict[str, Array]


@dataclass(frozen=True)
class Way:
    """An operator in one order of axes: its node, its constants, the shapes that it reads and gives."""

    op_type: str
    inputs: tuple[str, ...]
    constants: Given
    read: tuple[int, ...]
    given: tuple[int, ...]
    domain: str = ""
    attributes: tuple[tuple[str, Any], ...] = ()
    dtype: type = np.uint8
    images: tuple[str, ...] = ("x",)
    gives: type | None = None

    def session(self) -> Callable[[], object]:
        """A run of it."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        node = helper.make_node(self.op_type, self.inputs, ["y"], domain=self.domain, **dict(self.attributes))
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info(name, kind, self.read) for name in self.images],
            [
                helper.make_tensor_value_info(
                    "y", helper.np_dtype_to_tensor_dtype(np.dtype(self.gives or self.dtype)), self.given
                )
            ],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in self.inputs],
        )
        imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        opened = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        feed = {name: (rng.normal(size=self.read) * 40 + 100).clip(0, 255).astype(self.dtype) for name in self.images}
        return lambda: opened.run(None, feed)


SCALES: Given = {
    "xs": np.array(0.1, np.float32),
    "xz": np.array(120, np.uint8),
    "ys": np.array(0.07, np.float32),
    "yz": np.array(100, np.uint8),
}
LAST = (("channels_last", 1),)


def laid(c: int, h: int, w: int, last: bool) -> tuple[int, ...]:
    return (1, h, w, c) if last else (1, c, h, w)


def convolution(kernel: int, depthwise: bool) -> Callable[[int, int, int, bool], Way]:
    def way(c: int, h: int, w: int, last: bool) -> Way:
        rng = np.random.default_rng(c)
        weights = rng.integers(-99, 99, (c, 1 if depthwise else c, kernel, kernel)).astype(np.int8)
        constants = SCALES | {"w": weights, "ws": np.full(c, 0.01, np.float32), "wz": np.zeros(c, np.int8)}
        said = (("group", c if depthwise else 1), ("pads", [kernel // 2] * 4), *(LAST if last else ()))
        inputs = ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz")
        return Way("QLinearConv", inputs, constants, laid(c, h, w, last), laid(c, h, w, last), MICROSOFT, said)

    return way


def average_pool(c: int, h: int, w: int, last: bool) -> Way:
    said = (("kernel_shape", [3, 3]), ("pads", [1] * 4), *(LAST if last else ()))
    shape = laid(c, h, w, last)
    return Way("QLinearAveragePool", ("x", "xs", "xz", "ys", "yz"), SCALES, shape, shape, MICROSOFT, said)


def global_pool(c: int, h: int, w: int, last: bool) -> Way:
    said = LAST if last else ()
    inputs = ("x", "xs", "xz", "ys", "yz")
    return Way("QLinearGlobalAveragePool", inputs, SCALES, laid(c, h, w, last), laid(c, 1, 1, last), MICROSOFT, said)


def max_pool(c: int, h: int, w: int, last: bool) -> Way:
    said = (("kernel_shape", [3, 3]), ("pads", [1] * 4))
    shape = laid(c, h, w, last)
    return Way("NhwcMaxPool" if last else "MaxPool", ("x",), {}, shape, shape, MICROSOFT if last else "", said)


def resized(c: int, h: int, w: int, last: bool) -> Way:
    """Twice as high and wide, between the nearest elements; floats."""
    constants = {"s": np.array(laid(1, 2, 2, last), np.float32)}
    said = (("mode", "linear"), ("coordinate_transformation_mode", "half_pixel"))
    read, given = laid(c, h, w, last), laid(c, 2 * h, 2 * w, last)
    return Way("Resize", ("x", "", "s"), constants, read, given, "", said, np.float32)


def concat(c: int, h: int, w: int, last: bool) -> Way:
    inputs = ("ys", "yz", "x", "xs", "xz", "z", "xs", "xz")
    said = (("axis", 3 if last else 1),)
    read, given = laid(c, h, w, last), laid(2 * c, h, w, last)
    return Way("QLinearConcat", inputs, SCALES, read, given, MICROSOFT, said, images=("x", "z"))


def scaled(c: int, h: int, w: int, last: bool) -> Way:
    """An image times one number per channel."""
    constants = SCALES | {"s": np.arange(c).astype(np.uint8).reshape(laid(c, 1, 1, last))}
    inputs = ("x", "xs", "xz", "s", "xs", "xz", "ys", "yz")
    shape = laid(c, h, w, last)
    return Way("QLinearMul", inputs, constants, shape, shape, MICROSOFT)


def transposed(c: int, h: int, w: int, last: bool, dtype: type = np.uint8) -> Way:
    """From channels first to last, or back."""
    said = (("perm", [0, 3, 1, 2] if last else [0, 2, 3, 1]),)
    return Way("Transpose", ("x",), {}, laid(c, h, w, last), laid(c, h, w, not last), "", said, dtype)


OPERATORS: dict[str, tuple[Callable[[int, int, int, bool], Way], ...]] = {
    "QLinearConv": (convolution(1, False), convolution(3, False), convolution(3, True), convolution(1, True)),
    "QLinearAveragePool": (average_pool,),
    "QLinearGlobalAveragePool": (global_pool,),
    "MaxPool": (max_pool,),
    "Resize": (resized,),
    "QLinearConcat": (concat,),
    "QLinearMul": (scaled,),
}


def normalized(c: int, h: int, w: int, last: bool) -> tuple[Way, ...]:
    """A BatchNormalization between integers, and the Transposes around it where its neighbours have channels last."""
    shape = laid(c, h, w, False)
    parameters = {name: np.linspace(0.5, 1.5, c, dtype=np.float32) for name in ("g", "b", "m", "v")}
    return (
        transposed(c, h, w, True),
        Way("DequantizeLinear", ("x", "xs", "xz"), SCALES, shape, shape, gives=np.float32),
        Way("BatchNormalization", ("x", "g", "b", "m", "v"), parameters, shape, shape, dtype=np.float32),
        Way("QuantizeLinear", ("x", "xs", "xz"), SCALES, shape, shape, dtype=np.float32, gives=np.uint8),
        transposed(c, h, w, False),
    )


def least_channels(rounds: int) -> dict[str, int]:
    """From how many channels on a scale and shift per channel is no slower as a depthwise convolution, channels last.

    Beside a product with constants, channels first, and beside a BatchNormalization of floats between two Transposes.
    """
    found: dict[str, int] = {}
    ended: set[str] = set()
    for c in reversed(CHANNELS):
        image = (c, 56, 56)
        others = {"constants": (scaled(*image, False),), "BatchNormalization": normalized(*image, False)}
        ways = [convolution(1, True)(*image, True), *(way for group in others.values() for way in group)]
        times = nanoseconds([way.session() for way in ways], rounds)
        taken = {"constants": times[1], "BatchNormalization": sum(times[2:])}
        print(f"{c:5} channels: depthwise {times[0]:8.0f} ns, others {taken}", file=sys.stderr, flush=True)
        ended |= {name for name, other in taken.items() if times[0] > SLOWER * other}
        found |= {name: c for name in taken if name not in ended}
    return found


def least_run(rounds: int) -> int:
    """From how long a run on two Transposes, of runs and of one axis, are faster than one that does both."""
    found = 0
    for run in reversed(RUNS):
        slower = False
        for dtype in (np.uint8, np.float32):
            rows = (16, 4, 8, 4, run)
            one = Way("Transpose", ("x",), {}, rows, (16, 8, run, 4, 4), "", (("perm", [0, 2, 4, 1, 3]),), dtype)
            runs = Way("Transpose", ("x",), {}, rows, (16, 8, 4, 4, run), "", (("perm", [0, 2, 1, 3, 4]),), dtype)
            axis = Way("Transpose", ("x",), {}, (128, 16, run), (128, run, 16), "", (("perm", [0, 2, 1]),), dtype)
            times = nanoseconds([way.session() for way in (one, runs, axis)], rounds)
            print(f"runs of {run:3}: {times[0]:8.0f} ns, in two {times[1:]}", file=sys.stderr, flush=True)
            slower |= sum(times[1:]) >= times[0]
        if slower:
            break
        found = run
    return found


def nanoseconds(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    """The median over rounds of the time that each run takes; they take turns."""
    counts, found = [], []
    for run in runs:
        run()
        begun = time.thread_time_ns()
        run()
        counts.append(max(2, round(BATCH_SECONDS * 1e9 / max(time.thread_time_ns() - begun, 1000))))
        found.append([0.0] * rounds)
    for number in range(rounds):
        for run, count, times in zip(runs, counts, found, strict=True):
            begun = time.thread_time_ns()
            for _ in range(count):
                run()
            times[number] = (time.thread_time_ns() - begun) / count
    return [statistics.median(times) for times in found]


def idle() -> Way:
    """What running anything takes."""
    return Way("Identity", ("x",), {}, (1,), (1,))


def measured(rounds: int) -> Iterator[dict[str, Any]]:
    """One row for each operator and image."""
    for name, makers in OPERATORS.items():
        for number, maker in enumerate(makers):
            for image in IMAGES:
                ways = [maker(*image, last) for last in (False, True)]
                moves = [transposed(*image, last, ways[0].dtype) for last in (False, True)]
                times = nanoseconds([way.session() for way in (*ways, *moves, idle())], rounds)
                first, last, there, back = (took - times[4] for took in times[:4])
                elements = len(ways[0].images) * int(np.prod(ways[0].read)) + int(np.prod(ways[0].given))
                move = (there + back) / 2 / int(np.prod(moves[0].read))
                price = (first - last) / elements / move
                row = {"operator": name, "form": number, "image": image, "first_ns": first, "last_ns": last}
                yield row | {"elements": elements, "transpose_ns_per_element": move, "price": price}


def table(rows: list[dict[str, Any]], least: dict[str, int], run: int) -> str:
    """The module that keeps the prices."""
    prices = {
        name: statistics.median(row["price"] for row in rows if row["operator"] == name)
        for name in OPERATORS
        if name not in UNPRICED
    }
    lines = [
        '"""What ONNX Runtime\'s integer kernels take longer with channels first than last, in transposed elements.',
        "",
        "Per element that they read or give. Written by `bench/measure_prices.py`: not edited by hand.",
        '"""',
        "",
        f'MEASURED = "ONNX Runtime {onnxruntime.__version__}, {processor()}"',
        "CHANNELS_FIRST = {",
        *(f'    "{name}": {max(0.0, price):.2f},' for name, price in prices.items()),
        "}",
        f"LEAST_CHANNELS = {in_one_line(dict(sorted(least.items())), '')}",
        '"""From how many channels on a scale and shift per channel is no slower as a depthwise convolution."""',
        f"LEAST_RUN = {run}"
        "  # from how many elements in a run on two Transposes are faster than one that moves all axes",
    ]
    return "\n".join(lines) + "\n"


def in_one_line(prices: Mapping[str, float], form: str = ".2f") -> str:
    """A dictionary in one line, none of whose numbers is below 0."""
    return "{" + ", ".join(f'"{name}": {max(0, price):{form}}' for name, price in prices.items()) + "}"


def processor() -> str:
    """The processor's name, where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    least, run = least_channels(options.rounds), least_run(options.rounds)
    rows = []
    for row in measured(options.rounds):
        rows.append(row)
        print(
            f"{row['operator']:26} {row['form']} {row['image']!s:16} {row['price']:6.2f}", file=sys.stderr, flush=True
        )
    if options.json:
        options.json.write_text(
            json.dumps({"rows": rows, "least": least, "run": run}, indent=1) + "\n", encoding="utf-8"
        )
    if options.table:
        options.table.write_text(table(rows, least, run), encoding="utf-8")
    else:
        print(table(rows, least, run))


if __name__ == "__main__":
    main()
