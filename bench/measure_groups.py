"""Measure how many groups of an integer convolution ONNX Runtime wants joined: the prices of `merge_conv_groups`.

    python bench/measure_groups.py [--rounds 7] [--json FILE]

Convolutions in groups of uint8 by int8, with a scale for each unit of the result: images of several sizes, windows of
one to five, one to sixteen channels in a group that give as many, or several. Each is measured with every number of
groups that divides its own, weights of 0 between what was apart: fully optimized, on one thread, all of them in turns.
Prints what each element costs (a fit in which all weigh the same), how far the fit is off, how much longer than the
fastest its choice takes, and what is gained. Times include the call of a session.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from relayout.targets.onnxruntime.merge_conv_groups import DEPTH, NODE, PRODUCT, RUN, UNITS, groups_in_one

EXTENTS, WINDOWS = (8, 14, 28, 56), (1, 3, 5)
MOST_BYTES, MOST_PLACES = 2_500_000, 28 * 28
TURN_SECONDS = 0.004
NAMES, PRICES = ("convolution", "run", "product"), (NODE, RUN, PRODUCT)


@dataclass(frozen=True)
class Size:
    """A convolution of a square image with a border that keeps its extents: channels and units of one group."""

    extent: int
    window: int
    groups: int
    depth: int
    units: int

    def counts(self) -> list[int]:
        """How many groups may be one, of kernels that are not too large."""
        size = self.groups * self.units * self.depth * self.window**2
        return [n for n in range(1, self.groups + 1) if self.groups % n == 0 and size * n <= MOST_BYTES]

    def costs(self, count: int) -> list[float]:
        """What the time grows with where so many groups are one, as `NAMES` says."""
        places, groups, runs = self.extent**2, self.groups // count, self.window**2
        elements = -(-runs * self.depth * count // DEPTH) * DEPTH
        return [
            1,
            places * groups * runs * (groups > 1),
            places * groups * elements * -(-self.units * count // UNITS) * UNITS,
        ]

    def model(self, count: int) -> bytes:
        """The convolution, with so many groups as one; it reads and gives channels last."""
        rng, o, c = np.random.default_rng(0), self.groups * self.units, self.groups * self.depth
        constants = {
            "w": rng.integers(-127, 128, (o, self.depth * count, self.window, self.window)).astype(np.int8),
            "ws": np.full(o, 0.01, np.float32),
            "wz": np.zeros(o, np.int8),
            "b": rng.integers(-900, 900, o).astype(np.int32),
            "bs": np.full(o, 0.0003, np.float32),
            "xs": np.float32(0.03),
            "ys": np.float32(0.4),
            "z": np.uint8(3),
        }
        make = helper.make_node
        nodes = [
            make("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
            make("DequantizeLinear", ["first", "xs", "z"], ["data"]),
            make("DequantizeLinear", ["w", "ws", "wz"], ["kernel"], axis=0),
            make("DequantizeLinear", ["b", "bs"], ["bias"], axis=0),
            make("Conv", ["data", "kernel", "bias"], ["sum"], group=self.groups // count, pads=[self.window // 2] * 4),
            make("QuantizeLinear", ["sum", "ys", "z"], ["bytes"]),
            make("Transpose", ["bytes"], ["y"], perm=[0, 2, 3, 1]),
        ]
        image = [1, self.extent, self.extent]
        graph = helper.make_graph(
            nodes,
            "convolution",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, [*image, c])],
            [helper.make_tensor_value_info("y", TensorProto.UINT8, [*image, o])],
            [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        onnx.checker.check_model(made)
        return bytes(made.SerializeToString())


def sizes() -> Iterator[Size]:
    """Channels that give several each, and groups of channels that give as many."""
    for extent, window in itertools.product(EXTENTS, WINDOWS):
        for channels, units in itertools.product((3, 8, 32, 64, 128), (2, 4)):
            if extent**2 * channels * units <= MOST_PLACES * 256:
                yield Size(extent, window, channels, 1, units)
        for channels, depth in itertools.product((32, 64, 128, 256), (2, 4, 8, 16)):
            if extent**2 <= MOST_PLACES:
                yield Size(extent, window, channels // depth, depth, depth)


def nanoseconds(size: Size, rounds: int) -> list[float]:
    """The median of the rounds' fastest runs, for each number of groups that are one."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    data = np.random.default_rng(1).integers(0, 256, (1, size.extent, size.extent, size.groups * size.depth))
    fed, sessions = {"x": data.astype(np.uint8)}, []
    for count in size.counts():
        sessions.append(onnxruntime.InferenceSession(size.model(count), options, providers=["CPUExecutionProvider"]))
    took: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds + 1):
        for session, times in zip(sessions, took, strict=True):
            times.append(_fastest(session, fed))
    return [statistics.median(times[1:]) for times in took]


def _fastest(session: Any, fed: dict[str, Any]) -> float:
    end, least, runs = time.perf_counter() + TURN_SECONDS, math.inf, 0
    while runs < 2 or time.perf_counter() < end:
        began = time.perf_counter()
        session.run(None, fed)
        least, runs = min(least, time.perf_counter() - began), runs + 1
    return 1e9 * least


def main() -> int:
    """Print the prices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    every, times = list(sizes()), []
    for number, size in enumerate(every, 1):
        times.append(nanoseconds(size, given.rounds))
        print(f"\r{number} of {len(every)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    rows = np.array([size.costs(count) for size in every for count in size.counts()], float)
    measured = np.array([each for took in times for each in took])
    fit = np.linalg.lstsq(rows / measured[:, None], np.ones(len(measured)), rcond=None)[0]
    for name, cost, price in zip(NAMES, fit, PRICES, strict=True):
        print(f"{name}: {cost:.4g} ns, and {price:.4g} in `merge_conv_groups`")
    off = np.abs(rows @ np.array(PRICES) / measured - 1)
    print(f"{len(measured)} forms of {len(every)} convolutions", end="")
    print(f", off by {np.median(off):.2f} (median; worst {off.max():.2f})")
    _judge(every, times)
    if given.json:
        found = [{"size": asdict(s), "counts": s.counts(), "ns": took} for s, took in zip(every, times, strict=True)]
        given.json.write_text(json.dumps({"rows": found, "fit": list(fit)}))
    return 0


def _judge(every: Sequence[Size], times: Sequence[Sequence[float]]) -> None:
    """Say what the choice of `merge_conv_groups` takes, beside the fastest and beside the file's groups."""
    lost, gained, slower, stay = [], [], 0, 0
    for size, took in zip(every, times, strict=True):
        window, units = (size.window, size.window), size.groups * size.units
        count = groups_in_one(size.groups, units, size.depth, window, size.extent**2)
        chosen = took[size.counts().index(count)]
        lost.append(chosen / min(took))
        stay += count == 1
        slower += chosen > took[0]
        if count > 1:
            gained.append(chosen / took[0])
    print(f"the choice takes {statistics.mean(lost):.3f} of the least time in the mean, {max(lost):.2f} at most")
    print(f"{stay} stay; the others take {min(gained):.2f} to {max(gained):.2f} of the time before ", end="")
    print(f"(median {statistics.median(gained):.2f}); {slower} take longer")


if __name__ == "__main__":
    raise SystemExit(main())
