"""`--io NHWC` and `--io NCHW` turn images, and neither tables of boxes nor sequences nor embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from text_form import floats, model

W1, W2 = floats(32, 3, 1, 1), floats(96, 3, 1, 1)
GRAPHS: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "image": ("g (float[1,3,8,6] x) => (float[1,32,8,6] y) { a = Conv(x, w)  y = Relu(a) }", {"w": W1}, {"x", "y"}),
    "signal": (
        "g (float[1,3,8] x) => (float[1,5,8] y) { a = Conv(x, w)  y = Relu(a) }",
        {"w": floats(5, 3, 1)},
        {"x", "y"},
    ),
    "boxes": (
        """g (float[1,3,8,8] x) => (float[1,224,16] y) {
            a = Conv(x, w)  b = Transpose<perm=[0,2,3,1]>(a)  p = Reshape(b, s)
            m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)
            c = Conv(m, v)  d = Transpose<perm=[0,2,3,1]>(c)  q = Reshape(d, t)
            y = Concat<axis=1>(p, q)
        }""",
        {"w": W1, "v": W2, "s": np.array([1, 128, 16]), "t": np.array([1, 96, 16])},
        {"x"},
    ),
    "sequence": (
        """g (float[1,3,1,8] x) => (float[1,8,7] y) {
            a = Conv(x, w)  r = Sigmoid(a)  b = Squeeze(r, two)  c = Transpose<perm=[0,2,1]>(b)  y = MatMul(c, v)
        }""",
        {"w": W1, "v": floats(32, 7), "two": np.array([2])},
        {"x"},
    ),
    "embedding": (
        "g (float[1,7,6] x) => (float[1,7,4] y) { a = MatMul(x, w)  y = Softmax(a) }",
        {"w": floats(6, 4)},
        set(),
    ),
    "embedding beside an image": (
        """g (float[1,3,8,6] x, float[1,7,32] e) => (float[1,7,32] y) {
            a = Conv(x, w)  p = GlobalAveragePool(a)  f = Reshape(p, s)  y = Add(e, f)
        }""",
        {"w": W1, "s": np.array([1, 1, 32])},
        {"x"},
    ),
    "attention": (
        "g (float[1,2,7,6] q, float[1,2,6,7] k) => (float[1,2,7,7] y) { a = MatMul(q, k)  y = Softmax(a) }",
        {},
        set(),
    ),
}


def turned(source: Any, **options: Any) -> tuple[set[str], relayout.Result]:
    """The inputs and outputs that a result stores in another order."""
    result = relayout.convert(source, **options)
    return {end.name for end in result.report.interface if "->" in end.layout}, result


@pytest.mark.parametrize("name", GRAPHS)
def test_images_alone_are_turned(name: str, tmp_path: Path) -> None:
    text, constants, images = GRAPHS[name]
    source = model(text, **constants)
    assert turned(source, io="NHWC")[0] == images
    there, result = turned(source, io="NHWC", format="tflite")
    assert there == images
    result.save(tmp_path / "m.tflite")
    back, _ = turned(tmp_path / "m.tflite", io="NCHW")
    assert back == images
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*source.graph.input, *source.graph.output)
    }
    relayout.convert(tmp_path / "m.tflite", io="NCHW").save(tmp_path / "back.onnx")
    ends = onnx.load(tmp_path / "back.onnx").graph
    for value in (*ends.input, *ends.output):
        assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == shapes[value.name]
