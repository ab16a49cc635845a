"""A result as a `.tflite` file: its operators exported, its signature and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from relayout.targets.litert.quantized_units import keeps_unsigned, quantized_units

if TYPE_CHECKING:
    from relayout.formats.tflite.container.model import Model

METADATA = "relayout"
"""The name of the metadata buffer in which a file says what its tensors hold of its source, as JSON."""
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
    unsigned = keeps_unsigned(model)
    units = quantized_units(model, unsigned=unsigned)
    key = model.metadata_props.get(SIGNATURE) or DEFAULT_SIGNATURE
    return export(model, units=units, unsigned=unsigned, signature=key, metadata=_metadata(model))


def _metadata(model: ir.Model) -> Mapping[str, bytes]:
    """Return what the file says of its tensors: the interface that was converted, and where values lie."""
    said: dict[str, object] = {"schema": 1}
    if interface := model.metadata_props.get("relayout.interface"):
        said["interface"] = json.loads(interface)
    values = [
        *model.graph.inputs,
        *(value for node in model.graph for value in node.outputs),
    ]
    held = {
        value.name: dict(value.metadata_props)
        for value in values
        if value.name and any(key.startswith("relayout.") for key in value.metadata_props)
    }
    if held:
        said["values"] = held
    if len(said) == 1:
        return {}
    return {METADATA: json.dumps(said, ensure_ascii=False, sort_keys=True).encode()}
