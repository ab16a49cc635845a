"""Print what operators cost on an Ethos-U in an order of axes, by Vela's estimates: the prices of `--target ethos-u`.

    python bench/measure_npu_prices.py [--vela PROGRAM]

Each operator is a model of int8 alone. `src/relayout/targets/ethos_u/table.py` has what follows from the figures.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from by_vela import PROGRAM, judge
from onnx import TensorProto, helper, numpy_helper
from tables import table

import relayout

IMAGES = ((1, 32, 48, 64), (1, 56, 56, 64), (1, 112, 112, 32), (1, 2, 2, 4))
"""Extents in stored order; of the last the cycles are those of starting."""
SCALE = 0.05


def unit(op_type: str, shape: tuple[int, ...], *constants: np.ndarray, **attributes: Any) -> onnx.ModelProto:  # type: ignore[type-arg]
    """Return a model of one quantized unit of int8."""
    names = [f"c{place}" for place in range(len(constants))]
    ends = ["scale", "zero"]
    nodes = [
        helper.make_node("DequantizeLinear", ["x", *ends], ["real"]),
        helper.make_node(op_type, ["real", *names], ["result"], **attributes),
        helper.make_node("QuantizeLinear", ["result", *ends], ["y"]),
    ]
    values = {
        "scale": np.array(SCALE, np.float32),
        "zero": np.array(0, np.int8),
        **dict(zip(names, constants, strict=True)),
    }
    graph = helper.make_graph(
        nodes,
        "unit",
        [helper.make_tensor_value_info("x", TensorProto.INT8, shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT8, None)],
        [numpy_helper.from_array(array, name) for name, array in values.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def operators(shape: tuple[int, ...]) -> Iterator[tuple[str, onnx.ModelProto]]:
    for perm in ((0, 3, 1, 2), (0, 2, 3, 1), (0, 2, 1, 3), (0, 1, 3, 2)):
        yield f"Transpose {perm}", unit("Transpose", shape, perm=perm)
    for axis in (1, 2, 3):
        yield f"ReduceMax {axis}", unit("ReduceMax", shape, np.array([axis], np.int64))
        yield f"ReduceMean {axis}", unit("ReduceMean", shape, np.array([axis], np.int64))
        pads = np.zeros(8, np.int64)
        pads[[axis, 4 + axis]] = 1
        yield f"Pad {axis}", unit("Pad", shape, pads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vela", default=PROGRAM)
    given = parser.parse_args()
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "unit.tflite"
        for shape in IMAGES:
            for name, model in operators(shape):
                relayout.convert(model, format="tflite", target="litert").save(path)
                found = judge(path, path.parent, program=given.vela)
                each = found.cycles / np.prod(shape)
                where = ", ".join(found.on_cpu) or f"{each:.3f}"
                lines.append([name, " × ".join(map(str, shape)), f"{found.cycles:,}", where])
    print(table(["operator", "stored", "cycles", "for a byte, or on the CPU"], lines, left=2))


if __name__ == "__main__":
    main()
