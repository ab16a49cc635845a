"""Dynamic extents that Reshapes divide: windows, heads and blocks of images whose height and width are open."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import relayout
from relayout.formats.onnx.completing import complete
from relayout.formats.onnx.reading import read
from relayout.infer.build import build
from running import run, same_values
from text_form import floats, model

FOUR, EIGHT, TWO = (np.array([n], np.int64) for n in (4, 8, 2))
EXTENTS = """
    n = Shape<start=0, end=1>(x)
    high = Shape<start=2, end=3>(x)
    wide = Shape<start=3, end=4>(x)
    rows = Div(high, four)
    columns = Div(wide, four)
"""


def windows(inner: str, rank: int = 3) -> onnx.ModelProto:
    """A convolution, windows of 4 by 4 of what it gives with channels last, an operator on them, and all of it back."""
    return model(
        f"""g (float[b,8,h,w] x) => (float[b,8,h,w] y) {{
            {EXTENTS}
            c = Conv<kernel_shape=[1,1]>(x, k)
            t = Transpose<perm=[0,2,3,1]>(c)
            parts = Concat<axis=0>(n, rows, four, columns, four, eight)
            v = Reshape(t, parts)
            p = Transpose<perm=[0,1,3,2,4,5]>(v)
            tokens = Reshape(p, apart)
            {inner}
            back = Concat<axis=0>(n, rows, columns, four, four, eight)
            u = Reshape(r, back)
            q = Transpose<perm=[0,1,3,2,4,5]>(u)
            whole = Concat<axis=0>(n, high, wide, eight)
            z = Reshape(q, whole)
            y = Transpose<perm=[0,3,1,2]>(z)
        }}""",
        four=FOUR,
        eight=EIGHT,
        k=floats(8, 8, 1, 1),
        scale=floats(8, seed=2),
        apart=np.array([-1, 16, 8], np.int64),
    )


def check(source: onnx.ModelProto, sizes: list[tuple[int, ...]], most: int) -> onnx.ModelProto:
    """The result has at most so many Transposes, and at each size the source's values with no more bytes moved."""
    result = relayout.optimize(source)
    assert result.report.proved
    assert result.report.transposes <= most
    same_values(source, result.proto, sizes)
    return result.proto


SIZES = [(2, 8, 8, 12), (1, 8, 4, 4), (3, 8, 16, 8)]


def test_windows_of_an_open_image_vanish() -> None:
    assert [n.op_type for n in check(windows("r = Relu(tokens)"), SIZES, 0).graph.node] == ["Conv", "Relu"]


def test_windows_that_are_normalized_move_twice() -> None:
    """The extents that Reshapes need are reckoned from those that values have: a quotient is a Div."""
    check(windows("r = LayerNormalization<axis=-1>(tokens, scale)"), SIZES, 2)
    check(
        windows("t2 = Transpose<perm=[0,2,1]>(tokens) s = Softmax<axis=-1>(t2) r = Transpose<perm=[0,2,1]>(s)"),
        SIZES,
        4,
    )


@pytest.mark.parametrize("bounds", ["", "<start=1>", "<end=1>", "<start=2, end=2>"])
def test_extents_of_windows_are_products_of_those_that_are_stored(bounds: str) -> None:
    """What only asks for extents wants no order: none of the axes of a window need lie in one dimension."""
    source = windows(f"r = Relu(tokens) sizes = Shape{bounds}(r)")
    source.graph.output.append(helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [None]))
    result = check(source, SIZES, 0)
    assert "sizes" in {name for node in result.graph.node for name in node.output}


def test_a_sequence_has_no_extents() -> None:
    """A file says of a sequence what its elements are like: extents are not reckoned from that."""
    source = windows("r = LayerNormalization<axis=-1>(tokens, scale)")
    for node in source.graph.node:
        node.input[:] = ["one" if name == "x" else name for name in node.input]
    source.graph.node.insert(0, helper.make_node("SequenceConstruct", ["x"], ["all"]))
    source.graph.node.insert(1, helper.make_node("SequenceAt", ["all", "first"], ["one"]))
    source.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "first"))
    tensor = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["b", 8, "u", "v"])
    del source.graph.value_info[:]
    source.graph.value_info.append(helper.make_value_info("all", helper.make_sequence_type_proto(tensor)))
    source.graph.value_info.append(helper.make_value_info("one", tensor))
    check(source, SIZES, 2)


def test_extents_in_the_source_keep_their_names() -> None:
    result = relayout.optimize(windows("r = Relu(tokens)"))
    shapes = {
        v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in result.proto.graph.value_info
    }
    assert ["b", 8, "h", "w"] in shapes.values()
    (out,) = result.proto.graph.output
    assert [d.dim_param or d.dim_value for d in out.type.tensor_type.shape.dim] == ["b", 8, "h", "w"]


def test_two_divisors_have_a_common_one() -> None:
    source = model(
        """g (float[b,h,6] x) => (float[b,h,6] y) {
            n = Shape<start=0, end=1>(x)
            high = Shape<start=1, end=2>(x)
            quarter = Div(high, four)
            sixth = Div(high, six)
            by_four = Concat<axis=0>(n, quarter, four, six)
            by_six = Concat<axis=0>(n, sixth, six, six)
            t = Transpose<perm=[0,2,1]>(x)
            r = Relu(t)
            u = Transpose<perm=[0,2,1]>(r)
            a = Reshape(u, by_four)
            b = Transpose<perm=[0,2,1,3]>(a)
            c = Sigmoid(b)
            d = Transpose<perm=[0,2,1,3]>(c)
            whole = Concat<axis=0>(n, high, six)
            e = Reshape(d, whole)
            f = Reshape(e, by_six)
            i = Transpose<perm=[0,3,2,1]>(f)
            j = Tanh(i)
            k = Transpose<perm=[0,3,2,1]>(j)
            y = Reshape(k, whole)
        }""",
        four=FOUR,
        six=np.array([6], np.int64),
    )
    check(source, [(2, 12, 6), (1, 24, 6)], 0)


@pytest.mark.parametrize("exact", [False, True])
def test_what_is_left_over_is_a_quotient(exact: bool) -> None:
    """Blocks as PyTorch splits them, by a shape with -1: the source runs only where nothing is left over."""
    whole = "whole = Concat<axis=0>(n, high, wide, eight)" if exact else ""
    source = model(
        f"""g (float[b,8,h,w] x) => (float[b,h,w,8] y) {{
            {EXTENTS}
            parts = Concat<axis=0>(n, eight, minus, two, wide)
            v = Reshape(x, parts)
            p = Transpose<perm=[0,2,3,4,1]>(v)
            r = Relu(p)
            {whole or "whole = Concat<axis=0>(n, minus, wide, eight)"}
            y = Reshape(r, whole)
        }}""",
        four=FOUR,
        eight=EIGHT,
        two=TWO,
        minus=np.array([-1], np.int64),
    )
    check(source, [(2, 8, 4, 3), (1, 8, 6, 5)], 1)


def test_squeezed_axes_keep_the_extents_of_the_others() -> None:
    source = model(
        """g (float[b,8,1,w] x) => (float[p,q,r] y) {
            t = Transpose<perm=[0,3,2,1]>(x)
            a = Relu(t)
            s = Squeeze(a, axes)
            e = Unsqueeze(s, axes)
            u = Transpose<perm=[0,3,2,1]>(e)
            y = Squeeze(u, axes)
        }""",
        axes=np.array([2], np.int64),
    )
    assert [n.op_type for n in check(source, [(2, 8, 1, 5)], 0).graph.node] == ["Relu", "Squeeze"]


def test_squeezed_axes_do_so_where_the_file_calls_them_otherwise() -> None:
    source = model(
        """g (float[b,8,1,w] x) => (float[b,8,1,w] y) <float[o,w,8] s, float[p,q,1,8] e> {
            a = Transpose<perm=[0,3,2,1]>(x)
            s = Squeeze(a, axes)
            e = Unsqueeze(s, axes)
            r = Relu(e)
            y = Transpose<perm=[0,3,2,1]>(r)
        }""",
        axes=np.array([2], np.int64),
    )
    check(source, [(2, 8, 1, 5)], 0)


def test_an_extent_of_the_interface_keeps_its_name_where_it_is_a_product() -> None:
    source = model(
        """g (float[b,h,w,4] x, float[b,n,4] k) => (float[b,n,4] y)
        <float[b,n,4] r, float[b,n,4] a, float[b,4,n] t, float[b,4,n] v> {
            r = Reshape(x, rows)
            a = Add(r, k)
            t = Transpose<perm=[0,2,1]>(a)
            v = Relu(t)
            u = Transpose<perm=[0,2,1]>(v)
            y = Sigmoid(u)
        }""",
        rows=np.array([0, -1, 4], np.int64),
    )
    result = relayout.optimize(source).proto
    assert [node.op_type for node in result.graph.node] == ["Reshape", "Add", "Relu", "Sigmoid"]
    for value in result.graph.value_info:
        assert [dim.dim_param for dim in value.type.tensor_type.shape.dim][1] == "n", value.name


BRANCH = """
g (float[b,h,6] x, bool flag) => (float[b,h,6] y) {
    t = Transpose<perm=[0,2,1]>(x)
    r = Relu(t)
    u = Transpose<perm=[0,2,1]>(r)
    y = If (flag) <
        then_branch = g1 () => (float[b,h,6] one) {
            n = Shape<start=0, end=1>(u)
            high = Shape<start=1, end=2>(u)
            half = Div(high, two)
            parts = Concat<axis=0>(n, half, two, six)
            a = Reshape(u, parts)
            c = Transpose<perm=[0,2,1,3]>(a)
            d = Sigmoid(c)
            e = Transpose<perm=[0,2,1,3]>(d)
            whole = Concat<axis=0>(n, high, six)
            one = Reshape(e, whole)
        },
        else_branch = g2 () => (float[b,h,6] other) { other = Neg(u) }
    >
}"""


def test_a_branch_that_is_not_taken_tells_nothing() -> None:
    source = model(BRANCH, two=TWO, six=np.array([6], np.int64))
    branch = source.graph.node[-1].attribute[0].g
    branch.value_info.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["b", "(h//2)", 2, 6]))
    graph = read(source)
    complete(graph)
    assert not build(graph).named
    result = relayout.optimize(source)
    for size, flag in (((2, 5, 6), False), ((2, 4, 6), True)):
        feed = {"x": floats(*size), "flag": np.array(flag)}
        np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5)


def test_fixed_extents_are_fixed_in_quotients() -> None:
    source = windows("r = LayerNormalization<axis=-1>(tokens, scale)")
    result = relayout.optimize(source, dims={"h": 8, "w": 12})
    assert (result.report.transposes, result.report.bytes) == (2, 2 * 8 * 8 * 12 * 4)
    feed = {"x": floats(2, 8, 8, 12)}
    np.testing.assert_allclose(run(result.proto, feed)[0], run(source, feed)[0], rtol=1e-5, atol=1e-5)


class Drawn:
    """A random graph on `x[b,h,w,8]` in some order: axes are split and merged, moved, and run through operators."""

    def __init__(self, seed: int) -> None:
        self.random, self.nodes, self.constants = np.random.default_rng(seed), list[onnx.NodeProto](), set[int]()
        named = [("b", 1), ("h", 12), ("w", 12), (8, 8)]
        drawn = [named[place] for place in self.random.permutation(4)]
        self.dims = [dim for dim, _ in drawn]
        # Of each axis where its extent is computed, and what divides it.
        self.axes = [
            (self.emit("Shape", "x", start=axis, end=axis + 1), known) for axis, (_, known) in enumerate(drawn)
        ]
        self.value = "x"
        for _ in range(self.random.integers(4, 11)):
            (self.split, self.merge, self.move, self.move, self.run)[self.random.integers(5)]()
        self.emit("Identity", self.value)

    def emit(self, op_type: str, *inputs: str, **attributes: object) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], **attributes))
        return output

    def number(self, value: int) -> str:
        self.constants.add(value)
        return f"c{value}"

    def split(self) -> None:
        fitting = [(axis, by) for axis, (_, known) in enumerate(self.axes) for by in (2, 3, 4) if known % by == 0]
        if fitting and len(self.axes) < 6:
            axis, by = fitting[self.random.integers(len(fitting))]
            extent, known = self.axes[axis]
            parts = [(self.emit("Div", extent, self.number(by)), known // by), (self.number(by), by)]
            self.axes[axis : axis + 1] = parts[:: self.random.choice([1, -1])]
            self.reshape()

    def merge(self) -> None:
        if len(self.axes) > 2:
            axis = self.random.integers(len(self.axes) - 1)
            (one, known), (other, by) = self.axes[axis : axis + 2]
            self.axes[axis : axis + 2] = [(self.emit("Mul", one, other), known * by)]
            self.reshape()

    def reshape(self) -> None:
        shape = [extent for extent, _ in self.axes]
        if self.random.random() < 0.4:
            shape[self.random.integers(len(shape))] = self.number(-1)
        self.value = self.emit("Reshape", self.value, self.emit("Concat", *shape, axis=0))

    def move(self) -> None:
        perm = self.random.permutation(len(self.axes)).tolist()
        self.axes = [self.axes[axis] for axis in perm]
        self.value = self.emit("Transpose", self.value, perm=perm)

    def run(self) -> None:
        op_type = str(self.random.choice(["Relu", "Sigmoid", "Tanh", "Softmax"]))
        axis = {"axis": int(self.random.integers(len(self.axes)))} if op_type == "Softmax" else {}
        self.value = self.emit(op_type, self.value, **axis)

    @property
    def proto(self) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.dims)
        dims = [f"o{axis}" for axis in range(len(self.axes))]
        y = helper.make_tensor_value_info(self.nodes[-1].output[0], onnx.TensorProto.FLOAT, dims)
        held = [numpy_helper.from_array(np.array([value], np.int64), f"c{value}") for value in sorted(self.constants)]
        graph = helper.make_graph(self.nodes, "drawn", [x], [y], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("seed", range(40))
def test_random_regroupings_of_dynamic_extents(seed: int) -> None:
    drawn = Drawn(seed)
    sizes = ({"b": 2, "h": 12, "w": 24}, {"b": 1, "h": 24, "w": 12})
    most = sum(node.op_type == "Transpose" for node in drawn.nodes)
    check(drawn.proto, [tuple(size.get(str(dim), 8) for dim in drawn.dims) for size in sizes], most)


def test_a_sum_is_a_symbol_of_a_product() -> None:
    """As exporters name what a convolution with strides gives: groups of its channels are still pieces of them."""
    source = model(
        """g (float[b,8,h,w] x) => (float[b,p,q,8] y) {
            c = Conv<kernel_shape=[3,3], strides=[2,2]>(x, k)
            t = Transpose<perm=[0,2,3,1]>(c)
            m = MatMul(t, a)
            u = Transpose<perm=[0,3,1,2]>(m)
            groups = Reshape(u, apart)
            scaled = Mul(groups, each)
            size = Shape(c)
            whole = Reshape(scaled, size)
            z = Transpose<perm=[0,2,3,1]>(whole)
            y = MatMul(z, a)
        }""",
        k=floats(8, 8, 3, 3),
        a=floats(8, 8, seed=2),
        each=floats(1, 2, 1, seed=3),
        apart=np.array([0, 2, -1], np.int64),
    )
    high, wide = "(((h - 3)//2)) + 1", "(((w - 3)//2)) + 1"
    first, last = ["b", 8, high, wide], ["b", high, wide, 8]
    for name, dims in {"c": first, "t": last, "m": last, "u": first}.items():
        source.graph.value_info.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims))
    check(source, SIZES[:1], 1)


def test_what_is_known_of_an_extent_is_known_of_its_products() -> None:
    """A table of 5 rows is added: there are as many, also where they lie in one dimension with others."""
    source = model(
        """g (float[n,w,8] x) => (float[p,q,8] y) {
            a = Add(x, table)
            rows = Shape<start=0, end=1>(x)
            columns = Shape<start=1, end=2>(x)
            apart = Concat<axis=0>(rows, minus, four)
            h = Reshape(a, apart)
            ht = Transpose<perm=[1,0,2]>(h)
            s = Softmax<axis=-1>(ht)
            hb = Transpose<perm=[1,0,2]>(s)
            flat = Reshape(hb, pairs)
            m = MatMul(flat, k)
            back = Concat<axis=0>(rows, columns, eight)
            v = Reshape(m, back)
            y = Transpose<perm=[1,0,2]>(v)
        }""",
        table=floats(5, 1, 8),
        k=floats(8, 8, seed=2),
        minus=np.array([-1], np.int64),
        four=FOUR,
        eight=EIGHT,
        pairs=np.array([-1, 8], np.int64),
    )
    stated = {"a": [5, "w", 8], "h": ["n", "2*w", 4], "flat": ["n*w", 8], "m": ["n*w", 8], "v": ["n", "w", 8]}
    del source.graph.value_info[:]
    source.graph.value_info.extend(
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name, dims in stated.items()
    )
    assert relayout.optimize(source).report.barriers == {}
    check(source, [(5, 6, 8), (5, 1, 8)], 1)
