"""`--dim`: whatever depends on a dimension that is fixed follows, in the main graph, in bodies and in functions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper, parser, shape_inference

import relayout
from litert_runs import KERNELS, results_of_runs
from relayout.layout.expressions import names_in, replace_names
from running import run
from text_form import floats


def parsed(text: str, functions: str = "", **constants: NDArray[np.generic]) -> onnx.ModelProto:
    header = '<ir_version: 10, opset_import: ["": 21, "local": 1]>\n'
    proto = parser.parse_model(header + text + functions)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


def shapes(graph: onnx.GraphProto) -> dict[str, list[object]]:
    """The shapes that a graph and the bodies of its nodes state."""
    found: dict[str, list[object]] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            found[value.name] = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= shapes(attribute.g)
    return found


STRIDED = """
    g (float[n,3,h,w] x, float[n,p,1,8] z) => (float[n,8,ow,oh] y) {
        a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, k)
        t = Transpose<perm=[0,2,3,1]>(a)
        s = Add(t, z)
        y = Transpose<perm=[0,3,2,1]>(s)
    }"""


def test_what_a_convolution_gives_follows_from_what_it_reads() -> None:
    """Its extents were names; they counted as 1, and the plan moved all of the image."""
    source = parsed(STRIDED, k=floats(8, 3, 3, 3))
    result = relayout.optimize(source, dims={"n": 1, "h": 22, "w": 22, "p": 11})
    assert result.report.source_bytes == 2 * 8 * 11 * 11 * 4
    assert result.report.bytes == 8 * 11 * 11 * 4 + 11 * 8 * 4
    assert shapes(result.proto.graph)["y"] == [1, 8, 11, 11]
    assert relayout.optimize(result.proto).report.bytes == result.report.bytes
    feed = {"x": floats(1, 3, 22, 22), "z": floats(1, 11, 1, 8)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)


def test_a_name_that_inference_gives_is_fixed_with_what_follows() -> None:
    source = parsed(STRIDED, k=floats(8, 3, 3, 3))
    named = shape_inference.infer_shapes(source)
    (name,) = {str(dim) for dim in shapes(named.graph)["a"][2:3]}
    result = relayout.optimize(named, dims={"n": 1, name: 11})
    assert shapes(result.proto.graph)["y"] == [1, 8, "ow", 11]


BODIES = {
    "Loop": """
        b = Loop(m, , a) <body = b (int64 i, bool c, float[n,h,w,3] s) => (bool d, float[n,h,w,3] e) {
            d = Identity(c) t = Transpose<perm=[0,3,1,2]>(s) v = Conv(t, k) e = Transpose<perm=[0,2,3,1]>(v) }>""",
    "Scan": """
        b = Scan(a, r) <num_scan_inputs=1, body = b (float[n,h,w,3] s, float i) => (float[n,h,w,3] e) {
            t = Transpose<perm=[0,3,1,2]>(s) v = Conv(t, k) u = Mul(v, i) e = Transpose<perm=[0,2,3,1]>(u) }>""",
    "If": """
        b = If(q) <then_branch = b () => (float[n,h,w,3] e) {
            t = Transpose<perm=[0,3,1,2]>(a) v = Conv(t, k) e = Transpose<perm=[0,2,3,1]>(v) },
            else_branch = o () => (float[n,h,w,3] f) { f = Neg(a) }>""",
}


@pytest.mark.parametrize("body", BODIES)
def test_bodies_state_what_is_fixed(body: str) -> None:
    source = parsed(
        f"""
        g (float[n,3,h,w] x, bool q, float[2] r) => (float[n,3,h,w] y) {{
            a = Transpose<perm=[0,2,3,1]>(x) {BODIES[body]} y = Transpose<perm=[0,3,1,2]>(b)
        }}""",
        m=np.array(3),
        k=floats(3, 3, 1, 1),
    )
    result = relayout.optimize(source, dims={"n": 2, "h": 5, "w": 6})
    assert not [name for name, shape in shapes(result.proto.graph).items() if any(isinstance(d, str) for d in shape)]
    assert (result.report.transposes, result.report.proved) == (0, True)
    feed = {"x": floats(2, 3, 5, 6), "q": np.array(True), "r": floats(2)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-4, atol=1e-5)


def test_functions_state_what_is_fixed() -> None:
    """A function whose version of Softmax is another than the model's stays: its values are stated within it."""
    source = parsed(
        "g (float[n,4,h] x) => (float[n,4,h] y) { y = local.F(x) }",
        '<domain: "local", opset_import: ["": 12]> F (a) => (b) <float[n,4,h] m> { m = Softmax<axis=1>(a) b = Neg(m) }',
    )
    result = relayout.optimize(source, dims={"n": 2, "h": 5})
    (function,) = result.proto.functions
    stated = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in function.value_info}
    assert stated["m"] == [2, 4, 5]


def expressions() -> onnx.ModelProto:
    source = parsed("""
        g (float[n,h,e,4] x, float[n,f,w,4] z) => (float[n,4,h,e] y, float[n,4,w,f] u) {
            y = Transpose<perm=[0,3,1,2]>(x) u = Transpose<perm=[0,3,2,1]>(z)
        }""")
    names = {"e": "((h - 1)//2) + 1", "f": "h + w"}
    for value in (*source.graph.input, *source.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    return source


def test_a_name_that_is_an_expression_of_others() -> None:
    source = expressions()
    result = relayout.optimize(source, dims={"h": 6, "n": 2})
    stated = shapes(result.proto.graph)
    assert stated["x"] == [2, 6, 3, 4]
    assert stated["z"] == [2, "6 + w", "w", 4]
    assert shapes(relayout.optimize(source, dims={"h": 6, "w": 4}).proto.graph)["z"] == ["n", 10, 4, 4]
    with pytest.raises(relayout.LayoutError, match=r"of that name \(dynamic .*: n, h, .*, h \+ w, w\)"):
        relayout.optimize(source, dims={"k": 6})


@pytest.mark.parametrize(
    ("text", "extents", "value"),
    [
        ("((h-1)//2)+1", {"h": 224}, 112),
        ("floor(h/2 - 1/2) + 1", {"h": 7}, 4),
        ("ceiling(h/2)", {"h": 7}, 4),
        ("Max(1, s0)*4 % 5", {"s0": 3}, 2),
        ("-2 + 2**h", {"h": 3}, 6),
        ("past + seq", {"past": 4}, "4 + seq"),
        ("h/2", {"h": 3}, "3/2"),
        ("1 - h", {"h": 3}, "1 - 3"),
    ],
)
def test_expressions_of_names(text: str, extents: dict[str, int], value: int | str) -> None:
    assert names_in(text) >= extents.keys()
    assert replace_names(text, extents) == value


NO_EXPRESSIONS = ["h", "a.b", "((", "(h, w)", "h +", "9**9**9", "h ? w", "h//0", "-" * 900 + "h", "(" * 900, "f(h)", ""]


@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_other_names_are_no_expressions(text: str) -> None:
    assert names_in(text) == frozenset()


def test_a_name_with_a_dash_is_no_difference() -> None:
    source = parsed("g (float[batch,b,4] x) => (float[batch,4,b] y) { y = Transpose<perm=[0,2,1]>(x) }")
    for value in (*source.graph.input, *source.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "b":
                dim.dim_param = "batch-size"
    result = relayout.optimize(source, dims={"batch": 3})
    assert shapes(result.proto.graph)["x"] == [3, "batch-size", 4]
    assert shapes(relayout.optimize(source, dims={"batch-size": 3}).proto.graph)["x"] == ["batch", 3, 4]


STATED = {
    "float[b,7,8] y": ("y = Concat<axis=2>(x, x)", ["b", "t", 8], "t on axis 1, stated as 7"),
    "float[2,7,8] y": ("y = Concat<axis=2>(x, x)", ["b", "t", 8], "b on axis 0, stated as 2; t on axis 1, stated as 7"),
    "float[b,14,4] y": ("y = Concat<axis=1>(x, x)", ["b", 14, 4], ""),
    "float[b,t,4] y": ("y = Relu(x)", ["b", "t", 4], ""),
    "int64[3,5] y": ("y = NonZero(x)", [3, 5], ""),
}
OPENED = "extents of output y follow from the inputs"


@pytest.mark.parametrize("output", STATED)
def test_the_name_of_an_input_wins_over_a_number_that_an_output_states(output: str) -> None:
    body, extents, told = STATED[output]
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[b,t,4] x) => ({output}) {{ {body} }}'
    result = relayout.convert(parser.parse_model(text), io="NHWC", to="NHWC")
    (value,) = result.model.graph.outputs
    assert [dim if isinstance(dim, int) else str(dim.value) for dim in value.shape or ()] == extents
    notes = [note for note in result.report.notes if note.startswith(OPENED)]
    assert [told in note for note in notes] == [True] * bool(told)


@pytest.mark.parametrize("output", STATED)
def test_a_tflite_runs_at_every_length(output: str) -> None:
    body, *_ = STATED[output]
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[b,t,4] x) => ({output}) {{ {body} }}'
    source = parser.parse_model(text)
    content = relayout.convert(source, format="tflite").tflite
    for kernels in KERNELS:
        feeds = [floats(2, length, 4) for length in (7, 3, 9)]
        for feed, result in zip(feeds, results_of_runs(content, feeds, kernels), strict=True):
            np.testing.assert_allclose(result, run(source, {"x": feed})[0], rtol=1e-6)


def test_a_number_that_is_asked_for_is_stated() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[b,t,4] x) => (float[b,7,8] y) { y = Concat<axis=2>(x, x) }'
    result = relayout.convert(parser.parse_model(text), dims={"t": 5})
    (value,) = result.model.graph.outputs
    assert list(value.shape or ())[1:] == [5, 8]
    assert not [note for note in result.report.notes if note.startswith(OPENED)]
