"""Passes that a target's kernels need, before layouts are chosen and after; each with a line for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.graph.facts import add_notes, facts_of
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.constants import Constants
from relayout.lowering.decompose import expand
from relayout.lowering.drop_expand import drop_expand
from relayout.lowering.fold_affine import fold_scales
from relayout.lowering.fuse_epilogue import fuse_kernels
from relayout.lowering.int8_weights_to_uint8 import unsigned_kernels
from relayout.lowering.interface_types import set_interface_types
from relayout.lowering.keep_float import keep_reals
from relayout.lowering.merge_block_dims import join_tiles
from relayout.lowering.normalized_inputs import normalize_inputs, source_types
from relayout.lowering.pad_channels import pad_channels
from relayout.lowering.passes import PASSES
from relayout.lowering.qlinear_to_qdq import qlinear_to_qdq
from relayout.lowering.quantized_units import fuse_units
from relayout.lowering.recognise_gelu import recognise_gelu
from relayout.lowering.split_transposes import in_two_steps
from relayout.pipeline.request import Request
from relayout.rules import outputs_of
from relayout.rules.in_graph import operator_of
from relayout.targets import Target, note, refuse_others, stamp_cpu

if TYPE_CHECKING:
    from relayout.formats.tflite.spelled_out import Builtin


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

        prepare(
            model,
            lambda changed: complete(changed, outputs_of),
            from_tflite=facts_of(model).is_tflite,
            is_restored=partial(_is_restored, request.target, runtime),
            is_decomposed=partial(_is_decomposed, Constants(model), request.target),
        )
    add_notes(model, *_begun_anew(facts_of(model).begun_anew))
    layout = request.layout
    types = source_types(model, layout.normalize)
    add_notes(model, *set_interface_types(model, layout.input_type, layout.output_type, layout.normalize))
    add_notes(model, *normalize_inputs(model, layout.normalize, layout.input_type, types))
    layout.wishes.against(model.graph)
    refuse_others(model, request.target.blocks if request.target else None)
    return as_kernels(model, request.target)


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


def _begun_anew(names: Sequence[str]) -> list[str]:
    """Say which variables a run of the result does not leave to the next one."""
    if not names:
        return []
    some, verb = ("variables", "begin") if len(names) > 1 else ("variable", "begins")
    named = ", ".join(names[:FEW]) + ", …" * (len(names) > FEW)
    cure = "--state io (state='io') makes an input and an output of each"
    return [f"{some} {named} {verb} every run anew, where the source goes on; {cure}"]


def as_kernels(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """Run a target's lowering passes before layouts are chosen, in place; return what a report says of them."""
    if target is None:
        return ()
    notes = []
    for name in target.lowering:
        if name in BEFORE:
            counts = BEFORE[name](model, target)
            listed = [f"{count} {what}" for what, count in counts.items() if count]
            notes += [f"{PASSES[name].line}: {', '.join(listed)}"] if listed else []
    return tuple(notes)


def _pad(model: ir.Model, target: Target) -> dict[str, int]:
    blocks = target.blocks
    return {} if blocks is None else {f"to whole blocks of {blocks.tile}": pad_channels(model, blocks)}


BEFORE: Mapping[str, Callable[[ir.Model, Target], dict[str, int]]] = {
    "qlinear-to-qdq": lambda model, target: qlinear_to_qdq(model) if target.reads_units else {},
    "recognise-gelu": lambda model, target: recognise_gelu(model) if target.has_gelu else {},
    "drop-expand": lambda model, target: drop_expand(model) if target.broadcasts else {},
    "decompose": lambda model, target: expand(model, target.expansions),
    "keep-float": lambda model, target: keep_reals(model, target.units),
    "qdq-to-integer": lambda model, target: fuse_units(model, target.units, target.unsigned),
    "fold-affine": lambda model, target: fold_scales(
        model, target.fusions, 0 if target.blocks is None else target.blocks.tile
    ),
    "pad-channels": _pad,
    "fuse-epilogue": lambda model, target: fuse_kernels(model, target.fusions),
}
"""Pass that runs before layouts are chosen -> what it does to a model for a target: counts for the report."""


def as_transposes(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """Write Transposes as the target's kernels do them best, in place; what to say of it."""
    if target is None or not target.least_run or "split-transposes" not in target.lowering:
        return ()
    count, size = in_two_steps(model, target.least_run)
    told = f"Transposes that move the innermost axis among others, in two steps: {count} ({size:,} bytes more, in runs)"
    return (told,) if count else ()


def avoid_saturation(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """Store kernels so that the target's products of integers do not saturate, in place; what to say of it."""
    listed = target is not None and target.saturates and "int8-weights-to-uint8" in target.lowering
    count = unsigned_kernels(model) if listed else 0
    return (f"kernels of int8 stored as uint8, so that products do not saturate: {count}",) if count else ()


def state_blocks(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """State shapes as kernels for blocks of channels want them, in place; what to say of it."""
    blocks = None if target is None else target.blocks
    if target is None or blocks is None or blocks.domain not in {node.domain for node in all_nodes(model.graph)}:
        return ()
    reshapes = join_tiles(model, blocks.joining)
    stamp_cpu(model, blocks)
    told = [f"kernels in blocks of {blocks.tile} channels; Reshapes around them, which move nothing: {reshapes}"]
    rows = [row for row in target.kernels if row.written is not None and row.written.domain == blocks.domain]
    kinds = {(row.domain, name) for row in rows for name in row.op_types.split()}
    if left := sum((node.domain, node.op_type) in kinds for node in all_nodes(model.graph)):
        told.append(f"convolutions and pools that are not in blocks, since these do not fit or do not pay: {left}")
    return *told, note(model)
