"""Judge one ONNX file against the .tflite file that it was made from; print the verdict as JSON.

    python bench/judge.py MODEL.tflite MODEL.onnx

The reference is LiteRT's default interpreter. Its own reference kernels differ from it: a difference within twice that
spread is called noise. One within 2 % of the output's range is drift: dynamic-range models are expected to.

Transposes are counted as written: of values that depend on the input, and moving more than axes of size 1; their bytes
are those of the values that they give when the model runs.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.inliner
import onnxruntime
from counting import count_transposes, first_line, session_of
from numpy.typing import NDArray

warnings.filterwarnings("ignore")
from ai_edge_litert.interpreter import Interpreter, OpResolverType  # noqa: E402  (it warns when imported)

Array = NDArray[Any]


def image_like(detail: dict[str, Any], rng: np.random.Generator) -> Array:
    """A smooth input: quantized networks saturate on white noise."""
    shape, dtype = tuple(int(extent) for extent in detail["shape"]), np.dtype(detail["dtype"])
    grids = np.meshgrid(*(np.linspace(0, 1, extent) for extent in shape), indexing="ij", sparse=True)
    wave = np.zeros(shape)
    for _ in range(6):
        phase = rng.uniform(0, 2 * np.pi) + sum(rng.uniform(-9, 9) * grid for grid in grids)
        wave = wave + np.sin(phase)
    unit = (wave / 12 + 0.5 + rng.normal(0, 0.02, shape)).clip(0, 1)
    if dtype.kind == "f":
        return unit.astype(dtype)
    if dtype == np.bool_:
        return unit > 0.5
    if not detail["quantization_parameters"]["scales"].size:
        return (unit * 3).astype(dtype)  # indices, lengths: small, so that they are in range
    limits = np.iinfo(dtype)
    return (limits.min + unit * (limits.max - limits.min)).round().astype(dtype)


def real(array: Array, detail: dict[str, Any]) -> Array:
    """What the stored numbers mean."""
    scale, zero = detail["quantization"]
    return (array.astype(np.float64) - zero) * scale if scale else array.astype(np.float64)


def run_tflite(path: str, inputs: Sequence[Array], **options: Any) -> tuple[list[dict[str, Any]], list[Array]]:
    interpreter = Interpreter(model_path=path, num_threads=1, **options)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    outputs = interpreter.get_output_details()
    return outputs, [interpreter.get_tensor(detail["index"]) for detail in outputs]


def fits(shape: Sequence[int | str | None], array: Array) -> bool:
    return len(shape) == array.ndim and all(
        not isinstance(a, int) or a in (-1, b) for a, b in zip(shape, array.shape, strict=True)
    )


def feed(session: onnxruntime.InferenceSession, details: list[dict[str, Any]], arrays: list[Array]) -> dict[str, Array]:
    """The same inputs as a converter wants them: channels first, dequantized."""
    fed = {}
    wanted = {put.name: put for put in session.get_inputs()}
    by_name = all(detail["name"] in wanted for detail in details)
    for put, detail, array in zip(session.get_inputs(), details, arrays, strict=True):
        where = wanted[detail["name"]] if by_name else put
        given = real(array, detail).astype(np.float32) if "float" in where.type and array.dtype.kind in "iu" else array
        fed[where.name] = given if fits(where.shape, given) else np.moveaxis(given, -1, 1)
    return fed


def compare(details: list[dict[str, Any]], expected: list[Array], spread: list[Array], got: list[Array]) -> str:
    """`ok`, `noise`, `drift` or `differs`: the worst of all outputs."""
    verdicts = ["ok", "noise", "drift", "differs"]
    worst = 0
    for detail, reference, other, array in zip(details, expected, spread, got, strict=True):
        if array.shape != reference.shape and array.ndim > 2:
            array = np.moveaxis(array, 1, -1)
        if array.shape != reference.shape:
            return "differs"
        want = real(reference, detail)
        have = real(array, detail) if array.dtype == reference.dtype else array.astype(np.float64)
        scale = detail["quantization"][0]
        largest = float(np.abs(want).max(initial=0))
        allowed = 1.01 * scale if scale else 1e-4 * largest + 1e-6
        error = float(np.abs(have - want).max(initial=0))
        noise = float(np.abs(real(other, detail) - want).max(initial=0))
        limits = (allowed, 2 * noise, 0.02 * largest)
        worst = max(worst, next((place for place, limit in enumerate(limits) if error <= limit), 3))
    return verdicts[worst]


def judge(tflite: str, path: str) -> dict[str, Any]:
    verdict: dict[str, Any] = {"checker": False, "runs": False, "numerics": "", "transposes": None, "bytes": None}
    model = onnx.load(path)
    try:
        onnx.checker.check_model(model, full_check=True)
        verdict["checker"] = True
    except Exception as error:
        verdict["why"] = first_line(error)
    interpreter = Interpreter(model_path=tflite)
    details = interpreter.get_input_details()
    arrays = [image_like(detail, np.random.default_rng(7)) for detail in details]
    try:
        session = session_of(path)
        fed = feed(session, details, arrays)
        got = session.run(ordered(session, interpreter.get_output_details()), fed)
    except Exception as error:
        return verdict | {"why": first_line(error)}
    verdict["runs"] = True
    outputs, expected = run_tflite(tflite, arrays)
    _, spread = run_tflite(tflite, arrays, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    verdict["numerics"] = compare(outputs, expected, spread, got)
    flat = onnx.inliner.inline_local_functions(model) if model.functions else model
    verdict["transposes"], verdict["bytes"] = count_transposes(flat, fed)
    return verdict


def ordered(session: onnxruntime.InferenceSession, details: Iterable[dict[str, Any]]) -> list[str]:
    """The ONNX outputs in the order of the .tflite file's, by name where the names were kept."""
    names, wanted = [put.name for put in session.get_outputs()], [detail["name"] for detail in details]
    return wanted if sorted(names) == sorted(wanted) else names


if __name__ == "__main__":
    print(json.dumps(judge(*sys.argv[1:3])))
