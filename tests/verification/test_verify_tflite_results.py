"""Results that are `.tflite` files, held against their sources: names, layouts undone, quantized integers, faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import relayout
from relayout.errors import RelayoutError
from relayout.formats.tflite.container.loading import load
from relayout.formats.tflite.container.metadata import OWN
from relayout.formats.tflite.container.writer import to_bytes
from relayout.formats.tflite.provenance import Holding, Provenance, load_provenance
from relayout.layout.stored_as import TENSOR, Holds
from relayout.verification import Kind, Verdict, VerifyReport, verify
from relayout.verification.litert import LiteRTSide
from small import build

MODELS = Path(__file__).parents[2] / "models"


def network(batch: str = "2", **more: object) -> onnx.ModelProto:
    """A small network on images, every extent another: convolutions, a residual sum, a pool, a product."""
    return build(
        f"float[{batch},3,12,20] image",
        """
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(image, w1, b1)
        r = Relu(a)
        c = Conv<pads=[1,1,1,1]>(r, w2)
        s = Add(c, r)
        t = Tanh(s)
        p = GlobalAveragePool(t)
        f = Flatten(p)
        y = Gemm(f, w3, b3)
        """,
        {"w1": (5, 3, 3, 3), "b1": (5,), "w2": (5, 5, 3, 3), "w3": (5, 7), "b3": (7,), **more},
        outputs=("t",),
    )


def rows(report: VerifyReport) -> dict[str, str]:
    """Value of the source -> its counterpart."""
    return {row.source: row.other for row in report.rows}


def verdicts(report: VerifyReport) -> list[tuple[str, str, Verdict]]:
    return sorted((row.source, row.other, row.verdict) for row in report.rows)


@pytest.mark.parametrize("name", ["float", "int8"])
def test_an_interpreter_keeps_only_what_is_asked_where_tensors_are_large(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tinynet = (MODELS / "tinynet_int8.tflite").read_bytes()
    source = network() if name == "float" else relayout.convert(tinynet).proto
    result = relayout.convert(source, format="tflite").tflite
    whole = verify(source, result)
    asked: list[int] = []
    make = LiteRTSide._part

    def watched(side: LiteRTSide, shown: Sequence[str], given: Sequence[str], *, reference: bool = False) -> Any:
        asked.append(len(shown))
        return make(side, shown, given, reference=reference)

    monkeypatch.setattr(LiteRTSide, "_part", watched)
    monkeypatch.setattr("relayout.verification.litert.MOST", 0)
    monkeypatch.setattr("relayout.verification.matching.AT_ONCE", 2000)
    report = verify(source, result)
    assert report.ok, str(report)
    assert verdicts(report) == verdicts(whole)
    assert len(asked) > 2
    assert max(asked) < len(report.rows)


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_every_value_that_a_tflite_result_has_is_compared(io: str) -> None:
    source = network()
    result = relayout.convert(source, format="tflite", io=io)
    report = verify(source, result.tflite)
    assert report.ok, str(report)
    assert set(report.counts) <= {"equal", "close"}
    # `a` and `c` live on inside the operators that take their activations and sums in, or under their own names.
    assert {"r", "c", "s", "t", "p", "y"} <= rows(report).keys()
    assert dict(report.runtimes).keys() == {"ONNX Runtime", "LiteRT"}


def test_a_converted_interface_is_undone() -> None:
    source = network()
    result = relayout.convert(source, format="tflite", io="convert")
    said = load_provenance(load(result.tflite))
    assert said.interface["image"] == "n c h w -> n h w c"
    assert said.tensors["image"].holds == (Holds("image", (2, 3, 12, 20), (0, 2, 3, 1), (2, 3, 12, 20)),)
    (image,) = load(result.tflite).subgraphs[0].inputs
    assert load(result.tflite).subgraphs[0].tensors[image].shape == (2, 12, 20, 3)
    assert verify(source, result.tflite).ok


@pytest.mark.parametrize("io", ["keep", "convert"])
def test_a_wrong_weight_is_found_where_it_is(io: str) -> None:
    source, changed = network(), network()
    index = next(i for i, tensor in enumerate(changed.graph.initializer) if tensor.name == "w2")
    weight = numpy_helper.to_array(changed.graph.initializer[index]).copy()
    weight[1, 2, 0, 1] += 0.5
    changed.graph.initializer[index].CopyFrom(numpy_helper.from_array(weight, "w2"))
    report = verify(source, relayout.convert(changed, format="tflite", io=io).tflite)
    assert not report.ok
    assert report.first is not None
    assert report.first.source == "c"
    assert {row.source for row in report.rows if not row.ok} == {"c", *(row.source for row in report.outputs)}


def test_names_and_parts_of_the_source_are_known() -> None:
    source = network()
    names = {"image": "pixels", "t": "features"}
    result = relayout.convert(source, format="tflite", rename=names, outputs=["t"], io="convert")
    (signature,) = load(result.tflite).signatures
    assert [name for name, _ in signature.inputs] == ["pixels"]
    assert [name for name, _ in signature.outputs] == ["features"]
    report = verify(source, result.tflite)
    assert report.ok
    assert [(row.source, row.other) for row in report.outputs] == [("t", "features")]
    assert "outputs that the part leaves out: y" in report.notes
    part = relayout.convert(source, format="tflite", inputs=["r"], outputs=["s"], io="convert")
    assert verify(source, part.tflite).ok


def test_names_that_are_exchanged() -> None:
    source = build("float[2,3,4,5] x, float[2,3,4,5] z", "a = Relu(x)  b = Neg(z)", {}, outputs=("a", "b"))
    result = relayout.convert(source, format="tflite", rename={"a": "b", "b": "a", "x": "z", "z": "x"})
    report = verify(source, result.tflite)
    assert report.ok
    assert {(row.source, row.other) for row in report.outputs} == {("a", "b"), ("b", "a")}


def test_open_extents_are_resized() -> None:
    source = network(batch="n")
    for io in ("keep", "convert"):
        report = verify(source, relayout.convert(source, format="tflite", io=io).tflite)
        assert report.ok
        assert [fed.shape for fed in report.inputs] == [(2, 3, 12, 20)]
    report = verify(source, relayout.convert(source, format="tflite").tflite, inputs={"image": np.ones((3, 3, 12, 20))})
    assert report.ok


def test_a_tflite_held_against_the_tflite_that_it_was_made_of() -> None:
    source = MODELS / "tinynet_float.tflite"
    for options in ({}, {"io": "convert"}, {"dims": {}}, {"rename": {"image": "pixels"}}):
        report = verify(source, relayout.convert(source, format="tflite", **options).tflite)
        assert report.ok
        assert report.unmatched == 0
        assert set(report.counts) == {"equal"}


def test_a_tflite_result_is_a_source_again() -> None:
    """`.onnx` -> `.tflite` -> `.onnx`, each held against the one before."""
    source = network()
    first = relayout.convert(source, format="tflite", io="convert").tflite
    second = relayout.convert(first, io="convert").proto
    report = verify(first, second)
    assert report.ok
    assert set(report.counts) <= {"equal", "close"}


def test_quantized_integers_are_compared_within_a_step() -> None:
    source = quantized()
    report = verify(source, relayout.convert(source, format="tflite").tflite)
    assert report.ok, str(report)
    compared = {row.source: row for row in report.rows}
    assert all(compared[name].kind is Kind.STEPS for name in "qrstu")
    assert all(compared[name].lsb in (0, 1) for name in "qrs")


def quantized(kind: type[np.generic] = np.uint8, *, weights: float = 1.0, zero: int = 0) -> onnx.ModelProto:
    """An image on integers: a convolution, a product, means, a sum; LiteRT has uint8 as int8.

    Args:
        kind: of activations.
        weights: what the kernel's scales are multiplied by.
        zero: what is added to the zero point of the product and all behind it, which are then as much higher.
    """
    rng = np.random.default_rng(5)
    first = np.array(131 if kind is np.uint8 else 3, kind)
    last = np.array(first + zero, kind)
    return build(
        "float[2,6,16,20] x",
        """
        q = QuantizeLinear(x, sx, first)
        d = DequantizeLinear(q, sx, first)
        k = DequantizeLinear<axis=0>(w, sw, zw)
        c = Conv<pads=[1,1,1,1]>(d, k)
        r = QuantizeLinear(c, sr, first)
        e = DequantizeLinear(r, sr, first)
        m = Mul(e, e)
        s = QuantizeLinear(m, ss, last)
        f = DequantizeLinear(s, ss, last)
        p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(f)
        t = QuantizeLinear(p, ss, last)
        g = DequantizeLinear(t, ss, last)
        a = Add(g, g)
        u = QuantizeLinear(a, su, last)
        y = DequantizeLinear(u, su, last)
        """,
        {
            "w": rng.integers(-127, 128, (7, 6, 3, 3)).astype(np.int8),
            "sw": (rng.uniform(0.001, 0.01, 7) * weights).astype(np.float32),
            "zw": np.zeros(7, np.int8),
            "first": first,
            "last": last,
            "sx": np.float32(0.02),
            "sr": np.float32(0.05),
            "ss": np.float32(0.08),
            "su": np.float32(0.15),
        },
    )


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("io", ["keep", "convert"])
def test_roundings_that_add_up_are_judged_operator_by_operator(kind: type[np.generic], io: str) -> None:
    source = quantized(kind)
    report = verify(source, relayout.convert(source, format="tflite", io=io).tflite)
    assert report.ok, str(report)
    assert {"q", "r", "s", "t", "u", "y"} <= {row.source for row in report.rows}
    assert max(row.lsb or 0 for row in report.rows) > 1
    assert all("saturate" in note for note in report.notes), "only of the CPU"


@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_a_scale_that_is_off_is_found(kind: type[np.generic]) -> None:
    changed = quantized(kind, weights=1.02)
    report = verify(quantized(kind), relayout.convert(changed, format="tflite").tflite)
    assert not report.ok
    assert report.first is not None
    assert report.first.source == "r"


def test_a_zero_point_that_is_off_is_found() -> None:
    report = verify(quantized(np.int8), relayout.convert(quantized(np.int8, zero=1), format="tflite").tflite)
    assert not report.ok
    assert report.first is not None
    assert report.first.source == "s"


def test_integers_that_get_another_scale_may_be_rounded_twice() -> None:
    """LiteRT has a QUANTIZE before a CONCATENATION of tensors of other scales: halves first, then whole steps."""
    scales = {"s": 0.02, "t": 0.02, "u": 0.05, "v": 0.045}
    source = build(
        "float[2,6,16,20] x, float[2,6,16,20] y",
        """
        a = QuantizeLinear(x, s, z)
        b = DequantizeLinear(a, s, z)
        c = QuantizeLinear(y, t, z)
        d = DequantizeLinear(c, t, z)
        e = Concat<axis=1>(b, d)
        f = QuantizeLinear(e, u, z)
        g = DequantizeLinear(f, u, z)
        h = Mul(g, g)
        i = QuantizeLinear(h, v, z)
        j = DequantizeLinear(i, v, z)
        """,
        {"z": np.int8(-5), **{name: np.float32(scale) for name, scale in scales.items()}},
    )
    found = relayout.convert(source, format="tflite")
    assert found.report.operators["CONCATENATION"] == 1
    row = [*range(-114, -64, 5), *range(0, 50, 5)]  # -114 * 0.4 is -45.6: -45.5 in halves, and so -45 and not -46
    fed = {name: np.broadcast_to(np.float32(row) * np.float32(0.02), (2, 6, 16, 20)) for name in "xy"}
    report = verify(source, found.tflite, inputs=fed)
    assert report.ok, str(report)
    assert all(row.ok for row in report.rows), str(report)
    assert "within spread" in report.counts


def test_a_part_of_a_file_makes_values_of_others() -> None:
    """A tensor that is given is an input; one that is given and made is both."""
    content = relayout.convert(network(), format="tflite", io="convert").tflite
    side = LiteRTSide(content)
    feeds = {"image": np.random.default_rng(0).normal(size=(2, 12, 20, 3)).astype(np.float32)}
    called = {item.name: value.name for value in (*side.interiors, *side.outputs) for item in value.source_values}
    r, s, t = (called[name] for name in "rst")
    values = side.runner([r, s, t]).run(feeds, [r, s, t, "y"])
    forced = side.forced([s, t, "y"], [r, s, t])
    assert forced is not None
    assert set(forced.entries) == {r, s, t}
    moved = {forced.entries[name]: values[name] + (0 if name == r else 1) for name in forced.entries}
    found = forced.run({**feeds, **moved}, [s, t, "y"])
    np.testing.assert_allclose(found[s], values[s], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[t], np.tanh(values[s] + 1), rtol=1e-4, atol=1e-5)
    assert np.abs(found["y"] - values["y"]).max() > 0.1
    assert side.before(t) >= {"image", r, s, t}
    assert "y" not in side.before(t)
    assert side.forced([s], [], nudge=0.1) is None


def test_an_activation_in_front_of_a_reshape_leaves_no_false_name() -> None:
    """`Relu(Reshape(Gemm))` with the Relu taken into the product: what lies between the two holds another value."""
    source = build(
        "float[6,8] x",
        "m = Gemm(x, w)  v = Reshape(m, n)  y = Relu(v)",
        {"w": (8, 4), "n": [2, 3, 4]},
    )
    report = verify(source, relayout.convert(source, format="tflite").tflite)
    assert report.ok
    assert all(row.ok for row in report.rows), str(report)
    assert {row.source: row.verdict for row in report.rows}["y"] in (Verdict.EQUAL, Verdict.CLOSE)


def test_a_tensor_in_between_does_not_take_the_name_of_a_value() -> None:
    """A Selu is several operators; one of their results would be called as a value of the source is."""
    plain = build("float[2,3] x", "a = Selu(x)  y = Neg(a)", {})
    (subgraph,) = load(relayout.convert(plain, format="tflite").tflite).subgraphs
    inner = [subgraph.tensors[i].name for operator in subgraph.operators for i in operator.outputs]
    taken = next(name for name in inner if name.startswith("a/"))
    source = build("float[2,3] x", "a = Selu(x)  b = Abs(a)  y = Neg(b)", {})
    source.graph.node[1].output[0] = source.graph.node[2].input[0] = taken
    del source.graph.value_info[:]
    report = verify(source, relayout.convert(source, format="tflite").tflite)
    assert taken in {row.source for row in report.rows}
    assert all(row.ok for row in report.rows), str(report)


HELD = Holds("x", (2, 3), (1, 0), (2, 3))


def test_what_a_file_says_of_its_source_is_read_as_it_was_written() -> None:
    said = Provenance(
        {"t": Holding(("a", "b"), (HELD,)), "u": Holding(("c",))},
        {"x": "a b -> b a"},
        {"inputs": ["x"], "outputs": ["é"]},
        "encode",
    )
    model = load(relayout.convert(network(), format="tflite").tflite)
    again = model._replace(metadata=((OWN, np.frombuffer(said.dump(), np.uint8)),))
    assert load_provenance(load(to_bytes(again))) == said
    assert load_provenance(model._replace(metadata=())) == Provenance()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"schema": 2, "tensors": {"t": {"names": ["a"]}}}',
        b'{"schema": 1, "tensors": []}',
        b'{"schema": 1, "tensors": {"t": {"holds": [{"name": "x"}]}}}',
        b'{"schema": 1, "tensors": {"t": {"holds": [{"name": "x", "factors": [2], "perm": [7], "shape": [2]}]}}}',
        b'{"schema": 1, "tensors": {"t": {"holds": [{"name": "x", "factors": [2, 3], "perm": [0], "shape": [6]}]}}}',
        b'{"schema": 1, "part": {"inputs": 3}}',
        b"[" * 100_000,
    ],
)
def test_a_buffer_of_another_form_says_nothing(text: bytes) -> None:
    source = network()
    model = load(relayout.convert(source, format="tflite").tflite)
    other = model._replace(metadata=((OWN, np.frombuffer(text, np.uint8)),))
    assert load_provenance(other) == Provenance()
    assert verify(source, to_bytes(other)).ok


ADDED = """<ir_version: 8, opset_import: ["" : 17]>
    g (int8[1, 3, 8, 10] x) => (int8[1, 4, 8, 10] y) <float s = {0.02}, int8 z = {5}> {
        d = DequantizeLinear (x, s, z)
        c = Conv (d, w)
        i = QuantizeLinear (c, s, z)
        j = DequantizeLinear (i, s, z)
        a = Add (j, j)
        sum = QuantizeLinear (a, s, z)
        e = DequantizeLinear (sum, s, z)
        b = Conv (e, v)
        y = QuantizeLinear (b, s, z)
    }"""


@pytest.mark.parametrize("is_export", [False, True])
def test_a_tensor_called_by_its_operator_twice_is_compared(is_export: bool) -> None:
    """Keras calls a sum `block/add/add`; only of relayout's own files an import takes such an ending away."""
    model = onnx.parser.parse_model(ADDED)
    for name, shape in (("w", (6, 3, 1, 1)), ("v", (4, 6, 1, 1))):
        array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    file = load(relayout.convert(model, format="tflite").tflite)
    (graph,) = file.subgraphs
    (added,) = (operator.outputs[0] for operator in graph.operators if operator.name == "ADD")
    tensors = [replace(each, name="block/add/add") if each.index == added else each for each in graph.tensors]
    metadata = tuple(row for row in file.metadata if is_export or row[0] != OWN)
    source = to_bytes(file._replace(subgraphs=(graph._replace(tensors=tuple(tensors)),), metadata=metadata))
    result = relayout.convert(source)
    report = verify(source, result)
    assert report.ok
    assert "block/add/add" in {row.source for row in report.rows}
    if not is_export:
        assert "block/add/add" in {row.other for row in verify(result, source).rows}
        notes = [value.metadata_props for node in result.model.graph for value in node.outputs]
        assert not [note for note in notes if TENSOR in note]


def test_a_layout_that_does_not_fit_its_tensor_is_said() -> None:
    source = network()
    model = load(relayout.convert(source, format="tflite", io="convert").tflite)
    wrong = Holds("image", (2, 3, 12, 21), (0, 2, 3, 1), (2, 3, 12, 21))
    said = Provenance({"image": Holding((), (wrong,))})
    with pytest.raises(RelayoutError, match="the second was made of one"):
        verify(source, to_bytes(model._replace(metadata=((OWN, np.frombuffer(said.dump(), np.uint8)),))))


@pytest.mark.parametrize("pixels", [False, True])
def test_a_result_of_another_model_is_no_result_of_this_one(pixels: bool) -> None:
    kwargs = {"normalize": {"x": (127.5, 127.5)}, "input_type": "uint8"} if pixels else {}
    small, large = (build(f"float[1,3,{side},8] x", "y = Conv(x, w)", {"w": (4, 3, 3, 3)}) for side in (8, 10))
    result = relayout.convert(large, format="tflite", io="NHWC", **kwargs)  # type: ignore[arg-type]
    wanted = (
        r"input 'x' is \[1, 3, 8, 8\] in the first model, and the second was made of one where it is \[1, 3, 10, 8\]"
    )
    with pytest.raises(RelayoutError, match=wanted):
        verify(small, result.tflite)


def test_what_a_file_says_of_its_source_is_not_said_of_what_is_made_of_it() -> None:
    first = relayout.convert(network(), format="tflite", io="convert").tflite
    assert load_provenance(load(first)).interface
    assert "tflite.metadata.relayout" not in relayout.convert(first).model.metadata_props
    again = load_provenance(load(relayout.convert(first, format="tflite").tflite))
    assert again.interface == {}
    assert verify(first, relayout.convert(first, format="tflite").tflite).ok


def test_the_same_model_gives_the_same_bytes() -> None:
    first, second = (relayout.convert(network(), format="tflite", io="convert").tflite for _ in range(2))
    assert first == second


def test_weights_of_bytes_that_come_back_round_their_operands_again(tmp_path: Path) -> None:
    """ONNX computes with real numbers what LiteRT rounds to 8 bits at run time; another weight is seen all the same."""
    relayout.convert(MODELS / "tinynet_dynamic.tflite").save(tmp_path / "there.onnx")
    relayout.convert(tmp_path / "there.onnx", format="tflite").save(tmp_path / "back.tflite")
    assert verify(tmp_path / "there.onnx", tmp_path / "back.tflite").ok
    model = onnx.load(tmp_path / "there.onnx")
    kernels = (each for each in model.graph.initializer if each.data_type == onnx.TensorProto.INT8)
    kernel = next(each for each in kernels if len(each.dims) > 1)
    array = numpy_helper.to_array(kernel).copy()
    array[:1] = -array[:1]
    kernel.CopyFrom(numpy_helper.from_array(array, kernel.name))
    onnx.save(model, tmp_path / "there.onnx")
    assert not verify(tmp_path / "there.onnx", tmp_path / "back.tflite").ok


def test_a_note_says_that_a_value_is_drawn_at_random() -> None:
    source = build("float[4,5] x", "e = RandomNormalLike(x) y = Add(x, e) z = Neg(x)", {}, outputs=("y", "z"))
    result = relayout.convert(source, format="tflite")
    (said,) = [note for note in result.report.notes if "random" in note]
    assert said == "random numbers in every run: 1 RandomNormalLike"
    report = verify(source, result.tflite)
    assert not report.ok
    assert [note for note in report.notes if "'e' is drawn at random" in note]
    assert {row.source: row.ok for row in report.rows if row.output} == {"y": False, "z": True}


@pytest.mark.parametrize(
    "graph",
    [
        "(float[3,5] x, int64[3,5] i, float[3,5] u) => (float[3,5] y) { y = ScatterElements<axis = 1>(x, i, u) }",
        "(float[2,6,4] x, int64[2,6,4] i, float[2,6,4] u) => (float[2,6,4] y) { y = ScatterElements<axis=1>(x, i, u) }",
        "(float[n,t] x, int64[n,k] i, float[n,k] u) => (float[n,t] y) { y = ScatterElements<axis = -1>(x, i, u) }",
        '(float[3,9] x, int64[2,2,2] i, float[2,2] u) => (float[3,9] y) { y = ScatterND<reduction="none">(x, i, u) }',
        "(float[8,3] x, int64[8] i, float[8,3] u) =>"
        " (float[8,3] y) { a = Constant<value_ints = [-1]>() j = Unsqueeze(i, a) y = ScatterND(x, j, u) }",
        "(float[5,8,3] x, int32[4] i, int64[4] k, float[4,3] u) => (float[5,8,3] y) {"
        " a = Constant<value_ints = [1]>() l = Cast<to = 7>(i) p = Unsqueeze(l, a) q = Unsqueeze(k, a)"
        " j = Concat<axis = -1>(p, q) y = ScatterND(x, j, u) }",
        "(float[n,9] x, int32[k,1] i, float[k,9] u) => (float[n,9] y) { j = Cast<to = 7>(i)  y = ScatterND(x, j, u) }",
        "(float[3,t] x, int64[k] i, float[k,3] u) => (float[t,3] y) {"  # which states no shape of `z`
        " z = Transpose(x) a = Constant<value_ints = [-1]>() j = Unsqueeze(i, a) y = ScatterND(z, j, u) }",
        "(float[1,2,2,3] x, int64[1,2,2,3] i) => (float[1,2,4,6] y) {"
        " y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, i) }",
    ],
)
def test_no_element_is_written_twice(graph: str) -> None:
    """Over one that is, runtimes differ: the standard forbids it."""
    source = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {graph}')
    assert verify(source, relayout.convert(source, format="tflite").tflite).ok
