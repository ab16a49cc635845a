"""A result as a `.tflite` file: its operators exported, its signature and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.formats.tflite.provenance import BUFFER, provenance_of
from relayout.targets.litert.quantized_units import quantized_units

if TYPE_CHECKING:
    from relayout.formats.tflite.container.model import Model

SIGNATURE = "tflite.signature"
"""Metadata of a model that was a `.tflite`: the key of its signature."""
DEFAULT_SIGNATURE = "serving_default"


def tflite_model(model: ir.Model) -> Model:
    """Export a model whose layouts are chosen.

    Raises:
        UnsupportedError: operators that TensorFlow Lite cannot express, all of them with reason and count.
    """
    from relayout.formats.onnx import complete
    from relayout.formats.tflite.exporting.exporter import export

    complete(model)
    units = quantized_units(model)
    key = model.metadata_props.get(SIGNATURE) or DEFAULT_SIGNATURE
    return export(model, units=units, signature=key, describe=lambda tensors: _metadata(model, tensors))


def _metadata(model: ir.Model, tensors: Mapping[str, list[ir.Value]]) -> Mapping[str, bytes]:
    """Return the metadata buffers of a file, of which each tensor is some values of the model."""
    found = provenance_of(model, tensors)
    return {} if found.is_empty else {BUFFER: found.dump()}
