"""The sentence: read → infer → solve → rewrite → check. One short function a verb."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import onnx
import onnx_ir as ir

from relayout.errors import LayoutError, ReadError
from relayout.infer import build, plan, planfile
from relayout.infer import what_if as relax
from relayout.infer.planfile import Checked
from relayout.reports import Report, operators, report
from relayout.rewrite import apply

Io = Literal["keep", "convert"]
State = Literal["zero", "io"]
Quant = Literal["qdq", "float"]
TFLITE = "relayout.tflite"
"""Set in `ir.Model.meta` of a model that was imported literally: its tensors are NHWC and never say so."""


@dataclass(frozen=True)
class Result:
    """A model and the report of how it came to be.

    Args:
        model: the result.
        report: Transposes and bytes before, after and at least, layouts, reasons.
        plan: the choice and its certificate for `relayout check`, as JSON types.
        untouched: the source itself, where nothing was to be won: it is given back as it was.
    """

    model: ir.Model
    report: Report
    plan: dict[str, Any]
    untouched: Path | onnx.ModelProto | None = None

    @property
    def proto(self) -> onnx.ModelProto:
        """The result as ONNX's protobuf, with all weights in memory."""
        from relayout.formats.onnx import to_proto

        if self.untouched is not None and not isinstance(self.untouched, Path):
            copied = type(self.untouched)()
            copied.CopyFrom(self.untouched)
            return copied
        return to_proto(self.model)

    def save(self, path: str | Path, *, external_data: bool | None = None) -> None:
        """Check the model and write it: whole, or not at all.

        Args:
            path: where to; an existing file is replaced only when the new one is complete.
            external_data: weights in `<path>.data` beside it; default: only where the file would exceed 2 GB.

        Raises:
            WriteError: the model would not be valid, or the file cannot be written.
        """
        from relayout.formats.onnx import check, copy, write

        if isinstance(self.untouched, Path) and external_data is None:
            copy(self.untouched, path)
            return
        check(self.model)
        write(self.model, path, external_data=external_data)


def convert(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    io: Io = "keep",
    layouts: Mapping[str, tuple[str, str]] | None = None,
    dims: Mapping[str, int] | None = None,
    opset: int | None = None,
    quant: Quant = "qdq",
    signature: str | None = None,
    state: State = "zero",
    custom_ops: Mapping[str, str] | None = None,
    time_limit: float | None = None,
    what_if: bool = False,
) -> Result:
    """Convert a model to ONNX with the fewest transposed bytes.

    Args:
        source: a path to a `.tflite` or `.onnx` file, or an ONNX model in memory (which is not changed): protobuf,
            onnx-ir's, or what `torch.onnx.export(…, dynamo=True)` returns.
        io: `keep` leaves names, types, shapes and stored orders of inputs and outputs; `convert` stores each in the
            order that costs nothing, and says so in the report and in the model's metadata.
        layouts: tensor name -> (source layout, stored layout), such as `("NHWC", "NCHW")`: a pin on that tensor.
        dims: dynamic dimension -> extent to fix it to.
        opset: opset of a converted `.tflite`, from 18 on; by default 20, or 21 where 16- or 4-bit integers need it.
        quant: what becomes of a quantized `.tflite`: integers in Quantize-Dequantize units, or a float model.
        signature: which signature of a `.tflite` to convert; by default the first.
        state: what becomes of a `.tflite`'s variables: `zero` starts every run from their initial values, `io` makes
            each an input and an output.
        custom_ops: custom operator of a `.tflite` -> domain in which it is carried over as a node.
        time_limit: seconds for the solver; then the best plan is used and its gap reported.
        what_if: also find what each single constraint costs (`report.what_if`).

    Raises:
        ReadError: the file is not a model, or is damaged.
        UnsupportedError: operators that cannot be converted, all of them.
        LayoutError: a layout does not fit its tensor.
    """
    began = perf_counter()
    reading = {
        "opset": opset,
        "quant": quant,
        "signature": signature,
        "state": state,
        "custom_ops": dict(custom_ops or {}),
    }
    model = read(source, **reading)
    if dims:
        fix_dims(model, dims)
    read_in = perf_counter() - began
    options = {"io": io, "layouts": dict(layouts or {}), "dims": dict(dims or {}), "read": reading}
    own_format = isinstance(source, str | Path | onnx.ModelProto) and TFLITE not in model.meta
    asked = io == "convert" or layouts or dims
    if asked or not own_format or (isinstance(source, str | Path) and model.meta.get("relayout.external_data")):
        original = None
    else:
        original = Path(source) if isinstance(source, str | Path) else source
    return _relayout(model, options, time_limit, what_if, {"read": read_in}, original)


def optimize(
    source: str | Path | onnx.ModelProto | ir.Model,
    *,
    dims: Mapping[str, int] | None = None,
    time_limit: float | None = None,
    what_if: bool = False,
) -> Result:
    """The same model, interface and meaning kept, with the fewest transposed bytes.

    Raises:
        ReadError: the file is not a model, or is damaged.
    """
    return convert(source, io="keep", dims=dims, time_limit=time_limit, what_if=what_if)


def relayout_in_place(model: ir.Model) -> tuple[tuple[int, int], tuple[int, int]]:
    """Optimize an onnx-ir model in place: (Transposes, bytes) before and after.

    Where nothing is to be won the model is not touched.
    """
    from relayout.formats.onnx import lift_constants

    lift_constants(model)
    decided = plan(build(model))
    before, after = (decided.source_count, decided.source_size), (len(decided.crossings), decided.size)
    if before != after:
        apply(model, decided)
    return before, after


def explain(source: str | Path | onnx.ModelProto | ir.Model, **options: Any) -> Report:
    """What `convert` would do with a model, and why, without writing anything."""
    return convert(source, **options).report


def read(source: str | Path | onnx.ModelProto | ir.Model, **options: Any) -> ir.Model:
    """Read a model: a `.tflite` literally, NHWC and all; an `.onnx` as it is.

    Args:
        source: a path, or a model in memory.
        options: of `relayout.formats.tflite.read`, where the source is a `.tflite`.

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

            model = tflite.read(path, **options)
            model.meta[TFLITE] = True
            return model
    exported = getattr(source, "model", None)
    if isinstance(exported, ir.Model):  # what torch.onnx.export(…, dynamo=True) returns
        source = exported
    from relayout.formats.onnx import complete
    from relayout.formats.onnx import read as read_onnx

    model = read_onnx(source)
    complete(model)
    return model


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
            value.shape = ir.Shape([dims.get(symbol or "", dim) for dim, symbol in pairs])
    for name, extent in dims.items():
        if name not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise LayoutError(f"--dim {name}: the model has no dimension of that name (dynamic dimensions: {listed})")
        if extent < 1:
            raise LayoutError(f"--dim {name}={extent}: an extent is at least 1")


def check_plan(plan_file: str | Path, source: str | Path | onnx.ModelProto | ir.Model) -> Checked:
    """Check a plan file against the model that it was made for, without the solver.

    Raises:
        ReadError: either cannot be read, the plan is of another model, or its certificate is not valid.
    """
    try:
        data = json.loads(Path(plan_file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReadError(f"{plan_file} cannot be read as a plan ({error})") from error
    options = planfile.options_of(data)
    try:
        model = read(source, **options["read"])
        layouts = {str(name): (str(pair[0]), str(pair[1])) for name, pair in options["layouts"].items()}
        keep, dims = options["io"] == "keep", dict(options["dims"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ReadError(f"{plan_file} is not a whole plan ({error})") from error
    if dims:
        fix_dims(model, dims)
    return planfile.check(data, build(model, keep_interface=keep, layouts=layouts))


def _relayout(
    model: ir.Model,
    options: dict[str, Any],
    time_limit: float | None,
    what_if: bool,
    seconds: dict[str, float],
    original: Any = None,
) -> Result:
    with _collector_paused():
        began = perf_counter()
        sites = build(model, keep_interface=options["io"] == "keep", layouts=options["layouts"])
        decided = plan(sites, time_limit=time_limit)
        found = report(decided, image_axes=TFLITE in model.meta, relaxed=relax(decided) if what_if else [])
        written = planfile.to_json(decided, options)
        seconds["plan"] = perf_counter() - began
        if original is not None and (decided.size, len(decided.crossings)) == (
            decided.source_size,
            decided.source_count,
        ):
            found = replace(found, operators=operators(model), seconds=seconds)
            return Result(model, found, written, original)
        began = perf_counter()
        result = apply(model, decided)
        seconds["rewrite"] = perf_counter() - began
    changed = {end.name: end.layout for end in found.interface if "->" in end.layout}
    if changed:
        result.metadata_props["relayout.interface"] = json.dumps(changed)
    return Result(result, replace(found, operators=operators(result), seconds=seconds), written)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection: what is built here is all alive, and walking it again and again costs half of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
