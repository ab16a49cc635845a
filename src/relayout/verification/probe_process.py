"""Run a .tflite once, to see whether the process lives: `python probe_process.py MODEL FEEDS KERNELS PRESERVE PACKAGE`.

It is run as a file of its own, so that it starts fast; nothing imports it. FEEDS is a pickle of the index of each input
and its array; where there is no such file, the model is only prepared. The exit status is 0 if it was, or ran.
"""

from __future__ import annotations

import os
import pickle
import sys
from importlib import import_module
from typing import Any


def main(model: str, feeds: str, kernels: str, preserve: str, package: str) -> None:
    """Resize, feed, invoke."""
    runtime = import_module(f"{package}.interpreter")

    arrays: dict[int, Any] | None = None
    if os.path.exists(feeds):
        with open(feeds, "rb") as file:
            arrays = pickle.load(file)
    interpreter = runtime.Interpreter(
        model_path=model,
        experimental_op_resolver_type=getattr(runtime.OpResolverType, kernels),
        experimental_preserve_all_tensors=preserve == "preserve",
        num_threads=1,
    )
    known = {int(details["index"]): tuple(details["shape"]) for details in interpreter.get_input_details()}
    for index, array in (arrays or {}).items():
        if known[index] != array.shape:
            interpreter.resize_tensor_input(index, array.shape)
    interpreter.allocate_tensors()
    if arrays is None:
        return
    for index, array in arrays.items():
        interpreter.set_tensor(index, array)
    interpreter.invoke()


if __name__ == "__main__":
    main(*sys.argv[1:])
