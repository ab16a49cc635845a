"""A result as a `.tflite` file: its operators exported, its signature and metadata."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.errors import LayoutError, nearest
from relayout.formats.recognition import was_tflite
from relayout.graph.facts import add_notes
from relayout.graph.passes import Stage
from relayout.graph.quantized_unit import QUANTIZE
from relayout.graph.subgraphs import all_nodes
from relayout.layout.normalization import NORMALIZE
from relayout.layout.stored_as import DEFAULT_SIGNATURE, RENAMED, SIGNATURE_KEY, TENSOR, Holds
from relayout.lowering.passes import passes_of

if TYPE_CHECKING:
    from relayout.formats.tflite.container.model import Model
    from relayout.formats.tflite.exporting.file_forms import FileForms
    from relayout.partition.regions import Part
    from relayout.targets import Target

LITERT = "litert"  # the target of a `.tflite` result, where no other is asked for
CUSTOM = "tflite.custom"  # the domain of custom operators between two `.tflite` files, where nobody says another


WORDS = (ir.DataType.INT16, ir.DataType.UINT16)
REMEDY = (  # what to do about operators that cannot be written
    "--custom-op NAME writes an operator as CUSTOM, for a kernel of your own; --outputs NAME ends the model before it;"
    " --format tflite --partition-dir DIR, instead of the result's name, writes LiteRT's parts as .tflite files and the"
    " others as .onnx files"
)


def remedy_for(target: Target | None) -> str:
    """Return what to do about operators that cannot be written, after layouts were chosen for a target."""
    from relayout.targets.registry import OPERATORS_ALONE, targets

    name = "none" if target is None else target.name
    is_own = target is not None and name not in {OPERATORS_ALONE, *targets()}
    if target is not None and (target.is_litert or (target.fallback is not None and target.fallback.is_litert)):
        rows = f"a row of --target {name} without layouts runs in any, and a .tflite needs LiteRT's, such as NHWC OHWI"
        return f"{rows}: name them; {REMEDY}" if is_own else REMEDY
    option = "--ops" if name == OPERATORS_ALONE else f"--target {name}"
    cure = f"leave {option.partition(' ')[0]} out"
    if target is not None and target.fallback is None and is_own:
        cure = f'fallback = "{LITERT}" in the target\'s table gives the operators that it does not claim those'
    return f"the layouts are those of {option}, and a .tflite needs LiteRT's: {cure}; {REMEDY}"


def tflite_model(
    model: ir.Model,
    # operators that become CUSTOM ones, by name -> their domain; "" for any
    custom_ops: Mapping[str, str] | None = None,
    remedy: str = REMEDY,  # what an error says to do about operators that cannot be written
    runtime: str = "",  # the oldest runtime that has to run it, such as `2.14`; "": any
    target: Target | None = None,  # the target of the layouts; None: LiteRT
    quantization: str = "",  # the kind of quantization that follows; "": none
    # the forms of operators that the target takes (`forms_of`); None: those that LiteRT's CPU kernels run
    forms: FileForms | None = None,
) -> Model:
    """Export a model whose layouts are chosen.

    Raises:
        UnsupportedError: operators that TensorFlow Lite cannot express, all of them with reason and count.
    """
    from relayout.formats.onnx.completing import complete
    from relayout.formats.tflite import provenance
    from relayout.formats.tflite.exporting.exporter import export
    from relayout.formats.tflite.exporting.older import before_quantization
    from relayout.formats.tflite.exporting.preparing import name_standard_operators
    from relayout.formats.tflite.exporting.refusals import UnwritableGraphError
    from relayout.targets.litert.exported_graph import exported_graph

    name_standard_operators(model)
    complete(model)
    add_notes(model, *_of_words(model))
    graph = exported_graph(model, target)
    key = model.metadata_props.get(SIGNATURE_KEY) or DEFAULT_SIGNATURE
    builtins = None if target is None else target.builtins
    try:
        file = export(
            model,
            units=graph.units,
            unsigned=graph.unsigned,
            for_litert=graph.is_litert,
            passes=[*passes_of(Stage.DRAFT), *passes_of(Stage.WRITTEN)],
            signature=key,
            describe=lambda tensors: _metadata(model, tensors),
            tensor_names=_source_names(model),
            custom_ops=custom_ops,
            runtime=runtime,
            quantization=quantization,
            builtins=before_quantization(builtins, quantization) if builtins and quantization else builtins,
            file_forms=forms,
        )
    except UnwritableGraphError as error:
        raise UnwritableGraphError(
            error.found, error.values, f"{error.hint}{_float32_for(error.found)}{_made_for(error.found)}{remedy}"
        ) from None
    return file._replace(files=provenance.files(model))


def _of_words(model: ir.Model) -> list[str]:
    """Say how many values of 16 bits have a zero point, for which no kernel is, and how to quantize them."""
    nodes = [node for node in all_nodes(model.graph) if node.op_type == QUANTIZE and node.outputs[0].dtype in WORDS]
    zeros = [node.inputs[2].const_value for node in nodes if len(node.inputs) > 2 and node.inputs[2] is not None]
    count = sum(zero is not None and bool(zero.numpy().any()) for zero in zeros)
    if not count:
        return []
    are = "value of 16 bits has a zero point" if count == 1 else "values of 16 bits have a zero point"
    cure = "quantize with QInt16 and ActivationSymmetric=True for kernels of 16 bits"
    return [f"{count} {are}, so they are computed in float: {cure}"]


def forms_of(target: Target | None) -> FileForms | None:
    """Return the forms in which a target takes operators of a file; None: those that LiteRT's CPU kernels run."""
    return None if target is None or target.file_forms is None else target.file_forms()


def _source_names(model: ir.Model) -> dict[str, str]:
    """Return input or output -> the name that its tensor had in a `.tflite`.

    One that is stored in another order, holds other numbers, or was renamed by the user is none of these.
    """
    if not was_tflite(model.metadata_props):
        return {}
    ends = [value for value in (*model.graph.inputs, *model.graph.outputs) if RENAMED not in value.meta]
    ends = [value for value in ends if NORMALIZE not in value.metadata_props]
    names = {value.name or "": value.metadata_props[TENSOR] for value in ends if TENSOR in value.metadata_props}
    source_names = {value.name or "": {each.name for each in Holds.of(value.metadata_props)} for value in ends}
    return {name: own for name, own in names.items() if source_names[name].isdisjoint((name, own))}


def _float32_for(reasons: Collection[str]) -> str:
    """Return the option that cures operators on types for which LiteRT has no kernels; nothing where none is."""
    is_cured = any(f"elements of {name}" in reason for reason in reasons for name in ("FLOAT64", "BFLOAT16"))
    return "--float32 computes float64 and bfloat16 in float32; " if is_cured else ""


def _made_for(operators: Collection[str]) -> str:
    """Return which target's own operators are among those that cannot be written, and what to do; else nothing."""
    from relayout.targets import targets

    kinds = [name.partition(" ")[0] for name in operators]
    for target in targets().values():
        own = [kind for kind in kinds if kind in target.own_operators]
        if own:
            what = f"{own[0]} is an operator of --target {target.name}: if the model was made with it"
            return f"{what}, convert the source without --target {target.name}; "
    return ""


def tflite_parts(
    model: ir.Model, target: Target, custom_ops: Mapping[str, str], runtime: str = ""
) -> list[tuple[Part, ir.Model | Model]]:
    """Return the parts of a model whose layouts are chosen: a `.tflite` model for each that the target runs.

    What an export refuses although the target's table claims it is left to the host, and the graph is parted again.
    """
    from relayout.formats.tflite.exporting.refusals import UnwritableGraphError
    from relayout.partition.regions import part_model, parts

    host: set[str] = set()
    while True:
        part_models: list[tuple[Part, ir.Model | Model]] = []
        more: set[str] = set()
        for part in parts(model, target, host):
            graph = part_model(model, part)
            try:
                forms = forms_of(target)
                file = tflite_model(graph, custom_ops, REMEDY, runtime, target, "", forms) if part.claimed else graph
                part_models.append((part, file))
                refused = () if forms is None else forms.refused
                more |= _left_to_host(part, {each.node for each in refused})
            except UnwritableGraphError as error:
                more |= _left_to_host(part, error.values)
                if more <= host:  # not the operators stand in the way
                    raise
        if not more:
            return part_models
        host |= more


def _left_to_host(part: Part, refused: Collection[str]) -> set[str]:
    """Return the first outputs of a part's nodes that cannot be written, or read what follows from such constants."""
    names = set(refused)
    for node in (*part.copied, *part.nodes):
        if any(value is not None and value.producer() in part.copied and value.name in names for value in node.inputs):
            names.add(node.outputs[0].name or "")
    return names & {node.outputs[0].name for node in part.nodes if node.outputs[0].name}


def refuse_onnx_options(
    options: Mapping[str, object],  # option -> its value; None or False where it is not given
) -> None:
    """Refuse options that say how ONNX is written, where a `.tflite` is.

    Raises:
        LayoutError: some are given; all of them are named.
    """
    named = [option for option, value in options.items() if value is not None and value is not False]
    if named:
        verb, what = ("are", "them") if len(named) > 1 else ("is", "it")
        raise LayoutError(
            f"{', '.join(named)} {verb} for ONNX results, and the result is a .tflite, which has no opset, no functions"
            f" and no file beside it: leave {what} out, or write an .onnx"
        )


def refuse_runtime(runtime: str | None, format: str) -> None:  # noqa: A002 - the name that users expect
    """Refuse a runtime that is written otherwise than `2.14`, and one for an ONNX result.

    Raises:
        LayoutError: it is so.
    """
    if runtime is None:
        return
    if format != "tflite":
        raise LayoutError(f"--runtime {runtime} is for a .tflite result, and this one is ONNX: leave it out")
    from relayout.formats.tflite.exporting.older import version_numbers

    version_numbers(runtime)


def refuse_unknown_custom_ops(model: ir.Model, custom_ops: Collection[str]) -> None:
    """Refuse names of custom operators that no node of an ONNX model has.

    Raises:
        LayoutError: a name is none of the model's.
    """
    graphs: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    known = {node.op_type: None for graph in graphs for node in all_nodes(graph)} if custom_ops else {}
    for name in custom_ops:
        if name not in known:
            raise LayoutError(f"--custom-op {name}: the model has no operator of that name{nearest(name, known)}")


def _metadata(model: ir.Model, tensors: Mapping[str, list[ir.Value]]) -> Mapping[str, bytes]:
    """Return the metadata buffers of a file, of which each tensor is some values of the model."""
    from relayout.formats.tflite.container.metadata import OWN
    from relayout.formats.tflite.provenance import buffers, provenance_of

    provenance = provenance_of(model, tensors)
    return {**buffers(model), **({} if provenance.is_empty else {OWN: provenance.dump()})}
