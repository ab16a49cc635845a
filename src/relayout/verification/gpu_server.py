"""Ask LiteRT's GPU accelerator about `.tflite` files for another process, by `isolation/frames.py`.

The accelerator may end its process over a file, or never return.
"""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from time import perf_counter
from typing import Any


def answer(*question: Any) -> dict[str, Any]:
    """Return what is known of a file then; the arguments are those of `_ask` behind the first."""
    facts: dict[str, Any] = {}
    with tempfile.TemporaryFile() as log:
        for stream in (1, 2):  # the accelerator states its reasons there
            os.dup2(log.fileno(), stream)
        try:
            _ask(facts, *question)
        except Exception as error:  # of any kind: it is another's code
            facts["error"] = f"{type(error).__name__}: {error}"
        log.seek(0)
        facts["log"] = log.read().decode(errors="replace")
    return facts


def _ask(
    # what is known, which grows: `whole`, `seconds` of the accelerator's run, `differences` by output
    facts: dict[str, Any],
    file: str,  # the `.tflite` file
    feeds: str = "",  # an `.npz` file of inputs by name; "": random numbers
    results: str = "",  # an `.npz` file that gets the accelerator's outputs by name; "": none
    half: bool = False,  # whether the accelerator may compute in float16
) -> None:
    """Compile a file for the accelerator, run it, and run it on the CPU."""
    np: Any = import_module("numpy")
    compiled, options = (import_module(f"ai_edge_litert.{name}") for name in ("compiled_model", "options"))
    accelerator = import_module("ai_edge_litert.hardware_accelerator").HardwareAccelerator.GPU
    gpu = options.GpuOptions(enforce_f32=not half)
    arrays_by_name = dict(np.load(feeds)) if feeds else {}
    inputs, expected = _on_cpu(np, file, arrays_by_name)
    model = compiled.CompiledModel.from_file(
        file, options=options.Options(hardware_accelerators=accelerator, gpu_options=gpu)
    )
    facts["whole"] = bool(model.is_fully_accelerated())
    if not facts["whole"]:
        return
    read, written = model.create_input_buffers(0), model.create_output_buffers(0)
    for buffer, array in zip(read, inputs, strict=True):
        buffer.write(np.ascontiguousarray(array).reshape(-1))
    began = perf_counter()
    model.run_by_index(0, read, written)
    outputs = {
        name: buffer.read(int(array.size), array.dtype.type).reshape(array.shape)
        for buffer, (name, array) in zip(written, expected.items(), strict=True)
    }
    facts["seconds"] = perf_counter() - began
    facts["differences"] = {name: _difference(np, array, outputs[name]) for name, array in expected.items()}
    if results:
        np.savez(results, **outputs)


def _on_cpu(np: Any, file: str, arrays_by_name: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the inputs of a file in its order, and the outputs of LiteRT's CPU kernels."""
    interpreter = import_module("ai_edge_litert.interpreter").Interpreter(model_path=file, num_threads=1)
    interpreter.allocate_tensors()
    rng, inputs = np.random.default_rng(0), []
    for detail in interpreter.get_input_details():
        array = arrays_by_name.get(detail["name"])
        if array is None:
            is_real = np.issubdtype(detail["dtype"], np.floating)
            shape = detail["shape"]
            numbers = rng.standard_normal(shape) if is_real else rng.integers(0, 2, shape)
            array = numbers.astype(detail["dtype"])
        interpreter.set_tensor(detail["index"], array)
        inputs.append(array)
    interpreter.invoke()
    return inputs, {each["name"]: interpreter.get_tensor(each["index"]) for each in interpreter.get_output_details()}


def _difference(np: Any, expected: Any, actual: Any) -> float | None:
    """Return the largest difference relative to the largest number; None where a number is lost."""
    expected, actual = (np.asarray(each).astype("f8") for each in (expected, actual))
    if not np.array_equal(np.isfinite(expected), np.isfinite(actual)):
        return None
    finite = np.isfinite(expected)
    distance = np.abs(expected - actual)[finite].max(initial=0)
    return float(distance / (np.abs(expected[finite]).max(initial=0) + 1e-6))
