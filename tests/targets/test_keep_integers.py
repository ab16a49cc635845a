"""Targets that prefer integers: a quantized unit stays on them whatever its scale, and the report says how far off."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

import relayout
from relayout.layout.stored_as import STEPS_OFF, steps_off
from relayout.targets import target
from running import run
from small import build
from targets.judging import answers, saved
from targets.test_unit_exports import litert
from targets.vela import PROGRAM, judge, needs_vela

TARGETS = ("ethos-u", "tflite-micro", "tosa")
MICRO = os.environ.get("RELAYOUT_TFLM")
"""A Python that has tflite-micro."""
EVERY_BYTE = np.arange(-128, 128, dtype=np.int16)


def chain(body: str, scales: dict[str, tuple[float, int]], dtype: str = "int8", opset: int = 17) -> onnx.ModelProto:
    """Return a model of bytes: each `name = Operator(…)` of the body is quantized with that name's scale.

    Args:
        body: lines; an operand is a name of a line before, `x`, or a constant `{number}`.
        scales: name -> its scale and zero point as int8; the last line's name is the output.
        dtype: of the integers.
        opset: of the model.
    """
    shift = 128 if dtype == "uint8" else 0
    constants, lines, read = [], [], {"x": "x"}
    for name, (scale, zero) in scales.items():
        constants += [f"float {name}_s = {{{scale}}}", f"{dtype} {name}_z = {{{zero + shift}}}"]
    lines.append("x_d = DequantizeLinear(x, x_s, x_z)")
    for line in body.strip().splitlines():
        name, _, call = (part.strip() for part in line.partition("="))
        for number in re.findall(r"\{(.*?)\}", call):
            constant = f"c{len(constants)}"
            constants.append(f"float {constant} = {{{number}}}")
            call = call.replace(f"{{{number}}}", constant, 1)
        call = re.sub(rf"\b({'|'.join(map(re.escape, read))})\b(?!_)", lambda match: f"{match[0]}_d", call)
        lines += [f"{name}_r = {call}", f"{name} = QuantizeLinear({name}_r, {name}_s, {name}_z)"]
        lines.append(f"{name}_d = DequantizeLinear({name}, {name}_s, {name}_z)")
        read[name] = name
    lines.pop()  # the output is integers
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]> g ({dtype}[1, 4, 8, 8] x) => ({dtype}[1, 4, 8, 8] {name})
        <{", ".join(constants)}> {{ {"; ".join(lines)} }}"""
    return onnx.parser.parse_model(text.replace("; ", "\n"))


def every_byte(dtype: str) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {"x": (EVERY_BYTE + (128 if dtype == "uint8" else 0)).astype(dtype).reshape(1, 4, 8, 8)}


def assert_on_integers(model: onnx.ModelProto, name: str, dtype: str, steps: int) -> dict[str, relayout.Result]:
    """Hold the results for all targets to the source: no real numbers, all claimed, at most some steps off."""
    feed, results = every_byte(dtype), dict[str, relayout.Result]()
    (expected,) = run(model, feed)
    output = model.graph.output[0].name
    for each in TARGETS:
        result = results[each] = relayout.convert(model, format="tflite", target=each)
        assert not {"DEQUANTIZE", "RELU_0_TO_1"} & set(result.report.operators), (each, result.report.operators)
        claims = result.report.claims
        assert claims is not None
        assert claims.claimed == claims.total or (dtype == "uint8" and each != "ethos-u"), (each, claims)
        off = np.abs(litert(result, feed)[output].astype(int) - expected.astype(int)).max()
        assert off <= steps, (each, off)
        if name:
            assert any(f"{name} (at most" in note for note in result.report.notes), result.report.notes
    return results


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("scale", "zero"), [(0.1, 0), (0.02, 40), (0.03125, -128)])
@pytest.mark.parametrize("part", [1.7, 0.99, 0.58, 0.3, 0.05])
def test_a_sigmoid_with_a_calibrated_scale(part: float, scale: float, zero: int, dtype: str) -> None:
    """The result of quantizers has the scale of the largest value that they saw, 0.3 to 1 of what the kernel gives."""
    body = "s = Sigmoid(x)\n y = Mul(x, s)"
    model = chain(body, {"x": (scale, zero), "s": (part / 256, -128), "y": (scale / 2, -100)}, dtype)
    assert_on_integers(model, "", dtype, 2 if part > 0.1 else 11)


@pytest.mark.parametrize("written", ["tflite", "onnx"])
def test_values_with_the_scale_of_a_kernel_are_not_held_to_the_source(written: Literal["tflite", "onnx"]) -> None:
    scales = {"x": (0.0023, 6), "s": (0.57 / 256, -128), "y": (0.00114, -13)}
    model = chain("s = Sigmoid(x)\n y = Mul(x, s)", scales)
    result = relayout.convert(model, format=written, target="ethos-u")
    assert any("1 Sigmoid (at most 2 steps off)" in note for note in result.report.notes), result.report.notes
    report = relayout.verify(model, result)
    assert report.ok, str(report)


class _Samples(CalibrationDataReader):
    def __init__(self) -> None:
        self._left = iter(np.random.default_rng(0).normal(size=(6, 1, 8, 12, 12)).astype(np.float32))

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[type-arg]
        return next(({"x": sample} for sample in self._left), None)


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    """Four blocks of operators that have no integer kernel for the scales that ONNX Runtime gives them."""
    folder, rng, lines, constants = tmp_path_factory.mktemp("gated"), np.random.default_rng(1), "", {}
    for i, x in enumerate(["x", "m0", "m1", "m2"]):
        lines += f"""a{i} = Conv<pads=[1,1,1,1]>({x}, w{i})  n{i} = BatchNormalization(a{i}, s{i}, b{i}, u{i}, v{i})
            t{i} = Tanh(n{i})  c{i} = Max(t{i}, {x})  r{i} = Clip(c{i}, low, high)
            g{i} = GlobalAveragePool(t{i})  e{i} = Conv(g{i}, k{i})  f{i} = Sigmoid(e{i})  m{i} = Mul(r{i}, f{i})\n"""
        constants |= {f"w{i}": rng.normal(size=(8, 8, 3, 3)) / 6, f"k{i}": rng.normal(size=(8, 8, 1, 1)) / 2}
        constants |= {f"{name}{i}": rng.uniform(0.5, 1.5, 8) - (name in "bu") for name in "sbuv"}
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 17]>
        g (float[1,8,12,12] x) => (float[1,8,12,12] y) <float low = {{-1.3}}, float high = {{0.9}}>
        {{ {lines} y = Softmax<axis=1>(m3) }}""")
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()
    )
    onnx.save(model, folder / "float.onnx")
    kinds = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(folder / "float.onnx", folder / "int8.onnx", _Samples(), QuantFormat.QDQ, **kinds)
    return onnx.load(folder / "int8.onnx")


@pytest.mark.parametrize("written", ["tflite", "onnx"])
@pytest.mark.parametrize("name", ["ethos-u", "coral"])
def test_steps_that_the_report_announces_are_no_failure(
    gated: onnx.ModelProto, written: Literal["tflite", "onnx"], name: str
) -> None:
    """A result declares them, and the source's spread is that with as much noise there; a fault shows all the same."""
    result = relayout.convert(gated, format=written, target=name)
    assert any("4 Sigmoid (at most 2 steps off)" in note for note in result.report.notes), result.report.notes
    report = relayout.verify(gated, result)
    assert report.ok, str(report)
    assert any("may be up to 2 steps off" in note for note in report.notes), report.notes
    other = onnx.ModelProto.FromString(gated.SerializeToString())
    kernel = next(each for each in other.graph.initializer if each.name == "k2_quantized")
    kernel.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(kernel)[::-1].copy(), kernel.name))
    assert not relayout.verify(other, result).ok


@pytest.mark.parametrize("op_type", ["Sigmoid", "Tanh"])
@pytest.mark.parametrize(("step", "zero"), [(0.2 / 128, 0), (0.4 / 128, -60), (1 / 100, 0)])
def test_a_result_of_a_fixed_scale_that_is_the_output(op_type: str, step: float, zero: int) -> None:
    model = chain(f"y = {op_type}(x)", {"x": (0.05, 3), "y": (step, zero)})
    assert_on_integers(model, "", "int8", 4 if step < 0.4 / 128 else 2)


@pytest.mark.parametrize("step", [0.1 / 256, 0.5 / 256, 1.3 / 256])
def test_a_softmax_with_any_scale(step: float) -> None:
    model = chain("y = Softmax<axis = 3>(x)", {"x": (0.05, 3), "y": (step, -128)})
    assert_on_integers(model, "", "int8", 2)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("part", [1.0, 0.7, 0.58, 0.2])
def test_a_hard_sigmoid_with_any_scale(part: float, dtype: str) -> None:
    body = "y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)"
    assert_on_integers(chain(body, {"x": (0.03, 9), "y": (part / 255, -128)}, dtype), "", dtype, 1)


@pytest.mark.parametrize(("step", "top"), [(0.05, 1.0), (0.02, 0.93)])
def test_a_hard_swish_that_was_taken_apart_is_one_operator(step: float, top: float) -> None:
    body = "h = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)\n y = Mul(x, h)"
    model = chain(body, {"x": (step, 0), "h": (top / 255, -128), "y": (step / 1.9, -110)})
    results = assert_on_integers(model, "HardSwish", "int8", 3)
    assert results["ethos-u"].report.operators.get("HARD_SWISH") == 1


def test_a_gelu_that_is_spelled_out_between_integers_is_one_operator_where_the_target_has_it() -> None:
    body = """q = Div(x, {1.4142135})
        e = Erf(q)
        a = Add(e, {1.0})
        m = Mul(x, a)
        y = Mul(m, {0.5})"""
    text = chain(body, {"x": (0.03, 0), "q": (0.022, 0), "e": (1 / 127, 0), "a": (2 / 255, -128), "m": (0.03, -118),
                        "y": (0.015, -118)})  # fmt: skip
    result = relayout.convert(text, format="tflite", target="ethos-u")
    assert result.report.operators == {"GELU": 1}
    found, (expected,) = litert(result, every_byte("int8"))["y"], run(text, every_byte("int8"))
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 3


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_operands_of_other_scales_are_compared_in_that_of_the_result(op_type: str) -> None:
    model = chain(f"s = Relu(x)\n y = {op_type}(x, s)", {"x": (0.05, 3), "s": (0.03, -128), "y": (0.04, -10)})
    assert_on_integers(model, op_type, "int8", 1)


def test_bounds_that_no_activation_has() -> None:
    model = chain("y = Clip(x, {-0.7}, {1.9})", {"x": (0.05, 3), "y": (0.04, -10)})
    assert_on_integers(model, "Clip", "int8", 1)


def test_on_a_cpu_exactness_decides() -> None:
    model = chain("s = Sigmoid(x)\n y = Mul(x, s)", {"x": (0.1, 0), "s": (0.3 / 256, -128), "y": (0.05, -100)})
    result = relayout.convert(model, format="tflite", target="litert")
    assert "DEQUANTIZE" in result.report.operators
    found, (expected,) = litert(result, every_byte("int8"))["y"], run(model, every_byte("int8"))
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(("part", "dtype"), [(0.9, "int8"), (0.39, "int8"), (0.39, "uint8"), (0.2, "int8")])
def test_a_mean_with_finer_steps_than_its_operand(part: float, dtype: str) -> None:
    """The kernel rounds to the operand's steps first: a CPU computes in float where the result would show that."""
    model = chain(
        "y = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
        {"x": (0.02, 10), "y": (0.02 * part, 5)},
        dtype,
    )
    assert_on_integers(model, "AveragePool" if part < 0.6 else "", dtype, 1 if part > 0.6 else 4)
    (expected,) = run(model, every_byte(dtype))
    result = relayout.convert(model, format="tflite")
    assert np.abs(litert(result, every_byte(dtype))["y"].astype(int) - expected.astype(int)).max() <= 1
    assert ("DEQUANTIZE" in result.report.operators) == (part < 0.6)


@pytest.mark.parametrize(("mode", "part", "floats"), [("linear", 0.9, 0), ("linear", 0.3, 1), ("nearest", 0.3, 0)])
def test_an_image_that_is_resized_to_finer_steps(mode: str, part: float, floats: int) -> None:
    body = f'y = Resize<mode = "{mode}", coordinate_transformation_mode = "half_pixel">(x, , , sizes)'
    model = chain(body, {"x": (0.02, 10), "y": (0.02 * part, 5)})
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 4, 16, 16]), "sizes"))
    for dim in model.graph.output[0].type.tensor_type.shape.dim[2:]:
        dim.dim_value = 16
    (expected,) = run(model, every_byte("int8"))
    result = relayout.convert(model, format="tflite")
    assert np.abs(litert(result, every_byte("int8"))["y"].astype(int) - expected.astype(int)).max() <= 1
    assert result.report.operators.get("DEQUANTIZE", 0) == floats


def test_a_column_of_the_target_asks_for_it() -> None:
    model = chain("s = Sigmoid(x)\n y = Mul(x, s)", {"x": (0.1, 0), "s": (0.3 / 256, -128), "y": (0.05, -100)})
    exact = replace(target("ethos-u"), prefers_integers=False, builtins=None)
    assert "DEQUANTIZE" in relayout.convert(model, format="tflite", target=exact).report.operators


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("epilogue", ["", "Relu"])
def test_a_batch_normalization_is_a_depthwise_convolution(rank: int, epilogue: str) -> None:
    rng = np.random.default_rng(3)
    shape = (2, 6, 5, 7)[:rank]
    tensors = {
        "scale": rng.uniform(-2, 2, 6), "bias": rng.normal(size=6), "mean": rng.normal(size=6),
        "variance": rng.uniform(0.1, 2, 6),
    }  # fmt: skip
    activation = f"n = {epilogue}(b)" if epilogue else "n = Identity(b)"
    low = -128 if epilogue else 0
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (int8[{", ".join(map(str, shape))}] x) => (int8[{", ".join(map(str, shape))}] y)
        <float s = {{0.02}}, int8 z = {{5}}, float t = {{0.06}}, int8 u = {{{low}}}> {{
            d = DequantizeLinear(x, s, z)
            b = BatchNormalization(d, scale, bias, mean, variance)
            {activation}
            y = QuantizeLinear(n, t, u)
        }}""")
    for name, array in tensors.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
    feed = {"x": rng.integers(-128, 128, shape).astype(np.int8)}
    (expected,) = run(model, feed)
    for each in TARGETS:
        result = relayout.convert(model, format="tflite", target=each, io="convert")
        assert not {"DEQUANTIZE", "MUL"} & set(result.report.operators), result.report.operators
        result = relayout.convert(model, format="tflite", target=each)
        assert np.abs(litert(result, feed)["y"].astype(int) - expected.astype(int)).max() <= 1


def test_a_border_that_the_operand_has_no_integer_for() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (int8[1, 2, 3, 4] x) => (int8[1, 2, 5, 4] y)
        <float s = {0.002}, int8 z = {5}, float t = {0.005}, int8 u = {-60}, int64[8] p = {0, 0, 1, 0, 0, 0, 1, 0},
        float v = {1.0}> {
            d = DequantizeLinear(x, s, z)
            b = Pad(d, p, v)
            y = QuantizeLinear(b, t, u)
        }""")
    feed = {"x": np.random.default_rng(1).integers(-128, 128, (1, 2, 3, 4)).astype(np.int8)}
    (expected,) = run(model, feed)
    for each in TARGETS:
        result = relayout.convert(model, format="tflite", target=each)
        assert "DEQUANTIZE" not in result.report.operators
        assert np.abs(litert(result, feed)["y"].astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize(
    ("indices", "slices"),
    [("2", 1), ("-1", 1), ("0, 1, 2", 1), ("1, 3", 2), ("0, 2, 4", 1), ("5, 0, 1", 2), ("3, 3", 2)],
)
@pytest.mark.parametrize("is_list", [True, False])
def test_a_gather_by_constants_is_slices(indices: str, slices: int, is_list: bool) -> None:
    if not is_list and "," in indices:
        pytest.skip("one index alone is no list")
    count = indices.count(",") + 1
    dims = f"[{count}]" if is_list else ""
    given = f"1, {count}, 7" if is_list else "1, 7"
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (int8[1, 6, 7] x) => (int8[{given}] y)
        <float s = {{0.02}}, int8 z = {{5}}, int64{dims} i = {{{indices}}}> {{
            d = DequantizeLinear(x, s, z)
            b = Gather<axis = 1>(d, i)
            y = QuantizeLinear(b, s, z)
        }}""")  # fmt: skip
    feed = {"x": np.random.default_rng(1).integers(-128, 128, (1, 6, 7)).astype(np.int8)}
    (expected,) = run(model, feed)
    for each in TARGETS:
        result = relayout.convert(model, format="tflite", target=each)
        names = result.report.operators
        assert names.get("STRIDED_SLICE", 0) + names.get("SLICE", 0) == slices, names
        assert not {"GATHER", "DEQUANTIZE", "QUANTIZE"} & set(names)
        assert np.array_equal(litert(result, feed)["y"], expected)


def test_a_report_on_real_numbers_names_no_quantized_unit() -> None:
    model = build("float[1,6,7] x", "y = Gather<axis = 1>(x, i)", {"i": np.array([1, 3])})
    notes = relayout.convert(model, format="tflite", target="ethos-u").report.notes
    assert "operators replaced by others: 1 Gather" in notes
    assert not [note for note in notes if "quantized" in note]


@pytest.mark.parametrize("border", ["pads = [3, 3, 3, 3], ", "pads = [0, 1, 2, 0], ", 'auto_pad = "SAME_LOWER", '])
@pytest.mark.parametrize(("batch", "group"), [(1, 1), (2, 1), (1, 2)])
def test_long_strides_stand_behind_a_border_of_its_own(border: str, batch: int, group: int) -> None:
    rng = np.random.default_rng(2)
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (int8[{batch}, 4, 20, 24] x) => (int8[{batch}, c, h, v] y)
        <float s = {{0.02}}, int8 z = {{5}}, int8 n = {{0}}> {{
            d = DequantizeLinear(x, s, z)
            k = DequantizeLinear(w, s, n)
            b = Conv<{border}strides = [4, 4], group = {group}>(d, k)
            y = QuantizeLinear(b, s, z)
        }}""")  # fmt: skip
    weights = rng.integers(-9, 9, (4, 4 // group, 7, 7)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    feed = {"x": rng.integers(-128, 128, (batch, 4, 20, 24)).astype(np.int8)}
    (expected,) = run(model, feed)
    result = relayout.convert(model, format="tflite", target="ethos-u")
    assert result.report.claims is not None
    assert result.report.claims.claimed == result.report.claims.total
    assert not {"PAD", "DEQUANTIZE"} & set(result.report.operators)
    assert np.abs(litert(result, feed)["y"].astype(int) - expected.astype(int)).max() <= 1


@needs_vela
def test_vela_takes_them_whole(tmp_path: Path) -> None:
    weights = np.ones((4, 3, 7, 7), np.int8)
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (int8[1, 3, 20, 24] x) => (int8[1, 4, 5, 6] y) <float s = {0.02}, int8 z = {5}, int8 n = {0}> {
            d = DequantizeLinear(x, s, z)
            k = DequantizeLinear(w, s, n)
            b = Conv<pads = [3, 3, 3, 3], strides = [4, 4]>(d, k)
            y = QuantizeLinear(b, s, z)
        }""")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    relayout.convert(model, format="tflite", target="ethos-u").save(tmp_path / "strided.tflite")
    assert not judge(tmp_path / "strided.tflite", tmp_path).on_cpu


def normalized(op_type: str, shape: tuple[int, ...], step: float, top: float, epsilon: float) -> onnx.ModelProto:
    """Return a quantized normalization whose result reaches some number."""
    dims = ", ".join(map(str, shape))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (int8[{dims}] x) => (int8[{dims}] y) <float s = {{{step}}}, int8 z = {{5}}, float t = {{{2 * top / 255}}}> {{
            d = DequantizeLinear(x, s, z)
            n = {op_type}<epsilon = {epsilon}>(d, w, b)
            y = QuantizeLinear(n, t, z)
        }}""")
    count, rng = shape[-1] if op_type == "LayerNormalization" else shape[1], np.random.default_rng(3)
    for name, low, high in (("w", 0.5, 1.5), ("b", -0.2, 0.2)):
        array = rng.uniform(low, high, count).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def rows_of_all_spreads(count: int) -> np.ndarray:  # type: ignore[type-arg]
    """Return rows of bytes that vary by one step or by all, with and without outliers, near an end or in the middle."""
    rng = np.random.default_rng(4)
    rows = [rng.normal(0, spread, (6, count)) for spread in (0.3, 1, 2, 6, 20, 60)]
    for size in (1, 2, 5, 20, 127):
        for many in (1, 2, 3, count // 2):
            plain = np.zeros((5, count))
            plain[:, :many] = size
            plain[1] = -plain[1]
            plain[2] += rng.integers(-1, 2, count)
            plain[3] += 100
            plain[4, many : 2 * many] = -size
            rows.append(plain)
    return np.clip(np.rint(np.concatenate(rows)), -128, 127).astype(np.int8)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-5])
@pytest.mark.parametrize("step", [0.003, 0.05])
@pytest.mark.parametrize("top", [1.5, 4.0, 20.0])
@pytest.mark.parametrize("count", [4, 32, 256, 784])
def test_a_normalization_is_as_near_as_announced(count: int, top: float, step: float, epsilon: float) -> None:
    """Rows that vary by little have the fewest steps."""
    rows = rows_of_all_spreads(count)
    side = int(count**0.5)
    for op_type, shape in (
        ("LayerNormalization", (1, len(rows), count)),
        ("InstanceNormalization", (1, len(rows), side, side)),
    ):
        if side * side != count and op_type == "InstanceNormalization":
            continue
        model = normalized(op_type, shape, step, top, epsilon)
        result = relayout.convert(model, format="tflite", target="ethos-u")
        (announced,) = steps_off(result.model.metadata_props[STEPS_OFF]).values()
        assert announced <= 2 + count / 256 + 12.1 / top + 1
        assert result.report.claims is not None
        assert result.report.claims.claimed == result.report.claims.total
        feed = {"x": rows.reshape(shape)}
        off = np.abs(litert(result, feed)["y"].astype(int) - run(model, feed)[0].astype(int)).max()
        assert off <= announced, (op_type, off, announced)


def test_a_normalization_of_too_many_elements_stays_float() -> None:
    model = normalized("InstanceNormalization", (1, 2, 64, 64), 0.05, 4.0, 1e-5)
    result = relayout.convert(model, format="tflite", target="ethos-u")
    assert "DEQUANTIZE" in result.report.operators
    assert STEPS_OFF not in result.model.metadata_props
    said = "quantized units that stay on real numbers: 1 InstanceNormalization (integers may be 20 steps off)"
    assert any(note.startswith(said) for note in result.report.notes)


def grouped(body: str, channels: int, groups: int, side: int, opset: int, top: float = 4.0) -> onnx.ModelProto:
    """Return a quantized group normalization: `d` is the image, and `n` what is quantized."""
    extents = f"1, {channels}, {side}, {side}"
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : {opset}]>
        g (int8[{extents}] x) => (int8[{extents}] y) <float s = {{0.05}}, int8 z = {{5}}, float t = {{{2 * top / 255}}},
        float ws = {{0.0123}}, int8 wz = {{0}}, float one = {{1}}> {{
            d = DequantizeLinear(x, s, z)
            {body}
            y = QuantizeLinear(n, t, z)
        }}""")
    rng = np.random.default_rng(3)
    count = channels if opset >= 21 else groups
    arrays: dict[str, np.ndarray] = {  # type: ignore[type-arg]
        "w": rng.uniform(0.5, 1.5, count).astype(np.float32),
        "b": rng.uniform(-0.2, 0.2, count).astype(np.float32),
        "wq": rng.integers(40, 127, (channels, 1, 1)).astype(np.int8),
        "bq": rng.integers(-16, 16, (channels, 1, 1)).astype(np.int8),
        "wf": rng.uniform(0.5, 1.5, (channels, 1, 1)).astype(np.float32),
        "bf": rng.uniform(-0.2, 0.2, (channels, 1, 1)).astype(np.float32),
        "ones": np.ones(groups, np.float32),
        "zeros": np.zeros(groups, np.float32),
        "rows": np.array([0, groups, -1]),
        "whole": np.array([1, channels, side, side]),
    }
    used = set(re.findall(r"\w+", body))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items() if name in used)
    return model


def between(name: str, scale: str = "t") -> str:
    """Return a line that quantizes a value and dequantizes it again."""
    return f"{name}q = QuantizeLinear({name}, {scale}, z) {name}d = DequantizeLinear({name}q, {scale}, z)\n"


OF_PYTORCH = f"""r = Reshape(d, rows) {between("r", "s")} i = InstanceNormalization(rd, ones, zeros) {between("i")}
    j = Reshape(id, whole) {between("j")} wd = DequantizeLinear(wq, ws, wz) m = Mul(jd, wd) {between("m")}
    bd = DequantizeLinear(bq, ws, wz) n = Add(md, bd)"""


BARE = """r = Reshape(d, rows) i = InstanceNormalization(r, ones, zeros) j = Reshape(i, whole) m = Mul(j, wf)
    n = Add(bf, m)"""
"""As PyTorch exports it, quantized as a whole."""


def normalized_groups(model: onnx.ModelProto, groups: int, rows: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Return the integers of a GroupNormalization: those of ONNX Runtime are up to 77 steps off."""
    arrays = {each.name: onnx.numpy_helper.to_array(each).astype(np.float64) for each in model.graph.initializer}
    x = (rows.reshape(groups, -1) - arrays["z"]) * arrays["s"]
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    weight, bias = (np.repeat(arrays[name], len(rows) // len(arrays[name]))[:, None] for name in "wb")
    result = normal.reshape(len(rows), -1) * weight + bias
    return np.clip(np.rint(result / arrays["t"]) + arrays["z"], -128, 127)  # type: ignore[no-any-return]


@pytest.mark.parametrize("opset", [18, 21])
@pytest.mark.parametrize(("groups", "width"), [(1, 16), (1, 4), (0, 1), (0, 4), (0, 16)])
def test_a_group_normalization_is_as_near_as_announced(groups: int, width: int, opset: int) -> None:
    """Of one group, of one channel in each, and of several."""
    found = rows_of_all_spreads(width * 16)
    spread = found[:1] if groups else found
    rows = spread.reshape(-1, 16)
    count = len(spread)
    model = grouped(f"n = GroupNormalization<num_groups={count}>(d, w, b)", len(rows), count, 4, opset)
    result = relayout.convert(model, format="tflite", target="ethos-u")
    (announced,) = steps_off(result.model.metadata_props[STEPS_OFF]).values()
    assert announced <= 6
    assert result.report.claims is not None
    assert result.report.claims.claimed == result.report.claims.total
    got = litert(result, {"x": rows.reshape(1, -1, 4, 4)})["y"].astype(int)
    off = np.abs(got.reshape(len(rows), -1) - normalized_groups(model, count, rows)).max()
    assert off <= announced, (off, announced)


@pytest.mark.parametrize("body", ["n = GroupNormalization<num_groups=4>(d, w, b)", OF_PYTORCH, BARE])
@pytest.mark.parametrize("name", TARGETS)
def test_a_group_normalization_of_an_image_between_convolutions_runs_on_integers(
    body: str, name: str, tmp_path: Path
) -> None:
    """Convolutions have their channels last: groups are normalized with pixels last, or channels first."""
    pool = "MaxPool<kernel_shape = [1, 1]>"
    lines = [f"e = {pool}(d) {between('e', 's')}", body.replace("(d,", "(ed,"), between("n"), f"k = {pool}(nd)"]
    model = grouped("\n".join(lines), 16, 4, 8, 21)
    model.graph.node[-1].input[0] = "k"
    result = relayout.convert(model, format="tflite", target=name)
    assert "DEQUANTIZE" not in result.report.operators
    feed = {"x": np.random.default_rng(7).integers(-128, 128, (1, 16, 8, 8)).astype(np.int8)}
    off = np.abs(litert(result, feed)["y"].astype(int) - run(model, feed)[0].astype(int)).max()
    assert off <= 3
    path = tmp_path / "groups.tflite"
    saved(result, feed, path)
    if name == "ethos-u" and PROGRAM is not None:
        assert not judge(path, tmp_path).on_cpu
    if name == "tflite-micro" and MICRO is not None:
        assert answers(MICRO, "by_tflm.py", [path])[str(path)].get("off", 9) <= 2


@pytest.mark.parametrize(("side", "is_joined"), [(8, True), (48, False)])
def test_a_group_normalization_that_is_spelled_out_is_one_unit_where_that_is_near(side: int, is_joined: bool) -> None:
    """Opset 17 has no such operator."""
    model = grouped(BARE, 16, 4, side, 17)
    result = relayout.convert(model, format="tflite", target="ethos-u")
    assert ("DEQUANTIZE" not in result.report.operators) == is_joined
    assert any("GroupNormalization (at most" in note for note in result.report.notes) == is_joined
    feed = {"x": np.random.default_rng(7).integers(-128, 128, (1, 16, side, side)).astype(np.int8)}
    off = np.abs(litert(result, feed)["y"].astype(int) - run(model, feed)[0].astype(int)).max()
    assert off <= (3 if is_joined else 1)


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a": "2"}', '{"a": 17}', '{"a": -1}', '{"a": true}', "{" * 9999])
def test_what_no_file_of_ours_declares_excuses_nothing(text: str) -> None:
    assert steps_off(text) == {}
    assert steps_off('{"a": 2, "b": 99}') == {"a": 2}


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Acosh"])
@pytest.mark.parametrize("name", TARGETS)
def test_operators_that_some_bytes_have_no_result_of_stay_as_they_are(op: str, name: str) -> None:
    model = chain(f"y = {op}(x)", {"x": (0.05, 3), "y": (0.05, 0)})
    result = relayout.convert(model, format="tflite", target=target(name))
    assert not {"HARD_SWISH", "GELU"} & set(result.report.operators)
