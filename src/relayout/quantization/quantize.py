"""Quantize a `.tflite` as requested."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from relayout.errors import LayoutError, NamesError, nearest
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.model import Model
from relayout.formats.tflite.container.writer import save
from relayout.quantization.engine import quantized_file
from relayout.quantization.findings import (
    BYTES,
    QuantizationSummary,
    computed_divisors,
    joined_outputs,
    summary_of,
)
from relayout.quantization.recipes import recipe
from relayout.quantization.request import QuantizationRequest
from relayout.quantization.samples import WHITE, ModelInput, Samples

PIECES = ("/", "__")
"""What follows the name of a value in the names of tensors that stand for a part of its operator."""
KEPT = "--keep-float"


def quantize_file(
    file: Model,
    request: QuantizationRequest,
    inputs: Sequence[ModelInput],
    operators: Mapping[str, str],
) -> tuple[Model, QuantizationSummary]:
    """Return a file quantized, and what became of it.

    Args:
        file: a float `.tflite`.
        request: what is asked for.
        inputs: what samples have.
        operators: name of an operator of the source -> the value that it gives.

    Raises:
        LayoutError: the file has integers already.
        SampleError: the samples are not what the model is fed.
        QuantizationError: the quantizer or LiteRT refuses the file.
    """
    refuse_quantized(file, request.kind)
    samples = Samples(request.samples, inputs) if request.is_calibrated else None
    reasons = dict.fromkeys(_named(file, request.keep_float, operators), KEPT)
    reasons |= computed_divisors(file) if request.is_calibrated else {}
    pixels = {
        each.tensor: (0.0, float(WHITE))
        for each in inputs
        if each.normalization is not None and request.input_type == "uint8"
    }
    with tempfile.TemporaryDirectory(prefix="relayout-quantize-") as directory:
        source, result = Path(directory) / "float.tflite", Path(directory) / "quantized.tflite"
        save(file, source)
        key = file.signatures[0].key
        ranges, count = quantized_file(source, result, recipe(request, reasons), key, samples, pixels)
        quantized = _with_names_of_ends(load(result.read_bytes())._replace(files=file.files), file)
    joined = joined_outputs(file, ranges) if request.kind == "int8" else ()
    return quantized, summary_of(request.kind, count, quantized, reasons, joined)


def _with_names_of_ends(quantized: Model, file: Model) -> Model:
    """Return a model whose inputs and outputs have the names of the float file's: its metadata speaks of them.

    The quantizer gives the name to the integers beside an end, and the end another one: both change places.
    """
    graphs = []
    for graph, before in zip(quantized.subgraphs, file.subgraphs, strict=True):
        places = {tensor.name: tensor.index for tensor in graph.tensors}
        names: dict[int, str] = {}
        for own, old in zip((*graph.inputs, *graph.outputs), (*before.inputs, *before.outputs), strict=True):
            name, wanted = graph.tensors[own].name, before.tensors[old].name
            if name != wanted and own not in names:
                names |= {places[wanted]: name} if wanted in places else {}
                names[own] = wanted
        tensors = tuple(
            replace(tensor, name=names[tensor.index]) if tensor.index in names else tensor for tensor in graph.tensors
        )
        graphs.append(graph._replace(tensors=tensors))
    return quantized._replace(subgraphs=tuple(graphs))


def refuse_quantized(file: Model, kind: str) -> None:
    """Refuse a file that has integers with a scale.

    Raises:
        LayoutError: it has.
    """
    count = sum(
        any(graph.tensors[each].type in BYTES and graph.tensors[each].quantization is not None for each in row.outputs)
        for graph in file.subgraphs
        for row in graph.operators
    )
    if count:
        raise LayoutError(
            f"--quantize {kind}: the source is quantized already ({count} operators on integers): leave --quantize out,"
            " or read a .tflite with --quant float first"
        )


def _named(file: Model, names: Sequence[str], operators: Mapping[str, str]) -> list[str]:
    """Return the tensors that operators give which the user names.

    Raises:
        NamesError: a name is none of the file's.
    """
    given = [
        graph.tensors[each].name for graph in file.subgraphs for row in graph.operators for each in row.outputs[:1]
    ]
    chosen: dict[str, None] = {}
    for name in names:
        pattern = operators.get(name, name)
        matches = [each for each in given if _stands_for(each, pattern)]
        if not matches:
            known = [*operators, *given]
            raise NamesError(f"{KEPT} {name}: no operator of the result gives that{nearest(name, known)}")
        chosen |= dict.fromkeys(matches)
    return list(chosen)


def _stands_for(tensor: str, name: str) -> bool:
    """Return whether a tensor has a name, or is a part of the operator that gives the value of that name."""
    if tensor == name or fnmatchcase(tensor, name):
        return True
    return any(tensor.startswith(f"{name}{mark}") for mark in PIECES)
