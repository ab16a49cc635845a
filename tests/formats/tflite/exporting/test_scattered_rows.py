"""Rows that are written along an axis: no operand is transposed, and no element is looked up by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from export_running import agrees
from numpy.typing import NDArray

import relayout
from text_form import floats, model


def cache(count: int, reduction: str = "none", batch: str = "2") -> Any:
    """A cache `b h s d` in which rows along s are written, as PyTorch exports `index_copy`."""
    return model(
        f"g (float[{batch},3,7,4] x, float[{batch},3,{count},4] u, int64[{count}] at) => (float[{batch},3,7,4] y) {{"
        " m = Constant<value_ints=[-1]>() t = Transpose<perm=[2,0,1,3]>(x) n = Transpose<perm=[2,0,1,3]>(u)"
        f' i = Unsqueeze(at, m) s = ScatterND<reduction="{reduction}">(t, i, n) y = Transpose<perm=[1,2,0,3]>(s) }}'
    )


@pytest.mark.parametrize(
    ("places", "reduction", "builtin"),
    [
        ([5], "none", "DYNAMIC_UPDATE_SLICE"),
        ([-1], "none", "DYNAMIC_UPDATE_SLICE"),
        ([2, 6, 0], "none", "SCATTER_ND"),
        ([-2, 1], "add", "SCATTER_ND"),
    ],
)
def test_a_cache_is_written_where_it_lies(places: list[int], reduction: str, builtin: str) -> None:
    source = cache(len(places), reduction)
    feed = {"x": floats(2, 3, 7, 4), "u": floats(2, 3, len(places), 4, seed=1), "at": np.array(places, np.int64)}
    agrees(source, feed)
    report = relayout.convert(source, format="tflite").report
    assert report.source_transposes > report.transposes == 0
    assert builtin in report.operators


@pytest.mark.parametrize("place", [5, -1])
def test_one_row_of_a_cache_of_an_open_batch_is_written_where_it_lies(place: int) -> None:
    source = cache(1, batch="n")
    agrees(source, {"x": floats(2, 3, 7, 4), "u": floats(2, 3, 1, 4, seed=1), "at": np.array([place], np.int64)})
    report = relayout.convert(source, format="tflite").report
    assert report.source_transposes > report.transposes == 0
    assert "DYNAMIC_UPDATE_SLICE" in report.operators
    assert "SCATTER_ND" not in report.operators


@pytest.mark.parametrize(("count", "reduction", "runtime"), [(2, "none", ""), (1, "add", ""), (1, "none", "2.5")])
def test_other_rows_of_an_open_batch_agree(count: int, reduction: str, runtime: str) -> None:
    source = cache(count, reduction, "n")
    places = np.arange(count, dtype=np.int64) * 3
    agrees(source, {"x": floats(2, 3, 7, 4), "u": floats(2, 3, count, 4, seed=1), "at": places})
    report = relayout.convert(source, format="tflite", **({"runtime": runtime} if runtime else {})).report
    assert "SCATTER_ND" in report.operators


def test_an_older_runtime_gets_what_it_has() -> None:
    report = relayout.convert(cache(1), format="tflite", runtime="2.5").report
    assert "DYNAMIC_UPDATE_SLICE" not in report.operators
    assert report.transposes == 0


@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((4, 5), 0, 2), ((4, 5), 1, 1), ((3, 3, 3), 1, 3), ((2, 1, 5), 1, 1)]
)
def test_places_that_are_stretched_are_rows(shape: tuple[int, ...], axis: int, count: int) -> None:
    extents = [count if each == axis else dim for each, dim in enumerate(shape)]
    row = [count if each == axis else 1 for each in range(len(shape))]
    source = model(
        f"g (float[{_list(shape)}] x, float[{_list(extents)}] u, int64[{_list(row)}] at) => (float[{_list(shape)}] y)"
        f" {{ e = Constant<value_ints=[{_list(extents)}]>() i = Expand(at, e)"
        f" y = ScatterElements<axis={axis}>(x, i, u) }}"
    )
    places = np.random.default_rng(2).permutation(shape[axis])[:count].reshape(row)
    feed: dict[str, NDArray[Any]] = {"x": floats(*shape), "u": floats(*extents, seed=1), "at": places.astype(np.int64)}
    agrees(source, feed)
    # The same stretched along another axis, of as many places: each element has its own.
    if shape == (3, 3, 3):
        other = model(
            "g (float[3,3,3] x, float[3,3,3] u, int64[3,1,1] at) => (float[3,3,3] y)"
            " { e = Constant<value_ints=[3,3,3]>() i = Expand(at, e)"
            ' y = ScatterElements<axis=1,reduction="add">(x, i, u) }'
        )
        agrees(other, {**feed, "at": places.reshape(3, 1, 1).astype(np.int64)})


def _list(items: Any) -> str:
    return ",".join(map(str, items))
