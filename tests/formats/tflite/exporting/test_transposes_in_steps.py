"""Transposes of more axes than LiteRT takes, in steps of at most six."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import onnx_ir as ir
import pytest
from export_running import agrees

import relayout
from relayout.formats.tflite.exporting.file_order import LARGEST_RANK
from relayout.infer.build import build
from relayout.infer.plans import plan
from relayout.layout.perm import transposes_of_few_axes
from text_form import model


@pytest.mark.parametrize("rank", range(1, 13))
def test_the_steps_do_what_the_transpose_does(rank: int) -> None:
    rng = random.Random(rank)
    most = 0
    for _ in range(60):
        dims = [rng.choice([1, 2, 2, 3] if rank < 10 else [1, 2, 2]) for _ in range(rank)]
        perm = rng.sample(range(rank), rank)
        source = np.arange(prod(dims)).reshape(dims)
        moved, count = source, 0
        for lying, order in transposes_of_few_axes(dims, perm, LARGEST_RANK):
            assert 2 <= len(lying) <= LARGEST_RANK
            moved, count = moved.reshape(lying).transpose(order), count + 1
        np.testing.assert_array_equal(moved.reshape(-1), source.transpose(perm).reshape(-1))
        most = max(most, count)
    if rank > 8:
        assert most > 1  # more runs than a kernel has axes
    elif rank <= LARGEST_RANK:
        assert most == min(rank - 1, 1)


def test_the_report_counts_the_bytes_of_further_steps() -> None:
    extents = ",".join("2" for _ in range(8))
    source = model(f"g (float[{extents}] x) => (float[{extents}] y) {{ y = Transpose<perm=[7,5,3,1,6,4,2,0]>(x) }}")
    report = relayout.convert(source, format="tflite").report
    assert report.operators["TRANSPOSE"] == 2
    assert (report.transposes, report.bytes, report.proved) == (2, 2048, True)
    assert relayout.optimize(source).report.bytes == 1024


@pytest.mark.parametrize(
    ("dims", "perm"),
    [
        (["batch", 6, 2, 2, 2, 3, 2], [0, 1, 6, 5, 4, 3, 2]),  # the open one stays first, beside one that stays, too
        (["batch", 2, 3, 2, 2, 3, 2], [6, 5, 4, 3, 2, 1, 0]),
        ([2, 3, "h", 2, 2, "w", 2], [6, 5, 4, 3, 2, 1, 0]),
        (["n", 2, 2, 3, "h", "w", 2], [4, 5, 0, 6, 3, 2, 1]),  # two open ones are one axis, and the third is its own
        (["n", 2, 2, 2, 3, 2, "h", 2, 2], [3, 8, 1, 6, 4, 7, 0, 2, 5]),  # two steps
    ],
)
def test_open_extents_are_transposed(dims: list[int | str], perm: list[int]) -> None:
    given = ",".join(map(str, dims))
    made = ",".join(str(dims[axis]) for axis in perm)
    source = model(f"g (float[{given}] x) => (float[{made}] y) {{ y = Transpose<perm={perm}>(x) }}")
    for extents in ({"batch": 3, "n": 3, "h": 4, "w": 5}, {"batch": 1, "n": 2, "h": 1, "w": 1}):
        shape = [extents.get(str(dim), dim) for dim in dims]
        agrees(source, {"x": np.arange(prod(map(int, shape)), dtype=np.float32).reshape(shape)})


def test_the_bytes_of_further_steps_count_open_extents_as_1() -> None:
    extents = "n,2,2,2,2,2,2,2"
    source = model(
        f"g (float[{extents}] x) => (float[2,2,2,2,2,2,2,n] y) {{ y = Transpose<perm=[7,5,3,1,6,4,2,0]>(x) }}"
    )
    report = relayout.convert(source, format="tflite").report
    assert (report.transposes, report.bytes) == (2, 1024)


def test_of_two_orders_the_one_that_is_reached_in_one_step_is_chosen() -> None:
    """The Add may run as either side lies: both move as many bytes, and one of them takes two TRANSPOSEs."""
    extents = ",".join("2" for _ in range(8))
    source = model(
        f"""g (float[{extents}] x, float[{extents}] z) => (float[{extents}] y) {{
            far = Transpose<perm=[7,5,3,1,6,4,2,0]>(x)
            near = Transpose<perm=[4,5,6,7,0,1,2,3]>(far)
            sum = Add(near, z)
            y = Transpose<perm=[4,5,6,7,0,1,2,3]>(sum)
        }}"""
    )
    report = relayout.convert(source, format="tflite").report
    assert (report.operators["TRANSPOSE"], report.proved) == (3, True)


def test_steps_of_too_many_pairs_have_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    extents = ",".join("2" for _ in range(8))
    source = model(f"g (float[{extents}] x) => (float[{extents}] y) {{ y = Transpose<perm=[7,5,3,1,6,4,2,0]>(x) }}")
    sites = build(ir.from_proto(source), most_axes=LARGEST_RANK)
    assert (plan(sites).size, plan(sites).bound) == (2048, 2048)
    monkeypatch.setattr("relayout.infer.formulation.MOST_MOVES", 0)
    assert (plan(sites).size, plan(sites).bound) == (1024, 1024)
