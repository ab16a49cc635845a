"""What a Transpose between two forms reads and gives: as few Reshapes beside it as there can be."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import onnx
import pytest

import relayout
from relayout.apply.transposing import nearest_form, transposed
from relayout.infer.sites import Form, order_of
from relayout.layout import Extent
from running import run
from text_form import floats, model


def form(text: str) -> Form:
    """`0 1 (23)` as a form; `1`-element dimensions are written `.`."""
    return tuple(() if word == "." else tuple(map(int, word.strip("()"))) for word in text.split())


@pytest.mark.parametrize(
    ("source", "target", "before", "after"),
    [
        ("0 1 2", "0 2 1", "0 1 2", "0 2 1"),  # none
        (". 0 1", "1 0", ". 0 1", ". 1 0"),  # what has one element moves for nothing
        ("0 . 1 2", "1 2 0", "0 . 1 2", ". 1 2 0"),  # and stays in front of all, so that one axis moves
        ("0 1 . 2 3", "1 2 3 0", "0 1 . 2 3", "1 . 2 3 0"),  # or beside what is behind it
        ("0 1 . 2", "2 0 1", "0 1 . 2", ". 2 0 1"),
        ("0 1 2 3", ". 2 (01) 3", "(01) . 2 3", ". 2 (01) 3"),  # the target's dimensions, in the source's order
        ("0 1 2 (34)", "(12) 0 3 4", "0 (12) 3 4", "(12) 0 3 4"),
        ("0 (12) (34)", "(12) (03) 4", "0 (12) (34)", "(12) 0 (34)"),  # the source's, in the target's
        ("0 1 2", ". (12) 0", "0 . (12)", ". (12) 0"),  # of size 1, beside what is behind it
        ("0 1 2 3", ". 3 (01) 2", ". (01) 2 3", ". 3 (01) 2"),  # or in front of all, so that one axis moves
        ("0 1 (23)", "(23) . 0 1", "0 1 (23)", "(23) 0 1"),  # which it does with 0 and 1 apart, too
        ("0 1 2 3 4", "3 4 0 (12)", "(012) (34)", "(34) (012)"),  # here two would move, and single elements be copied
        ("0 1 2 (34)", "3 2 (01) 4", "(01) 2 3 4", "3 2 (01) 4"),  # which they are in any case, here
        ("(01) (23)", "(02) (13)", "0 1 2 3", "0 2 1 3"),  # neither form has these dimensions
    ],
)
def test_reshapes_beside_a_transpose(source: str, target: str, before: str, after: str) -> None:
    assert transposed(form(source), form(target)) == (form(before), form(after))


def test_what_is_dynamic_is_not_joined() -> None:
    assert transposed(form("0 1 2"), form("2 (01)"), bounded=True) == (form("0 1 2"), form("2 0 1"))


@pytest.mark.parametrize(
    ("target", "extents", "nearest"),
    [
        ("1 0 2 3", "n 3 4 5", "0 1 2 3"),  # the producer's, where the batch lies elsewhere
        ("3 2 1 0", "n 3 4 5", "3 0 2 1"),  # another one, where the batch alone does
        ("3 2 1 0", "2 3 4 5", "0 1 2 3"),  # nothing can be of one element
        ("3 2 0 1", "n c h 5", "3 0 2 1"),  # the batch before another open axis
        ("2 1 3 0", "n c h 5", "0 1 2 3"),  # two axes lie elsewhere in each
    ],
)
def test_a_form_is_near_where_one_open_axis_lies_elsewhere(target: str, extents: str, nearest: str) -> None:
    sizes = [Extent.of(int(word) if word.isdigit() else word) for word in extents.split()]
    assert nearest_form([form("0 1 2 3"), form("3 0 2 1")], form(target), sizes) == form(nearest)


def test_the_source_tells_which_form_is_near() -> None:
    """Its own Transpose moves nothing where the one of the result, from another form, would move something."""
    sizes = [Extent.of(word) for word in ("n", "c", "h")]
    forms, own = [form("0 1 2"), form("1 0 2")], [(form("0 2 1"), form("1 0 2"))]
    assert nearest_form(forms, form("0 2 1"), sizes) == form("0 1 2")
    assert nearest_form(forms, form("0 2 1"), sizes, own) == form("1 0 2")
    assert nearest_form(forms, form("0 2 1"), sizes, [(after, before) for before, after in own]) == form("1 0 2")
    assert nearest_form(forms, form("0 2 1"), sizes, [(form("2 1 0"), form("0 2 1"))]) == form("0 1 2")
    assert nearest_form(forms, form("0 2 1"), [Extent(2)] * 3, own) == form("0 1 2")


def moves_one(source: Form, target: Form) -> bool:
    """Whether all dimensions but one stay in order; those of one element are told apart by their places."""
    one, other = (
        [dim or f"one {each[:place].count(())}" for place, dim in enumerate(each)] for each in (source, target)
    )
    return any([d for d in one if d != moved] == [d for d in other if d != moved] for moved in one)


def joined(order: list[int], other: list[int]) -> Form:
    """What is adjacent in both orders as one dimension, in the first."""
    after = dict(pairwise(other))
    dims: list[tuple[int, ...]] = []
    for factor in order:
        if dims and after.get(dims[-1][-1]) == factor:
            dims[-1] = (*dims[-1], factor)
        else:
            dims.append((factor,))
    return tuple(dims)


def test_random_forms() -> None:
    """A Transpose reads and gives the same dimensions, in the order of either side; it moves one axis where it can."""
    once = 0
    for seed in range(2000):
        chance = random.Random(seed)
        first, other = chance.sample(range(5), 5), list(range(5))
        source, target = grouped(first, chance), grouped(other, chance)
        if first == other:
            continue
        before, after = transposed(source, target)
        assert order_of(before) == order_of(source)
        assert order_of(after) == order_of(target)
        assert sorted(before) == sorted(after)
        ones_differ = sorted(filter(None, source)) == sorted(filter(None, target))
        if moves_one(joined(first, other), joined(other, first)) and not ones_differ:
            assert moves_one(before, after), (source, target)
        once += (before == source) != (after == target)
    assert once > 150


def grouped(order: list[int], chance: random.Random) -> Form:
    """Dimensions of one to three of these factors, some of one element between them."""
    dims: list[tuple[int, ...]] = []
    left = list(order)
    while left:
        size = chance.randint(1, 3)
        dims += [()] * (chance.random() < 0.3) + [tuple(left[:size])]
        left = left[size:]
    return tuple(dims)


HEADS = """
    g (float[7,7,64] x) => (float[1,4,49,16] y) {
        q = MatMul(x, kernel)
        a = Reshape(q, apart)
        i = Gather<axis=2>(a, one)
        b = Reshape(i, together)
        c = Transpose<perm=[0,2,1,3]>(b)
        d = Transpose<perm=[0,1,3,2]>(c)
        z = Mul(c, scale)
        e = MatMul(z, d)
        y = MatMul(e, z)
    }"""


def test_the_heads_of_a_window_take_no_more_reshapes_than_the_source_has() -> None:
    """`(h w) heads d -> 1 heads (h w) d`: what the Transpose reads has the dimensions of what it gives."""
    arrays = {"apart": [7, 7, 3, 4, 16], "together": [1, 49, 4, 16], "one": 1}
    given = {name: np.array(array) for name, array in arrays.items()}
    kernel = np.random.default_rng(1).normal(size=(64, 192)).astype(np.float32)
    graph = model(HEADS, kernel=kernel, scale=np.array(0.1, np.float32), **given)
    feed = {"x": np.random.default_rng(0).normal(size=(7, 7, 64)).astype(np.float32)}
    for result in (relayout.optimize(graph), relayout.convert(graph, to="NHWC")):
        operators = [node.op_type for node in result.proto.graph.node]
        assert (operators.count("Reshape"), operators.count("Transpose")) == (2, 2)
        for expected, got in zip(run(graph, feed), run(result.proto, feed), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


HALVES = """
    g (float[1,8,8,4] x) => (float[1,5,7,6] y) {
        i = Transpose<perm=[0,3,1,2]>(x)
        k = Cast<to=1>(kernel)
        o = Transpose<perm=[0,3,1,2]>(k)
        c = Conv(i, o)
        f = Cast<to=1>(filter)
        g = Transpose<perm=[3,0,1,2]>(f)
        d = Conv<group=6>(c, g)
        s = Cast<to=1>(slope)
        r = Reshape(s, channels)
        p = PRelu(d, r)
        y = Transpose<perm=[0,2,3,1]>(p)
    }"""


def test_constants_are_stored_as_what_is_made_of_them_is_read() -> None:
    """`o 1 1 i`, `1 h w o` and `1 1 o`: no order is another, so that nothing but extents of 1 stands in other places.

    The PRelu counts no axes, as the Cast before it does not.
    """
    halves = {"kernel": (6, 1, 1, 4), "filter": (1, 4, 2, 6), "slope": (1, 1, 6)}
    arrays = {name: floats(*shape).astype(np.float16) for name, shape in halves.items()}
    graph = model(HALVES, **arrays, channels=np.array([6, 1, 1]))
    result = relayout.optimize(graph).proto
    operators = Counter(node.op_type for node in result.graph.node)
    assert operators == {"Cast": 3, "Transpose": 2, "Conv": 2, "PRelu": 1}
    stored = {held.name: tuple(held.dims) for held in result.graph.initializer}
    assert sorted(stored.values()) == [(6, 1, 1), (6, 1, 4, 2), (6, 4, 1, 1)]
    feed = {"x": floats(1, 8, 8, 4, seed=1)}
    np.testing.assert_allclose(run(result, feed)[0], run(graph, feed)[0], rtol=1e-5, atol=1e-5)


EXCITED = """
    g (float[1,8,8,4] x) => (float[1,6,8,8] y, float[1] z, float[1,8,8,1] n, float[1] o) {
        i = Transpose<perm=[0,3,1,2]>(x)
        h = Conv(i, kernel)
        m = Transpose<perm=[0,2,3,1]>(h)
        p = ReduceMean<keepdims=1>(m, image)
        t = Transpose<perm=[0,3,1,2]>(p)
        k = Conv(t, square)
        q = Transpose<perm=[0,2,3,1]>(k)
        wide = Sqrt(half)
        a = Mul(q, wide)
        b = Add(a, three)
        c = Max(b, both)
        s = Mul(m, d)
        u = Transpose<perm=[0,3,1,2]>(s)
        y = Relu(u)
        z = Exp(both)
        twice = Sqrt(narrow)
        d = Mul(c, twice)
        o = Mul(both, twice)
        l = ReduceMean<keepdims=1>(x, channels)
        n = Add(l, epsilon)
    }"""


def test_a_single_element_has_more_dimensions_than_stand_behind_all_else() -> None:
    """`n 1 1 c` becomes `n c 1 1`, over which ONNX Runtime stretches a scalar element by element.

    One that is computed for others, too, stays as they read it; one beside `n h w 1`, as the source has it, a scalar.
    """
    singles = {"half": np.array(0.5, np.float32), "three": floats(1), "both": floats(1, seed=1)}
    singles |= {"narrow": np.array([0.25], np.float32), "epsilon": np.array(1e-5, np.float32)}
    kernels = {"kernel": floats(6, 4, 1, 1, seed=3), "square": floats(6, 6, 1, 1, seed=4)}
    graph = model(EXCITED, **singles, **kernels, image=np.array([1, 2]), channels=np.array([3]))
    result = relayout.optimize(graph).proto
    operators = Counter(node.op_type for node in result.graph.node)
    assert operators["Reshape"] == 0
    stored = {held.name: tuple(held.dims) for held in result.graph.initializer}
    reads = [node.input[1] for node in result.graph.node if node.op_type in ("Add", "Max")]
    assert sorted(stored[name] for name in reads) == [(), (1, 1, 1), (1, 1, 1)]
    roots = [node.input[0] for node in result.graph.node if node.op_type == "Sqrt"]
    assert sorted(stored[name] for name in roots) == [(1,), (1, 1, 1)]
    assert stored["epsilon"] == ()
    (exp,) = (node for node in result.graph.node if node.op_type == "Exp")
    assert stored[exp.input[0]] == (1,)
    feed = {"x": floats(1, 8, 8, 4, seed=2)}
    for got, expected in zip(run(result, feed), run(graph, feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_a_given_single_element_is_read_in_the_dimensions_that_the_result_has(kind: str) -> None:
    """Nothing else gives the Cast's result its dimension; TopK takes no scalar."""
    graph = model(
        f"""g ({kind} k, float[1,9] x) => (float[1,n] y, int64[1,n] i) {{
            r = Reshape(k, one)
            c = Cast<to=7>(r)
            y, i = TopK<axis=-1>(x, c)
        }}""",
        one=np.array([1]),
    )
    result = relayout.convert(graph, io="convert").proto
    feed = {"k": np.array(4, kind), "x": floats(1, 9)}
    for got, expected in zip(run(result, feed), run(graph, feed), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("extent", ["5", "u"])
def test_one_operand_has_as_many_dimensions_as_the_result(extent: str) -> None:
    """Both are stretched, and each might leave the size-1 axis in front to the other."""
    graph = model(
        f"""g (float[{extent},1] x, float[2,{extent},4] z) => (float[2,4,{extent}] w, float[1,{extent},4] y) {{
            a = Add(c, x)
            b = Unsqueeze(a, front)
            y = LayerNormalization<axis=-1>(b, scale)
            t = Transpose<perm=[0,2,1]>(z)
            r = Relu(t)
            v = Transpose<perm=[0,2,1]>(r)
            w = Transpose<perm=[0,2,1]>(v)
        }}""",
        c=floats(1, 4),
        front=np.array([0]),
        scale=floats(4, seed=1),
    )
    result = relayout.optimize(graph).proto
    assert Counter(node.op_type for node in result.graph.node)["Unsqueeze"] == 0
    onnx.checker.check_model(result, full_check=True)
    feed = {"x": floats(5, 1), "z": floats(2, 5, 4, seed=2)}
    for got, expected in zip(run(result, feed), run(graph, feed), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_given_single_element_beside_another_operand_is_read_as_it_is() -> None:
    graph = model(
        """g (float k, float[1,9,4] x) => (float[1,4,9] y) {
            r = Reshape(k, ones)
            a = Add(x, r)
            y = Transpose<perm=[0,2,1]>(a)
        }""",
        ones=np.array([1, 1]),
    )
    result = relayout.convert(graph, io="convert").proto
    assert [node.op_type for node in result.graph.node] == ["Add"]
    feed = {"k": np.array(4, np.float32), "x": floats(1, 9, 4)}
    (got,), (expected,) = run(result, feed), run(graph, feed)
    np.testing.assert_array_equal(got, expected.transpose(0, 2, 1))


SHUFFLED = """
    g (float[b,4,h,w] x, float[b,4,h,w] z) => (float[b,8,h,w] y) {
        c = Concat<axis=1>(x, z)
        all = Shape(c)
        n = Gather(all, zero)
        hw = Gather(all, behind)
        s = Concat<axis=0>(n, two_four, hw)
        a = Reshape(c, s)
        t = Transpose<perm=[0,2,1,3,4]>(a)
        r = Concat<axis=0>(n, eight, hw)
        y = Reshape(t, r)
    }"""
TURNED = """
    g (float[b,1,h,w] x, float[2,3] z) => (float[b,h,w,1] y, float[2,3] v) {
        t = Transpose<perm=[1,0,2,3]>(x)
        y = Transpose<perm=[1,2,3,0]>(t)
        u = Transpose<perm=[1,0]>(z)
        r = Relu(u)
        v = Transpose<perm=[1,0]>(r)
    }"""


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize(
    ("text", "extents", "shapes"),
    [
        # Halves of one element each, from [b,4,h,w] and back: the batch stays in place, height and width are asked for.
        (SHUFFLED, {"x": (2, 4, 3, 5), "z": (2, 4, 3, 5)}, {"Unsqueeze": 2, "Concat": 2, "Shape": 1, "Reshape": 1}),
        (TURNED, {"x": (2, 1, 3, 5), "z": (2, 3)}, {"Squeeze": 1, "Unsqueeze": 1, "Relu": 1}),
    ],
    ids=["shuffled", "turned"],
)
def test_little_is_computed_for_dynamic_shapes(
    text: str, extents: dict[str, tuple[int, ...]], shapes: dict[str, int], opset: int
) -> None:
    given = {"zero": [0], "behind": [2, 3], "two_four": [2, 4], "eight": [8]}
    constants = {name: np.array(array, np.int64) for name, array in given.items() if name in text}
    source = model(text, **constants)
    source.opset_import[0].version = opset
    result = relayout.optimize(source)
    assert (result.report.transposes, result.report.proved) == (0, True)
    gathered = {"Gather": 1} if "Shape" in shapes and opset < 15 else {}
    assert Counter(node.op_type for node in result.proto.graph.node) == shapes | gathered
    feed = {name: np.random.default_rng(0).normal(size=shape).astype(np.float32) for name, shape in extents.items()}
    for want, got in zip(run(source, feed), run(result.proto, feed), strict=True):
        np.testing.assert_array_equal(got, want)
