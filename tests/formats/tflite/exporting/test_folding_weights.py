"""Weights that follow from others are constants in a `.tflite`, where its kernels take constants alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from relayout.formats.onnx.evaluating import node_results
from relayout.formats.tflite.container.loading import load
from running import run
from text_form import floats, model

IMAGE = {"x": np.random.default_rng(0).normal(size=(1, 8, 12, 12)).astype(np.float32)}


def operators(source: onnx.ModelProto, tmp_path: Path) -> dict[str, int]:
    """The operators of the `.tflite` of a model, which LiteRT runs as ONNX Runtime runs the model."""
    onnx.save(source, tmp_path / "m.onnx")
    relayout.convert(source, format="tflite", io="convert").save(tmp_path / "m.tflite")
    assert relayout.verify(tmp_path / "m.onnx", tmp_path / "m.tflite").ok
    return dict(Counter(operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators))


def conv(kernel: str, body: str = "", more: str = "") -> str:
    return f"""g (float[1,8,12,12] x) => (float[1,16,12,12] y) {{
        {body}
        y = Conv<pads=[1,1,1,1]{more}>(x, {kernel})
    }}"""


STANDARDIZED = """
    v = Reshape(w, rows)
    m = ReduceMean(v, last)
    c = Sub(v, m)
    d = Mul(c, c)
    e = ReduceMean(d, last)
    s = Sqrt(e)
    n = Div(c, s)
    k = Reshape(n, image)
"""
DIVIDED = """
    n = ReduceL2(w, behind)
    d = Div(w, n)
    k = Mul(d, g)
"""
IN_PARTS = """
    a, b = Split<axis=0, num_outputs=2>(w)
    k = Concat<axis=0>(b, a)
"""


@pytest.mark.parametrize("body", [STANDARDIZED, DIVIDED, IN_PARTS], ids=["standardized", "normalized", "in parts"])
def test_a_kernel_that_is_computed_is_a_constant(body: str, tmp_path: Path) -> None:
    source = model(
        conv("k", body),
        w=floats(16, 8, 3, 3),
        g=floats(16, 1, 1, 1),
        rows=np.array([16, 72]),
        image=np.array([16, 8, 3, 3]),
        last=np.array([1]),
        behind=np.array([1, 2, 3]),
    )
    assert operators(source, tmp_path) == {"CONV_2D": 1}


QUANTIZED = """g (float[1,8,12,12] x) => (float[1,16,12,12] y) <float s = {0.05}, int8 z = {3}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    p = QuantizeLinear<axis=0>(w, t, o)
    LIMITED
    k = DequantizeLinear<axis=0>(l, t, o)
    c = Conv<pads=[1,1,1,1]>(d, k)
    r = Relu(c)
    e = QuantizeLinear(r, s, z)
    y = DequantizeLinear(e, s, z)
}"""


@pytest.mark.parametrize("limited", ["l = Identity(p)", "l = Clip(p, low, high)"], ids=["as it is", "clipped"])
@pytest.mark.parametrize("channels", [1, 16])
def test_kernels_that_training_left_in_float_run_as_int8(limited: str, channels: int, tmp_path: Path) -> None:
    """Quantization-aware training exports them so: a QuantizeLinear, perhaps a Clip, and a DequantizeLinear."""
    kernel = floats(16, 8, 3, 3)
    largest = np.abs(kernel).max((1, 2, 3)) if channels > 1 else np.abs(kernel).max()
    constants = {
        "w": kernel,
        "t": np.asarray(largest / 127, np.float32),
        "o": np.zeros(np.shape(largest), np.int8),
        **({"low": np.array(-127, np.int8), "high": np.array(127, np.int8)} if "Clip" in limited else {}),
    }
    source = model(QUANTIZED.replace("LIMITED", limited), **constants)
    assert operators(source, tmp_path) == {"QUANTIZE": 1, "CONV_2D": 1, "DEQUANTIZE": 1}


def test_what_grows_is_computed_in_each_run(tmp_path: Path) -> None:
    """A table of 400 by 400 made of two vectors would make the file larger, even beside larger weights."""
    source = model(
        "g (float[400,400] x) => (float[400,400] y) { t = Mul(a, b) u = Add(x, t) y = MatMul(u, w) }",
        a=floats(400, 1),
        b=floats(1, 400),
        w=floats(400, 400),
    )
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    assert [operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators][:2] == ["MUL", "ADD"]
    assert (tmp_path / "m.tflite").stat().st_size < 660_000


def kernels_of_one(count: int, width: int, reader: str, rows: int) -> onnx.ModelProto:
    """Kernels that are all made of one, each read by an operator."""
    scaled = "".join(f"k{i} = Add(w, s{i}) c{i} = {reader}(x, k{i}) " for i in range(count))
    joined = ", ".join(f"c{i}" for i in range(count))
    return model(
        f"g (float[{rows},{width}] x) => (float[{rows},{count * width}] y) {{ {scaled} y = Concat<axis=1>({joined}) }}",
        w=floats(width, width),
        **{f"s{i}": np.array(i + 1.5, np.float32) for i in range(count)},
    )


def test_no_more_is_computed_than_the_weights_have_twice(tmp_path: Path) -> None:
    """Each of eight kernels is as large as the one that all are made of."""
    source = kernels_of_one(8, 260, "MatMul", 4)
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    counts = Counter(operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators)
    assert 0 < counts["ADD"] < 8
    assert (tmp_path / "m.tflite").stat().st_size < 4 * 260 * 260 * 4
    agrees(source, {"x": np.ones((4, 260), np.float32)})


def test_a_default_is_no_constant(tmp_path: Path) -> None:
    """A caller may feed another kernel, where it is named as an input."""
    source = model(conv("k", "k = Mul(w, w)"), w=floats(16, 8, 3, 3))
    source.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [16, 8, 3, 3]))
    names = [value.name for value in source.graph.input]
    relayout.convert(source, format="tflite", inputs=names).save(tmp_path / "m.tflite")
    assert "MUL" in [operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators]


def test_a_kernel_that_is_given_too_stays_computed(tmp_path: Path) -> None:
    source = model(
        """g (float[1,8,12,12] x) => (float[1,16,12,12] y, float[16,8,3,3] k) {
            k = Mul(w, w) y = Conv<pads=[1,1,1,1]>(x, k)
        }""",
        w=floats(16, 8, 3, 3),
    )
    agrees(source, IMAGE)


def test_computed_weights_take_only_so_much_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is not computed here stays in the file, and is computed in each run."""
    scaled = "".join(f"k{i} = Tanh(w{i}) c{i} = MatMul(x, k{i}) " for i in range(8))
    joined = ", ".join(f"c{i}" for i in range(8))
    weights = {f"w{i}": floats(260, 260, seed=i) for i in range(8)}
    source = model(f"g (float[4,260] x) => (float[4,2080] y) {{ {scaled} y = Concat<axis=1>({joined}) }}", **weights)
    monkeypatch.setattr("relayout.formats.onnx.folding.MOST_IN_MEMORY", 3 * 260 * 260 * 4)
    relayout.convert(source, format="tflite").save(tmp_path / "m.tflite")
    counts = Counter(operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators)
    assert counts["TANH"] == 5


def test_quotients_of_integer_constants_are_truncated() -> None:
    """As ONNX Runtime does it, and LiteRT's DIV; ONNX's reference floors them."""
    a, b = np.array([-7, 7, -7, 7], np.int32), np.array([2, -2, -2, 2], np.int32)
    source = model("g (int32[4] x) => (int32[4] y) { q = Div(a, b)  y = Add(x, q) }", a=a, b=b)
    agrees(source, {"x": np.zeros(4, np.int32)}, expected=[np.array([-3, -3, 3, 3], np.int32)])
    assert relayout.convert(source, format="tflite").report.operators == {"ADD": 1}


@pytest.mark.parametrize("version", [9, 12, 13])
@pytest.mark.parametrize("node", ["Softmax<axis=1>", "LogSoftmax<axis=0>", "Hardmax<axis=1>", "LpNormalization<p=1>"])
def test_constants_are_normalized_as_onnx_runtime_does_it(node: str, version: int) -> None:
    """Before opset 13 over all axes from one on, and by amounts without signs: ONNX's reference has neither."""
    c = np.random.default_rng(2).integers(-4, 5, (2, 3, 4)).astype(np.float32)
    source = model(f"g (float[2,3,4] x) => (float[2,3,4] y) {{ q = {node}(c)  y = Add(x, q) }}", c=c)
    source.opset_import[0].version = version
    source.ir_version = 8
    agrees(source, {"x": np.zeros_like(c)})


@pytest.mark.parametrize("version", [10, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_constants_lie_as_onnx_runtime_has_them(mode: str, version: int) -> None:
    """Before opset 16 their coordinates are those of corners, not of centres: ONNX's reference knows centres alone."""
    node = f'RoiAlign<mode="{mode}", output_height=2, output_width=2, sampling_ratio=1>'
    source = model(
        f"g (float[1,1,2,2] x) => (float[1,1,2,2] y) {{ q = {node}(c, boxes, places)  y = Add(x, q) }}",
        c=np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6) ** 2,
        boxes=np.array([[0.5, 1, 4.25, 5]], np.float32),
        places=np.array([0]),
    )
    source.opset_import[0].version = version
    source.ir_version = 8
    agrees(source, {"x": np.zeros((1, 1, 2, 2), np.float32)})


@pytest.mark.parametrize("form", ["s", "f"])
@pytest.mark.parametrize("extents", [(1, 1), (4, 1), (3, 7), (8, 10), (2, 3)], ids=str)
@pytest.mark.parametrize("place", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize(
    "mode",
    ['mode="cubic"', 'mode="cubic", antialias=1', 'mode="linear"', 'mode="nearest", nearest_mode="floor"'],
)
def test_a_constant_is_resized_as_onnx_runtime_does_it(
    mode: str, place: str, extents: tuple[int, int], form: str
) -> None:
    """ONNX's reference takes other pixels: to an extent of 1, by scales that round extents down, between two pixels."""
    c = np.random.default_rng(3).normal(size=(1, 2, 4, 5)).astype(np.float32)
    operands = {"s": "c, none, none, s", "f": "c, none, f"}[form]
    source = model(
        f"""g (float[1,2,{extents[0]},{extents[1]}] x) => (float[1,2,{extents[0]},{extents[1]}] y) {{
            none = Constant<value = float[0] {{}}>()
            q = Resize<{mode}, coordinate_transformation_mode="{place}">({operands})
            y = Add(x, q)
        }}""",
        c=c,
        s=np.array([1, 2, *extents]),
        f=np.array([1, 1, extents[0] / 4, extents[1] / 5], np.float32),
    )
    [node] = [each for each in source.graph.node if each.op_type == "Resize"]
    known = {each.name: onnx.numpy_helper.to_array(each) for each in source.graph.initializer}
    known["none"] = np.zeros(0, np.float32)
    results = node_results(node, {name: known[name] for name in node.input}, source.opset_import)
    x = np.zeros((1, 2, *extents), np.float32)
    assert results or form == "f" or "nearest" in mode or 1 in extents, "computed as far as the two agree"
    for array in results:
        np.testing.assert_allclose(array, run(source, {"x": x})[0], atol=2e-5)


def test_distinct_constants_keep_their_order() -> None:
    source = model(
        "g (float[2] x) => (float[2] y) { q = Unique<sorted=0>(c)  y = Add(x, q) }", c=np.array([3, 1, 3], np.float32)
    )
    agrees(source, {"x": np.zeros(2, np.float32)})


def test_a_mask_that_follows_from_constants_is_computed_once(tmp_path: Path) -> None:
    """PyTorch's exporter leaves positions and masks of thousands of elements as operators."""
    text = """g (float[1,50,64] x) => (float[1,50,64] y) {
        steps = CumSum(c, axis)
        wave = Sin(steps)
        outside = Less(wave, c)
        far = Where(outside, c, wave)
        y = Add(x, far)
    }"""
    c = np.random.default_rng(1).normal(size=(1, 50, 64)).astype(np.float32)
    assert operators(model(text, c=c, axis=np.array(1, np.int64)), tmp_path) == {"ADD": 1}


def test_numbers_of_half_precision_stay_so_in_the_file(tmp_path: Path) -> None:
    text = "g (float[1,50,64] x) => (float[1,50,64] y) { real = Cast<to=1>(c)  y = Add(x, real) }"
    c = np.random.default_rng(1).normal(size=(1, 50, 64)).astype(np.float16)
    assert operators(model(text, c=c), tmp_path).keys() - {"ADD"}
    assert (tmp_path / "m.tflite").stat().st_size < 3 * c.size


def test_results_of_one_constant_make_a_file_a_little_larger_at_most(tmp_path: Path) -> None:
    """Ten kernels of 200 by 200 are made of one: six have 1 MB."""
    relayout.convert(kernels_of_one(10, 200, "Add", 200), format="tflite").save(tmp_path / "m.tflite")
    counts = Counter(operator.name for operator in load(tmp_path / "m.tflite").subgraphs[0].operators)
    assert counts["ADD"] == 14


def test_what_follows_from_constants_is_computed_at_once(tmp_path: Path) -> None:
    """A table of 160,000 elements lies between: it is never stored."""
    text = """g (float[400,4] x) => (float[400,4] y) {
        table = Mul(a, b)
        shares = Softmax<axis=1>(table)
        most = ReduceMax<keepdims=1>(shares, axis)
        y = Add(x, most)
    }"""
    source = model(text, a=floats(400, 1), b=floats(1, 400, seed=1), axis=np.array([1], np.int64))
    assert operators(source, tmp_path) == {"ADD": 1}
    assert (tmp_path / "m.tflite").stat().st_size < 10_000
    agrees(source, {"x": floats(400, 4)})


def test_a_table_that_is_smaller_than_what_it_is_made_of_is_stored(tmp_path: Path) -> None:
    """Of 80,000 places and numbers the places are gone."""
    text = """g (float[80000] x) => (float[80000] y) {
        zeros = Expand(zero, shape)  t = ScatterND(zeros, i, u)  y = Add(x, t)
    }"""
    places = np.random.default_rng(1).permutation(80_000).reshape(-1, 1)
    own = {"zero": np.zeros(1, np.float32), "shape": np.array([80_000]), "i": places, "u": floats(80_000)}
    source = model(text, **own)
    assert operators(source, tmp_path) == {"ADD": 1}
    agrees(source, {"x": floats(80_000)})


def test_numbers_of_half_precision_stay_so_beside_larger_weights(tmp_path: Path) -> None:
    text = "g (float[50,300] x) => (float[50,300] y) { real = Cast<to=1>(c) p = MatMul(x, w) y = Add(p, real) }"
    c = np.random.default_rng(1).normal(size=(50, 300)).astype(np.float16)
    operators(model(text, c=c, w=floats(300, 300)), tmp_path)
    assert (tmp_path / "m.tflite").stat().st_size < 4 * 300 * 300 + 3 * c.size


def test_equal_constants_are_one() -> None:
    """Several layers compute the same of the same weights: it is stored once."""
    source = model(
        """g (float[200,200] x) => (float[200,200] y) {
            a = Neg(w) b = Neg(w) c = Neg(v)
            p = Mul(x, a) q = Sub(p, b) y = Mul(q, c) }""",
        w=floats(200, 200),
        v=floats(200, 200, seed=1),
    )
    (graph,) = load(relayout.convert(source, format="tflite").tflite).subgraphs
    assert sum(tensor.data is not None for tensor in graph.tensors) == 2
    agrees(source, {"x": floats(200, 200)})
