"""Measure what operators take in LiteRT that it runs slowly, as they are and as `litert` writes them.

    python bench/measure_rewrites.py [--rounds 15] [--threads 1]

Each model is one operator, or one between integers. Both files run in turns; a row gives the median of each in
milliseconds, their ratio and the largest difference of the results, by the largest value or in steps of integers.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Iterator

import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter
from tables import table

import relayout
from relayout.formats.recognition import SOURCE_FORMAT

HEAD = '<ir_version: 10, opset_import: ["" : 21]> g '


def product(front: str, rows: int, depth: int, columns: int) -> str:
    """A product of int8 activations with zero points, whose result fills the range of its integers."""
    step = 0.02 * 0.03 * 74 * depth**0.5 * 2
    x, k, y = (f"int8[{front}, {m}, {n}]" for m, n in ((rows, depth), (depth, columns), (rows, columns)))
    ends = f"({x} x, {k} k) => ({y} y)"
    return f"""{HEAD}{ends} <float s = {{0.02}}, float t = {{0.03}}, float u = {{{step}}}, int8 z = {{-7}}> {{
        a = DequantizeLinear(x, s, z) b = DequantizeLinear(k, t, z) c = MatMul(a, b) y = QuantizeLinear(c, u, z) }}"""


def every_second_row(n: int, channels: int) -> str:
    ends = f"(float[1, {n}, {n}, {channels}] x) => (float[1, {n // 2}, {n}, {channels}] y)"
    return f"""{HEAD}{ends} <int64[1] b = {{0}}, int64[1] e = {{{n}}}, int64[1] a = {{1}}, int64[1] k = {{2}}> {{
        y = Slice(x, b, e, a, k) }}"""


def mirrored(n: int, channels: int, border: int) -> str:
    ends = f"(float[1, {n}, {n}, {channels}] x) => (float[1, {n + 2 * border}, {n + 2 * border}, {channels}] y)"
    amounts = f"0, {border}, {border}, 0, 0, {border}, {border}, 0"
    return f"""{HEAD}{ends} <int64[8] p = {{{amounts}}}> {{ y = Pad<mode = "reflect">(x, p) }}"""


def response(n: int, channels: int) -> str:
    ends = f"(float[1, {channels}, {n}, {n}] x) => (float[1, {channels}, {n}, {n}] y)"
    return f"{HEAD}{ends} {{ y = LRN<size = 5, alpha = 0.0001, beta = 0.75>(x) }}"


def angle(op_type: str) -> str:
    ends = "(float[1, 64, 56, 56] x) => (float[1, 64, 56, 56] y)"
    return f"{HEAD}{ends} {{ c = Tanh(x) y = {op_type}(c) }}"


def of_booleans(op_type: str, operands: str = "x, y", stretched: str = "1, 64, 56, 56") -> str:
    ends = f"(bool[1, 64, 56, 56] x, bool[{stretched}] y) => (bool[1, 64, 56, 56] z)"
    return f"{HEAD}{ends} {{ z = {op_type}({operands}) }}"


def convolution(
    op_type: str, channels: int, space: tuple[int, ...], kernel: tuple[int, ...], **given: object
) -> onnx.ModelProto:
    """A convolution of an image, a volume or a sequence, by a kernel of any shape.

    Args:
        op_type: `Conv` or `ConvTranspose`.
        channels: of the image.
        space: its other extents.
        kernel: the kernel's extents.
        given: the operator's attributes.
    """
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node(op_type, ["x", "w"], ["y"], **given)],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, channels, *space])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=kernel).astype(np.float32), "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    return onnx.shape_inference.infer_shapes(model)


def convolutions() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Yield depthwise ones by large windows or with several results a channel, transposed ones, those of volumes."""
    for n, channels, size, stride, border in (
        (56, 96, 7, 1, 3),
        (7, 768, 7, 1, 3),
        (56, 64, 7, 2, 3),
        (56, 64, 9, 1, 0),
        (56, 64, 11, 1, 5),
        (7, 512, 7, 1, 0),
    ):
        named = f"Conv, depthwise {size} x {size}, steps of {stride}, border {border}, {n} x {n} x {channels}"
        kernel = (channels, 1, size, size)
        attributes = {"strides": [stride] * 2, "pads": [border] * 4, "group": channels}
        yield named, convolution("Conv", channels, (n, n), kernel, **attributes)
    yield (
        "Conv, depthwise 1 x 31, 1 x 400 x 256",
        convolution("Conv", 256, (1, 400), (256, 1, 1, 31), pads=[0, 15] * 2, group=256),
    )
    for n, channels, count, size, stride in (
        (64, 48, 2, 7, 2),
        (64, 48, 2, 3, 2),
        (112, 16, 2, 3, 1),
        (28, 128, 2, 5, 1),
        (14, 96, 3, 3, 2),
        (28, 128, 4, 3, 1),
    ):
        named = f"Conv, depthwise {size} x {size}, steps of {stride}, {n} x {n} x {channels}, {count} results a channel"
        attributes = {"strides": [stride] * 2, "pads": [size // 2] * 4, "group": channels}
        yield named, convolution("Conv", channels, (n, n), (count * channels, 1, size, size), **attributes)
    for n, channels, outputs, size, stride, border, group in (
        (28, 64, 64, 2, 2, 0, 1),
        (28, 64, 64, 3, 2, 1, 1),
        (28, 64, 64, 4, 2, 1, 1),
        (8, 512, 256, 4, 2, 1, 1),
        (64, 64, 3, 4, 2, 1, 1),
        (28, 64, 64, 4, 2, 1, 64),
        (28, 64, 64, 3, 1, 1, 64),
    ):
        named = f"ConvTranspose {size} x {size}, steps of {stride}, {group} groups, {n} x {n} x {channels} to {outputs}"
        attributes = {"strides": [stride] * 2, "pads": [border] * 4, "group": group}
        yield (
            named,
            convolution("ConvTranspose", channels, (n, n), (channels, outputs // group, size, size), **attributes),
        )
    for depth, n, channels, stride in ((8, 28, 16, 1), (8, 14, 64, 1), (8, 28, 32, 2)):
        attributes = {"strides": [stride] * 3, "pads": [1] * 6}
        named = f"Conv 3 x 3 x 3, steps of {stride}, {depth} x {n} x {n} x {channels}"
        yield named, convolution("Conv", channels, (depth, n, n), (channels, channels, 3, 3, 3), **attributes)


def cases() -> Iterator[tuple[str, str | onnx.ModelProto]]:
    for front, rows, depth, columns in (("1, 12", 197, 64, 197), ("1, 12", 197, 197, 64), ("128, 3", 16, 32, 16)):
        yield f"MatMul of int8, {front} x {rows} x {depth} x {columns}", product(front, rows, depth, columns)
    for n, channels in ((56, 96), (28, 192), (128, 3)):
        yield f"Slice by 2, {n} x {n} x {channels}", every_second_row(n, channels)
    yield from convolutions()
    for n, channels in ((55, 64), (26, 256), (14, 512)):
        yield f"LRN, {n} x {n} x {channels}", response(n, channels)
    for op_type in ("Acos", "Asin", "Atan"):
        yield f"{op_type} of a Tanh, 64 x 56 x 56", angle(op_type)
    yield "Not, 64 x 56 x 56", of_booleans("Not", "x")
    for op_type in ("And", "Or"):
        yield f"{op_type}, 64 x 56 x 56", of_booleans(op_type)
        yield f"{op_type}, 64 x 56 x 56 and 64", of_booleans(op_type, stretched="64, 1, 1")
    for n, channels, border in ((128, 32, 1), (256, 3, 3), (16, 8, 1)):
        yield f"Pad that mirrors {border}, {n} x {n} x {channels}", mirrored(n, channels, border)


def both(model: onnx.ModelProto) -> tuple[bytes, bytes]:
    """The file with the operator as it is, as of a model that was a `.tflite`, and the one that is written."""
    written = relayout.convert(model, format="tflite", io="convert").tflite
    onnx.helper.set_model_props(model, {SOURCE_FORMAT: "tflite"})
    return relayout.convert(model, format="tflite", io="convert").tflite, written


def measured(files: tuple[bytes, bytes], rounds: int, threads: int) -> tuple[list[float], float]:
    runs, results = [], []
    for content in files:
        runs.append(interpreter := Interpreter(model_content=content, num_threads=threads))
        interpreter.allocate_tensors()
        rng = np.random.default_rng(0)
        for each in interpreter.get_input_details():
            real = each["dtype"] == np.float32
            numbers = rng.normal(size=each["shape"]) if real else rng.integers(-128, 128, each["shape"])
            interpreter.set_tensor(each["index"], numbers.astype(each["dtype"]))
        interpreter.invoke()
        results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).astype(np.float64))
    seconds: list[list[float]] = [[], []]
    for _ in range(rounds):
        for place in random.sample((0, 1), 2):
            began = time.perf_counter()
            runs[place].invoke()
            seconds[place].append(time.perf_counter() - began)
    scale = 1 if is_of_integers(files[0]) else np.abs(results[0]).max()
    return [1000 * statistics.median(each) for each in seconds], float(np.abs(results[0] - results[1]).max() / scale)


def is_of_integers(content: bytes) -> bool:
    """Tell whether a result is integers."""
    return Interpreter(model_content=content).get_output_details()[0]["dtype"] == np.int8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    lines = []
    for name, text in cases():
        model = onnx.parser.parse_model(text) if isinstance(text, str) else text
        (plain, written), off = measured(both(model), options.rounds, options.threads)
        lines.append([name, f"{plain:.3f}", f"{written:.3f}", f"{written / plain:.2f}", f"{off:.1e}"])
    print(table(["operator", "ms as it is", "ms as written", "ratio", "off"], lines))


if __name__ == "__main__":
    main()
