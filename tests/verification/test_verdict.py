"""The verdict as a whole: what a spread excuses, what operators alone do not, and what is not compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import relayout
from formats.tflite.tflite_writing import Net, options
from relayout.verification import Verdict, ort, verify
from relayout.verification import ort as as_meant
from relayout.verification.ort_runtime import Session
from relayout.verification.side import open_side

MODELS = Path(__file__).parents[2] / "models"
RNG = np.random.default_rng(0)
KERNEL = RNG.normal(size=(4, 1, 1, 4)).astype(np.float32)
PLAIN = dict.fromkeys(("strideH", "strideW", "dilationHFactor", "dilationWFactor"), 1)


def model(text: str, **constants: Any) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]> g {text}')
    for name, array in constants.items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return proto


def product_of_itself() -> bytes:
    """A product of one transposed tensor by itself, for which XNNPACK computes another."""
    net = Net()
    x, y = net.input((1, 6, 6, 4), name="x"), net.output((1, 4, 6, 6), name="y")
    c, t = net.tensor((1, 6, 6, 4), name="c"), net.tensor((1, 4, 6, 6), name="t")
    net.op("CONV_2D", [x, net.const(KERNEL), net.const(np.zeros(4))], [c], options("Conv2DOptions", **PLAIN))
    net.op("TRANSPOSE", [c, net.const([0, 3, 1, 2], "int32")], [t], options("TransposeOptions"))
    return bytes(net.op("BATCH_MATMUL", [t, t], [y], options("BatchMatMulOptions")).bytes())


def test_what_a_delegate_does_to_several_operators_together_is_seen() -> None:
    source = model(
        "(float[1,6,6,4] x) => (float[1,4,6,6] y)"
        "{ n = Transpose<perm=[0,3,1,2]>(x)  t = Conv(n, w)  y = MatMul(t, t) }",
        w=KERNEL.transpose(0, 3, 1, 2),
    )
    report = verify(source, product_of_itself())
    (row,) = report.outputs
    if row.ok:
        pytest.skip("this LiteRT computes it rightly")
    assert not report.ok
    assert row.alone is not None
    assert row.alone.max_rel < 1e-5, "the operator by itself is right"
    assert row.kernels is not None
    assert [note for note in report.notes if "agrees with LiteRT's reference kernels" in note]


def test_a_fault_that_saturates_before_the_output_is_seen_inside() -> None:
    body = "(float[2,8] x) => (float[2,4] y) { s = MatMul(x, w)  l = Mul(s, k)  y = Softmax(l) }"
    weights = RNG.normal(size=(8, 4)).astype(np.float32)
    sound = {"w": weights, "k": np.float32(1e4)}
    assert verify(model(body, **sound), model(body, **sound)).ok
    report = verify(model(body, **sound), model(body, **{**sound, "w": weights * np.float32(1.002)}))
    assert not report.ok
    assert all(row.ok for row in report.outputs)
    assert report.first is not None
    assert report.first.name == "s"
    assert "FAILED: inner value 's', made by MatMul differs, though" in report.verdict
    assert report.to_dict()["first"]["verdict"] == "differs"


def test_an_ill_conditioned_output_is_excused_by_the_sources_own_spread() -> None:
    """Sums that cancel: another order of additions is off by far more than the tolerance."""
    body = "(float[64,256] x) => (float[64] y) {{ a = MatMul(x, w) b = MatMul(x, {}) d = Sub(a, b) y = Mul(d, k) }}"
    weights = RNG.normal(size=(256,)).astype(np.float32)
    near = {"w": weights, "v": weights + np.float32(1e-5), "k": np.float32(1e5)}
    source = model(body.format("v"), **near)
    other = model(body.format("v"), **{**near, "w": weights * np.float32(1 + 2**-23)})
    report = verify(source, other)
    assert report.ok, str(report)
    assert [row.verdict for row in report.outputs] == [Verdict.SPREAD]


def test_what_is_not_compared_is_no_failure(tmp_path: Path, relayout: Any) -> None:
    """The part ends in a value that the other model lacks."""
    onnx.save(model("(float[2] x) => (float[2] y) { h = Neg(x) y = Exp(h) }"), tmp_path / "a.onnx")
    onnx.save(model("(float[2] x) => (float[2] z) { z = Exp(x) }"), tmp_path / "other.onnx")
    assert relayout("convert", tmp_path / "a.onnx", tmp_path / "b.onnx", "--outputs", "h").code == 0
    ran = relayout("verify", tmp_path / "other.onnx", tmp_path / "b.onnx")
    assert (ran.code, ran.out.startswith("NOT COMPARED: no output of ")) == (2, True)


@pytest.mark.parametrize("batch", ["1", "3", "n"])
def test_a_quantized_result_at_another_batch(batch: str) -> None:
    path = MODELS / "tinynet_int8.tflite"
    report = verify(path, relayout.convert(path, batch=int(batch) if batch.isdigit() else batch).model)
    assert report.ok, str(report)


def test_parts_at_another_batch_are_compared() -> None:
    source = model("(float[1,3] x) => (float[1,3] y) { a = Neg(x)  b = Exp(a)  y = Relu(b) }")
    cuts: list[tuple[list[str] | None, list[str] | None]] = [(None, ["a"]), (["b"], None), (["a"], ["b"])]
    for inputs, outputs in cuts:
        for batch in (4, "n"):
            part = relayout.convert(source, batch=batch, inputs=inputs, outputs=outputs)
            report = verify(source, part.model)
            assert report.ok, str(report)
            assert any("at batch" in row.name for row in report.outputs)


def test_an_open_batch_that_the_source_refuses_is_one() -> None:
    source = model("(float[n,3] x, float[1,3] h) => (float[n,3] y) { s = Shape(h)  y = Reshape(x, s) }")
    report = verify(source, source)
    assert report.ok
    assert "the source does not run at batch 2: an open batch is 1" in report.notes


def test_a_second_input_is_tried_where_a_run_is_quick() -> None:
    source = model("(float[2] x) => (float[2] y) { y = Neg(x) }")
    assert verify(source, source).runs == 2
    assert verify(source, source, runs=1).runs == 1
    assert verify(source, source, inputs={"x": np.ones(2, np.float32)}).runs == 1


def test_floats_of_16_bits_on_the_way_count_their_roundings() -> None:
    """As a converter of float16 with `keep_io_types` writes it: inputs and outputs are float32."""
    body = "(float[4,16] x) => (float[4,8] y) { h = Cast<to=10>(x) m = MatMul(h, w) y = Cast<to=1>(m) }"
    weights = RNG.normal(size=(16, 8)).astype(np.float16)
    source = model(body, w=weights)
    wide = model(
        "(float[4,16] x) => (float[4,8] y) { y = MatMul(x, w) }", w=weights.astype(np.float32)
    )  # computed in float32
    assert verify(source, wide).ok
    wrong = model("(float[4,16] x) => (float[4,8] y) { y = MatMul(x, w) }", w=weights.astype(np.float32) * 1.02)
    assert not verify(source, wrong).ok


def test_convert_takes_a_tolerance(tmp_path: Path, relayout: Any) -> None:
    onnx.save(model("(float[2,4] x) => (float[2,4] y) { y = Exp(x) }"), tmp_path / "m.onnx")
    ran = relayout("convert", tmp_path / "m.onnx", tmp_path / "m.tflite", "--verify", "--rtol", "1e-3")
    assert ran.code == 0, ran.err
    ran = relayout("convert", tmp_path / "m.onnx", tmp_path / "n.tflite", "--rtol", "1e-3")
    assert (ran.code, "--rtol and --atol are for --verify" in ran.err) == (2, True)


@pytest.mark.parametrize("loads", [True, False])
def test_products_of_integers_whose_types_no_file_states_are_computed_in_full(
    monkeypatch: pytest.MonkeyPatch, loads: bool
) -> None:
    monkeypatch.setattr(ort, "saturates", lambda _: True)
    monkeypatch.setattr(ort.OrtSide, "_loads_with_option", lambda _: loads)
    source = model(
        "(float[4,64] x) => (float[4,8] y)"
        "{ q, s, z = DynamicQuantizeLinear(x)  i = MatMulInteger(q, w, z, wz)  f = Cast<to=1>(i)  y = Mul(f, s) }",
        w=RNG.integers(100, 128, (64, 8)).astype(np.int8),
        wz=np.int8(0),
    )
    with ort.OrtSide(source) as side:
        (note,) = side.notes
        assert "were computed in full" in note
        assert (as_meant.OPTION in note) is loads
        assert ("onnxruntime-cpu-avx2" in note) is not loads
        arrays = [value.const_value.numpy() for value in side.model.graph.initializers.values() if value.const_value]
        assert {array.dtype.name for array in arrays if array.ndim == 2} == {"uint8"}
    assert Session(source.SerializeToString(), entries={"session.x64quantprecision": "1"}).inputs


def test_one_word_for_each_verdict() -> None:
    assert {verdict.word for verdict in Verdict} == {"agrees", "differs", "not compared"}
    table = str(verify(MODELS / "tinynet_int8.tflite", relayout.convert(MODELS / "tinynet_int8.tflite").model))
    assert " agrees" in table
    assert "close" not in table.splitlines()[5]


def test_class_scores_say_how_often_the_best_class_is_the_same() -> None:
    report = verify(MODELS / "tinynet_int8.tflite", relayout.convert(MODELS / "tinynet_int8.tflite").model)
    assert report.outputs[0].agreement == 1.0


def test_rows_that_nearly_equal_scores_choose_in_another_order_are_no_fault_inside() -> None:
    """A rounding puts other rows first. The operators are right, and so is the output; a wrong one is still seen."""
    body = (
        "(float[64] x) => (float y) { s = Add(x, b)  v, i = TopK(s, k)  g = Gather(t, i)  c = Abs(g)"
        "  y = ReduceSum<keepdims=0>(c) }"
    )
    table = RNG.normal(size=(64, 3)).astype(np.float32)
    constants = {"b": np.ones(64, np.float32), "k": np.array([64]), "t": table}
    source, fed = model(body, **constants), {"x": np.zeros(64, np.float32)}
    nearly = constants["b"] + RNG.choice([0, 2**-23], 64).astype(np.float32)
    report = verify(source, model(body, **{**constants, "b": nearly}), inputs=fed)
    assert report.ok, str(report)
    assert [row.verdict for row in report.rows if row.name == "g"] == [Verdict.STEPWISE], "the same order otherwise"
    wrong = verify(source, model(body, **{**constants, "b": nearly, "t": np.roll(table, 1, axis=0)}), inputs=fed)
    assert not wrong.ok


@pytest.mark.parametrize("suffix", ["onnx", "tflite"])
def test_descendants_are_those_whose_ancestors_they_are(suffix: str) -> None:
    body = (
        "(float[8] x) => (float y, float[8] z) { s = Add(x, b)  v, i = TopK(s, k)  g = Gather(t, i)  c = Abs(g)"
        "  y = ReduceSum<keepdims=0>(c)  z = Neg(s) }"
    )
    source = model(body, b=np.ones(8, np.float32), k=np.array([8]), t=np.eye(8, 3, dtype=np.float32))
    result = source if suffix == "onnx" else relayout.convert(source, format="tflite").tflite
    with open_side(result) as side:
        names = [value.name for value in (*side.inputs, *side.interiors, *side.outputs)]
        assert len(names) >= 6
        for name in names:
            assert side.behind({name}) & {*names} == {each for each in names if name in side.before(each)}


def test_a_model_far_off_is_walked_for_its_outputs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = []
    monkeypatch.setattr(ort.OrtSide, "before", lambda self, name: walks.append(name) or {name})
    body = "(float[8] x) => (float[8] y) { a = Mul(x, b)  c = Neg(a)  d = Tanh(c)  e = Abs(d)  y = Neg(e) }"
    ones = np.ones(8, np.float32)
    assert not verify(model(body, b=ones), model(body, b=2 * ones)).ok
    assert len(walks) <= 1, walks
