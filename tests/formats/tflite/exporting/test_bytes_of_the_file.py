"""The TRANSPOSEs and bytes of a report are those of the file, also of operators that become others."""

from __future__ import annotations

import numpy as np
import pytest
from export_running import agrees

import relayout
from litert_runs import KERNELS, every_result_of_runs
from moved_bytes import run_time_transposes
from text_form import floats, model


def test_transposes_that_an_operator_becomes_are_in_the_report() -> None:
    source = model('g (float[4,6,8,10] x) => (float[4,6,8,10] y) { y = Einsum<equation="abcd->abcd">(x) }')
    assert relayout.convert(source, format="tflite").report.transposes == 0
    # More axes than the kernel takes: two steps, of which the plan knows.
    extents = ",".join("2" for _ in range(8))
    source = model(f"g (float[{extents}] x) => (float[{extents}] y) {{ y = Transpose<perm=[7,5,3,1,6,4,2,0]>(x) }}")
    result = relayout.convert(source, format="tflite")
    moved = run_time_transposes(result.file)
    assert (result.report.transposes, result.report.bytes) == (len(moved), sum(moved)) == (2, 2048)
    assert result.report.proved


def test_half_precision_counts_as_the_single_that_the_file_holds() -> None:
    source = model("g (float16[4,6,5] x) => (float16[5,4,6] y) { y = Transpose<perm=[2,0,1]>(x) }")
    result = relayout.convert(source, format="tflite")
    assert (result.report.bytes, result.report.proved) == (480, True)
    assert run_time_transposes(result.file) == [480]


def test_samplers_of_images_lie_with_channels_last_between_convolutions() -> None:
    """What they read and give is NHWC as a convolution's: no TRANSPOSE but those of the interface."""
    grid = 'y = GridSample<mode="linear">(c, grid)'
    regions = "y = RoiAlign<output_height=3, output_width=2, sampling_ratio=2>(c, rois, images)"
    without_number = "y = RoiAlign<output_height=3, output_width=2>(c, rois, images)"
    moved = "o = Conv<pads=[1,1,1,1]>(x, wo) y = DeformConv<pads=[1,1,1,1], offset_group=2, group=GROUP>(c, w3, o)"
    for body, rows, group in (
        (grid, 1, 1),
        (regions, 5, 1),
        (without_number, 5, 1),
        (moved.replace("GROUP", "1"), 1, 1),
        (moved.replace("GROUP", "4"), 1, 4),
    ):
        source = model(
            "g (float[1,3,9,7] x, float[1,4,5,2] grid, float[5,4] rois, int64[5] images) =>"
            f" (float[{rows},2,p,q] z) {{ c = Conv<pads=[1,1,1,1]>(x, w1) {body} z = Conv(y, w2) }}",
            w1=floats(8, 3, 3, 3),
            w2=floats(2, 8, 1, 1, seed=1),
            w3=floats(8, 8 // group, 3, 3, seed=2),
            wo=floats(36, 3, 3, 3, seed=3),
        )
        corners = np.sort(np.random.default_rng(4).uniform(0, 6, (5, 2, 2)), axis=1).astype(np.float32)
        feed = {"x": floats(1, 3, 9, 7, seed=5), "grid": np.tanh(floats(1, 4, 5, 2, seed=6))}
        feed |= {"rois": corners.reshape(5, 4), "images": np.zeros(5, np.int64)}
        agrees(source, feed)
        result = relayout.convert(source, format="tflite")
        (size, *others) = run_time_transposes(result.file)
        assert size == 9 * 7 * 3 * 4
        assert len(others) == 1
        assert result.report.proved


def test_coordinates_of_elements_are_not_transposed_where_rows_are_wanted() -> None:
    x = floats(5, 7, seed=1) * (floats(5, 7, seed=2) > 0)
    rows = model("g (float[5,7] x) => (float[k,2] y) { z = NonZero(x) t = Transpose<perm=[1,0]>(z) y = Cast<to=1>(t) }")
    agrees(rows, {"x": x})
    report = relayout.convert(rows, format="tflite").report
    assert (report.transposes, report.operators) == (0, {"CAST": 1, "NOT_EQUAL": 1, "WHERE": 1})
    columns = model("g (float[5,7] x) => (int64[2,k] y) { y = NonZero(x) }")
    agrees(columns, {"x": x})
    report = relayout.convert(columns, format="tflite").report
    assert (report.transposes, report.bytes, report.proved) == (1, 16, True)
    mask = model(
        "g (float[5,7,3] x, bool[5,7] m) => (float[k,3] y)"
        " { z = NonZero(m) t = Transpose<perm=[1,0]>(z) y = GatherND(x, t) }"
    )
    agrees(mask, {"x": floats(5, 7, 3), "m": floats(5, 7, seed=3) > 0})
    assert relayout.convert(mask, format="tflite").report.transposes == 0


@pytest.mark.parametrize(
    ("equation", "moved"),
    [
        ("bihd,bjhd->bhij", 2),
        ("bhij,bjhd->bihd", 2),
        ("abc,dc->dab", 2),
        ("ab,cd->dacb", 1),
        ("abc,cd,de->ea", 1),
        ("abc->ca", 1),
        ("ai,i->a", 0),
        ("abjic,iie->jb", 1),
        ("iai,ab->ib", 0),
    ],
)
def test_products_of_an_einsum_lie_as_the_plan_says(equation: str, moved: int) -> None:
    """Its Transposes are views of the problem: the one that gives `a b` where `b a` is wanted may be the product's."""
    extents = dict(zip("abcdehij", range(2, 10), strict=True))
    terms, _, result = equation.partition("->")
    feed = {
        f"x{slot}": floats(*(extents[letter] for letter in term), seed=slot)
        for slot, term in enumerate(terms.split(","))
    }
    types = ", ".join(f"float[{','.join(map(str, array.shape))}] {name}" for name, array in feed.items())
    given = ",".join(str(extents[letter]) for letter in result)
    source = model(f'g ({types}) => (float[{given}] z) {{ z = Einsum<equation="{equation}">({", ".join(feed)}) }}')
    agrees(source, feed)
    report = relayout.convert(source, format="tflite").report
    assert (report.transposes, report.proved) == (moved, True)


def test_the_largest_one_is_looked_for_along_the_last_axis() -> None:
    source = model("g (float[2,5,6,7] x) => (float[2,5,6,7] y) { y = Hardmax<axis=1>(x) }")
    agrees(source, {"x": floats(2, 5, 6, 7)})
    report = relayout.convert(source, format="tflite").report
    assert (report.transposes, report.bytes, report.proved) == (2, 2 * 420 * 4, True)


EINSUMS = {
    "integers": ("bij,bkj->kbi", "int32[2,3,4] x, int32[2,5,4] y", "int32[5,2,3] z"),
    "narrow integers, whose products need more bits": ("bij,bkj->kbi", "int8[2,3,4] x, int8[2,5,4] y", "int8[5,2,3] z"),
    "a stretched axis": ("bij,ij->bj", "float[2,1,4] x, float[6,4] y", "float[2,4] z"),
    "open extents": ("bnd,dec->nebc", "float[b,n,4] x, float[4,5,6] y", "float[n,5,b,6] z"),
}


@pytest.mark.parametrize("name", EINSUMS)
def test_other_einsums_lie_as_the_plan_says(name: str) -> None:
    equation, operands, result = EINSUMS[name]
    source = model(f'g ({operands}) => ({result}) {{ z = Einsum<equation="{equation}">(x, y) }}')
    shapes = [[dim.dim_value or 3 for dim in value.type.tensor_type.shape.dim] for value in source.graph.input]
    feed = {key: np.round(floats(*shape, seed=len(key)) * 4) for key, shape in zip("xy", shapes, strict=True)}
    kind = np.float32 if operands.startswith("float") else np.dtype(operands.partition("[")[0])
    feed = {key: array.astype(kind) for key, array in feed.items()}
    agrees(source, feed, expected=[np.einsum(equation, *feed.values())])
    report = relayout.convert(source, format="tflite").report
    assert report.proved
    assert not any("does not know" in note for note in report.notes)


def test_einsums_are_products_for_targets_that_know_no_products_of_them() -> None:
    source = model(
        'g (float[2,3,4] x, float[2,5,4] y) => (float[5,2,3] z) { z = Einsum<equation="bij,bkj->kbi">(x, y) }'
    )
    feed = {"x": floats(2, 3, 4), "y": floats(2, 5, 4, seed=1)}
    content = relayout.convert(source, format="tflite", target="openvino").tflite
    assert content is not None
    (result,) = every_result_of_runs(content, [[*feed.values()]], KERNELS[0])[0]
    np.testing.assert_allclose(result, np.einsum("bij,bkj->kbi", *feed.values()), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("body", "others"),
    [
        ("a = Conv<pads=[1,1,1,1]>(x, w) y = Relu(a)", {}),
        ("h = Constant<value_float=6.0>() a = Conv<pads=[1,1,1,1]>(x, w) y = Clip(a, zero, h)", {}),
        ("a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) c = Conv(b, v) d = Add(c, b) y = Relu(d)", {"ADD": 1}),
        ("a = Conv<pads=[1,1,1,1]>(x, w) b = Relu(a) y = Sigmoid(b)", {"LOGISTIC": 1}),
    ],
)
def test_of_plans_of_the_same_bytes_one_lets_a_convolution_take_in_its_activation(
    body: str, others: dict[str, int]
) -> None:
    source = model(
        f"g (float[1,3,6,5] x) => (float[1,4,6,5] y) {{ {body} }}",
        w=floats(4, 3, 3, 3),
        v=floats(4, 4, 1, 1, seed=1),
        zero=np.zeros((), np.float32),
    )
    agrees(source, {"x": floats(1, 3, 6, 5, seed=2)})
    report = relayout.convert(source, format="tflite").report
    convolutions = body.count("Conv")
    assert report.operators == {"TRANSPOSE": 2, "CONV_2D": convolutions, **others}
    assert (report.bytes, report.proved) == (7 * 30 * 4, True)
