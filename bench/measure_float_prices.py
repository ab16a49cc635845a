"""Measure what ONNX Runtime's kernels of floats cost where what they work on together lies apart.

    python bench/measure_float_prices.py [--rounds 15] [--table src/relayout/targets/onnxruntime/float_prices.py]

The second table of `--target onnxruntime-cpu`: as `bench/measure_prices.py` does it, each kernel runs as a model of one
node on one thread, and so does the Transpose of floats between the two orders. A price is a median over images, in
elements that could have been transposed meanwhile: for a reduction of what is not innermost, per element that is read,
beside the same with channels first; for an operand that is one element for a few of another's, per such run, beside
one run of all elements.

Beside these, from how many channels on a convolution in three dimensions takes no longer on integers, with kernels of
int8 and uint8, than on real numbers between a DequantizeLinear and a QuantizeLinear.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime
from measure_blocked_prices import run_of
from measure_prices import (
    IMAGES,
    LAST,
    MICROSOFT,
    SCALES,
    SLOWER,
    Way,
    idle,
    in_one_line,
    nanoseconds,
    processor,
    transposed,
)

VOLUME, WINDOW, KERNELS = (4, 24, 40), 3, (np.int8, np.uint8)
CHANNELS = (1, 2, 4, 8, 12, 16, 24, 32)
REDUCING = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
STRETCHING = ("Add", "Div", "Mul", "Sub")
RUN = 4
"""Channels of a group."""
FLOAT = np.float32


def reductions(c: int, h: int, w: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Shapes and axes: channels first, channels last, groups of channels last."""
    yield (1, c, h, w), (2, 3)
    yield (1, h, w, c), (1, 2)
    yield (1, h, w, c // RUN, RUN), (1, 2, 4)


def measured(rounds: int) -> Iterator[tuple[str, float]]:
    """(price, its size) of each image."""
    (nothing,) = nanoseconds([idle().session()], rounds)
    for c, h, w in IMAGES:
        elements = c * h * w
        moves = [transposed(c, h, w, last, FLOAT).session() for last in (False, True)]
        move = (sum(nanoseconds(moves, rounds)) / 2 - nothing) / elements
        for name in REDUCING:
            axes_as_input = name == "ReduceSum"
            runs = [
                run_of(name, "", shape, np.array(axes, np.int64))
                if axes_as_input
                else run_of(name, "", shape, axes=axes)
                for shape, axes in reductions(c, h, w)
            ]
            first, *others = nanoseconds(runs, rounds)
            yield from ((name, (last - first) / elements / move) for last in others)
        for name in STRETCHING:
            ways = ((elements,), (1,)), ((h * w, c // RUN, RUN), (c // RUN, 1))
            runs = [run_of(name, "", image, np.ones(numbers, FLOAT)) for image, numbers in ways]
            one, many = nanoseconds(runs, rounds)
            yield "stretched", (many - one) / (elements // RUN) / move
        print(f"{(c, h, w)}: Transpose {move:.3f} ns per element", file=sys.stderr, flush=True)


def on_integers(c: int, kernel: type) -> tuple[Way, ...]:
    """A convolution in three dimensions, of so many channels to twice as many."""
    weights = np.random.default_rng(c).integers(0, 99, (2 * c, c, *[WINDOW] * 3)).astype(kernel)
    constants = SCALES | {"w": weights, "ws": np.full(2 * c, 0.01, np.float32), "wz": np.zeros(2 * c, kernel)}
    said = (("pads", [WINDOW // 2] * 6), *LAST)
    inputs = ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz")
    return (Way("QLinearConv", inputs, constants, (1, *VOLUME, c), (1, *VOLUME, 2 * c), MICROSOFT, said),)


def on_reals(c: int) -> tuple[Way, ...]:
    """The same on real numbers, from integers and to integers."""
    read, given, scales = (1, c, *VOLUME), (1, 2 * c, *VOLUME), ("x", "xs", "xz")
    weights = {"w": np.random.default_rng(c).normal(size=(2 * c, c, *[WINDOW] * 3)).astype(FLOAT)}
    return (
        Way("DequantizeLinear", scales, SCALES, read, read, gives=FLOAT),
        Way("Conv", ("x", "w"), weights, read, given, "", (("pads", [WINDOW // 2] * 6),), FLOAT),
        Way("QuantizeLinear", scales, SCALES, given, given, dtype=FLOAT, gives=np.uint8),
    )


def least_in_volumes(rounds: int) -> int:
    """From how many channels on integers are no slower in three dimensions, both types of kernels taken together."""
    found = 0
    for c in reversed(CHANNELS):
        ways = [way for kernel in KERNELS for way in on_integers(c, kernel)]
        *integers, there, real, back = nanoseconds([way.session() for way in (*ways, *on_reals(c))], rounds)
        ratio = statistics.mean(integers) / (there + real + back)
        print(f"{c:5} channels in volumes: {ratio:.2f} of the time on reals", file=sys.stderr, flush=True)
        if ratio > SLOWER:
            break
        found = c
    return found


def table(rows: list[tuple[str, float]], least: int) -> str:
    """The module that keeps the prices."""
    known = {name: statistics.median(price for other, price in rows if other == name) for name, _ in rows}
    lines = [
        '"""What ONNX Runtime\'s kernels of floats take longer where elements lie apart, in transposed elements.',
        "",
        "Written by `bench/measure_float_prices.py`: not edited by hand.",
        '"""',
        "",
        f'MEASURED = "ONNX Runtime {onnxruntime.__version__}, {processor()}"',
        f"REDUCED = {in_one_line({name: known[name] for name in REDUCING})}",
        '"""Per element that is read, where what is reduced is not innermost."""',
        f"STRETCHED = {known['stretched']:.0f}  # per short run of a stretched operand",
        f"LEAST_IN_VOLUMES = {least}"
        "  # from how many channels on a convolution in three dimensions takes no longer on integers",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    rows = list(measured(options.rounds))
    for name in dict(rows):
        print(name, [round(price, 2) for other, price in rows if other == name], file=sys.stderr)
    made = table(rows, least_in_volumes(options.rounds))
    if options.table:
        options.table.write_text(made, encoding="utf-8")
    else:
        print(made)


if __name__ == "__main__":
    main()
