"""The passes of a result, run in order: on the graph as it was read, before and after layouts are chosen.

`relayout.lowering.passes` has the rows: what each requires, and which always run.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.graph.facts import add_facts, add_notes, facts_of
from relayout.graph.passes import Stage
from relayout.graph.subgraphs import all_graphs, graph_values
from relayout.layout.stored_as import ELEMENT_BITS
from relayout.lowering.constants import Constants
from relayout.lowering.interface_types import normalize_inputs, set_interface_types, source_types
from relayout.lowering.passes import FOR_TARGETS, ON_FIXING, REPEATED, lower, passes_of
from relayout.pipeline.request import OutputOptions, Request
from relayout.rules.facts import operator_of
from relayout.targets import refuse_others

if TYPE_CHECKING:
    from relayout.formats.tflite.spelled_out import Builtin
    from relayout.targets import Target


FEW = 5  # variables that a note names
PLAIN = OutputOptions()  # options of a result that is only looked at
BATCH = re.compile(r"batch|s\d+$", re.IGNORECASE)
"""Names that exporters give to the batch; without one PyTorch numbers it."""


def before_layouts(
    model: ir.Model,
    request: Request,  # what is asked for
    output: OutputOptions = PLAIN,  # how the result is written
) -> tuple[str, ...]:
    """Do to a model that was read all that comes before layouts are chosen, in place.

    Returns:
        A sentence for the report about each of the target's lowering passes. What is said of the interface is among
        the model's facts.

    Raises:
        LayoutError: the interface or the layouts that are asked for do not fit the model.
    """
    add_notes(model, *_frozen(model))
    _prepare(model, request, output)
    add_notes(model, *_begun_anew(facts_of(model).begun_anew))
    layout = request.layout
    types = source_types(model, layout.normalize)
    add_notes(model, *set_interface_types(model, layout.input_type, layout.output_type, layout.normalize))
    add_notes(model, *normalize_inputs(model, layout.normalize, layout.input_type, types))
    layout.desired.against(model.graph)
    refuse_others(model, request.target.blocks if request.target else None)
    lowered = lower(model, request.target, Stage.GRAPH)
    if request.format == "tflite":
        _widen_half_precision(model)
    return lowered


def _prepare(model: ir.Model, request: Request, output: OutputOptions) -> None:
    """Run the passes over a model as it was read, in place."""
    runtime, custom_ops = output.runtime, output.custom_ops
    is_tflite = request.format == "tflite"
    is_onnx = not facts_of(model).is_tflite
    is_fixed, has_target = is_onnx and _is_fixed(model, request), is_onnx and request.target is not None
    rows = [
        row
        for row in passes_of(Stage.SOURCE)
        if is_tflite or (row.name in ON_FIXING and is_fixed) or (row.name in FOR_TARGETS and has_target)
    ]
    if not rows:
        return
    from relayout.formats.onnx.completing import complete
    from relayout.formats.onnx.source_passes import UnpreparedModel, prepare
    from relayout.rules import outputs_of

    source = UnpreparedModel(model, lambda changed: complete(changed, outputs_of))
    if is_tflite:
        from relayout.formats.tflite.exporting.registry import is_custom

        source.from_tflite = facts_of(model).is_tflite
        source.is_restored = partial(_is_restored, request.target, runtime)
        is_decomposed = partial(_is_decomposed, Constants(model), request.target)
        source.needs_no_definition = lambda key, node: is_custom(key, custom_ops) or is_decomposed(node)
        source.is_looped = partial(_is_looped, model, request.target, runtime)
        source.steps_are_faster = request.target is None or request.target.is_litert
        source.joins_recurrences = _keeps_reals(output)
        source.element_bytes = output.weight_bytes
    node_count = len(model.graph)
    if prepare(source, rows, REPEATED) and not is_tflite:
        add_facts(model, is_unlike_source=True)
        add_notes(model, f"operators computed beforehand, since extents are known: {node_count - len(model.graph)}")


def _keeps_reals(output: OutputOptions) -> bool:
    """Return whether what operators compute with stays real numbers."""
    from relayout.formats.tflite.exporting.quantizable import STATIC

    return output.quantization is None or output.quantization.kind not in STATIC


def _is_fixed(model: ir.Model, request: Request) -> bool:
    """Return whether extents are given numbers, or a target gets a model whose inputs leave none open."""
    if any(not isinstance(extent, str) for extent in request.imports.dims.values()):
        return True
    shapes = [value.shape for value in model.graph.inputs]
    return request.target is not None and all(shape is not None and shape.is_static() for shape in shapes)


def _widen_half_precision(model: ir.Model) -> None:
    """Let values of half precision count as single: a `.tflite` holds them so between its operators."""
    for graph in all_graphs(model.graph):
        for value in graph_values(graph):
            if value.dtype == ir.DataType.FLOAT16:
                value.meta[ELEMENT_BITS] = ir.DataType.FLOAT.bitwidth


def _is_restored(target: "Target | None", runtime: str, builtin: "Builtin") -> bool:
    """Return whether a result has a builtin that the nodes of a model say that they were.

    1. Not where the runtime is older than it.
    2. Not where a target has kernels for the nodes alone: integers that it runs, and leaves to the CPU as that builtin.
       Integers of a type for which it has no kernel stay the builtin.
    """
    from relayout.formats.tflite.exporting.older import lacks
    from relayout.formats.tflite.spelled_out import DOMAIN

    if runtime and lacks(runtime, builtin):
        return False
    rows = () if target is None else target.kernels
    claimed = any(row.domain == DOMAIN and builtin.name in row.op_types.split() for row in rows)
    kind = next((each.type.name for each in builtin.inputs if each is not None), "")
    runs_kind = any(not row.types or kind in row.types for row in rows)
    return target is None or claimed or not runs_kind or builtin.has_reals or builtin.has_variables


def _is_decomposed(constants: Constants, target: "Target | None", node: ir.Node) -> bool:
    """Return whether a target writes a node as others, which it runs in less time than what defines it."""
    rows = [row for row in (() if target is None else target.expansions) if row.op_type == node.op_type]
    if node.domain not in ("", "ai.onnx") or not rows:
        return False
    operator, known = operator_of(constants.model, node), list(map(constants.behind, node.inputs))
    return any(row.takes(operator) and row.of(operator, known) for row in rows)


def _is_looped(model: ir.Model, target: "Target | None", runtime: str, node: ir.Node) -> bool:
    """Return whether a recurrent node may be a loop: LiteRT runs it itself; an NPU or a GPU takes it step by step."""
    from relayout.formats.tflite.exporting.older import is_older
    from relayout.formats.tflite.exporting.operators.recurrent_loop import NEWEST_BUILTIN
    from relayout.formats.tflite.exporting.recurrent_operands import has_few_steps

    if runtime and is_older(runtime, NEWEST_BUILTIN, 1):
        return False
    if target is not None and target.file_forms is not None and has_few_steps(node):
        return False
    return target is None or target.claims(operator_of(model, node))


def _frozen(model: ir.Model) -> list[str]:
    """Return a note for each input with an open batch that no output has: a layer may be frozen at the example's."""
    outputs = [value.shape for value in model.graph.outputs]
    if not outputs or not all(shape is not None and len(shape) and shape.is_static() for shape in outputs):
        return []
    return [
        f"input {value.name} has the open extent {value.shape[0]}, and no output has one: a layer may be frozen at the"
        " batch of the export"
        for value in model.graph.inputs
        if value.shape is not None and len(value.shape) > 1 and BATCH.match(str(value.shape[0]))
    ]


def _begun_anew(names: Sequence[str]) -> list[str]:
    """Say which variables a run of the result does not leave to the next one."""
    if not names:
        return []
    some, verb = ("variables", "begin") if len(names) > 1 else ("variable", "begins")
    named = ", ".join(names[:FEW]) + ", …" * (len(names) > FEW)
    cure = "--state io (state='io') makes an input and an output of each"
    return [f"{some} {named} {verb} every run anew, where the source goes on; {cure}"]
