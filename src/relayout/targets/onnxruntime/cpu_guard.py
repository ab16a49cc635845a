"""The stamp of a model that is right on some CPUs only: in blocks of how many channels its kernels compute.

No node of `com.microsoft.nchwc` says it, and ONNX Runtime on a CPU with other blocks gives wrong numbers without a
word. So what is written here says it in the model's metadata, and what does not is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.apply.blocks import BlockSizes
from relayout.errors import WITH_RUNTIMES, LayoutError, MissingRuntimeError
from relayout.graph.subgraphs import all_nodes

if TYPE_CHECKING:
    from relayout.targets.target_table import Kernel

DOMAINS = frozenset({"com.microsoft.nchwc"})
"""Domains of kernels that do not say how large the blocks are in which they compute."""
BLOCK, FEATURES = "relayout.nchwc_block", "relayout.cpu_features"
"""Metadata of a model with such kernels: channels in a block, and what a CPU has that computes in such blocks."""
HINT = "convert its source with --target onnxruntime-cpu-nchwc"
SIZES = (1, 8, 16)


def stamp_cpu(model: ir.Model, blocks: BlockSizes) -> None:
    """Say in a model's metadata on which CPUs it is right."""
    model.metadata_props[BLOCK], model.metadata_props[FEATURES] = str(blocks.tile), blocks.features


def state_blocks(model: ir.Model, blocks: BlockSizes, kernels: Sequence[Kernel]) -> tuple[str, ...]:
    """State the shapes of operands in blocks as their kernels want them, in place; return sentences for the report."""
    if blocks.domain not in {node.domain for node in all_nodes(model.graph)}:
        return ()
    from relayout.lowering.pad_channels import join_tiles

    reshapes = join_tiles(model, blocks.joining)
    stamp_cpu(model, blocks)
    notes = [f"kernels in blocks of {blocks.tile} channels; Reshapes around them, which move nothing: {reshapes}"]
    rows = [row for row in kernels if row.written is not None and row.written.domain == blocks.domain]
    kinds = {(row.domain, name) for row in rows for name in row.op_types.split()}
    if plain_count := sum((node.domain, node.op_type) in kinds for node in all_nodes(model.graph)):
        notes.append(
            f"convolutions and pools that are not in blocks, since these do not fit or do not pay: {plain_count}"
        )
    return *notes, note(model)


def pass_on(source: Mapping[str, str], part: MutableMapping[str, str]) -> None:
    """Give a part of a model the stamp of the whole."""
    part.update({key: source[key] for key in (BLOCK, FEATURES) if key in source})


def has_unstated_blocks(model: ir.Model) -> bool:
    """Tell whether a model has kernels that do not state the size of their blocks."""
    if DOMAINS.isdisjoint(model.opset_imports):
        return False
    nodes = [*all_nodes(model.graph), *(node for function in model.functions.values() for node in all_nodes(function))]
    return any(node.domain in DOMAINS for node in nodes)


def stamped(model: ir.Model) -> int | None:
    """Channels in a block of a model's kernels, as it says; None: it has no such kernels.

    Raises:
        LayoutError: it has some, and does not say.
    """
    if not has_unstated_blocks(model):
        return None
    text = model.metadata_props.get(BLOCK, "")
    if not text:
        raise LayoutError(
            f"the model has operators of com.microsoft.nchwc, and does not say ({BLOCK} in its metadata) in blocks of"
            f" how many channels they compute: on a CPU with others its results are wrong; {HINT}"
        )
    if not text.isdecimal() or int(text) not in SIZES:
        raise LayoutError(f"the model's metadata says {BLOCK} = {text[:20]!r}: blocks have 8 or 16 channels; {HINT}")
    return int(text)


def note(model: ir.Model) -> str:
    """Return the report's note on a model that is right on some CPUs only; empty for any other model.

    Raises:
        LayoutError: it does not say on which.
    """
    tile = stamped(model)
    if tile is None:
        return ""
    features = model.metadata_props.get(FEATURES, "")
    return f"right only on CPUs for which ONNX Runtime has blocks of {tile} channels ({features or 'not said which'})"


def refuse_others(model: ir.Model, blocks: BlockSizes | None) -> None:
    """Refuse to write kernels for blocks of one size beside those of another.

    Raises:
        LayoutError: a model has some, or does not say which it has.
    """
    tile = stamped(model)
    if tile is not None and blocks is not None and tile != blocks.tile:
        raise LayoutError(
            f"the model computes in blocks of {tile} channels already, and the target has them of {blocks.tile}; {HINT}"
        )


def refuse_elsewhere(model: ir.Model) -> None:
    """Refuse to run a model on a CPU on which it is wrong.

    Raises:
        LayoutError: this is one, or the model does not say where it is right.
        MissingRuntimeError: ONNX Runtime, which knows, is not installed.
    """
    tile = stamped(model)
    if tile is not None and tile != (here := block_here()):
        raise LayoutError(
            f"the model computes in blocks of {tile} channels ({model.metadata_props.get(FEATURES, '')}), and ONNX"
            f" Runtime has blocks of {here} on this CPU: its results would be wrong here; {HINT}"
        )


@cache
def block_here() -> int:
    """Channels in a block of ONNX Runtime's kernels on this CPU, found by bringing an image into blocks; 1: none.

    Raises:
        MissingRuntimeError: ONNX Runtime is not installed.
        LayoutError: it has no such kernels.
    """
    import numpy as np
    from onnx import TensorProto, helper

    try:
        import onnxruntime
    except ImportError as error:
        raise MissingRuntimeError(
            f"to find the size of this CPU's blocks needs ONNX Runtime: {WITH_RUNTIMES} ({error})"
        ) from None
    channels = 4 * max(SIZES)
    (domain,) = DOMAINS
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=domain)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 1, 2]) for name in "xy"]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    model = helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=imports, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    image = np.arange(2 * channels, dtype=np.float32).reshape(1, channels, 1, 2)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (stored_image,) = session.run(None, {"x": image})
    except Exception as error:  # whatever the runtime raises
        raise LayoutError(f"ONNX Runtime has no kernels for blocks of channels here ({str(error)[:200]})") from None
    for tile in SIZES:
        if np.array_equal(np.asarray(stored_image).ravel(), image.reshape(-1, tile, 2).transpose(0, 2, 1).ravel()):
            return tile
    raise LayoutError("ONNX Runtime has blocks of another size here than relayout knows")
