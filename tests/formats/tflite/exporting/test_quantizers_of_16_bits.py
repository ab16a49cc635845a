"""Quantizers of com.microsoft, which have 16 bits before opset 21, as the standard's: a `.tflite` has no opsets."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from export_running import agrees
from onnx import TensorProto, helper, numpy_helper

import relayout
from litert_runs import operators
from small import build
from text_form import floats


def quantized(domain: str, opset: int, kind: type[np.generic], zero_point: int = 0) -> onnx.ModelProto:
    """Return a Relu between integers."""
    names = ("QuantizeLinear", "DequantizeLinear")
    scale, zero = (
        numpy_helper.from_array(np.float32(1 / 512), "s"),
        numpy_helper.from_array(np.array(zero_point, kind), "z"),
    )
    nodes = []
    for value, before, after in (("x", "a", "b"), ("r", "c", "y")):
        nodes.append(helper.make_node(names[0], [value, "s", "z"], [before], domain=domain))
        nodes.append(helper.make_node(names[1], [before, "s", "z"], [after], domain=domain))
    nodes.insert(2, helper.make_node("Relu", ["b"], ["r"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 6]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [scale, zero])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("kind", [np.int16, np.int8, np.uint8])
def test_they_are_written_as_the_standards(kind: type[np.generic]) -> None:
    own, standard = quantized("com.microsoft", 17, kind), quantized("", 21, kind)
    written = [operators(relayout.convert(model, format="tflite").tflite) for model in (own, standard)]
    assert written[0] == written[1]
    agrees(own, {"x": floats(1, 6)})


ZEROS = {"int16": (0, -2000, 500), "uint16": (32768, 0, 30000), "int8": (0, -7), "uint8": (128, 3)}
ENDS = [
    (first, zero, second, other)
    for first, second in itertools.product(ZEROS, repeat=2)
    for zero, other in itertools.product(ZEROS[first], ZEROS[second])
    if "16" in first + second
]
BETWEEN = (
    "",
    "m = Flatten(f)",
    "m = Transpose(f)",
    "m = Concat<axis=0>(f, f)",
    "m = Relu(f)",
    "m = Slice(f, one, two)",
)


@pytest.mark.parametrize("scale", [0.001, 0.0007])
@pytest.mark.parametrize(("first", "zero", "second", "other"), ENDS)
def test_integers_of_other_zero_points_are_quantized_again(
    first: str, zero: int, second: str, other: int, scale: float
) -> None:
    """The kernel that makes 16 bits of 16 bits has no zero points: these pass through real numbers."""
    between = BETWEEN[(zero + other + len(first)) % len(BETWEEN)] or "m = Identity(f)"
    text = f"f = DequantizeLinear(x, s, z)  {between}  y = QuantizeLinear(m, t, u)"
    constants = {
        "s": np.float32(0.001),
        "t": np.float32(scale),
        "z": np.array(zero, first),
        "u": np.array(other, second),
        "one": np.array([0]),
        "two": np.array([2]),
    }
    limits = np.iinfo(first)
    integers = np.random.default_rng(1).integers(limits.min, limits.max + 1, (3, 4)).astype(first)
    agrees(build(f"{first}[3,4] x", text, constants), {"x": integers})


@pytest.mark.parametrize("weights", [(np.uint8, 130), (np.uint8, 128), (np.int8, 0)])
@pytest.mark.parametrize("kind", [np.uint16, np.int16])
@pytest.mark.parametrize("operator", ["Relu(c)", 'Resize<mode="nearest">(c, none, sizes)', "Add(c, c)", "Neg(c)"])
def test_words_beside_unsigned_weights(
    weights: tuple[type[np.generic], int], kind: type[np.generic], operator: str
) -> None:
    """Unsigned weights with a zero point keep bytes unsigned; of words there are signed kernels alone."""
    text = f"""
        a = QuantizeLinear(x, s, z)  b = DequantizeLinear(a, s, z)
        w = DequantizeLinear(k, v, q)  d = Conv(b, w)
        e = QuantizeLinear(d, s, z)  c = DequantizeLinear(e, s, z)
        r = {operator}
        g = QuantizeLinear(r, s, z)  y = DequantizeLinear(g, s, z)
    """
    dtype, zero = weights
    low = 0 if dtype == np.uint8 else -127
    constants = {
        "s": np.float32(1e-4),
        "z": np.array(32768 if kind == np.uint16 else 0, kind),
        "k": np.random.default_rng(2).integers(low, low + 255, (4, 3, 1, 1)).astype(dtype),
        "v": np.float32(0.005),
        "q": np.array(zero, dtype),
        "none": np.zeros(0, np.float32),
        "sizes": np.array([1, 1, 2, 2], np.float32),
    }
    agrees(build("float[1,3,4,5] x", text, constants), {"x": floats(1, 3, 4, 5)}, tolerance=20.0)


@pytest.mark.parametrize(("kind", "zero_point"), [(np.int16, 5), (np.uint16, 32768), (np.int16, 0), (np.int8, 5)])
def test_a_hint_at_symmetric_values(kind: type[np.generic], zero_point: int) -> None:
    notes = relayout.convert(quantized("", 21, kind, zero_point), format="tflite").report.notes
    is_told = any("2 values of 16 bits have a zero point, so they are computed in float" in note for note in notes)
    assert is_told == (kind is not np.int8 and zero_point != 0)
