"""The laws of layouts, permutations, extents and regrouping."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relayout.errors import LayoutError
from relayout.layout import Dim, Extent, Layout, Learned, perm_of, product, quotient, segments
from relayout.layout import perm as perms
from relayout.layout.stored_as import Holds, relay, restore

PERMS = st.integers(0, 6).flatmap(lambda rank: st.permutations(range(rank)))


@given(PERMS)
def test_inverse_undoes(perm: list[int]) -> None:
    assert perms.is_identity(perms.permute(perm, perms.inverse(perm)))
    assert perms.is_identity(perms.permute(perms.inverse(perm), perm))
    assert perms.inverse(perms.inverse(perm)) == tuple(perm)


@given(st.integers(0, 6).flatmap(lambda n: st.tuples(*(st.permutations(range(n)),) * 3)))
def test_composition_is_associative_and_what_two_transposes_do(three: tuple[list[int], ...]) -> None:
    p, q, r = three
    both = perms.permute(q, p)
    assert perms.permute(r, both) == perms.permute(perms.permute(r, q), p)
    array = np.arange(int(np.prod(range(2, 2 + len(p))))).reshape(range(2, 2 + len(p)))
    assert (array.transpose(p).transpose(q) == array.transpose(both)).all()
    assert perms.permute(both, array.shape) == array.transpose(p).transpose(q).shape


def test_between_and_validated_refuse_what_is_no_permutation() -> None:
    assert perms.between("nhwc", "nchw") == (0, 3, 1, 2)
    with pytest.raises(LayoutError):
        perms.between("nhwc", "nchx")
    with pytest.raises(LayoutError):
        perms.between("nhhc", "nhch")
    with pytest.raises(LayoutError):
        perms.validated([0, 2])


@pytest.mark.parametrize(
    ("text", "short", "einops"),
    [
        ("NHWC", "NHWC", "n h w c"),
        ("nchw", "NCHW", "n c h w"),
        ("o h w i", "OHWI", "o h w i"),
        ("NCHW16c", "NCHW16c", "n co h w ci=16"),
        ("n co h w ci=16", "NCHW16c", "n co h w ci=16"),
        ("NDHWC", "NDHWC", "n d h w c"),
    ],
)
def test_names(text: str, short: str, einops: str) -> None:
    layout = Layout.parse(text)
    assert str(layout) == short
    assert Layout.parse(short) == Layout.parse(einops) == layout


@pytest.mark.parametrize("text", ["", "NN", "NCHW16", "NHW16c", "N-C", "n c=x h", "NCHW16c8c", "16"])
def test_what_is_no_layout_is_refused(text: str) -> None:
    with pytest.raises(LayoutError):
        Layout.parse(text)


def test_no_single_transpose_between_blocked_or_different_axes() -> None:
    with pytest.raises(LayoutError):
        perm_of("NCHW", "NCHW16c")
    with pytest.raises(LayoutError):
        perm_of("NCHW", "OIHW")


SHAPE = st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), max_size=5)


@given(SHAPE, st.data())
def test_regrouping_holds_the_same_elements(shape: list[int], data: st.DataObject) -> None:
    """Segments cover both sides in order, are equal in product, and refine both sides."""
    factors = [f for extent in shape for f in ([2, extent // 2] if extent % 2 == 0 and extent > 2 else [extent])]
    target: list[int] = []
    for factor in factors:
        if target and data.draw(st.booleans()):
            target[-1] *= factor
        else:
            target.append(factor)
    parts = segments(shape, target)
    assert parts is not None
    assert [axis for part in parts for axis in part.source] == list(range(len(shape)))
    assert [axis for part in parts for axis in part.target] == list(range(len(target)))
    for part in parts:
        left = product(Extent(shape[axis]) for axis in part.source)
        assert left == product(Extent(target[axis]) for axis in part.target)
        if part.factors is not None:
            assert product(part.factors) == left
            for side, extents in ((part.source, shape), (part.target, target)):
                sizes = [extents[axis] for axis in side if extents[axis] != 1]
                fine = [factor.number for factor in part.factors]
                for extent in sizes:
                    taken = 1
                    while taken < extent:
                        taken *= fine.pop(0)
                    assert taken == extent
                assert not fine


def test_barriers_and_symbols() -> None:
    (only,) = segments([6, 4], [4, 6]) or ()
    assert only.is_barrier
    first, second = segments(["batch", 7, 7, 64], ["batch", 3136]) or ()
    assert (first.factors, second.factors) == ((Extent(1, ("batch",)),), (Extent(7), Extent(7), Extent(64)))
    assert segments([2, 3], [7]) is None
    assert segments(["batch", 2], ["other", 2]) is None
    assert segments([0, 2], [2, 0]) is None
    merged = segments(["batch", 2, 3], [Extent(2, ("batch",)), 3])
    assert merged is not None
    assert not any(part.is_barrier for part in merged)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_holds_restore_undoes_relay(factors: list[int], data: st.DataObject) -> None:
    perm = tuple(data.draw(st.permutations(range(len(factors)))))
    shape = tuple(data.draw(st.sampled_from([factors, [int(np.prod(factors))]])))
    holds = Holds("x", tuple(factors), perm, shape)
    array = np.arange(int(np.prod(factors))).reshape(shape)
    assert (restore(relay(array, holds), holds) == array).all()
    assert (restore(relay(array, holds, [-1]), holds) == array).all()
    assert Holds.load(Holds.dump([holds])) == [holds]


def test_unreadable_metadata_is_refused() -> None:
    for text in ("", "{}", '[{"name": "x"}]', '[{"name":"x","factors":[2],"perm":[1],"shape":[2]}]', "[1]"):
        with pytest.raises(LayoutError):
            Holds.load(text)


@pytest.mark.parametrize(
    ("dim", "extent"),
    [
        ("batch", Extent(1, ("batch",))),
        ("6*batch", Extent(6, ("batch",))),
        ("length*2*batch*3", Extent(6, ("batch", "length"))),
        ("12", Extent(1, ("12",))),
        ("2*(n + 1)", Extent(2, ("n + 1",))),
        ("n + 1", Extent(1, ("n + 1",))),
        ("(n + 1)", Extent(1, ("(n + 1)",))),
        ("2*n + 2", Extent(1, ("2*n + 2",))),
        ("n + 2*(m + 1)", Extent(1, ("n + 2*(m + 1)",))),
        ("n*", Extent(1, ("n*",))),
        ("n**2", Extent(1, ("n**2",))),
        ("9" * 5000 + "*n", Extent(1, ("9" * 5000 + "*n",))),
    ],
)
def test_a_product_of_symbols_is_an_extent_and_any_other_name_a_symbol(dim: str, extent: Extent) -> None:
    assert Extent.of(dim) == extent
    if extent.symbols != (dim,):
        assert Extent.of(str(extent)) == extent


@pytest.mark.parametrize(
    ("text", "symbols", "written"),
    [
        ("(s53//4)", ("(s53//4)",), "(s53//4)"),
        ("((s53//4))", ("(s53//4)",), "(s53//4)"),
        ("s77*((s0//4))*((s53//4))", ("(s0//4)", "(s53//4)", "s77"), "(s0//4)*(s53//4)*s77"),
        ("4*(h//4)", ("(h//4)",), "4*(h//4)"),
        ("((h*w)//2)", ("((h*w)//2)",), "((h*w)//2)"),
        ("((s0 - 1)//2)", ("((s0 - 1)//2)",), "((s0 - 1)//2)"),
        ("(h - 1//2)", ("(h - 1//2)",), "(h - 1//2)"),
        ("2*(h + 1)", ("h + 1",), "2*(h + 1)"),
        ("2*((h + 1))", ("(h + 1)",), "2*((h + 1))"),
        ("8*((((h - 3)//2)) + 1)*b", ("(((h - 3)//2)) + 1", "b"), "8*((((h - 3)//2)) + 1)*b"),
        ("((a*b)//(c*d))", ("((a*b)//(c*d))",), "((a*b)//(c*d))"),
        ("a*(b", ("a*(b",), "a*(b"),
        ("(a)*(b)", ("a", "b"), "a*b"),
    ],
)
def test_quotients_are_symbols(text: str, symbols: tuple[str, ...], written: str) -> None:
    extent = Extent.of(text)
    assert (extent.symbols, str(extent)) == (symbols, written)
    assert Extent.of(str(extent)) == extent


SIZES = {"h": st.integers(1, 30), "w": st.integers(1, 30)}


@given(st.fixed_dictionaries(SIZES), st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
def test_a_floor_is_what_integers_give(sizes: dict[str, int], times: int, first: int, second: int) -> None:
    for whole in (Extent(times, ("h",)), Extent(times, ("h", "w")), Extent(times)):
        once = whole.floor(Extent(first))
        if whole.symbols or times % first == 0:
            assert once is not None
            assert once.value(sizes) == whole.value(sizes) // first
            twice = once.floor(Extent(second))
            if twice is not None:
                assert twice.value(sizes) == whole.value(sizes) // first // second
                assert Extent.of(str(twice)) == twice or twice.is_static
                assert twice == whole.floor(Extent(first * second))
    assert Extent(1, ("h", "w")).floor(Extent(first, ("w",))) == Extent(1, ("h",)).floor(Extent(first))
    assert Extent(1, ("h",)).floor(Extent(1, ("w",))) is None
    assert quotient("h") is None


@given(st.fixed_dictionaries(SIZES), st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_what_a_reshape_tells_is_so_wherever_it_runs(sizes: dict[str, int], a: int, b: int, back: bool) -> None:
    """Where both sides have as many elements, what is said to divide an extent does; where not, nothing is asked."""
    whole = [Extent.of("h"), Extent.of("w"), Extent(5)]
    parts = [Extent.of(f"(h//{a})"), Extent(a), Extent.of(f"(w//{b})"), Extent(b), Extent(5)]
    learned = Learned().of(*((parts, whole) if back else (whole, parts)))
    assert learned.divisors == {name: by for name, by in (("h", a), ("w", b)) if by > 1}
    if product(whole).value(sizes) == product(parts).value(sizes):
        assert all(sizes[name] % by == 0 for name, by in learned.divisors.items())


def test_what_a_reshape_does_not_tell() -> None:
    for source, target in (
        (["h"], ["(h//4)", 2]),
        (["h", "w"], ["(h//4)", "w"]),
        (["h", "(w//2)"], ["(h//4)", 4, "w"]),
        (["h", "w"], ["((h*w)//4)", 4]),
        (["h", "v"], ["(w//4)", 4, "v"]),
    ):
        assert Learned().of(map(Extent.of, source), map(Extent.of, target)) == Learned()
    known = Learned({"h": 4}).of(map(Extent.of, ["h", 6]), map(Extent.of, ["(h//6)", 36]))
    assert known == Learned({"h": 12})
    assert Learned().of([Extent.of("unk__3"), Extent(2)], [Extent.of("x"), Extent(2)]) == Learned(same={"unk__3": "x"})
    assert Learned().of([Extent.of("n"), Extent(2)], [Extent.of("x"), Extent(4)]) == Learned()


def test_a_reshape_of_no_elements_tells_nothing() -> None:
    none = [Extent(0), Extent.of("unk__3")]
    assert Learned().of(none, [Extent(16)]) == Learned().of([Extent(16)], none) == Learned()


def test_what_is_divided_stands_in_parentheses() -> None:
    assert quotient("((a + b)//4)") == (Extent.of("a + b"), 4)
    assert quotient("(a + b//4)") is None


def test_a_product_of_products_is_one() -> None:
    """So importers write what they multiply step by step."""
    assert Extent.of("4*((2*h)*b)") == Extent.of("8*b*h") == Extent(8, ("b", "h"))
    assert Extent.of("2*((h*w)//4)") == Extent(2, ("((h*w)//4)",))
    assert Extent.of("2*(h*w - 1)") == Extent(2, ("h*w - 1",))
    sums = Extent(2) * Extent.of("h - 1") * Extent.of("((w - 3)//4)") * Extent.of("(((w - 3)//4)) + 1")
    assert Extent.of(str(sums)) == sums
    assert Extent.of("h - 1").floor(Extent(2)) == Extent.of("((h - 1)//2)")


@pytest.mark.parametrize(
    ("extent", "by", "sum_"),
    [
        ("h", 2, "h + 2"),
        ("h + 2", -2, "h"),
        ("h - 3", 1, "h - 2"),
        ("2*h", 1, "2*h + 1"),
        ("2*h + 1", -1, "2*h"),
        ("(h//2)", -1, "(h//2) - 1"),
        ("2*(h + 1)", 1, "2*(h + 1) + 1"),
        ("h", 0, "h"),
        (5, 2, 7),
    ],
)
def test_a_sum_and_what_it_is_of(extent: Dim, by: int, sum_: Dim) -> None:
    assert Extent.of(extent).plus(by) == Extent.of(sum_)
    assert Extent.of(extent).plus(by).plus(-by) == Extent.of(extent)
