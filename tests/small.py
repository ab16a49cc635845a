"""Small graphs from a few lines of text, and inputs for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser, shape_inference

Array = NDArray[np.generic]
DOMAINS = ("com.microsoft", "some.where")


def constant(name: str, given: Any) -> onnx.TensorProto:
    """A tuple is the shape of random floats; a list, integers; anything else, an array."""
    if isinstance(given, tuple):
        given = np.random.default_rng(3).normal(size=given).astype(np.float32)
    return numpy_helper.from_array(np.array(given, np.int64) if isinstance(given, list) else np.asarray(given), name)


def build(
    inputs: str,
    text: str,
    constants: Mapping[str, Any],
    *,
    opset: int = 21,
    outputs: tuple[str, ...] = (),
    functions: str = "",
) -> onnx.ModelProto:
    """A graph in ONNX's text form, with shapes inferred; `T0312(` is a Transpose.

    Args:
        inputs: `float[2,3] x, int64[n] s`.
        text: its nodes.
        constants: name -> value.
        opset: of the standard's domain.
        outputs: what it gives besides the values that nothing reads.
        functions: definitions of model-local functions.
    """
    text = re.sub(r"\bT(\d+)\(", lambda found: f"Transpose<perm=[{','.join(found[1])}]>(", text)
    imports = ", ".join([f'"": {opset}', *(f'"{domain}": 1' for domain in DOMAINS)])
    model = parser.parse_model(
        f"<ir_version: 10, opset_import: [{imports}]> g ({inputs}) => () {{ {text} }} {functions}"
    )
    model.graph.initializer.extend(constant(name, given) for name, given in constants.items())
    read = {name for node in model.graph.node for name in node.input}
    given = [name for node in model.graph.node for name in node.output if name]
    ends = [name for name in given if name in outputs or name not in read]
    inferred = shape_inference.infer_shapes(model, data_prop=True)
    known = {value.name: value for value in inferred.graph.value_info}
    found = [known.pop(name, onnx.ValueInfoProto(name=name)) for name in ends]
    del inferred.graph.value_info[:]
    inferred.graph.value_info.extend(known.values())
    inferred.graph.output.extend(found)
    return inferred


def feed_of(
    model: onnx.ModelProto, extents: Mapping[str, int], fixed: Mapping[str, Any] | None = None
) -> dict[str, Array]:
    """Random inputs; dynamic extents by name, and the inputs whose values matter."""
    rng = np.random.default_rng(1)
    feed: dict[str, Array] = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = [dim.dim_value if dim.HasField("dim_value") else extents[dim.dim_param] for dim in tensor.shape.dim]
        if fixed and value.name in fixed:
            feed[value.name] = np.array(fixed[value.name], dtype)
        elif dtype.kind == "f":
            feed[value.name] = rng.normal(size=shape).astype(dtype)
        else:
            feed[value.name] = rng.integers(0, 2, shape).astype(dtype)
    return feed
