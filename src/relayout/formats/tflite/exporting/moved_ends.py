"""Inputs and outputs on integers that are only moved: they mean what the moved integers mean.

    x int8 -> RESHAPE -> int8 = 0.02 · (q + 5)    ->    x int8 = 0.02 · (q + 5)

In ONNX an integer has no scale until it is dequantized, which may be behind a Reshape. Apps read how to quantize their
data from the file's inputs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from relayout.formats.tflite.container.model import Quantization
from relayout.formats.tflite.exporting.draft import Draft, DraftTensor
from relayout.formats.tflite.exporting.tidying import MOVED, MOVERS


def give_meaning(draft: Draft, raw: Container[str | None]) -> None:
    """Give such inputs and outputs their scales and zero points, in place.

    Args:
        draft: the main graph.
        raw: inputs whose integers the file normalizes itself: they are read as other numbers.
    """
    for tensor in filter(_is_without_meaning, draft.inputs):
        readers = [operator for operator in draft.operators if tensor in operator.inputs]
        if tensor.name not in raw and all(each.name in MOVERS for each in readers):
            tensor.quantization = _common(each.outputs[0].quantization for each in readers)
    producers = {tensor: operator for operator in draft.operators for tensor in operator.outputs}
    for tensor in filter(_is_without_meaning, draft.outputs):
        producer = producers.get(tensor)
        source = producer.inputs[0] if producer is not None and producer.name in MOVERS else None
        tensor.quantization = None if source is None else _common([source.quantization])


def _is_without_meaning(tensor: DraftTensor) -> bool:
    return tensor.quantization is None and tensor.type in MOVED


def _common(meanings: Iterable[Quantization | None]) -> Quantization | None:
    """Return what all mean, with one scale for all elements; None where they do not agree."""
    first, *others = [*meanings] or [None]
    if first is None or first.per_channel or not all(each is not None and first.equals(each) for each in others):
        return None
    return first
