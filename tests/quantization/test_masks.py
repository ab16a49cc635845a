"""Masked attentions that are quantized: scores keep their steps, and a masked place has no share."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Literal

import numpy as np
import onnx
import pytest
from calibrating import decibels, float_operators, run_reals

import relayout
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import array_content
from relayout.quantization.findings import with_constants
from rules.law import Array, with_runtime
from small import build

pytest.importorskip("ai_edge_quantizer")

LEAST = float(np.finfo(np.float32).min)
COMPUTED = "f = Cast<to = 1>(kept) g = Sub(one, f) m = Mul(g, deep)"
MASKS = {  # how places are masked -> operators from scores `s` to masked scores `t`, and how deep
    "chosen infinity": ("c = Cast<to = 9>(kept) m = Where(c, zero, deep) t = Add(s, m)", -np.inf),
    "a bias or infinity": ("c = Cast<to = 9>(kept) m = Where(c, bias, deep) t = Add(s, m)", LEAST),
    "instead of scores": ("c = Cast<to = 9>(kept) t = Where(c, s, deep)", -np.inf),
    "computed": (f"{COMPUTED} t = Add(s, m)", -1e4),
    "computed deeply": (f"{COMPUTED} t = Add(m, s)", -1e9),
    "beside a bias": (f"{COMPUTED} b = Add(bias, m) t = Add(s, b)", -1e4),
    "by its rest": ("f = Cast<to = 1>(kept) g = Sub(one, f) m = Mul(g, deep) t = Sub(s, m)", 1e4),
    "limited": (f"{COMPUTED} u = Add(s, m) t = Max(u, deep)", LEAST),
    "scaled": (f"{COMPUTED} n = Mul(m, half) t = Add(s, n)", -1e4),
    "negated and far": (f"{COMPUTED} n = Mul(m, minus) t = Add(s, n)", 1e6),
    "scaled with scores": (f"{COMPUTED} u = Add(s, m) t = Mul(u, half)", -1e4),
    "chosen and scaled": ("c = Cast<to = 9>(kept) u = Where(c, s, deep) t = Div(u, eight)", -1e4),
    "of ones that are kept": ("f = Cast<to = 1>(kept) g = Sub(f, one) m = Mul(g, deep) t = Add(s, m)", 1e4),
    "constant": ("t = Add(s, causal)", -np.inf),
    "a constant that is subtracted": ("t = Sub(s, causal)", 1e4),
    "a constant, scaled with scores": ("u = Add(s, causal) t = Mul(u, half)", -1e4),
    "windows": ("t = Add(s, causal)", -100.0),
    "fed": ("t = Add(s, kept)", -1e4),
}

ALWAYS = ("heads", "wq", "wk", "wv")


def attention(operators: str, depth: float) -> onnx.ModelProto:
    """An attention of eight tokens and four heads, some of whose scores are masked."""
    rng = np.random.default_rng(0)
    causal = np.where(np.tri(8, dtype=bool), 0, depth).astype(np.float32)
    constants: dict[str, Array] = {
        **{name: rng.normal(size=(16, 16)).astype(np.float32) * 0.35 for name in ("wq", "wk", "wv")},
        "heads": np.array([1, 8, 4, 4]),
        "zero": np.float32(0),
        "one": np.float32(1),
        "half": np.float32(0.5),
        "eight": np.float32(8),
        "minus": np.float32(-0.01),
        "deep": np.float32(depth),
        "causal": causal,
        "bias": rng.normal(size=(1, 4, 8, 8)).astype(np.float32),
    }
    projections = "\n".join(
        f"{name}0 = MatMul(x, w{name}) {name}1 = Reshape({name}0, heads) {name} = Transpose<perm = {perm}>({name}1)"
        for name, perm in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items()
    )
    mask_type = "float" if operators == MASKS["fed"][0] else "int32"
    return build(
        f"float[1,8,16] x, {mask_type}[1,1,1,8] kept",
        f"{projections} s = MatMul(q, k) {operators} p = Softmax<axis = -1>(t) y = MatMul(p, v)",
        {name: array for name, array in constants.items() if name in {*re.findall(r"\w+", operators), *ALWAYS}},
    )


def feed(model: onnx.ModelProto, depth: float, seed: int) -> dict[str, Array]:
    is_fed = model.graph.input[1].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    kept = np.arange(8).reshape(1, 1, 1, 8) < 5 + seed % 3
    mask = np.where(kept, 0, depth).astype(np.float32) if is_fed else kept.astype(np.int32)
    return {"x": np.random.default_rng(seed).normal(size=(1, 8, 16)).astype(np.float32), "kept": mask}


@pytest.mark.parametrize("kind", ["int8", "int16x8"])
@pytest.mark.parametrize("target", ["litert", "ethos-u"])
@pytest.mark.parametrize("name", MASKS)
def test_masked_scores(name: str, target: str, kind: Literal["int8", "int16x8"]) -> None:
    """Numbers are those of the source, and what is masked changes no row of another token."""
    operators, depth = MASKS[name]
    model = attention(operators, depth)
    samples = [feed(model, depth, seed) for seed in range(8)]
    result = relayout.convert(model, format="tflite", target=target, quantize=kind, calibrate=samples)
    fed = feed(model, depth, 3)
    (expected,), (got,) = with_runtime(model, fed), run_reals(result.tflite, fed)
    assert decibels(expected, got) > 27
    assert ("SOFTMAX" in float_operators(result)) == (target == "litert")
    if "causal" not in operators:
        other = {**fed, "x": fed["x"].copy()}
        other["x"][:, 7] += 1
        np.testing.assert_allclose(got[:, :, :7], run_reals(result.tflite, other)[0][:, :, :7], atol=1e-3)


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
@pytest.mark.parametrize("name", ["chosen infinity", "instead of scores", "computed", "scaled with scores"])
def test_a_mask_that_no_sample_has(name: str, target: str) -> None:
    operators, depth = MASKS[name]
    model = attention(operators, depth)
    samples = [feed(model, depth, seed) for seed in range(8)]
    unmasked = [{**each, "kept": np.ones_like(each["kept"])} for each in samples]
    result = relayout.convert(model, format="tflite", target=target, quantize="int8", calibrate=unmasked)
    (expected,), (got,) = with_runtime(model, samples[3]), run_reals(result.tflite, samples[3])
    assert decibels(expected, got) > 25


OPERATORS = "Attention<q_num_heads = 4, kv_num_heads = 4"
PROJECTIONS = "q = MatMul(x, w) k = MatMul(x, u) v = MatMul(x, t)"
FAR_NUMBERS = {
    "an operator that masks causally": ("", f"{PROJECTIONS} y = {OPERATORS}, is_causal = 1>(q, k, v)"),
    "an operator with a mask": (", bool[1,1,8,8] kept", f"{PROJECTIONS} y = {OPERATORS}>(q, k, v, kept)"),
    "limits": ("", "a = MatMul(x, w) b = Max(a, least) c = Min(b, most) y = MatMul(c, u)"),
    "a far limit": ("", "a = MatMul(x, w) c = Min(a, far) y = MatMul(c, u)"),
    "a test for infinities": ("", "a = MatMul(x, w) i = IsInf(a) c = Where(i, least, a) y = MatMul(c, u)"),
    "a limit for each channel": ("", "a = MatMul(x, w) c = Max(a, each) y = MatMul(c, u)"),
}


@pytest.mark.parametrize("kind", ["int8", "int16x8"])
@pytest.mark.parametrize("target", ["litert", "ethos-u"])
@pytest.mark.parametrize("name", FAR_NUMBERS)
def test_numbers_that_have_no_scale(name: str, target: str, kind: Literal["int8", "int16x8"]) -> None:
    """Constants that are infinite, or far from all values, and those of a lower rank than the result."""
    masks, operators = FAR_NUMBERS[name]
    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        **{each: rng.normal(size=(16, 16)).astype(np.float32) * 0.35 for each in ("w", "u", "t")},
        **dict(zip(("least", "most", "far"), np.array([LEAST, -LEAST, 65504], np.float32), strict=True)),
        "each": rng.normal(size=16).astype(np.float32),
    }
    used = {each: array for each, array in constants.items() if each in re.findall(r"\w+", operators)}
    model = build(f"float[1,8,16] x{masks}", operators, used, opset=23)
    kept = {"kept": np.broadcast_to(np.arange(8) < 6, (1, 1, 8, 8)).copy()} if masks else {}
    samples = [{"x": rng.normal(size=(1, 8, 16)).astype(np.float32), **kept} for _ in range(9)]
    result = relayout.convert(model, format="tflite", target=target, quantize=kind, calibrate=samples[1:])
    (expected,), (got,) = with_runtime(model, samples[0]), run_reals(result.tflite, samples[0])
    assert decibels(expected, got) > 27


def noise(operators: str, constants: dict[str, Array], target: str, inputs: str = "") -> float:
    """Return the signal to noise of a network on samples that it has not seen."""
    model = build(f"float[1,8,16] x{inputs}", operators, constants)
    rng = np.random.default_rng(1)
    half = np.tile(np.where(np.arange(8) < 5, 0, -1e4).astype(np.float32), (1, 8, 1))
    samples = [{"x": rng.normal(size=(1, 8, 16)).astype(np.float32)} for _ in range(9)]
    samples = [each | ({"half": half} if inputs else {}) for each in samples]
    result = relayout.convert(model, format="tflite", target=target, quantize="int8", calibrate=samples[1:])
    (expected,), (got,) = with_runtime(model, samples[0]), run_reals(result.tflite, samples[0])
    return decibels(expected, got)


WEIGHTS = {name: np.random.default_rng(5).normal(size=(16, 16)).astype(np.float32) * 0.35 for name in ("w", "u")}


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
def test_a_limit_that_several_operators_share_bounds_each_by_its_own_range(target: str) -> None:
    constants = {"w": WEIGHTS["w"], "k": WEIGHTS["u"] * np.float32(0.02), "least": np.float32(LEAST)}
    assert noise("a = MatMul(x, w) b = Max(a, least) c = MatMul(b, k) y = Max(c, least)", constants, target) > 25


def test_a_large_factor_of_scores_is_no_mask() -> None:
    constants = {"w": WEIGHTS["w"] * np.float32(0.001), "large": np.float32(2000)}
    assert noise("a = MatMul(x, w) b = Mul(a, large) y = Softmax<axis = -1>(b)", constants, "ethos-u") > 25


MOVES = {  # operators that move a mask `half` -> and its operators
    "joined": "m = Concat<axis = 2>(half, zeros)",
    "divided": "a, b = Split<axis = 2, num_outputs = 2>(half) m = Concat<axis = 2>(b, zeros, a)",
    "gathered": "g = GatherND(half, places) m = Concat<axis = 2>(g, zeros)",
    "from depth to space": """f = Reshape(half, four) g = DepthToSpace<blocksize = 2>(f) h = Reshape(g, three)
        m = Concat<axis = 2>(h, zeros)""",
    "from space to depth": """f = Reshape(half, four) g = SpaceToDepth<blocksize = 2>(f) h = Reshape(g, three)
        m = Concat<axis = 2>(h, zeros)""",
}


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
@pytest.mark.parametrize("name", MOVES)
def test_a_mask_behind_operators_that_move_it(name: str, target: str) -> None:
    operators = f"s = MatMul(x, w) {MOVES[name]} t = Add(s, m) p = Softmax<axis = -1>(t) y = MatMul(p, u)"
    constants = {
        "zeros": np.zeros((1, 8, 8), np.float32),
        "places": np.stack(np.meshgrid([0], [3, 1, 2, 0, 7, 6, 5, 4], np.arange(8), indexing="ij"), -1),
        "four": np.array([1, 4, 4, 4]),
        "three": np.array([1, 8, 8]),
    }
    used = {each: array for each, array in constants.items() if each in re.findall(r"\w+", operators)}
    assert noise(operators, {**WEIGHTS, **used}, target, ", float[1,8,8] half") > 25


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
def test_a_part_of_an_operand_masks(target: str) -> None:
    """The other part goes elsewhere."""
    operators = """s = MatMul(x, w) a, b = Split<axis = 2, num_outputs = 2>(half) m = Concat<axis = 2>(b, zeros)
        t = Add(s, m) p = Softmax<axis = -1>(t) q = MatMul(p, u) y = Concat<axis = 2>(q, a)"""
    model = build("float[1,8,16] x, float[1,8,8] half", operators, {**WEIGHTS, "zeros": np.zeros((1, 8, 12), "f")})
    rng = np.random.default_rng(1)
    half = np.tile(np.where(np.arange(8) < 5, 0, -1e4).astype(np.float32), (1, 8, 1))
    samples = [{"x": rng.normal(size=(1, 8, 16)).astype(np.float32), "half": half} for _ in range(9)]
    result = relayout.convert(model, format="tflite", target=target, quantize="int8", calibrate=samples[1:])
    (expected,), (got,) = with_runtime(model, samples[0]), run_reals(result.tflite, samples[0])
    assert decibels(expected[..., :16], got[..., :16]) > 25


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
def test_a_mask_that_is_an_output_as_well(target: str) -> None:
    """It is as deep there as in the source."""
    mask = np.where(np.tri(8, 16, dtype=bool), 0, -1e4).astype(np.float32)
    model = build(
        "float[1,8,16] x",
        "s = MatMul(x, w) t = Add(s, mask) p = Softmax<axis = -1>(t) y = MatMul(p, u) z = Identity(mask)",
        {**WEIGHTS, "mask": mask},
        outputs=("y", "z"),
    )
    samples = [{"x": np.random.default_rng(seed).normal(size=(1, 8, 16)).astype(np.float32)} for seed in range(9)]
    result = relayout.convert(model, format="tflite", target=target, quantize="int8", calibrate=samples[1:])
    for expected, got in zip(with_runtime(model, samples[0]), run_reals(result.tflite, samples[0]), strict=True):
        assert decibels(expected, got) > 25


def test_another_constant_of_an_operator_changes_no_output() -> None:
    """The graph reads it, too."""
    model = build("float[3] x", "y = Add(x, c)", {"c": np.ones(3, np.float32)})
    (graph,) = load(relayout.convert(model, format="tflite").tflite).subgraphs
    (row,) = graph.operators
    (slot,) = [slot for slot, place in enumerate(row.inputs) if graph.tensors[place].data is not None]
    (place, constant) = row.inputs[slot], graph.tensors[row.inputs[slot]]
    other = replace(constant, data=array_content(np.zeros(3, np.float32)))
    changed = with_constants(graph._replace(outputs=(*graph.outputs, place)), {(0, slot): other})
    assert changed.tensors[place] is constant
    assert changed.tensors[changed.operators[0].inputs[slot]].content.view(np.float32).tolist() == [0, 0, 0]
    assert with_constants(graph, {(0, slot): other}).tensors[place] is other


NARROW = {"w": WEIGHTS["w"][:, :8], "u": WEIGHTS["u"][:8]}


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
@pytest.mark.parametrize("end", ["Softmax<axis = -1>", "Sigmoid"])
@pytest.mark.parametrize("depth", [-1e4, -np.inf])
def test_a_mask_in_the_bias_of_a_product(depth: float, end: str, target: str) -> None:
    """Samples show no range of the product without it."""
    bias = np.where(np.arange(8) < 6, WEIGHTS["w"][0, :8], depth).astype(np.float32)
    operators = f"a = MatMul(x, w) t = Add(a, bias) p = {end}(t) y = MatMul(p, u)"
    assert noise(operators, {**NARROW, "bias": bias}, target) > 30


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
@pytest.mark.parametrize(
    "masking", ["c = Less(half, none) t = Where(c, deep, a)", "t = Add(a, half)", "b = Add(a, half) t = Mul(b, ten)"]
)
def test_a_mask_before_a_sigmoid(masking: str, target: str) -> None:
    constants = {"none": np.float32(0), "deep": np.float32(-1e4), "ten": np.float32(0.1)}
    used = {name: array for name, array in constants.items() if name in re.findall(r"\w+", masking)}
    operators = f"a = MatMul(x, w) {masking} p = Sigmoid(t) y = MatMul(p, u)"
    assert noise(operators, {**NARROW, **used}, target, ", float[1,8,8] half") > 30


def test_a_constant_that_is_low_everywhere_is_no_mask() -> None:
    """It moves scores to where a Sigmoid tells them apart."""
    operators = """a = MatMul(x, w) b = Mul(a, ten) c = Add(b, larger) d = Relu(c) t = Sub(d, large) p = Sigmoid(t)
        y = MatMul(p, u)"""
    constants = {**WEIGHTS, "ten": np.float32(10), "larger": np.float32(105), "large": np.float32(100)}
    assert noise(operators, constants, "ethos-u") > 20


def test_a_lower_limit_beside_scores_masks_nothing() -> None:
    """The largest number of both is never the mask: the scores keep their steps."""
    operators = "a = MatMul(x, w) t = Max(a, least) p = Sigmoid(t) z = Mul(t, p) y = MatMul(z, u)"
    constants = {**WEIGHTS, "least": np.float32(-65504)}
    assert noise(operators, constants, "ethos-u") > 34
