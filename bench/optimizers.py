"""Run one optimizer on one file; print the processor time that it took, imports left out, as JSON.

python bench/optimizers.py TOOL IN.onnx OUT.onnx
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

Run = Callable[[], dict[str, Any] | None]


def relayout(source: str, target: str) -> Run:
    return optimized(None, source, target)


def relayout_target(source: str, target: str) -> Run:
    """For ONNX Runtime's CPU provider: what its kernels cost counts, too, and the result runs there alone."""
    return optimized("onnxruntime-cpu", source, target)


def optimized(runtime: str | None, source: str, target: str) -> Run:
    import relayout
    import relayout.formats.onnx
    import relayout.pipeline

    def run() -> dict[str, Any]:
        result = relayout.optimize(source, target=runtime)
        result.save(target)
        report = result.report
        kept = ("proved", "bytes", "lower_bound", "transposes", "source_bytes", "source_transposes", "notes", "seconds")
        return {name: getattr(report, name) for name in kept} | {"barriers": report.barriers}

    return run


def onnxruntime(source: str, target: str) -> Run:
    return saved_by_onnxruntime("ORT_ENABLE_BASIC", source, target)


def onnxruntime_full(source: str, target: str) -> Run:
    """With the fusions and layouts of this machine's processor: the result is for ONNX Runtime here."""
    return saved_by_onnxruntime("ORT_ENABLE_ALL", source, target)


def saved_by_onnxruntime(level: str, source: str, target: str) -> Run:
    import onnxruntime

    def run() -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        options.optimized_model_filepath = target
        options.log_severity_level = 4
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return run


def onnxslim(source: str, target: str) -> Run:
    import onnxslim

    def run() -> None:
        onnxslim.slim(source, target)

    return run


def onnxsim(source: str, target: str) -> Run:
    import onnx
    import onnxsim

    def run() -> None:
        onnx.save(onnxsim.simplify(onnx.load(source))[0], target)

    return run


def onnxscript(source: str, target: str) -> Run:
    import onnx_ir
    import onnxscript.optimizer

    def run() -> None:
        model = onnx_ir.load(source)
        onnxscript.optimizer.optimize_ir(model)
        onnx_ir.save(model, target)

    return run


def onnx_ir(source: str, target: str) -> Run:
    """Nothing but reading and writing: what any tool on the same representation takes."""
    import onnx_ir

    return lambda: onnx_ir.save(onnx_ir.load(source), target)


TOOLS = {
    made.__name__: made
    for made in (relayout, relayout_target, onnxruntime, onnxruntime_full, onnxslim, onnxsim, onnxscript, onnx_ir)
}


def main() -> None:
    tool, source, target = sys.argv[1:4]
    with contextlib.redirect_stdout(io.StringIO()):
        run = TOOLS[tool](source, target)
        begun = time.process_time()
        found = run()
        seconds = time.process_time() - begun
    print(json.dumps({"seconds": seconds, "report": found}))


if __name__ == "__main__":
    main()
