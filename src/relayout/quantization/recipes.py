"""Recipes of ai-edge-quantizer, which say what becomes of each operator: JSON types.

Of the rows that match an operator the last one counts. A row names operators by a regular expression of the tensors
that they give.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from relayout.quantization.request import QuantizationRequest

ALL = "*"
BY_CHANNEL, BY_TENSOR = "CHANNELWISE", "TENSORWISE"
HALVED = ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D_TRANSPOSE", "EMBEDDING_LOOKUP")
"""Operators whose weights may be halves, by the quantizer's names."""
ONE_SCALE = ("BATCH_MATMUL",)
"""Operators whose kernels on integers know one scale of constants alone: with one for each channel they compute 0."""
ENDS = {"INPUT": "input_type", "OUTPUT": "output_type"}
"""The quantizer's name of an end -> the field of a request."""

Row = dict[str, Any]


def recipe(request: QuantizationRequest, float_tensors: Iterable[str] = ()) -> list[Row]:
    """Return the rows of a request.

    Args:
        request: what is asked for.
        float_tensors: results of operators that stay float.
    """
    if request.kind == "float16":
        rows = [_row(name, _weights(16, "FLOAT"), "FLOAT", algorithm="float_casting") for name in HALVED]
    elif request.kind == "dynamic":
        rows = [_row(ALL, _weights(8, "INT"), "INTEGER")]
        rows += [_row(name, _weights(8, "INT", BY_TENSOR), "INTEGER") for name in ONE_SCALE]
    else:
        activations = _tensor(16, True, "INT") if request.kind == "int16x8" else _tensor(8, False, "INT")
        rows = [_row(ALL, _weights(8, "INT"), "INTEGER", activations)]
        rows += [_row(name, _weights(8, "INT", BY_TENSOR), "INTEGER", activations) for name in ONE_SCALE]
        rows += list(_ends(request))
    return [*rows, *({"regex": f"^{re.escape(name)};$", **_FLOAT} for name in float_tensors)]


_FLOAT: Row = {"operation": ALL, "algorithm_key": "no_quantize", "op_config": {"compute_precision": "FLOAT"}}


def _ends(request: QuantizationRequest) -> Iterable[Row]:
    """Yield a row for inputs and one for outputs, where they are not the integers of the graph."""
    for name, field in ENDS.items():
        kind = getattr(request, field)
        if kind in (None, "float32"):
            yield {"regex": ".*", **_FLOAT, "operation": name}
        elif kind == "uint8":
            yield _row(name, _weights(8, "INT"), "INTEGER", _tensor(8, False, "UINT"))


def _tensor(bits: int, symmetric: bool, dtype: str, granularity: str = BY_TENSOR) -> Row:
    return {"num_bits": bits, "symmetric": symmetric, "granularity": granularity, "dtype": dtype}


def _weights(bits: int, dtype: str, granularity: str = BY_CHANNEL) -> Row:
    return _tensor(bits, True, dtype, granularity)


def _row(
    operation: str,
    weights: Row,
    precision: str,
    activations: Row | None = None,
    algorithm: str = "min_max_uniform_quantize",
) -> Row:
    config = {
        **({} if activations is None else {"activation_tensor_config": activations}),
        "weight_tensor_config": weights,
        "compute_precision": precision,
        "explicit_dequantize": precision == "FLOAT",
        "skip_checks": False,
        "min_weight_elements": 0,
    }
    return {"regex": ".*", "operation": operation, "algorithm_key": algorithm, "op_config": config}
