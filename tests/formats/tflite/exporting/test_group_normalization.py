"""Groups of channels are normalized in images whose channels lie last, by way of each channel's mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
from export_running import agrees

import relayout
from relayout.formats.tflite.container.loading import load
from small import build
from text_form import floats

SHAPE = (2, 6, 5, 7)
RESHAPED = """
    c = Conv<pads=[1,1,1,1]>(x, k)
    r = Reshape(c, groups)
    i = InstanceNormalization<epsilon=0.001>(r, scale, bias)
    j = Reshape(i, back)
    m = Mul(j, w)
    s = Add(m, b)
    y = Conv(s, last)
"""
NAMED = "c = Conv<pads=[1,1,1,1]>(x, k)  g = GroupNormalization<num_groups=3>(c, scale, bias)  y = Conv(g, last)"
KERNELS = {"k": (6, 6, 3, 3), "last": (4, 6, 1, 1)}


def constants(groups: int, *, plain: bool) -> dict[str, object]:
    return {
        **KERNELS,
        "groups": np.array([0, groups, -1]),
        "back": np.array(SHAPE),
        "scale": np.ones(groups, np.float32) if plain else 2 + floats(groups),
        "bias": np.zeros(groups, np.float32) if plain else floats(groups, seed=1),
        "w": 2 + floats(6, 1, 1, seed=2),
        "b": floats(6, 1, 1, seed=3),
    }


def shapes_of_images(model: object) -> set[tuple[int, ...]]:
    """The shapes of tensors that an operator on each element gives and that have as many elements as the image."""
    (graph,) = load(relayout.convert(model, format="tflite", io="convert").tflite).subgraphs
    on_elements = [each for each in graph.operators if each.name in ("ADD", "MUL", "SQUARE", "SUB")]
    shapes = {graph.tensors[operator.outputs[0]].shape for operator in on_elements}
    return {shape for shape in shapes if math.prod(shape) == math.prod(SHAPE)}


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "weighted"])
def test_reshaped_groups_are_normalized_channels_last(groups: int, *, plain: bool) -> None:
    model = build(f"float{list(SHAPE)} x", RESHAPED, constants(groups, plain=plain), outputs=("y",))
    assert shapes_of_images(model) == {(2, 5, 7, 6)}
    agrees(model, {"x": floats(*SHAPE)})


@pytest.mark.parametrize("opset", [7, 8])
def test_groups_of_an_old_model_are_right(opset: int) -> None:
    model = build(f"float{list(SHAPE)} x", RESHAPED, constants(3, plain=False), outputs=("y",), opset=opset)
    agrees(model, {"x": floats(*SHAPE)})


@pytest.mark.parametrize("opset", [18, 21])
def test_named_groups_are_normalized_channels_last(opset: int) -> None:
    length = 3 if opset < 21 else 6
    own = {**KERNELS, "scale": 2 + floats(length), "bias": floats(length, seed=1)}
    model = build(f"float{list(SHAPE)} x", NAMED, own, outputs=("y",), opset=opset)
    assert shapes_of_images(model) == {(2, 5, 7, 6)}
    agrees(model, {"x": floats(*SHAPE)})


@pytest.mark.parametrize("groups", [1, 6])
def test_one_group_and_each_channel_alone(groups: int) -> None:
    model = build(f"float{list(SHAPE)} x", RESHAPED, constants(groups, plain=False), outputs=("y",))
    agrees(model, {"x": floats(*SHAPE)})


@pytest.mark.parametrize("groups", [1, 6])
def test_named_groups_of_all_channels_and_of_one(groups: int) -> None:
    text = NAMED.replace("num_groups=3", f"num_groups={groups}")
    own = {**KERNELS, "scale": 2 + floats(6), "bias": floats(6, seed=1)}
    agrees(build(f"float{list(SHAPE)} x", text, own, outputs=("y",)), {"x": floats(*SHAPE)})


def test_sound_is_normalized_in_groups() -> None:
    text = """
        c = Conv<pads=[1,1]>(x, k)
        r = Reshape(c, groups)
        i = InstanceNormalization(r, scale, bias)
        j = Reshape(i, back)
        y = Relu(j)
    """
    own = {
        "k": (6, 4, 3),
        "groups": np.array([2, 3, -1]),
        "back": np.array([2, 6, 9]),
        "scale": np.ones(3, np.float32),
        "bias": np.zeros(3, np.float32),
    }
    agrees(build("float[2,4,9] x", text, own, outputs=("y",)), {"x": floats(2, 4, 9)})


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_an_image_of_open_height_and_width(opset: int) -> None:
    """By ONNX's definition, which is one of opset 18 for the two that follow."""
    count = 2 if opset < 21 else 8
    text = "y = GroupNormalization<num_groups=2>(x, s, b)"
    model = build("float[1,8,h,w] x", text, {"s": (count,), "b": (count,)}, opset=opset)
    agrees(model, {"x": floats(1, 8, 5, 3)})
