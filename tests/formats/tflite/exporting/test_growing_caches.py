"""A MultiHeadAttention with keys and values of earlier runs, whose number may be open, is ONNX Runtime's in LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

HEADS, SIZE = 2, 4


@pytest.mark.parametrize("open_extents", ["", "p", "bp", "sp", "bsp"])
@pytest.mark.parametrize(("b", "s", "p", "is_biased"), [(1, 1, 5, False), (2, 1, 3, True), (2, 3, 4, False)])
def test_keys_of_earlier_runs(b: int, s: int, p: int, is_biased: bool, open_extents: str) -> None:
    rng = np.random.default_rng(0)
    extents = {"b": b, "s": s, "p": p}
    batch, length, past = (name if name in open_extents else extent for name, extent in extents.items())
    width = HEADS * SIZE

    def numbers(*shape: int) -> NDArray[np.float32]:
        return rng.normal(size=shape).astype(np.float32)

    node = helper.make_node(
        "MultiHeadAttention",
        ["q", "k", "v", "bias" if is_biased else "", "", "", "past_k", "past_v"],
        ["y", "present_k", "present_v"],
        domain="com.microsoft",
        num_heads=HEADS,
    )
    fresh = [(name, [batch, length, width]) for name in "qkv"]
    caches = [(name, [batch, HEADS, past, SIZE]) for name in ("past_k", "past_v")]
    given = [("y", [batch, length, width]), *((name, [batch, HEADS, "t", SIZE]) for name in ("present_k", "present_v"))]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
        for ends in ([*fresh, *caches], given)
    )
    bias = [numpy_helper.from_array(numbers(3 * width), "bias")] if is_biased else []
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs, bias), opset_imports=imports, ir_version=8
    )
    feeds = {name: numbers(b, s, width) for name, _ in fresh} | {name: numbers(b, HEADS, p, SIZE) for name, _ in caches}
    agrees(model, feeds)
