"""The sentence: read → infer → solve → rewrite → check. One short function a verb."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import onnx_ir as ir

from relayout.errors import LayoutError, ReadError
from relayout.reports import Report, operators, report
from relayout.infer import build, plan
from relayout.rewrite import apply

if TYPE_CHECKING:
    import onnx

Source = "str | Path | onnx.ModelProto | ir.Model"
Io = Literal["keep", "convert"]
OPSET = 21
"""The default opset of a converted .tflite: what current runtimes run, with 16- and 4-bit QuantizeLinear."""


@dataclass(frozen=True)
class Result:
    """A model and the report of how it came to be.

    Args:
        model: the result.
        report: Transposes and bytes before, after and at least, layouts, reasons.
    """

    model: ir.Model
    report: Report

    @property
    def proto(self) -> onnx.ModelProto:
        """The result as ONNX's protobuf, with all weights in memory."""
        from relayout.formats.onnx import to_proto

        return to_proto(self.model)

    def save(self, path: str | Path, *, external_data: bool | None = None) -> None:
        """Check the model and write it: whole, or not at all.

        Args:
            path: where to; an existing file is replaced only when the new one is complete.
            external_data: weights in `<path>.data` beside it; default: only where the file would exceed 2 GB.

        Raises:
            WriteError: the model would not be valid, or the file cannot be written.
        """
        from relayout.formats.onnx import check, write

        check(self.model)
        write(self.model, path, external_data=external_data)


def convert(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    io: Io = "keep",
    layouts: Mapping[str, tuple[str, str]] | None = None,
    dims: Mapping[str, int] | None = None,
    opset: int = OPSET,
    dequantize: bool = False,
    time_limit: float | None = None,
) -> Result:
    """Convert a model to ONNX with the fewest transposed bytes.

    Args:
        source: a path to a `.tflite` or `.onnx` file, or an ONNX model in memory (which is not changed).
        io: `keep` leaves names, types, shapes and stored orders of inputs and outputs; `convert` stores each in the
            order that costs nothing, and says so in the report and in the model's metadata.
        layouts: tensor name -> (source layout, stored layout), such as `("NHWC", "NCHW")`: a pin on that tensor.
        dims: dynamic dimension -> extent to fix it to.
        opset: opset of a converted `.tflite`.
        dequantize: make a quantized `.tflite` a float model.
        time_limit: seconds for the solver; then the best plan is used and its gap reported.

    Raises:
        ReadError: the file is not a model, or is damaged.
        UnsupportedError: operators that cannot be converted, all of them.
        LayoutError: a layout does not fit its tensor.
    """
    began = perf_counter()
    model = read(source, opset=opset, dequantize=dequantize)
    if dims:
        fix_dims(model, dims)
    read_in = perf_counter() - began
    return _relayout(model, keep=io == "keep", layouts=layouts, time_limit=time_limit, seconds={"read": read_in})


def optimize(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    time_limit: float | None = None,
) -> Result:
    """The same model, interface and meaning kept, with the fewest transposed bytes.

    Raises:
        ReadError: the file is not a model, or is damaged.
    """
    return convert(source, io="keep", dims=dims, time_limit=time_limit)


def explain(source: str | Path | onnx.ModelProto | ir.Model, **options: Any) -> Report:
    """What `convert` would do with a model, and why, without writing anything."""
    return convert(source, **options).report


def read(source: str | Path | onnx.ModelProto | ir.Model, *, opset: int = OPSET, dequantize: bool = False) -> ir.Model:
    """Read a model: a `.tflite` literally, NHWC and all; an `.onnx` as it is.

    Raises:
        ReadError: not a model, or damaged.
        UnsupportedError: operators that cannot be converted.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise ReadError(f"{path} is not a file" if path.exists() else f"{path} does not exist")
        with path.open("rb") as file:
            head = file.read(8)
        if head[4:8] == b"TFL3" or path.suffix == ".tflite":
            from relayout.formats import tflite

            return tflite.read(path, opset=opset, dequantize=dequantize)
    from relayout.formats.onnx import read as read_onnx

    return read_onnx(source)


def fix_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Fix dynamic dimensions, in place.

    Raises:
        LayoutError: no such dimension, or an extent below 1.
    """
    values = [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]
    known: set[str] = set()
    for value in values:
        if value.shape is None:
            continue
        symbols = [dim.value if isinstance(dim, ir.SymbolicDim) else None for dim in value.shape]
        known.update(symbol for symbol in symbols if symbol is not None)
        if any(symbol in dims for symbol in symbols):
            pairs = zip(value.shape, symbols, strict=True)
            value.shape = ir.Shape([dims[symbol] if symbol in dims else dim for dim, symbol in pairs])
    for name, extent in dims.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise LayoutError(f"--dim {name}: the model has no dimension of that name (dynamic dimensions: {listed})")
        if extent < 1:
            raise LayoutError(f"--dim {name}={extent}: an extent is at least 1")


def _relayout(
    model: ir.Model,
    *,
    keep: bool,
    layouts: Mapping[str, tuple[str, str]] | None,
    time_limit: float | None,
    seconds: dict[str, float],
) -> Result:
    began = perf_counter()
    decided = plan(build(model, keep_interface=keep, layouts=layouts), time_limit=time_limit)
    found = report(decided, image_axes=model.metadata_props.get("relayout.source_format") == "tflite")
    seconds["plan"] = perf_counter() - began
    began = perf_counter()
    result = apply(model, decided)
    seconds["rewrite"] = perf_counter() - began
    return Result(result, replace(found, operators=operators(result), seconds=seconds))
