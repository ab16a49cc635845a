"""Forms of a `.tflite` that quantizers know: Google's quantizer leaves nothing of them in float."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from calibrating import by_google, float_operators, operators, quantized, run_reals, samples_of, signal_to_noise

import relayout
from relayout.formats.tflite.container.enums import TensorType
from relayout.formats.tflite.container.loading import load
from relayout.quantization import quantize
from small import build
from targets.vela import judge, needs_vela

SIX = {"three": np.array(3, np.float32), "low": np.array(0, np.float32), "six": np.array(6, np.float32)}
HALF = {"two": np.array(2, np.float32)}
LAST = {"last": [-1], "e": np.array(1e-5, np.float32)}
ALWAYS = {
    "LayerNormalization": ("float[1,6,32] x", "y = LayerNormalization<axis = -1>(x, w, b)", {"w": (32,), "b": (32,)}),
    "RMSNormalization": (
        "float[1,6,32] x",
        """q = Pow(x, two) m = ReduceMean(q, last) s = Add(m, e) r = Sqrt(s) i = Reciprocal(r) n = Mul(x, i)
        y = Mul(n, w)""",
        {"w": (32,), **HALF, **LAST},
    ),
    "InstanceNormalization": ("float[1,4,8,8] x", "y = InstanceNormalization(x, w, b)", {"w": (4,), "b": (4,)}),
    "two results a channel": ("float[1,16,6,5] x", "y = Conv<group = 16>(x, w)", {"w": (32, 1, 3, 3)}),
    "Pow": ("float[1,6,32] x", "y = Pow(x, two)", HALF),
    "Neg": ("float[1,6,32] x", "y = Neg(x)", {}),
    "Div by two": ("float[1,6,32] x", "y = Div(x, two)", HALF),
    "uneven Split": (
        "float[1,6,32] x",
        "a, b, c = Split<axis = 2>(x, s) d = Relu(a) f = Relu(b) g = Sigmoid(c)",
        {"s": [7, 15, 10]},
    ),
    "HardSigmoid": ("float[1,4,8,8] x", "y = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x)", {}),
    "HardSigmoid of Keras": ("float[1,4,8,8] x", "y = HardSigmoid(x)", {}),
    "HardSwish": ("float[1,4,8,8] x", "y = HardSwish(x)", {}),
    "spelled out": (
        "float[1,4,8,8] x",
        "a = Add(x, three) c = Clip(a, low, six) p = Mul(x, c) y = Div(p, six)",
        SIX,
    ),
    "by a gate": (
        "float[1,4,8,8] x",
        "g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(g, x)",
        {},
    ),
    "attention": (
        "float[1,16,32] x",
        """p = MatMul(x, q) pr = Reshape(p, h) ph = T0213(pr) k = MatMul(x, w) kr = Reshape(k, h) kh = T0231(kr)
        v = MatMul(x, u) vr = Reshape(v, h) vh = T0213(vr) s = MatMul(ph, kh) t = Div(s, two) f = Softmax<axis = -1>(t)
        c = MatMul(f, vh) ct = T0213(c) cr = Reshape(ct, whole) y = MatMul(cr, o)""",
        {**dict.fromkeys("qwuo", (32, 32)), "h": [1, 16, 4, 8], "whole": [1, 16, 32], **HALF},
    ),
}
ONE = {"l": np.array(0, np.float32), "h": np.array(1, np.float32)}
FOR_INTEGERS = {
    "Div": ("float[1,6,32] x", "y = Div(x, c)", {"c": np.array(3.3, np.float32)}),
    "Clip to 1": ("float[1,6,32] x", "y = Clip(x, l, h)", ONE),
    "Clip": ("float[1,6,32] x", "y = Clip(x, l, h)", {**ONE, "l": np.array(-0.4, np.float32)}),
    "Relu6 of an input": ("float[1,6,32] x", "y = Clip(x, l, six)", {**ONE, **SIX}),
    "LeakyRelu": ("float[1,6,32] x", "y = LeakyRelu<alpha = 0.2>(x)", {}),
    "PRelu": (
        "float[1,4,8,8] x",
        "y = PRelu(x, a)",
        {"a": np.array([[[0.1]], [[0.3]], [[-0.2]], [[1.5]]], np.float32)},
    ),
    "Abs": ("float[1,6,32] x", "y = Abs(x)", {}),
    "Min": ("float[1,6,32] x, float[1,6,32] z", "y = Min(x, z)", {}),
    "GlobalMaxPool": ("float[1,4,8,8] x", "y = GlobalMaxPool(x)", {}),
    "ReduceMax": ("float[1,6,32] x", "y = ReduceMax<keepdims = 0>(x, i)", {"i": [1]}),
    "ReduceL2": ("float[1,6,32] x", "y = ReduceL2<keepdims = 1>(x, last)", LAST),
    "Swish": ("float[1,4,8,8] x", "s = Sigmoid(x) y = Mul(s, x)", {}),
    "DepthToSpace": ("float[2,18,3,5] x", "y = DepthToSpace<blocksize = 3>(x)", {}),
    "DepthToSpace of PyTorch": ("float[2,18,3,5] x", 'y = DepthToSpace<blocksize = 3, mode = "CRD">(x)', {}),
    "SpaceToDepth": ("float[2,3,6,15] x", "y = SpaceToDepth<blocksize = 3>(x)", {}),
}
CONVERSIONS = {"QUANTIZE": 1, "DEQUANTIZE": 1}
LEAST = 20.0
"""Decibels that 8 bits keep of each of these."""


@pytest.mark.parametrize("name", ALWAYS)
def test_google_s_quantizer_takes_a_plain_result(name: str) -> None:
    """A user may run ai-edge-quantizer himself: every operator runs on integers, and the numbers are the source's."""
    model = build(*ALWAYS[name])
    content = by_google(relayout.convert(model, format="tflite").tflite, samples_of(model, 1, seed=99))
    (graph,) = load(content).subgraphs
    types = Counter(graph.tensors[each].type for operator in graph.operators for each in operator.outputs)
    assert types == {TensorType.INT8: types[TensorType.INT8]}
    assert min(signal_to_noise(model, content)) > LEAST


@pytest.mark.parametrize("name", [*ALWAYS, *FOR_INTEGERS])
def test_no_operator_stays_float(name: str) -> None:
    model = build(*(ALWAYS | FOR_INTEGERS)[name])
    result = quantized(model)
    assert float_operators(result) == ({"SOFTMAX": 1} if name == "attention" else {})
    assert min(signal_to_noise(model, result.tflite)) > LEAST


@pytest.mark.parametrize("name", ["HardSwish", "spelled out", "by a gate"])
def test_a_hard_swish_is_one_operator(name: str) -> None:
    """It takes a quarter of the time of a sum and two products."""
    result = relayout.convert(build(*ALWAYS[name]), format="tflite")
    assert operators(result) == {"HARD_SWISH": 1}


@pytest.mark.parametrize("name", ["HardSwish", "spelled out", "by a gate"])
def test_litert_runs_a_hard_swish_on_integers_as_sums_and_products(name: str) -> None:
    """Its own kernel takes 25 times as long; an NPU has a table."""
    model = build(*ALWAYS[name])
    result, on_npu = quantized(model), quantized(model, target="ethos-u")
    assert operators(result) == {"MUL": 2, "ADD": 1, **CONVERSIONS}
    assert operators(on_npu) == {"HARD_SWISH": 1, **CONVERSIONS}
    (loss,), (least,) = (signal_to_noise(model, each.tflite) for each in (result, on_npu))
    assert loss > least - 1


@pytest.mark.parametrize("name", ["LayerNormalization", "RMSNormalization", "InstanceNormalization"])
def test_litert_normalizes_real_numbers(name: str) -> None:
    """Of integers a variance has few steps."""
    ends, text, constants = ALWAYS[name]
    model = build(ends, f"a = Relu(x) {text.replace('(x', '(a').replace('y = ', 'k = ')} y = Relu(k)", constants)
    result = quantized(model)
    floats = result.report.quantization.floats if result.report.quantization is not None else ()
    assert {each.name for each in floats} <= {"ADD", "MEAN", "MUL", "RSQRT", "SUB"}
    assert {each.reason for each in floats} == {"LiteRT normalizes real numbers in less time"}
    assert result.report.quantization is not None
    assert result.report.quantization.integers
    on_npu = quantized(model, target="ethos-u")
    assert float_operators(on_npu) == {}
    (loss,), (least,) = (signal_to_noise(model, each.tflite) for each in (result, on_npu))
    assert loss > least


WEIGHTS = {"k": (32, 32)}
REAL_ON_LITERT = {
    # The rows of an attention are shares that 8 bits take for 0.
    "long rows": (
        "float[1,8,200] x",
        "s = Softmax(x) y = MatMul(s, k)",
        {"k": (200, 16)},
        {"SOFTMAX": 1},
    ),
    # In a LeakyRelu many norms are nearly 0.
    "small norms": (
        "float[1,64,32] x",
        """a = MatMul(x, k) l = LeakyRelu<alpha = 0.001>(a) n = ReduceL2(l, last) c = Clip(n, e) q = Div(l, c)
        y = MatMul(q, k)""",
        {**WEIGHTS, **LAST, "e": np.array(1e-12, np.float32)},
        {"MUL": 1, "SUM": 1, "SQRT": 1, "MAXIMUM": 1, "DIV": 1},
    ),
    "shares": (
        "float[1,64,32] x",
        "a = MatMul(x, k) b = Abs(a) s = ReduceSum<keepdims = 1>(b, last) q = Div(a, s) y = MatMul(q, k)",
        {**WEIGHTS, **LAST},
        {"DIV": 1, "SUM": 1},
    ),
    "groups": (
        "float[1,8,12,12] x",
        "a = Conv(x, k) b = GroupNormalization<num_groups = 2>(a, g, c) y = Conv(b, k)",
        {"k": (8, 8, 1, 1), "g": (8,), "c": (8,)},
        {"ADD": 2, "MEAN": 4, "MUL": 5, "RESHAPE": 4, "RSQRT": 1, "SUB": 1},
    ),
    "Erf": (
        "float[1,64,32] x",
        "a = MatMul(x, k) b = Erf(a) y = MatMul(b, k)",
        WEIGHTS,
        {"DIV": 1, "GELU": 1, "MAXIMUM": 1, "MUL": 4, "SELECT_V2": 2, "SUB": 1},
    ),
    "Softplus": (
        "float[1,64,32] x",
        "a = MatMul(x, k) b = Softplus(a) y = MatMul(b, k)",
        WEIGHTS,
        {"ADD": 3, "EXP": 1, "LOG": 1, "MAXIMUM": 1, "MUL": 2},
    ),
}


@pytest.mark.parametrize("kind", ["int8", "int16x8"])
@pytest.mark.parametrize("name", REAL_ON_LITERT)
def test_litert_computes_real_numbers_where_integers_are_slower_and_farther_off(name: str, kind: str) -> None:
    ends, text, constants, floats = REAL_ON_LITERT[name]
    model = build(ends, text, constants)
    result = quantized(model, kind=kind)
    on_npu = quantized(model, kind=kind, target="ethos-u") if kind == "int8" else None
    if kind == "int8":
        assert float_operators(result) == floats
    (loss,) = signal_to_noise(model, result.tflite)
    assert loss > (26 if kind == "int8" else 34)
    if on_npu is not None:
        assert sum(float_operators(on_npu).values()) <= (sum(floats.values()) if name == "Softplus" else 1)


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("n = ReduceL2(a, last) c = Clip(n, e) q = Div(a, c)", "MAXIMUM"),
        ("n = ReduceL2(a, last) c = Add(n, e) q = Div(a, c)", "ADD"),
        ("n = ReduceL2(a, last) q = Div(a, n)", ""),
    ],
)
def test_an_npu_divides_by_no_root(text: str, guard: str) -> None:
    """Its integers would be 0 where a norm is small, and the quotient no number."""
    constants = {**WEIGHTS, **LAST, "e": np.array(1e-6, np.float32)}
    model = build("float[1,64,32] x", f"a = MatMul(x, k) {text} y = MatMul(q, k)", constants)
    on_npu = quantized(model, target="ethos-u")
    assert float_operators(on_npu) == {}
    assert (operators(on_npu)["RSQRT"], operators(on_npu)["DIV"], operators(on_npu)["SQRT"]) == (1, 0, 0)
    assert not guard or operators(on_npu)[guard] == 1
    (loss,) = signal_to_noise(model, on_npu.tflite)
    assert loss > 26
    zeros = run_reals(on_npu.tflite, {"x": np.zeros((1, 64, 32), np.float32)})
    assert np.isfinite(zeros[0]).all()
    other = build(
        "float[1,64,32] x",
        f"a = MatMul(x, k) {text.replace('(n, e)', '(n, two)')} y = MatMul(q, k)",
        {**constants, **HALF},
    )
    assert operators(quantized(other, target="ethos-u"))["DIV"] == (guard == "ADD")


@pytest.mark.parametrize(("guard", "number", "quotients"), [("Max", 1e-3, 0), ("Add", 1e-5, 0), ("Add", 1e-3, 1)])
def test_small_norms_are_kept_from_0_by_the_square_of_the_number(guard: str, number: float, quotients: int) -> None:
    """Norms are about 0.01: beside a sum of such squares 0.001 is large, and its square is not."""
    constants = {**WEIGHTS, **LAST, "s": np.array(3e-4, np.float32), "e": np.array(number, np.float32)}
    text = f"a = MatMul(x, k) b = Mul(a, s) n = ReduceL2(b, last) c = {guard}(n, e) q = Div(b, c) y = MatMul(q, k)"
    model = build("float[1,64,32] x", text, constants)
    result = quantized(model, target="ethos-u")
    assert operators(result)["DIV"] == quotients
    assert min(signal_to_noise(model, result.tflite)) > 25


@pytest.mark.parametrize("output_type", [None, "int8"])
@pytest.mark.parametrize("target", [None, "tflite-micro"])
def test_a_root_stays_real_also_where_a_graph_ends_in_it(target: str | None, output_type: str | None) -> None:
    """Between integers on a microcontroller it is a table of them."""
    model = build("float[1,6,32] x", "a = MatMul(x, k) b = Abs(a) y = Sqrt(b)", WEIGHTS)
    result = quantized(model, target=target, output_type=output_type)
    assert float_operators(result) == ({} if target and output_type else {"SQRT": 1})
    assert min(signal_to_noise(model, result.tflite)) > 25


def test_class_scores_of_integers_are_those_of_a_softmax_on_integers() -> None:
    model = build("float[1,32] x", "a = MatMul(x, k) y = Softmax(a)", {"k": (32, 10)})
    assert float_operators(quantized(model)) == {"SOFTMAX": 1}
    assert float_operators(quantized(model, output_type="int8")) == {}


@pytest.mark.parametrize(
    ("ends", "text", "extents"),
    [
        ("float[2,4,8,6] x", "r = MaxPool<kernel_shape = [3, 3]>(x)", (4, 1, 1)),
        ("float[1,7,24] x", "r = Tanh(x)", (24,)),
    ],
)
def test_an_npu_gets_a_product_and_a_sum_by_channels_as_a_convolution(
    ends: str, text: str, extents: tuple[int, ...]
) -> None:
    """It reads their constants again for each pixel."""
    model = build(ends, f"{text} m = Mul(r, s) a = Add(b, m) y = Relu(a)", {"s": extents, "b": extents})
    result, on_npu = quantized(model), quantized(model, target="ethos-u")
    assert operators(result)["ADD"] == operators(on_npu)["DEPTHWISE_CONV_2D"] == 1
    assert not {"MUL", "ADD"} & set(operators(on_npu))
    (loss,), (least,) = (signal_to_noise(model, each.tflite) for each in (on_npu, result))
    assert loss > least - 1


@pytest.mark.parametrize(("length", "means"), [(64, 2), (256, 4)])
def test_an_npu_averages_eight_channels_at_once(length: int, means: int) -> None:
    """Of rows of 768 in a third of the time."""
    sizes = {"w": (length,), "b": (length,)}
    model = build(f"float[1,6,{length}] x", "y = LayerNormalization<axis = -1>(x, w, b)", sizes)
    result, on_npu = quantized(model), quantized(model, target="ethos-u")
    assert (operators(result)["MEAN"], operators(on_npu)["MEAN"]) == (2, means)
    assert float_operators(on_npu) == {}
    assert min(signal_to_noise(model, on_npu.tflite)) > 30


GUARD = "n = IsNaN(f) g = Where(n, none, f) y = MatMul(g, w)"


def test_integers_are_not_tested_for_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's exporter guards each attention so; where the guarded number stays float, so does the guard."""
    constants = {"w": (32, 8), "none": np.array(0, np.float32)}
    model = build("float[1,6,32] x", f"f = Softmax<axis = -1>(x) {GUARD}", constants)
    result = quantized(model)
    assert not {"NOT_EQUAL", "SELECT_V2"} & set(operators(result))
    with monkeypatch.context() as patch:
        patch.setattr(quantize, "_without_copies", lambda graph: graph)
        guarded = quantized(model)
    assert operators(guarded)["SELECT_V2"]
    feed = samples_of(model, 1, seed=99)[0]
    (expected,), (got,) = run_reals(guarded.tflite, feed), run_reals(result.tflite, feed)
    assert np.array_equal(expected, got)
    assert relayout.convert(result.tflite, format="tflite").tflite
    kept = quantized(model, keep_float=["f", "n", "g"])
    assert operators(kept)["NOT_EQUAL"] == operators(kept)["SELECT_V2"] == 1


def test_a_mean_and_a_root_of_others_stay_on_integers() -> None:
    text = (
        "m = ReduceMean<keepdims = 1>(x, last) r = Relu(m) a = Add(r, one) s = Sqrt(a) i = Reciprocal(s) y = Mul(x, i)"
    )
    model = build("float[1,6,32] x", text, {**LAST, "one": np.array(1, np.float32)})
    assert float_operators(quantized(model)) == {}


def test_the_steps_of_an_lstm_run_on_integers() -> None:
    """The quantizer makes no integers of the state that LiteRT's fused kernel keeps."""
    weights = {"w": (1, 24, 5), "r": (1, 24, 6), "b": (1, 48)}
    model = build("float[7,1,5] x", "h, y = LSTM<hidden_size = 6>(x, w, r, b)", weights)
    result = quantized(model)
    assert float_operators(result) == {}
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" not in operators(result)
    assert min(signal_to_noise(model, result.tflite)) > 12


@pytest.mark.parametrize("kind", ["dynamic", "float16"])
@pytest.mark.parametrize("steps", [9, 520])
@pytest.mark.parametrize("states", ["zeros", "constants"])
@pytest.mark.parametrize(("cell", "gates"), [("GRU", 3), ("RNN", 1), ("LSTM", 4)])
def test_recurrent_weights_are_integers_or_halves(cell: str, gates: int, states: str, steps: int, kind: str) -> None:
    """As steps and as loops. No kernel multiplies constant states with weights that are integers."""
    names = {"zeros": "", "constants": ", , s, c" if cell == "LSTM" else ", , s"}[states]
    shapes = {"w": (1, gates * 32, 32), "r": (1, gates * 32, 32), "b": (1, gates * 64)}
    shapes |= {name: (1, 1, 32) for name in "sc" if f" {name}" in names}
    weights = {
        name: np.random.default_rng(3).normal(size=shape).astype(np.float32) / 8 for name, shape in shapes.items()
    }
    model = build(f"float[{steps},1,32] x", f"y = {cell}<hidden_size=32>(x, w, r, b{names})", weights)
    result = relayout.convert(model, format="tflite", quantize=kind)
    assert ("WHILE" in operators(result)) == (steps == 520)
    stored = {TensorType.INT8 if kind == "dynamic" else TensorType.FLOAT16}
    tensors = [tensor for graph in load(result.tflite).subgraphs for tensor in graph.tensors]
    assert {t.type for t in tensors if t.data is not None and t.data.nbytes > 1000 and len(t.shape) == 2} == stored
    assert min(signal_to_noise(model, result.tflite)) > (25 if kind == "dynamic" else 50)


@pytest.mark.parametrize("steps", [100, 520])
@pytest.mark.parametrize(("cell", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_long_sequences_run_on_integers(cell: str, gates: int, steps: int) -> None:
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=(1, gates * 8, 8)).astype(np.float32) / 3 for name in "wr"}
    model = build(f"float[{steps},1,8] x", f"y = {cell}<hidden_size=8>(x, w, r)", weights)
    result = quantized(model)
    assert float_operators(result) == {}
    assert min(signal_to_noise(model, result.tflite)) > 15


@pytest.mark.parametrize(("cell", "builtin"), [("GRU", "WHILE"), ("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM")])
def test_a_sequence_of_open_length_has_no_ranges(cell: str, builtin: str) -> None:
    gates = {"GRU": 3, "LSTM": 4}[cell]
    shapes = {"w": (1, gates * 8, 8), "r": (1, gates * 8, 8)}
    model = build("float[t,1,8] x", f"y = {cell}<hidden_size=8>(x, w, r)", shapes)
    samples = [{"x": np.zeros((5, 1, 8), np.float32)}]
    with pytest.raises(quantize.QuantizationError, match=rf"inside of {builtin} ×1 \(first: .*--dim"):
        relayout.convert(model, format="tflite", quantize="int8", calibrate=samples)


@pytest.mark.parametrize("kind", ["int8", "int16x8"])
@pytest.mark.parametrize("output_type", [None, "int8", "uint8"])
def test_an_output_that_operators_read_has_the_type_of_the_end_alone(kind: str, output_type: str | None) -> None:
    if kind == "int16x8" and output_type is not None:
        pytest.skip("outputs of 16 bits have no other type")
    model = build("float[1,4,8] x", "a = Relu(x) b = Tanh(a) c = Add(b, a)", {}, outputs=("a", "b", "c"))
    result = quantized(model, kind=kind, output_type=output_type)
    assert "RESHAPE" not in operators(result)
    assert min(signal_to_noise(model, result.tflite)) > 30


def test_an_output_of_real_numbers_that_operators_read_stays_real() -> None:
    text = "a = Relu(x) y = LayerNormalization<axis = -1>(a, w, b) z = MatMul(y, k)"
    model = build("float[1,6,32] x", text, {"w": (32,), "b": (32,), "k": (32, 8)}, outputs=("y", "z"))
    real, rounded = signal_to_noise(model, quantized(model).tflite)
    assert real > rounded + 5


@pytest.mark.parametrize("output_type", ["int8", "uint8"])
@pytest.mark.parametrize("input_type", [None, "int8", "uint8"])
@pytest.mark.parametrize("target", [None, "ethos-u", "tflite-micro"])
def test_an_output_behind_operators_on_real_numbers_has_the_type_that_is_asked_for(
    target: str | None, input_type: str | None, output_type: str
) -> None:
    """A normalization stays real on LiteRT, and is the end of both outputs; one of them is read, too."""
    text = (
        "a = MatMul(x, k) y = LayerNormalization<axis = -1>(a, w, b) p = MatMul(y, k) z = LayerNormalization(p, w, b)"
    )
    model = build("float[1,6,32] x", text, {"w": (32,), "b": (32,), "k": (32, 32)}, outputs=("y", "z"))
    result = quantized(model, target=target, input_type=input_type, output_type=output_type)
    (graph,) = load(result.tflite).subgraphs
    assert {graph.tensors[each].type.name.lower() for each in graph.outputs} == {output_type}
    assert (target is None) == bool(float_operators(result))
    assert target is not None or "RESHAPE" not in operators(result)
    assert min(signal_to_noise(model, result.tflite)) > 22


def test_a_part_of_a_split_that_nobody_reads_is_left_out() -> None:
    model = build("float[1,6,12] x", "t = Tanh(x) a, b, c = Split<axis = 2, num_outputs = 3>(t) d = Add(a, c)", {})
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, [1, 6, 4]))
    result = quantized(model)
    assert operators(result)["STRIDED_SLICE"] == 2
    assert min(signal_to_noise(model, result.tflite)) > 25


def test_another_function_is_no_hard_swish() -> None:
    text = "a = Add(x, three) c = Clip(a, low, six) p = Mul(x, c) y = Div(p, two)"
    result = relayout.convert(build("float[1,4,8,8] x", text, {**SIX, **HALF}), format="tflite")
    assert "HARD_SWISH" not in operators(result)


def test_forms_that_take_longer_are_for_integers_alone() -> None:
    model = build(*FOR_INTEGERS["LeakyRelu"])
    assert operators(relayout.convert(model, format="tflite")) == {"LEAKY_RELU": 1}
    assert operators(quantized(model)) == {"MUL": 1, "ADD": 1, **CONVERSIONS}


@pytest.mark.parametrize(("slopes", "products"), [([0.1, 1, -0.2], 1), ([0.1, 1.5, -0.2], 2)])
def test_a_prelu_is_a_sum_with_what_is_added_below_zero(slopes: list[float], products: int) -> None:
    """LiteRT's RELU of bytes takes thirty times as long as a product that applies one."""
    model = build("float[1,3,8,8] x", "y = PRelu(x, a)", {"a": np.array(slopes, np.float32).reshape(3, 1, 1)})
    for options in ({}, {"target": "ethos-u"}):
        result = quantized(model, **options)
        assert {name: operators(result)[name] for name in ("MUL", "ADD", "RELU")} == {
            "MUL": products,
            "ADD": 1,
            "RELU": 0,
        }
        assert min(signal_to_noise(model, result.tflite)) > 35


def test_a_sum_applies_the_relu_of_bytes_that_no_other_operator_applies() -> None:
    model = build("float[1,6,32] x", "y = Relu(x)", {})
    assert operators(quantized(model)) == {"ADD": 1, **CONVERSIONS}
    assert operators(quantized(model, target="ethos-u")) == {"RELU": 1, **CONVERSIONS}
    assert operators(quantized(model, kind="int16x8")) == {"RELU": 1, **CONVERSIONS}


def test_a_quotient_that_is_rounded_stays() -> None:
    """49 by 1/49 is a little less than 1 in single precision."""
    model = build("float[1,50] x", "d = Div(x, c) f = Floor(d) y = Add(f, x)", {"c": np.array(49, np.float32)})
    assert operators(quantized(model))["DIV"] == 1


def test_a_tflite_keeps_its_operators_unless_it_is_quantized() -> None:
    model = build("float[1,6,32] x", "y = LeakyRelu<alpha = 0.2>(x)", {})
    source = relayout.convert(model, format="tflite").tflite
    assert operators(relayout.convert(source, format="tflite")) == {"LEAKY_RELU": 1}
    result = relayout.convert(source, format="tflite", quantize="int8", calibrate=samples_of(model))
    assert "LEAKY_RELU" not in operators(result)


@pytest.mark.parametrize("kind", ["dynamic", "float16"])
def test_tables_are_integers_or_halves_where_weights_alone_are(kind: str) -> None:
    model = build("int64[1,5] i", "e = Gather<axis = 0>(t, i) y = MatMul(e, w)", {"t": (300, 32), "w": (32, 8)})
    result = relayout.convert(model, format="tflite", quantize=kind)  # type: ignore[arg-type]
    assert operators(result)["EMBEDDING_LOOKUP"] == 1
    assert len(result.tflite) < 300 * 32 * {"dynamic": 1.7, "float16": 2.7}[kind]
    assert isinstance(model, onnx.ModelProto)
    assert operators(relayout.convert(model, format="tflite"))["GATHER"] == 1


def test_an_npu_has_functions_of_integers_that_its_runtime_lacks_for_real_numbers() -> None:
    """Vela makes a table of GELU; TensorFlow Lite Micro has none at all, and gets sums and products of real numbers."""
    model = build("float[1,6,32] x", "g = Gelu(x) y = Relu(g)", {})
    result = quantized(model, target="ethos-u")
    assert operators(result) == {"GELU": 1, "RELU": 1, **CONVERSIONS}
    assert min(signal_to_noise(model, result.tflite)) > LEAST
    with pytest.raises(relayout.UnsupportedError, match=r"GELU \(TensorFlow Lite Micro has no such builtin\)"):
        quantized(model, target="ethos-u", keep_float=["g"])
    result = quantized(model, target="tflite-micro")
    assert (operators(result)["GELU"], operators(result)["EXP"]) == (0, 1)
    assert sum(float_operators(result).values()) == 21
    assert min(signal_to_noise(model, result.tflite)) > 40


def test_the_first_step_of_an_lstm_adds_no_state_of_zeros() -> None:
    """Zeros have a scale that no kernel of XNNPACK takes; a step has one product with the state."""
    weights = {"w": (1, 24, 5), "r": (1, 24, 6), "b": (1, 48)}
    model = build("float[3,1,5] x", "h, y = LSTM<hidden_size = 6>(x, w, r, b)", weights)
    counts = operators(quantized(model))
    assert counts["FULLY_CONNECTED"] == 1 + 2
    assert (counts["ADD"], counts["MUL"]) == (2 * 2, 3 + 3 + 2)


def test_a_slice_states_whole_extents_as_numbers() -> None:
    """XNNPACK takes no others, and each SLICE that it leaves parts the graph."""
    model = build("float[3,1,5] x", "h, y = LSTM<hidden_size = 6>(x, w, r)", {"w": (1, 24, 5), "r": (1, 24, 6)})
    (graph,) = load(quantized(model).tflite).subgraphs
    slices = [row for row in graph.operators if row.name == "SLICE"]
    sizes = [np.frombuffer(bytes(graph.tensors[row.inputs[2]].data), np.int32) for row in slices]
    assert len(slices) == 6
    assert all((each > 0).all() for each in sizes)


def test_a_factor_is_multiplied_by_the_constant_behind_its_product() -> None:
    """As the inverse root of a variance by the scale of each channel: that product is small."""
    text = "m = ReduceMean<keepdims = 1>(x, i) t = Tanh(m) p = Mul(x, t) y = Mul(p, c)"
    model = build("float[1,4,8,8] x", text, {"i": [2, 3], "c": (4, 1, 1)})
    (graph,) = load(quantized(model).tflite).subgraphs
    sizes = [int(np.prod(graph.tensors[row.outputs[0]].shape)) for row in graph.operators if row.name == "MUL"]
    assert sorted(sizes)[-2:] == [4, 256]
    assert min(signal_to_noise(model, quantized(model).tflite)) > 30


def test_a_gate_behind_a_convolution_adds_its_shift_to_the_bias() -> None:
    text = "c = Conv(x, k, b) g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(c) y = Conv(g, w)"
    model = build("float[1,4,8,8] x", text, {"k": (6, 4, 1, 1), "b": (6,), "w": (2, 6, 1, 1)})
    result = quantized(model)
    assert operators(result) == {"CONV_2D": 2, "MUL": 1, "TRANSPOSE": 2, **CONVERSIONS}
    assert min(signal_to_noise(model, result.tflite)) > 35


@needs_vela
def test_a_border_of_long_strides_is_joined_to_the_image_for_an_npu(tmp_path: Path) -> None:
    """Vela compiles nothing of a file with such a PAD: the first convolution of a SegFormer."""
    text = "c = Conv<strides = [4, 4], pads = [3, 3, 2, 1]>(x, k, b) y = Relu(c)"
    model = build("float[1,3,20,24] x", text, {"k": (6, 3, 7, 7), "b": (6,)})
    result = quantized(model, target="ethos-u", input_type="int8", output_type="int8")
    assert (operators(result)["CONCATENATION"], operators(result)["PAD"]) == (2, 0)
    assert operators(quantized(model))["PAD"] == 1
    assert min(signal_to_noise(model, result.tflite)) > 30
    result.save(tmp_path / "border.tflite")
    assert not judge(tmp_path / "border.tflite", tmp_path).on_cpu


def test_an_lstm_whose_forget_gate_follows_from_its_input_gate_is_quantized() -> None:
    """Its product has no rows that nobody reads: LiteRT has no memory for a part that nobody reads."""
    model = build(
        "float[6,2,8] x", "y = LSTM<hidden_size=8, input_forget=1>(x, w, r)", {"w": (1, 32, 8), "r": (1, 32, 8)}
    )
    (noise,) = signal_to_noise(model, quantized(model).tflite)
    assert noise > 20


def test_a_bias_of_more_than_32_bits_stays_what_it_is() -> None:
    """The quantizer makes numbers of 32 bits of it, which have another sign where they are too few."""
    rng = np.random.default_rng(0)
    small = (rng.normal(size=(8, 8)) * 1e-4).astype(np.float32)
    model = build(
        "float[1,6,8] x",
        "a = MatMul(x, w) r = Relu(a) p = MatMul(r, k) y = Add(p, b)",
        {"w": small, "k": (8, 6), "b": np.array([3, -4, 5, 3, 2, -6], np.float32)},
    )
    assert min(signal_to_noise(model, quantized(model, kind="int16x8").tflite)) > 60


@pytest.mark.parametrize("target", ["ethos-u", "tflite-micro", "coral"])
def test_a_softmax_of_16_bits_stays_one(target: str) -> None:
    """A reader of the file sees a table and sums of 64 bits, which TensorFlow Lite Micro was refused for."""
    model = build("float[1,6,32] x", "a = MatMul(x, k) y = Softmax(a)", WEIGHTS)
    result = quantized(model, kind="int16x8", target=target)
    assert operators(result)["SOFTMAX"] == 1
    claims = result.report.claims
    assert claims is not None
    claimed = {row.operator: row.claimed for row in claims.operators}
    assert claimed["tflite:SOFTMAX"] == (target != "coral")
    again = relayout.convert(result.tflite, format="tflite", target=target)
    assert again.report.operators == result.report.operators
