"""Measure single operators in LiteRT beside ONNX Runtime, the slowest first: what has a slow form is found here.

    python bench/operator_times.py [--above 1.3] [WORD ...]

Each case is one operator of a size that networks have. Its `.tflite` and its ONNX form run in turns on one thread; a
row gives the least time of each in microseconds, and the builtins of the file. With words only cases are measured whose
operator is one of them.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from onnx import helper, numpy_helper
from tables import table

import relayout
from relayout.errors import RelayoutError

ROUNDS = 12
Array = np.ndarray[Any, Any]
Case = tuple[str, list[Array], dict[str, Array], dict[str, Any]]
"""Operator, its inputs, its constants by name behind them, and its attributes."""

RNG = np.random.default_rng(0)
FUNCTIONS = """Relu LeakyRelu Elu Selu Celu Sigmoid Tanh HardSigmoid HardSwish Softplus Softsign Mish Erf Exp Neg Abs
    Floor Ceil Round Sin Cos Tan Atan Sinh Cosh Asinh Sign Reciprocal ThresholdedRelu Gelu IsNaN"""
SUMS = "ReduceMean ReduceMax ReduceSum ReduceL2 ReduceProd ReduceLogSumExp"


def reals(*extents: int) -> Array:
    return RNG.standard_normal(extents).astype(np.float32)


def whole(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


def windows() -> Iterator[Case]:
    """Yield convolutions and pools."""
    image, small = reals(1, 64, 56, 56), reals(1, 64, 28, 28)
    for group in (1, 2, 4, 16, 32, 64):
        yield "Conv", [image], {"w": reals(64, 64 // group, 3, 3)}, {"pads": [1] * 4, "group": group}
    for size, stride, border in ((3, 2, 1), (5, 1, 2), (7, 1, 3), (7, 2, 3), (9, 1, 0), (13, 1, 6)):
        attributes = {"pads": [border] * 4, "strides": [stride] * 2, "group": 64}
        yield "Conv", [image], {"w": reals(64, 1, size, size)}, attributes
    yield "Conv", [image], {"w": reals(128, 1, 3, 3)}, {"pads": [1] * 4, "group": 64}
    yield "Conv", [image], {"w": reals(64, 64, 3, 3)}, {"pads": [4] * 4, "dilations": [4, 4]}
    yield "Conv", [reals(1, 3, 224, 224)], {"w": reals(64, 3, 7, 7)}, {"pads": [3] * 4, "strides": [2, 2]}
    yield "Conv", [reals(1, 64, 1000)], {"w": reals(64, 64, 3)}, {"pads": [16, 0], "dilations": [8]}
    yield "Conv", [reals(1, 64, 1000)], {"w": reals(64, 1, 31)}, {"pads": [15, 15], "group": 64}
    for group in (1, 16):
        yield (
            "Conv",
            [reals(1, 16, 8, 28, 28)],
            {"w": reals(16, 16 // group, 3, 3, 3)},
            {"pads": [1] * 6, "group": group},
        )
    for size, stride, border, group in ((2, 2, 0, 1), (3, 2, 1, 1), (4, 2, 1, 1), (4, 2, 1, 64), (3, 1, 1, 64)):
        attributes = {"pads": [border] * 4, "strides": [stride] * 2, "group": group}
        yield "ConvTranspose", [small], {"w": reals(64, 64 // group, size, size)}, attributes
    yield "ConvTranspose", [reals(1, 256, 50)], {"w": reals(256, 128, 16)}, {"strides": [8], "pads": [4, 4]}
    yield "ConvTranspose", [reals(1, 16, 8, 14, 14)], {"w": reals(16, 16, 2, 2, 2)}, {"strides": [2, 2, 2]}
    for op_type in ("AveragePool", "MaxPool"):
        for attributes in (
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4},
            {"kernel_shape": [13, 13], "pads": [6] * 4},
        ):
            yield op_type, [small], {}, attributes
    yield "MaxPool", [image], {}, {"kernel_shape": [3, 3], "dilations": [2, 2], "pads": [2] * 4}
    for op_type in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "MeanVarianceNormalization"):
        yield op_type, [image], {}, {}


def elements() -> Iterator[Case]:
    """Yield functions of elements, sums and normalizations."""
    image, scale = reals(1, 64, 56, 56), {"s": reals(64), "b": reals(64)}
    for op_type in FUNCTIONS.split():
        yield op_type, [image], {}, {}
    for op_type in ("Acos", "Asin"):
        yield op_type, [np.clip(image / 5, -1, 1)], {}, {}
    for op_type in ("Add", "Mul", "Div", "Max", "Pow"):
        yield op_type, [np.abs(image) + 1, np.abs(reals(1, 64, 56, 56)) + 1], {}, {}
        yield op_type, [np.abs(image) + 1], {"c": np.abs(reals(64, 1, 1)) + 1}, {}
    for op_type in SUMS.split():
        for axes in ((2, 3), (1,)):
            yield op_type, [image], {"a": whole(*axes)}, {}
    yield "Not", [image > 0], {}, {}
    for op_type in ("And", "Or", "Xor"):
        yield op_type, [image > 0, reals(1, 64, 56, 56) > 0], {}, {}
    yield "Where", [image > 0, image, reals(1, 64, 56, 56)], {}, {}
    yield "LRN", [image], {}, {"size": 5}
    yield "InstanceNormalization", [image], scale, {}
    yield "GroupNormalization", [image], scale, {"num_groups": 8}
    yield "LayerNormalization", [reals(1, 196, 192)], {"s": reals(192), "b": reals(192)}, {}
    for op_type in ("Softmax", "LogSoftmax", "Hardmax"):
        yield op_type, [reals(8, 128, 256)], {}, {"axis": -1}
    for op_type, axis in (("ArgMax", 1), ("ArgMax", 3), ("ArgMin", 1)):
        yield op_type, [reals(1, 21, 128, 128)], {}, {"axis": axis}
    yield "CumSum", [reals(1, 128, 256)], {"a": np.array(1, np.int64)}, {}
    yield "MatMul", [reals(1, 8, 196, 32), reals(1, 8, 32, 196)], {}, {}
    yield "MatMul", [reals(1, 196, 192)], {"w": reals(192, 768)}, {}
    yield "Gemm", [reals(16, 512)], {"w": reals(512, 512), "b": reals(512)}, {"transB": 1}
    yield "Einsum", [reals(1, 196, 8, 32), reals(1, 196, 8, 32)], {}, {"equation": "bqhd,bkhd->bhqk"}


def moves() -> Iterator[Case]:
    """Yield operators that move elements."""
    image, small = reals(1, 64, 56, 56), reals(1, 64, 28, 28)
    twice = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
    for mode, coordinates in (
        ("nearest", "asymmetric"),
        ("linear", "half_pixel"),
        ("linear", "align_corners"),
        ("cubic", "half_pixel"),
    ):
        yield "Resize", [small], twice, {"mode": mode, "coordinate_transformation_mode": coordinates}
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield "Pad", [image], {"p": whole(0, 0, 3, 3, 0, 0, 3, 3)}, {"mode": mode}
    for mode in ("DCR", "CRD"):
        yield "DepthToSpace", [small], {}, {"blocksize": 2, "mode": mode}
    yield "SpaceToDepth", [image], {}, {"blocksize": 2}
    yield "Slice", [image], {"b": whole(0, 0), "e": whole(56, 56), "a": whole(2, 3), "k": whole(2, 2)}, {}
    yield "Slice", [image], {"b": whole(-1), "e": whole(-99), "a": whole(3), "k": whole(-1)}, {}
    yield "Concat", [image, image], {}, {"axis": 1}
    yield "Tile", [small], {"r": whole(1, 1, 2, 2)}, {}
    yield "Gather", [image], {"i": RNG.permutation(64)[:32]}, {"axis": 1}
    yield "GatherElements", [reals(1, 128, 256), RNG.integers(0, 128, (1, 32, 256))], {}, {"axis": 1}
    yield "ScatterND", [reals(128, 256), RNG.permutation(128)[:64, None], reals(64, 256)], {}, {}
    yield "GridSample", [small, np.clip(reals(1, 28, 28, 2) / 2, -1, 1)], {}, {}
    yield "TopK", [reals(1, 8400)], {"k": whole(300)}, {}
    yield "Trilu", [reals(1, 8, 128, 128)], {}, {"upper": 0}


def model_of(case: Case) -> onnx.ModelProto:
    op_type, arrays, constants, attributes = case
    inputs = [
        helper.make_tensor_value_info(f"x{place}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for place, array in enumerate(arrays)
    ]
    count = 2 if op_type == "TopK" else 1
    outputs = [helper.make_empty_tensor_value_info(f"y{place}") for place in range(count)]
    node = helper.make_node(
        op_type, [*(each.name for each in inputs), *constants], [each.name for each in outputs], **attributes
    )
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], op_type, inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def runners(case: Case) -> tuple[dict[str, Callable[[], object]], str]:
    """Return what runs a case in each runtime, and the builtins of its file."""
    model, options = model_of(case), onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feed = {f"x{place}": array for place, array in enumerate(case[1])}
    result = relayout.convert(model, format="tflite", io="convert")
    interpreter = Interpreter(model_content=result.tflite, num_threads=1)
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        array = feed[each["name"].partition(":")[0]]
        interpreter.set_tensor(each["index"], np.resize(array, each["shape"]).astype(each["dtype"]))
    builtins = Counter(result.report.operators)
    listed = ", ".join(f"{count} {name}" for name, count in builtins.most_common(4))
    return {"onnx": lambda: session.run(None, feed), "tflite": interpreter.invoke}, listed


def row(case: Case) -> list[Any]:
    """Return the name of a case, the ratio of its times, both in microseconds, and its builtins."""
    op_type, arrays, constants, attributes = case
    extents = "; ".join("x".join(map(str, array.shape)) for array in (*arrays, *constants.values()))
    name = f"{op_type} {extents} {' '.join(f'{key}={value}' for key, value in attributes.items())}"
    try:
        actions, builtins = runners(case)
    except RelayoutError as error:
        return [name, float("nan"), 0, 0, str(error)]
    least = dict.fromkeys(actions, float("inf"))
    for _ in range(ROUNDS):
        for kind, action in actions.items():
            began = time.perf_counter()
            action()
            least[kind] = min(least[kind], time.perf_counter() - began)
    return [name, least["tflite"] / least["onnx"], 1e6 * least["onnx"], 1e6 * least["tflite"], builtins]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--above", type=float, default=1.3, help="the ratio from which on a case is printed")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    cases = [
        case for part in (windows, elements, moves) for case in part() if not options.words or case[0] in options.words
    ]
    rows = sorted(map(row, cases), key=lambda each: -each[1])
    shown = [
        [name, f"{ratio:.2f}", f"{own:.0f}", f"{other:.0f}", text]
        for name, ratio, own, other, text in rows
        if not ratio <= options.above
    ]
    print(table(["operator", "ratio", "ONNX Runtime, us", "LiteRT, us", "builtins"], shown))
    print(f"{len(rows)} cases, {len(shown)} above {options.above}")


if __name__ == "__main__":
    main()
