"""The verbs: what goes in, what comes out, and that a model with nothing to win comes back as it was."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper, parser, shape_inference

import relayout
from relayout.errors import InvalidModelError
from relayout.pipeline import diff
from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
from running import run
from small import build

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[2,3,4,5] x) => (float[2,7,4,5] y) {{
    a = {before}(x)
    b = Relu(a)
    c = {after}(b)
    y = Conv(c, w)
}}"""
TINYNET = Path(__file__).parents[1] / "models" / "tinynet_int8.tflite"


def model(before: str = "Tanh", after: str = "Sigmoid") -> onnx.ModelProto:
    proto = parser.parse_model(TEXT.format(before=before, after=after))
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((7, 3, 1, 1), np.float32), "w"))
    return shape_inference.infer_shapes(proto)


def wasteful() -> onnx.ModelProto:
    return model("Transpose<perm=[0,2,3,1]>", "Transpose<perm=[0,3,1,2]>")


def test_nothing_to_win_gives_the_source_back_byte_for_byte(tmp_path: Path) -> None:
    proto = model()
    onnx.save(proto, tmp_path / "in.onnx")
    relayout.optimize(tmp_path / "in.onnx").save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "in.onnx").read_bytes()
    again = relayout.optimize(proto).proto
    assert again.SerializeToString() == proto.SerializeToString()
    assert again is not proto


def test_what_a_notebook_shows_is_short() -> None:
    result = relayout.convert(TINYNET)
    assert repr(result) == "<Result: 16 -> 1 Transposes, 61,440 -> 5,760 bytes, proved minimal>"
    assert repr(result.report) == "<Report: 16 -> 1 Transposes, 61,440 -> 5,760 bytes, proved minimal>"
    assert str(result) == str(result.report)
    found = relayout.verify(TINYNET, result)
    assert repr(found) == f"<VerifyReport: {found.verdict}>"


def test_a_difference_is_shown_in_one_line(tmp_path: Path) -> None:
    onnx.save(wasteful(), tmp_path / "a.onnx")
    relayout.optimize(tmp_path / "a.onnx").save(tmp_path / "b.onnx")
    shown = repr(diff(tmp_path / "a.onnx", tmp_path / "b.onnx"))
    assert shown == "<Diff: both have 4 operators, of which 1 differ; only the first has 0, only the second 0>"


def test_nothing_to_win_with_external_data_is_written_whole(tmp_path: Path) -> None:
    proto = model()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((7, 3, 1, 1), np.float32), "w"))
    onnx.save(proto, tmp_path / "a" / "in.onnx", save_as_external_data=True, size_threshold=0)
    relayout.optimize(tmp_path / "a" / "in.onnx").save(tmp_path / "b" / "out.onnx")
    onnx.checker.check_model(str(tmp_path / "b" / "out.onnx"), full_check=True)
    loaded = onnx.load(tmp_path / "b" / "out.onnx")
    assert (numpy_helper.to_array(loaded.graph.initializer[0]) == 1).all()


@pytest.mark.parametrize("form", ["proto", "ir", "path", "text"])
def test_every_form_of_a_model_is_taken_and_none_is_changed(form: str, tmp_path: Path) -> None:
    proto = wasteful()
    onnx.save(proto, tmp_path / "in.onnx")
    source = {
        "proto": proto,
        "ir": ir.from_proto(proto),
        "path": tmp_path / "in.onnx",
        "text": str(tmp_path / "in.onnx"),
    }[form]
    result = relayout.optimize(source)  # type: ignore[arg-type]
    assert [node.op_type for node in result.proto.graph.node] == ["Relu", "Conv"]
    assert (result.report.source_transposes, result.report.transposes) == (2, 0)
    if isinstance(source, ir.Model):
        assert [node.op_type for node in source.graph] == ["Transpose", "Relu", "Transpose", "Conv"]
    assert proto.SerializeToString() == wasteful().SerializeToString()


def test_a_pass_for_onnx_ir() -> None:
    source = ir.from_proto(wasteful())
    result = ir.passes.Sequential(OptimizeLayouts())(source)
    assert result.modified
    assert [node.op_type for node in result.model.graph] == ["Relu", "Conv"]
    assert not OptimizeLayouts()(result.model).modified


def test_dynamic_dimensions_are_kept_or_fixed() -> None:
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[batch,3,4] x) => (float[batch,4,3] y)'
        " { a = Transpose<perm=[0,2,1]>(x) y = Relu(a) }"
    )
    proto = shape_inference.infer_shapes(proto)
    kept = relayout.optimize(proto).report.interface
    assert kept[0].shape == ("batch", 3, 4)
    fixed = relayout.convert(proto, dims={"batch": 6})
    assert fixed.report.interface[0].shape == (6, 3, 4)
    assert fixed.report.bytes == 6 * 12 * 4
    with pytest.raises(relayout.LayoutError, match="batch"):
        relayout.convert(proto, dims={"other": 6})
    with pytest.raises(relayout.LayoutError, match="at least 1"):
        relayout.convert(proto, dims={"batch": 0})


def test_dimensions_of_two_names_are_said_to_be_one() -> None:
    """The Reshape is a split of 6 then, and `verify` runs the source with extents that go together."""
    source = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[n,6,rows] x, float[batch,3,2,length] z) => (float[batch,3,2,length] y) {
            a = Transpose<perm=[0,2,1]>(x)
            b = Transpose<perm=[0,3,1,2]>(z)
            wanted = Shape(b)
            c = Reshape(a, wanted)
            d = Add(b, c)
            y = Transpose<perm=[0,2,3,1]>(d)
        }""")
    assert relayout.optimize(source).report.transposes > 0
    result = relayout.optimize(source, dims={"n": "batch", "rows": "length"})
    assert (result.report.transposes, result.report.verdict) == (0, "proved minimal")
    assert [port.shape for port in result.report.interface[:2]] == [("batch", 6, "length"), ("batch", 3, 2, "length")]
    assert relayout.verify(source, result.proto).ok


def test_a_converted_interface_is_said_in_report_and_metadata() -> None:
    result = relayout.convert(TINYNET, io="convert")
    (first,) = [end for end in result.report.interface if end.kind == "input"]
    assert first.layout == "n h w c -> n c h w"
    assert first.shape == (2, 3, 24, 40)
    assert "n h w c -> n c h w" in result.model.metadata_props["relayout.interface"]
    assert "relayout.holds" in result.model.graph.inputs[0].metadata_props
    assert "relayout.interface" not in relayout.convert(TINYNET).model.metadata_props


def test_equal_input_gives_equal_bytes_in_two_processes(tmp_path: Path) -> None:
    for seed in ("0", "12345"):
        out = tmp_path / f"{seed}.onnx"
        code = f"import relayout; relayout.convert({str(TINYNET)!r}).save({str(out)!r})"
        subprocess.run(
            [sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        )
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "12345.onnx").read_bytes()


def test_what_an_exporter_returns_is_taken_directly() -> None:
    class Program:
        """Like torch's ONNXProgram: it holds an onnx-ir model."""

        model = ir.from_proto(wasteful())

    result = relayout.optimize(Program())  # type: ignore[arg-type]
    assert [node.op_type for node in result.proto.graph.node] == ["Relu", "Conv"]
    assert [node.op_type for node in Program.model.graph] == ["Transpose", "Relu", "Transpose", "Conv"]


def tied(words: int) -> onnx.ModelProto:
    """An embedding that is, transposed, the weights of the last layer; Transposes that can go stand in between."""
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20]>
g (int64[2,7] ids) => (float[2,7,{words}] y) {{
    a = Gather(table, ids)
    b = Transpose<perm=[0,2,1]>(a)
    c = Relu(b)
    d = Transpose<perm=[0,2,1]>(c)
    weights = Transpose<perm=[1,0]>(table)
    y = MatMul(d, weights)
}}""")
    table = np.random.default_rng(0).normal(size=(words, 64)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(table, "table"))
    return proto


def test_the_report_says_how_much_constants_grew() -> None:
    result = relayout.optimize(tied(500))
    held = sum(value.const_value.nbytes for value in result.model.graph.initializers.values() if value.const_value)
    assert held == 2 * 500 * 64 * 4
    assert [note for note in result.report.notes if "256,000 bytes, 128,000 before" in note]
    assert not relayout.optimize(tied(20)).report.notes


def test_shapes_that_operators_do_not_give_are_left_out(tmp_path: Path) -> None:
    """jax2onnx moves Transposes and leaves the shapes of what lies between: ONNX Runtime may refuse such a file."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[2,5,4,3] x) => (float[2,5,4,3] y) {
        a = Transpose<perm=[0,3,1,2]>(x)
        b = Relu(a)
        c = Add(b, a)
        y = Transpose<perm=[0,2,3,1]>(c)
    }""")
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("b", 1, [2, 5, 4, 3]))
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(proto, source)
    with pytest.raises(Exception, match="ncompatible dimensions"):
        onnx.checker.check_model(proto, full_check=True)
    result = relayout.optimize(source)
    result.save(target)
    onnx.checker.check_model(onnx.load(target), full_check=True)
    assert (result.report.transposes, result.report.source_transposes) == (0, 2)
    assert any(text.endswith("another type or shape than the source states: b") for text in result.report.notes)
    assert relayout.verify(source, target).ok
    # Where nothing is to be won, what is written is not the source as it was.
    kept = model()
    del kept.graph.value_info[:]
    kept.graph.value_info.append(onnx.helper.make_tensor_value_info("b", 1, [2, 5, 3, 4]))
    again = relayout.optimize(kept)
    assert not again.report.transposes
    onnx.checker.check_model(again.proto, full_check=True)


@pytest.mark.parametrize("stated", ["2,5,3,4", "2,60", "2,5,n"])
def test_an_output_has_the_shape_that_its_operator_gives(stated: str, tmp_path: Path) -> None:
    """ONNX Runtime runs a file that states another: it leaves open what does not agree."""
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
    g (float[2,5,4,3] x) => (float[{stated}] y) {{
        a = Transpose<perm=[0,3,1,2]>(x)
        b = Relu(a)
        y = Transpose<perm=[0,2,3,1]>(b)
    }}""")
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(proto, source)
    result = relayout.optimize(source)
    result.save(target)
    onnx.checker.check_model(onnx.load(target), full_check=True)
    assert (result.report.transposes, result.report.source_transposes) == (0, 2)
    assert any(text.endswith("another type or shape than the source states: y") for text in result.report.notes)
    assert [list(value.shape or ()) for value in result.model.graph.outputs] == [[2, 5, 4, 3]]
    assert relayout.verify(source, target).ok


def test_an_input_has_its_default_in_the_order_in_which_it_is_stored() -> None:
    """An initializer that is an input, too, may be given another value, or none."""
    source = parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]> g (float[2,3] x, float[4,3] w) => (float[2,4] y) {
            t = Transpose(w) y = MatMul(x, t) }"""
    )
    default = np.arange(12, dtype=np.float32).reshape(4, 3)
    source.graph.initializer.append(numpy_helper.from_array(default, "w"))
    result = relayout.convert(source, io="convert").proto
    assert [node.op_type for node in result.graph.node] == ["MatMul"]
    onnx.checker.check_model(result, full_check=True)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    (given,), (expected,) = run(result, {"x": x}), run(source, {"x": x})
    np.testing.assert_allclose(given, expected, rtol=1e-6)
    (given,), (expected,) = run(result, {"x": x, "w": 2 * default.T}), run(source, {"x": x, "w": 2 * default})
    np.testing.assert_allclose(given, expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [onnx.ModelProto, ir.Model, Path])
def test_the_standards_operators_have_two_names_of_their_domain(kind: type, tmp_path: Path) -> None:
    """By the other one a file was taken to be of opset 1, in which a Reshape has no second input."""
    proto = wasteful()
    proto.opset_import[0].domain = "ai.onnx"
    onnx.save(proto, tmp_path / "a.onnx")
    sources = {onnx.ModelProto: proto, ir.Model: ir.from_proto(proto), Path: tmp_path / "a.onnx"}
    result = relayout.convert(sources[kind], to="NHWC")
    assert [(each.domain, each.version) for each in result.proto.opset_import if "relayout" not in each.domain] == [
        ("", 21)
    ]
    result.save(tmp_path / "b.onnx")
    assert relayout.verify(sources[kind], tmp_path / "b.onnx").ok


def test_both_names_of_the_standards_domain_in_one_file() -> None:
    proto = wasteful()
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 7))
    assert relayout.optimize(proto).model.opset_imports == {"": 21}


def without_shape(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.ClearField("shape")


def without_an_import(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type, proto.graph.node[1].domain = "Gelu", "com.microsoft"


def without_a_name(proto: onnx.ModelProto) -> None:
    proto.graph.name = ""


def newer(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type, proto.opset_import[0].version = "Gelu", 13


@pytest.mark.parametrize("change", [without_shape, without_an_import, without_a_name, newer])
def test_a_result_is_as_valid_as_its_source(change: Callable[[onnx.ModelProto], None], tmp_path: Path) -> None:
    """What the checker says of the source, too, is no reason not to write what was made of it."""
    proto = wasteful()
    del proto.graph.value_info[:]
    change(proto)
    with pytest.raises((onnx.checker.ValidationError, shape_inference.InferenceError)):
        onnx.checker.check_model(proto, full_check=True)
    onnx.save(proto, tmp_path / "source.onnx")
    for number, source in enumerate((proto, tmp_path / "source.onnx", ir.from_proto(proto))):
        result = relayout.convert(source, to="NHWC")
        result.save(tmp_path / f"{number}.onnx")
        written = onnx.load(tmp_path / f"{number}.onnx").graph
        assert (written.name, len(written.input)) == (proto.graph.name, 1)
        assert Counter(node.op_type for node in written.node)[proto.graph.node[1].op_type] == 1


def test_an_end_without_a_shape_is_no_fault_of_the_source(tmp_path: Path) -> None:
    proto = wasteful()
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = relayout.convert(proto, to="NHWC")
    result.model.graph[-1].op_type = "Unheard"
    with pytest.raises(InvalidModelError, match="Unheard") as error:
        result.save(tmp_path / "a.onnx")
    assert "its source" not in str(error.value)


def test_a_fault_of_the_result_alone_is_refused(tmp_path: Path) -> None:
    proto = wasteful()
    del proto.graph.value_info[:]
    without_a_name(proto)
    result = relayout.convert(proto, to="NHWC")
    result.model.graph.name = "g"
    result.model.graph[-1].op_type = "Unheard"
    with pytest.raises(InvalidModelError, match=r"Unheard.*; its source is not valid ONNX: .*name.*; fix that first"):
        result.save(tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


@pytest.mark.parametrize("kind", [onnx.ModelProto, ir.Model, Path])
@pytest.mark.parametrize("version", [3, 4])
def test_constants_of_old_files_are_no_inputs(kind: type, version: int, tmp_path: Path) -> None:
    """Before version 4 of the IR each initializer was listed as an input. A result of that version with such inputs has
    none that a runtime takes for constants: a SqueezeNet took 1.4 of its time.
    """
    proto = wasteful()
    proto.ir_version = version
    proto.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, (7, 3, 1, 1)))
    onnx.save(proto, tmp_path / "a.onnx")
    sources = {onnx.ModelProto: proto, ir.Model: ir.from_proto(proto), Path: tmp_path / "a.onnx"}
    result = relayout.convert(sources[kind], to="NHWC").proto
    assert [value.name for value in result.graph.input] == (["x"] if version < 4 else ["x", "w"])
    assert len(proto.graph.input) == 2
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    np.testing.assert_allclose(run(result, {"x": x})[0], run(proto, {"x": x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("extent", "rows", "is_frozen"), [("batch", 1, True), ("s77", 1, True), ("t", 1, False), ("batch", -1, False)]
)
def test_a_batch_of_which_no_output_knows_is_noted(extent: str, rows: int, is_frozen: bool) -> None:
    model = build(f"float[{extent},4] x", "s = Reshape(x, q) y = Relu(s)", {"q": [rows, 4]})
    assert ("frozen at the batch" in " ".join(str(relayout.convert(model).report).split())) == is_frozen
