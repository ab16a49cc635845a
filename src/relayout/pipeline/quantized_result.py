"""A `.tflite` result whose file is quantized."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from relayout.formats.tflite.container.model import Model, Tensor
from relayout.formats.tflite.container.transposes import transposes
from relayout.formats.tflite.container.versions import min_runtime_version
from relayout.formats.tflite.exporting.draft import NUMPY
from relayout.formats.tflite.exporting.older import lacking
from relayout.formats.tflite.exporting.refusals import UnwritableGraphError
from relayout.graph.passes import Stage
from relayout.graph.source_names import known_as
from relayout.graph.subgraphs import all_nodes
from relayout.layout.normalization import NORMALIZE, Normalization
from relayout.layout.stored_as import RENAMED, TENSOR, Holds
from relayout.lowering.passes import passes_of
from relayout.pipeline.result import Result
from relayout.quantization.quantize import quantize_file
from relayout.quantization.request import QuantizationRequest
from relayout.quantization.samples import ModelInput, Samples
from relayout.reports.report import Interface, frequencies


def quantized_result(result: Result, request: QuantizationRequest) -> Result:
    """Return a result with its file quantized, and what its report says of that.

    Raises:
        RelayoutError: the samples do not fit the model, or it cannot be quantized.
    """
    assert result.file is not None
    values = ((node.name, known_as(node.outputs[0])) for node in all_nodes(result.model.graph))
    names = {name or value: value for name, value in values}
    for_litert = result.target is None or result.target.is_litert
    inputs = model_inputs(result.model, result.file)
    builtins = None if result.target is None else result.target.builtins

    def finish(quantized: Model) -> Model:
        for each in passes_of(Stage.WRITTEN):
            quantized = each.run(None, file=quantized, builtins=builtins)
        return quantized

    file, summary = quantize_file(result.file, request, inputs, names, for_litert=for_litert, finish=finish)
    if missing := lacking(file, builtins):
        raise UnwritableGraphError(missing, set(), f"what stays float: {'; '.join(summary.lines()[1:]) or 'nothing'}")
    count, size = transposes(file)
    before = result.report
    share = before.bytes // size if size and count == before.transposes and before.bytes % size == 0 else 1
    least = size if before.bytes == before.lower_bound else before.lower_bound * size // max(before.bytes, 1)
    report = replace(
        before,
        operators=frequencies(operator.name for graph in file.subgraphs for operator in graph.operators),
        transposes=count,
        bytes=size,
        lower_bound=least,
        remains=before.remains.divided(share),
        min_runtime=min_runtime_version(file),
        interface=tuple(_with_type(end, file) for end in before.interface),
        quantization=summary,
    )
    return replace(result, file=file, report=report)


def _with_type(end: Interface, file: Model) -> Interface:
    """Return an input or output with the type and the meaning of its numbers in a file."""
    (signature, *_) = file.signatures
    index = dict((*signature.inputs, *signature.outputs)).get(end.name)
    tensor = None if index is None else file.subgraphs[signature.subgraph].tensors[index]
    meaning = None if tensor is None else tensor.quantization
    if tensor is None or meaning is None or meaning.per_channel:
        return end
    scale, zero = float(meaning.scale[0]), int(meaning.zero_point[0])
    return end._replace(dtype=tensor.type.name.lower(), scale=scale, zero_point=zero)


def first_sample(
    result: Result,  # a quantized result
    source: Any,  # the samples
) -> dict[str, Any]:
    """Return the first sample of a calibration, as the source is fed it."""
    assert result.file is not None
    samples = Samples(source, model_inputs(result.model, result.file))
    next(iter(samples))
    return samples.first


def model_inputs(model: ir.Model, file: Model) -> list[ModelInput]:
    """Return the inputs of a result's file as its source has them."""
    (signature, *_) = file.signatures
    tensors = dict(signature.inputs)
    graph = file.subgraphs[signature.subgraph]
    return [
        _input(value, _type_of(graph.tensors[tensors[value.name]]))
        for value in model.graph.inputs
        if value.name in tensors
    ]


def _type_of(tensor: Tensor) -> np.dtype[Any]:
    """Return the type of the numbers of which samples are: those that integers with a scale mean."""
    return np.dtype(np.float32 if tensor.quantization is not None else NUMPY[tensor.type])


def _input(value: ir.Value, dtype: np.dtype[Any]) -> ModelInput:
    notes = value.metadata_props
    stored = tuple(extent if isinstance(extent, int) else None for extent in value.shape or ())
    name = value.name or ""
    source_values = Holds.of(notes)
    names = (name, notes.get(TENSOR, name))
    own = next(
        (each for each in source_values if each.name in names),
        source_values[0] if RENAMED in value.meta and source_values else None,
    )
    if own is not None and own.name != names[1]:
        name = own.name
    shape = stored if own is None else tuple(None if extent < 0 else extent for extent in own.shape)
    normalization = Normalization.stored(notes[NORMALIZE], source_values, stored) if NORMALIZE in notes else None
    return ModelInput(name, value.name or "", names[1], shape, stored, dtype, own, normalization)
