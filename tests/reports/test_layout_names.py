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


@pytest.mark.parametrize(
    ("ends", "first", "last", "constants", "expected"),
    [
        pytest.param(
            "(float[2,7,4] x) => (float[2,7,3] y)",
            "i = Unsqueeze(x, one)",
            "y = Squeeze(o, one)",
            {"one": [1]},
            (["you keep input x in NWC", "you keep output y in NWC"], ["n w c", "n c h w", "n w c"]),
            id="as TensorFlow Lite writes a 1-D convolution",
        ),
        pytest.param(
            "(float[2,7,6,4] x) => (float[2,42,3] y)",
            "i = Identity(x)",
            "y = Reshape(o, flat)",
            {"flat": [2, 42, 3]},
            (["you keep input x in NHWC", "you keep output y in n (h w) c"], ["n h w c", "n c h w", "n (h w) c"]),
            id="an output that is a view of an image",
        ),
    ],
)
def test_ends_are_named_in_their_own_rank(
    ends: str, first: str, last: str, constants: dict[str, list[int]], expected: tuple[list[str], list[str]]
) -> None:
    proto = model(
        f"""{ends} {{
            {first}
            a = Transpose<perm=[0,3,1,2]>(i)
            b = Conv(a, k)
            o = Transpose<perm=[0,2,3,1]>(b)
            {last}
        }}""",
        k=kernel(3, 4, 1, 1),
        **{name: shape(*extents) for name, extents in constants.items()},
    )
    report = relayout.explain(proto)
    reasons, regions = expected
    assert words(report) == {"Conv b needs NCHW", *reasons}
    for side in (report.chart.before, report.chart.after):
        assert [region.layout for region in side.regions] == regions


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


def test_letters_have_a_legend_and_advice_is_given_once() -> None:
    network = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[2,6,4,5,3] x) => (float[2,5,4,6,3] y, float[2,3,4,6,5] z) <int64[1] one = {1}> {
          a = CumSum (x, one)
          b = Transpose <perm = [0, 3, 2, 1, 4]> (a)
          y = Relu (b)
          d = Transpose <perm = [0, 4, 2, 1, 3]> (a)
          z = Sigmoid (d) }"""
    )
    report = relayout.explain(network)
    assert str(report).count("axes: a = 2, b = 6, c = 4, d = 5, e = 3") == 2
    assert str(report).count("Remove it with `convert --io convert`.") == 1
    assert [row.reason.count("--io convert") for row in report.remaining] == [1, 1]
