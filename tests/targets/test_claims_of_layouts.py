"""What a report claims that a target runs, where extents are open or a block does not divide the channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relayout
from relayout.targets import Target
from relayout.targets.target_table import Kernel
from text_form import floats, model

BLOCKED = Target(
    "acc",
    "accelerator with blocks of 8 channels",
    (Kernel("Conv", layouts=("NHWC8c OHWI8o",), types=("FLOAT",)), Kernel("Relu")),
)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_open_extents_of_any_name_are_claimed(step: int, tmp_path: Path) -> None:
    """A Resize of an open image gives `2*height`, which is the extent of a whole axis."""
    text = f"""
        g (float[batch,3,height,width] image) => (float[batch,4,p,q] y) {{
            a = Conv<pads=[1,1,1,1], strides=[{step},{step}]>(image, w0)
            u = Resize<mode="nearest">(a, none, twice)
            k = Concat<axis=1>(u, u)
            r = Relu(k)
            y = Conv(r, w1)
        }}
    """
    source = model(
        text,
        w0=floats(8, 3, 3, 3),
        w1=floats(4, 16, 1, 1),
        none=floats(0),
        twice=np.array([1, 1, 2, 2], np.float32),
    )
    claims = relayout.convert(source, format="tflite").report.claims
    assert claims is not None
    assert (claims.claimed, claims.total, claims.claimed_parts) == (5, 5, 1)
    names = relayout.convert(source, format="tflite", parts=True).save_parts(tmp_path)
    assert len(names) == 1


@pytest.mark.parametrize("channels", [36, 12, 20])
def test_the_block_that_does_not_divide_is_named(channels: int) -> None:
    source = model(
        f"g (float[1,8,8,8] x) => (float[1,{channels},8,8] y) {{ a = Conv(x, w0)  r = Relu(a)  y = Conv(r, w1) }}",
        w0=floats(16, 8, 1, 1),
        w1=floats(channels, 16, 1, 1),
    )
    report = relayout.convert(source, target=BLOCKED).report
    assert f"not on acc: 1 of 2 Conv: {channels} channels are no multiple of the block of 8" in str(report)
