"""What tf2onnx and tflite2onnx leave: run-time Transposes and bytes per model, into tests/data/peers.json.

    python bench/peers_left.py ../shared/models/tflite/coral ../shared/models/tflite/tflite2onnx

Needs tf2onnx, tflite2onnx and TensorFlow (an environment of its own). A model that a peer refuses is left out. Bytes
are those of the transposed value, from ONNX's shape inference, with a dynamic dimension counted as 1.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, shape_inference

OPSET = 18


def left(model: onnx.ModelProto) -> tuple[int, int]:
    """Transposes of values that depend on an input and move more than size-1 axes; their bytes.

    Raises:
        ValueError: ONNX does not infer the shape of a transposed value.
    """
    inferred = shape_inference.infer_shapes(model).graph
    shapes, sizes = {}, {}
    for value in (*inferred.value_info, *inferred.input, *inferred.output):
        tensor = value.type.tensor_type
        if all(dim.HasField("dim_value") or dim.dim_param for dim in tensor.shape.dim):
            shapes[value.name] = [dim.dim_value or 1 for dim in tensor.shape.dim]
        sizes[value.name] = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type or 1)).itemsize
    constants = {tensor.name for tensor in inferred.initializer} | {""}
    count = total = 0
    for node in inferred.node:
        if all(name in constants for name in node.input) and not any(a.HasField("g") for a in node.attribute):
            constants.update(node.output)
        elif node.op_type == "Transpose":
            known = next((name for name in (node.input[0], node.output[0]) if name in shapes), None)
            if known is None:
                raise ValueError(f"{node.name}: unknown shape")
            shape = shapes[known]
            perm = next((list(a.ints) for a in node.attribute if a.name == "perm"), list(range(len(shape)))[::-1])
            if known == node.output[0]:
                shape = [shape[perm.index(axis)] for axis in range(len(shape))]
            large = [axis for axis in perm if shape[axis] != 1]
            if large != sorted(large):
                count += 1
                total += int(np.prod(shape)) * sizes[known]
    return count, total


def tf2onnx_model(path: Path) -> onnx.ModelProto:
    import tf2onnx

    return tf2onnx.convert.from_tflite(str(path), opset=OPSET)[0]


def tflite2onnx_model(path: Path) -> onnx.ModelProto:
    import tflite2onnx

    with tempfile.TemporaryDirectory() as folder:
        tflite2onnx.convert(str(path), f"{folder}/model.onnx")
        return onnx.load(f"{folder}/model.onnx")


def main() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    paths = [path for folder in map(Path, sys.argv[1:]) for path in sorted(folder.glob("*.tflite"))]
    table: dict[str, dict[str, list[int]]] = {f"{path.parent.name}/{path.name}": {} for path in paths}
    # tflite2onnx first: it cannot be imported once tf2onnx has brought in TensorFlow.
    for name, convert in (("tflite2onnx", tflite2onnx_model), ("tf2onnx", tf2onnx_model)):
        for path in paths:
            try:
                table[f"{path.parent.name}/{path.name}"][name] = list(left(convert(path)))
            except BaseException as error:
                print(f"{path.name}: {name} refused ({type(error).__name__})", file=sys.stderr)
    Path("tests/data/peers.json").write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
