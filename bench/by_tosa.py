"""Legalize `.tflite` files to TOSA, validate and run them there, beside what is expected.

    tosa/bin/python bench/by_tosa.py MODEL.tflite ...

The environment is one of its own: `pip install tosa-converter-for-tflite tosa-tools`. Beside each model lies MODEL.npz
with its inputs, `i0`, `i1`, …, and the outputs that are expected, `o0`, `o1`, …. A line of JSON has "model", and beside
it "refused", "untouched" where a result is an input as it is, or "off": of integers the greatest difference in steps,
of real numbers the greatest by the largest value.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from expected_values import RefusedError, arrays_beside, difference

PROGRAMS = Path(sys.executable).parent
REMAINING = re.compile(r'^\s*%[^=]* = "?(?!tosa\.)(\w+\.\w+)', re.MULTILINE)
"""An operator of another dialect in the text form."""
EXTENSIONS = "extensions=int16,doubleround"
PROFILES = {"i": "pro_int", "f": "pro_int,pro_fp"}
"""Kind of a model's numbers -> the profiles of TOSA that may run it: real numbers are for the second alone."""
LIMIT_S = 300


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, errors="replace")
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if re.search("error|fail", line, re.I)]
        raise RefusedError(lines[0][:300] if lines else f"{Path(command[0]).name}: exit {done.returncode}")
    return done.stdout


def program(name: str) -> str:
    return str(PROGRAMS / name)


def kind_of(arrays: Sequence[Any]) -> str:
    return "f" if any(array.dtype.kind == "f" for array in arrays) else "i"


def legalized(path: Path, kind: str, cwd: Path) -> None:
    """Write `model.tosa`.

    Raises:
        RefusedError: an operator stays as it is, or is in no profile.
    """
    run(program("tosa-converter-for-tflite"), str(path), "--text", "-o", "model.mlir", cwd=cwd)
    remaining = REMAINING.findall((cwd / "model.mlir").read_text(errors="replace"))
    if remaining:
        raise RefusedError(f"not legalized: {' '.join(dict.fromkeys(remaining))}")
    passes = [
        f"tosa-attach-target{{profiles={PROFILES[kind]} {EXTENSIONS}}}",
        "tosa-validate{strict-op-spec-alignment}",
        "tosa-serialize{tosa-flatbuffer-filename=model.tosa}",
    ]
    pipeline = f"--pass-pipeline=builtin.module({','.join(passes)})"
    run(program("tosa-opt"), "model.mlir", "--allow-unregistered-dialect", "-o", "/dev/null", pipeline, cwd=cwd)


def values(inputs: Sequence[Any], count: int, cwd: Path) -> list[Any]:
    """Return the values that the reference model computes; it writes none that are an input as it is."""
    for place, array in enumerate(inputs):
        np.save(cwd / f"i{place}.npy", array)
    sides = [("ifm", "TosaInput", "i", len(inputs)), ("ofm", "TosaOutput", "o", count)]
    command = [
        program("tosa_reference_model"),
        "--tosa_file",
        "model.tosa",
        "--output_dir",
        ".",
        "--flatbuffer_dir",
        ".",
    ]
    for side, name, letter, number in sides:
        command += [f"--{side}_name", ",".join(f"{name}_{place}" for place in range(number))]
        command += [f"--{side}_file", ",".join(f"{letter}{place}.npy" for place in range(number))]
    run(*command, cwd=cwd)
    files = [cwd / f"o{place}.npy" for place in range(count)]
    return [np.load(file) for file in files if file.exists()]


def answer(path: Path) -> dict[str, Any]:
    inputs, outputs = arrays_beside(path)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        try:
            legalized(path, kind_of([*inputs, *outputs]), directory)
            found = values(inputs, len(outputs), directory)
            if len(found) < len(outputs):
                return {"model": str(path), "untouched": True}
            off = max(difference(a, b) for a, b in zip(outputs, found, strict=True))
        except (RefusedError, subprocess.TimeoutExpired) as error:
            return {"model": str(path), "refused": str(error)}
    return {"model": str(path), "off": off}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(json.dumps(answer(Path(name).absolute())), flush=True)
