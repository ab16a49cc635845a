"""What dequantizes belongs to who reads it: each reader may have one of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import relayout
from relayout.apply.duplicate_dequantize import duplicate
from relayout.layout.stored_as import Holds
from relayout.pipeline import check_plan, read
from relayout.pipeline.onnx_ir_pass import OptimizeLayouts
from running import converted, operators, units
from text_form import floats, model

PARAMETERS = "<float sc = {0.1}, int8 zp = {3}>"


def same(source: onnx.ModelProto, **options: object) -> relayout.Result:
    """The result, proved and of the same values."""
    result = converted(source, **options)
    assert result.report.proved
    return result


def two_orders(last: str = "v = Identity(z)") -> onnx.ModelProto:
    """An image that a convolution reads channels first, and a dense layer channels last."""
    return model(
        f"""g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,8,8,12] z, float[1,8,8,12] v) {PARAMETERS} {{
            q = QuantizeLinear(x, sc, zp)
            d = DequantizeLinear(q, sc, zp)
            y = Conv(d, k)
            t = Transpose<perm=[0,2,3,1]>(d)
            z = MatMul(t, w)
            {last}
        }}""",
        k=floats(16, 16, 1, 1),
        w=floats(16, 12),
    )


def test_integers_are_transposed_where_readers_want_two_orders() -> None:
    result = same(two_orders())
    assert (result.report.source_bytes, result.report.bytes) == (4 * 16 * 64, 16 * 64)
    (moved,) = (node for node in result.proto.graph.node if node.op_type == "Transpose")
    assert units(result.proto.graph) == {moved.output[0]: 1}


def test_readers_of_one_order_share_one() -> None:
    result = same(two_orders("u = Transpose<perm=[0,2,3,1]>(d) v = MatMul(u, w)"))
    assert operators(result.proto).count("DequantizeLinear") == 3, "one is the Transpose's"
    assert operators(result.proto).count("Transpose") == 1


def test_reports_and_metadata_know_a_copy_as_what_it_copies() -> None:
    source = two_orders("u = Transpose<perm=[0,2,3,1]>(d) v = MatMul(u, w)")
    source.graph.node[1].name = "back"
    (d,) = (value for value in [source.graph.value_info.add(name="d")])
    d.type.CopyFrom(source.graph.input[0].type)
    d.metadata_props.add(key=Holds.KEY, value=Holds.dump([Holds("older", (1, 16, 8, 8), (0, 1, 2, 3), (1, 16, 8, 8))]))
    result = same(source, annotate=True)
    assert [cut.readers for cut in result.report.remaining] == [("DequantizeLinear back",)]
    assert not re.search("d_[0-9]|back_[0-9]", str(result.report.to_dict()))
    values = [value for node in result.model.graph for value in node.outputs]
    assert not any("d_" in str(value.metadata_props) for value in values)
    (moved,) = (v for v in values if v.producer().op_type == "DequantizeLinear" and v.name == "t")
    assert {held.name for held in Holds.load(moved.metadata_props[Holds.KEY])} == {"d", "older"}
    assert all(node.name for node in result.model.graph if node.op_type == "DequantizeLinear")


def test_an_operator_that_reads_it_twice_reads_one() -> None:
    result = same(two_orders("m = Mul(d, d) s = Transpose<perm=[0,2,3,1]>(m) v = MatMul(s, w)"))
    assert result.report.bytes == 16 * 64


def test_a_plan_is_checked_with_copies(tmp_path: Path) -> None:
    source, path, told = two_orders(), tmp_path / "source.onnx", tmp_path / "plan.json"
    onnx.save(source, path)
    told.write_text(json.dumps(relayout.optimize(path).plan))
    assert check_plan(told, path).bytes == 16 * 64


def test_a_pass_gives_each_reader_its_own() -> None:
    inside = ir.from_proto(onnx.shape_inference.infer_shapes(two_orders()))
    assert OptimizeLayouts()(inside).modified
    made = [node for node in inside.graph if node.op_type == "Transpose"]
    assert [node.inputs[0].producer().op_type for node in made] == ["DequantizeLinear"]
    said = [
        *(node.metadata_props for node in inside.graph),
        *(v.metadata_props for n in inside.graph for v in n.outputs),
    ]
    assert not any("stands_for" in key for each in said for key in each)


def test_operators_of_onnx_runtime_belong_to_their_readers() -> None:
    source = two_orders()
    for node in source.graph.node:
        if node.op_type.endswith("quantizeLinear") or node.op_type == "QuantizeLinear":
            node.domain = "com.microsoft"
    source.opset_import.add(domain="com.microsoft", version=1)
    assert relayout.optimize(source).report.bytes == 16 * 64


def test_a_model_with_nothing_to_win_is_untouched(tmp_path: Path) -> None:
    source = model(
        f"""g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,16,8,8] z, float[1,16,8,8] d) {PARAMETERS} {{
            q = QuantizeLinear(x, sc, zp)
            d = DequantizeLinear(q, sc, zp)
            y = Relu(d)
            z = Mul(d, d)
        }}"""
    )
    path, out = tmp_path / "source.onnx", tmp_path / "result.onnx"
    onnx.save(source, path)
    result = relayout.optimize(path)
    result.save(out)
    assert out.read_bytes() == path.read_bytes()
    assert [node.op_type for node in result.model.graph].count("DequantizeLinear") == 1
    inside = ir.from_proto(source)
    OptimizeLayouts()(inside)
    assert ir.to_proto(inside).graph.SerializeToString() == ir.to_proto(ir.from_proto(source)).graph.SerializeToString()


def test_what_is_dequantized_is_given_and_read_in_another_order() -> None:
    result = same(
        model(
            f"""g (float[1,16,8,8] x) => (float[1,16,8,8] d, float[1,8,8,12] z) {PARAMETERS} {{
                q = QuantizeLinear(x, sc, zp)
                d = DequantizeLinear(q, sc, zp)
                t = Transpose<perm=[0,2,3,1]>(d)
                z = MatMul(t, w)
            }}""",
            w=floats(16, 12),
        )
    )
    assert result.report.bytes == 16 * 64


def test_readers_in_bodies_have_their_own() -> None:
    source = model(
        """g (float[1,16,8,8] x) => (float[1,16,8,8] y, float[1,8,8,12] z)
            <bool c = {1}, float sc = {0.1}, int8 zp = {3}> {
            q = QuantizeLinear(x, sc, zp)
            d = DequantizeLinear(q, sc, zp)
            y = Conv(d, k)
            z = If(c) <
                then_branch = a () => (float[1,8,8,12] m) { t = Transpose<perm=[0,2,3,1]>(d) m = MatMul(t, w) },
                else_branch = b () => (float[1,8,8,12] n) { s = Transpose<perm=[0,2,3,1]>(d) n = MatMul(s, w) }
            >
        }""",
        k=floats(16, 16, 1, 1),
        w=floats(16, 12),
    )
    assert same(source).report.bytes == 16 * 64


def test_a_pinned_value_is_one() -> None:
    result = same(two_orders(), layouts={"d": ("NCHW", "NHWC")})
    assert result.report.bytes == (1 + 4) * 16 * 64, "q before it, and d itself for the convolution"


def test_longer_integers_than_their_floats_stay_one() -> None:
    """Before the operator they have more bytes than behind it."""
    source = model(
        """g (float[1,16,8,8] x) => (float16[1,8,8,12] y, float16[1,8,8,12] z) {
            q = Cast<to=6>(x)
            d = DequantizeLinear(q, sc)
            t = Transpose<perm=[0,2,3,1]>(d)
            y = MatMul(t, v)
            u = Transpose<perm=[0,2,3,1]>(d)
            z = MatMul(u, w)
        }""",
        sc=np.array(0.1, np.float16),
        v=floats(16, 12).astype(np.float16),
        w=floats(16, 12).astype(np.float16),
    )
    result = relayout.optimize(source)
    assert result.report.bytes == 2 * 16 * 64
    assert operators(result.proto).count("DequantizeLinear") == 1


@pytest.mark.parametrize("opset", [21, 23])
def test_int8_that_two_readers_want_in_other_dimensions_loads_in_onnx_runtime(opset: int) -> None:
    """From opset 21 on ONNX Runtime refuses an int8 DequantizeLinear whose result is reshaped."""
    source = model(
        f"""g (float[2,16,4,4] x) => (float[2,16,4,4] y) {PARAMETERS} {{
            t = Transpose<perm=[0,2,3,1]>(x)
            a = ReduceMean(t, axes)
            q = QuantizeLinear(a, sc, zp)
            d = DequantizeLinear(q, sc, zp)
            squares = Mul(t, t)
            b = ReduceMean(squares, axes)
            p = QuantizeLinear(b, sc, zp)
            e = DequantizeLinear(p, sc, zp)
            square = Mul(d, d)
            v = Sub(e, square)
            r = Abs(v)
            o = QuantizeLinear(r, sc, zp)
            f = DequantizeLinear(o, sc, zp)
            s = Sub(t, d)
            n = Mul(s, f)
            y = Transpose<perm=[0,3,1,2]>(n)
        }}""",
        axes=np.array([3], np.int64),
    )
    source.opset_import[0].version = opset
    result = same(source)
    assert "Transpose" not in operators(result.proto)
    moved = [node.inputs[0].producer() for node in result.model.graph if node.op_type == "Reshape"]
    assert "DequantizeLinear" not in [maker.op_type for maker in moved if maker is not None]


def test_a_reshape_behind_what_dequantizes_stays_behind_it() -> None:
    """ONNX Runtime makes integers unsigned where a DequantizeLinear stands right behind its QuantizeLinear."""
    result = same(
        model(
            f"""g (float[2,8,16] x) => (float[2,8,12] z) {PARAMETERS} {{
                a = Transpose<perm=[0,2,1]>(x)
                b = Relu(a)
                r = Transpose<perm=[0,2,1]>(b)
                s = Reshape(r, rows)
                m = Gemm(s, w)
                q = QuantizeLinear(m, sc, zp)
                d = DequantizeLinear(q, sc, zp)
                t = Reshape(d, tokens)
                z = Add(t, u)
            }}""",
            w=floats(16, 12),
            u=floats(2, 8, 12),
            rows=np.array([16, 16], np.int64),
            tokens=np.array([2, 8, 12], np.int64),
        )
    )
    assert operators(result.proto) == [
        "Relu",
        "Reshape",
        "Gemm",
        "QuantizeLinear",
        "DequantizeLinear",
        "Reshape",
        "Add",
    ]


def test_what_is_transposed_and_reshaped_is_transposed_first() -> None:
    """Integers that a Transpose brings into other dimensions, too, would need a Reshape before and behind it."""
    result = same(
        model(
            f"""g (float[4,2,32,24] x) => (float[1,64,12,8] y) {PARAMETERS} {{
                q = QuantizeLinear(x, sc, zp)
                d = DequantizeLinear(q, sc, zp)
                t = Transpose<perm=[1,2,0,3]>(d)
                r = Reshape(t, image)
                y = Add(r, u)
            }}""",
            image=np.array([1, 64, 12, 8], np.int64),
            u=floats(1, 64, 12, 8),
        )
    )
    unit = ["DequantizeLinear", "Transpose", "QuantizeLinear"]
    assert operators(result.proto) == ["QuantizeLinear", *unit, "DequantizeLinear", "Reshape", "Add"]


def test_no_two_nodes_have_one_name() -> None:
    """A model that was converted before has nodes that are named like those that are written now."""
    source = model(
        f"""g (float[1,16,4,4] x) => (float[1,16,16] y, float[1,16,12] z, float[1,4,4,12] v) {PARAMETERS} {{
            q = QuantizeLinear(x, sc, zp)
            d = DequantizeLinear(q, sc, zp)
            t = Transpose<perm=[0,2,3,1]>(d)
            v = MatMul(t, w)
            s = Reshape(d, split)
            u = Reshape(s, joined)
            z = MatMul(u, w)
            y = Reshape(d, joined)
        }}""",
        w=floats(16, 12),
        split=np.array([1, 16, 2, 8], np.int64),
        joined=np.array([1, 16, 16], np.int64),
    )
    source.graph.node[-1].name = "u/Reshape"
    made = [node.name for node in same(source).proto.graph.node if node.op_type == "Reshape"]
    assert sorted(made) == ["u/Reshape", "u/Reshape_2"]


def test_a_unit_of_a_row_of_pixels_takes_the_dimensions_that_it_is_given() -> None:
    source = model(
        f"""g (float[1,8,1,6] x) => (float[1,8,1,6] y) {PARAMETERS} {{
            qx = QuantizeLinear(x, sc, zp)
            dx = DequantizeLinear(qx, sc, zp)
            a = Conv<pads=[1,1,1,1]>(dx, k)
            qa = QuantizeLinear(a, sc, zp)
            da = DequantizeLinear(qa, sc, zp)
            c = Sigmoid(da)
            qc = QuantizeLinear(c, sc, zp)
            dc = DequantizeLinear(qc, sc, zp)
            y = Conv<pads=[1,1,1,1]>(dc, k)
        }}""",
        k=floats(8, 8, 3, 3),
    )
    assert "Reshape" not in operators(same(source, to="NHWC").proto)


@pytest.mark.parametrize(
    ("reads", "gives", "copies"), [("int8", "float", 1), ("int32", "float", 1), ("int32", "float16", 0)]
)
def test_each_reader_has_its_own_where_no_more_bytes_are_read_than_given(reads: str, gives: str, copies: int) -> None:
    """As many are none more: it is all the same on which side they are transposed."""
    source = model(
        f"""g ({reads}[2,3] q) => ({gives}[2,3] y, {gives}[2,3] z) {{
            d = DequantizeLinear(q, s) y = Relu(d) z = Neg(d)
        }}""",
        s=np.array(0.5, {"float": np.float32, "float16": np.float16}[gives]),
    )
    shared = duplicate(read(source))
    assert [len(group) for group in shared] == [2] * copies


@pytest.mark.parametrize("kind", ["onnx", "tflite"])
@pytest.mark.parametrize(
    "text",
    [
        "g (int8[2,4,4,3] x) => (float[2,4,12] v, float[2,4,12] q) { d = DequantizeLinear(x, s, z) v = Reshape(d, r)"
        " q = Neg(v) }",
        "g (int8[2,4,4,3] x) => (float[2,4,12] p, float[2,4,12] q) { d = DequantizeLinear(x, s, z) v = Reshape(d, r)"
        " t = Transpose<perm=[1,0,2]>(v) p = Neg(v) q = Transpose<perm=[1,0,2]>(t) }",
        "g (int8[2,4,4,3] x) => (float[2,3,4,4] p, float[2,4,12] v, float[2,4,12] q) { d = DequantizeLinear(x, s, z)"
        " p = Transpose<perm=[0,3,1,2]>(d) v = Reshape(d, r) q = Neg(v) }",
    ],
    ids=["given", "there and back", "in two orders"],
)
def test_a_view_that_is_read_and_given_comes_before_its_readers(text: str, kind: str, tmp_path: Path) -> None:
    """The copy for a reader was there, and became the one that is given, which came last."""
    source = model(text, s=np.array(0.1, np.float32), z=np.array(3, np.int8), r=np.array([2, 4, 12]))
    onnx.save(source, tmp_path / "m.onnx")
    result = relayout.convert(source, format=kind)
    if kind == "onnx":
        onnx.checker.check_model(result.proto, full_check=True)
    result.save(tmp_path / f"r.{kind}")
    assert relayout.verify(tmp_path / "m.onnx", tmp_path / f"r.{kind}").ok
