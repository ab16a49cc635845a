"""What is known of a model in advance: extents that it computes, and values that follow from them."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser

import relayout
from relayout.formats.onnx import inferring_rounds
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.fixing import fix_dims
from relayout.formats.onnx.inferring import infer_and_judge
from relayout.formats.onnx.reading import read
from relayout.infer.build import build
from relayout.rules import outputs_of
from running import run
from text_form import floats


def model(text: str, **constants: NDArray[np.generic]) -> onnx.ModelProto:
    proto = parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return proto


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def completed(proto: onnx.ModelProto) -> dict[str, ir.Value]:
    found = read(proto)
    complete(found, outputs_of)
    return {value.name or "": value for node in found.graph for value in node.outputs}


def known(proto: onnx.ModelProto, feed: dict[str, NDArray[np.generic]]) -> set[str]:
    """The names of the values that are known in advance, once the runtime has given the same ones."""
    values = {name: value.const_value for name, value in completed(proto).items() if value.const_value is not None}
    shown = onnx.ModelProto()
    shown.CopyFrom(proto)
    stated = {put.name for put in proto.graph.output}
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in values if name not in stated)
    outputs = [put.name for put in shown.graph.output]
    for name, given in zip(outputs, run(shown, feed), strict=True):
        if name in values:
            expected = values[name].numpy()
            assert expected.shape == given.shape, name
            assert expected.dtype == given.dtype, name
            np.testing.assert_allclose(expected, given, rtol=1e-6, err_msg=name)
    return set(values)


def shape(value: ir.Value) -> list[object]:
    assert value.shape is not None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


HALF = """
    g (float[batch,12,5,7] x) => (float[n,k,h,w] y) {
        s = Shape(x)
        c = Gather(s, one)   half = Div(c, two)
        a = Slice(x, half, c, one)
        t = Shape(a)
        n = Gather(t, zero)   rest = Slice(t, two, four)
        flat = Concat<axis=0>(n, six, rest)
        b = Reshape(a, flat)
        y = Relu(b)
    }"""


def test_static_extents_of_a_dynamic_shape_are_known() -> None:
    source = model(HALF, zero=ints(0), one=ints(1), two=ints(2), four=ints(4), six=ints(6))
    feed = {"x": np.ones((3, 12, 5, 7), np.float32)}
    found = completed(source)
    assert shape(found["a"]) == [None, 6, 5, 7]
    assert shape(found["b"])[1:] == [6, 5, 7]
    assert known(source, feed) == {"c", "half", "rest"}


def test_an_axis_beside_one_that_is_cut_keeps_its_name() -> None:
    """Shape inference makes names up for all axes of a Slice, as long as it does not know where it begins."""
    source = model(
        """
        g (float[batch,12,5] x) => (float[n,c,w] y) {
            s = Shape(x)
            c = Slice(s, one, two)   half = Div(c, two)
            a = Slice(x, half, c, one)
            y = Relu(a)
        }""",
        one=ints(1),
        two=ints(2),
    )
    assert str(completed(source)["a"].shape) == "[batch,6,5]"


def test_vectors_of_shapes_tell_what_they_can() -> None:
    """What begins, repeats or spreads is known in part: shape inference makes up names for all axes then."""
    source = model(
        """
        g (float[batch,6,1] x, float[rows,6,5] other)
            => (float[a,b,c] cut, float[d,e,f] rest, float[g,h,i] tiled, float[j,k,l,m] spread, float[o,p,q] wide,
                float[t,u,v] zeros) {
            s = Shape(x)   n = Slice(s, zero, one)
            double = Concat<axis=0>(x, x)
            two_n = Shape<start=0, end=1>(double)   more = Add(two_n, one)   half = Div(more, two)
            a_cut = Slice(double, half, two_n, zero)   cut = Relu(a_cut)
            a_rest = Slice(double, half, two_n)   rest = Relu(a_rest)
            times = Concat<axis=0>(n, one, two)
            a_tiled = Tile(x, times)   tiled = Relu(a_tiled)
            t = Shape(other)   r = Slice(t, zero, one)
            square = Concat<axis=0>(r, one, one, five)
            a_spread = Expand(other, square)   spread = Relu(a_spread)
            a_wide = Expand(x, t)   wide = Relu(a_wide)
            a_zeros = ConstantOfShape(times)   zeros = Relu(a_zeros)
        }""",
        zero=ints(0),
        one=ints(1),
        two=ints(2),
        five=ints(5),
    )
    found = completed(source)
    names = [put.name for put in source.graph.output]
    shapes = {name: re.sub("unk__[0-9]+", "?", str(found[f"a_{name}"].shape)) for name in names}
    assert shapes == {
        "cut": "[?,6,1]",
        "rest": "[?,6,1]",
        "tiled": "[batch*batch,6,2]",
        "spread": "[rows,rows,6,5]",
        "wide": "[?,6,5]",
        "zeros": "[batch,1,2]",
    }
    given = run(source, {"x": np.ones((3, 6, 1), np.float32), "other": np.ones((3, 6, 5), np.float32)})
    sizes = [(3, 6, 1), (3, 6, 1), (9, 6, 2), (3, 3, 6, 5), (3, 6, 5), (3, 1, 2)]
    assert dict(zip(names, [array.shape for array in given], strict=True)) == dict(zip(names, sizes, strict=True))


def test_vectors_that_exporters_reckon_tell_extents() -> None:
    """A class token that is repeated for each image; pads that fill windows; patches; what is joined is alike."""
    source = model(
        """
        g (float[batch,3,h,w] x, float[rows,3,5,9] other)
            => (float[a,b,c,d] token, float[e,f,g,i] fill, float[j,k,l,m] patch, float[n,o,p,q] both,
                float[r,s,t,u] halved) {
            size = Shape(x)   n = Slice(size, zero, one)
            as_is = Concat<axis=0>(n, minus, minus, minus)
            given = Equal(as_is, kept)
            to = Where(given, ones, as_is)
            a_token = Expand(each, to)   token = Relu(a_token)
            high = Slice(size, two, three)   rest = Mod(high, seven)   more = Sub(seven, rest)   pad = Mod(more, seven)
            pads = Concat<axis=0>(zeros, pad, zero)
            a_fill = Pad(x, pads)   fill = Relu(a_fill)
            a_patch = Conv<kernel_shape=[4,4], strides=[4,4]>(x, k)   patch = Relu(a_patch)
            cropped = CenterCropPad<axes=[0]>(other, n)
            a_both = Concat<axis=3>(cropped, other)   both = Relu(a_both)
            a_halved = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x)   halved = Relu(a_halved)
        }""",
        zero=ints(0),
        one=ints(1),
        two=ints(2),
        three=ints(3),
        seven=ints(7),
        minus=ints(-1),
        kept=ints(-1, -1, -1, -1),
        ones=ints(1, 1, 1, 1),
        zeros=ints(0, 0, 0, 0, 0, 0),
        each=floats(1, 3, 2, 6),
        k=floats(5, 3, 4, 4),
    )
    found = completed(source)
    shapes = {put.name: re.sub("unk__[0-9]+", "?", str(found[f"a_{put.name}"].shape)) for put in source.graph.output}
    assert shapes == {
        "token": "[batch,3,2,6]",
        "fill": "[batch,3,?,w]",
        "patch": "[batch,5,(h//4),(w//4)]",
        "both": "[rows,3,5,None]",
        "halved": "[batch,3,?,?]",
    }
    for high, wide in ((8, 8), (13, 6), (4, 7)):
        x, other = np.ones((2, 3, high, wide), np.float32), np.ones((2, 3, 5, 9), np.float32)
        token, fill, patch, both, _ = run(source, {"x": x, "other": other})
        assert (token.shape, both.shape) == ((2, 3, 2, 6), (2, 3, 5, 18))
        assert (fill.shape, patch.shape) == ((2, 3, -(-high // 7) * 7, wide), (2, 5, high // 4, wide // 4))


HEADS = """
    g (float[batch,length,6,16] x, float[length,batch] unnamed) => (float[a,b,c,d] y, float[e,f] z, float[i,j,k] v) {
        t = Transpose<perm=[0,2,1,3]>(x)
        s = Shape(t)
        n = Gather(s, zero)   rest = Slice(s, two, four)
        flat = Concat<axis=0>(minus, rest)
        heads = Reshape(t, flat)
        turned = Transpose<perm=[0,2,1]>(heads)
        k = Slice(s, two, three)   c = Slice(s, three, four)   h = Slice(s, one, two)
        back = Concat<axis=0>(n, h, c, k)
        apart = Reshape(turned, back)
        y = Relu(apart)
        times = Mul(n, k)   rows = Concat<axis=0>(times, minus)
        m = Reshape(t, rows)
        z = Relu(m)
        fewer = Div(rows, k)   half = Slice(fewer, zero, one)   v3 = Concat<axis=0>(half, k, minus)
        w = Reshape(m, v3)
        v = Relu(w)
    }"""


@pytest.mark.parametrize("opset", [21, 13])
def test_products_of_extents_are_known(opset: int) -> None:
    """`(batch heads)` as attention has it, and where one extent is left to the rest.

    Before opset 14 ONNX does not infer even the rank of what a Reshape gives.
    """
    constants = {name: ints(value) for value, name in enumerate(("zero", "one", "two", "three", "four"))}
    source = model(HEADS, minus=ints(-1), **constants)
    source.opset_import[0].version = opset
    found = completed(source)
    shapes = {name: str(found[name].shape) for name in ("heads", "turned", "apart", "m", "w")}
    assert shapes == {
        "heads": "[6*batch,length,16]",
        "turned": "[6*batch,16,length]",
        "apart": "[batch,6,16,length]",
        "m": "[batch*length,96]",
        "w": "[batch,length,96]",
    }


def test_an_order_goes_through_heads_of_a_dynamic_batch() -> None:
    constants = {name: ints(value) for value, name in enumerate(("zero", "one", "two", "three", "four"))}
    source = model(HEADS, minus=ints(-1), **constants)
    result = relayout.optimize(source)
    assert (result.report.source_transposes, result.report.transposes) == (2, 2)
    assert result.report.barriers == {}
    for batch, length in ((1, 3), (2, 5)):
        feed = {
            "x": np.random.default_rng(0).normal(size=(batch, length, 6, 16)).astype(np.float32),
            "unnamed": np.zeros((length, batch), np.float32),
        }
        for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
            np.testing.assert_array_equal(want, got)


def test_a_fixed_dimension_is_fixed_in_products() -> None:
    constants = {name: ints(value) for value, name in enumerate(("zero", "one", "two", "three", "four"))}
    found = read(model(HEADS, minus=ints(-1), **constants))
    complete(found, outputs_of)
    fix_dims(found, {"batch": 2})
    shapes = {value.name: str(value.shape) for node in found.graph for value in node.outputs}
    assert shapes["heads"] == "[12,length,16]"
    assert shapes["m"] == "[2*length,96]"


def test_a_reshape_whose_shape_is_an_attribute_is_inferred_as_ever() -> None:
    proto = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 4]>
        g (float[batch,4,3] x) => (float[n,12] y) <float[n,12] b> {
            a = Transpose<perm=[0,2,1]>(x)
            b = Reshape<shape=[-1,12]>(a)
            y = Transpose<perm=[0,1]>(b)
        }""")
    assert str(completed(proto)["a"].shape) == "[batch,3,4]"


def test_what_a_product_is_found_to_be_its_symbol_is_not() -> None:
    """12 rows are `6*m`: a value of m rows behind it has not 12."""
    source = model(
        """g (float[4,3,5] x, float[m,3,5] z) => (float[n,5] y, float[m,3,5] w) <float[sixfold,5] a, float[m,3,5] e> {
            a = Reshape(x, rows)
            y = Relu(a)
            e = Relu(z)
            w = Tanh(e)
        }""",
        rows=ints(-1, 5),
    )
    source.graph.value_info[0].type.tensor_type.shape.dim[0].dim_param = "6*m"
    found = read(source)
    extents = {value.name: str(view.extents[0]) for value, view in build(found).views.items()}
    assert (extents["a"], extents["e"]) == ("12", "m")


def test_an_extent_that_the_file_names_otherwise_keeps_its_name() -> None:
    """The name is another's, and says what that one says of it."""
    source = model(
        """g (float[batch,4,3] x) => (float[n,3] y) <float[rows,3] a> {
            a = Reshape(x, shape)
            y = Relu(a)
        }""",
        shape=ints(-1, 3),
    )
    assert str(completed(source)["a"].shape) == "[rows,3]"


def test_what_is_dynamic_stays_unknown() -> None:
    """The batch may be any number: nothing that holds or compares it is known."""
    source = model(
        """g (float[batch,4] x) => (int64[2] y, bool[1] z, float[m,4] e) {
            s = Shape(x)
            n = Gather(s, zero)
            twice = Add(n, n)
            y = Concat<axis=0>(twice, s4)
            z = Equal(n, s4)
            ones = ConstantOfShape(n)
            col = Unsqueeze(ones, one)
            e = Add(x, col)
        }""",
        zero=ints(0),
        one=ints(1),
        s4=ints(4),
    )
    assert known(source, {"x": np.ones((3, 4), np.float32)}) == set()


def test_values_that_follow_from_extents_are_known() -> None:
    """A mask that is built from the extents of the image, as window attention has it."""
    source = model(
        """g (float[2,6,8,5] x) => (float[12,16,16] y) {
            s = Shape(x)   hw = Slice(s, one, three)
            zeros = ConstantOfShape(hw)
            count = ReduceProd<keepdims=0>(hw)   ramp = Range(start, count, step)
            grid = Reshape(ramp, hw)
            real = Cast<to=1>(grid)   mixed = Add(zeros, real)
            scaled = Div(mixed, minus)
            mod = Floor(scaled)
            cut = Reshape(mod, split)
            windows = Transpose<perm=[0,2,1,3]>(cut)
            flat = Reshape(windows, tokens)
            a = Unsqueeze(flat, one)   b = Unsqueeze(flat, two)
            c = Sub(a, b)
            mask = Expand(c, whole)
            y = Exp(mask)
        }""",
        one=ints(1),
        two=ints(2),
        three=ints(3),
        start=np.array(0),
        step=np.array(1),
        minus=np.array(-7, np.float32),
        split=ints(3, 2, 2, 4),
        tokens=ints(12, 4),
        whole=ints(12, 4, 4),
    )
    source.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [12, 4, 4]))
    found = known(source, {"x": np.ones((2, 6, 8, 5), np.float32)})
    assert {"mask", "y", "windows", "grid"} <= found


def test_weights_are_not_folded() -> None:
    """A value that follows from constants alone is the model's own, but for shapes and axes."""
    weights = np.arange(300, dtype=np.float32).reshape(20, 15)
    source = model(
        """g (float[20,15] x) => (float[20,15] y) {
            a = Neg(w)
            b = Neg(short)
            n = Size(x)
            y = Add(x, a)
        }""",
        w=weights,
        short=np.arange(3, dtype=np.float32),
    )
    assert known(source, {"x": weights}) == {"b", "n"}


def test_large_values_are_not_computed() -> None:
    source = model(
        """g (float[300,400] x) => (float[300,400] y) {
            s = Shape(x)
            mask = ConstantOfShape(s)
            y = Add(x, mask)
        }"""
    )
    assert known(source, {"x": np.ones((300, 400), np.float32)}) == {"s"}


def test_a_transpose_says_the_rank_of_what_it_reads() -> None:
    source = model(
        "g (float[n] f, int64[k] s) => (float[a,b,c] y) {"
        " x = Reshape(f, s) t = Transpose<perm=[2,0,1]>(x) r = Relu(t) y = Transpose<perm=[1,2,0]>(r) }"
    )
    values = completed(source)
    assert [shape(values[name]) for name in "xtr"] == [[None] * 3] * 3


def test_what_onnx_does_not_know_is_asked_for() -> None:
    source = model("g (float[2,3] x) => (float[3,2] y) { e = some.where.Unknown(x) r = Relu(e) y = Transpose(r) }")
    source.opset_import.append(helper.make_opsetid("some.where", 1))
    found = read(source)
    complete(found, lambda node, _: [(ir.DataType.FLOAT, (2, ""))] if node.domain else [])
    values = {value.name or "": value for node in found.graph for value in node.outputs}
    assert [shape(values[name]) for name in "er"] == [[2, None], [2, None]]


def test_extents_of_a_known_value_reach_what_reads_it() -> None:
    """A class token, expanded to an extent that the graph computes, before the patches: 1 + 6 tokens, and no symbol."""
    source = model(
        """g (float[1,6,4] x) => (float[1,tokens,4] y) {
            s = Shape(x)
            batch = Slice(s, zero, one)
            to = Concat<axis=0>(batch, rest)
            chosen = Where(never, to, to)
            class = Expand(token, chosen)
            joined = Concat<axis=1>(class, x)
            y = Relu(joined)
        }""",
        zero=ints(0),
        one=ints(1),
        rest=ints(1, 4),
        never=np.array([False, True, False]),
        token=np.arange(4, dtype=np.float32).reshape(1, 1, 4),
    )
    found = completed(source)
    assert shape(found["joined"]) == [1, 7, 4]


INTEGERS = """g (uint8[1,4,6,5] x, uint8[1,4,1,1] v, bool[1,4,6,5] c) => (uint8[1,r] y) {
    a = com.microsoft.QLinearAdd(x, s, z, v, s, z, s, z)
    m = com.microsoft.QLinearMul(v, s, z, a, s, z, s, z)
    b = com.microsoft.QLinearConcat<axis=1>(s, z, a, s, z, m, s, z)
    p = com.microsoft.QLinearAveragePool<kernel_shape=[2,2]>(b, s, z, s, z)
    q = com.microsoft.QLinearConv<kernel_shape=[2,2]>(p, s, z, w, s, z, s, z)
    e = com.microsoft.QLinearSigmoid(q, s, z, s, z)
    l = com.microsoft.QLinearLeakyRelu<alpha=0.2>(e, s, z, s, z)
    o = com.microsoft.QLinearSoftmax<axis=1, opset=13>(l, s, z, s, z)
    h = com.microsoft.QLinearWhere(c, x, s, z, a, s, z, s, z)
    n = com.microsoft.QLinearGlobalAveragePool(o, s, z, s, z)
    f = Flatten(n)
    y = com.microsoft.QGemm<transB=1>(f, s, z, k, s, z, , s, z)
}"""


def test_shapes_behind_integers_of_onnx_runtime_are_those_that_it_gives() -> None:
    rng = np.random.default_rng(0)
    constants: dict[str, NDArray[np.generic]] = {"s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)}
    constants["w"], constants["k"] = (rng.integers(0, 9, shape).astype(np.uint8) for shape in ((3, 8, 2, 2), (7, 3)))
    proto = model(INTEGERS, **constants)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = completed(proto)
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in found)
    feed = {
        "x": np.ones((1, 4, 6, 5), np.uint8),
        "v": np.ones((1, 4, 1, 1), np.uint8),
        "c": np.ones((1, 4, 6, 5), bool),
    }
    for name, given in zip(found, run(proto, feed), strict=True):
        assert shape(found[name]) == list(given.shape), name
        assert found[name].dtype == ir.DataType.UINT8, name


def test_what_integers_of_onnx_runtime_give_is_not_known_in_advance() -> None:
    """Only the shapes of such operators are those of the ones that stand for them."""
    text = """g () => (uint8[r] y) { b = com.microsoft.QLinearAdd(a, s, z, a, s, z, s, z) y = Identity(b) }"""
    constants = {"a": np.array([4, 9], np.uint8), "s": np.array(0.1, np.float32), "z": np.array(3, np.uint8)}
    proto = model(text, **constants)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert known(proto, {}) == set()


def test_what_the_shapes_of_a_loops_state_share_is_known_behind_it() -> None:
    """ONNX says nothing of a state's shape, which may change from trip to trip: here its second extent does."""
    found = completed(
        model("""
        g (float[2,4,3] x, int64 trips, bool go) => (float[2,n,3] y) {
            [loop] a = Loop (trips, go, x) <
                body = b (int64 i, bool k, float[2,n,3] s) => (bool k2, float[2,m,3] t) {
                    k2 = Identity(k)
                    t = Concat<axis=1>(s, s)
                }
            >
            y = Relu(a)
        }""")
    )
    assert shape(found["a"]) == [2, None, 3]


def test_a_state_that_a_body_gives_back_has_one_shape() -> None:
    """ONNX assumes nothing of states. Weights and a hidden value keep their shapes in each run; a list grows."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[3,3] w, float[2,3] x, float[1,3] y, int64 trips, bool go) => (float[2,3] last, float[n,3] all) {
            v, last, all = Loop (trips, go, w, x, y) <
                body = b (int64 i, bool k, float[] v, float[] h, float[] list)
                => (bool k2, float[] v2, float[] h2, float[] list2) {
                    k2 = Identity(k)
                    v2 = Identity(v)
                    m = MatMul(h, v)
                    h2 = Tanh(m)
                    list2 = Concat<axis=0>(list, h2)
                }
            >
        }""")
    result = read(proto)
    complete(result, outputs_of)
    (loop,) = result.graph
    body = loop.attributes["body"].as_graph()
    found = {value.name: shape(value) for node in body for value in node.outputs if value.shape is not None}
    assert (found["v2"], found["m"], found["h2"]) == ([3, 3], [2, 3], [2, 3])
    assert [shape(value) for value in body.inputs[2:4]] == [[3, 3], [2, 3]]
    assert found.get("list2") in (None, [None, 3])


@pytest.mark.parametrize(
    ("begins", "goes_on", "slices"),
    [("yes", "Identity(k)", 5), ("", "Identity(k)", 5), ("no", "Identity(k)", None), ("yes", "Not(k)", None)],
)
def test_a_loop_stacks_as_many_slices_as_it_runs(begins: str, goes_on: str, slices: int | None) -> None:
    """As jax2onnx writes `lax.scan`: the count is a constant, and nothing ends it early."""
    found = completed(
        model(
            f"""
        g (float[2,3] x) => (float[2,3] last, float[n,2,3] y) {{
            [loop] last, a = Loop (trips, {begins or '""'}, x) <
                body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t, float[2,3] u) {{
                    k2 = {goes_on}
                    t = Relu(s)
                    u = Neg(s)
                }}
            >
            y = Relu(a)
        }}""",
            trips=np.array(5),
            **({begins: np.array(begins == "yes")} if begins else {}),
        )
    )
    assert shape(found["a"]) == [slices, 2, 3]


def test_a_transpose_says_what_it_reads_by_what_it_gives() -> None:
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "vendor": 1]>
        g (float[2,3,4] x) => (float16[n,5,6] y, float16[5,6,3] z) {
            a = vendor.Op(x)  b = Transpose<perm=[2,0,1]>(a)  y = Transpose<perm=[1,2,0]>(b)
            c = vendor.Op(x)  z = Transpose<perm=[1,2,0]>(c)
        }""")
    found = completed(proto)
    assert {name: found[name].dtype for name in "abc"} == dict.fromkeys("abc", ir.DataType.FLOAT16)
    assert [str(dim) for dim in found["a"].shape or ()] == ["n", "5", "6"]
    assert shape(found["b"]) == [6, None, 5]
    assert shape(found["c"]) == [3, 5, 6]


def test_outputs_behind_an_unknown_operator_keep_their_types() -> None:
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "vendor": 1]>
        g (float[2,3,4] x) => (float[4,2,3] y) {
            a = vendor.Op(x)  b = Transpose<perm=[0,2,1]>(a)  c = Transpose<perm=[0,2,1]>(b)
            y = Transpose<perm=[2,0,1]>(c)
        }""")
    result = relayout.optimize(proto)
    assert (result.report.source_transposes, result.report.transposes) == (3, 1)
    assert result.proto.graph.output[0].type == proto.graph.output[0].type
    onnx.checker.check_model(result.proto, full_check=True)


def test_a_standard_operator_without_shape_inference() -> None:
    proto = model(
        "g (float[2,4,6,5] x, float[4] k) => (float[2,4,6,5] y) {"
        " a = GroupNormalization<num_groups=2>(x, k, k) t = Transpose<perm=[0,2,3,1]>(a) r = Relu(t)"
        " y = Transpose<perm=[0,3,1,2]>(r) }"
    )
    found = completed(proto)["a"]
    assert (found.dtype, shape(found)) == (ir.DataType.FLOAT, [2, 4, 6, 5])
    result = relayout.optimize(proto)
    assert (result.report.source_bytes, result.report.bytes) == (1920, 0)
    onnx.checker.check_model(result.proto, full_check=True)


def test_extents_of_32_bits_stay_so() -> None:
    """Beside an extent that is not known until it runs, as Keras reckons what a dense layer reads."""
    proto = model(
        """
        g (float[B,4,6] x) => (float[B,24] y, float[6,4,B] z) {
            s = Shape(x)
            narrow = Cast<to=6>(s)
            free = Gather(narrow, first)
            rest = Gather(narrow, others)
            one = ReduceProd<keepdims=1>(free)
            other = ReduceProd<keepdims=1>(rest)
            joined = Concat<axis=0>(one, other)
            target = Cast<to=7>(joined)
            t = Transpose<perm=[0,2,1]>(x)
            u = Transpose<perm=[0,2,1]>(t)
            y = Reshape(u, target)
            z = Transpose<perm=[1,2,0]>(t)
        }""",
        first=ints(0),
        others=ints(1, 2),
    )
    found = completed(proto)["other"].const_value
    assert found is not None
    assert (found.dtype, found.numpy().tolist()) == (ir.DataType.INT32, [24])
    result = relayout.optimize(proto).proto
    onnx.checker.check_model(result, full_check=True)
    feed = {"x": np.random.default_rng(0).normal(size=(2, 4, 6)).astype(np.float32)}
    for want, got in zip(run(proto, feed), run(result, feed), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_border_and_a_window_that_takes_it_away_leave_an_extent() -> None:
    """Filters of images repeat the last rows around them, and slide then without pads of their own."""
    proto = model(
        """g (float[2,4,h,w] x) => (float[2,a,b] y) {
            p = Pad<mode="edge">(x, pads)
            c = Conv(p, k)
            s = Conv<strides=[2,2]>(p, k)
            r = Reshape(c, rows)
            t = Transpose<perm=[0,2,1]>(r)
            n = Relu(t)
            u = Transpose<perm=[0,2,1]>(n)
            y = Relu(u)
        }""",
        pads=ints(0, 0, 1, 1, 0, 0, 1, 1),
        rows=ints(2, 4, -1),
        k=np.ones((4, 4, 3, 3), np.float32),
    )
    found = completed(proto)
    assert [str(found[name].shape) for name in "pc"] == ["[2,4,h + 2,w + 2]", "[2,4,h,w]"]
    assert "//" not in str(found["s"].shape), "what divides a quotient is not seen to divide what it is of"
    report = relayout.optimize(proto).report
    assert (report.barriers, report.transposes) == ({}, 0)


def test_extents_that_are_rounded_up_and_pads_of_other_axes_are_not_told() -> None:
    proto = model(
        """g (float[1,h,w] x) => (float[1,a,b] y, float[1,c,d] z) {
            p = Pad(x, pads, , axes)
            q = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x)
            y = Relu(p)
            z = Relu(q)
        }""",
        pads=ints(0, 0, 2, 0, 0, 2),
        axes=ints(0, 2, 1),
    )
    proto.opset_import[0].version = 18
    found = completed(proto)
    shapes = [re.sub("unk__[0-9]+", "?", str(found[name].shape)) for name in "pq"]
    assert shapes == ["[1,?,w]", "[1,h,?]"]


def normalized(layer: int) -> str:
    """A convolution, a sum, a normalization by groups, and ONNX Runtime's QuickGelu, of which ONNX knows nothing."""
    return f"""
        a{layer} = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(q{layer}, w)  b{layer} = Add(a{layer}, t)
        s{layer} = Shape(b{layer})  r{layer} = Reshape(b{layer}, groups)
        i{layer} = InstanceNormalization(r{layer}, g, g)
        z{layer} = Reshape(i{layer}, s{layer})  q{layer + 1} = com.microsoft.QuickGelu<alpha=1.0>(z{layer})"""


def test_an_extent_has_one_name_however_often_it_is_inferred() -> None:
    """Names that one inference made up stayed in products, and where a node's operands were known by others."""
    layers = "".join(map(normalized, range(3)))
    proto = model(
        f"""g (float[b,4,h,w] x, float[b,4] e) => (float[n,4,p,q] y) {{
            t = Unsqueeze(e, axes)  down = Conv<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(x, w)
            q0 = com.microsoft.QuickGelu<alpha=1.0>(down) {layers} y = Conv<kernel_shape=[3,3]>(q3, w) }}""",
        w=np.ones((4, 4, 3, 3), np.float32),
        g=np.ones(2, np.float32),
        groups=ints(0, 2, -1),
        axes=ints(2, 3),
    )
    proto.opset_import.add(domain="com.microsoft", version=1)
    found = completed(proto)
    batch, _, height, width = map(str, found["down"].shape or ())
    assert batch == "b"
    for layer in range(3):
        assert [str(dim) for dim in found[f"q{layer + 1}"].shape or ()] == ["b", "4", height, width]
        assert [str(dim) for dim in found[f"r{layer}"].shape or ()] == ["b", "2", f"2*{height}*{width}"]
    assert not relayout.optimize(proto).report.barriers


def test_no_name_is_made_up_that_a_product_has() -> None:
    """Else two extents have one name, and a Reshape may be taken apart where it cannot be."""
    proto = model(
        """g (float[b,4,h,w] x) => (float[n,4,p,q] y) <float[b,stated] m> {
            m = own.Made(x)  a = Conv<kernel_shape=[3,3], strides=[2,2]>(x, w)  y = Relu(a) }""",
        w=np.ones((4, 4, 3, 3), np.float32),
    )
    proto.opset_import.add(domain="own", version=1)
    proto.graph.value_info[0].type.tensor_type.shape.dim[1].dim_param = "4*unk__0*unk__1"
    found = completed(proto)
    assert str(found["m"].shape) == "[b,4*unk__0*unk__1]"
    assert not {"unk__0", "unk__1"} & set(map(str, found["a"].shape or ()))


LAYERS = 12


def padded_layer(layer: int) -> str:
    """A layer whose pad is what the layer before it gives modulo 3, as an exporter reckons that of an even stride."""
    return f"""
        s{layer} = Shape(x{layer})  e{layer} = Gather(s{layer}, two)  r{layer} = Mod(e{layer}, three)
        p{layer} = Concat<axis=0>(zeros, r{layer})
        x{layer + 1} = Pad(x{layer}, p{layer})"""


def cut_layer(layer: int) -> str:
    """A layer that cuts off what the layer before it gives modulo 3."""
    return f"""
        s{layer} = Shape(x{layer})  e{layer} = Gather(s{layer}, two)  r{layer} = Mod(e{layer}, three)
        x{layer + 1} = Slice(x{layer}, r{layer}, e{layer}, two)"""


def padded(layer_of: Callable[[int], str] = padded_layer) -> onnx.ModelProto:
    layers = "".join(map(layer_of, range(LAYERS)))
    return model(
        f"g (float[2,5,7] x0) => (float[a,b,c] y) {{ {layers} y = Transpose<perm=[0,2,1]>(x{LAYERS}) }}",
        two=ints(2),
        three=ints(3),
        zeros=ints(0, 0, 0, 0, 0),
    )


@pytest.mark.parametrize("layer_of", [padded_layer, cut_layer])
def test_extents_are_known_behind_many_layers_that_reckon_their_own(layer_of: Callable[[int], str]) -> None:
    proto = padded(layer_of)
    (given,) = run(proto, {"x0": np.ones((2, 5, 7), np.float32)})
    found = completed(proto)
    assert shape(found["y"]) == list(given.shape)
    assert relayout.optimize(proto).report.source_bytes == given.nbytes


def test_rounds_are_bounded_where_shapes_of_many_nodes_are_inferred(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[onnx.ModelProto] = []

    def counted(light: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
        calls.append(light)
        return infer_and_judge(light)

    monkeypatch.setattr(inferring_rounds, "INFERRED", 0)
    monkeypatch.setattr(inferring_rounds, "infer_and_judge", counted)
    proto = padded(cut_layer)
    assert shape(completed(proto)["y"])[1] is None
    assert len(calls) <= inferring_rounds.ROUNDS


def grouped_layer(layer: int) -> str:
    """A normalization of groups as exporters write it, and an activation: the shape before is made again behind."""
    return f"""
        s{layer} = Shape(x{layer})  g{layer} = Reshape(x{layer}, groups)
        n{layer} = InstanceNormalization(g{layer}, ones, zeros)  r{layer} = Reshape(n{layer}, s{layer})
        x{layer + 1} = Relu(r{layer})"""


@pytest.mark.parametrize("batch", ["2", "b"])
def test_a_chain_of_shapes_is_gone_through_at_once(batch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before opset 14 shape inference does not see what a Reshape reads: layer after layer is inferred here, and not
    the whole graph again for each.
    """
    calls: list[onnx.ModelProto] = []

    def counted(light: onnx.ModelProto) -> tuple[onnx.ModelProto, bool]:
        calls.append(light)
        return infer_and_judge(light)

    monkeypatch.setattr(inferring_rounds, "infer_and_judge", counted)
    proto = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 13]>
        g (float[{batch},6,5,7] x0) => (float[{batch},5,7,6] y) {{
            {"".join(map(grouped_layer, range(40)))} y = Transpose<perm=[0,2,3,1]>(x40)
        }}"""
    )
    scales = {"groups": ints(0, 2, -1), "ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in scales.items())
    found = completed(proto)
    assert shape(found["x40"]) == [2 if batch == "2" else None, 6, 5, 7]
    assert str(found["x40"].shape) == str(found["r0"].shape)
    assert len(calls) <= 4


@pytest.mark.parametrize("extent", ["Shape<start=1, end=2>(table)", "Identity(nine)"])
def test_an_extent_that_is_a_root_is_known(extent: str) -> None:
    """A table of positions is made square again by `n ** 0.5`."""
    found = completed(
        model(
            f"""
        g (float[1,8,5] y) => (float[1,8,5] z) {{
            a = {extent}
            b = Cast<to=1>(a)
            c = Pow(b, half)
            d = Cast<to=7>(c)
            s = Concat<axis=0>(one, d, d, rest)
            t = Reshape(table, s)
            z = Add(y, y)
        }}""",
            nine=np.array([9]),
            table=np.zeros((1, 9, 5), np.float32),
            half=np.array(0.5, np.float32),
            one=np.array([1]),
            rest=np.array([5]),
        )
    )
    assert shape(found["t"]) == [1, 3, 3, 5]


def test_extents_behind_windows_are_those_before_them_in_bodies_too() -> None:
    """A convolution that keeps height and width, one that does not, and a branch that reads what the first gives."""
    proto = model(
        """g (float[b,2,h,w] x, bool flag) => (float[b,p,q,r] y, float[b,k,l,m] z) {
            c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, kernel)
            z = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,1]>(x, kernel)
            strided = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,1]>(c, kernel)
            halved = Neg(strided)
            valid = Conv<kernel_shape=[3,3], pads=[0,0,1,1]>(c, kernel)
            same = MaxPool<kernel_shape=[2,2], auto_pad="SAME_UPPER">(valid)
            y = If (flag) <
                then_branch = g1 () => (one) { r = Relu(c) one = Add(r, c) },
                else_branch = g2 () => (other) { other = Neg(c) }
            >
        }""",
        kernel=np.ones((2, 2, 3, 3), np.float32),
    )
    found = read(proto)
    complete(found, outputs_of)
    shapes = {value.name: list(map(str, value.shape or ())) for n in found.graph.all_nodes() for value in n.outputs}
    for name in ("c", "r", "one", "other"):
        assert shapes[name] == ["b", "2", "h", "w"], name
    assert shapes["z"] == ["b", "2", "l", "m"]  # an output's own names stay
    assert shapes["halved"][2] != "h"
    assert shapes["halved"][3] == "w"
    assert shapes["valid"][2] != "h"
    assert shapes["valid"][3] != "w"
    assert shapes["same"] == shapes["valid"]


@pytest.mark.parametrize("operator", ["Add(t, v)", "Where(mask, t, v)", "Max(half, t, v)"])
def test_extents_of_operands_that_broadcast_are_the_results(operator: str) -> None:
    """Shape inference gives two names that it made up a third: what a skip connection adds is as wide as both."""
    source = model(
        f"""
        g (float[b,8,h,w] x) => (float[n,c,p,q] y) {{
            c = Conv<kernel_shape=[3,3], strides=[2,2]>(x, k)
            d = Conv<kernel_shape=[1,1]>(c, one)
            f = Reshape(c, flat)   t = Transpose<perm=[0,2,1]>(f)
            g = Reshape(d, flat)   v = Transpose<perm=[0,2,1]>(g)
            mask = Greater(t, half)
            a = {operator}
            u = Transpose<perm=[0,2,1]>(a)
            s = Shape(c)
            r = Reshape(u, s)
            y = Relu(r)
        }}""",
        k=np.zeros((8, 8, 3, 3), np.float32),
        one=np.zeros((8, 8, 1, 1), np.float32),
        flat=ints(0, 8, -1),
        half=np.full(8, 0.5, np.float32),
    )
    found = completed(source)
    assert str(found["a"].shape) == str(found["t"].shape)
    assert str(found["r"].shape) == str(found["c"].shape)


def test_an_extent_that_is_scaled_by_a_reciprocal_is_known() -> None:
    """Detectors bring the shorter side of an image, here a constant already, to a length by `length / side`."""
    found = completed(
        model(
            """
        g (float[1,8,5] y) => (float[1,h,w] z) {
            a = Cast<to=1>(side)
            b = Reciprocal(a)
            c = Mul(b, length)
            d = Floor(c)
            e = Cast<to=7>(d)
            s = Concat<axis=0>(one, e, rest)
            t = Reshape(y, s)
            z = Relu(t)
        }""",
            side=ints(8),
            length=np.array([16], np.float32),
            one=ints(1),
            rest=ints(-1),
        )
    )
    assert str(found["t"].shape) == "[1,2,20]"


BRANCHES = "then_branch = t () => (float[2,3] u) { u = Relu(a) }, else_branch = e () => (float[2,3] v) { v = Neg(a) }"


@pytest.mark.parametrize(
    ("behind", "once"),
    [
        ("y = Relu(a)", True),
        ("e = Identity(k) b = Mul(a, e) y = Relu(b)", False),
        ("s = Shape(a) y = Reshape(a, s)", False),
        ("b = GroupNormalization<num_groups=3>(a, k, k) y = Relu(b)", False),  # which ONNX does not infer
        (f"y = If(c) <{BRANCHES}>", False),
    ],
)
def test_what_is_known_at_once_is_inferred_once(behind: str, once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, plain = [], onnx.shape_inference.infer_shapes
    proto = model(f"g (float[2,3] x, bool c) => (float[2,3] y) {{ a = Neg(x) {behind} }}", k=np.ones(3, np.float32))
    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", lambda *a, **k: asked.append(1) or plain(*a, **k))
    values = completed(proto)
    assert all(shape(value) in ([2, 3], [3], [2]) for value in values.values())
    assert (len(asked) == 1) == once


def of_dims(value: ir.Value) -> list[str]:
    return [] if value.shape is None else [str(dim) for dim in value.shape]


POSITIONS = """g (float[batch,length,8] x) => (float[a,b,c] y, float[d,e] z) {
    s = Shape<start=1, end=2>(x)
    p = Slice(places, zero, s, one)
    z = Cast<to=1>(p)
    t = Gather(table, p)
    v = Add(x, t)
    n = Squeeze(s)
    r = Range(first, n, step)
    f = Cast<to=1>(r)
    u = Unsqueeze(f, one)
    w = Mul(v, u)
    y = Neg(w)
}"""
TABLES = {"places": np.arange(6)[None], "table": floats(6, 8), "zero": ints(0), "one": ints(1), "two": ints(2)}


def test_positions_up_to_a_length_that_are_added_have_that_length() -> None:
    """Of fewer positions than the length, the source fails where it adds them; alone they are as many as there are."""
    values = completed(model(POSITIONS, **TABLES, first=np.array(0), step=np.array(1)))
    assert of_dims(values["v"]) == of_dims(values["w"]) == ["batch", "length", "8"]
    assert of_dims(values["r"]) == ["length"]
    assert of_dims(values["z"])[1] != "length", "it has 6 where the length is more"


@pytest.mark.parametrize("slicing", ["Slice(places, one, s, one)", "Slice(places, zero, s, one, two)"])
def test_other_positions_say_nothing_of_what_they_are_added_to(slicing: str) -> None:
    text = POSITIONS.replace("Slice(places, zero, s, one)", slicing)
    values = completed(model(text, **TABLES, first=np.array(0), step=np.array(1)))
    assert of_dims(values["v"])[1] != "length"


@pytest.mark.parametrize("opset", [11, 13, 14, 21])
def test_a_body_that_reshapes_by_a_constant_around_it_tells_its_shape(opset: int) -> None:
    """Up to opset 13 ONNX's inference looks for the constant in the body alone."""
    proto = parser.parse_model(f"""<ir_version: 7, opset_import: ["" : {opset}]>
        chosen (float[2,6] x, bool c) => (float[3,4] y) <int64[2] s = {{3, 4}}> {{
            y = If (c) <
                then_branch = one () => (float[3,4] a) {{ r = Reshape(x, s)  a = Relu(r) }},
                else_branch = two () => (float[3,4] b) {{ q = Reshape(x, s)  b = Neg(q) }}> }}""")
    result = relayout.convert(proto, format="tflite")
    x = np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32)
    for condition in (True, False):
        feed = {"x": x, "c": np.array(condition)}
        found = Interpreter(model_content=result.tflite).get_signature_runner()(**feed)
        np.testing.assert_allclose(found["y"], run(proto, feed)[0], atol=1e-6)
