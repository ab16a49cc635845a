"""Write ONNX models as .tflite files by onnx2tf, by both of its backends, in its number formats.

    python3.12 -m venv onnx2tf && onnx2tf/bin/pip install 'onnx2tf[tensorflow]==2.6.9'
    onnx2tf/bin/python bench/make_onnx2tf.py EXPORTS OUT [NAME ...]

EXPORTS has the models of `make_onnx.py`; a NAME is one of them without `.onnx`, by default all static ones of PyTorch's
older exporter, and those that have no other. The files are `NAME.WAY.FORMAT.tflite`, where WAY is one of

- `direct`: simplified by onnxsim, then onnx2tf writes the file itself;
- `converter`: the same by way of TensorFlow's converter;
- `raw`: `direct` of what the exporter gave, with all of its arithmetic on shapes.

FORMAT is `float32`, `float16`, `dynamic`, `int8` or `int16x8`, as far as LiteRT runs what a way makes. Calibration is
on random numbers, and seeds are fixed. What onnx2tf refuses is named, and left out; a file that is there is kept.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SEED = 5
SAMPLES = 4
TOKENS = 500
LIMIT_SECONDS = 300
WAYS = {
    "raw": ("flatbuffer_direct", ("float32",)),
    "direct": ("flatbuffer_direct", ("float32", "float16", "int8")),
    "converter": ("tf_converter", ("float32", "float16", "dynamic", "int8", "int16x8")),
}
"""Way -> onnx2tf's name of its backend, and formats."""
FILES = {
    "float32": "float32",
    "float16": "float16",
    "dynamic": "dynamic_range_quant",
    "int8": "full_integer_quant",
    "int16x8": "full_integer_quant_with_int16_act",
}
"""Format -> how onnx2tf names its file."""


def exported(source: Path, folder: Path, way: str, options: list[str]) -> str:
    """Run onnx2tf into `folder`; the last line that it says, should it fail.

    A process of its own, for it ends its process where it fails.
    """
    command = [sys.executable, "-m", "onnx2tf", "-i", str(source.absolute()), "-o", str(folder), "-n"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            [*command, "-tb", WAYS[way][0], *options],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT_SECONDS} s"
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    return lines[-1] if done.returncode and lines else ""


def calibration(model: Path, folder: Path) -> list[str]:
    """Options that give numbers for every input of a .tflite file."""
    from ai_edge_litert.interpreter import Interpreter

    rng, options = np.random.default_rng(SEED), []
    for place, details in enumerate(Interpreter(str(model)).get_input_details()):
        batch, *rest = details["shape"]
        shape, file = (SAMPLES * batch, *rest), folder / f"{place}.npy"
        floats = np.issubdtype(details["dtype"], np.floating)
        np.save(file, (rng.normal(size=shape) if floats else rng.integers(0, TOKENS, shape)).astype(np.float32))
        name = details["name"].removeprefix("serving_default_").removesuffix(":0")
        options += ["-cind", name, str(file), "[0.0]", "[1.0]"]
    return options


def simplified(source: Path, folder: Path) -> Path:
    """The model with its shapes computed; itself where onnxsim fails."""
    import onnx
    import onnxsim

    made = folder / source.name
    try:
        onnx.save(onnxsim.simplify(onnx.load(source))[0], made)
    except Exception as error:
        print(f"{source.name}: not simplified: {error}", file=sys.stderr, flush=True)
        return source
    return made


def converted(source: Path, out: Path, name: str, way: str) -> None:
    """All formats of one model, one way."""
    wanted = {kind: out / f"{name}.{way}.{kind}.tflite" for kind in WAYS[way][1]}
    if all(path.exists() for path in wanted.values()):
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        given = source if way == "raw" else simplified(source, folder)
        why = exported(given, folder, way, ["-odrqt"] if "dynamic" in wanted else [])
        whole = folder / f"{source.stem}_float32.tflite"
        if whole.exists() and "int8" in wanted:
            why = exported(given, folder, way, ["-oiqt", *calibration(whole, folder)]) or why
        for kind, path in wanted.items():
            made = folder / f"{source.stem}_{FILES[kind]}.tflite"
            if made.exists() and not path.exists():
                path.write_bytes(made.read_bytes())
            print(f"{path.name}{'' if path.exists() else f': {why[:160]}'}", file=sys.stderr, flush=True)


def chosen(exports: Path, names: list[str]) -> dict[str, Path]:
    """Name of the result -> source."""
    found = {path.name.removesuffix(".onnx"): path for path in sorted(exports.glob("*.onnx"))}
    if names:
        return {name: found[name] for name in names}
    found = {name: path for name, path in found.items() if not name.endswith((".dynamic", ".qdq"))}
    return {
        name.removesuffix(".script").removesuffix(".dynamo"): path
        for name, path in found.items()
        if not name.endswith(".dynamo") or name.replace(".dynamo", ".script") not in found
    }


def main() -> None:
    exports, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name, source in chosen(exports, sys.argv[3:]).items():
        for way in WAYS:
            converted(source, out, name, way)


if __name__ == "__main__":
    main()
