"""Windows of an image with open extents, as in Swin: shapes alone do not tell how many there are along an axis."""

from __future__ import annotations

import numpy as np
import pytest

import relayout
from small import build


@pytest.mark.parametrize(("batch", "height", "width"), [(2, 16, 16), (1, 32, 32), (3, 8, 4), (1, 4, 4)])
@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_windows_are_compared_by_their_axes(batch: int, height: int, width: int, kind: str) -> None:
    source = build(
        "float[batch,height,width,6] x",
        """s = Shape(x) b = Gather(s, i0) h = Gather(s, i1) w = Gather(s, i2) nh = Div(h, four) nw = Div(w, four)
        cut = Concat<axis = 0>(b, nh, four, nw, four, six)
        a = Neg(x) r = Reshape(a, cut) t = Transpose<perm = [0, 1, 3, 2, 4, 5]>(r) v = Reshape(t, windows)
        f = Reshape(v, rows) m = MatMul(f, k) e = Relu(m) o = Reshape(e, windows)
        joined = Concat<axis = 0>(b, nh, nw, four, four, six)
        u = Reshape(o, joined) p = Transpose<perm = [0, 1, 3, 2, 4, 5]>(u) whole = Concat<axis = 0>(b, h, w, six)
        y = Reshape(p, whole)""",
        {
            **{f"i{place}": [place] for place in range(3)},
            "four": [4],
            "six": [6],
            "windows": [-1, 4, 4, 6],
            "rows": [-1, 16, 6],
            "k": (6, 6),
        },
    )
    result = relayout.convert(source, format=kind)  # type: ignore[call-overload]
    x = np.random.default_rng(0).normal(size=(batch, height, width, 6)).astype(np.float32)
    report = relayout.verify(source, result, inputs={"x": x})
    assert report.ok, str(report)
    assert not report.notes, str(report)
