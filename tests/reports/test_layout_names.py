"""Layouts for people: each rank by its own name, a view by its own dimensions, a region by what runs in it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser, shape_inference

import relayout
from relayout.reports.report import Report

EXTENTS = (7, 6, 5)
"""The spatial extents of the networks here; every other axis has another."""


def model(text: str, **constants: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return shape_inference.infer_shapes(proto)


def kernel(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def shape(*extents: int) -> np.ndarray:
    return np.array(extents, np.int64)


def channels_last(spatial: int) -> onnx.ModelProto:
    """A convolution between a Transpose from channels last and one back."""
    last = spatial + 1
    extents = ",".join(map(str, EXTENTS[:spatial]))
    there = [0, last, *range(1, last)]
    back = [0, *range(2, last + 1), 1]
    return model(
        f"""(float[2,{extents},4] x) => (float[2,{extents},3] y) {{
            a = Transpose<perm={there}>(x)
            b = Conv(a, k)
            y = Transpose<perm={back}>(b)
        }}""",
        k=kernel(3, 4, *[1] * spatial),
    )


def words(report: Report) -> set[str]:
    """The demands that the reasons of a report name."""
    return {demand for left in report.remaining for cause in left.causes for demand in (cause.above, cause.below)}


@pytest.mark.parametrize(("spatial", "last", "first"), [(1, "NWC", "NCW"), (2, "NHWC", "NCHW"), (3, "NDHWC", "NCDHW")])
def test_images_of_every_rank_have_the_name_of_that_rank(spatial: int, last: str, first: str) -> None:
    report = relayout.explain(channels_last(spatial))
    assert words(report) == {f"you keep input x in {last}", f"Conv b needs {first}", f"you keep output y in {last}"}
    text = str(report)
    assert f"remains: x  {last} -> {first}, " in text
    assert f"remains: b  {first} -> {last}, " in text
    assert [line.split()[-1] for line in text.splitlines() if line.startswith(("input", "output"))] == [last, last]


def test_a_one_dimensional_network_on_images_keeps_the_names_of_its_own_rank_at_its_ends() -> None:
    """As TensorFlow Lite writes a 1-D convolution: its input gets a height of 1, and its output loses it."""
    proto = model(
        """(float[2,7,4] x) => (float[2,7,3] y) {
            x4 = Unsqueeze(x, one)
            a = Transpose<perm=[0,3,1,2]>(x4)
            b = Conv(a, k)
            b4 = Transpose<perm=[0,2,3,1]>(b)
            y = Squeeze(b4, one)
        }""",
        k=kernel(3, 4, 1, 1),
        one=shape(1),
    )
    report = relayout.explain(proto)
    assert words(report) == {"you keep input x in NWC", "Conv b needs NCHW", "you keep output y in NWC"}
    assert [region.layout for region in report.chart.after.regions] == ["n w c", "n c h w", "n w c"]


def test_an_output_of_rank_3_is_not_called_nhwc_since_it_is_a_view_of_an_image() -> None:
    proto = model(
        """(float[2,7,6,4] x) => (float[2,42,3] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Conv(a, k)
            b4 = Transpose<perm=[0,2,3,1]>(b)
            y = Reshape(b4, flat)
        }""",
        k=kernel(3, 4, 1, 1),
        flat=shape(2, 42, 3),
    )
    report = relayout.explain(proto)
    assert words(report) == {"you keep input x in NHWC", "Conv b needs NCHW", "you keep output y in n (h w) c"}
    for side in (report.chart.before, report.chart.after):
        assert [region.layout for region in side.regions] == ["n h w c", "n c h w", "n (h w) c"]


def test_kernels_that_are_ready_before_a_run_do_not_name_a_region() -> None:
    """Casts of kernels have more axes than an image of batch 1, and move no byte in a run."""
    proto = model(
        """(float[1,7,6,4] x) => (float[1,7,6,4] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            k = Cast<to=1>(half)
            turned = Transpose<perm=[0,3,1,2]>(k)
            b = Conv<pads=[1,1,1,1]>(a, turned)
            y = Transpose<perm=[0,2,3,1]>(b)
        }""",
        half=np.ones((4, 3, 3, 4), np.float16),
    )
    chart = relayout.explain(proto).chart
    (region,) = [
        region for region in chart.after.regions if any(chart.spots[s].operator == "Conv" for s in region.spots)
    ]
    assert {chart.spots[spot].operator for spot in region.spots} >= {"Conv", "Cast"}
    assert region.layout == "n c h w"
