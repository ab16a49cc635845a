"""Counterparts and their layouts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

import relayout
from relayout.errors import LayoutError, RelayoutError
from relayout.layout.normalization import Normalization
from relayout.layout.stored_as import Holds, fill_factors, relay, resolved
from relayout.verification import verify
from relayout.verification.matching import match_ends, match_interface, match_interiors
from relayout.verification.pairs import Pair
from relayout.verification.side import ModelValue

MODELS = Path(__file__).parents[2] / "models"
NCHW = Holds("x", (2, 4, 5, 3), (0, 3, 1, 2), (2, 4, 5, 3))
DYNAMIC = Holds("x", (-1, -1, -1, 3), (0, 3, 1, 2), (-1, -1, -1, 3))
STORED = (2, 3, 4, 5)
"""The shape of what is stored as `NCHW`."""
BLOCKED = Holds("x", (2, 4, 5, 2, 16), (0, 3, 1, 2, 4), (2, 4, 5, 32))


def value(
    name: str, shape: tuple[int | None, ...] | None = (2, 3), dtype: str = "float32", **more: object
) -> ModelValue:
    return ModelValue(name, np.dtype(dtype), shape, **more)


def names(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(pair.left.name, pair.right.name) for pair in pairs]


def test_names_come_first_then_places() -> None:
    pairs, lost, extra = match_interface([value("a"), value("b")], [value("b"), value("a")])
    assert (names(pairs), lost, extra) == ([("a", "a"), ("b", "b")], [], [])
    pairs, _, _ = match_interface([value("a"), value("b"), value("c")], [value("p"), value("a"), value("q")])
    assert names(pairs) == [("a", "a"), ("c", "q")]  # b's place is taken: it has no counterpart
    pairs, lost, extra = match_interface([value("a"), value("b")], [value("q")])
    assert (names(pairs), [v.name for v in lost], [v.name for v in extra]) == ([], ["a", "b"], ["q"])
    pairs, _, _ = match_interface([value("t:0", aliases=("image",))], [value("image")])
    assert names(pairs) == [("t:0", "image")]
    pairs, _, _ = match_interface([value("x", NCHW.shape)], [value("y", STORED, source_values=(NCHW,))])
    assert pairs[0].right_held == NCHW


def test_a_layout_is_that_of_the_value_in_question() -> None:
    other = Holds("x/transposed", (2, 3, 4, 5), (0, 1, 2, 3), (2, 3, 4, 5))
    x, stored = value("x", NCHW.shape), value("x", STORED, source_values=(other, NCHW))
    (pair,), _, _ = match_interface([value("x", STORED)], [value("x", STORED, source_values=(other,))])
    assert pair.right_held is None  # it holds itself, and something else as well
    (pair,), _, _ = match_interface([x], [stored])
    assert pair.right_held == NCHW
    (pair,), _, _ = match_interface([value("a", STORED, source_values=(NCHW,))], [replace(stored, name="b")])
    assert (pair.left_held, pair.right_held) == (NCHW, NCHW)
    (pair,), _, _ = match_interface([value("a", NCHW.shape)], [value("b", STORED, source_values=(NCHW,))])
    assert pair.right_held == NCHW  # by place, and it declares one layout only
    (pair,), _, _ = match_interface([value("x", STORED, source_values=(NCHW,))], [x])
    assert (pair.left_held, pair.right_held) == (NCHW, None)


BACK = Holds("x", (2, 3, 4, 5), (0, 2, 3, 1), (2, 3, 4, 5))
ANY, STORED_ANY = (None, None, None, 3), (None, 3, None, None)
BACK_ANY = Holds("x", (-1, 3, -1, -1), (0, 2, 3, 1), (-1, 3, -1, -1))


@pytest.mark.parametrize(
    ("first", "again", "plain", "stored"),
    [(NCHW, BACK, NCHW.shape, STORED), (DYNAMIC, BACK_ANY, ANY, STORED_ANY), (DYNAMIC, BACK, NCHW.shape, STORED_ANY)],
)
def test_a_declared_layout_speaks_of_the_model_that_was_converted(
    first: Holds, again: Holds, plain: tuple[int | None, ...], stored: tuple[int | None, ...]
) -> None:
    once = value("x", stored, source_values=(first,))
    (pair,), _, _ = match_interface([once], [value("x", plain, source_values=(again,))])
    assert (pair.left_held, pair.right_held) == (None, again)  # made of it, by its own name for x
    (pair,), _, _ = match_interface([once], [value("x", stored, source_values=(first,))])
    array = np.arange(120, dtype=np.float32).reshape(STORED)
    np.testing.assert_array_equal(pair.carried(array), array)  # both made of a third one
    (pair,), _, _ = match_interface([once], [value("x", stored)])
    assert (pair.left_held, pair.right_held) == (None, None)  # made of it by a tool that drops what is declared


def test_several_dynamic_factors_follow_from_the_source_s_array() -> None:
    windows = Holds("x", (-1, 4, -1, 3), (0, 2, 1, 3), (1, -1, 4, -1, 3, 1))
    source = np.random.default_rng(0).normal(size=(1, 2, 4, 5, 3, 1)).astype(np.float32)
    stored = source.reshape(2, 4, 5, 3).transpose(0, 2, 1, 3).reshape(10, 12)
    pair = Pair(value("x", (1, None, 4, None, 3, 1)), value("y", (None, 12)), None, windows)
    np.testing.assert_array_equal(pair.same_way(source, stored)[1], source)
    back = Pair(value("y", (None, 12)), value("x", (1, None, 4, None, 3, 1)), windows, None)
    np.testing.assert_array_equal(back.same_way(stored, source)[0], source)
    untold = Pair(value("x", (None,)), value("y", (None, 12)), None, replace(windows, shape=(-1,)))
    with pytest.raises(LayoutError, match="which it cannot"):
        untold.same_way(source.reshape(-1), stored)


def test_an_end_of_a_part_is_found_by_its_own_name_first() -> None:
    before = value("before", NCHW.shape, order=0)
    end = value("end", STORED, order=1)
    kept = value("end", STORED, source_values=(replace(NCHW, name="before"),))
    (pair,) = match_ends([before, end], [kept])
    assert (pair.left.name, pair.declared) == ("end", False)
    (pair,) = match_ends([before], [kept])
    assert (pair.left.name, pair.declared) == ("before", True)


def test_where_shapes_say_nothing_what_lies_alike_is_the_same() -> None:
    cube = Holds("x", (4, 4, 4), (2, 0, 1), (4, 4, 4))
    (pair,), _, _ = match_interface(
        [value("x", (4, 4, 4), source_values=(cube,))], [value("x", (4, 4, 4), source_values=(cube,))]
    )
    assert (pair.left_held, pair.right_held) == (cube, cube)
    again, older = replace(cube, perm=(1, 2, 0)), replace(cube, perm=(0, 2, 1))
    twice = value("x", (4, 4, 4), source_values=(again, older))
    (pair,), _, _ = match_interface([value("x", (4, 4, 4), source_values=(cube,))], [twice])
    assert (pair.left_held, pair.right_held) == (cube, older)  # of the source that both were made of
    (pair,), _, _ = match_interface([value("x", (4, 4, 4))], [twice])
    assert (pair.left_held, pair.right_held) == (None, older)
    (pair,), _, _ = match_interface([twice], [value("x", (4, 4, 4))])
    assert (pair.left_held, pair.right_held) == (older, None)


def test_a_result_of_a_result_is_not_compared_with_the_first_source() -> None:
    twice = value("x", (4, 5, 2, 3), source_values=(Holds("x", STORED, (2, 3, 0, 1), STORED),))
    (pair,), _, _ = match_interface([value("x", NCHW.shape)], [twice])
    with pytest.raises(RelayoutError, match=r"made of one where it is \[2, 3, 4, 5\]: compare it with the model"):
        pair.carried(np.zeros(NCHW.shape, np.float32))


@pytest.mark.parametrize("to", ["NHWC", "CHWN"])
def test_a_converted_interface_is_converted_once_more(to: str) -> None:
    once = relayout.convert(MODELS / "tinynet_int8.tflite", io="convert")
    twice = relayout.convert(once, to=to, io="convert")
    assert twice.model.graph.inputs[0].shape != once.model.graph.inputs[0].shape
    assert relayout.verify(once, twice).ok


def test_interiors_match_by_name_type_and_shape() -> None:
    lefts = [
        value("a"),
        value("b"),
        value("c"),
        value("x", (2, 4, 5, 3)),
        value("q", dtype="int8", scale=(0.1,), zero=(0,)),
    ]
    rights = [
        value("a", dtype="float64"),
        value("b", (3, 2)),
        value("c", (None, 3)),
        value("y", (2, 3, 4, 5), source_values=(NCHW,)),
        value("q"),
    ]
    assert names(match_interiors(lefts, rights)) == [("c", "c"), ("x", "y"), ("q", "q")]
    assert names(match_interiors([value("l", source_values=(NCHW,))], [value("r", source_values=(NCHW,))])) == [
        ("l", "r")
    ]
    assert names(match_interiors([value("l", source_values=(NCHW,))], [value("x", (2, 4, 5, 3))])) == [("l", "x")]
    assert names(match_interiors([value("a")], [value("a", None)])) == [("a", "a")]


def test_a_declared_name_is_another_value_s_where_the_source_has_another_shape() -> None:
    """A chain of conversions may give one name to a value before a Transpose and to one behind it."""
    before = Holds("x", (2, 4, 5, 3), (0, 1, 2, 3), (2, 4, 5, 3))
    other = Holds("x", (2, 3, 4, 5), (0, 2, 3, 1), (2, 3, 4, 5))
    left, right = value("l", (2, 4, 5, 3), source_values=(before,)), value("r", (2, 4, 5, 3), source_values=(other,))
    assert names(match_interiors([left], [right])) == []
    assert names(match_interiors([value("x", (2, 4, 5, 3))], [right])) == []
    assert names(match_interiors([value("x", (2, 3, 4, 5))], [right])) == [("x", "r")]


@pytest.mark.parametrize("held", [NCHW, DYNAMIC])
def test_layouts_are_undone(held: Holds) -> None:
    source = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
    stored = source.transpose(0, 3, 1, 2)
    pair = Pair(value("x", source.shape), value("y", (None, 3, None, None)), None, held)
    np.testing.assert_array_equal(pair.carried(source), stored)
    np.testing.assert_array_equal(pair.same_way(source, stored)[1], source)
    back = Pair(value("y", None), value("x", None), held, None)
    np.testing.assert_array_equal(back.same_way(stored, source)[0], source)
    np.testing.assert_array_equal(back.carried(stored), source)
    assert back.name == "x"


def test_axes_that_one_dimension_joins_are_laid_by_what_other_values_tell() -> None:
    """`[n, h w, c]` alone does not tell h and w, which the second model has apart; an image beside it does."""
    image = np.random.default_rng(0).normal(size=(2, 4, 5, 3)).astype(np.float32)
    tokens, stored = image.reshape(2, 20, 3), image.transpose(0, 3, 1, 2)
    symbols = ("batch", "", "half(height)", "width")
    right = value("y", (None, 3, None, None), symbols=symbols)
    extents = Pair(value("x", (None, None, None, 3)), right, None, DYNAMIC).extents(image)
    assert extents == {"batch": 2, "half(height)": 4, "width": 5}
    held = Holds("tokens", (-1, -1, -1, 3), (0, 3, 1, 2), (-1, -1, 3))
    pair = Pair(value("tokens", (None, None, 3)), right, None, held)
    with pytest.raises(LayoutError, match="which it cannot"):
        pair.carried(tokens)
    np.testing.assert_array_equal(pair.fixed(extents).carried(tokens), stored)
    np.testing.assert_array_equal(pair.same_way(tokens, stored)[1], tokens)
    # A product of dimensions whose names are known.
    joined = replace(right, shape=(None, 3, None), symbols=("batch", "", "height*width"))
    pair = Pair(value("rows", (None, 3)), joined, None, Holds("rows", held.factors, held.perm, (-1, 3)))
    extents = {"batch": 2, "height": 4, "width": 5}
    np.testing.assert_array_equal(
        pair.fixed(extents).carried(tokens.reshape(40, 3)), tokens.transpose(0, 2, 1).reshape(2, 3, 20)
    )


def test_axes_that_stay_side_by_side_are_joined_where_nothing_tells_them_apart() -> None:
    image = np.arange(2 * 4 * 5 * 3, dtype=np.float32).reshape(2, 4, 5, 3)
    held = Holds("rows", (-1, -1, -1, 3), (0, 1, 2, 3), (-1, 3))
    pair = Pair(value("rows", (None, 3)), value("y", (None, None, None, 3)), None, held)
    np.testing.assert_array_equal(pair.same_way(image.reshape(40, 3), image)[1], image.reshape(40, 3))
    pair = Pair(value("split", (None, None, 3)), pair.right, None, replace(held, shape=(-1, -1, 3)))
    np.testing.assert_array_equal(pair.same_way(image.reshape(8, 5, 3), image)[1], image.reshape(8, 5, 3))
    stored = Holds("split", (-1, -1, -1, 3), (0, 1, 2, 3), (-1, -1, 3))
    pair = Pair(value("split", (None, None, 3)), value("y", (2, 20, 3)), None, stored)
    np.testing.assert_array_equal(pair.carried(image.reshape(8, 5, 3)), image.reshape(2, 20, 3))


def test_blocked_layouts_are_undone() -> None:
    source = np.arange(2 * 4 * 5 * 32, dtype=np.float32).reshape(2, 4, 5, 32)
    stored = source.reshape(2, 4, 5, 2, 16).transpose(0, 3, 1, 2, 4)
    for shape in (stored.shape, (2, 2, 4, 80)):
        pair = Pair(value("x", source.shape), value("y", shape), None, BLOCKED)
        np.testing.assert_array_equal(pair.carried(source), stored.reshape(shape))
        np.testing.assert_array_equal(pair.same_way(source, stored.reshape(shape))[1], source)
        assert pair.source_shape() == source.shape


def test_static_extents_are_told_to_the_source() -> None:
    left = value("x", (None, None, None, 3))
    assert Pair(left, value("x", (2, 4, 5, 3))).source_shape() == (2, 4, 5, 3)
    assert Pair(left, value("x", (2, 3, 4, 5)), None, DYNAMIC).source_shape() == (2, 4, 5, 3)
    assert Pair(left, value("x", None)).source_shape() is None


def test_integers_are_steps_of_what_is_not_normalized_yet() -> None:
    """A model that takes pixels as bytes, and normalizes them, is fed the pixels of what its source reads."""
    pixels = replace(value("x", (3,), "uint8", scale=(0.5,), zero=(10,)), normalization=Normalization((4.0,), (2.0,)))
    steps = Pair(value("x", (3,)), pixels).carried(np.array([-2, 0, 1.5], np.float32))
    assert steps.dtype == np.uint8
    assert steps.tolist() == [10, 18, 24]


def test_dequantized_models_are_fed_and_read_in_steps() -> None:
    left, right = value("q", (4,), "uint8", scale=(0.5,), zero=(10,)), value("q", (4,))
    pair, steps = Pair(left, right), np.array([0, 10, 11, 255], "uint8")
    reals = pair.carried(steps)
    np.testing.assert_array_equal(reals, np.array([-5, 0, 0.5, 122.5], "float32"))
    np.testing.assert_array_equal(pair.same_way(steps, reals + 0.2)[1], steps)
    np.testing.assert_array_equal(pair.same_way(steps, reals * 100)[1], [0, 10, 110, 255])
    assert pair.same_way(steps, np.full(4, np.nan, "float32"))[1].dtype == np.uint8


def test_ids_may_be_of_either_width() -> None:
    """`--input-type int32` and `--output-type int32` make int64 such; the numbers are still held to the source's."""
    pair = Pair(value("ids", (3,), "int64"), value("ids", (3,), "int32"))
    ids = np.array([0, 7, -3])
    assert pair.carried(ids).dtype == np.int32
    left, right = pair.same_way(ids, np.array([0, 7, -2], np.int32))
    assert left.dtype == right.dtype
    np.testing.assert_array_equal(left - right, [0, 0, -1])


def test_misfits_are_said() -> None:
    with pytest.raises(LayoutError, match="declared to hold 'x'"):
        Pair(value("x"), value("y"), None, NCHW).same_way(np.ones(7), np.ones(7))
    with pytest.raises(LayoutError, match="declared to hold 'x'"):
        Pair(value("x"), value("y"), None, replace(NCHW, shape=(-1,))).carried(np.ones(7, "float32"))
    with pytest.raises(RelayoutError, match="is int32 in the first model and float32 in the second"):
        Pair(value("x", (7,), "int32"), value("y", (7,))).carried(np.ones(7, "int32"))
    with pytest.raises(RelayoutError, match=r"fed \[7\], and the second model wants \[2, \?\]; it declares no other"):
        Pair(value("x", (7,)), value("y", (2, None))).carried(np.ones(7, "float32"))


def test_open_extents_beside_ones_are_those_of_the_array() -> None:
    """Two of them open, and axes of 1 on either side: the array has them all, in order."""
    source = np.arange(2 * 6 * 4, dtype=np.float32).reshape(2, 1, 6, 4)
    held = Holds("x", (-1, -1, 4), (0, 2, 1), (-1, 1, -1, 4))
    stored = relay(source, Holds("x", (2, 6, 4), (0, 2, 1), (2, 1, 6, 4))).reshape(2, 4, 6, 1)
    pair = Pair(value("x", (None, 1, None, 4)), value("y", (None, 4, None, 1), source_values=(held,)), None, held)
    left, right = pair.same_way(source, stored)
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(pair.carried(source), stored)


def test_open_extents_that_stay_side_by_side_are_one() -> None:
    """Of attention on an open image, whose height and width are one axis on both sides, nothing tells the height."""
    source = np.arange(2 * 2 * 8 * 12, dtype=np.float32).reshape(2, 2, 8, 12)
    stored = np.ascontiguousarray(source.transpose(0, 3, 1, 2))
    held = Holds("x", (-1, 2, 8, -1, -1), (0, 3, 4, 1, 2), (-1, 2, 8, -1))
    pair = Pair(value("x", (None, 2, 8, None)), value("y", (None, None, 2, 8), source_values=(held,)), None, held)
    left, right = pair.same_way(source, stored)
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(pair.carried(source), stored)
    turned = replace(held, perm=(0, 4, 3, 1, 2))  # width before height: that is another order of the elements
    with pytest.raises(LayoutError, match="which it cannot"):
        replace(pair, right_held=turned).carried(source)


@pytest.mark.parametrize(
    ("extents", "shape", "found"),
    [
        ((-1, 1024, -1), (2, 1024, 6, 1), (2, 1024, 6)),
        ((-1, 1024, -1), (1, 2, 1024, 6), (2, 1024, 6)),
        ((-1, -1, 1, 7), (2, 5, 7), (2, 5, 1, 7)),
        ((1, 1, -1), (5,), (1, 1, 5)),
        ((2, -1), (3, 4), None),
        ((-1, -1), (1, 6, 1), None),
        ((-1, -1, 4, 3), (10, 12), None),
        ((-1,) * 40, (1,) * 60, None),
        ((-1,), (2, 3), None),
        ((), (1, 1), ()),
    ],
)
def test_open_extents_are_filled_in(
    extents: tuple[int, ...], shape: tuple[int, ...], found: tuple[int, ...] | None
) -> None:
    assert fill_factors(extents, shape) == found


def test_what_factors_make_which_axis_is_read_where_extents_do_not_tell() -> None:
    """`n (h 2) w 2 c`: 128 rows by 64 columns might be 2 times 64 rows, or 64 times 2 columns."""
    held = Holds("x", (-1, -1, 2, -1, 2, 4), (0, 5, 1, 2, 3, 4), (-1, -1, -1, 2, 4))
    source = np.arange(2 * 12 * 6 * 2 * 4).reshape(2, 12, 6, 2, 4)
    stored = source.reshape(2, 6, 2, 6, 2, 4).transpose(held.perm).reshape(2, 4, 12, 6, 2)
    told = replace(held, axes=(1, 2, 1, 1, 1))
    (again,) = Holds.load(Holds.dump([told]))
    assert again == told
    for item, tells in ((held, False), (again, True)):
        pair = Pair(
            value("x", (None, None, None, 2, 4)),
            value("y", (None, 4, None, None, 2), source_values=(item,)),
            None,
            item,
        )
        try:
            right = pair.same_way(source, stored)[1]
        except LayoutError:
            assert not tells
        else:
            assert tells
            assert np.array_equal(right, source)
    assert '"axes"' not in Holds.dump([held])


@pytest.mark.parametrize("axes", [(1, 2), (3, 3), (-1, 4), (1, 1, 1), (2, 1)])
def test_axes_that_do_not_fit_say_nothing(axes: tuple[int, ...]) -> None:
    held = Holds("x", (-1, -1, 5), (1, 0, 2), (-1, -1), axes)
    assert resolved(held, (4, 6)).factors == (-1, -1, 5)


def test_upsampling_of_open_images_is_laid_out_again() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n,3,h,w] x) => (float[n,h2,w2,3] y)
        <int64[1] two={2}, int64[1] three={3}, int64[5] rows={1,1,2,1,1}, int64[5] columns={1,1,1,2,1},
         int64[4] high={1,2,1,1}, int64[4] wide={1,1,2,1}> {
        a = Transpose<perm=[0,2,3,1]>(x) s = Shape(a) t = Mul(s, high) u = Unsqueeze(a, two) v = Tile(u, rows)
        b = Reshape(v, t) k = Shape(b) l = Mul(k, wide) c = Unsqueeze(b, three) d = Tile(c, columns)
        e = Reshape(d, l) f = Transpose<perm=[0,3,1,2]>(e) p = MaxPool<kernel_shape=[2,2]>(f)
        y = Transpose<perm=[0,2,3,1]>(p) }"""
    source = parser.parse_model(text)
    report = verify(source, relayout.optimize(source).proto)
    assert report.ok
    assert not report.notes
    assert set(report.counts) == {"equal"}
