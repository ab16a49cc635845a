"""The sentence: read → infer → solve → rewrite → check. One short function a verb."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import onnx
import onnx_ir as ir

from relayout import arguments
from relayout.apply.apply import UNSAID, apply
from relayout.apply.duplicate_dequantize import apart, together
from relayout.apply.layout_functions import inline_functions
from relayout.apply.renaming import rename as rename_values
from relayout.arguments import Kind, check, checked, one_of
from relayout.errors import LayoutError, ReadError, RelayoutError, in_file
from relayout.formats.recognition import is_tflite
from relayout.formats.stored import open_stored
from relayout.graph.source_names import forget
from relayout.infer import Sites, build, no_more_at_run_time, plan, within_source
from relayout.infer import plan_file as planfile
from relayout.infer import what_if as relax
from relayout.infer.plan_file import Checked
from relayout.layout import Dim
from relayout.layout.stored_as import CUT, FIXED, INTERFACE
from relayout.partition.regions import as_functions
from relayout.pipeline.dimensions import OPENED, PLACES, Asked, open_dimensions
from relayout.pipeline.interface import IMAGE_LAYOUTS, image_pins
from relayout.pipeline.lowering_list import as_kernels, as_transposes, in_blocks, in_full
from relayout.pipeline.names import SourceNames, layout_doubts
from relayout.pipeline.result import Result, target_of
from relayout.pipeline.tflite_result import (
    LITERT,
    refuse_onnx_options,
    refuse_unknown_custom_ops,
    remedy_for,
    tflite_model,
    tflite_report,
)
from relayout.progress import say
from relayout.reports import (
    Axes,
    Naming,
    Report,
    at_any_extent,
    constants,
    grown,
    left_out,
    no_worse,
    operators,
    report,
    scattered,
    unsaid,
    unstated,
)
from relayout.reports.drawing import Drawing
from relayout.rules import is_known, outputs_of
from relayout.targets import LayoutFor, Target, Wishes, hint, note, refuse_others

if TYPE_CHECKING:
    from relayout.reports.differing import Diff, Looked
    from relayout.reports.inspection import Inspection

Source = str | Path | bytes | onnx.ModelProto | ir.Model
"""A path, the bytes of a `.tflite`, or an ONNX model in memory."""
Regions = Literal["flat", "functions"]
Io = Literal["keep", "convert", "NCHW", "NHWC"]
State = Literal["zero", "io"]
Quant = Literal["qdq", "float"]
Format = Literal["onnx", "tflite"]
WISHES = arguments.mapping("{'Conv': ['NHWC', 'OHWI']}", lambda value: True)  # `targets.wishes` checks the layouts
OPTIONS = {
    "format": one_of("onnx", "tflite"),
    "io": one_of("keep", "convert", *IMAGE_LAYOUTS),
    "layouts": arguments.LAYOUTS,
    "dims": arguments.EXTENTS,
    "batch": arguments.EXTENT,
    "quant": one_of("qdq", "float"),
    "opset": arguments.whole(*arguments.OPSETS),
    "signature": arguments.TEXT,
    "state": one_of("zero", "io"),
    "custom_ops": arguments.NAMED,
    "parts": arguments.FLAG,
    "to": arguments.TEXT,
    "target": Kind("a target's name, or a Target", lambda value: isinstance(value, str | Target)),
    "desired_layouts": WISHES,
    "node_layouts": WISHES,
    "layout_for": arguments.FUNCTION,
    "regions": one_of("flat", "functions"),
    "inputs": arguments.NAMES,
    "outputs": arguments.NAMES,
    "rename": arguments.NAMED,
    "per_transpose": arguments.BYTES,
    "exchange": arguments.FLAG,
    "time_limit": arguments.SECONDS,
    "inline": arguments.FLAG,
    "what_if": arguments.FLAG,
    "annotate": arguments.FLAG,
}
"""What the options of `convert` take."""
PLANNED = dict.fromkeys(("per_transpose", "per_scattered"), arguments.whole(0))
"""What a plan's prices may be: those that were found have no limit."""
PRICES: dict[str, Any] = {"per_transpose": 0, "per_scattered": 0, "exchange": False}
"""Options that a plan may lack -> what they are then."""
OF_TFLITE: dict[str, Any] = {"opset": None, "quant": "qdq", "signature": None, "state": "zero", "custom_ops": {}}
"""Options that only a `.tflite` has -> what they are where they are not given."""
RETIRED = ("fast", "widen", "saturates")
"""Options of reading in plans of earlier releases, which the target decides now."""
CUSTOM = "tflite.custom"
"""The domain of custom operators between two `.tflite` files, where nobody says another."""
TFLITE = "relayout.tflite"
"""Set in `ir.Model.meta` of a model that was imported literally: its tensors are NHWC and never say so."""


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


@checked(**OPTIONS)
@_collector_paused()
def convert(
    source: Source,
    *,
    format: Format = "onnx",  # noqa: A002 - the name that users expect
    io: Io = "keep",
    layouts: Mapping[str, tuple[str, str]] | None = None,
    dims: Mapping[str, Dim] | None = None,
    batch: Dim | None = None,
    opset: int | None = None,
    quant: Quant = "qdq",
    signature: str | None = None,
    state: State = "zero",
    custom_ops: Mapping[str, str] | None = None,
    parts: bool = False,
    to: str | None = None,
    target: str | Target | None = None,
    desired_layouts: Mapping[str, Sequence[str] | str] | None = None,
    node_layouts: Mapping[str, Sequence[str] | str] | None = None,
    layout_for: LayoutFor | None = None,
    inline: bool = False,
    regions: Regions = "flat",
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    per_transpose: int | None = None,
    exchange: bool = False,
    time_limit: float | None = None,
    what_if: bool = False,
    annotate: bool = False,
) -> Result:
    """Convert a model to ONNX or TensorFlow Lite, or its operators to other layouts, with the fewest transposed bytes.

    Args:
        source: a path to a `.tflite` or `.onnx` file, or into a bundle of models; the bytes of a `.tflite`, or an ONNX
            model in memory, which is not changed: protobuf, onnx-ir's, or what `torch.onnx.export(…, dynamo=True)`
            returns.
        format: of the result. For `tflite` the target is `litert`, unless another one is given.
        io: `keep` leaves names, types, shapes and stored orders of inputs and outputs; `convert` stores each in the
            order that costs nothing, and says so in the report and in the model's metadata; `NCHW` or `NHWC` stores
            each image-like one so, and leaves the others.
        layouts: tensor name -> (source layout, stored layout), such as `("NHWC", "NCHW")`: a pin on that tensor.
        dims: dynamic dimension -> extent to fix it to, or the name of a dimension of the same extent, which it takes.
            `"image:0"`, an axis of an input, opens a fixed dimension: it gets the name, or the number, everywhere.
        batch: the name or number that the first axis of all inputs gets, fixed or not.
        opset: opset of a converted `.tflite`, from 18 on; by default the least that the model needs.
        quant: what becomes of a quantized `.tflite`: integers in Quantize-Dequantize units, or a float model.
        signature: which signature of a `.tflite` to convert; by default the first.
        state: what becomes of a `.tflite`'s variables: `zero` starts every run from their initial values, `io` makes
            each an input and an output.
        custom_ops: custom operator -> its domain. One of a `.tflite` source is carried over as a node of that domain;
            in a `.tflite` result a node of that name and domain, of any domain for `""`, becomes a custom operator.
        parts: of a `.tflite` result: it is not one file but parts (`Result.save_parts`), and operators that cannot be
            written are left to the host.
        to: the layout of all layout-sensitive operators: `NHWC`, `NCHW`, `NCHW16c`; other ranks follow.
        target: a backend (`relayout targets`): what it claims runs in layouts that it has.
        desired_layouts: operator -> layout of its images, or of images and kernel: `{"Conv": ["NHWC", "OHWI"]}`;
            `default` lets the target choose.
        node_layouts: the same by a node's name, or that of its first output.
        layout_for: the same by a function of the node, which answers None for no wish.
        regions: `functions` makes each part that the target runs a call of a model-local function in the domain
            `regions.NAME`; `flat` leaves one graph. `Result.save_parts` writes a file for each part.
        inline: write operators in other layouts as standard operators between Transposes, not as functions.
        inputs: only the part of the graph that these values begin: inputs of the source or interior values, by name.
            An input that the part needs besides stays an input, after these.
        outputs: only the part of the graph that ends in these values; by default all outputs.
        rename: name of the source -> name in the result, for inputs, outputs and interior values. All other options
            speak of the source's names, or of these.
        per_transpose: bytes that each Transpose costs besides those that it moves: with more than any tensor has, there
            are as few Transposes as can be, and then as few bytes. By default it is the target's, or 0; but of an ONNX
            model of which no other layouts are asked there are no more Transposes than before, and no more that copy
            single elements, though they may move fewer bytes (a note says how many).
        exchange: let a MatMul or Gemm run with its operands exchanged (`yᵀ = cᵀ aᵀ`), where that saves bytes. ONNX
            Runtime's CPU may take longer then.
        time_limit: seconds for the solver; then the best plan is used and its gap reported (default: five minutes,
            and more for large graphs).
        what_if: also find what each single constraint costs (`report.what_if`).
        annotate: put every value's layout into its metadata (`relayout.layout`), where viewers show it.

    Raises:
        ReadError: the file is not a model, or is damaged.
        UnsupportedError: operators that cannot be converted, all of them.
        LayoutError: a layout does not fit its tensor, or a target is not known.
        NamesError: `inputs`, `outputs` or `rename` name what is not there or cannot be so.
    """
    began = perf_counter()
    names = SourceNames(rename)
    layouts, dims, node_layouts = names.keys(layouts), names.places(dims), names.keys(node_layouts) or None
    inputs, outputs = names.listed(inputs), names.listed(outputs)
    if format == "tflite":
        refuse_onnx_options({"--opset": opset, "--inline": inline, "--regions": regions == "functions"})
        target = LITERT if target is None else target
    wishes = Wishes.of(to, target, desired_layouts, node_layouts, layout_for)
    if regions == "functions" and wishes.target is None:
        raise LayoutError("--regions functions parts what a target runs from the rest: give a target, too")
    reading: dict[str, Any] = {
        "opset": None if opset is None else int(opset),
        "quant": quant,
        "signature": signature,
        "state": state,
        "custom_ops": _read_custom_ops(source, custom_ops or {}, format),
        "inputs": inputs,
        "outputs": outputs,
    }
    say("reading")
    model = read(source, dims=dims, batch=batch, wishes=wishes, **reading)
    dims = {**(dims or {}), **model.meta.get(PLACES, {})}
    opened = model.meta.get(OPENED, ())
    if format == "tflite":
        refuse_unknown_custom_ops(model, () if _is_tflite(source) else (custom_ops or {}))
        _prepare(model)
    wishes.against(model.graph)
    refuse_others(model, wishes.target.blocks if wishes.target else None)
    fused = as_kernels(model, wishes.target)
    read_in = perf_counter() - began
    each = per_transpose if per_transpose is not None else wishes.target.per_transpose if wishes.target else 0
    options = {
        "io": io,
        "layouts": layouts,
        "dims": {name: extent if isinstance(extent, str) else int(extent) for name, extent in dims.items()},
        "per_transpose": int(each),
        "per_scattered": wishes.target.per_scattered if wishes.target else 0,
        "exchange": bool(exchange),
        "read": reading,
    }
    from relayout.formats.onnx import CONTRADICTED, EXTERNAL_DATA

    own_format = isinstance(source, str | Path | onnx.ModelProto) and TFLITE not in model.meta
    other = io != "keep" or layouts or wishes or format == "tflite"
    asked = other or dims or inputs or outputs or rename or annotate
    within = not other and per_transpose is None and TFLITE not in model.meta
    path = Path(source) if isinstance(source, str | Path) else None
    unlike = model.meta.get(CONTRADICTED) or (path and model.meta.get(EXTERNAL_DATA))
    original = None if asked or unlike or not own_format else path or source
    result = _relayout(model, options, wishes, time_limit, what_if, within, {"read": read_in}, original, annotate)
    inlined = _inlined(result.model) if inline or (wishes.target is not None and wishes.target.inline) else ()
    stored = (*in_full(result.model, wishes.target), *in_blocks(result.model, wishes.target))
    report = replace(result.report, notes=(*result.report.notes, *fused, *inlined, *stored))
    if inlined or stored:
        report = replace(report, operators=operators(result.model))
    if not wishes and not wishes.literal:
        report = replace(report, hint=hint(result.model))
    report = replace(report, notes=(*report.notes, *layout_doubts(layouts)))
    result = replace(result, target=wishes.target, report=report, opened=opened)
    if regions == "functions":
        as_functions(result.model, target_of(result))
    result = _renamed(result, rename) if rename else result
    if format == "onnx":
        return result
    result = replace(result, format="tflite", custom_ops=dict(custom_ops or {}))
    return result if parts else _as_tflite(result, source if _is_tflite(source) and not (inputs or outputs) else None)


def optimize(
    source: Source,
    *,
    dims: Mapping[str, Dim] | None = None,
    batch: Dim | None = None,
    target: str | Target | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    rename: Mapping[str, str] | None = None,
    per_transpose: int | None = None,
    exchange: bool = False,
    time_limit: float | None = None,
    what_if: bool = False,
    annotate: bool = False,
) -> Result:
    """The same model, interface and meaning kept, with the fewest transposed bytes, and no more Transposes than before.

    What `convert` does with an ONNX model of which no other layouts are asked; the options are its. Where fewer bytes
    take more Transposes than the source has, or more that copy single elements and not runs, a note says so; with
    `per_transpose=0` the bytes alone count. With a `target` the model is for that runtime alone, and what its kernels
    cost counts, too.

    Raises:
        ReadError: the file is not a model, or is damaged.
    """
    return convert(
        source,
        dims=dims,
        batch=batch,
        target=target,
        inputs=inputs,
        outputs=outputs,
        rename=rename,
        per_transpose=per_transpose,
        exchange=exchange,
        time_limit=time_limit,
        what_if=what_if,
        annotate=annotate,
    )


def relayout_in_place(
    model: ir.Model, per_transpose: int | None = None, exchange: bool = False
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Optimize an onnx-ir model in place, as `optimize` does: (Transposes, bytes) before and after.

    Where nothing is to be won the model is not touched.
    """
    from relayout.formats.onnx import CALLS, complete, lift_constants, restore_calls, spell_out

    lift_constants(model)
    spell_out(model, is_known)
    if CALLS in model.meta:
        complete(model, outputs_of)  # nothing is known of what is inside
    shared = apart(model)
    sites = build(model, per_transpose=per_transpose or 0, exchange=exchange)
    decided = plan(sites)
    if per_transpose is None:
        decided = no_more_at_run_time(sites, within_source(sites, decided))
    before, after = (decided.source_count, decided.source_size), (len(decided.crossings), decided.size)
    if before != after or sites.idle:
        apply(model, decided)
    together(shared)
    forget(model.graph)
    restore_calls(model)
    return before, after


def explain(source: Source, **options: Any) -> Report:
    """What `convert` would do with a model, and why, without writing anything.

    Args:
        source: as `convert` takes it.
        options: those of `convert`.

    Raises:
        RelayoutError: as `convert` does.
    """
    return convert(source, **options).report


def diff(a: str | Path, b: str | Path) -> Diff:
    """What two model files have in common, and in what they differ: operators, attributes, types, shapes, layouts.

    Raises:
        ReadError: one is not a model, or is damaged.
        UnsupportedError: a `.tflite` holds operators that cannot be read.
    """
    from relayout.reports import differing

    return differing.diff(_looked(Path(a)), _looked(Path(b)))


def _looked(path: Path) -> Looked:
    from relayout.reports.differing import Looked, attributes_of

    say("reading")
    model = read(path)
    attributes = attributes_of(model.graph)
    say("planning")
    decided = plan(build(model))
    axes = Axes(decided.sites, TFLITE in model.meta)
    return Looked(str(path), Drawing(decided, axes).chart, attributes, _own_transposes(path, model))


def _own_transposes(path: Path, model: ir.Model) -> int | None:
    """Return how many Transposes a `.tflite` has that move data; None of ONNX."""
    if TFLITE not in model.meta:
        return None
    from relayout.formats.tflite.container.loading import load
    from relayout.formats.tflite.container.transposes import transposes

    return transposes(load(path))[0]


def inspect(path: str | Path) -> Inspection:
    """What a file is, and what conversions of it would win. Where it cannot be converted, that is said.

    Raises:
        ReadError: it is not a model, or is damaged.
    """
    from relayout.reports import inspection

    path = Path(path)
    if is_tflite(path):
        with in_file(str(path)):
            found = inspection.tflite(path)
    else:
        from relayout.formats.onnx import read as read_onnx

        found = inspection.onnx(path, read_onnx(path))
    try:
        return found.with_reports(explain(path), explain(path, io="convert"))
    except RelayoutError as error:
        return replace(found, problem=str(error))


def read(
    source: Source,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    dims: Mapping[str, Dim] | None = None,
    batch: Dim | None = None,
    wishes: Wishes | None = None,
    **options: Any,
) -> ir.Model:
    """Read a model, or the part of it between named values: a `.tflite` literally, NHWC and all; an `.onnx` as it is.

    Args:
        source: a path, the bytes of a `.tflite`, or a model in memory.
        inputs: what the part begins with; see `relayout.formats.onnx.cut`.
        outputs: what it ends in.
        dims: dynamic dimensions to fix, or to give the names of others; axes of inputs to open.
        batch: the name or number of the first axis of all inputs.
        wishes: what is asked for: its target says what is done to a `.tflite` beside its literal import.
        options: of `relayout.formats.tflite.read`, where the source is a `.tflite`.

    Raises:
        ReadError: not a model, or damaged.
        UnsupportedError: operators that cannot be converted.
        LayoutError: `dims` names no dimension, or gives it no extent.
        OpeningError: a dimension cannot be opened.
        NamesError: `inputs` or `outputs` name what cannot be an end of a part.
    """
    asked = Asked.of(dims, batch)
    model = _read(source, inputs, outputs, asked.named, Wishes() if wishes is None else wishes, options)
    if asked.named:
        _fix_inferred(model, asked.named)
    open_dimensions(model, asked)
    if inputs or outputs:
        ends = {"inputs": [v.name for v in model.graph.inputs], "outputs": [v.name for v in model.graph.outputs]}
        model.metadata_props[CUT] = json.dumps(ends, ensure_ascii=False)
    return model


def _read(
    source: Source,
    inputs: Sequence[str] | None,
    outputs: Sequence[str] | None,
    dims: Mapping[str, Dim],
    wishes: Wishes,
    options: Mapping[str, Any],
) -> ir.Model:
    if isinstance(source, bytes) or (isinstance(source, str | Path) and is_tflite(source)):
        from relayout.formats import tflite
        from relayout.formats.bundle import outermost
        from relayout.formats.onnx import SOURCES, identity
        from relayout.formats.onnx.parts import UNANNOTATED

        extents = {name: int(extent) for name, extent in dims.items() if not isinstance(extent, str)}
        with in_file("the given bytes" if isinstance(source, bytes) else str(source)), _told(extents):
            passes = wishes.tflite
            model = tflite.read(source, inputs=inputs, outputs=outputs, dims=extents, passes=passes, **options)
        model.meta[TFLITE] = model.meta[UNANNOTATED] = True
        if not isinstance(source, bytes):
            model.meta[SOURCES] = frozenset({identity(outermost(Path(source)))})
        return model
    _refuse_options_of_tflite(options)
    from relayout.formats.onnx import CONTRADICTED, complete, cut, spell_out
    from relayout.formats.onnx import read as read_onnx

    model = read_onnx(source)
    fixed: frozenset[str] = frozenset()
    if dims:
        from relayout.formats.onnx.fixing import fix_dims

        fixed = fix_dims(model, dims)  # before shapes are inferred: many depend on it
    contradicted = model.meta.get(CONTRADICTED)
    told = [unstated(contradicted)] if contradicted else []
    if known := note(model):
        told.append(known)
    model.meta["relayout.notes"] = (*model.meta.get("relayout.notes", ()), *told)
    if inputs or outputs:
        complete(model, outputs_of)
        model = cut(model, inputs, outputs)
        if not model.functions:
            model.meta[FIXED] = fixed
            return model
    spell_out(model, is_known)
    complete(model, outputs_of)
    model.meta[FIXED] = fixed
    return model


@contextmanager
def _told(extents: Mapping[str, int]) -> Iterator[None]:
    """Say in an error that the user gave extents, which the file may be right not to fit."""
    try:
        yield
    except ReadError as error:
        if not extents or error.hint:
            raise
        given = ", ".join(f"{name}={extent}" for name, extent in extents.items())
        raise ReadError(error.what, where=error.where, hint=f"it was read with --dim {given}") from error


def _fix_inferred(model: ir.Model, dims: Mapping[str, Dim]) -> None:
    """Fix dimensions that inference has named, too, and infer again what follows from them, in place."""
    from relayout.formats.onnx import complete
    from relayout.formats.onnx.fixing import check_dims, fix_dims, state_results

    named = fix_dims(model, dims)
    check_dims(dims, named.union(model.meta.get(FIXED, ())))
    if TFLITE not in model.meta:
        if not named.isdisjoint(dims):
            complete(model, outputs_of)
        state_results(model)


def _refuse_options_of_tflite(options: Mapping[str, Any]) -> None:
    for name, default in OF_TFLITE.items():
        if options.get(name, default) != default:
            option = name.replace("_", "-").removesuffix("s")
            raise RelayoutError(f"--{option} is for a .tflite source, and this one is ONNX: leave it out")


def _inlined(model: ir.Model) -> tuple[str, ...]:
    """Write functions of layouts as their bodies, in place; what to say of it in a report."""
    from relayout.formats.onnx import complete

    before = _transposes(model)
    if inline_functions(model):
        complete(model)  # a body states no shapes of its own
    count = _transposes(model) - before
    return (f"Transposes in bodies of functions, for the runtime to cancel: {count}",) if count else ()


def _transposes(model: ir.Model) -> int:
    return operators(model).get("Transpose", 0)


def check_plan(plan_file: str | Path, source: Source) -> Checked:
    """Check a plan file against the model that it was made for, without the solver.

    Raises:
        ReadError: either cannot be read, the plan is of another model, or its certificate is not valid.
    """
    try:
        file = open_stored(Path(plan_file))
        data = json.loads(file.read(0, file.size))
    except (OSError, ValueError, RecursionError):
        raise ReadError(
            f"{plan_file} is no plan: it is not JSON", hint="the plan comes first, then the model"
        ) from None
    with in_file(str(plan_file)):
        options = planfile.options_of(data)
    try:
        options = {**PRICES, **options}
        check({**options, **options["read"], **options["wishes"]}, {**OPTIONS, **PLANNED}, PRICES)
        reading = {name: value for name, value in options["read"].items() if name not in RETIRED}
        wishes = Wishes.of(**options["wishes"])
        model = read(source, dims=dict(options["dims"]), wishes=wishes, **reading)
        pairs = {str(name): (str(pair[0]), str(pair[1])) for name, pair in options["layouts"].items()}
        options |= {"io": options["io"], "layouts": pairs}
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ReadError(f"{plan_file} is not a whole plan ({error})") from error
    as_kernels(model, wishes.target)
    apart(model)
    return planfile.check(data, _sites(model, options, wishes))


def _sites(model: ir.Model, options: Mapping[str, Any], wishes: Wishes) -> Sites:
    """The sites of a model, by the options of a conversion or of its plan."""
    return build(
        model,
        keep_interface=options["io"] == "keep",
        layouts=options["layouts"],
        choose=wishes if wishes else None,
        **{name: options[name] for name in PRICES},
    )


def _relayout(
    model: ir.Model,
    options: dict[str, Any],
    wishes: Wishes,
    time_limit: float | None,
    what_if: bool,
    within: bool,
    seconds: dict[str, float],
    original: Any = None,
    annotate: bool = False,
) -> Result:
    from relayout.formats.onnx import SILENT

    say("planning")
    began = perf_counter()
    shared = apart(model)
    sites = _sites(model, options, wishes)
    no_image: tuple[str, ...] = ()
    if options["io"] in IMAGE_LAYOUTS:
        images = image_pins(sites, Axes(sites, TFLITE in model.meta), options["io"])
        no_image = () if images else (f"--io {options['io']}: no input or output is an image, so all stay as they are",)
        options = {**options, "io": "keep", "layouts": images | options["layouts"]}
        sites = _sites(model, options, wishes)
    decided = usual = fewest = plan(sites, time_limit=time_limit)
    if within:
        usual = within_source(sites, fewest, time_limit=time_limit)
        decided = no_more_at_run_time(sites, usual, time_limit=time_limit)
    axes = Axes(sites, TFLITE in model.meta)
    naming = Naming(sites, axes)
    found = report(decided, axes, relaxed=relax(decided) if what_if else [])
    if usual is not fewest:
        found = no_worse(found, decided, fewest)
    if decided is not usual:
        found = at_any_extent(found, decided, usual)
    unmet = wishes.unmet((site.node, site.reason) for site in sites.sites if site.kind == "node" and site.node)
    found = replace(
        found, notes=(*found.notes, *no_image, *wishes.notes(), *unmet, *model.meta.get("relayout.notes", ()))
    )
    prices = {"per_transpose": sites.per_transpose, "per_scattered": sites.per_scattered}
    taken = {**prices, "wishes": wishes.to_json()}
    written = planfile.later(decided, options | taken)
    seconds["plan"] = perf_counter() - began
    if (
        original is not None
        and not sites.idle
        and (decided.size, len(decided.crossings))
        == (
            decided.source_size,
            decided.source_count,
        )
    ):
        together(shared)
        _restore_calls(model)
        found = replace(found, operators=operators(model), seconds=seconds)
        return Result(model, found, written, original, naming)
    say("rewriting")
    began = perf_counter()
    held = constants(model)
    target = wishes.target
    blocks, single = (None, None) if target is None else (target.blocks, target.single_consumers)
    result = apply(model, decided, blocks, single)
    together(shared)
    if wishes.target is None:  # a target claims operators, not calls
        _restore_calls(result)
    more = (
        *as_transposes(result, wishes.target),
        *grown(held, constants(result)),
        *unsaid(result.meta[UNSAID]),
        *left_out(decided),
    )
    if wishes.target is None:
        more += scattered(decided)
    found = replace(found, notes=(*found.notes, *more))
    seconds["rewrite"] = perf_counter() - began
    forget(result.graph)
    _say_interface(result, found)
    if annotate:
        result.meta[SILENT] = False  # whoever looks at layouts looks at shapes
        naming.annotate(result)
    return Result(result, replace(found, operators=operators(result), seconds=seconds), written, naming=naming)


def _read_custom_ops(source: Source, custom_ops: Mapping[str, str], format: Format) -> dict[str, str]:  # noqa: A002
    """Return the custom operators of a source and the domains that they get as nodes.

    Raises:
        LayoutError: one gets no domain, and the result is ONNX, whose nodes have one.
    """
    if format == "onnx":
        if bare := [name for name, domain in custom_ops.items() if not domain]:
            raise LayoutError(f"--custom-op {bare[0]}: a node of an ONNX result wants a domain: {bare[0]}=DOMAIN")
        return dict(custom_ops)
    return {name: domain or CUSTOM for name, domain in custom_ops.items()} if _is_tflite(source) else {}


def _is_tflite(source: Source) -> bool:
    return isinstance(source, bytes) or (isinstance(source, str | Path) and is_tflite(source))


def _prepare(model: ir.Model) -> None:
    from relayout.formats.onnx import complete
    from relayout.formats.tflite.exporting.preparing import prepare

    prepare(model, lambda changed: complete(changed, outputs_of))


def _as_tflite(result: Result, source: Source | None) -> Result:
    """Return a result with its file; `source` is the whole `.tflite` that it was made of, if it was one."""
    from relayout.formats.tflite.container.loading import load

    say("exporting")
    began = perf_counter()
    file = tflite_model(result.model, result.custom_ops, remedy_for(result.target))
    before = load(source if isinstance(source, bytes) else Path(str(source))) if source is not None else None
    seconds = {**result.report.seconds, "export": perf_counter() - began}
    return replace(result, file=file, report=replace(tflite_report(result.report, file, before), seconds=seconds))


def _restore_calls(model: ir.Model) -> None:
    """Put back the calls that were spelled out, if any were."""
    from relayout.formats.onnx import CALLS

    if CALLS in model.meta:
        from relayout.formats.onnx import restore_calls

        restore_calls(model)


def _say_interface(model: ir.Model, found: Report) -> None:
    """Put into the model's metadata which of its inputs and outputs are stored in another order."""
    changed = {end.name: end.layout for end in found.interface if "->" in end.layout}
    if changed:
        model.metadata_props[INTERFACE] = json.dumps(changed)


def _renamed(result: Result, names: Mapping[str, str]) -> Result:
    """A result under other names. The plan and the reasons speak of the source's."""
    ends = (*result.model.graph.inputs, *result.model.graph.outputs)
    before = [value.name for value in ends]
    rename_values(result.model, names)
    now = dict(zip(before, (value.name or "" for value in ends), strict=True))
    interface = tuple(replace(end, name=now.get(end.name, end.name)) for end in result.report.interface)
    notes = (*result.report.notes, *(f"renamed: {old} is {new} in the result" for old, new in names.items()))
    report = replace(result.report, interface=interface, notes=notes)
    _say_interface(result.model, report)
    return replace(result, report=report)
