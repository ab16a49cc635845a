"""Passes over a `.tflite` for ONNX Runtime's CPU provider, beside its literal import: all of them save time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.import_passes import ImportPasses

ROOM = "relayout.targets.onnxruntime"
VNNI, WITHOUT_VNNI = "unrolled", "unrolled_without_vnni"
ALTERNATIVES = {
    "ADD": ("channel_constants.normalized", "recognised_forms.layer_norm_of_rows"),
    "AVERAGE_POOL_2D": ("average_pool_as_conv.average_pool_as_conv",),
    "CONV_2D": ("space_to_depth_stem.condensed", "hybrid_products.{unrolled}", "merge_conv_groups.merged_conv"),
    "DEPTHWISE_CONV_2D": ("merge_conv_groups.merged_depthwise",),
    "FULLY_CONNECTED": ("hybrid_products.integer_product", "hybrid_products.product_by_blocks"),
    **dict.fromkeys(
        ("BIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), ("lstm_in_pieces.lstm_in_pieces",)
    ),
    "MEAN": ("average_pool_as_conv.mean_as_pool",),
    "MUL": ("channel_constants.weighted",),
    "PRELU": ("channel_constants.real_slopes",),
    "TILE": ("operation_forms.tile_as_concat",),
    "TRANSPOSE_CONV": ("subpixel_transposed_conv.transposed_conv_in_blocks",),
    "WHILE": ("recognised_forms.recurrent_rows",),
}
"""TensorFlow Lite operator -> modules of this room and their functions, in the order in which they are tried."""


def with_vnni() -> ImportPasses:
    """Return the passes of an import where products of int8 do not saturate."""
    return _passes(VNNI)


def without_vnni() -> ImportPasses:
    """Return the passes of an import where they do, and kernels will be stored as uint8."""
    return _passes(WITHOUT_VNNI)


def _passes(unrolled: str) -> ImportPasses:
    from relayout.formats.tflite.importing.import_passes import ImportPasses, on_use
    from relayout.targets.onnxruntime import uint8_activations
    from relayout.targets.onnxruntime.operation_forms import IN_PLACE_OF, OnnxRuntimeOperation

    alternatives = {
        name: tuple(on_use(*f"{ROOM}.{each.format(unrolled=unrolled)}".rsplit(".", 1)) for each in each_of)
        for name, each_of in ALTERNATIVES.items()
    }
    passes = uint8_activations.PADDING_PASS, uint8_activations.PASS, uint8_activations.WEIGHTS_PASS
    return ImportPasses(passes, alternatives, IN_PLACE_OF, OnnxRuntimeOperation)
