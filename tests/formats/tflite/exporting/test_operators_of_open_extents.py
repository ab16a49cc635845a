"""Operators that read places of an image whose extents are known only at run time, and refusals that name these."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from relayout.errors import UnsupportedError
from rules.law import Array
from small import build
from text_form import floats

IMAGE = [{"n": 1, "h": 5, "v": 6, "a": 3, "b": 6}, {"n": 3, "h": 9, "v": 1, "a": 5, "b": 4}]
WIDE = [{"n": 2, "h": 6, "v": 7}, {"n": 1, "h": 9, "v": 8}]
SAMPLED = "y = GridSample<mode={mode}, padding_mode={padding}, align_corners={aligned}>(x, g)"
CASES: dict[str, tuple[str, str, dict[str, object], list[dict[str, int]]]] = {
    f"GridSample {mode} {padding} {aligned}": (
        "float[n,3,h,v] x, float[n,a,b,2] g",
        SAMPLED.format(mode=f'"{mode}"', padding=f'"{padding}"', aligned=aligned),
        {},
        IMAGE,
    )
    for mode, padding, aligned in [
        ("linear", "zeros", 0),
        ("linear", "reflection", 1),
        ("cubic", "reflection", 0),
        ("cubic", "border", 1),
        ("nearest", "border", 0),
    ]
}
CASES |= {
    "GridSample of a volume": (
        "float[n,3,a,h,v] x, float[n,b,h,v,3] g",
        'y = GridSample<padding_mode="border">(x, g)',
        {},
        IMAGE,
    ),
    "DeformConv": (
        "float[n,4,6,7] x, float[n,18,4,5] o",
        "y = DeformConv(x, w, o)",
        {"w": (5, 4, 3, 3)},
        [{"n": 1}, {"n": 3}],
    ),
    "DeformConv of any image": (
        "float[n,4,h,v] x, float[n,36,a,b] o, float[n,18,a,b] m",
        "y = DeformConv<offset_group=2, pads=[1,1,1,1], strides=[2,1]>(x, w, o, k, m)",
        {"w": (5, 4, 3, 3), "k": (5,)},
        [{"n": 1, "h": 5, "v": 6, "a": 3, "b": 6}, {"n": 3, "h": 9, "v": 4, "a": 5, "b": 4}],
    ),
    "DeformConv of two images": (
        "float[2,4,h,5] x, float[2,18,a,5] o",
        "y = DeformConv<pads=[1,1,1,1]>(x, w, o)",
        {"w": (5, 4, 3, 3)},
        [{"h": 6, "a": 6}, {"h": 3, "a": 3}],
    ),
    "RoiAlign": (
        "float[n,3,h,v] x, float[a,4] r, int64[a] i",
        "y = RoiAlign<output_height=2, output_width=3, sampling_ratio=2>(x, r, i)",
        {},
        IMAGE,
    ),
    "Trilu": ("float[h,v] x", "y = Trilu(x, k)", {"k": np.array(-1)}, WIDE),
    "Trilu of ones": (
        "float[h,v] x",
        "s = Shape(x)  o = Expand(one, s)  t = Trilu<upper=0>(o)  y = Mul(x, t)",
        {"one": np.ones((1, 1), np.float32)},
        WIDE,
    ),
    "Hardmax": ("float[n,h] x", "y = Hardmax<axis=0>(x)", {}, WIDE),
}
CASES |= {
    name: ("float[n,3,h,v] x", f"y = {text}(x)", {}, WIDE)
    for name, text in {
        "MaxPool": "MaxPool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>",
        "MaxPool with a border": "MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1>",
        "AveragePool": "AveragePool<kernel_shape=[3,3], strides=[2,2], ceil_mode=1>",
        "AveragePool with a border": (
            "AveragePool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1], ceil_mode=1, count_include_pad=1>"
        ),
        "AveragePool of pairs": "AveragePool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1, count_include_pad=1>",
    }.items()
}


def feed_of(model: onnx.ModelProto, extents: dict[str, int]) -> dict[str, Array]:
    """Return inputs of these extents: numbers, pairs of corners for `r`, and the first image for integers."""
    feed: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dims = [dim.dim_value or extents[dim.dim_param] for dim in kind.shape.dim]
        array = floats(*dims, seed=len(feed))
        if value.name == "r":
            array = np.abs(array) + np.array([0, 0, 2, 2], np.float32)
        feed[value.name] = np.zeros(dims, np.int64) if kind.elem_type == onnx.TensorProto.INT64 else array
    return feed


@pytest.mark.parametrize("name", CASES)
def test_open_extents_agree_at_all_that_are_told(name: str) -> None:
    inputs, text, constants, extents = CASES[name]
    model = build(inputs, text, constants, opset=20, outputs=("y",))  # type: ignore[arg-type]
    for each in extents:
        agrees(model, feed_of(model, each))


@pytest.mark.parametrize("shape", ["n,3,4", "2,h,4", "n,h,4"])
def test_a_hardmax_over_several_axes(shape: str) -> None:
    model = build(f"float[{shape}] x", f"y = Hardmax<axis={2 if shape == 'n,h,4' else 1}>(x)", {}, opset=11)
    for each in WIDE:
        agrees(model, feed_of(model, each))


@pytest.mark.parametrize("count", [1, 7, 30])
@pytest.mark.parametrize("most", [0, 3, 100])
def test_boxes_of_an_open_number(count: int, most: int) -> None:
    constants = {"m": np.array([most]), "i": np.array([0.3], np.float32), "t": np.array([0.2], np.float32)}
    model = build("float[1,k,4] b, float[1,2,k] s", "y = NonMaxSuppression(b, s, m, i, t)", constants)
    corners = np.abs(floats(1, count, 2))
    boxes = np.concatenate([corners, corners + np.abs(floats(1, count, 2, seed=1)) + 0.1], -1)
    agrees(model, {"b": boxes, "s": np.abs(floats(1, 2, count, seed=2))}, kernels=("default",))


REFUSED = {
    "--dim c=N fixes": ("float[1,k,4] b, float[1,c,k] s", "y = NonMaxSuppression(b, s, m)", {"m": np.array([3])}),
    "--dim x:0=N fixes": ("float[?,3,4] x", "y = Unique(x)", {}),
    "--dim h=N --dim v=N fixes": (
        "float[1,3,h,v] x",
        "y = MaxPool<kernel_shape=[1,1], strides=[2,2], ceil_mode=1>(x)",
        {},
    ),
}


@pytest.mark.parametrize("hint", REFUSED)
def test_a_refusal_that_a_dim_cures_names_it(hint: str) -> None:
    inputs, text, constants = REFUSED[hint]
    with pytest.raises(UnsupportedError, match=f"; {re.escape(hint)}"):
        relayout.convert(build(inputs, text, constants, outputs=("y",)), format="tflite")


def test_a_refusal_of_another_kind_names_no_dim() -> None:
    with pytest.raises(UnsupportedError) as error:
        relayout.convert(build("float[n,3,4] x", "y = some.where.Kernel(x)", {}, outputs=("y",)), format="tflite")
    assert "--dim" not in str(error.value)
