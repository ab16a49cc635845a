"""The verbs that make a model: read → lower → infer → solve → apply → write. `convert` and its shorter forms."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import onnx
import onnx_ir as ir

from relayout.apply.apply import apply
from relayout.apply.layout_functions import inline_functions
from relayout.apply.renaming import rename as rename_values
from relayout.arguments import checked
from relayout.errors import InvalidModelError, LayoutError
from relayout.formats.in_memory import ModelSource, model_source
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.source_names import forget
from relayout.layout import Dim
from relayout.layout.stored_as import INTERFACE
from relayout.lowering.normalized_inputs import numbers_by_input
from relayout.partition.claims import claims
from relayout.partition.regions import as_functions
from relayout.partition.whole_units import whole_units
from relayout.pipeline.lowering_list import as_transposes, avoid_saturation, before_layouts, state_blocks
from relayout.pipeline.names import SourceNames, layout_doubts
from relayout.pipeline.planning import Planned, planned
from relayout.pipeline.request import (
    OPTIONS,
    Format,
    ImportOptions,
    Io,
    LayoutRequest,
    OutputOptions,
    Quant,
    Regions,
    Request,
    SolverOptions,
    Source,
    State,
)
from relayout.pipeline.result import Result, target_of
from relayout.pipeline.source import holds_tflite, read
from relayout.pipeline.tflite_result import (
    LITERT,
    refuse_onnx_options,
    refuse_runtime,
    refuse_unknown_custom_ops,
    remedy_for,
    tflite_model,
    tflite_report,
)
from relayout.progress import say
from relayout.reports import Naming, Report, constants, grown, left_out, operators, scattered, unsaid
from relayout.targets import LayoutFor, Target, Wishes, hint

if TYPE_CHECKING:
    from relayout.formats.onnx.fixed_source import FixedSource

CUSTOM = "tflite.custom"
"""The domain of custom operators between two `.tflite` files, where nobody says another."""


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
    input_type: str | None = None,
    output_type: str | None = None,
    normalize: Mapping[str, Sequence[float | Sequence[float]]] | None = None,
    dims: Mapping[str, Dim] | None = None,
    batch: Dim | None = None,
    opset: int | None = None,
    quant: Quant = "qdq",
    signature: str | None = None,
    state: State = "zero",
    custom_ops: Mapping[str, str] | None = None,
    runtime: str | None = None,
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
        source: a path to a `.tflite`, `.onnx` or `.ort` file, or into a bundle of models; the bytes of a `.tflite` or
            of ONNX, or an open binary file; or an ONNX model in memory, which is not changed: protobuf, onnx-ir's, or
            what `torch.onnx.export(…, dynamo=True)` returns.
        format: of the result. For `tflite` the target is `litert`, unless another one is given.
        io: `keep` leaves names, types, shapes and stored orders of inputs and outputs; `convert` stores each in the
            order that costs nothing, and says so in the report and in the model's metadata; `NCHW` or `NHWC` stores
            each image-like one so, and leaves the others.
        layouts: tensor name -> (source layout, stored layout), such as `("NHWC", "NCHW")`: a pin on that tensor.
        input_type: `float32`, `int8` or `uint8` for the inputs that are quantized; others stay as they are.
        output_type: the same for outputs.
        normalize: input -> (mean, standard deviation), each one number or one for each channel: the result computes
            `(x - mean) / std` of what it is fed, where the source is fed the normalized numbers.
        dims: dynamic dimension -> extent to fix it to, or the name of a dimension of the same extent, which it takes.
            `"image:0"`, an axis of an input, opens a fixed dimension: it gets the name, or the number, everywhere.
        batch: the name or number that the first axis of all inputs gets, fixed or not.
        opset: opset of an ONNX result, from 13 on: operators that need a newer one are one error. By default the least
            that a `.tflite` needs, from 18 on, and that of an ONNX source, which is never raised.
        quant: what becomes of a quantized `.tflite`: integers in Quantize-Dequantize units, or a float model.
        signature: which signature of a `.tflite` to convert; by default the first.
        state: what becomes of a `.tflite`'s variables: `zero` starts every run from their initial values, `io` makes
            each an input and an output.
        custom_ops: custom operator -> its domain. One of a `.tflite` source is carried over as a node of that domain;
            in a `.tflite` result a node of that name and domain, of any domain for `""`, becomes a custom operator.
        runtime: of a `.tflite` result: the oldest TensorFlow Lite that has to run it, such as `2.14`. What its kernels
            lack is written by others, or refused.
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
    if format == "tflite":
        refuse_onnx_options({"--opset": opset, "--inline": inline, "--regions": regions == "functions"})
        target = LITERT if target is None else target
    refuse_runtime(runtime, format)
    node_layouts = SourceNames(rename).keys(node_layouts) or None
    wishes = Wishes.of(to, target, desired_layouts, node_layouts, layout_for)
    if regions == "functions" and wishes.target is None:
        raise LayoutError("--regions functions parts what a target runs from the rest: give a target, too")
    own_ops, names = custom_ops or {}, SourceNames(rename)
    source = model_source(source)
    imports = ImportOptions(
        opset=opset,
        quant=quant,
        signature=signature,
        state=state,
        custom_ops=_domains_of_custom_ops(source, own_ops, format),
        inputs=names.listed(inputs),
        outputs=names.listed(outputs),
        dims=names.places(dims),
        batch=batch,
    )
    numbers = names.keys(numbers_by_input(normalize))
    layout = LayoutRequest(io, names.keys(layouts), wishes, input_type, output_type, numbers)
    solver = SolverOptions(per_transpose, exchange=exchange, time_limit=time_limit, what_if=what_if)
    output = OutputOptions(inline, regions, rename or {}, annotate, own_ops, parts, runtime or "")
    return _converted(source, Request(imports, layout, solver, format), output)


def _converted(source: ModelSource, request: Request, output: OutputOptions) -> Result:
    began = perf_counter()
    say("reading")
    model = read(source, request.imports, request.layout.wishes)
    dims = {**request.imports.dims, **facts_of(model).opened_places}
    request = replace(request, imports=replace(request.imports, dims=dims, batch=None))
    if request.format == "tflite":
        refuse_unknown_custom_ops(model, () if holds_tflite(source) else output.custom_ops)
    lowered = before_layouts(model, request)
    read_in = perf_counter() - began
    asks_layouts = bool(request.layout) or request.format == "tflite"
    no_regression = not asks_layouts and request.solver.per_transpose is None and not facts_of(model).is_tflite
    began = perf_counter()
    plan = planned(model, request, no_regression=no_regression)
    naming = Naming(plan.sites, plan.axes)
    report = plan.report()
    report = replace(report, notes=(*report.notes, *facts_of(model).notes, *layout_doubts(request.layout.layouts)))
    result = Result(
        model, report, plan.serializer(), naming=naming, target=request.target, opened=facts_of(model).opened
    )
    seconds = {"read": read_in, "plan": perf_counter() - began}
    original = _original(source, model, request, output) if plan.saves_nothing and not asks_layouts else None
    if original is not None:
        plan.merge_duplicates()
        _restore_calls(model)
        result = replace(result, untouched=original)
    else:
        say("rewriting")
        began = perf_counter()
        result = _applied(result, plan)
        seconds["rewrite"] = perf_counter() - began
        if output.annotate:
            add_facts(result.model, states_no_shapes=False)  # whoever looks at layouts looks at shapes
            naming.annotate(result.model)
    result = _lowered_after(result, request, output, lowered)
    told = None if request.target is None else claims(result.model, request.target)
    report = replace(result.report, operators=operators(result.model), seconds=seconds, claims=told)
    result = replace(result, report=report)
    if output.regions == "functions":
        with whole_units(result.model):
            as_functions(result.model, target_of(result))
    if request.imports.opset is not None:
        _lower_opset(result.model, int(request.imports.opset))
    if output.rename:
        result = _renamed(result, output.rename)
    if request.format == "onnx":
        return _stamped(result)
    result = replace(result, format="tflite", custom_ops=dict(output.custom_ops), runtime=output.runtime)
    whole = holds_tflite(source) and not request.imports.is_part
    return result if output.parts else _as_tflite(result, source if whole else None)


def _original(
    source: ModelSource, model: ir.Model, request: Request, output: OutputOptions
) -> Path | FixedSource | onnx.ModelProto | None:
    """Return the source as it is given back where nothing is won; None where more is asked than fixed dimensions."""
    facts = facts_of(model)
    imports = request.imports
    is_older = imports.opset not in (None, model.opset_imports.get(""))
    asked = facts.opened_places or imports.is_part or is_older or output.rename or output.annotate
    if asked or facts.is_tflite or facts.contradicted or facts.is_unlike_source or facts.has_external_data:
        return None
    if not isinstance(source, str | Path | onnx.ModelProto):
        return None
    given = Path(source) if isinstance(source, str) else source
    if not imports.dims:
        return given
    if not isinstance(given, Path):
        return None
    from relayout.formats.onnx import check
    from relayout.formats.onnx.fixed_source import FixedSource

    try:
        check(model)
    except InvalidModelError:  # the numbers may not fit, which is said as the model is written
        return None
    return FixedSource(given, model, imports.dims)


def _applied(result: Result, plan: Planned) -> Result:
    """Rewrite a result's model as planned, in place, and say in its report what came of it."""
    target = plan.request.target
    weights = constants(result.model)
    blocks, single = (None, None) if target is None else (target.blocks, target.single_consumers)
    model = apply(result.model, plan.plan, blocks, single)
    plan.merge_duplicates()
    if target is None:  # a target claims operators, not calls
        _restore_calls(model)
    notes = (
        *as_transposes(model, target),
        *grown(weights, constants(model)),
        *unsaid(facts_of(model).lost_annotations),
        *left_out(plan.plan),
        *(scattered(plan.plan) if target is None else ()),
    )
    report = replace(result.report, notes=(*result.report.notes, *notes))
    forget(model.graph)
    _state_interface(model, report)
    return replace(result, model=model, report=report)


def _lowered_after(result: Result, request: Request, output: OutputOptions, before: Sequence[str]) -> Result:
    """Run what is done to a model once its layouts are chosen, in place; `before` is what lowering said before that."""
    target, wishes = request.target, request.layout.wishes
    inlined = _inlined(result.model) if output.inline or (target is not None and target.inline) else ()
    stored = (*avoid_saturation(result.model, target), *state_blocks(result.model, target))
    report = replace(result.report, notes=(*result.report.notes, *before, *inlined, *stored))
    if not wishes and not wishes.literal:
        report = replace(report, hint=hint(result.model))
    return replace(result, report=report)


@checked()
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
    """Return the model with the fewest transposed bytes and no more Transposes than before, interface and meaning kept.

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


def explain(source: Source, **options: Any) -> Report:
    """Report what `convert` would do with a model, and why, without writing anything.

    Args:
        source: as `convert` takes it.
        options: those of `convert`.

    Raises:
        RelayoutError: as `convert` does.
    """
    return convert(source, **options).report


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


def _domains_of_custom_ops(source: ModelSource, custom_ops: Mapping[str, str], format: Format) -> dict[str, str]:  # noqa: A002
    """Return the custom operators of a source and the domains that they get as nodes.

    Raises:
        LayoutError: one gets no domain, and the result is ONNX, whose nodes have one.
    """
    if format == "onnx":
        if bare := [name for name, domain in custom_ops.items() if not domain]:
            raise LayoutError(f"--custom-op {bare[0]}: a node of an ONNX result wants a domain: {bare[0]}=DOMAIN")
        return dict(custom_ops)
    return {name: domain or CUSTOM for name, domain in custom_ops.items()} if holds_tflite(source) else {}


def _stamped(result: Result) -> Result:
    """Return a result whose nodes say what they were when it was made, where they say of which builtin they are."""
    if facts_of(result.model).is_tflite:
        from relayout.formats.tflite.spelled_out import stamp_builtins

        stamp_builtins(result.model)
    return result


def _as_tflite(result: Result, source: ModelSource | None) -> Result:
    """Return a result with its file; `source` is the whole `.tflite` that it was made of, if it was one."""
    from relayout.formats.tflite.container.loading import load

    say("exporting")
    began = perf_counter()
    file = tflite_model(result.model, result.custom_ops, remedy_for(result.target), result.runtime)
    before = load(source if isinstance(source, bytes) else Path(str(source))) if source is not None else None
    seconds = {**result.report.seconds, "export": perf_counter() - began}
    return replace(result, file=file, report=replace(tflite_report(result.report, file, before), seconds=seconds))


def _lower_opset(model: ir.Model, opset: int) -> None:
    """Write a model in an older opset, in place; one that is older already stays.

    Raises:
        LayoutError: an operator needs a newer one, or the model is older and would have to be raised.
    """
    from relayout.formats.onnx.older_opset import to_older_opset

    current = model.opset_imports.get("", 1)
    if current < opset:
        raise LayoutError(f"--opset {opset}: the model is of opset {current}, and is not raised: leave the option out")
    if current > opset:
        to_older_opset(model, opset)


def _restore_calls(model: ir.Model) -> None:
    """Put back the calls that were spelled out, if any were."""
    if facts_of(model).calls is not None:
        from relayout.formats.onnx import restore_calls

        restore_calls(model)


def _state_interface(model: ir.Model, report: Report) -> None:
    """Put into the model's metadata which of its inputs and outputs are stored in another order."""
    changed = {end.name: end.layout for end in report.interface if "->" in end.layout}
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
    _state_interface(result.model, report)
    return replace(result, report=report)
