"""A BatchNormalization that computes the mean and variance of its batch."""

from __future__ import annotations

import pytest
from export_running import agrees

from small import build
from text_form import floats


@pytest.mark.parametrize("extents", ["7", "4,3", "2,3,5,4"])
def test_a_batch_is_normalized_by_its_own_mean(extents: str) -> None:
    """One axis alone is one channel."""
    shape = [int(extent) for extent in extents.split(",")]
    channels = shape[1] if len(shape) > 1 else 1
    inputs = f"float[{extents}] x, float[{channels}] s, float[{channels}] b, float[{channels}] m, float[{channels}] v"
    text = "y, mean, variance = BatchNormalization<training_mode=1, momentum=0.75>(x, s, b, m, v)"
    feed = {"x": floats(*shape), **{name: abs(floats(channels)) for name in "sbmv"}}
    agrees(build(inputs, text, {}, opset=15), feed)
