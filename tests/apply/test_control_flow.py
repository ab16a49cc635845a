"""Layouts across the borders of subgraphs: decided together with the outer graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser, shape_inference

import relayout
from apply.nested import operators
from running import run
from text_form import floats

HEADER = '<ir_version: 10, opset_import: ["": 21]>\n'


def parsed(text: str, **constants: NDArray[np.generic]) -> onnx.ModelProto:
    proto = parser.parse_model(HEADER + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return shape_inference.infer_shapes(proto, data_prop=True)


def check(source: onnx.ModelProto, *feeds: dict[str, NDArray[np.generic]]) -> relayout.Result:
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    for feed in feeds:
        for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
            assert want.shape == got.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert operators(result.proto.graph).count("Transpose") == result.report.transposes
    assert result.report.proved
    return result


def test_branches_take_and_give_the_order_of_the_outer_graph() -> None:
    source = parsed("""
        g (float[2,3,4,5] x, bool c) => (float[2,3,4,5] y) {
            a = LRN<size=3>(x)
            t = Transpose<perm=[0,2,3,1]>(a)
            b = If (c) <
                then_branch = then () => (float[2,4,5,3] p) { p = Relu(t) },
                else_branch = else () => (float[2,4,5,3] q) { n = Neg(t) q = Add(n, t) }
            >
            u = Transpose<perm=[0,3,1,2]>(b)
            y = LRN<size=3>(u)
        }""")
    result = check(source, *({"x": floats(2, 3, 4, 5), "c": np.array(flag)} for flag in (True, False)))
    assert result.report.bytes == 0


def test_a_branch_that_only_hands_on_an_outer_value() -> None:
    source = parsed("""
        g (float[2,3,4] x, bool c) => (float[2,4,3] y) {
            t = Transpose<perm=[0,2,1]>(x)
            y = If (c) <
                then_branch = then () => (float[2,4,3] p) { p = Identity(t) },
                else_branch = else () => (float[2,4,3] q) { r = Neg(x) q = Transpose<perm=[0,2,1]>(r) }
            >
        }""")
    result = check(source, *({"x": floats(2, 3, 4), "c": np.array(flag)} for flag in (True, False)))
    assert result.report.transposes == 1


def loop(body: str, trip: str = "n") -> onnx.ModelProto:
    return parsed(
        f"""
        g (float[2,4,5,3] x, int64 n) => (float[2,4,5,3] y) {{
            y = Loop ({trip}, yes, x) <
                body = b (int64 i, bool k, float[2,4,5,3] s) => (bool go, float[2,4,5,3] r) {{ {body} }}
            >
        }}""",
        w=floats(3, 3, 1, 1),
        yes=np.array(True),
        four=np.array(4, np.int64),
    )


CONVOLUTION = """
    go = Identity(k)
    a = Transpose<perm=[0,3,1,2]>(s)
    z = Conv(a, w)
    v = Transpose<perm=[0,2,3,1]>(z)
    h = Tanh(v)
    r = Add(h, s)
"""


def test_a_loop_carries_its_state_in_the_order_of_its_body() -> None:
    """Two Transposes in each run of the body become one before the loop and one after."""
    feeds = ({"x": floats(2, 4, 5, 3), "n": np.array(count, np.int64)} for count in (0, 1, 3))
    result = check(loop(CONVOLUTION), *feeds)
    assert result.report.transposes == 2
    (node,) = [node for node in result.proto.graph.node if node.op_type == "Loop"]
    assert "Transpose" not in operators(node.attribute[0].g)


def test_a_known_trip_count_is_the_price_of_a_body() -> None:
    source = loop(CONVOLUTION, trip="four")
    report = check(source, {"x": floats(2, 4, 5, 3), "n": np.array(4, np.int64)}).report
    assert report.source_bytes == 2 * 4 * 480
    assert report.bytes == 2 * 480


def test_two_states_that_change_places_and_a_stacked_output() -> None:
    source = parsed(
        """
        g (float[2,3,4] x, float[2,3,4] z, int64 n) => (float[2,3,4] p, float[2,3,4] q, float[t,4,2,3] all) {
            p, q, all = Loop (n, , x, z) <
                body = b (int64 i, bool k, float[2,3,4] a, float[2,3,4] c)
                  => (bool go, float[2,3,4] d, float[2,3,4] e, float[4,2,3] f) {
                    go = Identity(k)
                    u = Transpose<perm=[2,0,1]>(a)
                    m = Softmax<axis=0>(u)
                    d = Relu(c)
                    e = Transpose<perm=[1,2,0]>(m)
                    f = Add(m, u)
                }
            >
        }"""
    )
    check(source, {"x": floats(2, 3, 4), "z": floats(2, 3, 4, seed=1), "n": np.array(3, np.int64)})


def test_slices_that_a_loop_stacks_lie_as_they_do_inside() -> None:
    source = parsed(
        """
        g (float[2,3,4] x, int64 n) => (float[t,4,3,2] all) {
            p, q = Loop (n, , x) <
                body = b (int64 i, bool k, float[2,3,4] a) => (bool go, float[2,3,4] d, float[4,2,3] f) {
                    go = Identity(k)
                    d = Tanh(a)
                    f = Transpose<perm=[2,0,1]>(d)
                }
            >
            r = Relu(q)
            u = Transpose<perm=[0,2,3,1]>(r)
            v = Abs(u)
            all = Transpose<perm=[0,3,2,1]>(v)
        }"""
    )
    result = check(source, *({"x": floats(2, 3, 4), "n": np.array(count, np.int64)} for count in (1, 3)))
    # 2 3 4 inside, 4 3 2 outside: the slices are turned once, by one Transpose.
    assert result.report.transposes == 1


def test_loops_and_branches_inside_each_other() -> None:
    source = loop("""
        go = Identity(k)
        t = Transpose<perm=[0,3,1,2]>(s)
        zero = Constant<value = float {0.0}>()
        sum = ReduceSum<keepdims=0>(t)
        c = Greater(sum, zero)
        o = If (c) <
            then_branch = then () => (float[2,3,4,5] p) { p = Conv(t, w) },
            else_branch = else () => (float[2,3,4,5] q) { l = LRN<size=3>(t) q = Neg(l) }
        >
        r = Transpose<perm=[0,2,3,1]>(o)
    """)
    result = check(source, *({"x": floats(2, 4, 5, 3, seed=seed), "n": np.array(2, np.int64)} for seed in range(3)))
    assert result.report.transposes == 2


def test_the_axis_of_a_scan_follows() -> None:
    """The batch comes first outside and time in the Scan: its axes are renumbered, and nothing is moved for them."""
    source = parsed(
        """
        g (float[2,6,4,5,3] x, float[2,3,4,5] s) => (float[2,3,4,5] y, float[2,6,3,4,5] z) {
            t = Transpose<perm=[1,0,2,3,4]>(x)
            f, g = Scan<num_scan_inputs=1,
                body = b (float[2,3,4,5] a, float[2,4,5,3] e) => (float[2,3,4,5] h, float[2,4,5,3] o) {
                    c = Transpose<perm=[0,3,1,2]>(e)
                    v = Conv(c, w)
                    h = Add(a, v)
                    o = Transpose<perm=[0,2,3,1]>(h)
                }
            >(s, t)
            y = LRN<size=3>(f)
            z = Transpose<perm=[1,0,4,2,3]>(g)
        }""",
        w=floats(3, 3, 1, 1),
    )
    result = check(source, {"x": floats(2, 6, 4, 5, 3), "s": floats(2, 3, 4, 5, seed=1)})
    # The images of x have to become n c h w, outside or slice by slice, and that is all.
    assert (result.report.transposes, result.report.bytes) == (1, 2 * 6 * 4 * 5 * 3 * 4)
    (scan,) = [node for node in result.proto.graph.node if node.op_type == "Scan"]
    axes = {attribute.name: list(attribute.ints) for attribute in scan.attribute if "axes" in attribute.name}
    assert axes == {"scan_input_axes": [1], "scan_output_axes": [1]}


def test_a_scan_whose_body_states_no_shapes() -> None:
    source = parsed("""
        g (float[6,4,5,3] x, float[3,4,5] s) => (float[3,4,5] y, float[6,3,4,5] z) {
            t = Transpose<perm=[0,3,1,2]>(x)
            r = Relu(t)
            u = Transpose<perm=[0,2,3,1]>(r)
            y, z = Scan<num_scan_inputs=1,
                body = b (float[] a, float[] e) => (float[] h, float[] o) {
                    c = Transpose<perm=[2,0,1]>(e)
                    h = Add(a, c)
                    o = Relu(h)
                }
            >(s, u)
        }""")
    (body,) = (attribute.g for node in source.graph.node for attribute in node.attribute if attribute.HasField("g"))
    for value in (*body.input, *body.output):
        value.type.tensor_type.ClearField("shape")
    del body.value_info[:]
    result = check(source, {"x": floats(6, 4, 5, 3), "s": floats(3, 4, 5, seed=1)})
    assert result.report.source_bytes == 3 * 6 * 240
    assert result.report.bytes == 6 * 240


def test_a_scan_of_which_nothing_is_won_is_given_back() -> None:
    source = parsed("""
        g (float[6,2,3] x, float[2,3] s) => (float[2,3] y, float[6,2,3] z) {
            y, z = Scan<num_scan_inputs=1,
                body = b (float[2,3] a, float[2,3] e) => (float[2,3] h, float[2,3] o) { h = Add(a, e) o = Identity(h) }
            >(s, x)
        }""")
    assert relayout.optimize(source).proto == source


def test_a_scan_inside_a_loop_carries_the_same_state() -> None:
    source = loop("""
        go = Identity(k)
        t = Transpose<perm=[1,0,3,2]>(s)
        u, v = Scan<num_scan_inputs=1,
            body = b (float[2,3,5] a, float[2,3,5] e) => (float[2,3,5] h, float[2,5,3] o) {
                c = Tanh(e)
                h = Add(a, c)
                o = Transpose<perm=[0,2,1]>(h)
            }
        >(zero, t)
        r = Transpose<perm=[1,0,2,3]>(v)
    """)
    source.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 3, 5), np.float32), "zero"))
    source = shape_inference.infer_shapes(source)
    result = check(source, *({"x": floats(2, 4, 5, 3), "n": np.array(count, np.int64)} for count in (0, 1, 3)))
    assert result.report.bytes == 0


@pytest.mark.parametrize("seed", range(3))
def test_an_unknown_operator_with_a_subgraph_keeps_what_it_reads(seed: int) -> None:
    source = parsed("""
        g (float[3,2,4] x, float[2,4] s) => (seq(float[2,4]) y, float[2,3,4] w) {
            t = Transpose<perm=[0,2,1]>(x)
            o = Relu(t)
            all = SequenceConstruct(s, s)
            y = SequenceMap<
                body = b (float[2,4] a) => (float[2,4] f) {
                    m = ReduceSum<keepdims=0>(o)
                    f = Mul(a, m)
                }
            >(all)
            w = Transpose<perm=[2,0,1]>(o)
        }""")
    result = relayout.optimize(source)
    feed = {"x": floats(3, 2, 4, seed=seed), "s": floats(2, 4, seed=seed)}
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_an_extent_of_one_that_only_the_result_states() -> None:
    """A quantized value takes the dimensions of its dequantized reader only where both have the same axes."""
    source = parsed(
        """
        g (float[a,b,c,d] x, float[7,2] z, bool k) => (float[4,6,1,3] y) {
            y = If (k) <
                then_branch = then () => (float[4,6,1,3] p) {
                    q = QuantizeLinear(x, scale, zero)
                    p = DequantizeLinear(q, scale, zero)
                },
                else_branch = else () => (float[4,6,1,3] r) {
                    t = Transpose<perm=[1,0]>(z)
                    m = ReduceMean<keepdims=0>(t)
                    r = Expand(m, shape)
                }
            >
        }""",
        scale=np.array(0.1, np.float32),
        zero=np.array(3, np.int8),
        shape=np.array([4, 6, 1, 3]),
    )
    feed = {"x": floats(4, 6, 1, 3), "z": floats(7, 2)}
    check(source, {**feed, "k": np.array(True)}, {**feed, "k": np.array(False)})


def carrying(body: str, state: str = "float", shape: str = "n,h,w,3") -> onnx.ModelProto:
    """A Loop between two operators that want channels first; its state is of the kind given."""
    source = parser.parse_model(
        HEADER
        + f"""g (float[{shape}] x, int64 m) => (float[?,?,?,?] y) {{
            a = Transpose<perm=[0,3,1,2]>(x) c = Conv(a, k) b = Transpose<perm=[0,2,3,1]>(c)
            l = Loop(m, , b) <body = body (int64 i, bool go, {state} s) => (bool on, float t) {{
                on = Identity(go) {body} }}>
            d = Transpose<perm=[0,3,1,2]>(l) e = Conv(d, k) y = Transpose<perm=[0,2,3,1]>(e)
        }}"""
    )
    source.graph.initializer.append(numpy_helper.from_array(floats(3, 3, 1, 1), "k"))
    loop = next(node for node in source.graph.node if node.op_type == "Loop")
    body_graph = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
    if state == "float":
        body_graph.input[2].type.tensor_type.ClearField("shape")
    body_graph.output[1].type.tensor_type.ClearField("shape")
    return source


@pytest.mark.parametrize("state", ["float", "float[p,q,r,s]", "float[?,?,?,3]", "float[2,5,4,3]"])
@pytest.mark.parametrize("shape", ["n,h,w,3", "2,5,4,3"])
def test_a_state_has_the_rank_that_it_begins_with(state: str, shape: str) -> None:
    """ONNX assumes nothing of a state: it may state no shape, and was a barrier then."""
    result = check(
        carrying("t = Relu(s)", state, shape), *({"x": floats(2, 5, 4, 3), "m": np.array(m)} for m in (0, 2))
    )
    assert result.report.transposes == 2
    if shape.startswith("n"):
        feed = {"x": floats(1, 2, 3, 3), "m": np.array(2)}
        np.testing.assert_allclose(run(result.proto, feed)[0], run(carrying("t = Relu(s)"), feed)[0], rtol=1e-5)


def test_a_state_that_begins_with_what_is_inferred_has_that_rank() -> None:
    """Where nothing else is left to find, states are looked at once more."""
    source = parser.parse_model(
        HEADER
        + """g (float[n,4,5,3] x, int64 m) => (float[?,?,?,?] y) {
            a = Relu(x) y = Loop(m, , a) <body = b (int64 i, bool c, float s) => (bool d, float t) {
                d = Identity(c) u = Neg(s) t = Tanh(u) }> }"""
    )
    body = next(attribute.g for attribute in source.graph.node[1].attribute if attribute.name == "body")
    body.input[2].type.tensor_type.ClearField("shape")
    body.output[1].type.tensor_type.ClearField("shape")
    assert relayout.optimize(source).report.barriers == {}


def test_a_state_whose_extents_change_keeps_its_rank() -> None:
    source = carrying("t = Concat<axis=1>(s, s)")
    result = check(source, *({"x": floats(2, 5, 4, 3), "m": np.array(m)} for m in (0, 1, 2)))
    assert result.report.transposes == 2


def test_a_state_whose_rank_changes_is_a_barrier() -> None:
    source = carrying("t = Unsqueeze(s, zero)")
    source.graph.initializer.append(numpy_helper.from_array(np.array([0]), "zero"))
    result = relayout.optimize(source)
    assert result.report.transposes == result.report.source_transposes
    feed = {"x": floats(2, 5, 4, 3), "m": np.array(0)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5)
