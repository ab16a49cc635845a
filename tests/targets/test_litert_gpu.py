"""The forms of `litert-gpu`: they compute what LiteRT's CPU kernels do, and the accelerator takes them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import relayout
from relayout.errors import MissingRuntimeError
from relayout.formats.tflite.exporting.draft import Draft
from relayout.formats.tflite.exporting.file_forms import RefusedOperator
from relayout.partition.claims import file_claims
from relayout.targets.litert_gpu.forms import FORMS, GENERAL
from relayout.targets.litert_gpu.operator_form import MOST_AXES, answers, form_of, reason_of
from relayout.targets.litert_gpu.rewriting import rewrite
from relayout.verification import litert_gpu

BENCH = Path(__file__).parents[2] / "bench"
MODELS = Path(__file__).parents[2] / "models"
EVERY = 250
"""One of so many questions is asked again where the slow tests do not run."""
PARTS = 12
"""The forms that are not taken are divided into so many tests."""
accelerated = pytest.mark.skipif(not litert_gpu.is_available(), reason=litert_gpu.INSTALL)


@pytest.fixture(scope="module")
def table() -> Any:
    """Return `bench/gpu_table.py`, which has the questions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield import_module("gpu_table")


def refused(table: Any) -> Iterator[Any]:
    """Yield a question for each form that the accelerator does not take."""
    seen = set()
    for question in table.questions():
        form = form_of(question.draft.operators[0])
        if form not in seen and answers().get(form):
            seen.add(form)
            yield question


def run(table: Any, draft: Draft, feeds: dict[str, NDArray[np.generic]]) -> list[NDArray[np.generic]] | None:
    """Run a draft by LiteRT's CPU kernels; None where these refuse it."""
    runtime = import_module("ai_edge_litert.interpreter")
    kernels = runtime.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = runtime.Interpreter(model_content=table.file_of(draft), experimental_op_resolver_type=kernels)
    try:
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], feeds[detail["name"]])
        interpreter.invoke()
    except (RuntimeError, ValueError):
        return None
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.sampled(every=PARTS)
def test_forms_compute_what_they_stand_for(table: Any, part: int) -> None:
    """Every operator that is not taken is written otherwise, and computes the same."""
    count = 0
    for question in islice(refused(table), part, None, PARTS):
        form = form_of(question.draft.operators[0])
        if any(len(end.dims) > MOST_AXES for end in (*question.draft.inputs, *question.draft.outputs)):
            continue  # an interface stays as it is
        expected = run(table, question.draft, question.feeds)
        if expected is None or not rewrite(question.draft, FORMS, GENERAL):
            continue
        assert not [reason for each in question.draft.operators if (reason := reason_of(each))], form
        actual = run(table, question.draft, question.feeds)
        assert actual is not None, form
        for first, second in zip(expected, actual, strict=True):
            np.testing.assert_allclose(second, first, rtol=1e-4, atol=1e-5, err_msg=form)
        count += 1
    assert count > 20


GRAPHS = {
    "heads of five axes": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 6, 4, 8] x) => (float[2, 2, 3, 4, 4, 2] y)
        <int64[6] s = {2, 2, 3, 4, 2, 4}>
        { a = Reshape(x, s) b = Transpose<perm = [0, 1, 2, 3, 5, 4]>(a) y = Exp(b) }""",
    "a shuffle": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 12, 5, 7] x) => (float[1, 12, 5, 7] y)
        <int64[5] s = {1, 3, 4, 5, 7}, int64[4] t = {1, 12, 5, 7}>
        { a = Reshape(x, s) b = Transpose<perm = [0, 2, 1, 3, 4]>(a) c = Relu(b) y = Reshape(c, t) }""",
    "ids": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 5] x) => (float[2, 1, 3] y)
        <float[5, 3] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}>
        { a = ArgMax<axis = 1, keepdims = 1>(x) y = Gather(table, a) }""",
    "not a number": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 5] x) => (float[2, 5] y)
        <float z = {0}> { n = IsNaN(x) y = Where(n, z, x) }""",
    "one matrix for a batch": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3, 4, 5] x, float[5, 6] w) => (float[2, 3, 4, 6] y) { y = MatMul(x, w) }""",
    "logarithms": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 3, 5] x) => (float[2, 3, 5] y) { y = LogSoftmax<axis = -1>(x) }""",
    "steps of a memory": f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[4, 2, 3] x) => (float[4, 1, 2, 2] y)
        <float[1, 8, 3] w = {{{", ".join(str(each % 7 / 5 - 0.5) for each in range(24))}}},
         float[1, 8, 2] r = {{{", ".join(str(each % 5 / 4 - 0.5) for each in range(16))}}}>
        {{ y = LSTM<hidden_size = 2>(x, w, r) }}""",
    "a volume": """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 1, 4, 4, 4] x) => (float[1, 2, 2, 4, 4] y)
        <float[2, 1, 3, 1, 1] w = {1, 2, 3, 4, 5, 6}> { y = Conv(x, w) }""",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_small_graphs_are_taken_whole(name: str, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(GRAPHS[name])
    result = relayout.convert(model, format="tflite", target="gpu")
    claims = result.report.claims
    assert claims is not None
    is_volume = name in ("heads of five axes", "a volume")  # whose inputs or outputs have more axes
    if not is_volume:
        assert "takes all" in "".join(claims.lines(0)), list(claims.lines(0))
    result.save(tmp_path / "result.tflite")
    report = relayout.verify(model, tmp_path / "result.tflite")
    assert report.ok, str(report)


def test_an_interface_of_int64_is_named_with_its_remedy(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (int64[1, 4] ids) => (float[1, 4, 2] y)
        <float[3, 2] table = {0, 1, 2, 3, 4, 5}> { y = Gather(table, ids) }""")
    kept = relayout.convert(model, format="tflite", target="litert-gpu")
    assert "--input-type int32" in str(kept)
    assert kept.report.interface[0].dtype == "int64"
    short = relayout.convert(model, format="tflite", target="litert-gpu", input_type="int32")
    assert "litert-gpu takes all" in str(short)
    short.save(tmp_path / "short.tflite")
    report = relayout.verify(model, tmp_path / "short.tflite")
    assert report.ok, str(report)


def test_an_output_of_int64_becomes_int32_without_a_cast(tmp_path: Path) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 5] x) => (int64[2] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }""")
    short = relayout.convert(model, format="tflite", target="litert-gpu", output_type="int32")
    assert "CAST" not in (short.report.operators or {})
    short.save(tmp_path / "short.tflite")
    report = relayout.verify(model, tmp_path / "short.tflite")
    assert report.ok, str(report)


def test_only_a_file_tells_whether_the_accelerator_takes_a_network() -> None:
    """The operators of a graph are integers behind a DequantizeLinear, which the accelerator does not take."""
    source = MODELS / "tinynet_int8.tflite"
    graph = relayout.convert(source, target="gpu")
    assert graph.report.claims is None
    assert "--format tflite" in str(graph)
    file = relayout.convert(source, target="gpu", format="tflite")
    assert file.report.claims is not None
    assert file.report.claims.claimed == 0


def test_parts_are_what_the_accelerator_takes(tmp_path: Path) -> None:
    """An exclusive or of conditions is none of the forms that the accelerator was asked about."""
    graph = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[2, 6] x, float[2, 6] z) => (float[2, 6] y)
        <float zero = {0}>
        { a = Exp(x) c = Greater(x, zero) d = Greater(z, zero) e = Xor(c, d) f = Where(e, a, z) y = Mul(f, f) }""")
    whole = relayout.convert(graph, format="tflite", target="litert-gpu")
    assert "does not take 1 of" in str(whole)
    result = relayout.convert(graph, format="tflite", target="litert-gpu", parts=True)
    parts = result.save_parts(tmp_path / "parts")
    assert [part.operators for part in parts if not part.claimed] == [{"Xor": 1}]
    assert sum(part.claimed for part in parts) > 1


def test_a_refusal_names_fused_values_by_their_first_name() -> None:
    refused = [RefusedOperator("CONV_2D", "why", "network/Relu6;network/add;network/Conv2D", "")]
    lines = list(file_claims("gpu", {"CONV_2D": 1}, refused).lines(0))
    assert lines[1] == "not on gpu: 1 of 1 CONV_2D, at network/Relu6;…: why"
    refused += [RefusedOperator("ADD", "why", "sum", ""), RefusedOperator("ADD", "another", "sum2", "")]
    claims = file_claims("gpu", {"CONV_2D": 1, "ADD": 3}, refused)
    assert (claims.claimed, claims.total) == (1, 4)
    assert list(claims.lines(0))[1:] == [
        "not on gpu: 1 of 3 ADD, 1 of 1 CONV_2D, at sum, network/Relu6;…: why",
        "not on gpu: 1 of 3 ADD, at sum2: another",
    ]


def test_an_output_that_an_operator_reads_is_a_copy(tmp_path: Path) -> None:
    """The accelerator fuses a product with its bias: as an output, the product has other numbers (1e6 off)."""
    weights = ", ".join(str(each) for each in range(12))
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 2, 4] x) => (float[1, 2, 3] p, float[1, 2, 3] y)
        <float[4, 3] w = {{{weights}}}, float[3] b = {{1, 2, 3}}> {{ p = MatMul(x, w) y = Add(p, b) }}""")
    result = relayout.convert(model, format="tflite", target="litert-gpu")
    assert result.report.operators == {"ADD": 1, "FULLY_CONNECTED": 1, "RESHAPE": 1}
    result.save(tmp_path / "result.tflite")
    assert relayout.verify(model, tmp_path / "result.tflite").ok
    if litert_gpu.is_available():
        verdict = litert_gpu.judged(tmp_path / "result.tflite")
        assert verdict.is_right, verdict


def test_verify_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litert_gpu, "is_available", lambda: False)
    with pytest.raises(MissingRuntimeError, match="chromium"):
        litert_gpu.require_accelerator()


@accelerated
def test_the_accelerator_judges_a_file() -> None:
    verdict = litert_gpu.judged(MODELS / "tinynet_float.tflite")
    assert verdict.is_whole
    assert verdict.is_right
    assert verdict.difference is not None
    assert verdict.difference < 1e-5


@accelerated
def test_the_accelerator_says_why_not(table: Any, tmp_path: Path) -> None:
    question = table.Question()
    question.draft.outputs = question.operator("LOG_SOFTMAX", [question.input((2, 5))], (2, 5))
    (tmp_path / "q.tflite").write_bytes(table.file_of(question.draft))
    verdict = litert_gpu.judged(tmp_path / "q.tflite")
    assert not verdict.is_whole
    assert verdict.reasons == ("LOG_SOFTMAX: Operation is not supported.",)


def held(table: Any, every: int) -> list[str]:
    """Return the questions whose answers are not those of the table."""
    chosen = islice(table.questions(), 0, None, every)
    return [f"{form}: {given or 'taken'}" for form, given in table.asked(chosen) if given and not answers().get(form)]


@accelerated
def test_a_sample_of_the_table_is_what_the_accelerator_answers(table: Any) -> None:
    assert not held(table, EVERY)


@accelerated
@pytest.mark.slow
def test_the_table_is_what_the_accelerator_answers(table: Any) -> None:
    assert not held(table, 1)
