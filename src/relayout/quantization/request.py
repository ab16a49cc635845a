"""A user's request to quantize a `.tflite` result."""

import importlib.util
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from relayout.errors import LayoutError, RelayoutError

Quantize = Literal["int8", "int16x8", "dynamic", "float16"]
QUANTIZED: tuple[Quantize, ...] = ("int8", "int16x8", "dynamic", "float16")
"""Kinds of quantization: integers of 8 bits; activations of 16 and weights of 8; weights of 8; halves as weights."""
CALIBRATED = ("int8", "int16x8")  # kinds whose scales of activations are those of values that samples give
INSTALL = "pip install 'onnx-relayout[quantize]'"  # the command that installs the quantizer


class MissingQuantizerError(RelayoutError):
    """The package that quantizes is not installed."""


class QuantizationRequest(NamedTuple):
    """The options with which a result is quantized."""

    kind: Quantize  # which numbers become integers or halves
    samples: Any = None  # what the model is fed to see the range of each value: files, a folder, or an iterable
    keep_float: Sequence[str] = ()  # names of operators and values that stay float; `*` stands for any characters
    input_type: str | None = None  # element type of the inputs; None: as in the source
    output_type: str | None = None  # the same of outputs

    @property
    def is_calibrated(self) -> bool:
        """True if samples tell the scales of activations."""
        return self.kind in CALIBRATED


def request_of(
    kind: Quantize | None,
    samples: Any,
    keep_float: Sequence[str],
    *,
    format: str,  # noqa: A002 - the name that users expect
    parts: bool,
    input_type: str | None,
    output_type: str | None,
) -> QuantizationRequest | None:
    """Return the request of the options of `convert`; None where nothing is quantized.

    Raises:
        LayoutError: options that do not fit each other.
        MissingQuantizerError: the quantizer is not installed.
    """
    if kind is None:
        for option, value in (("--calibrate", samples is not None), ("--keep-float", bool(keep_float))):
            if value:
                raise LayoutError(f"{option} is for --quantize: give that, too, such as --quantize int8")
        return None
    if format != "tflite":
        raise LayoutError(
            f"--quantize {kind} is for a .tflite result, and this one is ONNX: write a .tflite"
            " (ONNX Runtime's quantize_static makes a quantized .onnx, which relayout converts, too)"
        )
    if parts:
        raise LayoutError(f"--quantize {kind} is for a whole result: leave --partition-dir out")
    if kind not in CALIBRATED and samples is not None:
        raise LayoutError(f"--quantize {kind} needs no samples: leave --calibrate out, or ask for --quantize int8")
    for option, dtype in (("--input-type", input_type), ("--output-type", output_type)):
        if kind == "int16x8" and dtype in ("int8", "uint8"):
            raise LayoutError(f"{option} {dtype}: the integers of --quantize int16x8 have 16 bits: leave it out")
    if importlib.util.find_spec("ai_edge_quantizer") is None:
        raise MissingQuantizerError(f"--quantize needs Google's ai-edge-quantizer: {INSTALL}")
    is_own = kind in CALIBRATED
    ends = [each if is_own and each != "int32" else None for each in (input_type, output_type)]
    return QuantizationRequest(kind, samples, tuple(keep_float), *ends)
