"""Knowledge of a runtime lives in its target's folder: rooms below name none, but to explain a documented limit."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from relayout.formats import tflite
from relayout.formats.tflite.importing.program import Choices

SOURCE = Path(__file__).parents[1] / "src" / "relayout"
ROOMS = ("apply", "formats", "graph", "infer", "layout", "partition", "rules", "solve")
RUNTIME = re.compile(
    r"ONNX\s+Runtime|onnxruntime|\bORT\b(?!-format)|TensorRT|XNNPACK|\bMLAS\b|OpenVINO|\bQNN\b|NNAPI|Core\s?ML|rknn|\bVNNI\b|\bx64\b|\bx86\b",
    re.IGNORECASE,
)
TIME = re.compile(r"\bfast(er|est)?\b|\bslow(er|est)?\b|times as long|takes?[\w\s]* (time|longer)\b|\bns\b|\bµs\b")
"""How a runtime's speed is spoken of."""

IMPORT = "formats/tflite/importing"
OPERATORS = f"{IMPORT}/operators"
DOCUMENTED = {
    "formats/onnx/internal_nhwc.py": "a domain of its own, with whose operators it loads no file",
    "formats/onnx/reading.py": "the module that reads its format",
    "formats/onnx/tensors.py": "the shortest element types of places, which it writes",
    "formats/ort/__init__.py": "the format is its own",
    "formats/ort/loading.py": "the format is its own",
    "formats/onnx/first_opsets.py": "operators of opset 1 to 6, for which it has no kernels",
    "formats/tflite/exporting/tidying.py": "a product of a transposed tensor with itself",
    "formats/tflite/exporting/operators/resizing.py": "places and ties in single precision",
    "formats/tflite/exporting/operators/recurrent.py": "the copy that a RESHAPE of an input is",
    "formats/tflite/exporting/resize_factors.py": "a copy where all extents stay",
    "graph/domains.py": "a domain of its own",
    "rules/internal_nhwc.py": "a domain of its own",
    "formats/onnx/parts.py": "a call of a function must have all outputs, for ONNX's inference, too",
    "formats/recognition.py": "names of formats that are refused",
    f"{IMPORT}/operation.py": "integers that its Pad, MaxPool and Resize have no kernel for",
    f"{IMPORT}/tensors.py": "element types that it cannot store",
    f"{IMPORT}/window.py": "`auto_pad` that it does not know with dilations, or reckons below 0",
    f"{OPERATORS}/elementwise.py": "a Where that forgets the sign of 0, a ReduceSum that keeps 53 bits",
    f"{OPERATORS}/resize.py": "no Where of booleans, an attribute that its optimizer forgets, a Sign of 32 bits",
    f"{OPERATORS}/gathering.py": "no Where of booleans, no Gather of fewer than 8 bits, and a Hash of few types",
    f"{OPERATORS}/reduction.py": "a kernel on integers that does not saturate",
    f"{OPERATORS}/pooling.py": "a PAD that it takes for a pool's border, with other elements or too wide",
    f"{OPERATORS}/shape.py": "draws that overflow",
    f"{OPERATORS}/recurrent.py": "an Unsqueeze behind a DequantizeLinear that it mishandles",
    f"{OPERATORS}/tensorflow.py": "missing kernels, of which a refusal speaks",
    f"{OPERATORS}/tensorflow_images.py": "missing kernels",
    f"{OPERATORS}/convolution.py": "an output padding that it refuses, data of 16 bits of which it takes 8 in a MatMul",
}
"""Modules that name a runtime -> the limit of it that they explain."""


def modules() -> list[str]:
    paths = (path for room in ROOMS for path in (SOURCE / room).rglob("*.py"))
    return sorted(path.relative_to(SOURCE).as_posix() for path in paths)


def faults(path: str, text: str) -> list[str]:
    """List the faults of a module: lines that name a runtime, or that say of one how long it takes."""
    if path not in DOCUMENTED:
        return [
            f"line {text.count(chr(10), 0, found.start()) + 1}: {found.group()}" for found in RUNTIME.finditer(text)
        ]
    around = [text[max(0, found.start() - 200) : found.end() + 200] for found in RUNTIME.finditer(text)]
    return [f"speaks of time: {found.group()}" for part in around if (found := TIME.search(part))]


@pytest.mark.parametrize("path", modules())
def test_no_runtime_is_named_but_for_a_limit(path: str) -> None:
    hint = "what one runtime does is its target's to know; a limit that is documented has a line in DOCUMENTED"
    assert faults(path, (SOURCE / path).read_text(encoding="utf-8")) == [], hint


def test_what_is_allowed_is_needed() -> None:
    assert [path for path in DOCUMENTED if not RUNTIME.search((SOURCE / path).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rules/products.py", "# ONNX Runtime's MatMul wants it so"),
        ("infer/build.py", "# which ONNX\nRuntime has"),
        ("infer/build.py", '"""On x64 integers are multiplied."""'),
        ("apply/apply.py", "import onnxruntime"),
        ("formats/onnx/writing.py", "# as TensorRT does"),
        (f"{OPERATORS}/transposed.py", "# ONNX Runtime takes twice the time for it"),
        (f"{OPERATORS}/pooling.py", "# ONNX Runtime has a faster\n# kernel"),
    ],
)
def test_planted_fault_is_found(path: str, text: str) -> None:
    assert faults(path, text)


def test_the_importer_takes_no_options_of_a_target() -> None:
    asked = {*inspect.signature(tflite.read).parameters, *Choices._fields}
    assert not {"fast", "widen", "saturates", "target"} & asked
