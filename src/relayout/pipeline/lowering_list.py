"""All that is done to a model between reading it and choosing its layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import onnx_ir as ir

from relayout.graph.facts import add_notes, facts_of
from relayout.graph.subgraphs import all_graphs, all_nodes
from relayout.layout.stored_as import ELEMENT_BITS
from relayout.lowering.constants import Constants
from relayout.lowering.interface_types import normalize_inputs, set_interface_types, source_types
from relayout.lowering.passes import PASSES
from relayout.pipeline.request import Request
from relayout.rules.facts import operator_of
from relayout.targets import Target, refuse_others
from relayout.targets.onnxruntime.cpu_guard import note, stamp_cpu

if TYPE_CHECKING:
    from relayout.formats.tflite.spelled_out import Builtin


# The lowering passes that a target lists, before layouts are chosen and after; loaded only where there is a target.


def as_kernels(model: ir.Model, target: Target) -> tuple[str, ...]:
    """Run a target's lowering passes before layouts are chosen, in place; return what a report says of them."""
    notes = []
    for name in target.lowering:
        if name in BEFORE:
            counts = BEFORE[name](model, target)
            listed = [f"{count} {what}" for what, count in counts.items() if count]
            notes += [f"{PASSES[name].line}: {', '.join(listed)}"] if listed else []
    return tuple(notes)


Given = Callable[[Target], tuple[Any, ...] | None]
"""Target -> the arguments of a pass behind the model; None where the pass has nothing to do for it."""
Pass = Callable[[ir.Model, Target], dict[str, int]]


def _on_use(function: str, given: Given) -> Pass:
    """Return a pass of `relayout.lowering` whose module is loaded where a target has something for it to do."""
    module, _, name = function.rpartition(".")

    def run(model: ir.Model, target: Target) -> dict[str, int]:
        arguments = given(target)
        if arguments is None:
            return {}
        found: dict[str, int] = getattr(import_module(f"relayout.lowering.{module}"), name)(model, *arguments)
        return found

    return run


def _padded(model: ir.Model, target: Target) -> dict[str, int]:
    if target.blocks is None:
        return {}
    from relayout.lowering.pad_channels import pad_channels

    return {f"to whole blocks of {target.blocks.tile}": pad_channels(model, target.blocks)}


def _kept_integers(model: ir.Model, target: Target) -> dict[str, int]:
    if not target.prefers_integers:
        return {}
    from relayout.targets.litert.keep_integers import keep_integers

    return keep_integers(model, target)


BEFORE: Mapping[str, Pass] = {
    "qlinear-to-qdq": _on_use("qlinear_to_qdq.qlinear_to_qdq", lambda target: () if target.reads_units else None),
    "recognise-gelu": _on_use("recognise_layer_norm.recognise_gelu", lambda target: () if target.has_gelu else None),
    "drop-expand": _on_use("drop_expand.drop_expand", lambda target: () if target.broadcasts else None),
    "keep-integers": _kept_integers,
    "decompose": _on_use("decompose.expand", lambda target: (target.expansions,) if target.expansions else None),
    "keep-float": _on_use("quantized_units.keep_reals", lambda target: (target.units,) if target.units else None),
    "qdq-to-integer": _on_use(
        "quantized_units.fuse_units", lambda target: (target.units, target.unsigned) if target.units else None
    ),
    "fold-affine": _on_use(
        "fold_affine.fold_scales",
        lambda target: (target.fusions, target.blocks.tile if target.blocks else 0) if target.fusions else None,
    ),
    "pad-channels": _padded,
    "fuse-epilogue": _on_use(
        "fuse_epilogue.fuse_kernels", lambda target: (target.fusions,) if target.fusions else None
    ),
}
"""Pass that runs before layouts are chosen -> what it does to a model for a target: counts for the report."""


def as_transposes(model: ir.Model, target: Target) -> tuple[str, ...]:
    """Write Transposes as the target's kernels do them best, in place; what to say of it."""
    if not target.least_run or "split-transposes" not in target.lowering:
        return ()
    from relayout.lowering.split_transposes import in_two_steps

    count, size = in_two_steps(model, target.least_run)
    told = f"Transposes that move the innermost axis among others, in two steps: {count} ({size:,} bytes more, in runs)"
    return (told,) if count else ()


def avoid_saturation(model: ir.Model, target: Target) -> tuple[str, ...]:
    """Store kernels so that the target's products of integers do not saturate, in place; what to say of it."""
    if not target.saturates or "int8-weights-to-uint8" not in target.lowering:
        return ()
    from relayout.lowering.int8_weights_to_uint8 import unsigned_kernels

    count = unsigned_kernels(model)
    return (f"kernels of int8 stored as uint8, so that products do not saturate: {count}",) if count else ()


def state_blocks(model: ir.Model, target: Target) -> tuple[str, ...]:
    """State shapes as kernels for blocks of channels want them, in place; what to say of it."""
    blocks = target.blocks
    if blocks is None or blocks.domain not in {node.domain for node in all_nodes(model.graph)}:
        return ()
    from relayout.lowering.merge_block_dims import join_tiles

    reshapes = join_tiles(model, blocks.joining)
    stamp_cpu(model, blocks)
    told = [f"kernels in blocks of {blocks.tile} channels; Reshapes around them, which move nothing: {reshapes}"]
    rows = [row for row in target.kernels if row.written is not None and row.written.domain == blocks.domain]
    kinds = {(row.domain, name) for row in rows for name in row.op_types.split()}
    if left := sum((node.domain, node.op_type) in kinds for node in all_nodes(model.graph)):
        told.append(f"convolutions and pools that are not in blocks, since these do not fit or do not pay: {left}")
    return *told, note(model)


FEW = 5
"""Variables that a note names."""


def before_layouts(model: ir.Model, request: Request, runtime: str = "") -> tuple[str, ...]:
    """Do to a model that was read all that comes before layouts are chosen, in place.

    Args:
        model: the model.
        request: what is asked for.
        runtime: the oldest runtime that has to run a `.tflite`, such as `2.14`; "": any.

    Returns:
        A sentence for the report about each of the target's lowering passes. What is said of the interface is among
        the model's facts.

    Raises:
        LayoutError: the interface or the layouts that are asked for do not fit the model.
    """
    if request.format == "tflite":
        from relayout.formats.onnx import complete
        from relayout.formats.tflite.exporting.preparing import prepare
        from relayout.rules import outputs_of

        prepare(
            model,
            lambda changed: complete(changed, outputs_of),
            from_tflite=facts_of(model).is_tflite,
            is_restored=partial(_is_restored, request.target, runtime),
            is_decomposed=partial(_is_decomposed, Constants(model), request.target),
            is_looped=partial(_is_looped, model, request.target, runtime),
        )
    add_notes(model, *_begun_anew(facts_of(model).begun_anew))
    layout = request.layout
    types = source_types(model, layout.normalize)
    add_notes(model, *set_interface_types(model, layout.input_type, layout.output_type, layout.normalize))
    add_notes(model, *normalize_inputs(model, layout.normalize, layout.input_type, types))
    layout.wishes.against(model.graph)
    refuse_others(model, request.target.blocks if request.target else None)
    lowered: tuple[str, ...] = ()
    if request.target is not None:
        lowered = as_kernels(model, request.target)
    if request.format == "tflite":
        _widen_half_precision(model)
    return lowered


def _widen_half_precision(model: ir.Model) -> None:
    """Let values of half precision count as single: a `.tflite` holds them so between its operators."""
    for graph in all_graphs(model.graph):
        outputs = (value for node in graph for value in node.outputs)
        for value in (*graph.inputs, *graph.initializers.values(), *outputs):
            if value.dtype == ir.DataType.FLOAT16:
                value.meta[ELEMENT_BITS] = ir.DataType.FLOAT.bitwidth


def _is_restored(target: Target | None, runtime: str, builtin: Builtin) -> bool:
    """Return whether a result has a builtin that the nodes of a model say that they were.

    1. Not where the runtime is older than it.
    2. Not where a target has kernels for the nodes alone: integers that it runs, and leaves to the CPU as that builtin.
    """
    from relayout.formats.tflite.exporting.older import lacks
    from relayout.formats.tflite.spelled_out import DOMAIN

    if runtime and lacks(runtime, builtin):
        return False
    rows = () if target is None else target.kernels
    claimed = any(row.domain == DOMAIN and builtin.name in row.op_types.split() for row in rows)
    return target is None or claimed or builtin.has_reals or builtin.has_variables


def _is_decomposed(constants: Constants, target: Target | None, node: ir.Node) -> bool:
    """Return whether a target writes a node as others, which it runs in less time than what defines it."""
    rows = [row for row in (() if target is None else target.expansions) if row.op_type == node.op_type]
    if node.domain not in ("", "ai.onnx") or not rows:
        return False
    operator, known = operator_of(constants.model, node), list(map(constants.behind, node.inputs))
    return any(row.takes(operator) and row.of(operator, known) for row in rows)


def _is_looped(model: ir.Model, target: Target | None, runtime: str, node: ir.Node) -> bool:
    """Return whether a recurrent node may be a loop: LiteRT runs it itself; an NPU or a GPU takes it step by step."""
    from relayout.formats.tflite.exporting.older import is_older
    from relayout.formats.tflite.exporting.operators.recurrent_loop import NEWEST_BUILTIN
    from relayout.formats.tflite.exporting.recurrent_operands import has_few_steps

    if runtime and is_older(runtime, NEWEST_BUILTIN, 1):
        return False
    if target is not None and target.file_forms is not None and has_few_steps(node):
        return False
    return target is None or target.claims(operator_of(model, node))


def _begun_anew(names: Sequence[str]) -> list[str]:
    """Say which variables a run of the result does not leave to the next one."""
    if not names:
        return []
    some, verb = ("variables", "begin") if len(names) > 1 else ("variable", "begins")
    named = ", ".join(names[:FEW]) + ", …" * (len(names) > FEW)
    cure = "--state io (state='io') makes an input and an output of each"
    return [f"{some} {named} {verb} every run anew, where the source goes on; {cure}"]
