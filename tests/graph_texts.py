"""Graphs in ONNX's text form, and what is fed to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser, shape_inference

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'


def model(text: str, **constants: NDArray[Any]) -> onnx.ModelProto:
    """A graph with its constants, shapes inferred."""
    proto = parser.parse_model(HEADER + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return shape_inference.infer_shapes(proto, data_prop=True)


def floats(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)
