"""A positive scale behind an activation stands as well before it, and is part of the convolution there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from export_running import agrees

import relayout
from relayout.formats.tflite.container.loading import load
from rules.law import Array
from small import build
from text_form import floats

ONE = np.float32(0.7)
EACH = np.array([0.5, 1.5, 2, 0.1, 3], np.float32).reshape(5, 1, 1)
SIGNED = EACH - np.float32(1)


def operators(text: str, **more: Any) -> list[str]:
    own = {"w": (5, 3, 3, 3), "b": (5,), **more}
    model = build("float[2,3,9,8] x", text, {name: each for name, each in own.items() if name in text})
    agrees(model, {"x": floats(2, 3, 9, 8)})
    (graph,) = load(relayout.convert(model, format="tflite", io="convert").tflite).subgraphs
    return [operator.name for operator in graph.operators]


@pytest.mark.parametrize("scale", [ONE, EACH], ids=["one number", "each channel"])
@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu<alpha=0.2>"])
def test_a_positive_scale_is_part_of_the_convolution(activation: str, scale: Array) -> None:
    text = f"c = Conv(x, w, b)  a = {activation}(c)  y = Mul(a, s)"
    assert "MUL" not in operators(text, s=scale)


@pytest.mark.parametrize("scale", [ONE, -ONE, SIGNED], ids=["positive", "negative", "of both signs"])
def test_any_scale_right_behind_it_is(scale: Array) -> None:
    assert operators("c = Conv(x, w, b)  m = Mul(c, s)  y = Relu(m)", s=scale) == ["CONV_2D"]


@pytest.mark.parametrize(
    "text",
    [
        "c = Conv(x, w, b)  a = Sigmoid(c)  y = Mul(a, s)",
        "c = Conv(x, w, b)  a = Relu(c)  y = Mul(a, s)  z = Abs(a)",
        "c = Conv(x, w, b)  a = Relu(c)  y = Mul(a, s)  z = Abs(c)",
        "c = Conv(x, w, b)  a = Relu(c)  y = Mul(a, n)",
        "c = Conv(x, w, b)  a = Relu(c)  y = Add(a, s)",
    ],
)
def test_other_scales_stay(text: str) -> None:
    found = operators(text, s=ONE, n=SIGNED)
    assert found.count("MUL") + found.count("ADD") == 1


def test_a_normalization_of_one_channel_is_right() -> None:
    text = "c = Conv(x, one, o)  n = BatchNormalization(c, g, h, m, v)  a = Relu(n)  y = Mul(a, s)"
    own = {"one": floats(1, 3, 3, 3), **{name: np.abs(floats(1, seed=seed)) + 0.5 for seed, name in enumerate("oghmv")}}
    assert "CONV_2D" in operators(text, s=ONE, **own)
