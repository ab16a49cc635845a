"""Operators of the standard that become products and Transposes before layouts are chosen."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from export_running import agrees

import relayout
from moved_bytes import run_time_transposes
from text_form import floats, model


@pytest.mark.parametrize(
    ("image", "block", "said", "moved"),
    [
        ((8, 6), (2, 3), {"strides": [2, 3]}, 1),
        ((9,), (3,), {"strides": [3]}, 1),
        ((9, 7), (2, 3), {"strides": [2, 3]}, 1),  # a row and a column that no block reaches
        ((4, 6, 6), (2, 2, 2), {"strides": [2, 2, 2]}, 2),  # more axes than the kernel takes
        ((8, 6), (2, 3), {}, 2),
        ((8, 6), (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}, 2),
        ((8, 7), (2, 3), {"dilations": [2, 1]}, 2),
        ((9,), (3,), {}, 2),
        ((4, 5, 6), (2, 2, 2), {}, 2),
    ],
    ids=str,
)
def test_blocks_that_are_joined_to_images(
    image: tuple[int, ...], block: tuple[int, ...], said: dict[str, list[int]], moved: int
) -> None:
    """Blocks that do not overlap are a view: only Transposes; others are added up row by row."""
    rank = len(image)
    pads, strides, dilations = (
        said.get(name, [default] * count)
        for name, default, count in (("pads", 0, 2 * rank), ("strides", 1, rank), ("dilations", 1, rank))
    )
    counts = [
        (image[axis] + pads[axis] + pads[rank + axis] - (block[axis] - 1) * dilations[axis] - 1) // strides[axis] + 1
        for axis in range(rank)
    ]
    attributes = ", ".join(f"{name}={numbers}" for name, numbers in said.items())
    columns = (2, 3 * prod(block), prod(counts))
    extents = ",".join(map(str, image))
    source = model(
        f"g (float[{','.join(map(str, columns))}] x) => (float[2,3,{extents}] y)"
        f" {{ y = Col2Im{f'<{attributes}>' if said else ''}(x, image, block) }}",
        image=np.array(image),
        block=np.array(block),
    )
    agrees(source, {"x": floats(*columns)})
    report = relayout.convert(source, format="tflite").report
    assert (report.transposes, report.proved) == (moved, True)


def test_a_transform_along_another_axis_takes_in_a_transpose_beside_it() -> None:
    source = model(
        "g (float[4,3,9,2] x) => (float[4,3,9,2] y)"
        " { a = Transpose<perm=[0,2,1,3]>(x) b = DFT(a, length, axis) y = Transpose<perm=[0,2,1,3]>(b) }",
        length=np.array(9),
        axis=np.array(1),
    )
    agrees(source, {"x": floats(4, 3, 9, 2)}, tolerance=10)
    report = relayout.convert(source, format="tflite").report
    assert (report.transposes, report.operators) == (0, {"FULLY_CONNECTED": 1, "RESHAPE": 2})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_lies_at_places_of_an_axis_is_compared_as_it_lies(axis: int) -> None:
    x = np.array([1.0, 2.0, 1.0], np.float32).reshape([3 if each == axis else 1 for each in range(3)])
    x = np.broadcast_to(x, [3 if each == axis else 2 for each in range(3)]).copy()
    shape = ",".join("n" if each == axis else "2" for each in range(3))
    source = model(
        f"g (float[{','.join(map(str, x.shape))}] x) => (float[{shape}] y, int64[m] i, int64[k] j, int64[p] c)"
        f" {{ y, i, j, c = Unique<axis={axis}>(x) }}"
    )
    agrees(source, {"x": x})
    result = relayout.convert(source, format="tflite")
    assert (run_time_transposes(result.file), result.report.transposes) == ([], 0)
