"""Quantize a float ONNX model by ONNX Runtime: int8, scales for channels, calibrated on random numbers."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx

SAMPLES, SEED = 4, 5


def quantize(source: Path, path: Path, *, symmetric: bool = True) -> None:
    """Write the QDQ version of a model.

    Args:
        source: its inputs are floats of fixed extents.
        path: of the result.
        symmetric: whether zero points of activations are 0; quantize_static's own default is that they are not.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.samples = iter(samples(source))

        def get_next(self) -> dict[str, Any] | None:
            return next(self.samples, None)

    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(
        str(source),
        str(path),
        Reader(),
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        extra_options={"ActivationSymmetric": symmetric, "WeightSymmetric": True},
    )


def samples(source: Path) -> list[dict[str, Any]]:
    """Return random inputs of a model."""
    rng = np.random.default_rng(SEED)
    graph = onnx.load(source, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in graph.input
        if value.name not in constants
    }
    return [{name: rng.random(shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(SAMPLES)]


def integer_ends(path: Path) -> tuple[list[str], list[str]]:
    """Return the integers behind a QDQ model's inputs, and those before its outputs."""
    graph = onnx.load(path, load_external_data=False).graph
    first = {node.input[0]: node.output[0] for node in graph.node if node.op_type == "QuantizeLinear"}
    last = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    inputs = [first.get(value.name, value.name) for value in graph.input]
    return inputs, [last.get(value.name, value.name) for value in graph.output]
