"""What a target's kernels want of a graph, before layouts are chosen and after; each with a line for the report."""

from __future__ import annotations

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.lowering.decompose import expand
from relayout.lowering.fold_affine import fold_scales
from relayout.lowering.fuse_epilogue import fuse_kernels
from relayout.lowering.int8_weights_to_uint8 import unsigned_kernels
from relayout.lowering.keep_float import keep_reals
from relayout.lowering.merge_block_dims import join_tiles
from relayout.lowering.pad_channels import pad_channels
from relayout.lowering.qlinear_to_qdq import qlinear_to_qdq
from relayout.lowering.quantized_units import fuse_units
from relayout.lowering.split_transposes import in_two_steps
from relayout.targets import Target, note, stamp


def as_kernels(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """Write quantized units, what takes less time as others, and what a kernel takes in, as the target has them,
    in place; what to say of it.
    """
    if target is None:
        return ()
    blocks = target.blocks
    tile = 0 if blocks is None else blocks.tile
    integers = qlinear_to_qdq(model) if target.reads_units else {}
    early = fold_scales(model, target.fusions) if blocks is None else {}
    expanded = expand(model, target.expansions)
    reals = keep_reals(model, target.units)
    units, folded = fuse_units(model, target.units, target.unsigned), fold_scales(model, target.fusions, tile)
    folded = {name: folded.get(name, 0) + early.get(name, 0) for name in sorted({*folded, *early})}
    padded = {} if blocks is None else {f"to whole blocks of {blocks.tile}": pad_channels(model, blocks)}
    found = {
        "operators on integers as quantized units": integers,
        "operators that take less time as others": expanded,
        "quantized units that stay on real numbers": reals,
        "quantized units that run on integers": units,
        "scales and shifts in the weights of convolutions": folded,
        "values with more channels": padded,
        "taken in by the convolutions before them": fuse_kernels(model, target.fusions),
    }
    told = {what: [f"{count} {name}" for name, count in counts.items() if count] for what, counts in found.items()}
    return tuple(f"{what}: {', '.join(listed)}" for what, listed in told.items() if listed)


def as_transposes(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """Write Transposes as the target's kernels do them best, in place; what to say of it."""
    if target is None or not target.least_run:
        return ()
    count, size = in_two_steps(model, target.least_run)
    told = f"Transposes that move the innermost axis among others, in two steps: {count} ({size:,} bytes more, in runs)"
    return (told,) if count else ()


def in_full(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """Store kernels so that the target's products of integers do not saturate, in place; what to say of it."""
    count = unsigned_kernels(model) if target is not None and target.saturates else 0
    return (f"kernels of int8 stored as uint8, so that products do not saturate: {count}",) if count else ()


def in_blocks(model: ir.Model, target: Target | None) -> tuple[str, ...]:
    """State shapes as kernels for blocks of channels want them, in place; what to say of it."""
    blocks = None if target is None else target.blocks
    if target is None or blocks is None or blocks.domain not in {node.domain for node in all_nodes(model.graph)}:
        return ()
    reshapes = join_tiles(model, blocks.joining)
    stamp(model, blocks)
    told = [f"kernels in blocks of {blocks.tile} channels; Reshapes around them, which move nothing: {reshapes}"]
    rows = [row for row in target.kernels if row.written is not None and row.written.domain == blocks.domain]
    kinds = {(row.domain, name) for row in rows for name in row.op_types.split()}
    if left := sum((node.domain, node.op_type) in kinds for node in all_nodes(model.graph)):
        told.append(f"convolutions and pools that are not in blocks, since these do not fit or do not pay: {left}")
    return *told, note(model)
