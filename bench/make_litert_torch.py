"""Write PyTorch networks as .tflite files by litert-torch, each in the formats of LiteRT's quantizer.

    python -m venv litert && litert/bin/pip install torch litert-torch      (they bring ai-edge-quantizer, transformers)
    litert/bin/python bench/make_litert_torch.py OUT [NAME ...]

The networks are those of `make_onnx.py`. The files are `NETWORK.FORMAT.tflite`: `float32`; `dynamic`, `int8` and
`int16x8` of 8-bit weights; `dynamic4` of 4-bit weights with a scale for each row, `blocks4` for each 32 of a row. What
an exporter refuses is named, and left out; a file that is there is kept. Seeds are fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

SEED = 5
SAMPLES = 2
TOKENS = 500
RECIPES = {
    "dynamic": "dynamic_wi8_afp32",
    "int8": "static_wi8_ai8",
    "int16x8": "static_wi8_ai16",
    "dynamic4": "dynamic_wi4_afp32",
    "blocks4": "dynamic_wi4b32_afp32",
}
"""Format -> the quantizer's recipe."""


def exported(path: Path, make: Any) -> None:
    import litert_torch
    import torch

    torch.manual_seed(SEED)
    export = make()
    litert_torch.convert(export.module.eval(), export.inputs).export(str(path))


def quantized(source: Path, path: Path, recipe: str) -> None:
    from ai_edge_quantizer import quantizer
    from ai_edge_quantizer import recipe as recipes

    work = quantizer.Quantizer(str(source))
    work.load_quantization_recipe(getattr(recipes, recipe)())
    calibrated = work.calibrate(dict(samples(source))) if recipe.startswith("static") else None
    work.quantize(calibrated).export_model(str(path))


def samples(source: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Signature -> what to calibrate with."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter, rng = Interpreter(str(source)), np.random.default_rng(SEED)

    def one(details: Any) -> Any:
        if np.issubdtype(details["dtype"], np.floating):
            return rng.normal(size=details["shape"]).astype(details["dtype"])
        return rng.integers(0, TOKENS, details["shape"]).astype(details["dtype"])

    for name in interpreter.get_signature_list():
        inputs = interpreter.get_signature_runner(name).get_input_details()
        yield name, [{key: one(details) for key, details in inputs.items()} for _ in range(SAMPLES)]


def main() -> None:
    from make_onnx import architectures, say

    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, make in architectures().items():
        source = out / f"{name}.float32.tflite"
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        try:
            if not source.exists():
                exported(source, make)
        except Exception as error:
            say(name, source.name, error)
            continue
        for kind, recipe in RECIPES.items():
            path = out / f"{name}.{kind}.tflite"
            try:
                if not path.exists():
                    quantized(source, path, recipe)
            except Exception as error:
                say(name, path.name, error)
            else:
                say(name, path.name)


if __name__ == "__main__":
    main()
