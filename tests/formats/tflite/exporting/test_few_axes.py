"""Operators on more axes than LiteRT's delegate prepares."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

from small import build
from text_form import floats

SHAPE = (2, 3, 2, 4, 2, 3, 2)
NETWORKS = {
    "sum": "y = ReduceSum(x, [one])",
    "mean of every second axis": "y = ReduceMean<keepdims=0>(x, [others])",
    "softmax": "y = Softmax<axis=3>(x)",
    "concat": "r = Relu(x)  y = Concat<axis=-2>(x, r)",
    "split": "y, z = Split<axis=3, num_outputs=2>(x)",
    "parts": "y, z = Split<axis=3>(x, [parts])",
    "product": "y = MatMul(x, [w])",
    "normalized": "y = LayerNormalization(x, [w1])",
    "pads": "y = Pad(x, [all])",
    "some pads": "y = Pad(x, [some], [high])",
}
CONSTANTS = {
    "one": [1],
    "others": [0, 2, 4, 6],
    "parts": [1, 3],
    "w": (2, 5),
    "w1": (2,),
    "all": [1, 0, 2, 1, 1, 0, 1, 0, 1, 1, 0, 2, 1, 1],
    "some": [0] * 6 + [1, 0, 2, *[0] * 5],
    "high": np.float32(7),
}


@pytest.mark.parametrize("extents", ["2,3,2,4,2,3,2", "n,3,2,4,2,3,2"])
@pytest.mark.parametrize("name", NETWORKS)
def test_operators_run_on_seven_axes(name: str, extents: str) -> None:
    if name == "softmax" and extents.startswith("n"):
        return  # a Transpose of seven axes: refused
    constants = {key: value for key, value in CONSTANTS.items() if f"[{key}]" in NETWORKS[name]}
    text = NETWORKS[name].replace("[", "").replace("]", "")
    agrees(build(f"float[{extents}] x", text, constants), {"x": floats(*SHAPE)})


@pytest.mark.parametrize("border", [0, 7])
@pytest.mark.parametrize("amounts", [[1, 0, 2, 0, 1, 0] * 2, [1] * 12, [0, 0, 0, 1, 0, 0] * 2], ids=str)
def test_a_border_of_six_axes_runs(amounts: list[int], border: int) -> None:
    """The kernels of PAD and PADV2 take five."""
    constants = {"all": np.array(amounts), "high": np.float32(border)}
    agrees(build("float[2,3,2,4,2,3] x", "y = Pad(x, all, high)", constants), {"x": floats(2, 3, 2, 4, 2, 3)})
