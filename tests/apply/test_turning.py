"""Height and width that change places before an operator on images: they do so in its kernel and its attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import relayout
from running import run
from small import build, feed_of

SWAPPED = {
    "a convolution": ("Conv<pads=[1,0,0,2], strides=[1,2]>(t, w)", {"w": (5, 3, 2, 3)}),
    "a dilated, grouped convolution": ("Conv<group=3, dilations=[2,1]>(t, w)", {"w": (6, 1, 2, 3)}),
    "a transposed convolution": (
        "ConvTranspose<pads=[1,0,0,2], strides=[1,2], output_padding=[0,1]>(t, w)",
        {"w": (3, 5, 2, 3)},
    ),
    "a padded convolution": ('Conv<auto_pad="SAME_UPPER", strides=[2,3]>(t, w)', {"w": (5, 3, 2, 4)}),
    "a pool": ("MaxPool<kernel_shape=[2,3], pads=[1,0,0,2], ceil_mode=1, strides=[2,1]>(t)", {}),
    "an average": ("AveragePool<kernel_shape=[2,3], pads=[1,0,0,2], count_include_pad=1>(t)", {}),
    "a pool over the whole image": ("GlobalMaxPool(t)", {}),
    "a normalization": ("BatchNormalization(t, c, c, c, v)", {"c": (3,), "v": np.ones(3, np.float32)}),
    "neighbouring channels": ("LRN<size=3>(t)", {}),
    "a larger image": ('Resize<mode="linear">(t, , s)', {"s": np.array([1, 1, 2, 3], np.float32)}),
    "a larger image, cubic": ('Resize<mode="cubic">(t, , s)', {"s": np.array([1, 1, 2, 3], np.float32)}),
    "an image of a stated size": (
        'Resize<mode="nearest", coordinate_transformation_mode="tf_crop_and_resize">(t, p, , s)',
        {"p": np.array([0, 0, 0.1, 0.3, 1, 1, 0.8, 0.7], np.float32), "s": [2, 3, 11, 5]},
    ),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_nothing_is_moved(name: str) -> None:
    text, constants = SWAPPED[name]
    source = build("float[2,3,8,9] x", f"t = T0132(x) a = {text} r = Tanh(a) y = T0132(r)", constants)
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    proto = result.proto
    onnx.checker.check_model(proto, full_check=True)
    np.testing.assert_allclose(run(proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert result.report.proved
    assert result.report.bytes == 0 < result.report.source_bytes
    assert [node.op_type for node in proto.graph.node] == [source.graph.node[1].op_type, "Tanh"]


@pytest.mark.parametrize("perm", ["01432", "01243", "01324", "01423", "01342"])
def test_the_axes_of_a_volume(perm: str) -> None:
    back = "".join(str(place) for place in np.argsort([int(axis) for axis in perm]))
    constants: dict[str, Any] = {"w": (4, 3, 2, 3, 1)}
    text = f"t = T{perm}(x) a = Conv<pads=[1,0,2,0,1,1], strides=[1,2,3]>(t, w) y = T{back}(a)"
    source = build("float[2,3,6,7,8] x", text, constants)
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert result.report.bytes == 0


def test_indices_of_a_pool_keep_their_order() -> None:
    text = "t = T0132(x) a, i = MaxPool<kernel_shape=[2,3]>(t) y = T0132(a) z = T0132(i)"
    source = build("float[2,3,8,9] x", text, {})
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_array_equal(got, want)
    assert result.report.bytes == result.report.source_bytes


def test_a_size_that_is_computed_follows() -> None:
    text = 't = T0132(x) a = Resize<mode="nearest">(t, , , s) y = T0132(a)'
    source = build("float[2,3,8,9] x, int64[4] s", text, {})
    feed = feed_of(source, {}, {"s": [2, 3, 11, 5]})
    result = relayout.optimize(source)
    np.testing.assert_array_equal(run(result.proto, feed)[0], run(source, feed)[0])
    assert result.report.transposes == 0
    assert result.report.operators == {"Gather": 1, "Resize": 1}


@pytest.mark.parametrize(
    "text", ['t = T0132(x) y = Resize<mode="nearest">(t, , , s)', 't = Resize<mode="nearest">(x, , , s) y = T0132(t)']
)
def test_a_transpose_stays_where_it_is_beside_a_size_that_is_computed(text: str) -> None:
    """A Transpose stays where its cost on the other side is not known."""
    source = build("float[2,3,8,9] x, int64[4] s", text, {})
    assert relayout.optimize(source).proto.SerializeToString() == source.SerializeToString()


def test_a_swap_stands_where_it_is_cheapest() -> None:
    """One swap on the way in may be one on the way out, behind all convolutions."""
    text = "t = T0132(x) a = Conv(t, w) b = Relu(a) y = Conv(b, v)"
    source = build("float[2,3,8,9] x", text, {"w": (5, 3, 2, 3), "v": (4, 5, 3, 1)})
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert result.report.source_bytes == 2 * 3 * 8 * 9 * 4
    assert result.report.bytes == 2 * 4 * 6 * 6 * 4


@pytest.mark.parametrize(
    "resized",
    [
        'Resize<mode="linear">(t, , , s)',
        'Resize<mode="nearest">(t, , c)',
        'Resize<mode="linear", coordinate_transformation_mode="align_corners">(t, , c)',
    ],
)
def test_a_resize_of_channels_last_runs_where_convolutions_do(resized: str) -> None:
    """`jax.image.resize` comes so. Where nothing gains by it, it stays as it is."""
    constants: dict[str, Any] = {"s": [2, 16, 27, 3], "c": np.array([1, 2, 3, 1], np.float32)}
    source = build("float[2,3,8,9] x", f"t = T0231(x) a = {resized} r = Tanh(a) y = T0312(r)", constants)
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert result.report.proved
    assert result.report.transposes == 0 < result.report.source_transposes
    kept = build("float[2,8,9,3] x", f"t = Tanh(x) y = {resized}", constants)
    assert relayout.optimize(kept).proto.SerializeToString() == kept.SerializeToString()


@pytest.mark.parametrize("resized", ['Resize<mode="linear">(t, , , s)', 'Resize<mode="nearest">(t, , c)'])
@pytest.mark.parametrize(("to", "kept"), [("NHWC", 0), ("NCHW", 2)])
def test_the_layout_of_a_resize_of_channels_last_is_that_of_its_image(resized: str, to: str, kept: int) -> None:
    """The axes that are not resized are `n` and `c`, wherever they stand."""
    constants: dict[str, Any] = {"s": [2, 16, 27, 3], "c": np.array([1, 2, 3, 1], np.float32)}
    source = build("float[2,8,9,3] x", f"t = Tanh(x) y = {resized}", constants)
    feed = feed_of(source, {})
    result = relayout.convert(source, to=to)
    onnx.checker.check_model(result.proto, full_check=True)
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    assert result.report.transposes == kept
    again = relayout.optimize(result.proto)
    np.testing.assert_allclose(run(again.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
    back = relayout.convert(result.proto, to="NCHW")
    assert back.report.transposes == 2
    np.testing.assert_allclose(run(back.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)
