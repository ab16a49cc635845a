"""What OpenVINO makes of ONNX models on the CPU: Transposes and reorders in the graph that it runs, values, latency.

    python bench/by_openvino.py SECONDS MODEL.onnx

Wants openvino, onnxruntime and onnx. OpenVINO runs the source; it writes no ONNX, so this is a runtime beside a
runtime. `ratio` is its processor time by that of ONNX Runtime, fully optimized, on the same file: one thread each, in
turns. A reorder changes how a tensor is blocked for the next kernel; the Transposes are those that are left.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
import openvino
from counting import Array, session_of
from judge_optimized import Source, difference

ENOUGH = 400
"""Turns, of which there are fewer where time is over."""


def compiled_for(path: str, fed: dict[str, Array]) -> Any:
    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({put.any_name: list(fed[put.any_name].shape) for put in model.inputs})
    return core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"})


def moved(compiled: Any, kind: str) -> tuple[int, int]:
    """How many nodes of a kind run, and the bytes that they give."""
    ops = [op for op in compiled.get_runtime_model().get_ordered_ops() if op.get_rt_info()["layerType"].value == kind]
    return len(ops), sum(int(np.prod(op.output(0).shape)) * op.output(0).element_type.size for op in ops)


def judged(limit: float, path: str) -> dict[str, Any]:
    source = Source(path)
    compiled = compiled_for(path, source.fed)
    request, session = compiled.create_infer_request(), session_of(path)
    outputs = request.infer(source.fed)
    got = [np.asarray(outputs[name]) for name in source.names]
    error = difference(source.expected, got)
    taken: dict[str, list[float]] = {"openvino": [], "onnxruntime": []}
    runs = {"openvino": lambda: request.infer(source.fed), "onnxruntime": lambda: session.run(None, source.fed)}
    begun = time.perf_counter()
    while len(taken["openvino"]) < ENOUGH and (len(taken["openvino"]) < 5 or time.perf_counter() - begun < limit):
        for name, run in runs.items():
            start = time.process_time()
            run()
            taken[name].append(time.process_time() - start)
    ratios = [a / b for a, b in zip(taken["openvino"], taken["onnxruntime"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    count, size = moved(compiled, "Transpose")
    reorders, reordered = moved(compiled, "Reorder")
    return {
        "equal": error <= max(1e-4, 2 * source.spread),
        "error": error if np.isfinite(error) else None,
        "transposes": count,
        "bytes": size,
        "reorders": reorders,
        "reordered": reordered,
        "ratio": middle,
        "low": low,
        "high": high,
    }


if __name__ == "__main__":
    print(json.dumps(judged(float(sys.argv[1]), sys.argv[2])))
