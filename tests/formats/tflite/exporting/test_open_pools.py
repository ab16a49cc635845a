"""Pools of images whose extents are known only at run time, where their border does not depend on these."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees
from onnx import parser

import relayout
from litert_runs import operators
from relayout.errors import UnsupportedError
from small import build
from text_form import floats

POOLS = {
    "border counts": "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>",
    "border counts on one side": "AveragePool<kernel_shape=[3,2], pads=[0,1,2,0], strides=[2,2], count_include_pad=1>",
    "border counts in SAME": 'AveragePool<kernel_shape=[3,3], auto_pad="SAME_UPPER", count_include_pad=1>',
    "halved": "MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>",
    "norm of pairs": "LpPool<kernel_shape=[2,2], strides=[2,2], p=2>",
    "mean of pairs": "AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>",
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_open_images(name: str) -> None:
    model = build("float[1,3,h,w] x", f"y = {POOLS[name]}(x)", {})
    for height, width in ((6, 8), (7, 9), (5, 6)):
        agrees(model, {"x": floats(1, 3, height, width)})


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 0, 1]])
def test_a_border_counts_and_what_the_last_window_reaches_behind_it_does_not(pads: list[int]) -> None:
    pool = f"AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1, count_include_pad=1, pads={pads}>"
    model = build("float[1,1,6,5] x", f"y = {pool}(x)", {})
    agrees(model, {"x": 9 * np.ones((1, 1, 6, 5), np.float32)})


def test_a_pool_whose_border_counts_is_a_pad_and_a_pool() -> None:
    model = build("float[1,3,h,w] x", f"y = {POOLS['border counts']}(x)", {})
    names = operators(relayout.convert(model, format="tflite", io="convert").tflite)
    assert names == ["PAD", "AVERAGE_POOL_2D"]


@pytest.mark.parametrize(
    "pool",
    [
        "MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>",
        "AveragePool<kernel_shape=[2,2], strides=[2,2], pads=[1,1,1,1], ceil_mode=1, count_include_pad=1>",
    ],
)
def test_borders_that_depend_on_open_extents_are_refused(pool: str) -> None:
    model = build("float[1,3,h,w] x", f"y = {pool}(x)", {})
    with pytest.raises(UnsupportedError, match="its border depends on an extent"):
        relayout.convert(model, format="tflite")


def test_extra_elements_beside_same_are_refused() -> None:
    """ONNX's shape inference counts them; runtimes and the standard's formula do not."""
    text = 'y = ConvTranspose<strides=[2], auto_pad="SAME_UPPER", output_padding=[1]>(x, w)'
    model = build("float[1,2,3] x", text, {"w": (2, 1, 3)})
    with pytest.raises(UnsupportedError, match="output_padding beside SAME"):
        relayout.convert(model, format="tflite")
    plain = build("float[1,2,3] x", text.replace(", output_padding=[1]", ""), {"w": (2, 1, 3)})
    agrees(plain, {"x": np.asarray(floats(1, 2, 3))})


@pytest.mark.parametrize(("ceil_mode", "counts"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_pool_of_integers_whose_windows_reach_behind_a_border_that_counts(ceil_mode: int, counts: int) -> None:
    """Its last windows count what is behind the border, too, and those of real numbers do not: it stays as it is."""
    attributes = f"kernel_shape=[3,3], strides=[2,2], ceil_mode={ceil_mode}, count_include_pad={counts}"
    source = parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        g (float[1,1,6,5] x) => (float[1,1,a,b] y)
        <float s = {{0.05}}, uint8 z = {{128}}> {{
            q = QuantizeLinear(x, s, z)
            p = com.microsoft.QLinearAveragePool<{attributes}>(q, s, z, s, z)
            y = DequantizeLinear(p, s, z)
        }}""")
    if ceil_mode and counts:
        with pytest.raises(UnsupportedError, match="QLinearAveragePool"):
            relayout.convert(source, format="tflite")
    else:
        agrees(source, {"x": floats(1, 1, 6, 5)})


@pytest.mark.parametrize(("shape", "window"), [((1, 2, 7, 7), "[3,3], strides=[2,2]"), ((2, 3, 8), "[3], strides=[1]")])
def test_windows_that_share_their_greatest_element_are_unpooled(shape: tuple[int, ...], window: str) -> None:
    """SCATTER_ND adds up what is written to one place."""
    extents = ",".join(map(str, shape))
    proto = build(
        f"float[{extents}] x",
        f"p, i = MaxPool<kernel_shape={window}>(x) y = MaxUnpool<kernel_shape={window}>(p, i)",
        {},
    )
    agrees(proto, {"x": floats(*shape)})
