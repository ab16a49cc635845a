"""Graphs as text, before and after; and the odd things that occur in real models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper, parser, shape_inference

import relayout
from running import converted, operators, run
from text_form import HEADER, floats, model


def same(source: onnx.ModelProto, **options: object) -> onnx.ModelProto:
    return converted(source, **options).proto


def test_transposes_around_an_elementwise_operator_vanish() -> None:
    source = model("""
        g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = Transpose<perm=[0,2,3,1]>(x)
            b = Relu(a)
            y = Transpose<perm=[0,3,1,2]>(b)
        }""")
    assert operators(same(source)) == ["Relu"]


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize(("pool", "reduction"), [("GlobalAveragePool", "ReduceMean"), ("GlobalMaxPool", "ReduceMax")])
def test_a_pool_over_the_whole_image_is_a_reduction_in_any_order(pool: str, reduction: str, opset: int) -> None:
    """Global response normalization between dense layers: all of it channels last, and nothing is transposed."""
    source = model(
        f"""g (float[2,3,4,5] x) => (float[2,3,4,7] y) {{
            a = Transpose<perm=[0,3,1,2]>(x)
            m = {pool}(a)
            b = Transpose<perm=[0,2,3,1]>(m)
            c = Mul(x, b)
            y = MatMul(c, w)
        }}""",
        w=floats(5, 7),
    )
    first = model(f"g (float[2,5,3,4] x) => (float[2,5,1,1] y) {{ y = {pool}(x) }}")
    source.opset_import[0].version = first.opset_import[0].version = opset
    assert sorted(operators(same(source))) == sorted([reduction, "Mul", "MatMul"])
    assert operators(same(first)) == [pool]


def test_a_table_of_results_takes_any_order() -> None:
    """As which functions of 16-bit integers are written: the indices are the operand, each by itself."""
    source = model(
        """g (int32[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = Transpose<perm=[0,2,3,1]>(x)
            b = Gather(table, a)
            y = Transpose<perm=[0,3,1,2]>(b)
        }""",
        table=floats(7),
    )
    result = relayout.optimize(source)
    assert [node.op_type for node in result.proto.graph.node] == ["Gather"]
    x = np.random.default_rng(0).integers(-7, 7, (2, 3, 4, 5)).astype(np.int32)
    np.testing.assert_array_equal(run(result.proto, {"x": x})[0], run(source, {"x": x})[0])


def test_an_einsum_that_only_permutes_is_a_transpose() -> None:
    source = model("""
        g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = Einsum<equation="nchw->nhwc">(x)
            b = Relu(a)
            y = Transpose<perm=[0,3,1,2]>(b)
        }""")
    assert operators(same(source)) == ["Relu"]


def test_an_einsum_keeps_the_order_in_which_it_is_a_product_of_matrices() -> None:
    # In `bhlk,bthk->bhlt` the runtime would transpose inside: bytes hidden, not saved.
    source = model("""
        g (float[2,5,3,4] q, float[2,6,3,4] k) => (float[2,3,5,6] y) {
            a = Transpose<perm=[0,2,1,3]>(q)
            b = Transpose<perm=[0,2,1,3]>(k)
            y = Einsum<equation="bhlk,bhtk->bhlt">(a, b)
        }""")
    result = same(source)
    (product,) = (node for node in result.graph.node if node.op_type == "Einsum")
    left, right = product.attribute[0].s.decode().partition("->")[0].split(",")
    assert left[:2] == right[:2]
    assert operators(result).count("Transpose") == 2


def test_a_shuffle_between_a_split_and_a_concat_goes_into_the_kernels() -> None:
    """ShuffleNet's unit: what is cut and joined at multiples of a run leaves the runs free."""
    source = model(
        """g (float[1,8,5,6] x) => (float[1,8,5,6] y) {
            a, b = Split<axis=1, num_outputs=2>(x)
            c = Conv(b, w)
            d = Concat<axis=1>(a, c)
            e = Reshape(d, apart)
            f = Transpose<perm=[0,2,1,3,4]>(e)
            h = Reshape(f, together)
            i = Conv(h, v)
            j, k = Split<axis=1, num_outputs=2>(i)
            y = Concat<axis=1>(k, j)
        }""",
        w=floats(4, 4, 1, 1),
        v=floats(8, 8, 1, 1, seed=1),
        apart=np.array([1, 2, 4, 5, 6]),
        together=np.array([1, 8, 5, 6]),
    )
    assert "Transpose" not in operators(same(source))


def test_slices_and_pads_in_runs_follow_an_axis_that_lies_in_two_dimensions() -> None:
    """Cuts at multiples of 4 of a channel axis that is stored in tiles of 4."""
    source = model(
        """g (float[1,8,5,6] x) => (float[1,12,5,6] y) {
            a = Reshape(x, apart)
            b = Transpose<perm=[0,1,3,4,2]>(a)
            c = Relu(b)
            d = Transpose<perm=[0,1,4,2,3]>(c)
            e = Reshape(d, together)
            f = Slice(e, starts, ends, axes)
            h = Pad(f, pads)
            i = Reshape(h, wider)
            j = Transpose<perm=[0,1,3,4,2]>(i)
            k = Sigmoid(j)
            l = Transpose<perm=[0,1,4,2,3]>(k)
            y = Reshape(l, shape)
        }""",
        apart=np.array([1, 2, 4, 5, 6]),
        together=np.array([1, 8, 5, 6]),
        starts=np.array([4]),
        ends=np.array([2**62]),
        axes=np.array([1]),
        pads=np.array([0, 8, 0, 0, 0, 0, 0, 0]),
        wider=np.array([1, 3, 4, 5, 6]),
        shape=np.array([1, 12, 5, 6]),
    )
    assert "Transpose" not in operators(same(source))
    stored = relayout.convert(source, layouts={"c": ("NCHWI", "NCHWI"), "k": ("NCHWI", "NCHWI")}).proto
    assert operators(stored).count("Transpose") == 2, "one into tiles, one out of them: Slice and Pad are crossed"
    feed = {"x": floats(1, 8, 5, 6, seed=2)}
    np.testing.assert_allclose(run(stored, feed)[0], run(source, feed)[0])


def test_an_operator_that_counts_no_axes_takes_the_dimensions_of_its_operand() -> None:
    """In blocked form all the way: no Reshape between a convolution, a Relu and the next convolution."""
    source = model(
        "g (float[1,16,6,5] x) => (float[1,16,6,5] y) { a = Conv(x, w) b = Relu(a) c = Conv(b, v) y = Add(c, a) }",
        w=floats(16, 16, 1, 1),
        v=floats(16, 16, 1, 1, seed=1),
    )
    result = relayout.convert(source, to="NCHW16c", io="convert").proto
    assert operators(result) == ["Reshape", "Conv", "Relu", "Conv", "Add", "Reshape"]


def test_what_follows_takes_the_dimensions_too_that_are_not_its_own() -> None:
    """Rows stay one dimension through a chain of operators that had them apart: their values had no such dimension."""
    source = model(
        """g (float[2,12,8] x) => (float[2,12,8] y) {
            s = Transpose<perm=[0,2,1]>(x)
            t = Transpose<perm=[0,2,1]>(s)
            m = MatMul(t, w)
            r = Reshape(m, apart)
            a = Relu(r)
            b = Sigmoid(a)
            d = Tanh(b)
            c = Reshape(d, together)
            y = MatMul(c, w)
        }""",
        w=floats(8, 8),
        apart=np.array([2, 3, 4, 8]),
        together=np.array([2, 12, 8]),
    )
    assert operators(same(source)) == ["MatMul", "Relu", "Sigmoid", "Tanh", "MatMul"]


def test_an_operand_that_holds_a_part_of_a_dimension_keeps_dimensions_of_its_own() -> None:
    """The Relu stores c and h as one dimension; a bias of c alone cannot be stretched over that."""
    source = model(
        """g (float[2,3,4,5] x) => (float[2,3,4,5] y) {
            a = Reshape(x, together)
            b = Softmax<axis=1>(a)
            c = Reshape(b, apart)
            d = Add(c, bias)
            y = Tanh(d)
        }""",
        together=np.array([2, 12, 5]),
        apart=np.array([2, 3, 4, 5]),
        bias=floats(3, 1, 1),
    )
    same(source, io="convert")
    same(source)
    turned = relayout.convert(source, layouts={"x": ("NCHW", "NCHW"), "d": ("NCHW", "NHWC")}).proto
    feed = {"x": floats(2, 3, 4, 5, seed=4)}
    np.testing.assert_allclose(run(turned, feed)[0], run(source, feed)[0], rtol=1e-5)


def test_a_view_of_the_source_is_kept_where_it_fits() -> None:
    source = model(
        """g (float[2,3,4,5] x, float[2,60] z) => (float[2,60] y) {
            a = Transpose<perm=[0,2,3,1]>(x)
            b = Relu(a)
            c = Transpose<perm=[0,3,1,2]>(b)
            d = Flatten(c)
            y = Add(d, z)
        }""",
    )
    assert operators(same(source)) == ["Relu", "Flatten", "Add"]


@pytest.mark.parametrize(("flag", "shape"), [(1, (5, 60)), (0, (60, 5))])
def test_weights_whose_columns_move_keep_their_transposition(flag: int, shape: tuple[int, int]) -> None:
    """Both ways cost nothing, as they are constants. In one, ONNX Runtime 1.32 rounds what meets 8-bit weights."""
    source = model(
        f"""g (float[2,3,4,5] x) => (float[2,5] y) {{
            a = AveragePool<kernel_shape=[1,1]>(x)
            b = Transpose<perm=[0,2,3,1]>(a)
            c = QuantizeLinear(b, s)
            d = Flatten(c)
            e = DequantizeLinear(d, s)
            f = DequantizeLinear<axis={1 - flag}>(w, each)
            y = Gemm<transB={flag}>(e, f)
        }}""",
        w=np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8),
        s=np.float32(0.01),
        each=np.full(5, 0.01, np.float32),
    )
    result = same(source)
    assert "Transpose" not in operators(result)
    assert [a.i for a in result.graph.node[-1].attribute if a.name == "transB"] == [flag]


def test_a_bias_stays_beside_its_product() -> None:
    """Of plans with equal bytes, the one that leaves a Transpose where the source has it: MatMul and Add are fused."""
    source = model(
        """g (float[2,6,8,5] x) => (float[8,3,12,7] y) {
            a = Reshape(x, s1)
            b = Transpose<perm=[0,1,3,2,4,5]>(a)
            c = Reshape(b, s2)
            m = MatMul(c, w)
            d = Add(m, bias)
            e = Reshape(d, s3)
            f = Transpose<perm=[0,2,1,3]>(e)
            y = Relu(f)
        }""",
        s1=np.array([2, 2, 3, 2, 4, 5]),
        s2=np.array([8, 12, 5]),
        s3=np.array([8, 12, 3, 7]),
        w=floats(5, 21),
        bias=floats(21),
    )
    names = operators(same(source))
    assert names[names.index("MatMul") + 1] == "Add"


def test_of_equal_plans_one_that_moves_runs_is_taken() -> None:
    """Either way two Transposes; where the source has them, both move the innermost axis."""
    source = model("""
        g (float[4,3,16] x) => (float[16,4,3] y, float[3,4,16] z) {
            w = Transpose<perm=[1,0,2]>(x)
            v = Relu(w)
            u = Transpose<perm=[1,0,2]>(v)
            a = Transpose<perm=[2,0,1]>(u)
            y = Sigmoid(a)
            z = Transpose<perm=[2,1,0]>(y)
        }""")
    perms = [list(node.attribute[0].ints) for node in same(source).graph.node if node.op_type == "Transpose"]
    assert sorted(perm[-1] == len(perm) - 1 for perm in perms) == [False, True]


@pytest.mark.parametrize(("channels", "first"), [(3, "Transpose"), (32, "Sub")])
def test_of_equal_plans_one_that_stretches_in_long_runs_is_taken(channels: int, first: str) -> None:
    """One Transpose before the Sub or behind it: of three channels it takes three elements at a time where they lie
    last; of many the source's place is as good.
    """
    source = model(
        """g (float[2,8,9,C] x) => (float[2,C,8,9] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Transpose<perm=[0,2,3,1]>(a)
            d = Sub(b, mean)
            c = Transpose<perm=[0,3,1,2]>(d)
            y = Relu(c)
        }""".replace("C", str(channels)),
        mean=np.arange(channels, dtype=np.float32),
    )
    assert same(source).graph.node[0].op_type == first


def test_a_scale_for_each_place_keeps_a_normalization_in_its_order() -> None:
    source = model(
        """g (float[2,7,3,5] x) => (float[2,3,5,7] y) {
            t = Transpose<perm=[0,3,2,1]>(x)
            n = LayerNormalization<axis=-1>(t, scale)
            y = Transpose<perm=[0,2,1,3]>(n)
        }""",
        scale=np.arange(1, 22, dtype=np.float32).reshape(3, 7),
    )
    assert [node.op_type for node in same(source).graph.node].count("Transpose") == 2


def test_values_that_follow_from_extents_are_laid_out_in_advance() -> None:
    source = model(
        """g (float[2,16,15] x) => (float[2,16,16] y) {
            n = Size(x)
            c = Cast<to=1>(n)
            r = Range(zero, c, one)
            h = Reshape(r, shape)
            t = Transpose<perm=[0,2,1]>(h)
            y = MatMul(x, t)
        }""",
        zero=np.array(0, np.float32),
        one=np.array(1, np.float32),
        shape=np.array([2, 16, 15]),
    )
    assert operators(same(source)) == ["MatMul"]


def test_flatten_into_gemm_permutes_the_rows() -> None:
    source = model(
        """g (float[2,3,4,5] x) => (float[2,7] y) {
            a = GlobalMaxPool(x)
            b = Sub(x, a)
            c = AveragePool<kernel_shape=[2,2]>(b)
            d = Transpose<perm=[0,2,3,1]>(c)
            e = Flatten(d)
            y = Gemm(e, w)
        }""",
        w=floats(3 * 4 * 3, 7),
    )
    assert "Transpose" not in operators(same(source))


def test_channel_shuffle_of_an_nhwc_graph_keeps_one_small_transpose() -> None:
    """NHWC -> Transpose -> Reshape -> Transpose -> Reshape -> Transpose: the shuffle itself is all that remains."""
    source = model(
        """g (float[1,8,8,12] x) => (float[1,8,8,12] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Reshape(a, split)
            c = Transpose<perm=[0,2,1,3,4]>(b)
            d = Reshape(c, join)
            y = Transpose<perm=[0,2,3,1]>(d)
        }""",
        split=np.array([1, 3, 4, 8, 8]),
        join=np.array([1, 12, 8, 8]),
    )
    result = same(source)
    assert operators(result).count("Transpose") == 1
    assert relayout.explain(source).bytes == 4 * 8 * 8 * 12


def test_dense_convolution_after_a_shuffle_takes_it_into_the_kernel() -> None:
    source = model(
        """g (float[1,12,8,9] x) => (float[1,5,8,9] y) {
            p = MaxPool<kernel_shape=[1,1]>(x)
            b = Reshape(p, split)
            c = Transpose<perm=[0,2,1,3,4]>(b)
            d = Reshape(c, join)
            y = Conv(d, w)
        }""",
        split=np.array([1, 3, 4, 8, 9]),
        join=np.array([1, 12, 8, 9]),
        w=floats(5, 12, 1, 1),
    )
    assert operators(same(source)) == ["MaxPool", "Conv"]


P, Q = "perm=[0,3,1,2]", "perm=[0,2,3,1]"
HARD = {
    "fan-out": (
        "1,32,32,64",
        f"a = Transpose<{P}>(x) r = Relu(a) y = Transpose<{Q}>(r) z = LRN<size=3>(a)",
        {},
        262_144,
    ),
    "fan-out after one": (
        "1,32,32,64",
        f"a = Transpose<{P}>(x) r = Relu(a) s = Sigmoid(r) y = Transpose<{Q}>(s) z = LRN<size=3>(r)",
        {},
        262_144,
    ),
    "hoist": (
        "1,64,32,32",
        f"m = LRN<size=3>(x) a = Relu(m) b = Sigmoid(m) c = Tanh(m)"
        f" y = Transpose<{Q}>(a) z = Transpose<{Q}>(b) w = Transpose<{Q}>(c)",
        {},
        262_144,
    ),
    "slice": ("1,32,32,64", f"a = Transpose<{P}>(x) y = Slice(a, s, e)", {"s": [0] * 4, "e": [1, 64, 4, 4]}, 4_096),
    "pad": (
        "1,64,8,8",
        f"m = LRN<size=3>(x) a = Pad(m, p) y = Transpose<{Q}>(a)",
        {"p": [0, 0, 8, 8, 0, 0, 8, 8]},
        16_384,
    ),
    "tile": ("1,64,8,8", f"m = LRN<size=3>(x) a = Tile(m, r) y = Transpose<{Q}>(a)", {"r": [1, 1, 4, 4]}, 16_384),
    "concat": (
        "1,32,32,64",
        f"a = Transpose<{P}>(x) b = Sigmoid(a) c = Tanh(a) d = Exp(a) e = Concat<axis=1>(b, c, d)"
        " y = Transpose<perm=[0,1,3,2]>(e) z = LRN<size=3>(e)",
        {},
        1_048_576,
    ),
    "tile downstream": (
        "1,4,4,16",
        f"a = Transpose<{P}>(x) b = Tile(a, r) c = Sigmoid(b) y = Transpose<perm=[0,1,3,2]>(c) z = LRN<size=3>(c)",
        {"r": [1, 1, 32, 32]},
        1_049_600,
    ),
    "reshape": (
        "1,32,32,64",
        f"a = Transpose<{P}>(x) b = Reshape(a, s) y = Transpose<perm=[0,2,1]>(b)",
        {"s": [1, 64, 1024]},
        0,
    ),
    "channel shuffle": (
        "1,8,8,12",
        f"a = Transpose<{P}>(x) b = Reshape(a, s) c = Transpose<perm=[0,2,1,3,4]>(b) d = Reshape(c, j)"
        f" y = Transpose<{Q}>(d)",
        {"s": [1, 3, 4, 8, 8], "j": [1, 12, 8, 8]},
        3_072,
    ),
}
"""Graphs on which a greedy pass stays above the least: input shape, nodes, constants, the least bytes."""


@pytest.mark.parametrize("name", HARD)
def test_the_optimum_of_the_hard_cases(name: str) -> None:
    shape, text, constants, size = HARD[name]
    outputs = ", ".join(f"float[{end}0] {end}" for end in "yzw" if f" {end} =" in f" {text}")
    source = parser.parse_model(HEADER + f"g (float[{shape}] x) => ({outputs}) {{ {text} }}")
    for key, values in constants.items():
        source.graph.initializer.append(numpy_helper.from_array(np.array(values), key))
    for value in source.graph.output:
        value.type.tensor_type.ClearField("shape")
    source = shape_inference.infer_shapes(source, data_prop=True)
    report = relayout.explain(source)
    assert report.proved
    assert report.bytes <= size
    assert report.bytes == size or name in ("concat", "tile downstream"), report.bytes
    same(source)


def test_readers_that_agree_share_one_transpose() -> None:
    source = model("""
        g (float[2,3,4,5] x) => (float[2,4,5,3] y, float[2,4,5,3] z, float[2,4,5,3] w) {
            m = LRN<size=3>(x)
            a = Relu(m)  b = Sigmoid(m)  c = Tanh(m)
            y = Transpose<perm=[0,2,3,1]>(a)
            z = Transpose<perm=[0,2,3,1]>(b)
            w = Transpose<perm=[0,2,3,1]>(c)
        }""")
    assert operators(same(source)).count("Transpose") == 1


def test_nothing_to_win_touches_nothing() -> None:
    source = model(
        "g (float[2,3,4,5] x) => (float[2,7,4,5] y) { a = Conv(x, w) b = Relu(a) y = Add(b, k) }",
        w=floats(7, 3, 1, 1),
        k=floats(7, 1, 1),
    )
    result = same(source)
    assert [(n.op_type, n.input, n.output, n.attribute) for n in result.graph.node] == [
        (n.op_type, n.input, n.output, n.attribute) for n in source.graph.node
    ]
    assert result.graph.initializer == source.graph.initializer


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2,3,4] x) => (float[2,3,4] x) { }",
        "g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] z) { y = Identity(x) z = Identity(y) }",
        "g (float[2,3,4] x) => (float[4,2,3] y, float[4,2,3] z) { y = Transpose<perm=[2,0,1]>(x) z = Identity(y) }",
        "g (float[2,3,4] x) => (float[4,3,2] y) { y = Transpose(x) }",
        "g (float[2,3,4] x) => (float[2,3,4] y) { a = Transpose(x) b = Transpose(a) y = Add(b, b) }",
        "g (float x) => (float y) { a = Transpose(x) y = Relu(a) }",
        "g (float[2,0,4] x) => (float[4,0,2] y) { a = Transpose(x) y = Relu(a) }",
        "g (float[1,2,1,3,1,1,2,1,2] x) => (float[2,1,2,1,1,3,1,2,1] y) { a = Transpose(x) y = Relu(a) }",
        "g (float[2,3,4] x) => (float[2,3,4] y) { a = Transpose<perm=[0,2,1]>(x) b = Clip(a, , hi)"
        " y = Transpose<perm=[0,2,1]>(b) }",
        "g (float[2,3,4] x) => (float[2,4,3] a, float[2,4,3] y) { a = Transpose<perm=[0,2,1]>(x) y = Relu(a) }",
        "g (float[n,3,4] x) => (float[n,4,3] y) { a = Transpose<perm=[0,2,1]>(x) y = Relu(a) }",
        "g (float[n,3,4] x) => (float[n,12] y) { a = Transpose<perm=[0,2,1]>(x) b = Relu(a) y = Flatten(b) }",
        "g (float[n,h,w,5] x) => (float[n,5,1,1] y) { a = Transpose<perm=[0,3,1,2]>(x) y = GlobalAveragePool(a) }",
        "g (float[n,h,w,5] x) => (float[n,1,w,1] y) { a = Transpose<perm=[0,3,1,2]>(x) b = ReduceMean(a, axes)"
        " y = Transpose<perm=[0,2,3,1]>(b) }",
        "g (float[2,0,4] x) => (float[2,4,1,0] y) { a = Transpose<perm=[0,2,1]>(x) b = Unsqueeze(a, axes)"
        " y = Relu(b) }",
    ],
)
def test_odd_but_legal_graphs(text: str) -> None:
    constants: dict[str, NDArray[np.generic]] = {"hi": np.array(0.5, np.float32)} if "hi" in text else {}
    if "axes" in text:
        constants["axes"] = np.array([2]) if "Unsqueeze" in text else np.array([1, 2])
    source = model(text, **constants)
    same(source)
    assert relayout.convert(source, io="convert").report.bytes == 0


def test_constant_as_an_output_and_a_constant_in_two_orders() -> None:
    source = model(
        """g (float[2,3,4,5] x) => (float[5,3,4] k, float[2,5,3,4] y, float[2,3,4,5] z) {
            a = Transpose<perm=[0,3,1,2]>(x)
            y = Add(a, k)
            b = Transpose<perm=[1,2,0]>(k)
            z = Mul(x, b)
        }""",
        k=floats(5, 3, 4),
    )
    same(source)


def test_unknown_operators_are_barriers_and_named() -> None:
    source = model(
        """g (float[2,3,4,5] x) => (float[2,5,3,4] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            y = Relu(a)
        }"""
    )
    source.graph.node.append(helper.make_node("Strange", ["a"], ["s"], domain="some.where"))
    source.opset_import.append(helper.make_opsetid("some.where", 1))
    source.graph.output.append(helper.make_tensor_value_info("s", 1, [2, 5, 3, 4]))
    report = relayout.explain(source)
    assert report.barriers == {"what Strange does with axes is not known here": 1}
    assert report.bytes == 480


def test_operators_without_axes_say_what_they_do_with_their_operands() -> None:
    source = model("g (float[2,3] x) => (int64[2,N] y) { a = Transpose(x) y = NonZero(a) }")
    report = relayout.explain(source)
    assert report.barriers == {"NonZero lists coordinates in the order in which the elements lie": 1}
    assert "NonZero lists coordinates" in report.remaining[0].reason


def test_what_reads_nothing_bars_no_layout() -> None:
    source = model(
        """g (bool c, float[2,3] x) => (float[2,3] y) {
            y = If (c) <
                then_branch = then () => (float[2,3] t) { t = Constant<value = float[2,3] {1,2,3,4,5,6}>() },
                else_branch = other () => (float[2,3] e) { e = Neg(x) }
            >
        }"""
    )
    assert relayout.explain(source).barriers == {}


@pytest.mark.parametrize("inner", [False, True])
def test_what_onnx_runtime_adds_to_the_standards_domain_is_known(inner: bool, tmp_path: Path) -> None:
    """ONNX has no such operator: a model that ONNX Runtime has optimized holds it all the same."""
    norm = "SimplifiedLayerNormalization<axis=-1>(b, scale)"
    body = f"then_branch = yes () => (float[2,4,5,3] r) {{ r = {norm} }}"
    other = "else_branch = no () => (float[2,4,5,3] q) { q = Neg(b) }"
    source = model(
        f"""g (float[2,4,5,3] x) => (float[2,4,5,3] y) {{
            a = Transpose<perm=[0,3,1,2]>(x)
            u = Relu(a)
            b = Transpose<perm=[0,2,3,1]>(u)
            {"s = ReduceMax<keepdims=0>(x)  c = Greater(s, zero)" if inner else ""}
            m = {f"If(c) <{body}, {other}>" if inner else norm}
            y = Neg(m)
        }}""",
        scale=floats(3),
        **({"zero": np.zeros((), np.float32)} if inner else {}),
    )
    result = relayout.optimize(source)
    result.save(tmp_path / "result.onnx")  # what is not valid is not written
    x = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(run(result.proto, {"x": x})[0], run(source, {"x": x})[0], rtol=1e-5, atol=1e-6)
    assert (result.report.transposes, result.report.barriers) == (0, {})


@pytest.mark.parametrize("inner", [False, True])
def test_maps_that_a_classifier_gives_are_kept(inner: bool) -> None:
    """scikit-learn's probabilities, a sequence of maps: onnx-ir has no type for them."""
    source = model(
        """
        g (float[2,3,4,5] x) => (float[2,3] y) {
            a = Transpose<perm=[0,2,3,1]>(x)
            b = Relu(a)
            c = Transpose<perm=[0,3,1,2]>(b)
            y = ReduceMean<keepdims=0>(c, axes)
        }""",
        axes=np.array([2, 3]),
    )
    source.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    labels = {"domain": "ai.onnx.ml", "classlabels_int64s": [4, 5, 6]}
    source.graph.node.append(helper.make_node("ZipMap", ["y"], ["z"], **labels))
    probability = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(onnx.TensorProto.INT64, probability))
    if inner:
        source.graph.value_info.append(helper.make_value_info("z", kind))
    else:
        source.graph.output.append(helper.make_value_info("z", kind))
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    assert [output.type for output in result.proto.graph.output] == [output.type for output in source.graph.output]
    assert result.report.transposes == 0
    x = {"x": np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)}
    for got, want in zip(run(result.proto, x), run(source, x), strict=True):
        for one, other in zip(np.atleast_1d(got), np.atleast_1d(want), strict=True):
            pairs = zip(one.items(), other.items(), strict=True) if isinstance(one, dict) else [(one, other)]
            for mine, theirs in pairs:
                np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_operators_of_unknown_rank_are_barriers_for_that() -> None:
    source = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "some": 1]> g (float[2,3] x) => (y) {
            a = some.Strange(x)
            y = Relu(a)
        }"""
    )
    assert relayout.explain(source).barriers == {
        "what Strange does with axes is not known here": 1,
        "the rank of what Relu reads is not known": 1,
    }


def test_a_subgraph_reads_a_value_of_the_outer_graph() -> None:
    source = model("""
        g (float[2,3,4] x, bool c) => (float[2,4,3] y, float[2,3,4] w) {
            a = Transpose<perm=[0,2,1]>(x)
            r = Relu(a)
            y = If (c) <
                then_branch = t () => (float[2,4,3] p) { p = Neg(r) },
                else_branch = e () => (float[2,4,3] q) { q = Add(r, a) }
            >
            w = Transpose<perm=[0,2,1]>(r)
        }""")
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    for flag in (True, False):
        feed = {"x": floats(2, 3, 4), "c": np.array(flag)}
        for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
            np.testing.assert_array_equal(want, got)


def test_interior_value_that_is_also_an_output_keeps_its_name_and_order() -> None:
    source = model("""
        g (float[2,4,5,3] x) => (float[2,4,5,3] mid, float[2,3,4,5] y) {
            mid = Relu(x)
            a = Transpose<perm=[0,3,1,2]>(mid)
            y = LRN<size=3>(a)
        }""")
    result = same(source)
    assert [value.name for value in result.graph.output] == ["mid", "y"]
    assert operators(result).count("Transpose") == 1


def test_nodes_without_names_and_equal_bytes_twice() -> None:
    source = model(
        "g (float[2,4,5,3] x) => (float[2,3,4,5] y) { a = Relu(x) b = Transpose<perm=[0,3,1,2]>(a) y = LRN<size=3>(b) }"
    )
    assert all(not node.name for node in source.graph.node)
    first, second = (relayout.optimize(source).proto.SerializeToString(deterministic=True) for _ in range(2))
    assert first == second


def test_explicit_layouts_pin_inputs_outputs_and_inner_values() -> None:
    source = model(
        "g (float[2,4,5,3] x, float[2,4,5,3] k) => (float[2,4,5,3] y) { a = Relu(x) b = Add(a, k) y = Neg(b) }"
    )
    nchw = ("NHWC", "NCHW")
    result = relayout.convert(source, layouts={"x": nchw}, io="convert")
    shapes = [[dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in result.proto.graph.input]
    assert shapes == [[2, 3, 4, 5]] * 2
    assert result.report.transposes == 0
    inside = relayout.convert(source, layouts={"b": nchw})
    assert inside.report.transposes == 2
    stored = {v.name: v for v in inside.model.graph.inputs}
    assert "relayout.holds" not in stored["x"].metadata_props
    same(source, layouts={"b": nchw})
    same(source, layouts={"x": ("NHWC", "NHWC")})
    for wrong in ({"nothing": nchw}, {"x": ("NHWC", "NCX")}, {"x": ("NWC", "NCW")}):
        with pytest.raises(relayout.LayoutError):
            relayout.convert(source, layouts=wrong)


def test_a_dynamic_batch_that_a_reshape_renames_is_the_same_batch() -> None:
    """Flatten by a computed shape: inference gives the batch a new name, counting its elements the old."""
    source = parser.parse_model(
        HEADER
        + """
        g (float[batch,4,5,3] x) => (float[other,7] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = MaxPool<kernel_shape=[2,2]>(a)
            c = Transpose<perm=[0,2,3,1]>(b)
            d = Reshape(c, s)
            e = Relu(d)
            y = MatMul(e, w)
        }"""
    )
    shape = numpy_helper.from_array(np.array([-1, 36]), "s")
    source.graph.initializer.extend([shape, numpy_helper.from_array(floats(36, 7), "w")])
    source = shape_inference.infer_shapes(source)
    assert relayout.explain(source, io="convert").bytes == 0
    same(source)


def test_a_name_for_an_extent_that_is_one_further_on_says_nothing() -> None:
    """Files state `batch` of one value and 1 of the next; that axis does not tell where the batch lies."""
    source = parser.parse_model(
        HEADER
        + """g (float[batch,6,4] x) => (float[1,5,6] y) <float[batch,6,5] a, float[1,6,5] b, float[1,5,6] t> {
            a = MatMul(x, w)
            b = Add(a, bias)
            t = Transpose<perm=[0,2,1]>(b)
            u = Relu(t)
            v = Transpose<perm=[0,2,1]>(u)
            r = Reshape(v, flat)
            q = Relu(r)
            p = Reshape(q, whole)
            y = Transpose<perm=[0,2,1]>(p)
        }"""
    )
    constants = {"w": floats(4, 5), "bias": floats(5), "flat": np.array([6, 5]), "whole": np.array([1, 6, 5])}
    source.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    result = relayout.optimize(source)
    onnx.checker.check_model(result.proto, full_check=True)
    assert operators(result.proto).count("Transpose") == 1
    feed = {"x": floats(1, 6, 4)}
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("height", [1, 3])
@pytest.mark.parametrize(
    "end", ["u = Transpose<perm=[0,3,1,2]>(c) y = Conv(u, last)", "y = ReduceMean<keepdims=0>(c, axes)"]
)
def test_an_axis_of_one_element_lies_where_the_operands_of_a_concat_have_it(height: int, end: str) -> None:
    """No Reshape stands around the Concat, so that a runtime's blocked convolutions stay together."""
    outputs = f"float[1,5,{height},2] y" if "Conv" in end else "float[1,10] y"
    source = model(
        f"""g (float[1,{height},2,8] x) => ({outputs}) {{
            t = Transpose<perm=[0,3,1,2]>(x)
            a = Conv(t, one)
            b = Conv(t, other)
            p = Transpose<perm=[0,2,3,1]>(a)
            q = Transpose<perm=[0,2,3,1]>(b)
            c = Concat<axis=3>(p, q)
            {end}
        }}""",
        one=floats(4, 8, 1, 1),
        other=floats(6, 8, 1, 1),
        last=floats(5, 10, 1, 1),
        axes=np.array([1, 2]),
    )
    result = operators(same(source))
    assert result.count("Transpose") == 1
    assert "Reshape" not in result


def test_an_input_keeps_the_names_of_its_dimensions() -> None:
    """Whatever they are: `2*N` is a product of the solver, too, but the interface says it as it said it."""
    source = model("""
        g (float[B,C] x) => (float[B,C] y, float[C,B] z) {
            t = Transpose<perm=[1,0]>(x)
            r = Relu(t)
            y = Transpose<perm=[1,0]>(r)
            z = Neg(r)
        }""")
    dims = source.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param, dims[1].dim_param = "2*N", "M + 1"
    result = same(source)
    assert operators(result) != operators(source)
    assert result.graph.input[0].type == source.graph.input[0].type


def test_an_output_keeps_the_type_that_only_the_interface_states() -> None:
    """What nobody knows gives a value of no known type; a Transpose whose place it takes had one stated."""
    source = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21, "some.where": 1]>
        g (float[2,3] x) => (float[2,3] y) {
            a = some.where.Unknown(x)
            b = Transpose<perm=[1,0]>(a)
            y = Transpose<perm=[1,0]>(b)
        }""")
    result = relayout.optimize(source).proto
    assert operators(result) == ["Unknown"]
    assert result.graph.output[0].type == source.graph.output[0].type


CROSSED = """
    g (float[2,B,4,5] x) => (float[2,B,4,5] y) {
        a = Transpose<perm=[0,2,3,1]>(x)
        b = Relu(a)
        c = Transpose<perm=[0,3,1,2]>(b)
        d = some.where.Unknown(c)
        y = Abs(d)
    }"""


def stated(proto: onnx.ModelProto) -> dict[str, bool]:
    """Interior value -> whether a shape is stated, where it is named at all."""
    return {value.name: value.type.tensor_type.HasField("shape") for value in proto.graph.value_info}


def test_a_source_without_shapes_has_a_result_without_shapes() -> None:
    """A runtime that knew more of the result would fuse other operators in it, and need not be the faster for it."""
    source = parser.parse_model(f'<ir_version: 10, opset_import: ["": 21, "some.where": 1]> {CROSSED}')
    proto = relayout.optimize(source).proto
    assert operators(proto) == ["Relu", "Unknown", "Abs"]
    assert stated(proto) == {"c": False}, "it holds b, too: that is said of it, and no shape"
    assert stated(relayout.optimize(source, annotate=True).proto)["c"], "who looks at layouts looks at shapes"
    source.graph.value_info.append(helper.make_tensor_value_info("d", 1, [2, "B", 4, 5]))
    assert all(stated(relayout.optimize(source).proto).values())


def test_an_output_that_is_listed_twice_is_listed_twice() -> None:
    source = model("""
        g (float[1,3,4] x) => (float[1,4,3] y, float[1,3,4] z, float[1,4,3] y) {
            t = Transpose<perm=[0,2,1]>(x)
            u = Relu(t)
            z = Transpose<perm=[0,2,1]>(u)
            w = Neg(z)
            y = Transpose<perm=[0,2,1]>(w)
        }""")
    result = same(source)
    assert [value.name for value in result.graph.output] == ["y", "z", "y"]
    assert result.graph.output[2].type == source.graph.output[2].type
    converted = relayout.convert(source, io="convert").proto
    assert operators(converted) == ["Relu", "Neg"]


def test_an_expand_whose_result_is_not_known_is_as_wide_as_it_says() -> None:
    """In a body, ONNX does not see the numbers of a constant outside: the result has rank 3, and no more is known."""
    source = parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        g (float[2,3,4] x, float v, bool c) => (float[2,3,4] y, float[2,3,4] z) {
            y, z = If(c) <
                then_branch = t () => (float[2,3,4] y1, float[2,3,4] z1) {
                    a = Transpose<perm=[0,2,1]>(x)
                    e = Expand(v, wide)
                    b = Mul(a, e)
                    y1 = Transpose<perm=[0,2,1]>(b)
                    z1 = Transpose<perm=[0,2,1]>(e)
                },
                else_branch = f () => (float[2,3,4] y2, float[2,3,4] z2) { y2 = Neg(x) z2 = Abs(x) }>
        }""")
    source.graph.initializer.append(numpy_helper.from_array(np.array([2, 4, 3]), "wide"))
    result = relayout.optimize(source)
    assert result.report.bytes == 0
    feed = {"x": floats(2, 3, 4), "v": np.array(3, np.float32), "c": np.array(True)}
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        assert got.shape == want.shape
        np.testing.assert_array_equal(got, want)


def test_what_follows_from_constants_alone_costs_nothing() -> None:
    """A table of positions that the graph computes: a runtime does so once, and what is moved in a run counts."""
    source = model(
        """
        g (float[2,5,7] x) => (float[2,8,5] y) {
            a = Transpose<perm=[0,2,1]>(x)
            b = Concat<axis=1>(first, a)
            p = Exp(table)
            t = Transpose<perm=[0,2,1]>(p)
            y = Add(b, t)
        }""",
        first=floats(2, 1, 5),
        table=floats(1, 5, 8),
    )
    report = relayout.optimize(source).report
    assert (report.source_bytes, report.bytes, report.lower_bound) == (280, 280, 280)
    assert same(source)
    # A draw is another one in each run.
    drawn = model(
        """
        g (float[2,8,5] x) => (float[2,8,5] y) {
            p = RandomNormalLike<dtype=1>(table)
            t = Transpose<perm=[0,2,1]>(p)
            y = Add(x, t)
        }""",
        table=floats(1, 5, 8),
    )
    assert relayout.optimize(drawn).report.source_bytes == 160


def test_a_reshape_in_a_unit_of_its_own_stays_there() -> None:
    """Between DequantizeLinear and QuantizeLinear, if no other place wins: runtimes make one operator of the three."""
    source = model(
        """
        g (float[2,3,4] x, float[2,4,3] z) => (float[2,3,4] y, float[8,5] w) {
            a = Transpose<perm=[0,2,1]>(x)
            b = Relu(a)
            y = Transpose<perm=[0,2,1]>(b)
            q1 = QuantizeLinear(z, scale, zero)
            d1 = DequantizeLinear(q1, scale, zero)
            r = Reshape(d1, rows)
            q2 = QuantizeLinear(r, scale, zero)
            d2 = DequantizeLinear(q2, scale, zero)
            w = Gemm(d2, weight)
        }""",
        scale=np.array(0.1, np.float32),
        zero=np.array(3, np.int8),
        rows=np.array([8, 3]),
        weight=floats(3, 5),
    )
    result = same(source)
    made = {node.output[0]: node for node in result.graph.node}
    (gemm,) = (node for node in result.graph.node if node.op_type == "Gemm")
    before, name = [], gemm.input[0]
    while name in made:
        before.append(made[name].op_type)
        name = made[name].input[0]
    assert before == ["DequantizeLinear", "QuantizeLinear", "Reshape", "DequantizeLinear", "QuantizeLinear"]


def test_a_reshape_before_several_operators_stays_before_all_of_them() -> None:
    source = model(
        """
        g (float[2,3,4] x, float[2,4,3] z) => (float[2,3,4] y, float[8,5] w) {
            a = Transpose<perm=[0,2,1]>(x)
            b = Tanh(a)
            y = Transpose<perm=[0,2,1]>(b)
            c = Exp(z)
            d = Reshape(c, rows)
            e = Relu(d)
            f = Neg(e)
            w = Gemm(f, weight)
        }""",
        rows=np.array([8, 3]),
        weight=floats(3, 5),
    )
    assert operators(same(source)) == ["Tanh", "Exp", "Reshape", "Relu", "Neg", "Gemm"]


def test_a_reshape_that_meets_another_goes() -> None:
    """Behind an operator that counts no axes: there it undoes the next one."""
    source = model(
        """
        g (float[2,3,4] x) => (float[2,3,4] y) {
            a = Transpose<perm=[0,2,1]>(x)
            b = Reshape(a, rows)
            c = Relu(b)
            d = Neg(c)
            e = Reshape(d, whole)
            f = Exp(e)
            y = Transpose<perm=[0,2,1]>(f)
        }""",
        rows=np.array([8, 3]),
        whole=np.array([2, 4, 3]),
    )
    assert operators(same(source)) == ["Relu", "Neg", "Exp"]


def test_branches_that_are_given_something_are_no_branches() -> None:
    """Some exporters give an If's branches inputs of the names around it, which no runtime loads: carried through."""
    source = model(
        """g (float[2,4,5,3] x, bool c) => (float[2,4,5,3] y) {
            a = Transpose<perm=[0,3,1,2]>(x)
            b = Relu(a)
            r = If(c) <
                then_branch = yes (float[2,3,4,5] b) => (float[2,3,4,5] p) { p = Exp(b) },
                else_branch = no (float[2,3,4,5] b) => (float[2,3,4,5] q) { q = Neg(b) }
            >
            y = Transpose<perm=[0,2,3,1]>(r)
        }"""
    )
    result = relayout.optimize(source)
    assert result.report.operators == {
        "If": 1,
        "Transpose": 1,
    }  # the branches are given a b of their own
    assert "If" in str(result.report.barriers)


@pytest.mark.parametrize("shape", [[1], [1, 1], [1, 1, 1]])
def test_one_element_has_more_dimensions_than_there_are_ones_behind(shape: list[int]) -> None:
    """ONNX Runtime stretches one of no more dimensions than there are axes of one element in the end by itself."""
    source = model(
        f"""g (float[6,2,5,8] x) => (float[6,2,1,1] y) <float[{",".join(map(str, shape))}] k = {{0.5}}> {{
            p = GlobalAveragePool(x) t = Transpose<perm=[1,0,2,3]>(p)
            a = Mul(t, k) b = Relu(a) y = Transpose<perm=[1,0,2,3]>(b)
        }}"""
    )
    result = converted(source)
    assert operators(result.proto) == ["GlobalAveragePool", "Mul", "Relu"]
    (number,) = result.proto.graph.initializer
    assert len(number.dims) >= 3
