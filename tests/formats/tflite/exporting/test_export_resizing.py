"""Resize by sizes and scales that are known only at run time, and the precision of places."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from export_running import agrees

import relayout
from litert_runs import operators
from relayout.errors import UnsupportedError
from rules.law import Array
from small import build
from text_form import floats

SIZES = """
s = Shape (x)  front = Slice (s, zero, two)
t = Shape (z)  back = Slice (t, two, four)
sizes = Concat<axis=0>(front, back)
y = Resize<MODE>(x, , , sizes)
"""
SCALES = "scales = Concat<axis=0>(ones, u)  y = Resize<MODE>(x, , scales)"
CONSTANTS = {"zero": [0], "two": [2], "four": [4]}
MODES = {
    "linear half": 'mode="linear"',
    "linear pytorch": 'mode="linear", coordinate_transformation_mode="pytorch_half_pixel"',
    "linear aligned": 'mode="linear", coordinate_transformation_mode="align_corners"',
    "linear symmetric": 'mode="linear", coordinate_transformation_mode="half_pixel_symmetric"',
    "plain": 'coordinate_transformation_mode="asymmetric", nearest_mode="floor"',
    "plain up": 'coordinate_transformation_mode="asymmetric", nearest_mode="round_prefer_ceil"',
    "half down": 'coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_floor"',
    "half up": 'coordinate_transformation_mode="half_pixel", nearest_mode="round_prefer_ceil"',
    "aligned": 'coordinate_transformation_mode="align_corners", nearest_mode="ceil"',
    "pytorch": 'coordinate_transformation_mode="pytorch_half_pixel", nearest_mode="floor"',
    "cubic": 'mode="cubic"',
    "cubic inside": 'mode="cubic", coordinate_transformation_mode="pytorch_half_pixel", exclude_outside=1',
}
BUILTINS = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")


@pytest.mark.parametrize("open_image", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.sampled(every=3)
def test_an_image_takes_the_size_of_another(mode: str, open_image: bool) -> None:
    image = "n,3,h,w" if open_image else "1,3,14,6"
    model = build(f"float[{image}] x, float[m,k,p,q] z", SIZES.replace("MODE", MODES[mode]), CONSTANTS)
    names = operators(relayout.convert(model, format="tflite").tflite)
    has_builtin = mode in ("linear half", "linear pytorch", "linear aligned")
    assert any(name in names for name in BUILTINS) is has_builtin
    for shape, size in (((1, 3, 14, 6), (2, 13)), ((1, 3, 14, 6), (19, 1)), ((2, 3, 7, 5), (38, 10))):
        if open_image or shape[0] == 1:
            agrees(model, {"x": floats(*shape), "z": floats(1, 2, *size)})


@pytest.mark.parametrize("scales", [(2.0, 3.0), (1.5, 0.7)], ids=str)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.sampled(every=3)
def test_scales_are_computed_or_belong_to_an_open_image(mode: str, scales: tuple[float, float]) -> None:
    computed = build(
        "float[n,3,h,w] x, float[2] u", SCALES.replace("MODE", MODES[mode]), {"ones": np.ones(2, np.float32)}
    )
    constant = build(
        "float[n,3,h,w] x", f"y = Resize<{MODES[mode]}>(x, , q)", {"q": np.array([1, 1, *scales], np.float32)}
    )
    for shape in ((1, 3, 5, 6), (2, 3, 14, 9)):
        feed: dict[str, Array] = {"x": floats(*shape)}
        agrees(constant, feed)
        agrees(computed, {**feed, "u": np.array(scales, np.float32)})


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("scale", [0.4, 1.5, 2.0])
@pytest.mark.parametrize("extents", ["n,3,h,w", "2,3,7,5"])
def test_the_first_resize_takes_the_next_element_of_a_larger_image(extents: str, scale: float, version: int) -> None:
    name = "Resize" if version == 10 else "Upsample"
    if name == "Resize" or scale >= 1:  # an Upsample does not shrink
        scales = {"q": np.array([1, 1, scale, 2], np.float32)}
        model = build(f"float[{extents}] x", f'y = {name}<mode="nearest">(x, q)', scales, opset=version)
        agrees(model, {"x": floats(2, 3, 7, 5)})


@pytest.mark.parametrize("extents", [(14, 2), (14, 19), (7, 38), (2, 82), (3, 11), (6, 4), (4, 8), (54, 110)], ids=str)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("coordinates", ["asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners"])
def test_the_nearest_element_is_that_of_single_precision(
    coordinates: str, rounding: str, extents: tuple[int, int]
) -> None:
    before, after = extents
    said = f'coordinate_transformation_mode="{coordinates}", nearest_mode="{rounding}"'
    model = build(f"float[1,1,{before},2] x", f"y = Resize<{said}>(x, , , s)", {"s": [1, 1, after, 2]})
    agrees(model, {"x": floats(1, 1, before, 2)})


@pytest.mark.parametrize(
    ("said", "after", "count"),
    [
        ('coordinate_transformation_mode="asymmetric", nearest_mode="floor"', 8, 1),
        ('coordinate_transformation_mode="half_pixel"', 8, 1),
        ('coordinate_transformation_mode="align_corners", nearest_mode="round_prefer_ceil"', 7, 1),
        ('coordinate_transformation_mode="half_pixel", nearest_mode="ceil"', 8, 0),
    ],
)
def test_the_builtin_is_taken_where_it_takes_the_same_elements(said: str, after: int, count: int) -> None:
    model = build("float[1,3,4,4] x", f"y = Resize<{said}>(x, , , s)", {"s": [1, 3, after, after]})
    assert operators(relayout.convert(model, format="tflite").tflite).count("RESIZE_NEAREST_NEIGHBOR") == count
    agrees(model, {"x": floats(1, 3, 4, 4)})


def test_sizes_of_some_axes_and_images_of_other_ranks() -> None:
    swapped = build("float[n,3,h,w] x, int64[2] u", 'y = Resize<mode="linear", axes=[3,2]>(x, , , u)', {})
    agrees(swapped, {"x": floats(2, 3, 5, 6), "u": np.array([9, 11])})
    signal = build("float[n,3,t] x, int64[1] u", "y = Resize<axes=[2]>(x, , , u)", {})
    agrees(signal, {"x": floats(2, 3, 5), "u": np.array([9])})
    volume = build("float[n,3,d,h,w] x, int64[3] u", 'y = Resize<mode="linear", axes=[2,3,4]>(x, , , u)', {})
    agrees(volume, {"x": floats(1, 3, 5, 4, 3), "u": np.array([9, 3, 7])})
    counts = build("uint8[1,3,h,w] x, int64[2] u", "y = Resize<axes=[2,3]>(x, , , u)", {})
    agrees(counts, {"x": np.arange(90, dtype=np.uint8).reshape(1, 3, 5, 6), "u": np.array([9, 11])})


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def by_scales(extents: str, scales: tuple[float, ...], said: str, *, computed: bool = False) -> onnx.ModelProto:
    """Return a Resize of `1, 2, extents` by scales, which are a constant or an input."""
    if computed:
        return build(f"float[1,2,{extents}] x, float[2] u", SCALES.replace("MODE", said), {"ones": np.ones(2, "f")})
    q = np.array([1, 1, *scales], np.float32)
    return build(f"float[1,2,{extents}] x", f"y = Resize<{said}>(x, , q)", {"q": q}, opset=18)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.sampled(every=3)
def test_an_axis_that_keeps_its_extent_is_interpolated_by_its_scale(mode: str, coordinates: str) -> None:
    said = f'mode="{mode}", coordinate_transformation_mode="{coordinates}"'
    for shape in ((5, 30), (5, 7), (30, 5)):  # times 1.1: 5 stay 5, 7 stay 7, and where both stay it is a copy
        feed: dict[str, Array] = {"x": floats(1, 2, *shape)}
        agrees(by_scales(f"{shape[0]},{shape[1]}", (1.1, 1.1), said), feed)
        if (mode, coordinates) != ("nearest", "half_pixel_symmetric"):
            for extents in ("h,w", f"{shape[0]},w"):
                agrees(by_scales(extents, (1.1, 1.1), said), feed)
            agrees(by_scales("h,w", (), said, computed=True), {**feed, "u": np.array([1.1, 1.1], np.float32)})


def test_an_axis_of_a_signal_that_keeps_its_extent_is_interpolated_too() -> None:
    for scales in ((1.4, 1, 1.1), (1.4, 1, 2)):
        q = np.array(scales, np.float32)
        agrees(build("float[2,3,5] x", "y = Resize(x, , q)", {"q": q}), {"x": floats(2, 3, 5)})


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_sizes_that_keep_the_aspect_ratio_are_one_factor(policy: str, mode: str, coordinates: str) -> None:
    said = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", keep_aspect_ratio_policy="{policy}"'
    resize, is_known = f"y = Resize<axes=[2,3], {said}>(x, , , s)", (mode, coordinates) == ("nearest", COORDINATES[1])
    for shape, sizes in (((5, 7), [10, 10]), ((5, 7), [5, 8]), ((6, 9), [4, 4]), ((5, 8), [13, 3]), ((9, 10), [9, 9])):
        feed: dict[str, Array] = {"x": floats(1, 2, *shape)}
        agrees(build(f"float[1,2,{shape[0]},{shape[1]}] x", resize, {"s": sizes}), feed)
        for image in () if is_known else ("1,2,h,w", f"1,2,{shape[0]},w"):
            agrees(build(f"float[{image}] x", resize, {"s": sizes}), feed)
            agrees(build(f"float[{image}] x, int64[2] s", resize, {}), {**feed, "s": np.array(sizes)})


@pytest.mark.parametrize("outside", [0, 1])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_of_extents_that_are_known_only_at_run_time(mode: str, coordinates: str, outside: int) -> None:
    said = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", antialias=1, exclude_outside={outside}'
    for shape, scales in (((14, 9), (0.3, 0.6)), ((14, 9), (1.7, 0.5)), ((5, 7), (0.9, 0.99)), ((30, 8), (0.05, 1))):
        feed: dict[str, Array] = {"x": floats(1, 2, *shape)}
        for extents in ("h,w", f"{shape[0]},w"):
            agrees(by_scales(extents, scales, said), feed)
        agrees(by_scales("h,w", (), said, computed=True), {**feed, "u": np.array(scales, np.float32)})
        sizes = np.array([max(1, round(a * b)) for a, b in zip(shape, scales, strict=True)])
        model = build("float[n,2,h,w] x, int64[2] u", f"y = Resize<axes=[2,3], {said}>(x, , , u)", {})
        agrees(model, {**feed, "u": sizes})


def test_antialias_where_all_extents_stay_is_a_copy() -> None:
    said = 'mode="linear", antialias=1, keep_aspect_ratio_policy="not_larger"'
    model = build("float[1,2,h,w] x, int64[2] s", f"y = Resize<axes=[2,3], {said}>(x, , , s)", {})
    agrees(model, {"x": floats(1, 2, 30, 15), "s": np.array([30, 15])})
    agrees(model, {"x": floats(1, 2, 15, 10), "s": np.array([15, 9])})


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_changes_nothing_of_an_image_that_grows(mode: str, coordinates: str) -> None:
    for scales in ((2, 2), (1.5, 2.3), (3, 1)):
        for outside in (0, 1):
            said = f'mode="{mode}", coordinate_transformation_mode="{coordinates}", antialias=1'
            for extents in ("h,w", "5,7"):
                model = by_scales(extents, scales, f"{said}, exclude_outside={outside}")
                agrees(model, {"x": floats(1, 2, 5, 7)})


def test_antialias_of_an_image_that_grows_is_the_builtin() -> None:
    model = by_scales("h,w", (2, 3), 'mode="linear", antialias=1')
    assert "RESIZE_BILINEAR" in operators(relayout.convert(model, format="tflite").tflite)


@pytest.mark.parametrize("extents", ["h,w", "5,7"])
@pytest.mark.parametrize("scales", [(2.0, 3.0), (1.5, 1.1), (1.1, 1.1)], ids=str)
def test_scales_that_are_an_attribute(scales: tuple[float, float], extents: str) -> None:
    for mode in ("nearest", "linear"):
        said = f'mode="{mode}", scales=[1.0, 1.0, {scales[0]}, {scales[1]}]'
        model = build(f"float[1,2,{extents}] x", f"y = Upsample<{said}>(x)", {}, opset=7)
        agrees(model, {"x": floats(1, 2, 5, 7)})


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "ceil"])
@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_a_region_that_is_known_only_at_run_time(mode: str, rounding: str) -> None:
    said = 'coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.5'
    resize = f'y = Resize<mode="{mode}", nearest_mode="{rounding}", {said}, axes=[2,3]>(x, r, , s)'
    x, regions = floats(2, 2, 6, 8), [(0.1, -0.2, 0.8, 1.3), (0.6, 0.3, 0.2, 0.3), (0.25, 0.5, 0.5, 1)]
    for region, sizes in ((region, sizes) for region in regions for sizes in ((7, 11), (3, 1), (6, 5))):
        feed: dict[str, Array] = {"x": x, "r": np.array(region, np.float32)}
        if 6 not in sizes:
            agrees(build("float[2,2,6,8] x, float[4] r", resize, {"s": list(sizes)}), feed)
        agrees(build("float[n,2,h,w] x, float[4] r, int64[2] s", resize, {}), {**feed, "s": np.array(sizes)})
        constant = {"r": np.array(region, np.float32)}
        agrees(build("float[n,2,h,w] x, int64[2] s", resize, constant), {"x": x, "s": np.array(sizes)})


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_region_by_a_scale_under_which_an_extent_stays(mode: str) -> None:
    """Two elements by 1.26 are two, which lie in the region; by sizes they would be the image's own."""
    said = 'coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=2.5'
    resize = f'y = Resize<mode="{mode}", {said}, axes=[2,3]>(x, r, c)'
    feed: dict[str, Array] = {"x": floats(1, 2, 2, 5), "r": np.array((0.2, 0.3, 0.7, 0.8), np.float32)}
    scales = np.array((1.26, 0.5), np.float32)
    agrees(build("float[1,2,h,5] x, float[4] r", resize, {"c": scales}), feed)
    computed = {**feed, "c": scales}
    agrees(build("float[1,2,h,w] x, float[4] r, float[2] c", resize, {}), computed)
    agrees(build("float[1,2,h,w] x, float[4] r, float[2] c", resize, {}), {**computed, "c": scales * 0 + 1})


def test_sizes_under_one_policy_that_leave_nothing() -> None:
    """The factor of both axes is 1 / 8: of two rows nothing is left, which XNNPACK does not take."""
    said = 'mode="cubic", antialias=1, keep_aspect_ratio_policy="not_larger", axes=[2,3]'
    model = build("float[1,2,2,8] x", f"y = Resize<{said}>(x, , , s)", {"s": [9, 1]})
    agrees(model, {"x": floats(1, 2, 2, 8)}, kernels=["reference"])


def test_a_region_that_is_computed_of_an_image_that_keeps_its_extent_is_refused() -> None:
    resize = 'y = Resize<coordinate_transformation_mode="tf_crop_and_resize", axes=[2,3]>(x, r, , s)'
    model = build("float[1,2,6,8] x, float[4] r", resize, {"s": [6, 4]})
    with pytest.raises(UnsupportedError, match="as many places as the image"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('coordinate_transformation_mode="half_pixel_symmetric"', "double precision"),
    ],
)
def test_what_is_refused_at_run_time_says_why(said: str, reason: str) -> None:
    model = build("float[n,3,h,w] x, int64[2] u", f"y = Resize<axes=[2,3], {said}>(x, , , u)", {})
    with pytest.raises(UnsupportedError, match=rf"{reason}.*\(first: y\)"):
        relayout.convert(model, format="tflite")


@pytest.mark.parametrize(("scale", "has_builtin"), [(3.0, True), (41.0, False)])
def test_a_whole_scale_whose_inverse_is_rounded_down_has_no_builtin(scale: float, has_builtin: bool) -> None:
    said = 'coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
    model = build("float[1,1,h,w] x", f"y = Resize<{said}>(x, , q)", {"q": np.array([1, 1, scale, 1], np.float32)})
    names = operators(relayout.convert(model, format="tflite").tflite)
    assert ("RESIZE_NEAREST_NEIGHBOR" in names) is has_builtin
    agrees(model, {"x": floats(1, 1, 2, 3)})


def test_scales_of_other_than_the_axes_are_refused() -> None:
    """Shape inference lets one scale for three axes pass."""
    model = build("float[1,4,5] x, float[1] q", 'y = Upsample<mode="nearest">(x, q)', {}, opset=9)
    with pytest.raises(UnsupportedError, match="scales for 1 of 3 axes"):
        relayout.convert(model, format="tflite")
