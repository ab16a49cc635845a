"""Measure when a product of integers is faster in ONNX Runtime than a float Conv: for `hybrid_products`.

    python bench/measure_hybrid.py [--rounds 30] [--unsigned] [--json FILE]

Convolutions of many sizes, each with a bias and a Relu, once as a float Conv, and once as DynamicQuantizeLinear,
windows put side by side in each of three forms, and MatMulInteger: fully optimized, on one thread. A model holds one of
them or five, which take turns; a fourth of the difference is one's time, whatever a run costs beside. Prints what each
element costs (a fit that weighs all sizes alike; one for all three forms), how often each form takes the least time,
and how many sizes the fit judges wrong. `--unsigned`: kernels of uint8, as for x64 without VNNI.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

EXTENTS, CHANNELS, UNITS, WINDOWS = (5, 10, 20, 40, 80, 160), (4, 8, 16, 32, 64, 128, 256), (8, 32, 128), (1, 3, 5)
MOST_PRODUCTS = 240_000_000
FEW, MANY = 1, 5
BLOCK = 16
CONV = "Conv"
FORMS = ("slices", "columns", "pixels")
"""Windows put side by side: a Slice for each row and column of theirs, with two Concats; a Slice for each row, and a
Gather along the width; one Gather of pixels."""
FLOAT = ("convolution", "product", "read or given")
CACHED = 4_000_000
INTEGERS = ("convolution", "node", "product", "read", "given", "run of Concat", "run of Gather", "byte", "byte of many")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Size:
    """A convolution of a square image, with a border that keeps its extents."""

    extent: int
    channels: int
    units: int
    window: int
    unsigned: bool = False

    @property
    def products(self) -> int:
        """Products of two elements; both kernels compute whole blocks of units."""
        return self.extent**2 * self.window**2 * self.channels * -(-self.units // BLOCK) * BLOCK

    @property
    def forms(self) -> tuple[str, ...]:
        """Those that differ."""
        return FORMS if self.window > 1 else FORMS[:1]

    def floats(self) -> list[float]:
        """What the time of a Conv grows with, as `FLOAT` names it."""
        return [1, self.products, self.extent**2 * (self.channels + self.units)]

    def integers(self, form: str) -> list[float]:
        """What the time of a product grows with, as `INTEGERS` names it."""
        e, k, c = self.extent, self.window, self.channels
        rows, columns = e * (e + k - 1) * k, e**2 * k
        nodes, joined, gathered, copied = {
            "slices": (2 * k + 3, rows + columns, 0, 2 * (rows + columns * k) * c),
            "columns": (k + 4, rows, columns, (2 * rows + columns * k) * c),
            "pixels": (4, 0, columns * k, columns * k * c),
        }[form]
        moved = [joined, gathered, copied, copied * (columns * k * c > CACHED)] if k > 1 else [0, 0, 0, 0]
        return [1, nodes if k > 1 else 0, self.products, e**2 * c, e**2 * self.units, *moved]

    def model(self, count: int, form: str) -> onnx.ModelProto:
        """So many of the convolution, side by side."""
        rng, k, c, o = np.random.default_rng(0), self.window, self.channels, self.units
        weights = rng.integers(-127, 128, (k, k, c, o)).astype(np.int8)
        constants: dict[str, Array] = {"bias": rng.normal(size=o).astype(np.float32)}
        nodes = []
        for number in range(count):
            if form != CONV:
                constants |= {f"w{number}": weights.transpose(1, 0, 2, 3).reshape(-1, o).copy()}
                nodes += self._product(str(number), form, constants)
            else:
                constants |= {f"w{number}": weights.transpose(3, 2, 0, 1).astype(np.float32) / 1000}
                operands = [f"x{number}", f"w{number}", "bias"]
                nodes.append(helper.make_node("Conv", operands, [f"sum{number}"], pads=[k // 2] * 4))
            nodes.append(helper.make_node("Relu", [f"sum{number}"], [f"y{number}"]))
        kind, shape = TensorProto.FLOAT, [1, c, *[self.extent] * 2] if form == CONV else [1, *[self.extent] * 2, c]
        graph = helper.make_graph(
            nodes,
            "convolutions",
            [helper.make_tensor_value_info(f"x{number}", kind, shape) for number in range(count)],
            [helper.make_tensor_value_info(f"y{number}", kind, None) for number in range(count)],
            [numpy_helper.from_array(array, name) for name, array in constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _product(self, n: str, form: str, constants: dict[str, Array]) -> list[onnx.NodeProto]:
        """The nodes that `relayout` writes for it."""
        make, around, x = helper.make_node, self.window // 2, f"q{n}"
        constants["steps"] = np.full(self.units, 1e-3, np.float32)
        nodes = [make("DynamicQuantizeLinear", [f"x{n}"], [x, f"step{n}", f"zero{n}"])]
        if self.window > 1:
            constants["pads"] = np.array([0, around, around, 0, 0, around, around, 0])
            nodes.append(make("Pad", [x, "pads", f"zero{n}"], [f"padded{n}"]))
            nodes += self._rows(n, form, constants)
            x = f"windows{n}"
        named = []
        if self.unsigned:
            constants[f"w{n}"] = (constants[f"w{n}"].astype(np.int16) + 128).astype(np.uint8)
            constants["kernel_zero"] = np.array(128, np.uint8)
            named = ["kernel_zero"]
        return [
            *nodes,
            make("MatMulInteger", [x, f"w{n}", f"zero{n}", *named], [f"integers{n}"]),
            make("Cast", [f"integers{n}"], [f"real{n}"], to=TensorProto.FLOAT),
            make("Mul", [f"step{n}", "steps"], [f"scale{n}"]),
            make("Mul", [f"real{n}", f"scale{n}"], [f"scaled{n}"]),
            make("Add", [f"scaled{n}", "bias"], [f"sum{n}"]),
        ]

    def _rows(self, n: str, form: str, constants: dict[str, Array]) -> list[onnx.NodeProto]:
        """The nodes that put windows over `padded` side by side."""
        make, (e, k, c) = helper.make_node, (self.extent, self.window, self.channels)
        places, width = np.arange(e)[:, None] + np.arange(k), e + k - 1
        constants["rows"] = np.array([1, e, e, k * k * c])
        if form == "pixels":
            constants["pixels"] = np.array([width**2, c])
            index = places[:, None, None, :] * width + places[None, :, :, None]
            constants["index"] = index.reshape(e * e, k * k).astype(np.int32)
            return [
                make("Reshape", [f"padded{n}", "pixels"], [f"pixels{n}"]),
                make("Gather", [f"pixels{n}", "index"], [f"picked{n}"], axis=0),
                make("Reshape", [f"picked{n}", "rows"], [f"windows{n}"]),
            ]
        nodes = self._sliced(f"padded{n}", f"rows{n}", 1, constants)
        if form == "slices":
            return nodes + self._sliced(f"rows{n}", f"windows{n}", 2, constants)
        constants["index"] = places.astype(np.int32)
        return [
            *nodes,
            make("Gather", [f"rows{n}", "index"], [f"picked{n}"], axis=2),
            make("Reshape", [f"picked{n}", "rows"], [f"windows{n}"]),
        ]

    def _sliced(self, x: str, y: str, axis: int, constants: dict[str, Array]) -> list[onnx.NodeProto]:
        """A Slice for each element of a window along the axis, and a Concat."""
        nodes, parts = [], [f"{y}_{place}" for place in range(self.window)]
        for place, part in enumerate(parts):
            bounds = {"b": place, "e": place + self.extent, "a": axis}
            constants |= {f"{key}{axis}{place}": np.array([value]) for key, value in bounds.items()}
            nodes.append(helper.make_node("Slice", [x, *(f"{key}{axis}{place}" for key in bounds)], [part]))
        return [*nodes, helper.make_node("Concat", parts, [y], axis=3)]


def nanoseconds(size: Size, rounds: int) -> dict[str, float]:
    """The processor's time for one convolution, in each form."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    ways = {}
    for form, count in itertools.product((CONV, *size.forms), (FEW, MANY)):
        content = size.model(count, form).SerializeToString()
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(1)
        fed = {one.name: rng.normal(size=one.shape).astype(np.float32) for one in session.get_inputs()}
        ways[form, count] = (session, fed)
    took: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, (session, fed) in random.sample(list(ways.items()), len(ways)):
            began = time.thread_time()
            session.run(None, fed)
            took[way].append(1e9 * (time.thread_time() - began))
    medians = {way: statistics.median(times) for way, times in took.items()}
    return {form: (medians[form, MANY] - medians[form, FEW]) / (MANY - FEW) for form in (CONV, *size.forms)}


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
    parser.add_argument("--unsigned", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    every = (Size(*numbers, given.unsigned) for numbers in itertools.product(EXTENTS, CHANNELS, UNITS, WINDOWS))
    sizes = [size for size in every if size.products < MOST_PRODUCTS]
    times = []
    for number, size in enumerate(sizes, 1):
        times.append(nanoseconds(size, given.rounds))
        print(f"\r{number} of {len(sizes)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    as_floats = fitted([size.floats() for size in sizes], [took[CONV] for took in times])
    both = [(size.integers(form), took[form]) for size, took in zip(sizes, times, strict=True) for form in size.forms]
    as_integers = fitted(*zip(*both, strict=True))
    print("| form | ns for each |", "|---|---|", sep="\n")
    for form, names, costs in (("Conv", FLOAT, as_floats), ("MatMulInteger", INTEGERS, as_integers)):
        print(f"| {form} |", ", ".join(f"{n} {cost:.3g}" for n, cost in zip(names, costs, strict=True)), "|")
    least: Counter[str] = Counter()
    wins = wrong = 0
    lost = []
    for size, took in zip(sizes, times, strict=True):
        best = min(size.forms, key=took.__getitem__)
        chosen = min(size.forms, key=lambda form: np.dot(size.integers(form), as_integers))
        if size.window > 1:
            least[best] += 1
            lost.append(took[chosen] / took[best])
        wins += took[chosen] < took[CONV]
        judged = np.dot(size.integers(chosen), as_integers) < np.dot(size.floats(), as_floats)
        wrong += judged != (took[chosen] < took[CONV])
    print(f"\nleast time: {', '.join(f'{form} {least[form]}' for form in FORMS)}; the form that the fit chooses takes")
    print(f"{statistics.mean(lost):.3f} of the least (worst {max(lost):.2f})")
    print(f"{len(sizes)} sizes: the product takes less time on {wins}; judged wrong {wrong}")
    if given.json:
        rows = [{"size": vars(size), "ns": took} for size, took in zip(sizes, times, strict=True)]
        given.json.write_text(json.dumps({"rows": rows, "float": list(as_floats), "integers": list(as_integers)}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
