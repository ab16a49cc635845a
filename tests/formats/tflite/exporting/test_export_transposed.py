"""Transposed convolutions over one, two and three axes, of known and of open extents."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

import relayout
from litert_runs import operators
from relayout.errors import UnsupportedError
from small import build
from text_form import floats

PADDINGS = ("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.sampled(every=4)
def test_a_transposed_convolution_agrees(rank: int, seed: int) -> None:
    random = np.random.default_rng([rank, seed])
    extents, sizes, strides = (random.integers(low, high, rank).tolist() for low, high in ((3, 7), (1, 5), (1, 4)))
    dilations = random.integers(1, 3, rank).tolist() if seed % 4 == 0 else [1] * rank
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(sizes, dilations, strict=True)]
    group, auto = int(random.choice([1, 2])), PADDINGS[seed % 5]
    said = f"strides={strides}, dilations={dilations}, group={group}"
    if auto == "NOTSET":
        pads = [int(random.integers(0, each // 2 + 1)) for each in (*reach, *reach)]
        extra = [int(random.integers(0, stride)) for stride in strides]
        said += f", pads={pads}, output_padding={extra}"
    else:
        said += f', auto_pad="{auto}"'
    is_open = bool(seed % 2)
    image = ",".join("dhw"[-rank:]) if is_open else ",".join(map(str, extents))
    weights = {"w": (4, 3, *sizes), "b": (3 * group,)}
    model = build(f"float[{'n' if is_open else 2},4,{image}] x", f"y = ConvTranspose<{said}>(x, w, b)", weights)
    for batch, more in ((2, 0), (1, 2)) if is_open else ((2, 0),):
        agrees(model, {"x": floats(batch, 4, *(extent + more for extent in extents))})


@pytest.mark.parametrize(("image", "name"), [("h,w", "TRANSPOSE_CONV"), ("d,h,w", "CONV_3D_TRANSPOSE")])
def test_an_open_image_that_doubles_is_one_builtin(image: str, name: str) -> None:
    rank = image.count(",") + 1
    said = f"strides={[2] * rank}, pads={[1] * 2 * rank}, output_padding={[1] * rank}"
    model = build(f"float[n,4,{image}] x", f"y = ConvTranspose<{said}>(x, w)", {"w": (4, 3, *[3] * rank)})
    names = operators(relayout.convert(model, format="tflite", target="litert-gpu").tflite)
    assert names.count(name) == 1
    agrees(model, {"x": floats(1, 4, *[5, 4, 3][:rank])})


@pytest.mark.parametrize("auto", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("goal", [(5, 6), (8, 9), (7, 10)], ids=str)
def test_a_stated_shape(goal: tuple[int, int], auto: str) -> None:
    """Of an odd number of elements the larger part is cut off in front, but for SAME_UPPER."""
    said = f'strides=[2,2], output_shape={list(goal)}, auto_pad="{auto}"'
    model = build("float[1,2,4,5] x", f"y = ConvTranspose<{said}>(x, w)", {"w": (2, 3, 4, 3)})
    agrees(model, {"x": floats(1, 2, 4, 5)})


def test_a_stated_shape_of_an_open_image_is_refused() -> None:
    said = "strides=[2,2], output_shape=[9,9]"
    model = build("float[n,4,h,w] x", f"y = ConvTranspose<{said}>(x, w)", {"w": (4, 3, 3, 3)})
    with pytest.raises(UnsupportedError, match=r"to a stated shape, of an image whose extents are open"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize(("runtime", "count"), [(None, 1), ("2.13", 1), ("2.12", 2)], ids=str)
@pytest.mark.parametrize(("low", "high", "name"), [(0, 6, "RELU6"), (-1, 1, "RELU_N1_TO_1"), (0, None, "RELU")])
def test_an_activation_is_a_part_of_it_where_the_runtime_has_that(
    low: float, high: float | None, name: str, runtime: str | None, count: int
) -> None:
    activation = "Relu(c)" if high is None else "Clip(c, low, high)"
    own = {"w": 4 * floats(4, 3, 2, 2), "b": floats(3), "low": np.float32(low), "high": np.float32(high or 0)}
    model = build("float[1,4,5,6] x", f"c = ConvTranspose<strides=[2,2]>(x, w, b) y = {activation}", own)
    result = relayout.convert(model, format="tflite", io="convert", runtime=runtime, target="nnapi")
    names = operators(result.tflite)
    assert names == ["TRANSPOSE_CONV", name][:count]
    agrees(model, {"x": floats(1, 4, 5, 6)})
