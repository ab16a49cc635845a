"""The lowering passes that a target lists, before layouts are chosen and after; loaded only where there is a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.lowering.decompose import expand
from relayout.lowering.drop_expand import drop_expand
from relayout.lowering.fold_affine import fold_scales
from relayout.lowering.fuse_epilogue import fuse_kernels
from relayout.lowering.int8_weights_to_uint8 import unsigned_kernels
from relayout.lowering.keep_float import keep_reals
from relayout.lowering.merge_block_dims import join_tiles
from relayout.lowering.pad_channels import pad_channels
from relayout.lowering.passes import PASSES
from relayout.lowering.qlinear_to_qdq import qlinear_to_qdq
from relayout.lowering.quantized_units import fuse_units
from relayout.lowering.recognise_gelu import recognise_gelu
from relayout.lowering.split_transposes import in_two_steps
from relayout.targets.onnxruntime.cpu_guard import note, stamp_cpu
from relayout.targets.target_table import Target


def as_kernels(model: ir.Model, target: Target) -> tuple[str, ...]:
    """Run a target's lowering passes before layouts are chosen, in place; return what a report says of them."""
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


def as_transposes(model: ir.Model, target: Target) -> tuple[str, ...]:
    """Write Transposes as the target's kernels do them best, in place; what to say of it."""
    if not target.least_run or "split-transposes" not in target.lowering:
        return ()
    count, size = in_two_steps(model, target.least_run)
    told = f"Transposes that move the innermost axis among others, in two steps: {count} ({size:,} bytes more, in runs)"
    return (told,) if count else ()


def avoid_saturation(model: ir.Model, target: Target) -> tuple[str, ...]:
    """Store kernels so that the target's products of integers do not saturate, in place; what to say of it."""
    listed = target.saturates and "int8-weights-to-uint8" in target.lowering
    count = unsigned_kernels(model) if listed else 0
    return (f"kernels of int8 stored as uint8, so that products do not saturate: {count}",) if count else ()


def state_blocks(model: ir.Model, target: Target) -> tuple[str, ...]:
    """State shapes as kernels for blocks of channels want them, in place; what to say of it."""
    blocks = target.blocks
    if blocks is None or blocks.domain not in {node.domain for node in all_nodes(model.graph)}:
        return ()
    reshapes = join_tiles(model, blocks.joining)
    stamp_cpu(model, blocks)
    told = [f"kernels in blocks of {blocks.tile} channels; Reshapes around them, which move nothing: {reshapes}"]
    rows = [row for row in target.kernels if row.written is not None and row.written.domain == blocks.domain]
    kinds = {(row.domain, name) for row in rows for name in row.op_types.split()}
    if left := sum((node.domain, node.op_type) in kinds for node in all_nodes(model.graph)):
        told.append(f"convolutions and pools that are not in blocks, since these do not fit or do not pay: {left}")
    return *told, note(model)
