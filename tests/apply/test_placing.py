"""Work that only one body needs stands in it: a branch that is not taken, a loop without trips."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import relayout
from apply.nested import operators
from running import run
from text_form import floats

WASTE = "a = Transpose<perm=[0,2,1]>(z) b = Relu(a) u = Transpose<perm=[0,2,1]>(b)"
"""Two Transposes that cancel, so that there is something to be gained."""


def parsed(inputs: str, text: str, **constants: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g ({inputs}, float[1,4,5] z) => (float[?,?,?,?] y, float[1,4,5] u) {{ {text} {WASTE} }}""")
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    for value in proto.graph.output[:1]:
        value.type.tensor_type.ClearField("shape")
    return proto


def same(source: onnx.ModelProto, *feeds: dict[str, np.ndarray], **options: str) -> onnx.ModelProto:
    result = relayout.convert(source, **options)
    onnx.checker.check_model(result.proto, full_check=True)
    assert operators(result.proto.graph).count("Transpose") == result.report.transposes
    for feed in feeds:
        whole = feed | {"z": floats(1, 4, 5)}
        for want, got in zip(run(source, whole), run(result.proto, whole), strict=True):
            np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=1e-4, atol=1e-5)
    return result.proto


def outside(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


IF = """
    v = Relu(x)
    y = If(c) <then_branch = t () => (float[?,?,?,?] p) {{ {then} }},
               else_branch = e () => (float[?,?,?,?] q) {{ {other} }}>
"""
CONVOLVED = "t{0} = Transpose<perm=[0,3,1,2]>(v) {1} = Conv(t{0}, k)"


@pytest.mark.parametrize("nested", [False, True])
def test_a_transpose_that_one_branch_wants_stays_in_it(nested: bool) -> None:
    then, other = CONVOLVED.format("", "p"), "q = Identity(w)"
    if nested:
        inner = then.replace("p = Conv", "r = Conv")
        then = f"""p = If(d) <then_branch = a () => (float[?,?,?,?] r) {{ {inner} }},
            else_branch = b () => (float[?,?,?,?] s) {{ s = Neg(w) }}>"""
    source = parsed(
        "float[2,5,6,3] x, float[2,4,5,6] w, bool c, bool d", IF.format(then=then, other=other), k=floats(4, 3, 1, 1)
    )
    feeds = [
        {"x": floats(2, 5, 6, 3), "w": floats(2, 4, 5, 6), "c": np.array(c), "d": np.array(d)}
        for c in (True, False)
        for d in (True, False)
    ]
    if not nested:
        del source.graph.input[3]
        feeds = [{name: array for name, array in feed.items() if name != "d"} for feed in feeds]
    proto = same(source, *feeds)
    assert outside(proto) == ["Relu", "If", "Relu"]


def test_a_transpose_before_an_if_that_one_branch_wants_goes_into_it() -> None:
    text = "t = Transpose<perm=[0,3,1,2]>(v)" + IF.format(then="p = Conv(t, k)", other="q = Identity(w)")
    text = text.replace("v = Relu(x)", "").replace("t = T", "v = Relu(x) t = T", 1)
    source = parsed("float[2,5,6,3] x, float[2,4,5,6] w, bool c", text, k=floats(4, 3, 1, 1))
    feeds = [{"x": floats(2, 5, 6, 3), "w": floats(2, 4, 5, 6), "c": np.array(c)} for c in (True, False)]
    assert "Transpose" not in outside(same(source, *feeds))


def test_a_transpose_that_both_branches_want_runs_once_before_them() -> None:
    text = IF.format(then=CONVOLVED.format("", "p"), other=CONVOLVED.format("2", "q"))
    source = parsed("float[2,5,6,3] x, bool c", text, k=floats(4, 3, 1, 1))
    proto = same(source, *({"x": floats(2, 5, 6, 3), "c": np.array(c)} for c in (True, False)))
    assert outside(proto) == ["Relu", "Transpose", "If", "Relu"]


def test_a_reshape_of_integers_stays_in_its_branch() -> None:
    """Before the If it stood between a DequantizeLinear and what ONNX Runtime makes of the two: it aborts."""
    source = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 13]>
        g (float[2,3,1,4] x, bool c) => (float[?,?,?,?] y) <float s = {0.05}, uint8 z = {3}> {
            q = QuantizeLinear(x, s, z)
            v = DequantizeLinear(q, s, z)
            y = If(c) <then_branch = th () => (float[?,?,?,?] t) { t = Transpose<perm=[0,3,1,2]>(v) },
                       else_branch = el () => (float[?,?,?,?] e) { n = Neg(v) e = Transpose<perm=[0,3,1,2]>(n) }>
        }""")
    result = relayout.convert(source, io="convert")
    assert outside(result.proto) == ["QuantizeLinear", "DequantizeLinear", "If"]
    assert result.report.transposes == 0


LOOP = """
    v = Relu(x)
    y = Loop({trips}, , w) <body = b (int64 i, bool c, float[2,4,5,6] s) => (bool d, float[2,4,5,6] e) {{
        d = Identity(c) {inside} r = Conv(t, k) e = Add(r, s) }}>
"""
INSIDE = "t = Transpose<perm=[0,3,1,2]>(v)"


def looping(trips: str, *, before: bool = False) -> onnx.ModelProto:
    text = LOOP.format(trips=trips, inside="" if before else INSIDE)
    text = text.replace("v = Relu(x)", f"v = Relu(x) {INSIDE}") if before else text
    source = parsed("float[2,5,6,3] x, float[2,4,5,6] w, int64 m", text, k=floats(4, 3, 1, 1), three=np.array(3))
    if trips != "m":
        del source.graph.input[2]
    return source


def fed(source: onnx.ModelProto, trips: int) -> dict[str, np.ndarray]:
    feed = {"x": floats(2, 5, 6, 3), "w": floats(2, 4, 5, 6), "m": np.array(trips)}
    return {value.name: feed[value.name] for value in source.graph.input if value.name in feed}


def test_nothing_leaves_a_loop_that_may_make_no_trip() -> None:
    source = looping("m")
    proto = same(source, *(fed(source, trips) for trips in (0, 1, 3)))
    assert "Transpose" not in outside(proto)
    assert operators(proto.graph).count("Transpose") == 1


def test_what_a_loop_wants_that_surely_runs_is_moved_once() -> None:
    source = looping("three")
    proto = same(source, fed(source, 3))
    assert outside(proto).count("Transpose") == 1
    report = relayout.optimize(source).report
    assert (report.source_bytes, report.bytes) == (3 * 720 + 2 * 80, 720)


def test_what_the_source_moves_before_a_loop_is_moved_there() -> None:
    source = looping("m", before=True)
    proto = same(source, *(fed(source, trips) for trips in (0, 2)))
    assert outside(proto).count("Transpose") == 1


def test_a_body_that_is_optimized_again_stays() -> None:
    for source in (looping("m"), looping("three"), looping("m", before=True)):
        once = relayout.optimize(source)
        again = relayout.optimize(once.proto).report
        assert (again.source_bytes, again.bytes) == (once.report.bytes, once.report.bytes)


@pytest.mark.parametrize("perm", ["0,1", "1,0"])
def test_a_loop_without_trips_gives_what_its_body_states(perm: str) -> None:
    """A runtime that stacks nothing has no other shape to go by."""
    source = parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[6] x, int64[2] s, int64 m, float[2,3,4,5] w) => (float[?,?,?] y, float[2,3,4,5] z)
        <bool yes = {{1}}> {{
            y = Loop(m, yes) <body = b (int64 i, bool c) => (bool d, float[2,3] r) {{
                d = Identity(c) q = Reshape(x, s) t = Transpose<perm=[{perm}]>(q) r = Identity(t) }}>
            a = Transpose<perm=[0,2,3,1]>(w) b = Relu(a) z = Transpose<perm=[0,3,1,2]>(b)
        }}""")
    result = relayout.optimize(source)
    for trips in (0, 2):
        feed = {"x": floats(6), "s": np.array([2, 3] if perm == "0,1" else [3, 2]), "m": np.array(trips)}
        feed["w"] = floats(2, 3, 4, 5)
        for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
            assert got.shape == want.shape
            np.testing.assert_array_equal(got, want)
