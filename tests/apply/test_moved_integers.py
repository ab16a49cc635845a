"""What moves integers between quantized units is a unit of its own, before and after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import relayout
from relayout.targets import Target
from relayout.targets.onnxruntime.cpu import single_consumers
from running import converted, operators, units
from text_form import floats, model

SINGLE = Target(
    "single", "a runtime of any layout that wants int8 with one consumer", (), single_consumers=single_consumers
)
PARAMETERS = "<float sc = {0.1}, float other = {0.2}, int8 zp = {3}, int8 same = {3}, uint8 up = {131}, int16 zl = {3}>"
UNIT = ["DequantizeLinear", "Transpose", "QuantizeLinear"]


def between(moving: str, last: str = "y = MatMul(f, w)", shape: str = "1,8,8,12") -> onnx.ModelProto:
    """`x -> Conv -> int8, moving -> int8 -> MatMul -> y`; `moving` makes q of p."""
    return model(
        f"""g (float[1,16,8,8] x) => (float[{shape}] y) {PARAMETERS} {{
            c = Conv(x, k)
            p = QuantizeLinear(c, sc, zp)
            {moving}
            f = DequantizeLinear(q, sc, zp)
            {last}
        }}""",
        k=floats(16, 16, 1, 1),
        w=floats(16, 12),
    )


AS_UNIT = "d = DequantizeLinear(p, sc, zp) t = Transpose<perm=[0,2,3,1]>(d) q = QuantizeLinear(t, sc, zp)"
BARE = "q = Transpose<perm=[0,2,3,1]>(p)"


@pytest.mark.parametrize("moving", [AS_UNIT, BARE])
def test_a_unit_that_moves_integers_moves_bytes(moving: str, tmp_path: Path) -> None:
    source, path = between(moving), tmp_path / "source.onnx"
    onnx.save(source, path)
    result = relayout.optimize(path)
    assert (result.report.source_bytes, result.report.bytes, result.report.transposes) == (16 * 64, 16 * 64, 1)
    result.save(tmp_path / "result.onnx")
    assert (tmp_path / "result.onnx").read_bytes() == path.read_bytes(), "nothing is to be won"


def test_units_that_cancel_go() -> None:
    back = (
        "g = Transpose<perm=[0,3,1,2]>(f) h = QuantizeLinear(g, sc, zp) i = DequantizeLinear(h, sc, zp) y = Conv(i, k)"
    )
    result = converted(between(AS_UNIT, back, "1,16,8,8"))
    assert (result.report.source_bytes, result.report.bytes) == (2 * 16 * 64, 0)
    assert operators(result.proto) == ["Conv", "QuantizeLinear", "DequantizeLinear", "Conv"]
    values = [*result.model.graph.inputs, *result.model.graph.initializers.values()]
    values += [value for node in result.model.graph for value in node.outputs]
    assert all(use.node.graph is not None for value in values for use in value.uses()), "what is gone reads nothing"
    assert {tensor.name for tensor in result.proto.graph.initializer} == {"k", "sc", "zp"}


def test_a_float_that_must_move_moves_as_integers_in_a_unit() -> None:
    source = between(
        "d = DequantizeLinear(p, sc, zp) q = QuantizeLinear(d, sc, zp)",
        "t = Transpose<perm=[0,2,3,1]>(f) y = MatMul(t, w)",
    )
    result = converted(source)
    assert (result.report.source_bytes, result.report.bytes) == (4 * 16 * 64, 16 * 64)
    assert operators(result.proto) == ["Conv", "QuantizeLinear", *UNIT, "DequantizeLinear", "MatMul"]
    (moved,) = (node.output[0] for node in result.proto.graph.node if node.op_type == "Transpose")
    assert units(result.proto.graph) == {moved: 1}
    again = relayout.optimize(result.proto)
    assert again.proto.SerializeToString(deterministic=True) == result.proto.SerializeToString(deterministic=True)


def test_two_views_in_one_unit_are_two_units() -> None:
    """Runtimes look for one operator between a DequantizeLinear and a QuantizeLinear."""
    moving = """
        d = DequantizeLinear(p, sc, zp)
        t = Transpose<perm=[0,2,3,1]>(d)
        r = Reshape(t, rows)
        q = QuantizeLinear(r, sc, zp)"""
    source = between(moving, "m = MatMul(f, w) a = Transpose(m) b = Relu(a) y = Transpose(b)", "64,12")
    source.graph.initializer.append(onnx.numpy_helper.from_array(np.array([64, 16]), "rows"))
    result = converted(source)
    assert (result.report.source_bytes, result.report.bytes) == (16 * 64 + 2 * 4 * 12 * 64, 16 * 64)
    reshaping = ["DequantizeLinear", "Reshape", "QuantizeLinear"]
    assert operators(result.proto) == [
        "Conv",
        "QuantizeLinear",
        *reshaping,
        *UNIT,
        "DequantizeLinear",
        "MatMul",
        "Relu",
    ]
    assert list(units(result.proto.graph).values()) == [1]


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [("other, zp", "its scale"), ("sc, up", "its type"), ("sc, zl", "its type")],
)
def test_what_means_another_number_stays(parameters: str, kind: str) -> None:
    moving = f"d = DequantizeLinear(p, sc, zp) t = Transpose<perm=[0,2,3,1]>(d) q = QuantizeLinear(t, {parameters})"
    source = between(moving)
    (last,) = (node for node in source.graph.node if node.output[0] == "f")
    last.input[1:] = parameters.split(", ")
    assert operators(converted(source).proto).count("QuantizeLinear") == 3, kind


def test_parameters_that_are_equal_are_the_same() -> None:
    moving = AS_UNIT.replace("(t, sc, zp)", "(t, sc, same)")
    back = "g = Transpose<perm=[0,3,1,2]>(f) y = Conv(g, k)"
    result = converted(between(moving, back, "1,16,8,8"))
    assert result.report.bytes == 0
    assert {tensor.name for tensor in result.proto.graph.initializer} == {"k", "sc", "zp"}


def test_reals_that_others_read_too_stay() -> None:
    result = converted(between(AS_UNIT, "n = MatMul(t, w) m = MatMul(f, w) y = Add(m, n)"))
    assert (result.report.source_bytes, result.report.bytes) == (4 * 16 * 64, 16 * 64)
    assert operators(result.proto).count("Transpose") == 1


def test_a_transpose_that_several_units_read_counts_once() -> None:
    """It moves real numbers where one of them wants these, and integers where all make integers again."""
    unit = """
        d = DequantizeLinear(p, sc, zp)
        t = Transpose<perm=[0,2,3,1]>(d)
        o = QuantizeLinear(t, sc, zp)
        e = DequantizeLinear(o, sc, zp)
        q = QuantizeLinear(t, sc, zp)"""
    for last, size in (("e", 16 * 64), ("t", 4 * 16 * 64)):
        result = converted(between(unit, f"n = MatMul({last}, w) m = MatMul(f, w) y = Add(m, n)"))
        assert (result.report.source_transposes, result.report.source_bytes) == (1, size)
        assert (result.report.transposes, result.report.bytes) == (1, 16 * 64)


def test_halves_are_no_way_back() -> None:
    back = "g = Transpose<perm=[0,3,1,2]>(f) y = Conv(g, k)"
    source = between(AS_UNIT, back, "1,16,8,8")
    source.opset_import[0].version = 23
    whole = operators(relayout.optimize(source).proto)
    (node,) = (node for node in source.graph.node if node.output[0] == "q")
    node.attribute.append(onnx.helper.make_attribute("precision", onnx.TensorProto.FLOAT16))
    assert (whole.count("QuantizeLinear"), operators(relayout.optimize(source).proto).count("QuantizeLinear")) == (1, 2)


def test_integers_that_a_graph_gives_move_alone() -> None:
    last = "m = MatMul(f, w) a = Transpose<perm=[0,3,1,2]>(m) b = Relu(a) y = Transpose<perm=[0,2,3,1]>(b)"
    source = between(AS_UNIT, last)
    source.graph.output.append(onnx.helper.make_tensor_value_info("q", onnx.TensorProto.INT8, [1, 8, 8, 16]))
    (maker,) = (node for node in converted(source).proto.graph.node if "q" in node.output)
    assert maker.op_type == "Transpose"


@pytest.mark.parametrize("scale", [1e-40, float("inf")])
def test_scales_that_lose_integers_are_no_way_back(scale: float) -> None:
    back = "g = Transpose<perm=[0,3,1,2]>(f) y = Conv(g, k)"
    source = between(AS_UNIT, back, "1,16,8,8")
    (found,) = (tensor for tensor in source.graph.initializer if tensor.name == "sc")
    found.CopyFrom(onnx.numpy_helper.from_array(np.array(scale, np.float32), "sc"))
    assert operators(relayout.optimize(source).proto).count("QuantizeLinear") == 2


def test_integers_of_operators_on_integers_move_alone() -> None:
    source = model(
        f"""g (float[1,16,8,8] x) => (float[1,8,8,12] y) {PARAMETERS} {{
            p = QuantizeLinear(x, sc, zp)
            r = QLinearConv(p, sc, zp, k, sc, zp, sc, zp)
            d = DequantizeLinear(r, sc, zp)
            t = Transpose<perm=[0,2,3,1]>(d)
            y = MatMul(t, w)
        }}""",
        k=np.ones((16, 16, 1, 1), np.int8),
        w=floats(16, 12),
    )
    result = converted(source)
    assert operators(result.proto) == ["QuantizeLinear", "QLinearConv", "Transpose", "DequantizeLinear", "MatMul"]


GELU = """
    s = Reshape(f, image)
    e = Erf(s)
    h = Mul(s, e)
    i = QuantizeLinear(h, sc, zp)
    j = DequantizeLinear(i, sc, zp)
    r = Reshape(j, rows)
    y = Gemm(r, w)
"""


AS_UNITS = "o = Reshape(f, image) l = QuantizeLinear(o, sc, zp) s = DequantizeLinear(l, sc, zp)"


@pytest.mark.parametrize(
    ("kind", "gelu", "reshapes"),
    [
        ("int8", GELU, 2),
        ("int8", GELU.replace("s = Reshape(f, image)", AS_UNITS), 2),
        ("int8", GELU.replace("Mul(s, e)", "Neg(e)"), 1),
        ("uint8", GELU, 1),
    ],
)
def test_a_reshape_keeps_a_reader_alone(kind: str, gelu: str, reshapes: int) -> None:
    """On x64 ONNX Runtime multiplies int8 as integers where one reader alone is behind their DequantizeLinear."""
    source = model(
        f"""g (float[6,4,16] x) => (float[24,12] y) <float sc = {{0.1}}, {kind} zp = {{3}}> {{
            a = Transpose<perm=[1,0,2]>(x)
            b = Relu(a)
            n = Transpose<perm=[1,0,2]>(b)
            v = Reshape(n, rows)
            m = Gemm(v, u)
            p = QuantizeLinear(m, sc, zp)
            f = DequantizeLinear(p, sc, zp)
            {gelu}
        }}""",
        u=floats(16, 16),
        w=floats(16, 12),
        rows=np.array([24, 16]),
        image=np.array([6, 4, 16]),
    )
    result = converted(source, target=SINGLE)
    assert "Transpose" not in operators(result.proto)
    assert operators(result.proto).count("Reshape") == reshapes
    assert operators(converted(source).proto).count("Reshape") == 1


def alone(proto: onnx.ModelProto, op_type: str) -> list[bool]:
    """Of each operator of a kind, whether what it gives is quantized, and what is read after that has one reader."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found = []
    for node in (node for node in proto.graph.node if node.op_type == op_type):
        chain = [node]
        for kind in ("QuantizeLinear", "DequantizeLinear", ""):
            behind = readers.get(chain[-1].output[0], [])
            if len(behind) != 1 or kind not in ("", behind[0].op_type):
                break
            chain.append(behind[0])
        found.append(len(chain) == 4)
    return found


SINKING = """
    {moving}
    f = DequantizeLinear(q, sc, zp)
    b = Relu(f)
    g = Transpose<perm=[0,3,1,2]>(f)
    a = Neg(g)
    m = MatMul(b, w)
    n = Conv(a, k)
"""


@pytest.mark.parametrize("moving", [AS_UNIT, "d = DequantizeLinear(p, sc, zp) q = Transpose<perm=[0,2,3,1]>(d)"])
@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_what_several_read_since_a_transpose_moved_has_a_reshape_there(kind: str, moving: str) -> None:
    """The convolution's unit stays as it was: a Transpose stood behind it, and one node read that."""
    unit = moving == AS_UNIT
    reads = "f = DequantizeLinear(q, sc, zp)" if unit else "f = Identity(q)"
    body = SINKING.format(moving=moving).replace("f = DequantizeLinear(q, sc, zp)", reads)
    parameters = PARAMETERS if kind == "int8" else PARAMETERS.replace("int8 zp = {3}", "uint8 zp = {131}")
    source = model(
        f"""g (float[1,16,8,8] x) => (float[1,8,8,12] m, float[1,16,8,8] n) {parameters} {{
            c = Conv(x, k)
            p = QuantizeLinear(c, sc, zp)
            {body}
        }}""",
        k=floats(16, 16, 1, 1),
        w=floats(16, 12),
    )
    assert alone(source, "Conv")[0]
    result = converted(source, target=SINGLE)
    assert result.report.transposes == 1
    assert (alone(result.proto, "Conv")[0], operators(result.proto).count("Reshape")) == (
        (True, 1) if kind == "int8" else (False, 0)
    )
    if unit:
        again = relayout.optimize(result.proto, target=SINGLE)
        assert operators(again.proto) == operators(result.proto)


@pytest.mark.parametrize(("kind", "reshapes"), [("int8", 3), ("uint8", 1)])
def test_each_reader_keeps_the_reshape_that_it_had_for_itself(kind: str, reshapes: int) -> None:
    """Three products of rows: that of each is quantized for it alone, and nobody else's."""
    each = "".join(
        f"""
        r{i} = Reshape(f, rows)
        q{i} = QuantizeLinear(r{i}, sc, zp)
        d{i} = DequantizeLinear(q{i}, sc, zp)
        y{i} = Gemm(d{i}, w{i})"""
        for i in range(3)
    )
    source = model(
        f"""g (float[4,6,16] x) => (float[24,12] y0, float[24,12] y1, float[24,12] y2)
        <float sc = {{0.1}}, {kind} zp = {{3}}> {{
            t = Transpose<perm=[1,0,2]>(x)
            a = Relu(t)
            n = Transpose<perm=[1,0,2]>(a)
            p = QuantizeLinear(n, sc, zp)
            f = DequantizeLinear(p, sc, zp)
            {each}
        }}""",
        rows=np.array([24, 16]),
        **{f"w{i}": floats(16, 12, seed=i) for i in range(3)},
    )
    result = converted(source, target=SINGLE)
    assert result.report.transposes == 0
    assert operators(result.proto).count("Reshape") == reshapes
    readers = [name for node in result.proto.graph.node for name in node.input]
    made = {node.output[0]: node for node in result.proto.graph.node}
    for gemm in (node for node in result.proto.graph.node if node.op_type == "Gemm"):
        real = gemm.input[0]
        shared = readers.count(real) > 1 or readers.count(made[real].input[0]) > 1
        assert shared == (kind == "uint8")


@pytest.mark.parametrize(("kind", "reshapes"), [("int8", 1), ("uint8", 0)])
def test_one_of_two_readers_was_alone(kind: str, reshapes: int) -> None:
    """Both read the same integers once a Transpose is gone; of int8 the one that was alone is so behind a Reshape."""
    source = model(f"""g (float[2,3,4,5] x) => (float[2,3,4,5] y, float[2,3,4,5] z)
    <float sc = {{0.1}}, {kind} zp = {{3}}> {{
        f = Relu(x) q = QuantizeLinear(f, sc, zp)
        d = DequantizeLinear(q, sc, zp) y = Neg(d)
        u = DequantizeLinear(q, sc, zp) t = Transpose<perm=[0,2,3,1]>(u) p = QuantizeLinear(t, sc, zp)
        e = DequantizeLinear(p, sc, zp) r = Relu(e) z = Transpose<perm=[0,3,1,2]>(r)
    }}""")
    result = converted(source, target=SINGLE)
    assert "Transpose" not in operators(result.proto)
    assert operators(result.proto).count("Reshape") == reshapes
