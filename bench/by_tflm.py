"""Run TensorFlow Lite Micro on `.tflite` files, beside what is expected.

    tflm/bin/python bench/by_tflm.py MODEL.tflite ...

The environment is one of its own: `pip install tflite-micro`. Beside each model lies MODEL.npz with its inputs, `i0`,
`i1`, …, and the outputs that are expected, `o0`, `o1`, …. A line of JSON is {"model", "refused"} or {"model", "off"},
the greatest difference in steps of the integers. The interpreter may end its process: whoever reads goes on behind it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

ARENA = 256 << 20


def answer(path: Path) -> dict[str, Any]:
    from tflite_micro import runtime

    arrays = np.load(path.with_suffix(".npz"))
    try:
        interpreter = runtime.Interpreter.from_file(str(path), arena_size=ARENA)
        for place in range(sum(name.startswith("i") for name in arrays)):
            interpreter.set_input(arrays[f"i{place}"], place)
        interpreter.invoke()
        outputs = [arrays[name] for name in sorted(arrays) if name.startswith("o")]
        found = [interpreter.get_output(place) for place in range(len(outputs))]
    except Exception as error:  # whatever the interpreter raises
        return {"model": str(path), "refused": str(error)}
    off = [int(np.abs(a.astype(np.int64) - b.astype(np.int64)).max()) for a, b in zip(found, outputs, strict=True)]
    return {"model": str(path), "off": max(off)}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(answer(Path(name))), flush=True)
