"""Transposed convolutions in a `.tflite`: as convolutions where steps are of one or there are groups, with the same
numbers in LiteRT's kernels of both kinds."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import relayout
from litert_runs import KERNELS, operators, results_of_runs
from relayout.lowering.transposed_axes import Axis, kernel_at
from running import run
from targets.quantized_nets import QuantizedNet
from text_form import floats, model


class Case(NamedTuple):
    """A transposed convolution: extents of its image and kernel, attributes, and how many convolutions it becomes."""

    image: tuple[int | str, ...]
    kernel: tuple[int, ...]
    attributes: str
    convolutions: int


CASES = {
    "one step": Case((1, 6, 7, 5), (6, 4, 3, 3), "pads=[1,1,1,1]", 1),
    "one step, dilated, in groups": Case((1, 6, 7, 5), (6, 2, 3, 3), "dilations=[2,3], group=3, pads=[4,1,2,3]", 1),
    "one step, all cut off but one": Case((1, 4, 7, 1), (4, 1, 3, 5), "group=4, pads=[2,2,2,2]", 1),
    "pads beyond the kernel": Case((1, 4, 7, 9), (4, 1, 1, 3), "group=4, pads=[1,4,2,3]", 1),
    "each channel, doubled": Case((2, 6, 5, 4), (6, 1, 4, 4), "group=6, strides=[2,2], pads=[1,1,1,1]", 4),
    "each channel, one pixel less": Case((1, 6, 5, 4), (6, 1, 3, 3), "group=6, strides=[2,2], pads=[1,1,1,1]", 4),
    "padded": Case((1, 6, 5, 4), (6, 1, 3, 3), "group=6, strides=[2,2], pads=[1,1,1,1], output_padding=[1,1]", 4),
    "several outputs of a group": Case((1, 6, 5, 4), (6, 5, 2, 3), "group=3, strides=[2,3], dilations=[3,2]", 6),
    "along one axis": Case((1, 4, 3, 6), (4, 3, 3, 5), "group=2, strides=[1,2], pads=[1,2,1,2]", 2),
    "a kernel shorter than its steps": Case((1, 4, 3, 6), (4, 1, 1, 2), "group=4, strides=[2,3]", 6),
    "one axis of space": Case((1, 6, 9), (6, 1, 12), "group=6, strides=[3], pads=[4,5]", 3),
    "an open height": Case((1, 6, "h", 4), (6, 1, 4, 4), "group=6, strides=[2,2], pads=[1,1,1,1]", 4),
    "an open batch and width": Case(("n", 6, 5, "w"), (6, 1, 4, 4), "group=6, strides=[2,2], pads=[1,1,1,1]", 4),
    "two open extents, one step": Case((1, 6, "h", "w"), (6, 2, 3, 3), "group=3, pads=[1,1,1,1]", 1),
    "two open extents": Case((1, 6, "h", "w"), (6, 1, 4, 4), "group=6, strides=[2,2], pads=[1,1,1,1]", 0),
    "no groups, few outputs": Case((1, 6, 5, 4), (6, 3, 4, 4), "strides=[2,2], pads=[1,1,1,1]", 1),
    "no groups, many outputs": Case((1, 6, 5, 4), (6, 16, 4, 4), "strides=[2,2], pads=[1,1,1,1]", 4),
    "no groups, one pixel less": Case((1, 6, 5, 4), (6, 3, 3, 3), "strides=[2,2], pads=[1,1,1,1]", 4),
    "no groups, two open extents": Case((1, 6, "h", "w"), (6, 16, 4, 4), "strides=[2,2], pads=[1,1,1,1]", 1),
    "no groups, of one pixel": Case((2, 6, 1, 1), (6, 5, 4, 4), "group=1", 1),
    "no groups, of one pixel, cut": Case((2, 6, 1, 1), (6, 5, 3, 4), "pads=[1,0,0,1], strides=[1,2]", 12),
    "no groups, of one row": Case((2, 6, 1, 5), (6, 5, 3, 4), "pads=[0,1,0,1], strides=[2,2]", 6),
    "no groups, along the width": Case((1, 6, 5, 4), (6, 3, 3, 2), "strides=[1,2], dilations=[2,1]", 1),
    "no groups, along the height": Case((1, 6, 5, 4), (6, 3, 2, 3), "strides=[2,1]", 2),
    "no groups, one axis of space": Case((1, 6, 9), (6, 4, 4), "strides=[2], pads=[1,1]", 1),
    "long steps": Case((1, 4, 3, 2), (4, 1, 2, 2), "group=4, strides=[20,20]", 0),
    "SAME": Case((1, 6, 5, 4), (6, 1, 4, 4), 'group=6, strides=[2,2], auto_pad="SAME_UPPER"', 0),
}
OPEN = {"n": 3, "h": 5, "w": 7}


def source(case: Case, *behind: str) -> onnx.ModelProto:
    """The transposed convolution with a bias, and what stands behind it."""
    group = int(case.attributes.partition("group=")[2].partition(",")[0] or 1)
    channels = case.kernel[1] * group
    said, result = ",".join(map(str, case.image)), ",".join("abcd"[: len(case.image)])
    lines = [f"z = ConvTranspose<{case.attributes}>(x, kernel, bias)", *behind]
    numbers = {f"c{number}": floats(channels, seed=number) for number in range(3)}
    return model(
        f"g (float[{said}] x) => (float[{result}] y) {{ {' '.join(lines)} }}",
        kernel=floats(*case.kernel),
        bias=floats(channels, seed=1),
        **({**numbers, "variance": np.abs(floats(channels, seed=4)) + 0.5} if "c0" in "".join(behind) else {}),
    )


def same_in_litert(case: Case, network: onnx.ModelProto) -> Counter[str]:
    """Hold the `.tflite` to ONNX Runtime in two runs of both kinds of kernels; return its operators."""
    content = relayout.convert(network, format="tflite", io="keep").tflite
    extents = [OPEN.get(str(extent), extent) for extent in case.image]
    feeds = [floats(*map(int, extents), seed=seed) for seed in (7, 8)]
    for kernels in KERNELS:
        for feed, got in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
            (expected,) = run(network, {"x": feed})
            np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1, np.abs(expected).max()))
    return Counter(operators(content))


@pytest.mark.parametrize("united", [False, True])
@pytest.mark.parametrize("seed", range(200))
def test_the_places_of_an_axis(seed: int, *, united: bool) -> None:
    """Convolutions in steps of one give what the definition does, and no window leaves elements of the axis out."""
    rng = np.random.default_rng(seed)
    size, stride, dilation, extent = (int(rng.integers(1, most)) for most in (6, 5, 4, 7))
    reach = (extent - 1) * stride + (size - 1) * dilation + 1
    begin = int(rng.integers(0, min(reach, 9)))
    end = int(rng.integers(0, min(reach - begin, 9)))
    x, w = rng.normal(size=extent), rng.normal(size=size)
    whole = np.zeros(reach)
    for element, tap in product(range(extent), range(size)):
        whole[element * stride + tap * dilation] += x[element] * w[tap]
    axis = Axis(size, stride, dilation, begin, reach - begin - end - extent * stride)
    found = np.zeros((extent + axis.more, stride))
    for number in range(stride):
        place = axis.place(number, among=stride if united else 0)
        assert min(place.pads) >= 0
        padded, kernel = np.pad(x, place.pads), kernel_at(w[None, None], [place])[0, 0]
        span = (place.window - 1) * place.dilation + 1
        for block in range(len(padded) - span + 1):
            found[block, number] = padded[block : block + span : place.dilation] @ kernel
    np.testing.assert_allclose(found.reshape(-1)[: found.size - axis.over], whole[begin : reach - end], atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_the_same(name: str) -> None:
    case = CASES[name]
    counts = same_in_litert(case, source(case, "y = Sigmoid(z)"))
    assert counts["CONV_2D"] + counts["DEPTHWISE_CONV_2D"] == case.convolutions
    assert (counts["TRANSPOSE_CONV"] == 0) == (case.convolutions > 0)


@pytest.mark.parametrize("opset", [7, 10])
@pytest.mark.parametrize("name", ["each channel, one pixel less", "no groups, one axis of space", "an open height"])
def test_old_opsets(name: str, opset: int) -> None:
    network = source(CASES[name], "y = Sigmoid(z)")
    network.opset_import[0].version = opset
    assert not same_in_litert(CASES[name], network)["TRANSPOSE_CONV"]


@pytest.mark.parametrize("name", ["no groups, few outputs", "several outputs of a group", "SAME"])
def test_a_normalization_goes_into_the_kernel(name: str) -> None:
    case = CASES[name]
    counts = same_in_litert(case, source(case, "y = BatchNormalization(z, c0, c1, c2, variance)"))
    assert not counts["MUL"]
    # The bias of several TRANSPOSE_CONVs is a sum.
    assert counts["ADD"] == (name == "SAME")


@pytest.mark.parametrize("target", ["litert-gpu", "tflite-micro", "ethos-u"])
def test_others_have_a_kernel_without_groups(target: str) -> None:
    network = source(CASES["no groups, few outputs"], "y = Sigmoid(z)")
    operators = relayout.convert(network, format="tflite", target=target).report.operators
    assert operators["TRANSPOSE_CONV"] == 1


def test_a_tflite_file_keeps_its_operators() -> None:
    network = source(CASES["no groups, few outputs"], "y = Sigmoid(z)")
    file = relayout.convert(network, format="tflite", target="tflite-micro").tflite
    there = relayout.convert(file)
    back = relayout.convert(there.proto, format="tflite")
    assert back.report.operators["TRANSPOSE_CONV"] == 1


@pytest.mark.parametrize("name", ["no groups, few outputs", "no groups, one pixel less", "one axis of space"])
def test_an_activation_goes_into_the_convolutions(name: str) -> None:
    assert not same_in_litert(CASES[name], source(CASES[name], "y = Relu(z)"))["RELU"]


def test_an_activation_of_what_others_read_stays() -> None:
    network = source(CASES["no groups, few outputs"], "a = Relu(z)", "b = Abs(z)", "y = Add(a, b)")
    assert same_in_litert(CASES["no groups, few outputs"], network)["RELU"] == 1


INTEGERS = {"CONV_2D", "DEPTHWISE_CONV_2D", "CONCATENATION", "RESHAPE", "PAD", "RELU", "STRIDED_SLICE", "TRANSPOSE"}


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("target", ["litert", "ethos-u", "tflite-micro"])
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((12, 1, 4, 4), {"group": 12, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((12, 1, 3, 3), {"group": 12, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((12, 2, 3, 3), {"group": 3, "strides": [1, 2], "pads": [1, 1, 1, 1]}),
        ((12, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    ],
    ids=["doubled", "one pixel less", "along one axis", "one step"],
)
def test_a_quantized_one_stays_on_integers(
    kernel: tuple[int, ...], attributes: dict[str, object], target: str, *, relu: bool
) -> None:
    net = QuantizedNet(zero=3)
    given = net.unit("ConvTranspose", "x", kernel=kernel, relu=relu, **attributes)
    network = net.model(given, TensorProto.INT8)
    content = relayout.convert(network, format="tflite", io="keep", target=target).tflite
    assert set(operators(content)) <= INTEGERS
    feed = np.random.default_rng(3).integers(-128, 128, (1, 12, 16, 10)).astype(np.int8)
    (expected,) = run(network, {"x": feed})
    for kernels in KERNELS:
        (got,) = results_of_runs(content, [feed], kernels)
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
        assert np.mean(got != expected) < 0.01


@pytest.mark.parametrize("attributes", ["group=3, strides=[2,2]", "group=3", "group=3, strides=[3,4]"])
@pytest.mark.parametrize("kind", ["a scale for each output of a group", "zero points"])
def test_the_meaning_of_a_kernels_integers(kind: str, attributes: str) -> None:
    """A kernel of uint8 has a zero point, which fills what no tap meets: steps longer than the kernel leave that."""
    of_outputs = kind.startswith("a scale")
    dtype, low = ("int8", -128) if of_outputs else ("uint8", 0)
    rng = np.random.default_rng(5)
    network = model(
        f"""g ({dtype}[1,6,5,4] x) => ({dtype}[a,b,c,d] y) {{
            xr = DequantizeLinear(x, sx, zero)
            kernel = DequantizeLinear{"<axis=1>" if of_outputs else ""}(integers, scales, zeros)
            yr = ConvTranspose<{attributes}>(xr, kernel)
            y = QuantizeLinear(yr, sy, zero) }}""",
        integers=rng.integers(low, low + 256, (6, 2, 2, 3)).astype(dtype),
        scales=np.array([0.002, 0.02] if of_outputs else 0.01, np.float32),
        zeros=np.array([0, 0] if of_outputs else 131, dtype),
        sx=np.array(0.02, np.float32),
        sy=np.array(0.03 if of_outputs else 0.05, np.float32),
        zero=np.array(low + 131, dtype),
    )
    content = relayout.convert(network, format="tflite", io="keep").tflite
    feed = rng.integers(low, low + 256, (1, 6, 5, 4)).astype(dtype)
    (expected,) = run(network, {"x": feed})
    assert set(operators(content)) <= INTEGERS
    for kernels in KERNELS:
        (got,) = results_of_runs(content, [feed], kernels)
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1
        assert np.mean(got != expected) < 0.02


@pytest.mark.parametrize("shape", [(2, 2, 3, 3), (3, 2, 3, 3)], ids=["as many outputs", "fewer outputs"])
@pytest.mark.parametrize("target", ["litert", "ethos-u"])
def test_a_scale_for_each_input_is_none_of_an_integer_kernel(shape: tuple[int, ...], target: str) -> None:
    network = model(
        f"""g (int8[1, {shape[0]}, 5, 4] x) => (int8[a, b, c, d] y) {{
            xr = DequantizeLinear(x, sx)
            kernel = DequantizeLinear<axis=0>(integers, scales)
            yr = ConvTranspose(xr, kernel)
            y = QuantizeLinear(yr, sy, zero) }}""",
        integers=(floats(*shape) * 40).astype(np.int8),
        scales=np.array([0.01, 0.002, 0.03][: shape[0]], np.float32),
        sx=np.array(0.05, np.float32),
        sy=np.array(0.13, np.float32),
        zero=np.array(0, np.int8),
    )
    content = relayout.convert(network, format="tflite", io="keep", target=target).tflite
    feed = np.random.default_rng(3).integers(-128, 128, (1, shape[0], 5, 4)).astype(np.int8)
    (expected,) = run(network, {"x": feed})
    for kernels in KERNELS:
        (got,) = results_of_runs(content, [feed], kernels)
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1


def test_words_in_the_gpus_file_have_biases_of_64_bits() -> None:
    network = model(
        """g (int16[1, 4, 5, 4] x) => (int16[a, b, c, d] y) {
            xr = DequantizeLinear(x, sx)
            kernel = DequantizeLinear(integers, sk)
            yr = ConvTranspose<group=4>(xr, kernel)
            y = QuantizeLinear(yr, sy, zero) }""",
        integers=(floats(4, 1, 3, 3) * 40).astype(np.int8),
        sx=np.array(0.001, np.float32),
        sk=np.array(0.01, np.float32),
        sy=np.array(0.003, np.float32),
        zero=np.array(0, np.int16),
    )
    network.opset_import[0].version = 21
    content = relayout.convert(network, format="tflite", io="keep", target="litert-gpu").tflite
    feed = np.random.default_rng(3).integers(-3000, 3000, (1, 4, 5, 4)).astype(np.int16)
    (expected,) = run(network, {"x": feed})
    for kernels in KERNELS:
        (got,) = results_of_runs(content, [feed], kernels)
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("target", ["litert", "tflite-micro"])
def test_parts_of_a_volume_of_an_open_batch(target: str) -> None:
    network = model(
        "g (float[n, 2, 7, 4, 5] x) => (float[a, b, c, d, e] y) { y = Conv<group=2, strides=[3,1,1]>(x, kernel) }",
        kernel=floats(4, 1, 2, 3, 3),
    )
    content = relayout.convert(network, format="tflite", io="keep", target=target).tflite
    feeds = [floats(batch, 2, 7, 4, 5, seed=batch) for batch in (2, 3)]
    for kernels in KERNELS:
        for feed, got in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
            np.testing.assert_allclose(got, run(network, {"x": feed})[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["int8", "int16x8"])
@pytest.mark.parametrize("operator", ["Conv<pads=[1,1,1,1]>", "ConvTranspose<group=4, strides=[4,4]>"])
def test_a_bias_stays_where_all_weights_of_an_output_are_zero(kind: str, operator: str) -> None:
    """Elements of an image that no tap of a kernel meets have weights of 0 alone."""
    kernel = floats(4, 4, 3, 3) if operator.startswith("Conv<") else floats(4, 1, 3, 3)
    kernel[1] = 0
    network = model(
        f"g (float[1, 4, 6, 5] x) => (float[a, b, c, d] y) {{ y = {operator}(x, kernel, bias) }}",
        kernel=kernel,
        bias=np.array([1, -1.5, 2, 0.5], np.float32),
    )
    feed = floats(1, 4, 6, 5)
    options = {"quantize": kind, "calibrate": [{"x": feed}]}
    content = relayout.convert(network, format="tflite", **options).tflite  # type: ignore[arg-type]
    (expected,) = run(network, {"x": feed})
    for kernels in KERNELS:
        (got,) = results_of_runs(content, [feed], kernels)
        np.testing.assert_allclose(got, expected, rtol=0, atol=np.abs(expected).max() / 50)


@pytest.mark.parametrize("target", ["litert", "nnapi"])
def test_values_that_are_always_zero_are_integers(target: str) -> None:
    """Three of four pixels are 0: no tap meets them, and there is no bias."""
    network = model(
        """g (float[3, 2, 5, 9] x) => (float[a, b, c, d] y) {
            z = ConvTranspose<group=2, strides=[2,2]>(x, kernel)
            y = Clip(z, low, high) }""",
        kernel=floats(2, 2, 1, 1),
        low=np.array(0, np.float32),
        high=np.array(6, np.float32),
    )
    feed = floats(3, 2, 5, 9)
    content = relayout.convert(network, format="tflite", quantize="int8", calibrate=[{"x": feed}], target=target).tflite
    (expected,) = run(network, {"x": feed})
    for kernels in KERNELS:
        (got,) = results_of_runs(content, [feed], kernels)
        np.testing.assert_allclose(got, expected, rtol=0, atol=np.abs(expected).max() / 50)


def test_others_compute_no_two_extents() -> None:
    network = source(CASES["an open batch and width"], "y = Sigmoid(z)")
    assert relayout.convert(network, format="tflite", target="tflite-micro").report.operators["TRANSPOSE_CONV"]


def test_units_of_halves_are_rounded_with_scales_of_halves() -> None:
    network = model(
        """g (int8[1, 4, 6, 6] x) => (int8[1, 4, 13, 13] y) {
            image = DequantizeLinear(x, s)
            kernel = DequantizeLinear(weights, r)
            z = ConvTranspose<group=2, strides=[2,2]>(image, kernel)
            y = QuantizeLinear(z, t, zero) }""",
        weights=(9 * floats(4, 2, 3, 3)).astype(np.int8),
        zero=np.array(1, np.int8),
        **{name: np.array(scale, np.float16) for name, scale in (("s", 0.02), ("r", 0.01), ("t", 0.05))},
    )
    result = relayout.convert(network, target="ethos-u")
    assert Counter(node.op_type for node in result.proto.graph.node)["Conv"] == 4
    onnx.checker.check_model(result.proto, full_check=True)
