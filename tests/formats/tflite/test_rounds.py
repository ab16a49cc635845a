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


def attention(batch: str = "2", dtype: str = "float") -> onnx.ModelProto:
    """Packed queries, keys and values of rows, a residual sum and a normalization."""
    shapes = {"w": (32, 96), "b": (96,), "o": (32, 32), "s": (32,), "c": (32,)}
    kind = np.float16 if dtype == "float16" else np.float32
    constants = {name: weights(*shape).astype(kind) for name, shape in shapes.items()}
    return build(
        f"{dtype}[{batch},6,32] x",
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


def states(operator: str, direction: str, length: str, batch: str, gives: str = "y") -> onnx.ModelProto:
    """A recurrent operator, whose last states may be outputs."""
    rows, directions = {"LSTM": 24, "GRU": 18, "RNN": 6}[operator], 2 if direction == "bidirectional" else 1
    shapes = {"w": (directions, rows, 8), "r": (directions, rows, 6), "b": (directions, 2 * rows)}
    return build(
        f"float[{length},{batch},8] x",
        f'{gives} = {operator}<hidden_size=6, direction="{direction}">(x, w, r, b)',
        {name: weights(*shape) for name, shape in shapes.items()},
    )


def loop(
    nodes: str, states: str = "float[2,3] s", gives: str = "float[2,3] u", first: str = "x", outputs: str = "y"
) -> onnx.ModelProto:
    """A Loop of more rounds than are written one by one."""
    body = f"body = b (int64 i, bool k, {states}) => (bool q, {gives}) {{ {nodes} }}"
    open_ = "float[n,3] x" if "[n," in states else "float[2,3] x"
    rest = {"m": np.array(4000), "c": np.array(True), "w": weights(3, 3), "f": np.float32(1.1), "l": np.float32(1000)}
    return build(open_, f"{outputs} = Loop<{body}>(m, c, {first})", rest, outputs=("y",))


LOOPS = {
    "a state": loop("q = Identity(k) u = Tanh(s)"),
    "a state and outer weights": loop("q = Identity(k) p = MatMul(s, w) u = Tanh(p)"),
    "the number of the round": loop("q = Identity(k) j = Cast<to=1>(i) u = Add(s, j)"),
    "a condition": loop("u = Mul(s, f) p = ReduceSum<keepdims=0>(u) q = Less(p, l)"),
    "a list": loop("q = Identity(k) u = Tanh(s) o = Sin(s)", gives="float[2,3] u, float[2,3] o", outputs="y, z"),
    "a list of open rows": loop(
        "q = Identity(k) u = Tanh(s) o = Sin(s)", "float[n,3] s", "float[n,3] u, float[n,3] o", outputs="y, z"
    ),
    "a state that comes out as it went in": loop(
        "q = Identity(k) p = MatMul(s, t) u = Tanh(p) v = Identity(t)",
        "float[2,3] s, float[3,3] t",
        "float[2,3] u, float[3,3] v",
        "x, w",
        "y, z",
    ),
    "states that change places": loop(
        "q = Identity(k) u = Identity(t) v = Tanh(s)",
        "float[2,3] s, float[2,3] t",
        "float[2,3] u, float[2,3] v",
        "x, x",
        "y, z",
    ),
    "a loop": loop(
        "q = Identity(k) u = Loop<body = d (int64 j, bool g, float[2,3] e) => (bool h, float[2,3] o) "
        "{ h = Identity(g) o = Add(e, s) }>(m, c, s)"
    ),
}


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
    "attention in half precision": attention(dtype="float16"),
    "LSTM that gives its last states": states("LSTM", "forward", "5", "2", "y, h, c"),
    "LSTM of an open batch that gives its last states": states("LSTM", "forward", "5", "n", "y, h, c"),
    "LSTM of open length that gives its last states": states("LSTM", "forward", "t", "2", "y, h, c"),
    **{
        f"{operator}, {direction}, of an open batch and {length} steps": states(operator, direction, length, "n")
        for operator in ("LSTM", "GRU", "RNN")
        for direction in ("reverse", "bidirectional")
        for length in ("5", "t")
    },
    **{f"a Loop that carries {what}": model for what, model in LOOPS.items()},
    "images": images(),
    "images in half precision": images("float16"),
    "a row that a slice takes backwards": build(
        "float[n,5] x", "y = Slice(x, s, e, a, t)", {"s": [-1], "e": [-9], "a": [0], "t": [-2]}
    ),
    "a product of a tensor with itself in half precision": build(
        "float16[5,5] x", "t = Transpose<perm=[1,0]>(x) y = MatMul(t, t)", {}
    ),
    "a product of two computed matrices that are both transposed": build(
        "float[4,5] a, float[3,4] b", "r = Relu(a) s = Tanh(b) y = Gemm<transA=1, transB=1>(r, s)", {}
    ),
    "a sum along an axis": build("float[2,6] x", "y = CumSum(x, a)", {"a": np.array(1)}),
    "unsigned integers of 64 bits": build("uint64[4] a, uint64[4] b", "y = Concat<axis=0>(a, b)", {}),
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
    files = rounds(relayout.convert(SOURCES[name], format="tflite", quantize=kind).tflite)
    assert files[2] == files[1]


def test_a_state_that_nobody_reads_is_none() -> None:
    """Beside its state a WHILE carries a number and a condition, which the Loop has in its body."""
    model = relayout.convert(relayout.convert(LOOPS["a state"], format="tflite").tflite).proto
    model = relayout.convert(relayout.convert(model, format="tflite").tflite).proto
    (node,) = (node for node in model.graph.node if node.op_type == "Loop")
    assert len(node.input) == 4


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("length", ["5", "t"])
def test_an_lstm_of_an_open_batch_stays_the_builtin(direction: str, length: str) -> None:
    """Zeros that it begins with are zeros, whatever computes them; what is turned round stays a REVERSE_V2."""
    source = states("LSTM", direction, length, "n")
    files = [relayout.convert(source, format="tflite", target="tflite-micro").tflite]
    files += rounds(files[0])[:2]
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in [operator.name for operator in load(files[0]).subgraphs[0].operators]
    first, *others = ([operator.name for operator in load(file).subgraphs[0].operators] for file in files)
    for names in others:
        for name in ("REVERSE_V2", "UNIDIRECTIONAL_SEQUENCE_LSTM"):
            assert names.count(name) == first.count(name)
        assert "STRIDED_SLICE" not in names
