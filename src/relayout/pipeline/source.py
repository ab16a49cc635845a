"""Read a source: a `.tflite` literally, NHWC and all; an ONNX model as it is; or the part between named values."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir as ir

from relayout.errors import ReadError, RelayoutError, in_file, shortened
from relayout.formats.in_memory import ModelSource, model_source
from relayout.formats.recognition import is_tflite
from relayout.graph.facts import add_facts, add_notes, facts_of
from relayout.graph.subgraphs import all_nodes
from relayout.layout.stored_as import CUT, STEPS_OFF
from relayout.pipeline.dimensions import Asked, fix_inferred, name_dimensions, open_dimensions, restate_fixed
from relayout.pipeline.request import Format, ImportOptions, Source
from relayout.reports.report import unstated
from relayout.rules import draws, is_known
from relayout.targets import DesiredLayouts, note

MOST_NAMED = 3  # inputs that a note names
MOST_SAID = 300  # characters of what ONNX's checker says


def holds_tflite(source: ModelSource) -> bool:
    """Return whether a source is a `.tflite`, by its content: bytes always are."""
    return isinstance(source, bytes) or (isinstance(source, str | Path) and is_tflite(source))


def read(
    source: Source,
    options: ImportOptions | None = None,
    desired: DesiredLayouts | None = None,
    format: Format = "onnx",  # noqa: A002 - the name that users expect
) -> ir.Model:
    """Read a model, or the part of it between named values.

    Args:
        source: a path, bytes, an open binary file, or a model in memory.
        options: how it is read; by default whole.
        desired: the layouts and the target that are asked for: the target says what is done to a `.tflite` beside its
            literal import.
        format: of the result. A `.tflite` has no defaults of inputs: an input that has one is the constant.

    Raises:
        ReadError: not a model, or damaged.
        UnsupportedError: operators that cannot be converted.
        LayoutError: `dims` names no dimension, or gives it no extent.
        OpeningError: a dimension cannot be opened.
        NamesError: `inputs` or `outputs` name what cannot be an end of a part.
    """
    known = model_source(source)
    options = ImportOptions() if options is None else options
    dimensions = Asked.of(options.dims, options.batch)
    options = options._replace(dims=dimensions.named)
    if isinstance(known, bytes) or holds_tflite(known):
        if options.float32:
            raise RelayoutError("--float32 is for an ONNX source, and this one is a .tflite: leave it out")
        model = _read_tflite(known, options, DesiredLayouts() if desired is None else desired)
        if isinstance(known, str | Path) and Path(known).suffix.lower() in (".onnx", ".ort"):
            add_notes(model, f"{Path(known).name} is a .tflite, whatever its name says, and is read as one")
    else:
        model = _read_onnx(known, options, dimensions, format)
    model.metadata_props.pop(STEPS_OFF, None)  # of an earlier conversion, whose result is the source now
    if options.dims:
        fix_inferred(model, options.dims, infer=not facts_of(model).is_tflite)
        restate_fixed(model)
    open_dimensions(model, dimensions)
    if options.is_part:
        ends = {"inputs": [v.name for v in model.graph.inputs], "outputs": [v.name for v in model.graph.outputs]}
        model.metadata_props[CUT] = json.dumps(ends, ensure_ascii=False)
    return model


def _read_tflite(source: ModelSource, options: ImportOptions, desired: DesiredLayouts) -> ir.Model:
    from relayout.formats import tflite
    from relayout.formats.bundle import outermost
    from relayout.formats.onnx.atomic import known_files
    from relayout.formats.tflite.importing.importer import IR_VERSIONS
    from relayout.formats.tflite.importing.program import Choices

    content = source if isinstance(source, bytes) else Path(str(source))
    extents = {name: int(extent) for name, extent in options.dims.items() if not isinstance(extent, str)}
    where = "the given bytes" if isinstance(content, bytes) else str(content)
    with in_file(where), _extents_in_errors(extents):
        choices = Choices(
            opset=options.opset if options.opset is None or options.opset in IR_VERSIONS else None,
            quant=options.quant,
            signature=options.signature,
            state=options.state,
            custom_ops=options.custom_ops,
            passes=desired.tflite,
            inputs=options.inputs,
            outputs=options.outputs,
            dims=extents,
        )
        model = tflite.read(content, choices)
    if isinstance(content, Path):
        add_facts(model, files=known_files(outermost(content)))
    return model


def _read_onnx(
    source: str | Path | onnx.ModelProto | ir.Model,
    options: ImportOptions,
    dimensions: Asked,
    format: Format,  # noqa: A002
) -> ir.Model:
    if named := options.tflite_options():
        raise RelayoutError(f"{named[0]} is for a .tflite source, and this one is ONNX: leave it out")
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.fixing import state_names
    from relayout.formats.onnx.parts import cut
    from relayout.formats.onnx.reading import read as read_onnx
    from relayout.formats.onnx.spelling import spell_out
    from relayout.rules import outputs_of

    model = read_onnx(source)
    if options.float32:
        from relayout.formats.onnx.source_passes import use_float32

        add_facts(model, is_unlike_source=True)
        add_notes(model, *(use_float32(model) or ("--float32: the model has no float64 and no bfloat16",)))
    if format == "tflite":
        from relayout.formats.onnx.unranked import rank_inputs

        _make_defaults_constant(model, options)
        add_notes(model, *rank_inputs(model))
    name_dimensions(model, dimensions)
    if options.dims:
        from relayout.formats.onnx.fixing import fix_dims

        # Before shapes are inferred: many depend on it.
        add_facts(model, fixed_dims=fix_dims(model, options.dims))
    if contradicted := facts_of(model).contradicted:
        add_notes(model, unstated(contradicted))
    if known := note(model):
        add_notes(model, known)
    if options.is_part:
        complete(model, outputs_of)
        model = cut(model, options.inputs, options.outputs)
    if not options.is_part or model.functions:
        spell_out(model, is_known)
        complete(model, outputs_of)
    add_notes(model, *state_names(model, opens=format == "tflite"), *_drawing(model))
    return model


def _drawing(model: ir.Model) -> tuple[str, ...]:
    """Return the note on operators that draw random numbers, such as a Dropout of a model exported in training."""
    counts = Counter(node.op_type for node in all_nodes(model.graph) if draws(node))
    if not counts:
        return ()
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    cure = ". In PyTorch call .eval() on the module before you export it" if "Dropout" in counts else ""
    return (f"random numbers in every run: {listed}{cure}",)


def _make_defaults_constant(model: ir.Model, options: ImportOptions) -> None:
    """Let inputs that have a default be constants, in place: a `.tflite` would have no value for them.

    Exporters listed all weights as inputs once. An input that `--inputs` or `--dim` names stays one, and so do all
    where each has a default.
    """
    named = {*options.inputs, *(name.rpartition(":")[0] for name in options.dims)}
    graph = model.graph
    constants = [value for value in graph.inputs if value.is_initializer() and value.name not in named]
    if not constants:
        return
    if len(constants) == len(graph.inputs):
        have = "all inputs have default values" if len(constants) > 1 else "the only input has a default value"
        add_notes(model, f"{have} in the file and none in the .tflite, which has no defaults: a program feeds numbers")
        return
    graph.inputs[:] = [value for value in graph.inputs if value not in constants]
    first = ", ".join(repr(value.name) for value in constants[:MOST_NAMED])
    listed = f"{first}, …" if len(constants) > MOST_NAMED else first
    some, are = (f"{len(constants)} inputs", "are constants") if len(constants) > 1 else ("1 input", "is a constant")
    add_notes(
        model,
        f"{some} with a default value in the file {are} in the .tflite, which has no defaults: {listed};"
        " --inputs with the names of all inputs keeps those that it names",
    )


@contextmanager
def _extents_in_errors(extents: Mapping[str, int]) -> Iterator[None]:
    """Say in an error that the user gave extents, which the file may be right not to fit."""
    try:
        yield
    except ReadError as error:
        if not extents or error.hint:
            raise
        options = ", ".join(f"{name}={extent}" for name, extent in extents.items())
        raise ReadError(error.what, where=error.where, hint=f"it was read with --dim {options}") from error


def why_invalid(source: Source) -> str:
    """Say what ONNX's checker has against a source; empty where that is nothing, or it cannot be asked."""
    from onnx import checker, external_data_helper, load, shape_inference

    from relayout.formats.onnx.checking import UNRANKED
    from relayout.isolation.calls import NativeCrashError, check_model

    known = model_source(source)
    if isinstance(known, bytes) or holds_tflite(known):
        return ""
    try:
        if isinstance(known, ir.Model):
            proto = ir.to_proto(known)
        else:
            proto = known if isinstance(known, onnx.ModelProto) else load(str(known), load_external_data=False)
        if not any(map(external_data_helper.uses_external_data, proto.graph.initializer)):
            check_model(proto)
    except (checker.ValidationError, shape_inference.InferenceError, NativeCrashError) as error:
        said = shortened(" ".join(str(error).split()), MOST_SAID)
        return "" if said.startswith(UNRANKED) else said
    except Exception:  # of many types: it is asked over a model that something has failed on already
        return ""
    return ""
