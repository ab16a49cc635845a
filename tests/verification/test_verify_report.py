"""The report: as values, as JSON, as a table, and the package as the function it is named after."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import numpy_helper, parser
from rich.console import Console

import relayout
from relayout.verification import Difference, Kind, Row, Verdict, VerifyReport, verify
from relayout.verification.report import percent, render
from relayout.verification.side import one_line


def report(second: str = "Exp", weight: float = 1.0) -> VerifyReport:
    def model(operator: str, factor: float) -> bytes:
        proto = parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3] x) => (float[2,3] y) '
            f"{{ a = Mul(x, w)  b = {operator}(a)  y = Neg(b) }}"
        )
        proto.graph.initializer.append(numpy_helper.from_array(np.float32(factor), "w"))
        return proto.SerializeToString()

    return verify(model("Exp", 1.0), model(second, weight))


def shown(of: VerifyReport) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(*render(of), sep="\n")
    return capture.get()


def test_a_good_report() -> None:
    good = report()
    assert good.ok
    assert " ".join(str(good).split()).startswith(good.verdict)
    models = "(the given model against the given model)"
    assert good.verdict == f"PASSED: 1 output agrees within 1e-05 of the largest value {models}"
    assert good.counts == {"equal": 3}
    text = shown(good)
    assert "float32[2, 3]" in text
    assert "equal" in text
    assert "first divergence" not in text


def test_a_bad_report() -> None:
    bad = report("Sin")
    assert not bad.ok
    assert bad.first is not None
    assert (bad.first.name, bad.first.operator, bad.first.other_operator) == ("b", "Exp", "Sin")
    assert bad.verdict == "FAILED: output 'y' differs; the first to diverge is 'b', made by Exp"
    text = shown(bad)
    assert "first divergence: 'b', made by Exp, against 'b', made by Sin" in text
    assert "seed 0, 2 runs;" in text


def test_long_names_in_a_table_are_short_unless_two_would_look_alike() -> None:
    bad = report("Sin")
    (first,) = bad.outputs
    long = ["a/Relu;" + "b/Add;" * 20, "model/" + "x" * 60, "other/" + "x" * 60]
    outputs = [replace(first, name=name, other=name) for name in long]
    text = shown(replace(bad, rows=tuple(outputs)))
    assert "a/Relu;… " in text
    column = "".join(line[:28].strip() for line in text.splitlines())
    assert long[0] not in column
    assert long[1] in column
    assert long[2] in column


def test_json_is_json() -> None:
    for each in (report(), report("Sin"), report("Sin", math.inf)):
        data = json.loads(json.dumps(each.to_dict(), allow_nan=False))
        assert data["ok"] == each.ok
        assert len(data["rows"]) == 3
        assert data["rows"][0]["shape"] == [2, 3]
        assert data["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3], "how": "random"}]
        assert (data["first"] is None) == each.ok


def row(verdict: Verdict, max_abs: float, kind: Kind = Kind.STEPS) -> Row:
    found = Difference(max_abs, max_abs / 100, 0.5, True)
    return Row("n", "n", "m", True, "int8", (2,), kind, verdict, found, None, "OP", "1", "Op", "op", 3)


def test_the_worst_row_counts() -> None:
    close, far = row(Verdict.CLOSE, 1), row(Verdict.DIFFERS, 7)
    assert close.worst(far) == far.worst(close) == far
    assert far.lsb == 7
    assert row(Verdict.DIFFERS, 7, Kind.REAL).lsb is None
    lost = replace(far, difference=None, verdict=Verdict.MISSING)
    assert lost.excess == math.inf
    assert far.worst(lost).verdict is Verdict.MISSING
    assert far.worst(lost).difference == far.difference


def test_the_function_is_there_however_often_it_is_used() -> None:
    code = """
import relayout
m = b'TFL3'
for _ in range(2):
    try:
        relayout.verify(b"", b"")
    except relayout.ReadError:
        pass
assert callable(relayout.verify)
import sys
print([m for m in ("onnxruntime", "ai_edge_litert", "rich") if m in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout == "[]\n"
    assert relayout.ReadError


def test_a_message_with_a_name_of_any_length_is_one_line_at_once() -> None:
    """Over which a pattern may take the square of its length: hours."""
    for name in ("n" * 1_000_000, "onnxruntime::" * 100_000, "a " * 500_000):
        assert len(one_line(RuntimeError(f"Load model from {name}\nfailed"))) <= 300


def test_a_source_that_disagrees_with_itself_is_the_first_line() -> None:
    apart = Difference(0.3, 0.3, 1.0, True)
    rows = [
        replace(row, verdict=Verdict.SPREAD, difference=apart, spread=apart) if row.output else row
        for row in report().rows
    ]
    noisy = replace(report(), rows=tuple(rows))
    assert noisy.ok
    first = " ".join(str(noisy).split())
    assert first.startswith("the source disagrees with itself: two sets of kernels of ONNX Runtime are 30 %")
    assert "feed a real one with --input NAME=FILE.npy" in first
    assert report().disagreement == ""
    little = Difference(1e-4, 1e-4, 1.0, True)
    rows = [replace(row, spread=little) if row.output else row for row in report().rows]
    assert replace(report(), rows=tuple(rows)).disagreement == "", "rounding is no disagreement"


def test_inner_values_beside_outputs_that_agree_do_not_differ() -> None:
    rows = [
        replace(row, verdict=Verdict.DIFFERS, difference=Difference(1e-4, 2.7e-5, 1.0, True)) if not row.output else row
        for row in report().rows
    ]
    text = " ".join(str(replace(report(), rows=tuple(rows))).split())
    assert "2 within 2.7e-05 of their largest value" in text
    assert "differs" not in text


def test_the_tolerance_that_was_needed_is_said() -> None:
    """A float that stands for integers is close where it is a step away, which is more than floats may be apart."""
    rows = [
        replace(row, verdict=Verdict.CLOSE, difference=Difference(4e-3, 4e-3, 1.0, True)) if row.output else row
        for row in report().rows
    ]
    stepped = replace(report(), rows=tuple(rows))
    assert stepped.tolerance == "one step of the integers that they stand for"
    assert report().tolerance == "1e-05 of the largest value"


def test_shares_are_plain_numbers() -> None:
    assert [percent(share) for share in (1e-6, 0.0025, 0.02, 0.125, 0.996, 1, 12.5)] == [
        "0.0001 %",
        "0.25 %",
        "2 %",
        "12 %",
        "100 %",
        "100 %",
        "1,250 %",
    ]


def test_one_value_and_several_have_their_own_words() -> None:
    bad = report("Sin")
    a, b, y = bad.rows
    assert "the tensor compared before it agrees" in shown(bad)
    assert "tensors compared: 1 equal, 2 differ" in shown(bad)
    assert "inner values, the worst first: 1 of 2 compared" in shown(bad)
    two = replace(
        bad, rows=(a, replace(a, name="second"), replace(b, order=9), replace(y, order=10, verdict=Verdict.SHAPE))
    )
    assert "the 2 tensors compared before it agree" in " ".join(shown(two).split())
    assert "2 equal, 1 differs, 1 shape differs" in shown(two)
    shapes = replace(bad, rows=tuple(replace(row, verdict=Verdict.SHAPE) for row in bad.rows))
    assert "tensors compared: 3 shapes differ" in shown(shapes)
    lost = replace(bad, rows=(replace(y, verdict=Verdict.MISSING),))
    assert lost.verdict.startswith("FAILED: output 'y' is missing; ")


def test_a_verdict_operator_by_operator_is_explained_where_it_is_shown() -> None:
    bad = report("Sin")
    said = "operator by operator: farther off as a whole, but its operator agrees on the source's own values"
    assert said not in shown(bad)
    a, b, y = bad.rows
    rows = (a, replace(b, verdict=Verdict.STEPWISE), y)
    assert said in shown(replace(bad, rows=rows))


MODELS = Path(__file__).parents[2] / "models"


def test_a_quantized_model_beside_a_float_one_says_what_the_difference_is() -> None:
    floats, integers = MODELS / "tinynet_float.tflite", MODELS / "tinynet_int8.tflite"
    assert verify(floats, integers).notes == ()  # measured in decibels
    (note,) = verify(integers, floats).notes
    assert note.startswith("the first model computes with quantized integers and the second in float: ")
    assert report("Sin").notes == ()
    assert verify(integers, relayout.convert(integers, quant="float").proto).ok
