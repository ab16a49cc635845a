"""The default: what is done to a `.tflite` for every runtime, beside its literal import.

Each of these is no worse on any runtime: a graph that spells out an operator of ONNX becomes that operator. The result
runs on every ONNX Runtime from 1.23 on, the runtime that lacks the most kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relayout.formats.tflite.importing.import_passes import ImportPasses

LAYER_NORM = "relayout.lowering.recognise_layer_norm", "layer_normalized"
RECURRENT = "relayout.lowering.recognise_recurrent.rows", "by_rows"


def portable() -> ImportPasses:
    """Return the passes of an import for any runtime."""
    from relayout.formats.tflite.importing.import_passes import ImportPasses, on_use
    from relayout.formats.tflite.importing.operation import FoldingOperation
    from relayout.targets.onnxruntime.operation_forms import IN_PLACE_OF

    recognised = {"ADD": (on_use(*LAYER_NORM),), "WHILE": (on_use(*RECURRENT),)}
    return ImportPasses(alternatives=recognised, stand_ins=IN_PLACE_OF, operation=FoldingOperation)


def nothing() -> ImportPasses:
    """Return no passes: the literal import."""
    from relayout.formats.tflite.importing.import_passes import LITERAL

    return LITERAL
