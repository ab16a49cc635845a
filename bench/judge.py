"""Judge ONNX files against the .tflite file that they were made from; print the verdicts as JSON.

    python bench/judge.py MODEL.tflite MODEL.onnx ...

The reference is LiteRT's default interpreter. Its own reference kernels differ from it: a difference within twice that
spread is called noise. One within 2 % of the output's range is drift: dynamic-range models are expected to.

Transposes are counted as written: of values that depend on the input, and moving more than axes of size 1; their bytes
are those of the values that they give when the model runs.

Latency is that of ONNX Runtime and of LiteRT (XNNPACK) on one thread each: blocks of runs take turns, and a ratio is
the median of the blocks' ratios.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
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
BLOCKS, BLOCK_SECONDS = 9, 0.02
AXIS = re.compile(r"\([^()]*\)|\S+")
"""In a layout: an axis by its name, or one of several factors in parentheses."""


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


def results(session: onnxruntime.InferenceSession, names: list[str], fed: dict[str, Array]) -> list[Array]:
    """The outputs, in the source's order of axes where the model declares its own."""
    orders, given = declared(session), session.run(names, fed)
    return [
        array.transpose(np.argsort(orders[name])) if name in orders else array
        for name, array in zip(names, given, strict=True)
    ]


def other_kernels(tflite: str, arrays: list[Array]) -> list[Array]:
    """The source's outputs by LiteRT's reference kernels, or by its optimized ones where an operator has none."""
    try:
        return run_tflite(tflite, arrays, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)[1]
    except (RuntimeError, ValueError):
        plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        return run_tflite(tflite, arrays, experimental_op_resolver_type=plain)[1]


def fits(shape: Sequence[int | str | None], array: Array) -> bool:
    return len(shape) == array.ndim and all(
        not isinstance(a, int) or a in (-1, b) for a, b in zip(shape, array.shape, strict=True)
    )


def declared(session: onnxruntime.InferenceSession) -> dict[str, list[int]]:
    """Input or output -> the perm that brings the source's axes into its order, where the model's metadata has one."""
    said = json.loads(session.get_modelmeta().custom_metadata_map.get("relayout.interface", "{}"))
    sides = {name: [AXIS.findall(side) for side in layout.split(" -> ")] for name, layout in said.items()}
    return {name: axis_order(*both) for name, both in sides.items()}


def axis_order(before: list[str], after: list[str]) -> list[int]:
    """Which axis each stored one is; those of one element may have lost their names."""
    nameless = [axis for axis in before if axis not in after]
    return [before.index(axis if axis in before else nameless.pop(0)) for axis in after]


def feed(session: onnxruntime.InferenceSession, details: list[dict[str, Any]], arrays: list[Array]) -> dict[str, Array]:
    """The same inputs as a converter wants them: in the order that it declares, or channels first; dequantized."""
    fed, orders = {}, declared(session)
    wanted = {put.name: put for put in session.get_inputs()}
    by_name = all(detail["name"] in wanted for detail in details)
    for put, detail, array in zip(session.get_inputs(), details, arrays, strict=True):
        where = wanted[detail["name"]] if by_name else put
        given = real(array, detail).astype(np.float32) if "float" in where.type and array.dtype.kind in "iu" else array
        if where.name in orders:
            fed[where.name] = given.transpose(orders[where.name])
        else:
            fed[where.name] = given if fits(where.shape, given) else np.moveaxis(given, -1, 1)
    return fed


def compare(
    details: list[dict[str, Any]], expected: list[Array], spread: list[Array], got: list[Array]
) -> tuple[str, float | None]:
    """`ok`, `noise`, `drift` or `differs`, the worst of all outputs; the largest error, by the largest value."""
    verdicts = ["ok", "noise", "drift", "differs"]
    worst, largest_error = 0, 0.0
    for detail, reference, other, array in zip(details, expected, spread, got, strict=True):
        if array.shape != reference.shape and array.ndim > 2:
            array = np.moveaxis(array, 1, -1)
        if array.shape != reference.shape:
            return "differs", None
        want = real(reference, detail)
        have = real(array, detail) if array.dtype == reference.dtype else array.astype(np.float64)
        scale = detail["quantization"][0]
        if reference.dtype.kind in "iub" and not scale:
            # Indices, counts: the share that is not the same.
            error, noise = float(np.mean(want != have)), float(np.mean(want != real(other, detail)))
            allowed, largest = 0.0, 1.0
        else:
            largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
            allowed = 1.01 * scale if scale else 1e-4 * largest + 1e-6
            error, noise = distance(want, have), distance(want, real(other, detail))
        largest_error = max(largest_error, error / (largest or 1.0))
        limits = (allowed, 2 * noise, 0.02 * largest)
        worst = max(worst, next((place for place, limit in enumerate(limits) if error <= limit), 3))
    return verdicts[worst], largest_error if np.isfinite(largest_error) else None


def distance(want: Array, have: Array) -> float:
    """The largest difference; NaN or an infinity where the other has none is infinitely far."""
    same = (want == have) | (np.isnan(want) & np.isnan(have))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0.0, np.abs(have - want))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0))


def judge(tflite: str, path: str) -> dict[str, Any]:
    verdict: dict[str, Any] = {"checker": False, "runs": False, "numerics": "", "transposes": None, "bytes": None}
    model = onnx.load(path)
    try:
        onnx.checker.check_model(model, full_check=True)
        verdict["checker"] = True
    except Exception as error:
        verdict["why"] = first_line(error)
    details, arrays = inputs_of(tflite)
    outputs, expected = run_tflite(tflite, arrays)
    try:
        session = session_of(path)
        fed = feed(session, details, arrays)
        got = results(session, ordered(session, outputs), fed)
    except Exception as error:
        return verdict | {"why": first_line(error)}
    verdict["runs"] = True
    verdict["numerics"], verdict["error"] = compare(outputs, expected, other_kernels(tflite, arrays), got)
    flat = onnx.inliner.inline_local_functions(model) if model.functions else model
    verdict["transposes"], verdict["bytes"] = count_transposes(flat, fed)
    return verdict


def inputs_of(tflite: str) -> tuple[list[dict[str, Any]], list[Array]]:
    """The interpreter's inputs, and what they are fed."""
    details = Interpreter(model_path=tflite).get_input_details()
    return details, [image_like(detail, np.random.default_rng(7)) for detail in details]


def litert_runner(tflite: str, arrays: list[Array]) -> Callable[[], Any]:
    interpreter = Interpreter(model_path=tflite, num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    return interpreter.invoke


def latencies(tflite: str, paths: list[str]) -> tuple[float, list[float]]:
    """Milliseconds of a run in LiteRT, and for each ONNX file how many times that it takes in ONNX Runtime."""
    details, arrays = inputs_of(tflite)
    runs: list[Callable[[], Any]] = [litert_runner(tflite, arrays)]
    for path in paths:
        session = session_of(path)
        fed = feed(session, details, arrays)
        runs.append(lambda session=session, fed=fed: session.run(None, fed))
    counts = [max(1, round(BLOCK_SECONDS / min(timed(run, 1) for _ in range(3)))) for run in runs]
    blocks = [[timed(run, count) for run, count in zip(runs, counts, strict=True)] for _ in range(BLOCKS)]
    ratios = [statistics.median(block[i] / block[0] for block in blocks) for i in range(1, len(runs))]
    return 1e3 * statistics.median(block[0] for block in blocks), ratios


def timed(run: Callable[[], Any], count: int) -> float:
    """Seconds of one run, the mean of several in a row."""
    begun = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begun) / count


def ordered(session: onnxruntime.InferenceSession, details: Iterable[dict[str, Any]]) -> list[str]:
    """The ONNX outputs in the order of the .tflite file's, by name where the names were kept."""
    names, wanted = [put.name for put in session.get_outputs()], [detail["name"] for detail in details]
    return wanted if sorted(names) == sorted(wanted) else names


def main(arguments: list[str]) -> None:
    tflite, *paths = arguments
    verdicts = [judge(tflite, path) for path in paths]
    running = [place for place, verdict in enumerate(verdicts) if verdict["runs"]]
    own, ratios = latencies(tflite, [paths[place] for place in running])
    for place, ratio in zip(running, ratios, strict=True):
        verdicts[place]["latency"] = ratio
    print(json.dumps({"litert_ms": own, "verdicts": verdicts}))


if __name__ == "__main__":
    main(sys.argv[1:])
