"""The passes that targets list, by name, and those over every graph that becomes a `.tflite`.

`relayout.lowering.passes` has the rows: what each requires, and which always run.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import onnx_ir as ir

from relayout.formats.recognition import was_tflite
from relayout.graph.facts import add_notes
from relayout.graph.subgraphs import all_nodes
from relayout.lowering.passes import Stage, passes_of

if TYPE_CHECKING:
    from relayout.formats.tflite.exporting.units import QuantizedUnits
    from relayout.targets.target_table import Target


class TargetPass(NamedTuple):
    """A pass that a target lists."""

    applies: "Callable[[Target], object]"  # whether a target has something for it to do
    # does it to a model for a target, in place; returns counts for the report, by what is counted, or sentences
    run: "Callable[[ir.Model, Target], Mapping[str, int] | Sequence[str]]"


def lower(model: ir.Model, target: "Target | None", stage: Stage) -> tuple[str, ...]:
    """Run the passes that a target lists for a stage, in place; return what a report says of them."""
    if target is None:
        return ()
    notes: list[str] = []
    for row in passes_of(target.lowering, "onnx", stage):
        if not TARGET_PASSES[row.name].applies(target):
            continue
        said = TARGET_PASSES[row.name].run(model, target)
        if isinstance(said, Mapping):
            counts = [f"{count} {what}" for what, count in said.items() if count]
            said = [f"{row.line}: {', '.join(counts)}"] if counts else []
        notes += said
    return tuple(notes)


def _on_use(
    function: str,  # its module below `relayout`, and its name
    column: str,  # the column of a target that is empty where it has not
    *arguments: str,  # columns of a target that the function gets behind the model; `self` is the target
) -> TargetPass:
    """Return a pass of a module that is loaded where a target has something for it to do."""
    module, _, name = function.rpartition(".")

    def run(model: ir.Model, target: "Target") -> Mapping[str, int]:
        columns = [target if each == "self" else getattr(target, each) for each in arguments]
        counts: Mapping[str, int] = getattr(import_module(f"relayout.{module}"), name)(model, *columns)
        return counts

    return TargetPass(attrgetter(column), run)


def _fold_affine(model: ir.Model, target: "Target") -> Mapping[str, int]:
    from relayout.lowering.fold_affine import fold_scales

    return fold_scales(model, target.fusions, target.blocks.tile if target.blocks else 0)


def _pad_channels(model: ir.Model, target: "Target") -> Mapping[str, int]:
    from relayout.lowering.pad_channels import pad_channels

    assert target.blocks is not None
    return {f"to whole blocks of {target.blocks.tile}": pad_channels(model, target.blocks)}


def _split_transposes(model: ir.Model, target: "Target") -> tuple[str, ...]:
    from relayout.lowering.split_transposes import in_two_steps

    count, size = in_two_steps(model, target.least_run)
    note = f"Transposes that move the innermost axis among others, in two steps: {count} ({size:,} bytes more, in runs)"
    return (note,) if count else ()


def _avoid_saturation(model: ir.Model, target: "Target") -> tuple[str, ...]:
    from relayout.lowering.int8_weights_to_uint8 import unsigned_kernels

    count = unsigned_kernels(model)
    return (f"kernels of int8 stored as uint8, so that products do not saturate: {count}",) if count else ()


def _state_blocks(model: ir.Model, target: "Target") -> tuple[str, ...]:
    blocks = target.blocks
    if blocks is None or blocks.domain not in {node.domain for node in all_nodes(model.graph)}:
        return ()
    from relayout.lowering.pad_channels import join_tiles
    from relayout.targets.onnxruntime.cpu_guard import note, stamp_cpu

    reshapes = join_tiles(model, blocks.joining)
    stamp_cpu(model, blocks)
    notes = [f"kernels in blocks of {blocks.tile} channels; Reshapes around them, which move nothing: {reshapes}"]
    rows = [row for row in target.kernels if row.written is not None and row.written.domain == blocks.domain]
    kinds = {(row.domain, name) for row in rows for name in row.op_types.split()}
    if plain_count := sum((node.domain, node.op_type) in kinds for node in all_nodes(model.graph)):
        notes.append(
            f"convolutions and pools that are not in blocks, since these do not fit or do not pay: {plain_count}"
        )
    return *notes, note(model)


TARGET_PASSES: Mapping[str, TargetPass] = {  # name -> pass of a graph that a target lists
    "qlinear-to-qdq": _on_use("lowering.qlinear_to_qdq.qlinear_to_qdq", "reads_units"),
    "recognise-gelu": _on_use("lowering.recognise_layer_norm.recognise_gelu", "has_gelu"),
    "drop-expand": _on_use("lowering.decompose.drop_expand", "broadcasts"),
    "keep-integers": _on_use("targets.litert.keep_integers.keep_integers", "prefers_integers", "self"),
    "decompose": _on_use("lowering.decompose.expand", "expansions", "expansions"),
    "keep-float": _on_use("lowering.quantized_units.keep_reals", "units", "units"),
    "qdq-to-integer": _on_use("lowering.quantized_units.fuse_units", "units", "units", "unsigned"),
    "fold-affine": TargetPass(attrgetter("fusions"), _fold_affine),
    "pad-channels": TargetPass(attrgetter("blocks"), _pad_channels),
    "fuse-epilogue": _on_use("lowering.fuse_epilogue.fuse_kernels", "fusions", "fusions"),
    "split-transposes": TargetPass(attrgetter("least_run"), _split_transposes),
    "int8-weights-to-uint8": TargetPass(attrgetter("saturates"), _avoid_saturation),
    "merge-block-dims": TargetPass(attrgetter("blocks"), _state_blocks),
}


# Passes over a graph in its layouts that becomes a `.tflite`.


class FinalGraph:
    """A graph in its layouts that becomes a `.tflite`: what passes over it see and change.

    Args:
        model: the model.
        is_litert: whether LiteRT alone runs the file.
    """

    def __init__(self, model: ir.Model, *, is_litert: bool) -> None:
        self.model, self.is_litert = model, is_litert
        self.is_rewritten = is_litert and not was_tflite(model.metadata_props)
        """A `.tflite` comes back with its own operators."""
        self.counts: Counter[str] = Counter()  # operators that are others now

    @cached_property
    def unsigned(self) -> bool:
        """True if unsigned integers stay unsigned."""
        from relayout.targets.litert.quantized_units import keeps_unsigned

        return keeps_unsigned(self.model, as_source=self.is_litert)

    @cached_property
    def units(self) -> "QuantizedUnits":
        """The operators that run on integers."""
        from relayout.targets.litert.quantized_units import quantized_units

        return quantized_units(self.model, unsigned=self.unsigned)


def _write_einsums(final: FinalGraph) -> None:
    """Write those as products that a target without this decomposition left."""
    from relayout.lowering.decompose import expand
    from relayout.targets.litert.einsum_products import EINSUM

    expand(final.model, (EINSUM,))


def _rewrite_slow_operators(final: FinalGraph) -> None:
    from relayout.targets.litert.slow_operators import rewrite_slow_operators

    if final.is_rewritten:
        final.counts += rewrite_slow_operators(final.model.graph)


def _move_views_out(final: FinalGraph) -> None:
    from relayout.targets.litert.quantized_units import move_views_out

    move_views_out(final.model.graph)


def _read_integers(final: FinalGraph) -> None:
    from relayout.targets.litert.integer_scales import read_integers

    read_integers(final.model.graph)


def _separate_activations(final: FinalGraph) -> None:
    from relayout.targets.litert.quantized_units import separate_activations

    separate_activations(final.model.graph, as_source=final.is_litert)


def _make_symmetric(final: FinalGraph) -> None:
    from relayout.targets.litert.integer_scales import PRODUCT, make_second_operands_symmetric

    if not final.is_rewritten or final.unsigned:
        return
    if products := make_second_operands_symmetric(final.model.graph, final.units):
        final.counts[PRODUCT] += products
        del final.units


FINAL: Mapping[str, Callable[[FinalGraph], None]] = {
    "products-of-einsums": _write_einsums,
    "slow-operators": _rewrite_slow_operators,
    "move-views-out": _move_views_out,
    "read-integers": _read_integers,
    "separate-activations": _separate_activations,
    "symmetric-operands": _make_symmetric,
}
"""Pass -> what it does to a graph that becomes a `.tflite`, in place."""


def final_graph(model: ir.Model, target: "Target | None") -> FinalGraph:
    """Run the last passes over a graph that becomes a `.tflite`, in place."""
    from relayout.targets.litert.slow_operators import LINE

    final = FinalGraph(model, is_litert=target is None or target.is_litert)
    for row in passes_of((), "tflite", Stage.FINAL):
        FINAL[row.name](final)
    if final.counts:
        add_notes(model, f"{LINE}: {', '.join(f'{count} {name}' for name, count in sorted(final.counts.items()))}")
    return final
