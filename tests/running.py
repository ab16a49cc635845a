"""Run an ONNX model as it is written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray


def run(model: onnx.ModelProto, feed: Mapping[str, NDArray[np.generic]]) -> list[NDArray[np.generic]]:
    """The model's outputs, with no optimization of the runtime's own."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feed))]
