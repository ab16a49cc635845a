"""The TRANSPOSEs and bytes of a report are those of the file, also of operators that become others."""

from __future__ import annotations

import relayout
from moved_bytes import run_time_transposes
from text_form import model


def test_transposes_that_an_operator_becomes_are_in_the_report() -> None:
    source = model('g (float[4,6,8,10] x) => (float[4,6,8,10] y) { y = Einsum<equation="abcd->abcd">(x) }')
    assert relayout.convert(source, format="tflite").report.transposes == 0
    # More axes than the kernel takes: two steps, and one Transpose in the plan.
    extents = ",".join("2" for _ in range(8))
    source = model(f"g (float[{extents}] x) => (float[{extents}] y) {{ y = Transpose<perm=[7,5,3,1,6,4,2,0]>(x) }}")
    result = relayout.convert(source, format="tflite")
    moved = run_time_transposes(result.file)
    assert (result.report.transposes, result.report.bytes) == (len(moved), sum(moved)) == (2, 2048)
    assert not result.report.proved
    assert result.report.verdict == "not proved: at most 1024 bytes above the least"


def test_half_precision_counts_as_the_single_that_the_file_holds() -> None:
    source = model("g (float16[4,6,5] x) => (float16[5,4,6] y) { y = Transpose<perm=[2,0,1]>(x) }")
    result = relayout.convert(source, format="tflite")
    assert (result.report.bytes, result.report.proved) == (480, True)
    assert run_time_transposes(result.file) == [480]
