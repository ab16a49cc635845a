"""Masked attentions that are quantized: scores keep their steps, and a masked place has no share."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import onnx
import pytest
from calibrating import decibels, float_operators, run_reals

import relayout
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
    "constant": ("t = Add(s, causal)", -np.inf),
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
    if name not in ("windows", "constant"):
        other = {**fed, "x": fed["x"].copy()}
        other["x"][:, 7] += 1
        np.testing.assert_allclose(got[:, :, :7], run_reals(result.tflite, other)[0][:, :, :7], atol=1e-3)


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


@pytest.mark.parametrize("target", ["litert", "ethos-u"])
def test_a_mask_behind_operators_that_move_it(target: str) -> None:
    operators = """s = MatMul(x, w) m = Concat<axis = 2>(half, zeros) t = Add(s, m) p = Softmax<axis = -1>(t)
        y = MatMul(p, u)"""
    constants = {**WEIGHTS, "zeros": np.zeros((1, 8, 8), np.float32)}
    assert noise(operators, constants, target, ", float[1,8,8] half") > 25
