"""The lowering passes that a target lists, before layouts are chosen and after; loaded only where there is a target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import onnx_ir as ir

from relayout.graph.subgraphs import all_nodes
from relayout.lowering.passes import PASSES
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
    "recognise-gelu": _on_use("recognise_gelu.recognise_gelu", lambda target: () if target.has_gelu else None),
    "drop-expand": _on_use("drop_expand.drop_expand", lambda target: () if target.broadcasts else None),
    "keep-integers": _kept_integers,
    "decompose": _on_use("decompose.expand", lambda target: (target.expansions,) if target.expansions else None),
    "keep-float": _on_use("keep_float.keep_reals", lambda target: (target.units,) if target.units else None),
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
