"""Run ONNX models in OpenVINO, on the CPU, beside what is expected.

    openvino/bin/python bench/by_openvino_nodes.py MODEL.onnx ...

The environment is one of its own: `pip install openvino`. Beside each model lies MODEL.npz with its inputs, `i0`, `i1`,
…, their `names`, and the outputs that are expected, `o0`, `o1`, …. A line of JSON is {"model", "refused"} or {"model",
"off"}: of integers the greatest difference in steps, of real numbers the greatest by the largest value.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import openvino
from expected_values import arrays_beside, difference, names_beside

PRECISE = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}


def answer(core: Any, path: Path) -> dict[str, Any]:
    inputs, outputs = arrays_beside(path)
    try:
        model = core.read_model(path)
        arrays = dict(zip(names_beside(path), inputs, strict=True))
        # An input that no operator reads is left out, and one that is a result has a name more.
        feed = [next(arrays[name] for name in value.names if name in arrays) for value in model.inputs]
        found = core.compile_model(model, "CPU", PRECISE)(feed)
        return {"model": str(path), "off": max(difference(b, found[at]) for at, b in enumerate(outputs))}
    except Exception as error:  # whatever the runtime raises
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"model": str(path), "refused": " ".join(lines[-2:])[:300] or type(error).__name__}


if __name__ == "__main__":
    shared = openvino.Core()
    for name in sys.argv[1:]:
        print(json.dumps(answer(shared, Path(name).absolute())), flush=True)
