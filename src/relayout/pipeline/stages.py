"""The stages of a conversion: read → lower → infer → solve → apply → write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from relayout.apply.apply import apply
from relayout.apply.layout_functions import inline_functions, transposes_in_bodies
from relayout.errors import InvalidModelError, LayoutError, ReadError, RelayoutError
from relayout.formats.in_memory import ModelSource
from relayout.formats.recognition import SOURCE_FORMAT
from relayout.graph.facts import add_facts, facts_of
from relayout.graph.passes import Stage
from relayout.graph.source_names import forget
from relayout.graph.subgraphs import all_nodes
from relayout.layout.stored_as import INTERFACE, OPENED_BATCH, OpenedBatch
from relayout.lowering.interface_types import integer_ends
from relayout.lowering.passes import lower
from relayout.pipeline.lowering_list import before_layouts
from relayout.pipeline.names import contradicted_names, images
from relayout.pipeline.planning import Planned, planned
from relayout.pipeline.request import ImportOptions, LayoutRequest, OutputOptions, Request, SolverOptions
from relayout.pipeline.result import Result, target_of
from relayout.pipeline.source import holds_tflite, read, why_invalid
from relayout.pipeline.tflite_result import (
    CUSTOM,
    forms_of,
    refuse_unknown_custom_ops,
    remedy_for,
    tflite_model,
)
from relayout.progress import say
from relayout.reports.layouts import Naming
from relayout.reports.report import Interface, Report, constants, grown, left_out, operators, scattered, unsaid
from relayout.targets import DesiredLayouts

if TYPE_CHECKING:
    from relayout.formats.onnx.fixing import FixedSource
    from relayout.partition.claims import Claims
    from relayout.quantization.request import QuantizationRequest

MOST_NAMED = 3  # functions that a note names


def run_stages(source: ModelSource, request: Request, output: OutputOptions) -> Result:
    """Convert a source as requested.

    Raises:
        ReadError: the source is not a model, or is damaged.
        UnsupportedError: operators that cannot be converted, all of them.
        LayoutError: a layout does not fit its tensor.
    """
    try:
        return _run(source, request, output)
    except (RelayoutError, OSError, MemoryError):
        raise
    except Exception as error:  # of any type: what a stage makes of a node that is not as its operator is defined
        if problem := why_invalid(source):
            raise ReadError(f"the model is not valid ONNX: {problem}") from error
        raise


def _run(source: ModelSource, request: Request, output: OutputOptions) -> Result:
    began = perf_counter()
    say("reading")
    model = read(source, request.imports, request.layout.desired, request.format)
    dims = {**request.imports.dims, **facts_of(model).opened_places}
    request = replace(request, imports=request.imports._replace(dims=dims, batch=None))
    if request.format == "tflite":
        refuse_unknown_custom_ops(model, () if holds_tflite(source) else output.custom_ops)
    lowered = before_layouts(model, request, output)
    read_in = perf_counter() - began
    asks_layouts = bool(request.layout) or request.format == "tflite"
    no_regression = not asks_layouts and request.solver.per_transpose is None and not facts_of(model).is_tflite
    began = perf_counter()
    plan = planned(model, request, no_regression=no_regression)
    naming = Naming(plan.sites, plan.axes)
    report = plan.report()
    integers = integer_ends(model)
    interface = tuple(_with_meaning(end, integers.get(end.name)) for end in report.interface)
    report = replace(report, interface=interface)
    shown = images(plan.sites, plan.axes) if request.layout.layouts else ()
    misnamed = contradicted_names(request.layout.layouts, report.interface, shown)
    report = replace(report, notes=(*report.notes, *facts_of(model).notes, *misnamed))
    result = Result(model, report, plan.serializer(), naming=naming, target=request.target)
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
    shares, notes = _claims(result.model, request, is_parted=output.parts)
    notes = (*result.report.notes, *notes)
    report = replace(result.report, operators=operators(result.model), seconds=seconds, claims=shares, notes=notes)
    result = replace(result, report=report)
    if output.regions == "functions":
        from relayout.partition.claims import whole_units
        from relayout.partition.regions import as_functions

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
    return result if output.parts else _as_tflite(result, source if whole else None, output.quantization)


def _with_meaning(end: Interface, integers: tuple[float, int] | None) -> Interface:
    """Return an input or output with the scale and zero point of its integers."""
    return end if integers is None else end._replace(scale=integers[0], zero_point=integers[1])


def _original(
    source: ModelSource, model: ir.Model, request: Request, output: OutputOptions
) -> Path | FixedSource | onnx.ModelProto | None:
    """Return the source as it is given back where nothing is won; None where more is asked than fixed dimensions."""
    facts = facts_of(model)
    imports = request.imports
    is_older = imports.opset not in (None, model.opset_imports.get(""))
    asks_more = facts.opened_places or imports.is_part or is_older or output.rename or output.annotate
    if asks_more or facts.is_tflite or facts.contradicted or facts.is_unlike_source or facts.has_external_data:
        return None
    if not isinstance(source, str | Path | onnx.ModelProto):
        return None
    path_or_model = Path(source) if isinstance(source, str) else source
    if not imports.dims:
        return path_or_model
    if not isinstance(path_or_model, Path):
        return None
    from relayout.formats.onnx.checking import check
    from relayout.formats.onnx.fixing import FixedSource

    try:
        check(model)
    except InvalidModelError:  # the numbers may not fit, which is said as the model is written
        return None
    return FixedSource(path_or_model, model, imports.dims)


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
        *lower(model, target, Stage.PLACED),
        *grown(weights, constants(model)),
        *unsaid(facts_of(model).lost_annotations),
        *left_out(plan.plan),
        *(scattered(plan.plan) if target is None else ()),
    )
    report = replace(result.report, notes=(*result.report.notes, *notes))
    forget(model.graph)
    _state_interface(model, report)
    _state_batch(model)
    return replace(result, model=model, report=report)


def _claims(model: ir.Model, request: Request, *, is_parted: bool) -> tuple[Claims | None, tuple[str, ...]]:
    """Return what a target runs of a graph; of one that takes a file as a whole only that the file decides."""
    target = request.target
    if target is None:
        return None, ()
    if target.file_forms is not None and not is_parted:
        only = f"{target.name} takes .tflite files: --format tflite says whether it takes this network"
        return None, () if request.format == "tflite" else (only,)
    from relayout.partition.claims import claims

    return claims(model, target), ()


def _lowered_after(result: Result, request: Request, output: OutputOptions, before: Sequence[str]) -> Result:
    """Run what is done to a model once its layouts are chosen, in place; `before` is what lowering said before that."""
    target, desired = request.target, request.layout.desired
    bodies = transposes_in_bodies(result.model) if request.format == "onnx" else {}
    is_inlined = output.inline or (target is not None and target.inline)
    if is_inlined and inline_functions(result.model):
        from relayout.formats.onnx.completing import complete

        complete(result.model)  # a body states no shapes of its own
    stored = lower(result.model, target, Stage.FINAL)
    report = replace(
        result.report,
        notes=(*result.report.notes, *before, *_of_bodies(bodies, is_inlined), *stored),
        in_functions=sum(bodies.values()),
    )
    if not desired and not desired.literal:
        report = replace(report, hint=hint(result.model))
    return replace(result, report=report)


def _of_bodies(bodies: Mapping[str, int], is_inlined: bool) -> tuple[str, ...]:
    """Return what a report says of Transposes in bodies of functions: function -> how many its calls bring."""
    if not bodies:
        return ()
    count = sum(bodies.values())
    if is_inlined:
        return (f"Transposes from bodies of functions, which the runtime cancels or runs: {count}",)
    names = ", ".join([*list(bodies)[:MOST_NAMED], *(["…"] if len(bodies) > MOST_NAMED else [])])
    return (f"Transposes in bodies of functions, which a runtime without kernels for {names} cancels or runs: {count}",)


def _stamped(result: Result) -> Result:
    """Return a result that says that relayout made it, and whose nodes say of which builtin of a `.tflite` they are."""
    if result.untouched is None:
        result.model.metadata_props.setdefault(SOURCE_FORMAT, "onnx")
    if facts_of(result.model).is_tflite:
        from relayout.formats.tflite.spelled_out import stamp_builtins

        stamp_builtins(result.model)
    return result


def _as_tflite(
    result: Result,  # the model and its report
    source: ModelSource | None,  # the whole `.tflite` that it was made of, if it was one
    quantization: QuantizationRequest | None,  # how the file is quantized; None: not at all
) -> Result:
    """Return a result with its file, quantized as requested."""
    from relayout.formats.tflite.container.loading import load
    from relayout.pipeline.result import tflite_report

    say("exporting")
    began = perf_counter()
    note_count = len(facts_of(result.model).notes)
    target, forms = result.target, forms_of(result.target)
    kind = "" if quantization is None else quantization.kind
    remedy = remedy_for(target)
    file = tflite_model(result.model, result.custom_ops, remedy, result.runtime, target, kind, forms)
    before = load(source if isinstance(source, bytes) else Path(str(source))) if source is not None else None
    report = tflite_report(result.report, result.model, file, before)
    if target is not None and forms is not None:
        from relayout.formats.tflite.provenance import load_provenance
        from relayout.partition.claims import file_claims

        name = load_provenance(file).source_name
        refused = [each._replace(tensor=name(each.tensor)) for each in forms.refused]
        report = replace(report, claims=file_claims(target.name, report.operators or {}, refused))
    seconds = {**report.seconds, "export": perf_counter() - began}
    notes = (*report.notes, *facts_of(result.model).notes[note_count:])
    result = replace(result, file=file, report=replace(report, notes=notes, seconds=seconds))
    return result if quantization is None else _quantized(result, quantization)


def _quantized(result: Result, request: QuantizationRequest) -> Result:
    """Return a result whose file is quantized."""
    from relayout.pipeline.quantized_result import quantized_result

    say("quantizing")
    began = perf_counter()
    result = quantized_result(result, request)
    claims = result.report.claims
    if claims is not None and request.is_calibrated:  # they were made of real numbers
        claims = _claims_of_file(result)
    seconds = {**(result.report.seconds or {}), "quantize": perf_counter() - began}
    return replace(result, report=replace(result.report, seconds=seconds, claims=claims))


def _claims_of_file(result: Result) -> Claims | None:
    """Return what a result's target runs of its file, which is read again for that."""
    from relayout.formats.tflite.container.writer import to_bytes

    assert result.file is not None
    custom_ops = {name: domain or CUSTOM for name, domain in result.custom_ops.items()}
    layout = LayoutRequest(desired=DesiredLayouts.of(target=result.target))
    request = Request(ImportOptions(custom_ops=custom_ops), layout, SolverOptions(), "tflite")
    output = OutputOptions(custom_ops=result.custom_ops, runtime=result.runtime)
    return run_stages(to_bytes(result.file), request, output).report.claims


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
        from relayout.formats.onnx.calls import restore_calls

        restore_calls(model)


def _state_interface(model: ir.Model, report: Report) -> None:
    """Put into the model's metadata which of its inputs and outputs are stored in another order."""
    changed = {end.name: end.layout for end in report.interface if "->" in end.layout}
    if changed:
        model.metadata_props[INTERFACE] = json.dumps(changed)


def _state_batch(model: ir.Model) -> None:
    """Put into the model's metadata which batch was opened, if one was and nothing else."""
    opened = facts_of(model).opened
    if not opened:
        return
    model.metadata_props.pop(OPENED_BATCH, None)  # another one than an earlier conversion opened
    (first, *others) = opened
    if first.is_batch and isinstance(first.before, int) and not others:
        outputs = {name: (axis, runs) for name, (axis, runs) in first.outputs.items() if isinstance(runs, int)}
        model.metadata_props[OPENED_BATCH] = OpenedBatch(first.inputs, outputs).dump()


def _renamed(result: Result, names: Mapping[str, str]) -> Result:
    """Return a result under other names. The plan and the reasons speak of the source's."""
    from relayout.apply.provenance import rename as rename_values

    ends = (*result.model.graph.inputs, *result.model.graph.outputs)
    before = [value.name for value in ends]
    rename_values(result.model, names)
    now = dict(zip(before, (value.name or "" for value in ends), strict=True))
    interface = tuple(end._replace(name=now.get(end.name, end.name)) for end in result.report.interface)
    notes = (*result.report.notes, *(f"renamed: {old} is {new} in the result" for old, new in names.items()))
    report = replace(result.report, interface=interface, notes=notes)
    _state_interface(result.model, report)
    return replace(result, report=report)


# The hint at ONNX Runtime's own target that a conversion without a target prints.

QUANTIZED = frozenset(("DequantizeLinear",))
FASTER = (
    "The result runs in any ONNX runtime. For ONNX Runtime's CPU alone add --target onnxruntime-cpu: quantized models"
    " then take as little as half the time."
)


def hint(model: ir.Model) -> str:
    """Return what to say of a result that ONNX Runtime's CPU would run faster if it was made for it; else nothing."""
    for_any = not any(domain.startswith("com.microsoft") for domain in model.opset_imports)
    return FASTER if for_any and any(node.op_type in QUANTIZED for node in all_nodes(model.graph)) else ""
