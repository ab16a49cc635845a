"""There and back again changes nothing more: the third file is, byte for byte, the second, names included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relayout
from relayout.formats.tflite.container.loading import load
from small import build
from text_form import floats

MODELS = sorted((Path(__file__).parents[3] / "models").glob("*.tflite"))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_the_third_file_is_the_second(model: Path, tmp_path: Path) -> None:
    files, source = [], model
    for number in range(3):
        relayout.convert(source).save(tmp_path / f"{number}.onnx")
        source = tmp_path / f"{number}.tflite"
        relayout.convert(tmp_path / f"{number}.onnx", format="tflite").save(source)
        files.append(source.read_bytes())
    assert files[2] == files[1]
    names = [tensor.name for tensor in load(files[2]).subgraphs[0].tensors]
    assert not [name for name in names if name.count("/as_in_file") > 1 or name.count("/builtin") > 1]


def test_values_are_still_compared_by_the_names_of_the_file(tmp_path: Path) -> None:
    """The metadata has the file's name of a value where that is another one."""
    (model,) = (path for path in MODELS if path.stem == "tinynet_dynamic")
    relayout.convert(model).save(tmp_path / "a.onnx")
    relayout.convert(tmp_path / "a.onnx", format="tflite").save(tmp_path / "b.tflite")
    relayout.convert(tmp_path / "b.tflite").save(tmp_path / "c.onnx")
    assert relayout.verify(tmp_path / "b.tflite", tmp_path / "c.onnx").ok


def weights(*shape: int) -> NDArray[np.float32]:
    return floats(*shape) / np.float32(4)


def attention(batch: str = "2") -> onnx.ModelProto:
    """Packed queries, keys and values of rows, a residual sum and a normalization."""
    constants = {"w": weights(32, 96), "b": weights(96), "o": weights(32, 32), "s": weights(32), "c": weights(32)}
    return build(
        f"float[{batch},6,32] x",
        """p = MatMul(x, w) q = Add(p, b) r = Reshape(q, heads) t = Transpose<perm=[2,0,3,1,4]>(r)
        i, j, k = Split<axis=0, num_outputs=3>(t)
        l = Squeeze(i, first) m = Squeeze(j, first) n = Squeeze(k, first) u = Transpose<perm=[0,1,3,2]>(m)
        g = MatMul(l, u) a = Softmax(g) v = MatMul(a, n) z = Transpose<perm=[0,2,1,3]>(v) f = Reshape(z, rows)
        h = MatMul(f, o) e = Add(h, x) y = LayerNormalization(e, s, c)""",
        {**constants, "heads": [-1, 6, 3, 4, 8], "rows": [-1, 6, 32], "first": [0]},
    )


def recurrence() -> onnx.ModelProto:
    """Two directions of an LSTM, and their mean."""
    return build(
        "float[5,2,8] x",
        'a = LSTM<hidden_size=6, direction="bidirectional">(x, w, r) y = ReduceMean<keepdims=0>(a, first)',
        {"w": weights(2, 24, 8), "r": weights(2, 24, 6), "first": [1]},
    )


def images(dtype: str = "float") -> onnx.ModelProto:
    kind = np.float16 if dtype == "float16" else np.float32
    return build(
        f"{dtype}[1,3,16,16] x",
        """a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w) b = Relu(a) c = Conv<group=32, pads=[1,1,1,1]>(b, d)
        e = HardSwish(c) f = GlobalAveragePool(e) g = Flatten(f) y = Gemm(g, m)""",
        {
            name: weights(*shape).astype(kind)
            for name, shape in {"w": (32, 3, 3, 3), "d": (32, 1, 3, 3), "m": (32, 7)}.items()
        },
    )


SOURCES = {
    "attention": attention(),
    "attention of an open batch": attention(batch="n"),
    "LSTM": recurrence(),
    "images": images(),
    "images in half precision": images("float16"),
    "a row that a slice takes backwards": build(
        "float[n,5] x", "y = Slice(x, s, e, a, t)", {"s": [-1], "e": [-9], "a": [0], "t": [-2]}
    ),
    "a product of a tensor with itself in half precision": build(
        "float16[5,5] x", "t = Transpose<perm=[1,0]>(x) y = MatMul(t, t)", {}
    ),
    "a constant that is an output": build("float[2,6] x", "y = ReduceSum(x, p) q = Identity(p)", {"p": [1]}),
    "zeros of an open extent": build(
        "float[n,4] x", "s = Shape(x) z = ConstantOfShape(s) y = Concat<axis=0>(z, x)", {}
    ),
}


def rounds(first: bytes) -> list[bytes]:
    """The files that a `.tflite` becomes by way of ONNX, one after the other."""
    files = [first]
    for _ in range(3):
        files.append(relayout.convert(relayout.convert(files[-1]).proto, format="tflite").tflite)
    return files[1:]


@pytest.mark.parametrize("name", SOURCES)
def test_names_of_other_networks_do_not_grow_either(name: str) -> None:
    files = rounds(relayout.convert(SOURCES[name], format="tflite").tflite)
    assert files[2] == files[1]


@pytest.mark.parametrize("kind", ["float16", "dynamic"])
@pytest.mark.parametrize("name", ["attention", "LSTM", "images"])
def test_names_of_quantized_networks_do_not_grow_either(name: str, kind: str) -> None:
    pytest.importorskip("ai_edge_quantizer")
    files = rounds(relayout.convert(SOURCES[name], format="tflite", quantize=kind).tflite)
    assert files[2] == files[1]
