"""Random variants of the standard's node tests, and what they found: each is right or refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from export_running import agrees
from mutated_nodes import HARMLESS, portions
from onnx import parser
from onnx.reference import ReferenceEvaluator

import relayout
from relayout import UnsupportedError
from relayout.formats.tflite.container.enums import TensorType
from text_form import floats

SAMPLE = 120
"""Variants that are tried by default, each of another operator."""
SEARCH = Path(__file__).resolve().parents[4] / "bench/mutated_nodes.py"
NODES = {
    "sign of unsigned": "(uint16[4] x) => (uint16[4] y) { y = Sign(x) }",
    "shrink of integers": "(int32[9] x) => (int32[9] y) { y = Shrink<bias = 1.5, lambd = 1.5>(x) }",
    "shrink of unsigned": "(uint8[4] x) => (uint8[4] y) { y = Shrink<bias = 1.5, lambd = 1.5>(x) }",
    "reversed bytes": "(int8[3, 4] x) => (int8[3, 4] y) <int64[4] n = {3, 1, 2, 3}> { y = ReverseSequence(x, n) }",
    "reversed truths": "(bool[3, 4] x) => (bool[3, 4] y) <int64[4] n = {3, 1, 2, 3}> { y = ReverseSequence(x, n) }",
    "mask longer than its axis": "(float[2] x) => (float[n] y) <bool[4] m = {0, 1, 0, 1}> { y = Compress(x, m) }",
    "fed mask longer than its axis": "(float[2] x, bool[4] m) => (float[n] y) { y = Compress<axis = 0>(x, m) }",
    "scale for all, of blocks": """(uint16[4] x) => (float[4] y) <float s = {0.5}, uint16 z = {7}>
        { y = DequantizeLinear<block_size = 4>(x, s, z) }""",
    "scale for all of blocks that are made": """(float[4] x) => (uint16[4] y) <float s = {0.5}, uint16 z = {7}>
        { y = QuantizeLinear<block_size = 2>(x, s, z) }""",
    "last part is smaller": "(float[n, 3] x) => (float[a, 3] y, float[b, 3] z) { y, z = Split<num_outputs = 2>(x) }",
    "no boxes asked for": """(float[1, 6, 4] x, float[1, 1, 6] s) => (int64[n, 3] y) <int64 most = {-2}>
        { y = NonMaxSuppression(x, s, most) }""",
    "range that ends before it begins": """(int64 x) => (int64[n] y) <int64 limit = {-5}, int64 delta = {2}>
        { y = Range(x, limit, delta) }""",
    "window beyond its image": """(float[1, 1, 4, 4] x) => (float[1, 1, 0, 2] y)
        { y = AveragePool<dilations = [2, 2], kernel_shape = [3, 2]>(x) }""",
    "maximum of nothing": "(float[2, 0, 3] x) => (int64[0, 3] y) { y = ArgMax<axis = 0, keepdims = 0>(x) }",
    "scale below 0": """(float[4] x) => (uint8[4] y) <float s = {-0.5}, uint8 z = {7}>
        { y = QuantizeLinear(x, s, z) }""",
    "last of an open axis": "(float[n, 3] x) => (float[3] y) <int64 i = {-1}> { y = Gather(x, i) }",
    "fed places of an open axis": "(float[n, 3] x, int64[2] i) => (float[2, 3] y) { y = Gather(x, i) }",
    "sum of no products": "(float[2, 0] x, float[0, 3] k) => (float[2, 3] y) { y = MatMul(x, k) }",
    "least of no bytes": """(int8[2, 0, 4] x) => (int8[1, 1, 1] y) { y = ReduceMin(x) }""",
    "mask longer than an open axis": """(float[n, 1] x) => (float[k] y) <bool[7] m = {0, 1, 0, 0, 1, 1, 1}>
        { y = Compress(x, m) }""",
    "fed mask longer than an open axis": "(float[n] x, bool[7] m) => (float[k] y) { y = Compress<axis = 0>(x, m) }",
    "product of open matrices": """(float[n, 6] x, float[m, 6] k, float[a, m] b) => (float[n, m] y)
        { y = Gemm<transB = 1>(x, k, b) }""",
    "shape that is a number": "(int8[n] x) => (int8[n] y) <int64 s = {1}> { y = Expand(x, s) }",
    "bounds that cross": "(float[3] x) => (float[3] y) <float a = {inf}, float b = {1}> { y = Clip(x, a, b) }",
    "heads as an axis, and their number": """(float[1, 2, 3, 4] x, float[1, 2, 3, 4] k, float[1, 2, 3, 5] v) =>
        (float[1, 2, 3, 5] y) { y = Attention<q_num_heads = 2, kv_num_heads = 2>(x, k, v) }""",
}
"""What was a wrong result, a file that does not run, or a traceback."""
REFUSED = {
    "a smoothed region": (
        "a region that is smoothed",
        """(float[1, 1, 4] x) => (float[1, 1, 3] y) <float[6] r = {0, 0, 0.4, 1, 1, 1.2}, int64[3] s = {1, 1, 3}>
        { y = Resize<coordinate_transformation_mode = "tf_crop_and_resize", mode = "linear", antialias = 1>
            (x, r, "", s) }""",
    ),
    "a region of integers": (
        "a region of integers",
        """(int8[1, 1, 4] x) => (int8[1, 1, 3] y) <float[6] r = {0, 0, 0.4, 1, 1, 1.2}, int64[3] s = {1, 1, 3}>
        { y = Resize<coordinate_transformation_mode = "tf_crop_and_resize", mode = "linear">(x, r, "", s) }""",
    ),
    "a mask of several axes": (
        "a mask of several axes",
        "(float[3, 4] x, bool[3, 4] m) => (float[3, n] y) { y = Compress<axis = 1>(x, m) }",
    ),
    "no threshold": (
        "0 thresholds where it reads 1",
        """(float[1, 6, 4] x, float[1, 1, 6] s) => (int64[n, 3] y) <int64 most = {2}, float[0] t = {}>
        { y = NonMaxSuppression(x, s, most, t) }""",
    ),
    "a matrix of nothing": ("without elements", "(float[0, 0] x) => (float y) { y = Det(x) }"),
    "an image of nothing": (
        "a transposed convolution of no elements",
        "(float[1, 1, 0, 2] x, float[1, 1, 2, 2] k) => (float[1, 1, 1, 3] y) { y = ConvTranspose(x, k) }",
    ),
    "clipped below 0": (
        "clipped at less than 0",
        """(float[2, 1, 3] x, float[1, 4, 3] w, float[1, 4, 4] r) => (float[1, 1, 4] y)
        { o, y = RNN<hidden_size = 4, clip = -0.5>(x, w, r) }""",
    ),
    "wide unsigned": ("elements of UINT64", "(uint64[3] x) => (uint64[3] y) { y = Shrink(x) }"),
    "a region without end": (
        "a region without end",
        """(float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] y) <float[4] r = {0, -inf, 1, 1}, int64[2] s = {3, 3}>
        { y = Resize<axes = [2, 3], coordinate_transformation_mode = "tf_crop_and_resize">(x, r, "", s) }""",
    ),
    "below 0": ("an alpha that is not above 0", "(float[3] x) => (float[3] y) { y = Celu<alpha = -0.75>(x) }"),
    "of nothing": ("an operand without elements", "(float[2, 0] x) => (int64[2, 1] y) { y = ArgMax<axis = 1>(x) }"),
    "of order 0": ("norm of order 0", "(float[1, 1, 2, 2] x) => (float[1, 1, 1, 1] y) { y = GlobalLpPool<p = 0>(x) }"),
    "window": (
        "a window that is larger than its image",
        "(float[1, 1, 1, 1] x) => (float[1, 1, 1, 1] y) { y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
    ),
    "thresholds": (
        "a constant of 2 elements where it reads 1",
        """(float[1, 6, 4] x, float[1, 1, 6] s) => (int64[n, 3] y) <int64 most = {2}, float[2] t = {0.5, 0.5}>
        { y = NonMaxSuppression(x, s, most, "", t) }""",
    ),
}


def model_of(text: str) -> onnx.ModelProto:
    """Return the model of one node that a text states."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 24]> main {text}')


def fed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return numbers for the inputs; open extents are 5."""
    found = {}
    for value in model.graph.input:
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [dim.dim_value if dim.HasField("dim_value") else 5 for dim in value.type.tensor_type.shape.dim]
        drawn = np.random.default_rng(7).integers(0 if kind.kind in "ub" else -7, 8, shape)
        found[value.name] = (drawn.clip(-5, 4) if value.name == "i" else drawn).astype(kind)
    return found


@pytest.mark.parametrize("name", NODES)
def test_a_variant_that_was_wrong(name: str) -> None:
    model = model_of(NODES[name])
    feed = fed(model)
    agrees(model, feed, expected=ReferenceEvaluator(model).run(None, feed) if "blocks" in name else None)


@pytest.mark.parametrize("name", REFUSED)
def test_a_variant_that_has_no_kernel_is_refused_with_a_reason(name: str) -> None:
    reason, text = REFUSED[name]
    model = model_of(text)
    with pytest.raises(UnsupportedError, match=reason):
        agrees(model, fed(model), expected=[])


def test_a_scatter_whose_places_are_open() -> None:
    """Its coordinates are read twice, through two RESHAPEs."""
    model = model_of("""(float[3, 5] x, int64[2, n] i, float[2, 5] u) => (float[3, 5] y)
        { y = ScatterElements<axis = -1>(x, i, u) }""")
    agrees(model, fed(model) | {"i": np.array([[2, 0, 4, 1, -2], [-1, 1, 3, 0, 2]])})


@pytest.mark.parametrize(("kind", "least"), [("uint8", 0), ("int8", -128)])
def test_the_place_of_a_byte_beside_a_border_is_inside_the_image(kind: str, least: int) -> None:
    model = model_of(f"""({kind}[1, 1, 3, 3] x) => ({kind}[1, 1, 3, 3] y, int64[1, 1, 3, 3] i)
        {{ y, i = MaxPool<auto_pad = "SAME_LOWER", kernel_shape = [2, 2]>(x) }}""")
    agrees(model, {"x": np.array([least, least, 5, least, least, least, 7, 0, least], kind).reshape(1, 1, 3, 3)})


def test_the_mask_of_an_old_dropout_is_that_of_onnx_runtime() -> None:
    text = "main (float[3] x) => (float[3] y, bool[3] m) { y, m = Dropout(x) }"
    model = onnx.parser.parse_model(f'<ir_version: 5, opset_import: ["": 10]> {text}')
    agrees(model, fed(model))


def test_the_kernel_of_a_deformed_convolution_in_half_precision() -> None:
    model = model_of("""(float16[1, 2, 4, 4] x, float16[1, 8, 3, 3] o) => (float16[1, 3, 3, 3] y)
        <float16[3, 2, 2, 2] w> { y = DeformConv(x, w, o) }""")
    del model.graph.initializer[:]
    kernel = np.linspace(-1, 1, 24).astype(np.float16).reshape(3, 2, 2, 2)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    feed = {name: array / np.float16(8) for name, array in fed(model).items() if name != "w"}
    agrees(model, feed, tolerance=2)


def test_a_convolution_with_no_channels_is_refused() -> None:
    model = model_of("(float[1, 0, 4] x) => (float[1, 2, 2] y) <float[2, 0, 3] w = {}> { y = Conv(x, w) }")
    with pytest.raises(UnsupportedError, match="a convolution with no channels"):
        relayout.convert(model, format="tflite")


def test_a_quantized_convolution_over_three_axes_runs_on_real_numbers() -> None:
    model = model_of("""(uint8[1, 1, 3, 4, 5] x) => (uint8[1, 1, 2, 3, 4] y)
        <float s = {0.02}, uint8 z = {120}, uint8[1, 1, 2, 2, 2] w = {1, 90, 200, 7, 55, 120, 250, 3}>
        { y = QLinearConv(x, s, z, w, s, z, s, z) }""")
    agrees(model, fed(model))


def test_boxes_without_an_area_are_selected_once_and_others_after_them() -> None:
    model = model_of("""(float[1, 6, 4] x, float[1, 1, 6] s) => (int64[n, 3] y) <int64 most = {6}, float t = {0.5}>
        { y = NonMaxSuppression(x, s, most, t) }""")
    corners = np.random.default_rng(3).uniform(0, 1, (1, 6, 2))
    sides = np.array([[0.5, 0], [0, 0], [0.4, 0.6], [0, 0.3], [0.5, 0.5], [0.2, 0.2]])
    boxes = np.concatenate([corners, corners + sides], -1)
    agrees(model, {"x": boxes.astype(np.float32), "s": np.linspace(0.9, 0.1, 6, dtype=np.float32).reshape(1, 1, 6)})


def test_boxes_that_do_not_overlap_are_all_selected_at_a_computed_threshold_of_zero() -> None:
    """LiteRT's kernel leaves out what overlaps by the threshold, too."""
    model = model_of("""(float[1, 3, 4] x, float[1, 1, 3] s, float[1] t) => (int64[n, 3] y) <int64 most = {3}>
        { y = NonMaxSuppression(x, s, most, t) }""")
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [0.5, 0.5, 1.5, 1.5]]], np.float32)
    agrees(model, {"x": boxes, "s": np.array([[[0.9, 0.8, 0.7]]], np.float32), "t": np.zeros(1, np.float32)})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_place_of_one_element_without_axes_is_the_first(op: str) -> None:
    text = f"main (float x) => (int64 y) {{ y = {op}<axis = 1>(x) }}"
    model = onnx.parser.parse_model(f'<ir_version: 5, opset_import: ["": 10]> {text}')
    agrees(model, {"x": np.array(-3, np.float32)})


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_places_are_of_as_many_bits_as_a_cast_makes_of_them(op: str, kept: int) -> None:
    dims = "3, 1, 4" if kept else "3, 4"
    text = f"{{ a = {op}<axis = 1, keepdims = {kept}>(x) y = Cast<to = 6>(a) }}"
    model = model_of(f"(float[3, 5, 4] x) => (int32[{dims}] y) {text}")
    result = relayout.convert(model, format="tflite")
    assert result.file is not None
    assert TensorType.INT64 not in {tensor.type for tensor in result.file.subgraphs[0].tensors}
    agrees(model, {"x": np.random.default_rng(1).normal(size=(3, 5, 4)).astype(np.float32)})


def test_random_variants_are_right_or_refused() -> None:
    found = list(portions(0, SAMPLE, []))
    assert [each for each in found if each.verdict not in HARMLESS] == []
    assert sum(each.verdict == "right" for each in found) > SAMPLE * 0.7


@pytest.mark.slow
def test_many_random_variants_are_right_or_refused() -> None:
    command = [sys.executable, str(SEARCH), "--first", str(SAMPLE), "--variants", "2000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op_type", ["ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum"])
def test_an_empty_list_of_axes_means_all(op_type: str, keepdims: int) -> None:
    """So does PyTorch's older exporter write `x.amax()`; the result was as large as its operand."""
    shape = "1,1,1" if keepdims else ""
    text = f"g (float[2,3,4] x) => (float[{shape}] y) {{ y = {op_type}<keepdims={keepdims}>(x) }}"
    source = parser.parse_model(f'<ir_version: 8, opset_import: ["": 12]>\n{text}')
    source.graph.node[0].attribute.append(onnx.AttributeProto(name="axes", type=onnx.AttributeProto.INTS))
    agrees(source, {"x": floats(2, 3, 4)})
