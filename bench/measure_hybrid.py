"""Measure when a product of integers takes less time in ONNX Runtime than a float Conv: the rule of `unrolled`.

    python bench/measure_hybrid.py [--rounds 30] [--json FILE]

Convolutions of many sizes, each with a bias and a Relu, once as a float Conv, and once as DynamicQuantizeLinear,
windows put side by side and MatMulInteger: fully optimized, on one thread. A model holds one of them or five, which
take turns; a fourth of the difference is one's time, whatever a run costs beside. Prints what each element costs in
either form (a fit that weighs all sizes alike), and how many sizes the fit judges wrong.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

EXTENTS, CHANNELS, UNITS, WINDOWS = (4, 8, 16, 32, 64), (16, 32, 64, 128, 256), (8, 32, 96, 256), (1, 3)
MOST_PRODUCTS = 60_000_000
FEW, MANY = 1, 5
FLOAT = ("node", "product", "read or given")
INTEGERS = ("node", "windows", "product", "copied", "read", "given")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Size:
    """A convolution of a square image, with a border that keeps its extents."""

    extent: int
    channels: int
    units: int
    window: int

    @property
    def products(self) -> int:
        """Products of two elements."""
        return self.extent**2 * self.window**2 * self.channels * self.units

    def floats(self) -> list[float]:
        """What the time of a Conv grows with, as `FLOAT` names it."""
        return [1, self.products, self.extent**2 * (self.channels + self.units)]

    def integers(self) -> list[float]:
        """What the time of a product grows with, as `INTEGERS` names it."""
        copied = self.products // self.units if self.window > 1 else 0
        pixels = self.extent**2
        return [1, self.window > 1, self.products, copied, pixels * self.channels, pixels * self.units]

    def model(self, count: int, *, integers: bool) -> onnx.ModelProto:
        """So many of the convolution, side by side."""
        rng, k, c, o = np.random.default_rng(0), self.window, self.channels, self.units
        weights = rng.integers(-127, 128, (k, k, c, o)).astype(np.int8)
        constants: dict[str, Array] = {"bias": rng.normal(size=o).astype(np.float32)}
        nodes = []
        for number in range(count):
            if integers:
                constants |= {f"w{number}": weights.transpose(1, 0, 2, 3).reshape(-1, o).copy()}
                nodes += self._product(str(number), constants)
            else:
                constants |= {f"w{number}": weights.transpose(3, 2, 0, 1).astype(np.float32) / 1000}
                operands = [f"x{number}", f"w{number}", "bias"]
                nodes.append(helper.make_node("Conv", operands, [f"sum{number}"], pads=[k // 2] * 4))
            nodes.append(helper.make_node("Relu", [f"sum{number}"], [f"y{number}"]))
        kind, shape = TensorProto.FLOAT, [1, *[self.extent] * 2, c] if integers else [1, c, *[self.extent] * 2]
        graph = helper.make_graph(
            nodes,
            "convolutions",
            [helper.make_tensor_value_info(f"x{number}", kind, shape) for number in range(count)],
            [helper.make_tensor_value_info(f"y{number}", kind, None) for number in range(count)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _product(self, n: str, constants: dict[str, Array]) -> list[onnx.NodeProto]:
        """The nodes that `relayout` writes for it."""
        make, around, x = helper.make_node, self.window // 2, f"q{n}"
        constants["steps"] = np.full(self.units, 1e-3, np.float32)
        nodes = [make("DynamicQuantizeLinear", [f"x{n}"], [x, f"step{n}", f"zero{n}"])]
        if self.window > 1:
            constants["pads"] = np.array([0, around, around, 0, 0, around, around, 0])
            nodes.append(make("Pad", [x, "pads", f"zero{n}"], [f"padded{n}"]))
            x = f"padded{n}"
            for axis in (1, 2):
                parts = []
                for place in range(self.window):
                    bounds = {"b": place, "e": place + self.extent, "a": axis}
                    constants |= {f"{key}{axis}{place}": np.array([value]) for key, value in bounds.items()}
                    parts.append(f"part{n}_{axis}{place}")
                    nodes.append(make("Slice", [x, *(f"{key}{axis}{place}" for key in bounds)], parts[-1:]))
                x = f"windows{n}_{axis}"
                nodes.append(make("Concat", parts, [x], axis=3))
        return [
            *nodes,
            make("MatMulInteger", [x, f"w{n}", f"zero{n}"], [f"integers{n}"]),
            make("Cast", [f"integers{n}"], [f"real{n}"], to=TensorProto.FLOAT),
            make("Mul", [f"step{n}", "steps"], [f"scale{n}"]),
            make("Mul", [f"real{n}", f"scale{n}"], [f"scaled{n}"]),
            make("Add", [f"scaled{n}", "bias"], [f"sum{n}"]),
        ]


def nanoseconds(size: Size, rounds: int) -> tuple[float, float]:
    """The processor's time for one convolution, as floats and as integers."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    ways = {}
    for integers, count in itertools.product((False, True), (FEW, MANY)):
        content = size.model(count, integers=integers).SerializeToString()
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(1)
        fed = {one.name: rng.normal(size=one.shape).astype(np.float32) for one in session.get_inputs()}
        ways[integers, count] = (session, fed)
    took: dict[tuple[bool, int], list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (session, fed) in random.sample(list(ways.items()), len(ways)):
            began = time.thread_time()
            session.run(None, fed)
            took[way].append(1e9 * (time.thread_time() - began))
    medians = {way: statistics.median(times) for way, times in took.items()}
    as_floats, as_integers = (
        (medians[integers, MANY] - medians[integers, FEW]) / (MANY - FEW) for integers in (False, True)
    )
    return as_floats, as_integers


def fitted(rows: Sequence[Sequence[float]], times: Sequence[float]) -> Array:
    """What each column costs, every size weighing the same."""
    matrix, measured = np.array(rows, float), np.array(times)
    weight = 1 / np.maximum(measured, 3000)
    found: Array = np.linalg.lstsq(matrix * weight[:, None], measured * weight, rcond=None)[0]
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    every = (Size(*numbers) for numbers in itertools.product(EXTENTS, CHANNELS, UNITS, WINDOWS))
    sizes = [size for size in every if size.products < MOST_PRODUCTS]
    times = []
    for number, size in enumerate(sizes, 1):
        times.append(nanoseconds(size, given.rounds))
        print(f"\r{number} of {len(sizes)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    as_floats = fitted([size.floats() for size in sizes], [pair[0] for pair in times])
    as_integers = fitted([size.integers() for size in sizes], [pair[1] for pair in times])
    print("| form | ns for each |", "|---|---|", sep="\n")
    for form, names, costs in (("Conv", FLOAT, as_floats), ("MatMulInteger", INTEGERS, as_integers)):
        print(f"| {form} |", ", ".join(f"{n} {cost:.3g}" for n, cost in zip(names, costs, strict=True)), "|")
    wins = [pair[1] < pair[0] for pair in times]
    judged = [np.dot(size.integers(), as_integers) < np.dot(size.floats(), as_floats) for size in sizes]
    wrong = sum(a != b for a, b in zip(wins, judged, strict=True))
    print(f"\n{len(sizes)} sizes: the product takes less time on {sum(wins)}; judged wrong {wrong}")
    if given.json:
        rows = [{"size": vars(size), "ns": pair} for size, pair in zip(sizes, times, strict=True)]
        given.json.write_text(json.dumps({"rows": rows, "float": list(as_floats), "integers": list(as_integers)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
