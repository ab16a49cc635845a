"""ONNX against ONNX: matching, layouts, failures, and what is said about them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import relayout
from relayout.errors import MissingRuntimeError, ReadError, RelayoutError
from relayout.verification import Kind, Verdict, verify
from relayout.verification.ort import OrtSide
from relayout.verification.ort_runtime import Session
from relayout.verification.runtimes import ChildModel, FailedError
from relayout.verification.side import ModelValue


def model(
    body: str, interface: str = "(float[2,3] x) => (float[2,3] y)", *weights: TensorProto, **notes: str
) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {interface} {body}')
    proto.graph.initializer.extend(weights)
    for name, text in notes.items():
        values = [v for v in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info) if v.name == name]
        target = values[0] if values else proto.graph.value_info.add(name=name)
        target.metadata_props.add(key="relayout.holds", value=text)
    return proto


def weight(array: object, name: str = "w") -> TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def test_every_kind_of_source(tmp_path: Path) -> None:
    proto = model("{ a = Relu(x)  y = Neg(a) }")
    onnx.save(proto, tmp_path / "m.onnx")
    sources = [proto, proto.SerializeToString(), tmp_path / "m.onnx", str(tmp_path / "m.onnx")]
    for source in sources:
        report = verify(proto, source)
        assert report.ok
        assert [(row.name, row.output, row.verdict) for row in report.rows] == [
            ("a", False, Verdict.EQUAL),
            ("y", True, Verdict.EQUAL),
        ]
    assert dict(report.runtimes).keys() == {"ONNX Runtime"}


def test_large_models_run_with_their_data_beside_them(tmp_path: Path) -> None:
    array = np.random.default_rng(0).normal(size=(3, 500)).astype(np.float32)
    interface = "(float[2,3] x) => (float[2,500] y)"
    onnx.save(
        model("{ a = MatMul(x, w)  y = Relu(a) }", interface, weight(array)),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="data",
    )
    same = model("{ a = MatMul(x, w)  y = Relu(a) }", interface, weight(array))
    assert verify(tmp_path / "m.onnx", same).counts == {"equal": 2}


def test_inner_layouts_are_undone() -> None:
    source = model("{ a = Relu(x)  b = Exp(a)  y = Neg(b) }", "(float[2,3,4,5] x) => (float[2,3,4,5] y)")
    holds = '[{"name":"%s","factors":[2,3,4,5],"perm":[0,2,3,1],"shape":[2,3,4,5]}]'
    body = """{ t = Transpose<perm = [0, 2, 3, 1]>(x)  p = Relu(t)  q = Exp(p)  n = Neg(q)
      y = Transpose<perm = [0, 3, 1, 2]>(n) }"""
    interface = "(float[2,3,4,5] x) => (float[2,3,4,5] y)"
    report = verify(source, model(body, interface, p=holds % "a", q=holds % "b"))
    assert report.counts == {"equal": 3}
    assert [(row.name, row.other) for row in report.rows] == [("a", "p"), ("b", "q"), ("y", "y")]
    report = verify(model(body, interface, p=holds % "a", q=holds % "b"), source)  # and the other way round
    assert [(row.name, row.other) for row in report.rows] == [("a", "a"), ("b", "b"), ("y", "y")]
    assert report.ok
    wrong = body.replace("Exp(p)", "Sin(p)")
    report = verify(source, model(wrong, interface, p=holds % "a", q=holds % "b"))
    assert report.first is not None
    assert (report.first.name, report.first.operator, report.first.other_operator) == ("b", "Exp", "Sin")


def test_inputs_are_laid_as_the_model_declares() -> None:
    source = model(
        "{ y = ReduceMean<keepdims = 0>(x, a) }", "(float[2,16,24,3] x) => (float[2,16,24] y)", weight([3], "a")
    )
    holds = '[{"name":"x","factors":[2,16,24,3],"perm":[0,3,1,2],"shape":[2,16,24,3]}]'
    body = "{ y = ReduceMean<keepdims = 0>(x, a) }"
    report = verify(source, model(body, "(float[2,3,16,24] x) => (float[2,16,24] y)", weight([1], "a"), x=holds))
    assert report.ok
    dynamic = holds.replace("2,16,24,3", "-1,-1,-1,3")
    report = verify(source, model(body, "(float[N,3,H,W] x) => (float[N,H,W] y)", weight([1], "a"), x=dynamic))
    assert report.ok
    with pytest.raises(RelayoutError, match=r"wants \[2, 3, 16, 24\]; it declares no other layout"):
        verify(source, model(body, "(float[2,3,16,24] x) => (float[2,16,24] y)", weight([1], "a")))


def test_dynamic_sizes_follow_the_counterpart() -> None:
    source = model("{ y = Relu(x) }", "(float[N,L] x, float[N,L] z) => (float[N,L] y)")
    assert [fed.shape for fed in verify(source, source).inputs] == [(2, 16), (2, 16)]
    fixed = model("{ y = Relu(x) }", "(float[3,5] x, float[3,5] z) => (float[3,5] y)")
    assert [fed.shape for fed in verify(source, fixed).inputs] == [(3, 5), (3, 5)]
    given = verify(source, source, inputs={"x": np.ones((4, 7), np.float32)})
    assert [fed.shape for fed in given.inputs] == [(4, 7), (4, 7)]


def test_outputs_may_be_missing_or_more() -> None:
    two = model("{ y = Relu(x)  z = Neg(x) }", "(float[2,3] x) => (float[2,3] y, float[2,3] z)")
    one = model("{ y = Relu(x) }")
    report = verify(two, one)
    assert [row.verdict for row in report.outputs] == [Verdict.EQUAL, Verdict.MISSING]
    assert not report.ok
    report = verify(one, two)
    assert report.ok
    assert report.notes == ("outputs that only the second model has: z",)


def test_an_output_may_be_an_input_and_an_interior_an_output() -> None:
    source = model("{ a = Relu(x)  y = Neg(a) }", "(float[2,3] x) => (float[2,3] y, float[2,3] x)")
    assert verify(source, source).counts == {"equal": 3}
    more = model("{ a = Relu(x)  y = Neg(a) }", "(float[2,3] x) => (float[2,3] y, float[2,3] x, float[2,3] a)")
    report = verify(source, more)
    assert report.counts == {"equal": 3}
    assert verify(more, source).counts == {"equal": 2, "missing": 1}


def test_nan_is_compared_by_place() -> None:
    source = model("{ a = Log(x)  y = Neg(a) }")
    assert verify(source, source).ok
    report = verify(source, model("{ b = Abs(x)  a = Log(b)  y = Neg(a) }"))
    assert [row.verdict for row in report.rows] == [Verdict.NOT_FINITE] * 2
    assert report.first is not None
    assert report.first.operator == "Log"


def test_types_are_compared() -> None:
    source = model("{ y = Relu(x) }")
    other = model("{ a = Relu(x)  y = Cast<to = 11>(a) }", "(float[2,3] x) => (double[2,3] y)")
    assert [row.verdict for row in verify(source, other).rows] == [Verdict.TYPE]


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_kernels_that_compute_with_wider_floats_are_asked_how_far_they_are_from_themselves(dtype: type) -> None:
    def multiplied(factor: float) -> onnx.ModelProto:
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        body = f"{{ h = Cast<to={to}>(x)  m = Mul(h, k)  y = Cast<to=1>(m) }}"
        return model(body, "(float[2,3] x) => (float[2,3] y)", weight(dtype(factor), "k"))

    report = verify(multiplied(2), multiplied(2.1))
    assert not report.ok
    spread = report.rows[-1].spread
    assert spread is not None
    assert spread.max_rel < (1e-3 if dtype is np.float16 else 2e-6)


def test_quantized_values_count_steps() -> None:
    body = "{ q = QuantizeLinear(x, s, z)  t = Transpose<perm = [1, 0]>(q)  y = DequantizeLinear(t, s, z) }"

    def quantized(scale: float) -> onnx.ModelProto:
        scales = weight(np.float32(scale), "s"), weight(np.int8(3), "z")
        return model(body, "(float[2,3] x) => (float[3,2] y)", *scales)

    report = verify(quantized(0.1), quantized(0.1))
    assert {row.name: row.kind for row in report.rows} == {"q": Kind.STEPS, "t": Kind.STEPS, "y": Kind.REAL}
    report = verify(quantized(0.01), quantized(0.0101))
    assert report.rows[0].lsb == 1
    assert not report.ok
    assert report.rows[-1].spread is not None  # the source rounds, so it was asked how far it is from itself


def test_indices_are_fed_within_what_they_count() -> None:
    source = model(
        "{ y = Gather<axis = 0>(w, i) }", "(int64[9] i) => (float[9,5] y)", weight(np.eye(4, 5, dtype=np.float32))
    )
    assert verify(source, source, runs=5).ok


@pytest.mark.parametrize("seed", range(3))
def test_places_that_are_written_are_fed_once_each(seed: int) -> None:
    """Over one place that is written twice LiteRT's kernel adds up."""
    interface = "(float[2,16,4] x, float[6,2,4] new, int64[6] at) => (float[16,2,4] y)"
    axis = numpy_helper.from_array(np.array([-1]), "axis")
    proto = model(
        "{ t = Transpose<perm=[1,0,2]>(x)  i = Unsqueeze(at, axis)  y = ScatterND(t, i, new) }", interface, axis
    )
    assert verify(proto, relayout.convert(proto, format="tflite").tflite, seed=seed).ok


def test_several_runs_keep_the_worst() -> None:
    source = model("{ y = Relu(x) }", "(float[1] x) => (float[1] y)")
    other = model("{ y = Identity(x) }", "(float[1] x) => (float[1] y)")
    # one random number is positive half of the time; in ten runs, one is not
    assert {verify(source, other, seed=seed).ok for seed in range(8)} == {True, False}
    report = verify(source, other, runs=10)
    assert not report.ok
    assert report.runs == 10
    assert len(report.rows) == 1


def test_tolerances_are_asked_for() -> None:
    source, other = (
        model("{ y = Identity(x) }"),
        model("{ y = Mul(x, w) }", "(float[2,3] x) => (float[2,3] y)", weight(np.float32(1.001))),
    )
    assert not verify(source, other).ok
    assert verify(source, other, rtol=2e-3).ok
    assert verify(source, other, atol=1).ok


def test_interiors_can_be_left_out() -> None:
    source = model("{ a = Relu(x)  y = Neg(a) }")
    report = verify(source, source, tensors=False)
    assert [row.name for row in report.rows] == ["y"]


def test_unmatched_inputs_are_said() -> None:
    source, other = (
        model("{ y = Relu(x) }"),
        model("{ y = Add(x, k) }", "(float[2,3] x, float[2,3] k) => (float[2,3] y)"),
    )
    with pytest.raises(RelayoutError, match="inputs that the first has not: 'k'"):
        verify(source, other)
    assert verify(other, source, inputs={"k": np.zeros((2, 3))}).rows[0].verdict is Verdict.DIFFERS


def test_what_numpy_cannot_hold_is_left_out() -> None:
    source = model(
        """{ s = SequenceConstruct(x, x)  a = ConcatFromSequence<axis = 0>(s)
          f = Cast<to = 16>(a)  y = Cast<to = 1>(f) }""",
        "(float[2,3] x) => (float[4,3] y)",
    )
    assert [row.name for row in verify(source, source).rows] == ["s", "a", "y"]


def test_models_that_no_runtime_takes(tmp_path: Path) -> None:
    unknown = helper.make_model(
        helper.make_graph(
            [helper.make_node("Nope", ["x"], ["y"], domain="nowhere")],
            "g",
            [helper.make_tensor_value_info("x", 1, [2])],
            [helper.make_tensor_value_info("y", 1, [2])],
        ),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("nowhere", 1)],
        ir_version=10,
    )
    with pytest.raises(ReadError, match=r"ONNX Runtime cannot load the model: .*Nope") as error:
        verify(unknown, unknown)
    assert "\n" not in str(error.value)
    failing = model("{ y = Gather<axis = 0>(w, i) }", "(int64[2] i) => (float[2] y)", weight(np.ones(3, np.float32)))
    with pytest.raises(RelayoutError, match="ONNX Runtime fails on 'the given model'") as failed:
        verify(failing, failing, inputs={"i": np.array([0, 9])})
    assert "--input" not in str(failed.value)
    picky = model("{ y = Reshape(x, s) }", "(float[7] x, int64[3] s) => (float[a,b,c] y)")
    with pytest.raises(RelayoutError, match=r"ONNX Runtime fails on .*is random: .*--input x=FILE\.npy"):
        verify(picky, picky)
    (tmp_path / "m.onnx").write_bytes(b"text")
    for bad in (tmp_path / "m.onnx", tmp_path / "none.onnx", b"", "a\0b"):
        with pytest.raises(ReadError):
            verify(bad, bad)


def test_a_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingRuntimeError, match=r"pip install 'onnx-relayout\[verify\]'"):
        verify(model("{ y = Relu(x) }"), model("{ y = Relu(x) }"))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(MissingRuntimeError, match=r"pip install 'onnx-relayout\[verify\]'"):
        verify(b"\0\0\0\0TFL3", model("{ y = Relu(x) }"))


def test_a_namesake_of_another_shape_is_no_counterpart() -> None:
    """Other converters keep the names of values that they store in another layout, and say nothing."""
    source = model("{ a = Relu(x)  y = ReduceSum<keepdims = 0>(a) }", "(float[2,3] x) => (float y)")
    body = "{ t = Transpose<perm = [1, 0]>(x)  a = Relu(t)  y = ReduceSum<keepdims = 0>(a) }"
    report = verify(source, model(body, "(float[2,3] x) => (float y)"))
    assert report.ok
    assert [row.name for row in report.rows] == ["y"]
    assert report.unmatched == 1


def test_many_values_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relayout.verification.matching.AT_ONCE", 60)
    source = model("{ a = Relu(x)  b = Exp(a)  c = Sin(b)  d = Cos(c)  y = Neg(d) }")
    report = verify(source, source)
    assert [row.name for row in report.rows] == ["a", "b", "c", "d", "y"]
    assert report.counts == {"equal": 5}


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_a_session_shows_only_what_is_asked_where_values_are_large(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """ONNX Runtime keeps whatever a session shows until the end of a run."""
    shown: list[list[str]] = []
    with_outputs = OrtSide._with_outputs

    def watched(side: OrtSide, names: Sequence[str], moved: Mapping[str, int]) -> ir.Model:
        shown.append(list(names))
        return with_outputs(side, names, moved)

    monkeypatch.setattr(OrtSide, "_with_outputs", watched)
    monkeypatch.setattr("relayout.verification.matching.AT_ONCE", 60)
    monkeypatch.setattr("relayout.verification.ort.MOST", most)
    source = model("{ a = Relu(x)  b = Exp(a)  c = Sin(b)  d = Cos(c)  y = Neg(d) }")
    report = verify(source, source, runs=1)
    assert report.counts == {"equal": 5}
    assert len(report.rows) == 5
    whole = ["a", "b", "c", "d"]
    assert sorted(shown) == (sorted([whole, whole]) if most else sorted([["a", "b"], ["c", "d"]] * 2))


def test_the_room_of_a_value_is_what_its_shape_tells() -> None:
    half = np.dtype(np.float16)
    assert ModelValue("v", half, (2, 3, 0)).size() == 0
    assert ModelValue("v", half, (2, 3, 4)).size() == 48
    assert ModelValue("v", None, ()).size() == 4
    assert ModelValue("v", half, (2, None, None), symbols=("", "h*w", "2*h")).size() == 2 * 2 * 64**2 * 128
    assert ModelValue("v", half, (2, None)).size() == 2 * 2 * 64
    assert ModelValue("v", half, None).size(ModelValue("o", None, (2, 5))) == 20


def test_a_call_whose_last_output_nobody_reads() -> None:
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "f": 1]>
        g (float[2,3] x) => (float[2,3] y) { a, unread = f.Two(x)  y = Neg(a) }
        <opset_import: ["": 21], domain: "f"> Two (a) => (b, c) { b = Relu(a)  c = Shape(a) }""")
    proto.graph.node[0].output[1] = ""
    assert verify(proto, proto).ok


@pytest.mark.parametrize("other", ["{ u = Neg(x)  v = Abs(x) W }", "{ v = Neg(x)  u = Abs(x) W }"])
@pytest.mark.parametrize("made", ["SequenceConstruct(u, v)", "SequenceConstruct(u, r)"])
def test_sequences(made: str, other: str) -> None:
    """Tensors of one shape, or of two."""
    interface = "(float[2,3] x) => (seq(float[]) y)"
    rest = f"s = Constant<value_ints=[6]>()  r = Reshape(v, s)  y = {made}"
    first, second = (model(body.replace("W", rest), interface) for body in ("{ u = Neg(x)  v = Abs(x) W }", other))
    for proto in (first, second):
        proto.graph.output[0].CopyFrom(helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None))
    report = verify(first, second)
    assert report.ok == (other.startswith("{ u"))
    (row,) = (row for row in report.rows if row.output)
    assert row.verdict is (Verdict.EQUAL if report.ok else Verdict.DIFFERS)


def test_other_lengths_are_tried_where_the_first_do_not_run() -> None:
    """A window of 200 samples does not fit in 16."""
    text = """<ir_version: 10, opset_import: ["": 21]> g (float[B,1,L] x) => (float[B,1,M] y) {
        a = Conv(x, w) y = Neg(a) }"""

    def windows(text: str) -> onnx.ModelProto:
        model = parser.parse_model(text)
        model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 200), np.float32), "w"))
        return model

    report = verify(windows(text), windows(text))
    assert report.ok
    assert report.inputs[0].shape == (2, 1, 512)
    assert report.notes == (
        "the source does not run with other sizes of its dynamic dimensions than those that were fed",
    )
    fixed = windows(text.replace("float[B,1,L]", "float[2,1,16]"))
    with pytest.raises(RelayoutError, match="Conv"):
        verify(fixed, fixed)


def test_integers_that_are_out_of_range_are_given_up_for_zeros() -> None:
    """An index that is reckoned with before it counts: nothing says how far it may."""
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (float[3,4] x, int64[5] i) => (float[5,4] y) <int64 many = {7}>
        { j = Mul(i, many) y = Gather(x, j) }"""
    )
    report = verify(model, model)
    assert report.ok
    assert report.notes == ("the source runs with no integers but 0, and floats were whole numbers",)
    with pytest.raises(RelayoutError, match="out of data bounds"):
        verify(model, model, inputs={"x": np.zeros((3, 4), np.float32), "i": np.full(5, 9)})


def test_values_are_given_behind_an_operator_that_only_the_runtime_knows() -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 7]> g (float[1,3,4,5] x) => (float[1,3,4,5] y) {
            a = ImageScaler<scale = 2.0, bias = [1.0, 2.0, 3.0]>(x) b = Neg(a) y = Exp(b) }"""
    )
    with OrtSide(model) as side:
        forced = side.forced(["y"], ["b"])
        assert forced is not None
        assert set(forced.entries) == {"b"}


@pytest.mark.parametrize("mode", ["true", "false"])
def test_what_a_dropout_leaves_out_in_training_is_drawn(mode: str) -> None:
    """Of the draw itself only the shape is compared; without training it is none, and a fault shows."""
    text = f"""<ir_version: 10, opset_import: ["": 21]> g (float[8,9] x) => (float[8,9] y)
        <float half = {{0.5}}, bool train = {{{int(mode == "true")}}}> {{
            a = Neg(x) b = Dropout(a, half, train) y = Relu(b) }}"""
    model = parser.parse_model(text)
    assert verify(model, model).ok
    assert verify(model, parser.parse_model(text.replace("Neg", "Abs"))).ok is False
    other = parser.parse_model(text.replace("0.5", "0.4").replace("Dropout(a", "Dropout(x"))
    assert verify(model, other, tensors=False).ok is False


def test_texts_are_fed_and_compared() -> None:
    text = """<ir_version: 10, opset_import: ["": 21]> g (string[2,3] x) => (string[3,2] y, int64[2,3] z) {
        y = Transpose(x) z = Cast<to=7>(x) }"""
    assert verify(parser.parse_model(text), parser.parse_model(text)).ok
    other = parser.parse_model(text.replace("y = Transpose(x)", "f = Reshape(x, s) y = Identity(f)"))
    other.graph.initializer.append(numpy_helper.from_array(np.array([3, 2]), "s"))
    report = verify(parser.parse_model(text), other)
    assert [row.name for row in report.rows if not row.ok] == ["y"]


def test_images_of_which_a_pool_leaves_nothing() -> None:
    """ONNX Runtime's fused pools divide by zero over one: it must be an error, and not the end of the process."""
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[N,16,H,W] x) => (float[N,16,P,Q] y) {
        a = Conv<kernel_shape=[1,1]>(x, w) b = AveragePool<kernel_shape=[K,K], strides=[3,3]>(a)
        c = Conv<kernel_shape=[1,1]>(b, w) y = Relu(c) }"""

    def pooled(kernel: int) -> onnx.ModelProto:
        model = parser.parse_model(text.replace("K", str(kernel)))
        model.graph.initializer.append(weight(np.ones((16, 16, 1, 1), np.float32)))
        return model

    report = verify(pooled(68), pooled(68))
    assert report.ok
    assert report.inputs[0].shape == (2, 16, 224, 224)
    with pytest.raises(RelayoutError, match="AveragePool"):
        verify(pooled(228), pooled(228))


def test_a_model_that_loads_without_optimizations_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """ONNX Runtime's optimizer fails on int8 data that is reshaped before it is quantized again, from opset 21 on."""
    from relayout.verification import ort

    source, path = model("{ h = Neg(x)  y = Relu(h) }"), tmp_path / "result.onnx"
    onnx.save(source, path)
    plain = ort.Session

    def failing(where: Path, optimized: bool) -> object:
        if optimized:
            raise FailedError(f"an optimization went wrong at {where}")
        return plain(where, optimized)

    monkeypatch.setattr(ort, "Session", failing)
    report = verify(source, path)
    assert report.ok
    assert [note.partition(": ")[0] for note in report.notes] == [
        f"{label} was run without ONNX Runtime's optimizations, with which it does not load"
        for label in ("the given model", "result.onnx")
    ]


def test_a_model_that_loads_in_no_way_is_an_error(tmp_path: Path) -> None:
    source, path = model("{ y = Relu(x) }"), tmp_path / "result.onnx"
    broken = model("{ y = NoSuch(x) }")
    onnx.save(broken, path)
    with pytest.raises(ReadError, match="cannot load the model"):
        verify(source, path)


def test_open_sizes_take_as_many_sessions_as_fixed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named extents, extents that the file does not name, and a shape that it does not state."""
    opened: list[int] = []
    plain = ChildModel.open

    def counted(session: ChildModel) -> object:
        opened.append(1)
        return plain(session)

    monkeypatch.setattr(ChildModel, "open", counted)
    monkeypatch.setattr("relayout.verification.matching.AT_ONCE", 4 * 2 * 3 * 8 * 8 * 4)
    monkeypatch.setattr("relayout.verification.ort.MOST", 4 * 2 * 3 * 8 * 8 * 8)
    text = """<ir_version: 10, opset_import: ["": 18]> g (float[n,3,h,w] x) => (float[n,3,h,w] y)
        <float[n,3,h,w] a, float[?,3,?,?] b> {
        a = Relu(x) b = Neg(a) c = Exp(b) d = Sin(c) e = Cos(d) f = Abs(e) i = Neg(f) y = Sigmoid(i) }"""
    fixed = text.replace("n,3,h,w", "2,3,8,8").replace("?,3,?,?", "2,3,8,8")
    counts = []
    for each in (fixed, text):
        opened.clear()
        report = verify(
            parser.parse_model(each), parser.parse_model(each), inputs={"x": np.ones((2, 3, 8, 8), np.float32)}
        )
        assert report.ok
        counts.append(len(opened))
    assert counts[0] == counts[1] > 2


def test_a_model_of_before_version_4_with_weights_that_nobody_reads() -> None:
    text = """<ir_version: 3, opset_import: ["": 8]> g (float[2,3] x, float[3] w, float[1] spare) => (float[2,3] y) {
        a = Add(x, w) b = Relu(a) y = Neg(b) }"""
    source = parser.parse_model(text)
    source.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    source.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float32), "spare"))
    report = verify(source, source)
    assert report.ok
    assert report.counts == {"equal": 3}


def test_a_source_that_runs_without_optimizations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime's optimizer loses the axes of a Resize behind a Transpose."""
    plain = Session.run

    def failing(session: Session, names: Sequence[str] | None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        _, optimized, _ = session._child_model._arguments
        if optimized:
            raise FailedError("an optimization went wrong")
        return plain(session, names, feeds)

    monkeypatch.setattr(Session, "run", failing)
    source, other = model("{ h = Neg(x)  y = Relu(h) }"), model("{ h = Neg(x)  y = Abs(h) }")
    report = verify(source, source)
    assert report.ok
    assert [note.partition(": ")[0] for note in report.notes] == [
        "both were run without optimizations, with which the source does not run"
    ]
    assert not verify(source, other).ok
    monkeypatch.setattr(Session, "run", lambda *_: (_ for _ in ()).throw(FailedError("nothing goes")))
    with pytest.raises(RelayoutError, match="nothing goes; what is fed is random"):
        verify(source, source)
