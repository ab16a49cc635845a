"""States of a Loop whose shape a file does not state: their rank is known if the body gives it back."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import relayout
from running import run
from small import build, feed_of

KEPT = {
    "the same shape": "so = Relu(st)",
    "longer in each round": "so = Concat<axis=1>(st, st)",
    "of other numbers": "up = Add(st, it1) so = Cast<to=1>(up)",
}


def looped(body: str) -> onnx.ModelProto:
    inner = f"""bd (int64 it, bool ci, float[] st) => (bool cc, float[] so) {{
        cc = Identity(ci) it1 = Cast<to=1>(it) {body} }}"""
    before, behind = "i = T0312(x) u = Conv(i, v) a = T0231(u)", "d = T0312(b) o = Conv(d, w) y = T0231(o)"
    text = f"{before} b = Loop<body={inner}>(M, , a) {behind}"
    constants = {"v": (4, 3, 1, 1), "w": (5, 4, 1, 1), "M": np.array(2, np.int64)}
    source = build("float[n,h,w,3] x", text, constants, opset=18)
    for node in source.graph.node:
        for attribute in node.attribute:
            for value in (*attribute.g.input, *attribute.g.output):
                if value.name in ("st", "so"):
                    value.type.tensor_type.ClearField("shape")
    return source


@pytest.mark.parametrize("name", KEPT)
def test_transposes_pass_around_and_within(name: str) -> None:
    source = looped(KEPT[name])
    result = relayout.optimize(source)
    assert (result.report.source_transposes, result.report.transposes) == (4, 2)
    for sizes in ({"n": 2, "h": 5, "w": 6}, {"n": 1, "h": 3, "w": 4}):
        feed = feed_of(source, sizes)
        np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)


def test_a_state_that_changes_its_rank_is_not_known() -> None:
    inner = "bd (int64 it, bool ci, float[] st) => (bool cc, float[] so) { cc = Identity(ci) so = Unsqueeze(st, zero) }"
    text = f"t = T0231(x) b = Loop<body={inner}>(M, , t) y = Relu(b)"
    source = build("float[2,3,4,5] x", text, {"M": np.array(2, np.int64), "zero": [0]}, opset=18)
    for value in (*source.graph.node[1].attribute[0].g.input, *source.graph.node[1].attribute[0].g.output):
        if value.name in ("st", "so"):
            value.type.tensor_type.ClearField("shape")
    feed = feed_of(source, {})
    result = relayout.optimize(source)
    assert run(result.proto, feed)[0].shape == run(source, feed)[0].shape == (1, 1, 2, 4, 5, 3)
    assert result.report.transposes == 1
