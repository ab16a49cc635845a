"""Shape inference takes no more memory than a small file may cost."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from onnx import parser

import relayout
from relayout.formats.onnx.inferring import MOST_PROPAGATED, infer_shapes

GIBIBYTE = 1 << 30


@contextmanager
def within(more: int) -> Iterator[None]:
    """A limit on the address space: what the process has now, and so much more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def vectors(extent: int, body: str) -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g (int64[{extent}] v, bool c) => (int64[{extent}] z) {{ {body} }}'
    )


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the size of the process is read in /proc")
@pytest.mark.parametrize(
    "body",
    [
        "z = Add(v, v)",
        "z = Cast<to = 7>(v)",
        "z = Gather(v, v)",
        """z = If(c) <then_branch = t () => (int64[n] o) { o = Mul(v, v) },
                      else_branch = e () => (int64[n] p) { p = Neg(v) }>""",
    ],
)
def test_long_vectors_cost_nothing(body: str, tmp_path: Path) -> None:
    extent, before = 10**7, peak()
    with within(4 * GIBIBYTE):
        result = relayout.optimize(vectors(extent, body.replace("n]", f"{extent}]")))
        result.save(tmp_path / "m.onnx", external_data=False)
    assert peak() - before < GIBIBYTE // 2
    assert list(result.model.graph.outputs[0].shape) == [extent]


def test_shapes_are_followed_beside_short_vectors() -> None:
    def model(extent: int) -> onnx.ModelProto:
        return parser.parse_model(
            f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2, 3, 4] x, float[{extent}] v) => (y, w) {{
              w = Neg(v)  s = Shape(x)  i = Constant<value_ints = [2, 0, 1]>()
              t = Gather(s, i)  y = Reshape(x, t) }}"""
        )

    def extents(extent: int) -> list[int]:
        return [dim.dim_value for dim in infer_shapes(model(extent)).graph.output[0].type.tensor_type.shape.dim]

    assert extents(5000) == [4, 2, 3]
    assert extents(MOST_PROPAGATED) == [0, 0, 0]  # not known, not wrong
