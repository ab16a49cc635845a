"""Networks that are quantized, samples for them, and how far the integers are from the real numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

import relayout
from rules.law import Array, with_runtime


def samples_of(model: onnx.ModelProto, count: int = 8, seed: int = 0) -> list[dict[str, Array]]:
    """Return random inputs of a model."""
    rng = np.random.default_rng(seed)
    shapes = {put.name: [dim.dim_value for dim in put.type.tensor_type.shape.dim] for put in model.graph.input}
    return [{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(count)]


def quantized(model: Any, *, kind: Any = "int8", **options: Any) -> relayout.Result:
    """Return a model quantized on random samples."""
    return relayout.convert(model, format="tflite", quantize=kind, calibrate=samples_of(model), **options)


def run_reals(content: bytes, feed: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a file as real numbers; inputs that are integers with a scale are quantized."""
    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    runner = interpreter.get_signature_runner()
    fed = {name: _stored(feed[name], put) for name, put in runner.get_input_details().items()}
    results, details = runner(**fed), runner.get_output_details()
    return [_real(results[name], details[name]) for name in details]


def _stored(array: Array, put: Mapping[str, Any]) -> Array:
    scale, zero = put["quantization"]
    if not scale:
        return array.astype(put["dtype"])
    limits = np.iinfo(put["dtype"])
    return np.clip(np.round(array / scale) + zero, limits.min, limits.max).astype(put["dtype"])


def _real(array: Array, put: Mapping[str, Any]) -> Array:
    scale, zero = put["quantization"]
    return (array.astype(np.float32) - zero) * scale if scale else array


def decibels(expected: Array, got: Array) -> float:
    """Return the ratio of a signal to what is wrong with it."""
    wrong = np.square(expected.astype(np.float64) - got).sum()
    return float(10 * np.log10(np.square(expected.astype(np.float64)).sum() / max(wrong, 1e-30)))


def signal_to_noise(model: onnx.ModelProto, content: bytes) -> list[float]:
    """Return for each output how far a file's numbers are from those of its float source, in decibels."""
    (feed,) = samples_of(model, 1, seed=99)
    expected, got = with_runtime(model, feed), run_reals(content, feed)
    return [decibels(one, other) for one, other in zip(expected, got, strict=True)]


def operators(result: relayout.Result) -> Counter[str]:
    """Return the operators of a file."""
    return Counter(result.report.operators)


def float_operators(result: relayout.Result) -> dict[str, int]:
    """Return the operators that compute real numbers in a quantized file."""
    assert result.report.quantization is not None
    return {each.name: each.number for each in result.report.quantization.floats}


def by_google(content: bytes, feeds: Sequence[Mapping[str, Array]]) -> bytes:
    """Return what Google's quantizer makes of a file by its own recipe, as a user runs it."""
    pytest.importorskip("ai_edge_quantizer")
    from ai_edge_quantizer import quantizer, recipe

    job = quantizer.Quantizer(bytearray(content), recipe.static_wi8_ai8())
    ranges = job.calibrate({"serving_default": list(feeds)}, num_threads=1)
    return bytes(job.quantize(ranges, enable_progress_bar=False, enable_progress_report=False).quantized_model)
