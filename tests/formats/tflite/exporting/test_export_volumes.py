"""Convolutions over three axes in groups: a sum of convolutions over two."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

import relayout
from litert_runs import operators
from small import build
from text_form import floats


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(every=3)
def test_a_convolution_of_volumes_in_groups_agrees(seed: int) -> None:
    random = np.random.default_rng(seed)
    extents, sizes, strides = (random.integers(low, high, 3).tolist() for low, high in ((5, 9), (1, 4), (1, 3)))
    dilations = random.integers(1, 3, 3).tolist() if seed % 12 in (0, 6, 9) and strides == [1, 1, 1] else [1] * 3
    group, count = [(4, 4), (4, 8), (2, 6)][seed % 3]
    said = f"group={group}, strides={strides}, dilations={dilations}"
    if seed % 4 == 3:
        said += f', auto_pad="{("SAME_UPPER", "SAME_LOWER")[seed % 8 == 3]}"'
    else:
        said += f", pads={random.integers(0, 2, 6).tolist()}"
    is_open = seed % 4 == 1
    image = ",".join(map(str, ("n" if is_open else 2, 4, *extents)))
    weights = {"w": (count, 4 // group, *sizes), "b": (count,)}
    model = build(f"float[{image}] x", f"y = Conv<{said}>(x, w, b)", weights)
    for batch in (2, 1) if is_open else (2,):
        agrees(model, {"x": floats(batch, 4, *extents)})


def test_a_kernel_that_is_computed_is_one_for_each_depth() -> None:
    model = build("float[1,4,5,6,7] x, float[4,1,3,3,3] w", "y = Conv<group=4>(x, w)", {})
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert names.count("DEPTHWISE_CONV_2D") == 3
    agrees(model, {"x": floats(1, 4, 5, 6, 7), "w": floats(4, 1, 3, 3, 3)})
